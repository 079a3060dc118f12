//! Whole lives: articles are accepted, published on two accounts of the sandbox, and told of by two callbacks each, at a fixed
//! rate; what is not done in time shows as a backlog that grows.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use publish_ingest::clock::{Clock as _, SystemClock};
use serde_json::json;

use crate::article::{Articles, Sender};
use crate::database::{Server, analyze, number, written};
use crate::drive::Connections;
use crate::load::{Hand, Load};
use crate::machine::Used;
use crate::program::{GROUPS, Service, World};
use crate::receiver::{Book, Receiver};
use crate::report::{Report, count, quantile_ms};
use crate::{Arguments, Failed, statements};

/// The connections on which they are handed in.
const CONNECTIONS: usize = 64;

/// How often the backlog is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// How long the last events are waited for after nothing is handed in any more.
const DRAIN_WITHIN: Duration = Duration::from_mins(1);

/// What is under way of the tenant that hands in, by the small indexes: to read all of a full table for it would be seen in the
/// figures.
const PUBLICATIONS: &str = "SELECT (SELECT count(*) FROM publications p WHERE p.tenant_id = t.tenant_id
        AND status = 'submitted' AND fence >= 0)
    + (SELECT count(*) FROM publications p WHERE p.tenant_id = t.tenant_id AND status = 'running')
    FROM tenants t WHERE name = 'load'";
const CALLBACKS: &str = "SELECT (SELECT count(*) FROM callbacks c WHERE c.tenant_id = t.tenant_id
        AND status = 'pending' AND lease_until IS NULL AND fence >= 0)
    + (SELECT count(*) FROM callbacks c WHERE c.tenant_id = t.tenant_id AND lease_until IS NOT NULL)
    FROM tenants t WHERE name = 'load'";
const DONE: &str = "SELECT count(*) FROM tasks JOIN tenants USING (tenant_id)
    WHERE name = 'load' AND succeeded = 2 AND open = 0 AND finished_at IS NOT NULL";
const MADE: &str = "SELECT count(*) FROM sandbox_articles JOIN tenants USING (tenant_id)
    WHERE name = 'load' AND public_at IS NOT NULL";
const MADE_TWICE: &str =
    "SELECT count(*) FROM (SELECT FROM sandbox_articles GROUP BY tenant_id, account_id, external_id
    HAVING count(*) > 1) AS twice";

/// What is needed to live.
pub(crate) struct Run<'a> {
    pub(crate) service: Service,
    pub(crate) world: &'a World,
    pub(crate) connections: Connections,
    articles: Arc<[Articles]>,
    next: Arc<AtomicU64>,
    pub(crate) book: Book,
    pub(crate) database: u32,
    before: [i64; 2],
    _receiver: Receiver,
}

pub(crate) async fn run(
    report: &mut Report,
    arguments: &Arguments,
    server: &Server,
    world: &World,
    name: &str,
) -> Result<(), Failed> {
    idle(report, arguments, server, world, name).await?;
    let mut run = Run::start(arguments, server, world).await?;
    // What is prepared once is prepared.
    run.live(arguments.lives_per_second / 10.0, Duration::from_secs(1)).await?;
    analyze(&world.url).await?;
    run.told(report, arguments, arguments.lives_per_second / 10.0, &format!("{name}, a tenth of the rate"))
        .await?;
    if run.book.standing().open() == 0 {
        run.told(report, arguments, arguments.lives_per_second, name).await?;
    } else {
        report.fact(name, "not tried: what a tenth of the rate left behind did not end in time".into());
    }
    report.memory(&format!("after {name}"), run.service.pid())?;
    run.end().await
}

impl<'a> Run<'a> {
    /// Starts a service, and a receiver of its callbacks.
    pub(crate) async fn start(
        arguments: &Arguments,
        server: &Server,
        world: &'a World,
    ) -> Result<Self, Failed> {
        let service = world.serve("lives", &[]).await?;
        let before = [number(&world.url, DONE).await?, number(&world.url, MADE).await?];
        let book = Book::default();
        let receiver = Receiver::start(book.clone()).await?;
        let sender = Sender {
            host: service.address.to_string(),
            callback_url: Some(receiver.url()),
            ..Sender::of(&world.tenant, GROUPS)
        };
        Ok(Run {
            connections: Connections::new(service.address),
            service,
            world,
            articles: Arc::new([Articles::new(sender, "life", arguments.bytes)]),
            next: Arc::default(),
            book,
            database: server.pid(),
            before,
            _receiver: receiver,
        })
    }

