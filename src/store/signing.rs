//! What signs a tenant's callbacks, and how it is replaced.

use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use sqlx::PgTransaction;
use uuid::Uuid;

use super::locks::lock_tenant;
use super::{Store, StoreError};
use crate::callback::signature::{Scheme, SigningKey, SigningSecret};
use crate::retry::interval;
use crate::vault::{CannotOpen, Place, Vault};

/// How many keys of one scheme sign at once: the present one, and four that were replaced and promised to sign on. Each
/// is a signature in the header of every callback (47 bytes, or 91 of `v1a`), and receivers' servers take headers of 8 KiB;
/// more rotations than that within an overlap are a loop that nobody meant.
pub const SIGNING_KEYS_MAX: usize = 5;

/// A key that callbacks are signed with now.
#[derive(Debug)]
pub struct LiveKey {
    /// The key.
    pub key: SigningKey,
    /// Names it; for `v1a`, in the public list of keys.
    pub key_id: Uuid,
    /// When it ends; none: it is the present one.
    pub expires_at: Option<DateTime<Utc>>,
}

/// What a rotation did.
#[derive(Debug)]
pub enum Rotation {
    /// The keys that sign now, the new ones among them.
    Done(Vec<LiveKey>),
    /// Nothing: [`SIGNING_KEYS_MAX`] of a scheme sign already, and none ends before this.
    TooMany {
        /// When the next of them ends.
        until: DateTime<Utc>,
    },
}

impl Rotation {
    /// What to do about [`TooMany`](Self::TooMany).
    #[must_use]
    pub fn too_many(until: DateTime<Utc>) -> String {
        let until = until.to_rfc3339_opts(SecondsFormat::Secs, true);
        format!(
            "{SIGNING_KEYS_MAX} secrets sign at once already, as was promised: rotate again after {until}"
        )
    }
}

/// Where the bytes of a key belong: of the schemes, none is opened as the other.
pub(super) const fn key_place(tenant_id: Uuid, row: &str) -> Place<'_> {
    Place { tenant_id, table: "signing_secrets", column: "sealed", row }
}

pub(super) fn key_row(scheme: Scheme, key_id: Uuid) -> String {
    match scheme {
        Scheme::V1 => key_id.to_string(),
        Scheme::V1a => format!("{scheme}/{key_id}"),
    }
}

/// The database holds no other words than the two.
pub(super) fn schemes(words: &[String]) -> Vec<Scheme> {
    words.iter().filter_map(|word| word.parse().ok()).collect()
}

impl Store {
    /// The keys that callbacks are signed with now: by scheme, the present one first, then the newest.
    pub async fn signing_keys(&self, tenant_id: Uuid, vault: &Vault) -> Result<Vec<LiveKey>, StoreError> {
        let rows = sqlx::query!(
            "SELECT s.secret_id, s.scheme, s.sealed, s.expires_at
            FROM tenants t JOIN signing_secrets s ON s.tenant_id = t.tenant_id AND s.scheme = ANY (t.signatures)
            WHERE t.tenant_id = $1 AND (s.expires_at IS NULL OR s.expires_at > now() + $2::interval)
            ORDER BY s.scheme, s.expires_at IS NOT NULL, s.created_at DESC, s.secret_id DESC",
            tenant_id,
            self.clock.skew() as _,
        )
        .fetch_all(&self.pool)
        .await?;
        let opened = rows.into_iter().map(|row| {
            let scheme = row.scheme.parse().map_err(|_| CannotOpen::Damaged)?;
            let key = opened(tenant_id, scheme, row.secret_id, &row.sealed, vault)?;
            Ok(LiveKey { key, key_id: row.secret_id, expires_at: row.expires_at })
        });
        opened.collect()
    }

    /// The present secret of `v1`, whether callbacks are signed with it or not: every tenant has one.
    pub async fn present_secret(
        &self,
        tenant_id: Uuid,
        vault: &Vault,
    ) -> Result<Option<SigningSecret>, StoreError> {
        let row = sqlx::query!(
            "SELECT secret_id, sealed FROM signing_secrets
            WHERE tenant_id = $1 AND scheme = 'v1' AND expires_at IS NULL",
            tenant_id,
        )
        .fetch_optional(&self.pool)
        .await?;
        let Some(row) = row else { return Ok(None) };
        let place = key_row(Scheme::V1, row.secret_id);
        let bytes = vault.open(&row.sealed, key_place(tenant_id, &place))?;
        Ok(Some(SigningSecret::from_bytes(&bytes)))
    }

