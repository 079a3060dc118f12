//! The built-in platform: what it holds and shows, who may ask, and that it is a platform like others.

use std::time::Duration;

use publish_ingest::account::Credentials;
use publish_ingest::clock::Clock as _;
use publish_ingest::connector::sandbox::Sandbox;
use publish_ingest::connector::{
    Access, Connector as _, Guarantee, Job, Listing, Login, Marked, Remote, Removal, Sighting, Trace, Verdict,
};
use publish_ingest::gather::Partial;
use publish_ingest::store::{SandboxAsk, SandboxAsks, SandboxServed};
use publish_ingest::tenant::Scope;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::{Api, World, article_with, in_world, redacted};
use crate::receiver::Receiver;

pub(crate) const BOX: &str = "/accounts/sandbox/box";

/// The account `box` that behaves like that, alone in the group `box`.
pub(crate) async fn open(api: &Api, behaviour: Value) {
    put(api, behaviour).await;
    let members = json!({"accounts": [{"platform": "sandbox", "account_id": "box"}]});
    api.put("/groups/box", &members).await.ok();
}

/// Has the account behave like that from now on.
pub(crate) async fn put(api: &Api, behaviour: Value) {
    api.put(BOX, &json!({"settings": {"behaviour": behaviour, "seed": 7}})).await.ok();
}

/// An article for the account `box`.
pub(crate) fn for_box(external_id: &str) -> Value {
    article_with(external_id, json!({"group_code": "box"}))
}

/// What the platform holds of an article: its states, the oldest first.
pub(crate) async fn held(api: &Api, external_id: &str) -> Vec<String> {
    let held = api.get(&format!("/sandbox/box/articles?external_id={external_id}")).await.ok();
    let articles = held["articles"].as_array().unwrap().iter().rev();
    articles.map(|one| one["state"].as_str().unwrap().to_owned()).collect()
}

/// What was asked of the platform about an article, the first first: the kind, what befell it, its effect and the answer.
pub(crate) async fn asked(api: &Api, external_id: &str) -> Vec<String> {
    let asked = api.get(&format!("/sandbox/box/requests?limit=200&external_id={external_id}")).await.ok();
    let text = |one: &Value| one.as_str().map_or_else(|| one.to_string(), str::to_owned);
    let brief = |one: &Value| {
        let parts = ["kind", "behaviour", "effect", "http_status"].map(|name| &one[name]);
        parts.iter().filter(|part| !part.is_null()).map(|part| text(part)).collect::<Vec<_>>().join(" ")
    };
    asked["requests"].as_array().unwrap().iter().rev().map(brief).collect()
}

/// A job of the account `box`, for the connector alone.
fn job(world: &World, marker: &str) -> Job {
    let content = world.new_task("a", "box").content;
    Job {
        marker: marker.to_owned(),
        tenant: "acme".to_owned(),
        tenant_id: world.tenant.tenant_id,
        publication_id: Uuid::nil(),
        round: 1,
        external_id: "a".to_owned(),
        account_id: "box".to_owned(),
        settings: json!({}),
        credentials: Credentials::none(),
        content,
        submitted_at: world.clock_now(),
        draft_id: None,
        prepared: Value::Null,
        request_id: "r-1".to_owned(),
        trace: Trace::default(),
        until: world.clock.instant() + Duration::from_hours(1),
    }
}

#[tokio::test]
async fn an_article_is_published_and_shown() {
    in_world(async |world: &World| {
        let api = world.start().await;
        api.put(BOX, &json!({"credentials": {"token": "quokkamarker"}})).await.ok();
        open(&api, Value::Null).await;
        api.publish(&article_with("a", json!({"group_code": "box", "tags": ["x"], "summary": "s"})))
            .await
            .ok();
        let task = api.finished("a").await;
        let publication = &task["publications"][0];
        assert_eq!((&publication["status"], &publication["attempts"]), (&json!("success"), &json!(1)));
        assert_eq!(publication["url"], "https://sandbox.invalid/sandbox/box/articles/1");
        let shown = api.get("/sandbox/box/articles/1").await;
        assert!(!shown.text.contains("quokkamarker"));
        insta::assert_json_snapshot!("sandbox_article", redacted(&shown.ok()));
        let expected = ["find 200", "draft made 201", "find 200", "publish published 200"];
        assert_eq!(asked(&api, "a").await, expected);
        let all = api.get("/sandbox/box/requests").await.ok();
        let newest = &all["requests"][0];
        assert_eq!(
            (&newest["number"], &newest["nth"], &newest["article_id"]),
            (&json!(4), &json!(1), &json!("1"))
        );
        let id = world.text("SELECT publication_id::text FROM publications").await;
        assert_eq!(newest["request_id"], format!("{id}-1-3"));
    })
    .await;
}

