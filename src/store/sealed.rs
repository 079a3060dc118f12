//! Whether the vault fits the database: every stored secret, of all tenants.

use super::accounts::credentials_place;
use super::tenants::{marker_key_place, secret_place};
use super::{Store, StoreError};
use crate::vault::{SEALED_HEADER_BYTES, Vault};

impl Store {
    /// Checks that the vault has the key that all secrets of this database were stored under: of each by what it begins
    /// with, which reads no row twice and opens nothing; and one of each kind by opening it.
    pub async fn check_vault(&self, vault: &Vault) -> Result<(), StoreError> {
        let header_bytes = i32::try_from(SEALED_HEADER_BYTES).unwrap_or(i32::MAX);
        let counted = sqlx::query!(
            r#"SELECT count(*) FILTER (WHERE substr(sealed, 1, $2) <> $1) AS "other!", count(*) AS "all!"
            FROM (
                SELECT tenant_id, marker_key_sealed AS sealed FROM tenants
                UNION ALL SELECT tenant_id, sealed FROM signing_secrets
                UNION ALL SELECT tenant_id, credentials_sealed FROM accounts WHERE credentials_sealed IS NOT NULL
            ) AS secrets"#,
            &vault.header()[..],
            header_bytes,
        )
        .fetch_one(&self.pool)
        .await?;
        if counted.other > 0 {
            return Err(StoreError::OtherKey { other: counted.other, all: counted.all });
        }
        let marker_key =
            sqlx::query!("SELECT tenant_id, marker_key_sealed FROM tenants ORDER BY tenant_id LIMIT 1");
        if let Some(row) = marker_key.fetch_optional(&self.pool).await? {
            vault.open(&row.marker_key_sealed, marker_key_place(row.tenant_id))?;
        }
        let secret = sqlx::query!(
            "SELECT tenant_id, secret_id, sealed FROM signing_secrets ORDER BY tenant_id, secret_id LIMIT 1"
        );
        if let Some(row) = secret.fetch_optional(&self.pool).await? {
            vault.open(&row.sealed, secret_place(row.tenant_id, &row.secret_id.to_string()))?;
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
}
