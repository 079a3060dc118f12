//! `POST /accounts/{platform}/{account_id}/check`: what the platform says of a login, and what follows from its word.

use std::sync::Arc;

use publish_ingest::connector::{Failure, Login, Sighting};
use publish_ingest::store::Move;
use publish_ingest::task::state::Status;
use publish_ingest::tenant::Scope;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::double::{ACCOUNT, DOUBLE, Double, dead};
use crate::harness::{Api, World, article_with, eventually, in_world, redacted};
use crate::logins::{hire, rests_in};
use crate::robot::Robot;

async fn check(api: &Api) -> Value {
    api.post(&format!("{ACCOUNT}/check"), &json!({})).await.ok()
}

fn for_double(external_id: &str) -> Value {
    article_with(external_id, json!({"group_code": DOUBLE}))
}

#[tokio::test]
async fn each_platform_says_what_it_can() {
    in_world(async |world: &World| {
        let robot = Robot::start([]).await;
        let api = world.start().await;
        hire(&api, &robot).await;
        let site = api.post("/accounts/static_site/blog1/check", &json!({})).await.ok();
        insta::assert_json_snapshot!("login_works", redacted(&site));
        // Also without a body.
        let path = "/accounts/http_bridge/robot/check";
        let bridge = api.send(api.request(axum::http::Method::POST, path)).await.ok();
        insta::assert_json_snapshot!("login_unknown", redacted(&bridge["check"]));
        assert_eq!((bridge["account"]["login_state"].as_str(), robot.count()), (Some("active"), 0));
        world.stop().await;
        let mut plan = world.plan();
        plan.site = None;
        let api = world.start_with(plan).await;
        let told = api.post("/accounts/static_site/blog1/check", &json!({})).await.ok();
        assert_eq!(told["check"]["error"]["code"], "platform_not_set_up");
    })
    .await;
}

#[tokio::test]
async fn a_check_needs_its_scope_an_account_and_nothing_else() {
    in_world(async |world: &World| {
        let double = Double::default();
        let api = double.start(world, 4).await;
        let path = format!("{ACCOUNT}/check");
        for scope in [Scope::Publish, Scope::Read] {
            let api = api.with_key(&world.key(world.tenant.tenant_id, &[scope]).await);
            api.post(&path, &json!({})).await.problem(403, "forbidden");
        }
        let other = world.another_tenant("other").await;
        let theirs = api.with_key(&world.key(other.tenant_id, &Scope::ALL).await);
        theirs.post(&path, &json!({})).await.problem(404, "not_found");
        for nobody in ["/accounts/double/nobody/check", "/accounts/No/one/check"] {
            api.post(nobody, &json!({})).await.problem(404, "not_found");
        }
        api.post(&path, &json!({"force": true})).await.problem(422, "validation_failed");
        api.post(&format!("{path}?force=1"), &json!({})).await.problem(400, "invalid_query");
        assert_eq!(double.calls(), 0);
        let manager = api.with_key(&world.key(world.tenant.tenant_id, &[Scope::Manage]).await);
        assert_eq!(check(&manager).await["check"]["result"], "works");
        api.delete("/groups/double").await;
        assert_eq!(api.delete(ACCOUNT).await.status, 204);
        api.post(&path, &json!({})).await.problem(404, "not_found");
    })
    .await;
}

#[tokio::test]
async fn a_login_that_the_platform_calls_expired_is_parked_and_one_that_works_again_goes_on() {
    in_world(async |world: &World| {
        let double = Double::default();
        let api = double.start(world, 4).await;
        double.next_login(Login::Expired(dead()));
        let told = check(&api).await;
        let error = json!({"code": "token_revoked", "message": dead().message, "retryable": true});
        assert_eq!(told["check"], json!({"result": "login_expired", "error": error}));
        assert_eq!(told["account"]["login_state"], "login_expired");
        assert_eq!((&told["resumed"], &told["left"]), (&json!(0), &json!(0)));
        for id in ["a", "b", "c"] {
            api.publish(&for_double(id)).await.ok();
            rests_in(&api, id, "login_expired").await;
        }
        // The platform was asked once, by the check.
        assert_eq!(double.calls(), 1);
        world.advance(7 * 24 * 3_600 + 1);
        api.publish(&for_double("d")).await.ok();
        rests_in(&api, "d", "login_expired").await;
        double.next_login(Login::Expired(dead()));
        assert_eq!(check(&api).await["check"]["result"], "login_expired");
        let told = check(&api).await;
        assert_eq!(told["check"], json!({"result": "works", "error": null}));
        assert_eq!(told["account"]["login_state"], "active");
        // The rule of a renewal: what has waited over a week is left.
        assert_eq!((&told["resumed"], &told["left"]), (&json!(1), &json!(3)));
        let task = rests_in(&api, "d", "success").await;
        assert_eq!(task["publications"][0]["round"], 2);
        let told = check(&api).await;
        assert_eq!((&told["resumed"], &told["left"]), (&json!(0), &json!(0)));
        assert_eq!((double.published(), double.count("publish")), (1, 1));
    })
    .await;
}

