//! Removal by age: keys and outcomes stay, nothing that may go on is touched, and the feed never skips in silence.

use std::time::Duration;

use chrono::TimeDelta;
use publish_ingest::callback::breaker::Heard;
use publish_ingest::callback::status::CallbackStatus;
use publish_ingest::config::Roles;
use publish_ingest::lifecycle::Plan;
use publish_ingest::retention::keep::Keep;
use publish_ingest::retention::{Removed, Remover};
use publish_ingest::store::{
    Claimed, Move, REMOVE_MOST, Receivers, RecordedTry, ReplayAsked, ReplayRange, Step, Store, Then,
};
use publish_ingest::task::act::RetryRequest;
use publish_ingest::task::settle::telling;
use publish_ingest::task::state::Status;
use publish_ingest::telemetry::metrics::Metrics;
use serde_json::{Value, json};
use sqlx::Executor as _;
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use crate::callbacks::publish_to;
use crate::claims::success;
use crate::harness::{
    Api, BOTH, ONE, World, article, article_with, at_once, eventually, in_world, limits, task_path, within,
};
use crate::leases::{entry, note};
use crate::plans::{FEW, told, touched};
use crate::receiver::{Answer, Receiver};

pub(crate) const DAY: i64 = 24 * 60 * 60;

/// Beyond the keep, and the hour that tasks have to end.
pub(crate) const OLD: i64 = 90 * DAY + 3_601;

fn remover(world: &World, store: &Store) -> Remover {
    Remover {
        store: store.clone(),
        keep: Keep::DEFAULT,
        metrics: Metrics::new(),
        clock: world.shared_clock(),
    }
}

/// One pass: how many contents, events, pending callbacks and replays went.
pub(crate) async fn pass(world: &World) -> Removed {
    let mut removed = Removed::default();
    let mut most = REMOVE_MOST;
    within("a pass", remover(world, &world.store).pass(&mut most, &mut removed)).await.unwrap();
    removed
}

/// A service that answers, and works only where a test does.
async fn api_alone(world: &World) -> Api {
    let roles = Roles { api: true, worker: false, dispatcher: false };
    world.start_with(Plan { roles, ..world.plan() }).await
}

/// Accepts articles and publishes them.
pub(crate) async fn published(world: &World, names: &[&str], callback_url: Option<&str>) {
    let mut tasks = names.iter().map(|name| world.new_task(name, ONE)).collect::<Vec<_>>();
    for task in &mut tasks {
        task.callback_url = callback_url.map(str::to_owned);
    }
    world.accept(&tasks).await;
    let settler = world.settler();
    loop {
        let claimed = world.claim("w").await;
        if claimed.is_empty() {
            return;
        }
        for one in &claimed {
            assert!(note(&world.store, entry(one, "m")).await);
            assert!(settler.settle(success(one)).await);
        }
    }
}

pub(crate) async fn with_content(world: &World) -> String {
    world
        .text("SELECT coalesce(string_agg(external_id, ' ' ORDER BY external_id), '') FROM tasks WHERE content_removed_at IS NULL")
        .await
}

