//! Robots that fetch their articles: what they get, for how long, and what becomes of it when they do not come back.

use std::collections::HashSet;

use publish_ingest::config::Roles;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::harness::{Api, Reply, World, article_with, at_once, in_world, redacted, within};
use crate::logins::for_robot;
use crate::robot::Robot;

/// How long a robot has an article to itself, in seconds.
const LEASE: i64 = 300;

const DAY: i64 = 24 * 3_600;

/// An account whose articles are fetched, alone in the group `robot`.
async fn hire(api: &Api) {
    put(api, &json!({})).await.ok();
    let alone = json!({"accounts": [{"platform": "http_bridge", "account_id": "robot"}]});
    api.put("/groups/robot", &alone).await.ok();
}

async fn put(api: &Api, account: &Value) -> Reply {
    api.put("/accounts/http_bridge/robot", account).await
}

fn asks_for(max: usize) -> Value {
    json!({"platform": "http_bridge", "account_ids": ["robot"], "max": max})
}

async fn claim(api: &Api, max: usize) -> Vec<Value> {
    api.post("/bridge/claim", &asks_for(max)).await.ok()["jobs"].as_array().unwrap().clone()
}

/// The one article that is due.
async fn claim_one(api: &Api) -> Value {
    let mut jobs = claim(api, 9).await;
    assert_eq!(jobs.len(), 1, "{jobs:?}");
    jobs.remove(0)
}

fn ids(jobs: &[Value]) -> Vec<&str> {
    jobs.iter().map(|job| job["external_id"].as_str().unwrap()).collect()
}

async fn call(api: &Api, job: &Value, what: &str, body: &Value) -> Reply {
    api.post(&format!("/bridge/{}/{what}", job["publication_id"].as_str().unwrap()), body).await
}

async fn beat(api: &Api, job: &Value) -> Reply {
    call(api, job, "heartbeat", &json!({"round": job["round"], "lease_id": job["lease_id"]})).await
}

fn success(job: &Value) -> Value {
    let url = format!("https://robot.example/{}", job["webhook_id"].as_str().unwrap());
    json!({"round": job["round"], "status": "success", "url": url})
}

fn failed(job: &Value) -> Value {
    json!({"round": job["round"], "status": "failed", "error": {"code": "no_button", "message": "m"},
        "lease_id": job["lease_id"]})
}

async fn publication(api: &Api, external_id: &str) -> Value {
    api.task(external_id).await.ok()["publications"][0].clone()
}

/// The same article in the words in which it is sent to an endpoint.
async fn sent_of(api: &Api, members: &Value) -> Value {
    let robot = Robot::start([]).await;
    api.put("/accounts/http_bridge/sent", &robot.account()).await.ok();
    let alone = json!({"accounts": [{"platform": "http_bridge", "account_id": "sent"}]});
    api.put("/groups/sent", &alone).await.ok();
    let mut article = article_with("post/2", members.clone());
    for (name, value) in
        [("group_code", "sent"), ("title", "About post/1"), ("content_html", "<p>post/1</p>")]
    {
        article[name] = json!(value);
    }
    api.publish(&article).await.ok();
    let sent = robot.first(1).await[0].json()["article"].clone();
    api.finished("post/2").await;
    sent
}

#[tokio::test]
async fn an_article_is_fetched_kept_by_heartbeats_and_reported() {
    in_world(async |world: &World| {
        let api = world.start().await;
        hire(&api).await;
        assert_eq!(claim(&api, 1).await, Vec::<Value>::new());
        let members = json!({"group_code": "robot", "summary": "S", "tags": ["a", "b"], "author": "é"});
        api.publish(&article_with("post/1", members.clone())).await.ok();
        let job = claim_one(&api).await;
        insta::assert_json_snapshot!("fetched", redacted(&job));
        assert_eq!(job["article"], sent_of(&api, &members).await);
        let one = publication(&api, "post/1").await;
        let seen = (&one["status"], &one["phase"], &one["attempts"], &one["due_at"]);
        assert_eq!(seen, (&json!("running"), &json!("confirming"), &json!(1), &job["lease_until"]));
        assert_eq!(claim(&api, 9).await, Vec::<Value>::new());
        // Kept over many leases.
        for _ in 0..3 {
            world.advance(LEASE - 10);
            let until = beat(&api, &job).await.ok()["lease_until"].clone();
            assert_eq!(until, publication(&api, "post/1").await["due_at"]);
            assert_eq!(claim(&api, 9).await, Vec::<Value>::new());
        }
        call(&api, &job, "results", &success(&job)).await.ok();
        let one = publication(&api, "post/1").await;
        assert_eq!(
            (&one["status"], &one["url"], &one["attempts"]),
            (&json!("success"), &success(&job)["url"], &json!(1))
        );
        call(&api, &job, "results", &success(&job)).await.problem(409, "conflict");
        beat(&api, &job).await.problem(409, "conflict");
    })
    .await;
}

