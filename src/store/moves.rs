//! Moving publications from state to state: the state, the counters, the lane, the event and its delivery, in one
//! transaction. Outcomes, cancellations, retries, renewals and expired logins all take this one road.

use std::cmp::Reverse;
use std::collections::HashMap;

use chrono::{DateTime, TimeDelta, Utc};
use uuid::Uuid;

use super::{ANSWER_LOST, Evidence, Store, StoreError};
use crate::task::state::Status;

mod states;

/// What is to become of a publication.
#[derive(Debug, Clone)]
pub struct Move {
    /// Whose.
    pub tenant_id: Uuid,
    /// The publication.
    pub publication_id: Uuid,
    /// Its fence, as it was when this was decided; if it has moved on, nothing is written.
    pub fence: i32,
    /// Its state, as it was when this was decided; if it has changed, nothing is written.
    pub from: Status,
    /// Its state from now on. From `running` to `running`: it gives lane and lease back, and awaits an answer.
    pub to: Status,
    /// Its public address, for `success`.
    pub url: Option<String>,
    /// The platform's id of it, for `success`.
    pub remote_id: Option<String>,
    /// Code, sentence, and whether a retry may help.
    pub error: Option<(String, String, bool)>,
    /// When it is due again; none: when it was, and for what goes on at the latest now.
    pub wait: Option<TimeDelta>,
    /// Whether a new round begins.
    pub new_round: bool,
    /// Why, in a word: for the history.
    pub reason: &'static str,
    /// How the open try of this holder ended; those of others are then known to be `answer_lost`. None: it is not known, and
    /// all stay open.
    pub outcome: Option<&'static str>,
    /// What came back.
    pub answer: Option<String>,
    /// Whether the platform said that it is working on it.
    pub accepted: bool,
    /// For how long its account is to be left alone, because its platform asks for it. What is parked has cost no try.
    pub parks: Option<TimeDelta>,
    /// Whether there may be drafts on the platform that nobody needs.
    pub strays: bool,
    /// How long after its end the platform is looked at for such drafts.
    pub sweep: TimeDelta,
    /// What the platform said.
    pub evidence: Evidence,
}

/// How long after the end of a publication its platform is looked at once more, where nobody says more: what its holder
/// before may still have sent has arrived by then.
pub const SWEEP_AFTER: TimeDelta = TimeDelta::seconds(30);

impl Move {
    /// A change with nothing to tell but why.
    #[must_use]
    pub fn new(tenant_id: Uuid, (publication_id, fence): (Uuid, i32), states: (Status, Status)) -> Self {
        Self {
            tenant_id,
            publication_id,
            fence,
            from: states.0,
            to: states.1,
            url: None,
            remote_id: None,
            error: None,
            wait: None,
            new_round: false,
            reason: "",
            outcome: None,
            answer: None,
            accepted: false,
            parks: None,
            strays: false,
            sweep: SWEEP_AFTER,
            evidence: Evidence::default(),
        }
    }
}

/// A publication that was moved.
#[derive(Debug, Clone)]
pub struct Moved {
    /// The publication.
    pub publication_id: Uuid,
    /// Its task.
    pub task_id: Uuid,
    /// The caller's id.
    pub external_id: String,
    /// The platform.
    pub platform: String,
    /// The account.
    pub account_id: String,
    /// Its state now: `submitted` instead of `login_expired` if the login has been renewed since it was claimed.
    pub status: Status,
    /// Its run.
    pub round: i32,
    /// Its public address.
    pub url: Option<String>,
    /// The platform's id of it.
    pub remote_id: Option<String>,
    /// The error's code.
    pub error_code: Option<String>,
    /// The error's sentence.
    pub error_message: Option<String>,
    /// Whether a retry may help.
    pub error_retryable: Option<bool>,
    /// Where the event goes.
    pub callback_url: Option<String>,
    /// The caller's own data.
    pub metadata: String,
    /// How many of the task's publications are drafts, open, succeeded, failed, and wait for a login.
    pub counters: [i32; 5],
    /// The event's position in the tenant's feed; none if it has not ended.
    pub position: Option<i64>,
    /// When.
    pub at: DateTime<Utc>,
}

/// What was found out of a publication whose outcome nobody knew: that it is public.
#[derive(Debug, Clone)]
pub struct Published {
    /// Where.
    pub url: String,
    /// The platform's id of it.
    pub remote_id: Option<String>,
    /// Who says so, in a word: for the history.
    pub reason: &'static str,
}

