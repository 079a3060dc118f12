//! Logins that expire, and come back.

use std::sync::Arc;

use chrono::TimeDelta;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::harness::{Api, World, article_with, eventually, in_world};
use crate::receiver::{Received, Receiver};
use crate::robot::{Does, Robot};

/// The account of a robot, alone in the group `robot`, and with `blog1` and `blog2` in the group `three`.
pub(crate) async fn hire(api: &Api, robot: &Robot) {
    api.put("/accounts/http_bridge/robot", &robot.account()).await.ok();
    let member = |platform: &str, id: &str| json!({"platform": platform, "account_id": id});
    let alone = json!({"accounts": [member("http_bridge", "robot")]});
    api.put("/groups/robot", &alone).await.ok();
    let three = [("static_site", "blog1"), ("http_bridge", "robot"), ("static_site", "blog2")];
    let three = three.map(|(platform, id)| member(platform, id));
    api.put("/groups/three", &json!({"accounts": three})).await.ok();
}

/// An article for the robot alone.
pub(crate) fn for_robot(external_id: &str) -> Value {
    article_with(external_id, json!({"group_code": "robot"}))
}

/// The task, once it is in that state and nothing of it is open.
pub(crate) async fn rests_in(api: &Api, external_id: &str, status: &str) -> Value {
    let mut task = Value::Null;
    eventually(&format!("{external_id} {status}"), async || {
        task = api.task(external_id).await.ok();
        task["status"] == status && !task["finished_at"].is_null()
    })
    .await;
    task
}

async fn login_state(api: &Api) -> Value {
    api.get("/accounts/http_bridge/robot").await.ok()["login_state"].clone()
}

/// The publications as (account, state, round, tries).
fn brief(task: &Value) -> Vec<(&str, &str, u64, u64)> {
    let text =
        |value: &'_ Value| -> &'static str { Box::leak(value.as_str().unwrap().to_owned().into_boxed_str()) };
    let brief = |one: &Value| {
        (
            text(&one["account_id"]),
            text(&one["status"]),
            one["round"].as_u64().unwrap(),
            one["attempts"].as_u64().unwrap(),
        )
    };
    task["publications"].as_array().unwrap().iter().map(brief).collect()
}

#[tokio::test]
async fn one_account_of_three_loses_its_login_and_goes_on_when_it_is_renewed() {
    in_world(async |world: &World| {
        let receiver = Receiver::start([]).await;
        let robot = Robot::start([Does::login_expired()]).await;
        let api = world.start().await;
        hire(&api, &robot).await;
        let article = |id| article_with(id, json!({"group_code": "three", "callback_url": receiver.url}));
        api.publish(&article("a")).await.ok();
        let task = rests_in(&api, "a", "login_expired").await;
        assert_eq!(
            brief(&task),
            [("blog1", "success", 1, 1), ("robot", "login_expired", 1, 1), ("blog2", "success", 1, 1)]
        );
        let error = json!({"code": "logged_out", "message": "log in again", "retryable": true});
        assert_eq!(task["publications"][1]["error"], error);
        assert_eq!(login_state(&api).await, "login_expired");

        // What is due on the parked account has its own event, and the platform is not called.
        api.publish(&article("b")).await.ok();
        let task = rests_in(&api, "b", "login_expired").await;
        assert_eq!(brief(&task)[1], ("robot", "login_expired", 1, 0));
        assert_eq!(task["publications"][1]["error"]["code"], "login_expired");
        assert_eq!(robot.count(), 1);
        let told = receiver.first(6).await;
        for id in ["a", "b"] {
            let mut events =
                told.iter().map(Received::json).filter(|one| one["external_id"] == id).collect::<Vec<_>>();
            events.sort_by_key(|one| one["sequence"].as_i64());
            let kinds = events.iter().filter(|one| one["type"] == "publication.login_expired").count();
            assert_eq!((events.len(), kinds), (3, 1));
            assert_eq!(events[2]["task_status"], "login_expired");
        }

        let renewed = api.put("/accounts/http_bridge/robot", &robot.account()).await.ok();
        assert_eq!((&renewed["resumed"], &renewed["left"]), (&json!(2), &json!(0)));
        assert_eq!(renewed["login_state"], "active");
        for (id, tries) in [("a", 2), ("b", 1)] {
            let task = rests_in(&api, id, "success").await;
            assert_eq!(
                brief(&task),
                [("blog1", "success", 1, 1), ("robot", "success", 2, tries), ("blog2", "success", 1, 1)]
            );
        }
        let told = receiver.first(8).await;
        let last = told.iter().map(Received::json).max_by_key(|one| one["sequence"].as_i64()).unwrap();
        assert_eq!((&last["task_status"], &last["round"]), (&json!("success"), &json!(2)));
        let asked = robot.first(3).await;
        assert_eq!(asked.len(), 3);
        // The same article keeps its key from round to round.
        let of_a = asked.iter().filter(|one| one.json()["external_id"] == "a").collect::<Vec<_>>();
        assert_eq!(of_a[0].header("webhook-id"), of_a[1].header("webhook-id"));
        assert_eq!((&of_a[0].json()["round"], &of_a[1].json()["round"]), (&json!(1), &json!(2)));
        for one in &told {
            api.tried(&one.header("webhook-id"), 1).await;
        }
    })
    .await;
}