#[tokio::test]
async fn what_a_robot_leaves_behind_is_handed_out_again_and_the_first_one_can_only_report_success() {
    in_world(async |world: &World| {
        let api = world.start().await;
        hire(&api).await;
        api.publish(&for_robot("a")).await.ok();
        // Whether the robot died or the answer never came to it: it was handed out.
        let first = claim_one(&api).await;
        assert_eq!(first["attempted_before"], false);
        world.advance(LEASE - 2);
        assert_eq!(claim(&api, 9).await, Vec::<Value>::new());
        world.advance(3);
        // Nobody else has it yet, so it is still this robot's.
        beat(&api, &first).await.ok();
        world.advance(LEASE + 1);
        let second = claim_one(&api).await;
        assert_eq!(second["attempted_before"], true);
        assert_eq!((&second["webhook_id"], &second["round"]), (&first["webhook_id"], &first["round"]));
        assert_ne!(second["lease_id"], first["lease_id"]);
        beat(&api, &first).await.problem(409, "conflict");
        call(&api, &first, "heartbeat", &json!({})).await.problem(409, "conflict");
        call(&api, &first, "results", &failed(&first)).await.problem(409, "conflict");
        let mut unnamed = failed(&first);
        unnamed.as_object_mut().unwrap().remove("lease_id");
        call(&api, &first, "results", &unnamed).await.problem(409, "conflict");
        beat(&api, &second).await.ok();
        call(&api, &first, "results", &success(&first)).await.ok();
        let one = publication(&api, "a").await;
        assert_eq!(
            (&one["status"], &one["attempts"], &one["round"]),
            (&json!("success"), &json!(2), &json!(1))
        );
        beat(&api, &second).await.problem(409, "conflict");
        assert_eq!(world.number("SELECT count(*) FROM events").await, 1);
        let reasons = [
            "submitted → running (handed_out)",
            "running → running (handed_out_again)",
            "running → success (published)",
        ];
        assert_eq!(api.transitions("a").await, reasons);
    })
    .await;
}

#[tokio::test]
async fn no_more_is_handed_out_in_a_day_than_its_account_may_publish() {
    in_world(async |world: &World| {
        let api = world.start().await;
        hire(&api).await;
        put(&api, &json!({"daily_limit": 2})).await.ok();
        for id in ["a", "b", "c", "d"] {
            api.publish(&for_robot(id)).await.ok();
        }
        let jobs = claim(&api, 9).await;
        assert_eq!(ids(&jobs), ["a", "b"]);
        assert_eq!(claim(&api, 9).await, Vec::<Value>::new());
        call(&api, &jobs[0], "results", &success(&jobs[0])).await.ok();
        assert_eq!(claim(&api, 9).await, Vec::<Value>::new());
        // What was not published gives its place back.
        call(&api, &jobs[1], "results", &failed(&jobs[1])).await.ok();
        assert_eq!(ids(&claim(&api, 9).await), ["c"]);
        // What is left behind has its place already.
        world.advance(LEASE + 1);
        assert_eq!(ids(&claim(&api, 9).await), ["c"]);
        world.advance(DAY);
        let next = claim(&api, 9).await;
        assert!(ids(&next).contains(&"d"), "{next:?}");
    })
    .await;
}

