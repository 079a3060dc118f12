//! What callers do to a task: cancel it, retry it, add accounts to it. Drafts are in [`super::drafts`].
//!
//! Each is one transaction: the task's publications are locked ([`super::hold`]), which shows their states as they are; what
//! follows is decided by [`crate::task::act`], and carried out by [`Store::apply`].

use sqlx::PgTransaction;
use uuid::Uuid;

use super::hold::{Before, moving};
use super::{ANSWER_LOST, Move, NOT_PUBLISHED, Published, Store, StoreError, TaskRow, Telling, columns};
use crate::account::AccountKey;
use crate::article::ExternalId;
use crate::task::act::{self, Fate, HeldTask, Refusal, RetryRequest, Retrying};
use crate::task::state::Status;

/// What a caller's action came to.
#[derive(Debug, Clone)]
pub struct Acted<T> {
    /// What it did, of each account.
    pub did: T,
    /// The task with it.
    pub task: TaskRow,
    /// Whether something is due now that was not.
    pub due: bool,
    /// Whether events were written.
    pub told: bool,
}

/// What a cancellation came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cancellation {
    /// What is cancelled, now or before.
    pub cancelled: Vec<AccountKey>,
    /// What is public, and where.
    pub live: Vec<(AccountKey, Option<String>)>,
    /// What may be under way.
    pub in_flight: Vec<AccountKey>,
}

/// What a retry came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Retry {
    /// What runs again, or is public after all.
    pub retried: Vec<AccountKey>,
    /// What is left as it is, and why.
    pub skipped: Vec<(AccountKey, &'static str)>,
}

/// The answer to an action, or why nothing was done.
pub type ActedOr<T> = Result<Acted<T>, Refusal>;

