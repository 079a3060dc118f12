//! Which batches are written though they are not full.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;

/// How long a batch that is too small to be written beside another waits to grow: half of what the statement of a usual batch
/// takes, so that one which takes long holds up nobody.
pub(super) const GROWS: Duration = Duration::from_millis(3);

/// Which batches may be written without being full, of all gatherers that share it: another one grows until it is full, or until
/// one of these is written.
#[derive(Debug, Clone)]
pub struct Partial {
    any: Arc<Semaphore>,
    beside: Option<Beside>,
}

/// The place of a batch beside another.
#[derive(Debug, Clone)]
struct Beside {
    place: Arc<Semaphore>,
    rows: usize,
}

impl Partial {
    /// So many at once, of any size.
    #[must_use]
    pub fn at_once(batches: usize) -> Self {
        Self { any: Arc::new(Semaphore::new(batches)), beside: None }
    }

    /// One of any size, and beside it one of so many rows, or that has waited 3 ms to have them: those whose answers have
    /// just come ask again one after the other, and the first would go alone.
    #[must_use]
    pub fn one_and_one_of(rows: usize) -> Self {
        Self { beside: Some(Beside { place: Arc::new(Semaphore::new(1)), rows }), ..Self::at_once(1) }
    }

    /// A place for a batch of any size.
    pub(super) async fn any(&self) -> Option<OwnedSemaphorePermit> {
        self.any.clone().acquire_owned().await.ok()
    }

    /// The place beside another for a batch that has so many rows by now.
    pub(super) async fn beside(&self, has: usize, grown: Pin<&mut Sleep>) -> Option<OwnedSemaphorePermit> {
        let Some(Beside { place, rows }) = &self.beside else { return std::future::pending().await };
        if has < *rows {
            grown.await;
        }
        place.clone().acquire_owned().await.ok()
    }
}
