//! How much of what a node has in hand may be one tenant's.
//!
//! A tenant may have in hand as much as the node has free: alone it takes half, and each further tenant that takes all it
//! may leaves again as much free as it has itself. Of a tenant's share, half is for receivers that are not proven (new ones,
//! and ones that failed last): they take one call each, and each may take the whole timeout. The other half is left to those
//! that work. Beside that, a part of the node is shared by no such rule: whoever has next to nothing in hand finds room
//! there, however many came before, and whatever their receivers do.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

/// How many deliveries one node has in hand at once. Each is a socket and some KiB of buffers, and waits for its receiver
/// most of the time.
pub const IN_HAND_MAX: usize = 1_536;

/// How many of them are for tenants that have less than [`FLOOR`]: 64 of these beside each other find room.
const RESERVED: usize = 512;

/// What a tenant may have in hand whatever others have: four calls to receivers that are not proven, and four more.
const FLOOR: usize = 8;

/// How many a tenant alone has at receivers that are not proven: so many may hang, and a further one is served at once.
pub const UNPROVEN_MAX: usize = (IN_HAND_MAX - RESERVED) / 4;

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
        room(counts.get(&tenant_id).copied().unwrap_or_default(), all)
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

/// What there is room for of a tenant that has so many, of `all`.
fn room(of_tenant: Count, all: usize) -> Room {
    let free = (IN_HAND_MAX - RESERVED).saturating_sub(all);
    let share = of_tenant.all.midpoint(free).max(FLOOR);
    if of_tenant.all >= share || all >= IN_HAND_MAX {
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
        assert_eq!(hanging.len(), UNPROVEN_MAX);
        let working = fill(&hand, id(1), true);
        assert_eq!(hanging.len() + working.len(), 2 * UNPROVEN_MAX);
        drop(hanging);
        assert_eq!(hand.room(id(1)), Room::All);
    }

    #[test]
    fn whoever_comes_next_finds_room_however_many_came_before() {
        for proven in [true, false] {
            let hand = InHand::default();
            let held = (0..60).map(|n| fill(&hand, id(n), proven)).collect::<Vec<_>>();
            let counts = held.iter().map(Vec::len).collect::<Vec<_>>();
            let least = if proven { FLOOR } else { FLOOR / 2 };
            assert!(counts.iter().all(|count| *count >= least), "{counts:?}");
            assert!(counts.iter().sum::<usize>() <= IN_HAND_MAX);
            drop(held);
            assert!(hand.counts().is_empty());
        }
    }

    #[test]
    fn a_node_that_is_full_takes_nothing() {
        let hand = InHand::default();
        let held = (0..200).map(|n| fill(&hand, id(n), true)).collect::<Vec<_>>();
        assert_eq!(held.iter().map(Vec::len).sum::<usize>(), IN_HAND_MAX);
        assert_eq!(hand.room(id(200)), Room::Nothing);
    }
}
