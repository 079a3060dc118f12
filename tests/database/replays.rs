//! Sending callbacks again: one by one, whatever its status, and by the range, at a pace and once each.

use std::sync::Arc;

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use publish_ingest::callback::status::CallbackStatus;
use publish_ingest::clock::Clock as _;
use publish_ingest::config::Roles;
use publish_ingest::store::{
    REPLAY_BATCH, REPLAYS_UNFINISHED_MAX, Receivers, RecordedTry, ReplayAsked, ReplayRange, ReplayRow, Then,
};
use publish_ingest::tenant::Scope;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use uuid::Uuid;

use crate::callbacks::{due_callback, publish_to, statuses, tried, try_of};
use crate::claims::success;
use crate::harness::{Api, ONE, World, at_once, eventually, in_world, limits, schedule};
use crate::receiver::{Answer, Receiver};

async fn replay(api: &Api, event_id: &str) -> Value {
    let reply = api.post(&format!("/callbacks/{event_id}/replay"), &json!({})).await;
    assert_eq!(reply.status, 202, "{}", reply.text);
    reply.json()
}

fn id(callback: &Value) -> String {
    callback["event_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn what_was_delivered_is_sent_again_with_its_id_and_bytes_as_often_as_wanted() {
    in_world(async |world: &World| {
        let receiver = Receiver::start([]).await;
        let api = world.start().await;
        publish_to(&api, "a", &receiver).await;
        let event_id = id(&tried(&api, &receiver, 1).await);
        for times in 2..=4 {
            world.advance(10);
            assert_eq!(replay(&api, &event_id).await["event_id"], event_id.as_str());
            let callback = api.tried(&event_id, times).await;
            assert_eq!((&callback["status"], receiver.count()), (&json!("delivered"), times));
        }
        let got = receiver.first(4).await;
        let stamps = got.iter().map(|one| one.header("webhook-timestamp").parse::<i64>().unwrap());
        let stamps = stamps.collect::<Vec<_>>();
        assert!(stamps.windows(2).all(|pair| pair[1] >= pair[0] + 10), "{stamps:?}");
        for one in &got {
            one.verify(&world.secret);
            assert_eq!((one.header("webhook-id"), &one.body), (event_id.clone(), &got[0].body));
        }
    })
    .await;
}

#[tokio::test]
async fn what_is_claimed_and_settled_while_a_replay_waits_for_it_is_replayed_as_it_then_stands() {
    in_world(async |world: &World| {
        let one = due_callback(world, "https://receiver.example/hook").await;
        let (tenant_id, event_id) = (one.tenant_id, one.event_id);
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        let replayed_during = async |change: &'static str| {
            let mut held = world.pool.begin().await.unwrap();
            sqlx::query(change).execute(&mut *held).await.unwrap();
            let store = world.store.clone();
            let replay = tokio::spawn(async move { store.replay_callback(tenant_id, event_id).await });
            world.until(waits, 1).await;
            held.commit().await.unwrap();
            assert!(replay.await.unwrap().unwrap());
            let shown = "SELECT (status, lease_until IS NULL, replay_asked, tries, tries_before)::text FROM callbacks";
            sqlx::query_scalar::<_, String>(shown).fetch_one(&world.pool).await.unwrap()
        };
        // It was being sent, and that ends.
        let ended = "UPDATE callbacks SET status = 'delivered', ended_at = now(), lease_owner = NULL, lease_until = NULL";
        assert_eq!(replayed_during(ended).await, "(pending,t,f,0,0)");
        // It was waiting, and is claimed.
        let claimed = "UPDATE callbacks SET fence = fence + 1, lease_owner = 'w', lease_until = now() + interval '1 minute'";
        assert_eq!(replayed_during(claimed).await, "(pending,f,t,0,0)");
        // What the test did by hand, lanes do not know.
        world.execute("UPDATE callbacks SET lease_owner = NULL, lease_until = NULL, replay_asked = false").await;
        world.execute("UPDATE receivers SET in_flight = 0").await;
    })
    .await;
}

