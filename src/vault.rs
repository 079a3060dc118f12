//! Secrets at rest.
//!
//! A sealed secret is XChaCha20-Poly1305 (draft-irtf-cfrg-xchacha §2) under the master key. Its associated data names
//! the tenant, table, column and row it belongs to, so that a sealed value copied to another place cannot be opened
//! there. It begins with a format byte and the id of its master key, so that keys can be changed later.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};
use secrecy::zeroize::Zeroizing;
use secrecy::{ExposeSecret, SecretBox};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::clock::Clock;

const FORMAT: u8 = 1;
const KEY_ID_BYTES: usize = 4;
const NONCE_BYTES: usize = 24;

/// The bytes that tell under which master key a value was sealed: the format and the key's id.
pub const SEALED_HEADER_BYTES: usize = 1 + KEY_ID_BYTES;

const HEADER_BYTES: usize = 1 + KEY_ID_BYTES + NONCE_BYTES;

/// The key under which secrets are stored: 32 bytes.
#[derive(Clone)]
pub struct MasterKey(Arc<SecretBox<[u8; 32]>>);

/// A text that is no master key; it is never repeated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadMasterKey {
    /// Not 32 bytes in base64.
    #[error("not a master key: write 32 bytes in base64, such as `openssl rand -base64 32` makes")]
    Malformed,
    /// A list.
    #[error("this is a list: write one master key, 32 bytes in base64; a second one cannot be given yet")]
    Several,
}

impl MasterKey {
    /// A new random key.
    #[must_use]
    pub fn generate(clock: &dyn Clock) -> Self {
        let mut bytes = Zeroizing::new([0; 32]);
        clock.fill(&mut *bytes);
        Self(Arc::new(SecretBox::new(Box::new(*bytes))))
    }

    /// The key in base64, as the setting takes it.
    #[must_use]
    pub fn expose(&self) -> Zeroizing<String> {
        Zeroizing::new(BASE64_STANDARD.encode(self.0.expose_secret()))
    }
}

impl FromStr for MasterKey {
    type Err = BadMasterKey;

    fn from_str(text: &str) -> Result<Self, BadMasterKey> {
        if text.contains(',') {
            return Err(BadMasterKey::Several);
        }
        let bytes = BASE64_STANDARD.decode(text.trim()).map_err(|_| BadMasterKey::Malformed)?;
        let bytes = Zeroizing::new(bytes);
        let bytes: [u8; 32] = bytes.as_slice().try_into().map_err(|_| BadMasterKey::Malformed)?;
        Ok(Self(Arc::new(SecretBox::new(Box::new(bytes)))))
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MasterKey(…)")
    }
}

/// Where a sealed value belongs.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// The tenant.
    pub tenant_id: Uuid,
    /// The table.
    pub table: &'a str,
    /// The column.
    pub column: &'a str,
    /// The row's key within the tenant.
    pub row: &'a str,
}

impl Place<'_> {
    /// Length-prefixed, so that no two places give the same bytes.
    fn associated_data(&self) -> Vec<u8> {
        let mut data = self.tenant_id.as_bytes().to_vec();
        for part in [self.table, self.column, self.row] {
            data.extend_from_slice(&(part.len() as u64).to_be_bytes());
            data.extend_from_slice(part.as_bytes());
        }
        data
    }
}

/// Why a sealed value cannot be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CannotOpen {
    /// Sealed under another master key.
    #[error("this secret was stored under another master key: set PUBLISH_MASTER_KEY to that one")]
    OtherKey,
    /// Changed, moved from another place, or not a sealed value at all.
    #[error("this stored secret is damaged or belongs to another row")]
    Damaged,
}

/// Seals and opens secrets under one master key.
#[derive(Clone)]
pub struct Vault {
    cipher: XChaCha20Poly1305,
    key_id: [u8; KEY_ID_BYTES],
}

impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Vault(…)")
    }
}

impl Vault {
    /// A vault under this key.
    #[must_use]
    pub fn new(key: &MasterKey) -> Self {
        let bytes = key.0.expose_secret();
        let id = Sha256::new().chain_update(b"publish-ingest master key id").chain_update(bytes).finalize();
        let mut key_id = [0; KEY_ID_BYTES];
        key_id.copy_from_slice(&id[..KEY_ID_BYTES]);
        Self { cipher: XChaCha20Poly1305::new(bytes.into()), key_id }
    }