impl Store {
    /// Cancels what has not started. What may be under way ends as it ends.
    pub async fn cancel(
        &self,
        tenant_id: Uuid,
        external_id: &ExternalId,
        telling: Telling,
    ) -> Result<ActedOr<Cancellation>, StoreError> {
        let Some(mut held) = self.hold(tenant_id, external_id, Before::Nothing).await? else {
            return Ok(Err(Refusal::NoTask));
        };
        let fates = match act::cancelling(&held.task) {
            Ok(fates) => fates,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let mut did = Cancellation::default();
        let mut moves = Vec::new();
        for (one, fate) in held.task.publications.iter().zip(fates) {
            let account = one.account.clone();
            match fate {
                Fate::Cancel => {
                    moves.push(Move {
                        error: Some(act::cancelled(one.status)),
                        reason: "cancelled_by_caller",
                        // What is open can be a draft only, which is removed.
                        outcome: Some(ANSWER_LOST),
                        ..moving(tenant_id, one, Status::Failed)
                    });
                    did.cancelled.push(account);
                }
                Fate::Cancelled => did.cancelled.push(account),
                Fate::Live => did.live.push((account, one.url.clone())),
                Fate::InFlight => did.in_flight.push(account),
                Fate::Over => {}
            }
        }
        if !moves.is_empty() {
            self.apply(tenant_id, &moves, telling, &mut held.transaction).await?;
        }
        self.acted(tenant_id, external_id, held.transaction, did, false, !moves.is_empty()).await
    }

    /// Retries what has failed or waits for a login, in a new round; or notes that it is public after all.
    pub async fn retry(
        &self,
        tenant_id: Uuid,
        external_id: &ExternalId,
        request: &RetryRequest,
        telling: Telling,
    ) -> Result<ActedOr<Retry>, StoreError> {
        let Some(mut held) = self.hold(tenant_id, external_id, Before::OwnAccounts).await? else {
            return Ok(Err(Refusal::NoTask));
        };
        let plans = match act::retrying(&held.task, request) {
            Ok(plans) => plans,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let mut did = Retry::default();
        let (mut moves, mut public) = (Vec::new(), Vec::new());
        for (at, plan) in plans {
            let one = &held.task.publications[at];
            match plan {
                Retrying::Skip(reason) => {
                    did.skipped.push((one.account.clone(), reason));
                    continue;
                }
                Retrying::Again(reason) => moves.push(Move {
                    wait: Some(held.task.wait()),
                    new_round: true,
                    reason,
                    outcome: (reason == act::CONFIRMED_NOT_PUBLISHED).then_some(NOT_PUBLISHED),
                    ..moving(tenant_id, one, Status::Submitted)
                }),
                Retrying::Published { url, remote_id } => {
                    let held = ((one.publication_id, one.fence), one.status);
                    public.push((held, Published { url, remote_id, reason: "confirmed_published" }));
                }
            }
            did.retried.push(one.account.clone());
        }
        if !moves.is_empty() {
            self.apply(tenant_id, &moves, telling, &mut held.transaction).await?;
        }
        let told = !public.is_empty();
        for (publication, published) in public {
            self.confirm_published(tenant_id, publication, published, telling, &mut held.transaction).await?;
        }
        self.acted(tenant_id, external_id, held.transaction, did, !moves.is_empty(), told).await
    }

    /// Adds accounts to a task; those that it has stay as they are.
    pub async fn add_accounts(
        &self,
        tenant_id: Uuid,
        external_id: &ExternalId,
        accounts: &[AccountKey],
    ) -> Result<ActedOr<()>, StoreError> {
        let Some(mut held) = self.hold(tenant_id, external_id, Before::Accounts(accounts)).await? else {
            return Ok(Err(Refusal::NoTask));
        };
        let new = match act::adding(&held.task, accounts, &held.known) {
            Ok(new) => new,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let due = !new.is_empty() && !held.task.is_draft();
        if !new.is_empty() {
            self.insert_publications(tenant_id, &held.task, &new, &mut held.transaction).await?;
        }
        self.acted(tenant_id, external_id, held.transaction, (), due, false).await
    }

    async fn insert_publications(
        &self,
        tenant_id: Uuid,
        task: &HeldTask,
        new: &[(AccountKey, i32)],
        transaction: &mut PgTransaction<'_>,
    ) -> Result<(), StoreError> {
        let (platforms, ids) = columns(new.iter().map(|(account, _)| account));
        let state = if task.is_draft() { Status::Draft } else { Status::Submitted };
        sqlx::query!(
            "WITH added AS (
                INSERT INTO publications (tenant_id, publication_id, task_id, platform, account_id, position, status,
                    due_at, updated_at, added)
                SELECT $1, u.publication_id, $2, u.platform, u.account_id, u.position, $3,
                    greatest($4, now() + $9::interval), now() + $9::interval, true
                FROM unnest($5::uuid[], $6::text[], $7::text[], $8::int[])
                    AS u(publication_id, platform, account_id, position)
                RETURNING publication_id
            ), noted AS (
                -- Born in this state: it comes from none.
                INSERT INTO transitions (tenant_id, task_id, publication_id, at, from_status, to_status, round, fence, reason)
                SELECT $1, $2, publication_id, now() + $9::interval, '', $3, 1, 0, 'added_by_caller' FROM added
            )
            UPDATE tasks SET drafts = drafts + CASE WHEN $3 = 'draft' THEN n ELSE 0 END,
                open = open + CASE WHEN $3 = 'draft' THEN 0 ELSE n END, finished_at = NULL
            FROM (SELECT count(*)::int AS n FROM added) a WHERE tenant_id = $1 AND task_id = $2",
            tenant_id,
            task.task_id,
            state.as_str(),
            task.publish_at,
            &new.iter().map(|_| self.clock.new_id()).collect::<Vec<_>>(),
            &platforms,
            &ids,
            &new.iter().map(|(_, place)| *place).collect::<Vec<_>>(),
            self.clock.skew() as _,
        )
        .execute(&mut **transaction)
        .await?;
        Ok(())
    }

    /// Reads the task as the transaction leaves it, and commits.
    pub(super) async fn acted<T>(
        &self,
        tenant_id: Uuid,
        external_id: &ExternalId,
        mut transaction: PgTransaction<'static>,
        did: T,
        due: bool,
        told: bool,
    ) -> Result<ActedOr<T>, StoreError> {
        let Some(task) = Self::read_task(&mut *transaction, tenant_id, external_id, false).await? else {
            return Ok(Err(Refusal::NoTask));
        };
        transaction.commit().await?;
        Ok(Ok(Acted { did, task, due, told }))
    }
}