#[tokio::test]
async fn what_was_given_up_begins_its_schedule_anew() {
    in_world(async |world: &World| {
        let dead = Receiver::start_with([], Answer::status(404)).await;
        let gone = Receiver::start([Answer::status(410)]).await;
        let mut plan = world.plan();
        plan.callback_schedule = schedule("0s,1s");
        let api = world.start_with(plan).await;
        publish_to(&api, "a", &dead).await;
        publish_to(&api, "b", &gone).await;
        tried(&api, &dead, 1).await;
        world.advance(2);
        let exhausted = tried(&api, &dead, 2).await;
        assert_eq!(exhausted["status"], "exhausted");
        let event_id = id(&exhausted);
        // Shown as it stands by then: it may have been sent.
        assert_eq!(replay(&api, &event_id).await["ended_at"], Value::Null);
        assert_eq!(api.tried(&event_id, 3).await["status"], "pending");
        world.advance(2);
        assert_eq!(api.tried(&event_id, 4).await["status"], "exhausted");

        let event_id = id(&tried(&api, &gone, 1).await);
        replay(&api, &event_id).await;
        let callback = api.tried(&event_id, 2).await;
        assert_eq!(
            (statuses(&callback), &callback["status"]),
            (vec![Some(410), Some(200)], &json!("delivered"))
        );
    })
    .await;
}

#[tokio::test]
async fn what_waits_for_its_next_try_is_sent_at_once() {
    in_world(async |world: &World| {
        let receiver = Receiver::start([Answer::status(503).with("retry-after", "3600")]).await;
        let api = world.start().await;
        publish_to(&api, "a", &receiver).await;
        let callback = tried(&api, &receiver, 1).await;
        assert_eq!(callback["status"], "pending");
        replay(&api, &id(&callback)).await;
        assert_eq!(api.tried(&id(&callback), 2).await["status"], "delivered");
    })
    .await;
}

#[tokio::test]
async fn what_is_being_sent_is_sent_once_more_after_that_whatever_comes_of_it() {
    in_world(async |world: &World| {
        for first in [200, 410, 500] {
            let gate = Arc::new(Semaphore::new(0));
            let receiver = Receiver::start([Answer::status(first).behind(&gate)]).await;
            let api = world.start().await;
            publish_to(&api, &format!("a-{first}"), &receiver).await;
            let event_id = receiver.first(1).await[0].header("webhook-id");
            // Asked for twice before it is sent, it is sent once.
            for _ in 0..2 {
                assert_eq!(replay(&api, &event_id).await["status"], "pending");
            }
            assert_eq!(receiver.count(), 1);
            gate.add_permits(1);
            let callback = api.tried(&event_id, 2).await;
            assert_eq!(statuses(&callback), [Some(u64::from(first)), Some(200)]);
            assert_eq!((&callback["status"], receiver.count()), (&json!("delivered"), 2));
            world.stop().await;
        }
    })
    .await;
}

#[tokio::test]
async fn what_a_dead_dispatcher_was_sending_is_sent_once_by_its_successor() {
    in_world(async |world: &World| {
        let receiver = Receiver::start([]).await;
        let old = due_callback(world, &receiver.url).await;
        assert!(world.store.replay_callback(old.tenant_id, old.event_id).await.unwrap());
        let row = "SELECT concat_ws(' ', status, tries, tries_before, replay_asked) FROM callbacks";
        assert_eq!(world.text(row).await, "pending 0 0 t");
        world.advance(31);
        let new = world
            .store
            .claim_callbacks(old.tenant_id, Receivers::All, &limits("new"))
            .await
            .unwrap()
            .remove(0);
        let again =
            RecordedTry { then: Then::Again(std::time::Duration::ZERO), ..try_of(&new, Then::Delivered) };
        world.store.record_tries(new.tenant_id, &[again]).await.unwrap();
        assert_eq!(world.text(row).await, "pending 1 0 f");
        // The schedule goes on from there, and a replay begins it anew.
        assert!(world.store.replay_callback(old.tenant_id, old.event_id).await.unwrap());
        let third = world
            .store
            .claim_callbacks(old.tenant_id, Receivers::All, &limits("new"))
            .await
            .unwrap()
            .remove(0);
        assert_eq!((third.tries, third.tries_before), (1, 1));
        world.store.record_tries(new.tenant_id, &[try_of(&third, Then::Delivered)]).await.unwrap();
        assert_eq!(world.text(row).await, "delivered 2 1 f");
    })
    .await;
}

