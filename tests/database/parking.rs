//! A platform that asks for a pause: its account is left alone, and nothing of it counts as tried.

use chrono::{DateTime, TimeDelta};
use publish_ingest::clock::Clock as _;
use publish_ingest::connector::{Sighting, Verdict};
use serde_json::{Value, json};

use crate::double::{ACCOUNT, DOUBLE, Double, pause};
use crate::harness::{Api, World, article_with, in_world};

fn for_double(external_id: &str) -> Value {
    article_with(external_id, json!({"group_code": DOUBLE}))
}

async fn parked_until(api: &Api) -> Value {
    api.get(ACCOUNT).await.ok()["parked_until"].clone()
}

/// The article, once its platform asked for a pause.
async fn parked(world: &World, api: &Api, external_id: &str) {
    api.publish(&for_double(external_id)).await.ok();
    world.until("SELECT count(*) FROM lanes WHERE parked_until IS NOT NULL", 1).await;
}

#[tokio::test]
async fn a_pause_parks_the_account_costs_no_try_and_ends_by_itself() {
    in_world(async |world: &World| {
        let double = Double::default();
        double.next_request(Verdict::RateLimited(pause(120)));
        let api = double.start(world, 4).await;
        assert_eq!(parked_until(&api).await, Value::Null);
        parked(world, &api, "a").await;
        let task = api.task("a").await.ok();
        let publication = &task["publications"][0];
        assert_eq!((&publication["status"], &publication["round"]), (&json!("submitted"), &json!(1)));
        assert_eq!(publication["error"]["code"], "rate_limited");
        assert_eq!(world.number("SELECT max(tries)::bigint FROM publications").await, 0);
        // It says until when, wherever somebody looks.
        let until = parked_until(&api).await;
        let at = DateTime::parse_from_rfc3339(until.as_str().unwrap()).unwrap().to_utc();
        let left = at - world.clock_now();
        assert!(left > TimeDelta::seconds(90) && left <= TimeDelta::seconds(120), "{left}");
        let told = api.post("/publish/check", &for_double("b")).await.ok();
        assert_eq!(told["accounts"][0]["earliest_at"], until);
        assert_eq!(api.get("/accounts").await.ok()["accounts"][0]["parked_until"], until);
        // Nothing of the account is begun meanwhile, and the platform is not asked.
        let calls = double.calls();
        api.publish(&for_double("b")).await.ok();
        assert!(world.claim("w").await.is_empty());
        world.advance(100);
        assert!(world.claim("w").await.is_empty());
        assert_eq!(double.calls(), calls);
        world.advance(21);
        assert_eq!(parked_until(&api).await, Value::Null);
        for id in ["a", "b"] {
            assert_eq!(api.finished(id).await["status"], "success");
        }
        assert_eq!(double.published(), 2);
    })
    .await;
}

#[tokio::test]
async fn what_may_have_got_in_is_looked_for_after_the_pause() {
    in_world(async |world: &World| {
        let double = Double::default();
        double.next_look(Sighting::absent());
        double.next_request(Verdict::Unknown("the answer was lost".to_owned()));
        double.next_look(Sighting::RateLimited(pause(120)));
        let api = double.start(world, 4).await;
        parked(world, &api, "a").await;
        let task = api.task("a").await.ok();
        let publication = &task["publications"][0];
        assert_eq!(
            (&publication["status"], &publication["phase"]),
            (&json!("running"), &json!("confirming"))
        );
        double.publish_itself(&world.text("SELECT marker FROM publications").await);
        world.advance(121);
        assert_eq!(api.finished("a").await["status"], "success");
        assert_eq!((double.published(), double.count("publish")), (1, 1));
    })
    .await;
}

#[tokio::test]
async fn new_credentials_or_settings_end_a_pause_and_nothing_else_does() {
    in_world(async |world: &World| {
        let free = async || {
            let free = "SELECT (free_at <= now() + $1) FROM lanes WHERE platform = 'double'";
            let skew = world.clock.skew();
            let free: bool = sqlx::query_scalar(free).bind(skew).fetch_one(&world.pool).await.unwrap();
            free
        };
        let double = Double::default();
        let api = double.start(world, 4).await;
        for (body, ends) in [
            (json!({"display_name": "same"}), false),
            // A shorter pace than before does not end the pause either.
            (json!({"min_interval_seconds": 0}), false),
            (json!({"settings": {"other": 1}}), true),
            (json!({"settings": {"other": 1}}), false),
            (json!({"settings": {"other": 1}, "credentials": {}}), true),
        ] {
            // By hand, since every end of a pause has the platform asked again.
            world
                .execute(
                    "UPDATE lanes SET parked_until = now() + interval '10 minutes',
                        free_at = now() + interval '10 minutes', min_interval = '60 s' WHERE platform = 'double'",
                )
                .await;
            let put = api.put(ACCOUNT, &body).await.ok();
            assert_eq!(put["parked_until"].is_null(), ends, "{body}");
            assert_eq!(free().await, ends, "{body}");
        }
        // The pace holds also then.
        world.execute("UPDATE lanes SET parked_until = now() + interval '1 day', free_at = now() + interval '1 day'").await;
        api.put(ACCOUNT, &json!({"min_interval_seconds": 60, "credentials": {}})).await.ok();
        assert!(!free().await);
        world.advance(61);
        assert!(free().await);
    })
    .await;
}