#[tokio::test]
async fn lists_come_page_by_page() {
    in_world(async |world: &World| {
        let api = world.start().await;
        open(&api, Value::Null).await;
        for id in ["a", "b", "c"] {
            api.publish(&for_box(id)).await.ok();
            api.finished(id).await;
        }
        let pages = async |path: &str, list: &str, name: &str| {
            let (mut told, mut next) = (Vec::new(), String::new());
            loop {
                let page = api.get(&format!("{path}?limit=2{next}")).await.ok();
                told.push(
                    page[list].as_array().unwrap().iter().map(|one| one[name].clone()).collect::<Vec<_>>(),
                );
                match page["next_cursor"].as_str() {
                    Some(cursor) => next = format!("&cursor={cursor}"),
                    None => return told,
                }
            }
        };
        let told = pages("/sandbox/box/articles", "articles", "external_id").await;
        assert_eq!(told, [vec![json!("c"), json!("b")], vec![json!("a")]]);
        let told = pages("/sandbox/box/requests", "requests", "number").await;
        assert_eq!(told.concat(), (1..=12).rev().map(|n| json!(n)).collect::<Vec<_>>());
        for bad in ["limit=0", "limit=201", "cursor=x", "state=draft", "limit=1&limit=2"] {
            api.get(&format!("/sandbox/box/articles?{bad}")).await.problem(400, "invalid_query");
        }
        let other = api.get("/sandbox/box/articles?external_id=b").await.ok();
        assert_eq!(other["articles"].as_array().unwrap().len(), 1);
    })
    .await;
}

#[tokio::test]
async fn each_call_needs_its_scope_and_nothing_crosses_tenants() {
    in_world(async |world: &World| {
        let api = world.start().await;
        open(&api, Value::Null).await;
        api.publish(&for_box("a")).await.ok();
        api.finished("a").await;
        let paths = ["/sandbox/box/articles", "/sandbox/box/articles/1", "/sandbox/box/requests"];
        let with = async |scope| api.with_key(&world.key(world.tenant.tenant_id, &[scope]).await);
        let reader = with(Scope::Read).await;
        for path in paths {
            reader.get(path).await.ok();
            with(Scope::Manage).await.get(path).await.problem(403, "forbidden");
        }
        reader.delete(paths[0]).await.problem(403, "forbidden");
        let other = world.another_tenant("other").await.tenant_id;
        let stranger = api.with_key(&world.key(other, &Scope::ALL).await);
        for path in paths {
            stranger.get(path).await.problem(404, "not_found");
        }
        stranger.delete(paths[0]).await.problem(404, "not_found");
        // The same names are other things there.
        open(&stranger, Value::Null).await;
        assert_eq!(stranger.get(paths[0]).await.ok()["articles"], json!([]));
        stranger.get(paths[1]).await.problem(404, "not_found");
        for path in ["/sandbox/none/articles", "/sandbox/a%20b/requests", "/sandbox/box/articles/x"] {
            api.get(path).await.problem(404, "not_found");
        }
        assert_eq!(held(&api, "a").await, ["public"]);
    })
    .await;
}

#[tokio::test]
async fn it_is_emptied_when_nothing_of_it_is_unfinished() {
    in_world(async |world: &World| {
        let api = world.start().await;
        open(&api, json!({"do": "rate_limit", "external_id": "b"})).await;
        api.publish(&for_box("a")).await.ok();
        api.finished("a").await;
        api.publish(&for_box("b")).await.ok();
        world.until("SELECT count(*) FROM lanes WHERE parked_until IS NOT NULL", 1).await;
        let body = api.delete("/sandbox/box/articles").await.problem(409, "conflict");
        assert!(body["detail"].as_str().unwrap().contains("1 submitted"), "{body}");
        world.advance(31);
        api.finished("b").await;
        assert_eq!(api.delete("/sandbox/box/articles").await.status, 204);
        assert_eq!((held(&api, "a").await.len(), asked(&api, "b").await.len()), (0, 0));
        assert_eq!(world.number("SELECT held::bigint FROM sandbox_accounts").await, 0);
        // Ids and numbers go on.
        api.publish(&for_box("c")).await.ok();
        let url = api.finished("c").await["publications"][0]["url"].clone();
        assert_eq!(url, "https://sandbox.invalid/sandbox/box/articles/3");
    })
    .await;
}

