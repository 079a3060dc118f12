//! Every stored secret, of all tenants: whether the vault opens it, and how it comes under another master key.

use uuid::Uuid;

use super::accounts::credentials_place;
use super::signing::{key_place, key_row};
use super::tenants::marker_key_place;
use super::{Store, StoreError};
use crate::callback::signature::Scheme;
use crate::vault::{CannotOpen, Place, SEALED_HEADER_BYTES, Vault};

/// How many tenants, or secrets of one, are read at once while they are re-sealed: few enough to be held in memory.
const RESEALED_AT_ONCE: i64 = 100;

/// How the stored secrets stand to a vault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealedCount {
    /// All.
    pub all: i64,
    /// Those under a key that the vault has not.
    pub unknown: i64,
    /// Those under another key than the vault's first.
    pub left: i64,
}

/// What a pass over the stored secrets did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resealed {
    /// How many were sealed anew under the first key.
    pub resealed: u64,
    /// How many were not touched, since somebody changed them meanwhile, or held them.
    pub passed_over: u64,
    /// Those that could not be opened, and stay as they were.
    pub not_opened: Vec<NotOpened>,
}

/// A secret that cannot be opened, by where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotOpened {
    /// The tenant's name.
    pub tenant: String,
    /// Which of its secrets.
    pub secret: String,
    /// Why.
    pub why: CannotOpen,
}

/// A stored secret.
#[derive(Debug)]
pub struct Sealed {
    of: SealedOf,
    value: Vec<u8>,
}

#[derive(Debug)]
enum SealedOf {
    Tenant,
    SigningKey { key_id: Uuid, scheme: Scheme },
    Account { platform: String, account_id: String },
}

impl SealedOf {
    /// Its row within the tenant, as its associated data has it.
    fn row(&self) -> String {
        match self {
            Self::Tenant => String::new(),
            Self::SigningKey { key_id, scheme } => key_row(*scheme, *key_id),
            Self::Account { platform, account_id } => format!("{platform}/{account_id}"),
        }
    }

    fn place<'a>(&self, tenant_id: Uuid, row: &'a str) -> Place<'a> {
        match self {
            Self::Tenant => marker_key_place(tenant_id),
            Self::SigningKey { .. } => key_place(tenant_id, row),
            Self::Account { .. } => credentials_place(tenant_id, row),
        }
    }

    /// For people.
    fn described(&self) -> String {
        match self {
            Self::Tenant => "the key of its marks".to_owned(),
            Self::SigningKey { key_id, .. } => format!("the signing secret {key_id}"),
            Self::Account { platform, account_id } => format!("the credentials of {platform}/{account_id}"),
        }
    }
}

impl Store {
    /// Checks that the vault has the keys that all secrets of this database were stored under: of each by what it begins
    /// with, which reads no row twice and opens nothing; and one of each kind by opening it.
    pub async fn check_vault(&self, vault: &Vault) -> Result<(), StoreError> {
        let counted = self.count_sealed(vault).await?;
        if counted.unknown > 0 {
            return Err(StoreError::OtherKey { other: counted.unknown, all: counted.all });
        }
        let marker_key =
            sqlx::query!("SELECT tenant_id, marker_key_sealed FROM tenants ORDER BY tenant_id LIMIT 1");
        if let Some(row) = marker_key.fetch_optional(&self.pool).await? {
            vault.open(&row.marker_key_sealed, marker_key_place(row.tenant_id))?;
        }
        let secret = sqlx::query!(
            "SELECT tenant_id, secret_id, scheme, sealed FROM signing_secrets
            ORDER BY tenant_id, secret_id LIMIT 1"
        );
        if let Some(row) = secret.fetch_optional(&self.pool).await? {
            let scheme = row.scheme.parse().map_err(|_| CannotOpen::Damaged)?;
            vault.open(&row.sealed, key_place(row.tenant_id, &key_row(scheme, row.secret_id)))?;
        }
        let credentials = sqlx::query!(
            r#"SELECT tenant_id, platform || '/' || account_id AS "row!", credentials_sealed AS "sealed!" FROM accounts
            WHERE credentials_sealed IS NOT NULL ORDER BY tenant_id, platform, account_id LIMIT 1"#
        );
        if let Some(row) = credentials.fetch_optional(&self.pool).await? {
            vault.open(&row.sealed, credentials_place(row.tenant_id, &row.row))?;
        }
        Ok(())
    }

    /// Counts the stored secrets by the key that they begin with.
    pub async fn count_sealed(&self, vault: &Vault) -> Result<SealedCount, StoreError> {
        let counted = sqlx::query_as!(
            SealedCount,
            r#"SELECT count(*) AS "all!", count(*) FILTER (WHERE header <> ALL ($1)) AS "unknown!",
                count(*) FILTER (WHERE header <> $2) AS "left!"
            FROM (
                SELECT substr(marker_key_sealed, 1, $3) AS header FROM tenants
                UNION ALL SELECT substr(sealed, 1, $3) FROM signing_secrets
                UNION ALL SELECT substr(credentials_sealed, 1, $3) FROM accounts WHERE credentials_sealed IS NOT NULL
            ) AS secrets"#,
            &vault.headers(),
            &vault.header()[..],
            HEADER_LENGTH,
        );
        Ok(counted.fetch_one(&self.pool).await?)
    }

