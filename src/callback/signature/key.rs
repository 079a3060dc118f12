//! What signs, of either scheme.

use std::fmt;
use std::str::FromStr;

use super::{KeyPair, SigningSecret};
use crate::clock::Clock;

/// A scheme of Standard Webhooks 1.0, by the identifier that its signatures begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scheme {
    /// `v1`: HMAC-SHA256 under a secret that sender and receiver share.
    V1,
    /// `v1a`: ed25519, of which the receiver has the public key only.
    V1a,
}

impl Scheme {
    /// Both.
    pub const ALL: [Self; 2] = [Self::V1, Self::V1a];

    /// The identifier.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1a => "v1a",
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text that is no scheme.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no kind of signature: there are v1 (a shared secret) and v1a (a key pair)")]
pub struct BadScheme(String);

impl FromStr for Scheme {
    type Err = BadScheme;

    fn from_str(text: &str) -> Result<Self, BadScheme> {
        Self::ALL.into_iter().find(|one| one.as_str() == text).ok_or_else(|| BadScheme(text.to_owned()))
    }
}

/// What signs.
#[derive(Debug)]
pub enum SigningKey {
    /// `v1`.
    Secret(SigningSecret),
    /// `v1a`.
    Pair(KeyPair),
}

impl SigningKey {
    /// A new one.
    #[must_use]
    pub fn generate(scheme: Scheme, clock: &dyn Clock) -> Self {
        match scheme {
            Scheme::V1 => Self::Secret(SigningSecret::generate(clock)),
            Scheme::V1a => Self::Pair(KeyPair::generate(clock)),
        }
    }

    /// The one that has these [`bytes`](Self::bytes); none if no such one has.
    #[must_use]
    pub fn from_bytes(scheme: Scheme, bytes: &[u8]) -> Option<Self> {
        match scheme {
            Scheme::V1 => Some(Self::Secret(SigningSecret::from_bytes(bytes))),
            Scheme::V1a => KeyPair::from_seed(bytes).map(Self::Pair),
        }
    }

    /// The secret, or the seed of the private key, to be sealed.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Secret(secret) => secret.bytes(),
            Self::Pair(pair) => pair.seed(),
        }
    }

    /// The signature of one message.
    #[must_use]
    pub fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        match self {
            Self::Secret(secret) => secret.sign(id, timestamp, body),
            Self::Pair(pair) => pair.sign(id, timestamp, body),
        }
    }

    /// Whether one of the blank-separated `signatures` is this one's for the message.
    #[must_use]
    pub fn verifies(&self, signatures: &str, id: &str, timestamp: i64, body: &[u8]) -> bool {
        match self {
            Self::Secret(secret) => secret.verifies(signatures, id, timestamp, body),
            Self::Pair(pair) => pair.verifies(signatures, id, timestamp, body),
        }
    }
}

impl From<SigningSecret> for SigningKey {
    fn from(secret: SigningSecret) -> Self {
        Self::Secret(secret)
    }
}
