//! Room for bodies: how many bytes of requests a node holds at once.
//!
//! The first bytes of each body come from a part of their own, so that large bodies, however many, leave room for small
//! ones.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;

use super::limits::REQUESTS_MAX;

/// How much of a body has a room of its own, in KiB: nearly all articles.
const FIRST_KIB: usize = 32;

/// That room, in KiB: such a part of each request that a node takes, so that it always fits.
const FIRST_ALL_KIB: usize = REQUESTS_MAX * FIRST_KIB;

/// How long after it had to wait for the first time a body may wait for room again: an answer is to come within 2 s.
const WAIT: Duration = Duration::from_secs(1);

/// There is no room for more of the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many bodies are being received")]
pub struct NoRoom;

/// The room of a node; cheap to clone.
#[derive(Debug, Clone)]
pub struct BodyRoom {
    first: Arc<Semaphore>,
    rest: Arc<Semaphore>,
    /// Who has it needs no more room: one body at a time, so that of many that hold parts of it each comes to its end.
    turn: Arc<Semaphore>,
}

/// What one body holds of it, until it is dropped.
#[derive(Debug, Default)]
pub struct HeldRoom {
    bytes: usize,
    first: Option<OwnedSemaphorePermit>,
    rest: Option<OwnedSemaphorePermit>,
    turn: Option<OwnedSemaphorePermit>,
    /// How long it may wait, since it had to.
    patience: Option<Pin<Box<Sleep>>>,
}

impl BodyRoom {
    /// Room for so many bytes, besides the first part of each body, and all of one at a time.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let kib = (bytes / 1024).clamp(1, Semaphore::MAX_PERMITS);
        let [first, rest, turn] = [FIRST_ALL_KIB, kib, 1].map(|permits| Arc::new(Semaphore::new(permits)));
        Self { first, rest, turn }
    }

    /// Makes room for `more` bytes of a body beside what it `held` so far, and gives both back; waits a moment if there
    /// is none.
    pub async fn add(&self, mut held: HeldRoom, more: usize) -> Result<HeldRoom, NoRoom> {
        held.bytes += more;
        let (first, rest) = parts(held.bytes);
        for (room, part, kib) in [(&self.first, &mut held.first, first), (&self.rest, &mut held.rest, rest)] {
            let missing = kib.saturating_sub(part.as_ref().map_or(0, OwnedSemaphorePermit::num_permits));
            if missing == 0 || held.turn.is_some() {
                continue;
            }
            match (self.more(room, missing, &mut held.patience).await?, part) {
                (More::Turn(turn), _) => held.turn = Some(turn),
                (More::Room(more), Some(part)) => part.merge(more),
                (More::Room(more), part) => *part = Some(more),
            }
        }
        Ok(held)
    }

    async fn more(
        &self,
        room: &Arc<Semaphore>,
        kib: usize,
        patience: &mut Option<Pin<Box<Sleep>>>,
    ) -> Result<More, NoRoom> {
        let kib = u32::try_from(kib).map_err(|_| NoRoom)?;
        if let Ok(more) = room.clone().try_acquire_many_owned(kib) {
            return Ok(More::Room(more));
        }
        let over = patience.get_or_insert_with(|| Box::pin(tokio::time::sleep(WAIT)));
        tokio::select! {
            biased;
            () = over => Err(NoRoom),
            more = room.clone().acquire_many_owned(kib) => more.map(More::Room).map_err(|_| NoRoom),
            turn = self.turn.clone().acquire_owned() => turn.map(More::Turn).map_err(|_| NoRoom),
        }
    }
}

/// What lets a body go on.
enum More {
    Room(OwnedSemaphorePermit),
    Turn(OwnedSemaphorePermit),
}

/// How many KiB of each part a body of so many bytes takes.
fn parts(bytes: usize) -> (usize, usize) {
    let kib = bytes.div_ceil(1024);
    (kib.min(FIRST_KIB), kib.saturating_sub(FIRST_KIB))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1024;

    #[tokio::test(start_paused = true)]
    async fn large_bodies_leave_room_for_small_ones() {
        let room = BodyRoom::new(64 * KIB);
        let large = room.add(HeldRoom::default(), 96 * KIB).await.unwrap();
        let last = room.add(HeldRoom::default(), 96 * KIB).await.unwrap();
        assert!(room.add(HeldRoom::default(), 33 * KIB).await.is_err());
        let small = room.add(HeldRoom::default(), 31 * KIB).await.unwrap();
        let small = room.add(small, KIB).await.unwrap();
        assert!(room.add(small, 1).await.is_err());
        for free in [large, last] {
            drop(free);
            assert!(room.add(HeldRoom::default(), 96 * KIB).await.is_ok());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn of_many_large_bodies_that_come_together_each_gets_its_turn() {
        const BODIES: u32 = 8;
        let room = BodyRoom::new(64 * KIB);
        let bodies = (0..BODIES).map(|_| {
            let room = room.clone();
            tokio::spawn(async move {
                let mut held = HeldRoom::default();
                for _ in 0..96 {
                    held = room.add(held, KIB).await?;
                    tokio::task::yield_now().await;
                }
                tokio::time::sleep(WAIT / (BODIES + 1)).await;
                Ok::<_, NoRoom>(())
            })
        });
        for body in bodies.collect::<Vec<_>>() {
            assert_eq!(body.await.unwrap(), Ok(()));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_body_held_is_free_when_it_is_refused_or_done() {
        let room = BodyRoom::new(64 * KIB);
        let turn = room.turn.clone().acquire_owned().await.unwrap();
        let mut held = HeldRoom::default();
        for _ in 0..96 {
            held = room.add(held, KIB).await.unwrap();
        }
        assert_eq!(room.rest.available_permits(), 0);
        assert_eq!(room.add(held, KIB).await.unwrap_err(), NoRoom);
        let free = || [&room.first, &room.rest, &room.turn].map(|room| room.available_permits());
        assert_eq!(free(), [FIRST_ALL_KIB, 64, 0]);
        drop(turn);
        let held = room.add(HeldRoom::default(), 97 * KIB).await.unwrap();
        assert_eq!(free()[2], 0);
        drop(held);
        assert_eq!(free(), [FIRST_ALL_KIB, 64, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_waits_a_moment_for_room() {
        let room = BodyRoom::new(64 * KIB);
        let _turn = room.turn.clone().acquire_owned().await.unwrap();
        let large = room.add(HeldRoom::default(), 96 * KIB).await.unwrap();
        let waiting = tokio::spawn({
            let room = room.clone();
            async move { room.add(HeldRoom::default(), 96 * KIB).await }
        });
        tokio::time::sleep(WAIT / 2).await;
        drop(large);
        let held = waiting.await.unwrap().unwrap();
        // It has half of its patience left, not all of it again.
        let before = tokio::time::sleep(Duration::ZERO).deadline();
        assert!(room.add(held, KIB).await.is_err());
        assert_eq!(tokio::time::sleep(Duration::ZERO).deadline() - before, WAIT / 2);
    }
}
