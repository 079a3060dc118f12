//! What a whole life costs the database, from the claim to the recorded callback.
//!
//! The measurement runs by itself; where `pg_stat_statements` is installed, it names the statements:
//! `cargo test --release --test database -- --ignored --nocapture what_a_life_costs`

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::serve::ListenerExt as _;
use publish_ingest::account::{AccountInput, AccountKey, GroupInput};
use publish_ingest::article::Submission;
use publish_ingest::callback::doors::OPEN_AT_ONCE;
use publish_ingest::clock::{Clock as _, SystemClock};
use publish_ingest::config::Roles;
use publish_ingest::gather::Partial;
use publish_ingest::lifecycle::Plan;
use publish_ingest::store::{Due, GroupPut, JournalEntry, NewTask, Queue, StoreError};
use publish_ingest::task::accept::{Acceptor, Sender};
use publish_ingest::task::scribe::Scribe;
use publish_ingest::task::settle::{Settler, Settling, telling};
use publish_ingest::telemetry::metrics::Metrics;
use publish_ingest::turns::{REST, TakesTurns, Turn, Turns, Wake};
use serde_json::json;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection as _, Row as _};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::claims::success;
use crate::harness::{
    BOTH, ONE, World, account_input, article, article_with, at_once, cluster_with, create_migrated, in_world,
    in_world_at, within,
};
use crate::leases::entry;
use crate::receiver::Receiver;
use crate::sandbox::{asked, for_box, open};

/// How many accounts of the sandbox a group has.
const ACCOUNTS: usize = 2;

/// Gives a tenant groups of two accounts of the sandbox.
async fn furnish(world: &World, tenant_id: Uuid, groups: usize) {
    for group in 0..groups {
        let mut accounts = Vec::new();
        for n in 0..ACCOUNTS {
            let id = format!("box{group}-{n}");
            let input = AccountInput { settings: json!({}), max_in_flight: 32, ..account_input(&id) };
            world.put_account(tenant_id, "sandbox", &id, &input).await;
            accounts.push(AccountKey::new("sandbox", &id).unwrap());
        }
        let code = format!("g{group}").parse().unwrap();
        let input = GroupInput { title: "Boxes".to_owned(), accounts };
        let put = world.store.put_group(tenant_id, &code, &input).await.unwrap();
        assert!(matches!(put, GroupPut::Done(_)), "{put:?}");
    }
}

/// Articles that await a service, the tenants in turn, and the groups of each.
async fn accept(world: &World, tenants: &[Uuid], groups: usize, articles: usize, receiver: &Receiver) {
    let tasks = (0..articles).map(|n| {
        let group = format!("g{}", n / tenants.len() % groups);
        let mut task = world.new_task(&format!("post-{n:06}"), &group);
        task.tenant_id = tenants[n % tenants.len()];
        task.callback_url = Some(receiver.url.clone());
        task.content.content_html = "<p>lorem ipsum</p>".repeat(200);
        task
    });
    for batch in tasks.collect::<Vec<NewTask>>().chunks(250) {
        world.accept(batch).await;
    }
}

#[expect(clippy::print_stdout, reason = "a measurement is read by who runs it")]
async fn measure(tenants: usize, groups: usize, articles: usize) {
    let settings = [
        ("shared_preload_libraries", "pg_stat_statements"),
        ("pg_stat_statements.track_planning", "off"),
        ("fsync", "on"),
        ("synchronous_commit", "on"),
        ("full_page_writes", "on"),
    ];
    let cluster = cluster_with(&settings).await;
    let url = create_migrated(&cluster, "flow").await;
    let mut asking = PgConnection::connect(&url).await.unwrap();
    sqlx::query("CREATE EXTENSION pg_stat_statements").execute(&mut asking).await.unwrap();
    in_world_at(&url, async |world: &World| {
        let receiver = Receiver::start([]).await;
        let mut ids = vec![world.tenant.tenant_id];
        for n in 1..tenants {
            ids.push(world.another_tenant(&format!("tenant{n}")).await.tenant_id);
        }
        for id in &ids {
            furnish(world, *id, groups).await;
        }
        accept(world, &ids, groups, articles, &receiver).await;
        sqlx::query("SELECT pg_stat_statements_reset()").execute(&mut asking).await.unwrap();
        let begun = SystemClock.instant();
        world.start().await;
        let publications = i64::try_from(articles * ACCOUNTS).unwrap();
        receiver.first(articles * ACCOUNTS).await;
        let took = SystemClock.instant() - begun;
        world.until("SELECT count(*) FROM callbacks WHERE status = 'delivered'", publications).await;
        world.stop().await;
        println!("{tenants} tenants of {groups} groups: {publications} publications in {took:?}");
        report(&mut asking, publications).await;
    })
    .await;
    drop(cluster);
}

