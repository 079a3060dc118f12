//! The steps of one publication in hand, carried out as [`super::run`] says.
//!
//! Each step outside is noted before it is taken, in the statement that renews the lease; what came of it is written before
//! anything else is done. Whatever is not written any more is left to the lease, and whoever takes over looks first.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::TimeDelta;
use uuid::Uuid;

use super::run::{Action, Outcome, Run, Step, Terms};
use super::warnings;
use super::work::{ASK_WAIT, RATE_LIMITED, Worker, end};
use crate::connector::{Connector, Guarantee, Job, Prepared, Sighting, Verdict};
use crate::fault;
use crate::retry::interval;
use crate::store::{
    ANSWER_LOST, Came, Claimed, Evidence, Intent, Journal, JournalEntry, Move, Probe, StoreError, Warning,
};
use crate::task::marker::MarkerKey;
use crate::task::state::Status;
use crate::telemetry::metrics;

mod call;

use call::{Called, describe};
pub(super) use call::{IS_PUBLIC, REMOVED};

/// A publication in hand.
struct Hand<'a> {
    worker: &'a Worker,
    one: &'a Claimed,
    connector: Option<&'a Arc<dyn Connector>>,
    job: Job,
    run: Run,
    /// How long after its end the platform is looked at for drafts that nobody needs.
    settle: Duration,
    begun: Instant,
    /// The number of the next step.
    next_step: i32,
    /// The look that is not written yet.
    looked: Option<Looked>,
    /// What the last request came to, where that is not written yet.
    answer: Option<(String, Evidence)>,
    /// What the article goes without, where that is not written yet.
    warnings: Option<Vec<Warning>>,
}

/// A look at the platform.
pub(super) struct Looked {
    pub step: i32,
    pub sighting: Sighting,
    pub took: Duration,
    /// It proves that no earlier try published.
    pub disproved: bool,
    pub evidence: Evidence,
}

impl Worker {
    /// Runs one publication until it has ended, waits, or was lost to another holder.
    pub(super) async fn run(&self, one: &Claimed, marker_key: &MarkerKey) -> Result<(), StoreError> {
        let marker = match &one.marker {
            Some(marker) => marker.clone(),
            None => marker_key.marker(&one.external_id, &one.platform, &one.account_id),
        };
        let until = self.clock.instant() + self.limits.lease / 2;
        // A first claim has no journal; asked only where there may be one.
        let journal = match one.marker {
            Some(_) => self.store.read_journal(one.tenant_id, one.publication_id, one.round).await?,
            None => Journal::default(),
        };
        // After the journal was read: were its ages counted on from before, what was sent would be taken for older than it is,
        // and absence for proof too early.
        let begun = self.clock.instant();
        let connector = self.connectors.get(one.platform.as_str());
        let job = Job::of(one, &marker, one.credentials(&self.vault)?, until);
        let terms = self.terms(one, connector, &job, &journal);
        fault::point("run.begun", "");
        let run = Run::begin(terms, journal);
        let (settle, worker) = (terms.settle, self);
        let hand = Hand {
            worker,
            one,
            connector,
            job,
            run,
            settle,
            begun,
            next_step: 0,
            looked: None,
            answer: None,
            warnings: None,
        };
        hand.carry_out().await
    }

    /// Looks what carries the publication's mark.
    pub(super) async fn look(&self, connector: Option<&Arc<dyn Connector>>, job: &Job, step: i32) -> Looked {
        let started = self.clock.instant();
        fault::point("call.begun", "look");
        let sighting = match connector {
            Some(connector) => self
                .within_call(job.until, connector.find(job))
                .await
                .unwrap_or_else(|| Sighting::CannotTell("the platform gave no answer in time".to_owned())),
            None => {
                Sighting::CannotTell("this platform is not set up on the node that works on it".to_owned())
            }
        };
        fault::point("call.ended", "look");
        let took = self.clock.instant() - started;
        Looked { step, sighting, took, disproved: false, evidence: job.trace.take() }
    }

    /// The answer of a platform that comes by then, within half the lease; none if it does not come, and nothing is begun
    /// when that time has passed.
    pub(super) async fn within_call<T>(&self, until: Instant, call: impl Future<Output = T>) -> Option<T> {
        let left = until.checked_duration_since(self.clock.instant()).filter(|left| !left.is_zero())?;
        tokio::time::timeout(left, call).await.ok()
    }

    fn terms(
        &self,
        one: &Claimed,
        connector: Option<&Arc<dyn Connector>>,
        job: &Job,
        journal: &Journal,
    ) -> Terms {
        let wait = |tries: i64| usize::try_from(tries).unwrap_or(usize::MAX);
        let unanswered = journal.open.tries - journal.open.accepted;
        Terms {
            guarantee: connector.map_or(Guarantee::NativeKey, |connector| connector.guarantee()),
            settle: fault::settle_time()
                .unwrap_or_else(|| connector.map_or(Duration::ZERO, |connector| connector.settle_time())),
            prepares: connector.is_some_and(|connector| connector.prepares(job)),
            tries: one.tries.into(),
            next_wait: self.retries.wait(wait(one.tries.into())),
            ask_wait: self.retries.wait_repeating(wait(unanswered)).unwrap_or(ASK_WAIT),
        }
    }
}

