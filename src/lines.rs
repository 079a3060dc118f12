//! Lines: of those who come for the same, one has its turn at a time, and the others wait here, without a connection to the
//! database.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OwnedMutexGuard;

type Line = Arc<tokio::sync::Mutex<()>>;

/// A line for each key that somebody has come for; first come, first served. Cheap to clone.
pub struct Lines<K>(Arc<Mutex<HashMap<K, Line>>>);

/// The head of a line; the next has its turn when it is dropped.
pub struct Turn<K: Hash + Eq> {
    lines: Lines<K>,
    key: K,
    held: Option<OwnedMutexGuard<()>>,
}

impl<K> Clone for Lines<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K> Default for Lines<K> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K: Hash + Eq + Copy> Lines<K> {
    /// Waits until nobody is before. Who gives up waiting has left the line.
    pub async fn turn(&self, key: K) -> Turn<K> {
        let line = self.lines().entry(key).or_default().clone();
        // Made first, so that a line that is given up is cleared away, too.
        let mut turn = Turn { lines: self.clone(), key, held: None };
        turn.held = Some(line.lock_owned().await);
        turn
    }
}

impl<K> Lines<K> {
    fn lines(&self) -> MutexGuard<'_, HashMap<K, Line>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Hash + Eq> Drop for Turn<K> {
    fn drop(&mut self) {
        drop(self.held.take());
        let mut lines = self.lines.lines();
        // Whoever else stands in it has a clone.
        if lines.get(&self.key).is_some_and(|line| Arc::strong_count(line) == 1) {
            lines.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    type Waiting = Pin<Box<dyn Future<Output = Turn<u8>>>>;

    fn wait(lines: &Lines<u8>, key: u8) -> Waiting {
        let lines = lines.clone();
        Box::pin(async move { lines.turn(key).await })
    }

    fn poll(waiting: &mut Waiting) -> Option<Turn<u8>> {
        match waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(turn) => Some(turn),
            Poll::Pending => None,
        }
    }

    #[test]
    fn one_has_its_turn_at_a_time_in_order_and_what_is_empty_is_gone() {
        let lines = Lines::default();

        let mut waiting = [1; 4].map(|key| wait(&lines, key));
        let [first, gone, second, third] = &mut waiting;
        let turn = poll(first).unwrap();
        assert!([gone, second, third].into_iter().all(|waiting| poll(waiting).is_none()));
        assert!(poll(&mut wait(&lines, 2)).is_some(), "for another key nobody waits");
        let [_, gone, mut second, mut third] = waiting;
        drop(gone);
        drop(turn);
        assert!(poll(&mut third).is_none(), "it stands behind another");
        let turn = poll(&mut second).unwrap();
        assert_eq!(lines.lines().len(), 1);
        drop(turn);
        // Whoever has its turn and goes away frees it.
        drop(third);
        assert_eq!(lines.lines().len(), 0);
    }
}
