//! Metrics: each is described and counts right, and neither callers nor a broken database can do them harm.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use chrono::TimeDelta;
use publish_ingest::local_postgres::Cluster;
use publish_ingest::telemetry::metrics::{ALL, CONTENT_TYPE, Kind};
use publish_ingest::tenant::Scope;
use reqwest::Method;
use serde_json::json;
use tokio::sync::Semaphore;

use crate::harness::{
    self, Api, BOTH, World, article, article_with, create_migrated, eventually, in_world, in_world_at,
};
use crate::receiver::{Answer, Receiver};

/// What one scrape showed.
struct Scrape {
    /// HELP and TYPE, by metric.
    help: BTreeMap<String, String>,
    kinds: BTreeMap<String, String>,
    /// The values by series, such as `publish_in_hand{queue="callbacks"}`.
    series: BTreeMap<String, f64>,
}

impl Scrape {
    /// Asks without a key, as Prometheus does.
    async fn of(api: &Api) -> Self {
        let reply = api.send(api.without_key("/metrics")).await;
        assert_eq!((reply.status, reply.header("content-type")), (200, Some(CONTENT_TYPE)));
        let mut scrape = Self { help: BTreeMap::new(), kinds: BTreeMap::new(), series: BTreeMap::new() };
        for line in reply.text.lines().filter(|line| !line.is_empty()) {
            let noted = if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, text) = help.split_once(' ').unwrap();
                scrape.help.insert(name.to_owned(), text.to_owned()).is_some()
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').unwrap();
                scrape.kinds.insert(name.to_owned(), kind.to_owned()).is_some()
            } else {
                let (series, value) = line.rsplit_once(' ').unwrap();
                scrape.series.insert(series.to_owned(), value.parse().unwrap()).is_some()
            };
            assert!(!noted, "stands twice: {line}");
        }
        scrape
    }

    #[track_caller]
    fn value(&self, series: &str) -> f64 {
        *self.series.get(series).unwrap_or_else(|| panic!("no {series} in {:#?}", self.series))
    }

    fn names(&self) -> BTreeSet<&str> {
        self.series.keys().map(String::as_str).collect()
    }

    /// The metric of a series, and the names of its labels.
    fn metric<'a>(&self, series: &'a str) -> (&'a str, BTreeSet<&'a str>) {
        let (sample, labels) = series.trim_end_matches('}').split_once('{').unwrap_or((series, ""));
        let of_histogram = ["_bucket", "_sum", "_count"].iter().find_map(|end| sample.strip_suffix(end));
        let name = of_histogram.filter(|name| self.kinds.get(*name).is_some_and(|kind| kind == "histogram"));
        let labels = labels.split("\",").filter_map(|label| label.split_once('=')).map(|(label, _)| label);
        (name.unwrap_or(sample), labels.filter(|label| *label != "le").collect())
    }
}

#[track_caller]
fn is(value: f64, expected: u32) {
    assert!((value - f64::from(expected)).abs() < f64::EPSILON, "{value} is not {expected}");
}

/// Whether a series has that value at some time.
async fn becomes(api: &Api, series: &str, right: impl Fn(f64) -> bool) {
    eventually(series, async || Scrape::of(api).await.series.get(series).is_some_and(|value| right(*value)))
        .await;
}

const PUBLISHED: &str = r#"publish_outcomes_total{platform="static_site",verdict="published"}"#;

#[tokio::test]
async fn every_metric_is_seen_and_described_and_named_by_the_conventions() {
    in_world(async |world: &World| {
        let receiver = Receiver::start([]).await;
        let api = world.start().await;
        api.publish(&article_with("a", json!({"callback_url": receiver.url}))).await.ok();
        let event_id = receiver.first(1).await[0].header("webhook-id");
        api.tried(&event_id, 1).await;
        // A run is counted a moment after its end can be seen.
        becomes(&api, PUBLISHED, |runs| runs >= 1.0).await;
        let scrape = Scrape::of(&api).await;
        let known = ALL.iter().map(|metric| metric.name).collect::<BTreeSet<_>>();
        let mut seen = BTreeSet::new();
        for series in scrape.names() {
            let (name, labels) = scrape.metric(series);
            let metric = ALL.iter().find(|metric| metric.name == name).expect(series);
            assert_eq!(labels, metric.labels.iter().copied().collect(), "{series}");
            seen.insert(name);
        }
        assert_eq!(seen, known);
        for metric in ALL {
            assert_eq!(scrape.help[metric.name], metric.help);
            let (kind, total) = match metric.kind {
                Kind::Counter => ("counter", true),
                Kind::Gauge => ("gauge", false),
                Kind::Histogram(_) => ("histogram", false),
            };
            assert_eq!(scrape.kinds[metric.name], kind, "{}", metric.name);
            // https://prometheus.io/docs/practices/naming/
            assert_eq!(metric.name.ends_with("_total"), total, "{}", metric.name);
            assert!(metric.name.starts_with("publish_"), "{}", metric.name);
            assert!(metric.name.bytes().all(|b| b == b'_' || b.is_ascii_lowercase()), "{}", metric.name);
            let seconds = metric.unit == ::metrics::Unit::Seconds;
            assert_eq!(metric.name.ends_with("_seconds"), seconds, "{}: base units stand last", metric.name);
            assert!(seconds || metric.unit == ::metrics::Unit::Count, "{}: base units only", metric.name);
            assert!(metric.help.ends_with('.'), "{}: HELP is a sentence", metric.name);
        }
    })
    .await;
}

