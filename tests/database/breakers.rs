//! Receivers that fail: left alone, probed by one call at a time, and back without a storm; what waits loses nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use publish_ingest::callback::breaker::{FAILURES_MAX, Heard, OPEN_FIRST, OPEN_MAX, PAUSE};
use publish_ingest::callback::deliver::{Dispatcher, LEASE_MARGIN, Recorder};
use publish_ingest::callback::doors::Doors;
use publish_ingest::callback::share::InHand;
use publish_ingest::gather::Partial;
use publish_ingest::outbound::Client;
use publish_ingest::retry::Schedule;
use publish_ingest::store::{
    BreakersMoved, CLAIM_MOST, ClaimLimits, ClaimedCallback, Due, Queue, Receivers, RecordedTry, Then,
};
use publish_ingest::telemetry::metrics::Metrics;
use publish_ingest::turns::{TakesTurns, Turn, Wake};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::callbacks::{publish_to, tried, try_of};
use crate::claims::success;
use crate::harness::{Api, ONE, World, article_with, in_world, limits, within};
use crate::receiver::{Answer, Receiver};

/// The most callbacks that one claim takes.
const WAVE: usize = 16;

const HOUR: Duration = Duration::from_hours(1);

/// Events with callbacks that are due, without a service.
async fn due_callbacks(world: &World, url: &str, name: &str, count: usize) {
    let tasks = (0..count).map(|n| {
        let mut task = world.new_task(&format!("{name}-{n}"), ONE);
        task.callback_url = Some(url.to_owned());
        task
    });
    world.accept(&tasks.collect::<Vec<_>>()).await;
    let settler = world.settler();
    let mut settled = 0;
    while settled < count {
        for one in world.claim("w").await {
            assert!(settler.settle(success(&one)).await);
            settled += 1;
        }
    }
}

async fn claim(world: &World) -> Vec<ClaimedCallback> {
    world.store.claim_callbacks(world.tenant.tenant_id, Receivers::All, &limits("d")).await.unwrap()
}

/// Records a try, by the status of its answer and what it asked for.
async fn heard(
    world: &World,
    one: &ClaimedCallback,
    status: Option<u16>,
    asked: Option<Duration>,
) -> BreakersMoved {
    let then = if status == Some(200) { Then::Delivered } else { Then::Again(HOUR) };
    let record = RecordedTry { heard: Heard::of(status, asked), http_status: status, ..try_of(one, then) };
    world.store.record_tries(one.tenant_id, &[record]).await.unwrap()
}

/// How long until something can be sent.
async fn free(world: &World) -> Duration {
    let free = world.store.receiver_free(world.tenant.tenant_id, Receivers::All).await.unwrap();
    free.expect("something waits")
}

#[track_caller]
fn about(wait: Duration, expected: Duration) {
    assert!(wait <= expected.mul_f64(1.2) && wait >= expected.mul_f64(0.75), "{wait:?}, not {expected:?}");
}

