//! Signatures as Standard Webhooks 1.0 defines them (standardwebhooks.com, "Signature scheme"), and the markers that
//! share their HMAC.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use secrecy::zeroize::Zeroizing;
use secrecy::{ExposeSecret, SecretSlice};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use crate::clock::Clock;

mod key;
mod key_pair;

pub use key::{BadScheme, Scheme, SigningKey};
pub use key_pair::KeyPair;

/// What a signing secret begins with.
const PREFIX: &str = "whsec_";

/// The size of the secrets we make; the standard allows 24 to 64 bytes.
const SECRET_BYTES: usize = 32;

/// How far a webhook's timestamp may lie from the receiver's clock: what the standard's libraries allow.
pub const TOLERANCE_SECONDS: i64 = 300;

/// A symmetric signing secret, `whsec_…`.
#[derive(Clone)]
pub struct SigningSecret(SecretSlice<u8>);

/// A text that is no signing secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a signing secret: whsec_ and 24–64 bytes in base64")]
pub struct BadSecret;

impl SigningSecret {
    /// A new secret.
    #[must_use]
    pub fn generate(clock: &dyn Clock) -> Self {
        let mut bytes = vec![0; SECRET_BYTES];
        clock.fill(&mut bytes);
        Self(bytes.into())
    }

    /// The secret's bytes, as they are stored.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self(bytes.to_vec().into())
    }

    /// The secret's bytes, to be sealed.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.0.expose_secret()
    }

    /// The secret as receivers set it.
    #[must_use]
    pub fn expose(&self) -> Zeroizing<String> {
        Zeroizing::new(format!("{PREFIX}{}", BASE64_STANDARD.encode(self.bytes())))
    }

    /// The signature of one message: `v1,` and base64.
    #[must_use]
    pub fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        let mut mac = hmac(self.bytes());
        mac.update(&signed_bytes(id, timestamp, body));
        format!("v1,{}", BASE64_STANDARD.encode(mac.finalize().into_bytes()))
    }

    /// Whether one of the blank-separated `signatures` is this secret's for the message.
    #[must_use]
    pub fn verifies(&self, signatures: &str, id: &str, timestamp: i64, body: &[u8]) -> bool {
        let expected = self.sign(id, timestamp, body);
        signatures.split(' ').any(|given| bool::from(given.as_bytes().ct_eq(expected.as_bytes())))
    }
}

/// What is signed of a message, by either scheme.
fn signed_bytes(id: &str, timestamp: i64, body: &[u8]) -> Vec<u8> {
    [format!("{id}.{timestamp}.").as_bytes(), body].concat()
}

/// The headers of Standard Webhooks 1.0 for one message; with several keys, a signature by each.
#[must_use]
pub fn signed_headers(
    id: &str,
    timestamp: i64,
    body: &[u8],
    keys: &[SigningKey],
) -> [(&'static str, String); 4] {
    let signatures = keys.iter().map(|key| key.sign(id, timestamp, body)).collect::<Vec<_>>();
    [
        ("content-type", "application/json".to_owned()),
        ("webhook-id", id.to_owned()),
        ("webhook-timestamp", timestamp.to_string()),
        ("webhook-signature", signatures.join(" ")),
    ]
}

fn hmac(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).unwrap_or_else(|_| unreachable!("HMAC takes keys of any length"))
}

impl FromStr for SigningSecret {
    type Err = BadSecret;

    fn from_str(text: &str) -> Result<Self, BadSecret> {
        let encoded = text.strip_prefix(PREFIX).ok_or(BadSecret)?;
        let bytes = BASE64_STANDARD.decode(encoded).map_err(|_| BadSecret)?;
        if (24..=64).contains(&bytes.len()) { Ok(Self(bytes.into())) } else { Err(BadSecret) }
    }
}

impl fmt::Debug for SigningSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningSecret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock, TestClock};

    #[test]
    fn the_standards_own_library_verifies_us() {
        let clock = TestClock::seeded(11);
        let secret = SigningSecret::generate(&clock);
        let timestamp = clock.now().timestamp();
        let body = "{\"type\":\"publication.success\",\"title\":\"é\"}".as_bytes();
        let mut headers = axum::http::HeaderMap::new();
        headers.insert("webhook-id", "018f".parse().unwrap());
        headers.insert("webhook-timestamp", timestamp.to_string().parse().unwrap());
        headers.insert("webhook-signature", secret.sign("018f", timestamp, body).parse().unwrap());
        let judge = standardwebhooks::Webhook::new(&secret.expose()).unwrap();
        judge.verify(body, &headers).unwrap();
        assert!(judge.verify(b"{}", &headers).is_err());
    }

    #[test]
    fn any_of_several_signatures_will_do_and_none_other() {
        let clock = TestClock::seeded(12);
        let (old, new) = (SigningSecret::generate(&clock), SigningSecret::generate(&clock));
        let both = format!("{} {}", old.sign("i", 1, b"x"), new.sign("i", 1, b"x"));
        assert!(old.verifies(&both, "i", 1, b"x") && new.verifies(&both, "i", 1, b"x"));
        assert!(!old.verifies(&both, "i", 2, b"x") && !old.verifies(&both, "j", 1, b"x"));
        assert!(!SigningSecret::generate(&clock).verifies(&both, "i", 1, b"x"));
    }

    #[test]
    fn secrets_are_read_back_and_do_not_show() {
        let secret = SigningSecret::generate(&TestClock::seeded(13));
        assert_eq!(secret.expose().parse::<SigningSecret>().unwrap().bytes(), secret.bytes());
        assert_eq!(format!("{secret:?}"), "SigningSecret(…)");
        for bad in ["", "whsec_", "whsec_AAAA", "AAAA", "whsec_!"] {
            assert!(bad.parse::<SigningSecret>().is_err(), "{bad:?}");
        }
    }
}
