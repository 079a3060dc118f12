//! Many articles in one call: each is answered as if it had come alone.

use std::time::Duration;

use publish_ingest::clock::Clock;
use serde_json::{Value, json};

use crate::harness::{Api, BOTH, EMPTY, Reply, World, article, article_with, in_world, redacted};

async fn batch(api: &Api, articles: &[Value]) -> Reply {
    api.post("/publish/batch", &json!({"articles": articles})).await
}

/// The results of a good answer, one for each article, in their order.
async fn results(api: &Api, articles: &[Value]) -> Vec<Value> {
    let reply = batch(api, articles).await;
    let answer = reply.ok();
    let results = answer["results"].as_array().unwrap();
    assert_eq!(results.len(), articles.len());
    for (at, result) in results.iter().enumerate() {
        assert_eq!(result["index"], at);
        let problem = &result["problem"];
        assert_eq!(result["task"].is_null(), !problem.is_null(), "{result}");
        if !problem.is_null() {
            assert_eq!(problem["status"], result["http_status"], "{result}");
            assert_eq!(problem["request_id"], reply.header("x-request-id").unwrap());
        }
    }
    results.clone()
}

/// What became of each: `created`, `replayed` or the problem's code.
fn fates(results: &[Value]) -> Vec<&str> {
    let fate = |result: &'static str, is: bool| is.then_some(result);
    results
        .iter()
        .map(|result| {
            let (task, problem) = (&result["task"], &result["problem"]);
            fate("replayed", task["replayed"] == true)
                .or_else(|| fate("created", task["created"] == true))
                .or_else(|| problem["code"].as_str())
                .unwrap()
        })
        .collect()
}

#[tokio::test]
async fn one_bad_article_touches_no_other() {
    in_world(async |world: &World| {
        let api = world.start().await;
        api.publish(&article("old")).await.ok();
        api.finished("old").await;
        let articles = [
            article_with("a", json!({"draft": true, "group_code": BOTH})),
            article_with("b", json!({"title": "", "callback_ulr": "x"})),
            json!(7),
            article_with("c", json!({"group_code": "nowhere"})),
            article_with("d", json!({"group_code": EMPTY})),
            article_with("old", json!({"title": "Other"})),
            article_with("old", json!({"on_duplicate": "reject"})),
            article_with("e", json!({"draft": true})),
        ];
        let results = results(&api, &articles).await;
        insta::assert_json_snapshot!("batch_answer", redacted_ids(&redacted(&json!(results))));
        assert_eq!(world.number("SELECT count(*) FROM tasks").await, 3);
    })
    .await;
}

/// The request's id is random, but no UUID's place in a snapshot.
fn redacted_ids(value: &Value) -> Value {
    let mut value = value.clone();
    for result in value.as_array_mut().unwrap() {
        if let Some(id) = result["problem"].get_mut("request_id") {
            *id = "[request_id]".into();
        }
    }
    value
}

#[tokio::test]
async fn an_item_is_answered_as_a_single_call_is() {
    in_world(async |world: &World| {
        let api = world.start().await;
        let limit = world.plan().body_limit;
        let huge = article_with("huge", json!({"content_html": "x".repeat(limit)}));
        api.publish(&article("old")).await.ok();
        for article in [
            article_with("a", json!({"tags": "x"})),
            article_with("a", json!({"callback_url": "http://10.0.0.1/"})),
            article_with("a", json!({"group_code": "nowhere"})),
            article_with("a", json!({"group_code": EMPTY})),
            article_with("old", json!({"on_duplicate": "reject", "title": "T"})),
            json!([]),
            json!(null),
            huge,
        ] {
            let single = api.publish(&article).await;
            let mut expected = single.json();
            let result = results(&api, std::slice::from_ref(&article)).await.remove(0);
            assert_eq!(result["http_status"], single.status);
            let mut problem = result["problem"].clone();
            for one in [&mut expected, &mut problem] {
                one["request_id"].take();
                // A page may have come out in between; whose limit it is, the sentence says.
                one["task"] = one["task"]["changed_fields"].take();
                if single.status == 413 {
                    one["detail"].take();
                }
            }
            assert_eq!(problem, expected);
        }
    })
    .await;
}

