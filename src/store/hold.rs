//! A task all of whose publications are locked, for as long as a caller's action takes.

use sqlx::PgTransaction;
use uuid::Uuid;

use super::locks::{keep_accounts, keep_group};
use super::{Move, Store, StoreError};
use crate::account::AccountKey;
use crate::article::ExternalId;
use crate::task::act::{HeldPublication, HeldTask};
use crate::task::state::Status;

/// How often a transaction is begun at most, because others changed the task while it waited for them: nobody changes one
/// that often.
const BEGINS_MAX: usize = 8;

/// What is locked before the publications: it must not go while something is made of it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Before<'a> {
    /// Nothing.
    Nothing,
    /// The accounts of the task.
    OwnAccounts,
    /// These accounts.
    Accounts(&'a [AccountKey]),
    /// The group of the task.
    OwnGroup,
    /// This group.
    Group(&'a str),
}

/// A task whose publications are locked, and the transaction that does.
pub(super) struct Held {
    pub transaction: PgTransaction<'static>,
    pub task: HeldTask,
    /// Of the accounts that were to be locked, those that exist.
    pub known: Vec<AccountKey>,
}

impl Store {
    /// Locks a task's publications, and what is asked for before them; none if there is no such task.
    ///
    /// A statement that has waited does not see what was added meanwhile, and locking that, too, would be out of order: so
    /// it is looked again, and begun again if others were faster. Then, too, its time is later than theirs.
    pub(super) async fn hold(
        &self,
        tenant_id: Uuid,
        external_id: &ExternalId,
        before: Before<'_>,
    ) -> Result<Option<Held>, StoreError> {
        for begun in 1..=BEGINS_MAX {
            let mut transaction = self.pool.begin().await?;
            let named = sqlx::query!(
                "SELECT task_id, group_code FROM tasks WHERE tenant_id = $1 AND external_id = $2",
                tenant_id,
                external_id.as_str(),
            )
            .fetch_optional(&mut *transaction)
            .await?;
            let Some(named) = named else { return Ok(None) };
            let mut known = Vec::new();
            match before {
                Before::Nothing => {}
                Before::OwnAccounts => {
                    known = keep_accounts(tenant_id, &[], Some(named.task_id), &mut transaction).await?;
                }
                Before::Accounts(keys) => {
                    known = keep_accounts(tenant_id, keys, None, &mut transaction).await?;
                }
                Before::OwnGroup => keep_group(tenant_id, &named.group_code, &mut transaction).await?,
                Before::Group(code) => keep_group(tenant_id, code, &mut transaction).await?,
            }
            let mut locked = sqlx::query_scalar!(
                "SELECT publication_id FROM publications WHERE tenant_id = $1 AND task_id = $2
                ORDER BY publication_id FOR UPDATE",
                tenant_id,
                named.task_id,
            )
            .fetch_all(&mut *transaction)
            .await?;
            let task = self.read_held(tenant_id, named.task_id, &mut transaction).await?;
            let mut seen = task.publications.iter().map(|one| one.publication_id).collect::<Vec<_>>();
            locked.sort_unstable();
            seen.sort_unstable();
            let moved_on = locked != seen || locked.is_empty() || task.group_code != named.group_code;
            let later = task.publications.iter().any(|one| one.updated_at > task.now);
            // A clock that was set back says nothing: in the end the locks are what counts.
            if !moved_on && (!later || begun == BEGINS_MAX) {
                return Ok(Some(Held { transaction, task, known }));
            }
            transaction.rollback().await?;
        }
        Err(StoreError::HeldUp(sqlx::Error::Protocol("others keep changing this task's accounts".to_owned())))
    }

    async fn read_held(
        &self,
        tenant_id: Uuid,
        task_id: Uuid,
        transaction: &mut PgTransaction<'_>,
    ) -> Result<HeldTask, StoreError> {
        // One statement: a change of the group is seen with the accounts that it brought. And under the task's lock: its
        // content is not removed meanwhile.
        let rows = sqlx::query!(
            r#"SELECT t.group_code, t.publish_at, t.submitted_at, t.content_removed_at IS NOT NULL AS "content_removed!",
                now() + $3::interval AS "now!",
                p.publication_id AS "publication_id?", p.fence AS "fence?", p.platform AS "platform?",
                p.account_id AS "account_id?", p.position AS "position?", p.status AS "status?: Status", p.url,
                p.error_code, p.added AS "added?", p.updated_at AS "updated_at?",
                coalesce(p.status IN ('submitted', 'login_expired') AND p.attempts > 0 AND EXISTS (
                    SELECT FROM attempts t WHERE t.tenant_id = $1 AND t.publication_id = p.publication_id
                        AND t.kind = 'publish' AND t.ended_at IS NULL), false) AS "in_doubt!",
                a.hidden_at IS NOT NULL AS "account_deleted!"
            FROM tasks t
            LEFT JOIN publications p ON p.tenant_id = t.tenant_id AND p.task_id = t.task_id
            LEFT JOIN accounts a ON a.tenant_id = p.tenant_id AND a.platform = p.platform AND a.account_id = p.account_id
            WHERE t.tenant_id = $1 AND t.task_id = $2 ORDER BY p.position FOR NO KEY UPDATE OF t"#,
            tenant_id,
            task_id,
            self.clock.skew() as _,
        )
        .fetch_all(&mut **transaction)
        .await?;
        let first = rows.first().ok_or(sqlx::Error::RowNotFound)?;
        let (group_code, now) = (first.group_code.clone(), first.now);
        let (publish_at, submitted_at, content_removed) =
            (first.publish_at, first.submitted_at, first.content_removed);
        let publications = rows.into_iter().filter_map(|row| {
            Some(HeldPublication {
                publication_id: row.publication_id?,
                fence: row.fence?,
                account: AccountKey::stored(row.platform?, row.account_id?),
                position: row.position?,
                status: row.status?,
                url: row.url,
                error_code: row.error_code,
                in_doubt: row.in_doubt,
                added: row.added?,
                account_deleted: row.account_deleted,
                updated_at: row.updated_at?,
            })
        });
        let publications = publications.collect();
        Ok(HeldTask { task_id, group_code, publish_at, submitted_at, content_removed, now, publications })
    }
}

/// A move of a publication from where it stands.
pub(super) fn moving(tenant_id: Uuid, one: &HeldPublication, to: Status) -> Move {
    Move::new(tenant_id, (one.publication_id, one.fence), (one.status, to))
}
