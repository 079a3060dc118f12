//! What callers may rely on, asked of the running service.

use axum::http::Method;
use chrono::{SecondsFormat, TimeDelta};
use publish_ingest::clock::Clock;
use publish_ingest::tenant::{ApiKey, Scope};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::{
    Api, BOTH, EMPTY, ONE, World, article, article_with, in_world, redacted, task_path, within,
};
use crate::receiver::{Received, Receiver};

const KEY: &str = "idempotency-key";

#[tokio::test]
async fn an_article_is_accepted_published_and_called_back() {
    in_world(async |world: &World| {
        let receiver = Receiver::start([]).await;
        let api = world.start().await;
        let full = json!({"external_id": "post-1", "group_code": BOTH, "title": "A title",
            "content_html": "<p>Text</p>", "summary": "Short", "cover_url": "https://img.example/a.png",
            "canonical_url": "https://first.example/a", "author": "Ann", "tags": ["b", "a"],
            "callback_url": receiver.url, "metadata": {"row": 7}});
        let reply = api.publish(&full).await;
        insta::assert_json_snapshot!("publish_answer", redacted(&reply.ok()));
        assert_eq!(reply.header("idempotent-replayed"), None);
        let task = api.finished("post-1").await;
        insta::assert_json_snapshot!("task", redacted(&task));
        assert_eq!((world.pages("blog1").len(), world.pages("blog2").len()), (1, 1));

        let got = receiver.first(2).await;
        let mut told = got.iter().map(Received::json).collect::<Vec<_>>();
        told.sort_by_key(|event| event["sequence"].as_i64());
        let mut event = redacted(&told[0]);
        // Which of the two ends first is chance.
        for member in ["account_id", "dedupe_key", "url"] {
            event[member] = event[member].as_str().unwrap().replace("blog2", "blog1").into();
        }
        insta::assert_json_snapshot!("event_of_one_of_two", event);
        assert_eq!(told[0]["task_status"], "running");
        assert_eq!((&told[1]["task_status"], &told[1]["sequence"]), (&json!("success"), &json!(2)));
        for publication in task["publications"].as_array().unwrap() {
            assert!(told.iter().any(|event| event["url"] == publication["url"]), "{told:?}");
        }
        for one in &got {
            api.tried(&one.header("webhook-id"), 1).await;
        }
    })
    .await;
}

#[tokio::test]
async fn the_history_of_a_task_answers_whether_it_was_sent_twice() {
    in_world(async |world: &World| {
        let receiver = Receiver::start([]).await;
        let api = world.start().await;
        api.publish(&article_with("post-1", json!({"callback_url": receiver.url}))).await.ok();
        let event_id = receiver.first(1).await[0].header("webhook-id");
        let callback = api.tried(&event_id, 1).await;
        insta::assert_json_snapshot!("callback", redacted(&callback));
        let history = api.get(&format!("{}/history", task_path("post-1"))).await.ok();
        insta::assert_json_snapshot!("history", redacted(&history));
        api.get("/tasks/none/history").await.problem(404, "not_found");
    })
    .await;
}

#[tokio::test]
async fn the_same_article_again_is_the_same_task_whatever_its_state() {
    in_world(async |world: &World| {
        let api = world.start().await;
        let first = api.publish(&article("a")).await.ok();
        assert_eq!((&first["created"], &first["status"]), (&json!(true), &json!("submitted")));
        let done = api.finished("a").await;
        let reply = api.publish(&article("a")).await;
        assert_eq!(reply.header("idempotent-replayed"), Some("true"));
        let again = reply.ok();
        assert_eq!(again["created"], false);
        assert_eq!(again["task_id"], first["task_id"]);
        assert_eq!((&again["status"], &again["counts"]["success"]), (&json!("success"), &json!(1)));
        assert_eq!(again["publications"][0]["url"], done["publications"][0]["url"]);
        assert_eq!((&again["content_changed"], &again["changed_fields"]), (&json!(false), &json!([])));
        assert_eq!((&again["warnings"], &again["submitted_at"]), (&json!([]), &first["submitted_at"]));
        assert_eq!(world.number("SELECT count(*) FROM events").await, 1);
        assert_eq!(world.pages("blog1").len(), 1);
    })
    .await;
}

