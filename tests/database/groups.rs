//! Groups as callers manage them.

use publish_ingest::account::GROUPS_MAX;
use serde_json::{Value, json};

use crate::harness::{World, article_with, in_world, redacted};

fn accounts(ids: &[&str]) -> Value {
    let account = |id: &&str| json!({"platform": "static_site", "account_id": id});
    json!({"accounts": ids.iter().map(account).collect::<Vec<_>>()})
}

#[tokio::test]
async fn a_group_is_put_shown_replaced_and_deleted() {
    in_world(async |world: &World| {
        let api = world.start().await;
        let mut body = accounts(&["blog2", "blog1"]);
        body["title"] = json!("Blogs");
        let put = api.put("/groups/mine", &body).await.ok();
        insta::assert_json_snapshot!("group", redacted(&put));
        assert_eq!(api.get("/groups/mine").await.ok(), put);
        let all = api.get("/groups").await.ok();
        let codes =
            all["groups"].as_array().unwrap().iter().map(|group| group["group_code"].as_str().unwrap());
        assert_eq!(codes.collect::<Vec<_>>(), ["both", "empty", "mine", "one"]);
        assert_eq!(all["groups"][2], put);

        api.publish(&article_with("a", json!({"group_code": "mine", "draft": true}))).await.ok();
        world.advance(60);
        let replaced = api.put("/groups/mine", &accounts(&["blog1"])).await.ok();
        assert_eq!((&replaced["title"], &replaced["created_at"]), (&json!("mine"), &put["created_at"]));
        assert_ne!(replaced["updated_at"], put["updated_at"]);
        let publish = async |id: &str| {
            let answer =
                api.publish(&article_with(id, json!({"group_code": "mine", "draft": true}))).await.ok();
            let publications = answer["publications"].as_array().unwrap().iter();
            publications.map(|one| one["account_id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        // What was accepted keeps its accounts, in their order.
        assert_eq!(publish("a").await, ["blog2", "blog1"]);
        assert_eq!(publish("b").await, ["blog1"]);
        api.put("/groups/mine", &accounts(&[])).await.ok();
        let empty = article_with("c", json!({"group_code": "mine"}));
        api.publish(&empty).await.problem(422, "empty_group");

        assert_eq!(api.delete("/groups/mine").await.status, 204);
        for reply in [api.get("/groups/mine").await, api.delete("/groups/mine").await] {
            reply.problem(404, "not_found");
        }
        api.publish(&empty).await.problem(422, "unknown_group");
        assert_eq!(publish("a").await, ["blog2", "blog1"]);
        assert_eq!(api.put("/groups/mine", &accounts(&["blog1"])).await.ok()["title"], "mine");
    })
    .await;
}

#[tokio::test]
async fn a_group_holds_accounts_that_exist_each_once() {
    in_world(async |world: &World| {
        let api = world.start().await;
        let errors = async |path: &str, body: &Value| {
            let body = api.put(path, body).await.problem(422, "validation_failed");
            let errors = body["errors"].as_array().unwrap().iter();
            errors.map(|error| error["pointer"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let mine = "/groups/mine";
        let unknown = accounts(&["blog1", "none", "blog2", "nor_this"]);
        assert_eq!(errors(mine, &unknown).await, ["/accounts/1", "/accounts/3"]);
        assert_eq!(errors(mine, &accounts(&["blog1", "blog2", "blog1"])).await, ["/accounts/2"]);
        assert_eq!(errors(mine, &json!({"title": "T"})).await, ["/accounts"]);
        assert_eq!(
            errors(mine, &json!({"title": 1, "account": []})).await,
            ["/account", "/title", "/accounts"]
        );
        assert_eq!(errors(mine, &json!({"title": "a\0", "accounts": []})).await, ["/title"]);
        for path in ["/groups/a%20b", "/groups/%ff", &format!("/groups/{}", "x".repeat(65))] {
            assert_eq!(errors(path, &accounts(&[])).await, [""]);
            api.get(path).await.problem(404, "not_found");
            api.delete(path).await.problem(404, "not_found");
        }
        let many = (0..1_001).map(|n| format!("blog{n}")).collect::<Vec<_>>();
        let many = many.iter().map(String::as_str).collect::<Vec<_>>();
        assert_eq!(errors(mine, &accounts(&many)).await, ["/accounts"]);
        api.get(mine).await.problem(404, "not_found");
    })
    .await;
}

#[tokio::test]
async fn a_tenant_has_at_most_so_many_groups() {
    in_world(async |world: &World| {
        world
            .execute(
                "INSERT INTO groups (tenant_id, group_code, title, created_at, updated_at)
                SELECT tenant_id, 'many' || n, '', now(), now() FROM tenants, generate_series(1, 9997) n",
            )
            .await;
        let api = world.start().await;
        let body = api.put("/groups/mine", &accounts(&[])).await.problem(422, "validation_failed");
        assert!(body["detail"].as_str().unwrap().contains(&GROUPS_MAX.to_string()), "{body}");
        api.put("/groups/many1", &accounts(&["blog1"])).await.ok();
        assert_eq!(api.delete("/groups/many2").await.status, 204);
        api.put("/groups/mine", &accounts(&[])).await.ok();
        assert_eq!(api.get("/groups").await.ok()["groups"].as_array().unwrap().len(), GROUPS_MAX);
    })
    .await;
}
