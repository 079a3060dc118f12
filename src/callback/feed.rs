//! Waiting for events: who pulls the feed may ask before there is one, and is told when there is.
//!
//! Nobody who waits asks the database: one look in each process asks for all of them where the feeds stand, when something
//! was written in this process, and by the poll for what was written in others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::clock::SharedClock;
use crate::retry::jittered;
use crate::store::Store;
use crate::turns::Wake;

/// How many requests of one tenant may wait on one node: consumers are few, and each holds a connection.
pub const WAITING_OF_TENANT_MAX: usize = 32;

/// How many may wait on one node in all, whoever they are.
pub const WAITING_MAX: usize = 1_024;

/// How long what another node has written may stay unseen by who waits here.
const POLL: Duration = Duration::from_millis(500);

/// The pause after a look, so that a storm of events is looked at a hundred times a second and not for each.
const GAP: Duration = Duration::from_millis(10);

/// Those who wait for events.
#[derive(Clone)]
pub struct Feeds {
    waiting: Arc<Mutex<HashMap<Uuid, Waiting>>>,
    wake: Wake,
}

/// Those of one tenant.
struct Waiting {
    places: usize,
    /// The newest position that was seen.
    position: watch::Sender<i64>,
}

/// A place among those who wait; free again when it is dropped.
pub struct Place {
    feeds: Feeds,
    tenant_id: Uuid,
    position: watch::Receiver<i64>,
}

impl Feeds {
    /// Starts the look; `wake` is woken by whoever writes events in this process.
    #[must_use]
    pub fn start(
        store: Store,
        wake: Wake,
        clock: SharedClock,
        stop: CancellationToken,
        tracker: &TaskTracker,
    ) -> Self {
        let feeds = Self { waiting: Arc::default(), wake };
        tracker.spawn(feeds.clone().look(store, clock, stop));
        feeds
    }

    /// A place among those who wait; none when all that there are have been taken.
    #[must_use]
    pub fn place(&self, tenant_id: Uuid) -> Option<Place> {
        let mut waiting = self.waiting();
        let all = waiting.values().map(|one| one.places).sum::<usize>();
        let places = waiting.get(&tenant_id).map_or(0, |one| one.places);
        if all >= WAITING_MAX || places >= WAITING_OF_TENANT_MAX {
            return None;
        }
        let one = waiting
            .entry(tenant_id)
            .or_insert_with(|| Waiting { places: 0, position: watch::Sender::new(0) });
        one.places += 1;
        let position = one.position.subscribe();
        drop(waiting);
        // What was written since the feed was read is seen at once.
        self.wake.wake(tenant_id);
        Some(Place { feeds: self.clone(), tenant_id, position })
    }

    /// How many wait on this node.
    #[must_use]
    pub fn count(&self) -> usize {
        self.waiting().values().map(|one| one.places).sum()
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<Uuid, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn look(self, store: Store, clock: SharedClock, stop: CancellationToken) {
        let mut next = clock.instant();
        loop {
            let poll = next.saturating_duration_since(clock.instant());
            tokio::select! {
                () = self.wake.heard() => {}
                () = tokio::time::sleep(poll) => {}
                () = stop.cancelled() => return,
            }
            let woken = self.wake.woken();
            let polls = clock.instant() >= next;
            if polls {
                next = clock.instant() + jittered(POLL, clock.fraction());
            }
            let asked = self.asked(|tenant_id| polls || woken.contains(tenant_id));
            if asked.is_empty() {
                continue;
            }
            match store.feed_positions(&asked).await {
                Ok(positions) => self.tell(&positions),
                // Who waits asks again at the end of its time.
                Err(error) => tracing::warn!(%error, "cannot ask where the feeds stand"),
            }
            tokio::select! {
                () = tokio::time::sleep(GAP) => {}
                () = stop.cancelled() => return,
            }
        }
    }

    /// The tenants of which somebody waits, of those that are `wanted`.
    fn asked(&self, wanted: impl Fn(&Uuid) -> bool) -> Vec<Uuid> {
        self.waiting().keys().filter(|tenant_id| wanted(tenant_id)).copied().collect()
    }

    fn tell(&self, positions: &[(Uuid, i64)]) {
        let waiting = self.waiting();
        for (tenant_id, position) in positions {
            if let Some(one) = waiting.get(tenant_id) {
                one.position.send_replace(*position);
            }
        }
    }
}

impl Place {
    /// Waits until the feed stands past a position.
    pub async fn past(&mut self, position: i64) {
        // Its other end is kept as long as this place is.
        let _ = self.position.wait_for(|newest| *newest > position).await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut waiting = self.feeds.waiting();
        if let Some(one) = waiting.get_mut(&self.tenant_id) {
            one.places -= 1;
            if one.places == 0 {
                waiting.remove(&self.tenant_id);
            }
        }
    }
}
