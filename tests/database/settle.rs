//! Settling: outcome, counters, lane, event and callback in one transaction, many at once.

use std::collections::HashMap;
use std::time::Duration;

use chrono::TimeDelta;
use publish_ingest::store::{Claimed, Move};
use publish_ingest::task::settle::telling;
use publish_ingest::task::state::Status;
use serde_json::Value;

use crate::claims::success;
use crate::harness::{World, at_once, in_world};

fn failure(one: &Claimed) -> Move {
    Move {
        to: Status::Failed,
        url: None,
        remote_id: None,
        error: Some(("rejected".to_owned(), "no".to_owned(), false)),
        reason: "rejected",
        outcome: Some("rejected"),
        ..success(one)
    }
}

const ACCOUNTS: usize = 5;

/// Articles on five accounts each, with a callback URL, all of them claimed.
async fn claimed(world: &World, articles: usize) -> Vec<Claimed> {
    let tenant_id = world.tenant.tenant_id;
    let ids = (0..ACCOUNTS).map(|n| format!("many{n}")).collect::<Vec<_>>();
    for id in &ids {
        world.account(tenant_id, id, 1_000, TimeDelta::zero()).await;
    }
    world.group(tenant_id, "many", &ids.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let tasks = (0..articles).map(|n| {
        let mut task = world.new_task(&format!("post-{n}"), "many");
        task.callback_url = Some("https://receiver.example/".to_owned());
        task
    });
    world.accept(&tasks.collect::<Vec<_>>()).await;
    let mut all = Vec::new();
    while all.len() < articles * ACCOUNTS {
        all.extend(world.claim("w").await);
    }
    all
}

async fn bodies(world: &World) -> Vec<Value> {
    let bodies: Vec<Vec<u8>> =
        sqlx::query_scalar("SELECT body FROM events ORDER BY position").fetch_all(&world.pool).await.unwrap();
    bodies.iter().map(|body| serde_json::from_slice(body).unwrap()).collect()
}

#[tokio::test]
async fn eight_settlers_at_once_leave_no_gap_and_the_last_event_of_a_task_tells_its_state() {
    const ARTICLES: usize = 40;
    in_world(async |world: &World| {
        let all = claimed(world, ARTICLES).await;
        // Four settlers of two writers each; neighbours of one task go to different ones.
        let settlers = [world.settler(), world.settler(), world.settler(), world.settler()];
        let settled = at_once(all.iter().enumerate().map(|(n, one)| {
            let settler = settlers[n % 4].clone();
            let fails = one.external_id.ends_with('3') && one.account_id == "many2";
            let settlement = if fails { failure(one) } else { success(one) };
            async move { settler.settle(settlement).await }
        }))
        .await;
        assert!(settled.iter().all(|recorded| *recorded));
        let bodies = bodies(world).await;
        assert_eq!(bodies.len(), ARTICLES * ACCOUNTS);
        let mut last = HashMap::new();
        for (n, body) in bodies.iter().enumerate() {
            assert_eq!(body["sequence"], n + 1);
            last.insert(body["external_id"].as_str().unwrap(), body["task_status"].as_str().unwrap());
        }
        for (external_id, status) in last {
            let expected = if external_id.ends_with('3') { "failed" } else { "success" };
            assert_eq!(status, expected, "{external_id}");
        }
        let unfinished = "SELECT count(*) FROM tasks WHERE open <> 0 OR finished_at IS NULL";
        assert_eq!(world.number(unfinished).await, 0);
        // State, event and callback carry the same transaction's number.
        let apart = "SELECT count(*) FROM publications p
            JOIN events e USING (tenant_id, publication_id) JOIN callbacks c USING (tenant_id, event_id)
            WHERE p.xmin <> e.xmin OR e.xmin <> c.xmin";
        assert_eq!(world.number(apart).await, 0);
        let transactions = world.number("SELECT count(DISTINCT xmin::text) FROM events").await;
        assert!(transactions < 200 / 4, "settles are gathered: {transactions} transactions");
    })
    .await;
}

#[tokio::test]
async fn one_batch_of_one_task_and_of_others_counts_right() {
    in_world(async |world: &World| {
        let all = claimed(world, 3).await;
        let settler = world.settler();
        let settled = at_once(all.iter().map(|one| {
            let (settler, settlement) = (settler.clone(), success(one));
            async move { settler.settle(settlement).await }
        }))
        .await;
        assert!(settled.iter().all(|recorded| *recorded));
        assert_eq!(world.number("SELECT count(DISTINCT xmin::text) FROM events").await, 1);
        // Also within a batch it is the last event of a task that ends it, and no other.
        let mut told = HashMap::<String, Vec<String>>::new();
        for body in bodies(world).await {
            let text = |member: &str| body[member].as_str().unwrap().to_owned();
            told.entry(text("external_id")).or_default().push(text("task_status"));
        }
        assert_eq!(told.len(), 3);
        for told in told.values() {
            assert_eq!(*told, ["running", "running", "running", "running", "success"]);
        }
    })
    .await;
}

#[tokio::test]
async fn an_outcome_that_the_database_refuses_fails_alone_and_leaves_nothing_half_done() {
    in_world(async |world: &World| {
        let all = claimed(world, 4).await;
        world.execute("ALTER TABLE events ADD CONSTRAINT sick CHECK (status <> 'failed')").await;
        let settler = world.settler();
        let settled = at_once(all.iter().enumerate().map(|(n, one)| {
            let (settler, settlement) = (settler.clone(), if n == 7 { failure(one) } else { success(one) });
            async move { settler.settle(settlement).await }
        }))
        .await;
        assert_eq!(settled.iter().position(|recorded| !recorded), Some(7));
        assert_eq!(settled.iter().filter(|recorded| !**recorded).count(), 1);
        assert_eq!(world.number("SELECT count(*) FROM events").await, 19);
        assert_eq!(world.number("SELECT count(*) FROM publications WHERE status = 'running'").await, 1);
        // Once the database takes it, so does the settler.
        world.execute("ALTER TABLE events DROP CONSTRAINT sick").await;
        assert!(settler.settle(failure(&all[7])).await);
    })
    .await;
}

#[tokio::test]
async fn who_is_changing_a_receiver_holds_up_no_outcome() {
    in_world(async |world: &World| {
        let all = claimed(world, 1).await;
        let settle = async |one: &Claimed| {
            world.store.settle(one.tenant_id, &[success(one)], telling(Duration::ZERO)).await.unwrap().len()
        };
        assert_eq!(settle(&all[0]).await, 1);
        let mut changing = world.pool.begin().await.unwrap();
        sqlx::query("UPDATE receivers SET free_at = now()").execute(&mut *changing).await.unwrap();
        assert_eq!(settle(&all[1]).await, 1);
        changing.rollback().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn settles_of_several_tenants_have_a_feed_each() {
    in_world(async |world: &World| {
        let other = world.another_tenant("other").await.tenant_id;
        let mut theirs = world.new_task("a", "both");
        theirs.tenant_id = other;
        world.accept(&[world.new_task("a", "both"), theirs]).await;
        let mut all = world.claim("w").await;
        all.extend(world.store.claim(other, &crate::harness::limits("w")).await.unwrap());
        let settler = world.settler();
        at_once(all.iter().map(|one| {
            let (settler, settlement) = (settler.clone(), success(one));
            async move { assert!(settler.settle(settlement).await) }
        }))
        .await;
        assert_eq!(world.number("SELECT sum(position)::bigint FROM feeds").await, 4);
        assert_eq!(world.number("SELECT max(position) FROM events").await, 2);
    })
    .await;
}
