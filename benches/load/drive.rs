//! Driving: so many connections as fast as they can, or so many requests a second whatever becomes of them.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use publish_ingest::clock::{Clock as _, SystemClock};
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::JoinSet;

use crate::Failed;
use crate::client::Connection;
use crate::load::Load;

/// The longest latency that is told apart, in microseconds.
pub(crate) const LATENCY_MAX_US: u64 = 60_000_000;

/// What came of a round.
#[derive(Debug, Clone)]
pub(crate) struct Tally {
    pub(crate) articles: u64,
    pub(crate) elapsed: Duration,
    /// In microseconds.
    pub(crate) latency: Histogram<u64>,
    /// How many were sent too late, of a schedule, since all connections were waiting.
    pub(crate) late: u64,
}

impl Tally {
    fn new() -> Result<Self, Failed> {
        let latency = Histogram::new_with_max(LATENCY_MAX_US, 3)?;
        Ok(Self { articles: 0, elapsed: Duration::ZERO, latency, late: 0 })
    }

    fn note(&mut self, articles: u64, latency: Duration) {
        self.articles += articles;
        let micros = u64::try_from(latency.as_micros()).unwrap_or(LATENCY_MAX_US);
        self.latency.saturating_record(micros.max(1));
    }
}

/// The connections to one server, kept from round to round.
pub(crate) struct Connections {
    address: SocketAddr,
    free: Vec<Connection>,
    used: Instant,
}

/// How long connections are kept that nothing is sent on: servers close them after a minute or so.
const KEPT: Duration = Duration::from_secs(30);

impl Connections {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self { address, free: Vec::new(), used: SystemClock.instant() }
    }

    async fn take(&mut self, count: usize) -> Result<Vec<Connection>, Failed> {
        if self.used.elapsed() > KEPT {
            self.free.clear();
        }
        while self.free.len() < count {
            self.free.push(Connection::open(self.address).await?);
        }
        Ok(self.free.split_off(self.free.len() - count))
    }

    /// Each connection sends its next request as soon as it has the answer to the one before.
    pub(crate) async fn closed(
        &mut self,
        load: &Arc<Load>,
        count: usize,
        lasts: Duration,
    ) -> Result<Tally, Failed> {
        let tally = Arc::new(Mutex::new(Tally::new()?));
        let mut running = JoinSet::new();
        let connections = self.take(count).await?;
        let begun = SystemClock.instant();
        for mut connection in connections {
            let (load, tally) = (load.clone(), tally.clone());
            running.spawn(async move {
                let mut request = Vec::new();
                let mut now = SystemClock.instant();
                while now - begun < lasts {
                    let asked = load.ask(&mut request);
                    // To make the request is the driver's work.
                    now = SystemClock.instant();
                    let answer = connection.call(&request).await?;
                    let answered = SystemClock.instant();
                    let articles = load.judge(&asked, &answer)?;
                    tally.lock().unwrap().note(articles, answered - now);
                    now = answered;
                }
                Ok::<_, Failed>(connection)
            });
        }
        self.give_back(running, tally, begun).await
    }

    /// As [`Self::closed`], `requests` requests in all, and none while `held` says so.
    pub(crate) async fn bounded(
        &mut self,
        load: &Arc<Load>,
        count: usize,
        requests: u64,
        held: impl Fn() -> bool + Clone + Send + 'static,
    ) -> Result<Tally, Failed> {
        let tally = Arc::new(Mutex::new(Tally::new()?));
        let left = Arc::new(AtomicU64::new(requests));
        let mut running = JoinSet::new();
        let connections = self.take(count).await?;
        let begun = SystemClock.instant();
        for mut connection in connections {
            let (load, tally, left, held) = (load.clone(), tally.clone(), left.clone(), held.clone());
            running.spawn(async move {
                let mut request = Vec::new();
                while left
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                    .is_ok()
                {
                    while held() {
                        tokio::time::sleep(LOOK).await;
                    }
                    let asked = load.ask(&mut request);
                    let now = SystemClock.instant();
                    let answer = connection.call(&request).await?;
                    let answered = SystemClock.instant();
                    let articles = load.judge(&asked, &answer)?;
                    tally.lock().unwrap().note(articles, answered - now);
                }
                Ok::<_, Failed>(connection)
            });
        }
        self.give_back(running, tally, begun).await
    }

    /// Waits for the connections of a round; what came of it.
    async fn give_back(
        &mut self,
        mut running: JoinSet<Result<Connection, Failed>>,
        tally: Arc<Mutex<Tally>>,
        begun: Instant,
    ) -> Result<Tally, Failed> {
        while let Some(connection) = running.join_next().await {
            self.free.push(connection??);
        }
        self.used = SystemClock.instant();
        let mut tally = take(tally);
        tally.elapsed = begun.elapsed();
        Ok(tally)
    }

    /// Sends `per_second` requests on at most `count` connections by a schedule; a latency counts from when the request was to
    /// be sent, so that one that had to wait for a connection is not taken for a quick one.
    pub(crate) async fn open(
        &mut self,
        load: &Arc<Load>,
        count: usize,
        per_second: f64,
        lasts: Duration,
    ) -> Result<Tally, Failed> {
        let tally = Arc::new(Mutex::new(Tally::new()?));
        let mut running = JoinSet::new();
        let connections = self.take(count).await?;
        let begun = SystemClock.instant();
        let schedule = Arc::new(tokio::sync::Mutex::new(schedule(begun, per_second, lasts)));
        let late = Arc::new(AtomicU64::new(0));
        for mut connection in connections {
            let (load, tally, schedule, late) = (load.clone(), tally.clone(), schedule.clone(), late.clone());
            running.spawn(async move {
                let mut request = Vec::new();
                loop {
                    let intended = schedule.lock().await.recv().await;
                    let Some(intended) = intended else { return Ok::<_, Failed>(connection) };
                    let asked = load.ask(&mut request);
                    if intended.elapsed() > LATE {
                        late.fetch_add(1, Ordering::Relaxed);
                    }
                    let answer = connection.call(&request).await?;
                    let answered = SystemClock.instant();
                    let articles = load.judge(&asked, &answer)?;
                    tally.lock().unwrap().note(articles, answered - intended);
                }
            });
        }
        let mut tally = self.give_back(running, tally, begun).await?;
        tally.late = late.load(Ordering::Relaxed);
        Ok(tally)
    }
}

/// How often it is looked whether more may be sent.
const LOOK: Duration = Duration::from_millis(1);

/// From when on a request counts as sent too late.
const LATE: Duration = Duration::from_millis(5);

fn take(tally: Arc<Mutex<Tally>>) -> Tally {
    Arc::into_inner(tally).and_then(|tally| tally.into_inner().ok()).unwrap()
}

/// The moments at which requests are to be sent, each when it has come. From a thread of its own: the timers of the runtime
/// are a millisecond coarse.
fn schedule(
    begun: Instant,
    per_second: f64,
    lasts: Duration,
) -> tokio::sync::mpsc::UnboundedReceiver<Instant> {
    let (tell, told) = unbounded_channel();
    std::thread::spawn(move || {
        let (_keep, never) = channel::<()>();
        for number in 0_u32.. {
            let after = Duration::from_secs_f64(f64::from(number) / per_second);
            let intended = begun + after;
            let wait = intended.saturating_duration_since(SystemClock.instant());
            // A wait for something that is never sent is a pause.
            let waited = wait.is_zero() || never.recv_timeout(wait) == Err(RecvTimeoutError::Timeout);
            if after >= lasts || !waited || tell.send(intended).is_err() {
                return;
            }
        }
    });
    told
}
