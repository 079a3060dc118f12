//! Pulling and replaying while services are killed: no event is missing, none comes twice, none out of order, and what was
//! asked for again is sent again once.

use std::collections::HashMap;

use publish_ingest::clock::{Clock as _, SystemClock};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use rustix::process::Signal;
use serde_json::{Value, json};
use sqlx::PgPool;

use crate::api::{Api, article};
use crate::invariants;
use crate::operator::{Furnished, put_group};
use crate::program::{Dev, Folder, eventually, seed};
use crate::receiver::{Receiver, WILLING};

/// Each has two writers of outcomes.
const SERVICES: usize = 4;

const KILLS: usize = 6;

/// Handed in between two kills.
const STRETCH: usize = 40;

fn settings(site: &str) -> [(&str, &str); 5] {
    [
        ("PUBLISH_LEASE", "2s"),
        ("PUBLISH_CALLBACK_TIMEOUT", "1s"),
        ("PUBLISH_CALLBACK_SCHEDULE", "0s,500ms,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s"),
        ("PUBLISH_SITE_ROOT", site),
        ("PUBLISH_SITE_URL", "https://site.example"),
    ]
}

/// Puts an account for each writer, so that they meet at the feed alone.
async fn furnish(api: &Api) {
    for n in 0..2 * SERVICES {
        let account = format!("static_site/w{n}");
        let site = json!({"settings": {"site": format!("w{n}")}});
        api.put(&format!("/accounts/{account}"), &site).await.unwrap().ok();
        put_group(api, &format!("w{n}"), &[&account]).await;
    }
}

/// Hands articles in by one batch, at whichever service answers.
async fn hand_in(apis: &[Api], numbers: std::ops::Range<usize>, callback_url: Option<&str>) {
    let articles = numbers.map(|n| {
        let mut article = article(&format!("fed-{n}"));
        article["group_code"] = format!("w{}", n % (2 * SERVICES)).into();
        if let Some(url) = callback_url {
            article["callback_url"] = url.into();
        }
        article
    });
    let body = json!({"articles": articles.collect::<Vec<_>>()});
    let mut at = 0;
    eventually("a batch is taken", async || {
        at += 1;
        let Ok(answer) = apis[at % apis.len()].post("/publish/batch", &body).await else { return false };
        answer.status == 200
            && answer.json()["results"].as_array().unwrap().iter().all(|one| one["http_status"] == 200)
    })
    .await;
}

/// A consumer that only pulls, from whichever service answers.
#[derive(Default)]
struct Consumer {
    events: Vec<Value>,
    cursor: Option<String>,
    asked: usize,
}

