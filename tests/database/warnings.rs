//! What an article goes without is told in its publication and in the history.

use publish_ingest::connector::{Failure, Prepared, Verdict};
use serde_json::{Value, json};

use crate::double::{DOUBLE, Double};
use crate::harness::{Api, World, article_with, in_world};

fn without(addresses: &[&str]) -> Prepared {
    let warnings =
        addresses.iter().map(|at| Failure::new("image_omitted", format!("left out: {at}"))).collect();
    Prepared { warnings, ..Prepared::default() }
}

fn told(addresses: &[&str]) -> Value {
    addresses.iter().map(|at| json!({"code": "image_omitted", "detail": format!("left out: {at}")})).collect()
}

async fn send(api: &Api) {
    api.publish(&article_with("a", json!({"group_code": DOUBLE}))).await.ok();
}

/// What each try to make it ready says in the history: nothing, or its warnings.
async fn tries(api: &Api) -> Vec<Value> {
    let history = api.get("/tasks/a/history").await.ok();
    let entries = history["entries"].as_array().unwrap().iter();
    entries.filter(|entry| entry["phase"] == "prepare").map(|entry| entry["warnings"].clone()).collect()
}

#[tokio::test]
async fn what_was_left_out_is_told_and_kept_through_tries_and_not_through_rounds() {
    in_world(async |world: &World| {
        let double = Double::default();
        let api = double.start(world, 4).await;
        double.next_preparation(Ok(without(&["one", "two"])));
        double.next_request(Verdict::Transient(Failure::new("busy", "busy")));
        send(&api).await;
        world.until("SELECT max(tries)::bigint FROM publications", 1).await;
        assert_eq!(api.task("a").await.ok()["publications"][0]["warnings"], told(&["one", "two"]));
        // A try that comes to nothing says nothing of it; one that does says all.
        double.next_preparation(Err(Verdict::Transient(Failure::new("busy", "busy"))));
        world.advance(6);
        world.until("SELECT max(tries)::bigint FROM publications", 2).await;
        assert_eq!(api.task("a").await.ok()["publications"][0]["warnings"], told(&["one", "two"]));
        double.next_preparation(Ok(without(&["two"])));
        double.next_request(Verdict::Rejected(Failure::new("refused", "refused")));
        world.advance(31);
        let publication = &api.finished("a").await["publications"][0];
        assert_eq!((&publication["status"], &publication["warnings"]), (&json!("failed"), &told(&["two"])));
        assert_eq!(tries(&api).await, [told(&["one", "two"]), Value::Null, told(&["two"])]);
        // Nothing is to be left out any more.
        api.post("/tasks/a/retry", &json!({})).await.ok();
        let publication = &api.finished("a").await["publications"][0];
        assert_eq!((&publication["status"], &publication["round"]), (&json!("success"), &json!(2)));
        assert_eq!(publication["warnings"], json!([]));
        assert_eq!(tries(&api).await.len(), 3);
    })
    .await;
}

#[tokio::test]
async fn what_takes_several_steps_is_made_ready_in_one_try_and_warns_when_it_is_whole() {
    in_world(async |world: &World| {
        let double = Double::default();
        let api = double.start(world, 4).await;
        for _ in 0..2 {
            double.next_preparation(Ok(Prepared { in_part: true, ..Prepared::default() }));
        }
        let many = (0..25).map(|n| n.to_string()).collect::<Vec<_>>();
        double.next_preparation(Ok(without(&many.iter().map(String::as_str).collect::<Vec<_>>())));
        send(&api).await;
        let publication = &api.finished("a").await["publications"][0];
        assert_eq!((&publication["status"], &publication["attempts"]), (&json!("success"), &json!(1)));
        assert_eq!((double.count("look"), double.count("prepare"), double.count("publish")), (1, 3, 1));
        let warnings = publication["warnings"].as_array().unwrap();
        assert_eq!(warnings.len(), 21);
        assert_eq!((&warnings[19], &warnings[20]["code"]), (&told(&["19"])[0], &json!("more_warnings")));
        assert!(warnings[20]["detail"].as_str().unwrap().starts_with("5 more"), "{warnings:?}");
        let tries = tries(&api).await;
        assert_eq!((&tries[..2], &tries[2]), (&[Value::Null, Value::Null][..], &publication["warnings"]));
        assert_eq!(world.number("SELECT count(*) FROM attempts WHERE ended_at IS NULL").await, 0);
    })
    .await;
}
