//! How many calls a node has open at one receiver at once.
//!
//! A receiver that answers quickly has more callbacks in hand than it is called at once: most of their time goes by while
//! they are claimed and recorded. They wait for each other at its door, so it sees few connections, used again and again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use uuid::Uuid;

/// How many calls are open at one receiver at once: what a slow one has in hand at most, and as many idle connections as the
/// client keeps.
pub const OPEN_AT_ONCE: usize = 16;

/// How long a callback waits at a door: where answers stay out, its lease must last for a call of its own.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// How many doors are remembered before those are forgotten at which nobody stands.
const DOORS_MAX: usize = 1_024;

/// A receiver of a tenant.
type Receiver = (Uuid, String);

/// The doors of receivers. Clones share them.
#[derive(Clone, Default)]
pub struct Doors {
    known: Arc<Mutex<HashMap<Receiver, Weak<Semaphore>>>>,
}

impl Doors {
    /// Waits for a place at a receiver's door, which is kept until it is dropped; none after two seconds, when whoever waits
    /// goes in all the same.
    pub async fn pass(&self, receiver: Receiver) -> Option<OwnedSemaphorePermit> {
        let place = self.door(receiver).acquire_owned();
        tokio::time::timeout(WAIT_MAX, place).await.ok()?.ok()
    }

    fn door(&self, receiver: Receiver) -> Arc<Semaphore> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(door) = known.get(&receiver).and_then(Weak::upgrade) {
            return door;
        }
        if known.len() >= DOORS_MAX {
            known.retain(|_, door| door.strong_count() > 0);
        }
        let door = Arc::new(Semaphore::new(OPEN_AT_ONCE));
        known.insert(receiver, Arc::downgrade(&door));
        door
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receiver(name: &str) -> Receiver {
        (Uuid::nil(), name.to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_are_let_in_and_the_next_when_one_leaves_or_time_is_up() {
        let doors = Doors::default();
        let mut inside = Vec::new();
        for _ in 0..OPEN_AT_ONCE {
            inside.push(doors.pass(receiver("a")).await.unwrap());
        }
        assert!(doors.pass(receiver("a")).await.is_none());
        assert!(doors.pass(receiver("b")).await.is_some());
        inside.pop();
        assert!(doors.pass(receiver("a")).await.is_some());
    }

    #[tokio::test]
    async fn doors_at_which_nobody_stands_are_forgotten() {
        let doors = Doors::default();
        let _inside = doors.pass(receiver("kept")).await;
        for n in 0..=DOORS_MAX {
            doors.pass(receiver(&n.to_string())).await;
        }
        assert!(doors.known.lock().unwrap().len() < DOORS_MAX);
        assert!(doors.known.lock().unwrap().contains_key(&receiver("kept")));
    }
}
