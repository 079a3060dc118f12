//! Retrying: a new round, its own event, and what nobody could find out.

use chrono::TimeDelta;
use serde_json::{Value, json};

use crate::actions::stand;
use crate::drafts::pause;
use crate::harness::{BOTH, World, article, article_with, in_world, redacted, task_path};
use crate::receiver::{Received, Receiver};

fn named(account_id: &str, more: Value) -> Value {
    let mut body = json!({"platform": "static_site", "account_id": account_id});
    let Value::Object(more) = more else { panic!("members are an object") };
    body.as_object_mut().unwrap().extend(more);
    body
}

#[tokio::test]
async fn a_retry_after_a_failure_ends_in_success_with_a_round_and_an_event_of_its_own() {
    in_world(async |world: &World| {
        let receiver = Receiver::start([]).await;
        // A folder that cannot be made, also for root: a link that leads nowhere is in its place.
        let folder = world.site_root().join("acme");
        std::fs::create_dir(&folder).unwrap();
        std::os::unix::fs::symlink("nowhere", folder.join("blog2")).unwrap();
        let mut plan = world.plan();
        plan.retries = "".parse().unwrap();
        let api = world.start_with(plan).await;
        api.publish(&article_with("a", json!({"callback_url": receiver.url, "group_code": BOTH}))).await.ok();
        let failed = api.finished("a").await;
        assert_eq!((&failed["status"], &failed["counts"]["success"]), (&json!("failed"), &json!(1)));
        std::fs::remove_file(folder.join("blog2")).unwrap();
        let answer = api.act("a", "retry", &json!({})).await.ok();
        assert_eq!(answer["retried"], json!([{"platform": "static_site", "account_id": "blog2"}]));
        let skipped = json!([{"platform": "static_site", "account_id": "blog1", "reason": "success"}]);
        assert_eq!(answer["skipped"], skipped);
        let retried = &answer["task"]["publications"][1];
        assert_eq!(
            (&retried["status"], &retried["round"], &retried["error"]),
            (&json!("submitted"), &json!(2), &Value::Null)
        );
        assert_eq!(answer["task"]["finished_at"], Value::Null);
        let done = api.finished("a").await;
        assert_eq!((&done["status"], &done["publications"][1]["round"]), (&json!("success"), &json!(2)));
        assert_eq!((world.pages("blog1").len(), world.pages("blog2").len()), (1, 1));
        let got = receiver.first(3).await;
        let mut told =
            got.iter().map(Received::json).filter(|event| event["account_id"] == "blog2").collect::<Vec<_>>();
        told.sort_by_key(|event| event["sequence"].as_i64());
        let told = told.iter().map(|event| json!([event["status"], event["round"], event["task_status"]]));
        // Which of the two accounts ended first is chance.
        let told = told.map(|told| json!([told[0], told[1]])).collect::<Vec<_>>();
        assert_eq!(told, [json!(["failed", 1]), json!(["success", 2])]);
        for one in &got {
            api.tried(&one.header("webhook-id"), 1).await;
        }
        let reasons = api.transitions("a").await;
        assert!(reasons.contains(&"failed → submitted (retried_by_caller)".to_owned()), "{reasons:?}");
    })
    .await;
}

#[tokio::test]
async fn what_may_have_been_published_runs_again_only_when_somebody_has_looked() {
    in_world(async |world: &World| {
        for name in ["a", "b"] {
            stand(world, name, "outcome_unknown").await;
        }
        let api = world.start().await;
        for body in [json!({}), named("a", json!({})), named("a", json!({"confirmed_not_published": false}))]
        {
            let answer = api.act("a", "retry", &body).await.ok();
            assert_eq!(
                (&answer["retried"], &answer["skipped"][0]["reason"]),
                (&json!([]), &json!("outcome_unknown"))
            );
        }
        let answer = api.act("a", "retry", &named("a", json!({"confirmed_not_published": true}))).await.ok();
        assert_eq!(answer["retried"][0]["account_id"], "a");
        let done = api.finished("a").await;
        assert_eq!((&done["status"], &done["publications"][0]["round"]), (&json!("success"), &json!(2)));
        // It is looked for first, all the same.
        let history = api.get(&format!("{}/history", task_path("a"))).await.ok();
        let kinds =
            history["entries"].as_array().unwrap().iter().map(|entry| entry["kind"].as_str().unwrap());
        let kinds = kinds.skip_while(|kind| *kind != "probe").collect::<Vec<_>>();
        assert_eq!(kinds[..2], ["probe", "try"]);
        assert_eq!(api.transitions("a").await[2], "failed → submitted (confirmed_not_published)");
        api.act("b", "retry", &named("none", json!({}))).await.problem(404, "not_found");
        api.act("b", "retry", &json!({"confirmed_not_published": true}))
            .await
            .problem(422, "validation_failed");
    })
    .await;
}

