//! Accidents that users of other systems have reported, and that no other test replays. `tests/accidents.rs` lists all.

use std::time::Duration;

use chrono::TimeDelta;
use publish_ingest::store::{Intent, JournalEntry};
use serde_json::{Value, json};

use crate::claims::success;
use crate::harness::{ONE, World, article, article_with, in_world, limits, task_path};
use crate::leases::{begun, place};
use crate::receiver::{Answer, Receiver};

async fn tries(world: &World) -> i64 {
    world.number("SELECT count(*) FROM attempts WHERE kind = 'publish'").await
}

/// Postiz 1321: what came after a success failed, and so the post was made again, for ever.
#[tokio::test]
async fn a_receiver_that_never_takes_the_news_publishes_nothing_again() {
    in_world(async |world: &World| {
        let refusals = (0..3).map(|_| Answer::status(500));
        let receiver = Receiver::start(refusals.collect::<Vec<_>>()).await;
        let api = world.start().await;
        let body = article_with("a", json!({"callback_url": receiver.url}));
        api.publish(&body).await.ok();
        assert_eq!(api.finished("a").await["status"], "success");
        for tries in 1..=3 {
            let event_id = receiver.first(1).await[0].header("webhook-id");
            api.tried(&event_id, tries).await;
            world.advance(3_600);
        }
        assert_eq!((tries(world).await, world.pages("blog1").len()), (1, 1));
        assert_eq!(api.task("a").await.ok()["publications"][0]["round"], 1);
    })
    .await;
}

/// Postiz PR 1681: a live post was marked as failed, and a person retried it.
#[tokio::test]
async fn what_is_live_and_was_told_as_unknown_is_found_when_a_person_retries_it() {
    in_world(async |world: &World| {
        let (_, job) = begun(world, "a").await;
        let site = world.site_root().join("acme");
        std::fs::write(&site, "no folder").unwrap();
        world.advance(25 * 3_600);
        let api = world.start().await;
        assert_eq!(api.finished("a").await["publications"][0]["error"]["code"], "outcome_unknown");
        std::fs::remove_file(&site).unwrap();
        place(world, &job).await;
        // The person is wrong: it is there.
        let named =
            json!({"platform": "static_site", "account_id": "blog1", "confirmed_not_published": true});
        api.act("a", "retry", &named).await.ok();
        let publication = api.finished("a").await["publications"][0].clone();
        assert_eq!((&publication["status"], &publication["attempts"]), (&json!("success"), &json!(1)));
        assert_eq!(world.pages("blog1").len(), 1);
    })
    .await;
}

/// Mastodon 30039: the key was ignored for scheduled posts.
#[tokio::test]
async fn a_scheduled_article_that_is_sent_again_is_the_same_and_is_published_once() {
    in_world(async |world: &World| {
        let api = world.start().await;
        let at = world.clock_now() + TimeDelta::hours(1);
        let body = article_with("a", json!({"publish_at": at.to_rfc3339()}));
        let first = api.publish(&body).await.ok();
        let again = api.publish(&body).await.ok();
        assert_eq!((&again["task_id"], &again["created"]), (&first["task_id"], &json!(false)));
        world.advance(3_601);
        api.finished("a").await;
        api.publish(&body).await.ok();
        assert_eq!((tries(world).await, world.pages("blog1").len()), (1, 1));
    })
    .await;
}

/// Postiz PR 1841: a published post was saved again, and so published again.
#[tokio::test]
async fn a_new_version_of_what_is_published_publishes_nothing() {
    in_world(async |world: &World| {
        let api = world.start().await;
        api.publish(&article("a")).await.ok();
        api.finished("a").await;
        let page = world.pages("blog1");
        let again = api.publish(&article_with("a", json!({"title": "A better title"}))).await.ok();
        assert_eq!((&again["created"], &again["content_changed"]), (&json!(false), &json!(true)));
        api.patch("a", &json!({"title": "A better title"})).await.problem(409, "conflict");
        api.act("a", "submit", &json!({})).await;
        api.act("a", "retry", &json!({})).await;
        let publication = api.finished("a").await["publications"][0].clone();
        assert_eq!((&publication["round"], &publication["attempts"]), (&json!(1), &json!(1)));
        assert_eq!(world.pages("blog1"), page);
    })
    .await;
}