impl Consumer {
    async fn pull(&mut self, apis: &[Api]) {
        self.asked += 1;
        let after = self.cursor.as_ref().map_or(String::new(), |cursor| format!("&after={cursor}"));
        let path = format!("/events?limit=7&wait=250ms{after}");
        let Ok(answer) = apis[self.asked % apis.len()].get(&path).await else { return };
        if answer.status == 503 {
            return;
        }
        let page = answer.ok();
        self.events.extend(page["events"].as_array().unwrap().iter().cloned());
        self.cursor = Some(page["next_cursor"].as_str().unwrap().to_owned());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_that_pulls_while_services_are_killed_has_every_event_once_and_in_order() {
    let mut random = StdRng::seed_from_u64(seed());
    let begun = SystemClock.instant();
    let (furnished, folder) = (Furnished::new().await, Folder::new());
    let site = folder.dev().join("site");
    std::fs::create_dir_all(&site).unwrap();
    let settings = settings(site.to_str().unwrap());
    let mut services = Vec::new();
    for _ in 0..SERVICES {
        services.push(furnished.serve(&settings).await);
    }
    let apis =
        |services: &[Dev]| services.iter().map(|one| furnished.api(one).impatient()).collect::<Vec<_>>();
    furnish(&furnished.api(&services[0])).await;
    let mut consumer = Consumer::default();
    for kill in 0..KILLS {
        let now = apis(&services);
        hand_in(&now, kill * STRETCH..(kill + 1) * STRETCH, None).await;
        // A moment within the stretch, as the consumer sees it.
        let at = kill * STRETCH + random.random_range(0..STRETCH / 2);
        eventually("events come", async || {
            consumer.pull(&now).await;
            consumer.events.len() >= at
        })
        .await;
        services[kill % SERVICES].kill();
        println!("{:?}: killed one with {} events pulled", begun.elapsed(), consumer.events.len());
        services[kill % SERVICES] = furnished.serve(&settings).await;
    }
    let now = apis(&services);
    eventually("all events were pulled", async || {
        consumer.pull(&now).await;
        consumer.events.len() >= KILLS * STRETCH
    })
    .await;
    println!("{:?}: {} events by {} questions", begun.elapsed(), consumer.events.len(), consumer.asked);
    let pool = PgPool::connect(&furnished.shell.url).await.unwrap();
    eventually("all is published", async || {
        let open = "SELECT count(*) FROM tasks WHERE finished_at IS NULL";
        sqlx::query_scalar::<_, i64>(open).fetch_one(&pool).await.unwrap() == 0
    })
    .await;
    // Nothing comes behind the last.
    consumer.pull(&now).await;
    let stored = sqlx::query_scalar::<_, Vec<u8>>("SELECT body FROM events ORDER BY position");
    let stored = stored.fetch_all(&pool).await.unwrap();
    let stored = stored.iter().map(|body| serde_json::from_slice(body).unwrap()).collect::<Vec<Value>>();
    assert_eq!(consumer.events, stored);
    assert!(stored.iter().map(|event| event["sequence"].clone()).eq((1..=KILLS * STRETCH).map(Value::from)));
    for service in services {
        assert!(service.stop(Signal::TERM).await.0.success());
    }
    invariants::check(&pool).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_whose_services_are_killed_in_the_middle_sends_each_event_again_once() {
    const ARTICLES: usize = 500;
    let (furnished, folder) = (Furnished::new().await, Folder::new());
    let receiver = Receiver::start(WILLING).await;
    let site = folder.dev().join("site");
    std::fs::create_dir_all(&site).unwrap();
    let settings = settings(site.to_str().unwrap());
    let mut service = furnished.serve(&settings).await;
    let api = furnished.api(&service);
    furnish(&api).await;
    hand_in(std::slice::from_ref(&api), 0..ARTICLES, Some(&receiver.url)).await;
    let pool = PgPool::connect(&furnished.shell.url).await.unwrap();
    let number = async |statement: &'static str| {
        sqlx::query_scalar::<_, i64>(statement).fetch_one(&pool).await.unwrap()
    };
    let delivered = "SELECT count(*) FROM callbacks WHERE status = 'delivered'";
    let all = i64::try_from(ARTICLES).unwrap();
    eventually("all is delivered", async || number(delivered).await == all).await;
    // The last one is held, so that the last step stops before it.
    let mut held = pool.begin().await.unwrap();
    let last = "SELECT true FROM callbacks ORDER BY event_id DESC LIMIT 1 FOR UPDATE";
    assert!(sqlx::query_scalar::<_, bool>(last).fetch_one(&mut *held).await.unwrap());
    let body = json!({"since": "2020-01-01T00:00:00Z", "status": "delivered"});
    let begun = api.post("/callbacks/replay", &body).await.unwrap();
    assert_eq!((begun.status, &begun.json()["matched"]), (202, &json!(ARTICLES)));
    let path = format!("/callbacks/replay/{}", begun.json()["replay_id"].as_str().unwrap());
    // Killed between two steps.
    let replayed = "SELECT sum(replayed)::bigint FROM replays";
    eventually("a step was made", async || number(replayed).await >= 100).await;
    service.kill();
    service = furnished.serve(&settings).await;
    // And in the middle of the last one, when a part of it is written and not committed.
    let waits = "SELECT count(*) FROM pg_stat_activity
        WHERE wait_event_type = 'Lock' AND query LIKE '%FROM callbacks WHERE%event_id FOR UPDATE%'";
    eventually("the last step waits", async || number(waits).await >= 1).await;
    service.kill();
    assert_eq!(number(replayed).await, all - 100);
    held.rollback().await.unwrap();
    service = furnished.serve(&settings).await;
    let api = furnished.api(&service);
    let mut shown = Value::Null;
    eventually("the replay is done", async || {
        shown = api.get(&path).await.unwrap().ok();
        shown["status"] == "done"
    })
    .await;
    assert_eq!((&shown["matched"], &shown["replayed"]), (&json!(ARTICLES), &json!(ARTICLES)));
    eventually("all is delivered again", async || number(delivered).await == all).await;
    // What a kill cut off was not recorded, and was sent again: each has two tries, no more.
    let again = "SELECT count(*) FROM callbacks WHERE tries = 2 AND tries_before = 1";
    assert_eq!(number(again).await, all);
    let mut bodies = HashMap::new();
    for one in receiver.received() {
        one.verify(&furnished.signing_secret);
        let (body, count) = bodies.entry(one.id.clone()).or_insert_with(|| (one.body.clone(), 0));
        assert_eq!(*body, one.body);
        *count += 1;
    }
    assert!(bodies.len() == ARTICLES && bodies.values().all(|(_, count)| *count >= 2));
    assert!(service.stop(Signal::TERM).await.0.success());
    invariants::check(&pool).await;
}
