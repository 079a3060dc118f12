//! What comes of what happens.

use std::collections::BTreeSet;
use std::time::Duration;

use publish_ingest::connector::{Failure, Marked, Pause, Sighting, Verdict};

use super::database::Database;
use super::hand::{At, Doing, Hand, Holding, Sweeping};
use super::plan::{Broken, Plan};
use super::platform::{Request, What};
use super::world::{Act, Odd, World};

/// For how long a platform asks to be left alone.
const PAUSE: Duration = Duration::from_secs(15);

impl World {
    /// What comes of it.
    pub(crate) fn after(&self, plan: &Plan, act: Act) -> Self {
        let mut world = self.clone();
        world.happen(plan, act);
        world.number_fences();
        world
    }

    /// Of fences it matters only which are equal and which is the highest, so they are numbered anew: what came to the same by
    /// more claims is the same.
    fn number_fences(&mut self) {
        let Self { database, backup, hands, .. } = self;
        let mut all = vec![&mut database.fence];
        all.extend(database.open.iter_mut().map(|row| &mut row.fence));
        if let Some(backup) = backup {
            all.push(&mut backup.fence);
            all.extend(backup.open.iter_mut().map(|row| &mut row.fence));
        }
        for hand in hands {
            match &mut hand.doing {
                Doing::Nothing => {}
                Doing::Claimed { fence, .. } => all.push(fence),
                Doing::Runs(run) => all.push(&mut run.fence),
                Doing::Sweeps(sweep) => all.push(&mut sweep.fence),
            }
        }
        let numbers = all.iter().map(|fence| **fence).collect::<BTreeSet<_>>();
        for fence in all {
            *fence = u8::try_from(numbers.range(..*fence).count()).unwrap_or(u8::MAX);
        }
    }

    fn happen(&mut self, plan: &Plan, act: Act) {
        match act {
            Act::Tick => self.age(1),
            Act::ADayPasses => {
                self.left.days -= 1;
                self.age(plan.pace.day());
            }
            Act::BackUp => self.backup = Some(self.database.clone()),
            Act::Restore { late } => {
                self.left.restores -= 1;
                for worker in 0..2 {
                    self.die(worker, late);
                }
                if let Some(backup) = self.backup.take() {
                    self.database = backup;
                }
            }
            Act::Retry => {
                self.left.retries -= 1;
                self.database.new_round();
            }
            Act::LoginRenewed => self.database.new_round(),
            Act::Claims(worker) => {
                let fence = self.database.claim();
                self.hands[worker].doing = Doing::Claimed { fence, ago: 0 };
            }
            Act::ClaimsSweep(worker) => {
                let fence = self.database.claim_sweep();
                let drafts = self.platform.articles.iter().filter(|one| !one.public).map(|one| one.id);
                let strays = drafts.filter(|id| Some(*id) != self.database.remote_id).collect();
                self.hands[worker].doing = Doing::Sweeps(Sweeping::begin(plan, fence, strays));
            }
            Act::Steps(worker) => self.step(worker, plan),
            Act::Stops(worker) => {
                self.left.stops -= 1;
                self.hands[worker].stopped = Some(0);
            }
            Act::StopsInTheGap(worker) => {
                self.left.gaps -= 1;
                self.hands[worker].stopped = Some(0);
                if let Doing::Runs(run) = &mut self.hands[worker].doing
                    && let At::Armed(what) = run.at
                {
                    run.at = At::InTheGap(what);
                }
            }
            Act::GoesOn(worker) => self.hands[worker].stopped = None,
            Act::Dies { worker, late } => {
                self.left.deaths -= 1;
                self.die(worker, late);
            }
            Act::Shows(worker) => self.show(worker, self.platform.sighting(plan.asks)),
            Act::ShowsNothing(worker, odd) => {
                self.left.odd -= 1;
                self.show(worker, shows(odd));
            }
            Act::CarriesOut(worker) => self.carry_out(worker, plan),
            Act::Refuses(worker, odd) => {
                self.left.odd -= 1;
                if odd == Odd::Accepted {
                    self.platform.works = Some(1);
                }
                self.answer(worker, refuses(odd));
            }
            Act::Loses { worker, late } => self.lose(worker, late, plan),
            Act::CarriesOutLate(at) => {
                let request = self.platform.late.remove(at);
                self.platform.carry_out(request.what, plan.guarantee);
            }
            Act::Finishes => {
                self.platform.carry_out(What::Create, plan.guarantee);
            }
        }
    }

    fn age(&mut self, by: i16) {
        self.database.age(by);
        if let Some(backup) = &mut self.backup {
            backup.age(by);
        }
        self.platform.age(by);
        for hand in &mut self.hands {
            hand.age(by);
        }
    }

    /// It is gone; what it sent is carried out late, or never.
    fn die(&mut self, worker: usize, late: bool) {
        if let Some(request) = self.hands[worker].request()
            && late
            && self.left.late > 0
        {
            self.left.late -= 1;
            self.platform.keep_late(request);
        }
        self.hands[worker] = Hand::idle();
    }

