//! Working: publications that are due are claimed and run; those that a holder left behind are looked up.
//!
//! No transaction is open while a platform is called. A run ends in a settlement, or it is left to its lease: a crash,
//! a lost answer, a lost lease and a shutdown all take that one road, and whoever takes over looks before anything else.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;
use uuid::Uuid;

use super::run::{Known, Outcome, Step, after_find, after_publish};
use super::settle::Settler;
use crate::clock::SharedClock;
use crate::connector::{Connector, Failure, Job, Sighting, Verdict};
use crate::retry::{Schedule, interval};
use crate::store::{ClaimLimits, Claimed, JournalEntry, Settlement, Store, StoreError};
use crate::task::marker::MarkerKey;
use crate::task::state::Status;
use crate::turns::TakesTurns;
use crate::vault::Vault;

/// How many publications one node has in hand at once: each waits for its platform most of the time.
pub const IN_HAND_MAX: usize = 128;

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
    /// How claims are made.
    pub limits: ClaimLimits,
    /// The waits after transient errors.
    pub retries: Schedule,
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
        tenant_id: Uuid,
        mut slots: OwnedSemaphorePermit,
    ) -> Result<usize, StoreError> {
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
        Ok(taken)
    }
}

impl Worker {
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
        let (open_tries, open_try_since) = if one.marker.is_some() {
            self.store.open_tries(one.tenant_id, one.publication_id).await?
        } else {
            (0, None)
        };
        let known = || Known {
            now: self.clock.now(),
            open_tries,
            open_try_since,
            next_wait: usize::try_from(one.tries).ok().and_then(|tries| self.retries.wait(tries)),
        };
        let job = Job {
            marker: marker.clone(),
            tenant: one.tenant.clone(),
            settings: one.settings.clone(),
            content: one.content.clone(),
            submitted_at: one.submitted_at,
        };
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
        if !self.store.journal(&entry).await? {
            return Ok(());
        }
        let verdict = self.within_call(connector.publish(&job)).await;
        let verdict = verdict.unwrap_or_else(|| Verdict::Unknown("no answer in time".to_owned()));
        let answer = describe(&verdict);
        self.conclude(&one, after_publish(verdict, known()), Some(answer)).await
    }

    /// Looks whether the article is on its platform.
    async fn look(&self, connector: Option<&Arc<dyn Connector>>, job: &Job) -> Probe {
        let begun = self.clock.instant();
        let sighting = match connector {
            Some(connector) => self
                .within_call(connector.find(job))
                .await
                .unwrap_or_else(|| Sighting::CannotTell("the platform gave no answer in time".to_owned())),
            None => Sighting::CannotTell("this platform is not set up here".to_owned()),
        };
        Probe { taken: self.clock.instant() - begun, sighting }
    }

    /// The answer of a platform, within half the lease; none if it does not come.
    async fn within_call<T>(&self, call: impl Future<Output = T>) -> Option<T> {
        tokio::time::timeout(self.limits.lease / 2, call).await.ok()
    }

    async fn conclude(&self, one: &Claimed, step: Step, answer: Option<String>) -> Result<(), StoreError> {
        let outcome = match step {
            Step::Settle(outcome) => outcome,
            Step::Publish => return Ok(()),
            Step::LookAgain(why) => {
                tracing::info!(why, "outcome not known yet");
                return self.store.confirming(one.tenant_id, one.publication_id, one.fence).await;
            }
        };
        let settlement = settlement(one, outcome, answer);
        let (status, reason) = (settlement.status, settlement.reason);
        let recorded = self.settler.settle(settlement).await;
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
    fn row(&self) -> (i32, &'static str, Option<&str>, Duration) {
        let (outcome, detail) = match &self.sighting {
            Sighting::Published(remote) => ("found", Some(remote.url.as_str())),
            Sighting::Absent => ("absent", None),
            Sighting::CannotTell(why) => ("cannot_tell", Some(why.as_str())),
        };
        (0, outcome, detail, self.taken)
    }
}

fn describe(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Done(remote) => remote.url.clone(),
        Verdict::Transient(failure) | Verdict::Rejected(failure) => failure.message.clone(),
        Verdict::Unknown(why) => why.clone(),
    }
}

fn settlement(one: &Claimed, outcome: Outcome, answer: Option<String>) -> Settlement {
    let error = |failure: Failure, retryable| Some((failure.code.to_owned(), failure.message, retryable));
    let mut settlement = Settlement {
        tenant_id: one.tenant_id,
        publication_id: one.publication_id,
        fence: one.fence,
        status: Status::Success,
        url: None,
        remote_id: None,
        error: None,
        wait: chrono::TimeDelta::zero(),
        reason: "published",
        outcome: ("done", answer),
    };
    match outcome {
        Outcome::Success { remote, found } => {
            settlement.url = Some(remote.url);
            settlement.remote_id = Some(remote.remote_id);
            if found {
                settlement.reason = "found_published";
            }
        }
        Outcome::Failed { failure, retryable, reason } => {
            settlement.status = Status::Failed;
            settlement.outcome.0 = "rejected";
            settlement.reason = reason;
            settlement.error = error(failure, retryable);
        }
        Outcome::Again { failure, wait } => {
            settlement.status = Status::Submitted;
            settlement.outcome.0 = "rejected";
            settlement.reason = "transient_error";
            settlement.error = error(failure, true);
            settlement.wait = interval(wait);
        }
    }
    settlement
}
