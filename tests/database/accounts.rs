//! Accounts as callers manage them: what they look like, what is refused, and what is never shown.

use publish_ingest::account::{ACCOUNTS_MAX, AccountInput, AccountKey, Credentials};
use publish_ingest::store::{AccountPut, Terms, Unfinished};
use publish_ingest::tenant::Scope;
use serde_json::{Value, json};

use crate::harness::{Api, ONE, World, account_input, article, article_with, in_world, redacted, task_path};

const BLOG: &str = "/accounts/static_site/blog";

fn errors(body: &Value) -> Vec<(&str, &str)> {
    let errors = body["errors"].as_array().unwrap();
    errors.iter().map(|e| (e["pointer"].as_str().unwrap(), e["code"].as_str().unwrap())).collect()
}

#[tokio::test]
async fn an_account_is_put_shown_and_replaced() {
    in_world(async |world: &World| {
        let api = world.start().await;
        let full = json!({"display_name": "My blog", "settings": {"site": "blog"}, "min_interval_seconds": 60,
            "max_in_flight": 2, "daily_limit": 10, "time_zone": "Asia/Shanghai"});
        let put = api.put(BLOG, &full).await.ok();
        insta::assert_json_snapshot!("account_put", redacted(&put));
        let mut shown = put.clone();
        shown.as_object_mut().unwrap().retain(|name, _| name != "resumed" && name != "left");
        assert_eq!(api.get(BLOG).await.ok(), shown);
        let all = api.get("/accounts").await.ok();
        let ids =
            all["accounts"].as_array().unwrap().iter().map(|account| account["account_id"].as_str().unwrap());
        assert_eq!(ids.collect::<Vec<_>>(), ["blog", "blog1", "blog2"]);
        assert_eq!(all["accounts"][0], shown);
        // What is not sent takes its default.
        world.advance(60);
        let plain = api.put(BLOG, &json!({"settings": {"site": "blog"}})).await.ok();
        assert_eq!((&plain["display_name"], &plain["time_zone"]), (&json!("blog"), &json!("UTC")));
        assert_eq!((&plain["min_interval_seconds"], &plain["max_in_flight"]), (&json!(0), &json!(4)));
        assert_eq!((&plain["daily_limit"], &plain["created_at"]), (&Value::Null, &put["created_at"]));
        assert_ne!(plain["updated_at"], put["updated_at"]);
    })
    .await;
}

#[tokio::test]
async fn an_article_goes_to_an_account_and_a_group_that_were_put() {
    in_world(async |world: &World| {
        let api = world.start().await;
        api.put(BLOG, &json!({"settings": {"site": "blog"}})).await.ok();
        let members = json!({"accounts": [{"platform": "static_site", "account_id": "blog"}]});
        api.put("/groups/mine", &members).await.ok();
        api.publish(&article_with("a", json!({"group_code": "mine"}))).await.ok();
        assert_eq!(api.finished("a").await["status"], "success");
        assert_eq!(world.pages("blog").len(), 1);
    })
    .await;
}

