//! Who waits for whom when accounts and groups change.
//!
//! What a tenant manages is changed by one at a time: each change of an account or a group locks the tenant's row first,
//! so limits hold exactly and no two changes wait for each other in a circle. After it come accounts, groups, and the
//! order of [`super`]. Nothing on an article's path locks a tenant.
//!
//! An account may only go while nothing of it is unfinished, and nothing may become unfinished meanwhile; and only move to
//! another site while nothing unfinished may have left something on the present one. Accepting reads groups and is not made to lock accounts: it holds its *group* by `FOR KEY SHARE` until its
//! commit, and asks again if the row it locked is not the one its snapshot shows. Whoever changes a group's accounts, or
//! takes an account away, locks the groups `FOR UPDATE` first: what was being accepted is then committed and counted, and
//! what comes later waits, finds its group changed, and sees it without the account. Whoever makes a publication
//! unfinished in another way (a retry, a submit, an account added to a task) locks the account's row `FOR KEY SHARE`, and
//! does not if it is hidden.

use sqlx::PgTransaction;
use uuid::Uuid;

use super::{StoreError, columns};
use crate::account::{AccountKey, GroupCode};

/// How many publications of an account are unfinished, by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unfinished {
    /// Drafts.
    pub draft: i64,
    /// Submitted.
    pub submitted: i64,
    /// Running.
    pub running: i64,
    /// Waiting for a login.
    pub login_expired: i64,
}

impl Unfinished {
    /// The states with their counts, those that count something.
    #[must_use]
    pub fn states(self) -> Vec<(i64, &'static str)> {
        let all = [
            (self.draft, "draft"),
            (self.submitted, "submitted"),
            (self.running, "running"),
            (self.login_expired, "login_expired"),
        ];
        all.into_iter().filter(|(count, _)| *count > 0).collect()
    }
}