#[tokio::test]
async fn what_was_published_after_all_ends_as_a_success_without_the_platform() {
    in_world(async |world: &World| {
        let receiver = Receiver::start([]).await;
        stand(world, "a", "outcome_unknown").await;
        sqlx::query("UPDATE tasks SET callback_url = $1")
            .bind(&receiver.url)
            .execute(&world.pool)
            .await
            .unwrap();
        sqlx::query(
            "INSERT INTO callbacks (tenant_id, event_id, url, receiver, status, due_at, created_at, ended_at)
            SELECT tenant_id, event_id, $1, 'r', 'gone', now(), now(), now() FROM events",
        )
        .bind(&receiver.url)
        .execute(&world.pool)
        .await
        .unwrap();
        world.execute("INSERT INTO receivers SELECT tenant_id, 'r', 0, 16, now() FROM tenants").await;
        let api = world.start().await;
        let found =
            named("a", json!({"confirmed_published": {"url": "https://site.example/p/7", "remote_id": "7"}}));
        let answer = api.act("a", "retry", &found).await.ok();
        insta::assert_json_snapshot!("confirmed_published", redacted(&answer));
        let event = receiver.first(1).await[0].clone();
        let told = event.json();
        assert_eq!(
            (&told["type"], &told["url"], &told["remote_id"], &told["round"], &told["task_status"]),
            (
                &json!("publication.success"),
                &json!("https://site.example/p/7"),
                &json!("7"),
                &json!(1),
                &json!("success")
            )
        );
        api.tried(&event.header("webhook-id"), 1).await;
        let expected = [
            "submitted → running (claimed)",
            "running → failed (test)",
            "failed → submitted (confirmed_published)",
            "submitted → running (confirmed_published)",
            "running → success (confirmed_published)",
        ];
        assert_eq!(api.transitions("a").await, expected);
        assert_eq!(world.number("SELECT count(*) FROM attempts").await, 0);
        assert_eq!(world.number("SELECT count(*) FROM events").await, 2);
        assert!(world.pages("a").is_empty());
        // Again: it is known by now.
        let again = api.act("a", "retry", &found).await.ok();
        assert_eq!((&again["retried"], &again["skipped"][0]["reason"]), (&json!([]), &json!("success")));
    })
    .await;
}

#[tokio::test]
async fn what_is_known_cannot_be_confirmed_and_what_is_gone_not_retried() {
    in_world(async |world: &World| {
        let states = ["submitted", "tried", "running", "success", "failed", "login_expired"];
        for state in states {
            stand(world, &state.replace('_', "-"), state).await;
        }
        stand(world, "account-deleted", "account_deleted").await;
        pause(world).await;
        let api = world.start().await;
        for state in states {
            let name = state.replace('_', "-");
            let found = named(&name, json!({"confirmed_published": {"url": "https://site.example/x"}}));
            let answer = api.act(&name, "retry", &found).await.ok();
            let reason = if state == "tried" { "submitted" } else { state };
            assert_eq!((&answer["retried"], &answer["skipped"][0]["reason"]), (&json!([]), &json!(reason)));
        }
        let not = named("failed", json!({"confirmed_not_published": true}));
        assert_eq!(api.act("failed", "retry", &not).await.ok()["retried"][0]["account_id"], "failed");
        let gone = api.act("account-deleted", "retry", &json!({})).await.ok();
        assert_eq!(gone["skipped"][0]["reason"], "account_deleted");
        let expired = api.act("login-expired", "retry", &json!({})).await.ok();
        assert_eq!(expired["retried"][0]["account_id"], "login-expired");
    })
    .await;
}

#[tokio::test]
async fn a_retry_keeps_to_publish_at() {
    in_world(async |world: &World| {
        let api = world.start().await;
        let at = (world.clock_now() + TimeDelta::hours(1)).to_rfc3339();
        api.publish(&article_with("a", json!({"publish_at": at}))).await.ok();
        api.act("a", "cancel", &json!({})).await.ok();
        let retried = api.act("a", "retry", &json!({})).await.ok();
        let task = &retried["task"];
        assert_eq!(task["publications"][0]["due_at"], task["publish_at"]);
        world.advance(3_000);
        api.publish(&article("other")).await.ok();
        api.finished("other").await;
        assert_eq!(api.task("a").await.ok()["publications"][0]["attempts"], 0);
        world.advance(601);
        assert_eq!(api.finished("a").await["status"], "success");
    })
    .await;
}
