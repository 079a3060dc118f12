//! Writing the journal: the entries of all runs of a node are gathered, and each batch of a tenant is one statement.
//!
//! A run waits for its own entry, and goes on when that is committed; it never waits for others to have one.

use std::collections::HashMap;
use std::sync::Arc;

use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::fault;
use crate::gather::{Bounds, Gatherer};
use crate::store::{JournalEntry, Store, StoreError};

/// As many writers as keep the database busy while others wait for the disk; more would only make the batches smaller. An
/// entry holds the head of two answers at most, 1 KiB each.
const BOUNDS: Bounds =
    Bounds { queue: 1_024, queue_kib: 2_048, rows: 128, batch_kib: 1_024, writers: 2, partial: 1 };

/// Whether an entry was written, or why nobody knows.
type Written = Result<bool, Arc<StoreError>>;

/// Writes the journal.
#[derive(Clone)]
pub struct Scribe {
    gatherer: Gatherer<JournalEntry, Written>,
}

impl Scribe {
    /// Starts the writers.
    #[must_use]
    pub fn start(store: Store, tracker: &TaskTracker) -> Self {
        let gatherer = Gatherer::start(BOUNDS, tracker, move |batch| write(store.clone(), batch));
        Self { gatherer }
    }

    /// Writes an entry and renews the lease; false if that was lost, or the service stops: then nothing may be done. What
    /// could not be written is not written again, since it may have been: it is left to its lease.
    pub async fn write(&self, entry: JournalEntry) -> Result<bool, StoreError> {
        let kind = entry.kind();
        fault::point("journal.writing", kind);
        let written = self.gatherer.submit_patiently(entry, 0).await.unwrap_or(Ok(false))?;
        fault::point("journal.written", kind);
        Ok(written)
    }
}

async fn write(store: Store, batch: Vec<JournalEntry>) -> Vec<Written> {
    let mut by_tenant = HashMap::<Uuid, Vec<usize>>::new();
    for (at, entry) in batch.iter().enumerate() {
        by_tenant.entry(entry.tenant_id).or_default().push(at);
    }
    let mut written = vec![Ok(false); batch.len()];
    let mut parts = by_tenant.into_iter().collect::<Vec<_>>();
    while let Some((tenant_id, mut part)) = parts.pop() {
        let entries = part.iter().map(|at| batch[*at].clone()).collect::<Vec<_>>();
        match store.journal(tenant_id, &entries).await {
            Ok(held) => part.into_iter().zip(held).for_each(|(at, held)| written[at] = Ok(held)),
            // One that the database refuses, or that somebody holds up, must not fail its neighbours. Of these errors it is
            // certain that nothing was written.
            Err(StoreError::Refused(_) | StoreError::HeldUp(_)) if part.len() > 1 => {
                let rest = part.split_off(part.len() / 2);
                parts.extend([(tenant_id, part), (tenant_id, rest)]);
            }
            Err(error) => {
                let error = Arc::new(error);
                for at in part {
                    written[at] = Err(error.clone());
                }
            }
        }
    }
    written
}