#[tokio::test]
async fn everything_wrong_with_an_account_is_told_at_once() {
    in_world(async |world: &World| {
        let api = world.start().await;
        let bad = json!({"display_name": 7, "max_in_flight": 1_001, "time_zone": "Mars/Olympus", "setings": {},
            "settings": {"site": "../up", "sites": 1}, "credentials": {"token": "quokkamarker"}});
        let reply = api.put(BLOG, &bad).await;
        let body = reply.problem(422, "validation_failed");
        let expected = [
            ("/setings", "unknown_field"),
            ("/display_name", "wrong_type"),
            ("/max_in_flight", "not_allowed"),
            ("/time_zone", "not_allowed"),
            ("/settings/sites", "unknown_field"),
            ("/settings/site", "bad_format"),
            ("/credentials/token", "unknown_field"),
        ];
        assert_eq!(errors(&body), expected);
        assert!(body["errors"][0]["detail"].as_str().unwrap().contains("did you mean \"settings\""), "{body}");
        assert!(!reply.text.contains("quokkamarker"));
        let nothing = api.put(BLOG, &json!({})).await.problem(422, "validation_failed");
        assert_eq!(errors(&nothing), [("/settings/site", "required")]);
        let nul = api.put(BLOG, &json!({"settings": {"site": "a\0b"}})).await.problem(422, "validation_failed");
        assert_eq!(errors(&nul), [("/settings", "not_allowed")]);
        let twice = api.request(axum::http::Method::PUT, BLOG).header("content-type", "application/json");
        let twice = twice.body(r#"{"settings":{"site":"a","site":"b"}}"#);
        api.send(twice).await.problem(400, "invalid_json");
        let large = "x".repeat(600 * 1024);
        api.put(BLOG, &json!({"display_name": large})).await.problem(413, "payload_too_large");
        api.get(BLOG).await.problem(404, "not_found");
        assert_eq!(world.number("SELECT count(*) FROM accounts").await, 2);
    })
    .await;
}

#[tokio::test]
async fn a_path_that_names_no_account_is_told() {
    in_world(async |world: &World| {
        let api = world.start().await;
        let good = json!({"settings": {"site": "blog"}});
        for (path, word) in [
            ("/accounts/Static/blog", "a platform is"),
            ("/accounts/static_site/a%20b", "an account_id is"),
            ("/accounts/static_site/%ff", "is 1–"),
            ("/accounts/unheard_of/blog", "GET /platforms"),
        ] {
            let body = api.put(path, &good).await.problem(422, "validation_failed");
            assert_eq!(body["errors"][0]["pointer"], "", "{body}");
            assert!(body["detail"].as_str().unwrap().contains(word), "{body}");
            api.get(path).await.problem(404, "not_found");
            api.delete(path).await.problem(404, "not_found");
        }
        api.get("/accounts?limit=1").await.problem(400, "invalid_query");
    })
    .await;
}

#[tokio::test]
async fn each_call_needs_its_scope_and_nothing_crosses_tenants() {
    in_world(async |world: &World| {
        let api = world.start().await;
        let tenant_id = world.tenant.tenant_id;
        let with = async |scope| api.with_key(&world.key(tenant_id, &[scope]).await);
        let (publisher, reader, manager) =
            (with(Scope::Publish).await, with(Scope::Read).await, with(Scope::Manage).await);
        let (account, group) = (json!({"settings": {"site": "blog"}}), json!({"accounts": []}));
        let put = async |api: &Api| {
            (api.put(BLOG, &account).await.status, api.put("/groups/mine", &group).await.status)
        };
        assert_eq!(put(&publisher).await, (403, 403));
        assert_eq!(put(&reader).await, (403, 403));
        assert_eq!(put(&manager).await, (200, 200));
        for path in [BLOG, "/accounts", "/groups/mine", "/groups", "/platforms"] {
            reader.get(path).await.ok();
            for api in [&publisher, &manager] {
                api.get(path).await.problem(403, "forbidden");
            }
        }
        for path in [BLOG, "/groups/mine"] {
            for api in [&publisher, &reader] {
                api.delete(path).await.problem(403, "forbidden");
            }
        }
        for api in [&publisher, &reader] {
            api.get("/signing-secrets").await.problem(403, "forbidden");
        }
        let secrets = manager.get("/signing-secrets").await;
        assert_eq!(secrets.header("cache-control"), Some("no-store"));
        let expected = json!({
            "secrets": [{"secret": *world.secret.expose(), "expires_at": null}],
            "public_keys": [], "public_keys_path": null,
        });
        assert_eq!(secrets.ok(), expected);

        let other = world.another_tenant("other").await;
        let theirs = api.with_key(&world.key(other.tenant_id, &Scope::ALL).await);
        for path in [BLOG, "/groups/mine"] {
            theirs.get(path).await.problem(404, "not_found");
            theirs.delete(path).await.problem(404, "not_found");
        }
        assert_ne!(theirs.get("/signing-secrets").await.ok(), expected);
        let foreign = json!({"accounts": [{"platform": "static_site", "account_id": "blog"}]});
        let body = theirs.put("/groups/mine", &foreign).await.problem(422, "validation_failed");
        assert_eq!(errors(&body), [("/accounts/0", "not_allowed")]);
        assert!(!theirs.get("/accounts").await.text.contains("\"blog\""));
        // The same names are other things there.
        theirs.put(BLOG, &account).await.ok();
        assert_eq!(theirs.delete(BLOG).await.status, 204);
        reader.get(BLOG).await.ok();
    })
    .await;
}

#[tokio::test]
async fn the_platforms_say_what_they_need() {
    in_world(async |world: &World| {
        let api = world.start().await;
        let platforms = api.get("/platforms").await.ok();
        let mut site = platforms["platforms"].as_array().unwrap().iter();
        let site = site.find(|one| one["platform"] == "static_site").unwrap();
        insta::assert_json_snapshot!("static_site", site);
    })
    .await;
}

#[tokio::test]
async fn credentials_are_sealed_and_never_shown() {
    const MARKER: &str = "quokkamarker";
    in_world(async |world: &World| {
        let tenant_id = world.tenant.tenant_id;
        let key = AccountKey::new("static_site", "blog1").unwrap();
        let credentials = Credentials::new(json!({"token": MARKER}));
        let input = AccountInput { credentials: Some(credentials.clone()), ..account_input("blog1") };
        let put = world.put_account(tenant_id, "static_site", "blog1", &input).await;
        let row = world.text("SELECT (a.*)::text FROM accounts a WHERE account_id = 'blog1'").await;
        assert!(!format!("{put:?} {input:?} {key:?} {row}").contains(MARKER), "{row}");
        let sealed: Vec<u8> =
            sqlx::query_scalar("SELECT credentials_sealed FROM accounts WHERE account_id = 'blog1'")
                .fetch_one(&world.pool)
                .await
                .unwrap();
        assert!(!sealed.windows(MARKER.len()).any(|window| window == MARKER.as_bytes()));
        let stored = world.store.credentials(tenant_id, &key, &world.vault).await.unwrap();
        assert_eq!(stored, Some(credentials));

        let api = world.start().await;
        let path = "/accounts/static_site/blog1";
        for reply in [api.get(path).await, api.get("/accounts").await] {
            reply.ok();
            assert!(!reply.text.contains(MARKER) && !reply.text.contains("sealed"), "{}", reply.text);
        }
        assert_eq!(api.get(path).await.ok()["credentials_set"], true);
        assert_eq!(api.get("/accounts/static_site/blog2").await.ok()["credentials_set"], false);
        // The platform takes none, and says so without saying what they are.
        let reply = api.put(path, &json!({"settings": {"site": "blog1"}})).await;
        assert_eq!(
            errors(&reply.problem(422, "validation_failed")),
            [("/credentials/token", "unknown_field")]
        );
        assert!(!reply.text.contains(MARKER), "{}", reply.text);

        // Moved to another row, they cannot be opened there, and the answer says no more than that.
        world
            .execute(
                "UPDATE accounts SET credentials_sealed = (SELECT credentials_sealed FROM accounts
            WHERE account_id = 'blog1') WHERE account_id = 'blog2'",
            )
            .await;
        let other = AccountKey::new("static_site", "blog2").unwrap();
        let error = world.store.credentials(tenant_id, &other, &world.vault).await.unwrap_err();
        assert!(error.to_string().contains("another row"), "{error}");
        // Those that are sent replace them, in all places.
        api.put(path, &json!({"settings": {"site": "blog1"}, "credentials": {}})).await.ok();
        let stored = world.store.credentials(tenant_id, &key, &world.vault).await.unwrap();
        assert_eq!(stored.unwrap().expose(), &json!({}));
    })
    .await;
}

