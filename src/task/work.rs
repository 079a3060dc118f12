//! Working: publications that are due are claimed and run; those that a holder left behind are looked up.
//!
//! No transaction is open while a platform is called. A run ends in a settlement, or it is left to its lease: a crash,
//! a lost answer, a lost lease and a shutdown all take that one road, and whoever takes over looks before anything else.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;
use uuid::Uuid;

use super::run::{CONFIRM_LIMIT, OUTCOME_UNKNOWN, Outcome};
use super::scribe::Scribe;
use super::settle::Settler;
use crate::clock::SharedClock;
use crate::connector::{Connector, Failure, http_bridge};
use crate::fault;
use crate::retry::{Schedule, interval};
use crate::store::{ANSWER_LOST, ClaimLimits, Claimed, Due, LOGIN_EXPIRED, Move, Store, StoreError, Telling};
use crate::task::marker::MarkerKey;
use crate::task::state::Status;
use crate::telemetry::metrics::Metrics;
use crate::turns::{REST, TakesTurns, Turn, Wake};
use crate::vault::Vault;

/// How many publications one node has in hand at once: each waits for its platform, or for a commit, most of the time. At
/// 3,000 a second, a run that takes 150 ms needs 450, and a turn begins only where there is room for the most that it may take.
pub const IN_HAND_MAX: usize = 1_024;

/// How many KiB of articles one node has in hand when it claims more: 64 MiB, of 4 KiB each far more than
/// [`IN_HAND_MAX`]. A claim may take it past that, by what one claim takes.
pub const IN_HAND_KIB: usize = 64 * 1024;

/// How many batches of the loops a node writes at once that are not full: journal, outcomes, tries, and the sandbox's requests.
/// Each costs something of its own, so beside others they grow instead; full ones do not wait.
pub const PARTIAL: usize = 2;

/// The shortest rest of a tenant of whom nothing could be claimed: somebody else was just at it.
const REST_MIN: Duration = Duration::from_millis(20);

/// The longest, while what is due waits for an account's pace, for its day, or for others who are at it. What becomes due
/// meanwhile ends it sooner, and so does what ends on this node.
const REST_MOST: Duration = Duration::from_secs(5);

/// The wait before a platform that gave no answer is asked again, where the retry schedule is empty.
pub(super) const ASK_WAIT: Duration = Duration::from_mins(1);

/// Why an account is left alone for a while.
pub(super) const RATE_LIMITED: &str = "rate_limited";

/// The connectors that are set up, by platform.
pub type Connectors = HashMap<&'static str, Arc<dyn Connector>>;

/// What a worker needs.
pub struct Worker {
    /// Where the work is.
    pub store: Store,
    /// Opens the tenants' marker keys.
    pub vault: Vault,
    /// What can be published to.
    pub connectors: Connectors,
    /// Where outcomes go.
    pub settler: Settler,
    /// Where steps are noted.
    pub scribe: Scribe,
    /// How ends are told that nobody worked for.
    pub telling: Telling,
    /// Callbacks are due.
    pub deliver: Wake,
    /// How claims are made.
    pub limits: ClaimLimits,
    /// The waits after transient errors.
    pub retries: Schedule,
    /// Counts runs.
    pub metrics: Metrics,
    /// Time and chance.
    pub clock: SharedClock,
    /// Keeps the runs that are under way.
    pub tracker: TaskTracker,
    /// What there is room for of articles, in KiB.
    pub room: Arc<Semaphore>,
    /// The tenants' marker keys; they never change.
    pub marker_keys: Mutex<HashMap<Uuid, MarkerKey>>,
}

impl TakesTurns for Worker {
    async fn take_turn(
        self: &Arc<Self>,
        due: &Due,
        mut slots: OwnedSemaphorePermit,
    ) -> Result<Turn, StoreError> {
        let tenant_id = due.tenant_id;
        // Until some of what is in hand has ended, where that is many large articles.
        drop(self.room.acquire().await);
        let looked_after = self.look_after_logins(due).await? + self.give_up_pulled(due).await?;
        // Read before anything is claimed: a claim whose run cannot begin would only wait for its lease to run out.
        let marker_key = self.marker_key(tenant_id).await?;
        let claimed = self.store.claim(tenant_id, &self.limits).await?;
        let taken = claimed.len();
        if taken > 0 {
            fault::point("claim.committed", "");
        }
        for one in claimed {
            let slot = (slots.split(1), self.hold(&one));
            let (worker, marker_key) = (self.clone(), marker_key.clone());
            // Of the highest level, so that no filter takes the ids away from a line that it lets pass.
            let span = tracing::error_span!(
                "run",
                external_id = one.external_id,
                task_id = %one.task_id,
                publication_id = %one.publication_id,
                platform = one.platform,
                account_id = one.account_id
            );
            let run = async move {
                let _slot = slot;
                if let Err(error) = worker.run(&one, &marker_key).await {
                    tracing::warn!(%error, "left to its lease");
                }
            };
            self.tracker.spawn(run.instrument(span));
        }
        let sweeps =
            if due.sweeping { self.store.claim_sweeps(tenant_id, &self.limits).await? } else { Vec::new() };
        let taken = taken + sweeps.len();
        for sweep in sweeps {
            let slot = (slots.split(1), self.hold(&sweep.one));
            let worker = self.clone();
            let one = &sweep.one;
            let span = tracing::error_span!(
                "sweep",
                external_id = one.external_id,
                task_id = %one.task_id,
                publication_id = %one.publication_id,
                platform = one.platform,
                account_id = one.account_id
            );
            let run = async move {
                let _slot = slot;
                if let Err(error) = worker.sweep(&sweep).await {
                    tracing::warn!(%error, "left to its lease");
                }
            };
            self.tracker.spawn(run.instrument(span));
        }
        let rest = if taken + looked_after == 0 { self.rest(tenant_id).await? } else { REST };
        Ok(Turn { taken: taken + looked_after, rest })
    }
}