#[tokio::test]
async fn a_receiver_that_keeps_failing_is_left_alone_and_probed_by_one_call_at_a_time() {
    const BAD: &str = "https://bad.example/hook";
    in_world(async |world: &World| {
        due_callbacks(world, BAD, "a", 40).await;
        let order = "SELECT md5(string_agg(event_id::text || due_at, ',' ORDER BY event_id)) FROM callbacks
            WHERE tries = 0";
        for n in 1..=FAILURES_MAX {
            // A receiver that has not answered well gets one call at a time.
            let claimed = claim(world).await;
            assert_eq!((claimed.len(), claim(world).await.len()), (1, 0), "try {n}");
            let moved = heard(world, &claimed[0], None, None).await;
            let opened = if n == FAILURES_MAX { vec!["https://bad.example:443".to_owned()] } else { vec![] };
            assert_eq!(moved, BreakersMoved { opened, closed: vec![] });
        }
        let before = world.text(order).await;
        assert_eq!((claim(world).await.len(), world.store.breakers_open().await.unwrap()), (0, 1));
        about(free(world).await, OPEN_FIRST);
        // Nobody else waits for it.
        due_callbacks(world, "https://good.example/hook", "b", 1).await;
        let good = claim(world).await;
        assert_eq!((good.len(), good[0].url.as_str()), (1, "https://good.example/hook"));
        heard(world, &good[0], Some(200), None).await;
        // What waits kept its place, and no try of it was counted.
        assert_eq!(world.text(order).await, before);
        // Each probe that fails doubles the wait, up to the longest.
        let mut expected = OPEN_FIRST;
        for _ in 0..5 {
            world.clock.advance(TimeDelta::from_std(free(world).await).unwrap() + TimeDelta::seconds(1));
            let probe = claim(world).await;
            assert_eq!((probe.len(), claim(world).await.len()), (1, 0));
            assert_eq!(heard(world, &probe[0], Some(504), None).await, BreakersMoved::default());
            expected = (expected * 2).min(OPEN_MAX);
            about(free(world).await, expected);
        }
        assert_eq!(expected, OPEN_MAX);
        assert_eq!(world.number("SELECT count(*) FROM callbacks WHERE tries > 1").await, 0);
        // One that arrives closes it.
        world.clock.advance(TimeDelta::from_std(OPEN_MAX * 2).unwrap());
        let probe = claim(world).await.remove(0);
        let moved = heard(world, &probe, Some(200), None).await;
        assert_eq!(
            moved,
            BreakersMoved { opened: vec![], closed: vec!["https://bad.example:443".to_owned()] }
        );
        assert_eq!(world.store.breakers_open().await.unwrap(), 0);
        let wave = claim(world).await;
        assert_eq!((wave.len(), claim(world).await.len()), (WAVE, 0));
        for one in &wave {
            heard(world, one, Some(200), None).await;
        }
        // Sixteen are a storm's beginning: the next go out when their time has passed.
        assert_eq!(claim(world).await.len(), 0);
        world.clock.advance(TimeDelta::milliseconds(160));
        for one in claim(world).await {
            heard(world, &one, Some(200), None).await;
        }
        world.clock.advance(TimeDelta::hours(2));
        for _ in 0..2 {
            for one in claim(world).await {
                heard(world, &one, Some(200), None).await;
            }
            world.clock.advance(TimeDelta::milliseconds(160));
        }
        assert_eq!(world.number("SELECT count(*) FROM callbacks WHERE status <> 'delivered'").await, 0);
        assert_eq!(world.number("SELECT count(*) FROM receivers WHERE recovering").await, 0);
    })
    .await;
}

#[tokio::test]
async fn what_was_under_way_when_a_breaker_opened_neither_lengthens_its_wait_nor_is_lost() {
    in_world(async |world: &World| {
        due_callbacks(world, "https://bad.example/hook", "a", 18).await;
        let first = claim(world).await.remove(0);
        heard(world, &first, Some(200), None).await;
        let wave = claim(world).await;
        assert_eq!(wave.len(), WAVE);
        for one in &wave {
            heard(world, one, None, None).await;
        }
        let row = "SELECT concat_ws(' ', in_flight, failures, proven) FROM receivers";
        assert_eq!(world.text(row).await, "0 5 f");
        about(free(world).await, OPEN_FIRST);
        // A dispatcher that dies while it probes: the probe is taken over, and still the only one.
        world.advance(40);
        assert_eq!(claim(world).await.len(), 1);
        world.advance(31);
        let probe = claim(world).await;
        assert_eq!((probe.len(), claim(world).await.len()), (1, 0));
        heard(world, &probe[0], Some(200), None).await;
        assert_eq!(world.text(row).await, "0 0 t");
    })
    .await;
}

#[tokio::test]
async fn an_answer_that_refuses_one_callback_is_no_failure_of_the_receiver() {
    in_world(async |world: &World| {
        due_callbacks(world, "https://picky.example/hook", "a", 20).await;
        for n in 0..10 {
            let one = claim(world).await.remove(0);
            // No run of failures is longer than one.
            heard(world, &one, if n % 2 == 0 { Some(404) } else { Some(502) }, None).await;
        }
        assert_eq!((claim(world).await.len(), world.store.breakers_open().await.unwrap()), (1, 0));
    })
    .await;
}