#[tokio::test]
async fn an_account_is_deleted_when_nothing_of_it_is_unfinished() {
    in_world(async |world: &World| {
        let api = world.start().await;
        let path = "/accounts/static_site/blog1";
        api.publish(&article_with("draft", json!({"draft": true}))).await.ok();
        api.publish(&article_with("later", json!({"publish_at": "2099-01-01T00:00:00Z"}))).await.ok();
        let body = api.delete(path).await.problem(409, "conflict");
        let detail = body["detail"].as_str().unwrap();
        assert!(detail.contains("1 draft, 1 submitted;"), "{detail}");
        // Nothing was done by half.
        assert_eq!(api.get("/groups/one").await.ok()["accounts"].as_array().unwrap().len(), 1);

        let path = "/accounts/static_site/blog2";
        api.put("/groups/two", &json!({"accounts": [{"platform": "static_site", "account_id": "blog2"}]}))
            .await
            .ok();
        api.publish(&article_with("a", json!({"group_code": "two"}))).await.ok();
        let task = api.finished("a").await;
        let before =
            world.text("SELECT credentials_version::text FROM accounts WHERE account_id = 'blog2'").await;
        assert_eq!(api.delete(path).await.status, 204);
        for reply in [api.get(path).await, api.delete(path).await] {
            reply.problem(404, "not_found");
        }
        assert_eq!(api.get("/groups/two").await.ok()["accounts"], json!([]));
        assert_eq!(api.get("/groups/both").await.ok()["accounts"].as_array().unwrap().len(), 1);
        api.publish(&article_with("b", json!({"group_code": "two"}))).await.problem(422, "empty_group");
        // What it published stays.
        assert_eq!(api.task("a").await.ok(), task);
        api.get(&format!("{}/history", task_path("a"))).await.ok();
        let members = json!({"accounts": [{"platform": "static_site", "account_id": "blog2"}]});
        api.put("/groups/two", &members).await.problem(422, "validation_failed");

        let again = api.put(path, &json!({"settings": {"site": "elsewhere"}})).await.ok();
        assert_eq!((&again["credentials_set"], &again["login_state"]), (&json!(false), &json!("active")));
        let after =
            world.text("SELECT credentials_version::text FROM accounts WHERE account_id = 'blog2'").await;
        assert_eq!(before, after);
        api.put("/groups/two", &members).await.ok();
        api.publish(&article_with("b", json!({"group_code": "two"}))).await.ok();
        api.finished("b").await;
        assert_eq!(world.pages("elsewhere").len(), 1);
    })
    .await;
}

