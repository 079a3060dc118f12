//! Callbacks page by page.

use publish_ingest::callback::status::CallbackStatus;
use publish_ingest::store::{CallbackFilters, Store};
use publish_ingest::tenant::Scope;
use serde_json::{Value, json};
use sqlx::Executor as _;

use crate::callbacks::{publish_to, tried};
use crate::harness::{Api, BOTH, World, article_with, in_world, redacted, schedule};
use crate::plans::{FEW, FINISHED, told, touched};
use crate::receiver::{Answer, Receiver};

fn ids(page: &Value) -> Vec<String> {
    let callbacks = page["callbacks"].as_array().unwrap().iter();
    callbacks.map(|one| one["external_id"].as_str().unwrap().to_owned()).collect()
}

async fn listed(api: &Api, query: &str) -> Vec<String> {
    let page = api.get(&format!("/callbacks?{query}")).await.ok();
    assert_eq!(page["next_cursor"], Value::Null, "{page}");
    ids(&page)
}

#[tokio::test]
async fn callbacks_are_listed_the_newest_first_and_by_every_filter() {
    in_world(async |world: &World| {
        let mut plan = world.plan();
        plan.callback_schedule = schedule("0s");
        let given_up = world.start_with(plan).await;
        assert_eq!(given_up.get("/callbacks").await.ok(), json!({"callbacks": [], "next_cursor": null}));
        let exhausted = Receiver::start([Answer::status(404)]).await;
        publish_to(&given_up, "exhausted", &exhausted).await;
        tried(&given_up, &exhausted, 1).await;
        world.stop().await;
        let api = world.start().await;
        for (id, status) in [("gone", 410), ("delivered", 204), ("pending", 500)] {
            // Ids that are made in one millisecond have no order.
            world.advance(1);
            let receiver = Receiver::start([Answer::status(status)]).await;
            publish_to(&api, id, &receiver).await;
            tried(&api, &receiver, 1).await;
        }
        let all = api.get("/callbacks").await.ok();
        assert_eq!(ids(&all), ["pending", "delivered", "gone", "exhausted"]);
        insta::assert_json_snapshot!("callback_list", redacted(&all["callbacks"][2]));
        for status in ["pending", "delivered", "gone", "exhausted"] {
            assert_eq!(listed(&api, &format!("status={status}")).await, [status]);
            assert_eq!(listed(&api, &format!("status={status}&external_id={status}")).await, [status]);
            assert_eq!(listed(&api, &format!("external_id={status}")).await, [status]);
        }
        assert!(listed(&api, "external_id=none").await.is_empty());
        assert!(listed(&api, "external_id=gone&status=delivered").await.is_empty());
        for bad in ["status=failed", "external_id=", "limit=0", "limit=201", "cursor=x", "state=gone"] {
            api.get(&format!("/callbacks?{bad}")).await.problem(400, "invalid_query");
        }
        // Of a task without a callback URL there is none, and of another tenant's nothing is seen.
        api.publish(&article_with("silent", json!({}))).await.ok();
        api.finished("silent").await;
        assert_eq!(listed(&api, "").await.len(), 4);
        let other = world.another_tenant("other").await.tenant_id;
        let theirs = api.with_key(&world.key(other, &[Scope::Read]).await);
        for query in ["", "status=gone", "status=delivered", "external_id=gone"] {
            assert!(listed(&theirs, query).await.is_empty(), "{query}");
        }
        let event_id = all["callbacks"][0]["event_id"].as_str().unwrap();
        theirs.get(&format!("/callbacks/{event_id}")).await.problem(404, "not_found");
        let publisher = api.with_key(&world.key(world.tenant.tenant_id, &[Scope::Publish]).await);
        publisher.get("/callbacks").await.problem(403, "forbidden");
    })
    .await;
}

