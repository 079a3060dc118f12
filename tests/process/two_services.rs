//! Two services on one database, one of which is killed again and again: whatever was accepted is published once, and
//! told; no two ever hold one publication; and both do their part.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use publish_ingest::clock::{Clock as _, SystemClock};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use rustix::process::Signal;
use serde_json::{Value, json};
use sqlx::PgPool;

use crate::api::{Api, article, words};
use crate::bridge::Bridge;
use crate::invariants;
use crate::operator::{Furnished, put_group};
use crate::program::{Folder, eventually, seed};
use crate::receiver::{Receiver, WILLING};

const KILLS: usize = 20;

/// Handed in between two kills, and so many at once.
const STRETCH: usize = 150;
const IN_A_BATCH: usize = 30;
const ARTICLES: usize = KILLS * STRETCH;

/// Every article goes to one of the bridge's accounts, and every fourth to a site as well.
const ACCOUNTS: usize = 3;
const ON_SITE_EVERY: usize = 4;

/// How much each account may have in hand: more than one service gets through, so that none waits for what the other holds.
const IN_FLIGHT_MAX: usize = 16;

/// How long after a stretch was begun, or after some article of it came to the bridge, the kill may come at most: about as
/// long as a batch takes, and longer than the bridge.
const MOMENT_MAX_MS: u64 = 50;

/// How long the bridge takes for an article: much longer than what else is done for it, so that kills fall into it.
const BRIDGE_TAKES: Duration = Duration::from_millis(20);

/// The least part of all runs that each service ends, of 100. They are killed in turn, so that chance and restarts meet
/// both alike; a half would be even. A service that only ever gets what the other leaves would be far below.
const SHARE_MIN: usize = 30;

fn settings(site: &str) -> [(&str, &str); 7] {
    [
        ("PUBLISH_LEASE", "2s"),
        ("PUBLISH_RETRY_SCHEDULE", "100ms,500ms,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s"),
        ("PUBLISH_CALLBACK_TIMEOUT", "1s"),
        ("PUBLISH_CALLBACK_SCHEDULE", "0s,500ms,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s"),
        ("PUBLISH_SITE_ROOT", site),
        ("PUBLISH_SITE_URL", "https://site.example"),
        ("PUBLISH_LOG", "info"),
    ]
}

fn external_id(n: usize) -> String {
    format!("shared-{n}")
}

fn account(n: usize) -> String {
    format!("robot-{}", n % ACCOUNTS)
}

fn group(n: usize) -> String {
    format!("{}-{}", account(n), if on_site(n) { "and-site" } else { "alone" })
}

fn on_site(n: usize) -> bool {
    n.is_multiple_of(ON_SITE_EVERY)
}

/// Hands a stretch in by batches, to one service or the other; what is not answered is sent again to the other.
async fn hand_in(apis: &[Api; 2], stretch: usize, callback_url: &str) {
    let numbers = (stretch * STRETCH..(stretch + 1) * STRETCH).collect::<Vec<_>>();
    for (batch, numbers) in numbers.chunks(IN_A_BATCH).enumerate() {
        let articles = numbers.iter().map(|n| {
            let mut article = article(&external_id(*n));
            article["group_code"] = group(*n).into();
            article["callback_url"] = callback_url.into();
            article
        });
        let body = json!({"articles": articles.collect::<Vec<_>>()});
        let mut at = batch;
        eventually("a batch is taken", async || {
            at += 1;
            let Ok(answer) = apis[at % 2].post("/publish/batch", &body).await else { return false };
            answer.status == 200
                && answer.json()["results"].as_array().unwrap().iter().all(|one| one["http_status"] == 200)
        })
        .await;
    }
}

async fn furnish(api: &Api, bridge: &Bridge) {
    let site = json!({"settings": {"site": "demo"}, "max_in_flight": IN_FLIGHT_MAX});
    api.put("/accounts/static_site/demo", &site).await.unwrap().ok();
    for n in 0..ACCOUNTS {
        let robot = format!("http_bridge/{}", account(n));
        let mut body = bridge.account(0);
        body["max_in_flight"] = IN_FLIGHT_MAX.into();
        api.put(&format!("/accounts/{robot}"), &body).await.unwrap().ok();
        put_group(api, &format!("{}-alone", account(n)), &[&robot]).await;
        put_group(api, &format!("{}-and-site", account(n)), &[&robot, "static_site/demo"]).await;
    }
}

