//! What was lately of use, in bounded memory.

use std::collections::HashMap;
use std::hash::Hash;
use std::mem;

/// Remembers at most so many, and forgets those first that were not asked for in the longest time, by halves: each step
/// takes the same short time, however many they are.
#[derive(Debug)]
pub struct Recent<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    half: usize,
}

impl<K: Hash + Eq, V> Recent<K, V> {
    /// Remembers at most `most`, and at least the half of them that was asked for last.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), half: (most / 2).max(1) }
    }

    /// What is remembered under the key.
    pub fn get(&mut self, key: &K) -> Option<&mut V> {
        if !self.young.contains_key(key) {
            let (key, value) = self.old.remove_entry(key)?;
            self.insert(key, value);
        }
        self.young.get_mut(key)
    }

    /// Remembers this.
    pub fn insert(&mut self, key: K, value: V) {
        if self.young.len() >= self.half && !self.young.contains_key(&key) {
            self.old = mem::take(&mut self.young);
        }
        self.old.remove(&key);
        self.young.insert(key, value);
    }

    /// Forgets it.
    pub fn remove(&mut self, key: &K) {
        self.young.remove(key);
        self.old.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays_and_the_rest_is_forgotten_in_time() {
        let mut recent = Recent::new(10);
        for n in 0..1_000 {
            recent.insert(n, n);
            assert_eq!(recent.get(&0), Some(&mut 0), "{n}");
            assert!(recent.young.len() + recent.old.len() <= 10);
        }
        assert!(recent.get(&1).is_none());
        assert!((996..1_000).all(|n| recent.get(&n).is_some()));
        recent.insert(0, 7);
        assert_eq!(recent.get(&0), Some(&mut 7));
        recent.remove(&0);
        assert!(recent.get(&0).is_none());
    }
}
