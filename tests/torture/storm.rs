//! The storm: strikes fall while articles are handed in; then all is calm, and everything has to come to its end.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use publish_ingest::clock::{Clock as _, SystemClock};
use sqlx::PgPool;
use tokio::task::JoinSet;

use crate::Arguments;
use crate::callers::Callers;
use crate::services::{LOOK, Manner, Service, faketime};
use crate::strikes::{Strike, Strikes};
use crate::world::{ACCOUNT, EVERYWHERE, LEASE_MS, World, put_in_place};

/// How long a platform is stopped: longer than a call.
const PLATFORM_STOPS: Duration = Duration::from_millis(LEASE_MS / 2 + 700);

/// How long a service is stopped: past its lease, and another may have taken over.
const SERVICE_STOPS: Duration = Duration::from_millis(LEASE_MS + 1_500);

/// How many answers are lost in a row.
const LOSE: u32 = 3;

/// Kills to each restore of an earlier copy of the database, in the long form; at least one a run.
const KILLS_PER_RESTORE: usize = 100;

/// How long everything may take to come to its end when all is calm, for each article.
const CALM_PER_ARTICLE: Duration = Duration::from_secs(2);

/// And at least.
const CALM_MIN: Duration = Duration::from_mins(3);

/// How long a platform may have drafts left that the service still means to remove.
const SWEEP_WITHIN: Duration = Duration::from_mins(3);

/// The pause between two looks at the platforms' own databases meanwhile.
const SWEEP_LOOK: Duration = Duration::from_secs(2);

/// What is to be undone, and when.
enum Later {
    Service(usize),
    Platform(usize),
}

/// What came of the storm.
#[derive(Default)]
pub(crate) struct Toll {
    pub(crate) kills: usize,
    pub(crate) faults: BTreeMap<&'static str, usize>,
    /// How often a service died or stopped at each point.
    pub(crate) points: BTreeMap<&'static str, usize>,
    pub(crate) restored: bool,
    /// The articles that were answered.
    pub(crate) accepted: Vec<String>,
    /// Whether everything ended in time.
    pub(crate) ended: bool,
}

struct Storm<'a> {
    world: &'a mut World,
    strikes: Strikes,
    services: Vec<Service>,
    later: Vec<(Instant, Later)>,
    callers: Callers,
    again: JoinSet<usize>,
    toll: Toll,
}

pub(crate) async fn run(world: &mut World, arguments: &Arguments) -> Toll {
    let clock = faketime();
    if let Err(why) = &clock {
        println!("DOES NOT RUN: the moved clock: {why}");
    }
    let drafts = world.parts.iter().any(|part| part.platform.drafts());
    let prepares = world.parts.iter().any(|part| part.platform.prepares());
    let never: &[&str] = match (drafts, prepares) {
        (true, true) => &[],
        (true, false) => &["prepare"],
        (false, _) => &["prepare", "draft", "remove"],
    };
    let strikes = Strikes::new(world.seed, world.parts.len(), never, clock.is_ok());
    let callers = Callers::start(world.apis.clone(), EVERYWHERE, &world.callback_url());
    let services = vec![
        world.serve(0, Manner::default()).await.unwrap(),
        world.serve(1, Manner::default()).await.unwrap(),
    ];
    let (later, again, toll) = (Vec::new(), JoinSet::new(), Toll::default());
    let mut storm = Storm { world, strikes, services, later, callers, again, toll };
    storm.rage(arguments).await;
    storm.calm(arguments).await;
    for service in &mut storm.services {
        service.end().await;
    }
    storm.toll
}

