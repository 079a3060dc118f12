//! Writing the journal: the entries of all runs of a node are gathered, and each batch of a tenant is one statement.
//!
//! A run waits for its own entry, and goes on when that is committed; it never waits for others to have one.

use std::sync::Arc;

use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::fault;
use crate::gather::tenants::{Then, WritesParts, by_tenant};
use crate::gather::{Bounds, Gatherer, Partial};
use crate::store::{JournalEntry, Store, StoreError};

/// One batch at a time, and a second where that would grow past its rows: each costs something of its own, so few large ones
/// are less work than many small ones. An entry holds the head of two answers at most, 1 KiB each.
const BOUNDS: Bounds = Bounds { queue: 1_024, queue_kib: 2_048, rows: 128, batch_kib: 1_024, writers: 2 };

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
    pub fn start(store: Store, partial: &Partial, tracker: &TaskTracker) -> Self {
        let writer = Writer(store);
        let gatherer = Gatherer::start(BOUNDS, partial, tracker, move |batch| {
            let writer = writer.clone();
            async move { by_tenant(&writer, batch, |entry: &JournalEntry| entry.tenant_id).await }
        });
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

/// Writes what was gathered.
#[derive(Clone)]
struct Writer(Store);

impl WritesParts<JournalEntry> for Writer {
    type Written = Written;
    type Error = StoreError;

    async fn write(&self, tenant_id: Uuid, part: &[JournalEntry]) -> Result<Vec<Written>, StoreError> {
        let held = self.0.journal(tenant_id, part).await?;
        Ok(held.into_iter().map(Ok).collect())
    }

    async fn refused(&self, error: StoreError, part: &[JournalEntry]) -> Then<Written> {
        match error {
            // One that the database refuses, or that somebody holds up, must not fail its neighbours. Of these errors it is
            // certain that nothing was written.
            StoreError::Refused(_) | StoreError::HeldUp(_) if part.len() > 1 => Then::Halves,
            error => Then::Answer(Err(Arc::new(error))),
        }
    }
}
