//! Tenants and their API keys.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::quotas::limits;
use super::signing::{key_place, key_row, schemes};
use super::{Store, StoreError};
use crate::article::{Defaults, OnDuplicate};
use crate::callback::signature::{Scheme, SigningSecret};
use crate::task::marker::MarkerKey;
use crate::tenant::limits::Limits;
use crate::tenant::{ApiKey, Scope, TenantName};
use crate::vault::{Place, Vault};

/// A tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    /// Its id.
    pub tenant_id: Uuid,
    /// Its name.
    pub name: String,
    /// When it was created.
    pub created_at: DateTime<Utc>,
    /// What holds for its articles.
    pub defaults: Defaults,
    /// What its callbacks are signed by.
    pub signatures: Vec<Scheme>,
    /// What it may ask for.
    pub limits: Limits,
}

/// What is to become of a tenant's defaults; none: it stays.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DefaultsChange {
    /// Where events are delivered; the inner none: nowhere.
    pub callback_url: Option<Option<String>>,
    /// What to answer for a duplicate.
    pub on_duplicate: Option<OnDuplicate>,
}

/// What a live key allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthenticatedKey {
    /// The tenant it belongs to.
    pub tenant_id: Uuid,
    /// Its id.
    pub key_id: Uuid,
    /// What it may do.
    pub scopes: Vec<Scope>,
    /// What holds for its tenant's articles.
    pub defaults: Defaults,
    /// What its tenant may ask for.
    pub limits: Limits,
}

/// A key as it is listed; its secret is not kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRow {
    /// Its id, by which it is revoked.
    pub key_id: Uuid,
    /// The tenant's name.
    pub tenant: String,
    /// What it may do.
    pub scopes: Vec<String>,
    /// When it was created.
    pub created_at: DateTime<Utc>,
    /// When it was revoked.
    pub revoked_at: Option<DateTime<Utc>>,
}

pub(super) const fn marker_key_place(tenant_id: Uuid) -> Place<'static> {
    Place { tenant_id, table: "tenants", column: "marker_key_sealed", row: "" }
}

/// The database holds no other word than the two.
fn defaults(callback_url: Option<String>, on_duplicate: &str) -> Defaults {
    Defaults { callback_url, on_duplicate: on_duplicate.parse().unwrap_or(OnDuplicate::Return) }
}

