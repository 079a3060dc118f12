//! How much of what a node has in hand may be one tenant's.
//!
//! A tenant may have in hand as much as the node has free: alone it takes half, and each further tenant that takes all it
//! may leaves again as much free as it has itself. So there is room for who comes next, whatever the others' receivers do.
//! Of a tenant's share, half is for receivers that are not proven (new ones, and ones that failed last): they take one
//! call each, and each may take the whole timeout. The other half is left to those that work.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

/// How many deliveries one node has in hand at once. Each is a socket and some KiB of buffers, and waits for its receiver
/// most of the time. A tenant alone has 512 of them, 256 at receivers that are not proven: so many may hang and a further
/// one is served at once.
pub const IN_HAND_MAX: usize = 1_024;

/// The deliveries in hand, by tenant. Clones share it.
#[derive(Clone, Default)]
pub struct InHand {
    counts: Arc<Mutex<HashMap<Uuid, Count>>>,
}

/// Those of one tenant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Count {
    all: usize,
    unproven: usize,
}

/// What a tenant may have sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// Whatever is due.
    All,
    /// What is due for proven receivers.
    Proven,
    /// Nothing until something of it has ended.
    Nothing,
}

/// A delivery in hand; it counts until it is dropped.
pub struct Held {
    of: InHand,
    tenant_id: Uuid,
    proven: bool,
}

impl InHand {
    /// What there is room for. A claim is made by it as a whole: it may take a tenant past its share by less than it takes
    /// at once.
    #[must_use]
    pub fn room(&self, tenant_id: Uuid) -> Room {
        let counts = self.counts();
        let all = counts.values().map(|count| count.all).sum::<usize>();
        room(counts.get(&tenant_id).copied().unwrap_or_default(), IN_HAND_MAX.saturating_sub(all))
    }

    /// Takes a delivery in hand.
    #[must_use]
    pub fn hold(&self, tenant_id: Uuid, proven: bool) -> Held {
        let mut counts = self.counts();
        let count = counts.entry(tenant_id).or_default();
        count.all += 1;
        count.unproven += usize::from(!proven);
        drop(counts);
        Held { of: self.clone(), tenant_id, proven }
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<Uuid, Count>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut counts = self.of.counts();
        if let Some(count) = counts.get_mut(&self.tenant_id) {
            count.all -= 1;
            count.unproven -= usize::from(!self.proven);
            if count.all == 0 {
                counts.remove(&self.tenant_id);
            }
        }
    }
}

fn room(of_tenant: Count, free: usize) -> Room {
    let share = of_tenant.all.midpoint(free);
    if of_tenant.all >= share {
        Room::Nothing
    } else if of_tenant.unproven >= share / 2 {
        Room::Proven
    } else {
        Room::All
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: usize) -> Uuid {
        Uuid::from_u128(n as u128)
    }

    /// Takes what a tenant may have.
    fn fill(hand: &InHand, tenant_id: Uuid, proven: bool) -> Vec<Held> {
        let mut held = Vec::new();
        while match hand.room(tenant_id) {
            Room::All => true,
            Room::Proven => proven,
            Room::Nothing => false,
        } {
            held.push(hand.hold(tenant_id, proven));
        }
        held
    }

    #[test]
    fn a_tenant_takes_half_and_a_quarter_at_receivers_that_are_not_proven() {
        let hand = InHand::default();
        let hanging = fill(&hand, id(1), false);
        assert_eq!(hanging.len(), IN_HAND_MAX / 4);
        let working = fill(&hand, id(1), true);
        assert_eq!(hanging.len() + working.len(), IN_HAND_MAX / 2);
        drop(hanging);
        assert_eq!(hand.room(id(1)), Room::All);
    }

    #[test]
    fn whoever_comes_next_finds_room_however_many_came_before() {
        let hand = InHand::default();
        let mut held = Vec::new();
        for n in 0..60 {
            held.push(fill(&hand, id(n), true));
        }
        assert!(
            held.iter().all(|one| !one.is_empty()),
            "{:?}",
            held.iter().map(Vec::len).collect::<Vec<_>>()
        );
        drop(held);
        assert!(hand.counts().is_empty());
    }
}