#[expect(clippy::print_stdout, reason = "a measurement is read by who runs it")]
async fn report(asking: &mut PgConnection, publications: i64) {
    let rows = sqlx::query(AssertSqlSafe(format!(
        "SELECT calls::float8 / {publications} AS each, calls, mean_exec_time AS ms, total_exec_time / 1000 AS s,
            rows::float8 / calls AS rows, left(regexp_replace(query, '\\s+', ' ', 'g'), 90) AS query
        FROM pg_stat_statements WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
            AND calls > 5 ORDER BY total_exec_time DESC"
    )))
    .fetch_all(asking)
    .await
    .unwrap();
    let mut all = 0.0;
    for row in &rows {
        let (each, calls): (f64, i64) = (row.get("each"), row.get("calls"));
        all += each;
        println!(
            "{each:8.3} a publication {calls:7} calls {:8.3} ms {:7.2} s {:6.1} rows  {}",
            row.get::<f64, _>("ms"),
            row.get::<f64, _>("s"),
            row.get::<f64, _>("rows"),
            row.get::<String, _>("query"),
        );
    }
    println!("{all:8.3} statements a publication");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement: cargo test --release --test database -- --ignored --nocapture what_a_life_costs"]
async fn what_a_life_costs() {
    let number = |name: &str, usual: usize| {
        std::env::vars().find(|(key, _)| key == name).map_or(usual, |(_, value)| value.parse().unwrap())
    };
    measure(number("FLOW_TENANTS", 1), number("FLOW_GROUPS", 256), number("FLOW_ARTICLES", 2_000)).await;
}

#[tokio::test]
async fn entries_are_written_together_each_by_its_own_lease() {
    in_world(async |world: &World| {
        let tasks = ["a", "b", "c"].map(|id| world.new_task(id, BOTH));
        world.accept(&tasks).await;
        let claimed = world.claim("w").await;
        assert_eq!(claimed.len(), 6);
        let scribe = Scribe::start(world.store.clone(), &Partial::at_once(1), &TaskTracker::new());
        let note = async |entries: Vec<JournalEntry>| {
            let writing = entries.into_iter().map(|entry| {
                let scribe = scribe.clone();
                async move { scribe.write(entry).await }
            });
            at_once(writing).await
        };
        world.advance(20);
        let mut entries = claimed.iter().map(|one| entry(one, "m")).collect::<Vec<_>>();
        entries[1].fence -= 1;
        let held = note(entries.clone()).await.into_iter().map(Result::unwrap).collect::<Vec<_>>();
        assert_eq!(held, [true, false, true, true, true, true]);
        assert_eq!(world.number("SELECT count(*) FROM attempts").await, 10);
        assert_eq!(world.number("SELECT count(DISTINCT xmin::text) FROM attempts").await, 1);
        // The one whose lease was not renewed is taken over.
        world.advance(11);
        let lost = world.claim("other").await;
        assert_eq!((lost.len(), lost[0].publication_id), (1, claimed[1].publication_id));

        // A step that was noted before is refused, and takes none of its neighbours along.
        for entry in &mut entries[2..] {
            entry.probe = None;
            entry.intent.as_mut().unwrap().step = 2;
        }
        entries[3].intent.as_mut().unwrap().step = 1;
        let written = note(entries.split_off(2)).await;
        let refused =
            written.iter().map(|one| matches!(one, Err(StoreError::Gathered(_)))).collect::<Vec<_>>();
        assert_eq!(refused, [false, true, false, false]);
        assert_eq!(world.number("SELECT count(*) FROM attempts WHERE step = 2").await, 3);
    })
    .await;
}

#[tokio::test]
async fn what_is_asked_of_the_sandbox_at_once_is_counted_one_by_one() {
    const ARTICLES: usize = 30;
    in_world(async |world: &World| {
        let api = world.start().await;
        open(&api, json!([])).await;
        api.put("/accounts/sandbox/box", &json!({"settings": {}, "max_in_flight": 32})).await.ok();
        let articles = (0..ARTICLES).map(|n| for_box(&format!("a{n}"))).collect::<Vec<_>>();
        api.post("/publish/batch", &json!({"articles": articles})).await.ok();
        world.until("SELECT count(*) FROM publications WHERE status = 'success'", 30).await;
        for n in 0..ARTICLES {
            let expected = ["find 200", "draft made 201", "find 200", "publish published 200"];
            assert_eq!(asked(&api, &format!("a{n}")).await, expected);
        }
        let counts = "SELECT concat_ws(' ', last_request, last_article, held, seen, published) FROM sandbox_accounts";
        assert_eq!(world.text(counts).await, "120 30 30 30 30");
        let places = "SELECT concat_ws(' ', count(DISTINCT ordinal), min(ordinal), max(ordinal), min(finds), max(finds),
            max(drafts), max(publishes)) FROM sandbox_marks";
        assert_eq!(world.text(places).await, "30 1 30 2 2 1 1");
        let nth = "SELECT string_agg(DISTINCT kind || nth, ' ' ORDER BY kind || nth) FROM sandbox_requests";
        assert_eq!(world.text(nth).await, "draft1 find1 find2 publish1");
        let batches = world.number("SELECT count(DISTINCT xmin::text) FROM sandbox_requests").await;
        assert!(batches < 120, "{batches} transactions for 120 requests");
    })
    .await;
}