    /// Replaces what callbacks are signed with, for each scheme of the tenant: the present key signs on for `overlap`. What was
    /// promised of an earlier one stays as it was promised, and what has ended is not kept.
    pub async fn rotate_signing_keys(
        &self,
        tenant_id: Uuid,
        overlap: Duration,
        vault: &Vault,
    ) -> Result<Rotation, StoreError> {
        let mut transaction = self.pool.begin().await?;
        lock_tenant(tenant_id, &mut transaction).await?;
        let words = sqlx::query_scalar!("SELECT signatures FROM tenants WHERE tenant_id = $1", tenant_id)
            .fetch_one(&mut *transaction)
            .await?;
        sqlx::query!(
            "DELETE FROM signing_secrets WHERE tenant_id = $1 AND expires_at <= now() + $2::interval",
            tenant_id,
            self.clock.skew() as _,
        )
        .execute(&mut *transaction)
        .await?;
        for scheme in schemes(&words) {
            let ended = sqlx::query!(
                r#"WITH ended AS (
                    UPDATE signing_secrets SET expires_at = now() + $3::interval + $4::interval
                    WHERE tenant_id = $1 AND scheme = $2 AND expires_at IS NULL
                )
                SELECT count(*) AS "live!", min(expires_at) AS until FROM signing_secrets
                WHERE tenant_id = $1 AND scheme = $2"#,
                tenant_id,
                scheme.as_str(),
                self.clock.skew() as _,
                interval(overlap) as _,
            )
            .fetch_one(&mut *transaction)
            .await?;
            // One that ends at once is none of them.
            let live = usize::try_from(ended.live).unwrap_or(usize::MAX) + usize::from(!overlap.is_zero());
            if live > SIGNING_KEYS_MAX
                && let Some(until) = ended.until
            {
                transaction.rollback().await?;
                return Ok(Rotation::TooMany { until });
            }
            self.add_signing_key(tenant_id, scheme, vault, &mut transaction).await?;
        }
        transaction.commit().await?;
        Ok(Rotation::Done(self.signing_keys(tenant_id, vault).await?))
    }

    /// Sets which schemes a tenant's callbacks are signed by, from now on; one that it never had gets its first key.
    pub async fn set_signatures(
        &self,
        tenant_id: Uuid,
        schemes: &[Scheme],
        vault: &Vault,
    ) -> Result<(), StoreError> {
        let mut transaction = self.pool.begin().await?;
        lock_tenant(tenant_id, &mut transaction).await?;
        let words = schemes.iter().map(|scheme| scheme.as_str().to_owned()).collect::<Vec<_>>();
        sqlx::query!("UPDATE tenants SET signatures = $2 WHERE tenant_id = $1", tenant_id, &words)
            .execute(&mut *transaction)
            .await?;
        for scheme in schemes {
            self.add_signing_key(tenant_id, *scheme, vault, &mut transaction).await?;
        }
        Ok(transaction.commit().await?)
    }

    /// Adds a new present key, unless there is one.
    async fn add_signing_key(
        &self,
        tenant_id: Uuid,
        scheme: Scheme,
        vault: &Vault,
        transaction: &mut PgTransaction<'_>,
    ) -> Result<(), StoreError> {
        let (key_id, key) = (self.clock.new_id(), SigningKey::generate(scheme, &*self.clock));
        let row = key_row(scheme, key_id);
        let sealed = vault.seal(key.bytes(), key_place(tenant_id, &row), &*self.clock);
        sqlx::query!(
            "INSERT INTO signing_secrets (tenant_id, secret_id, scheme, sealed, created_at)
            VALUES ($1, $2, $3, $4, now() + $5::interval)
            ON CONFLICT (tenant_id, scheme) WHERE expires_at IS NULL DO NOTHING",
            tenant_id,
            key_id,
            scheme.as_str(),
            sealed,
            self.clock.skew() as _,
        )
        .execute(&mut **transaction)
        .await?;
        Ok(())
    }
}

fn opened(
    tenant_id: Uuid,
    scheme: Scheme,
    key_id: Uuid,
    sealed: &[u8],
    vault: &Vault,
) -> Result<SigningKey, StoreError> {
    let row = key_row(scheme, key_id);
    let bytes = vault.open(sealed, key_place(tenant_id, &row))?;
    Ok(SigningKey::from_bytes(scheme, &bytes).ok_or(CannotOpen::Damaged)?)
}
