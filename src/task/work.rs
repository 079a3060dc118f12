//! Working: publications that are due are claimed and run; those that a holder left behind are looked up.
//!
//! No transaction is open while a platform is called. A run ends in a settlement, or it is left to its lease: a crash,
//! a lost answer, a lost lease and a shutdown all take that one road, and whoever takes over looks before anything else.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::OwnedSemaphorePermit;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;
use uuid::Uuid;

use super::run::{Known, Outcome, Step, after_find, after_publish};
use super::settle::Settler;
use crate::clock::SharedClock;
use crate::connector::{Connector, Failure, Job, Sighting, Verdict};
use crate::retry::{Schedule, interval};
use crate::store::{
    ClaimLimits, Claimed, Due, JournalEntry, LOGIN_EXPIRED, Move, OpenTries, Store, StoreError, Telling,
};
use crate::task::marker::MarkerKey;
use crate::task::state::Status;
use crate::telemetry::metrics::{self, Metrics};
use crate::turns::{REST, TakesTurns, Turn, Wake};
use crate::vault::Vault;

/// How many publications one node has in hand at once: each waits for its platform most of the time.
pub const IN_HAND_MAX: usize = 128;

/// The shortest rest of a tenant of whom nothing could be claimed: somebody else was just at it.
const REST_MIN: Duration = Duration::from_millis(20);

/// The wait before a platform that gave no answer is asked again, where the retry schedule is empty.
const ASK_WAIT: Duration = Duration::from_mins(1);