/// What a receiver sees of its callers.
#[derive(Default)]
struct Seen {
    connections: AtomicUsize,
    /// How many calls are under way, and how many were at most.
    calls: AtomicUsize,
    calls_most: AtomicUsize,
}

#[tokio::test]
async fn of_a_hundred_callbacks_no_more_are_at_a_receiver_than_it_is_called_at_once() {
    in_world(async |world: &World| {
        let seen = Arc::new(Seen::default());
        let heard = watch::Sender::new(0);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let (counted, calling, hearing) = (seen.clone(), seen.clone(), heard.clone());
        let listener = listener.tap_io(move |_| {
            counted.connections.fetch_add(1, Ordering::SeqCst);
        });
        let router = Router::new().fallback(async move || {
            let calls = calling.calls.fetch_add(1, Ordering::SeqCst) + 1;
            calling.calls_most.fetch_max(calls, Ordering::SeqCst);
            hearing.send_modify(|heard| *heard += 1);
            // The first are answered when as many have come as may.
            let mut come = hearing.subscribe();
            come.wait_for(|heard| *heard >= OPEN_AT_ONCE).await.unwrap();
            calling.calls.fetch_sub(1, Ordering::SeqCst);
        });
        let server = tokio::spawn(async move { axum::serve(listener, router).await });
        let worker = Roles { api: true, worker: true, dispatcher: false };
        let api = world.start_with(Plan { roles: worker, ..world.plan() }).await;
        let articles = (0..100).map(|n| article_with(&format!("a{n}"), json!({"callback_url": url})));
        api.post("/publish/batch", &json!({"articles": articles.collect::<Vec<_>>()})).await.ok();
        world.until("SELECT count(*) FROM callbacks", 100).await;
        world.stop().await;
        // One that has answered quickly for a while: all that is claimed for it is in hand at once.
        world.execute("UPDATE receivers SET proven = true, max_in_flight = 128").await;
        world.start().await;
        let mut watching = heard.subscribe();
        within("a hundred callbacks", watching.wait_for(|heard| *heard >= 100)).await.unwrap();
        world.until("SELECT count(*) FROM callbacks WHERE status = 'delivered'", 100).await;
        let (calls, connections) =
            (seen.calls_most.load(Ordering::SeqCst), seen.connections.load(Ordering::SeqCst));
        assert_eq!(calls, OPEN_AT_ONCE);
        // The client may open one while another is just given back.
        assert!(connections <= 2 * OPEN_AT_ONCE, "{connections}");
        server.abort();
    })
    .await;
}

/// Notes that it had a turn.
struct Noting(watch::Sender<usize>);

impl TakesTurns for Noting {
    async fn take_turn(self: &Arc<Self>, _: &Due, _: OwnedSemaphorePermit) -> Result<Turn, StoreError> {
        self.0.send_modify(|turns| *turns += 1);
        Ok(Turn { taken: 0, rest: REST })
    }
}

/// A walk that never polls.
fn walk(world: &World, queue: Queue, wake: &Wake) -> (watch::Receiver<usize>, CancellationToken) {
    let stop = CancellationToken::new();
    let turns = Turns {
        store: world.store.clone(),
        queue,
        wake: wake.clone(),
        poll: Duration::from_hours(10),
        slots: Arc::new(Semaphore::new(512)),
        metrics: Metrics::new(),
        clock: world.shared_clock(),
        stop: stop.clone(),
    };
    let noting = Arc::new(Noting(watch::Sender::new(0)));
    let watching = noting.0.subscribe();
    tokio::spawn(turns.walk(noting));
    (watching, stop)
}

