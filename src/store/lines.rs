//! Lines before the pool: calls that would wait for each other's locks wait here, without a connection.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OwnedMutexGuard;
use uuid::Uuid;

type Line = Arc<tokio::sync::Mutex<()>>;

/// A line for each tenant that has somebody in it; first come, first served. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Lines(Arc<Mutex<HashMap<Uuid, Line>>>);

/// The head of a line; the next has its turn when it is dropped.
pub(super) struct Turn {
    lines: Lines,
    tenant_id: Uuid,
    held: Option<OwnedMutexGuard<()>>,
}

impl Lines {
    /// Waits until nobody of the tenant is before. Who gives up waiting has left the line.
    pub(super) async fn turn(&self, tenant_id: Uuid) -> Turn {
        let line = self.lines().entry(tenant_id).or_default().clone();
        // Made first, so that a line that is given up is cleared away, too.
        let mut turn = Turn { lines: self.clone(), tenant_id, held: None };
        turn.held = Some(line.lock_owned().await);
        turn
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<Uuid, Line>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        drop(self.held.take());
        let mut lines = self.lines.lines();
        // Whoever else stands in it has a clone.
        if lines.get(&self.tenant_id).is_some_and(|line| Arc::strong_count(line) == 1) {
            lines.remove(&self.tenant_id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    type Waiting = Pin<Box<dyn Future<Output = Turn>>>;

    fn wait(lines: &Lines, tenant_id: Uuid) -> Waiting {
        let lines = lines.clone();
        Box::pin(async move { lines.turn(tenant_id).await })
    }

    fn poll(waiting: &mut Waiting) -> Option<Turn> {
        match waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(turn) => Some(turn),
            Poll::Pending => None,
        }
    }

    #[test]
    fn one_of_a_tenant_at_a_time_in_order_and_what_is_empty_is_gone() {
        let lines = Lines::default();
        let (one, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let mut waiting = [one; 4].map(|tenant_id| wait(&lines, tenant_id));
        let [first, gone, second, third] = &mut waiting;
        let turn = poll(first).unwrap();
        assert!([gone, second, third].into_iter().all(|waiting| poll(waiting).is_none()));
        assert!(poll(&mut wait(&lines, other)).is_some(), "of another tenant nobody waits");
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
