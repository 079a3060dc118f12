//! The mark an article carries on a platform, by which it is found again. Pure.

use hmac::{Hmac, KeyInit, Mac};
use secrecy::{ExposeSecret, SecretSlice};
use sha2::Sha256;

/// The length of a marker, in characters: 80 bits, so that nobody guesses one and no two meet.
pub const MARKER_CHARS: usize = 16;

/// RFC 4648 §6 in lower case: safe in a URL, a slug and a file name.
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// A tenant's key for markers; it never changes, so an article accepted again after a restored backup is marked alike.
#[derive(Clone)]
pub struct MarkerKey(SecretSlice<u8>);

impl MarkerKey {
    /// The size of the keys we make, in bytes.
    pub const BYTES: usize = 32;

    /// A key of these bytes.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        Self(bytes.to_vec().into())
    }

    /// The marker of one article on one account.
    #[must_use]
    pub fn marker(&self, external_id: &str, platform: &str, account_id: &str) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(self.0.expose_secret())
            .unwrap_or_else(|_| unreachable!("HMAC takes keys of any length"));
        for part in [external_id, platform, account_id] {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part.as_bytes());
        }
        let digest = mac.finalize().into_bytes();
        let bits = digest[..10].iter().fold(0_u128, |bits, byte| bits << 8 | u128::from(*byte));
        let letter = |at: usize| {
            let five_bits = (bits >> (5 * (MARKER_CHARS - 1 - at))) & 31;
            char::from(ALPHABET[usize::try_from(five_bits).unwrap_or(0)])
        };
        (0..MARKER_CHARS).map(letter).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_deterministic_and_of_one_form() {
        let key = MarkerKey::new(&[7; MarkerKey::BYTES]);
        let marker = key.marker("post-1", "static_site", "demo");
        assert_eq!(marker, key.marker("post-1", "static_site", "demo"));
        assert_eq!(marker.len(), MARKER_CHARS);
        assert!(marker.bytes().all(|b| ALPHABET.contains(&b)), "{marker}");
    }

    #[test]
    fn parts_cannot_run_into_each_other() {
        let key = MarkerKey::new(&[7; MarkerKey::BYTES]);
        let markers = [
            key.marker("ab", "c", "d"),
            key.marker("a", "bc", "d"),
            key.marker("abc", "", "d"),
            key.marker("ab", "cd", ""),
            MarkerKey::new(&[8; MarkerKey::BYTES]).marker("ab", "c", "d"),
        ];
        let distinct = markers.iter().collect::<std::collections::HashSet<_>>();
        assert_eq!(distinct.len(), markers.len());
    }
}
