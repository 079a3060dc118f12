//! What callers do to a task, in whatever state it is: cancel, retry, add accounts; and who may.

use std::time::Duration;

use axum::http::Method;
use chrono::TimeDelta;
use publish_ingest::article::ExternalId;
use publish_ingest::store::{Claimed, Move};
use publish_ingest::task::settle::telling;
use publish_ingest::task::state::Status;
use publish_ingest::tenant::Scope;
use serde_json::{Map, Value, json};

use crate::claims::success;
use crate::drafts::pause;
use crate::harness::{BOTH, Reply, World, article, article_with, in_world, redacted};
use crate::leases::{entry, note};
use crate::receiver::{Received, Receiver};

/// Every state that a publication can stand in, as a caller can tell them apart.
pub(crate) const STATES: [&str; 12] = [
    "draft",
    "submitted",
    "tried",
    "running",
    "awaiting",
    "success",
    "failed",
    "outcome_unknown",
    "login_expired",
    "cancelled",
    "cancelled_draft",
    "account_deleted",
];

/// An end of a run, in that error or none.
pub(crate) fn end(one: &Claimed, to: Status, code: Option<&str>) -> Move {
    Move {
        error: code.map(|code| (code.to_owned(), "it says why".to_owned(), true)),
        reason: "test",
        outcome: Some("rejected"),
        ..Move::new(one.tenant_id, (one.publication_id, one.fence), (Status::Running, to))
    }
}

pub(crate) fn id(text: &str) -> ExternalId {
    text.parse().unwrap()
}

/// Brings a task of the group [`ONE`]'s kind into a state, on an account of its own.
pub(crate) async fn stand(world: &World, external_id: &str, state: &str) {
    let tenant_id = world.tenant.tenant_id;
    world.account(tenant_id, external_id, 4, TimeDelta::zero()).await;
    world.group(tenant_id, external_id, &[external_id]).await;
    let mut task = world.new_task(external_id, external_id);
    task.draft = state.contains("draft");
    task.publish_at = (state == "submitted").then(|| world.clock_now() + TimeDelta::days(1));
    world.accept(&[task]).await;
    let (store, telling) = (&world.store, telling(Duration::ZERO));
    match state {
        "draft" | "submitted" => return,
        "cancelled" | "cancelled_draft" => {
            store.cancel(tenant_id, &id(external_id), telling).await.unwrap().unwrap();
            return;
        }
        _ => {}
    }
    let one = world.claim("w").await.remove(0);
    assert_eq!(one.external_id, external_id);
    let outcome = match state {
        "running" => {
            assert!(note(store, entry(&one, "m")).await);
            return;
        }
        "tried" => {
            Move { wait: Some(TimeDelta::days(1)), ..end(&one, Status::Submitted, Some("site_unwritable")) }
        }
        "awaiting" => Move { wait: Some(TimeDelta::days(1)), ..end(&one, Status::Running, None) },
        "success" => success(&one),
        "login_expired" => end(&one, Status::LoginExpired, Some("login_expired")),
        "outcome_unknown" => end(&one, Status::Failed, Some("outcome_unknown")),
        _ => end(&one, Status::Failed, Some("rejected")),
    };
    assert_eq!(store.settle(tenant_id, &[outcome], telling).await.unwrap().len(), 1);
    if state == "account_deleted" {
        world.delete_account(tenant_id, external_id).await;
    }
}

/// What an answer says of a task with one publication, in short.
fn told(action: &str, reply: &Reply) -> Value {
    let body = reply.json();
    if reply.status != 200 {
        return json!({"problem": body["code"], "detail": body["detail"]});
    }
    let task = if body["task"].is_object() { &body["task"] } else { &body };
    let publication = &task["publications"][0];
    let mut told = Map::new();
    told.insert("status".into(), task["status"].clone());
    told.insert("round".into(), publication["round"].clone());
    told.insert("error".into(), publication["error"]["code"].clone());
    for list in ["cancelled", "live", "in_flight", "retried"] {
        if body[list].as_array().is_some_and(|items| !items.is_empty()) {
            told.insert("said".into(), list.into());
        }
    }
    if action == "retry" && body["skipped"][0].is_object() {
        told.insert(
            "said".into(),
            format!("skipped: {}", body["skipped"][0]["reason"].as_str().unwrap()).into(),
        );
    }
    told.into()
}

async fn events_of(world: &World, external_id: &str) -> i64 {
    sqlx::query_scalar(
        "SELECT count(*) FROM events JOIN tasks USING (tenant_id, task_id) WHERE external_id = $1",
    )
    .bind(external_id)
    .fetch_one(&world.pool)
    .await
    .unwrap()
}

