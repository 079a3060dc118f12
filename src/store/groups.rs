//! Groups: named sets of accounts. How they change while articles are accepted is told in [`super::locks`].

use chrono::{DateTime, Utc};
use sqlx::PgTransaction;
use sqlx::types::Json;
use uuid::Uuid;

use super::locks::{lock_group, lock_tenant};
use super::{Store, StoreError, columns, stored_keys};
use crate::account::{AccountKey, GROUPS_MAX, GroupCode, GroupInput};

/// A group, as the API shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupRow {
    /// Its code.
    pub group_code: String,
    /// For people.
    pub title: String,
    /// Its accounts, in order.
    pub accounts: Vec<AccountKey>,
    /// When it was created.
    pub created_at: DateTime<Utc>,
    /// When it last changed, also by an account that was deleted.
    pub updated_at: DateTime<Utc>,
}

/// What became of a group that was put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupPut {
    /// It is stored.
    Done(GroupRow),
    /// There are no such accounts: their places in the list.
    UnknownAccounts(Vec<usize>),
    /// The tenant has [`GROUPS_MAX`] groups.
    TooMany,
}

impl Store {
    /// A group.
    pub async fn group(&self, tenant_id: Uuid, code: &GroupCode) -> Result<Option<GroupRow>, StoreError> {
        Ok(self.read_groups(tenant_id, Some(code)).await?.pop())
    }

    /// All groups, by code.
    pub async fn groups(&self, tenant_id: Uuid) -> Result<Vec<GroupRow>, StoreError> {
        self.read_groups(tenant_id, None).await
    }

    async fn read_groups(
        &self,
        tenant_id: Uuid,
        code: Option<&GroupCode>,
    ) -> Result<Vec<GroupRow>, StoreError> {
        let rows = sqlx::query!(
            r#"SELECT g.group_code AS "group_code!", g.title AS "title!", g.created_at AS "created_at!", g.updated_at AS "updated_at!", (
                SELECT json_agg(json_build_array(m.platform, m.account_id) ORDER BY m.position) FROM group_members m
                WHERE m.tenant_id = g.tenant_id AND m.group_code = g.group_code
            ) AS "accounts: Json<Vec<(String, String)>>"
            FROM (
                -- One plan serves for one and for all, and reads no more than that.
                SELECT * FROM groups WHERE tenant_id = $1 AND group_code = $2
                UNION ALL SELECT * FROM groups WHERE tenant_id = $1 AND $2::text IS NULL) g
            ORDER BY g.tenant_id, g.group_code"#,
            tenant_id,
            code.map(GroupCode::as_str),
        )
        .fetch_all(&self.pool)
        .await?;
        let groups = rows.into_iter().map(|row| GroupRow {
            group_code: row.group_code,
            title: row.title,
            accounts: row.accounts.map_or(Vec::new(), stored_keys),
            created_at: row.created_at,
            updated_at: row.updated_at,
        });
        Ok(groups.collect())
    }

    /// Creates a group, or replaces its title and accounts. Tasks accepted before keep their accounts.
    pub async fn put_group(
        &self,
        tenant_id: Uuid,
        code: &GroupCode,
        input: &GroupInput,
    ) -> Result<GroupPut, StoreError> {
        let mut transaction = self.pool.begin().await?;
        lock_tenant(tenant_id, &mut transaction).await?;
        let unknown = unknown_accounts(tenant_id, &input.accounts, &mut transaction).await?;
        if !unknown.is_empty() {
            return Ok(GroupPut::UnknownAccounts(unknown));
        }
        let Some((created_at, updated_at)) =
            self.write_group(tenant_id, code, &input.title, &mut transaction).await?
        else {
            return Ok(GroupPut::TooMany);
        };
        replace_members(tenant_id, code, &input.accounts, &mut transaction).await?;
        transaction.commit().await?;
        Ok(GroupPut::Done(GroupRow {
            group_code: code.as_str().to_owned(),
            title: input.title.clone(),
            accounts: input.accounts.clone(),
            created_at,
            updated_at,
        }))
    }

    /// Writes the group itself, when what is being accepted for it is; none if it is one too many.
    async fn write_group(
        &self,
        tenant_id: Uuid,
        code: &GroupCode,
        title: &str,
        transaction: &mut PgTransaction<'_>,
    ) -> Result<Option<(DateTime<Utc>, DateTime<Utc>)>, StoreError> {
        lock_group(tenant_id, code, transaction).await?;
        let most = i64::try_from(GROUPS_MAX).unwrap_or(i64::MAX);
        let row = sqlx::query!(
            "INSERT INTO groups (tenant_id, group_code, title, created_at, updated_at)
            SELECT $1, $2, $3, now() + $4::interval, now() + $4::interval
            WHERE EXISTS (SELECT FROM groups WHERE tenant_id = $1 AND group_code = $2)
                OR (SELECT count(*) FROM groups WHERE tenant_id = $1) < $5
            ON CONFLICT (tenant_id, group_code) DO UPDATE
            SET title = excluded.title, updated_at = excluded.updated_at
            RETURNING created_at, updated_at",
            tenant_id,
            code.as_str(),
            title,
            self.clock.skew() as _,
            most,
        )
        .fetch_optional(&mut **transaction)
        .await?;
        Ok(row.map(|row| (row.created_at, row.updated_at)))
    }

    /// Deletes a group; false if there is none. Tasks accepted before keep their accounts.
    pub async fn delete_group(&self, tenant_id: Uuid, code: &GroupCode) -> Result<bool, StoreError> {
        let mut transaction = self.pool.begin().await?;
        lock_tenant(tenant_id, &mut transaction).await?;
        lock_group(tenant_id, code, &mut transaction).await?;
        replace_members(tenant_id, code, &[], &mut transaction).await?;
        let deleted = sqlx::query!(
            "DELETE FROM groups WHERE tenant_id = $1 AND group_code = $2",
            tenant_id,
            code.as_str(),
        )
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(deleted.rows_affected() > 0)
    }
}

