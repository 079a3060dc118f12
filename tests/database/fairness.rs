//! Nobody waits for somebody else's receiver, nor for another one of the same tenant.
//!
//! The measurement runs by itself, for two minutes:
//! `cargo test --test database -- --ignored --nocapture the_healthy_are_as_quick`

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::HeaderMap;
use chrono::{DateTime, Utc};
use publish_ingest::callback::share::UNPROVEN_MAX;
use publish_ingest::clock::SharedClock;
use publish_ingest::tenant::Scope;
use sqlx::{AssertSqlSafe, Executor};
use tokio::net::TcpListener;
use tokio::sync::watch;
use uuid::Uuid;

use crate::callbacks::publish_to;
use crate::harness::{LIMIT, World, in_world, within};
use crate::receiver::Receiver;

/// Finished articles of the tenant acme with their callbacks: EACH for each of the receivers on the PORTS of this
/// machine, due one after the other within SECONDS after LEAD, round by round.
const SEED: &str = "
    SET session_replication_role = replica;
    CREATE TEMP TABLE seed AS SELECT n, t.tenant_id, gen_random_uuid() AS task_id, gen_random_uuid() AS publication_id,
            gen_random_uuid() AS event_id, 'http://127.0.0.1:' || port AS receiver,
            now() + interval 'LEAD seconds' + n * interval 'SECONDS seconds' / count(*) OVER () AS at
        FROM (SELECT row_number() OVER (ORDER BY round, port) AS n, port FROM unnest(ARRAY[PORTS]) port,
            generate_series(1, EACH) round) s, tenants t WHERE t.name = 'acme';
    INSERT INTO tasks (tenant_id, external_id, task_id, group_code, fingerprint, digests, callback_url, draft, drafts, open,
            succeeded, created_at, submitted_at, finished_at)
        SELECT tenant_id, 'seed-' || n, task_id, 'one', sha256(n::text::bytea), sha256('') || sha256(''),
            receiver || '/hook', false, 0, 0, 1, at, at, at FROM seed;
    INSERT INTO articles (tenant_id, task_id, title, content_html, tags, metadata)
        SELECT tenant_id, task_id, 'Old', '<p>old</p>', '[]', '{}' FROM seed;
    INSERT INTO publications (tenant_id, publication_id, task_id, platform, account_id, position, status, due_at, fence,
            url, updated_at)
        SELECT tenant_id, publication_id, task_id, 'static_site', 'blog1', 1, 'success', at, 1, 'https://a.example/', at
        FROM seed;
    INSERT INTO transitions (tenant_id, task_id, publication_id, at, from_status, to_status, round, fence, reason)
        SELECT tenant_id, task_id, publication_id, at, 'running', 'success', 1, 1, 'published' FROM seed;
    INSERT INTO events (tenant_id, position, event_id, task_id, publication_id, round, status, body, created_at)
        SELECT tenant_id, n, event_id, task_id, publication_id, 1, 'success', convert_to(jsonb_build_object('type',
            'publication.success', 'event_id', event_id, 'sequence', n, 'task_id', task_id, 'status', 'success', 'round', 1,
            'task_status', 'success')::text, 'UTF8'), at FROM seed;
    UPDATE feeds SET position = (SELECT count(*) FROM seed) WHERE tenant_id IN (SELECT tenant_id FROM seed);
    INSERT INTO receivers (tenant_id, receiver, max_in_flight, free_at)
        SELECT DISTINCT tenant_id, receiver, 16, now() FROM seed;
    INSERT INTO callbacks (tenant_id, event_id, url, receiver, due_at, created_at)
        SELECT tenant_id, event_id, receiver || '/hook', receiver, at, at FROM seed;
    SET session_replication_role = origin;
    DROP TABLE seed";

async fn seed(world: &World, ports: &[u16], each: usize, [lead, seconds]: [u32; 2]) {
    let list = ports.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let statement = SEED.replace("PORTS", &list).replace("EACH", &each.to_string());
    let statement = statement.replace("LEAD", &lead.to_string()).replace("SECONDS", &seconds.to_string());
    world.pool.execute(AssertSqlSafe(statement)).await.unwrap();
}

/// Receivers that take a connection and never answer: nobody accepts it.
async fn hanging(count: usize) -> (Vec<TcpListener>, Vec<u16>) {
    let mut listeners = Vec::new();
    for _ in 0..count {
        listeners.push(TcpListener::bind("127.0.0.1:0").await.unwrap());
    }
    let ports = listeners.iter().map(|one| one.local_addr().unwrap().port()).collect();
    (listeners, ports)
}

#[tokio::test]
async fn receivers_that_hang_hold_up_neither_their_tenants_others_nor_other_tenants() {
    const HANGING: usize = 250;
    in_world(async |world: &World| {
        let (listeners, ports) = hanging(HANGING).await;
        seed(world, &ports, 4, [0, 0]).await;
        let mut plan = world.plan();
        // None of them comes to an end while the test runs.
        plan.callback_timeout = LIMIT * 2;
        let api = world.start_with(plan).await;
        world.until("SELECT count(*) FROM callbacks WHERE lease_until IS NOT NULL", 250).await;
        let (mine, theirs) = (Receiver::start([]).await, Receiver::start([]).await);
        for n in 0..20 {
            publish_to(&api, &format!("mine-{n}"), &mine).await;
        }
        let other = world.another_tenant("other").await;
        let their_api = api.with_key(&world.key(other.tenant_id, &Scope::ALL).await);
        for n in 0..20 {
            publish_to(&their_api, &format!("theirs-{n}"), &theirs).await;
        }
        mine.first(20).await;
        theirs.first(20).await;
        world.until("SELECT count(*) FROM callbacks WHERE status = 'delivered'", 40).await;
        assert_eq!(world.number("SELECT count(*) FROM callbacks WHERE lease_until IS NOT NULL").await, 250);
        // They end: connections are reset, and the stop need not wait.
        drop(listeners);
    })
    .await;
}