#[tokio::test]
async fn what_an_account_says_wrong_is_told_by_its_place() {
    in_world(async |world: &World| {
        let api = world.start().await;
        let bad = json!({"settings": {"behaviour": [{"do": "late", "secnds": 5}, {"do": "lose_anser"}], "seed": "x"},
            "credentials": {"password": "quokkamarker"}});
        let reply = api.put(BOX, &bad).await;
        let body = reply.problem(422, "validation_failed");
        let errors = body["errors"].as_array().unwrap().iter();
        let told = errors.map(|error| error["pointer"].as_str().unwrap()).collect::<Vec<_>>();
        let expected = [
            "/settings/seed",
            "/settings/behaviour/0/secnds",
            "/settings/behaviour/1/do",
            "/credentials/password",
        ];
        assert_eq!(told, expected);
        assert!(!reply.text.contains("quokkamarker") && reply.text.contains("lose_answer"), "{body}");
        let platforms = api.get("/platforms").await.ok();
        let mut all = platforms["platforms"].as_array().unwrap().iter();
        let one = all.find(|one| one["platform"] == "sandbox").unwrap();
        assert_eq!(one["guarantee"], "draft_then_publish");
        insta::assert_json_snapshot!("sandbox_platform", one);
    })
    .await;
}

#[tokio::test]
async fn nothing_on_it_keeps_two_with_one_mark_apart() {
    in_world(async |world: &World| {
        open(&world.start().await, Value::Null).await;
        let platform = Sandbox::new(world.store.clone(), &Partial::at_once(1));
        assert_eq!(platform.guarantee(), Guarantee::DraftThenPublish);
        let (one, other) = (job(world, "m"), job(world, "m"));
        assert_eq!(platform.find(&one).await, Sighting::absent());
        assert_eq!(platform.find(&other).await, Sighting::absent());
        let drafted = tokio::join!(platform.draft(&one), platform.draft(&other));
        let mut ids = [drafted.0, drafted.1].map(|verdict| match verdict {
            Verdict::Drafted(id) => id,
            verdict => panic!("{verdict:?}"),
        });
        ids.sort();
        assert_eq!(ids, ["1", "2"]);
        let draft = |id: &str| Marked { id: id.to_owned(), public: None };
        assert_eq!(platform.find(&one).await, Sighting::Seen(vec![draft("1"), draft("2")]));
        assert_eq!(platform.find(&job(world, "n")).await, Sighting::absent());

        // Published by its id, it is the same article however often that is asked for.
        let first = Job { draft_id: Some("1".to_owned()), ..one.clone() };
        let url = "https://sandbox.invalid/sandbox/box/articles/1".to_owned();
        let done = Verdict::Done(Remote { url: url.clone(), remote_id: Some("1".to_owned()) });
        assert_eq!(platform.publish(&first).await, done);
        assert_eq!(platform.publish(&first).await, done);
        assert_eq!(world.number("SELECT published::bigint FROM sandbox_accounts").await, 1);
        assert_eq!(platform.remove(&first).await, Removal::Public);
        let second = Job { draft_id: Some("2".to_owned()), ..one.clone() };
        assert_eq!(platform.remove(&second).await, Removal::Gone);
        assert_eq!(platform.remove(&second).await, Removal::Gone);
        assert!(matches!(platform.publish(&second).await, Verdict::Transient(_)));
        assert_eq!(world.number("SELECT held::bigint FROM sandbox_accounts").await, 1);

        let access = Access {
            tenant: "acme".to_owned(),
            tenant_id: world.tenant.tenant_id,
            account_id: "box".to_owned(),
            settings: json!({}),
            credentials: Credentials::none(),
        };
        assert_eq!(platform.check_login(&access).await, Login::Works);
        let Listing::Page { articles, next: None } = platform.list(&access, None).await else { panic!() };
        assert_eq!(
            (articles.len(), &articles[0].url, &articles[0].marker),
            (1, &Some(url), &Some("m".to_owned()))
        );
        world.execute("UPDATE sandbox_accounts SET logged_out = true").await;
        assert!(matches!(platform.check_login(&access).await, Login::Expired(_)));
        assert!(matches!(platform.list(&access, None).await, Listing::CannotTell(_)));
        assert!(matches!(platform.find(&one).await, Sighting::LoginExpired(_)));
    })
    .await;
}

