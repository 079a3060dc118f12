//! Drafts: changed, submitted, and what becomes of their accounts.

use axum::http::Method;
use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Value, json};

use crate::harness::{Api, BOTH, EMPTY, ONE, World, article, article_with, in_world, redacted};
use crate::receiver::Receiver;

async fn draft(api: &Api, external_id: &str, members: Value) -> Value {
    let mut draft = article_with(external_id, members);
    draft["draft"] = json!(true);
    api.publish(&draft).await.ok()
}

fn accounts(task: &Value) -> Vec<String> {
    let publications = task["publications"].as_array().unwrap();
    publications.iter().map(|one| one["account_id"].as_str().unwrap().to_owned()).collect()
}

/// Has no account take anything on.
pub(crate) async fn pause(world: &World) {
    world.execute("UPDATE lanes SET free_at = 'infinity'").await;
}

#[tokio::test]
async fn a_submitted_draft_is_published_and_stays_submitted() {
    in_world(async |world: &World| {
        let api = world.start().await;
        draft(&api, "a", json!({"group_code": BOTH})).await;
        let submitted = api.act("a", "submit", &json!({})).await.ok();
        insta::assert_json_snapshot!("submitted", redacted(&submitted));
        let done = api.finished("a").await;
        assert_eq!(done["counts"]["success"], 2);
        // Without a body, and without a media type.
        let bare = api.request(Method::POST, "/tasks/a/submit");
        assert_eq!(api.send(bare).await.ok(), done);
        assert_eq!(world.number("SELECT count(*) FROM events").await, 2);
        let transitions = api.transitions("a").await;
        assert_eq!(transitions[..2], ["draft → submitted (submitted_by_caller)"; 2]);
        // It was created as a draft, so its repeat is the same request.
        let again = draft(&api, "a", json!({"group_code": BOTH})).await;
        assert_eq!((&again["changed_fields"], &again["created"]), (&json!([]), &json!(false)));
        // What never was a draft is submitted, too.
        api.publish(&article("b")).await.ok();
        api.act("b", "submit", &json!({})).await.ok();
    })
    .await;
}

#[tokio::test]
async fn a_submit_takes_the_accounts_of_the_group_again() {
    in_world(async |world: &World| {
        let api = world.start().await;
        let tenant_id = world.tenant.tenant_id;
        for id in ["blog3", "blog4"] {
            world.account(tenant_id, id, 4, TimeDelta::zero()).await;
        }
        draft(&api, "a", json!({"group_code": BOTH})).await;
        let by_hand = json!({"accounts": [{"platform": "static_site", "account_id": "blog4"}]});
        let added = api.act("a", "accounts", &by_hand).await.ok();
        assert_eq!(accounts(&added), ["blog1", "blog2", "blog4"]);
        assert_eq!((&added["status"], &added["counts"]["draft"]), (&json!("draft"), &json!(3)));
        world.group(tenant_id, BOTH, &["blog3", "blog2"]).await;
        let submitted = api.act("a", "submit", &json!({})).await.ok();
        assert_eq!(accounts(&submitted), ["blog3", "blog2", "blog4"]);
        let done = api.finished("a").await;
        assert_eq!((&done["status"], &done["counts"]["success"]), (&json!("success"), &json!(3)));
        assert!(world.pages("blog1").is_empty());
        // From then on the group may change.
        world.group(tenant_id, BOTH, &["blog1"]).await;
        assert_eq!(accounts(&api.act("a", "submit", &json!({})).await.ok()), ["blog3", "blog2", "blog4"]);
    })
    .await;
}

#[tokio::test]
async fn a_draft_whose_group_is_gone_or_empty_stays_a_draft() {
    in_world(async |world: &World| {
        let api = world.start().await;
        draft(&api, "a", json!({"group_code": BOTH})).await;
        world.group(world.tenant.tenant_id, BOTH, &[]).await;
        api.act("a", "submit", &json!({})).await.problem(422, "empty_group");
        world.execute("DELETE FROM groups WHERE group_code = 'both'").await;
        let problem = api.act("a", "submit", &json!({})).await.problem(422, "unknown_group");
        assert!(problem["detail"].as_str().unwrap().contains(BOTH), "{problem}");
        for group in [EMPTY, "nowhere"] {
            api.patch("a", &json!({"title": "No", "group_code": group})).await.json();
        }
        let task = api.task("a").await.ok();
        assert_eq!(
            (&task["status"], &task["submitted_at"], &task["title"]),
            (&json!("draft"), &Value::Null, &json!("About a"))
        );
        assert_eq!(accounts(&task), ["blog1", "blog2"]);
        // Whatever became of its group, it can be changed otherwise, and moved to another.
        api.patch("a", &json!({"title": "New"})).await.ok();
        assert_eq!(accounts(&api.patch("a", &json!({"group_code": ONE})).await.ok()), ["blog1"]);
        api.act("a", "submit", &json!({})).await.ok();
        assert_eq!(api.finished("a").await["status"], "success");
    })
    .await;
}

