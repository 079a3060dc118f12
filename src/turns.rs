//! Tenants in turn: the walk that workers and dispatchers share.
//!
//! A lap asks which tenants have something due and gives each one claim, so that a tenant with a million articles takes
//! no more of a lap than one with two. Between laps the walk waits for a wake-up within the process, or for the poll.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::clock::SharedClock;
use crate::retry::jittered;
use crate::store::{CLAIM_MOST, Due, Queue, Store, StoreError};
use crate::telemetry::metrics::{Metrics, QueueReading};

/// How long a tenant rests whose claim came back empty or failed, unless it is known when something of it will be possible:
/// its lanes are full, or somebody else was faster.
pub const REST: Duration = Duration::from_millis(500);

/// How many tenants one question returns.
const TENANTS_AT_ONCE: i64 = 64;

/// Wakes a walk up, for one tenant.
#[derive(Clone, Default)]
pub struct Wake {
    tenants: Arc<Mutex<HashSet<Uuid>>>,
    signal: Arc<Notify>,
    also: Option<Arc<Self>>,
}

impl Wake {
    /// Something of this tenant may be due now, or may be possible now.
    pub fn wake(&self, tenant_id: Uuid) {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner).insert(tenant_id);
        self.signal.notify_one();
        if let Some(other) = &self.also {
            other.wake(tenant_id);
        }
    }

    /// One that wakes `other` as well.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { also: Some(Arc::new(other)), ..self }
    }

    /// Waits until somebody is woken.
    pub async fn heard(&self) {
        self.signal.notified().await;
    }

    /// Who was woken since this was asked last.
    #[must_use]
    pub fn woken(&self) -> HashSet<Uuid> {
        mem::take(&mut *self.tenants.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What came of a turn.
#[derive(Debug, Clone, Copy)]
pub struct Turn {
    /// How much was taken.
    pub taken: usize,
    /// How long the tenant rests if that was nothing.
    pub rest: Duration,
}

/// A tenant's rest after a turn in which nothing was taken.
#[derive(Debug, Clone, Copy)]
struct Rest {
    until: Instant,
    /// If more of it becomes due meanwhile, it rests no longer than this.
    least: Instant,
    /// The newest of what was due then.
    newest: Option<DateTime<Utc>>,
    /// What was to be looked after then.
    chores: [bool; 3],
}

impl Rest {
    fn of(due: &Due, rest: Duration, now: Instant) -> Self {
        Self { until: now + rest, least: now + rest.min(REST), newest: due.newest, chores: chores(due) }
    }

    fn until(&self, due: &Due) -> Instant {
        let more = due.newest > self.newest || chores(due) != self.chores;
        if more { self.least } else { self.until }
    }
}

fn chores(due: &Due) -> [bool; 3] {
    [due.parked, due.sweeping, due.resuming]
}

/// Who has turns: workers and dispatchers.
pub trait TakesTurns: Send + Sync {
    /// Takes what a tenant has, with a slot for each of it out of those handed over.
    fn take_turn(
        self: &Arc<Self>,
        due: &Due,
        slots: OwnedSemaphorePermit,
    ) -> impl Future<Output = Result<Turn, StoreError>> + Send;
}

/// What a lap saw that is due.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    tenants: usize,
    /// The oldest: when it was seen, and how old it was then.
    oldest: Option<(Instant, Duration)>,
}

impl Seen {
    fn note(&mut self, due: &[Due], now: Instant) {
        for one in due.iter().filter(|one| one.seconds <= 0.0) {
            self.tenants += 1;
            let age = Duration::try_from_secs_f64(-one.seconds).unwrap_or_default();
            if age >= self.oldest_age(now) {
                self.oldest = Some((now, age));
            }
        }
    }

    /// Grown since it was seen: where the walk is held up, or the database away, it shows.
    fn oldest_age(&self, now: Instant) -> Duration {
        self.oldest.map_or(Duration::ZERO, |(seen, age)| age + now.saturating_duration_since(seen))
    }
}

/// A walk.
pub struct Turns {
    /// Where to ask. A question that fails is asked again, so its connections need not be asked first whether they live.
    pub store: Store,
    /// What for.
    pub queue: Queue,
    /// What wakes it.
    pub wake: Wake,
    /// How long it sleeps, about, if nobody does and nothing is known to become due sooner.
    pub poll: Duration,
    /// How much may be in hand at once.
    pub slots: Arc<Semaphore>,
    /// Shows what it sees.
    pub metrics: Metrics,
    /// Time and chance.
    pub clock: SharedClock,
    /// Ends it.
    pub stop: CancellationToken,
}

impl Turns {
    /// Walks until stopped.
    pub async fn walk(self, taker: Arc<impl TakesTurns>) {
        let mut after = Uuid::nil();
        let mut taken_this_lap = 0;
        let mut resting = HashMap::<Uuid, Rest>::new();
        // When the next thing is due, as far as this lap has seen.
        let mut next = None::<Instant>;
        let (mut seen, last_lap) = (Seen::default(), self.show());
        while !self.stop.is_cancelled() {
            let woken = self.wake.woken();
            resting.retain(|tenant, rest| !woken.contains(tenant) && rest.until > self.clock.instant());
            let due = match self.store.tenants_due(self.queue, after, TENANTS_AT_ONCE, self.poll).await {
                Ok(due) => due,
                Err(error) => {
                    tracing::warn!(queue = ?self.queue, %error, "cannot ask what is due");
                    self.pause(None).await;
                    continue;
                }
            };
            seen.note(&due, self.clock.instant());
            let end_of_lap = due.len() < usize::try_from(TENANTS_AT_ONCE).unwrap_or(usize::MAX);
            after = due.last().filter(|_| !end_of_lap).map_or(Uuid::nil(), |last| last.tenant_id);
            for one in due {
                let tenant_id = one.tenant_id;
                let now = self.clock.instant();
                let soon = match Duration::try_from_secs_f64(one.seconds) {
                    Ok(wait) if !wait.is_zero() => Some(now + wait),
                    _ => resting.get(&tenant_id).map(|rest| rest.until(&one)),
                };
                if let Some(soon) = soon.filter(|soon| *soon > now) {
                    next = Some(next.map_or(soon, |next| next.min(soon)));
                    continue;
                }
                let Some(slots) = self.free_slots().await else { return };
                let rest = match taker.take_turn(&one, slots).await {
                    Ok(Turn { taken: 0, rest }) => rest,
                    Ok(Turn { taken, .. }) => {
                        taken_this_lap += taken;
                        continue;
                    }
                    Err(error) => {
                        tracing::warn!(queue = ?self.queue, %tenant_id, %error, "cannot claim");
                        REST
                    }
                };
                let rest = Rest::of(&one, rest, self.clock.instant());
                resting.insert(tenant_id, rest);
                next = Some(next.map_or(rest.until, |next| next.min(rest.until)));
            }
            if end_of_lap {
                *last_lap.lock().unwrap_or_else(PoisonError::into_inner) = mem::take(&mut seen);
                let next = next.take();
                if mem::take(&mut taken_this_lap) == 0 {
                    self.pause(next).await;
                }
            }
        }
    }

    /// Shows how the queue stands: what is put into the answer, and how many slots are taken.
    fn show(&self) -> Arc<Mutex<Seen>> {
        let last_lap = Arc::<Mutex<Seen>>::default();
        let (seen, slots, clock) = (last_lap.clone(), self.slots.clone(), self.clock.clone());
        let most = slots.available_permits();
        self.metrics.watch_queue(self.queue.as_str(), move || {
            let seen = *seen.lock().unwrap_or_else(PoisonError::into_inner);
            QueueReading {
                oldest_age: seen.oldest_age(clock.instant()),
                tenants_due: seen.tenants,
                in_hand: most.saturating_sub(slots.available_permits()),
            }
        });
        last_lap
    }

    /// Slots for the most that one claim can take.
    async fn free_slots(&self) -> Option<OwnedSemaphorePermit> {
        let most = u32::try_from(CLAIM_MOST).unwrap_or(u32::MAX);
        tokio::select! {
            slots = self.slots.clone().acquire_many_owned(most) => slots.ok(),
            () = self.stop.cancelled() => None,
        }
    }

    /// Waits for a wake-up, for what is due `next`, or for the poll.
    async fn pause(&self, next: Option<Instant>) {
        let poll = jittered(self.poll, self.clock.fraction());
        let wait = next.map_or(poll, |next| poll.min(next.saturating_duration_since(self.clock.instant())));
        tokio::select! {
            () = self.wake.heard() => {}
            () = tokio::time::sleep(wait) => {}
            () = self.stop.cancelled() => {}
        }
    }
}