#[tokio::test]
async fn every_action_on_every_state_answers_as_it_should() {
    in_world(async |world: &World| {
        let mut all = Map::new();
        let extra = json!({"accounts": [{"platform": "static_site", "account_id": "blog1"}]});
        let actions = [
            ("submit", json!({})),
            ("patch", json!({"title": "New"})),
            ("cancel", json!({})),
            ("retry", json!({})),
            ("accounts", extra),
        ];
        for state in STATES {
            for (action, _) in &actions {
                stand(world, &format!("{}-{action}", state.replace('_', "-")), state).await;
            }
        }
        pause(world).await;
        let api = world.start().await;
        for state in STATES {
            let mut answers = Map::new();
            for (action, body) in &actions {
                let external_id = format!("{}-{action}", state.replace('_', "-"));
                let reply = match *action {
                    "patch" => api.patch(&external_id, body).await,
                    _ => api.act(&external_id, action, body).await,
                };
                answers.insert((*action).to_owned(), told(action, &reply));
                if *action == "cancel" && reply.status == 200 {
                    // The same again answers the same, and writes nothing; others may be at work.
                    let events = events_of(world, &external_id).await;
                    assert_eq!(api.act(&external_id, action, body).await.ok(), reply.ok());
                    assert_eq!(events_of(world, &external_id).await, events);
                }
            }
            all.insert(state.to_owned(), answers.into());
        }
        insta::assert_json_snapshot!("every_action_on_every_state", all);
    })
    .await;
}

#[tokio::test]
async fn a_cancellation_says_what_is_cancelled_live_and_in_flight_and_tells_its_receiver() {
    in_world(async |world: &World| {
        let receiver = Receiver::start([]).await;
        let tenant_id = world.tenant.tenant_id;
        for name in ["live", "flies", "waits", "parked"] {
            world.account(tenant_id, name, 1, TimeDelta::zero()).await;
        }
        world.group(tenant_id, "four", &["live", "flies", "waits", "parked"]).await;
        let mut task = world.new_task("a", "four");
        task.callback_url = Some(receiver.url.clone());
        world.accept(&[task]).await;
        world.execute("UPDATE lanes SET free_at = 'infinity' WHERE account_id = 'waits'").await;
        for one in world.claim("w").await {
            let outcome = match one.account_id.as_str() {
                "live" => success(&one),
                "parked" => end(&one, Status::LoginExpired, Some("login_expired")),
                _ => continue,
            };
            let told =
                world.store.settle(tenant_id, &[outcome], telling(Duration::from_hours(1))).await.unwrap();
            assert_eq!(told.len(), 1);
        }
        let api = world.start().await;
        let answer = api.act("a", "cancel", &json!({})).await.ok();
        insta::assert_json_snapshot!("cancelled", redacted_urls(redacted(&answer)));
        // The dispatcher is woken: it does not wait for its poll, nor for an hour.
        let got = receiver.first(2).await;
        let mut told = got.iter().map(Received::json).collect::<Vec<_>>();
        told.sort_by_key(|event| event["account_id"].to_string());
        let told = told.iter().map(|event| {
            (
                event["account_id"].as_str().unwrap(),
                event["type"].as_str().unwrap(),
                event["error"]["code"].as_str().unwrap(),
                event["task_status"].as_str().unwrap(),
            )
        });
        let expected = ["parked", "waits"].map(|name| (name, "publication.failed", "cancelled", "running"));
        assert_eq!(told.collect::<Vec<_>>(), expected);
        for one in &got {
            api.tried(&one.header("webhook-id"), 1).await;
        }
        let reasons = api.transitions("a").await;
        assert!(reasons.contains(&"login_expired → failed (cancelled_by_caller)".to_owned()), "{reasons:?}");
        assert!(reasons.contains(&"submitted → failed (cancelled_by_caller)".to_owned()), "{reasons:?}");
    })
    .await;
}

/// A publication's own id stands in its address.
fn redacted_urls(mut value: Value) -> Value {
    for list in ["/live", "/task/publications"] {
        for one in value.pointer_mut(list).unwrap().as_array_mut().unwrap() {
            if one["url"].is_string() {
                one["url"] = "[url]".into();
            }
        }
    }
    value
}

#[tokio::test]
async fn what_is_cancelled_is_never_published_and_a_retry_takes_it_up_again() {
    in_world(async |world: &World| {
        let api = world.start().await;
        let at =
            json!({"publish_at": (world.clock_now() + TimeDelta::hours(1)).to_rfc3339(), "group_code": BOTH});
        api.publish(&article_with("a", at)).await.ok();
        let cancelled = api.act("a", "cancel", &json!({})).await.ok();
        assert_eq!(
            (&cancelled["task"]["status"], &cancelled["task"]["counts"]["failed"]),
            (&json!("failed"), &json!(2))
        );
        world.advance(3_601);
        api.publish(&article("other")).await.ok();
        api.finished("other").await;
        assert_eq!((world.pages("blog1").len(), world.pages("blog2").len()), (1, 0));
        let retried = api.act("a", "retry", &json!({})).await.ok();
        assert_eq!(retried["retried"].as_array().unwrap().len(), 2);
        let done = api.finished("a").await;
        assert_eq!((&done["status"], &done["publications"][0]["round"]), (&json!("success"), &json!(2)));
        let body = api.act("a", "cancel", &json!({})).await.problem(409, "conflict");
        assert!(body["detail"].as_str().unwrap().contains("success"), "{body}");
    })
    .await;
}