#[tokio::test]
async fn credentials_of_a_deleted_account_are_forgotten() {
    in_world(async |world: &World| {
        let tenant_id = world.tenant.tenant_id;
        let key = AccountKey::new("static_site", "blog2").unwrap();
        let credentials = Some(Credentials::new(json!({"token": "t"})));
        let input = AccountInput { credentials, ..account_input("blog2") };
        world.put_account(tenant_id, "static_site", "blog2", &input).await;
        world.execute("UPDATE lanes SET login_state = 'login_expired' WHERE account_id = 'blog2'").await;
        world.store.delete_account(tenant_id, &key).await.unwrap();
        assert_eq!(
            world.number("SELECT count(*) FROM accounts WHERE credentials_sealed IS NOT NULL").await,
            0
        );
        // Who counted on them is told, and nothing is stored.
        let kept = Terms { keeps_credentials: true, ..Terms::NONE };
        let put = world.store.put_account(tenant_id, &key, &account_input("blog2"), &world.vault, kept).await;
        assert_eq!(put.unwrap(), publish_ingest::store::AccountPut::Changed);
        assert_eq!(world.store.account(tenant_id, &key).await.unwrap(), None);
        world.put_account(tenant_id, "static_site", "blog2", &account_input("blog2")).await;
        let account = world.store.account(tenant_id, &key).await.unwrap().unwrap();
        assert_eq!((account.credentials_set, &*account.login_state), (false, "active"));
    })
    .await;
}