#[tokio::test]
async fn replays_are_the_tenants_own_and_need_their_scope() {
    in_world(async |world: &World| {
        let receiver = Receiver::start([]).await;
        let api = world.start().await;
        publish_to(&api, "a", &receiver).await;
        let callback = tried(&api, &receiver, 1).await;
        let path = format!("/callbacks/{}/replay", id(&callback));
        let other = world.another_tenant("other").await.tenant_id;
        let theirs = api.with_key(&world.key(other, &Scope::ALL).await);
        theirs.post(&path, &json!({})).await.problem(404, "not_found");
        let range = json!({"since": "2020-01-01T00:00:00Z", "status": "delivered"});
        assert_eq!(theirs.post("/callbacks/replay", &range).await.json()["matched"], 0);
        let untouched =
            "SELECT count(*) FROM callbacks WHERE status = 'delivered' AND tries = 1 AND tries_before = 0";
        assert_eq!(world.number(untouched).await, 1);
        let begun = api.post("/callbacks/replay", &range).await;
        assert_eq!((begun.status, &begun.json()["matched"]), (202, &json!(1)));
        let progress = format!("/callbacks/replay/{}", begun.json()["replay_id"].as_str().unwrap());
        theirs.get(&progress).await.problem(404, "not_found");
        for key in [[Scope::Read], [Scope::Publish]] {
            let lesser = api.with_key(&world.key(world.tenant.tenant_id, &key).await);
            lesser.post(&path, &json!({})).await.problem(403, "forbidden");
            lesser.post("/callbacks/replay", &range).await.problem(403, "forbidden");
        }
        api.with_key(&world.key(world.tenant.tenant_id, &[Scope::Read]).await).get(&progress).await.ok();
        for none in ["/callbacks/none/replay", "/callbacks/01a228a9-6cec-7084-a499-79a960c3dac1/replay"] {
            api.post(none, &json!({})).await.problem(404, "not_found");
        }
        api.get("/callbacks/replay/none").await.problem(404, "not_found");
        api.post(&path, &json!({"force": true})).await.problem(422, "validation_failed");
        api.post("/callbacks/replay", &json!({"since": "x"})).await.problem(422, "validation_failed");
        api.get("/callbacks/replay").await.problem(405, "method_not_allowed");
    })
    .await;
}

/// Callbacks of so many events, delivered without a service.
async fn delivered(world: &World, count: usize) -> Vec<Uuid> {
    let tenant_id = world.tenant.tenant_id;
    world.account(tenant_id, "blog1", i32::try_from(count).unwrap(), TimeDelta::zero()).await;
    let tasks = (0..count).map(|n| {
        let mut task = world.new_task(&format!("post-{n}"), ONE);
        task.callback_url = Some("http://127.0.0.1:2/hook".to_owned());
        task
    });
    world.accept(&tasks.collect::<Vec<_>>()).await;
    let settler = world.settler();
    loop {
        let claimed = world.claim("w").await;
        if claimed.is_empty() {
            break;
        }
        let settles = claimed.iter().map(|one| (settler.clone(), success(one)));
        at_once(settles.map(|(settler, one)| async move { assert!(settler.settle(one).await) })).await;
    }
    world.execute("UPDATE callbacks SET status = 'delivered', ended_at = created_at").await;
    let ids = sqlx::query_scalar("SELECT event_id FROM callbacks ORDER BY event_id");
    let ids = ids.fetch_all(&world.pool).await.unwrap();
    assert_eq!(ids.len(), count);
    ids
}

fn range(world: &World, status: CallbackStatus) -> ReplayRange {
    let (day, now) = (TimeDelta::days(1), world.clock.now());
    ReplayRange { since: now - day, until: now + day, status }
}

async fn begin(world: &World, range: ReplayRange) -> ReplayRow {
    match world.store.begin_replay(world.tenant.tenant_id, range).await.unwrap() {
        ReplayAsked::Begun(row) => row,
        other => panic!("{other:?}"),
    }
}