/// The error code of what was sent, and nobody has said what came of it.
const ANSWER_LOST: &str = "answer_lost";

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
        let looked_after = self.look_after_logins(due).await?;
        // Read before anything is claimed: a claim whose run cannot begin would only wait for its lease to run out.
        let marker_key = self.marker_key(tenant_id).await?;
        let claimed = self.store.claim(tenant_id, &self.limits).await?;
        let taken = claimed.len();
        for one in claimed {
            let slot = slots.split(1);
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
                if let Err(error) = worker.run(one, &marker_key).await {
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

    /// How long a tenant rests of whom nothing could be claimed: until an account's pace allows it.
    async fn rest(&self, tenant_id: Uuid) -> Result<Duration, StoreError> {
        let free = self.store.next_free(tenant_id).await?.and_then(|wait| wait.to_std().ok());
        Ok(free.unwrap_or(REST).clamp(REST_MIN, REST))
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

    /// Runs one publication: look, note the intent, publish, settle.
    async fn run(&self, one: Claimed, marker_key: &MarkerKey) -> Result<(), StoreError> {
        let marker = match &one.marker {
            Some(marker) => marker.clone(),
            None => marker_key.marker(&one.external_id, &one.platform, &one.account_id),
        };
        // A first claim has no journal; asked only where there may be one.
        let open = match one.marker {
            Some(_) => self.store.open_tries(one.tenant_id, one.publication_id).await?,
            None => OpenTries::default(),
        };
        let wait = |tries: i64| usize::try_from(tries).unwrap_or(usize::MAX);
        let known = || Known {
            now: self.clock.now(),
            open,
            next_wait: self.retries.wait(wait(one.tries.into())),
            ask_wait: self.retries.wait_repeating(wait(open.tries - open.accepted)).unwrap_or(ASK_WAIT),
        };
        let until = self.clock.instant() + self.limits.lease / 2;
        let mut job = Job::of(&one, &marker, one.credentials(&self.vault)?, until);
        let connector = self.connectors.get(one.platform.as_str());
        let probe = self.look(connector, &job).await;
        let mut entry = JournalEntry {
            tenant_id: one.tenant_id,
            publication_id: one.publication_id,
            fence: one.fence,
            marker: &marker,
            lease: self.limits.lease,
            probe: probe.row(),
            publish: None,
            confirming: false,
        };
        let step = after_find(probe.sighting.clone(), known());
        // Without a connector nothing is proven absent, so there is one where there is something to publish.
        let (Step::Publish, Some(connector)) = (&step, connector) else {
            entry.confirming = one.taken_over || matches!(step, Step::LookAgain(_));
            if self.store.journal(&entry).await? {
                return self.conclude(&one, step, None).await;
            }
            return Ok(());
        };
        entry.publish = Some(1);
        // Where sending is the look-up, what was sent before is still being found out.
        entry.confirming = open.tries > 0 && probe.sighting == Sighting::SendToAsk;
        // Counted from before the lease is renewed: whoever is stopped between that and the call must not begin it later.
        let until = self.clock.instant() + self.limits.lease / 2;
        if !self.store.journal(&entry).await? {
            return Ok(());
        }
        job.until = until;
        let verdict = self.within_call(until, connector.publish(&job)).await;
        let verdict = verdict.unwrap_or_else(|| Verdict::Unknown("no answer in time".to_owned()));
        let answer = describe(&verdict);
        self.conclude(&one, after_publish(verdict, &probe.sighting, known()), Some(answer)).await
    }

    /// Looks whether the article is on its platform.
    async fn look(&self, connector: Option<&Arc<dyn Connector>>, job: &Job) -> Probe {
        let begun = self.clock.instant();
        let sighting = match connector {
            Some(connector) => self
                .within_call(job.until, connector.find(job))
                .await
                .unwrap_or_else(|| Sighting::CannotTell("the platform gave no answer in time".to_owned())),
            None => {
                Sighting::CannotTell("this platform is not set up on the node that works on it".to_owned())
            }
        };
        Probe { taken: self.clock.instant() - begun, sighting }
    }

    /// The answer of a platform that comes by then, within half the lease; none if it does not come, and nothing is begun
    /// when that time has passed.
    async fn within_call<T>(&self, until: Instant, call: impl Future<Output = T>) -> Option<T> {
        let left = until.checked_duration_since(self.clock.instant()).filter(|left| !left.is_zero())?;
        tokio::time::timeout(left, call).await.ok()
    }

    async fn conclude(&self, one: &Claimed, step: Step, answer: Option<String>) -> Result<(), StoreError> {
        // The connector's own name, since an account may be of a platform that is not set up here.
        let set_up = self.connectors.get_key_value(one.platform.as_str());
        let platform = set_up.map_or(metrics::NONE, |(platform, _)| *platform);
        let outcome = match step {
            Step::Settle(outcome) => end(one.tenant_id, (one.publication_id, one.fence), outcome, answer),
            Step::AskAgain { why, wait, accepted } => {
                if !accepted {
                    tracing::warn!(why, "no answer that says what came of it; asking again");
                }
                asked_again(one, why, wait, accepted)
            }
            Step::Publish => return Ok(()),
            Step::LookAgain(why) => {
                tracing::info!(why, "outcome not known yet");
                self.metrics.run_ended(platform, "confirming");
                return self.store.confirming(one.tenant_id, one.publication_id, one.fence).await;
            }
        };
        let (status, reason) = (outcome.to, outcome.reason);
        let url = outcome.url.clone();
        let recorded = self.settler.settle(outcome).await;
        if let Some(url) = url.filter(|_| !recorded) {
            // Another holder has decided meanwhile: what is known now must not be lost.
            tracing::warn!(url, "published, and answered after its lease: look at the task's history");
            self.store.answered_late(one.tenant_id, one.publication_id, one.fence, &url).await?;
        }
        self.metrics.run_ended(platform, if recorded { reason } else { "not_recorded" });
        tracing::info!(%status, reason, recorded, "run ended");
        Ok(())
    }
}

/// A look at the platform, as the journal keeps it.
struct Probe {
    taken: Duration,
    sighting: Sighting,
}

impl Probe {
    /// None where nothing was looked at.
    fn row(&self) -> Option<(i32, &'static str, Option<&str>, Duration)> {
        let (outcome, detail) = match &self.sighting {
            Sighting::SendToAsk => return None,
            Sighting::Published(remote) => ("found", Some(remote.url.as_str())),
            Sighting::Absent => ("absent", None),
            Sighting::CannotTell(why) => ("cannot_tell", Some(why.as_str())),
        };
        Some((0, outcome, detail, self.taken))
    }
}

fn describe(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Done(remote) => remote.url.clone(),
        Verdict::Accepted => "accepted: the platform works on it".to_owned(),
        Verdict::Transient(failure)
        | Verdict::Rejected(failure)
        | Verdict::Reported(failure)
        | Verdict::LoginExpired(failure) => failure.message.clone(),
        Verdict::Unknown(why) => why.clone(),
    }
}

/// The publication gives lane and lease back, and awaits an answer.
fn asked_again(one: &Claimed, why: String, wait: Duration, accepted: bool) -> Move {
    Move {
        // Shown meanwhile, or nobody sees that a bridge and its secret do not fit.
        error: (!accepted).then(|| (ANSWER_LOST.to_owned(), why.clone(), true)),
        wait: Some(interval(wait)),
        reason: if accepted { "accepted_by_platform" } else { ANSWER_LOST },
        answer: Some(why),
        accepted,
        ..Move::new(one.tenant_id, (one.publication_id, one.fence), (Status::Running, Status::Running))
    }
}

/// How an outcome ends what runs: the publication and its fence.
pub(super) fn end(tenant_id: Uuid, held: (Uuid, i32), outcome: Outcome, answer: Option<String>) -> Move {
    let into = |to| Move::new(tenant_id, held, (Status::Running, to));
    let error = |failure: Failure, retryable| Some((failure.code.into_owned(), failure.message, retryable));
    match outcome {
        Outcome::Success { remote, found } => Move {
            url: Some(remote.url),
            remote_id: remote.remote_id,
            reason: if found { "found_published" } else { "published" },
            outcome: "done",
            answer,
            ..into(Status::Success)
        },
        Outcome::Failed { failure, retryable, reason } => Move {
            error: error(failure, retryable),
            reason,
            outcome: "rejected",
            answer,
            ..into(Status::Failed)
        },
        Outcome::LoginExpired(failure) => Move {
            error: error(failure, true),
            reason: LOGIN_EXPIRED,
            outcome: LOGIN_EXPIRED,
            answer,
            ..into(Status::LoginExpired)
        },
        Outcome::Again { failure, wait } => Move {
            error: error(failure, true),
            wait: Some(interval(wait)),
            reason: "transient_error",
            outcome: "rejected",
            answer,
            ..into(Status::Submitted)
        },
    }
}
