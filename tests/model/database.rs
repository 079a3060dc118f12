//! The database's side: one publication, its journal, and the statements that change them, each in one piece.

use std::collections::BTreeSet;
use std::time::Duration;

use chrono::TimeDelta;
use publish_ingest::retry::interval;
use publish_ingest::store::{Journal, OpenTries};
use publish_ingest::task::run::{OUTCOME_UNKNOWN, Outcome};
use publish_ingest::task::state::Status;

/// The longest wait that is told apart: what is due later still is due, and nothing that stands in the model lasts as long.
const WAIT_MAX: Duration = Duration::from_mins(1);

/// The most tries by schedule that are told apart.
const TRIES_MAX: i64 = 6;

/// How fine time is: in how many ticks a call must end, which is half a lease of 30 seconds, the default of `PUBLISH_LEASE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Pace(pub(crate) i16);

impl Pace {
    /// How long a tick lasts.
    pub(crate) fn tick(self) -> Duration {
        Duration::from_secs(15) / u32::from(self.0.unsigned_abs())
    }

    /// How many ticks a call may take: half a lease.
    pub(crate) fn call(self) -> i16 {
        self.0
    }

    /// How many ticks a lease holds.
    pub(crate) fn lease(self) -> i16 {
        2 * self.0
    }

    /// A day in ticks: after it an unknown outcome is reported.
    pub(crate) fn day(self) -> i16 {
        5760 * self.0
    }

    /// From this age on nothing but a day makes a difference: beyond every lease and settle time together.
    fn old(self) -> i16 {
        6 * self.0
    }

    /// An age in ticks, that much later.
    fn older(self, age: i16, by: i16) -> i16 {
        let later = age.saturating_add(by);
        if later >= self.day() { self.day() } else { later.min(self.old()) }
    }

    /// Ticks as a span of time.
    pub(crate) fn span(self, ticks: i16) -> TimeDelta {
        interval(self.tick()) * i32::from(ticks)
    }

    /// A wait in whole ticks.
    pub(crate) fn ticks(self, wait: Duration) -> i16 {
        let ticks = wait.min(WAIT_MAX).as_millis().div_ceil(self.tick().as_millis());
        i16::try_from(ticks).unwrap()
    }
}

/// What a holder is about to do, as the journal names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Draft,
    Publish,
    Remove,
}

/// A row of `attempts` whose outcome is not known; what is known has gone, but for the counts that remain of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Attempt {
    pub(crate) fence: u8,
    pub(crate) kind: Kind,
    /// The draft that is to be published.
    pub(crate) draft: Option<u8>,
    /// The age of `started_at`.
    pub(crate) started: i16,
    /// The age of `over_at`: negative while a holder may still begin it.
    pub(crate) over: i16,
    pub(crate) accepted: bool,
}

/// One publication: its row, and its journal.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Database {
    /// How fine its time is.
    pub(crate) pace: Pace,
    pub(crate) status: Status,
    /// Failed, and nobody knows whether it is public.
    pub(crate) unknown: bool,
    pub(crate) fence: u8,
    /// The ticks that a lease has left; at none left it has run out.
    pub(crate) lease: Option<i16>,
    /// The ticks until it is due.
    pub(crate) due: i16,
    pub(crate) tries: i64,
    pub(crate) draft_id: Option<u8>,
    pub(crate) remote_id: Option<u8>,
    /// How often a draft was asked for: more than one is more than one.
    pub(crate) drafts: u8,
    /// The ticks until its platform is swept.
    pub(crate) sweep: Option<i16>,
    /// How many tries of this round are known to have published nothing, after nobody knew.
    pub(crate) disproved: i64,
    pub(crate) open: Vec<Attempt>,
    /// The drafts that somebody asked to publish, and of which only the time says that nothing comes of it.
    pub(crate) asked: Vec<u8>,
    /// The drafts that somebody was about to remove.
    pub(crate) removing: Vec<u8>,
}

impl Database {
    /// A publication that was just accepted.
    pub(crate) fn accepted(pace: Pace) -> Self {
        Self {
            pace,
            status: Status::Submitted,
            unknown: false,
            fence: 0,
            lease: None,
            due: 0,
            tries: 0,
            draft_id: None,
            remote_id: None,
            drafts: 0,
            sweep: None,
            disproved: 0,
            open: Vec::new(),
            asked: Vec::new(),
            removing: Vec::new(),
        }
    }

    /// That much later, by the database's clock.
    pub(crate) fn age(&mut self, by: i16) {
        for ticks in [Some(&mut self.due), self.lease.as_mut(), self.sweep.as_mut()].into_iter().flatten() {
            *ticks = (*ticks - by).max(0);
        }
        for row in &mut self.open {
            row.started = self.pace.older(row.started, by);
            row.over = self.pace.older(row.over, by);
        }
    }

    /// Whether `Store::claim` takes it: it is due, or its lease has run out.
    pub(crate) fn is_claimable(&self) -> bool {
        match (self.status, self.lease) {
            (Status::Submitted, _) | (Status::Running, None) => self.due == 0,
            (Status::Running, Some(left)) => left == 0,
            _ => false,
        }
    }