/// River 1258: 5,133 jobs were running for 91 days, since nobody took them from workers that had died.
#[tokio::test]
async fn what_was_running_when_everybody_died_is_looked_up_after_91_days() {
    in_world(async |world: &World| {
        let (_, job) = begun(world, "a").await;
        place(world, &job).await;
        world.advance(91 * 24 * 3_600);
        let api = world.start().await;
        let publication = api.finished("a").await["publications"][0].clone();
        assert_eq!((&publication["status"], &publication["attempts"]), (&json!("success"), &json!(1)));
    })
    .await;
}

/// Oban 862: a worker of the same name came back, and what the one before had left looked as if it was at work.
#[tokio::test]
async fn a_worker_of_the_same_name_does_not_hide_what_was_left_behind() {
    in_world(async |world: &World| {
        world.accept(&[world.new_task("a", ONE)]).await;
        let left = world.claim("host-1").await.remove(0);
        world.advance(31);
        let taken = world.store.claim(left.tenant_id, &limits("host-1")).await.unwrap();
        assert_eq!(taken.iter().map(|one| one.fence).collect::<Vec<_>>(), [left.fence + 1]);
        assert!(!world.settler().settle(success(&left)).await);
        assert!(world.settler().settle(success(&taken[0])).await);
    })
    .await;
}

/// svix 2181: something was taken for lost after 45 s, while the request itself was given longer.
#[tokio::test]
async fn no_call_may_last_longer_than_what_holds_it() {
    in_world(async |world: &World| {
        world.accept(&[world.new_task("a", ONE)]).await;
        let one = world.claim("w").await.remove(0);
        assert!(crate::leases::note(&world.store, crate::leases::entry(&one, "m")).await);
        // What is left of the lease when the last call must have ended, in seconds.
        let left = async || {
            let left = "SELECT extract(epoch FROM p.lease_until - max(a.over_at))::text
                FROM publications p JOIN attempts a USING (publication_id) WHERE a.kind = 'publish' GROUP BY p.lease_until";
            world.text(left).await.parse::<f64>().unwrap()
        };
        // Of 30 s, the call has half; three quarters are left when it begins, at least.
        assert_eq!(limits("w").lease, Duration::from_secs(30));
        assert!((7.5..=15.0).contains(&left().await), "{}", left().await);
        for (step, aged, least, most) in [(2, 7, 7.5, 8.0), (3, 8, 15.0, 15.0)] {
            let held = "UPDATE publications SET lease_until = now() + make_interval(secs => 30 - $1)";
            sqlx::query(held).bind(f64::from(aged)).execute(&world.pool).await.unwrap();
            let intent = Some(Intent { step, kind: "publish", draft_id: None });
            let next = JournalEntry { probe: None, intent, ..crate::leases::entry(&one, "m") };
            assert!(crate::leases::note(&world.store, next).await);
            assert!((least..=most).contains(&left().await), "{aged}: {}", left().await);
        }
    })
    .await;
}

/// Postiz 1724: posts were queued for ever, and there was no way to see why.
#[tokio::test]
async fn what_waits_says_since_when_and_what_for() {
    in_world(async |world: &World| {
        std::fs::write(world.site_root().join("acme"), "no folder").unwrap();
        let api = world.start().await;
        api.publish(&article("a")).await.ok();
        world.until("SELECT count(*) FROM publications WHERE tries = 1", 1).await;
        let publication = api.task("a").await.ok()["publications"][0].clone();
        assert_eq!(
            (&publication["status"], &publication["error"]["retryable"]),
            (&json!("submitted"), &json!(true))
        );
        assert_ne!(publication["due_at"], Value::Null);
        let history = api.get(&format!("{}/history", task_path("a"))).await.ok();
        let told = history["entries"].as_array().unwrap().iter().any(|one| one["outcome"] == "cannot_tell");
        assert!(told, "{history}");
    })
    .await;
}
