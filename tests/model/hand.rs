//! A worker: it carries out what [`Run`] says, as `task::steps` does, statement by statement and call by call.

use std::time::Duration;

use publish_ingest::connector::{Sighting, Verdict};
use publish_ingest::task::run::{Action, Outcome, Run, Step, draft_in_the_way};
use publish_ingest::task::state::Status;

use super::database::{Database, note};
use super::plan::{Broken, Plan};
use super::platform::{Request, What};

/// How long a sweep is put off that left something: `task::sweep`.
const SWEEP_AGAIN: Duration = Duration::from_mins(1);

/// A worker, which may be stopped, for that many ticks by now.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Hand {
    pub(crate) doing: Doing,
    pub(crate) stopped: Option<i16>,
}

/// What a worker does.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Doing {
    Nothing,
    /// It has claimed the publication that long ago, and not read its journal yet.
    Claimed {
        fence: u8,
        ago: i16,
    },
    Runs(Box<Holding>),
    Sweeps(Sweeping),
}

/// A run in hand: `task::steps::Hand`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Holding {
    pub(crate) fence: u8,
    pub(crate) run: Run,
    /// The ticks since it began.
    pub(crate) now: i16,
    /// The ticks until no call may be begun.
    pub(crate) until: i16,
    /// The draft that it knows.
    pub(crate) draft: Option<u8>,
    /// Whether the look that is not written yet disproved what was open.
    pub(crate) looked: Option<bool>,
    /// The last request's answer is not written yet.
    pub(crate) answer: bool,
    /// How many of its requests came to nobody knows what.
    pub(crate) unknown: u8,
    pub(crate) at: At,
}

/// Where a run stands.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum At {
    /// What is next is about to be decided.
    Decides,
    /// It is about to look.
    Looks,
    /// It looks, since then; what the platform showed is on its way.
    Asks { since: i16, seen: Option<Sighting> },
    /// The intent is checked, and not to be seen by others yet: in [`Broken::LeaseApart`] only.
    Journals(What),
    /// The intent is written, the call is not begun.
    Armed(What),
    /// It saw that the call may be begun, and was stopped before it was.
    InTheGap(What),
    /// It waits for an answer to a request, which is there, or was carried out.
    Calls { what: What, request: Option<Request>, answer: Option<Verdict> },
    /// The look is written, the end is not.
    Ends(Outcome),
    /// The look is written, the wait is not.
    Waits { wait: Duration, accepted: bool },
}

/// A sweep in hand: `task::sweep`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Sweeping {
    pub(crate) fence: u8,
    pub(crate) until: i16,
    /// The drafts to be removed.
    pub(crate) todo: Vec<u8>,
    /// Something may be left.
    pub(crate) left: bool,
    pub(crate) at: SweepAt,
}

/// Where a sweep stands.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum SweepAt {
    Next,
    Armed(u8),
    Calls(Request),
}

impl Hand {
    /// A worker with nothing to do.
    pub(crate) fn idle() -> Self {
        Self { doing: Doing::Nothing, stopped: None }
    }

    /// The request that it waits for, if that was not carried out yet.
    pub(crate) fn request(&self) -> Option<Request> {
        match &self.doing {
            Doing::Runs(run) => match &run.at {
                At::Calls { request, .. } => *request,
                _ => None,
            },
            Doing::Sweeps(Sweeping { at: SweepAt::Calls(request), .. }) => Some(*request),
            _ => None,
        }
    }

    /// Whether it waits for a platform that has not answered.
    pub(crate) fn awaits(&self) -> bool {
        match &self.doing {
            Doing::Runs(run) => {
                matches!(run.at, At::Asks { seen: None, .. } | At::Calls { answer: None, .. })
            }
            Doing::Sweeps(sweep) => matches!(sweep.at, SweepAt::Calls(_)),
            _ => false,
        }
    }

    /// Whether it can do its next step.
    pub(crate) fn is_ready(&self) -> bool {
        self.stopped.is_none() && self.doing != Doing::Nothing && !self.awaits()
    }

