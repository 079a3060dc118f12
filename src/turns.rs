//! Tenants in turn: the walk that workers and dispatchers share.
//!
//! A lap asks which tenants have something due and gives each one claim, so that a tenant with a million articles takes
//! no more of a lap than one with two. Between laps the walk waits for a wake-up within the process, or for the poll.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::clock::SharedClock;
use crate::retry::jittered;
use crate::store::{CLAIM_MOST, Queue, Store, StoreError};

/// How long a walk sleeps when nothing is due: what another node accepted starts within it.
const POLL: Duration = Duration::from_millis(800);

/// How long a tenant rests whose claim came back empty or failed: its lanes are full, or somebody else was faster.
const REST: Duration = Duration::from_secs(1);

/// How many tenants one question returns.
const TENANTS_AT_ONCE: i64 = 64;

/// Wakes a walk up, for one tenant.
#[derive(Clone, Default)]
pub struct Wake {
    tenants: Arc<Mutex<HashSet<Uuid>>>,
    signal: Arc<Notify>,
}

impl Wake {
    /// Something of this tenant may be due now, or may be possible now.
    pub fn wake(&self, tenant_id: Uuid) {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner).insert(tenant_id);
        self.signal.notify_one();
    }

    fn woken(&self) -> HashSet<Uuid> {
        mem::take(&mut *self.tenants.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Who has turns: workers and dispatchers.
pub trait TakesTurns: Send + Sync {
    /// Takes what a tenant has, with a slot for each of it out of those handed over, and returns how much that was.
    fn take_turn(
        self: &Arc<Self>,
        tenant_id: Uuid,
        slots: OwnedSemaphorePermit,
    ) -> impl Future<Output = Result<usize, StoreError>> + Send;
}

/// A walk.
pub struct Turns {
    /// Where to ask.
    pub store: Store,
    /// What for.
    pub queue: Queue,
    /// What wakes it.
    pub wake: Wake,
    /// How much may be in hand at once.
    pub slots: Arc<Semaphore>,
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
        let mut resting = HashMap::<Uuid, Instant>::new();
        while !self.stop.is_cancelled() {
            let woken = self.wake.woken();
            resting.retain(|tenant, until| !woken.contains(tenant) && *until > self.clock.instant());
            let due = match self.store.tenants_due(self.queue, after, TENANTS_AT_ONCE).await {
                Ok(due) => due,
                Err(error) => {
                    tracing::warn!(queue = ?self.queue, %error, "cannot ask what is due");
                    self.pause().await;
                    continue;
                }
            };
            let end_of_lap = due.len() < usize::try_from(TENANTS_AT_ONCE).unwrap_or(usize::MAX);
            after = due.last().filter(|_| !end_of_lap).copied().unwrap_or(Uuid::nil());
            for tenant_id in due {
                if resting.contains_key(&tenant_id) {
                    continue;
                }
                let Some(slots) = self.free_slots().await else { return };
                match taker.take_turn(tenant_id, slots).await {
                    Ok(0) => {
                        resting.insert(tenant_id, self.clock.instant() + REST);
                    }
                    Ok(count) => taken_this_lap += count,
                    Err(error) => {
                        tracing::warn!(queue = ?self.queue, %tenant_id, %error, "cannot claim");
                        resting.insert(tenant_id, self.clock.instant() + REST);
                    }
                }
            }
            if end_of_lap && mem::take(&mut taken_this_lap) == 0 {
                self.pause().await;
            }
        }
    }

    /// Slots for the most that one claim can take.
    async fn free_slots(&self) -> Option<OwnedSemaphorePermit> {
        let most = u32::try_from(CLAIM_MOST).unwrap_or(u32::MAX);
        tokio::select! {
            slots = self.slots.clone().acquire_many_owned(most) => slots.ok(),
            () = self.stop.cancelled() => None,
        }
    }

    async fn pause(&self) {
        tokio::select! {
            () = self.wake.signal.notified() => {}
            () = tokio::time::sleep(jittered(POLL, self.clock.fraction())) => {}
            () = self.stop.cancelled() => {}
        }
    }
}
