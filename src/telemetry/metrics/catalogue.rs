//! Every metric there is, with what a reader must know of it.

use metrics::Unit;

/// From the fastest look-up to beyond the 2 s within which "unavailable" comes.
const ANSWER_SECONDS: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0];

/// Up to what one statement takes.
const BATCH_SIZES: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0];

/// From a wake-up within the process, over a node's poll, to an outage of hours.
const LAG_SECONDS: &[f64] = &[0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0, 300.0, 1_800.0, 7_200.0];

/// What a metric is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// It only rises.
    Counter,
    /// It rises and falls.
    Gauge,
    /// Measurements, counted up to these bounds.
    Histogram(&'static [f64]),
}

/// A metric: all that can be seen of one name.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// What it is measured in.
    pub unit: Unit,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// What it tells, and what a reader must know.
    pub help: &'static str,
}

/// Requests answered.
pub const HTTP_REQUESTS: Metric = Metric {
    name: "publish_http_requests_total",
    kind: Kind::Counter,
    unit: Unit::Count,
    labels: &["route", "method", "status"],
    help: "Requests that were answered, by the route's pattern (none: no such route), the method (other: none of \
           ours) and the HTTP status.",
};

/// How long answers took.
pub const HTTP_DURATION: Metric = Metric {
    name: "publish_http_request_duration_seconds",
    kind: Kind::Histogram(ANSWER_SECONDS),
    unit: Unit::Seconds,
    labels: &["route"],
    help: "How long answers took, from the request's head to the answer's head.",
};

/// Batches of articles.
pub const ACCEPT_BATCH: Metric = Metric {
    name: "publish_accept_batch_size",
    kind: Kind::Histogram(BATCH_SIZES),
    unit: Unit::Count,
    labels: &[],
    help: "How many articles were gathered and written together.",
};

/// The queue before the writers.
pub const ACCEPT_WAITING: Metric = Metric {
    name: "publish_accept_waiting",
    kind: Kind::Gauge,
    unit: Unit::Count,
    labels: &[],
    help: "Articles that wait for a writer now; when the queue is full, callers get 503.",
};

/// Requests that wait for events.
pub const FEED_WAITING: Metric = Metric {
    name: "publish_feed_waiting",
    kind: Kind::Gauge,
    unit: Unit::Count,
    labels: &[],
    help: "Requests for the feed (GET /events with wait) that wait for an event now; of one tenant at most 32 may.",
};

/// The age of a queue's oldest.
pub const QUEUE_AGE: Metric = Metric {
    name: "publish_queue_oldest_age_seconds",
    kind: Kind::Gauge,
    unit: Unit::Seconds,
    labels: &["queue"],
    help: "For how long the oldest of what is due has been due, in the whole database, as of this node's last lap \
           and grown since; 0: nothing is due. What waits for its account's pace, or for a receiver that is left alone, \
           is due as well.",
};

/// Tenants with work.
pub const QUEUE_TENANTS: Metric = Metric {
    name: "publish_queue_tenants_due",
    kind: Kind::Gauge,
    unit: Unit::Count,
    labels: &["queue"],
    help: "Tenants that have something due, in the whole database, as of this node's last lap.",
};

/// Slots taken.
pub const IN_HAND: Metric = Metric {
    name: "publish_in_hand",
    kind: Kind::Gauge,
    unit: Unit::Count,
    labels: &["queue"],
    help: "Slots of this node that are taken: one for each run or delivery under way, and while a tenant's claim is \
           made, those it may need.",
};

/// Runs ended.
pub const OUTCOMES: Metric = Metric {
    name: "publish_outcomes_total",
    kind: Kind::Counter,
    unit: Unit::Count,
    labels: &["platform", "verdict"],
    help: "Runs of publications that ended, by platform (none: not set up here) and what came of them: the reason in \
           the task's history; confirming: it is not known yet; not_recorded: somebody else has it by now, or the \
           service is stopping.",
};

/// Callbacks tried.
pub const CALLBACK_TRIES: Metric = Metric {
    name: "publish_callback_tries_total",
    kind: Kind::Counter,
    unit: Unit::Count,
    labels: &["outcome"],
    help: "Tries of callbacks that ended, by the callback's status from then on; pending: it is tried again.",
};

/// Breakers moved.
pub const BREAKERS_MOVED: Metric = Metric {
    name: "publish_breakers_moved_total",
    kind: Kind::Counter,
    unit: Unit::Count,
    labels: &["to"],
    help: "Breakers of receivers of callbacks that opened (the receiver kept failing, and is left alone but for probes) \
           and closed (it is back), as this node recorded it.",
};

/// Breakers open.
pub const BREAKERS_OPEN: Metric = Metric {
    name: "publish_breakers_open",
    kind: Kind::Gauge,
    unit: Unit::Count,
    labels: &[],
    help: "Receivers of callbacks that keep failing and are left alone but for probes, in the whole database, as of \
           this node's look at most 15 s ago.",
};

/// How late callbacks are.
pub const CALLBACK_LAG: Metric = Metric {
    name: "publish_callback_lag_seconds",
    kind: Kind::Histogram(LAG_SECONDS),
    unit: Unit::Seconds,
    labels: &[],
    help: "From the writing of an event to the claim for its callback's first try, on the database's clock; holds \
           the schedule's first wait.",
};

/// Removed by age.
pub const REMOVED: Metric = Metric {
    name: "publish_removed_total",
    kind: Kind::Counter,
    unit: Unit::Count,
    labels: &["kind"],
    help: "What this node removed by age: contents (tasks whose content and journal went), events (with their callbacks), \
           replays; pending_callbacks: given up (exhausted), since they were pending for too long.",
};

/// How late the removal is.
pub const REMOVAL_OVERDUE: Metric = Metric {
    name: "publish_removal_overdue_seconds",
    kind: Kind::Gauge,
    unit: Unit::Seconds,
    labels: &["kind"],
    help: "How much longer than it should have been the oldest that is to go was kept, in the whole database, as of this \
           node's last look; 0: nothing is to go. What may still go on is not counted.",
};

/// When it was looked.
pub const REMOVAL_LOOKED: Metric = Metric {
    name: "publish_removal_looked_timestamp_seconds",
    kind: Kind::Gauge,
    unit: Unit::Seconds,
    labels: &[],
    help: "When this node last looked for what is to be removed by age, in seconds since 1970: about every 75 seconds; 0: not \
           yet.",
};

/// Connections to the database.
pub const POOL: Metric = Metric {
    name: "publish_pool_connections",
    kind: Kind::Gauge,
    unit: Unit::Count,
    labels: &["pool", "state"],
    help: "Connections to the database, by pool (api: for requests; loops: for workers and dispatchers); idle and \
           used are open, max is how many may be.",
};

/// All of them.
pub const ALL: [Metric; 17] = [
    HTTP_REQUESTS,
    HTTP_DURATION,
    ACCEPT_BATCH,
    ACCEPT_WAITING,
    FEED_WAITING,
    QUEUE_AGE,
    QUEUE_TENANTS,
    IN_HAND,
    OUTCOMES,
    CALLBACK_TRIES,
    BREAKERS_MOVED,
    BREAKERS_OPEN,
    CALLBACK_LAG,
    REMOVED,
    REMOVAL_OVERDUE,
    REMOVAL_LOOKED,
    POOL,
];