    /// What every value begins with that was sealed under this key.
    #[must_use]
    pub fn header(&self) -> [u8; SEALED_HEADER_BYTES] {
        let mut header = [FORMAT; SEALED_HEADER_BYTES];
        header[1..].copy_from_slice(&self.key_id);
        header
    }

    /// Seals a secret for one place.
    #[must_use]
    pub fn seal(&self, secret: &[u8], place: Place<'_>, clock: &dyn Clock) -> Vec<u8> {
        let mut nonce = [0; NONCE_BYTES];
        clock.fill(&mut nonce);
        let payload = Payload { msg: secret, aad: &place.associated_data() };
        let sealed = self.cipher.encrypt(&XNonce::from(nonce), payload);
        // The cipher fails only beyond 256 GiB of plaintext.
        let sealed =
            sealed.unwrap_or_else(|_| unreachable!("a secret is far smaller than the cipher's limit"));
        [&[FORMAT][..], &self.key_id, &nonce, &sealed].concat()
    }

    /// Opens what was sealed for this place.
    pub fn open(&self, sealed: &[u8], place: Place<'_>) -> Result<Zeroizing<Vec<u8>>, CannotOpen> {
        if sealed.len() < HEADER_BYTES || sealed[0] != FORMAT {
            return Err(CannotOpen::Damaged);
        }
        let (header, body) = sealed.split_at(HEADER_BYTES);
        if header[1..=KEY_ID_BYTES] != self.key_id {
            return Err(CannotOpen::OtherKey);
        }
        let nonce = XNonce::try_from(&header[1 + KEY_ID_BYTES..]).map_err(|_| CannotOpen::Damaged)?;
        let payload = Payload { msg: body, aad: &place.associated_data() };
        self.cipher.decrypt(&nonce, payload).map(Zeroizing::new).map_err(|_| CannotOpen::Damaged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::TestClock;

    const PLACE: Place<'_> = Place { tenant_id: Uuid::nil(), table: "t", column: "c", row: "r" };

    #[test]
    fn what_is_sealed_opens_in_its_place_only() {
        let clock = TestClock::seeded(5);
        let vault = Vault::new(&MasterKey::generate(&clock));
        let sealed = vault.seal(b"secret", PLACE, &clock);
        assert_eq!(*vault.open(&sealed, PLACE).unwrap(), b"secret");
        assert!(!sealed.windows(6).any(|w| w == b"secret"));
        assert!(sealed.starts_with(&vault.header()));
        for place in [
            Place { tenant_id: Uuid::max(), ..PLACE },
            Place { table: "tc", column: "", ..PLACE },
            Place { row: "s", ..PLACE },
        ] {
            assert_eq!(vault.open(&sealed, place).err(), Some(CannotOpen::Damaged));
        }
        let other = Vault::new(&MasterKey::generate(&clock));
        assert_eq!(other.open(&sealed, PLACE).err(), Some(CannotOpen::OtherKey));
    }

    #[test]
    fn a_changed_byte_is_noticed() {
        let clock = TestClock::seeded(6);
        let vault = Vault::new(&MasterKey::generate(&clock));
        let sealed = vault.seal(b"secret", PLACE, &clock);
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(vault.open(&changed, PLACE).is_err(), "byte {at}");
        }
        assert!(vault.open(&[], PLACE).is_err());
    }

    #[test]
    fn master_keys_are_32_bytes_and_do_not_show() {
        let key = MasterKey::generate(&TestClock::seeded(7));
        assert_eq!(key.expose().parse::<MasterKey>().unwrap().expose(), key.expose());
        assert_eq!(format!("{key:?} {:?}", Vault::new(&key)), "MasterKey(…) Vault(…)");
        for bad in ["", "AAAA", "not base64!", &"A".repeat(45)] {
            assert_eq!(bad.parse::<MasterKey>().err(), Some(BadMasterKey::Malformed), "{bad:?}");
        }
        let two = format!("{0},{0}", *key.expose());
        assert_eq!(two.parse::<MasterKey>().err(), Some(BadMasterKey::Several));
    }
}
