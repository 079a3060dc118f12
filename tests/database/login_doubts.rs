//! A login that is lost while nobody knows whether the article got in: it may be public, and is never called otherwise.

use std::time::Duration;

use publish_ingest::account::{AccountInput, AccountKey, Credentials};
use publish_ingest::connector::{Sighting, Verdict};
use publish_ingest::store::Store;
use publish_ingest::task::settle::telling;
use serde_json::{Value, json};

use crate::double::{ACCOUNT, DOUBLE, Double, dead};
use crate::harness::{Api, World, account_input, article_with, in_world};
use crate::logins::rests_in;

/// An article whose answer was lost, and then its account's login.
async fn in_doubt(world: &World, double: &Double) -> Api {
    double.next_look(Sighting::absent());
    double.next_request(Verdict::Unknown("the answer was lost".to_owned()));
    double.next_look(Sighting::LoginExpired(dead()));
    let api = double.start(world, 4).await;
    api.publish(&article_with("a", json!({"group_code": DOUBLE}))).await.ok();
    rests_in(&api, "a", "login_expired").await;
    assert_eq!(open(world).await, 1);
    api
}

/// How many tries are open.
async fn open(world: &World) -> i64 {
    world.number("SELECT count(*) FROM attempts WHERE kind = 'publish' AND ended_at IS NULL").await
}

async fn marker(world: &World) -> String {
    world.text("SELECT marker FROM publications").await
}

fn the_account() -> Value {
    json!([{"platform": DOUBLE, "account_id": DOUBLE}])
}

#[tokio::test]
async fn it_is_looked_for_when_the_login_works_again_and_adopted() {
    in_world(async |world: &World| {
        let double = Double::default();
        let api = in_doubt(world, &double).await;
        double.publish_itself(&marker(world).await);
        let renewed = api.put(ACCOUNT, &json!({"credentials": {}})).await.ok();
        assert_eq!(renewed["resumed"], 1);
        let task = rests_in(&api, "a", "success").await;
        assert_eq!((&task["publications"][0]["round"], open(world).await), (&json!(2), 0));
        assert_eq!((double.published(), double.count("publish")), (1, 1));
        let steps = api.transitions("a").await;
        assert!(steps.contains(&"running → success (found_published)".to_owned()), "{steps:?}");
    })
    .await;
}

#[tokio::test]
async fn it_is_published_when_the_login_works_again_and_it_is_proven_not_to_be_there() {
    in_world(async |world: &World| {
        let double = Double::default();
        let api = in_doubt(world, &double).await;
        api.put(ACCOUNT, &json!({"credentials": {}})).await.ok();
        rests_in(&api, "a", "success").await;
        assert_eq!((double.published(), double.count("publish"), open(world).await), (1, 2, 0));
    })
    .await;
}

#[tokio::test]
async fn a_cancellation_does_not_call_it_cancelled() {
    in_world(async |world: &World| {
        let double = Double::default();
        let api = in_doubt(world, &double).await;
        let told = api.act("a", "cancel", &json!({})).await.ok();
        assert_eq!((&told["cancelled"], &told["in_flight"]), (&json!([]), &the_account()));
        assert_eq!((&told["task"]["status"], open(world).await), (&json!("login_expired"), 1));
        // Nor while it waits to be looked for.
        world.stop().await;
        let key = AccountKey::new(DOUBLE, DOUBLE).unwrap();
        let credentials = Some(Credentials::new(json!({})));
        let input = AccountInput { credentials, settings: json!({}), ..account_input(DOUBLE) };
        world.put_account(world.tenant.tenant_id, key.platform(), key.account_id(), &input).await;
        let store: &Store = &world.store;
        let telling = telling(Duration::ZERO);
        assert_eq!(store.resume(world.tenant.tenant_id, telling).await.unwrap(), 1);
        assert_eq!(world.text("SELECT status FROM publications").await, "submitted");
        let id = "a".parse().unwrap();
        let did = store.cancel(world.tenant.tenant_id, &id, telling).await.unwrap().unwrap().did;
        assert_eq!((did.cancelled.len(), did.in_flight), (0, vec![key]));
        assert_eq!(world.text("SELECT status FROM publications").await, "submitted");
    })
    .await;
}

#[tokio::test]
async fn a_person_who_has_looked_may_say_that_it_is_there() {
    in_world(async |world: &World| {
        let double = Double::default();
        let api = in_doubt(world, &double).await;
        let calls = double.calls();
        let there = json!({"platform": DOUBLE, "account_id": DOUBLE,
            "confirmed_published": {"url": "https://double.example/a"}});
        let told = api.act("a", "retry", &there).await.ok();
        assert_eq!(told["retried"], the_account());
        let publication = &told["task"]["publications"][0];
        assert_eq!(
            (&publication["status"], &publication["url"]),
            (&json!("success"), &json!("https://double.example/a"))
        );
        assert_eq!((double.calls(), open(world).await), (calls, 0));
    })
    .await;
}

#[tokio::test]
async fn a_person_who_has_looked_may_say_that_it_is_not_there_and_then_it_can_be_cancelled() {
    in_world(async |world: &World| {
        let double = Double::default();
        let api = in_doubt(world, &double).await;
        let calls = double.calls();
        let not = json!({"platform": DOUBLE, "account_id": DOUBLE, "confirmed_not_published": true});
        let told = api.act("a", "retry", &not).await.ok();
        assert_eq!((&told["retried"], open(world).await), (&the_account(), 0));
        // Its login is still expired, so it waits for that again.
        world
            .until("SELECT count(*) FROM publications WHERE status = 'login_expired' AND round = 2", 1)
            .await;
        let told = api.act("a", "cancel", &json!({})).await.ok();
        assert_eq!((&told["cancelled"], &told["in_flight"]), (&the_account(), &json!([])));
        assert_eq!((told["task"]["status"].as_str(), double.calls()), (Some("failed"), calls));
    })
    .await;
}
