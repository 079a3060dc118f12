//! Leases and fences: what a holder left behind is looked up, and the holder itself can change nothing any more.

use std::sync::Arc;
use std::time::{Duration, Instant};

use publish_ingest::account::Credentials;
use publish_ingest::clock::Clock as _;
use publish_ingest::connector::static_site::StaticSite;
use publish_ingest::connector::{Connector, Job, Trace, Verdict};
use publish_ingest::store::{Claimed, Evidence, Intent, JournalEntry, Probe, Store};
use serde_json::{Value, json};
use sqlx::Executor as _;
use tokio::sync::Semaphore;
use uuid::Uuid;

use crate::claims::success;
use crate::harness::{ONE, World, in_world, limits, task_path};
use crate::logins::{for_robot, hire};
use crate::robot::{Does, Robot};

fn in_time(world: &World) -> Instant {
    world.clock.instant() + Duration::from_hours(1)
}

/// A worker that claims one article, notes that it is about to publish, and is never heard of again.
pub(crate) async fn begun(world: &World, external_id: &str) -> (Claimed, Job) {
    world.accept(&[world.new_task(external_id, ONE)]).await;
    let one = world.claim("dead").await.remove(0);
    let key = world.store.marker_key(one.tenant_id, &world.vault).await.unwrap();
    let marker = key.marker(&one.external_id, &one.platform, &one.account_id);
    let job = Job::of(&one, &marker, Credentials::none(), in_time(world));
    assert!(note(&world.store, entry(&one, &job.marker)).await);
    (one, job)
}

/// Writes one entry alone; whether the lease was held.
pub(crate) async fn note(store: &Store, entry: JournalEntry) -> bool {
    store.journal(entry.tenant_id, &[entry]).await.unwrap() == [true]
}

pub(crate) fn entry(one: &Claimed, marker: &str) -> JournalEntry {
    JournalEntry {
        tenant_id: one.tenant_id,
        publication_id: one.publication_id,
        fence: one.fence,
        marker: marker.to_owned(),
        lease: Duration::from_secs(30),
        came: None,
        probe: Some(Probe {
            step: 0,
            outcome: "absent",
            detail: None,
            took: Duration::ZERO,
            evidence: Evidence::default(),
        }),
        disproved: false,
        intent: Some(Intent { step: 1, kind: "publish", draft_id: None }),
        confirming: false,
    }
}

/// The page, placed as the dead worker would have.
pub(crate) async fn place(world: &World, job: &Job) {
    let site = StaticSite::new(world.site_root(), "https://site.example", world.shared_clock());
    assert!(matches!(site.publish(job).await, Verdict::Done(_)));
}