impl Storm<'_> {
    fn count(&mut self, fault: &'static str) {
        *self.toll.faults.entry(fault).or_default() += 1;
    }

    async fn rage(&mut self, arguments: &Arguments) {
        self.world.proxies().for_each(|proxy| proxy.storm(true));
        let wanted = arguments.kills.div_ceil(KILLS_PER_RESTORE);
        let (mut sent, mut copies, mut restored) = (0, 0, 0);
        let mut next = SystemClock.instant();
        while self.toll.kills < arguments.kills {
            let due = (arguments.articles * (self.toll.kills + 1) / arguments.kills).min(arguments.articles);
            self.callers.send(due - sent);
            sent = due;
            self.look_after().await;
            // In each part of the run, a third of it after the copy, which is made after a third.
            let part = |third: usize, of: usize| arguments.kills * (3 * of + third) / (3 * wanted);
            if copies < wanted && self.toll.kills >= part(1, copies) {
                copies += 1;
                self.world.restart_database(put_in_place).await;
                self.count("database killed");
                self.world.say("the database was killed and copied");
            } else if restored < copies && self.toll.kills >= part(2, restored) {
                restored += 1;
                self.restore().await;
            } else if SystemClock.instant() >= next {
                self.strike().await;
                next = SystemClock.instant() + self.strikes.gap();
            }
            tokio::time::sleep(LOOK).await;
        }
        self.callers.send(arguments.articles - sent);
    }

    /// Starts services again that have died, and continues what has stopped for long enough.
    async fn look_after(&mut self) {
        for place in 0..self.services.len() {
            if self.services[place].ended().is_some() {
                self.died(place).await;
            } else if !self.services[place].stopped && self.services[place].stands_still() {
                if let Some(armed) = self.services[place].manner.armed.clone() {
                    *self.toll.points.entry(armed.point).or_default() += 1;
                }
                self.services[place].stopped = true;
                self.later.push((SystemClock.instant() + SERVICE_STOPS, Later::Service(place)));
                self.count("service stopped");
            }
        }
        let now = SystemClock.instant();
        let (due, later) = std::mem::take(&mut self.later).into_iter().partition(|(at, _)| *at <= now);
        self.later = later;
        self.undo(due);
    }

    fn undo(&mut self, due: Vec<(Instant, Later)>) {
        for (_, what) in due {
            match what {
                Later::Service(place) if self.services[place].stopped => self.services[place].go_on(),
                // It was killed meanwhile.
                Later::Service(_) => {}
                Later::Platform(number) => self.world.parts[number].platform.go_on(),
            }
        }
    }

    /// A service died by itself: at its point, or it is at fault.
    async fn died(&mut self, place: usize) {
        let name = self.services[place].name();
        let Some(armed) = self.services[place].manner.armed.clone() else {
            panic!("{name} ended by itself: see {name}.log");
        };
        self.toll.kills += 1;
        *self.toll.points.entry(armed.point).or_default() += 1;
        self.world
            .say(&format!("kill {}: the {name} died at {}:{}", self.toll.kills, armed.point, armed.count));
        let manner = self.strikes.manner();
        self.succeed(place, manner).await;
    }

    /// Kills a service, if it still lives, and starts its successor.
    async fn succeed(&mut self, place: usize, manner: Manner) {
        self.services[place].kill();
        self.world.doors[place].lead_to(None);
        let mut next = self.world.serve(place, manner).await;
        if next.is_err() {
            // The database may have been away for longer than a start waits.
            next = self.world.serve(place, Manner::default()).await;
        }
        self.services[place] = next.unwrap();
    }

    async fn strike(&mut self) {
        let strike = self.strikes.next();
        let place = self.strikes.one_of(self.services.len());
        match strike {
            Strike::Kill | Strike::Clock(_) if self.services[place].is_on_its_way() => {}
            Strike::Kill | Strike::Clock(_) => {
                let mut manner = self.strikes.manner();
                if let Strike::Clock(clock) = strike {
                    manner = Manner { clock: Some(clock), armed: None };
                    self.count("clock moved");
                }
                self.toll.kills += 1;
                let (kills, name) = (self.toll.kills, self.services[place].name());
                self.world.say(&format!("kill {kills}: the {name}; the next: {manner:?}"));
                self.succeed(place, manner).await;
            }
            Strike::Pause if !self.services[place].stopped => {
                self.services[place].stop();
                self.later.push((SystemClock.instant() + SERVICE_STOPS, Later::Service(place)));
                self.count("service stopped");
            }
            Strike::Pause => {}
            Strike::StopPlatform(number) => {
                let part = self.strikes.one_of(6);
                if self.world.parts[number].platform.stop(part) {
                    self.later.push((SystemClock.instant() + PLATFORM_STOPS, Later::Platform(number)));
                    self.count("platform stopped");
                }
            }
            Strike::LoseAnswers(number) => {
                if let Some(proxy) = &self.world.parts[number].proxy {
                    proxy.lose_next(LOSE);
                }
            }
            Strike::KillDatabase => {
                self.world.restart_database(|_, _| {}).await;
                self.count("database killed");
            }
        }
    }

    /// The database is what it was when it was copied; the pipeline sends all again.
    async fn restore(&mut self) {
        for service in &mut self.services {
            service.kill();
        }
        self.world.restart_database(|data, copy| put_in_place(copy, data)).await;
        self.toll.restored = true;
        self.count("database restored");
        self.world
            .say(&format!("an earlier database; {} articles are sent again", self.callers.accepted().len()));
        for place in 0..self.services.len() {
            let manner = self.strikes.manner();
            self.succeed(place, manner).await;
        }
        self.again.spawn(self.callers.send_again());
    }

    /// Nothing strikes any more: all has to be handed in, published, told and tidied.
    async fn calm(&mut self, arguments: &Arguments) {
        let due = std::mem::take(&mut self.later);
        self.undo(due);
        self.world.proxies().for_each(|proxy| proxy.storm(false));
        for place in 0..self.services.len() {
            self.succeed(place, Manner::default()).await;
        }
        self.world.say("calm");
        let articles = u32::try_from(arguments.articles).unwrap();
        let end = SystemClock.instant() + CALM_MIN.max(CALM_PER_ARTICLE * articles);
        while self.callers.accepted().len() < arguments.articles && SystemClock.instant() < end {
            tokio::time::sleep(LOOK).await;
        }
        while self.again.join_next().await.is_some() {}
        // The pipeline runs once more, from the start.
        let created = self.callers.send_again().await;
        self.toll.accepted = self.callers.accepted();
        self.world.say(&format!(
            "{} articles are handed in, {} requests were sent again, {created} were new after that",
            self.toll.accepted.len(),
            self.callers.repeated()
        ));
        assert!(created == 0 || self.toll.restored, "{created} articles that were answered were not there");
        let pool = self.world.pool().await;
        let open = "SELECT (SELECT count(*) FROM publications WHERE status IN ('submitted', 'running', 'login_expired'))
            + (SELECT count(*) FROM callbacks WHERE status = 'pending')";
        self.toll.ended = self.comes_to_nothing(&pool, open, end).await;
        self.swept().await;
        self.world.say("the end");
    }

    /// Waits until no platform holds a draft any more. The service looks after what may come late for longer, so its own word
    /// for it is not waited for.
    async fn swept(&self) {
        let end = SystemClock.instant() + SWEEP_WITHIN;
        let drafts = || {
            let platforms = self.world.parts.iter().map(|part| &part.platform);
            let mut held = platforms.filter(|platform| platform.drafts()).map(|platform| platform.holdings());
            held.any(|holdings| holdings.values().any(|held| held.drafts > 0))
        };
        while drafts() && SystemClock.instant() < end {
            tokio::time::sleep(SWEEP_LOOK).await;
        }
    }

    /// Waits until a question is answered by 0; meanwhile logins are renewed that a wrong clock has cost.
    async fn comes_to_nothing(&mut self, pool: &PgPool, question: &'static str, end: Instant) -> bool {
        loop {
            let open: i64 = sqlx::query_scalar(question).fetch_one(pool).await.unwrap();
            let renewed = self.renew().await;
            if open == 0 && renewed == 0 {
                return true;
            }
            if SystemClock.instant() > end {
                return false;
            }
            tokio::time::sleep(LOOK * 10).await;
        }
    }

    /// Renews the logins that were lost, as their owners would; returns how many.
    async fn renew(&mut self) -> usize {
        let Ok(answer) = self.world.apis[0].get("/accounts").await else { return 0 };
        let mut renewed = 0;
        for account in answer.ok()["accounts"].as_array().unwrap() {
            let expired = account["login_state"] == "login_expired" && account["account_id"] == ACCOUNT;
            let Some(part) = account["platform"].as_str().and_then(|name| self.world.part(name)) else {
                continue;
            };
            if expired {
                let path = format!("/accounts/{}/{ACCOUNT}", part.platform.name());
                let answer = self.world.apis[0].put(&path, &part.account()).await;
                renewed += usize::from(answer.is_ok_and(|answer| answer.status == 200));
            }
        }
        for _ in 0..renewed {
            self.count("login renewed");
        }
        renewed
    }
}
