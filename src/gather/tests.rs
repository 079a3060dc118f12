//! What a gatherer promises to those who hand in.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;
use tokio::task::JoinHandle;

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

type HandedIn = Vec<JoinHandle<Result<usize, Busy>>>;

fn hand_in(gatherer: &Gatherer<u32, usize>, number: usize) -> HandedIn {
    let one = |_| {
        let gatherer = gatherer.clone();
        tokio::spawn(async move { gatherer.submit(0, 1).await })
    };
    (0..number).map(one).collect()
}

/// Each of these was written in a batch of that size.
async fn each_was_in(batches: Vec<(HandedIn, usize)>) {
    for (some, size) in batches {
        for one in some {
            assert_eq!(one.await.unwrap(), Ok(size));
        }
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
    let hand_in = |number| hand_in(&gatherer, number);
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
    each_was_in(vec![(alone, 1), (three, 4), (fourth, 4), (two, 2)]).await;
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_written_beside_another_when_it_is_large_enough_or_has_waited() {
    let (gatherer, go, begun, _tracker) =
        held_with(Bounds { writers: 3, ..BOUNDS }, &Partial::one_and_one_of(2));
    let hand_in = |number| hand_in(&gatherer, number);
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
    each_was_in(vec![(alone, 1), (two, 2), (three, 3), (small, 1)]).await;
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
