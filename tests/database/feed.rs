//! The feed: what a consumer pulls is what callbacks deliver, in order, nothing skipped and nothing twice.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::TimeDelta;
use publish_ingest::callback::feed::WAITING_OF_TENANT_MAX;
use publish_ingest::config::Roles;
use publish_ingest::store::{FeedPlace, FeedRead, Move, Store};
use publish_ingest::task::settle::telling;
use publish_ingest::tenant::Scope;
use serde_json::{Value, json};
use sqlx::Connection as _;
use sqlx::postgres::PgConnection;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::callbacks::publish_to;
use crate::claims::success;
use crate::harness::{Api, BOTH, World, article_with, eventually, in_world, within};
use crate::receiver::Receiver;

const NONE: Roles = Roles { api: false, worker: false, dispatcher: false };

fn sequences(page: &Value) -> Vec<i64> {
    page["events"].as_array().unwrap().iter().map(|one| one["sequence"].as_i64().unwrap()).collect()
}

fn cursor(page: &Value) -> &str {
    page["next_cursor"].as_str().unwrap()
}

#[tokio::test]
async fn a_consumer_that_only_pulls_gets_the_bytes_that_callbacks_deliver() {
    in_world(async |world: &World| {
        let receiver = Receiver::start([]).await;
        let api = world.start().await;
        let nothing = api.get("/events").await.ok();
        assert_eq!(nothing["events"], json!([]));
        publish_to(&api, "told", &receiver).await;
        api.finished("told").await;
        // Also of a task without a callback URL.
        api.publish(&article_with("silent", json!({"group_code": BOTH, "metadata": {"z": 1.0, "a": "é"}})))
            .await
            .ok();
        api.finished("silent").await;
        let delivered = receiver.first(1).await.remove(0);
        let all = api.get("/events").await;
        assert_eq!(sequences(&all.ok()), [1, 2, 3]);
        assert!(all.text.contains(std::str::from_utf8(&delivered.body).unwrap()), "{}", all.text);
        assert!(all.text.contains(r#""metadata":{"a":"é","z":1.0}"#), "{}", all.text);
        // From the beginning, also from where it was empty; and page by page.
        let path = |cursor: &str, more: &str| format!("/events?after={cursor}{more}");
        assert_eq!(api.get(&path(cursor(&nothing), "")).await.ok(), all.ok());
        let first = api.get("/events?limit=2").await.ok();
        let second = api.get(&path(cursor(&first), "&limit=2")).await.ok();
        let third = api.get(&path(cursor(&second), "&limit=2")).await.ok();
        assert_eq!([sequences(&first), sequences(&second), sequences(&third)], [vec![1, 2], vec![3], vec![]]);
        assert_eq!((cursor(&second), cursor(&all.ok())), (cursor(&third), cursor(&third)));
        // The same question has the same answer.
        assert_eq!(api.get("/events?limit=2").await.ok(), first);

        let other = world.another_tenant("other").await.tenant_id;
        let theirs = api.with_key(&world.key(other, &[Scope::Read]).await);
        assert_eq!(theirs.get("/events").await.ok()["events"], json!([]));
        theirs.get(&path(cursor(&first), "")).await.problem(400, "invalid_query");
        theirs.publish(&article_with("a", json!({}))).await.problem(403, "forbidden");
        let publisher = api.with_key(&world.key(world.tenant.tenant_id, &[Scope::Publish]).await);
        publisher.get("/events").await.problem(403, "forbidden");
    })
    .await;
}

#[tokio::test]
async fn a_cursor_behind_what_is_kept_has_expired_and_one_of_another_feed_is_none() {
    in_world(async |world: &World| {
        let api = world.start().await;
        for id in ["a", "b", "c"] {
            api.publish(&article_with(id, json!({}))).await.ok();
            api.finished(id).await;
        }
        let mut after = Vec::new();
        for limit in 1..=3 {
            let page = api.get(&format!("/events?limit={limit}")).await.ok();
            after.push(format!("/events?after={}", cursor(&page)));
        }
        // By hand, past what the database refuses.
        let by_hand = |change: &str| {
            let change = format!("SET session_replication_role = replica; {change}; SET session_replication_role = origin");
            let pool = world.pool.clone();
            async move { sqlx::raw_sql(sqlx::AssertSqlSafe(change)).execute(&pool).await.unwrap() }
        };
        by_hand("CREATE TABLE kept AS SELECT * FROM events; DELETE FROM events WHERE position <= 2").await;
        let expired = api.get(&after[0]).await.problem(410, "cursor_expired");
        assert!(expired["detail"].as_str().unwrap().contains("up to sequence 2:"), "{expired}");
        assert_eq!(sequences(&api.get(&after[1]).await.ok()), [3]);
        assert_eq!(sequences(&api.get(&after[2]).await.ok()), [] as [i64; 0]);
        assert_eq!(sequences(&api.get("/events").await.ok()), [3]);
        // A feed that was begun anew from a backup has other events at its positions.
        by_hand("DELETE FROM events").await;
        world.execute("INSERT INTO events SELECT tenant_id, position, gen_random_uuid(), task_id, publication_id, round, status,
            body, created_at FROM kept").await;
        let problem = api.get(&after[1]).await.problem(400, "invalid_query");
        assert!(problem["detail"].as_str().unwrap().contains("before a backup was restored"), "{problem}");
        by_hand("DELETE FROM events; INSERT INTO events SELECT * FROM kept; DROP TABLE kept").await;
        assert_eq!(sequences(&api.get(&after[0]).await.ok()), [2, 3]);
    })
    .await;
}

#[tokio::test]
async fn who_waits_is_woken_by_an_event_of_this_process_and_of_another() {
    in_world(async |world: &World| {
        let both = world.start().await;
        let alone = world
            .start_with(publish_ingest::lifecycle::Plan {
                roles: Roles { api: true, ..NONE },
                ..world.plan()
            })
            .await;
        let mut after = String::new();
        for round in 1..=3 {
            let asking = [both.clone(), alone.clone()].map(|api| {
                let path = format!("/events?wait=30s{after}");
                tokio::spawn(async move { api.get(&path).await.ok() })
            });
            both.publish(&article_with(&format!("a-{round}"), json!({}))).await.ok();
            for one in asking {
                let page = within("an event", one).await.unwrap();
                assert_eq!(sequences(&page), [round]);
                after = format!("&after={}", cursor(&page));
            }
        }
        // Nobody else's event wakes anybody for nothing: it answers when its time is over.
        let page = both.get(&format!("/events?wait=20ms{after}")).await.ok();
        assert_eq!((sequences(&page), format!("&after={}", cursor(&page))), (vec![], after));
    })
    .await;
}

/// Requests that wait for events, each on a task of its own; when all of them do.
async fn waiting(api: &Api, count: usize, path: &str) -> JoinSet<Value> {
    let one = || (api.clone(), path.to_owned());
    let all = (0..count).map(|_| one()).map(async |(api, path)| api.get(&path).await.ok()).collect();
    places_taken(api, count).await;
    all
}

/// Waits until so many requests wait for events.
async fn places_taken(api: &Api, count: usize) {
    let reading = format!("\npublish_feed_waiting {count}\n");
    eventually(&reading, async || api.get("/metrics").await.text.contains(&reading)).await;
}

#[tokio::test]
async fn places_are_bounded_freed_by_who_goes_away_and_all_end_with_the_service() {
    in_world(async |world: &World| {
        let api = world.start().await;
        let mut all = waiting(&api, WAITING_OF_TENANT_MAX, "/events?wait=30s").await;
        let refused = api.get("/events?wait=1ms").await;
        assert_eq!(refused.header("retry-after"), Some("1"));
        refused.problem(503, "unavailable");
        // Who does not wait needs none, and no other tenant is kept out.
        api.get("/events").await.ok();
        let other = world.another_tenant("other").await.tenant_id;
        api.with_key(&world.key(other, &[Scope::Read]).await).get("/events?wait=1ms").await.ok();
        // Somebody goes away without an answer.
        drop(all);
        places_taken(&api, 0).await;
        all = waiting(&api, WAITING_OF_TENANT_MAX, "/events?wait=30s").await;
        api.publish(&article_with("a", json!({}))).await.ok();
        let mut after = String::new();
        while let Some(page) = within("the event", all.join_next()).await {
            let page = page.unwrap();
            assert_eq!(sequences(&page), [1]);
            after = format!("&after={}", cursor(&page));
        }
        let mut all = waiting(&api, WAITING_OF_TENANT_MAX, &format!("/events?wait=30s{after}")).await;
        within("the service ends", world.stop()).await;
        while let Some(page) = within("an answer", all.join_next()).await {
            let page = page.unwrap();
            assert_eq!((sequences(&page), format!("&after={}", cursor(&page))), (vec![], after.clone()));
        }
    })
    .await;
}

const WRITERS: usize = 8;
const OF_EACH: usize = 6;

/// Of writer 0, the first event commits only when the test lets it: it has taken its position long before.
const LATE: &str = "CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NULL; END $$;
    CREATE CONSTRAINT TRIGGER dawdle AFTER INSERT ON events DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
        WHEN (convert_from(NEW.body, 'UTF8') LIKE '%\"external_id\":\"late\"%') EXECUTE FUNCTION dawdle()";

/// Pulls until so many events were read, noting their bodies.
async fn pull(store: Store, tenant_id: Uuid, count: usize, seen: Arc<Mutex<Vec<Vec<u8>>>>) {
    let (mut after, mut read) = (None::<FeedPlace>, 0);
    let mut steps = tokio::time::interval(Duration::from_millis(1));
    while read < count {
        let FeedRead::Page(events, next) = store.feed(tenant_id, after, 3).await.unwrap() else {
            panic!("the feed has no such place")
        };
        (after, read) = (Some(next), read + events.len());
        seen.lock().unwrap().extend(events);
        steps.tick().await;
    }
}

#[tokio::test]
async fn eight_writers_of_which_one_commits_late_make_no_gap_that_a_reader_could_step_over() {
    in_world(async |world: &World| {
        let tenant_id = world.tenant.tenant_id;
        // Each with an account of its own: it is the feed alone that they meet at.
        let mut tasks = Vec::new();
        for writer in 0..WRITERS {
            let group = format!("w{writer}");
            world.account(tenant_id, &group, 1_000, TimeDelta::zero()).await;
            world.group(tenant_id, &group, &[&group]).await;
            for n in 0..OF_EACH {
                let id = if writer + n == 0 { "late".to_owned() } else { format!("post-{writer}-{n}") };
                tasks.push(world.new_task(&id, &group));
            }
        }
        world.accept(&tasks).await;
        let mut claimed = Vec::new();
        while claimed.len() < tasks.len() {
            claimed.extend(world.claim("w").await);
        }
        let of = |writer: usize| {
            let mut all = claimed.iter().filter(|one| one.account_id == format!("w{writer}")).collect::<Vec<_>>();
            all.sort_by(|a, b| a.external_id.cmp(&b.external_id));
            all.into_iter().map(success).collect::<Vec<Move>>()
        };
        world.execute(LATE).await;
        let mut gate = PgConnection::connect(&world.url).await.unwrap();
        sqlx::query("SELECT pg_advisory_lock(7)").execute(&mut gate).await.unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let reader = tokio::spawn(pull(world.store.clone(), tenant_id, claimed.len(), seen.clone()));
        let telling = telling(Duration::ZERO);
        let store = Store::open(&world.url, 8, world.shared_clock()).unwrap();
        let settle = |some: Vec<Move>| {
            let store = store.clone();
            async move {
                for one in some {
                    assert_eq!(store.settle(tenant_id, &[one], telling).await.unwrap().len(), 1);
                }
            }
        };
        // Some events come before the late one.
        let early = of(1).split_off(OF_EACH - 2);
        settle(early.clone()).await;
        let mut writers = JoinSet::new();
        writers.spawn(settle(of(0)));
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        world.until(waits, 1).await;
        for writer in 1..WRITERS {
            let mut moves = of(writer);
            moves.truncate(if writer == 1 { OF_EACH - 2 } else { OF_EACH });
            writers.spawn(settle(moves));
        }
        // All others come while it has its position, and is not committed.
        world.until(waits, i64::try_from(WRITERS).unwrap()).await;
        eventually("the reader has what is committed", async || seen.lock().unwrap().len() == 2).await;
        sqlx::query("SELECT pg_advisory_unlock(7)").execute(&mut gate).await.unwrap();
        within("the writers", async { while writers.join_next().await.is_some_and(|one| one.map(|()| true).unwrap()) {} }).await;
        within("the reader", reader).await.unwrap();
        let stored: Vec<Vec<u8>> =
            sqlx::query_scalar("SELECT body FROM events ORDER BY position").fetch_all(&world.pool).await.unwrap();
        assert_eq!(*seen.lock().unwrap(), stored);
        let numbers = stored.iter().map(|body| serde_json::from_slice::<Value>(body).unwrap()["sequence"].clone());
        assert!(numbers.eq((1..=tasks.len()).map(Value::from)));
        gate.close().await.unwrap();
        store.close().await;
    })
    .await;
}