/// The places of accounts that are not there, or hidden. None of the others goes before this transaction ends: who
/// takes one away locks the tenant, too.
async fn unknown_accounts(
    tenant_id: Uuid,
    accounts: &[AccountKey],
    transaction: &mut PgTransaction<'_>,
) -> Result<Vec<usize>, StoreError> {
    let (platforms, ids) = columns(accounts);
    let places = sqlx::query_scalar!(
        r#"SELECT u.place AS "place!" FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS u(platform, account_id, place)
        WHERE NOT EXISTS (
            SELECT FROM accounts a WHERE a.tenant_id = $1 AND a.platform = u.platform AND a.account_id = u.account_id
                AND a.hidden_at IS NULL)
        ORDER BY u.place"#,
        tenant_id,
        &platforms,
        &ids,
    )
    .fetch_all(&mut **transaction)
    .await?;
    Ok(places.into_iter().filter_map(|place| usize::try_from(place - 1).ok()).collect())
}

async fn replace_members(
    tenant_id: Uuid,
    code: &GroupCode,
    accounts: &[AccountKey],
    transaction: &mut PgTransaction<'_>,
) -> Result<(), StoreError> {
    sqlx::query!(
        "DELETE FROM group_members WHERE tenant_id = $1 AND group_code = $2",
        tenant_id,
        code.as_str(),
    )
    .execute(&mut **transaction)
    .await?;
    let (platforms, ids) = columns(accounts);
    sqlx::query!(
        "INSERT INTO group_members (tenant_id, group_code, platform, account_id, position)
        SELECT $1, $2, platform, account_id, position
        FROM unnest($3::text[], $4::text[]) WITH ORDINALITY AS u(platform, account_id, position)",
        tenant_id,
        code.as_str(),
        &platforms,
        &ids,
    )
    .execute(&mut **transaction)
    .await?;
    Ok(())
}