async fn kinds_and_outcomes(world: &World, external_id: &str) -> Vec<String> {
    let api = world.start().await;
    let history = api.get(&format!("{}/history", task_path(external_id))).await.ok();
    let text = |entry: &Value, name: &str| entry[name].as_str().unwrap_or_default().to_owned();
    history["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| format!("{} {}{}", text(entry, "kind"), text(entry, "outcome"), text(entry, "reason")))
        .collect()
}

#[tokio::test]
async fn what_was_published_before_a_crash_is_found_and_not_published_again() {
    in_world(async |world: &World| {
        let (one, job) = begun(world, "a").await;
        place(world, &job).await;
        let page = world.site_root().join("acme").join("blog1").join(format!("{}.html", job.marker));
        let written = std::fs::metadata(&page).unwrap().modified().unwrap();
        world.advance(31);
        let api = world.start().await;
        let task = api.finished("a").await;
        assert_eq!((&task["status"], &task["publications"][0]["attempts"]), (&json!("success"), &json!(1)));
        assert_eq!(task["publications"][0]["remote_id"], job.marker);
        assert_eq!(std::fs::metadata(&page).unwrap().modified().unwrap(), written);
        assert_eq!(world.pages("blog1"), [job.marker.as_str()]);
        assert_eq!(
            world.number("SELECT max(fence)::bigint FROM publications").await,
            i64::from(one.fence) + 1
        );
        assert_eq!(
            kinds_and_outcomes(world, "a").await,
            [
                "accepted ",
                "transition claimed",
                "probe absent",
                "try answer_lost",
                "transition lease_ran_out",
                "probe found",
                "transition found_published",
            ]
        );
    })
    .await;
}

#[tokio::test]
async fn what_was_not_published_before_a_crash_is_published_once() {
    in_world(async |world: &World| {
        let (_, job) = begun(world, "a").await;
        world.advance(31);
        let api = world.start().await;
        let task = api.finished("a").await;
        assert_eq!((&task["status"], &task["publications"][0]["attempts"]), (&json!("success"), &json!(2)));
        assert_eq!(world.pages("blog1"), [job.marker.as_str()]);
        assert_eq!(
            kinds_and_outcomes(world, "a").await[5..],
            ["probe absent", "try done", "transition published"]
        );
    })
    .await;
}

/// A look that proved it was in vain closes a try; two such tries of a round are enough without a wait, and not for ever.
#[tokio::test]
async fn what_came_to_nothing_twice_waits_by_the_schedule_and_is_begun_again() {
    in_world(async |world: &World| {
        let (one, job) = begun(world, "a").await;
        world.advance(31);
        let again = world.claim("dead too").await.remove(0);
        assert_eq!((again.publication_id, again.fence), (one.publication_id, one.fence + 1));
        let proven = JournalEntry { disproved: true, ..entry(&again, &job.marker) };
        assert!(note(&world.store, proven).await);
        world.advance(31);
        let api = world.start().await;
        world.until("SELECT max(tries)::bigint FROM publications", 1).await;
        let publication = api.task("a").await.ok()["publications"][0].clone();
        let error = &publication["error"]["code"];
        assert_eq!((&publication["status"], error), (&json!("submitted"), &json!("platform_unavailable")));
        world.advance(6);
        let task = api.finished("a").await;
        assert_eq!((&task["status"], &task["publications"][0]["attempts"]), (&json!("success"), &json!(3)));
        assert_eq!(world.pages("blog1"), [job.marker.as_str()]);
    })
    .await;
}

#[tokio::test]
async fn a_page_that_is_already_there_is_adopted_at_the_first_claim() {
    in_world(async |world: &World| {
        // As after a restored backup: the database knows nothing of the page.
        let key = world.store.marker_key(world.tenant.tenant_id, &world.vault).await.unwrap();
        let task = world.new_task("a", ONE);
        let job = Job {
            marker: key.marker("a", "static_site", "blog1"),
            tenant: "acme".to_owned(),
            tenant_id: Uuid::nil(),
            publication_id: task.task_id,
            round: 1,
            external_id: "a".to_owned(),
            account_id: "blog1".to_owned(),
            credentials: Credentials::none(),
            settings: json!({"site": "blog1"}),
            content: task.content.clone(),
            submitted_at: world.clock_now(),
            draft_id: None,
            prepared: Value::Null,
            request_id: String::new(),
            trace: Trace::default(),
            until: in_time(world),
        };
        place(world, &job).await;
        world.accept(&[task]).await;
        let api = world.start().await;
        let task = api.finished("a").await;
        assert_eq!((&task["status"], &task["publications"][0]["attempts"]), (&json!("success"), &json!(0)));
        assert!(kinds_and_outcomes(world, "a").await.contains(&"transition found_published".to_owned()));
        assert_eq!(world.pages("blog1").len(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_holder_whose_lease_ran_out_can_change_nothing() {
    in_world(async |world: &World| {
        let (old, job) = begun(world, "a").await;
        let take_over = async |owner| world.store.claim(old.tenant_id, &limits(owner)).await.unwrap();
        world.advance(25);
        assert!(take_over("early").await.is_empty());
        world.advance(6);
        let new = take_over("new").await.remove(0);
        assert_eq!(
            (new.publication_id, new.fence, new.taken_over),
            (old.publication_id, old.fence + 1, true)
        );
        assert_eq!(new.marker.as_deref(), Some(job.marker.as_str()));
        assert!(take_over("third").await.is_empty());
        let row = "SELECT concat_ws(' ', status, fence, lease_owner, lease_until, confirming, attempts, url)
            FROM publications";
        let before = world.text(row).await;
        assert!(!note(&world.store, entry(&old, &job.marker)).await);
        let settler = world.settler();
        assert!(!settler.settle(success(&old)).await);
        assert_eq!(world.text(row).await, before);
        assert_eq!(world.number("SELECT count(*) FROM attempts").await, 2);
        assert_eq!(world.number("SELECT count(*) FROM events").await, 0);
        // The new one can, and once.
        assert!(settler.settle(success(&new)).await);
        assert!(!settler.settle(success(&new)).await);
        assert_eq!(world.number("SELECT count(*) FROM events").await, 1);
    })
    .await;
}

#[tokio::test]
async fn writing_the_journal_renews_the_lease() {
    in_world(async |world: &World| {
        world.accept(&[world.new_task("a", ONE)]).await;
        let one = world.claim("w").await.remove(0);
        world.advance(20);
        assert!(note(&world.store, entry(&one, "m")).await);
        let tenant_id = one.tenant_id;
        world.advance(20);
        assert!(world.store.claim(tenant_id, &limits("other")).await.unwrap().is_empty());
        assert!(world.due().await.is_empty());
        world.advance(11);
        assert_eq!(world.due().await, [tenant_id]);
        assert_eq!(world.store.claim(tenant_id, &limits("other")).await.unwrap().len(), 1);
    })
    .await;
}

#[tokio::test]
async fn while_an_outcome_is_being_found_out_the_task_says_so() {
    in_world(async |world: &World| {
        let (_, job) = begun(world, "a").await;
        // The site cannot be looked at: neither found nor proven absent.
        let site = world.site_root().join("acme");
        std::fs::write(&site, "no folder").unwrap();
        world.advance(31);
        let api = world.start().await;
        world.until("SELECT count(*) FROM attempts WHERE outcome = 'cannot_tell'", 1).await;
        let publication = api.task("a").await.ok()["publications"][0].clone();
        assert_eq!(
            (&publication["status"], &publication["phase"]),
            (&json!("running"), &json!("confirming"))
        );
        std::fs::remove_file(&site).unwrap();
        place(world, &job).await;
        world.advance(31);
        let publication = api.finished("a").await["publications"][0].clone();
        assert_eq!((&publication["status"], &publication["phase"]), (&json!("success"), &Value::Null));
        assert_eq!(publication["attempts"], 1);
    })
    .await;
}

#[tokio::test]
async fn an_outcome_that_cannot_be_found_out_for_a_day_is_told_as_unknown() {
    in_world(async |world: &World| {
        begun(world, "a").await;
        std::fs::write(world.site_root().join("acme"), "no folder").unwrap();
        world.advance(25 * 3600);
        let api = world.start().await;
        let task = api.finished("a").await;
        let error = &task["publications"][0]["error"];
        assert_eq!((&task["status"], &error["code"]), (&json!("failed"), &json!("outcome_unknown")));
        assert_eq!(error["retryable"], false);
    })
    .await;
}

#[tokio::test]
async fn who_was_stopped_before_the_call_does_not_begin_it_later() {
    in_world(async |world: &World| {
        let robot = Robot::start([]).await;
        let mut plan = world.plan();
        plan.lease = Duration::from_secs(2);
        let api = world.start_with(plan).await;
        hire(&api, &robot).await;
        // Its intent takes longer to be written than a call may take.
        let mut stop = world.pool.begin().await.unwrap();
        stop.execute("LOCK TABLE attempts IN EXCLUSIVE MODE").await.unwrap();
        api.publish(&for_robot("a")).await.ok();
        let long = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
            AND wait_event_type = 'Lock' AND clock_timestamp() - query_start > interval '1100 ms'";
        world.until(long, 1).await;
        stop.commit().await.unwrap();
        // It was noted, and not sent; whoever took over sent it.
        let task = api.finished("a").await;
        let publication = &task["publications"][0];
        assert_eq!((&publication["status"], &publication["attempts"]), (&json!("success"), &json!(2)));
        assert_eq!(robot.count(), 1);
    })
    .await;
}

#[tokio::test]
async fn an_answer_that_comes_after_the_lease_decides_nothing_and_stands_in_the_history() {
    in_world(async |world: &World| {
        let gate = Arc::new(Semaphore::new(0));
        let robot = Robot::start([Does::PublishesAndHangs(gate.clone())]).await;
        let api = world.start().await;
        hire(&api, &robot).await;
        api.publish(&for_robot("a")).await.ok();
        robot.first(1).await;
        world.advance(31);
        let task = api.finished("a").await;
        assert_eq!(task["status"], "success");
        let tries = "SELECT count(*) FROM attempts WHERE outcome = 'answer_lost'";
        assert_eq!(world.number(tries).await, 1);
        gate.add_permits(1);
        let late = "SELECT count(*) FROM attempts WHERE outcome = 'done_late' AND fence = 1
            AND detail LIKE 'https://robot.example/%'";
        world.until(late, 1).await;
        assert_eq!(api.task("a").await.ok(), task);
        assert_eq!(world.number("SELECT count(*) FROM events").await, 1);
    })
    .await;
}
