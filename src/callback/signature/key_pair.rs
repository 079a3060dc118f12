//! Asymmetric signatures, `v1a` of Standard Webhooks 1.0: ed25519 (RFC 8032).

use std::fmt;

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use secrecy::{ExposeSecret, SecretSlice};

use super::signed_bytes;
use crate::clock::Clock;

/// What a public key begins with. A private one is shown to nobody, and so has no form to be shown in.
const PUBLIC_PREFIX: &str = "whpk_";

/// The size of the seed that a private key is made of (RFC 8032 §5.1.5).
const SEED_BYTES: usize = 32;

/// A key pair: we sign, and who has the public key verifies and cannot sign.
pub struct KeyPair {
    seed: SecretSlice<u8>,
    pair: Ed25519KeyPair,
}

impl KeyPair {
    /// A new key pair.
    #[must_use]
    pub fn generate(clock: &dyn Clock) -> Self {
        let mut seed = secrecy::zeroize::Zeroizing::new([0; SEED_BYTES]);
        clock.fill(&mut *seed);
        Self::from_seed(&*seed)
            .unwrap_or_else(|| unreachable!("a key pair is made of any {SEED_BYTES} bytes"))
    }

    /// The key pair of a seed; none if it has not [`SEED_BYTES`].
    #[must_use]
    pub fn from_seed(seed: &[u8]) -> Option<Self> {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).ok()?;
        Some(Self { seed: seed.to_vec().into(), pair })
    }

    /// The seed of the private key, to be sealed.
    #[must_use]
    pub fn seed(&self) -> &[u8] {
        self.seed.expose_secret()
    }

    /// The public key as Standard Webhooks writes it: `whpk_` and base64.
    #[must_use]
    pub fn public_key(&self) -> String {
        format!("{PUBLIC_PREFIX}{}", BASE64_STANDARD.encode(self.pair.public_key()))
    }

    /// The public key as the member `x` of a JSON Web Key has it (RFC 8037 §2).
    #[must_use]
    pub fn public_key_base64url(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(self.pair.public_key())
    }

    /// The signature of one message: `v1a,` and base64.
    #[must_use]
    pub fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        let signature = self.pair.sign(&signed_bytes(id, timestamp, body));
        format!("v1a,{}", BASE64_STANDARD.encode(signature))
    }

    /// Whether one of the blank-separated `signatures` is this key pair's for the message.
    #[must_use]
    pub fn verifies(&self, signatures: &str, id: &str, timestamp: i64, body: &[u8]) -> bool {
        let message = signed_bytes(id, timestamp, body);
        let key = UnparsedPublicKey::new(&ED25519, self.pair.public_key());
        let given = signatures.split(' ').filter_map(|one| one.strip_prefix("v1a,"));
        given.filter_map(|one| BASE64_STANDARD.decode(one).ok()).any(|one| key.verify(&message, &one).is_ok())
    }
}

impl fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyPair(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::TestClock;

    /// RFC 8032 §7.1, test 2: the first key and message that are not empty.
    #[test]
    fn keys_and_signatures_are_those_of_the_rfc() {
        let seed = hex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb");
        let pair = KeyPair::from_seed(&seed).unwrap();
        let public = hex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c");
        assert_eq!(pair.public_key(), format!("whpk_{}", BASE64_STANDARD.encode(&public)));
        assert_eq!(pair.public_key_base64url(), BASE64_URL_SAFE_NO_PAD.encode(&public));
        let signature = "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da\
            085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00";
        assert_eq!(pair.pair.sign(&[0x72]).as_ref(), hex(signature));
    }

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
    }

    #[test]
    fn the_public_key_alone_verifies_id_timestamp_and_body() {
        let clock = TestClock::seeded(14);
        let pair = KeyPair::generate(&clock);
        let signed = pair.sign("018f", 17, b"{}");
        let signature = BASE64_STANDARD.decode(signed.strip_prefix("v1a,").unwrap()).unwrap();
        let public = BASE64_STANDARD.decode(pair.public_key().strip_prefix("whpk_").unwrap()).unwrap();
        let judge = UnparsedPublicKey::new(&ED25519, public);
        assert!(judge.verify(b"018f.17.{}", &signature).is_ok());
        assert!(judge.verify(b"018f.18.{}", &signature).is_err());

        let both = format!("v1,AAAA {} {signed}", KeyPair::generate(&clock).sign("018f", 17, b"{}"));
        assert!(pair.verifies(&both, "018f", 17, b"{}"));
        assert!(!pair.verifies(&both, "018f", 18, b"{}") && !pair.verifies(&both, "018f", 17, b"{} "));
        assert!(!KeyPair::generate(&clock).verifies(&both, "018f", 17, b"{}"));
    }

    #[test]
    fn a_key_pair_is_its_seed_and_does_not_show() {
        let pair = KeyPair::generate(&TestClock::seeded(15));
        assert_eq!(KeyPair::from_seed(pair.seed()).unwrap().public_key(), pair.public_key());
        assert!(KeyPair::from_seed(&[0; 31]).is_none());
        assert_eq!(format!("{pair:?}"), "KeyPair(…)");
    }
}
