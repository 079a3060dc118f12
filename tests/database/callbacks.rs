//! Callbacks: at least once, the same bytes, by the schedule, and nobody waits for somebody else's receiver.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use publish_ingest::callback::breaker::Heard;
use publish_ingest::clock::Clock;
use publish_ingest::store::{ClaimedCallback, Receivers, RecordedTry, Then};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::claims::success;
use crate::harness::{Api, ONE, World, article_with, in_world, limits, schedule};
use crate::receiver::{Answer, Receiver};

pub(crate) async fn publish_to(api: &Api, external_id: &str, receiver: &Receiver) {
    api.publish(&article_with(external_id, json!({"callback_url": receiver.url}))).await.ok();
}

/// The first callback of a receiver, as it is shown once it has had so many tries.
pub(crate) async fn tried(api: &Api, receiver: &Receiver, tries: usize) -> Value {
    let event_id = receiver.first(1).await[0].header("webhook-id");
    api.tried(&event_id, tries).await
}

fn time(value: &Value) -> DateTime<Utc> {
    value.as_str().unwrap().parse().unwrap()
}

/// How long after its last try a callback is tried again.
fn wait(callback: &Value) -> f64 {
    let last = callback["tries"].as_array().unwrap().last().unwrap();
    let ended = time(&last["at"]) + TimeDelta::milliseconds(last["duration_ms"].as_i64().unwrap());
    (time(&callback["next_try_at"]) - ended).as_seconds_f64()
}

pub(crate) fn statuses(callback: &Value) -> Vec<Option<u64>> {
    callback["tries"].as_array().unwrap().iter().map(|one| one["http_status"].as_u64()).collect()
}

#[tokio::test]
async fn a_callback_is_tried_again_with_the_same_id_and_bytes_until_it_arrives() {
    in_world(async |world: &World| {
        let receiver = Receiver::start([
            Answer::status(500).saying("not now"),
            Answer::status(500).saying("x"),
            Answer::status(204),
        ])
        .await;
        let api = world.start().await;
        publish_to(&api, "a", &receiver).await;
        let callback = tried(&api, &receiver, 1).await;
        assert_eq!((&callback["status"], &callback["ended_at"]), (&json!("pending"), &Value::Null));
        assert!((4.0..=6.1).contains(&wait(&callback)), "{callback}");
        world.advance(7);
        let callback = tried(&api, &receiver, 2).await;
        assert!((24.0..=36.1).contains(&wait(&callback)), "{callback}");
        world.advance(37);
        let callback = tried(&api, &receiver, 3).await;
        assert_eq!((&callback["status"], &callback["next_try_at"]), (&json!("delivered"), &Value::Null));
        assert_eq!(statuses(&callback), [Some(500), Some(500), Some(204)]);
        assert_eq!(callback["tries"][0]["answer"], "not now");

        let got = receiver.first(3).await;
        let mut timestamps = Vec::new();
        for one in &got {
            one.verify(&world.secret);
            assert_eq!(one.header("content-type"), "application/json");
            assert_eq!(one.header("webhook-id"), callback["event_id"]);
            assert_eq!(one.body, got[0].body);
            assert_eq!(one.json()["event_id"], callback["event_id"]);
            timestamps.push(one.header("webhook-timestamp").parse::<i64>().unwrap());
        }
        assert!(timestamps[1] >= timestamps[0] + 7 && timestamps[2] >= timestamps[1] + 37, "{timestamps:?}");
        // Delivered is delivered.
        world.advance(100_000);
        publish_to(&api, "b", &receiver).await;
        receiver.first(4).await;
        assert_ne!(receiver.first(4).await[3].header("webhook-id"), callback["event_id"]);
    })
    .await;
}