impl Worker {
    /// Expires what is due on accounts whose login has expired, and resumes what waits for one that was renewed.
    async fn look_after_logins(&self, due: &Due) -> Result<usize, StoreError> {
        let tenant_id = due.tenant_id;
        let expired = if due.parked { self.store.expire_due(tenant_id, self.telling).await? } else { 0 };
        if expired > 0 {
            tracing::info!(%tenant_id, publications = expired, "not sent: the account's login has expired");
            self.deliver.wake(tenant_id);
        }
        let resumed = if due.resuming { self.store.resume(tenant_id, self.telling).await? } else { 0 };
        if resumed > 0 {
            tracing::info!(%tenant_id, publications = resumed, "resumed: the account's login was renewed");
        }
        Ok(expired + resumed)
    }

    /// Ends what was handed out to a robot and not reported for a day, whether or not a robot ever comes again.
    async fn give_up_pulled(&self, due: &Due) -> Result<usize, StoreError> {
        if !due.pulled {
            return Ok(0);
        }
        let tenant_id = due.tenant_id;
        let end = |held| {
            let message = "it could not be found out whether the article was published: no robot has reported for a day";
            let failure = Failure::new(OUTCOME_UNKNOWN, message);
            let unknown = Outcome::Failed { failure, retryable: false, reason: OUTCOME_UNKNOWN };
            end(tenant_id, held, unknown, None)
        };
        let given_up = self.store.give_up_pulled(tenant_id, CONFIRM_LIMIT, self.telling, end).await?;
        if given_up > 0 {
            tracing::warn!(%tenant_id, publications = given_up, "handed out, and no robot has reported for a day");
            (0..given_up).for_each(|_| self.metrics.run_ended(http_bridge::PLATFORM, OUTCOME_UNKNOWN));
            self.deliver.wake(tenant_id);
        }
        Ok(given_up)
    }

    /// How long a tenant rests of whom nothing could be claimed: until an account's pace allows it.
    async fn rest(&self, tenant_id: Uuid) -> Result<Duration, StoreError> {
        let free = self.store.next_free(tenant_id, REST_MOST).await?.and_then(|wait| wait.to_std().ok());
        Ok(free.unwrap_or(REST_MOST).clamp(REST_MIN, REST_MOST))
    }

    /// The article's share of the room, as far as there is any: what was claimed is run.
    fn hold(&self, one: &Claimed) -> Option<OwnedSemaphorePermit> {
        let kib = one.content.content_html.len().div_ceil(1024).min(self.room.available_permits());
        self.room.clone().try_acquire_many_owned(u32::try_from(kib).ok()?).ok()
    }

    async fn marker_key(&self, tenant_id: Uuid) -> Result<MarkerKey, StoreError> {
        let cached = || self.marker_keys.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(key) = cached().get(&tenant_id) {
            return Ok(key.clone());
        }
        let key = self.store.marker_key(tenant_id, &self.vault).await?;
        cached().insert(tenant_id, key.clone());
        Ok(key)
    }
}

/// How an outcome ends what runs: the publication and its fence.
pub(super) fn end(tenant_id: Uuid, held: (Uuid, i32), outcome: Outcome, answer: Option<String>) -> Move {
    let into = |to| Move::new(tenant_id, held, (Status::Running, to));
    let error = |failure: Failure, retryable| Some((failure.code.into_owned(), failure.message, retryable));
    match outcome {
        Outcome::Success { remote, found, strays } => Move {
            url: Some(remote.url),
            remote_id: remote.remote_id,
            reason: if found { "found_published" } else { "published" },
            outcome: Some(if found { ANSWER_LOST } else { "done" }),
            answer,
            strays,
            ..into(Status::Success)
        },
        Outcome::Failed { failure, retryable, reason } => Move {
            error: error(failure, retryable),
            reason,
            outcome: Some(if reason == OUTCOME_UNKNOWN { ANSWER_LOST } else { "rejected" }),
            answer,
            ..into(Status::Failed)
        },
        Outcome::LoginExpired { failure, in_doubt } => Move {
            error: error(failure, true),

            reason: LOGIN_EXPIRED,
            outcome: (!in_doubt).then_some(LOGIN_EXPIRED),
            answer,
            ..into(Status::LoginExpired)
        },
        Outcome::Again { failure, wait } => Move {
            error: error(failure, true),
            wait: Some(interval(wait)),
            reason: "transient_error",
            outcome: Some("rejected"),
            answer,
            ..into(Status::Submitted)
        },
        Outcome::Parked { failure, wait } => Move {
            error: error(failure, true),
            parks: Some(interval(wait)),
            reason: RATE_LIMITED,
            outcome: Some("rejected"),
            answer,
            ..into(Status::Submitted)
        },
    }
}
