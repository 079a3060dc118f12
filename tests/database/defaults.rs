//! What a tenant sets for all its articles.

use publish_ingest::article::OnDuplicate;
use publish_ingest::store::DefaultsChange;
use serde_json::json;

use crate::harness::{World, article, article_with, in_world};
use crate::receiver::Receiver;

async fn set(world: &World, change: DefaultsChange) {
    assert!(world.store.set_defaults("acme", &change).await.unwrap());
    // Then it holds on every node.
    world.advance(5);
}

fn callbacks_to(url: Option<&str>) -> DefaultsChange {
    DefaultsChange { callback_url: Some(url.map(str::to_owned)), on_duplicate: None }
}

fn duplicates(on_duplicate: OnDuplicate) -> DefaultsChange {
    DefaultsChange { callback_url: None, on_duplicate: Some(on_duplicate) }
}

#[tokio::test]
async fn an_article_without_a_callback_url_has_its_tenants_as_it_was_then() {
    in_world(async |world: &World| {
        let (first, second) = (Receiver::start([]).await, Receiver::start([]).await);
        let api = world.start().await;
        let url = async |id: &str| api.task(id).await.ok()["callback_url"].clone();
        api.publish(&article("before")).await.ok();
        set(world, callbacks_to(Some(&first.url))).await;
        api.publish(&article("a")).await.ok();
        api.publish(&article_with("own", json!({"callback_url": second.url}))).await.ok();
        assert_eq!(first.first(1).await[0].json()["external_id"], "a");
        assert_eq!(second.first(1).await[0].json()["external_id"], "own");
        set(world, callbacks_to(Some(&second.url))).await;
        assert_eq!((url("before").await, url("a").await), (json!(null), json!(first.url)));
        // Compared is what was sent, and nothing was.
        for id in ["before", "a"] {
            assert_eq!(api.publish(&article(id)).await.ok()["changed_fields"], json!([]));
        }
        let other = api.publish(&article_with("a", json!({"callback_url": second.url}))).await.ok();
        assert_eq!(other["changed_fields"], json!(["callback_url"]));
        set(world, callbacks_to(None)).await;
        api.publish(&article("after")).await.ok();
        assert_eq!(url("after").await, json!(null));
        for id in ["before", "a", "own", "after"] {
            api.finished(id).await;
        }
        world.until("SELECT count(*) FROM callbacks WHERE status = 'delivered'", 2).await;
    })
    .await;
}

#[tokio::test]
async fn a_duplicate_is_answered_as_the_tenant_wants_unless_the_request_says() {
    in_world(async |world: &World| {
        let api = world.start().await;
        api.publish(&article("a")).await.ok();
        api.publish(&article("a")).await.ok();
        set(world, duplicates(OnDuplicate::Reject)).await;
        api.publish(&article("a")).await.problem(409, "duplicate_external_id");
        api.publish(&article_with("a", json!({"on_duplicate": "return"}))).await.ok();
        // Of other tenants it says nothing, and each setting is changed alone.
        let other = world.another_tenant("other").await;
        let theirs = api.with_key(&world.key(other.tenant_id, &publish_ingest::tenant::Scope::ALL).await);
        theirs.publish(&article("a")).await.ok();
        theirs.publish(&article("a")).await.ok();
        set(world, callbacks_to(Some("https://receiver.example/"))).await;
        api.publish(&article("a")).await.problem(409, "duplicate_external_id");
        set(world, DefaultsChange { callback_url: Some(None), on_duplicate: Some(OnDuplicate::Return) })
            .await;
        api.publish(&article("a")).await.ok();
        assert!(!world.store.set_defaults("nobody", &DefaultsChange::default()).await.unwrap());
        api.finished("a").await;
        theirs.finished("a").await;
    })
    .await;
}
