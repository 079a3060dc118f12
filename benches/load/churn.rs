//! Churn: many whole lives, as fast as they go with a bounded number of them under way, while the sizes of tables and indexes
//! are read: what holds only what is under way, or one row for each account, must not grow with what has been done.
//!
//! The database vacuums a table once a minute at most: a run of less than some minutes tells nothing of most of them, and says so.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use sqlx::{Connection as _, Executor as _, PgConnection, Row as _};

use crate::database::Server;
use crate::lives::Run;
use crate::machine::Used;
use crate::program::World;
use crate::report::{Report, count};
use crate::{Arguments, Failed, TENANT, used};

/// The connections on which articles are handed in.
const CONNECTIONS: usize = 64;

/// No more articles are handed in while so many events have not come: enough to keep both processors busy.
const OPEN_MAX: u64 = 2_000;

/// How often sizes are read: at the end of each of so many parts of the run.
const PARTS: u64 = 20;

/// The parts at whose end what is judged was read: after a quarter, a half, and all.
const JUDGED: [u64; 3] = [PARTS / 4, PARTS / 2, PARTS];

/// What is steady may be so much larger at the end than in the middle: how full pages are is chance.
const GROWTH_MAX: f64 = 1.2;

/// What is no larger is not judged: a few pages decide of it, and as many are read in no time.
const SMALL_BYTES: i64 = 512 * 1024;

/// The verdicts.
const STEADY: &str = "steady";
const SMALL: &str = "small";
const GROWS: &str = "GROWS";
const NOT_TOLD: &str = "not told: no vacuum since the middle";

/// More articles a day than are handed in, so that shares of a quota are taken as they are of a tenant with one.
const QUOTA: &str = "1000000000";

/// The tables that grow with what has been done, of which the bytes for each life must be steady; of others, the bytes.
const HISTORY: [&str; 11] = [
    "tasks",
    "articles",
    "publications",
    "attempts",
    "transitions",
    "events",
    "callbacks",
    "callback_tries",
    "sandbox_articles",
    "sandbox_marks",
    "sandbox_requests",
];

/// A table without its indexes, or an index, as it stood at some time.
#[derive(Debug, Clone)]
struct Relation {
    table: String,
    bytes: i64,
    /// Whether it holds, of a table that grows, only what is under way.
    partial: bool,
    /// Of its table: rows, those of them that are dead, and how often it was vacuumed by itself.
    rows: [i64; 3],
}

impl Relation {
    /// Whether its size is in proportion to what has been done.
    fn grows(&self) -> bool {
        HISTORY.contains(&self.table.as_str()) && !self.partial
    }
}

/// By name, after so many lives.
type Look = (u64, BTreeMap<String, Relation>);

pub(crate) async fn run(report: &mut Report, arguments: &Arguments, server: &Server) -> Result<(), Failed> {
    let world = World::make(server.create("churn").await?, &arguments.folder).await?;
    world.run(&["tenant", "set", TENANT, "--articles-per-day", QUOTA]).await?;
    let mut run = Run::start(arguments, server, &world).await?;
    let (mut looks, mut parts): (Vec<Look>, Vec<Value>) = (Vec::new(), Vec::new());
    let load = Arc::new(run.load());
    let (mut done, book) = (0, run.book.clone());
    for part in 1..=PARTS {
        let lives = arguments.churn * part / PARTS - done;
        let before = Used::until_now(run.service.pid(), run.database)?;
        let events = run.book.standing().events;
        let held = book.clone();
        let held = move || held.standing().open() >= OPEN_MAX;
        let tally = run.connections.bounded(&load, CONNECTIONS, lives, held).await?;
        let used = Used::until_now(run.service.pid(), run.database)?.since(before);
        let callbacks = run.book.standing().events - events;
        parts.push(json!({
            "lives_per_second": count(tally.articles) / tally.elapsed.as_secs_f64(),
            "callbacks_per_second": count(callbacks) / tally.elapsed.as_secs_f64(),
            "cpu_ms_per_1000": used.all().as_secs_f64() * 1e6 / count(tally.articles).max(1.0),
        }));
        done += lives;
        looks.push((done, sizes(&world.url).await?));
    }
    run.drain().await;
    report.memory("after churn", run.service.pid())?;
    tell(report, &looks, &parts);
    run.end().await?;
    used::check(arguments, &world.url).await
}