async fn step(world: &World) -> usize {
    world.store.replay_step(world.tenant.tenant_id).await.unwrap()
}

#[tokio::test]
async fn a_range_is_made_due_at_its_pace_and_each_callback_of_it_once() {
    in_world(async |world: &World| {
        let batch = usize::try_from(REPLAY_BATCH).unwrap();
        let ids = delivered(world, 2 * batch + 7).await;
        let begun = begin(world, range(world, CallbackStatus::Delivered)).await;
        assert_eq!((begun.matched, begun.replayed, begun.finished_at), (207, 0, None));
        // Of two nodes, one takes the step; the next comes when the pause is over.
        let stores = [world.store.clone(), world.store.clone()];
        let tenant_id = world.tenant.tenant_id;
        let took =
            at_once(stores.map(|store| async move { store.replay_step(tenant_id).await.unwrap() })).await;
        assert_eq!(took.iter().sum::<usize>(), batch, "{took:?}");
        assert_eq!(step(world).await, 0);
        let due = "SELECT count(*) FROM callbacks WHERE status = 'pending'";
        assert_eq!(world.number(due).await, REPLAY_BATCH);
        // The oldest first.
        let last = sqlx::query_scalar::<_, Uuid>(
            "SELECT max(event_id::text)::uuid FROM callbacks WHERE status = 'pending'",
        );
        assert_eq!(last.fetch_one(&world.pool).await.unwrap(), ids[batch - 1]);
        // What is done is not done again, whatever becomes of it.
        world
            .execute("UPDATE callbacks SET status = 'delivered', ended_at = now() WHERE status = 'pending'")
            .await;
        world.advance(1);
        assert_eq!(step(world).await, batch);
        world.advance(1);
        assert_eq!(step(world).await, 7);
        world.advance(1);
        assert_eq!(step(world).await, 0);
        assert_eq!(world.number(due).await, REPLAY_BATCH + 7);
        let done = world.store.replay(tenant_id, begun.replay_id).await.unwrap().unwrap();
        assert_eq!((done.matched, done.replayed, done.finished_at.is_some()), (207, 207, true));
    })
    .await;
}

#[tokio::test]
async fn a_step_that_is_not_committed_has_done_nothing() {
    in_world(async |world: &World| {
        delivered(world, 3).await;
        begin(world, range(world, CallbackStatus::Delivered)).await;
        // The last statement of the step fails, after all others.
        world.execute("ALTER TABLE replays ADD CONSTRAINT sick CHECK (replayed = 0)").await;
        assert!(world.store.replay_step(world.tenant.tenant_id).await.is_err());
        assert_eq!(world.number("SELECT count(*) FROM callbacks WHERE status = 'pending'").await, 0);
        assert_eq!(world.number("SELECT count(*) FROM replay_events").await, 3);
        world.execute("ALTER TABLE replays DROP CONSTRAINT sick").await;
        assert_eq!(step(world).await, 3);
    })
    .await;
}

#[tokio::test]
async fn replays_of_a_tenant_take_turns_and_are_not_endlessly_many() {
    in_world(async |world: &World| {
        delivered(world, 3).await;
        let mut begun = Vec::new();
        for _ in 0..REPLAYS_UNFINISHED_MAX {
            // Ids that are made in one millisecond have no order.
            world.advance(1);
            begun.push(begin(world, range(world, CallbackStatus::Delivered)).await.replay_id);
        }
        let asked =
            world.store.begin_replay(world.tenant.tenant_id, range(world, CallbackStatus::Delivered)).await;
        assert!(matches!(asked.unwrap(), ReplayAsked::Busy));
        let api = world.start_with(publish_ingest::lifecycle::Plan {
            roles: Roles { dispatcher: false, worker: false, api: true },
            ..world.plan()
        });
        let refused = api
            .await
            .post("/callbacks/replay", &json!({"since": "2020-01-01T00:00:00Z", "status": "gone"}))
            .await;
        let refused = refused.problem(409, "conflict");
        assert!(refused["detail"].as_str().unwrap().contains("16 replays"), "{refused}");
        for replay_id in begun {
            // The next one waits as long as the one before it would have.
            assert_eq!((step(world).await, step(world).await), (3, 0));
            let done = world.store.replay(world.tenant.tenant_id, replay_id).await.unwrap().unwrap();
            assert!(done.finished_at.is_some());
            world.advance(1);
        }
    })
    .await;
}