fn kinds(history: &Value) -> Vec<&str> {
    history["entries"].as_array().unwrap().iter().map(|one| one["kind"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn keys_and_outcomes_stay_and_a_duplicate_still_says_what_changed() {
    in_world(async |world: &World| {
        let receiver = Receiver::start([]).await;
        let api = world.start().await;
        let whole = article_with(
            "a",
            json!({"group_code": BOTH, "summary": "s", "tags": ["t"], "metadata": {"k": 1}, "callback_url": receiver.url}),
        );
        api.publish_as("mine", &whole).await.ok();
        let before = api.finished("a").await;
        let events = receiver.first(2).await;
        for one in &events {
            api.tried(&one.header("webhook-id"), 1).await;
        }
        world.stop().await;
        let api = api_alone(world).await;
        let changed = article_with("a", json!({"group_code": BOTH, "title": "Other", "metadata": {"k": 2}}));
        let same = api.publish(&whole).await.ok();
        let differs = api.publish(&changed).await.ok();
        assert_eq!(differs["changed_fields"], json!(["title", "summary", "tags", "metadata"]));

        assert_eq!(pass(world).await, [0, 0, 0, 0]);
        world.advance(OLD);
        assert_eq!(pass(world).await, [1, 2, 0, 0]);
        assert_eq!(pass(world).await, [0, 0, 0, 0]);
        for table in ["articles", "attempts", "transitions", "events", "callbacks", "callback_tries"] {
            let count = format!("SELECT count(*) FROM {table}");
            let left: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(count)).fetch_one(&world.pool).await.unwrap();
            assert_eq!(left, 0, "{table}");
        }

        assert_eq!(api.publish(&whole).await.ok(), same);
        assert_eq!(api.publish(&changed).await.ok(), differs);
        assert_eq!(api.publish_as("mine", &whole).await.ok()["created"], true);
        api.publish(&article_with("a", json!({"on_duplicate": "reject"}))).await.problem(409, "duplicate_external_id");
        let after = api.task("a").await.ok();
        for gone in ["title", "summary", "cover_url", "canonical_url", "author", "tags", "metadata"] {
            assert_eq!(after[gone], Value::Null, "{gone}");
        }
        for stays in ["task_id", "external_id", "status", "counts", "publications", "callback_url", "finished_at"] {
            assert_eq!(after[stays], before[stays], "{stays}");
        }
        assert_eq!((&before["content_removed_at"], after["content_removed_at"].is_string()), (&Value::Null, true));
        assert!(after.get("content_html").is_none());
        let asked = api.get("/tasks/a?include=content").await.ok();
        assert_eq!(asked.get("content_html"), Some(&Value::Null));
        // All ways to the task show the same.
        assert_eq!(api.get("/tasks?external_id=a").await.ok()["tasks"][0], after);
        assert_eq!(api.post("/lookup", &json!({"external_ids": ["a"]})).await.ok()["tasks"][0], after);
        let history = api.get(&format!("{}/history", task_path("a"))).await.ok();
        assert_eq!(kinds(&history), ["accepted", "removed", "removed"]);
        assert!(history.to_string().contains("the content, and all transitions, probes and tries before, were removed by age"));
        assert!(history.to_string().contains("and what was sent for them, were removed by age"));
        let callback = format!("/callbacks/{}", events[0].header("webhook-id"));
        api.get(&callback).await.problem(404, "not_found");
    })
    .await;
}

/// Another outcome for what was claimed.
pub(crate) fn ends(one: &Claimed, to: Status, code: &str, outcome: Option<&'static str>) -> Move {
    Move {
        error: Some((code.to_owned(), "as the test says".to_owned(), false)),
        reason: "test",
        outcome,
        ..Move::new(one.tenant_id, (one.publication_id, one.fence), (Status::Running, to))
    }
}

/// Accepts an article for an account of its own, and claims it.
pub(crate) async fn claimed(world: &World, name: &str) -> Claimed {
    world.account(world.tenant.tenant_id, name, 4, TimeDelta::zero()).await;
    world.group(world.tenant.tenant_id, name, &[name]).await;
    world.accept(&[world.new_task(name, name)]).await;
    world.claim("w").await.into_iter().find(|one| one.account_id == name).unwrap()
}

#[tokio::test]
async fn what_may_go_on_is_not_touched_and_goes_when_it_has_ended() {
    in_world(async |world: &World| {
        let settler = world.settler();
        let begun = async |name: &str| {
            let one = claimed(world, name).await;
            assert!(note(&world.store, entry(&one, "m")).await);
            one
        };
        published(world, &["done"], None).await;
        let rejected = begun("rejected").await;
        assert!(settler.settle(ends(&rejected, Status::Failed, "rejected", Some("rejected"))).await);
        let unknown = begun("unknown").await;
        assert!(settler.settle(ends(&unknown, Status::Failed, "outcome_unknown", Some("answer_lost"))).await);
        // Its login was lost before it was found out whether it is public.
        let doubt = begun("doubt").await;
        assert!(settler.settle(ends(&doubt, Status::LoginExpired, "login_expired", None)).await);
        // It was never sent.
        let first = claimed(world, "waits").await;
        assert!(settler.settle(ends(&first, Status::LoginExpired, "login_expired", None)).await);
        begun("runs").await;
        published(world, &["swept"], None).await;
        world
            .execute(
                "UPDATE publications SET sweep_at = now() + interval '300 days' WHERE task_id = (
                SELECT task_id FROM tasks WHERE external_id = 'swept')",
            )
            .await;
        let mut draft = world.new_task("draft", ONE);
        draft.draft = true;
        let mut scheduled = world.new_task("scheduled", ONE);
        scheduled.publish_at = Some(world.clock_now() + TimeDelta::days(80));
        world.accept(&[draft, scheduled]).await;
        world.advance(80 * DAY + 1);
        // What is accepted long before it ends is as old as its end.
        for one in world.claim("w").await.iter().filter(|one| one.external_id == "scheduled") {
            assert!(settler.settle(success(one)).await);
        }
        world.advance(OLD - 80 * DAY);
        let removed = pass(world).await;
        assert_eq!(removed[0], 3, "{removed:?}");
        assert_eq!(with_content(world).await, "doubt draft runs scheduled swept unknown");
        assert_eq!(pass(world).await, [0, 0, 0, 0]);

        let api = api_alone(world).await;
        let problem = api.act("rejected", "retry", &json!({})).await.problem(409, "conflict");
        assert!(
            problem["detail"].as_str().unwrap().contains("ended as failed, and its content was removed"),
            "{problem}"
        );
        let other = json!({"accounts": [{"platform": "static_site", "account_id": "blog2"}]});
        api.act("done", "accounts", &other).await.problem(409, "conflict");
        assert_eq!(api.act("done", "retry", &json!({})).await.ok()["skipped"][0]["reason"], "success");
        // New credentials get nothing going that has no content, and to cancel it is still possible.
        api.act("waits", "retry", &json!({})).await.problem(409, "conflict");
        assert_eq!(api.act("waits", "cancel", &json!({})).await.ok()["task"]["status"], "failed");
        // What has ended since goes with the next lap, once it is old enough; the events before are gone by then.
        api.act("draft", "cancel", &json!({})).await.ok();
        let public = json!({"platform": "static_site", "account_id": "unknown",
            "confirmed_published": {"url": "https://a.example/"}});
        assert_eq!(api.act("unknown", "retry", &public).await.ok()["task"]["status"], "success");
        world.execute("UPDATE publications SET sweep_at = NULL").await;
        world.advance(81 * DAY);
        assert_eq!(pass(world).await[0], 2);
        assert_eq!(with_content(world).await, "doubt draft runs unknown");
        world.advance(10 * DAY);
        assert_eq!(pass(world).await[0], 2);
        assert_eq!(with_content(world).await, "doubt runs");
    })
    .await;
}

/// Claims what is due to be called back, and records an answer.
async fn call_back(world: &World, status: Option<u16>, then: Then) -> usize {
    let tenant_id = world.tenant.tenant_id;
    let claimed = world.store.claim_callbacks(tenant_id, Receivers::All, &limits("d")).await.unwrap();
    let tries = claimed.iter().map(|one| RecordedTry {
        tenant_id,
        event_id: one.event_id,
        fence: one.fence,
        took: Duration::ZERO,
        http_status: status,
        answer_head: None,
        error: None,
        then,
        heard: Heard::of(status, None),
    });
    let tries = tries.collect::<Vec<_>>();
    world.store.record_tries(tenant_id, &tries).await.unwrap();
    tries.len()
}

const URL: Option<&str> = Some("https://receiver.example/hook");

#[tokio::test]
async fn the_feed_loses_its_beginning_and_who_was_behind_is_told() {
    in_world(async |world: &World| {
        published(world, &["a", "b"], None).await;
        world.advance(DAY);
        published(world, &["c"], None).await;
        let api = api_alone(world).await;
        let mut after = Vec::new();
        for limit in 1..=3 {
            let page = api.get(&format!("/events?limit={limit}")).await.ok();
            after.push(format!("/events?after={}", page["next_cursor"].as_str().unwrap()));
        }
        let sequences = async |path: &str| {
            let page = api.get(path).await.ok();
            page["events"]
                .as_array()
                .unwrap()
                .iter()
                .map(|one| one["sequence"].as_i64().unwrap())
                .collect::<Vec<_>>()
        };
        world.advance(OLD - DAY);
        assert_eq!(pass(world).await[1], 2);
        let problem = api.get(&after[0]).await.problem(410, "cursor_expired");
        assert!(problem["detail"].as_str().unwrap().contains("up to sequence 2:"), "{problem}");
        assert_eq!(sequences(&after[1]).await, [3]);
        assert_eq!(sequences("/events").await, [3]);
        world.advance(DAY);
        assert_eq!(pass(world).await[1], 1);
        // Who had read all goes on; the feed goes on at the same number.
        assert_eq!(sequences(&after[2]).await, [0; 0]);
        api.get(&after[1]).await.problem(410, "cursor_expired");
        published(world, &["d"], None).await;
        assert_eq!(sequences(&after[2]).await, [4]);
        assert_eq!(sequences("/events").await, [4]);
    })
    .await;
}

#[tokio::test]
async fn a_callback_to_a_receiver_that_is_dead_ends_and_stays_to_be_sent_again() {
    in_world(async |world: &World| {
        let pending = "SELECT count(*) FROM callbacks WHERE status = 'pending'";
        let exhausted = "SELECT count(*) FROM callbacks WHERE status = 'exhausted'";
        published(world, &["a"], URL).await;
        assert_eq!(call_back(world, None, Then::Again(Duration::from_hours(24))).await, 1);
        world.advance(29 * DAY);
        published(world, &["b"], URL).await;
        assert_eq!(pass(world).await, [0, 0, 0, 0]);
        world.advance(DAY + 60);
        // What is being sent just then is left to its sender.
        let a =
            world.store.claim_callbacks(world.tenant.tenant_id, Receivers::All, &limits("d")).await.unwrap();
        assert_eq!((a.len(), pass(world).await), (1, [0, 0, 0, 0]));
        world.advance(60);
        let sent = call_back(world, None, Then::Again(Duration::from_hours(24))).await;
        assert_eq!((sent, pass(world).await), (1, [0, 0, 1, 0]));
        assert_eq!((world.number(pending).await, world.number(exhausted).await), (1, 1));

        // 90 days after it ended, not after its event, and with it stays what comes behind it.
        world.advance(29 * DAY);
        assert_eq!(pass(world).await, [0, 0, 1, 0]);
        world.advance(61 * DAY - 300);
        assert_eq!(pass(world).await, [2, 0, 0, 0]);
        // Whoever is asked for again has its time again, and its event stays.
        let event: Uuid = sqlx::query_scalar("SELECT event_id FROM events ORDER BY position LIMIT 1")
            .fetch_one(&world.pool)
            .await
            .unwrap();
        assert!(world.store.replay_callback(world.tenant.tenant_id, event).await.unwrap());
        world.advance(29 * DAY);
        assert_eq!(pass(world).await, [0, 0, 0, 0]);
        world.advance(DAY + 1);
        assert_eq!(pass(world).await, [0, 0, 1, 0]);
        world.advance(90 * DAY + 1);
        assert_eq!(pass(world).await, [0, 2, 0, 0]);
    })
    .await;
}

#[tokio::test]
async fn replays_that_are_done_go_and_what_they_have_left_stays() {
    in_world(async |world: &World| {
        let tenant_id = world.tenant.tenant_id;
        published(world, &["a", "b"], URL).await;
        while call_back(world, Some(200), Then::Delivered).await > 0 {}
        let range = || ReplayRange {
            since: world.clock_now() - TimeDelta::days(200),
            until: world.clock_now(),
            status: CallbackStatus::Delivered,
        };
        let asked = async || match world.store.begin_replay(tenant_id, range()).await.unwrap() {
            ReplayAsked::Begun(row) => row.replay_id,
            other => panic!("{other:?}"),
        };
        let done = asked().await;
        assert_eq!(world.store.replay_step(tenant_id).await.unwrap(), 2);
        while call_back(world, Some(200), Then::Delivered).await > 0 {}
        world.advance(OLD);
        // One is asked for when what it is about is old enough to go.
        asked().await;
        assert_eq!(pass(world).await, [2, 0, 0, 1]);
        assert!(world.store.replay(tenant_id, done).await.unwrap().is_none());
        assert_eq!(world.store.replay_step(tenant_id).await.unwrap(), 2);
        while call_back(world, Some(200), Then::Delivered).await > 0 {}
        assert_eq!(pass(world).await, [0, 2, 0, 0]);
    })
    .await;
}

#[tokio::test]
async fn two_nodes_share_the_work_and_count_nothing_twice() {
    in_world(async |world: &World| {
        let other = world.another_tenant("other").await.tenant_id;
        let names = (0..40).map(|n| format!("post-{n:02}")).collect::<Vec<_>>();
        published(world, &names.iter().map(String::as_str).collect::<Vec<_>>(), None).await;
        world.advance(OLD);
        let nodes =
            (0..2).map(|_| Store::open(&world.url, 2, world.shared_clock()).unwrap()).collect::<Vec<_>>();
        // While one removes, the other does not: it would count the same.
        let tenant_id = world.tenant.tenant_id;
        let mut blocking = world.pool.begin().await.unwrap();
        blocking.execute("SELECT FROM events FOR UPDATE").await.unwrap();
        let removing = {
            let store = nodes[0].clone();
            tokio::spawn(async move { store.remove_events(tenant_id, &Keep::DEFAULT, 7).await })
        };
        eventually("the removal waits", async || world.number(WAITING).await == 1).await;
        let beside = nodes[1].remove_events(tenant_id, &Keep::DEFAULT, 7).await;
        assert_eq!(beside.unwrap(), Step::default());
        blocking.rollback().await.unwrap();
        let first = removing.await.unwrap().unwrap().removed;
        let passes = nodes.iter().map(|store| {
            let node = remover(world, store);
            async move {
                let (mut removed, mut most) = (Removed::default(), 7);
                node.pass(&mut most, &mut removed).await.unwrap();
                removed
            }
        });
        let removed = at_once(passes).await;
        let last = pass(world).await;
        let sum = |kind: usize| removed.iter().map(|one| one[kind]).sum::<u64>() + last[kind];
        assert_eq!((sum(0), first + sum(1)), (40, 40), "{first} {removed:?} {last:?}");
        assert_eq!(
            world
                .number("SELECT contents_removed FROM retentions ORDER BY contents_removed DESC LIMIT 1")
                .await,
            40
        );
        for store in nodes {
            store.close().await;
        }
        assert_eq!(world.store.events_removed(other).await.unwrap(), None);
    })
    .await;
}

/// How many connections wait for a lock.
const WAITING: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";

#[tokio::test]
async fn a_removal_that_is_broken_off_has_removed_nothing_and_is_done_by_the_next() {
    in_world(async |world: &World| {
        let tenant_id = world.tenant.tenant_id;
        published(world, &["a", "b"], None).await;
        world.advance(OLD);
        let store = Store::open(&world.url, 2, world.shared_clock()).unwrap();
        let mut blocking = world.pool.begin().await.unwrap();
        blocking.execute("SELECT FROM articles FOR UPDATE").await.unwrap();
        let keep = Keep::DEFAULT;
        let removing = {
            let store = store.clone();
            tokio::spawn(async move { store.remove_contents(tenant_id, &Keep::DEFAULT, REMOVE_MOST).await })
        };
        // It has marked the tasks, and cannot go on; nobody else does the same meanwhile.
        eventually("the removal waits", async || world.number(WAITING).await == 1).await;
        let beside = world.store.remove_contents(tenant_id, &keep, REMOVE_MOST).await.unwrap();
        assert_eq!(beside, Step::default());
        removing.abort();
        assert!(removing.await.unwrap_err().is_cancelled());
        blocking.rollback().await.unwrap();
        store.close().await;
        assert_eq!(with_content(world).await, "a b");
        assert_eq!(world.number("SELECT count(*) FROM articles").await, 2);
        assert_eq!(pass(world).await, [2, 2, 0, 0]);
    })
    .await;
}

#[tokio::test]
async fn a_retry_that_meets_the_removal_waits_for_it_and_is_refused() {
    in_world(async |world: &World| {
        let tenant_id = world.tenant.tenant_id;
        let one = claimed(world, "a").await;
        assert!(world.settler().settle(ends(&one, Status::Failed, "rejected", None)).await);
        world.advance(OLD);
        let mut blocking = world.pool.begin().await.unwrap();
        blocking.execute("SELECT FROM articles FOR UPDATE").await.unwrap();
        let removing = {
            let store = world.store.clone();
            tokio::spawn(async move { store.remove_contents(tenant_id, &Keep::DEFAULT, REMOVE_MOST).await })
        };
        eventually("the removal waits", async || world.number(WAITING).await == 1).await;
        let retrying = {
            let store = world.store.clone();
            let id = "a".parse().unwrap();
            let request = RetryRequest::default();
            tokio::spawn(async move { store.retry(tenant_id, &id, &request, telling(Duration::ZERO)).await })
        };
        eventually("the retry waits", async || world.number(WAITING).await == 2).await;
        blocking.rollback().await.unwrap();
        assert_eq!(removing.await.unwrap().unwrap().removed, 1);
        let refused = retrying.await.unwrap().unwrap().unwrap_err().to_string();
        assert!(refused.contains("its content was removed by age"), "{refused}");

        // The other way round: what was retried in time is not touched.
        let one = claimed(world, "b").await;
        assert!(world.settler().settle(ends(&one, Status::Failed, "rejected", None)).await);
        world.advance(OLD);
        let request = RetryRequest::default();
        let id = "b".parse().unwrap();
        world.store.retry(tenant_id, &id, &request, telling(Duration::ZERO)).await.unwrap().unwrap();
        assert_eq!(pass(world).await[0], 0);
        assert_eq!(with_content(world).await, "b");
    })
    .await;
}

const RESTRICTED: &str = "23001";

#[tokio::test]
async fn no_hand_removes_what_is_not_to_go() {
    in_world(async |world: &World| {
        published(world, &["old"], URL).await;
        assert_eq!(call_back(world, None, Then::Again(Duration::ZERO)).await, 1);
        let refused = async |statement: &'static str, code: &str| {
            let error = world.pool.execute(statement).await.err();
            let error = error.unwrap_or_else(|| panic!("{statement}: done"));
            assert_eq!(error.as_database_error().unwrap().code().as_deref(), Some(code), "{statement}: {error}");
        };
        for statement in [
            "DELETE FROM articles",
            "DELETE FROM attempts",
            "DELETE FROM transitions",
            "DELETE FROM events",
            "DELETE FROM callbacks",
            "DELETE FROM callback_tries",
            "UPDATE tasks SET content_removed_at = now()",
            "UPDATE tasks SET content_removed_at = now() + interval '190 hours'",
            "DELETE FROM retentions",
        ] {
            refused(statement, RESTRICTED).await;
        }
        world.accept(&[world.new_task("open", ONE)]).await;
        let opened = "UPDATE tasks SET finished_at = now(), content_removed_at = now() + interval '300 days' WHERE external_id = 'open'";
        refused(opened, "23514").await;

        let mut transaction = world.pool.begin().await.unwrap();
        let marked = "UPDATE tasks SET content_removed_at = now() + interval '8 days' WHERE external_id = 'old';
            UPDATE attempts SET ended_at = NULL, outcome = NULL; UPDATE retentions SET events_removed_to = 1";
        transaction.execute(marked).await.unwrap();
        for statement in [
            "DELETE FROM attempts",
            "DELETE FROM callbacks",
            "UPDATE retentions SET events_removed_to = 0",
            "UPDATE tasks SET content_removed_at = NULL WHERE external_id = 'old'",
        ] {
            transaction.execute("SAVEPOINT s").await.unwrap();
            let error = transaction.execute(statement).await.unwrap_err();
            assert_eq!(error.as_database_error().unwrap().code().as_deref(), Some(RESTRICTED), "{statement}: {error}");
            transaction.execute("ROLLBACK TO s").await.unwrap();
        }
        // What is marked goes.
        transaction.execute("DELETE FROM articles WHERE title = 'About old'; DELETE FROM transitions").await.unwrap();
        transaction.rollback().await.unwrap();
    })
    .await;
}

