//! Metrics: what a service counts and measures, in Prometheus' text format.
//!
//! | metric | kind | labels | tells |
//! | --- | --- | --- | --- |
//! | `publish_http_requests_total` | counter | `route`, `method`, `status` | requests that were answered |
//! | `publish_http_request_duration_seconds` | histogram | `route` | how long answers took, up to their head |
//! | `publish_accept_batch_size` | histogram | – | articles that were accepted in one statement |
//! | `publish_accept_waiting` | gauge | – | articles that wait for a writer |
//! | `publish_feed_waiting` | gauge | – | requests that wait for events |
//! | `publish_queue_oldest_age_seconds` | gauge | `queue` | how long the oldest of what is due has been due |
//! | `publish_queue_tenants_due` | gauge | `queue` | tenants that have something due |
//! | `publish_in_hand` | gauge | `queue` | slots that are taken |
//! | `publish_outcomes_total` | counter | `platform`, `verdict` | runs of publications that ended |
//! | `publish_callback_tries_total` | counter | `outcome` | tries of callbacks that ended |
//! | `publish_breakers_moved_total` | counter | `to` | breakers of receivers that opened or closed |
//! | `publish_breakers_open` | gauge | – | receivers that are left alone because they keep failing |
//! | `publish_callback_lag_seconds` | histogram | – | from an event's writing to its first try |
//! | `publish_removed_total` | counter | `kind` | what was removed by age |
//! | `publish_removal_overdue_seconds` | gauge | `kind` | how much longer than it should have been the oldest was kept |
//! | `publish_removal_looked_timestamp_seconds` | gauge | – | when it was last looked for what is to be removed |
//! | `publish_pool_connections` | gauge | `pool`, `state` | connections to the database |
//!
//! Counts are of this process since its start, so they are summed over nodes. The two about a queue are what this
//! node's walk saw of the whole database, and so are open breakers: of these, take the largest. A node shows what its roles have.
//!
//! Every label's values come from a closed set: a caller cannot make a new series. No tenant, account or article is
//! named, but how much is published is nobody else's business: `/metrics` asks for no key and belongs on a private
//! network.
//!
//! A service has a recorder of its own and none is installed for the process: two services in one process, as in
//! tests, do not count each other's requests. What is a state rather than a count is read when somebody asks, from
//! memory; no answer asks the database, so that it can be had when that is in trouble.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusRecorder};
use tokio_util::sync::CancellationToken;

mod catalogue;

pub use catalogue::{
    ACCEPT_BATCH, ACCEPT_WAITING, ALL, BREAKERS_MOVED, BREAKERS_OPEN, CALLBACK_LAG, CALLBACK_TRIES,
    FEED_WAITING, HTTP_DURATION, HTTP_REQUESTS, IN_HAND, Kind, Metric, OUTCOMES, POOL, QUEUE_AGE,
    QUEUE_TENANTS, REMOVAL_LOOKED, REMOVAL_OVERDUE, REMOVED,
};

/// How an answer with metrics says what it is.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A label's value where nothing of its closed set fits: no such route, no such platform.
pub const NONE: &str = "none";

/// How often measurements are put into their buckets while nobody asks for them; until then each takes memory.
const UPKEEP: Duration = Duration::from_secs(5);

/// How a queue stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueReading {
    /// How long the oldest of what is due has been due.
    pub oldest_age: Duration,
    /// How many tenants have something due.
    pub tenants_due: usize,
    /// How many slots are taken.
    pub in_hand: usize,
}

/// How a pool of connections stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolReading {
    /// Open and free.
    pub idle: u32,
    /// Open and in use.
    pub used: u32,
    /// How many may be open.
    pub max: u32,
}

/// Sets the gauges of one thing.
type Reading = Box<dyn Fn() + Send + Sync>;

/// The metrics of one service; cheap to clone.
#[derive(Clone)]
pub struct Metrics {
    inner: Arc<Inner>,
}

struct Inner {
    recorder: PrometheusRecorder,
    readings: Mutex<Vec<Reading>>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// A recorder in which every metric is described and none counted.
    #[must_use]
    pub fn new() -> Self {
        let bounded = ALL.iter().try_fold(PrometheusBuilder::new(), |builder, metric| match metric.kind {
            Kind::Histogram(bounds) => {
                builder.set_buckets_for_metric(Matcher::Full(metric.name.to_owned()), bounds)
            }
            Kind::Counter | Kind::Gauge => Ok(builder),
        });
        // Refused is only an empty list of bounds, and none of ours is.
        let recorder = bounded.unwrap_or_default().build_recorder();
        metrics::with_local_recorder(&recorder, || {
            for Metric { name, kind, unit, help, .. } in ALL {
                match kind {
                    Kind::Counter => describe_counter!(name, unit, help),
                    Kind::Gauge => describe_gauge!(name, unit, help),
                    Kind::Histogram(_) => describe_histogram!(name, unit, help),
                }
            }
        });
        Self { inner: Arc::new(Inner { recorder, readings: Mutex::default() }) }
    }

