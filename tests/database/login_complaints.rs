//! What users of other services complain of about logins: each is a test here, with where it was told.

use std::sync::Arc;

use publish_ingest::connector::{Failure, Login, Sighting, Verdict};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::double::{ACCOUNT, DOUBLE, Double, dead};
use crate::harness::{Api, World, article_with, eventually, in_world};
use crate::logins::rests_in;

fn for_double(external_id: &str) -> Value {
    article_with(external_id, json!({"group_code": DOUBLE}))
}

async fn login_state(api: &Api) -> Value {
    api.get(ACCOUNT).await.ok()["login_state"].clone()
}

/// Postiz, pull request 1822: a moment without network disconnected accounts whose tokens were good.
#[tokio::test]
async fn a_network_blip_is_not_taken_for_a_dead_token() {
    in_world(async |world: &World| {
        let double = Double::default();
        let api = double.start(world, 4).await;
        double.next_look(Sighting::CannotTell("connection refused".to_owned()));
        double.next_look(Sighting::absent());
        let reset = Failure::new("platform_unreachable", "connection reset");
        double.next_request(Verdict::Transient(reset));
        api.publish(&for_double("a")).await.ok();
        for (tries, wait) in [(1, 6), (2, 31)] {
            world.until("SELECT max(tries)::bigint FROM publications", tries).await;
            assert_eq!(login_state(&api).await, "active");
            double.next_login(Login::CannotTell("no route to host".to_owned()));
            let told = api.post(&format!("{ACCOUNT}/check"), &json!({})).await.ok();
            assert_eq!(told["check"]["result"], "cannot_tell");
            assert_eq!(told["account"]["login_state"], "active");
            world.advance(wait);
        }
        rests_in(&api, "a", "success").await;
        assert_eq!(world.number("SELECT count(*) FROM events WHERE status = 'login_expired'").await, 0);
    })
    .await;
}

/// Postiz, pull request 2048: a channel that had been dead for a week was asked 2,457 times.
#[tokio::test]
async fn a_dead_channel_is_asked_once_in_a_week_and_not_once_per_article() {
    in_world(async |world: &World| {
        let double = Double::default();
        let api = double.start(world, 1).await;
        double.next_look(Sighting::LoginExpired(dead()));
        for day in 0..7 {
            let ids = (0..10).map(|n| format!("day-{day}-{n}")).collect::<Vec<_>>();
            let articles = ids.iter().map(|id| for_double(id)).collect::<Vec<_>>();
            api.post("/publish/batch", &json!({"articles": articles})).await.ok();
            for id in &ids {
                rests_in(&api, id, "login_expired").await;
            }
            world.advance(24 * 3_600);
        }
        assert_eq!((double.calls(), login_state(&api).await), (1, json!("login_expired")));
        // Each article has its own event all the same.
        assert_eq!(world.number("SELECT count(*) FROM events WHERE status = 'login_expired'").await, 70);
    })
    .await;
}

/// The same with many articles under way when the login dies, on two nodes: no more than the account may have in hand.
#[tokio::test]
async fn a_login_that_dies_is_told_at_most_to_those_under_way_whichever_node_they_are_on() {
    const IN_FLIGHT: usize = 4;
    const ARTICLES: usize = 60;
    in_world(async |world: &World| {
        let double = Double::default();
        let api = double.start(world, IN_FLIGHT).await;
        world.start_with(double.plan(world)).await;
        let gate = Arc::new(Semaphore::new(0));
        for _ in 0..ARTICLES {
            double.next_request_behind(Verdict::LoginExpired(dead()), &gate);
        }
        let articles = (0..ARTICLES).map(|n| for_double(&format!("post-{n}"))).collect::<Vec<_>>();
        api.post("/publish/batch", &json!({"articles": articles})).await.ok();
        eventually("the account's hands are full", async || double.count("publish") == IN_FLIGHT).await;
        gate.add_permits(ARTICLES);
        let all = i64::try_from(ARTICLES).unwrap();
        world.until("SELECT count(*) FROM events WHERE status = 'login_expired'", all).await;
        assert_eq!((double.count("publish"), double.count("look")), (IN_FLIGHT, IN_FLIGHT));
        let later = (0..20).map(|n| for_double(&format!("later-{n}"))).collect::<Vec<_>>();
        api.post("/publish/batch", &json!({"articles": later})).await.ok();
        world.until("SELECT count(*) FROM events WHERE status = 'login_expired'", all + 20).await;
        assert_eq!(double.calls(), 2 * IN_FLIGHT);
    })
    .await;
}

