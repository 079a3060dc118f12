//! What a platform says of an account's login when it is asked about that alone.
//!
//! The platform is asked between two of our transactions, so its answer counts only for the account as it was when it was
//! asked: for those settings, and for that version of the credentials.

use sqlx::PgTransaction;
use uuid::Uuid;

use super::accounts::{RESUME_WITHIN, Renewal, count_waiting, open_credentials};
use super::locks::{lane_has_expired, lock_account, lock_tenant};
use super::{Store, StoreError};
use crate::account::{AccountKey, Credentials};
use crate::vault::Vault;

/// An account, as its platform is asked about it.
#[derive(Debug, Clone)]
pub struct AskedAccount {
    /// The tenant's name.
    pub tenant: String,
    /// Its settings.
    pub settings: serde_json::Value,
    /// Its credentials.
    pub credentials: Credentials,
    /// Which version of them that is.
    pub credentials_version: i32,
    /// Whether its login is known to be expired.
    pub expired: bool,
}

impl Store {
    /// What its platform is to be asked about: an account that is not hidden.
    pub async fn account_to_ask(
        &self,
        tenant_id: Uuid,
        key: &AccountKey,
        vault: &Vault,
    ) -> Result<Option<AskedAccount>, StoreError> {
        let row = sqlx::query!(
            r#"SELECT n.name, a.settings, a.credentials_sealed, a.credentials_version,
                l.login_state = 'login_expired' AS "expired!"
            FROM accounts a
            JOIN tenants n ON n.tenant_id = a.tenant_id
            JOIN lanes l ON l.tenant_id = a.tenant_id AND l.platform = a.platform AND l.account_id = a.account_id
            WHERE a.tenant_id = $1 AND a.platform = $2 AND a.account_id = $3 AND a.hidden_at IS NULL"#,
            tenant_id,
            key.platform(),
            key.account_id(),
        )
        .fetch_optional(&self.pool)
        .await?;
        let Some(row) = row else { return Ok(None) };
        let sealed = row.credentials_sealed;
        let opened = sealed.map(|sealed| open_credentials(vault, tenant_id, key, &sealed)).transpose()?;
        Ok(Some(AskedAccount {
            tenant: row.name,
            settings: row.settings,
            credentials: opened.unwrap_or_else(Credentials::none),
            credentials_version: row.credentials_version,
            expired: row.expired,
        }))
    }

    /// Takes the platform's explicit word that a login works, or that it has expired; says what goes on if it is renewed by
    /// that. None if the account is another by now, and the word says nothing of it.
    ///
    /// A login that was expired when it was asked about, and works, is renewed as by new credentials; one that was lost
    /// while it was asked about is not: which of the two words is the later one, nobody knows.
    pub async fn take_login(
        &self,
        tenant_id: Uuid,
        key: &AccountKey,
        asked: &AskedAccount,
        works: bool,
    ) -> Result<Option<Renewal>, StoreError> {
        let mut transaction = self.pool.begin().await?;
        lock_tenant(tenant_id, &mut transaction).await?;
        let stored = lock_account(tenant_id, key, &mut transaction).await?.filter(|stored| {
            !stored.hidden
                && stored.credentials_version == asked.credentials_version
                && stored.settings == asked.settings
        });
        if stored.is_none() {
            return Ok(None);
        }
        let expired = lane_has_expired(tenant_id, key, &mut transaction).await?;
        let mut renewal = Renewal::default();
        if works && expired && asked.expired {
            self.renew(tenant_id, key, &mut transaction).await?;
            renewal = count_waiting(tenant_id, key, &mut transaction).await?;
        } else if !works && !expired {
            sqlx::query!(
                "UPDATE lanes SET login_state = 'login_expired', resume_from = NULL
                WHERE tenant_id = $1 AND platform = $2 AND account_id = $3",
                tenant_id,
                key.platform(),
                key.account_id(),
            )
            .execute(&mut *transaction)
            .await?;
        }
        transaction.commit().await?;
        Ok(Some(renewal))
    }

    /// A new version of the same credentials: what is still answered to the one before says nothing of it.
    async fn renew(
        &self,
        tenant_id: Uuid,
        key: &AccountKey,
        transaction: &mut PgTransaction<'_>,
    ) -> Result<(), StoreError> {
        sqlx::query!(
            "WITH account AS (
                UPDATE accounts SET credentials_version = credentials_version + 1
                WHERE tenant_id = $1 AND platform = $2 AND account_id = $3
                RETURNING credentials_version
            )
            UPDATE lanes l SET credentials_version = a.credentials_version, login_state = 'active',
                resume_from = now() + $4::interval - $5::interval
            FROM account a WHERE l.tenant_id = $1 AND l.platform = $2 AND l.account_id = $3",
            tenant_id,
            key.platform(),
            key.account_id(),
            self.clock.skew() as _,
            RESUME_WITHIN as _,
        )
        .execute(&mut **transaction)
        .await?;
        Ok(())
    }
}
