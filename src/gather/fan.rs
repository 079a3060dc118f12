//! Gatherers beside each other.

use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::iter;
use std::sync::Arc;

use super::Gatherer;

/// Some gatherers, of which each key has always the same one: what is written of one key waits for no lock that another batch
/// of it holds, and holds up only the keys that share its gatherer.
pub struct Fan<T, R>(Arc<[Gatherer<T, R>]>);

impl<T, R> Clone for Fan<T, R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T, R> Fan<T, R> {
    /// So many of those that `start` starts; at least one.
    pub fn open(gatherers: usize, start: impl FnMut() -> Gatherer<T, R>) -> Self {
        Self(iter::repeat_with(start).take(gatherers.max(1)).collect())
    }

    /// The one that has that key.
    pub fn of(&self, key: impl Hash) -> &Gatherer<T, R> {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let at = usize::try_from(hasher.finish() % self.0.len() as u64).unwrap_or_default();
        &self.0[at]
    }
}