#[tokio::test]
async fn a_later_repeat_is_compared_with_what_a_patch_stored() {
    in_world(async |world: &World| {
        let receiver = Receiver::start([]).await;
        let api = world.start().await;
        let first = json!({"summary": "S", "metadata": {"a": 1, "b": {"c": 2}}, "callback_url": receiver.url});
        draft(&api, "a", first.clone()).await;
        let at = (world.clock_now() + TimeDelta::hours(1)).to_rfc3339();
        let change = json!({"title": "New", "summary": null, "tags": ["x"], "metadata": {"b": {"d": 3}}, "group_code": BOTH,
            "callback_url": null, "publish_at": at});
        let changed = api.patch("a", &change).await.ok();
        insta::assert_json_snapshot!("patched", redacted(&changed));
        assert_eq!(changed["publish_at"], changed["publications"][0]["due_at"]);
        let as_it_was = draft(&api, "a", first).await;
        assert_eq!(
            as_it_was["changed_fields"],
            json!(["title", "summary", "tags", "group_code", "callback_url", "metadata"])
        );
        let mut now = article_with("a", change);
        now["draft"] = json!(true);
        let same = api.publish(&now).await.ok();
        assert_eq!((&same["changed_fields"], &same["content_changed"]), (&json!([]), &json!(false)));
        // It is published as it is now, at the time that is set now.
        let moved = api.patch("a", &json!({"publish_at": null, "content_html": "<p>last</p>"})).await.ok();
        assert!(moved["publications"][0]["due_at"].as_str().unwrap() < at.as_str());
        api.act("a", "submit", &json!({})).await.ok();
        api.finished("a").await;
        let marker = &world.pages("blog2")[0];
        let page = world.site_root().join("acme/blog2").join(format!("{marker}.html"));
        let page = std::fs::read_to_string(page).unwrap();
        assert!(page.contains("New") && page.contains("last"), "{page}");
        assert_eq!(world.number("SELECT count(*) FROM callbacks").await, 0);
    })
    .await;
}

#[tokio::test]
async fn a_patch_that_breaks_rules_changes_nothing() {
    in_world(async |world: &World| {
        let api = world.start().await;
        draft(&api, "a", json!({})).await;
        let before = api.get("/tasks/a?include=content").await.ok();
        let bad = json!({"external_id": "b", "draft": false, "on_duplicate": null, "title": null, "tag": [],
            "callback_url": "http://10.0.0.1/"});
        let problem = api.patch("a", &bad).await.problem(422, "validation_failed");
        let mut told = problem["errors"]
            .as_array()
            .unwrap()
            .iter()
            .map(|error| {
                format!("{} {}", error["pointer"].as_str().unwrap(), error["code"].as_str().unwrap())
            })
            .collect::<Vec<_>>();
        told.sort();
        let expected = [
            "/callback_url not_allowed",
            "/draft not_allowed",
            "/external_id not_allowed",
            "/on_duplicate not_allowed",
            "/tag unknown_field",
            "/title required",
        ];
        assert_eq!(told, expected);
        let as_type = |media_type: &str, body: String| {
            api.request(Method::PATCH, "/tasks/a").header("content-type", media_type).body(body)
        };
        api.send(as_type("text/plain", "{}".into())).await.problem(415, "unsupported_media_type");
        api.send(as_type("application/json", "{".into())).await.problem(400, "invalid_json");
        api.send(as_type("application/json", "[]".into())).await.problem(422, "validation_failed");
        let large = json!({"content_html": "x".repeat(world.plan().body_limit)});
        api.patch("a", &large).await.problem(413, "payload_too_large");
        assert_eq!(api.get("/tasks/a?include=content").await.ok(), before);
        api.send(as_type("application/json", "{}".into())).await.ok();
        assert_eq!(api.get("/tasks/a?include=content").await.ok(), before);
        api.patch("none", &json!({})).await.problem(404, "not_found");
        // The article is 404 only once its body can be read.
        api.patch("none", &json!({"x": 1})).await.problem(422, "validation_failed");
    })
    .await;
}

