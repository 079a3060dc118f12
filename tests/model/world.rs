//! The whole: a database, a platform, two workers, and what may happen next.

use publish_ingest::connector::Verdict;
use publish_ingest::task::state::Status;

use super::database::Database;
use super::hand::{At, Doing, Hand, SweepAt, Sweeping};
use super::plan::{Budget, Plan};
use super::platform::Platform;

/// The longest a worker is stopped, in calls: beyond its lease and the settle time, after which nothing changes.
const STOP_MAX: i16 = 5;

/// A state of the whole.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) database: Database,
    /// The older database.
    pub(crate) backup: Option<Database>,
    pub(crate) platform: Platform,
    pub(crate) hands: [Hand; 2],
    /// What may still go wrong.
    pub(crate) left: Budget,
    /// Somebody wrote who did not hold it any more.
    pub(crate) stale: bool,
}

/// How a platform refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Odd {
    CannotTell,
    Transient,
    Rejected,
    LoginExpired,
    RateLimited,
    Reported,
    Accepted,
}

/// What happens next. Of a worker: 0 or 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Act {
    /// Time passes, by a tick.
    Tick,
    ADayPasses,
    /// The database is backed up.
    BackUp,
    /// The backup is restored; all workers are killed, and what they sent may still be carried out, or not.
    Restore {
        late: bool,
    },
    Retry,
    LoginRenewed,
    Claims(usize),
    ClaimsSweep(usize),
    /// It does its next step, up to the next statement or call.
    Steps(usize),
    Stops(usize),
    StopsInTheGap(usize),
    GoesOn(usize),
    /// It is killed; what it sent may still be carried out, or not.
    Dies {
        worker: usize,
        late: bool,
    },
    /// The platform answers its look.
    Shows(usize),
    ShowsNothing(usize, Odd),
    /// The platform does what it asked for, and answers.
    CarriesOut(usize),
    Refuses(usize, Odd),
    /// It gets no answer, or one that says nothing; what it sent may still be carried out, or not.
    Loses {
        worker: usize,
        late: bool,
    },
    /// The platform does what nobody waits for any more.
    CarriesOutLate(usize),
    /// The platform finishes what it works on.
    Finishes,
}

impl World {
    /// Where everything begins: an article was accepted.
    pub(crate) fn begin(plan: &Plan) -> Self {
        Self {
            database: Database::accepted(plan.pace),
            backup: None,
            platform: Platform::default(),
            hands: [Hand::idle(), Hand::idle()],
            left: plan.budget,
            stale: false,
        }
    }

