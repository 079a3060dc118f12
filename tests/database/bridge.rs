//! `http_bridge`: answers that come, that are lost, that come later, twice, or too late.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::harness::{Api, Reply, World, article_with, eventually, in_world, redacted};
use crate::logins::{for_robot, hire};
use crate::robot::{Does, Robot};

const WAIT: &str = "SELECT extract(epoch FROM due_at - updated_at)::bigint FROM publications";
const IN_FLIGHT: &str = "SELECT in_flight::bigint FROM lanes WHERE platform = 'http_bridge'";

/// The publication, once it awaits an answer after so many tries, without lease or slot.
async fn awaits(world: &World, api: &Api, external_id: &str, tries: i64) -> Value {
    let rests = "SELECT coalesce(max(p.attempts), 0)::bigint FROM publications p JOIN tasks USING (tenant_id, task_id)
        WHERE external_id = $1 AND p.status = 'running' AND lease_until IS NULL";
    eventually(&format!("{external_id} awaiting after {tries} tries"), async || {
        let rested: i64 = sqlx::query_scalar(rests).bind(external_id).fetch_one(&world.pool).await.unwrap();
        rested == tries
    })
    .await;
    let publication = api.task(external_id).await.ok()["publications"][0].clone();
    assert_eq!((&publication["status"], &publication["phase"]), (&json!("running"), &json!("confirming")));
    publication
}

async fn report(api: &Api, publication_id: &str, body: Value) -> Reply {
    api.post(&format!("/bridge/{publication_id}/results"), &body).await
}

/// Publishes on the robot, and the publication's id and key, as the robot was told them.
async fn handed_over(api: &Api, robot: &Robot, external_id: &str) -> (String, String) {
    let before = robot.count();
    api.publish(&for_robot(external_id)).await.ok();
    let got = robot.first(before + 1).await.pop().unwrap();
    (got.json()["publication_id"].as_str().unwrap().to_owned(), got.header("webhook-id"))
}

#[tokio::test]
async fn an_article_is_handed_over_signed_and_its_url_comes_back() {
    in_world(async |world: &World| {
        let robot = Robot::start([]).await;
        let api = world.start().await;
        hire(&api, &robot).await;
        let article = json!({"group_code": "robot", "summary": "S", "tags": ["a", "b"], "author": "é"});
        api.publish(&article_with("post/1", article)).await.ok();
        let task = api.finished("post/1").await;
        let got = robot.first(1).await.remove(0);
        insta::assert_json_snapshot!("handed_over", redacted(&got.json()));
        let publication = &task["publications"][0];
        let key = got.header("webhook-id");
        assert_eq!(publication["url"], format!("https://robot.example/{key}"));
        assert_eq!(publication["remote_id"], key);
        assert_eq!((&publication["round"], &publication["attempts"]), (&json!(1), &json!(1)));
    })
    .await;
}

#[tokio::test]
async fn whatever_becomes_of_the_answer_the_article_is_there_once_and_one_success_is_told() {
    let gate = Arc::new(Semaphore::new(0));
    for does in [
        Does::PublishesAndAnswers500,
        Does::PublishesAndIsCutOff,
        Does::Says(json!({"status": "success"})),
        Does::PublishesAndHangs(gate.clone()),
    ] {
        in_world(async |world: &World| {
            let robot = Robot::start([does]).await;
            let mut plan = world.plan();
            // A call ends within half of it.
            plan.lease = Duration::from_secs(2);
            let api = world.start_with(plan).await;
            hire(&api, &robot).await;
            api.publish(&for_robot("a")).await.ok();
            let publication = awaits(world, &api, "a", 1).await;
            assert_eq!(
                (&publication["error"]["code"], &publication["url"]),
                (&json!("answer_lost"), &Value::Null)
            );
            // By the retry schedule, and meanwhile without a slot.
            assert_eq!(world.number(WAIT).await, 5);
            assert_eq!(world.number(IN_FLIGHT).await, 0);
            world.advance(6);
            let task = api.finished("a").await;
            assert_eq!(
                (&task["status"], &task["publications"][0]["attempts"]),
                (&json!("success"), &json!(2))
            );
            let asked = robot.first(2).await;
            assert_eq!(asked[0].header("webhook-id"), asked[1].header("webhook-id"));
            assert_eq!((robot.published(), robot.count()), (1, 2));
            assert_eq!(world.number("SELECT count(*) FROM events").await, 1);
        })
        .await;
    }
}

