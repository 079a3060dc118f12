//! Look-ups that are remembered briefly: whoever asks for the same at once waits for one look-up, and whoever asks for what
//! does not exist is slowed down by the address.

use std::future::Future;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::addresses::{Address, Addresses};
use super::limits::Told;
use crate::clock::{Moment, SharedClock};
use crate::http::problem::{Kind, Problem};
use crate::lines::Lines;
use crate::recent::Recent;
use crate::store::StoreError;

/// How long something is taken for what it was, from before it was looked up: a revoked key stops on every node within this
/// time, and a changed limit holds.
const KNOWN_FOR: Duration = Duration::from_secs(5);

/// How many a node remembers. Also those that are older are remembered as having been good: to look them up again is not
/// slowed down, whoever else asks from the same address.
const KNOWN_MAX: usize = 10_000;

/// What was looked up and found.
pub(in crate::http) struct Known<K, V> {
    found: Mutex<Recent<K, (Moment, V)>>,
    /// Those who look the same up.
    lines: Lines<K>,
    unknown: Addresses,
    clock: SharedClock,
}

/// What is remembered of a key.
enum Memory<V> {
    Fresh(V),
    Old,
    None,
}

impl<K: Hash + Eq + Copy, V: Clone> Known<K, V> {
    pub(in crate::http) fn new(unknown: Addresses, clock: SharedClock) -> Self {
        let found = Mutex::new(Recent::new(KNOWN_MAX));
        Self { found, lines: Lines::default(), unknown, clock }
    }

    /// What is known under the key, else what `look_up` finds.
    pub(in crate::http) async fn get(
        &self,
        key: K,
        (address, told): (Address, &Told),
        look_up: impl Future<Output = Result<Option<V>, StoreError>>,
    ) -> Result<Option<V>, Problem> {
        if let Memory::Fresh(value) = self.memory(&key) {
            return Ok(Some(value));
        }
        let known = self.get_in_turn(key, (address, told), look_up).await;
        if known.as_ref().is_err_and(|problem| problem.is(Kind::RateLimited)) {
            self.unknown.hold_back().await;
        }
        known
    }

    async fn get_in_turn(
        &self,
        key: K,
        (address, told): (Address, &Told),
        look_up: impl Future<Output = Result<Option<V>, StoreError>>,
    ) -> Result<Option<V>, Problem> {
        let _turn = self.lines.turn(key).await;
        let taken = match self.memory(&key) {
            Memory::Fresh(value) => return Ok(Some(value)),
            Memory::Old => None,
            Memory::None => Some(self.unknown.take(address, told).await?),
        };
        // What changes while it is looked up may be missed.
        let at = self.clock.moment();
        let looked_up = look_up.await;
        if let Some(taken) = taken.filter(|_| !matches!(looked_up, Ok(None))) {
            taken.give_back();
        }
        let value = looked_up?;
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        match &value {
            Some(value) => found.insert(key, (at, value.clone())),
            None => found.remove(&key),
        }
        Ok(value)
    }

    fn memory(&self, key: &K) -> Memory<V> {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        match found.get(key) {
            Some((at, value)) if self.clock.moment().after(*at) < KNOWN_FOR => Memory::Fresh(value.clone()),
            Some(_) => Memory::Old,
            None => Memory::None,
        }
    }
}