fn codes(answer: &Value) -> Vec<&str> {
    answer["warnings"].as_array().unwrap().iter().map(|warning| warning["code"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn other_content_under_an_id_is_named_and_not_taken() {
    in_world(async |world: &World| {
        let api = world.start().await;
        let stored = article_with("a", json!({"tags": ["x"], "author": "Ann"}));
        api.publish(&stored).await.ok();
        let changes = [
            ("title", json!("Other")),
            ("content_html", json!("<p>other</p>")),
            ("summary", json!("s")),
            ("cover_url", json!("https://img.example/b.png")),
            ("canonical_url", json!("https://first.example/b")),
            ("author", Value::Null),
            ("tags", json!(["x", "y"])),
        ];
        for (field, value) in &changes {
            let mut other = stored.clone();
            other[field] = value.clone();
            let answer = api.publish(&other).await.ok();
            assert_eq!(answer["changed_fields"], json!([field]));
            assert_eq!((&answer["content_changed"], codes(&answer)), (&json!(true), vec!["content_changed"]));
        }
        let mut all = stored.clone();
        all.as_object_mut().unwrap().extend(changes.map(|(field, value)| (field.to_owned(), value)));
        assert_eq!(api.publish(&all).await.ok()["changed_fields"].as_array().unwrap().len(), 7);
        let task = api.get("/tasks/a?include=content").await.ok();
        assert_eq!((&task["title"], &task["content_html"]), (&json!("About a"), &json!("<p>a</p>")));
        assert_eq!((&task["tags"], &task["author"]), (&json!(["x"]), &json!("Ann")));
    })
    .await;
}

#[tokio::test]
async fn other_options_are_named_and_only_if_they_are_sent() {
    in_world(async |world: &World| {
        let api = world.start().await;
        let at = (world.clock.now() + TimeDelta::hours(1)).to_rfc3339_opts(SecondsFormat::Nanos, true);
        let options = json!({"callback_url": "http://127.0.0.1:2/a", "publish_at": at, "draft": true,
            "metadata": {"a": 1, "b": 2}});
        api.publish(&article_with("a", options.clone())).await.ok();
        let unchanged = [options, json!({}), json!({"metadata": {"b": 2, "a": 1}})];
        for same in unchanged {
            assert_eq!(api.publish(&article_with("a", same)).await.ok()["changed_fields"], json!([]));
        }
        for (field, value) in [
            ("group_code", json!(BOTH)),
            ("callback_url", json!("http://127.0.0.1:2/b")),
            ("publish_at", json!("2031-01-01T00:00:00Z")),
            ("draft", json!(false)),
            ("metadata", json!({"a": 1})),
        ] {
            let answer = api.publish(&article_with("a", json!({field: value}))).await.ok();
            assert_eq!(answer["changed_fields"], json!([field]));
            assert_eq!(
                (&answer["content_changed"], codes(&answer)),
                (&json!(false), vec!["options_ignored"])
            );
            assert_eq!(answer["status"], "draft");
        }
        let both = article_with("a", json!({"title": "Other", "draft": false}));
        assert_eq!(api.publish(&both).await.ok()["changed_fields"], json!(["title", "draft"]));
    })
    .await;
}

#[tokio::test]
async fn strict_mode_refuses_a_duplicate_and_shows_the_task() {
    in_world(async |world: &World| {
        let api = world.start().await;
        let strict = article_with("a", json!({"on_duplicate": "reject"}));
        let first = api.publish(&strict).await.ok();
        assert_eq!(first["created"], true);
        let body = api.publish(&strict).await.problem(409, "duplicate_external_id");
        assert_eq!((&body["task"]["task_id"], &body["task"]["created"]), (&first["task_id"], &json!(false)));
        assert!(body["hint"].as_str().unwrap().contains("Idempotency-Key"), "{body}");
        let other = article_with("a", json!({"on_duplicate": "reject", "title": "Other"}));
        let body = api.publish(&other).await.problem(409, "duplicate_external_id");
        assert_eq!(body["task"]["changed_fields"], json!(["title"]));
        assert_eq!(api.publish(&article("a")).await.ok()["created"], false);
    })
    .await;
}

#[tokio::test]
async fn who_sends_the_creators_idempotency_key_gets_the_creators_answer() {
    in_world(async |world: &World| {
        let api = world.start().await;
        for mode in ["return", "reject"] {
            let body = article_with(mode, json!({"on_duplicate": mode}));
            let first = api.publish_as("k1", &body).await;
            assert_eq!(
                (first.ok()["created"].clone(), first.header("idempotent-replayed")),
                (json!(true), None)
            );
            let again = api.publish_as("k1", &body).await;
            assert_eq!(again.header("idempotent-replayed"), Some("true"));
            assert_eq!(again.ok()["created"], true);
            assert_eq!(again.ok()["task_id"], first.ok()["task_id"]);
            let mut other = body.clone();
            other["title"] = json!("Other");
            let other = api.publish_as("k1", &other).await.ok();
            assert_eq!((&other["created"], &other["content_changed"]), (&json!(true), &json!(true)));
            for reply in [api.publish_as("k2", &body).await, api.publish(&body).await] {
                if mode == "reject" {
                    reply.problem(409, "duplicate_external_id");
                } else {
                    assert_eq!(reply.ok()["created"], false);
                }
            }
        }
        // A task that was created without a key is nobody's who sends one.
        api.publish(&article("plain")).await.ok();
        assert_eq!(api.publish_as("k1", &article("plain")).await.ok()["created"], false);
        let longest = "~".repeat(255);
        api.publish_as(&longest, &article("long")).await.ok();
        for bad in ["", "a b", &"x".repeat(256)] {
            api.publish_as(bad, &article("bad")).await.problem(400, "invalid_header");
        }
        let twice = api.publishing(article("bad").to_string()).header(KEY, "a").header(KEY, "a");
        api.send(twice).await.problem(400, "invalid_header");
        api.task("bad").await.problem(404, "not_found");
    })
    .await;
}

#[tokio::test]
async fn ids_that_look_alike_in_unicode_are_one() {
    in_world(async |world: &World| {
        let api = world.start().await;
        let (decomposed, composed) = ("cafe\u{301}", "caf\u{e9}");
        let first = api.publish(&article(decomposed)).await.ok();
        assert_eq!(first["external_id"], composed);
        let again = api
            .publish(&article_with(
                composed,
                json!({"title": format!("About {decomposed}"),
            "content_html": format!("<p>{decomposed}</p>")}),
            ))
            .await
            .ok();
        assert_eq!((&again["created"], &again["task_id"]), (&json!(false), &first["task_id"]));
        for spelling in [decomposed, composed] {
            assert_eq!(api.task(spelling).await.ok()["task_id"], first["task_id"]);
        }
        // Case and compatibility forms tell ids apart.
        for other in ["Caf\u{e9}", "cafe"] {
            assert_eq!(api.publish(&article(other)).await.ok()["created"], true);
        }
    })
    .await;
}

#[tokio::test]
async fn any_unicode_id_is_found_again_percent_encoded() {
    in_world(async |world: &World| {
        let api = world.start().await;
        let longest = "😀".repeat(200);
        let ids = [
            "a/b//c/",
            "/",
            "100%",
            "%2F",
            "%2e%2e",
            "a b",
            "?q=1",
            "#top",
            "a&b=c+d",
            "...",
            "\\",
            "😀 日本語",
            "'\"<>",
            "history",
            "a/history",
            &longest,
        ];
        for id in ids {
            let draft = article_with(id, json!({"draft": true}));
            let created = api.publish(&draft).await.ok();
            assert_eq!(created["created"], true, "{id}");
            let task = api.task(id).await.ok();
            assert_eq!((&task["external_id"], &task["task_id"]), (&json!(id), &created["task_id"]));
            let history = api.get(&format!("{}/history", task_path(id))).await.ok();
            assert_eq!(history["entries"][0]["kind"], "accepted", "{id}");
        }
        for never in ["\u{7}", " a", "x".repeat(201).as_str(), "%FF"] {
            api.task(never).await.problem(404, "not_found");
        }
        api.get("/tasks/%FF").await.problem(404, "not_found");
    })
    .await;
}

#[tokio::test]
async fn content_is_returned_when_asked_for() {
    in_world(async |world: &World| {
        let api = world.start().await;
        let html = "<p>ünï 😀 &amp; <b>bold</b></p>\r\n\t";
        api.publish(&article_with("a", json!({"content_html": html}))).await.ok();
        assert_eq!(api.task("a").await.ok().get("content_html"), None);
        assert_eq!(api.get("/tasks/a?include=content").await.ok()["content_html"], html);
    })
    .await;
}

#[tokio::test]
async fn what_cannot_be_read_is_refused_by_name() {
    in_world(async |world: &World| {
        let api = world.start().await;
        for path in ["/tasks/a?include=everything", "/tasks/a?includ=content", "/tasks/a/history?limit=1"] {
            api.get(path).await.problem(400, "invalid_query");
        }
        let body = api.get("/tasks/a?wrong=1").await.problem(400, "invalid_query");
        assert!(body["detail"].as_str().unwrap().contains("\"wrong\""), "{body}");
        let query = api.request(Method::POST, "/publish?dry=1").body("{}");
        api.send(query).await.problem(400, "invalid_query");
        for path in ["/", "/nothing", "/tasks/a/b/c", "/tasks//"] {
            api.get(path).await.problem(404, "not_found");
        }
        for (method, path, allowed) in [
            (Method::GET, "/publish", "POST"),
            (Method::DELETE, "/tasks/a", "GET,HEAD,PATCH"),
            (Method::PUT, "/healthz", "GET,HEAD"),
        ] {
            let reply = api.send(api.request(method, path)).await;
            reply.problem(405, "method_not_allowed");
            assert_eq!(reply.header("allow"), Some(allowed), "{path}");
        }
        for media_type in ["text/plain", "application/x-www-form-urlencoded", ""] {
            let request = api.request(Method::POST, "/publish").header("content-type", media_type);
            api.send(request.body(article("a").to_string())).await.problem(415, "unsupported_media_type");
        }
        let with_charset = api.request(Method::POST, "/publish");
        let with_charset = with_charset.header("content-type", "application/json; charset=utf-8");
        api.send(with_charset.body(article("charset").to_string())).await.ok();
        let duplicated = r#"{"external_id": "a", "title": "1", "title": "2"}"#;
        let deep = r#"{"external_id": "a", "metadata": {"x": {"y": 1, "y": 2}}}"#;
        for body in ["", "{", "nope", "\u{0}", duplicated, deep] {
            api.send(api.publishing(body.to_owned())).await.problem(400, "invalid_json");
        }
        api.send(api.publishing(vec![b'{', b'"', 0xff, b'"', b':', b'1', b'}']))
            .await
            .problem(400, "invalid_json");
        let nested = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        for body in [&nested, &format!(r#"{{"tags": {nested}}}"#), &format!(r#"{{"draft": {nested}}}"#)] {
            let refused = api.send(api.publishing(body.clone())).await.status;
            assert!([400, 422].contains(&refused), "{refused}");
        }
        assert_eq!(world.number("SELECT count(*) FROM tasks").await, 1);
    })
    .await;
}

#[tokio::test]
async fn fields_that_break_rules_are_named_all_at_once() {
    in_world(async |world: &World| {
        let api = world.start().await;
        let body = json!({"external_id": " a", "group_code": "no blanks", "title": "", "callback_ulr": "x",
            "summary": "s".repeat(1001), "tags": [1], "draft": "yes", "publish_at": "tomorrow"});
        let problem = api.publish(&body).await.problem(422, "validation_failed");
        let mut errors = problem["errors"]
            .as_array()
            .unwrap()
            .iter()
            .map(|error| {
                format!("{} {}", error["pointer"].as_str().unwrap(), error["code"].as_str().unwrap())
            })
            .collect::<Vec<_>>();
        errors.sort();
        assert_eq!(
            errors,
            [
                "/callback_ulr unknown_field",
                "/content_html required",
                "/draft wrong_type",
                "/external_id bad_format",
                "/group_code bad_format",
                "/publish_at bad_format",
                "/summary too_long",
                "/tags/0 wrong_type",
                "/title blank",
            ]
        );
        assert_eq!(world.number("SELECT count(*) FROM tasks").await, 0);
    })
    .await;
}

#[tokio::test]
async fn a_body_over_the_limit_gets_an_answer_and_no_reset() {
    in_world(async |world: &World| {
        let api = world.start().await;
        let of_size = |size: usize| {
            let empty = article_with("big", json!({"content_html": ""})).to_string().len();
            article_with("big", json!({"content_html": "x".repeat(size - empty)})).to_string()
        };
        let limit = world.plan().body_limit;
        for size in [limit + 1, 3 * 1024 * 1024] {
            api.send(api.publishing(of_size(size))).await.problem(413, "payload_too_large");
        }
        // A caller that reads only when it has sent everything, as many do.
        let address = api.base.strip_prefix("http://").unwrap();
        let body = of_size(8 * 1024 * 1024);
        let head = format!(
            "POST /publish HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            api.key,
            body.len()
        );
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        within("sending", stream.write_all(body.as_bytes())).await.unwrap();
        let mut answer = String::new();
        within("the answer", stream.read_to_string(&mut answer)).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("payload_too_large"), "{answer}");
        assert_eq!(api.send(api.publishing(of_size(limit))).await.ok()["created"], true);
    })
    .await;
}

#[tokio::test]
async fn a_key_opens_its_scopes_and_nothing_else() {
    in_world(async |world: &World| {
        let receiver = Receiver::start([]).await;
        let api = world.start().await;
        let tenant_id = world.tenant.tenant_id;
        let publisher = api.with_key(&world.key(tenant_id, &[Scope::Publish]).await);
        let reader = api.with_key(&world.key(tenant_id, &[Scope::Read]).await);
        let manager = api.with_key(&world.key(tenant_id, &[Scope::Manage]).await);
        publisher.publish(&article_with("a", json!({"callback_url": receiver.url}))).await.ok();
        let event_id = receiver.first(1).await[0].header("webhook-id");
        let callback = format!("/callbacks/{event_id}");
        for api in [&reader, &manager] {
            api.publish(&article("b")).await.problem(403, "forbidden");
        }
        for path in ["/tasks/a", "/tasks/a/history", &callback] {
            reader.get(path).await.ok();
            for api in [&publisher, &manager] {
                api.get(path).await.problem(403, "forbidden");
            }
        }
        let nobody = api.with_key("pik_nonsense");
        let stranger = api.with_key(ApiKey::generate(tenant_id, &*world.clock).expose());
        for api in [&nobody, &stranger] {
            let reply = api.get("/tasks/a").await;
            reply.problem(401, "unauthorized");
            assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
            // Before anything of the body.
            api.send(api.publishing("{")).await.problem(401, "unauthorized");
        }
        let revoked = world.store.keys().await.unwrap();
        for key in revoked {
            world.store.revoke_key(key.key_id).await.unwrap();
        }
        world.advance(5);
        api.get("/tasks/a").await.problem(401, "unauthorized");
        api.get("/healthz").await.ok();
    })
    .await;
}

#[tokio::test]
async fn nothing_crosses_tenants() {
    in_world(async |world: &World| {
        let receiver = Receiver::start([]).await;
        let api = world.start().await;
        let other = world.another_tenant("other").await;
        let theirs = api.with_key(&world.key(other.tenant_id, &Scope::ALL).await);
        let first = api.publish(&article_with("a", json!({"callback_url": receiver.url}))).await.ok();
        let event_id = receiver.first(1).await[0].header("webhook-id");
        api.tried(&event_id, 1).await;
        for path in ["/tasks/a", "/tasks/a/history", &format!("/callbacks/{event_id}")] {
            theirs.get(path).await.problem(404, "not_found");
        }
        let second = theirs.publish(&article("a")).await.ok();
        assert_eq!(second["created"], true);
        assert_ne!(second["task_id"], first["task_id"]);
        // The same content of another tenant is not spoken of.
        assert_eq!(second["warnings"], json!([]));
        assert_eq!(theirs.finished("a").await["publications"][0]["status"], "success");
    })
    .await;
}

#[tokio::test]
async fn an_existing_id_is_answered_whatever_became_of_its_group() {
    in_world(async |world: &World| {
        let api = world.start().await;
        let first = api.publish(&article("a")).await.ok();
        api.finished("a").await;
        world.group(world.tenant.tenant_id, ONE, &[]).await;
        assert_eq!(api.publish(&article("a")).await.ok()["task_id"], first["task_id"]);
        api.publish(&article("b")).await.problem(422, "empty_group");
        world.execute("DELETE FROM groups").await;
        let again = api.publish(&article("a")).await.ok();
        assert_eq!((&again["created"], &again["task_id"]), (&json!(false), &first["task_id"]));
        let elsewhere = api.publish(&article_with("a", json!({"group_code": "gone"}))).await.ok();
        assert_eq!(elsewhere["changed_fields"], json!(["group_code"]));
        api.publish(&article("b")).await.problem(422, "unknown_group");
        api.task("b").await.problem(404, "not_found");
    })
    .await;
}

#[tokio::test]
async fn an_unknown_or_empty_group_stores_nothing() {
    in_world(async |world: &World| {
        let api = world.start().await;
        for (group, code) in [("nowhere", "unknown_group"), (EMPTY, "empty_group")] {
            let body = api.publish(&article_with("a", json!({"group_code": group}))).await.problem(422, code);
            assert!(body["detail"].as_str().unwrap().contains(group), "{body}");
        }
        assert_eq!(
            world.number("SELECT (SELECT count(*) FROM tasks) + (SELECT count(*) FROM articles)").await,
            0
        );
        // The id is still free.
        assert_eq!(api.publish(&article("a")).await.ok()["created"], true);
    })
    .await;
}

#[tokio::test]
async fn suspicious_ids_and_repeated_content_are_remarked_on() {
    in_world(async |world: &World| {
        let api = world.start().await;
        let same = json!({"title": "T", "content_html": "<p>same</p>"});
        assert_eq!(codes(&api.publish(&article_with("one", same.clone())).await.ok()), [""; 0]);
        let copy = api.publish(&article_with("two", same.clone())).await.ok();
        assert_eq!((&copy["created"], codes(&copy)), (&json!(true), vec!["same_content_as"]));
        assert_eq!(copy["warnings"][0]["external_id"], "one");
        let mut elsewhere = article_with("three", same);
        elsewhere["group_code"] = json!(BOTH);
        assert_eq!(api.publish(&elsewhere).await.ok()["warnings"], json!([]));
        let clock = api.publish(&article("1735689600")).await.ok();
        assert_eq!(codes(&clock), ["external_id_looks_like_timestamp"]);
        assert_eq!(codes(&api.publish(&article("1735689600")).await.ok()), codes(&clock));
    })
    .await;
}

#[tokio::test]
async fn nothing_is_published_before_publish_at() {
    in_world(async |world: &World| {
        let api = world.start().await;
        let at = |delta: TimeDelta| json!({"publish_at": (world.clock.now() + delta).to_rfc3339()});
        api.publish(&article_with("later", at(TimeDelta::hours(1)))).await.ok();
        api.publish(&article_with("past", at(TimeDelta::days(-400)))).await.ok();
        api.finished("past").await;
        let waiting = api.task("later").await.ok();
        assert_eq!(
            (&waiting["status"], &waiting["publications"][0]["attempts"]),
            (&json!("submitted"), &json!(0))
        );
        assert_eq!(waiting["publish_at"], waiting["publications"][0]["due_at"]);
        world.advance(3500);
        api.publish(&article("meanwhile")).await.ok();
        api.finished("meanwhile").await;
        assert_eq!(api.task("later").await.ok()["status"], "submitted");
        world.advance(101);
        assert_eq!(api.finished("later").await["status"], "success");
    })
    .await;
}

#[tokio::test]
async fn a_draft_stays_a_draft() {
    in_world(async |world: &World| {
        let api = world.start().await;
        let draft = article_with("draft", json!({"draft": true, "group_code": BOTH}));
        let first = api.publish(&draft).await.ok();
        assert_eq!((&first["status"], &first["submitted_at"]), (&json!("draft"), &Value::Null));
        assert_eq!(first["counts"]["draft"], 2);
        world.advance(1_000_000);
        api.publish(&article("other")).await.ok();
        api.finished("other").await;
        let task = api.task("draft").await.ok();
        assert_eq!(
            (&task["status"], &task["submitted_at"], &task["finished_at"]),
            (&json!("draft"), &Value::Null, &Value::Null)
        );
        assert_eq!(api.publish(&draft).await.ok()["status"], "draft");
    })
    .await;
}

#[tokio::test]
async fn metadata_comes_back_as_it_was_sent() {
    in_world(async |world: &World| {
        let receiver = Receiver::start([]).await;
        let api = world.start().await;
        let metadata = r#"{"z": 1.0, "a":[1e3, 12345678901234567890123], "é":"\u00e9", "n":null}"#;
        let body = format!(
            r#"{{"external_id":"a","group_code":"{ONE}","title":"T","content_html":"<p>x</p>","callback_url":"{}",
            "metadata":{metadata}}}"#,
            receiver.url
        );
        api.send(api.publishing(body)).await.ok();
        assert!(api.task("a").await.text.contains(metadata));
        let got = receiver.first(1).await;
        assert!(std::str::from_utf8(&got[0].body).unwrap().contains(metadata));
        let event_id = got[0].header("webhook-id");
        let callback = api.get(&format!("/callbacks/{event_id}")).await;
        assert!(callback.text.contains(std::str::from_utf8(&got[0].body).unwrap()), "{callback:?}");
        api.tried(&event_id, 1).await;
        let bounds = [(4_096, 200), (4_097, 422)];
        for (bytes, status) in bounds {
            let metadata = json!({"k": "x".repeat(bytes - r#"{"k":""}"#.len())});
            let reply = api.publish(&article_with(&format!("m{bytes}"), json!({"metadata": metadata}))).await;
            assert_eq!(reply.status, status, "{bytes}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_callback_url_that_may_not_be_called_is_refused_at_the_door() {
    in_world(async |world: &World| {
        let api = world.start().await;
        let mut plan = world.plan();
        plan.policy.allow_http = false;
        let strict = world.start_with(plan).await;
        let sent =
            async |api: &Api, url: &str| api.publish(&article_with("a", json!({"callback_url": url}))).await;
        for (url, code) in [
            ("http://10.0.0.1/", "not_allowed"),
            ("http://[::1]/", "not_allowed"),
            ("http://169.254.169.254/latest", "not_allowed"),
            ("http://2130706433.example:x/", "bad_format"),
            ("ftp://a.example/", "bad_format"),
            ("/relative", "bad_format"),
            ("https://u:p@a.example/", "not_allowed"),
        ] {
            let problem = sent(&api, url).await.problem(422, "validation_failed");
            assert_eq!(problem["errors"][0]["pointer"], "/callback_url", "{problem}");
            assert_eq!(problem["errors"][0]["code"], code, "{problem}");
        }
        sent(&strict, "http://127.0.0.1:2/").await.problem(422, "validation_failed");
        assert_eq!(world.number("SELECT count(*) FROM tasks").await, 0);
        assert_eq!(sent(&strict, "https://127.0.0.1:2/x").await.ok()["created"], true);
        assert_eq!(api.task("a").await.ok()["callback_url"], "https://127.0.0.1:2/x");
    })
    .await;
}

#[tokio::test]
async fn every_answer_names_its_request() {
    in_world(async |world: &World| {
        let api = world.start().await;
        let named = |id: &str| api.request(Method::GET, "/tasks/none").header("x-request-id", id);
        let reply = api.send(named("018f-abc_1.x")).await;
        assert_eq!(reply.header("x-request-id"), Some("018f-abc_1.x"));
        reply.problem(404, "not_found");
        for bad in ["a b", "a\"b", &"x".repeat(129)] {
            let given = api.send(named(bad)).await.header("x-request-id").unwrap().to_owned();
            assert!(given.parse::<uuid::Uuid>().is_ok(), "{given}");
        }
        for path in ["/healthz", "/readyz", "/openapi.json"] {
            api.get(path).await.ok();
        }
    })
    .await;
}