    /// Whether the publication has ended.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.database.status, Status::Success | Status::Failed)
    }

    /// All that may happen.
    pub(crate) fn acts(&self, plan: &Plan, acts: &mut Vec<Act>) {
        for worker in 0..2 {
            self.acts_of(worker, plan, acts);
        }
        for at in 0..self.platform.late.len() {
            acts.push(Act::CarriesOutLate(at));
        }
        if self.platform.works.is_some() {
            acts.push(Act::Finishes);
        }
        if self.may_tick(plan) {
            acts.push(Act::Tick);
        }
        let idle = self.hands.iter().all(|hand| hand.doing == Doing::Nothing);
        if self.left.days > 0 && idle {
            acts.push(Act::ADayPasses);
        }
        if self.left.restores > 0 {
            match self.backup {
                None => acts.push(Act::BackUp),
                Some(_) => self.restores(plan, acts),
            }
        }
        match self.database.status {
            Status::LoginExpired => acts.push(Act::LoginRenewed),
            Status::Failed if self.left.retries > 0 => {
                // A person looks when all has come to rest.
                let rests = idle && self.platform.late.is_empty() && self.platform.public() == 0;
                if !self.database.unknown || rests {
                    acts.push(Act::Retry);
                }
            }
            _ => {}
        }
    }

    /// Time passes when all that are awake wait for it.
    fn may_tick(&self, plan: &Plan) -> bool {
        self.hands.iter().all(|hand| match hand.stopped {
            Some(ago) => ago < STOP_MAX * plan.pace.call(),
            None if hand.awaits() => {
                let asks = matches!(&hand.doing, Doing::Runs(run) if matches!(run.at, At::Asks { .. }));
                let faults = if asks { self.left.odd } else { self.left.lost };
                // A platform that has no faults left answers in time.
                hand.until() > i16::from(faults == 0)
            }
            None => hand.doing == Doing::Nothing,
        })
    }

    fn restores(&self, plan: &Plan, acts: &mut Vec<Act>) {
        let on_its_way = self.hands.iter().any(|hand| hand.request().is_some());
        let rests = !on_its_way && self.platform.late.is_empty();
        if rests || !plan.rests {
            acts.push(Act::Restore { late: false });
        }
        if on_its_way && !plan.rests && self.left.late > 0 {
            acts.push(Act::Restore { late: true });
        }
    }

    fn acts_of(&self, worker: usize, plan: &Plan, acts: &mut Vec<Act>) {
        let hand = &self.hands[worker];
        let request = hand.request();
        let may_be_late = self.left.late > 0 && request.is_some_and(|request| request.left > 0);
        if hand.doing == Doing::Nothing {
            // Of two idle workers one is as good as the other.
            if worker == 1 && self.hands[0] == *hand {
                return;
            }
            if self.database.is_claimable() {
                acts.push(Act::Claims(worker));
            }
            if self.database.sweep == Some(0) {
                acts.push(Act::ClaimsSweep(worker));
            }
            return;
        }
        if hand.is_ready() {
            acts.push(Act::Steps(worker));
        }
        if hand.stopped.is_some() {
            acts.push(Act::GoesOn(worker));
        } else {
            if self.left.stops > 0 {
                acts.push(Act::Stops(worker));
            }
            if self.left.gaps > 0
                && hand.until() > 0
                && matches!(&hand.doing, Doing::Runs(run) if matches!(run.at, At::Armed(_)))
            {
                acts.push(Act::StopsInTheGap(worker));
            }
        }
        if self.left.deaths > 0 {
            acts.push(Act::Dies { worker, late: false });
            if may_be_late {
                acts.push(Act::Dies { worker, late: true });
            }
        }
        self.answers(worker, plan, may_be_late, acts);
    }

    /// What may come back to a worker that waits for it.
    fn answers(&self, worker: usize, plan: &Plan, may_be_late: bool, acts: &mut Vec<Act>) {
        let hand = &self.hands[worker];
        match &hand.doing {
            Doing::Runs(run) => match &run.at {
                At::Asks { seen: None, .. } => {
                    acts.push(Act::Shows(worker));
                    if self.left.odd > 0 {
                        let odd = [Odd::CannotTell, Odd::LoginExpired, Odd::RateLimited];
                        acts.extend(odd.map(|odd| Act::ShowsNothing(worker, odd)));
                    }
                }
                At::Calls { request, answer, .. } => {
                    if request.is_some_and(|request| request.left > 0) {
                        acts.push(Act::CarriesOut(worker));
                    }
                    if request.is_some() && self.left.odd > 0 {
                        self.refusals(worker, plan, acts);
                    }
                    if !matches!(answer, Some(Verdict::Unknown(_))) {
                        self.losses(worker, answer.is_some(), may_be_late, acts);
                    }
                }
                _ => {}
            },
            Doing::Sweeps(Sweeping { at: SweepAt::Calls(request), .. }) => {
                if request.left > 0 {
                    acts.push(Act::CarriesOut(worker));
                }
                self.losses(worker, false, may_be_late, acts);
            }
            _ => {}
        }
    }

    fn refusals(&self, worker: usize, plan: &Plan, acts: &mut Vec<Act>) {
        acts.extend([Odd::Transient, Odd::RateLimited].map(|odd| Act::Refuses(worker, odd)));
        if !plan.asks {
            acts.extend([Odd::Rejected, Odd::LoginExpired].map(|odd| Act::Refuses(worker, odd)));
        } else if self.platform.public() == 0 && self.platform.works.is_none() {
            // It remembers what it has published, and what it works on.
            let own = [Odd::Rejected, Odd::LoginExpired, Odd::Reported, Odd::Accepted];
            acts.extend(own.map(|odd| Act::Refuses(worker, odd)));
        }
    }

    fn losses(&self, worker: usize, is_answered: bool, may_be_late: bool, acts: &mut Vec<Act>) {
        // What can no longer be carried out, since a stopped worker came back too late, is no fault of the platform.
        let over = !is_answered && self.hands[worker].request().is_some_and(|request| request.left == 0);
        if self.left.lost > 0 || over {
            acts.push(Act::Loses { worker, late: false });
            if may_be_late {
                acts.push(Act::Loses { worker, late: true });
            }
        }
    }

    /// Where a worker stands after its own step: for a trace.
    pub(crate) fn whereabouts(&self, act: Act) -> String {
        let Act::Steps(worker) = act else { return String::new() };
        match &self.hands[worker].doing {
            Doing::Nothing => format!(" and is free; the publication is {}", self.database.status),
            Doing::Claimed { .. } => String::new(),
            Doing::Runs(run) => format!(": {:?}", run.at),
            Doing::Sweeps(sweep) => format!(": {:?}", sweep.at),
        }
    }

    /// What happens next where nothing goes wrong any more; whoever can do something does it.
    pub(crate) fn fair(&self) -> Act {
        for (worker, hand) in self.hands.iter().enumerate() {
            if hand.stopped.is_some() {
                return Act::GoesOn(worker);
            }
            if hand.is_ready() {
                return Act::Steps(worker);
            }
            if hand.awaits() {
                return match hand.request() {
                    Some(request) if request.left > 0 => Act::CarriesOut(worker),
                    Some(_) => Act::Loses { worker, late: false },
                    None => Act::Shows(worker),
                };
            }
        }
        match self.database.status {
            _ if self.platform.works.is_some() => Act::Finishes,
            Status::LoginExpired => Act::LoginRenewed,
            _ if self.database.is_claimable() => Act::Claims(0),
            _ => Act::Tick,
        }
    }
}