#[tokio::test]
async fn what_is_not_the_platforms_word_about_the_login_changes_nothing() {
    in_world(async |world: &World| {
        let double = Double::default();
        let api = double.start(world, 4).await;
        for expired in [false, true] {
            let state = if expired { "login_expired" } else { "active" };
            if expired {
                double.next_login(Login::Expired(dead()));
                check(&api).await;
            }
            let before = world.text("SELECT l::text FROM lanes l WHERE platform = 'double'").await;
            double.next_login(Login::Unfit(Failure::new("no_role", "the account may not publish")));
            double.next_login(Login::CannotTell("connection reset".to_owned()));
            for (result, code, retryable) in
                [("unfit", "no_role", false), ("cannot_tell", "login_unknown", true)]
            {
                let told = check(&api).await;
                let (said, error) = (&told["check"]["result"], &told["check"]["error"]);
                assert_eq!((said, &error["code"]), (&json!(result), &json!(code)));
                assert_eq!(
                    (&error["retryable"], &told["account"]["login_state"]),
                    (&json!(retryable), &json!(state))
                );
            }
            assert_eq!(world.text("SELECT l::text FROM lanes l WHERE platform = 'double'").await, before);
        }
    })
    .await;
}

/// Asks, and does something else before the platform answers; meanwhile nothing of ours is open.
async fn check_while(
    world: &World,
    double: &Double,
    api: &Api,
    login: Login,
    does: impl AsyncFnOnce(),
) -> Value {
    let gate = Arc::new(Semaphore::new(0));
    let asked = double.count("login");
    double.next_login_behind(login, &gate);
    let between = async {
        eventually("the platform is asked", async || double.count("login") > asked).await;
        let open = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
            AND application_name = 'publish-ingest' AND xact_start IS NOT NULL AND state LIKE 'idle%'";
        assert_eq!(world.number(open).await, 0, "a transaction is open while the platform is asked");
        does().await;
        gate.add_permits(1);
    };
    tokio::join!(check(api), between).0
}

#[tokio::test]
async fn a_word_about_an_account_that_was_changed_meanwhile_counts_for_nothing() {
    in_world(async |world: &World| {
        let double = Double::default();
        let api = double.start(world, 4).await;
        for body in [json!({"credentials": {}}), json!({"settings": {"other": 1}})] {
            let put = async || {
                api.put(ACCOUNT, &body).await.ok();
            };
            let told = check_while(world, &double, &api, Login::Expired(dead()), put).await;
            assert_eq!(told["check"]["result"], "cannot_tell", "{body}");
            assert_eq!(told["check"]["error"]["code"], "account_changed");
            assert_eq!(told["account"]["login_state"], "active");
        }
    })
    .await;
}

#[tokio::test]
async fn a_login_that_was_lost_while_it_was_asked_about_is_not_renewed_by_the_older_word() {
    in_world(async |world: &World| {
        let double = Double::default();
        let api = double.start(world, 4).await;
        let lost = async || {
            double.next_look(Sighting::LoginExpired(dead()));
            api.publish(&for_double("a")).await.ok();
            rests_in(&api, "a", "login_expired").await;
        };
        let told = check_while(world, &double, &api, Login::Works, lost).await;
        assert_eq!(told["check"]["result"], "works");
        assert_eq!((&told["account"]["login_state"], &told["resumed"]), (&json!("login_expired"), &json!(0)));
        // Asked once more, it counts.
        assert_eq!(check(&api).await["resumed"], 1);
        rests_in(&api, "a", "success").await;
    })
    .await;
}

#[tokio::test]
async fn an_answer_from_before_a_login_was_found_to_work_again_does_not_park_it_again() {
    in_world(async |world: &World| {
        let double = Double::default();
        double.start(world, 4).await;
        world.stop().await;
        world.accept(&[world.new_task("a", DOUBLE)]).await;
        let one = world.claim("w").await.remove(0);
        world.execute("UPDATE lanes SET login_state = 'login_expired' WHERE platform = 'double'").await;
        let mut plan = double.plan(world);
        plan.roles.worker = false;
        let api = world.start_with(plan).await;
        assert_eq!(check(&api).await["account"]["login_state"], "active");
        let late = Move {
            error: Some(("login_expired".to_owned(), "late".to_owned(), true)),
            outcome: Some("login_expired"),
            ..Move::new(
                one.tenant_id,
                (one.publication_id, one.fence),
                (Status::Running, Status::LoginExpired),
            )
        };
        assert!(world.settler().settle(late).await);
        assert_eq!(api.get(ACCOUNT).await.ok()["login_state"], "active");
        assert_eq!(api.task("a").await.ok()["publications"][0]["status"], "submitted");
    })
    .await;
}
