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
    /// What was not found, remembered apart: who asks for what does not exist drives out nothing that does.
    absent: Mutex<Recent<K, Moment>>,
    /// Those who look the same up.
    lines: Lines<K>,
    unknown: Addresses,
    clock: SharedClock,
}

/// What is remembered of a key.
enum Memory<V> {
    Fresh(V),
    Absent,
    Old,
    None,
}

impl<K: Hash + Eq + Copy, V: Clone> Known<K, V> {
    pub(in crate::http) fn new(unknown: Addresses, clock: SharedClock) -> Self {
        let (found, absent) = (Mutex::new(Recent::new(KNOWN_MAX)), Mutex::new(Recent::new(KNOWN_MAX)));
        Self { found, absent, lines: Lines::default(), unknown, clock }
    }

    /// What is known under the key, else what `look_up` finds.
    pub(in crate::http) async fn get(
        &self,
        key: K,
        (address, told): (Address, &Told),
        look_up: impl Future<Output = Result<Option<V>, StoreError>>,
    ) -> Result<Option<V>, Problem> {
        match self.memory(&key) {
            Memory::Fresh(value) => return Ok(Some(value)),
            // A client that goes on with a key that was revoked uses up nothing of its address.
            Memory::Absent => {
                self.unknown.hold_back().await;
                return Ok(None);
            }
            Memory::Old | Memory::None => {}
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
            Memory::Absent => return Ok(None),
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
        let mut absent = self.absent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = &value {
            found.insert(key, (at, value.clone()));
            absent.remove(&key);
        } else {
            found.remove(&key);
            absent.insert(key, at);
        }
        drop((found, absent));
        Ok(value)
    }

    fn memory(&self, key: &K) -> Memory<V> {
        let now = self.clock.moment();
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        match found.get(key) {
            Some((at, value)) if now.after(*at) < KNOWN_FOR => return Memory::Fresh(value.clone()),
            Some(_) => return Memory::Old,
            None => {}
        }
        let mut absent = self.absent.lock().unwrap_or_else(PoisonError::into_inner);
        match absent.get(key) {
            Some(at) if now.after(*at) < KNOWN_FOR => Memory::Absent,
            _ => Memory::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::clock::SystemClock;
    use crate::http::gate::addresses::HELD_BACK_FOR;

    /// Whether an answer is there at once, by the runtime's clock, which stands still but for what is waited for.
    async fn is_at_once(known: &Known<u8, u8>, key: u8, found: Option<u8>) -> bool {
        let (address, told) = (Address::default(), Told::default());
        let get = known.get(key, (address, &told), async { Ok(found) });
        match tokio::time::timeout(HELD_BACK_FOR / 2, get).await {
            Ok(answer) => answer.unwrap() == found,
            Err(_) => false,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_answer_to_the_same_wrong_key_is_held_back_and_no_other() {
        let clock: SharedClock = Arc::new(SystemClock);
        let known = Known::new(Addresses::new("wrong-keys", "keys", clock.clone()), clock);
        assert!(is_at_once(&known, 1, None).await);
        assert!(!is_at_once(&known, 1, None).await);
        assert!(is_at_once(&known, 2, Some(2)).await);
        assert!(is_at_once(&known, 2, Some(2)).await);
    }
}