#[tokio::test]
async fn what_was_done_is_counted() {
    in_world(async |world: &World| {
        let receiver = Receiver::start([Answer::status(500), Answer::status(200)]).await;
        let api = world.start().await;
        let callback = json!({"callback_url": receiver.url});
        api.publish(&article_with("a", callback)).await.ok();
        api.publish(&article_with("b", json!({"group_code": BOTH}))).await.ok();
        api.publish(&json!({})).await.problem(422, "validation_failed");
        for external_id in ["a", "b"] {
            api.finished(external_id).await;
        }
        let event_id = receiver.first(1).await[0].header("webhook-id");
        api.tried(&event_id, 1).await;
        world.advance(7);
        api.tried(&event_id, 2).await;
        becomes(&api, PUBLISHED, |runs| runs >= 3.0).await;
        let scrape = Scrape::of(&api).await;
        let requests = |labels: &str| scrape.value(&format!("publish_http_requests_total{{{labels}}}"));
        is(requests(r#"route="/publish",method="POST",status="200""#), 2);
        is(requests(r#"route="/publish",method="POST",status="422""#), 1);
        is(scrape.value(r#"publish_http_request_duration_seconds_count{route="/publish"}"#), 3);
        is(scrape.value("publish_accept_batch_size_sum"), 2);
        is(scrape.value("publish_accept_waiting"), 0);
        is(scrape.value(PUBLISHED), 3);
        is(scrape.value(r#"publish_callback_tries_total{outcome="pending"}"#), 1);
        is(scrape.value(r#"publish_callback_tries_total{outcome="delivered"}"#), 1);
        // The second try is not the first's delay.
        is(scrape.value("publish_callback_lag_seconds_count"), 1);
        assert!((0.0..20.0).contains(&scrape.value("publish_callback_lag_seconds_sum")));
        for pool in ["api", "loops"] {
            let state = |state: &str| {
                scrape.value(&format!(r#"publish_pool_connections{{pool="{pool}",state="{state}"}}"#))
            };
            is(state("max"), 16);
            assert!((1.0..=16.0).contains(&(state("idle") + state("used"))), "{pool}");
        }
        // A second service in this process has counted nothing of it.
        let other = Scrape::of(&world.start().await).await;
        assert!(!other.names().iter().any(|series| series.contains("/publish")), "{:?}", other.names());
    })
    .await;
}

#[tokio::test]
async fn what_came_of_runs_is_told_apart_and_platforms_are_those_set_up() {
    in_world(async |world: &World| {
        world
            .execute("UPDATE accounts SET platform = 'sent_by_' || account_id; UPDATE lanes SET platform = 'sent_by_' || account_id;
                UPDATE group_members SET platform = 'sent_by_' || account_id")
            .await;
        let api = world.start().await;
        api.publish(&article_with("a", json!({"group_code": BOTH}))).await.ok();
        becomes(&api, r#"publish_outcomes_total{platform="none",verdict="transient_error"}"#, |n| n >= 2.0).await;
        let scrape = Scrape::of(&api).await;
        assert!(!scrape.names().iter().any(|series| series.contains("sent_by")), "{:?}", scrape.names());
    })
    .await;
}

#[tokio::test]
async fn a_queue_shows_for_how_long_its_oldest_waits() {
    in_world(async |world: &World| {
        world.account(world.tenant.tenant_id, "blog1", 4, TimeDelta::hours(1)).await;
        let api = world.start().await;
        for external_id in ["first", "second"] {
            api.publish(&article(external_id)).await.ok();
        }
        api.finished("first").await;
        let age = r#"publish_queue_oldest_age_seconds{queue="publications"}"#;
        let tenants = r#"publish_queue_tenants_due{queue="publications"}"#;
        // It is due, and waits for its account's pace.
        world.advance(1_800);
        becomes(&api, age, |seconds| (1_800.0..1_830.0).contains(&seconds)).await;
        is(Scrape::of(&api).await.value(tenants), 1);
        world.advance(1_801);
        api.finished("second").await;
        becomes(&api, age, |seconds| seconds == 0.0).await;
        is(Scrape::of(&api).await.value(tenants), 0);
    })
    .await;
}

#[tokio::test]
async fn what_is_in_hand_is_shown() {
    in_world(async |world: &World| {
        let gate = Arc::new(Semaphore::new(0));
        let receiver = Receiver::start_with([Answer::status(200)], Answer::status(200).behind(&gate)).await;
        let api = world.start().await;
        let publish = async |id: &str| {
            api.publish(&article_with(id, json!({"callback_url": receiver.url}))).await.ok();
        };
        // One that has answered well gets more than one call at a time.
        publish("proven").await;
        let event_id = receiver.first(1).await[0].header("webhook-id");
        api.tried(&event_id, 1).await;
        for n in 0..3 {
            publish(&format!("a{n}")).await;
        }
        receiver.first(4).await;
        let in_hand = r#"publish_in_hand{queue="callbacks"}"#;
        becomes(&api, in_hand, |slots| (slots - 3.0).abs() < f64::EPSILON).await;
        gate.add_permits(3);
        becomes(&api, in_hand, |slots| slots == 0.0).await;
        is(Scrape::of(&api).await.value(r#"publish_callback_tries_total{outcome="delivered"}"#), 4);
    })
    .await;
}

/// All that a hostile caller may think up, differently for every `seed`.
async fn misbehave(world: &World, api: &Api, seed: usize) {
    let tenant = world.another_tenant(&format!("tenant-{seed}")).await;
    let theirs = api.with_key(&world.key(tenant.tenant_id, &Scope::ALL).await);
    theirs.publish(&article(&format!("id-{seed}"))).await.ok();
    theirs.finished(&format!("id-{seed}")).await;
    let nobody = api.with_key(&format!("key-{seed}"));
    let method = |name: String| Method::from_bytes(name.as_bytes()).unwrap();
    for request in [
        theirs.request(Method::GET, &format!("/tasks/missing-{seed}")),
        theirs.request(Method::GET, &format!("/tasks/missing-{seed}/history")),
        theirs.request(Method::GET, &format!("/callbacks/{seed}")),
        theirs.request(Method::GET, &format!("/path-{seed}/%22%7D%0A{seed}?query={seed}")),
        theirs.request(Method::POST, &format!("/metrics/{seed}")),
        theirs.request(method(format!("BREW{seed}")), "/publish"),
        theirs.request(method(format!("BREW{seed}")), &format!("/path-{seed}")),
        theirs.request(Method::GET, &format!("/publish?a{seed}=1")),
        nobody.request(Method::GET, &format!("/tasks/id-{seed}")),
        theirs.publishing(format!("{{\"field{seed}\": 1}}")),
        theirs.publishing(format!("{seed}").repeat(70_000)),
        theirs
            .publishing("{}")
            .header("x-request-id", format!("r-{seed}"))
            .header("host", format!("h{seed}")),
    ] {
        let reply = api.send(request).await;
        assert!((400..500).contains(&reply.status), "{reply:?}");
    }
}

#[tokio::test]
async fn callers_make_no_series_of_their_own() {
    in_world(async |world: &World| {
        let api = world.start().await;
        misbehave(world, &api, 0).await;
        becomes(&api, PUBLISHED, |runs| runs >= 1.0).await;
        let before = Scrape::of(&api).await;
        for seed in 1..=8 {
            misbehave(world, &api, seed).await;
        }
        let after = Scrape::of(&api).await;
        assert_eq!(after.names(), before.names());
        // They were counted all the same.
        let none = r#"publish_http_requests_total{route="none",method="other",status="404"}"#;
        is(before.value(none), 1);
        is(after.value(none), 9);
    })
    .await;
}

#[tokio::test]
async fn a_scrape_does_not_need_the_database() {
    let cluster = harness::cluster().await;
    let url = create_migrated(&cluster, "scraped").await;
    let cluster = Arc::new(Mutex::new(cluster));
    let change = async |how: fn(&mut Cluster)| {
        let cluster = cluster.clone();
        tokio::task::spawn_blocking(move || how(&mut cluster.lock().unwrap())).await.unwrap();
    };
    in_world_at(&url, async |world: &World| {
        let api = world.start().await;
        world.account(world.tenant.tenant_id, "blog1", 4, TimeDelta::hours(1)).await;
        for external_id in ["first", "second"] {
            api.publish(&article(external_id)).await.ok();
        }
        becomes(&api, PUBLISHED, |runs| runs >= 1.0).await;
        world.advance(600);
        let age = r#"publish_queue_oldest_age_seconds{queue="publications"}"#;
        becomes(&api, age, |seconds| seconds >= 600.0).await;
        let before = Scrape::of(&api).await;
        change(|cluster| cluster.kill().unwrap()).await;
        let after = Scrape::of(&api).await;
        assert_eq!(after.names(), before.names());
        // What nobody can ask for any more grows on.
        let seen = after.value(age);
        assert!(seen >= 600.0);
        becomes(&api, age, |seconds| seconds > seen).await;
        change(|cluster| cluster.restart().unwrap()).await;
        eventually("ready again", async || api.get("/readyz").await.status == 200).await;
    })
    .await;
}

#[tokio::test]
async fn what_alerts_are_set_on_is_there_before_it_happens() {
    in_world(async |world: &World| {
        let scrape = Scrape::of(&world.start().await).await;
        is(scrape.value(r#"publish_callback_tries_total{outcome="exhausted"}"#), 0);
        for platform in ["static_site", "http_bridge"] {
            let series =
                format!(r#"publish_outcomes_total{{platform="{platform}",verdict="outcome_unknown"}}"#);
            is(scrape.value(&series), 0);
        }
    })
    .await;
}