#[tokio::test]
async fn however_many_receivers_hang_half_of_what_a_tenant_may_have_in_hand_is_left() {
    const HANGING: usize = 300;
    in_world(async |world: &World| {
        // One that works, and is known to.
        let mine = Receiver::start([]).await;
        let mut plan = world.plan();
        plan.callback_timeout = LIMIT * 2;
        let (listeners, ports) = hanging(HANGING).await;
        seed(world, &ports, 1, [3_600, 0]).await;
        let api = world.start_with(plan).await;
        publish_to(&api, "proven", &mine).await;
        world.until("SELECT count(*) FROM callbacks WHERE status = 'delivered'", 1).await;
        world.advance(3_601);
        // A claim may take it past its share by less than it takes at once.
        let share = i64::try_from(UNPROVEN_MAX).unwrap();
        let leased = "SELECT count(*) FROM callbacks WHERE lease_until IS NOT NULL";
        crate::harness::eventually("the share", async || world.number(leased).await >= share).await;
        for n in 0..20 {
            publish_to(&api, &format!("mine-{n}"), &mine).await;
        }
        mine.first(21).await;
        world.until("SELECT count(*) FROM callbacks WHERE status = 'delivered'", 21).await;
        let held = world.number(leased).await;
        assert!((share..share + 64).contains(&held), "{held} in hand");
        drop(listeners);
    })
    .await;
}

/// When each event was first heard of.
type Heard = watch::Sender<HashMap<Uuid, DateTime<Utc>>>;

#[derive(Clone)]
struct Ear {
    clock: SharedClock,
    heard: Arc<Heard>,
}

async fn hear(State(ear): State<Ear>, headers: HeaderMap) {
    let id = headers["webhook-id"].to_str().unwrap().parse().unwrap();
    let now = ear.clock.now();
    ear.heard.send_modify(|heard| {
        heard.entry(id).or_insert(now);
    });
}

const RECEIVERS: usize = 100;
const EACH: usize = 100;
const BAD: usize = 20;
/// How long before the first is due: the service is there by then.
const LEAD: u32 = 5;
/// How long they take to come due: as many a second as an unoptimised build sends without effort.
const SECONDS: u32 = 50;

/// The delays from being due to the first delivery, of the 80 receivers that are healthy in both runs.
async fn delays(world: &World, with_bad: bool) -> Vec<Duration> {
    let ear = Ear { clock: world.shared_clock(), heard: Arc::new(Heard::default()) };
    let mut ports = Vec::new();
    let mut servers = tokio::task::JoinSet::new();
    for _ in 0..RECEIVERS - BAD {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        ports.push(listener.local_addr().unwrap().port());
        let router = Router::new().fallback(hear).with_state(ear.clone());
        servers.spawn(async move { axum::serve(listener, router).await.unwrap() });
    }
    let healthy = ports.clone();
    let (mut listeners, bad) = hanging(BAD).await;
    ports.extend(&bad);
    if with_bad {
        // Half of them refuse.
        listeners.truncate(BAD / 2);
    } else {
        for listener in listeners.drain(..) {
            let router = Router::new().fallback(hear).with_state(ear.clone());
            servers.spawn(async move { axum::serve(listener, router).await.unwrap() });
        }
    }
    seed(world, &ports, EACH, [LEAD, SECONDS]).await;
    let mut plan = world.plan();
    plan.callback_schedule = "0s,5s,30s,2m,10m,30m,1h,2h,4h,8h,12h".parse().unwrap();
    world.start_with(plan).await;
    let list = healthy.iter().map(|port| format!("'http://127.0.0.1:{port}'")).collect::<Vec<_>>().join(", ");
    let of_healthy = format!("SELECT event_id, created_at FROM callbacks WHERE receiver IN ({list})");
    let due: Vec<(Uuid, DateTime<Utc>)> =
        sqlx::query_as(AssertSqlSafe(of_healthy)).fetch_all(&world.pool).await.unwrap();
    assert_eq!(due.len(), healthy.len() * EACH);
    let mut watching = ear.heard.subscribe();
    let all = watching.wait_for(|heard| due.iter().all(|(id, _)| heard.contains_key(id)));
    let heard = within("all healthy ones", async { all.await.unwrap().clone() }).await;
    world.stop().await;
    due.iter().map(|(id, at)| (heard[id] - at).to_std().unwrap_or_default()).collect()
}

/// The percentiles 50, 99 and 100.
fn percentiles(mut delays: Vec<Duration>) -> [Duration; 3] {
    delays.sort();
    [50, 99, 100].map(|percent| delays[(delays.len() * percent / 100).min(delays.len() - 1)])
}

#[tokio::test]
#[ignore = "a measurement of two minutes: cargo test --test database -- --ignored --nocapture the_healthy_are_as_quick"]
async fn the_healthy_are_as_quick_beside_receivers_that_hang_and_refuse() {
    let measured = Arc::new(Mutex::new(Vec::new()));
    for with_bad in [false, true] {
        in_world(async |world: &World| {
            let [half, most, all] = percentiles(delays(world, with_bad).await);
            let beside = if with_bad { "beside 10 that hang and 10 that refuse" } else { "all healthy" };
            println!("{beside}: p50 {half:?}, p99 {most:?}, longest {all:?}");
            measured.lock().unwrap().push(most);
        })
        .await;
    }
    let measured = measured.lock().unwrap();
    assert!(measured[1] <= measured[0] * 2, "p99 {:?} and {:?}", measured[0], measured[1]);
}