#[tokio::test]
async fn a_try_whose_end_is_known_does_not_count_as_attempted() {
    in_world(async |world: &World| {
        let api = world.start().await;
        hire(&api).await;
        api.publish(&for_robot("a")).await.ok();
        let first = claim_one(&api).await;
        // Of what was handed out once, a failure needs no lease's name.
        let mut unnamed = failed(&first);
        unnamed.as_object_mut().unwrap().remove("lease_id");
        call(&api, &first, "results", &unnamed).await.ok();
        assert_eq!(publication(&api, "a").await["error"]["code"], "no_button");
        assert_eq!(claim(&api, 9).await, Vec::<Value>::new());
        api.act("a", "retry", &json!({})).await.ok();
        let again = claim_one(&api).await;
        assert_eq!((&again["attempted_before"], &again["round"]), (&json!(false), &json!(2)));
        assert_eq!(again["webhook_id"], first["webhook_id"]);
        for report in [success(&first), failed(&first)] {
            call(&api, &first, "results", &report).await.problem(409, "conflict");
        }
        call(&api, &first, "heartbeat", &json!({"round": 1})).await.problem(409, "conflict");
        call(&api, &again, "results", &success(&again)).await.ok();
    })
    .await;
}

#[tokio::test]
async fn robots_that_fetch_at_once_never_get_the_same_article() {
    const ROBOTS: usize = 16;
    in_world(async |world: &World| {
        let api = world.start().await;
        hire(&api).await;
        put(&api, &json!({"max_in_flight": 30})).await.ok();
        let tasks = (0..40).map(|n| world.new_task(&format!("a{n}"), "robot")).collect::<Vec<_>>();
        world.accept(&tasks).await;
        // Each as fast as it can.
        let fetch = || {
            let api = api.clone();
            async move {
                let mut got = Vec::new();
                for _ in 0..4 {
                    got.extend(claim(&api, 3).await);
                }
                got
            }
        };
        let in_hand = async |times| {
            let handed_out = "SELECT count(*) FROM publications WHERE status = 'running' AND attempts = $1";
            sqlx::query_scalar::<_, i64>(handed_out).bind(times).fetch_one(&world.pool).await.unwrap()
        };
        let got = at_once((0..ROBOTS).map(|_| fetch())).await.concat();
        assert_eq!(ids(&got).into_iter().collect::<HashSet<_>>().len(), got.len(), "none to two robots");
        assert_eq!(in_hand(1).await, 30, "no more than it may have in hand");
        // And again, when all their leases ran out.
        world.advance(LEASE + 1);
        let again = at_once((0..ROBOTS).map(|_| fetch())).await.concat();
        assert_eq!(ids(&again).into_iter().collect::<HashSet<_>>().len(), again.len());
        assert_eq!(in_hand(2).await, 30, "the same once more, and no others");
        assert!(again.iter().all(|job| job["attempted_before"] == true));
    })
    .await;
}

#[tokio::test]
async fn robots_that_wait_for_one_account_leave_the_connections_to_others() {
    /// More than a node has connections for requests.
    const ROBOTS: usize = 48;
    in_world(async |world: &World| {
        let api = world.start().await;
        hire(&api).await;
        api.publish(&for_robot("a")).await.ok();
        let mut holder = world.pool.begin().await.unwrap();
        let held = "SELECT FROM lanes WHERE account_id = 'robot' FOR UPDATE";
        sqlx::query(held).execute(&mut *holder).await.unwrap();
        let mut robots = JoinSet::new();
        for _ in 0..ROBOTS {
            let robot = api.clone();
            robots.spawn(async move { robot.post("/bridge/claim", &asks_for(1)).await });
            api.get("/groups").await.ok();
        }
        holder.rollback().await.unwrap();
        let answers = within("the answers", robots.join_all()).await;
        let jobs = answers.iter().filter_map(|answer| answer.json()["jobs"].as_array().map(Vec::len));
        assert_eq!(jobs.sum::<usize>(), 1);
    })
    .await;
}