#[tokio::test]
async fn the_list_for_an_audit_goes_on_where_the_page_before_ended() {
    in_world(async |world: &World| {
        open(&world.start().await, Value::Null).await;
        let platform = Sandbox::new(world.store.clone(), &Partial::at_once(1));
        for n in 0..101 {
            assert!(matches!(platform.draft(&job(world, &format!("m{n}"))).await, Verdict::Drafted(_)));
        }
        let access = Access {
            tenant: "acme".to_owned(),
            tenant_id: world.tenant.tenant_id,
            account_id: "box".to_owned(),
            settings: json!({}),
            credentials: Credentials::none(),
        };
        let (mut seen, mut next) = (Vec::new(), None);
        loop {
            let Listing::Page { articles, next: after } = platform.list(&access, next).await else {
                panic!()
            };
            seen.extend(articles.into_iter().map(|one| one.id.parse::<i64>().unwrap()));
            next = after;
            if next.is_none() {
                break;
            }
        }
        assert_eq!(seen, (1..=101).rev().collect::<Vec<_>>());
    })
    .await;
}

#[tokio::test]
async fn only_the_newest_requests_and_so_many_articles_are_kept() {
    in_world(async |world: &World| {
        let api = world.start().await;
        open(&api, Value::Null).await;
        let platform = Sandbox::new(world.store.clone(), &Partial::at_once(1));
        platform.find(&job(world, "m")).await;
        world.execute("UPDATE sandbox_accounts SET last_request = 10000, held = 100000").await;
        let Verdict::Rejected(failure) = platform.draft(&job(world, "m")).await else { panic!() };
        assert_eq!(failure.code, "sandbox_full");
        assert_eq!(asked(&api, "a").await, ["draft 507"]);
        // Those that are too old go once in a while.
        let kept = "SELECT string_agg(number::text, ',' ORDER BY number) FROM sandbox_requests";
        assert_eq!(world.text(kept).await, "1,10001");
        world.execute("UPDATE sandbox_accounts SET last_request = 10099").await;
        assert_eq!(platform.find(&job(world, "m")).await, Sighting::absent());
        assert_eq!(world.text(kept).await, "10001,10100");
        // The rest is as it was: what is held is counted for this test only.
        world.execute("UPDATE sandbox_accounts SET held = 0").await;
    })
    .await;
}

#[tokio::test]
async fn what_another_node_changes_meanwhile_is_seen() {
    const WAITS: &str = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    in_world(async |world: &World| {
        open(&world.start().await, Value::Null).await;
        let platform = Sandbox::new(world.store.clone(), &Partial::at_once(1));
        let job = job(world, "m");
        assert_eq!(platform.draft(&job).await, Verdict::Drafted("1".to_owned()));
        let draft = |id: &str| Marked { id: id.to_owned(), public: None };
        for (writes, first) in [(true, 2), (false, 4)] {
            let mut other = world.pool.begin().await.unwrap();
            for change in [
                "UPDATE sandbox_accounts SET last_request = last_request + 1, last_article = last_article + 1, held = held + 1",
                "UPDATE sandbox_marks SET drafts = drafts + 1",
                "INSERT INTO sandbox_articles SELECT tenant_id, account_id, (SELECT last_article FROM sandbox_accounts), marker,
                    external_id, title, content, made_at FROM sandbox_articles WHERE article_id = 1",
            ] {
                sqlx::query(change).execute(&mut *other).await.unwrap();
            }
            let asking = async {
                if writes {
                    assert_eq!(platform.draft(&job).await, Verdict::Drafted((first + 1).to_string()));
                } else {
                    let all = (1..=first).map(|id| draft(&id.to_string())).collect();
                    assert_eq!(platform.find(&job).await, Sighting::Seen(all));
                }
            };
            tokio::join!(asking, async {
                world.until(WAITS, 1).await;
                other.commit().await.unwrap();
            });
        }
        // Each is counted, and each number is there once.
        let counts = "SELECT concat_ws(' ', last_request, last_article, held, seen, drafts, finds) FROM sandbox_accounts, sandbox_marks";
        assert_eq!(world.text(counts).await, "5 4 4 1 4 1");
        let noted = "SELECT string_agg(concat_ws(' ', number, kind, nth, article_id), ', ' ORDER BY number) FROM sandbox_requests";
        assert_eq!(world.text(noted).await, "1 draft 1 1, 3 draft 3 3, 5 find 1 1");
    })
    .await;
}