#[tokio::test]
async fn accounts_are_added_to_what_has_ended_and_the_task_goes_on() {
    in_world(async |world: &World| {
        let api = world.start().await;
        api.publish(&article("a")).await.ok();
        api.finished("a").await;
        let add = |names: &[&str]| {
            let names = names.iter().map(|name| json!({"platform": "static_site", "account_id": name}));
            json!({"accounts": names.collect::<Vec<_>>()})
        };
        let problem = api.act("a", "accounts", &add(&["blog2", "none", "blog1"])).await;
        let problem = problem.problem(422, "validation_failed");
        assert_eq!(problem["errors"][0]["pointer"], "/accounts/1", "{problem}");
        world.account(world.tenant.tenant_id, "gone", 4, TimeDelta::zero()).await;
        world.delete_account(world.tenant.tenant_id, "gone").await;
        api.act("a", "accounts", &add(&["gone"])).await.problem(422, "validation_failed");
        assert_eq!(world.number("SELECT count(*) FROM publications").await, 1);
        pause(world).await;
        let added = api.act("a", "accounts", &add(&["blog1", "blog2"])).await.ok();
        insta::assert_json_snapshot!("added", redacted(&added));
        world.execute("UPDATE lanes SET free_at = now()").await;
        let done = api.finished("a").await;
        assert_eq!((&done["status"], &done["counts"]["success"]), (&json!("success"), &json!(2)));
        assert_eq!(api.act("a", "accounts", &add(&["blog1", "blog2"])).await.ok(), done);
        assert_eq!(api.transitions("a").await[2], " → submitted (added_by_caller)");
        // What is due later is due later on a new account, too.
        let at = (world.clock_now() + TimeDelta::hours(1)).to_rfc3339();
        api.publish(&article_with("later", json!({"publish_at": at}))).await.ok();
        let later = api.act("later", "accounts", &add(&["blog2"])).await.ok();
        assert_eq!(later["publications"][1]["due_at"], later["publish_at"]);
    })
    .await;
}

#[tokio::test]
async fn actions_need_the_scope_and_stay_within_their_tenant() {
    in_world(async |world: &World| {
        let api = world.start().await;
        api.publish(&article_with("a", json!({"draft": true}))).await.ok();
        let tenant_id = world.tenant.tenant_id;
        let other = world.another_tenant("other").await.tenant_id;
        let theirs = api.with_key(&world.key(other, &Scope::ALL).await);
        let publisher = api.with_key(&world.key(tenant_id, &[Scope::Publish]).await);
        let add = json!({"accounts": [{"platform": "static_site", "account_id": "blog2"}]});
        let actions = [("accounts", add), ("submit", json!({})), ("cancel", json!({})), ("retry", json!({}))];
        let weaker = [Scope::Read, Scope::Manage];
        for scope in weaker {
            let api = api.with_key(&world.key(tenant_id, &[scope]).await);
            api.patch("a", &json!({})).await.problem(403, "forbidden");
            for (action, body) in &actions {
                api.act("a", action, body).await.problem(403, "forbidden");
            }
        }
        theirs.patch("a", &json!({})).await.problem(404, "not_found");
        for (action, body) in &actions {
            theirs.act("a", action, body).await.problem(404, "not_found");
            api.act("none", action, body).await.problem(404, "not_found");
            let bad = api.posting(&format!("/tasks/a/{action}"), r#"{"force": true}"#);
            api.send(bad).await.problem(422, "validation_failed");
            let null = api.send(api.posting(&format!("/tasks/none/{action}"), "null")).await;
            assert_eq!(null.status, if *action == "accounts" { 422 } else { 404 }, "{null:?}");
            let bad = api.posting(&format!("/tasks/a/{action}?force=1"), "{}");
            api.send(bad).await.problem(400, "invalid_query");
            let text = api.request(Method::POST, &format!("/tasks/a/{action}")).body("force");
            api.send(text).await.problem(415, "unsupported_media_type");
        }
        let unchanged = api.task("a").await.ok();
        assert_eq!((&unchanged["status"], &unchanged["counts"]["draft"]), (&json!("draft"), &json!(1)));
        publisher.patch("a", &json!({})).await.ok();
        pause(world).await;
        for (action, body) in &actions {
            publisher.act("a", action, body).await.ok();
        }
    })
    .await;
}
