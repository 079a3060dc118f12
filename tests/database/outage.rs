//! The database goes away and comes back.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use publish_ingest::clock::Clock;
use publish_ingest::local_postgres::Cluster;
use publish_ingest::store::{SchemaError, StoreError};
use serde_json::json;

use crate::harness::{
    self, World, article, article_with, at_once, create_migrated, eventually, in_world, in_world_at,
};
use crate::receiver::Receiver;

#[tokio::test]
async fn without_its_database_the_service_says_so_quickly_and_recovers_by_itself() {
    let cluster = harness::cluster().await;
    let url = create_migrated(&cluster, "outage").await;
    let cluster = Arc::new(Mutex::new(cluster));
    let change = async |how: fn(&mut Cluster)| {
        let cluster = cluster.clone();
        tokio::task::spawn_blocking(move || how(&mut cluster.lock().unwrap())).await.unwrap();
    };
    in_world_at(&url, async |world: &World| {
        let receiver = Receiver::start([]).await;
        let api = world.start().await;
        api.publish(&article_with("before", json!({"callback_url": receiver.url}))).await.ok();
        api.get("/readyz").await.ok();

        change(|cluster| cluster.kill().unwrap()).await;
        for _ in 0..3 {
            let begun = world.clock.instant();
            let reply = api.publish(&article("during")).await;
            let took = world.clock.instant() - begun;
            reply.problem(503, "unavailable");
            assert!(reply.header("retry-after").unwrap().parse::<u32>().is_ok());
            assert!(took < Duration::from_secs(2), "{took:?}");
        }
        api.task("before").await.problem(503, "unavailable");
        api.get("/readyz").await.problem(503, "unavailable");
        api.get("/healthz").await.ok();

        change(|cluster| cluster.restart().unwrap()).await;
        eventually("ready again", async || api.get("/readyz").await.status == 200).await;
        assert_eq!(api.publish(&article("during")).await.ok()["status"], "submitted");
        api.finished("during").await;
        assert_eq!(api.publish(&article("before")).await.ok()["created"], false);
        // A run that the outage broke off is taken up when its lease has run out.
        world.advance(40);
        api.finished("before").await;
        let event_id = receiver.first(1).await[0].header("webhook-id");
        api.tried(&event_id, 1).await;
        assert_eq!(world.pages("blog1").len(), 2);
    })
    .await;
}

#[tokio::test]
async fn a_standby_that_takes_no_writes_is_not_ready() {
    let cluster = harness::cluster().await;
    let url = create_migrated(&cluster, "standby").await;
    in_world_at(&url, async |world: &World| {
        let api = world.start().await;
        world.execute("ALTER DATABASE standby SET default_transaction_read_only = on").await;
        world.execute(END_SERVICE).await;
        api.publish(&article("a")).await.problem(503, "unavailable");
        api.get("/readyz").await.problem(503, "unavailable");
        world.execute("ALTER DATABASE standby RESET default_transaction_read_only").await;
        world.execute(END_SERVICE).await;
        eventually("ready again", async || api.get("/readyz").await.status == 200).await;
        api.publish(&article("a")).await.ok();
        api.finished("a").await;
    })
    .await;
}

const END_SERVICE: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'publish-ingest'";

#[tokio::test]
async fn a_database_that_does_not_answer_is_not_waited_for() {
    in_world(async |world: &World| {
        let api = world.start().await;
        api.publish(&article("before")).await.ok();
        api.finished("before").await;
        let mut holder = world.pool.begin().await.unwrap();
        sqlx::query("LOCK TABLE tasks IN ACCESS EXCLUSIVE MODE").execute(&mut *holder).await.unwrap();
        let asked = at_once([0, 1, 2].map(|n| {
            let (api, clock) = (api.clone(), world.clock.clone());
            async move {
                let begun = clock.instant();
                let reply =
                    if n == 0 { api.task("before").await } else { api.publish(&article("new")).await };
                (reply, clock.instant() - begun)
            }
        }));
        for (reply, took) in asked.await {
            reply.problem(503, "unavailable");
            assert!(took < Duration::from_secs(2), "{took:?}");
        }
        holder.rollback().await.unwrap();
        assert_eq!(api.task("before").await.ok()["status"], "success");
        // The same request again is safe, whichever of the earlier ones got in.
        let again = api.publish(&article("new")).await.ok();
        assert_eq!(again["content_changed"], false);
        api.finished("new").await;
        assert_eq!(world.number("SELECT count(*) FROM tasks").await, 2);
    })
    .await;
}

#[tokio::test]
async fn a_schema_of_another_build_is_told_apart_by_its_contents() {
    in_world(async |world: &World| {
        world.store.check().await.unwrap();
        world.execute("UPDATE _sqlx_migrations SET checksum = '\\x00' WHERE version = 4").await;
        let told = world.store.check().await.unwrap_err();
        assert!(matches!(told, StoreError::Schema(SchemaError::Other(4))), "{told}");
    })
    .await;
}
