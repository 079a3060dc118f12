//! Secrets at rest.
//!
//! A sealed secret is XChaCha20-Poly1305 (draft-irtf-cfrg-xchacha §2) under the master key. Its associated data names
//! the tenant, table, column and row it belongs to, so that a sealed value copied to another place cannot be opened
//! there. It begins with a format byte and the id of its master key, so that it can be told which of several keys opens it.

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

/// How many master keys there may be at once: one rotation is ended before the next begins, or nobody could say which keys
/// may be taken away.
pub const MASTER_KEYS_MAX: usize = 2;

/// The key under which secrets are stored: 32 bytes.
#[derive(Clone)]
pub struct MasterKey(Arc<SecretBox<[u8; 32]>>);

/// A text that is no master key; it is never repeated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadMasterKey {
    /// Not 32 bytes in base64.
    #[error("not a master key: write 32 bytes in base64, such as `openssl rand -base64 32` makes")]
    Malformed,
    /// More than [`MASTER_KEYS_MAX`].
    #[error(
        "more than {MASTER_KEYS_MAX} master keys: write the one that seals, and after a comma the one that is being \
         replaced; end that rotation before the next"
    )]
    TooMany,
    /// The same one twice.
    #[error(
        "both master keys are the same: write another one first, such as `openssl rand -base64 32` makes"
    )]
    Same,
}

impl MasterKey {
    /// A new random key.
    #[must_use]
    pub fn generate(clock: &dyn Clock) -> Self {
        let mut bytes = Zeroizing::new([0; 32]);
        clock.fill(&mut *bytes);
        Self(Arc::new(SecretBox::new(Box::new(*bytes))))
    }

