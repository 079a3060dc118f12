//! Cancel against running workers, a thousand times at random moments: what every answer says is so, and stays so.

use std::collections::HashSet;

use chrono::TimeDelta;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};

use crate::harness::{Api, World, article_with, at_once, eventually, in_world, within};

const ARTICLES: usize = 1_000;
/// Articles that are under way together: of many more, a loaded machine sends some away with 503, which is right.
const WAVE: usize = 20;
const LOOKS_MAX: usize = 6;
const ACCOUNTS: [&str; 3] = ["one", "two", "three"];

fn names(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|one| one["account_id"].as_str().unwrap().to_owned()).collect()
}

/// Publishes a wave, and cancels each of it at its moment: after so many looks at the task as chance says, or if that is the most,
/// once some of it is public.
async fn wave(api: &Api, first: usize, chance: &mut StdRng) -> Vec<(String, Value)> {
    let moments = (first..first + WAVE).map(|n| (n, chance.random_range(0..=LOOKS_MAX))).collect::<Vec<_>>();
    at_once(moments.into_iter().map(|(n, looks)| {
        let (api, external_id) = (api.clone(), format!("post-{n}"));
        async move {
            api.publish(&article_with(&external_id, json!({"group_code": "three"}))).await.ok();
            if looks == LOOKS_MAX {
                let looking = async { while api.task(&external_id).await.ok()["counts"]["success"] == 0 {} };
                within("some of it is public", looking).await;
            } else {
                for _ in 0..looks {
                    api.task(&external_id).await.ok();
                }
            }
            let reply = api.act(&external_id, "cancel", &json!({})).await;
            let answer = if reply.status == 409 {
                // All of it was public before.
                reply.problem(409, "conflict");
                let task = api.task(&external_id).await.ok();
                assert_eq!(task["status"], "success", "{task}");
                json!({"cancelled": [], "live": task["publications"], "in_flight": [], "task": task})
            } else {
                reply.ok()
            };
            (external_id, answer)
        }
    }))
    .await
}

#[tokio::test]
async fn every_answer_says_what_is_live_cancelled_and_in_flight_and_afterwards_it_is_so() {
    in_world(async |world: &World| {
        let tenant_id = world.tenant.tenant_id;
        for name in ACCOUNTS {
            world.account(tenant_id, name, 2, TimeDelta::zero()).await;
        }
        world.group(tenant_id, "three", &ACCOUNTS).await;
        let api = world.start().await;
        let mut chance = StdRng::seed_from_u64(42);
        let mut answers = Vec::new();
        for first in (0..ARTICLES).step_by(WAVE) {
            answers.extend(wave(&api, first, &mut chance).await);
        }
        eventually("the end of all", async || {
            world.number("SELECT count(*) FROM tasks WHERE finished_at IS NULL").await == 0
        })
        .await;
        let pages = ACCOUNTS.map(|name| world.pages(name).into_iter().collect::<HashSet<_>>());
        let mut public = [0; ACCOUNTS.len()];
        let mut said = [0; 3];
        for (external_id, answer) in answers {
            let task = api.task(&external_id).await.ok();
            let lists = ["cancelled", "live", "in_flight"].map(|list| names(&answer[list]));
            assert_eq!(lists.iter().map(Vec::len).sum::<usize>(), ACCOUNTS.len(), "{answer}");
            for (at, list) in lists.iter().enumerate() {
                said[at] += list.len();
            }
            for (at, name) in ACCOUNTS.iter().enumerate() {
                let one =
                    task["publications"].as_array().unwrap().iter().find(|one| one["account_id"] == *name);
                let one = one.unwrap();
                let has_page = one["remote_id"].as_str().is_some_and(|marker| pages[at].contains(marker));
                public[at] += usize::from(one["status"] == "success");
                assert_eq!(one["status"] == "success", has_page, "{external_id} {one}");
                let listed = |list: usize| lists[list].iter().any(|listed| listed == name);
                if listed(0) {
                    assert_eq!(
                        (&one["status"], &one["error"]["code"]),
                        (&json!("failed"), &json!("cancelled"))
                    );
                } else if listed(1) {
                    let live =
                        answer["live"].as_array().unwrap().iter().find(|live| live["account_id"] == *name);
                    assert_eq!((&one["status"], &one["url"]), (&json!("success"), &live.unwrap()["url"]));
                } else {
                    assert!(listed(2), "{answer}");
                    assert_ne!(one["error"]["code"], "cancelled", "{external_id} {one}");
                    assert_eq!(one["status"], "success", "{external_id} {one}");
                }
            }
        }
        // No page but those of what is public: nothing that was cancelled is there under another name.
        assert_eq!(public, [0, 1, 2].map(|at| pages[at].len()));
        assert!(said.iter().all(|n| *n >= 50), "cancelled, live, in flight: {said:?}");
    })
    .await;
}