    /// `Store::claim`.
    pub(crate) fn claim(&mut self) -> u8 {
        self.status = Status::Running;
        self.fence += 1;
        self.lease = Some(self.pace.lease());
        self.fence
    }

    /// `Store::claim_sweeps`.
    pub(crate) fn claim_sweep(&mut self) -> u8 {
        self.fence += 1;
        self.sweep = Some(self.pace.lease());
        self.fence
    }

    /// `Store::read_journal`: the same sums over the same rows.
    pub(crate) fn journal(&self) -> Journal {
        let count = |rows: usize| i64::try_from(rows).unwrap();
        Journal {
            open: OpenTries {
                tries: count(self.open.len()),
                accepted: count(self.open.iter().filter(|row| row.accepted).count()),
                // min(started_at), max(over_at)
                since: self.open.iter().map(|row| row.started).max().map(|age| self.pace.span(age)),
                over: self.open.iter().map(|row| row.over).min().map(|age| self.pace.span(age)),
            },
            disproved: self.disproved,
            draft_id: self.draft_id.map(|id| id.to_string()),
            asked: {
                let open = self.open.iter().filter_map(|row| row.draft.as_ref());
                let asked = self.asked.iter().chain(open).collect::<BTreeSet<_>>();
                asked.into_iter().map(u8::to_string).collect()
            },
            removing: self.removing.iter().map(u8::to_string).collect(),
        }
    }

    /// Whether `Store::journal` finds what it is to write to.
    pub(crate) fn is_held(&self, fence: u8) -> bool {
        fence == self.fence && (self.status == Status::Running || self.sweep.is_some())
    }

    /// `came` of `Store::journal`, for the holder's last request.
    pub(crate) fn came(&mut self, fence: u8, is_open: bool, draft: Option<u8>) {
        self.draft_id = draft.or(self.draft_id);
        let Some(at) = self.open.iter().rposition(|row| row.fence == fence) else { return };
        if is_open {
            self.open[at].over = self.open[at].over.max(0);
        } else {
            self.open.remove(at);
        }
    }

    /// `disproved` of `Store::journal`.
    pub(crate) fn disprove(&mut self) {
        self.disproved += i64::try_from(self.open.len()).unwrap();
        for row in self.open.drain(..) {
            note(&mut self.asked, row.draft);
        }
    }

    /// `tried` of `Store::journal`.
    pub(crate) fn tried(&mut self, fence: u8, kind: Kind, draft: Option<u8>) {
        if kind == Kind::Remove {
            note(&mut self.removing, draft);
            return;
        }
        self.draft_id = draft.or(self.draft_id);
        if kind == Kind::Draft {
            self.drafts = (self.drafts + 1).min(2);
        }
        self.open.push(Attempt { fence, kind, draft, started: 0, over: -self.pace.call(), accepted: false });
    }

    /// What `task::work::end` and `Store::settle` make of an outcome; `settle` is the platform's settle time.
    pub(crate) fn settle(&mut self, outcome: &Outcome, settle: i16) {
        let mut known = true;
        match outcome {
            Outcome::Success { remote, strays, .. } => {
                self.status = Status::Success;
                self.remote_id = remote.remote_id.as_ref().map(|id| id.parse().unwrap());
                self.sweep = (self.drafts > 1 || *strays && self.drafts > 0).then_some(settle);
            }
            Outcome::Failed { reason, .. } => {
                self.status = Status::Failed;
                self.unknown = *reason == OUTCOME_UNKNOWN;
                self.sweep = (self.drafts > 0 && !self.unknown).then_some(settle);
            }
            Outcome::LoginExpired { in_doubt, .. } => {
                self.status = Status::LoginExpired;
                known = !in_doubt;
            }
            Outcome::Again { wait, .. } => {
                self.status = Status::Submitted;
                self.due = self.pace.ticks(*wait);
                self.tries = (self.tries + 1).min(TRIES_MAX);
            }
            Outcome::Parked { wait, .. } => {
                self.status = Status::Submitted;
                self.due = self.pace.ticks(*wait);
            }
        }
        self.lease = None;
        if known {
            self.open.clear();
        }
    }

    /// The same for a holder that gives lane and lease back.
    pub(crate) fn wait(&mut self, fence: u8, wait: Duration, accepted: bool) {
        self.lease = None;
        self.due = self.pace.ticks(wait);
        for row in self.open.iter_mut().filter(|row| row.fence == fence) {
            row.accepted |= accepted;
            row.over = row.over.max(0);
        }
    }

    /// A new round: a retry by the caller, or a login that was renewed.
    pub(crate) fn new_round(&mut self) {
        self.status = Status::Submitted;
        self.unknown = false;
        self.due = 0;
        self.tries = 0;
        self.disproved = 0;
        self.sweep = None;
    }
}

/// Adds an id to those that are there, which are in order.
pub(crate) fn note(ids: &mut Vec<u8>, id: Option<u8>) {
    if let Some(id) = id
        && let Err(at) = ids.binary_search(&id)
    {
        ids.insert(at, id);
    }
}