    /// A request was answered: `route` is the pattern it fits, or [`NONE`].
    pub fn answered(&self, route: &str, method: &str, status: u16, took: Duration) {
        self.record(|| {
            let labels = [
                ("route", route.to_owned()),
                ("method", known_method(method).to_owned()),
                ("status", status.to_string()),
            ];
            counter!(HTTP_REQUESTS.name, &labels).increment(1);
            histogram!(HTTP_DURATION.name, &labels[..1]).record(took);
        });
    }

    /// So many articles are written together.
    pub fn batch_accepted(&self, articles: usize) {
        self.record(|| histogram!(ACCEPT_BATCH.name).record(as_number(articles)));
    }

    /// Starts the counters that alerts are set on at 0: an increase from nothing is none.
    pub fn expect(
        &self,
        platforms: impl Iterator<Item = &'static str>,
        verdicts: &[&'static str],
        outcomes: &[&'static str],
    ) {
        self.record(|| {
            for to in ["open", "closed"] {
                counter!(BREAKERS_MOVED.name, "to" => to).increment(0);
            }
            for outcome in outcomes {
                counter!(CALLBACK_TRIES.name, "outcome" => *outcome).increment(0);
            }
            for platform in platforms {
                for verdict in verdicts {
                    counter!(OUTCOMES.name, "platform" => platform, "verdict" => *verdict).increment(0);
                }
            }
        });
    }

    /// A run ended: `platform` is one that is set up, or [`NONE`].
    pub fn run_ended(&self, platform: &'static str, verdict: &'static str) {
        self.record(|| counter!(OUTCOMES.name, "platform" => platform, "verdict" => verdict).increment(1));
    }

    /// A callback is in hand for its first try, so many seconds after its event was written.
    pub fn callback_begun(&self, lag_seconds: f64) {
        self.record(|| histogram!(CALLBACK_LAG.name).record(lag_seconds.max(0.0)));
    }

    /// A try of a callback ended: `outcome` is the callback's status from now on.
    pub fn callback_tried(&self, outcome: &'static str) {
        self.record(|| counter!(CALLBACK_TRIES.name, "outcome" => outcome).increment(1));
    }

    /// So many breakers of receivers opened and closed.
    pub fn breakers_moved(&self, opened: usize, closed: usize) {
        self.record(|| {
            for (to, moved) in [("open", opened), ("closed", closed)] {
                counter!(BREAKERS_MOVED.name, "to" => to).increment(u64::try_from(moved).unwrap_or(u64::MAX));
            }
        });
    }

    /// So many breakers are open.
    pub fn breakers_open(&self, open: u32) {
        self.record(|| gauge!(BREAKERS_OPEN.name).set(open));
    }

    /// Starts what is told of the removal by age at 0: it never was looked, and nothing was removed.
    pub fn expect_removal(&self, kinds: &[&'static str]) {
        for kind in kinds {
            self.removed(kind, 0);
        }
        self.removal_looked(0.0, 0.0, 0);
    }

    /// So much of a kind was removed by age.
    pub fn removed(&self, kind: &'static str, count: u64) {
        self.record(|| counter!(REMOVED.name, "kind" => kind).increment(count));
    }

    /// It was looked for what is to be removed, at this time of Unix: by how many seconds the oldest content and the oldest
    /// event are overdue.
    #[expect(clippy::cast_precision_loss, reason = "seconds since 1970 are far below 2^53")]
    pub fn removal_looked(&self, contents: f64, events: f64, at: i64) {
        self.record(|| {
            for (kind, overdue) in [("contents", contents), ("events", events)] {
                gauge!(REMOVAL_OVERDUE.name, "kind" => kind).set(overdue);
            }
            gauge!(REMOVAL_LOOKED.name).set(at as f64);
        });
    }

    /// How many articles wait for a writer is read from `waiting`, at every scrape.
    pub fn watch_accepting(&self, waiting: impl Fn() -> usize + Send + Sync + 'static) {
        self.watch(move || gauge!(ACCEPT_WAITING.name).set(as_number(waiting())));
    }

    /// How many requests wait for events is read from `waiting`, at every scrape.
    pub fn watch_feeds(&self, waiting: impl Fn() -> usize + Send + Sync + 'static) {
        self.watch(move || gauge!(FEED_WAITING.name).set(as_number(waiting())));
    }

    /// How a queue stands is read from `queue`, at every scrape.
    pub fn watch_queue(&self, name: &'static str, queue: impl Fn() -> QueueReading + Send + Sync + 'static) {
        self.watch(move || {
            let QueueReading { oldest_age, tenants_due, in_hand } = queue();
            gauge!(QUEUE_AGE.name, "queue" => name).set(oldest_age.as_secs_f64());
            gauge!(QUEUE_TENANTS.name, "queue" => name).set(as_number(tenants_due));
            gauge!(IN_HAND.name, "queue" => name).set(as_number(in_hand));
        });
    }

    /// How a pool stands is read from `pool`, at every scrape.
    pub fn watch_pool(&self, name: &'static str, pool: impl Fn() -> PoolReading + Send + Sync + 'static) {
        self.watch(move || {
            let PoolReading { idle, used, max } = pool();
            for (state, connections) in [("idle", idle), ("used", used), ("max", max)] {
                gauge!(POOL.name, "pool" => name, "state" => state).set(connections);
            }
        });
    }

    /// Everything, in Prometheus' text format 0.0.4. Reads memory only.
    #[must_use]
    pub fn render(&self) -> String {
        self.record(|| {
            for reading in &*self.inner.readings.lock().unwrap_or_else(PoisonError::into_inner) {
                reading();
            }
        });
        self.inner.recorder.handle().render()
    }

    /// Keeps the memory of measurements small, also where nobody asks for them; until stopped.
    pub async fn keep(self, stop: CancellationToken) {
        let handle = self.inner.recorder.handle();
        while stop.run_until_cancelled(tokio::time::sleep(UPKEEP)).await.is_some() {
            handle.run_upkeep();
        }
    }

    fn record(&self, what: impl FnOnce()) {
        metrics::with_local_recorder(&self.inner.recorder, what);
    }

    fn watch(&self, reading: impl Fn() + Send + Sync + 'static) {
        self.inner.readings.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(reading));
    }
}

/// A method of HTTP (RFC 9110 §9, RFC 5789); whatever else a caller may think of is one more.
fn known_method(method: &str) -> &'static str {
    const KNOWN: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"];
    KNOWN.into_iter().find(|known| *known == method).unwrap_or("other")
}

/// What is counted here is far below the 2^53 up to which floating point is exact.
#[expect(clippy::cast_precision_loss, reason = "bounded by the machine's memory, and by our queues")]
fn as_number(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_above_says_what_there_is() {
        let kind = |kind| match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram(_) => "histogram",
        };
        let rows = ALL.map(|metric| {
            let labels =
                metric.labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
            let labels = if labels.is_empty() { "–" } else { &labels };
            format!("//! | `{}` | {} | {labels} |", metric.name, kind(metric.kind))
        });
        let table = include_str!("metrics.rs").lines().filter(|line| line.starts_with("//! | `"));
        let table = table.collect::<Vec<_>>();
        assert_eq!(table.len(), rows.len());
        for (line, row) in table.iter().zip(&rows) {
            assert!(line.starts_with(row), "{line}\n{row}");
        }
    }