#[tokio::test]
async fn the_site_of_an_account_stays_while_something_may_be_on_it() {
    in_world(async |world: &World| {
        let tenant_id = world.tenant.tenant_id;
        let key = AccountKey::stored("static_site".to_owned(), "blog1".to_owned());
        let moved = async || {
            let terms = Terms { same_site: &|_| false, ..Terms::NONE };
            let input = account_input("blog1");
            let put = world.store.put_account(tenant_id, &key, &input, &world.vault, terms).await.unwrap();
            match put {
                AccountPut::Unfinished(bound) => Err(bound),
                AccountPut::Done(..) => Ok(()),
                other => panic!("{other:?}"),
            }
        };
        let submitted = Err(Unfinished { submitted: 1, ..Unfinished::default() });
        // What waits for its turn has not been anywhere.
        world.accept(&[world.new_task("a", ONE)]).await;
        assert_eq!(moved().await, Ok(()));
        assert_eq!(world.claim("w").await.len(), 1);
        assert_eq!(moved().await, Err(Unfinished { running: 1, ..Unfinished::default() }));
        // Only looked for, as where the address is mistyped and nobody answers.
        let waits = "UPDATE publications SET status = 'submitted', lease_until = NULL, lease_owner = NULL,
            counted_on = NULL";
        world.execute(waits).await;
        world.execute("UPDATE lanes SET in_flight = 0, day_count = 0").await;
        world
            .execute(
                "INSERT INTO attempts (tenant_id, publication_id, fence, step, kind, round, started_at, ended_at, outcome)
                SELECT tenant_id, publication_id, 1, 0, 'probe', 1, now(), now(), 'unreadable' FROM publications",
            )
            .await;
        assert_eq!(moved().await, Ok(()));
        world.execute("UPDATE attempts SET kind = 'draft', outcome = 'not_published'").await;
        assert_eq!(moved().await, submitted);
    })
    .await;
}

#[tokio::test]
async fn a_site_that_is_wrong_can_be_put_right_before_anything_was_there() {
    in_world(async |world: &World| {
        let api = world.start().await;
        let path = "/accounts/static_site/blog1";
        api.publish(&article_with("later", json!({"publish_at": "2099-01-01T00:00:00Z"}))).await.ok();
        let moved = json!({"settings": {"site": "moved"}});
        assert_eq!(api.put(path, &moved).await.ok()["settings"]["site"], "moved");
    })
    .await;
}

#[tokio::test]
async fn a_shorter_pause_holds_at_once() {
    in_world(async |world: &World| {
        let week = chrono::TimeDelta::weeks(1);
        world.account(world.tenant.tenant_id, "blog1", 4, week).await;
        world.accept(&[world.new_task("a", ONE), world.new_task("b", ONE)]).await;
        assert_eq!(world.claim("w").await.len(), 1);
        world.account(world.tenant.tenant_id, "blog1", 4, chrono::TimeDelta::seconds(10)).await;
        assert_eq!(world.claim("w").await.len(), 0);
        world.advance(11);
        assert_eq!(world.claim("w").await.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_tenant_has_at_most_so_many_accounts() {
    in_world(async |world: &World| {
        world
            .execute(
                "WITH many AS (
                    INSERT INTO accounts (tenant_id, platform, account_id, display_name, settings, created_at, updated_at)
                    SELECT tenant_id, 'static_site', 'many' || n, '', '{}', now(), now()
                    FROM tenants, generate_series(1, 9997) n RETURNING tenant_id, platform, account_id)
                INSERT INTO lanes (tenant_id, platform, account_id, max_in_flight, min_interval, free_at)
                SELECT tenant_id, platform, account_id, 1, '0', now() FROM many",
            )
            .await;
        let api = world.start().await;
        let account = json!({"settings": {"site": "blog"}});
        api.put(BLOG, &account).await.ok();
        let body = api.put("/accounts/static_site/more", &account).await.problem(422, "validation_failed");
        assert!(body["detail"].as_str().unwrap().contains(&ACCOUNTS_MAX.to_string()), "{body}");
        api.put(BLOG, &account).await.ok();
        assert_eq!(api.delete(BLOG).await.status, 204);
        api.put("/accounts/static_site/more", &account).await.ok();
        api.put(BLOG, &account).await.problem(422, "validation_failed");
        assert_eq!(api.get("/accounts").await.ok()["accounts"].as_array().unwrap().len(), ACCOUNTS_MAX);
        api.publish(&article("a")).await.ok();
        api.finished("a").await;
    })
    .await;
}
