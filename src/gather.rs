//! Gathering: what arrives at the same time is written together.
//!
//! A [`Gatherer`] holds a bounded queue and a few writers. A writer takes what is there, up to a cap of rows and of
//! bytes, and writes it in one go; where nothing else is written, nobody is waited for. Under load the writers are busy, so
//! batches grow by themselves. Some writers may be kept for batches that are full, or large enough ([`Partial`]): each batch
//! costs something of its own, so many small ones at once are more work than few large ones.
//!
//! Who handed something in may go away: what is in the queue is written all the same.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::Sleep;
use tokio_util::task::TaskTracker;

pub mod fan;
pub mod tenants;

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

/// How long a batch that is too small to be written beside another waits to grow: half of what the statement of a usual batch
/// takes, so that one which takes long holds up nobody.
const GROWS: Duration = Duration::from_millis(3);

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

    /// The place beside another for a batch that has so many rows by now.
    async fn beside(&self, has: usize, grown: Pin<&mut Sleep>) -> Option<OwnedSemaphorePermit> {
        let Some(Beside { place, rows }) = &self.beside else { return std::future::pending().await };
        if has < *rows {
            grown.await;
        }
        place.clone().acquire_owned().await.ok()
    }
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
                free = partial.any.clone().acquire_owned() => permit = Some(free.ok()?),
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Notify;

    use super::*;

    const BOUNDS: Bounds = Bounds { queue: 8, queue_kib: 64, rows: 4, batch_kib: 16, writers: 1 };

    type Held = (Gatherer<u32, usize>, Arc<Notify>, Arc<AtomicUsize>, TaskTracker);

    /// A gatherer whose writer reports each batch's size, once it is let go.
    fn held() -> Held {
        held_by(BOUNDS)
    }

    fn held_by(bounds: Bounds) -> Held {
        held_with(bounds, &Partial::at_once(1))
    }

    fn held_with(bounds: Bounds, partial: &Partial) -> Held {
        let tracker = TaskTracker::new();
        let (go, begun) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
        let (gate, count) = (go.clone(), begun.clone());
        let gatherer = Gatherer::start(bounds, partial, &tracker, move |batch: Vec<u32>| {
            let (gate, count) = (gate.clone(), count.clone());
            async move {
                count.fetch_add(1, Ordering::SeqCst);
                gate.notified().await;
                vec![batch.len(); batch.len()]
            }
        });
        (gatherer, go, begun, tracker)
    }

    async fn until_begun(begun: &AtomicUsize, batches: usize) {
        while begun.load(Ordering::SeqCst) < batches {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn what_waits_is_written_together_up_to_the_cap() {
        let (gatherer, go, begun, _tracker) = held();
        let hand_in = |bytes| {
            let gatherer = gatherer.clone();
            tokio::spawn(async move { gatherer.submit(0, bytes).await })
        };
        let first = hand_in(1);
        until_begun(&begun, 1).await;
        let rest = (0..6).map(|_| hand_in(1)).collect::<Vec<_>>();
        while gatherer.queue.capacity() > BOUNDS.queue - 6 {
            tokio::task::yield_now().await;
        }
        assert_eq!(gatherer.waiting()(), 6);
        let mut sizes = Vec::new();
        for batch in 1..=3 {
            until_begun(&begun, batch).await;
            go.notify_one();
        }
        sizes.push(first.await.unwrap().unwrap());
        for one in rest {
            sizes.push(one.await.unwrap().unwrap());
        }
        sizes.sort_unstable();
        assert_eq!(sizes, [1, 2, 2, 4, 4, 4, 4]);
    }

    #[tokio::test]
    async fn a_batch_beside_another_is_written_when_it_is_full_or_the_other_is_done() {
        let (gatherer, go, begun, _tracker) = held_by(Bounds { writers: 3, ..BOUNDS });
        let hand_in = |number: usize| {
            let hand_in = |_| {
                let gatherer = gatherer.clone();
                tokio::spawn(async move { gatherer.submit(0, 1).await })
            };
            (0..number).map(hand_in).collect::<Vec<_>>()
        };
        let alone = hand_in(1);
        until_begun(&begun, 1).await;
        let three = hand_in(3);
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!((begun.load(Ordering::SeqCst), gatherer.waiting()()), (1, 0));
        let fourth = hand_in(1);
        until_begun(&begun, 2).await;
        let two = hand_in(2);
        go.notify_one();
        until_begun(&begun, 3).await;
        for _ in 0..2 {
            go.notify_one();
            tokio::task::yield_now().await;
        }
        for (some, size) in [(alone, 1), (three, 4), (fourth, 4), (two, 2)] {
            for one in some {
                assert_eq!(one.await.unwrap(), Ok(size));
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_is_written_beside_another_when_it_is_large_enough_or_has_waited() {
        let (gatherer, go, begun, _tracker) =
            held_with(Bounds { writers: 3, ..BOUNDS }, &Partial::one_and_one_of(2));
        let hand_in = |number: usize| {
            let hand_in = |_| {
                let gatherer = gatherer.clone();
                tokio::spawn(async move { gatherer.submit(0, 1).await })
            };
            (0..number).map(hand_in).collect::<Vec<_>>()
        };
        let alone = hand_in(1);
        until_begun(&begun, 1).await;
        let two = hand_in(2);
        until_begun(&begun, 2).await;
        // Both places are taken.
        let three = hand_in(3);
        tokio::time::sleep(2 * GROWS).await;
        assert_eq!(begun.load(Ordering::SeqCst), 2);
        go.notify_one();
        until_begun(&begun, 3).await;
        go.notify_one();
        // It is too small to go beside the three, until it has waited.
        let small = hand_in(1);
        tokio::time::sleep(GROWS / 2).await;
        assert_eq!(begun.load(Ordering::SeqCst), 3);
        tokio::time::sleep(GROWS).await;
        assert_eq!(begun.load(Ordering::SeqCst), 4);
        for _ in 0..2 {
            go.notify_one();
            tokio::task::yield_now().await;
        }
        for (some, size) in [(alone, 1), (two, 2), (three, 3), (small, 1)] {
            for one in some {
                assert_eq!(one.await.unwrap(), Ok(size));
            }
        }
    }

    #[tokio::test]
    async fn too_much_is_refused_by_number_and_by_bytes() {
        let (gatherer, go, begun, _tracker) = held();
        let first = tokio::spawn({
            let gatherer = gatherer.clone();
            async move { gatherer.submit(0, 60 * 1024).await }
        });
        until_begun(&begun, 1).await;
        assert_eq!(gatherer.submit(0, 5 * 1024).await, Err(Busy));
        go.notify_one();
        assert_eq!(first.await.unwrap(), Ok(1));
        assert_eq!(gatherer.room.available_permits(), BOUNDS.queue_kib);
    }

    #[tokio::test]
    async fn the_patient_wait_for_room_and_leave_half_of_it_to_others() {
        let (gatherer, go, begun, _tracker) = held();
        let patient = (0..20)
            .map(|n| {
                let (gatherer, bytes) = (gatherer.clone(), if n % 5 == 0 { 20 * 1024 } else { 1 });
                tokio::spawn(async move { gatherer.submit_patiently(0, bytes).await })
            })
            .collect::<Vec<_>>();
        until_begun(&begun, 1).await;
        for _ in 0..100 {
            // Each has had its turn, and waits.
            tokio::task::yield_now().await;
        }
        let half = BOUNDS.queue_kib / 2;
        assert!(gatherer.room.available_permits() >= half, "{}", gatherer.room.available_permits());
        assert!(gatherer.queue.capacity() >= BOUNDS.queue / 2, "{}", gatherer.queue.capacity());
        let other = tokio::spawn({
            let gatherer = gatherer.clone();
            async move { gatherer.submit(0, 10 * 1024).await }
        });
        while !patient.iter().all(tokio::task::JoinHandle::is_finished) || !other.is_finished() {
            go.notify_one();
            tokio::task::yield_now().await;
        }
        assert!(other.await.unwrap().is_ok(), "refused, though half of the queue was free");
        for one in patient {
            assert!(one.await.unwrap().is_ok());
        }
        assert_eq!(gatherer.half.available_permits(), half);
        assert_eq!(gatherer.room.available_permits(), BOUNDS.queue_kib);
    }

    #[tokio::test]
    async fn a_client_that_goes_away_does_not_take_its_article_along() {
        let (gatherer, go, begun, tracker) = held();
        let gone = tokio::spawn({
            let gatherer = gatherer.clone();
            async move { gatherer.submit(0, 1).await }
        });
        until_begun(&begun, 1).await;
        gone.abort();
        let _ = gone.await;
        go.notify_one();
        // Who watches the queue does not hold up the end.
        let waiting = gatherer.waiting();
        drop(gatherer);
        tracker.close();
        tracker.wait().await;
        assert_eq!(waiting(), 0);
        assert_eq!(begun.load(Ordering::SeqCst), 1);
    }
}