    #[test]
    fn two_services_do_not_count_each_other() {
        let (one, other) = (Metrics::new(), Metrics::new());
        one.callback_tried("delivered");
        assert!(one.render().contains("publish_callback_tries_total{outcome=\"delivered\"} 1\n"));
        assert!(!other.render().contains("publish_callback_tries_total"));
    }

    #[test]
    fn measurements_fall_into_the_buckets_of_their_metric() {
        let metrics = Metrics::new();
        metrics.answered("/publish", "POST", 200, Duration::from_millis(1_500));
        metrics.batch_accepted(128);
        let text = metrics.render();
        let bucket = |le: &str, count| {
            let line = format!(
                "publish_http_request_duration_seconds_bucket{{route=\"/publish\",le=\"{le}\"}} {count}\n"
            );
            assert!(text.contains(&line), "{line}{text}");
        };
        bucket("1", 0);
        bucket("2", 1);
        assert!(text.contains("publish_accept_batch_size_bucket{le=\"64\"} 0\n"), "{text}");
        assert!(text.contains("publish_accept_batch_size_bucket{le=\"128\"} 1\n"), "{text}");
    }

    #[test]
    fn methods_that_callers_think_up_are_one() {
        assert_eq!(["GET", "get", "BREW", ""].map(known_method), ["GET", "other", "other", "other"]);
    }
}
