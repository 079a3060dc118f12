//! `POST /publish/check`: what would become of an article, and nothing is stored.

use chrono::TimeDelta;
use serde_json::{Value, json};

use crate::harness::{Api, BOTH, World, article, article_with, in_world, redacted};

async fn check(api: &Api, article: &Value) -> Value {
    api.post("/publish/check", article).await.ok()
}

#[tokio::test]
async fn a_new_article_is_held_against_each_account_and_not_stored() {
    in_world(async |world: &World| {
        let api = world.start().await;
        let later = world.clock_now() + TimeDelta::hours(1);
        world.execute("UPDATE lanes SET login_state = 'login_expired' WHERE account_id = 'blog2'").await;
        let sent = article_with("1764439366", json!({"group_code": BOTH, "publish_at": later}));
        let told = check(&api, &sent).await;
        assert_eq!((&told["would"], &told["task"]), (&json!("create"), &Value::Null));
        let at = told["accounts"][0]["earliest_at"].as_str().unwrap();
        let at = chrono::DateTime::parse_from_rfc3339(at).unwrap();
        assert!((at.to_utc() - later).num_milliseconds() == 0, "{at}");
        insta::assert_json_snapshot!("check_of_a_new_article", redacted(&told));
        for table in ["tasks", "articles", "publications"] {
            let rows: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(format!("SELECT count(*) FROM {table}")))
                .fetch_one(&world.pool)
                .await
                .unwrap();
            assert_eq!(rows, 0, "{table}");
        }
        // What was said comes true.
        world.execute("UPDATE lanes SET login_state = 'active'").await;
        assert_eq!(api.publish(&sent).await.ok()["created"], true);
    })
    .await;
}

#[tokio::test]
async fn an_existing_one_is_returned_or_rejected_as_it_would_be() {
    in_world(async |world: &World| {
        let api = world.start().await;
        api.publish_as("mine", &article("a")).await.ok();
        api.finished("a").await;
        let told = check(&api, &article_with("a", json!({"title": "Other"}))).await;
        assert_eq!((&told["would"], &told["accounts"]), (&json!("return_existing"), &json!([])));
        assert_eq!(told["task"]["changed_fields"], json!(["title"]));
        assert_eq!(told["task"]["status"], "success");
        assert_eq!(told["warnings"][0]["code"], "content_changed");
        let strict = article_with("a", json!({"on_duplicate": "reject"}));
        let told = check(&api, &strict).await;
        assert_eq!((&told["would"], &told["task"]["created"]), (&json!("reject"), &json!(false)));
        let mine = api.posting("/publish/check", strict.to_string()).header("idempotency-key", "mine");
        assert_eq!(api.send(mine).await.ok()["would"], "return_existing");
    })
    .await;
}

#[tokio::test]
async fn a_copy_is_told_of_for_a_week_at_least_and_not_for_ever() {
    in_world(async |world: &World| {
        let api = world.start().await;
        let told = async |id: &str| {
            let copy = article_with(id, json!({"title": "T", "content_html": "<p>same</p>"}));
            let foretold = check(&api, &copy).await["warnings"].clone();
            assert_eq!(api.publish(&copy).await.ok()["warnings"], foretold);
            foretold
        };
        assert_eq!(told("one").await, json!([]));
        world.advance(7 * 24 * 3_600);
        assert_eq!(told("two").await[0]["external_id"], "one");
        world.advance(14 * 24 * 3_600);
        assert_eq!(told("three").await, json!([]));
    })
    .await;
}

#[tokio::test]
async fn what_would_be_refused_is_refused_and_what_cannot_be_published_is_named() {
    in_world(async |world: &World| {
        let api = world.start().await;
        let other = article_with("a", json!({"group_code": "nowhere"}));
        api.post("/publish/check", &other).await.problem(422, "unknown_group");
        let empty = article_with("a", json!({"group_code": "empty"}));
        api.post("/publish/check", &empty).await.problem(422, "empty_group");
        api.post("/publish/check", &json!({})).await.problem(422, "validation_failed");
        let deep = article_with("a", json!({"content_html": "<div>".repeat(8_000)}));
        let told = check(&api, &deep).await;
        assert_eq!(told["accounts"][0]["problems"][0]["code"], "content_too_complex");
        // And that is what becomes of it.
        api.publish(&deep).await.ok();
        let task = api.finished("a").await;
        assert_eq!(task["publications"][0]["error"]["code"], "content_too_complex");
        world.stop().await;
        let mut plan = world.plan();
        plan.site = None;
        let told = check(&world.start_with(plan).await, &article("b")).await;
        assert_eq!(told["accounts"][0]["problems"][0]["code"], "platform_not_set_up");
    })
    .await;
}