    /// Says whether all is right, and ends the service.
    pub(crate) async fn end(self) -> Result<(), Failed> {
        self.judge().await?;
        self.service.end().await
    }

    /// The id of the article of that number.
    pub(crate) fn external_id(&self, number: u64) -> String {
        self.articles[0].external_id(number)
    }

    /// New articles, which the book is told of.
    pub(crate) fn load(&self) -> Load {
        Load::new(&self.articles, &self.next, Hand::New).told(self.book.clone())
    }

    /// Waits until all has been told, or for too long.
    pub(crate) async fn drain(&self) {
        let begun = SystemClock.instant();
        while self.book.standing().open() > 0 && begun.elapsed() < DRAIN_WITHIN {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Hands in at that rate and tells what came of it.
    async fn told(
        &mut self,
        report: &mut Report,
        arguments: &Arguments,
        per_second: f64,
        name: &str,
    ) -> Result<(), Failed> {
        if arguments.statements {
            statements::begin(&self.world.url).await?;
        }
        let first = self.next.load(Ordering::Relaxed);
        let lived = self.live(per_second, Duration::from_secs(arguments.lives_seconds)).await?;
        report.fact(name, lived);
        if arguments.statements {
            let handed_in = count(self.next.load(Ordering::Relaxed) - first).max(1.0);
            report.fact(&format!("{name}: statements"), statements::told(&self.world.url, handed_in).await?);
        }
        Ok(())
    }

    /// Hands in at that rate, and waits until all has been told.
    pub(crate) async fn live(
        &mut self,
        per_second: f64,
        lasts: Duration,
    ) -> Result<serde_json::Value, Failed> {
        let first = self.next.load(Ordering::Relaxed);
        let load = self.load();
        let begun = SystemClock.instant();
        let before = (self.book.standing(), Used::until_now(self.service.pid(), self.database)?);
        let wrote_before = written(&self.world.url).await?;
        let watching = tokio::spawn(watch(self.book.clone(), self.world.url.clone(), lasts));
        let tally = self.connections.open(&Arc::new(load), CONNECTIONS, per_second, lasts).await?;
        let at_end = self.book.standing();
        let took = begun.elapsed();
        let (open, stored) = watching.await??;
        self.drain().await;
        let drained = begun.elapsed().saturating_sub(took);
        let used = Used::until_now(self.service.pid(), self.database)?.since(before.1);
        let wrote = written(&self.world.url).await?;
        let latency = self.book.latency(first)?;
        let each = |now: i64, before: i64| {
            count(u64::try_from(now - before).unwrap_or_default()) / count(tally.articles).max(1.0)
        };
        let cpu = |part: Duration| part.as_secs_f64() * 1e6 / count(tally.articles).max(1.0);
        Ok(json!({
            "asked_per_second": per_second,
            "accepted_per_second": count(tally.articles) / tally.elapsed.as_secs_f64(),
            "callbacks_per_second": count(at_end.events - before.0.events) / took.as_secs_f64(),
            "accept_p50_ms": quantile_ms(&tally.latency, 0.5),
            "accept_p99_ms": quantile_ms(&tally.latency, 0.99),
            "sent_late": tally.late,
            "accepted_to_callback_p50_ms": quantile_ms(&latency, 0.5),
            "accepted_to_callback_p99_ms": quantile_ms(&latency, 0.99),
            "events_open_each_half_second": open,
            "publications_unfinished_and_callbacks_pending_at_begin_middle_end": stored,
            "drained_after_s": drained.as_secs_f64(),
            "events_not_told_then": self.book.standing().open(),
            "events_told_again": at_end.again - before.0.again,
            "transactions_that_wrote_each": each(wrote.writers, wrote_before.writers),
            "transactions_each": each(wrote.transactions, wrote_before.transactions),
            "wal_bytes_each": each(wrote.wal_bytes, wrote_before.wal_bytes),
            "cpu_ms_per_1000": {
                "service": cpu(used.service), "database": cpu(used.database), "driver": cpu(used.driver),
                "all": cpu(used.all()),
            },
        }))
    }

    /// Whether each article was published once on each account, and told of; of what is still under way, that nothing is
    /// doubled.
    async fn judge(&self) -> Result<(), Failed> {
        let [done_before, made_before] = self.before;
        // Each event that has not come is of a publication that has not ended, or its callback is pending.
        let url = &self.world.url;
        let under_way = number(url, PUBLICATIONS).await? + number(url, CALLBACKS).await?;
        let standing = self.book.standing();
        let mut wrong = self.book.wrong();
        let lost = i64::try_from(standing.open())? - under_way;
        if lost > 0 {
            wrong.push(format!("{lost} events were lost"));
        }
        let accepted = i64::try_from(standing.accepted)?;
        let mut expected = vec![("articles that stand on the sandbox twice", MADE_TWICE, 0)];
        if standing.open() == 0 {
            expected.push(("tasks that succeeded", DONE, done_before + accepted));
            expected.push(("articles on the sandbox", MADE, made_before + 2 * accepted));
            expected.push(("publications that have not ended", PUBLICATIONS, 0));
        }
        for (what, statement, expected) in expected {
            let found = number(url, statement).await?;
            if found != expected {
                wrong.push(format!("{what}: {found}, not {expected}"));
            }
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong[..wrong.len().min(20)].join("; ").into()) }
    }
}

/// What a service does that has nothing to do. Its own log counts its statements: the database's counts hold the transactions
/// of its housekeeping as well.
async fn idle(
    report: &mut Report,
    arguments: &Arguments,
    server: &Server,
    world: &World,
    name: &str,
) -> Result<(), Failed> {
    let lasts = Duration::from_secs(arguments.idle_seconds);
    let service = world.serve("idle", &[("PUBLISH_LOG", "info,sqlx::query=debug")]).await?;
    // What was done at the start is not counted.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = logged_statements(world)?;
    if before == 0 {
        return Err("the service's log tells of no statement".into());
    }
    let used = Used::until_now(service.pid(), server.pid())?;
    tokio::time::sleep(lasts).await;
    let used = Used::until_now(service.pid(), server.pid())?.since(used);
    let per_second = count(logged_statements(world)? - before) / lasts.as_secs_f64();
    let cpu_ms = |part: Duration| part.as_secs_f64() * 1e3 / lasts.as_secs_f64();
    let figures = json!({
        "statements_per_second": per_second,
        "cpu_ms_per_second": {"service": cpu_ms(used.service), "database": cpu_ms(used.database)},
    });
    report.fact(&format!("idle, before {name}"), figures);
    report.memory(&format!("idle, before {name}"), service.pid())?;
    service.end().await
}

/// How many statements the idle service has logged.
fn logged_statements(world: &World) -> Result<u64, Failed> {
    let log = std::fs::read_to_string(world.log("idle"))?;
    Ok(log.lines().filter(|line| line.contains(" db.statement=")).count() as u64)
}

/// How many events are open, looked at again and again; and how many publications and callbacks are, by the database, at the
/// begin, in the middle and at the end.
async fn watch(book: Book, url: String, lasts: Duration) -> Result<(Vec<u64>, Vec<[i64; 2]>), Failed> {
    let looks = usize::try_from(lasts.as_millis() / LOOK.as_millis())?;
    let (mut open, mut stored) = (Vec::new(), Vec::new());
    let begun = SystemClock.instant();
    for look in 1..=looks {
        let next = LOOK * u32::try_from(look)?;
        tokio::time::sleep(next.saturating_sub(begun.elapsed())).await;
        open.push(book.standing().open());
        if [1, looks / 2, looks].contains(&look) {
            stored.push([number(&url, PUBLICATIONS).await?, number(&url, CALLBACKS).await?]);
        }
    }
    Ok((open, stored))
}