#[tokio::test]
async fn hands_pace_and_publish_at_are_respected() {
    in_world(async |world: &World| {
        let api = world.start().await;
        hire(&api).await;
        put(&api, &json!({"max_in_flight": 3})).await.ok();
        let mut later = for_robot("later");
        later["publish_at"] = json!((world.clock_now() + chrono::TimeDelta::seconds(60)).to_rfc3339());
        for article in [later, for_robot("a"), for_robot("b")] {
            api.publish(&article).await.ok();
        }
        let jobs = claim(&api, 9).await;
        assert_eq!(ids(&jobs), ["a", "b"], "not before its time");
        for id in ["c", "d"] {
            api.publish(&for_robot(id)).await.ok();
        }
        assert_eq!(ids(&claim(&api, 9).await), ["c"], "hands are full then");
        assert_eq!(claim(&api, 9).await, Vec::<Value>::new());
        call(&api, &jobs[0], "results", &success(&jobs[0])).await.ok();
        assert_eq!(ids(&claim(&api, 9).await), ["d"]);
        // A paced account gets one, and the next when its time has come.
        put(&api, &json!({"max_in_flight": 9, "min_interval_seconds": 30})).await.ok();
        world.advance(31);
        api.publish(&for_robot("e")).await.ok();
        api.publish(&for_robot("f")).await.ok();
        assert_eq!(ids(&claim(&api, 9).await), ["e"]);
        assert_eq!(claim(&api, 9).await, Vec::<Value>::new());
        world.advance(31);
        assert_eq!(ids(&claim(&api, 9).await), ["f"]);
        world.advance(31);
        assert_eq!(ids(&claim(&api, 9).await), ["later"]);
    })
    .await;
}

#[tokio::test]
async fn no_worker_takes_what_a_robot_fetches() {
    in_world(async |world: &World| {
        let api = world.start().await;
        hire(&api).await;
        world.stop().await;
        world
            .accept(&[
                world.new_task("a", "robot"),
                world.new_task("b", "robot"),
                world.new_task("page", "one"),
            ])
            .await;
        let claimed = world.claim("w").await;
        assert_eq!(claimed.iter().map(|one| one.external_id.as_str()).collect::<Vec<_>>(), ["page"]);
        assert_eq!(
            world.store.next_free(world.tenant.tenant_id, std::time::Duration::from_secs(5)).await.unwrap(),
            None
        );
        let api = world.start().await;
        let first = claim(&api, 1).await;
        world.advance(LEASE + 1);
        assert_eq!(world.claim("w").await.iter().filter(|one| one.platform == "http_bridge").count(), 0);
        let both = claim(&api, 9).await;
        assert_eq!((both.len(), ids(&both)[0]), (2, ids(&first)[0]));
    })
    .await;
}

#[tokio::test]
async fn after_a_day_the_outcome_is_unknown_whether_or_not_a_robot_comes() {
    in_world(async |world: &World| {
        let api = world.start().await;
        hire(&api).await;
        for id in ["gone", "hangs"] {
            api.publish(&for_robot(id)).await.ok();
        }
        let jobs = claim(&api, 2).await;
        world.advance(DAY - 60);
        // A robot that hangs and beats holds it no longer than that.
        let until = beat(&api, &jobs[1]).await.ok()["lease_until"].clone();
        let left =
            until.as_str().unwrap().parse::<chrono::DateTime<chrono::Utc>>().unwrap() - world.clock_now();
        assert!((1..=60).contains(&left.num_seconds()), "{left}");
        world.advance(61);
        for (id, job) in [("gone", &jobs[0]), ("hangs", &jobs[1])] {
            let task = api.finished(id).await;
            let error = &task["publications"][0]["error"];
            assert_eq!((&error["code"], &error["retryable"]), (&json!("outcome_unknown"), &json!(false)));
            beat(&api, job).await.problem(409, "conflict");
        }
        assert_eq!(claim(&api, 9).await, Vec::<Value>::new());
        // What comes late is taken; what a person says is, too.
        call(&api, &jobs[0], "results", &success(&jobs[0])).await.ok();
        assert_eq!(publication(&api, "gone").await["status"], "success");
        let no = json!({"platform": "http_bridge", "account_id": "robot", "confirmed_not_published": true});
        api.act("hangs", "retry", &no).await.ok();
        let again = claim_one(&api).await;
        assert_eq!((&again["attempted_before"], &again["round"]), (&json!(false), &json!(2)));
        call(&api, &again, "results", &success(&again)).await.ok();
    })
    .await;
}

