//! Everything that the sandbox can do to an article, to its end.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Api, World, eventually, in_world, task_path};
use crate::sandbox::{BOX, asked, for_box, held, open, put};

/// What the history says of the tries and looks, as kind and outcome.
async fn steps(api: &Api, external_id: &str) -> Vec<String> {
    let history = api.get(&format!("{}/history", task_path(external_id))).await.ok();
    let steps = history["entries"].as_array().unwrap().iter().filter(|one| !one["outcome"].is_null());
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    steps.map(|one| format!("{} {}", text(&one["kind"]), text(&one["outcome"]))).collect()
}

/// A publication that has given its lease back and waits: looked at again later, or due later.
pub(crate) const WAITS: &str =
    "SELECT count(*) FROM publications WHERE status IN ('running', 'submitted') AND lease_until IS NULL
    AND attempts + drafts > 0";

/// Lets the time pass in which nobody works on anything.
async fn let_time_pass(world: &World) {
    if world.number("SELECT count(*) FROM publications WHERE lease_until IS NOT NULL").await == 0 {
        world.advance(31);
    }
}

#[tokio::test]
async fn an_answer_that_is_lost_costs_a_look_and_makes_no_second_article() {
    in_world(async |world: &World| {
        let api = world.start().await;
        open(&api, Value::Null).await;
        for behaviour in ["lose_answer", "error_after_accepting"] {
            for (step, looks) in [
                ("draft", ["probe absent", "try answer_lost", "probe draft_found", "try done"].as_slice()),
                (
                    "publish",
                    &["probe absent", "try done", "probe draft_found", "try answer_lost", "probe found"],
                ),
            ] {
                put(&api, json!({"do": behaviour, "step": step})).await;
                let id = format!("{behaviour}-{step}");
                api.publish(&for_box(&id)).await.ok();
                let task = api.finished(&id).await;
                assert_eq!(
                    (&task["status"], &task["publications"][0]["attempts"]),
                    (&json!("success"), &json!(1))
                );
                assert_eq!(held(&api, &id).await, ["public"]);
                assert_eq!(steps(&api, &id).await, looks, "{id}");
                let made = asked(&api, &id).await.into_iter().filter(|one| one.contains("made")).count();
                assert_eq!(made, 1, "{id}");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_draft_that_comes_late_is_waited_for_and_not_made_again() {
    in_world(async |world: &World| {
        let api = world.start().await;
        open(&api, json!({"do": "late", "step": "draft", "seconds": 20})).await;
        api.publish(&for_box("a")).await.ok();
        world.until(WAITS, 1).await;
        assert_eq!(held(&api, "a").await, [""; 0]);
        let publication = api.task("a").await.ok()["publications"][0].clone();
        assert_eq!(
            (&publication["status"], &publication["phase"]),
            (&json!("running"), &json!("confirming"))
        );
        world.advance(31);
        assert_eq!(api.finished("a").await["status"], "success");
        assert_eq!(held(&api, "a").await, ["public"]);
        let expected = ["find 200", "draft late made", "find 200", "find 200", "publish published 200"];
        assert_eq!(asked(&api, "a").await, expected);
    })
    .await;
}

#[tokio::test]
async fn a_success_that_comes_late_is_the_one_there_is() {
    in_world(async |world: &World| {
        let api = world.start().await;
        open(&api, json!({"do": "late", "seconds": 20, "times": 9})).await;
        api.publish(&for_box("a")).await.ok();
        world.until(WAITS, 1).await;
        assert_eq!(held(&api, "a").await, ["draft"]);
        world.advance(31);
        let publication = api.finished("a").await["publications"][0].clone();
        assert_eq!((&publication["status"], &publication["remote_id"]), (&json!("success"), &json!("1")));
        assert_eq!(held(&api, "a").await, ["public"]);
    })
    .await;
}

#[tokio::test]
async fn an_error_that_did_nothing_is_found_to_have_done_nothing() {
    in_world(async |world: &World| {
        let api = world.start().await;
        open(&api, json!({"do": "error", "step": "draft"})).await;
        api.publish(&for_box("a")).await.ok();
        world.until(WAITS, 1).await;
        world.advance(31);
        assert_eq!(api.finished("a").await["status"], "success");
        assert_eq!(held(&api, "a").await, ["public"]);
        assert!(steps(&api, "a").await.contains(&"try not_published".to_owned()));
        let made =
            asked(&api, "a").await.into_iter().filter(|one| one.starts_with("draft")).collect::<Vec<_>>();
        assert_eq!(made, ["draft error 503", "draft made 201"]);
    })
    .await;
}

/// A platform that answers every publication with an error is not asked without a pause, and asked again by the schedule.
#[tokio::test]
async fn an_error_that_stays_is_tried_by_the_schedule_and_then_told() {
    in_world(async |world: &World| {
        let api = world.start().await;
        open(&api, Value::Null).await;
        for step in ["draft", "publish"] {
            put(&api, json!({"do": "error", "step": step, "times": 1_000})).await;
            api.publish(&for_box(step)).await.ok();
            let mut task = Value::Null;
            eventually("the end", async || {
                let_time_pass(world).await;
                task = api.task(step).await.ok();
                !task["finished_at"].is_null()
            })
            .await;
            let error = &task["publications"][0]["error"];
            assert_eq!((&error["code"], &error["retryable"]), (&json!("platform_unavailable"), &json!(true)));
            let sent = asked(&api, step).await.into_iter().filter(|one| one.starts_with(step)).count();
            // Two at once, then one for each wait of the schedule.
            assert_eq!(sent, 4, "{step}");
            // Nothing is public, and it goes on from there.
            put(&api, Value::Null).await;
            api.act(step, "retry", &json!({})).await.ok();
            assert_eq!(api.finished(step).await["status"], "success");
            assert_eq!(held(&api, step).await, ["public"]);
        }
    })
    .await;
}

#[tokio::test]
async fn what_is_rejected_has_failed_and_is_tried_again_when_the_caller_says_so() {
    in_world(async |world: &World| {
        let api = world.start().await;
        open(&api, json!({"do": "reject", "external_id": "bad-*"})).await;
        api.publish(&for_box("bad-1")).await.ok();
        api.publish(&for_box("good-1")).await.ok();
        let error = api.finished("bad-1").await["publications"][0]["error"].clone();
        assert_eq!((&error["code"], &error["retryable"]), (&json!("sandbox_rejected"), &json!(false)));
        assert_eq!(held(&api, "bad-1").await, [""; 0]);
        assert_eq!(api.finished("good-1").await["status"], "success");
        put(&api, Value::Null).await;
        api.act("bad-1", "retry", &json!({})).await.ok();
        assert_eq!(api.finished("bad-1").await["status"], "success");
        assert_eq!(held(&api, "bad-1").await, ["public"]);
    })
    .await;
}

#[tokio::test]
async fn a_login_expires_after_so_many_articles_and_goes_on_when_it_is_renewed() {
    in_world(async |world: &World| {
        let api = world.start().await;
        open(&api, json!({"do": "login_expired", "after": 2})).await;
        let ends = async |id: &str| {
            api.publish(&for_box(id)).await.ok();
            api.finished(id).await["publications"][0].clone()
        };
        for id in ["a", "b"] {
            assert_eq!(ends(id).await["status"], "success");
        }
        let third = ends("c").await;
        assert_eq!(
            (&third["status"], &third["error"]["code"]),
            (&json!("login_expired"), &json!("logged_out"))
        );
        // The others end without a call.
        assert_eq!(ends("d").await["status"], "login_expired");
        assert_eq!(asked(&api, "d").await.len(), 0);
        assert_eq!(asked(&api, "c").await, ["find 200", "draft login_expired 401"]);
        assert_eq!(api.get(BOX).await.ok()["login_state"], "login_expired");

        let settings = json!({"behaviour": {"do": "login_expired", "after": 2}});
        let renewed = json!({"settings": settings, "credentials": {"token": "new"}});
        assert_eq!(api.put(BOX, &renewed).await.ok()["resumed"], 2);
        world.until("SELECT count(*) FROM publications WHERE status = 'success'", 4).await;
        for id in ["c", "d"] {
            assert_eq!(held(&api, id).await, ["public"]);
        }
        // The new login has seen two articles as well.
        assert_eq!(ends("e").await["status"], "login_expired");
        // The same credentials renew it, too.
        assert_eq!(api.put(BOX, &renewed).await.ok()["resumed"], 1);
        world.until("SELECT count(*) FROM publications WHERE status = 'success'", 5).await;
    })
    .await;
}

#[tokio::test]
async fn a_platform_that_asks_for_a_pause_gets_it_and_that_costs_no_try() {
    in_world(async |world: &World| {
        let api = world.start().await;
        open(&api, json!({"do": "rate_limit", "external_id": "a", "seconds": 90})).await;
        api.publish(&for_box("a")).await.ok();
        world.until("SELECT count(*) FROM lanes WHERE parked_until > now() + interval '80 seconds'", 1).await;
        let publication = api.task("a").await.ok()["publications"][0].clone();
        assert_eq!((&publication["status"], &publication["attempts"]), (&json!("submitted"), &json!(0)));
        assert_eq!(publication["error"]["code"], "too_many_requests");
        assert_eq!(world.number("SELECT tries::bigint FROM publications").await, 0);
        // The account is left alone, not the article.
        api.publish(&for_box("b")).await.ok();
        world.advance(80);
        let page = crate::harness::article("page");
        api.publish(&page).await.ok();
        api.finished("page").await;
        assert_eq!((asked(&api, "a").await.len(), asked(&api, "b").await.len()), (2, 0));
        world.advance(11);
        for id in ["a", "b"] {
            assert_eq!(api.finished(id).await["status"], "success");
        }
        assert_eq!(asked(&api, "a").await[1], "draft rate_limit 429");
        assert_eq!(world.number("SELECT max(tries)::bigint FROM publications").await, 0);
    })
    .await;
}

#[tokio::test]
async fn a_platform_that_takes_longer_than_a_call_may_is_given_up_and_looked_at() {
    in_world(async |world: &World| {
        let mut plan = world.plan();
        // A call ends within half of it.
        plan.lease = Duration::from_secs(2);
        let api = world.start_with(plan).await;
        open(&api, json!({"do": "slow", "seconds": 60})).await;
        api.publish(&for_box("a")).await.ok();
        world.until("SELECT drafts::bigint FROM publications", 1).await;
        world.until(WAITS, 1).await;
        // The platform may still do it long after the lease.
        world
            .until("SELECT count(*) FROM publications WHERE due_at > now() + interval '20 seconds'", 1)
            .await;
        world.advance(31);
        assert_eq!(api.finished("a").await["status"], "success");
        assert_eq!(held(&api, "a").await, ["public"]);
        let made =
            asked(&api, "a").await.into_iter().filter(|one| one.starts_with("draft")).collect::<Vec<_>>();
        assert_eq!(made, ["draft slow", "draft made 201"]);
    })
    .await;
}

#[tokio::test]
async fn what_can_never_be_found_out_is_told_after_a_day_and_then_a_person_says() {
    const DAY: i64 = 24 * 60 * 60;
    in_world(async |world: &World| {
        let api = world.start().await;
        open(
            &api,
            json!([{"do": "unsearchable", "external_id": "public-*"},
            {"do": "unsearchable", "step": "draft", "external_id": "draft-*"}]),
        )
        .await;
        for id in ["public-1", "draft-1"] {
            api.publish(&for_box(id)).await.ok();
        }
        world.until(WAITS, 2).await;
        for id in ["public-1", "draft-1"] {
            assert_eq!(api.task(id).await.ok()["publications"][0]["phase"], "confirming");
        }
        world.advance(DAY);
        for id in ["public-1", "draft-1"] {
            let error = api.finished(id).await["publications"][0]["error"].clone();
            assert_eq!((&error["code"], &error["retryable"]), (&json!("outcome_unknown"), &json!(false)));
        }
        // Whoever looks at the platform knows.
        assert_eq!(
            (held(&api, "public-1").await, held(&api, "draft-1").await),
            (vec!["public".to_owned()], vec!["draft".to_owned()])
        );
        let named = |more: Value| {
            let mut body = json!({"platform": "sandbox", "account_id": "box"});
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            body
        };
        let url = "https://sandbox.invalid/sandbox/box/articles/1";
        let found = named(json!({"confirmed_published": {"url": url}}));
        api.act("public-1", "retry", &found).await.ok();
        assert_eq!(api.finished("public-1").await["publications"][0]["url"], url);
        put(&api, Value::Null).await;
        api.act("draft-1", "retry", &named(json!({"confirmed_not_published": true}))).await.ok();
        assert_eq!(api.finished("draft-1").await["status"], "success");
        for id in ["public-1", "draft-1"] {
            assert_eq!(held(&api, id).await, ["public"], "{id}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_search_that_comes_back_heals_what_nobody_knew() {
    in_world(async |world: &World| {
        let api = world.start().await;
        open(&api, json!([{"do": "lose_answer"}, {"do": "error", "step": "find", "nth": 3}])).await;
        api.publish(&for_box("a")).await.ok();
        world.until(WAITS, 1).await;
        world.advance(6);
        assert_eq!(api.finished("a").await["status"], "success");
        let expected = [
            "find 200",
            "draft made 201",
            "find 200",
            "publish lose_answer published",
            "find error 503",
            "find 200",
        ];
        assert_eq!(asked(&api, "a").await, expected);
    })
    .await;
}

#[tokio::test]
async fn by_chance_everything_goes_wrong_and_each_article_is_there_once() {
    const ARTICLES: usize = 40;
    in_world(async |world: &World| {
        let mut plan = world.plan();
        plan.retries = "1s,1s,1s,1s,1s,1s,1s,1s".parse().unwrap();
        let api = world.start_with(plan).await;
        open(&api, Value::Null).await;
        let settings = json!({"behaviour": {"do": "random", "probability": 0.3}, "seed": 7});
        api.put(BOX, &json!({"settings": settings, "max_in_flight": ARTICLES})).await.ok();
        let ids = (0..ARTICLES).map(|n| format!("post-{n}")).collect::<Vec<_>>();
        for id in &ids {
            api.publish(&for_box(id)).await.ok();
        }
        eventually("all are published", async || {
            let_time_pass(world).await;
            world.number("SELECT count(*) FROM tasks WHERE finished_at IS NULL").await == 0
        })
        .await;
        for id in &ids {
            assert_eq!(api.task(id).await.ok()["status"], "success", "{id}");
            let public = held(&api, id).await.into_iter().filter(|state| state == "public").count();
            assert_eq!(public, 1, "{id}");
        }
        // It was not a quiet day.
        let befell = world.number("SELECT count(DISTINCT behaviour) FROM sandbox_requests").await;
        assert_eq!(befell, 6);
    })
    .await;
}