    /// What a value sealed under this key names it by: the first bytes of a hash.
    fn id(&self) -> [u8; KEY_ID_BYTES] {
        let hash =
            Sha256::new().chain_update(b"publish-ingest master key id").chain_update(self.0.expose_secret());
        let [a, b, c, d, ..] = <[u8; 32]>::from(hash.finalize());
        [a, b, c, d]
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

/// The master keys as the setting gives them, with commas: the first seals, all open.
#[derive(Debug, Clone)]
pub struct MasterKeys(Vec<MasterKey>);

impl From<MasterKey> for MasterKeys {
    fn from(key: MasterKey) -> Self {
        Self(vec![key])
    }
}

impl FromStr for MasterKeys {
    type Err = BadMasterKey;

    fn from_str(text: &str) -> Result<Self, BadMasterKey> {
        if text.split(',').count() > MASTER_KEYS_MAX {
            return Err(BadMasterKey::TooMany);
        }
        let keys = text.split(',').map(str::parse::<MasterKey>).collect::<Result<Vec<_>, _>>()?;
        // By their ids, since by these they are told apart.
        let mut ids = keys.iter().map(MasterKey::id).collect::<Vec<_>>();
        ids.dedup();
        if ids.len() < keys.len() { Err(BadMasterKey::Same) } else { Ok(Self(keys)) }
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

/// Seals secrets under the first of the master keys, and opens them under any.
#[derive(Clone)]
pub struct Vault {
    first: Key,
    others: Vec<Key>,
}

#[derive(Clone)]
struct Key {
    cipher: XChaCha20Poly1305,
    id: [u8; KEY_ID_BYTES],
}

impl Key {
    fn of(key: &MasterKey) -> Self {
        Self { cipher: XChaCha20Poly1305::new(key.0.expose_secret().into()), id: key.id() }
    }

    fn header(&self) -> [u8; SEALED_HEADER_BYTES] {
        let [a, b, c, d] = self.id;
        [FORMAT, a, b, c, d]
    }
}

impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Vault(…)")
    }
}

impl Vault {
    /// A vault under these keys.
    #[must_use]
    pub fn new(keys: &MasterKeys) -> Self {
        let mut keys = keys.0.iter().map(Key::of);
        let first = keys.next().unwrap_or_else(|| unreachable!("there is at least one master key"));
        Self { first, others: keys.collect() }
    }

    /// What every value begins with that this vault seals.
    #[must_use]
    pub fn header(&self) -> [u8; SEALED_HEADER_BYTES] {
        self.first.header()
    }

    /// What every value begins with that this vault can open, one for each key.
    #[must_use]
    pub fn headers(&self) -> Vec<Vec<u8>> {
        std::iter::once(&self.first).chain(&self.others).map(|key| key.header().to_vec()).collect()
    }

    /// Seals a secret for one place.
    #[must_use]
    pub fn seal(&self, secret: &[u8], place: Place<'_>, clock: &dyn Clock) -> Vec<u8> {
        let mut nonce = [0; NONCE_BYTES];
        clock.fill(&mut nonce);
        let payload = Payload { msg: secret, aad: &place.associated_data() };
        let sealed = self.first.cipher.encrypt(&XNonce::from(nonce), payload);
        // The cipher fails only beyond 256 GiB of plaintext.
        let sealed =
            sealed.unwrap_or_else(|_| unreachable!("a secret is far smaller than the cipher's limit"));
        [&self.first.header()[..], &nonce, &sealed].concat()
    }

    /// Opens what was sealed for this place.
    pub fn open(&self, sealed: &[u8], place: Place<'_>) -> Result<Zeroizing<Vec<u8>>, CannotOpen> {
        if sealed.len() < HEADER_BYTES || sealed[0] != FORMAT {
            return Err(CannotOpen::Damaged);
        }
        let (header, body) = sealed.split_at(HEADER_BYTES);
        let mut keys = std::iter::once(&self.first).chain(&self.others);
        let key = keys.find(|key| header[1..=KEY_ID_BYTES] == key.id).ok_or(CannotOpen::OtherKey)?;
        let nonce = XNonce::try_from(&header[1 + KEY_ID_BYTES..]).map_err(|_| CannotOpen::Damaged)?;
        let payload = Payload { msg: body, aad: &place.associated_data() };
        key.cipher.decrypt(&nonce, payload).map(Zeroizing::new).map_err(|_| CannotOpen::Damaged)
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
        let vault = Vault::new(&MasterKey::generate(&clock).into());
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
        let other = Vault::new(&MasterKey::generate(&clock).into());
        assert_eq!(other.open(&sealed, PLACE).err(), Some(CannotOpen::OtherKey));
    }

    #[test]
    fn a_changed_byte_is_noticed() {
        let clock = TestClock::seeded(6);
        let vault = Vault::new(&MasterKey::generate(&clock).into());
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
        assert_eq!(format!("{key:?} {:?}", Vault::new(&key.clone().into())), "MasterKey(…) Vault(…)");
        for bad in ["", "AAAA", "not base64!", &"A".repeat(45)] {
            assert_eq!(bad.parse::<MasterKey>().err(), Some(BadMasterKey::Malformed), "{bad:?}");
        }
    }

    #[test]
    fn the_first_of_two_keys_seals_and_both_open() {
        let clock = TestClock::seeded(8);
        let (old, new) = (MasterKey::generate(&clock), MasterKey::generate(&clock));
        let list = |a: &MasterKey, b: &MasterKey| format!("{} , {}", *a.expose(), *b.expose());
        let vault = |text: &str| Vault::new(&text.parse().unwrap());
        let (before, after) = (vault(&list(&old, &new)), vault(&list(&new, &old)));
        let (only_old, only_new) = (vault(&old.expose()), vault(&new.expose()));
        let (by_old, by_new) = (before.seal(b"secret", PLACE, &clock), after.seal(b"secret", PLACE, &clock));
        for sealed in [&by_old, &by_new] {
            for both in [&before, &after] {
                assert_eq!(*both.open(sealed, PLACE).unwrap(), b"secret");
                assert!(both.headers().iter().any(|header| sealed.starts_with(header)));
            }
        }
        assert!(by_old.starts_with(&only_old.header()) && by_new.starts_with(&only_new.header()));
        assert_eq!(only_old.open(&by_new, PLACE).err(), Some(CannotOpen::OtherKey));
        assert_eq!(only_new.open(&by_old, PLACE).err(), Some(CannotOpen::OtherKey));
        assert!(only_new.open(&by_new, PLACE).is_ok());
    }

    #[test]
    fn a_list_has_at_most_two_keys_which_differ() {
        let clock = TestClock::seeded(9);
        let keys = [0; 3].map(|_| MasterKey::generate(&clock).expose().to_string());
        let told = |text: &str| text.parse::<MasterKeys>().err();
        assert_eq!(told(&keys[0]), None);
        assert_eq!(told(&keys[..2].join(",")), None);
        assert_eq!(told(&keys.join(",")), Some(BadMasterKey::TooMany));
        assert_eq!(told(&format!("{0},{0}", keys[0])), Some(BadMasterKey::Same));
        for bad in [format!("{},", keys[0]), format!(",{}", keys[0]), format!("{},AAAA", keys[0])] {
            assert_eq!(told(&bad), Some(BadMasterKey::Malformed), "{bad:?}");
        }
    }
}