    fn step(&mut self, worker: usize, plan: &Plan) {
        let Self { database, hands, stale, .. } = self;
        let hand = &mut hands[worker];
        let goes_on = match &mut hand.doing {
            Doing::Claimed { fence, ago } => {
                hand.doing = Doing::Runs(Box::new(Holding::begin(plan, database, *fence, *ago)));
                true
            }
            Doing::Runs(run) => step_of_run(run, plan, database, stale),
            Doing::Sweeps(sweep) => sweep.step(database),
            Doing::Nothing => true,
        };
        if !goes_on {
            *hand = Hand::idle();
        }
    }

    fn show(&mut self, worker: usize, sighting: Sighting) {
        if let Doing::Runs(run) = &mut self.hands[worker].doing
            && let At::Asks { seen, .. } = &mut run.at
        {
            *seen = Some(sighting);
        }
    }

    fn answer(&mut self, worker: usize, verdict: Verdict) {
        if let Doing::Runs(run) = &mut self.hands[worker].doing
            && let At::Calls { request, answer, .. } = &mut run.at
        {
            *request = None;
            *answer = Some(verdict);
        }
    }

    fn carry_out(&mut self, worker: usize, plan: &Plan) {
        let Some(request) = self.hands[worker].request() else { return };
        let verdict = self.platform.answer(request.what, plan.guarantee);
        match &mut self.hands[worker].doing {
            Doing::Sweeps(sweep) => sweep.removed(true),
            _ => self.answer(worker, verdict),
        }
    }

    fn lose(&mut self, worker: usize, late: bool, plan: &Plan) {
        self.left.lost = self.left.lost.saturating_sub(1);
        if let Some(request) = self.hands[worker].request()
            && late
        {
            self.left.late -= 1;
            // From now on nobody waits for it: the settle time is counted from here.
            let left = request.left.min(plan.settle);
            if left > 0 {
                self.platform.keep_late(Request { left, ..request });
            }
        }
        match &mut self.hands[worker].doing {
            Doing::Runs(run) => {
                if let At::Calls { request, answer, .. } = &mut run.at {
                    *request = None;
                    *answer = Some(Verdict::Unknown("the answer was lost".to_owned()));
                }
            }
            Doing::Sweeps(sweep) => sweep.removed(false),
            _ => {}
        }
    }
}

/// One step of a run; false if it is over, or lost.
fn step_of_run(run: &mut Holding, plan: &Plan, database: &mut Database, stale: &mut bool) -> bool {
    match run.at.clone() {
        At::Decides => return run.decide(plan, database, stale),
        At::Looks if plan.broken == Some(Broken::NoLook) => {
            let own = run.draft.map(|id| Marked { id: id.to_string(), public: None });
            run.see(plan, run.now, Sighting::Seen(own.into_iter().collect()));
        }
        At::Looks if run.until == 0 => {
            run.see(plan, run.now, Sighting::CannotTell("the platform gave no answer in time".to_owned()));
        }
        At::Looks => run.at = At::Asks { since: run.now, seen: None },
        At::Asks { since, seen: Some(sighting) } => run.see(plan, since, sighting),
        At::Journals(what) => {
            let draft = if let What::Publish(id) = what { Some(id) } else { None };
            database.tried(run.fence, what.kind(), draft);
            run.at = At::Armed(what);
        }
        At::Armed(what) => run.call(plan, what, true),
        At::InTheGap(what) => run.call(plan, what, false),
        At::Calls { what, answer: Some(verdict), .. } => run.did(plan, what, verdict),
        At::Ends(outcome) => {
            run.settle(plan, database, &outcome, stale);
            return false;
        }
        At::Waits { wait, accepted } => {
            run.wait(database, wait, accepted);
            return false;
        }
        At::Asks { .. } | At::Calls { .. } => {}
    }
    true
}

fn failure() -> Failure {
    Failure::new("odd", "the platform refuses")
}

fn pause() -> Pause {
    Pause { failure: failure(), wait: Some(PAUSE) }
}

fn shows(odd: Odd) -> Sighting {
    match odd {
        Odd::LoginExpired => Sighting::LoginExpired(failure()),
        Odd::RateLimited => Sighting::RateLimited(pause()),
        _ => Sighting::CannotTell("the platform is away".to_owned()),
    }
}

fn refuses(odd: Odd) -> Verdict {
    match odd {
        Odd::Rejected => Verdict::Rejected(failure()),
        Odd::LoginExpired => Verdict::LoginExpired(failure()),
        Odd::RateLimited => Verdict::RateLimited(pause()),
        Odd::Reported => Verdict::Reported(failure()),
        Odd::Accepted => Verdict::Accepted,
        Odd::Transient | Odd::CannotTell => Verdict::Transient(failure()),
    }
}