/// How many runs ended, and were recorded, by what a service said.
fn runs(stderr: &str) -> usize {
    stderr.lines().filter(|line| line.contains("run ended") && line.contains("recorded=true")).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_services_of_which_one_is_killed_again_and_again_publish_each_article_once() {
    let mut random = StdRng::seed_from_u64(seed());
    let begun = SystemClock.instant();
    let (furnished, folder) = (Furnished::new().await, Folder::new());
    let site = folder.dev().join("site");
    std::fs::create_dir_all(&site).unwrap();
    let settings = settings(site.to_str().unwrap());
    let (bridge, receiver) = (Bridge::start(BRIDGE_TAKES).await, Receiver::start(WILLING).await);
    let mut services = [furnished.serve(&settings).await, furnished.serve(&settings).await];
    let mut ended = [0, 0];
    let api = furnished.api(&services[0]);
    furnish(&api, &bridge).await;
    for kill in 0..KILLS {
        let apis = [0, 1].map(|n| furnished.api(&services[n]).impatient());
        let moment = Duration::from_millis(random.random_range(0..MOMENT_MAX_MS));
        let (dies, lives) = (kill % 2, (kill + 1) % 2);
        let at = kill * STRETCH + random.random_range(1..STRETCH);
        let death = async {
            // Half of the kills fall as articles are handed in, half as they are published.
            if kill % 4 < 2 {
                bridge.count(at).await;
            }
            tokio::time::sleep(moment).await;
            services[dies].kill();
        };
        tokio::join!(hand_in(&apis, kill, &receiver.url), death);
        let successor = furnished.serve(&settings).await;
        let (_, _, stderr) = std::mem::replace(&mut services[dies], successor).ended().await;
        ended[dies] += runs(&stderr);
        println!(
            "{:?}: killed one, {} published, {} requests, {} callbacks; the other has ended {}",
            begun.elapsed(),
            bridge.published().len(),
            bridge.asked().len(),
            receiver.count(),
            runs(&services[lives].stderr()),
        );
    }
    let pool = PgPool::connect(&furnished.shell.url).await.unwrap();
    eventually("all is published and told", async || {
        let open = "SELECT (SELECT count(*) FROM tasks WHERE finished_at IS NULL)
            + (SELECT count(*) FROM callbacks WHERE status = 'pending')";
        sqlx::query_scalar::<_, i64>(open).fetch_one(&pool).await.unwrap() == 0
    })
    .await;
    println!("{:?}: all is published and told", begun.elapsed());
    let markers = all_succeeded(&furnished.api(&services[0])).await;
    for (service, count) in services.into_iter().zip(&mut ended) {
        let (status, _, stderr) = service.stop(Signal::TERM).await;
        assert!(status.success(), "{status}");
        *count += runs(&stderr);
    }
    published_once(&markers, &bridge, &folder);
    told_once(&receiver, &furnished.signing_secret);
    invariants::check(&pool).await;
    println!("{:?}: runs ended by each: {ended:?}", begun.elapsed());
    let least = ended.iter().min().unwrap() * 100 / ended.iter().sum::<usize>();
    assert!(least >= SHARE_MIN, "{ended:?}");
}

/// Every article is there and a success; returns the markers, by number and platform.
async fn all_succeeded(api: &Api) -> HashMap<(usize, String), String> {
    let mut markers = HashMap::new();
    let ids = (0..ARTICLES).map(external_id).collect::<Vec<_>>();
    for chunk in ids.chunks(1_000) {
        let answer = api.post("/lookup", &json!({"external_ids": chunk})).await.unwrap().ok();
        assert_eq!(answer["missing"], json!([]));
        for task in answer["tasks"].as_array().unwrap() {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            let n = text(&task["external_id"]).trim_start_matches("shared-").parse::<usize>().unwrap();
            let expected = if on_site(n) { 2 } else { 1 };
            assert!(task["status"] == "success" && task["counts"]["success"] == expected, "{task}");
            for one in task["publications"].as_array().unwrap() {
                markers.insert((n, text(&one["platform"])), text(&one["remote_id"]));
            }
        }
    }
    markers
}

/// What the tasks say is published is what the bridge and the site hold, and they hold nothing else.
fn published_once(markers: &HashMap<(usize, String), String>, bridge: &Bridge, folder: &Folder) {
    bridge.assert_faultless();
    let (published, pages) = (bridge.published(), folder.pages());
    assert_eq!((published.len(), pages.len()), (ARTICLES, ARTICLES.div_ceil(ON_SITE_EVERY)));
    for ((n, platform), marker) in markers {
        let id = external_id(*n);
        if platform == "http_bridge" {
            assert_eq!(published[marker], (id, account(*n)));
        } else {
            assert!(pages[marker].contains(&words(&id)), "{id}");
        }
    }
    assert_eq!(markers.len(), published.len() + pages.len());
}

/// Of each publication there is one event, however often it was delivered.
fn told_once(receiver: &Receiver, secret: &str) {
    let mut events = HashMap::new();
    let mut told = HashSet::new();
    for one in receiver.received() {
        one.verify(secret);
        let event = one.event();
        assert!(event["status"] == "success" && event["round"] == 1 && event["event_id"] == one.id.as_str());
        let of = (event["external_id"].as_str().unwrap().to_owned(), event["platform"].to_string());
        let first = events.entry(of).or_insert_with(|| one.id.clone());
        assert_eq!(*first, one.id, "two events of one publication: {event}");
        told.insert(one.id);
    }
    assert_eq!((events.len(), told.len()), (ARTICLES + ARTICLES.div_ceil(ON_SITE_EVERY), events.len()));
}