#[tokio::test]
async fn a_range_is_of_its_time_and_its_status() {
    in_world(async |world: &World| {
        delivered(world, 5).await;
        // One of each status, an hour apart, and the ids by their times.
        let hours =
            "WITH numbered AS (SELECT event_id, row_number() OVER (ORDER BY event_id) AS n FROM callbacks)
            UPDATE callbacks c SET created_at = c.created_at - (5 - n) * interval '1 minute',
                status = (ARRAY['pending', 'delivered', 'exhausted', 'gone', 'delivered'])[n],
                ended_at = CASE WHEN n <> 1 THEN now() END
            FROM numbered WHERE numbered.event_id = c.event_id";
        world.execute(hours).await;
        let times = "SELECT created_at FROM callbacks ORDER BY created_at";
        let times: Vec<DateTime<Utc>> = sqlx::query_scalar(times).fetch_all(&world.pool).await.unwrap();
        let api = world.start_with(publish_ingest::lifecycle::Plan {
            roles: Roles { dispatcher: false, worker: false, api: true },
            ..world.plan()
        });
        let api = api.await;
        let text = |at: DateTime<Utc>| at.to_rfc3339_opts(SecondsFormat::Micros, true);
        for (status, since, until, matched) in [
            ("pending", 0, None, 1),
            ("exhausted", 0, None, 1),
            ("gone", 0, None, 1),
            ("delivered", 0, None, 2),
            // From the one time on, and up to the other but not at it.
            ("delivered", 1, Some(4), 1),
            ("delivered", 2, Some(4), 0),
            ("gone", 3, Some(4), 1),
            ("gone", 0, Some(3), 0),
        ] {
            let mut body = json!({"since": text(times[since]), "status": status});
            if let Some(until) = until {
                body["until"] = text(times[until]).into();
            }
            let reply = api.post("/callbacks/replay", &body).await;
            let begun = reply.json();
            assert_eq!((reply.status, &begun["matched"]), (202, &json!(matched)), "{body}: {begun}");
            assert_eq!(begun["status"], if matched == 0 { "done" } else { "running" });
            assert_eq!(begun["range"]["status"], status);
        }
    })
    .await;
}

#[tokio::test]
async fn a_receiver_that_is_back_gets_what_was_given_up_by_one_replay() {
    in_world(async |world: &World| {
        let receiver = Receiver::start([404, 404, 404].map(Answer::status)).await;
        let mut plan = world.plan();
        plan.callback_schedule = schedule("0s");
        let api = world.start_with(plan).await;
        for article in ["a", "b", "c"] {
            publish_to(&api, article, &receiver).await;
        }
        world.until("SELECT count(*) FROM callbacks WHERE status = 'exhausted'", 3).await;
        let body = json!({"since": "2020-01-01T00:00:00Z", "status": "exhausted"});
        let begun = api.post("/callbacks/replay", &body).await.json();
        let path = format!("/callbacks/replay/{}", begun["replay_id"].as_str().unwrap());
        let mut shown = Value::Null;
        eventually("the replay is done", async || {
            shown = api.get(&path).await.ok();
            shown["status"] == "done"
        })
        .await;
        assert_eq!((&shown["matched"], &shown["replayed"]), (&json!(3), &json!(3)));
        assert!(!shown["finished_at"].is_null());
        world.until("SELECT count(*) FROM callbacks WHERE status = 'delivered' AND tries = 2", 3).await;
        let got = receiver.first(6).await;
        for again in &got[3..] {
            let first = got[..3].iter().find(|one| one.header("webhook-id") == again.header("webhook-id"));
            assert_eq!(first.unwrap().body, again.body);
            again.verify(&world.secret);
        }
    })
    .await;
}