/// Lets one at a time change what a tenant manages.
pub(super) async fn lock_tenant(
    tenant_id: Uuid,
    transaction: &mut PgTransaction<'_>,
) -> Result<(), StoreError> {
    sqlx::query!(r#"SELECT true AS "there!" FROM tenants WHERE tenant_id = $1 FOR NO KEY UPDATE"#, tenant_id)
        .fetch_one(&mut **transaction)
        .await?;
    Ok(())
}

/// An account that is there, locked against all who would make something of it unfinished.
pub(super) struct Stored {
    pub settings: serde_json::Value,
    pub has_credentials: bool,
    pub credentials_version: i32,
    pub hidden: bool,
}

pub(super) async fn lock_account(
    tenant_id: Uuid,
    key: &AccountKey,
    transaction: &mut PgTransaction<'_>,
) -> Result<Option<Stored>, StoreError> {
    let stored = sqlx::query_as!(
        Stored,
        r#"SELECT settings, credentials_sealed IS NOT NULL AS "has_credentials!", credentials_version,
            hidden_at IS NOT NULL AS "hidden!"
        FROM accounts WHERE tenant_id = $1 AND platform = $2 AND account_id = $3 FOR UPDATE"#,
        tenant_id,
        key.platform(),
        key.account_id(),
    );
    Ok(stored.fetch_optional(&mut **transaction).await?)
}

/// Locks the groups that hold an account, in their order, which waits for what is being accepted for them.
pub(super) async fn lock_groups_of(
    tenant_id: Uuid,
    key: &AccountKey,
    transaction: &mut PgTransaction<'_>,
) -> Result<Vec<String>, StoreError> {
    let groups = sqlx::query_scalar!(
        r#"SELECT group_code FROM groups g
        WHERE tenant_id = $1 AND group_code IN (
            SELECT m.group_code FROM group_members m
            WHERE m.tenant_id = $1 AND m.platform = $2 AND m.account_id = $3)
        ORDER BY group_code COLLATE "C" FOR UPDATE OF g"#,
        tenant_id,
        key.platform(),
        key.account_id(),
    );
    Ok(groups.fetch_all(&mut **transaction).await?)
}

/// What is unfinished of an account. Each state is asked for by the index that is made for it.
pub(super) async fn unfinished(
    tenant_id: Uuid,
    key: &AccountKey,
    transaction: &mut PgTransaction<'_>,
) -> Result<Unfinished, StoreError> {
    let counts = sqlx::query_as!(
        Unfinished,
        r#"SELECT
            (SELECT count(*) FROM publications WHERE tenant_id = $1 AND platform = $2 AND account_id = $3
                AND status = 'draft') AS "draft!",
            (SELECT count(*) FROM publications WHERE tenant_id = $1 AND platform = $2 AND account_id = $3
                AND status = 'submitted') AS "submitted!",
            (SELECT count(*) FROM publications WHERE tenant_id = $1 AND platform = $2 AND account_id = $3
                AND status = 'running') AS "running!",
            (SELECT count(*) FROM publications WHERE tenant_id = $1 AND platform = $2 AND account_id = $3
                AND status = 'login_expired') AS "login_expired!""#,
        tenant_id,
        key.platform(),
        key.account_id(),
    );
    Ok(counts.fetch_one(&mut **transaction).await?)
}

/// What of an account may have left something on its platform, and looks for it there: what is running, and what has begun
/// any step but a look. Asked under the lane's lock, since a claim makes more of it.
pub(super) async fn bound_to_site(
    tenant_id: Uuid,
    key: &AccountKey,
    transaction: &mut PgTransaction<'_>,
) -> Result<Unfinished, StoreError> {
    let counts = sqlx::query_as!(
        Unfinished,
        r#"SELECT 0::bigint AS "draft!",
            count(*) FILTER (WHERE status = 'submitted') AS "submitted!",
            count(*) FILTER (WHERE status = 'running') AS "running!",
            count(*) FILTER (WHERE status = 'login_expired') AS "login_expired!"
        FROM publications p
        WHERE tenant_id = $1 AND platform = $2 AND account_id = $3
            AND (status = 'running' OR status IN ('submitted', 'login_expired') AND EXISTS (
                SELECT FROM attempts a
                WHERE a.tenant_id = $1 AND a.publication_id = p.publication_id AND a.kind <> 'probe'))"#,
        tenant_id,
        key.platform(),
        key.account_id(),
    );
    Ok(counts.fetch_one(&mut **transaction).await?)
}

/// Locks an account that is there and its groups, which waits for what is being accepted for it, and says which groups they
/// are and what of it is unfinished then; none if it is not there.
pub(super) async fn lock_whole(
    tenant_id: Uuid,
    key: &AccountKey,
    transaction: &mut PgTransaction<'_>,
) -> Result<Option<(Vec<String>, Unfinished)>, StoreError> {
    lock_tenant(tenant_id, transaction).await?;
    let stored = lock_account(tenant_id, key, transaction).await?;
    if stored.is_none_or(|stored| stored.hidden) {
        return Ok(None);
    }
    let groups = lock_groups_of(tenant_id, key, transaction).await?;
    Ok(Some((groups, unfinished(tenant_id, key, transaction).await?)))
}

/// Locks an account's lane: no publication is found expired, and none claimed, until the account is written.
pub(super) async fn lane_has_expired(
    tenant_id: Uuid,
    key: &AccountKey,
    transaction: &mut PgTransaction<'_>,
) -> Result<bool, StoreError> {
    let expired = sqlx::query_scalar!(
        r#"SELECT login_state = 'login_expired' AS "expired!" FROM lanes
        WHERE tenant_id = $1 AND platform = $2 AND account_id = $3 FOR NO KEY UPDATE"#,
        tenant_id,
        key.platform(),
        key.account_id(),
    );
    Ok(expired.fetch_optional(&mut **transaction).await?.unwrap_or(false))
}

/// Waits for what is being accepted for a group, and keeps what comes later waiting.
pub(super) async fn lock_group(
    tenant_id: Uuid,
    code: &GroupCode,
    transaction: &mut PgTransaction<'_>,
) -> Result<(), StoreError> {
    sqlx::query!(
        r#"SELECT true AS "there!" FROM groups WHERE tenant_id = $1 AND group_code = $2 FOR UPDATE"#,
        tenant_id,
        code.as_str(),
    )
    .fetch_optional(&mut **transaction)
    .await?;
    Ok(())
}

/// Keeps a group's accounts as they are until the end of the transaction.
pub(super) async fn keep_group(
    tenant_id: Uuid,
    code: &str,
    transaction: &mut PgTransaction<'_>,
) -> Result<(), StoreError> {
    sqlx::query!(
        r#"SELECT true AS "there!" FROM groups WHERE tenant_id = $1 AND group_code = $2 FOR KEY SHARE"#,
        tenant_id,
        code,
    )
    .fetch_optional(&mut **transaction)
    .await?;
    Ok(())
}

/// Keeps accounts from being deleted until the end of the transaction: these, and those of a task. Returns those that
/// exist.
pub(super) async fn keep_accounts(
    tenant_id: Uuid,
    keys: &[AccountKey],
    of_task: Option<Uuid>,
    transaction: &mut PgTransaction<'_>,
) -> Result<Vec<AccountKey>, StoreError> {
    let (platforms, ids) = columns(keys);
    let rows = sqlx::query!(
        "SELECT a.platform, a.account_id FROM accounts a
        WHERE a.tenant_id = $1 AND a.hidden_at IS NULL AND (a.platform, a.account_id) IN (
            SELECT platform, account_id FROM unnest($2::text[], $3::text[]) AS u(platform, account_id)
            UNION
            SELECT p.platform, p.account_id FROM publications p WHERE p.tenant_id = $1 AND p.task_id = $4)
        ORDER BY a.platform, a.account_id FOR KEY SHARE OF a",
        tenant_id,
        &platforms,
        &ids,
        of_task,
    )
    .fetch_all(&mut **transaction)
    .await?;
    Ok(rows.into_iter().map(|row| AccountKey::stored(row.platform, row.account_id)).collect())
}