    /// How long its present call may take.
    pub(crate) fn until(&self) -> i16 {
        match &self.doing {
            Doing::Runs(run) => run.until,
            Doing::Sweeps(sweep) => sweep.until,
            _ => 0,
        }
    }

    /// That much later.
    pub(crate) fn age(&mut self, by: i16) {
        self.stopped = self.stopped.map(|ago| ago + by);
        match &mut self.doing {
            Doing::Nothing => {}
            Doing::Claimed { ago, .. } => *ago += by,
            Doing::Runs(run) => {
                run.now += by;
                run.until = (run.until - by).max(0);
                if let At::Calls { request: Some(request), .. } = &mut run.at {
                    request.left = (request.left - by).max(0);
                }
            }
            Doing::Sweeps(sweep) => {
                sweep.until = (sweep.until - by).max(0);
                if let SweepAt::Calls(request) = &mut sweep.at {
                    request.left = (request.left - by).max(0);
                }
            }
        }
    }
}

impl Holding {
    /// `Worker::run`: the journal is read, and the run begins.
    pub(crate) fn begin(plan: &Plan, database: &Database, fence: u8, ago: i16) -> Self {
        let run = Run::begin(plan.terms(database.tries), database.journal());
        // Counted from the claim, what the journal says would be taken for older than it is.
        let now = if plan.broken == Some(Broken::AgesFromBeforeTheyAreRead) { ago } else { 0 };
        Self {
            fence,
            run,
            now,
            until: (plan.pace.call() - ago).max(0),
            draft: database.draft_id,
            looked: None,
            answer: false,
            unknown: 0,
            at: At::Decides,
        }
    }

    /// Decides and writes: what the run says next, up to the next thing outside. False if it is over, or lost.
    pub(crate) fn decide(&mut self, plan: &Plan, database: &mut Database, stale: &mut bool) -> bool {
        match self.run.next(plan.pace.span(self.now)) {
            Step::Look => {
                if self.answer {
                    if !self.write(plan, database, None) {
                        return false;
                    }
                    self.until = plan.pace.call();
                }
                self.at = At::Looks;
            }
            Step::Do(action, draft) => {
                let draft = draft.map(|id| id.parse::<u8>().unwrap());
                let what = match (action, draft) {
                    (Action::Draft, _) => What::Draft,
                    (Action::Remove, Some(id)) => What::Remove(id),
                    (_, Some(id)) => What::Publish(id),
                    (_, None) => What::Create,
                };
                if !self.write(plan, database, Some((what, draft))) {
                    return false;
                }
                self.until = plan.pace.call();
                if action != Action::Remove {
                    self.draft = draft.or(self.draft);
                }
                let apart = plan.broken == Some(Broken::LeaseApart);
                self.at = if apart { At::Journals(what) } else { At::Armed(what) };
            }
            Step::Settle(outcome) => {
                self.answer = false;
                if self.looked.is_none() {
                    self.settle(plan, database, &outcome, stale);
                    return false;
                }
                if !self.write(plan, database, None) {
                    return false;
                }
                self.at = At::Ends(outcome);
            }
            Step::Wait { wait, accepted, .. } => {
                self.answer = false;
                if self.looked.is_none() {
                    self.wait(database, wait, accepted);
                    return false;
                }
                if !self.write(plan, database, None) {
                    return false;
                }
                self.at = At::Waits { wait, accepted };
            }
        }
        true
    }

    /// `Store::journal`: what is known and what is about to be done, in one statement that renews the lease.
    fn write(&mut self, plan: &Plan, database: &mut Database, intent: Option<(What, Option<u8>)>) -> bool {
        let (looked, answer) = (self.looked.take(), std::mem::take(&mut self.answer));
        if !database.is_held(self.fence) {
            return false;
        }
        let apart = plan.broken == Some(Broken::LeaseApart) && intent.is_some();
        if !apart {
            database.lease = Some(plan.pace.lease());
        }
        if answer {
            database.came(self.fence, self.run.request_is_open(), self.draft);
        }
        if looked == Some(true) {
            database.disprove();
        }
        if let Some((what, draft)) = intent
            && !apart
            && plan.broken != Some(Broken::NoJournal)
        {
            database.tried(self.fence, what.kind(), draft);
        }
        true
    }

