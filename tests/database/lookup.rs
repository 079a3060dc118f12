//! What is there of many, and what is missing.

use publish_ingest::store::NewTask;
use publish_ingest::tenant::Scope;
use serde_json::{Value, json};

use crate::harness::{BOTH, World, article_with, in_world, redacted};

#[tokio::test]
async fn tasks_come_in_the_order_asked_and_the_missing_as_they_were_sent() {
    in_world(async |world: &World| {
        let api = world.start().await;
        api.publish(&article_with("a", json!({"group_code": BOTH, "tags": ["x"], "metadata": {"n": 1.0}})))
            .await
            .ok();
        api.publish(&article_with("caf\u{e9}", json!({"draft": true}))).await.ok();
        let done = api.finished("a").await;
        let long = "x".repeat(201);
        let asked = [
            "none",
            "cafe\u{301}",
            "nai\u{308}ve",
            "a",
            "na\u{ef}ve",
            "",
            " a",
            &long,
            "\u{0}",
            "caf\u{e9}",
            "a",
            "none",
            "",
        ];
        let answer = api.post("/lookup", &json!({"external_ids": asked})).await.ok();
        let mut shown = redacted(&answer);
        let missing = shown["missing"].as_array_mut().unwrap();
        let at = missing.iter().position(|one| *one == long).unwrap();
        missing[at] = "x × 201".into();
        insta::assert_json_snapshot!("lookup_answer", shown);
        assert_eq!(answer["tasks"][1], done);
        for task in answer["tasks"].as_array().unwrap() {
            assert_eq!(*task, api.task(task["external_id"].as_str().unwrap()).await.ok());
        }
        let none = api.post("/lookup", &json!({"external_ids": []})).await.ok();
        assert_eq!(none, json!({"tasks": [], "missing": []}));
    })
    .await;
}

#[tokio::test]
async fn a_thousand_may_be_asked_for_at_once() {
    in_world(async |world: &World| {
        let api = world.start().await;
        let id = |n: usize| format!("{n:04}-{}", "😀".repeat(195));
        let draft = |n| NewTask { draft: true, ..world.new_task(&id(n), BOTH) };
        let tasks = (0..1_000).filter(|n| n % 3 == 0).map(draft).collect::<Vec<_>>();
        world.accept(&tasks).await;
        // The longest way to write them.
        let escaped = |n: usize| format!("\"{n:04}-{}\"", r"\ud83d\ude00".repeat(195));
        let ids = (0..1_000).rev().map(escaped).collect::<Vec<_>>().join(",");
        let body = format!(r#"{{"external_ids": [{ids}]}}"#);
        let answer = api.send(api.posting("/lookup", body)).await.ok();
        let found = answer["tasks"].as_array().unwrap().iter().map(|task| task["external_id"].clone());
        let expected = (0..1_000).rev().filter(|n| n % 3 == 0).map(|n| json!(id(n)));
        assert_eq!(found.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
        assert_eq!(answer["missing"].as_array().unwrap().len(), 666);
        let many = json!({"external_ids": vec!["a"; 1_001]});
        let problem = api.post("/lookup", &many).await.problem(422, "validation_failed");
        assert_eq!(problem["errors"][0]["code"], "too_long");
    })
    .await;
}

#[tokio::test]
async fn what_is_no_list_of_ids_is_refused() {
    in_world(async |world: &World| {
        let api = world.start().await;
        for (body, errors) in [
            (
                json!({"external_ids": ["a", 1, null, ["b"]]}),
                vec!["/external_ids/1", "/external_ids/2", "/external_ids/3"],
            ),
            (json!({"external_ids": "a"}), vec!["/external_ids"]),
            (json!({"ids": ["a"]}), vec!["/ids", "/external_ids"]),
            (json!("a"), vec![""]),
        ] {
            let problem = api.post("/lookup", &body).await.problem(422, "validation_failed");
            let pointers = problem["errors"].as_array().unwrap().iter().map(|error| error["pointer"].clone());
            assert_eq!(pointers.collect::<Vec<_>>(), errors);
        }
        for body in ["", "{", r#"{"external_ids": ["\ud800"]}"#] {
            api.send(api.posting("/lookup", body)).await.problem(400, "invalid_json");
        }
        let large = format!(r#"{{"external_ids": ["{}"]}}"#, "x".repeat(4 * 1024 * 1024));
        api.send(api.posting("/lookup", large)).await.problem(413, "payload_too_large");
        api.send(api.posting("/lookup?x=1", "{}")).await.problem(400, "invalid_query");
    })
    .await;
}

#[tokio::test]
async fn nobody_finds_what_belongs_to_another_tenant() {
    in_world(async |world: &World| {
        let api = world.start().await;
        api.publish(&article_with("a", json!({"draft": true}))).await.ok();
        let other = world.another_tenant("other").await;
        let theirs = api.with_key(&world.key(other.tenant_id, &Scope::ALL).await);
        let asked = json!({"external_ids": ["a"]});
        assert_eq!(theirs.post("/lookup", &asked).await.ok(), json!({"tasks": [], "missing": ["a"]}));
        let publisher = api.with_key(&world.key(world.tenant.tenant_id, &[Scope::Publish]).await);
        publisher.post("/lookup", &asked).await.problem(403, "forbidden");
        assert_eq!(api.post("/lookup", &asked).await.ok()["missing"], Value::Array(Vec::new()));
    })
    .await;
}