/// autoblue, pull request 44: the connection had expired, nothing was shared any more, and the page called it healthy.
#[tokio::test]
async fn a_login_that_expired_in_silence_shows_wherever_somebody_looks() {
    in_world(async |world: &World| {
        let double = Double::default();
        let api = double.start(world, 4).await;
        double.next_login(Login::Expired(dead()));
        // Nothing is published; somebody asks.
        let told = api.post(&format!("{ACCOUNT}/check"), &json!({})).await.ok();
        assert_eq!(told["check"]["error"]["code"], "token_revoked");
        assert_eq!(login_state(&api).await, "login_expired");
        let all = api.get("/accounts").await.ok();
        let listed = all["accounts"].as_array().unwrap().iter().find(|one| one["platform"] == DOUBLE);
        assert_eq!(listed.unwrap()["login_state"], "login_expired");
        let told = api.post("/publish/check", &for_double("a")).await.ok();
        let account = &told["accounts"][0];
        assert_eq!(
            (&account["login_state"], &account["earliest_at"]),
            (&json!("login_expired"), &Value::Null)
        );
        assert_eq!(account["problems"][0]["code"], "login_expired");
        api.publish(&for_double("a")).await.ok();
        let task = rests_in(&api, "a", "login_expired").await;
        assert!(task["publications"][0]["error"]["message"].as_str().unwrap().contains("renew"), "{task}");
    })
    .await;
}

/// Mixpost: one account of a post failed, and to try again posted once more on those that had succeeded.
#[tokio::test]
async fn accounts_that_succeeded_are_not_posted_to_again_when_one_lost_its_login() {
    in_world(async |world: &World| {
        let double = Double::default();
        let api = double.start(world, 4).await;
        let member = |platform: &str, id: &str| json!({"platform": platform, "account_id": id});
        let members =
            [member("static_site", "blog1"), member(DOUBLE, DOUBLE), member("static_site", "blog2")];
        api.put("/groups/three", &json!({"accounts": members})).await.ok();
        double.next_look(Sighting::LoginExpired(dead()));
        api.publish(&article_with("a", json!({"group_code": "three"}))).await.ok();
        rests_in(&api, "a", "login_expired").await;
        // By hand, in vain; by the same article again; and by a renewal.
        let told = api.act("a", "retry", &json!({})).await.ok();
        assert_eq!(told["retried"], json!([member(DOUBLE, DOUBLE)]));
        world
            .until("SELECT count(*) FROM publications WHERE status = 'login_expired' AND round = 2", 1)
            .await;
        api.publish(&article_with("a", json!({"group_code": "three"}))).await.ok();
        api.put(ACCOUNT, &json!({"credentials": {}})).await.ok();
        let task = rests_in(&api, "a", "success").await;
        let tries = task["publications"].as_array().unwrap().iter();
        let tries = tries.map(|one| (one["attempts"].clone(), one["round"].clone())).collect::<Vec<_>>();
        assert_eq!(tries, [(json!(1), json!(1)), (json!(1), json!(3)), (json!(1), json!(1))]);
        assert_eq!((world.pages("blog1").len(), double.published(), world.pages("blog2").len()), (1, 1, 1));
    })
    .await;
}
