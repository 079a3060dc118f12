//! A draft that may yet become public goes before another follows it.

use publish_ingest::store::{Intent, JournalEntry};
use serde_json::json;

use crate::harness::{World, in_world};
use crate::leases::{begun, entry, note};
use crate::sandbox::{asked, for_box, held, open};
use crate::sandbox_faults::WAITS;

/// The search does not show the first draft, or shows it again, as after a site has made its index anew.
async fn hide(world: &World, hidden: bool) {
    world
        .execute(if hidden {
            "UPDATE sandbox_articles SET marker = 'hidden-' || marker WHERE article_id = 1"
        } else {
            "UPDATE sandbox_articles SET marker = replace(marker, 'hidden-', '') WHERE article_id = 1"
        })
        .await;
}

#[tokio::test]
async fn a_draft_that_was_asked_to_become_public_is_removed_before_another_follows() {
    in_world(async |world: &World| {
        let api = world.start().await;
        open(&api, json!({"do": "error", "step": "publish", "times": 3})).await;
        api.publish(&for_box("a")).await.ok();
        // Two requests to publish the first draft, of which nobody knows what comes.
        world.until(WAITS, 1).await;
        hide(world, true).await;
        // It is not there, and after the schedule's wait another is made; to publish that gets no answer either.
        world.advance(31);
        world.until("SELECT count(*) FROM publications WHERE status = 'submitted' AND tries = 1", 1).await;
        world.advance(31);
        world
            .until(
                "SELECT count(*) FROM publications WHERE drafts = 2 AND attempts = 3 AND lease_until IS NULL",
                1,
            )
            .await;
        let before = asked(&api, "a").await.len();
        hide(world, false).await;
        assert_eq!(held(&api, "a").await, ["draft", "draft"]);
        // A request that was known to have failed could be carried out yet, of the first draft.
        world.advance(31);
        world.until("SELECT count(*) FROM publications WHERE status = 'submitted' AND tries = 2", 1).await;
        assert_eq!(asked(&api, "a").await[before..], ["find 200", "remove removed 200", "find 200"]);
        assert_eq!(world.text("SELECT draft_id FROM publications").await, "2", "that is not the one removed");
        world.advance(121);
        let publication = api.finished("a").await["publications"][0].clone();
        assert_eq!((&publication["status"], &publication["remote_id"]), (&json!("success"), &json!("2")));
        assert_eq!(held(&api, "a").await, ["public"]);
        let history = api.get("/tasks/a/history").await.ok();
        let entries = history["entries"].as_array().unwrap();
        let removals = entries.iter().filter(|one| one["phase"] == "remove");
        let removals = removals.map(|one| (&one["remote_id"], &one["detail"])).collect::<Vec<_>>();
        assert_eq!(removals, [(&json!("1"), &json!("the draft is gone"))]);
    })
    .await;
}

#[tokio::test]
async fn a_worker_that_dies_in_a_removal_leaves_the_other_draft_as_the_articles_own() {
    in_world(async |world: &World| {
        let (one, job) = begun(world, "a").await;
        let intent = |step, kind, draft_id| {
            let intent = Some(Intent { step, kind, draft_id: Some(String::from(draft_id)) });
            JournalEntry { intent, probe: None, ..entry(&one, &job.marker) }
        };
        for entry in [intent(2, "publish", "2"), intent(3, "remove", "1")] {
            assert!(note(&world.store, entry).await);
        }
        let journal = world.store.read_journal(one.tenant_id, one.publication_id, one.round).await.unwrap();
        let named = (journal.draft_id.as_deref(), journal.asked, journal.removing);
        assert_eq!(named, (Some("2"), vec!["2".to_owned()], vec!["1".to_owned()]));
    })
    .await;
}