    /// Seals every secret anew that is not under the vault's first key. Each is written by itself, if it still is what was
    /// read: this may be ended at any moment and begun again, and a service may write meanwhile. `told` hears how many are
    /// done.
    pub async fn reseal(&self, vault: &Vault, mut told: impl FnMut(u64)) -> Result<Resealed, StoreError> {
        let mut done = Resealed::default();
        let mut after = Uuid::nil();
        loop {
            let tenants = sqlx::query!(
                "SELECT tenant_id, name FROM tenants WHERE tenant_id > $1 ORDER BY tenant_id LIMIT $2",
                after,
                RESEALED_AT_ONCE,
            );
            let tenants = tenants.fetch_all(&self.pool).await?;
            let Some(last) = tenants.last() else { return Ok(done) };
            after = last.tenant_id;
            for tenant in &tenants {
                self.reseal_tenant(tenant.tenant_id, &tenant.name, vault, &mut done, &mut told).await?;
            }
        }
    }

    async fn reseal_tenant(
        &self,
        tenant_id: Uuid,
        name: &str,
        vault: &Vault,
        done: &mut Resealed,
        told: &mut impl FnMut(u64),
    ) -> Result<(), StoreError> {
        let mut secrets = self.sealed_before(tenant_id, vault).await?;
        let mut after = (String::new(), String::new());
        loop {
            let accounts = self.sealed_credentials_before(tenant_id, (&after.0, &after.1), vault).await?;
            if let Some(SealedOf::Account { platform, account_id }) = accounts.last().map(|last| &last.of) {
                after = (platform.clone(), account_id.clone());
            }
            secrets.extend(accounts);
            if secrets.is_empty() {
                return Ok(());
            }
            for one in std::mem::take(&mut secrets) {
                match self.reseal_one(tenant_id, &one, vault).await {
                    Ok(true) => done.resealed += 1,
                    Ok(false) | Err(StoreError::HeldUp(_)) => done.passed_over += 1,
                    Err(StoreError::Sealed(why)) => {
                        let (tenant, secret) = (name.to_owned(), one.of.described());
                        done.not_opened.push(NotOpened { tenant, secret, why });
                    }
                    Err(other) => return Err(other),
                }
                told(done.resealed);
            }
        }
    }

    /// A tenant's own secrets that are not under the vault's first key.
    pub async fn sealed_before(&self, tenant_id: Uuid, vault: &Vault) -> Result<Vec<Sealed>, StoreError> {
        let marker_key = sqlx::query_scalar!(
            "SELECT marker_key_sealed FROM tenants WHERE tenant_id = $1 AND substr(marker_key_sealed, 1, $3) <> $2",
            tenant_id,
            &vault.header()[..],
            HEADER_LENGTH,
        );
        let marker_key = marker_key.fetch_optional(&self.pool).await?;
        let mut found = Vec::from_iter(marker_key.map(|value| Sealed { of: SealedOf::Tenant, value }));
        // Few: see `SIGNING_KEYS_MAX`.
        let keys = sqlx::query!(
            "SELECT secret_id, scheme, sealed FROM signing_secrets
            WHERE tenant_id = $1 AND substr(sealed, 1, $3) <> $2 ORDER BY secret_id",
            tenant_id,
            &vault.header()[..],
            HEADER_LENGTH,
        );
        for row in keys.fetch_all(&self.pool).await? {
            let scheme = row.scheme.parse().map_err(|_| CannotOpen::Damaged)?;
            found.push(Sealed {
                of: SealedOf::SigningKey { key_id: row.secret_id, scheme },
                value: row.sealed,
            });
        }
        Ok(found)
    }

    /// The next credentials of a tenant, after this platform and account, that are not under the vault's first key.
    pub async fn sealed_credentials_before(
        &self,
        tenant_id: Uuid,
        after: (&str, &str),
        vault: &Vault,
    ) -> Result<Vec<Sealed>, StoreError> {
        let accounts = sqlx::query!(
            r#"SELECT platform, account_id, credentials_sealed AS "sealed!" FROM accounts
            WHERE tenant_id = $1 AND (platform, account_id) > ($2, $3) AND substr(credentials_sealed, 1, $5) <> $4
            ORDER BY tenant_id, platform, account_id LIMIT $6"#,
            tenant_id,
            after.0,
            after.1,
            &vault.header()[..],
            HEADER_LENGTH,
            RESEALED_AT_ONCE,
        );
        let accounts = accounts.fetch_all(&self.pool).await?.into_iter().map(|row| Sealed {
            of: SealedOf::Account { platform: row.platform, account_id: row.account_id },
            value: row.sealed,
        });
        Ok(accounts.collect())
    }

    /// Seals one anew; false if it is not any more what was read, and then it stays.
    pub async fn reseal_one(&self, tenant_id: Uuid, one: &Sealed, vault: &Vault) -> Result<bool, StoreError> {
        let (row, was) = (one.of.row(), &one.value);
        let place = one.of.place(tenant_id, &row);
        let secret = vault.open(was, place)?;
        let sealed = vault.seal(&secret, place, &*self.clock);
        let written = match &one.of {
            SealedOf::Tenant => sqlx::query!(
                "UPDATE tenants SET marker_key_sealed = $3 WHERE tenant_id = $1 AND marker_key_sealed = $2",
                tenant_id,
                was,
                sealed,
            ),
            SealedOf::SigningKey { key_id, .. } => sqlx::query!(
                "UPDATE signing_secrets SET sealed = $3 WHERE tenant_id = $1 AND secret_id = $4 AND sealed = $2",
                tenant_id,
                was,
                sealed,
                key_id,
            ),
            SealedOf::Account { platform, account_id } => sqlx::query!(
                "UPDATE accounts SET credentials_sealed = $3
                WHERE tenant_id = $1 AND platform = $4 AND account_id = $5 AND credentials_sealed = $2",
                tenant_id,
                was,
                sealed,
                platform,
                account_id,
            ),
        };
        Ok(written.execute(&self.pool).await?.rows_affected() > 0)
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "five")]
const HEADER_LENGTH: i32 = SEALED_HEADER_BYTES as i32;