#[tokio::test]
async fn pages_neither_skip_nor_repeat_while_events_are_written() {
    in_world(async |world: &World| {
        let receiver = Receiver::start([]).await;
        let api = world.start().await;
        let publish = async |id: &str, before: usize| {
            world.advance(1);
            let article = article_with(id, json!({"callback_url": receiver.url, "group_code": BOTH}));
            api.publish(&article).await.ok();
            receiver.first(before + 2).await;
            api.finished(id).await;
        };
        for (n, id) in ["a", "b", "c", "d"].iter().enumerate() {
            publish(id, 2 * n).await;
        }
        world.until("SELECT count(*) FROM callbacks WHERE status = 'delivered'", 8).await;
        for query in ["limit=3", "limit=3&status=delivered"] {
            let (mut seen, mut cursor) = (Vec::new(), String::new());
            loop {
                let page = api.get(&format!("/callbacks?{query}{cursor}")).await.ok();
                seen.extend(page["callbacks"].as_array().unwrap().iter().map(|one| one["event_id"].clone()));
                let Some(next) = page["next_cursor"].as_str() else { break };
                cursor = format!("&cursor={next}");
                // Bound to its filters.
                api.get(&format!("/callbacks?status=gone{cursor}")).await.problem(400, "invalid_query");
                if seen.len() == 3 {
                    let count = receiver.count();
                    publish(&format!("later-{}", query.len()), count).await;
                }
            }
            let stored = "SELECT count(*) FROM callbacks";
            let written_meanwhile = 2;
            assert_eq!(i64::try_from(seen.len()).unwrap(), world.number(stored).await - written_meanwhile);
            let mut distinct = seen.iter().map(Value::to_string).collect::<Vec<_>>();
            assert!(distinct.windows(2).all(|pair| pair[0] > pair[1]), "{distinct:?}");
            distinct.dedup();
            assert_eq!(distinct.len(), seen.len());
        }
        // Of one article, with a page for each.
        let first = api.get("/callbacks?external_id=b&limit=1").await.ok();
        let next =
            format!("/callbacks?external_id=b&limit=1&cursor={}", first["next_cursor"].as_str().unwrap());
        let second = api.get(&next).await.ok();
        assert_eq!((ids(&first), ids(&second)), (vec!["b".to_owned()], vec!["b".to_owned()]));
        assert_ne!(first["callbacks"][0]["account_id"], second["callbacks"][0]["account_id"]);
        assert_eq!(second["next_cursor"], Value::Null);
    })
    .await;
}

/// Of the finished articles of [`FINISHED`], one callback each, the first ones given up.
const CALLED_BACK: &str = "
    UPDATE tasks SET callback_url = 'https://receiver.example/';
    INSERT INTO callbacks (tenant_id, event_id, url, receiver, status, due_at, created_at, ended_at)
        SELECT tenant_id, event_id, 'https://receiver.example/', 'https://receiver.example', 
            CASE WHEN position <= 3 THEN 'exhausted' ELSE 'delivered' END, created_at, created_at, created_at FROM events";

#[tokio::test]
async fn a_page_touches_few_rows_however_much_was_delivered() {
    in_world(async |world: &World| {
        let mut connection = world.pool.acquire().await.unwrap();
        connection.execute(FINISHED).await.unwrap();
        connection.execute(CALLED_BACK).await.unwrap();
        world.store.close().await;
        told(&mut connection).await;
        let ask = async |store: &Store, status: Option<CallbackStatus>, external_id: Option<&str>| {
            let external_id = external_id.map(|id| id.parse().unwrap());
            let filters = CallbackFilters { status, external_id };
            store.callback_page(world.tenant.tenant_id, &filters, None, 20).await.unwrap().callbacks.len()
        };
        for analyzed in [false, true] {
            if analyzed {
                connection.execute("ANALYZE").await.unwrap();
                told(&mut connection).await;
            }
            for (status, external_id, expected) in [
                (None, None, 20),
                (Some(CallbackStatus::Exhausted), None, 3),
                (Some(CallbackStatus::Pending), None, 0),
                (None, Some("old-7"), 1),
                (Some(CallbackStatus::Exhausted), Some("old-7"), 0),
            ] {
                let (found, buffers) =
                    touched(world, async |store: &Store| ask(store, status, external_id).await).await;
                println!(
                    "{status:?} {external_id:?}: {found} found, {buffers} buffers, analyzed: {analyzed}"
                );
                assert!(
                    found == expected && buffers < 2 * FEW,
                    "{status:?} {external_id:?}: {found}, {buffers} buffers"
                );
            }
            let claim = async |store: &Store| {
                store
                    .claim_callbacks(
                        world.tenant.tenant_id,
                        publish_ingest::store::Receivers::All,
                        &crate::harness::limits("w"),
                    )
                    .await
                    .unwrap()
                    .len()
            };
            let (claimed, buffers) = touched(world, claim).await;
            assert!(
                claimed == 0 && buffers < FEW,
                "claim: {claimed}, {buffers} buffers, analyzed: {analyzed}"
            );
        }
    })
    .await;
}