    /// The end, where the fence still is ours.
    pub(crate) fn settle(&self, plan: &Plan, database: &mut Database, outcome: &Outcome, stale: &mut bool) {
        let held = database.fence == self.fence;
        let unfenced = plan.broken == Some(Broken::NoFence);
        if database.status == Status::Running && (held || unfenced) {
            *stale |= !held;
            database.settle(outcome, plan.settle);
        }
    }

    /// The wait, where the fence still is ours.
    pub(crate) fn wait(&self, database: &mut Database, wait: Duration, accepted: bool) {
        if database.status == Status::Running && database.fence == self.fence {
            database.wait(self.fence, wait, accepted);
        }
    }

    /// Takes in what the platform showed, or that it showed nothing in time.
    pub(crate) fn see(&mut self, plan: &Plan, since: i16, sighting: Sighting) {
        // What came into being while the platform was asked is not disproved by what it showed.
        let at = if plan.broken == Some(Broken::AbsenceDatedAtItsEnd) { self.now } else { since };
        self.looked = Some(self.run.saw(sighting, plan.pace.span(at)));
        self.at = At::Decides;
    }

    /// Takes in what a request came to.
    pub(crate) fn did(&mut self, plan: &Plan, what: What, verdict: Verdict) {
        self.answer = true;
        self.at = At::Decides;
        let now = plan.pace.span(self.now);
        let action = match what {
            What::Draft => Action::Draft,
            What::Create | What::Publish(_) => Action::Publish,
            // It is gone, or public.
            What::Remove(id) if verdict == Verdict::Accepted => return self.run.removed(id.to_string()),
            What::Remove(_) => {
                let verdict = Verdict::Transient(draft_in_the_way("it is not known what came of it"));
                return self.run.did(Action::Remove, verdict, now);
            }
        };
        if let Verdict::Drafted(id) = &verdict {
            self.draft = Some(id.parse().unwrap());
        }
        self.unknown += u8::from(matches!(verdict, Verdict::Unknown(_)));
        self.run.did(action, verdict, now);
    }

    /// Begins a call; where it is checked whether it may still be, and it may not, it came to nothing.
    pub(crate) fn call(&mut self, plan: &Plan, what: What, is_checked: bool) {
        if is_checked && self.until == 0 {
            self.did(plan, what, Verdict::Unknown("no answer in time".to_owned()));
            return;
        }
        let left = (self.until + plan.settle).max(1);
        self.at = At::Calls { what, request: Some(Request { what, left }), answer: None };
    }
}

impl Sweeping {
    /// What the platform holds that nobody needs: `task::sweep::strays`.
    pub(crate) fn begin(plan: &Plan, fence: u8, todo: Vec<u8>) -> Self {
        Self { fence, until: plan.pace.call(), todo, left: false, at: SweepAt::Next }
    }

    /// The next step; false if it is over, or lost.
    pub(crate) fn step(&mut self, database: &mut Database) -> bool {
        match self.at {
            SweepAt::Next if self.todo.is_empty() => {
                if database.fence == self.fence && database.sweep.is_some() {
                    database.sweep = self.left.then_some(database.pace.ticks(SWEEP_AGAIN));
                }
                return false;
            }
            SweepAt::Next => {
                if !database.is_held(self.fence) {
                    return false;
                }
                let id = self.todo.remove(0);
                database.sweep = Some(database.pace.lease());
                note(&mut database.removing, Some(id));
                self.until = database.pace.call();
                self.at = SweepAt::Armed(id);
            }
            SweepAt::Armed(_) if self.until == 0 => self.removed(false),
            SweepAt::Armed(id) => {
                self.at = SweepAt::Calls(Request { what: What::Remove(id), left: self.until + 1 });
            }
            SweepAt::Calls(_) => {}
        }
        true
    }

    /// What came of a removal: it is known, or not.
    pub(crate) fn removed(&mut self, known: bool) {
        self.left |= !known;
        self.at = SweepAt::Next;
    }
}