impl Store {
    /// Creates a tenant with a signing secret; `None` if the name is taken.
    pub async fn create_tenant(
        &self,
        name: &TenantName,
        vault: &Vault,
    ) -> Result<Option<(Tenant, SigningSecret)>, StoreError> {
        let clock = &*self.clock;
        let (tenant_id, secret_id) = (clock.new_id(), clock.new_id());
        let mut marker_key = secrecy::zeroize::Zeroizing::new([0; MarkerKey::BYTES]);
        clock.fill(&mut *marker_key);
        let marker_key = vault.seal(&*marker_key, marker_key_place(tenant_id), clock);
        let secret = SigningSecret::generate(clock);
        let sealed = vault.seal(secret.bytes(), key_place(tenant_id, &key_row(Scheme::V1, secret_id)), clock);
        let created_at = sqlx::query_scalar!(
            r#"WITH tenant AS (
                INSERT INTO tenants (tenant_id, name, marker_key_sealed, created_at)
                VALUES ($1, $2, $3, now() + $6::interval)
                ON CONFLICT (name) DO NOTHING RETURNING tenant_id, created_at
            ), secret AS (
                INSERT INTO signing_secrets (tenant_id, secret_id, sealed, created_at)
                SELECT tenant_id, $4, $5, created_at FROM tenant
            ), feed AS (
                INSERT INTO feeds (tenant_id) SELECT tenant_id FROM tenant
            ), retention AS (
                INSERT INTO retentions (tenant_id) SELECT tenant_id FROM tenant
            )
            SELECT created_at FROM tenant"#,
            tenant_id,
            name.as_str(),
            marker_key,
            secret_id,
            sealed,
            clock.skew() as _,
        )
        .fetch_optional(&self.pool)
        .await?;
        let name = name.as_str().to_owned();
        let defaults = Defaults { callback_url: None, on_duplicate: OnDuplicate::Return };
        let (signatures, limits) = (vec![Scheme::V1], Limits::default());
        let tenant = |created_at| Tenant { tenant_id, name, created_at, defaults, signatures, limits };
        Ok(created_at.map(|created_at| (tenant(created_at), secret)))
    }

    /// The tenant of that name.
    pub async fn tenant_named(&self, name: &str) -> Result<Option<Tenant>, StoreError> {
        Ok(self.read_tenants(Some(name)).await?.pop())
    }

    /// All tenants, by name.
    pub async fn tenants(&self) -> Result<Vec<Tenant>, StoreError> {
        self.read_tenants(None).await
    }

    async fn read_tenants(&self, name: Option<&str>) -> Result<Vec<Tenant>, StoreError> {
        let rows = sqlx::query!(
            "SELECT tenant_id, name, created_at, default_callback_url, default_on_duplicate, signatures, rate_per_second,
                rate_burst, articles_per_day FROM tenants
            WHERE $1::text IS NULL OR name = $1 ORDER BY name",
            name,
        )
        .fetch_all(&self.pool)
        .await?;
        let tenants = rows.into_iter().map(|row| Tenant {
            tenant_id: row.tenant_id,
            name: row.name,
            created_at: row.created_at,
            defaults: defaults(row.default_callback_url, &row.default_on_duplicate),
            signatures: schemes(&row.signatures),
            limits: limits(row.rate_per_second, row.rate_burst, row.articles_per_day),
        });
        Ok(tenants.collect())
    }

    /// Changes a tenant's defaults, for what is accepted from now on; false if there is no such tenant.
    pub async fn set_defaults(&self, name: &str, change: &DefaultsChange) -> Result<bool, StoreError> {
        let changed = sqlx::query!(
            "UPDATE tenants SET default_callback_url = CASE WHEN $2 THEN $3 ELSE default_callback_url END,
                default_on_duplicate = coalesce($4, default_on_duplicate)
            WHERE name = $1",
            name,
            change.callback_url.is_some(),
            change.callback_url.clone().flatten(),
            change.on_duplicate.map(OnDuplicate::as_str),
        )
        .execute(&self.pool)
        .await?;
        Ok(changed.rows_affected() > 0)
    }

    /// The key under which a tenant's articles are marked.
    pub async fn marker_key(&self, tenant_id: Uuid, vault: &Vault) -> Result<MarkerKey, StoreError> {
        let sealed =
            sqlx::query_scalar!("SELECT marker_key_sealed FROM tenants WHERE tenant_id = $1", tenant_id)
                .fetch_one(&self.pool)
                .await?;
        Ok(MarkerKey::new(&vault.open(&sealed, marker_key_place(tenant_id))?))
    }

    /// Stores a new key.
    pub async fn create_key(&self, key: &ApiKey, scopes: &[Scope]) -> Result<Uuid, StoreError> {
        let key_id = self.clock.new_id();
        let scopes = scopes.iter().map(|scope| scope.as_str().to_owned()).collect::<Vec<_>>();
        sqlx::query!(
            "INSERT INTO api_keys (tenant_id, key_id, secret_hash, scopes, created_at)
            VALUES ($1, $2, $3, $4, now() + $5::interval)",
            key.tenant_id(),
            key_id,
            &key.hash()[..],
            &scopes,
            self.clock.skew() as _,
        )
        .execute(&self.pool)
        .await?;
        Ok(key_id)
    }

    /// Looks a key up; `None` if there is none, or it is revoked.
    pub async fn authenticate(&self, key: &ApiKey) -> Result<Option<AuthenticatedKey>, StoreError> {
        let row = sqlx::query!(
            "SELECT k.key_id, k.scopes, t.default_callback_url, t.default_on_duplicate, t.rate_per_second, t.rate_burst,
                t.articles_per_day
            FROM api_keys k JOIN tenants t ON t.tenant_id = k.tenant_id
            WHERE k.tenant_id = $1 AND k.secret_hash = $2 AND k.revoked_at IS NULL",
            key.tenant_id(),
            &key.hash()[..],
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(row.map(|row| AuthenticatedKey {
            tenant_id: key.tenant_id(),
            key_id: row.key_id,
            scopes: row.scopes.iter().filter_map(|scope| scope.parse().ok()).collect(),
            defaults: defaults(row.default_callback_url, &row.default_on_duplicate),
            limits: limits(row.rate_per_second, row.rate_burst, row.articles_per_day),
        }))
    }

    /// All keys, by tenant and age.
    pub async fn keys(&self) -> Result<Vec<KeyRow>, StoreError> {
        let keys = sqlx::query_as!(
            KeyRow,
            "SELECT k.key_id, t.name AS tenant, k.scopes, k.created_at, k.revoked_at
            FROM api_keys k JOIN tenants t USING (tenant_id) ORDER BY t.name, k.created_at, k.key_id"
        );
        Ok(keys.fetch_all(&self.pool).await?)
    }

    /// Ends a key; false if there is no such key. Again: nothing changes.
    pub async fn revoke_key(&self, key_id: Uuid) -> Result<bool, StoreError> {
        let revoked = sqlx::query!(
            "UPDATE api_keys SET revoked_at = coalesce(revoked_at, now() + $2::interval) WHERE key_id = $1",
            key_id,
            self.clock.skew() as _,
        )
        .execute(&self.pool)
        .await?;
        Ok(revoked.rows_affected() > 0)
    }
}