#[tokio::test]
async fn a_day_counts_from_the_first_handing_out() {
    in_world(async |world: &World| {
        let api = world.start().await;
        hire(&api).await;
        api.publish(&for_robot("a")).await.ok();
        claim_one(&api).await;
        world.advance(DAY - 100);
        let second = claim_one(&api).await;
        let until = second["lease_until"].as_str().unwrap().parse::<chrono::DateTime<chrono::Utc>>().unwrap();
        assert!((until - world.clock_now()).num_seconds() <= 100, "{until}");
        world.advance(101);
        api.finished("a").await;
        assert_eq!(publication(&api, "a").await["error"]["code"], "outcome_unknown");
    })
    .await;
}

#[tokio::test]
async fn a_login_that_a_robot_lost_holds_new_articles_back_until_it_is_renewed() {
    in_world(async |world: &World| {
        let api = world.start().await;
        hire(&api).await;
        put(&api, &json!({"max_in_flight": 2})).await.ok();
        for id in ["a", "b", "c"] {
            api.publish(&for_robot(id)).await.ok();
        }
        let jobs = claim(&api, 2).await;
        let expired =
            json!({"round": 1, "status": "login_expired", "error": {"code": "logged_out", "message": "m"}});
        call(&api, &jobs[0], "results", &expired).await.ok();
        world.until("SELECT count(*) FROM publications WHERE status = 'login_expired'", 2).await;
        assert_eq!(claim(&api, 9).await, Vec::<Value>::new());
        // What may have been posted is looked for all the same.
        world.advance(LEASE + 1);
        let looks = claim(&api, 9).await;
        assert_eq!(ids(&looks), ["b"]);
        call(&api, &looks[0], "results", &success(&looks[0])).await.ok();
        let renewed = put(&api, &json!({"credentials": {}})).await.ok();
        assert_eq!((&renewed["login_state"], &renewed["resumed"]), (&json!("active"), &json!(2)));
        world.until("SELECT count(*) FROM publications WHERE status = 'submitted'", 2).await;
        let resumed = claim(&api, 9).await;
        assert_eq!(ids(&resumed).into_iter().collect::<HashSet<_>>(), HashSet::from(["a", "c"]));
        assert!(resumed.iter().all(|job| job["round"] == 2 && job["attempted_before"] == false));
    })
    .await;
}

#[tokio::test]
async fn nothing_new_is_handed_out_on_a_lost_login_although_no_worker_has_looked_yet() {
    in_world(async |world: &World| {
        let mut plan = world.plan();
        plan.roles = Roles { api: true, worker: false, dispatcher: false };
        let api = world.start_with(plan).await;
        hire(&api).await;
        for id in ["a", "b"] {
            api.publish(&for_robot(id)).await.ok();
        }
        let jobs = claim(&api, 1).await;
        let expired =
            json!({"round": 1, "status": "login_expired", "error": {"code": "logged_out", "message": "m"}});
        call(&api, &jobs[0], "results", &expired).await.ok();
        assert_eq!(claim(&api, 9).await, Vec::<Value>::new());
        assert_eq!(world.number("SELECT count(*) FROM publications WHERE status = 'submitted'").await, 1);
    })
    .await;
}