/// Finished articles of that age in days, in the order of their ids, and their events; `of` tells them apart.
async fn finished(connection: &mut PgConnection, of: &str, days: i32) {
    let v7 = format!(
        "(lpad(to_hex((extract(epoch FROM now() - interval '{days} days') * 1000)::bigint + n), 12, '0') || '7'
            || substr(md5('{of}' || n), 1, 3) || '8' || substr(md5('{of}' || n), 4, 15))::uuid"
    );
    let seed = crate::plans::FINISHED
        .replace("gen_random_uuid() AS task_id", &format!("{v7} AS task_id"))
        .replace("gen_random_uuid() AS event_id", &format!("{v7} AS event_id"))
        .replace("interval '1 day'", &format!("interval '{days} days'"))
        .replace("'old-'", &format!("'{of}-'"));
    connection.execute(sqlx::AssertSqlSafe(seed)).await.unwrap();
}

#[tokio::test]
async fn a_pass_that_finds_nothing_costs_the_same_however_much_was_removed_or_is_young() {
    in_world(async |world: &World| {
        let tenant_id = world.tenant.tenant_id;
        let keep = Keep::DEFAULT;
        // One that may not go, older than those that go.
        world.advance(-200 * DAY);
        let unknown = claimed(world, "unknown").await;
        assert!(world.settler().settle(ends(&unknown, Status::Failed, "outcome_unknown", None)).await);
        world.advance(200 * DAY);
        let mut connection = world.pool.acquire().await.unwrap();
        finished(&mut connection, "old", 100).await;
        finished(&mut connection, "young", 10).await;
        told(&mut connection).await;
        let step = async |most: i64| {
            let contents = world.store.remove_contents(tenant_id, &keep, most).await.unwrap();
            let events = world.store.remove_events(tenant_id, &keep, most).await.unwrap();
            (contents.removed, events.removed)
        };
        let mut gone = (0, 0);
        while let (contents, events) = step(2_000).await
            && contents + events > 0
        {
            gone = (gone.0 + contents, gone.1 + events);
        }
        assert_eq!(gone, (20_000, 20_001));
        world.store.close().await;
        for analyzed in [false, true] {
            if analyzed {
                connection.execute("ANALYZE").await.unwrap();
            }
            told(&mut connection).await;
            let (due, buffers) = touched(world, async |store: &Store| {
                store.tenants_removable(&keep, Uuid::nil(), 64).await.unwrap().len()
            })
            .await;
            println!("{due} due: {buffers} buffers");
            assert!(due == 0 && buffers < FEW / 4, "{due} due: {buffers} buffers, analyzed: {analyzed}");
            for what in ["contents", "events", "pending", "replays"] {
                let (step, buffers) = touched(world, async |store: &Store| {
                    let step = match what {
                        "contents" => store.remove_contents(tenant_id, &keep, REMOVE_MOST).await,
                        "events" => store.remove_events(tenant_id, &keep, 1).await,
                        "pending" => store.give_up_pending(tenant_id, &keep, REMOVE_MOST).await,
                        _ => store.remove_replays(tenant_id, &keep, REMOVE_MOST).await,
                    };
                    step.unwrap()
                })
                .await;
                println!("{what}: {buffers} buffers");
                assert!(
                    step.removed == 0 && buffers < FEW / 4,
                    "{what}: {step:?}, {buffers} buffers, analyzed: {analyzed}"
                );
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_service_removes_by_itself_and_shows_it() {
    in_world(async |world: &World| {
        let receiver = Receiver::start([Answer::status(200)]).await;
        let api = world.start().await;
        publish_to(&api, "a", &receiver).await;
        api.finished("a").await;
        api.tried(&receiver.first(1).await[0].header("webhook-id"), 1).await;
        world.stop().await;
        world.advance(OLD);
        // At its start, as a role that may do no more than it must.
        let api = world.start().await;
        eventually("the removal", async || api.task("a").await.ok()["content_removed_at"].is_string()).await;
        let shown = [
            "publish_removed_total{kind=\"contents\"} 1\n",
            "publish_removed_total{kind=\"events\"} 1\n",
            "publish_removed_total{kind=\"replays\"} 0\n",
        ];
        eventually("the metrics", async || {
            let text = api.send(api.without_key("/metrics")).await.text;
            shown.iter().all(|line| text.contains(line))
                && !text.contains("publish_removal_looked_timestamp_seconds 0\n")
        })
        .await;
        let row = world.store.removals(&Keep::DEFAULT).await.unwrap().remove(0);
        assert_eq!(
            (row.contents_removed, row.contents_next, row.events_removed, row.events_next),
            (1, 0, 1, 0)
        );
        api.publish(&article("a")).await.ok();
    })
    .await;
}
