//! What a whole life costs the database, from the claim to the recorded callback.
//!
//! The measurement runs by itself; where `pg_stat_statements` is installed, it names the statements:
//! `cargo test --release --test database -- --ignored --nocapture what_a_life_costs`

use publish_ingest::account::{AccountInput, AccountKey, GroupInput};
use publish_ingest::clock::{Clock as _, SystemClock};
use publish_ingest::store::{GroupPut, NewTask};
use serde_json::json;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection as _, Row as _};
use uuid::Uuid;

use crate::harness::{World, account_input, cluster_with, create_migrated, in_world_at};
use crate::receiver::Receiver;

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
