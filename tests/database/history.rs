//! The evidence: what a history shows of each step outside.

use chrono::{DateTime, Utc};
use serde_json::json;

use crate::harness::{World, in_world};
use crate::logins::{for_robot, hire};
use crate::robot::{Does, Robot};

#[tokio::test]
async fn the_history_shows_each_try_with_what_was_sent_and_answered_in_order() {
    in_world(async |world: &World| {
        let robot = Robot::start([Does::PublishesAndAnswers500]).await;
        let api = world.start().await;
        hire(&api, &robot).await;
        api.publish(&for_robot("a")).await.ok();
        world
            .until("SELECT count(*) FROM publications WHERE status = 'running' AND lease_until IS NULL", 1)
            .await;
        world.advance(6);
        api.finished("a").await;
        let history = api.get("/tasks/a/history").await.ok();
        let entries = history["entries"].as_array().unwrap();
        let kinds = entries.iter().map(|one| (one["kind"].as_str().unwrap(), one["phase"].as_str()));
        let publish = ("try", Some("publish"));
        let moved = ("transition", None);
        assert_eq!(
            kinds.collect::<Vec<_>>(),
            [("accepted", None), moved, publish, moved, moved, publish, moved],
            "{history}"
        );
        let times = entries.iter().map(|one| one["at"].as_str().unwrap().parse::<DateTime<Utc>>().unwrap());
        assert!(times.is_sorted(), "{history}");
        let tries = entries.iter().filter(|one| one["kind"] == "try").collect::<Vec<_>>();
        // By the ids under which they stand in the endpoint's own log.
        let sent = robot.first(2).await;
        for (try_, sent) in tries.iter().zip(&sent) {
            assert_eq!(try_["request_id"], sent.header("x-request-id"));
        }
        assert_ne!(tries[0]["request_id"], tries[1]["request_id"]);
        assert_eq!((&tries[0]["outcome"], &tries[0]["http_status"]), (&json!("answer_lost"), &json!(500)));
        assert_eq!((&tries[1]["outcome"], &tries[1]["http_status"]), (&json!("done"), &json!(200)));
        assert_eq!(tries[1]["remote_id"], sent[0].header("webhook-id"));
        assert!(tries[1]["answer_head"].as_str().unwrap().contains("\"status\":\"success\""), "{history}");
    })
    .await;
}
