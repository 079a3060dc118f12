//! Removal by age: contents and journals of what has ended, and events with their callbacks, go when they are old enough; what
//! was handed in, and what became of it, stays for ever. What goes and what stays, table by table: [`crate::store`], `retention`.
//!
//! A node that publishes looks once in a while which tenants have something to remove, in one statement, and deals with a
//! batch of each in turn until nothing is left. Any number of nodes may: a tenant's batch is one node's.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::clock::SharedClock;
use crate::retry::jittered;
use crate::store::{REMOVE_MOST, Removable, Step, Store, StoreError};
use crate::telemetry::metrics::Metrics;

pub mod keep;

use keep::Keep;

/// How often is looked for something to remove: a statement a minute at most, by whatever chance the pause is moved.
const LOOK: Duration = Duration::from_secs(75);

/// The pause after a batch: removing takes a part of one connection's time, and what is published goes before. It leaves a
/// thousand tasks a second to each node, more than it accepts for long.
const PAUSE: Duration = Duration::from_millis(100);

/// How many tenants one question returns.
const TENANTS_AT_ONCE: i64 = 64;

/// By how much the next batch is smaller after one that took too long or met a lock.
const SHRINK: i64 = 4;

/// What is removed, as metrics name it.
pub const KINDS: [&str; 4] = ["contents", "events", "pending_callbacks", "replays"];

/// What a pass removed, in the order of [`KINDS`].
pub type Removed = [u64; 4];

/// Removes by age.
pub struct Remover {
    /// From where.
    pub store: Store,
    /// What is kept.
    pub keep: Keep,
    /// Counts what was removed.
    pub metrics: Metrics,
    /// Time and chance.
    pub clock: SharedClock,
}

impl Remover {
    /// Removes until stopped.
    pub async fn run(self, stop: CancellationToken) {
        let mut most = REMOVE_MOST;
        loop {
            let begun = self.clock.instant();
            let mut removed = Removed::default();
            let passed = tokio::select! {
                passed = self.pass(&mut most, &mut removed) => passed,
                // What is under way is rolled back.
                () = stop.cancelled() => return,
            };
            let [contents, events, pending, replays] = removed;
            if removed.iter().sum::<u64>() > 0 {
                let took = self.clock.instant() - begun;
                tracing::info!(contents, events, pending, replays, ?took, "removed by age");
            }
            if let Err(error) = passed {
                tracing::warn!(%error, "cannot remove what is old; trying again in a minute");
                most = (most / SHRINK).max(1);
            }
            let pause = tokio::time::sleep(jittered(LOOK, self.clock.fraction()));
            if stop.run_until_cancelled(pause).await.is_none() {
                return;
            }
        }
    }

    /// Removes all that is old enough, of each tenant a batch of at most `most` at a time; counts in `removed` what is gone,
    /// also where it ends early. What others are at is left to them, and one tenant of which something cannot be removed
    /// keeps nobody else waiting.
    pub async fn pass(&self, most: &mut i64, removed: &mut Removed) -> Result<(), StoreError> {
        loop {
            let (mut after, mut overdue, mut more) = (Uuid::nil(), Overdue::default(), false);
            loop {
                let due = self.store.tenants_removable(&self.keep, after, TENANTS_AT_ONCE).await?;
                for one in &due {
                    overdue.note(one);
                    after = one.tenant_id;
                    match self.turn(one, *most, removed).await {
                        Ok(left) => {
                            more |= left;
                            *most = (*most * 2).min(REMOVE_MOST);
                        }
                        Err(error @ StoreError::Unavailable(_)) => return Err(error),
                        Err(error) => {
                            tracing::warn!(tenant_id = %one.tenant_id, %error, "cannot remove what is old of a tenant");
                            *most = (*most / SHRINK).max(1);
                        }
                    }
                }
                if i64::try_from(due.len()).is_ok_and(|due| due < TENANTS_AT_ONCE) {
                    break;
                }
            }
            self.metrics.removal_looked(overdue.contents, overdue.events, self.clock.now().timestamp());
            if !more {
                return Ok(());
            }
        }
    }

    /// Removes a batch of each kind of one tenant; whether there may be more at once.
    async fn turn(&self, one: &Removable, most: i64, removed: &mut Removed) -> Result<bool, StoreError> {
        let (store, keep, tenant_id) = (&self.store, &self.keep, one.tenant_id);
        let mut more = false;
        // First what keeps events from going.
        for kind in [2, 0, 1, 3] {
            let step = match KINDS[kind] {
                "contents" if one.contents_seconds.is_some() => {
                    store.remove_contents(tenant_id, keep, most).await?
                }
                "events" if one.events_seconds.is_some() => {
                    store.remove_events(tenant_id, keep, most).await?
                }
                "pending_callbacks" if one.pending => store.give_up_pending(tenant_id, keep, most).await?,
                "replays" if one.replays => store.remove_replays(tenant_id, keep, most).await?,
                _ => continue,
            };
            let Step { removed: gone, more: left } = step;
            removed[kind] += gone;
            self.metrics.removed(KINDS[kind], gone);
            more |= left;
            tokio::time::sleep(PAUSE).await;
        }
        Ok(more)
    }
}

/// How much longer than it should have been the oldest was kept, in seconds.
#[derive(Debug, Default)]
struct Overdue {
    contents: f64,
    events: f64,
}

impl Overdue {
    fn note(&mut self, one: &Removable) {
        self.contents = self.contents.max(one.contents_seconds.unwrap_or_default());
        self.events = self.events.max(one.events_seconds.unwrap_or_default());
    }
}