#[tokio::test]
async fn what_is_accepted_or_settled_here_waits_for_no_poll() {
    in_world(async |world: &World| {
        let (work, deliver) = (Wake::default(), Wake::default());
        let (mut worked, stop) = walk(world, Queue::Publications, &work);
        let (mut delivered, stop_too) = walk(world, Queue::Callbacks, &deliver);
        let tracker = TaskTracker::new();
        let acceptor = Acceptor::start(
            None,
            world.store.clone(),
            work.clone(),
            &Metrics::new(),
            world.shared_clock(),
            &tracker,
        );
        let article = article_with("a", json!({"callback_url": "https://h.example/"}));
        let submission = Submission::parse(article.to_string().as_bytes(), |_| Ok(())).unwrap();
        let sender = Sender { tenant_id: world.tenant.tenant_id, ..Sender::default() };
        acceptor.accept(&sender, submission, None).await.unwrap();
        within("a worker's turn", worked.wait_for(|turns| *turns > 0)).await.unwrap();
        let one = world.claim("w").await.remove(0);
        assert_eq!(*delivered.borrow(), 0);
        let settling = Settling {
            store: world.store.clone(),
            telling: telling(Duration::ZERO),
            work,
            deliver,
            stop: CancellationToken::new(),
        };
        assert!(Settler::start(&settling, &Partial::at_once(1), &tracker).settle(success(&one)).await);
        within("a dispatcher's turn", delivered.wait_for(|turns| *turns > 0)).await.unwrap();
        stop.cancel();
        stop_too.cancel();
    })
    .await;
}

#[tokio::test]
async fn an_account_whose_robot_never_comes_costs_no_turns() {
    in_world(async |world: &World| {
        let api = world.start().await;
        api.put("/accounts/http_bridge/robot", &json!({})).await.ok();
        let alone = json!({"accounts": [{"platform": "http_bridge", "account_id": "robot"}]});
        api.put("/groups/robot", &alone).await.ok();
        api.publish(&article_with("a", json!({"group_code": "robot"}))).await.ok();
        assert_eq!(world.due().await, Vec::<Uuid>::new());
        // Others of the tenant are due as ever, also behind it.
        world.stop().await;
        world.accept(&[world.new_task("b", ONE)]).await;
        assert_eq!(world.due().await, [world.tenant.tenant_id]);
        assert_eq!(world.claim("w").await.len(), 1);
        assert_eq!(world.due().await, Vec::<Uuid>::new());
    })
    .await;
}

/// By the database's own count; the walks' polls are held against the promise where they are set (`lifecycle::idle`).
#[tokio::test]
#[ignore = "a measurement of a minute: cargo test --test database -- --ignored --nocapture what_an_idle_node_asks"]
async fn what_an_idle_node_asks() {
    const SECONDS: u32 = 40;
    in_world(async |world: &World| {
        let api = world.start().await;
        api.put("/accounts/http_bridge/robot", &json!({})).await.ok();
        let alone = json!({"accounts": [{"platform": "http_bridge", "account_id": "robot"}]});
        api.put("/groups/robot", &alone).await.ok();
        api.publish(&article_with("a", json!({"group_code": "robot"}))).await.ok();
        api.publish(&article("b")).await.ok();
        api.finished("b").await;
        let count = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()";
        // What has just happened is counted within seconds.
        tokio::time::sleep(Duration::from_secs(12)).await;
        let before = world.number(count).await;
        tokio::time::sleep(Duration::from_secs(SECONDS.into())).await;
        let asked = world.number(count).await - before;
        println!("{asked} transactions in {SECONDS} s");
    })
    .await;
}

#[tokio::test]
async fn what_a_run_writes_stands_in_no_index() {
    in_world(async |world: &World| {
        // But for the lease, which is seldom renewed: else each step would be written into every index of the table.
        let written = "marker|confirming|attempts|drafts|draft_id|warnings|updated_at";
        let indexed = sqlx::query_scalar::<_, String>(
            "SELECT indexdef FROM pg_indexes WHERE tablename = 'publications'
            AND split_part(indexdef, ' USING ', 2) ~ ('\\m(' || $1 || ')\\M')",
        );
        assert_eq!(indexed.bind(written).fetch_all(&world.pool).await.unwrap(), Vec::<String>::new());
    })
    .await;
}
