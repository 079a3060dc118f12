//! Accounts with their lanes, and groups.

use uuid::Uuid;

use super::{Store, StoreError};
use crate::account::GroupCode;
use crate::vault::Place;

/// An account to be created.
#[derive(Debug, Clone)]
pub struct NewAccount {
    /// The platform.
    pub platform: String,
    /// Its id on the platform.
    pub account_id: String,
    /// For people.
    pub display_name: String,
    /// As the platform defines them.
    pub settings: serde_json::Value,
    /// How many publications it may have in hand at once.
    pub max_in_flight: i32,
    /// The least time between two starts.
    pub min_interval: chrono::TimeDelta,
}

/// A member of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The platform.
    pub platform: String,
    /// Its id on the platform.
    pub account_id: String,
}

/// Where an account's credentials are sealed for; `row` is [`credentials_row`].
pub(super) const fn credentials_place(tenant_id: Uuid, row: &str) -> Place<'_> {
    Place { tenant_id, table: "accounts", column: "credentials_sealed", row }
}

/// The row of an account's credentials: neither part holds a slash.
pub(super) fn credentials_row(platform: &str, account_id: &str) -> String {
    format!("{platform}/{account_id}")
}

impl Store {
    /// Creates an account, or replaces its settings.
    pub async fn put_account(&self, tenant_id: Uuid, account: &NewAccount) -> Result<(), StoreError> {
        sqlx::query!(
            "WITH account AS (
                INSERT INTO accounts (tenant_id, platform, account_id, display_name, settings, created_at, updated_at)
                VALUES ($1, $2, $3, $4, $5, now() + $8::interval, now() + $8::interval)
                ON CONFLICT (tenant_id, platform, account_id) DO UPDATE
                SET display_name = excluded.display_name, settings = excluded.settings, updated_at = excluded.updated_at
            )
            INSERT INTO lanes (tenant_id, platform, account_id, max_in_flight, min_interval, free_at)
            VALUES ($1, $2, $3, $6, $7, now() + $8::interval)
            ON CONFLICT (tenant_id, platform, account_id) DO UPDATE
            SET max_in_flight = excluded.max_in_flight, min_interval = excluded.min_interval",
            tenant_id,
            account.platform,
            account.account_id,
            account.display_name,
            account.settings,
            account.max_in_flight,
            account.min_interval as _,
            self.clock.skew() as _,
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Creates a group, or replaces its title and members. Tasks accepted before keep their accounts.
    pub async fn put_group(
        &self,
        tenant_id: Uuid,
        code: &GroupCode,
        title: &str,
        members: &[Member],
    ) -> Result<(), StoreError> {
        let mut transaction = self.pool.begin().await?;
        sqlx::query!(
            "INSERT INTO groups (tenant_id, group_code, title, created_at, updated_at)
            VALUES ($1, $2, $3, now() + $4::interval, now() + $4::interval)
            ON CONFLICT (tenant_id, group_code) DO UPDATE SET title = excluded.title, updated_at = excluded.updated_at",
            tenant_id,
            code.as_str(),
            title,
            self.clock.skew() as _,
        )
        .execute(&mut *transaction)
        .await?;
        sqlx::query!(
            "DELETE FROM group_members WHERE tenant_id = $1 AND group_code = $2",
            tenant_id,
            code.as_str(),
        )
        .execute(&mut *transaction)
        .await?;
        let platforms = members.iter().map(|member| member.platform.clone()).collect::<Vec<_>>();
        let accounts = members.iter().map(|member| member.account_id.clone()).collect::<Vec<_>>();
        sqlx::query!(
            "INSERT INTO group_members (tenant_id, group_code, platform, account_id, position)
            SELECT $1, $2, platform, account_id, position
            FROM unnest($3::text[], $4::text[]) WITH ORDINALITY AS u(platform, account_id, position)",
            tenant_id,
            code.as_str(),
            &platforms,
            &accounts,
        )
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(())
    }

    /// Whether there is a group of that code.
    pub async fn has_group(&self, tenant_id: Uuid, code: &GroupCode) -> Result<bool, StoreError> {
        Ok(sqlx::query_scalar!(
            r#"SELECT EXISTS (SELECT FROM groups WHERE tenant_id = $1 AND group_code = $2) AS "there!""#,
            tenant_id,
            code.as_str(),
        )
        .fetch_one(&self.pool)
        .await?)
    }
}
