//! Gathering: what arrives at the same time is written together.
//!
//! A [`Gatherer`] holds a bounded queue and a few writers. A writer takes what is there, up to a cap of rows and of
//! bytes, and writes it in one go; where nothing else is written, nobody is waited for. Under load the writers are busy, so
//! batches grow by themselves. Some writers may be kept for batches that are full, or large enough ([`Partial`]): each batch
//! costs something of its own, so many small ones at once are more work than few large ones.
//!
//! Who handed something in may go away: what is in the queue is written all the same.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;

use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_util::task::TaskTracker;

pub mod fan;
mod partial;
pub mod tenants;
#[cfg(test)]
mod tests;

use partial::GROWS;
pub use partial::Partial;

/// The bounds of a gatherer.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// How many may wait; one more is refused, rather than memory growing.
    pub queue: usize,
    /// How many KiB may wait, together.
    pub queue_kib: usize,
    /// The most in one batch.
    pub rows: usize,
    /// A batch takes no more once it holds that many KiB.
    pub batch_kib: usize,
    /// How many batches are written at once.
    pub writers: usize,
}

/// Too much is waiting, or the service is stopping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too much is waiting to be written")]
pub struct Busy;

struct Waiting<T, R> {
    value: T,
    kib: usize,
    answer: oneshot::Sender<R>,
    // Gives its share of the queue's bytes back when it is dropped.
    room: OwnedSemaphorePermit,
}

/// Hands in, and waits for what became of it.
pub struct Gatherer<T, R> {
    queue: mpsc::Sender<Waiting<T, R>>,
    room: Arc<Semaphore>,
    // What the patient may fill together: the other half of the queue is for who is refused at once.
    half: Arc<Semaphore>,
    bounds: Bounds,
}

impl<T, R> Clone for Gatherer<T, R> {
    fn clone(&self) -> Self {
        let (queue, room, half) = (self.queue.clone(), self.room.clone(), self.half.clone());
        Self { queue, room, half, bounds: self.bounds }
    }
}

impl<T: Send + 'static, R: Send + 'static> Gatherer<T, R> {
    /// Starts the writers; they end when every clone of the gatherer is gone and the queue is empty. `write` returns
    /// one answer for each of the batch, in its order.
    pub fn start<W, F>(bounds: Bounds, partial: &Partial, tracker: &TaskTracker, write: W) -> Self
    where
        W: Fn(Vec<T>) -> F + Clone + Send + 'static,
        F: Future<Output = Vec<R>> + Send + 'static,
    {
        let (queue, waiting) = mpsc::channel(bounds.queue);
        let waiting = Arc::new(Mutex::new(waiting));
        for _ in 0..bounds.writers {
            tracker.spawn(write_batches(bounds, waiting.clone(), partial.clone(), write.clone()));
        }
        let semaphore = |kib| Arc::new(Semaphore::new(kib));
        Self { queue, room: semaphore(bounds.queue_kib), half: semaphore(bounds.queue_kib / 2), bounds }
    }

    /// How many wait in the queue, to be asked at any time; to hold this keeps no writer from ending.
    pub fn waiting(&self) -> impl Fn() -> usize + Send + Sync + use<T, R> {
        let queue = self.queue.downgrade();
        move || queue.upgrade().map_or(0, |queue| queue.max_capacity() - queue.capacity())
    }

    /// Hands `value` of about `bytes` bytes in; refused at once if too much is waiting.
    pub async fn submit(&self, value: T, bytes: usize) -> Result<R, Busy> {
        let kib = self.kib(bytes);
        let room = self.room.clone().try_acquire_many_owned(permits(kib)?).map_err(|_| Busy)?;
        let (answer, answered) = oneshot::channel();
        self.queue.try_send(Waiting { value, kib, answer, room }).map_err(|_| Busy)?;
        answered.await.map_err(|_| Busy)
    }

    /// Hands `value` of about `bytes` bytes in, waiting for a place in the queue however long it takes; for what must
    /// not be refused. Who waits fills at most half of the queue, by number and by bytes.
    pub async fn submit_patiently(&self, value: T, bytes: usize) -> Result<R, Busy> {
        let kib = self.kib(bytes);
        // As many bytes as one place has on average, at least: half of the bytes is then at most half of the places.
        let share = kib.max(self.bounds.queue_kib.div_ceil(self.bounds.queue)).min(self.bounds.queue_kib / 2);
        let _share = self.half.acquire_many(permits(share)?).await.map_err(|_| Busy)?;
        let room = self.room.clone().acquire_many_owned(permits(kib)?).await.map_err(|_| Busy)?;
        let (answer, answered) = oneshot::channel();
        self.queue.send(Waiting { value, kib, answer, room }).await.map_err(|_| Busy)?;
        answered.await.map_err(|_| Busy)
    }

    /// What a value counts for: one larger than the queue takes all of it.
    fn kib(&self, bytes: usize) -> usize {
        bytes.div_ceil(1024).clamp(1, self.bounds.queue_kib)
    }
}

fn permits(kib: usize) -> Result<u32, Busy> {
    u32::try_from(kib).map_err(|_| Busy)
}

/// What a writer has taken.
struct Batch<T, R> {
    values: Vec<T>,
    answers: Vec<(oneshot::Sender<R>, OwnedSemaphorePermit)>,
    kib: usize,
}

impl<T, R> Batch<T, R> {
    fn of(first: Waiting<T, R>) -> Self {
        let mut batch = Self { values: Vec::new(), answers: Vec::new(), kib: 0 };
        batch.take(first);
        batch
    }

    fn take(&mut self, one: Waiting<T, R>) {
        self.kib += one.kib;
        self.values.push(one.value);
        self.answers.push((one.answer, one.room));
    }

    fn is_full(&self, bounds: Bounds) -> bool {
        self.values.len() >= bounds.rows || self.kib >= bounds.batch_kib
    }

    /// Grows until it is full, or until it may be written without being so.
    async fn grow(
        &mut self,
        bounds: Bounds,
        waiting: &mut mpsc::Receiver<Waiting<T, R>>,
        partial: &Partial,
    ) -> Option<OwnedSemaphorePermit> {
        let (mut permit, mut grown) = (None, pin!(tokio::time::sleep(GROWS)));
        while !self.is_full(bounds) {
            if let Ok(next) = waiting.try_recv() {
                self.take(next);
                continue;
            }
            if permit.is_some() {
                break;
            }
            let beside = partial.beside(self.values.len(), grown.as_mut());
            tokio::select! {
                biased;
                free = partial.any() => permit = Some(free?),
                free = beside => permit = Some(free?),
                Some(next) = waiting.recv() => self.take(next),
            }
        }
        permit
    }
}

async fn write_batches<T, R, W, F>(
    bounds: Bounds,
    waiting: Arc<Mutex<mpsc::Receiver<Waiting<T, R>>>>,
    partial: Partial,
    write: W,
) where
    W: Fn(Vec<T>) -> F,
    F: Future<Output = Vec<R>>,
{
    loop {
        let (batch, _permit) = {
            // Held while waiting for a first one, and while the batch grows: the other idle writers queue up behind.
            let mut waiting = waiting.lock().await;
            let Some(first) = waiting.recv().await else { return };
            let mut batch = Batch::of(first);
            let permit = batch.grow(bounds, &mut waiting, &partial).await;
            (batch, permit)
        };
        let Batch { values, answers, .. } = batch;
        let results = write(values).await;
        debug_assert_eq!(results.len(), answers.len());
        for ((answer, _room), result) in answers.into_iter().zip(results) {
            // Whoever asked may have gone away.
            let _ = answer.send(result);
        }
    }
}
