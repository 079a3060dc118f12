//! What a platform's errors lead to.

use publish_ingest::account::AccountInput;
use serde_json::{Value, json};

use crate::harness::{World, account_input, article, article_with, in_world};
use crate::receiver::Receiver;

/// The publication of an article, once it has failed so many tries.
async fn after_tries(world: &World, api: &crate::harness::Api, tries: i64) -> Value {
    world.until("SELECT max(tries)::bigint FROM publications", tries).await;
    api.task("a").await.ok()["publications"][0].clone()
}

/// Makes the site's folder impossible to make, also for root: a link that leads nowhere is in its place.
fn block(world: &World) {
    std::os::unix::fs::symlink("nowhere", world.site_root().join("acme")).unwrap();
}

fn unblock(world: &World) {
    std::fs::remove_file(world.site_root().join("acme")).unwrap();
}

#[tokio::test]
async fn a_transient_error_is_tried_again_by_the_schedule_until_it_works() {
    in_world(async |world: &World| {
        let receiver = Receiver::start([]).await;
        block(world);
        let api = world.start().await;
        api.publish(&article_with("a", json!({"callback_url": receiver.url}))).await.ok();
        let publication = after_tries(world, &api, 1).await;
        assert_eq!(publication["status"], "submitted");
        let error = &publication["error"];
        assert_eq!((&error["code"], &error["retryable"]), (&json!("site_unwritable"), &json!(true)));
        assert_eq!(api.task("a").await.ok()["status"], "running");
        let wait = "SELECT extract(epoch FROM due_at - updated_at)::bigint FROM publications";
        assert_eq!(world.number(wait).await, 5);
        world.advance(6);
        assert_eq!(after_tries(world, &api, 2).await["status"], "submitted");
        assert_eq!(world.number(wait).await, 30);
        unblock(world);
        world.advance(31);
        let task = api.finished("a").await;
        let publication = &task["publications"][0];
        assert_eq!((&task["status"], &publication["error"]), (&json!("success"), &Value::Null));
        assert_eq!((&publication["attempts"], &publication["round"]), (&json!(3), &json!(1)));
        assert_eq!(world.pages("blog1").len(), 1);
        // Only the end is an event.
        let got = receiver.first(1).await;
        assert_eq!(got[0].json()["sequence"], 1);
        api.tried(&got[0].header("webhook-id"), 1).await;
        assert_eq!(receiver.count(), 1);
    })
    .await;
}

#[tokio::test]
async fn when_the_schedule_has_run_out_it_has_failed_and_a_retry_may_help() {
    in_world(async |world: &World| {
        block(world);
        let api = world.start().await;
        api.publish(&article("a")).await.ok();
        for tries in 1..=2 {
            after_tries(world, &api, tries).await;
            world.advance(31);
        }
        let task = api.finished("a").await;
        let publication = &task["publications"][0];
        assert_eq!((&task["status"], &publication["attempts"]), (&json!("failed"), &json!(3)));
        assert_eq!(publication["error"]["retryable"], true);
        let event = world.text("SELECT convert_from(body, 'UTF8') FROM events").await;
        let event: Value = serde_json::from_str(&event).unwrap();
        assert_eq!((&event["type"], &event["task_status"]), (&json!("publication.failed"), &json!("failed")));
        assert_eq!((&event["error"], &event["url"]), (&publication["error"], &Value::Null));
        // It has ended: time alone changes nothing.
        world.advance(1_000_000);
        unblock(world);
        api.publish(&article("b")).await.ok();
        api.finished("b").await;
        assert_eq!(api.task("a").await.ok()["status"], "failed");
    })
    .await;
}

#[tokio::test]
async fn a_site_that_is_not_mounted_is_waited_for_and_never_made() {
    in_world(async |world: &World| {
        let root = world.site_root().join("volume");
        let mut plan = world.plan();
        plan.site = Some((root.clone(), "https://site.example".to_owned()));
        let api = world.start_with(plan).await;
        api.publish(&article("a")).await.ok();
        let publication = after_tries(world, &api, 1).await;
        assert_eq!(publication["error"]["code"], "platform_unavailable");
        assert_eq!((&publication["status"], &publication["attempts"]), (&json!("submitted"), &json!(0)));
        assert!(!root.exists());
        std::fs::create_dir(&root).unwrap();
        world.advance(6);
        assert_eq!(api.finished("a").await["status"], "success");
        assert!(root.join("acme").join("blog1").join("index.html").exists());
    })
    .await;
}

async fn bad_account(world: &World, platform: &str, settings: Value) {
    let input = AccountInput { settings, ..account_input("blog1") };
    world.put_account(world.tenant.tenant_id, platform, "blog1", &input).await;
}

#[tokio::test]
async fn what_the_platform_rejects_has_failed_at_once_and_says_why() {
    in_world(async |world: &World| {
        let receiver = Receiver::start([]).await;
        bad_account(world, "static_site", json!({"site": "../elsewhere"})).await;
        let api = world.start().await;
        api.publish(&article_with("a", json!({"callback_url": receiver.url, "group_code": "both"})))
            .await
            .ok();
        let task = api.finished("a").await;
        let publication = &task["publications"][0];
        assert_eq!((&task["status"], &task["counts"]["success"]), (&json!("failed"), &json!(1)));
        assert_eq!(publication["error"]["code"], "bad_settings");
        assert_eq!(publication["error"]["retryable"], false);
        let got = receiver.first(2).await;
        let failed = got.iter().find(|one| one.json()["status"] == "failed").unwrap();
        assert_eq!(failed.json()["error"], publication["error"]);
        for one in &got {
            api.tried(&one.header("webhook-id"), 1).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_platform_that_is_not_set_up_is_waited_for() {
    in_world(async |world: &World| {
        let mut plan = world.plan();
        plan.site = None;
        let api = world.start_with(plan).await;
        api.publish(&article("a")).await.ok();
        let publication = after_tries(world, &api, 1).await;
        assert_eq!(publication["error"]["code"], "platform_unavailable");
        world.stop().await;
        world.advance(6);
        let api = world.start().await;
        assert_eq!(api.finished("a").await["status"], "success");
    })
    .await;
}