#[tokio::test]
async fn an_account_changes_between_sending_and_fetching_only_while_nobody_has_anything_of_it() {
    in_world(async |world: &World| {
        let api = world.start().await;
        let robot = Robot::start([crate::robot::Does::Accepts]).await;
        hire(&api).await;
        api.publish(&for_robot("a")).await.ok();
        let job = claim_one(&api).await;
        put(&api, &robot.account()).await.problem(409, "conflict");
        call(&api, &job, "results", &success(&job)).await.ok();
        put(&api, &robot.account()).await.ok();
        // What was sent is the endpoint's: a robot has another memory.
        api.publish(&for_robot("b")).await.ok();
        let sent = robot.first(1).await.remove(0);
        world
            .until("SELECT count(*) FROM publications WHERE status = 'running' AND lease_until IS NULL", 1)
            .await;
        put(&api, &json!({"settings": {"endpoint": ""}})).await.problem(409, "conflict");
        let body = json!({"platform": "http_bridge", "account_ids": ["robot"]});
        let refused = api.post("/bridge/claim", &body).await.problem(422, "validation_failed");
        assert_eq!(refused["errors"][0]["pointer"], "/account_ids/0");
        call(&api, &sent.json(), "heartbeat", &json!({})).await.problem(409, "conflict");
        let done = json!({"round": 1, "status": "success", "url": robot.publish(&sent.header("webhook-id"))});
        call(&api, &sent.json(), "results", &done).await.ok();
        put(&api, &json!({"settings": {"endpoint": ""}})).await.ok();
        api.publish(&for_robot("c")).await.ok();
        assert_eq!(claim_one(&api).await["external_id"], "c");
        assert_eq!(robot.count(), 1);
    })
    .await;
}

#[tokio::test]
async fn calls_of_robots_are_held_to_their_rules() {
    in_world(async |world: &World| {
        let api = world.start().await;
        hire(&api).await;
        let many = (0..101).map(|n| format!("r{n}")).collect::<Vec<_>>();
        for (body, pointer, code) in [
            (json!({"account_ids": ["robot"]}), "/platform", "required"),
            (json!({"platform": "wordpress", "account_ids": ["robot"]}), "/platform", "not_allowed"),
            (json!({"platform": "http_bridge"}), "/account_ids", "required"),
            (json!({"platform": "http_bridge", "account_ids": []}), "/account_ids", "required"),
            (json!({"platform": "http_bridge", "account_ids": "robot"}), "/account_ids", "wrong_type"),
            (json!({"platform": "http_bridge", "account_ids": [1]}), "/account_ids/0", "wrong_type"),
            (json!({"platform": "http_bridge", "account_ids": ["a b"]}), "/account_ids/0", "bad_format"),
            (
                json!({"platform": "http_bridge", "account_ids": ["robot", "robot"]}),
                "/account_ids/1",
                "not_allowed",
            ),
            (
                json!({"platform": "http_bridge", "account_ids": ["robot", "none"]}),
                "/account_ids/1",
                "not_allowed",
            ),
            (json!({"platform": "http_bridge", "account_ids": many}), "/account_ids", "too_long"),
            (json!({"platform": "http_bridge", "account_ids": ["robot"], "max": 0}), "/max", "not_allowed"),
            (json!({"platform": "http_bridge", "account_ids": ["robot"], "max": 17}), "/max", "not_allowed"),
            (
                json!({"platform": "http_bridge", "account_ids": ["robot"], "wait": 1}),
                "/wait",
                "unknown_field",
            ),
        ] {
            let problem = api.post("/bridge/claim", &body).await.problem(422, "validation_failed");
            let errors = problem["errors"].as_array().unwrap();
            let told = errors.iter().any(|one| one["pointer"] == pointer && one["code"] == code);
            assert!(told, "{body}: {problem}");
        }
        api.publish(&for_robot("a")).await.ok();
        let job = claim_one(&api).await;
        call(&api, &job, "heartbeat", &json!({"rounds": 1})).await.problem(422, "validation_failed");
        let other = world.another_tenant("other").await.tenant_id;
        let stranger = api.with_key(&world.key(other, &publish_ingest::tenant::Scope::ALL).await);
        beat(&stranger, &job).await.problem(404, "not_found");
        let body = json!({"platform": "http_bridge", "account_ids": ["robot"]});
        stranger.post("/bridge/claim", &body).await.problem(422, "validation_failed");
        let reader =
            api.with_key(&world.key(world.tenant.tenant_id, &[publish_ingest::tenant::Scope::Read]).await);
        reader.post("/bridge/claim", &body).await.problem(403, "forbidden");
        beat(&reader, &job).await.problem(403, "forbidden");
        api.post("/bridge/no-id/heartbeat", &json!({})).await.problem(404, "not_found");
        call(&api, &job, "results", &success(&job)).await.ok();
    })
    .await;
}