#[tokio::test]
async fn a_receiver_is_not_called_sooner_than_it_asked() {
    in_world(async |world: &World| {
        let date = |after: i64| {
            let at = world.clock.now() + TimeDelta::seconds(after);
            at.format("%a, %d %b %Y %H:%M:%S GMT").to_string()
        };
        let asking = [
            ("date", date(100), 95.0..=101.0),
            ("sooner than the schedule", "1".to_owned(), 4.0..=6.1),
            ("longer than a day", "999999".to_owned(), 86_399.0..=86_401.0),
            ("nonsense", "soon".to_owned(), 4.0..=6.1),
            ("seconds", "120".to_owned(), 119.0..=121.0),
        ];
        let api = world.start().await;
        for (what, value, expected) in asking {
            let answer = Answer::status(503).with("retry-after", value);
            let receiver = Receiver::start([answer]).await;
            publish_to(&api, what, &receiver).await;
            let callback = tried(&api, &receiver, 1).await;
            assert!(expected.contains(&wait(&callback)), "{what}: {callback}");
            if what == "seconds" {
                world.advance(100);
                // Its time has not come; another's has.
                let other = Receiver::start([]).await;
                publish_to(&api, "meanwhile", &other).await;
                tried(&api, &other, 1).await;
                assert_eq!(receiver.count(), 1);
                world.advance(21);
                receiver.first(2).await;
                tried(&api, &receiver, 2).await;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_callback_is_given_up_when_the_schedule_has_run_out() {
    in_world(async |world: &World| {
        let receiver = Receiver::start_with([], Answer::status(404)).await;
        let mut plan = world.plan();
        plan.callback_schedule = schedule("0s,1s");
        let api = world.start_with(plan).await;
        publish_to(&api, "a", &receiver).await;
        assert_eq!(tried(&api, &receiver, 1).await["status"], "pending");
        world.advance(2);
        let callback = tried(&api, &receiver, 2).await;
        assert_eq!((&callback["status"], &callback["next_try_at"]), (&json!("exhausted"), &Value::Null));
        assert!(!callback["ended_at"].is_null());
        // The article is none the worse.
        assert_eq!(api.task("a").await.ok()["status"], "success");
    })
    .await;
}

#[tokio::test]
async fn the_first_try_waits_as_the_schedule_says() {
    in_world(async |world: &World| {
        let receiver = Receiver::start([]).await;
        let mut plan = world.plan();
        plan.callback_schedule = schedule("60s,1s");
        let api = world.start_with(plan).await;
        publish_to(&api, "a", &receiver).await;
        api.finished("a").await;
        let due = "SELECT extract(epoch FROM due_at - created_at)::bigint FROM callbacks";
        assert_eq!(world.number(due).await, 60);
        assert_eq!(receiver.count(), 0);
        world.advance(61);
        assert_eq!(tried(&api, &receiver, 1).await["status"], "delivered");
    })
    .await;
}

#[tokio::test]
async fn gone_ends_it_at_once() {
    in_world(async |world: &World| {
        let receiver = Receiver::start([Answer::status(410)]).await;
        let api = world.start().await;
        publish_to(&api, "a", &receiver).await;
        let callback = tried(&api, &receiver, 1).await;
        assert_eq!((&callback["status"], &callback["next_try_at"]), (&json!("gone"), &Value::Null));
    })
    .await;
}

#[tokio::test]
async fn no_redirect_is_followed() {
    in_world(async |world: &World| {
        let elsewhere = Receiver::start([]).await;
        let redirects = [301, 302, 307].map(|status| Answer::status(status).with("location", &elsewhere.url));
        let receiver = Receiver::start(redirects).await;
        let mut plan = world.plan();
        plan.callback_schedule = schedule("0s,1s,1s,1s");
        let api = world.start_with(plan).await;
        publish_to(&api, "a", &receiver).await;
        for tries in 1..=3 {
            assert_eq!(tried(&api, &receiver, tries).await["status"], "pending");
            world.advance(2);
        }
        assert_eq!(tried(&api, &receiver, 4).await["status"], "delivered");
        assert_eq!(elsewhere.count(), 0);
    })
    .await;
}

#[tokio::test]
async fn a_receiver_that_hangs_or_refuses_costs_one_try() {
    in_world(async |world: &World| {
        let gate = Arc::new(Semaphore::new(0));
        let hanging = Receiver::start([Answer::status(200).behind(&gate)]).await;
        let mut plan = world.plan();
        plan.callback_timeout = Duration::from_millis(300);
        let api = world.start_with(plan).await;
        publish_to(&api, "hanging", &hanging).await;
        let callback = tried(&api, &hanging, 1).await;
        assert_eq!((statuses(&callback), &callback["status"]), (vec![None], &json!("pending")));
        let one = &callback["tries"][0];
        assert!(one["error"].as_str().unwrap().contains("300 ms"), "{callback}");
        assert!((300..2_000).contains(&one["duration_ms"].as_u64().unwrap()), "{callback}");

        // Nobody listens there any more.
        let gone = { Receiver::start([]).await.url.clone() };
        tokio::task::yield_now().await;
        api.publish(&article_with("refused", json!({"callback_url": gone}))).await.ok();
        world.until("SELECT count(*) FROM callback_tries WHERE error LIKE 'no connection%'", 1).await;

        world.advance(7);
        assert_eq!(tried(&api, &hanging, 2).await["status"], "delivered");
    })
    .await;
}

/// An event whose callback is due, without a service.
pub(crate) async fn due_callback(world: &World, url: &str) -> ClaimedCallback {
    let mut task = world.new_task("a", ONE);
    task.callback_url = Some(url.to_owned());
    world.accept(&[task]).await;
    let one = world.claim("w").await.remove(0);
    assert!(world.settler().settle(success(&one)).await);
    let mut claimed =
        world.store.claim_callbacks(one.tenant_id, Receivers::All, &limits("dead")).await.unwrap();
    assert_eq!(claimed.len(), 1);
    claimed.remove(0)
}

pub(crate) fn try_of(one: &ClaimedCallback, then: Then) -> RecordedTry {
    RecordedTry {
        tenant_id: one.tenant_id,
        event_id: one.event_id,
        fence: one.fence,
        took: Duration::from_millis(5),
        http_status: Some(200),
        answer_head: None,
        error: None,
        then,
        heard: Heard::of(Some(200), None),
    }
}

#[tokio::test]
async fn what_a_dispatcher_left_behind_is_sent_again() {
    in_world(async |world: &World| {
        let receiver = Receiver::start([]).await;
        let old = due_callback(world, &receiver.url).await;
        // Held by a lease, it is not claimed again, nor taken over too early.
        let again =
            world.store.claim_callbacks(old.tenant_id, Receivers::All, &limits("other")).await.unwrap();
        assert!(again.is_empty());
        world.advance(25);
        let early =
            world.store.claim_callbacks(old.tenant_id, Receivers::All, &limits("other")).await.unwrap();
        assert!(early.is_empty());
        world.advance(6);
        let new = world
            .store
            .claim_callbacks(old.tenant_id, Receivers::All, &limits("new"))
            .await
            .unwrap()
            .remove(0);
        assert_eq!((new.event_id, new.fence), (old.event_id, old.fence + 1));
        // The old holder wakes up, and changes nothing.
        world.store.record_tries(old.tenant_id, &[try_of(&old, Then::Delivered)]).await.unwrap();
        let row = "SELECT concat_ws(' ', status, tries, lease_owner) FROM callbacks";
        assert_eq!(world.text(row).await, "pending 0 new");
        // Nor is the new one heard of again.
        world.advance(31);
        let api = world.start().await;
        let callback = tried(&api, &receiver, 1).await;
        assert_eq!((&callback["status"], receiver.count()), (&json!("delivered"), 1));
        let got = receiver.first(1).await;
        got[0].verify(&world.secret);
        assert_eq!(got[0].body, old.body);
        // The old holder wakes up, and changes nothing.
        let late = try_of(&old, Then::Again(Duration::ZERO));
        world.store.record_tries(old.tenant_id, &[late]).await.unwrap();
        let callback = api.tried(&old.event_id.to_string(), 1).await;
        assert_eq!(
            (&callback["status"], callback["tries"].as_array().unwrap().len()),
            (&json!("delivered"), 1)
        );
    })
    .await;
}

#[tokio::test]
async fn a_slow_receiver_delays_nobody_elses_callbacks() {
    in_world(async |world: &World| {
        let gate = Arc::new(Semaphore::new(0));
        let slow = Receiver::start_with([Answer::status(200)], Answer::status(200).behind(&gate)).await;
        let quick = Receiver::start([]).await;
        let api = world.start().await;
        // One that has answered well gets more than one call at a time.
        publish_to(&api, "proven", &slow).await;
        tried(&api, &slow, 1).await;
        let articles = 24;
        for n in 0..articles {
            publish_to(&api, &format!("slow-{n}"), &slow).await;
        }
        // As many as its lane takes are under way, and stay there.
        slow.first(17).await;
        publish_to(&api, "quick", &quick).await;
        assert_eq!(tried(&api, &quick, 1).await["status"], "delivered");
        let other = world.another_tenant("other").await;
        let theirs = api.with_key(&world.key(other.tenant_id, &publish_ingest::tenant::Scope::ALL).await);
        publish_to(&theirs, "theirs", &quick).await;
        quick.first(2).await;
        assert_eq!(slow.count(), 17);
        gate.add_permits(articles);
        slow.first(articles + 1).await;
        world.until("SELECT count(*) FROM callbacks WHERE status <> 'delivered'", 0).await;
        assert_eq!(slow.count(), articles + 1);
    })
    .await;
}

#[tokio::test]
async fn a_task_without_a_callback_url_has_its_event_and_no_callback() {
    in_world(async |world: &World| {
        let api = world.start().await;
        api.publish(&article_with("a", json!({}))).await.ok();
        api.finished("a").await;
        let event_id = world.text("SELECT event_id::text FROM events").await;
        api.get(&format!("/callbacks/{event_id}")).await.problem(404, "not_found");
        api.get("/callbacks/none").await.problem(404, "not_found");
    })
    .await;
}