#[tokio::test]
async fn what_is_not_due_yet_waits_also_on_a_parked_account() {
    in_world(async |world: &World| {
        let robot = Robot::start([Does::login_expired()]).await;
        let api = world.start().await;
        hire(&api, &robot).await;
        let at = world.clock_now() + TimeDelta::hours(1);
        api.publish(&article_with("later", json!({"group_code": "robot", "publish_at": at}))).await.ok();
        api.publish(&for_robot("now")).await.ok();
        rests_in(&api, "now", "login_expired").await;
        assert_eq!(api.task("later").await.ok()["status"], "submitted");
        world.advance(3_601);
        rests_in(&api, "later", "login_expired").await;
        assert_eq!(robot.count(), 1);
    })
    .await;
}

#[tokio::test]
async fn an_answer_to_old_credentials_says_nothing_of_new_ones() {
    in_world(async |world: &World| {
        let gate = Arc::new(Semaphore::new(0));
        let Does::Says(expired) = Does::login_expired() else { panic!() };
        let robot = Robot::start([Does::SaysLater(expired, gate.clone())]).await;
        let api = world.start().await;
        hire(&api, &robot).await;
        api.publish(&for_robot("a")).await.ok();
        robot.first(1).await;
        let put = api.put("/accounts/http_bridge/robot", &robot.account()).await.ok();
        assert_eq!((&put["resumed"], &put["left"]), (&json!(0), &json!(0)));
        gate.add_permits(1);
        let task = rests_in(&api, "a", "success").await;
        assert_eq!(brief(&task), [("robot", "success", 1, 2)]);
        assert_eq!(login_state(&api).await, "active");
        assert_eq!(world.number("SELECT count(*) FROM events").await, 1);
        let renewed =
            "SELECT count(*) FROM transitions WHERE reason = 'login_renewed' AND to_status = 'submitted'";
        assert_eq!(world.number(renewed).await, 1);
    })
    .await;
}

#[tokio::test]
async fn what_was_declined_or_has_waited_over_a_week_is_left() {
    in_world(async |world: &World| {
        let robot = Robot::start([Does::login_expired()]).await;
        let api = world.start().await;
        hire(&api, &robot).await;
        api.publish(&for_robot("declined")).await.ok();
        rests_in(&api, "declined", "login_expired").await;
        let mut account = robot.account();
        account["resume"] = json!(false);
        let renewed = api.put("/accounts/http_bridge/robot", &account).await.ok();
        assert_eq!((&renewed["resumed"], &renewed["left"]), (&json!(0), &json!(1)));

        robot.then(Does::login_expired());
        api.publish(&for_robot("old")).await.ok();
        rests_in(&api, "old", "login_expired").await;
        world.advance(7 * 24 * 3_600 + 1);
        api.publish(&for_robot("young")).await.ok();
        rests_in(&api, "young", "login_expired").await;
        let renewed = api.put("/accounts/http_bridge/robot", &robot.account()).await.ok();
        assert_eq!((&renewed["resumed"], &renewed["left"]), (&json!(1), &json!(2)));
        rests_in(&api, "young", "success").await;
        world.until("SELECT count(*) FROM lanes WHERE resume_from IS NOT NULL", 0).await;
        for left in ["declined", "old"] {
            assert_eq!(api.task(left).await.ok()["status"], "login_expired");
        }
        assert_eq!(robot.published(), 1);
    })
    .await;
}

#[tokio::test]
async fn hundreds_wait_and_go_on_in_order_each_with_its_events() {
    const ARTICLES: usize = 450;
    in_world(async |world: &World| {
        let robot = Robot::start([Does::login_expired()]).await;
        let api = world.start().await;
        hire(&api, &robot).await;
        let mut account = robot.account();
        account["max_in_flight"] = json!(1);
        api.put("/accounts/http_bridge/robot", &account).await.ok();
        for n in 0..ARTICLES {
            api.publish(&for_robot(&format!("post-{n:03}"))).await.ok();
        }
        let expired = i64::try_from(ARTICLES).unwrap();
        world.until("SELECT count(*) FROM events WHERE status = 'login_expired'", expired).await;
        assert_eq!(robot.count(), 1);
        let renewed = api.put("/accounts/http_bridge/robot", &account).await.ok();
        assert_eq!(renewed["resumed"], ARTICLES);
        world.until("SELECT count(*) FROM events WHERE status = 'success'", expired).await;
        let order = robot.first(ARTICLES + 1).await;
        let order = order[1..].iter().map(|one| one.json()["external_id"].as_str().unwrap().to_owned());
        let order = order.collect::<Vec<_>>();
        assert!(order.is_sorted(), "{order:?}");
        assert_eq!(order.len(), ARTICLES);
    })
    .await;
}