/// Holds the publications of all tasks, so that those who want them meet.
async fn holding(world: &World) -> sqlx::PgTransaction<'static> {
    let mut holder = world.pool.begin().await.unwrap();
    sqlx::query("SELECT FROM publications ORDER BY publication_id FOR UPDATE")
        .execute(&mut *holder)
        .await
        .unwrap();
    holder
}

/// Waits until so many wait for a lock.
pub(crate) async fn waiting(world: &World, n: i64) {
    world
        .until(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
            n,
        )
        .await;
}

#[tokio::test]
async fn patches_at_once_all_apply_one_after_the_other() {
    in_world(async |world: &World| {
        let api = world.start().await;
        draft(&api, "a", json!({})).await;
        let holder = holding(world).await;
        let changes = [
            json!({"title": "New"}),
            json!({"author": "Ann", "group_code": BOTH}),
            json!({"summary": "S"}),
            json!({"tags": ["x"], "group_code": BOTH}),
        ];
        let patches = changes.map(|change| {
            let api = api.clone();
            tokio::spawn(async move { api.patch("a", &change).await.ok() })
        });
        waiting(world, 4).await;
        holder.rollback().await.unwrap();
        for patch in patches {
            patch.await.unwrap();
        }
        let task = api.task("a").await.ok();
        assert_eq!(
            (&task["title"], &task["author"], &task["summary"], &task["tags"]),
            (&json!("New"), &json!("Ann"), &json!("S"), &json!(["x"]))
        );
        assert_eq!(accounts(&task), ["blog1", "blog2"]);
    })
    .await;
}

#[tokio::test]
async fn a_submit_that_waited_for_another_group_sees_its_accounts() {
    in_world(async |world: &World| {
        let api = world.start().await;
        world.group(world.tenant.tenant_id, "two", &["blog2"]).await;
        for round in 0..20 {
            let id = format!("a{round}");
            draft(&api, &id, json!({})).await;
            let holder = holding(world).await;
            let calls = ["patch", "submit"].map(|call| {
                let (api, id) = (api.clone(), id.clone());
                tokio::spawn(async move {
                    match call {
                        "patch" => api.patch(&id, &json!({"group_code": "two"})).await,
                        _ => api.act(&id, "submit", &json!({})).await,
                    }
                })
            });
            waiting(world, 2).await;
            holder.rollback().await.unwrap();
            let [patch, submit] = calls;
            let (patch, submit) = (patch.await.unwrap(), submit.await.unwrap());
            // The one goes before the other: either it moved first, or there was nothing to move any more.
            let expected = if patch.status == 200 { ["blog2"] } else { ["blog1"] };
            if patch.status != 200 {
                patch.problem(409, "conflict");
            }
            assert_eq!(accounts(&submit.ok()), expected);
            assert_eq!(accounts(&api.finished(&id).await), expected);
        }
    })
    .await;
}

fn due(task: &Value) -> DateTime<Utc> {
    task["publications"][0]["due_at"].as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn publish_at_holds_for_a_draft_whenever_it_is_submitted_and_across_restarts() {
    in_world(async |world: &World| {
        let api = world.start().await;
        let at = json!({"publish_at": (world.clock_now() + TimeDelta::hours(1)).to_rfc3339()});
        draft(&api, "early", at.clone()).await;
        draft(&api, "late", at).await;
        let submitted = api.act("early", "submit", &json!({})).await.ok();
        assert_eq!(submitted["publish_at"], submitted["publications"][0]["due_at"]);
        world.advance(3_500);
        api.publish(&article("first")).await.ok();
        api.finished("first").await;
        assert_eq!(api.task("early").await.ok()["status"], "submitted");
        world.stop().await;
        let api = world.start().await;
        api.publish(&article("second")).await.ok();
        api.finished("second").await;
        let waits = api.task("early").await.ok();
        assert_eq!(
            (&waits["status"], &waits["publications"][0]["attempts"]),
            (&json!("submitted"), &json!(0))
        );
        world.stop().await;
        world.advance(101);
        let api = world.start().await;
        assert_eq!(api.finished("early").await["status"], "success");
        // Its time has passed while it was a draft: it is due when it is submitted, and before nobody.
        assert_eq!(api.task("late").await.ok()["status"], "draft");
        let submitted = api.act("late", "submit", &json!({})).await.ok();
        let submitted_at: DateTime<Utc> = submitted["submitted_at"].as_str().unwrap().parse().unwrap();
        assert_eq!(due(&submitted), submitted_at);
        assert_eq!(api.finished("late").await["status"], "success");
    })
    .await;
}