#[tokio::test]
async fn a_bridge_that_gives_no_answer_is_asked_by_the_schedule_whose_last_step_repeats_for_a_day() {
    in_world(async |world: &World| {
        let robot = Robot::start(std::iter::repeat_n(Does::PublishesAndAnswers500, 5)).await;
        let api = world.start().await;
        hire(&api, &robot).await;
        api.publish(&for_robot("a")).await.ok();
        for (tries, wait) in [(1, 5), (2, 30), (3, 30), (4, 30)] {
            awaits(world, &api, "a", tries).await;
            assert_eq!(world.number(WAIT).await, wait);
            world.advance(wait + 1);
        }
        awaits(world, &api, "a", 5).await;
        world.advance(24 * 3_600);
        let task = api.finished("a").await;
        let error = &task["publications"][0]["error"];
        assert_eq!((&task["status"], &error["code"]), (&json!("failed"), &json!("outcome_unknown")));
        assert_eq!(error["retryable"], false);
        assert_eq!(robot.count(), 5);
        // A late answer states that it was published: the same round ends in success.
        let got = robot.first(5).await.remove(0);
        let (id, key) = (got.json()["publication_id"].as_str().unwrap().to_owned(), got.header("webhook-id"));
        let late = json!({"round": 1, "status": "success", "url": robot.publish(&key)});
        report(&api, &id, late.clone()).await.ok();
        let publication = api.finished("a").await["publications"][0].clone();
        assert_eq!((&publication["status"], &publication["round"]), (&json!("success"), &json!(1)));
        assert_eq!(publication["error"], Value::Null);
        report(&api, &id, late).await.problem(409, "conflict");
        assert_eq!(world.number("SELECT count(*) FROM events").await, 2);
        assert_eq!(robot.published(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_bridge_that_works_on_it_holds_no_slot_and_reports_by_a_call() {
    in_world(async |world: &World| {
        let robot = Robot::start([Does::Accepts, Does::Accepts]).await;
        let api = world.start().await;
        hire(&api, &robot).await;
        let mut account = robot.account();
        account["max_in_flight"] = json!(1);
        api.put("/accounts/http_bridge/robot", &account).await.ok();
        let (first, key) = handed_over(&api, &robot, "a").await;
        let (second, _) = handed_over(&api, &robot, "b").await;
        awaits(world, &api, "b", 1).await;
        assert_eq!(world.number(IN_FLIGHT).await, 0);
        let url = robot.publish(&key);
        let done = json!({"round": 1, "status": "success", "url": url, "remote_id": "7"});
        report(&api, &first, done.clone()).await.ok();
        let publication = api.finished("a").await["publications"][0].clone();
        assert_eq!((&publication["status"], &publication["url"]), (&json!("success"), &json!(url)));
        assert_eq!((&publication["remote_id"], &publication["attempts"]), (&json!("7"), &json!(1)));
        // Reported twice, and a failure after the success.
        report(&api, &first, done).await.problem(409, "conflict");
        let failed =
            json!({"round": 1, "status": "failed", "error": {"code": "too_long", "message": "cut it"}});
        report(&api, &first, failed.clone()).await.problem(409, "conflict");
        report(&api, &second, failed).await.ok();
        let publication = api.finished("b").await["publications"][0].clone();
        let error = json!({"code": "too_long", "message": "cut it", "retryable": true});
        assert_eq!((&publication["status"], &publication["error"]), (&json!("failed"), &error));
        assert_eq!(world.number("SELECT count(*) FROM events").await, 2);
    })
    .await;
}

#[tokio::test]
async fn without_a_report_it_is_asked_again_after_1_and_5_and_then_every_15_minutes() {
    in_world(async |world: &World| {
        let robot = Robot::start(std::iter::repeat_n(Does::Accepts, 4)).await;
        let api = world.start().await;
        hire(&api, &robot).await;
        api.publish(&for_robot("a")).await.ok();
        for (tries, minutes) in [(1, 1), (2, 5), (3, 15), (4, 15)] {
            awaits(world, &api, "a", tries).await;
            assert_eq!(world.number(WAIT).await, minutes * 60);
            world.advance(minutes * 60 - 5);
            assert!(world.claim("nobody").await.is_empty());
            world.advance(6);
        }
        let task = api.finished("a").await;
        assert_eq!((&task["status"], &task["publications"][0]["attempts"]), (&json!("success"), &json!(5)));
        assert_eq!(robot.published(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_report_of_an_older_round_counts_for_nothing() {
    in_world(async |world: &World| {
        let robot = Robot::start([Does::Accepts]).await;
        let api = world.start().await;
        hire(&api, &robot).await;
        let (id, key) = handed_over(&api, &robot, "a").await;
        awaits(world, &api, "a", 1).await;
        let expired =
            json!({"round": 1, "status": "login_expired", "error": {"code": "logged_out", "message": "m"}});
        report(&api, &id, expired.clone()).await.ok();
        eventually("the login expired", async || api.task("a").await.ok()["status"] == "login_expired").await;
        assert_eq!(api.get("/accounts/http_bridge/robot").await.ok()["login_state"], "login_expired");
        robot.then(Does::Accepts);
        api.put("/accounts/http_bridge/robot", &robot.account()).await.ok();
        awaits(world, &api, "a", 2).await;
        let late = |round: i32| json!({"round": round, "status": "success", "url": robot.publish(&key)});
        report(&api, &id, expired).await.problem(409, "conflict");
        report(&api, &id, late(1)).await.problem(409, "conflict");
        report(&api, &id, late(3)).await.problem(409, "conflict");
        report(&api, &id, late(2)).await.ok();
        let publication = api.finished("a").await["publications"][0].clone();
        assert_eq!((&publication["status"], &publication["round"]), (&json!("success"), &json!(2)));
        assert_eq!(world.number("SELECT count(*) FROM events WHERE status = 'success'").await, 1);
    })
    .await;
}

#[tokio::test]
async fn a_report_while_the_bridge_is_being_asked_again_frees_its_slot_and_the_answer_comes_too_late() {
    in_world(async |world: &World| {
        let gate = Arc::new(Semaphore::new(0));
        let robot = Robot::start([Does::Accepts, Does::PublishesAndHangs(gate.clone())]).await;
        let api = world.start().await;
        hire(&api, &robot).await;
        let (id, key) = handed_over(&api, &robot, "a").await;
        awaits(world, &api, "a", 1).await;
        world.advance(61);
        robot.first(2).await;
        assert_eq!(world.number(IN_FLIGHT).await, 1);
        // A failure may be that of the try before, which this one makes good.
        let failed = json!({"round": 1, "status": "failed", "error": {"code": "c", "message": "m"}});
        report(&api, &id, failed).await.problem(503, "unavailable");
        report(&api, &id, json!({"round": 1, "status": "success", "url": robot.publish(&key)})).await.ok();
        assert_eq!(world.number(IN_FLIGHT).await, 0);
        gate.add_permits(1);
        world.stop().await;
        assert_eq!(world.number("SELECT count(*) FROM events").await, 1);
        assert_eq!(robot.published(), 1);
    })
    .await;
}

#[tokio::test]
async fn reports_are_held_to_their_rules() {
    in_world(async |world: &World| {
        let robot = Robot::start([Does::Accepts]).await;
        let api = world.start().await;
        hire(&api, &robot).await;
        let (id, _) = handed_over(&api, &robot, "a").await;
        awaits(world, &api, "a", 1).await;
        for (body, pointer, code) in [
            (json!({"status": "failed", "error": {"code": "c", "message": "m"}}), "/round", "required"),
            (json!({"round": 1}), "/status", "required"),
            (json!({"round": 1, "status": "done"}), "/status", "not_allowed"),
            (json!({"round": 0, "status": "success", "url": "https://h/"}), "/round", "not_allowed"),
            (json!({"round": 1, "status": "success"}), "/url", "required"),
            (json!({"round": 1, "status": "success", "url": "ftp://h/"}), "/url", "bad_format"),
            (
                json!({"round": 1, "status": "success", "url": "https://h/", "remote_id": 7}),
                "/remote_id",
                "wrong_type",
            ),
            (json!({"round": 1, "status": "failed"}), "/error", "required"),
            (
                json!({"round": 1, "status": "failed", "error": {"code": "A B", "message": "m"}}),
                "/error/code",
                "bad_format",
            ),
            (
                json!({"round": 1, "status": "failed", "error": {"code": "c", "mesage": "m"}}),
                "/error/mesage",
                "unknown_field",
            ),
            (
                json!({"round": 1, "status": "success", "url": "https://h/", "urls": 1}),
                "/urls",
                "unknown_field",
            ),
        ] {
            let problem = report(&api, &id, body.clone()).await.problem(422, "validation_failed");
            let errors = problem["errors"].as_array().unwrap();
            assert!(
                errors.iter().any(|one| one["pointer"] == pointer && one["code"] == code),
                "{body}: {problem}"
            );
        }
        let good = json!({"round": 1, "status": "success", "url": "https://h/"});
        let other = world.another_tenant("other").await.tenant_id;
        let stranger = api.with_key(&world.key(other, &publish_ingest::tenant::Scope::ALL).await);
        report(&stranger, &id, good.clone()).await.problem(404, "not_found");
        report(&api, "no-id", good.clone()).await.problem(404, "not_found");
        let reader =
            api.with_key(&world.key(world.tenant.tenant_id, &[publish_ingest::tenant::Scope::Read]).await);
        report(&reader, &id, good.clone()).await.problem(403, "forbidden");
        // A page of a site has nobody who could report on it.
        api.publish(&article_with("page", json!({"group_code": "one"}))).await.ok();
        api.finished("page").await;
        let page: String =
            world.text("SELECT publication_id::text FROM publications WHERE platform = 'static_site'").await;
        report(&api, &page, good.clone()).await.problem(404, "not_found");
        report(&api, &id, good).await.ok();
    })
    .await;
}

#[tokio::test]
async fn a_bridge_that_cannot_be_reached_has_got_nothing_and_is_tried_by_the_schedule() {
    in_world(async |world: &World| {
        let robot = Robot::start([]).await;
        let api = world.start().await;
        hire(&api, &robot).await;
        // Nobody listens there any more.
        let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let gone = format!("http://{}/", free.local_addr().unwrap());
        drop(free);
        let mut account = robot.account();
        account["settings"]["endpoint"] = json!(gone);
        api.put("/accounts/http_bridge/robot", &account).await.ok();
        api.publish(&for_robot("a")).await.ok();
        world.until("SELECT max(tries)::bigint FROM publications", 1).await;
        let publication = api.task("a").await.ok()["publications"][0].clone();
        assert_eq!((&publication["status"], &publication["phase"]), (&json!("submitted"), &Value::Null));
        assert_eq!(publication["error"]["code"], "bridge_unreachable");
        api.put("/accounts/http_bridge/robot", &robot.account()).await.ok();
        world.advance(6);
        assert_eq!(api.finished("a").await["status"], "success");
        assert_eq!(robot.published(), 1);
    })
    .await;
}

#[tokio::test]
async fn an_endpoint_that_may_not_be_called_fails_with_the_rule() {
    in_world(async |world: &World| {
        let robot = Robot::start([]).await;
        hire(&world.start().await, &robot).await;
        world.stop().await;
        // The operator has changed the rules since the account was made.
        let mut plan = world.plan();
        plan.policy.allow.clear();
        let api = world.start_with(plan).await;
        api.publish(&for_robot("a")).await.ok();
        let task = api.finished("a").await;
        let error = &task["publications"][0]["error"];
        assert_eq!((&task["status"], &error["code"]), (&json!("failed"), &json!("endpoint_not_allowed")));
        assert_eq!(robot.count(), 0);
    })
    .await;
}