#[tokio::test]
async fn what_was_carried_out_is_not_carried_out_again_when_a_later_round_is_refused() {
    in_world(async |world: &World| {
        open(&world.start().await, Value::Null).await;
        world
            .execute(
                "CREATE FUNCTION refuse_it() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not this one'; END $$;
                CREATE TRIGGER refuse_it BEFORE INSERT ON sandbox_articles FOR EACH ROW WHEN (NEW.external_id = 'bad')
                    EXECUTE FUNCTION refuse_it()",
            )
            .await;
        // Two about one mark are served one after the other.
        let ask = |external_id: &str| SandboxAsk {
            tenant_id: world.tenant.tenant_id,
            account_id: "box".to_owned(),
            marker: "m".to_owned(),
            external_id: external_id.to_owned(),
            request_id: external_id.to_owned(),
            what: SandboxAsks::Draft("T".to_owned(), "{}".to_owned()),
        };
        let both = [ask("good"), ask("bad")];
        let served = world.store.sandbox_serve(world.tenant.tenant_id, &both).await.unwrap();
        assert_eq!(served, [Some(SandboxServed::Drafted(Some(1))), None]);
        // Of those of which nothing was carried out, an error says so.
        assert!(world.store.sandbox_serve(world.tenant.tenant_id, &both[1..]).await.is_err());
        assert_eq!(world.number("SELECT count(*) FROM sandbox_articles").await, 1);
    })
    .await;
}

#[tokio::test]
async fn only_what_changes_an_article_waits_for_the_disk() {
    in_world(async |world: &World| {
        open(&world.start().await, Value::Null).await;
        let platform = Sandbox::new(world.store.clone(), &Partial::at_once(1));
        // At its end, each transaction notes how it is about to commit.
        world
            .execute(
                "CREATE TABLE asked_for (number bigint, synchronous_commit text);
                CREATE FUNCTION note_it() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                    INSERT INTO asked_for VALUES (NEW.number, current_setting('synchronous_commit')); RETURN NULL;
                END $$;
                CREATE CONSTRAINT TRIGGER note_it AFTER INSERT ON sandbox_requests DEFERRABLE INITIALLY DEFERRED
                    FOR EACH ROW EXECUTE FUNCTION note_it()",
            )
            .await;
        let one = job(world, "m");
        for _ in 0..2 {
            platform.find(&one).await;
        }
        assert_eq!(platform.draft(&one).await, Verdict::Drafted("1".to_owned()));
        platform.publish(&Job { draft_id: Some("1".to_owned()), ..one.clone() }).await;
        let asked_for = "SELECT string_agg(synchronous_commit, ' ' ORDER BY number) FROM asked_for";
        assert_eq!(world.text(asked_for).await, "off off on on");
    })
    .await;
}

#[tokio::test]
async fn an_event_is_delivered_twice_where_that_is_rehearsed() {
    in_world(async |world: &World| {
        let receiver = Receiver::start([]).await;
        let api = world.start().await;
        open(&api, json!({"do": "duplicate_callback", "external_id": "twice*"})).await;
        let article = |id| article_with(id, json!({"group_code": "box", "callback_url": receiver.url}));
        api.publish(&article("twice-1")).await.ok();
        let got = receiver.first(2).await;
        let id = got[0].header("webhook-id");
        assert_eq!((got[1].header("webhook-id"), &got[1].body), (id.clone(), &got[0].body));
        let callback = api.tried(&id, 2).await;
        assert_eq!(callback["status"], "delivered");
        // Of other articles and platforms, once; also where the caller's metadata looks like it.
        api.publish(&article("once")).await.ok();
        let page =
            json!({"group_code": "one", "callback_url": receiver.url, "metadata": {"platform": "sandbox"}});
        api.publish(&article_with("page", page)).await.ok();
        for one in &receiver.first(4).await[2..] {
            let callback = api.tried(&one.header("webhook-id"), 1).await;
            assert_eq!(callback["status"], "delivered", "{callback}");
        }
        assert_eq!(receiver.count(), 4);
    })
    .await;
}