#[tokio::test]
async fn duplicate_keys_and_broken_strings_are_one_items_problem() {
    in_world(async |world: &World| {
        let api = world.start().await;
        let duplicate = r#"{"external_id": "a", "title": "1", "title": "2"}"#;
        let deep = article("b").to_string().replacen('{', r#"{"metadata": {"x": {"y": 1, "y": 2}}, "#, 1);
        let lone = article("c").to_string().replacen("About", r"\ud800", 1);
        let body = format!(r#"{{"articles": [{duplicate}, {deep}, {lone}, {}]}}"#, article("d"));
        let answer = api.send(api.posting("/publish/batch", body)).await.ok();
        let results = answer["results"].as_array().unwrap();
        assert_eq!(fates(results), ["invalid_json", "invalid_json", "invalid_json", "created"]);
        assert!(results.iter().take(3).all(|result| result["http_status"] == 400));
    })
    .await;
}

#[tokio::test]
async fn what_is_no_batch_is_refused_as_a_whole() {
    in_world(async |world: &World| {
        let api = world.start().await;
        let of = |count: usize| vec![article("a"); count];
        for (body, pointer, code) in [
            (json!([]), "", "wrong_type"),
            (json!({}), "/articles", "required"),
            (json!({"articles": null}), "/articles", "required"),
            (json!({"articles": {}}), "/articles", "wrong_type"),
            (json!({"articles": [], "a/b": 1}), "/a~1b", "unknown_field"),
            (json!({"articles": of(501)}), "/articles", "too_long"),
        ] {
            let problem = api.post("/publish/batch", &body).await.problem(422, "validation_failed");
            assert_eq!(
                (&problem["errors"][0]["pointer"], &problem["errors"][0]["code"]),
                (&json!(pointer), &json!(code))
            );
        }
        for body in
            ["", "{", r#"{"articles": [}"#, r#"{"articles": [], "articles": []}"#, r#"{"articles": []} x"#]
        {
            api.send(api.posting("/publish/batch", body)).await.problem(400, "invalid_json");
        }
        let keyed = api.posting("/publish/batch", r#"{"articles": []}"#).header("idempotency-key", "k");
        let problem = api.send(keyed).await.problem(400, "invalid_header");
        assert!(problem["detail"].as_str().unwrap().contains("idempotency_key"), "{problem}");
        let large = format!(r#"{{"articles": ["{}"]}}"#, "x".repeat(32 * 1024 * 1024));
        api.send(api.posting("/publish/batch", large)).await.problem(413, "payload_too_large");
        api.send(api.posting("/publish/batch?dry=1", "{}")).await.problem(400, "invalid_query");
        let reader =
            api.with_key(&world.key(world.tenant.tenant_id, &[publish_ingest::tenant::Scope::Read]).await);
        batch(&reader, &[]).await.problem(403, "forbidden");
        assert_eq!(batch(&api, &[]).await.ok(), json!({"results": []}));
        assert_eq!(world.number("SELECT count(*) FROM tasks").await, 0);
    })
    .await;
}

#[tokio::test]
async fn an_id_that_stands_twice_is_new_at_its_first_place() {
    in_world(async |world: &World| {
        let api = world.start().await;
        // The statement that has the first one takes its time, so that a later one could overtake it in another's.
        world
            .execute(
                "CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS $$
                BEGIN PERFORM pg_sleep(0.3); RETURN NEW; END $$;
                CREATE TRIGGER dawdle BEFORE INSERT ON tasks FOR EACH ROW WHEN (NEW.external_id LIKE 'a-slow%')
                EXECUTE FUNCTION dawdle()",
            )
            .await;
        for round in 0..2 {
            let id = |name: &str| format!("{name}-{round}");
            let titled = |name: &str, title: &str| {
                article_with(&id(name), json!({"title": title, "content_html": "x", "draft": true}))
            };
            let mut articles = vec![article_with(&id("a-slow"), json!({"draft": true}))];
            // Among many, so that several writers have them.
            for n in 0..240_usize {
                articles.push(article_with(&id(&format!("other-{n}")), json!({"draft": true})));
                if n % 8 == 0 {
                    articles.push(titled(["cafe\u{301}", "caf\u{e9}"][n / 8 % 2], &format!("Title {n}")));
                }
            }
            let results = results(&api, &articles).await;
            let same = articles
                .iter()
                .zip(&results)
                .filter(|(sent, _)| sent["title"].as_str().unwrap().starts_with("Title"));
            let same = same.map(|(_, result)| result.clone()).collect::<Vec<_>>();
            assert_eq!(fates(&same)[0], "created");
            assert_eq!(same[0]["task"]["replayed"], false);
            assert!(fates(&same)[1..].iter().all(|fate| *fate == "replayed"));
            for later in &same[1..] {
                assert_eq!(later["task"]["task_id"], same[0]["task"]["task_id"]);
                assert_eq!(later["task"]["changed_fields"], json!(["title"]));
            }
            assert_eq!(api.task(&id("caf\u{e9}")).await.ok()["title"], "Title 0");
        }
        assert_eq!(world.number("SELECT count(*) FROM tasks").await, 2 * 242);
    })
    .await;
}

#[tokio::test]
async fn the_first_that_is_stored_is_the_new_one() {
    in_world(async |world: &World| {
        let api = world.start().await;
        let articles = [
            article_with("a", json!({"group_code": "nowhere"})),
            article_with("a", json!({"title": ""})),
            article_with("a", json!({"title": "First"})),
            article_with("a", json!({"title": "Second", "group_code": "nowhere"})),
            article_with("a", json!({"title": "Third", "on_duplicate": "reject"})),
        ];
        let results = results(&api, &articles).await;
        assert_eq!(
            fates(&results),
            ["unknown_group", "validation_failed", "created", "replayed", "duplicate_external_id"]
        );
        assert_eq!(results[3]["task"]["changed_fields"], json!(["title", "group_code"]));
        let problem = &results[4]["problem"];
        assert_eq!(problem["task"]["task_id"], results[2]["task"]["task_id"]);
        assert!(problem["hint"].as_str().unwrap().contains("Idempotency-Key"), "{problem}");
        assert_eq!(api.task("a").await.ok()["title"], "First");
    })
    .await;
}

#[tokio::test]
async fn an_idempotency_key_is_a_field_of_its_article() {
    in_world(async |world: &World| {
        let api = world.start().await;
        let keyed =
            |id: &str, key: &str| article_with(id, json!({"idempotency_key": key, "on_duplicate": "reject"}));
        let articles = [keyed("a", "k1"), keyed("a", "k1"), keyed("a", "k2"), keyed("b", "k1")];
        let first = results(&api, &articles).await;
        assert_eq!(fates(&first), ["created", "replayed", "duplicate_external_id", "created"]);
        assert_eq!(first[1]["task"]["created"], true);
        let again = results(&api, &articles).await;
        assert_eq!(fates(&again), ["replayed", "replayed", "duplicate_external_id", "replayed"]);
        assert_eq!(again[0]["task"]["created"], true);
        // The same key as a header says the same.
        let mut alone = articles[0].clone();
        alone.as_object_mut().unwrap().remove("idempotency_key");
        assert_eq!(api.publish_as("k1", &alone).await.ok()["created"], true);
        api.publish(&articles[0]).await.problem(422, "validation_failed");
        for (bad, code) in [
            (json!(""), "blank"),
            (json!("a b"), "bad_format"),
            (json!("x".repeat(256)), "too_long"),
            (json!(1), "wrong_type"),
        ] {
            let result = results(&api, &[article_with("c", json!({"idempotency_key": bad}))]).await.remove(0);
            let error = &result["problem"]["errors"][0];
            assert_eq!((&error["pointer"], &error["code"]), (&json!("/idempotency_key"), &json!(code)));
        }
    })
    .await;
}

#[tokio::test]
async fn without_the_database_every_article_is_answered_as_unavailable_soon() {
    in_world(async |world: &World| {
        let api = world.start().await;
        let mut holder = world.pool.begin().await.unwrap();
        sqlx::query("LOCK TABLE tasks IN ACCESS EXCLUSIVE MODE").execute(&mut *holder).await.unwrap();
        let mut articles =
            (0..499).map(|n| article_with(&format!("post-{n}"), json!({"draft": true}))).collect::<Vec<_>>();
        // A second one is not tried when the first may be stored or not.
        articles.push(articles[0].clone());
        let begun = world.clock.instant();
        let lost = results(&api, &articles).await;
        let took = world.clock.instant() - begun;
        assert!(
            lost.iter()
                .all(|result| result["http_status"] == 503 && result["problem"]["code"] == "unavailable")
        );
        assert!(took < Duration::from_secs(4), "{took:?}");
        holder.rollback().await.unwrap();
        let again = results(&api, &articles).await;
        assert!(again.iter().all(|result| result["http_status"] == 200));
        assert_eq!(world.number("SELECT count(*) FROM tasks").await, 499);
    })
    .await;
}