impl Hand<'_> {
    async fn carry_out(mut self) -> Result<(), StoreError> {
        loop {
            let held = match self.run.next(self.now()) {
                Step::Look => self.look().await?,
                Step::Do(action, draft) => self.act(action, draft).await?,
                Step::Settle(outcome) => return self.settle(outcome).await,
                Step::Wait { why, wait, accepted, parks } => {
                    return self.wait(why, wait, accepted, parks).await;
                }
            };
            if !held {
                return Ok(());
            }
        }
    }

    /// The time since the journal was read.
    fn now(&self) -> TimeDelta {
        interval(self.worker.clock.instant() - self.begun)
    }

    /// The number of the step that begins; its requests bear its name.
    fn begin_step(&mut self) -> i32 {
        let step = self.next_step;
        self.next_step += 1;
        self.job.request_id = request_id(self.one.publication_id, self.one.fence, step);
        step
    }

    /// Looks whether the article is on its platform; false if the lease was lost.
    async fn look(&mut self) -> Result<bool, StoreError> {
        // What the request before came to is written meanwhile, and the lease renewed with it: to look changes nothing.
        let came = self.answer.is_some().then(|| self.entry(None));
        if came.is_some() {
            self.job.until = self.half_a_lease();
        }
        let step = self.begin_step();
        // What it does not see may still have appeared while it looked.
        let began = self.now();
        let written = async {
            match came {
                Some(entry) => self.worker.scribe.write(entry).await,
                None => Ok(true),
            }
        };
        let (held, mut looked) = tokio::join!(written, self.worker.look(self.connector, &self.job, step));
        if !held? {
            return Ok(false);
        }
        if fault::is_blind() {
            looked.sighting = self.unsearched(looked.sighting, step);
        }
        looked.disproved = self.run.saw(looked.sighting.clone(), began);
        self.looked = Some(looked);
        Ok(true)
    }

    /// Notes the intent, then does it; false if the lease was lost.
    async fn act(&mut self, action: Action, draft: Option<String>) -> Result<bool, StoreError> {
        // Without a connector nothing is proven absent, so there is one where there is something to do.
        let Some(connector) = self.connector else { return Ok(false) };
        let step = self.begin_step();
        // Counted from before the lease is renewed: whoever is stopped between that and the call must not begin it later.
        let until = self.half_a_lease();
        let intent = Intent { step, kind: action.as_str(), draft_id: draft.clone() };
        if !self.write(Some(intent)).await? {
            return Ok(false);
        }
        self.job.until = until;
        let known = self.job.draft_id.take();
        self.job.draft_id = draft.or_else(|| known.clone());
        fault::point("call.begun", action.as_str());
        let called = self.call(connector, action).await;
        fault::point("call.ended", action.as_str());
        let evidence = self.job.trace.take();
        // A draft that goes is not the article's.
        let removed =
            if action == Action::Remove { std::mem::replace(&mut self.job.draft_id, known) } else { None };
        let said = match called {
            Called::Ready(prepared) => self.made_ready(prepared).to_owned(),
            Called::Removed(how) => {
                let removed = removed.unwrap_or_default();
                self.job.draft_id.take_if(|known| *known == removed);
                self.run.removed(removed);
                how.to_owned()
            }
            Called::Came(verdict) => {
                if let Verdict::Drafted(id) = &verdict {
                    self.job.draft_id = Some(id.clone());
                }
                let said = describe(&verdict);
                self.run.did(action, verdict, self.now());
                said
            }
        };
        self.answer = Some((said, evidence));
        Ok(true)
    }

    /// Keeps what was made ready; the warnings are written before the article is made.
    fn made_ready(&mut self, prepared: Prepared) -> &'static str {
        self.job.prepared = prepared.ready;
        if prepared.in_part {
            self.run.ready_in_part();
            return "there was no time for all of it: the rest follows";
        }
        self.run.ready();
        self.warnings = Some(warnings::kept(prepared.warnings));
        "everything is ready"
    }

    /// What is left of a look when the search before an article is made is taken out: only the draft that this run made.
    fn unsearched(&self, sighting: Sighting, step: i32) -> Sighting {
        match sighting {
            Sighting::Seen(mut seen) => {
                seen.retain(|one| step > 0 && Some(&one.id) == self.job.draft_id.as_ref());
                Sighting::Seen(seen)
            }
            other => other,
        }
    }

    fn half_a_lease(&self) -> Instant {
        self.worker.clock.instant() + self.worker.limits.lease / 2
    }

    /// Writes what is known and what is about to be done, and renews the lease; false if that was lost.
    async fn write(&mut self, intent: Option<Intent>) -> Result<bool, StoreError> {
        let entry = self.entry(intent);
        self.worker.scribe.write(entry).await
    }

    fn entry(&mut self, intent: Option<Intent>) -> JournalEntry {
        let (looked, answer, warnings) = (self.looked.take(), self.answer.take(), self.warnings.take());
        let asks = looked.as_ref().is_some_and(|looked| looked.sighting == Sighting::SendToAsk);
        let in_doubt = self.run.journal().open.tries > 0;
        let outcome = if self.run.request_is_open() { None } else { Some("done") };
        let without_intent = intent.is_none();
        let step = self.next_step - 1 - i32::from(!without_intent);
        JournalEntry {
            tenant_id: self.one.tenant_id,
            publication_id: self.one.publication_id,
            fence: self.one.fence,
            marker: self.job.marker.clone(),
            lease: self.worker.limits.lease,
            came: answer.map(|(detail, evidence)| Came {
                step,
                outcome,
                detail,
                draft_id: self.job.draft_id.clone(),
                evidence,
                warnings,
            }),
            probe: looked.as_ref().and_then(Looked::probe),
            disproved: looked.as_ref().is_some_and(|looked| looked.disproved),
            intent,
            // Where sending is the look-up, what was sent before is still being found out.
            confirming: in_doubt && (asks || without_intent),
        }
    }

    async fn settle(mut self, outcome: Outcome) -> Result<(), StoreError> {
        let answer = self.answer.take();
        // After a look nothing was asked for that could end with this.
        if self.looked.is_some() && !self.write(None).await? {
            return Ok(());
        }
        let (detail, evidence) = answer.unzip();
        let held = (self.one.publication_id, self.one.fence);
        let end = end(self.one.tenant_id, held, outcome, detail);
        self.record(Move { sweep: interval(self.settle), evidence: evidence.unwrap_or_default(), ..end })
            .await
    }

    /// The publication gives lane and lease back, and is looked for again.
    async fn wait(
        mut self,
        why: String,
        wait: Duration,
        accepted: bool,
        parks: bool,
    ) -> Result<(), StoreError> {
        let answer = self.answer.take();
        if self.looked.is_some() && !self.write(None).await? {
            return Ok(());
        }
        if !accepted {
            tracing::warn!(why, "the outcome is not known yet");
        }
        let evidence = answer.map(|(_, evidence)| evidence).unwrap_or_default();
        let held = (self.one.publication_id, self.one.fence);
        let waiting = Move {
            // Shown meanwhile, or nobody sees that a bridge and its secret do not fit.
            error: (!accepted).then(|| {
                let code = if parks { RATE_LIMITED } else { ANSWER_LOST };
                (code.to_owned(), why.clone(), true)
            }),
            wait: Some(interval(wait)),
            parks: parks.then(|| interval(wait)),
            reason: if accepted { "accepted_by_platform" } else { ANSWER_LOST },
            answer: Some(why),
            accepted,
            evidence,
            ..Move::new(self.one.tenant_id, held, (Status::Running, Status::Running))
        };
        self.record(waiting).await
    }

    async fn record(&self, outcome: Move) -> Result<(), StoreError> {
        // The connector's own name, since an account may be of a platform that is not set up here.
        let set_up = self.worker.connectors.get_key_value(self.one.platform.as_str());
        let platform = set_up.map_or(metrics::NONE, |(platform, _)| *platform);
        let (status, reason) = (outcome.to, outcome.reason);
        let url = outcome.url.clone();
        let recorded = self.worker.settler.settle(outcome).await;
        if let Some(url) = url.filter(|_| !recorded) {
            // Another holder has decided meanwhile: what is known now must not be lost.
            tracing::warn!(url, "published, and answered after its lease: look at the task's history");
            let one = self.one;
            self.worker.store.answered_late(one.tenant_id, one.publication_id, one.fence, &url).await?;
        }
        self.worker.metrics.run_ended(platform, if recorded { reason } else { "not_recorded" });
        tracing::info!(%status, reason, recorded, "run ended");
        Ok(())
    }
}

impl Looked {
    /// None where nothing was looked at.
    pub(super) fn probe(&self) -> Option<Probe> {
        let (outcome, detail) = match &self.sighting {
            Sighting::SendToAsk => return None,
            Sighting::Seen(seen) => match seen.iter().find_map(|one| one.public.as_ref()) {
                Some(remote) => ("found", Some(&remote.url)),
                None => match seen.first() {
                    Some(draft) => ("draft_found", Some(&draft.id)),
                    None => ("absent", None),
                },
            },
            Sighting::CannotTell(why) => ("cannot_tell", Some(why)),
            Sighting::LoginExpired(failure) => ("login_expired", Some(&failure.message)),
            Sighting::RateLimited(pause) => (RATE_LIMITED, Some(&pause.failure.message)),
        };
        let detail = detail.cloned();
        Some(Probe { step: self.step, outcome, detail, took: self.took, evidence: self.evidence.clone() })
    }
}

/// The id that a step's requests bear: by it the platform's own log tells what arrived.
#[must_use]
pub fn request_id(publication_id: Uuid, fence: i32, step: i32) -> String {
    format!("{publication_id}-{fence}-{step}")
}