/// An event's bytes, and where it is delivered: URL and receiver.
pub type Composed = (Vec<u8>, Option<(String, String)>);

/// How an end is told.
#[derive(Clone, Copy)]
pub struct Telling {
    /// Makes the body of the event at a position, of that id.
    pub compose: fn(&Moved, i64, Uuid) -> Composed,
    /// The wait before a callback's first try.
    pub first_wait: TimeDelta,
}

/// An event to be written, composed from what the transaction saw.
#[derive(Debug, Clone)]
pub(super) struct NewEvent {
    pub position: i64,
    pub event_id: Uuid,
    pub task_id: Uuid,
    pub publication_id: Uuid,
    pub round: i32,
    pub status: Status,
    pub body: Vec<u8>,
    pub delivery: Option<(String, String)>,
}

/// Has each event count the task's publications as they stand with it, by the order of the feed: several of a task may move in
/// one batch, and only the last of them ends it.
fn count_in_order(moved: &mut [Moved], batch: &[Move]) {
    let counter = |status| match status {
        Status::Draft => 0,
        Status::Submitted | Status::Running => 1,
        Status::Success => 2,
        Status::Failed => 3,
        Status::LoginExpired => 4,
    };
    let from = batch.iter().map(|one| (one.publication_id, one.from)).collect::<HashMap<_, _>>();
    let mut events = moved.iter_mut().filter(|one| one.position.is_some()).collect::<Vec<_>>();
    events.sort_by_key(|one| Reverse(one.position));
    let mut later = HashMap::<Uuid, [i32; 5]>::new();
    for event in events {
        let later = later.entry(event.task_id).or_default();
        event.counters.iter_mut().zip(*later).for_each(|(now, later)| *now -= later);
        later[counter(event.status)] += 1;
        if let Some(from) = from.get(&event.publication_id) {
            later[counter(*from)] -= 1;
        }
    }
}

impl Store {
    /// Moves a batch of one tenant and returns what was moved; a publication whose fence or state is another by now is left
    /// out, and nothing of it is written.
    pub async fn settle(
        &self,
        tenant_id: Uuid,
        batch: &[Move],
        telling: Telling,
    ) -> Result<Vec<Moved>, StoreError> {
        let mut transaction = self.pool.begin().await?;
        let moved = self.apply(tenant_id, batch, telling, &mut transaction).await?;
        transaction.commit().await?;
        Ok(moved)
    }

    /// As [`Self::settle`], within a transaction that has locked no tasks, lanes or feed before.
    pub(super) async fn apply(
        &self,
        tenant_id: Uuid,
        batch: &[Move],
        telling: Telling,
        transaction: &mut sqlx::PgTransaction<'_>,
    ) -> Result<Vec<Moved>, StoreError> {
        let mut moved = self.move_states(tenant_id, batch, transaction).await?;
        count_in_order(&mut moved, batch);
        let events = moved.iter().filter_map(|one| {
            let position = one.position?;
            let event_id = self.clock.new_id();
            let (body, delivery) = (telling.compose)(one, position, event_id);
            Some(NewEvent {
                position,
                event_id,
                task_id: one.task_id,
                publication_id: one.publication_id,
                round: one.round,
                status: one.status,
                body,
                delivery,
            })
        });
        let events = events.collect::<Vec<_>>();
        if !events.is_empty() {
            self.write_events(tenant_id, &events, telling.first_wait, transaction).await?;
        }
        Ok(moved)
    }

    /// Walks a publication to `success` without its platform being called: it is known by now that it was published. False
    /// if its fence or its state is another by now.
    ///
    /// There is no shorter way, in code or by hand; the history shows each step.
    pub(super) async fn confirm_published(
        &self,
        tenant_id: Uuid,
        (held, from): ((Uuid, i32), Status),
        published: Published,
        telling: Telling,
        transaction: &mut sqlx::PgTransaction<'_>,
    ) -> Result<bool, StoreError> {
        let Published { url, remote_id, reason } = published;
        let step = |from, to| Move { reason, ..Move::new(tenant_id, held, (from, to)) };
        let mut walk = vec![
            step(Status::Submitted, Status::Running),
            Move {
                url: Some(url),
                remote_id,
                strays: true,
                outcome: Some(ANSWER_LOST),
                ..step(Status::Running, Status::Success)
            },
        ];
        if from != Status::Submitted {
            walk.insert(0, step(from, Status::Submitted));
        }
        for step in walk {
            if self.apply(tenant_id, &[step], telling, transaction).await?.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
