//! Tenants and their API keys.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::clock::Clock;

pub mod limits;

/// A tenant's name: 1–63 of `a-z 0-9 _ -`, beginning with a letter or digit; it is also a folder's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantName(String);

/// A text that is no tenant's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no tenant name: 1–63 of a-z 0-9 _ -, beginning with a letter or digit")]
pub struct BadTenantName(String);

impl TenantName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for TenantName {
    type Err = BadTenantName;

    fn from_str(text: &str) -> Result<Self, BadTenantName> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let good = (1..=63).contains(&text.len())
            && text.starts_with(plain)
            && text.chars().all(|c| plain(c) || c == '_' || c == '-');
        if good { Ok(Self(text.to_owned())) } else { Err(BadTenantName(text.to_owned())) }
    }
}

/// How long what is replaced signs on, unless somebody says otherwise: a day, in which people can reach all receivers.
pub const OVERLAP: Duration = Duration::from_hours(24);

/// Where anybody reads the public keys of a tenant, if it has some. By its id, which cannot be guessed: a name would tell who
/// asks which tenants there are.
#[must_use]
pub fn public_keys_path(tenant_id: Uuid) -> String {
    format!("/.well-known/webhooks/{tenant_id}")
}

/// What a key may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Hand in articles and act on them.
    Publish,
    /// Look.
    Read,
    /// Change accounts, groups and secrets; replay callbacks.
    Manage,
}

impl Scope {
    /// All scopes.
    pub const ALL: [Self; 3] = [Self::Publish, Self::Read, Self::Manage];

    /// The scope's name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Read => "read",
            Self::Manage => "manage",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text that is no scope.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no scope: there are publish, read and manage")]
pub struct BadScope(String);

impl FromStr for Scope {
    type Err = BadScope;

    fn from_str(text: &str) -> Result<Self, BadScope> {
        Self::ALL.into_iter().find(|s| s.as_str() == text).ok_or_else(|| BadScope(text.to_owned()))
    }
}

/// What every key begins with, so that scanners for leaked secrets can know it.
const KEY_PREFIX: &str = "pik_";

/// The bytes of a key: the tenant's id, then a secret of 256 bits.
const KEY_BYTES: usize = 16 + 32;

/// An API key: names its tenant, so that its look-up does, and carries a secret of which only the hash is stored.
///
/// The secret is random and long, so a plain SHA-256 guards it: there is nothing to guess.
pub struct ApiKey {
    tenant_id: Uuid,
    hash: [u8; 32],
    text: SecretString,
}

impl ApiKey {
    /// A new key of a tenant.
    #[must_use]
    pub fn generate(tenant_id: Uuid, clock: &dyn Clock) -> Self {
        let mut bytes = [0; KEY_BYTES];
        bytes[..16].copy_from_slice(tenant_id.as_bytes());
        clock.fill(&mut bytes[16..]);
        Self::from_bytes(&bytes)
    }

    /// Reads a key; `None` if the text cannot be one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; KEY_BYTES];
        let encoded = text.strip_prefix(KEY_PREFIX)?;
        let length = BASE64_URL_SAFE_NO_PAD.decode_slice(encoded, &mut bytes).ok()?;
        (length == KEY_BYTES).then(|| Self::from_bytes(&bytes))
    }

    fn from_bytes(bytes: &[u8; KEY_BYTES]) -> Self {
        let tenant_id = Uuid::from_slice(&bytes[..16]).unwrap_or_default();
        let text = format!("{KEY_PREFIX}{}", BASE64_URL_SAFE_NO_PAD.encode(bytes));
        Self { tenant_id, hash: Sha256::digest(&bytes[16..]).into(), text: text.into() }
    }

    /// The tenant whose key this claims to be.
    #[must_use]
    pub fn tenant_id(&self) -> Uuid {
        self.tenant_id
    }

    /// SHA-256 of the secret: what is stored and looked up.
    #[must_use]
    pub fn hash(&self) -> &[u8; 32] {
        &self.hash
    }

    /// The key itself, to be shown once.
    #[must_use]
    pub fn expose(&self) -> &str {
        self.text.expose_secret()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::TestClock;

    #[test]
    fn a_key_names_its_tenant_and_hides_its_secret() {
        let clock = TestClock::seeded(3);
        let tenant_id = clock.new_id();
        let key = ApiKey::generate(tenant_id, &clock);
        let read = ApiKey::parse(key.expose()).unwrap();
        assert_eq!((read.tenant_id(), read.hash()), (tenant_id, key.hash()));
        assert_ne!(ApiKey::generate(tenant_id, &clock).hash(), key.hash());
    }

    #[test]
    fn what_is_no_key_is_told_without_a_look_up() {
        let key = ApiKey::generate(Uuid::nil(), &TestClock::seeded(3));
        for bad in ["", "pik_", "x", &key.expose()[1..], &format!("{}A", key.expose()), "pik_ü"] {
            assert!(ApiKey::parse(bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn tenant_names_are_folder_names() {
        for good in ["demo", "a", "0-x_y"] {
            assert!(good.parse::<TenantName>().is_ok(), "{good:?}");
        }
        for bad in ["", ".", "..", "-a", "A", "a/b", "a b", &"a".repeat(64)] {
            assert!(bad.parse::<TenantName>().is_err(), "{bad:?}");
        }
    }
}