#[tokio::test]
async fn a_receiver_that_says_slow_down_is_left_alone_as_a_whole() {
    in_world(async |world: &World| {
        for (n, (status, asked, pause)) in [
            (429, Some(Duration::from_mins(20)), Some(Duration::from_mins(20))),
            (503, Some(Duration::from_hours(24)), Some(Duration::from_hours(24))),
            (429, None, Some(PAUSE)),
            (503, None, Some(PAUSE)),
            (500, Some(HOUR), None),
            (410, Some(HOUR), None),
        ]
        .into_iter()
        .enumerate()
        {
            due_callbacks(world, &format!("https://r{n}.example/hook"), &format!("a{n}"), 2).await;
            let one = claim(world).await.remove(0);
            heard(world, &one, Some(status), asked).await;
            let next = claim(world).await;
            assert_eq!(next.is_empty(), pause.is_some(), "{status} {asked:?}");
            if let Some(pause) = pause {
                about(free(world).await, pause);
                world.clock.advance(TimeDelta::from_std(pause).unwrap());
                let after = claim(world).await;
                assert!(!after.is_empty(), "{status} {asked:?}");
                for one in &after {
                    heard(world, one, Some(200), None).await;
                }
            } else {
                heard(world, &next[0], Some(200), None).await;
            }
            // What is left comes due in an hour.
            world.clock.advance(TimeDelta::hours(2));
            for one in claim(world).await {
                heard(world, &one, Some(200), None).await;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_pause_is_shown_and_ends_by_itself() {
    in_world(async |world: &World| {
        let receiver = Receiver::start([Answer::status(503).with("retry-after", "1200")]).await;
        let other = Receiver::start([]).await;
        let api = world.start().await;
        publish_to(&api, "a", &receiver).await;
        assert!(tried(&api, &receiver, 1).await["held_until"].is_string());
        publish_to(&api, "b", &receiver).await;
        publish_to(&api, "c", &other).await;
        assert_eq!(tried(&api, &other, 1).await["held_until"], Value::Null);
        world.until("SELECT count(*) FROM events", 3).await;
        let of_b = world
            .text(
                "SELECT event_id::text FROM callbacks JOIN events USING (tenant_id, event_id)
                    JOIN tasks USING (tenant_id, task_id) WHERE external_id = 'b'",
            )
            .await;
        let waits = api.get(&format!("/callbacks/{of_b}")).await.ok();
        assert_eq!((&waits["status"], waits["tries"].as_array().unwrap().len()), (&json!("pending"), 0));
        assert!(waits["held_until"].is_string(), "{waits}");
        assert_eq!(receiver.count(), 1);
        world.advance(1_201);
        assert_eq!(api.tried(&of_b, 1).await["status"], "delivered");
        receiver.first(3).await;
    })
    .await;
}

#[tokio::test]
async fn a_replay_goes_through_to_a_receiver_that_is_left_alone_and_its_answer_decides() {
    in_world(async |world: &World| {
        due_callbacks(world, "https://bad.example/hook", "a", 30).await;
        for _ in 0..FAILURES_MAX {
            let one = claim(world).await.remove(0);
            heard(world, &one, None, None).await;
        }
        assert!(claim(world).await.is_empty());
        let last =
            "SELECT event_id::text FROM callbacks WHERE tries = 0 ORDER BY due_at DESC, event_id LIMIT 1";
        let event_id: Uuid = world.text(last).await.parse().unwrap();
        // It goes before all that waits, alone; if it fails too, the rest waits on.
        for status in [None, Some(200)] {
            assert!(world.store.replay_callback(world.tenant.tenant_id, event_id).await.unwrap());
            let claimed = claim(world).await;
            assert_eq!((claimed.len(), claimed[0].event_id), (1, event_id));
            assert!(claim(world).await.is_empty());
            heard(world, &claimed[0], status, None).await;
            if status.is_none() {
                about(free(world).await, OPEN_FIRST * 2);
            }
        }
        assert_eq!(claim(world).await.len(), WAVE);
    })
    .await;
}

#[tokio::test]
async fn a_receiver_that_fails_again_while_it_recovers_is_left_alone_as_before() {
    in_world(async |world: &World| {
        due_callbacks(world, "https://bad.example/hook", "a", 30).await;
        let fail = async || {
            for _ in 0..FAILURES_MAX {
                // Past the pace of one that recovers.
                world.advance(1);
                let one = claim(world).await.remove(0);
                heard(world, &one, None, None).await;
            }
            about(free(world).await, OPEN_FIRST);
            world.advance(40);
        };
        fail().await;
        let probe = claim(world).await.remove(0);
        // It lives, and takes nothing: what waits goes out one by one, and at a pace.
        heard(world, &probe, Some(404), None).await;
        fail().await;
        let probe = claim(world).await.remove(0);
        heard(world, &probe, None, None).await;
        about(free(world).await, OPEN_FIRST * 2);
    })
    .await;
}

#[tokio::test]
async fn a_replay_that_is_asked_for_during_a_probe_goes_right_after_it() {
    in_world(async |world: &World| {
        due_callbacks(world, "https://bad.example/hook", "a", 30).await;
        for _ in 0..FAILURES_MAX {
            let one = claim(world).await.remove(0);
            heard(world, &one, None, None).await;
        }
        world.advance(40);
        let probe = claim(world).await.remove(0);
        let last =
            "SELECT event_id::text FROM callbacks WHERE tries = 0 ORDER BY due_at DESC, event_id LIMIT 1";
        let event_id: Uuid = world.text(last).await.parse().unwrap();
        assert!(world.store.replay_callback(world.tenant.tenant_id, event_id).await.unwrap());
        assert!(claim(world).await.is_empty(), "one at a time");
        heard(world, &probe, None, None).await;
        let claimed = claim(world).await;
        assert_eq!((claimed.len(), claimed[0].event_id), (1, event_id));
        heard(world, &claimed[0], None, None).await;
        // And no further one.
        assert!(free(world).await >= OPEN_FIRST);
    })
    .await;
}

/// A dispatcher whose turns a test takes.
struct Hand {
    dispatcher: Arc<Dispatcher>,
    slots: Arc<Semaphore>,
    due: Due,
}

impl Hand {
    fn of(world: &World, schedule: Schedule) -> Self {
        let (metrics, tracker) = (Metrics::new(), TaskTracker::new());
        let (wake, stop) = (Wake::default(), CancellationToken::new());
        let plan = world.plan();
        let dispatcher = Dispatcher {
            store: world.store.clone(),
            vault: world.vault.clone(),
            client: Client::new(plan.policy, plan.clock.clone()).unwrap(),
            recorder: Recorder::start(
                world.store.clone(),
                wake,
                metrics.clone(),
                stop,
                &Partial::at_once(1),
                &tracker,
            ),
            in_hand: InHand::default(),
            doors: Doors::default(),
            limits: ClaimLimits { owner: "hand".to_owned(), lease: plan.callback_timeout + LEASE_MARGIN },
            schedule,
            timeout: plan.callback_timeout,
            metrics,
            clock: plan.clock,
            tracker,
        };
        let due = Due {
            tenant_id: world.tenant.tenant_id,
            seconds: 0.0,
            parked: false,
            sweeping: false,
            resuming: false,
            pulled: false,
            newest: None,
        };
        Self { dispatcher: Arc::new(dispatcher), slots: Arc::new(Semaphore::new(CLAIM_MOST)), due }
    }

    /// A turn, when all that was taken before is recorded.
    async fn turn(&self) -> usize {
        let all = u32::try_from(CLAIM_MOST).unwrap();
        let slots = within("the turn before", self.slots.clone().acquire_many_owned(all)).await.unwrap();
        self.dispatcher.take_turn(&self.due, slots).await.unwrap().taken
    }

    /// Turns until nothing can be taken; how many were taken by each.
    async fn turns(&self) -> Vec<usize> {
        let mut taken = Vec::new();
        loop {
            match self.turn().await {
                0 => return taken,
                n => taken.push(n),
            }
        }
    }
}

#[tokio::test]
async fn a_receiver_that_was_dead_for_three_days_gets_all_that_waits_unaided_and_without_a_storm() {
    const LATER: usize = 60;
    const STEP_MINUTES: i64 = 20;
    in_world(async |world: &World| {
        let receiver = Receiver::start_with([], Answer::status(502)).await;
        let contract = "0s,5s,30s,2m,10m,30m,1h,2h,4h,8h,12h".parse().unwrap();
        let hand = Hand::of(world, contract);
        due_callbacks(world, &receiver.url, "early", 1).await;
        let step = async || {
            let taken = hand.turns().await;
            assert!(taken.iter().all(|taken| *taken == 1), "{taken:?}");
            world.clock.advance(TimeDelta::minutes(STEP_MINUTES));
        };
        // Two days: the first one is given up by its own tries, no sooner and no later for the breaker.
        for _ in 0..48 * 60 / STEP_MINUTES {
            step().await;
        }
        assert_eq!(world.text("SELECT concat_ws(' ', status, tries) FROM callbacks").await, "exhausted 11");
        due_callbacks(world, &receiver.url, "late", LATER).await;
        for _ in 0..24 * 60 / STEP_MINUTES {
            step().await;
        }
        let standing =
            "SELECT concat_ws(' ', count(*) FILTER (WHERE status = 'pending'), max(tries)) FROM callbacks";
        assert_eq!(world.text(standing).await, format!("{LATER} 11"));
        let tries_of_late = "SELECT max(tries)::bigint FROM callbacks WHERE status = 'pending'";
        let most = world.number(tries_of_late).await;
        assert!((1..=4).contains(&most), "{most} tries of one while a probe was all there was");

        let dead_tries = receiver.count();
        receiver.answers(Answer::status(200));
        let back_at = world.clock_now();
        let mut waves = Vec::new();
        let pending = "SELECT count(*) FROM callbacks WHERE status = 'pending'";
        while world.number(pending).await > 0 {
            waves.extend(hand.turns().await);
            // The probe, what may be under way at once, and a hundred a second.
            let granted =
                1 + i64::try_from(WAVE).unwrap() + (world.clock_now() - back_at).num_milliseconds() / 10 + 1;
            assert!(i64::try_from(receiver.count() - dead_tries).unwrap() <= granted, "{granted}: {waves:?}");
            let wait = free_or_zero(world).await;
            world.clock.advance(TimeDelta::from_std(wait).unwrap() + TimeDelta::milliseconds(1));
            assert!(waves.len() < 500, "it does not come to an end: {waves:?}");
        }
        // First one alone, then at most sixteen at once, each wave after the pause of the one before.
        assert!(waves[0] == 1 && waves.iter().all(|wave| *wave <= WAVE), "{waves:?}");
        assert_eq!(receiver.count() - dead_tries, LATER);
        // Every event under its own id and with its own bytes, each try alike.
        let mut bodies = BTreeMap::new();
        for one in receiver.first(1).await {
            let id = one.header("webhook-id");
            assert_eq!(one.json()["event_id"], id.as_str());
            assert_eq!(bodies.entry(id).or_insert_with(|| one.body.clone()), &one.body);
        }
        let stored: Vec<String> =
            sqlx::query_scalar("SELECT event_id::text FROM events").fetch_all(&world.pool).await.unwrap();
        assert_eq!(bodies.into_keys().collect::<BTreeSet<_>>(), stored.into_iter().collect());
        // What was given up comes by a replay.
        let given_up = world.text("SELECT event_id::text FROM callbacks WHERE status = 'exhausted'").await;
        world.store.replay_callback(world.tenant.tenant_id, given_up.parse().unwrap()).await.unwrap();
        assert_eq!(hand.turns().await, [1]);
        assert_eq!(world.number("SELECT count(*) FROM callbacks WHERE status <> 'delivered'").await, 0);
    })
    .await;
}

async fn free_or_zero(world: &World) -> Duration {
    world.store.receiver_free(world.tenant.tenant_id, Receivers::All).await.unwrap().unwrap_or_default()
}

/// Takes nothing, and counts who was asked.
struct Nobody {
    asked: tokio::sync::watch::Sender<BTreeMap<Uuid, usize>>,
    rests: BTreeMap<Uuid, Duration>,
}

impl TakesTurns for Nobody {
    async fn take_turn(
        self: &Arc<Self>,
        due: &Due,
        _: tokio::sync::OwnedSemaphorePermit,
    ) -> Result<Turn, publish_ingest::store::StoreError> {
        self.asked.send_modify(|asked| *asked.entry(due.tenant_id).or_default() += 1);
        Ok(Turn { taken: 0, rest: self.rests[&due.tenant_id] })
    }
}

#[tokio::test]
async fn who_rests_is_not_asked_again_until_more_of_it_is_due() {
    in_world(async |world: &World| {
        let tenant_id = world.tenant.tenant_id;
        due_callbacks(world, "https://bad.example/hook", "a", 3).await;
        // The other's turns are the clock: it does not rest.
        let other = world.another_tenant("other").await.tenant_id;
        let copy = "INSERT INTO events SELECT $1, position, gen_random_uuid(), task_id, publication_id, round, status, body,
            created_at FROM events WHERE tenant_id = $2";
        let mut connection = world.pool.acquire().await.unwrap();
        let seed = async |statement: &'static str, connection: &mut sqlx::PgConnection| {
            sqlx::query(statement).bind(other).bind(tenant_id).execute(connection).await.unwrap();
        };
        seed(copy, &mut connection).await;
        seed(
            "INSERT INTO callbacks (tenant_id, event_id, url, receiver, due_at, created_at)
            SELECT $1, event_id, 'u', 'r', created_at, created_at FROM events WHERE tenant_id = $1 AND $2::uuid IS NOT NULL",
            &mut connection,
        )
        .await;
        let asked = tokio::sync::watch::Sender::new(BTreeMap::new());
        let rests = BTreeMap::from([(tenant_id, Duration::from_hours(1)), (other, Duration::ZERO)]);
        let taker = Arc::new(Nobody { asked, rests });
        let stop = CancellationToken::new();
        let turns = publish_ingest::turns::Turns {
            store: world.store.clone(),
            queue: Queue::Callbacks,
            wake: Wake::default(),
            poll: Duration::from_millis(800),
            slots: Arc::new(Semaphore::new(CLAIM_MOST)),
            metrics: Metrics::new(),
            clock: world.shared_clock(),
            stop: stop.clone(),
        };
        let walking = tokio::spawn(turns.walk(taker.clone()));
        let mut watching = taker.asked.subscribe();
        let of = |asked: &BTreeMap<Uuid, usize>, id| asked.get(&id).copied().unwrap_or(0);
        let count = within("turns", watching.wait_for(|asked| of(asked, other) >= 300)).await.unwrap().clone();
        assert_eq!(of(&count, tenant_id), 1);
        // More of it: a retry of what waits, say, whose time has come.
        world.execute("UPDATE callbacks SET due_at = now() WHERE receiver <> 'r'").await;
        let again = watching.wait_for(|asked| of(asked, tenant_id) == 2);
        drop(within("asked again", again).await.unwrap());
        stop.cancel();
        walking.await.unwrap();
        // What was made by hand breaks what must hold elsewhere.
        sqlx::query("SET session_replication_role = replica").execute(&mut *connection).await.unwrap();
        seed("DELETE FROM callbacks WHERE tenant_id = $1 AND $2::uuid IS NOT NULL", &mut connection).await;
        seed("DELETE FROM events WHERE tenant_id = $1 AND $2::uuid IS NOT NULL", &mut connection).await;
        sqlx::query("SET session_replication_role = origin").execute(&mut *connection).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn breakers_are_counted_for_operators() {
    in_world(async |world: &World| {
        due_callbacks(world, "https://bad.example/hook", "a", 6).await;
        for _ in 0..FAILURES_MAX {
            let one = claim(world).await.remove(0);
            heard(world, &one, None, None).await;
        }
        let receiver = Receiver::start([]).await;
        let api: Api = world.start().await;
        api.publish(&article_with("b", json!({"callback_url": receiver.url}))).await.ok();
        tried(&api, &receiver, 1).await;
        crate::harness::eventually("the gauge", async || {
            let text = api.send(api.without_key("/metrics")).await.text;
            text.contains("publish_breakers_open 1\n")
                && text.contains("publish_breakers_moved_total{to=\"open\"} 0\n")
        })
        .await;
    })
    .await;
}