/// What everything takes.
async fn sizes(url: &str) -> Result<BTreeMap<String, Relation>, Failed> {
    let mut connection = PgConnection::connect(url).await?;
    let rows = connection
        .fetch_all(
            "SELECT c.relname::text, t.relname::text,
                CASE WHEN c.oid = t.relid THEN pg_table_size(c.oid) ELSE pg_relation_size(c.oid) END,
                coalesce(i.indpred IS NOT NULL, false), ARRAY[t.n_live_tup, t.n_dead_tup, t.autovacuum_count]
            FROM pg_stat_user_tables t
            JOIN (SELECT indexrelid AS oid, indrelid AS relid, indpred FROM pg_index
                UNION ALL SELECT relid, relid, NULL FROM pg_stat_user_tables) i USING (relid)
            JOIN pg_class c ON c.oid = i.oid",
        )
        .await?;
    let mut sizes = BTreeMap::new();
    for row in rows {
        let rows: Vec<i64> = row.try_get(4)?;
        let rows = <[i64; 3]>::try_from(rows).map_err(|_| "not three counts of a table")?;
        let relation =
            Relation { table: row.try_get(1)?, bytes: row.try_get(2)?, partial: row.try_get(3)?, rows };
        sizes.insert(row.try_get(0)?, relation);
    }
    connection.close().await?;
    Ok(sizes)
}

/// What is to be said of a relation that was so large, for each life or in all, at the three moments.
fn verdict([_, half, end]: [f64; 3], bytes_end: i64, vacuumed: bool) -> &'static str {
    if end <= GROWTH_MAX * half {
        STEADY
    } else if bytes_end <= SMALL_BYTES {
        SMALL
    } else if vacuumed {
        GROWS
    } else {
        NOT_TOLD
    }
}

fn tell(report: &mut Report, looks: &[Look], parts: &[Value]) {
    let judged = JUDGED.map(|part| &looks[usize::try_from(part).unwrap() - 1]);
    let [_, (_, half), (_, end)] = judged;
    let (mut steady, mut history) = (serde_json::Map::new(), serde_json::Map::new());
    let mut verdicts = BTreeMap::<_, Vec<String>>::new();
    for (name, relation) in end {
        let bytes = judged.map(|(_, look)| look.get(name).map_or(0, |relation| relation.bytes));
        let vacuumed = half.get(name).is_some_and(|half| half.rows[2] < relation.rows[2]);
        let for_each = |at: usize| if relation.grows() { count(judged[at].0).max(1.0) } else { 1.0 };
        let measured = [0, 1, 2].map(|at| count(u64::try_from(bytes[at]).unwrap_or_default()) / for_each(at));
        let verdict = verdict(measured, bytes[2], vacuumed);
        verdicts.entry(verdict).or_default().push(name.clone());
        let [rows, dead, vacuums] = relation.rows;
        let figures = json!({
            "at_quarter_half_end": measured, "verdict": verdict, "rows": rows, "dead": dead, "vacuums": vacuums,
        });
        let name = if *name == relation.table { name.clone() } else { format!("{}: {name}", relation.table) };
        if relation.grows() { &mut history } else { &mut steady }.insert(name, figures);
    }
    report.fact("churn: bytes of what must not grow", steady.into());
    report.fact("churn: bytes for each life of what grows", history.into());
    let series = looks.iter().map(|(lives, look)| {
        let bytes = look.iter().map(|(name, relation)| (name.clone(), relation.bytes.into()));
        json!({"lives": lives, "bytes": bytes.collect::<serde_json::Map<String, Value>>()})
    });
    report.keep("churn: every look", series.collect());
    report.fact("churn: lives a second", column(parts, "lives_per_second"));
    report.fact("churn: callbacks a second", column(parts, "callbacks_per_second"));
    report.fact("churn: processor time for 1,000 lives, ms", column(parts, "cpu_ms_per_1000"));
    let of = |verdict| verdicts.get(verdict).cloned().unwrap_or_default();
    let judgement = json!({
        "at the end more than so many times as large as in the middle": GROWTH_MAX,
        "grow": of(GROWS).join(", "), "not told, for want of a vacuum": of(NOT_TOLD).join(", "),
        "small, and larger": of(SMALL).join(", "), "steady": of(STEADY).len(),
    });
    report.fact("churn", judgement);
}

fn column(parts: &[Value], name: &str) -> Value {
    parts.iter().map(|part| part[name].clone()).collect()
}
