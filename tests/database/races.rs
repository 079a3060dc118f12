//! "At once": a hundred callers with one id.

use std::collections::HashSet;

use serde_json::json;

use crate::harness::{World, article_with, at_once, in_world};

const CALLERS: usize = 100;
const ROUNDS: usize = 3;

#[tokio::test]
async fn of_a_hundred_callers_at_once_one_creates_and_all_get_its_task() {
    in_world(async |world: &World| {
        // Two services on one database, as two nodes.
        let nodes = [world.start().await, world.start().await];
        for round in 0..ROUNDS {
            let id = format!("round-{round}");
            let replies = at_once((0..CALLERS).map(|caller| {
                let (api, id) = (nodes[caller % 2].clone(), id.clone());
                async move { api.publish(&article_with(&id, json!({"author": "same"}))).await.ok() }
            }))
            .await;
            let created = replies.iter().filter(|reply| reply["created"] == true).count();
            let ids = replies.iter().map(|reply| reply["task_id"].to_string()).collect::<HashSet<_>>();
            assert_eq!((created, ids.len()), (1, 1));
            assert!(replies.iter().all(|reply| reply["content_changed"] == false));
            nodes[0].finished(&id).await;
        }
        let rounds = i64::try_from(ROUNDS).unwrap();
        assert_eq!(world.number("SELECT count(*) FROM tasks").await, rounds);
        assert_eq!(world.number("SELECT count(*) FROM publications").await, rounds);
        assert_eq!(world.number("SELECT count(*) FROM events").await, rounds);
        assert_eq!(world.pages("blog1").len(), ROUNDS);
    })
    .await;
}

#[tokio::test]
async fn of_a_hundred_strict_callers_at_once_one_is_accepted() {
    in_world(async |world: &World| {
        let nodes = [world.start().await, world.start().await];
        for round in 0..ROUNDS {
            let id = format!("round-{round}");
            let replies = at_once((0..CALLERS).map(|caller| {
                let (api, id) = (nodes[caller % 2].clone(), id.clone());
                async move { api.publish(&article_with(&id, json!({"on_duplicate": "reject"}))).await }
            }))
            .await;
            let accepted = replies.iter().filter(|reply| reply.status == 200).collect::<Vec<_>>();
            assert_eq!(accepted.len(), 1);
            let task_id = &accepted[0].ok()["task_id"];
            for refused in replies.iter().filter(|reply| reply.status != 200) {
                let body = refused.problem(409, "duplicate_external_id");
                assert_eq!(&body["task"]["task_id"], task_id);
            }
        }
    })
    .await;
}

#[tokio::test]
async fn all_who_send_the_creators_key_at_once_are_the_creator() {
    in_world(async |world: &World| {
        let nodes = [world.start().await, world.start().await];
        let replies = at_once((0..CALLERS).map(|caller| {
            let api = nodes[caller % 2].clone();
            async move { api.publish_as("k", &article_with("a", json!({"on_duplicate": "reject"}))).await }
        }))
        .await;
        assert!(replies.iter().all(|reply| reply.ok()["created"] == true));
        let new = replies.iter().filter(|reply| reply.header("idempotent-replayed").is_none()).count();
        assert_eq!(new, 1);
    })
    .await;
}
