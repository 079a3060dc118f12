//! Accounts with their lanes and their credentials.

use chrono::{DateTime, TimeDelta, Utc};
use secrecy::zeroize::Zeroizing;
use sqlx::PgTransaction;
use uuid::Uuid;

use super::locks::{Unfinished, bound_to_site, lane_has_expired, lock_account, lock_tenant, lock_whole};
use super::{Store, StoreError};
use crate::account::{ACCOUNTS_MAX, AccountInput, AccountKey, Credentials};
use crate::vault::{CannotOpen, Place, Vault};

/// How far back a renewed login resumes what waits for it: what is older is news no more, and a person decides.
pub const RESUME_WITHIN: TimeDelta = TimeDelta::days(7);

/// An account, as the API shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct AccountRow {
    /// The platform.
    pub platform: String,
    /// Its id on the platform.
    pub account_id: String,
    /// For people.
    pub display_name: String,
    /// As the platform defines them.
    pub settings: serde_json::Value,
    /// The least time between two starts, in seconds.
    pub min_interval_seconds: i64,
    /// How many publications it may have in hand at once.
    pub max_in_flight: i32,
    /// The most publications a day, in its time zone.
    pub daily_limit: Option<i32>,
    /// The IANA name of the zone in which its days begin.
    pub time_zone: String,
    /// `active` or `login_expired`.
    pub login_state: String,
    /// Until when nothing of it is started: its platform asked for a pause, or its day is full; none when that is past.
    pub parked_until: Option<DateTime<Utc>>,
    /// Whether credentials are stored.
    pub credentials_set: bool,
    /// When it was created.
    pub created_at: DateTime<Utc>,
    /// When it was last put.
    pub updated_at: DateTime<Utc>,
}

/// What must hold of a stored account for it to be replaced.
#[derive(Clone, Copy)]
pub struct Terms<'a> {
    /// Whether the new settings were found good with the stored credentials, which must then still be there.
    pub keeps_credentials: bool,
    /// Whether an account with these stored settings stays on its site.
    pub same_site: &'a (dyn Fn(&serde_json::Value) -> bool + Sync),
    /// Whether a robot fetches what is due on it from now on.
    pub pulled: bool,
}

impl Terms<'_> {
    /// For an account that nothing is published on yet.
    pub const NONE: Terms<'static> = Terms { keeps_credentials: false, same_site: &|_| true, pulled: false };
}

/// What became of an account that was put.
#[derive(Debug, Clone, PartialEq)]
pub enum AccountPut {
    /// It is stored.
    Done(Box<AccountRow>, Renewal),
    /// It was to move to another site, and this much of it may have left something on the present one.
    Unfinished(Unfinished),
    /// The credentials that were to be kept are gone: it was deleted at the same moment.
    Changed,
    /// The tenant has [`ACCOUNTS_MAX`] accounts.
    TooMany,
    /// The database does not know its time zone: its data of time zones are older than ours, or cut down.
    UnknownTimeZone,
}

/// What a renewed login does to what waits for it; nothing where no login was renewed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Renewal {
    /// Whether the login had expired and is renewed.
    pub renewed: bool,
    /// How many publications go on, in order.
    pub resumed: i64,
    /// How many do not.
    pub left: i64,
}

/// What became of an account that was to be deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccountDeleted {
    /// It is hidden, and in no group any more.
    Done,
    /// There is no such account.
    Absent,
    /// This much of it is unfinished.
    Unfinished(Unfinished),
}

/// Opens the credentials of an account.
pub(super) fn open_credentials(
    vault: &Vault,
    tenant_id: Uuid,
    key: &AccountKey,
    sealed: &[u8],
) -> Result<Credentials, CannotOpen> {
    let row = key.to_string();
    let text = vault.open(sealed, credentials_place(tenant_id, &row))?;
    serde_json::from_slice(&text).map(Credentials::new).map_err(|_| CannotOpen::Damaged)
}

pub(super) const fn credentials_place(tenant_id: Uuid, row: &str) -> Place<'_> {
    Place { tenant_id, table: "accounts", column: "credentials_sealed", row }
}

impl Store {
    /// An account that is not hidden.
    pub async fn account(&self, tenant_id: Uuid, key: &AccountKey) -> Result<Option<AccountRow>, StoreError> {
        Ok(self.read_accounts(tenant_id, Some(key)).await?.pop())
    }

    /// All accounts that are not hidden, by platform and id.
    pub async fn accounts(&self, tenant_id: Uuid) -> Result<Vec<AccountRow>, StoreError> {
        self.read_accounts(tenant_id, None).await
    }

    async fn read_accounts(
        &self,
        tenant_id: Uuid,
        key: Option<&AccountKey>,
    ) -> Result<Vec<AccountRow>, StoreError> {
        let accounts = sqlx::query_as!(
            AccountRow,
            r#"SELECT a.platform AS "platform!", a.account_id AS "account_id!", a.display_name AS "display_name!",
                a.settings AS "settings!", extract(epoch FROM l.min_interval)::bigint AS "min_interval_seconds!",
                l.max_in_flight AS "max_in_flight!", l.daily_limit, l.time_zone AS "time_zone!",
                l.login_state AS "login_state!", a.credentials_sealed IS NOT NULL AS "credentials_set!",
                a.created_at AS "created_at!", a.updated_at AS "updated_at!",
                greatest(CASE WHEN l.parked_until > now() + $4::interval THEN l.parked_until END,
                    full_until(l.daily_limit, l.day, l.day_count, l.time_zone, now() + $4::interval)) AS parked_until
            FROM (
                -- One plan serves for one and for all, and reads no more than that.
                SELECT * FROM accounts WHERE tenant_id = $1 AND platform = $2 AND account_id = $3
                UNION ALL SELECT * FROM accounts WHERE tenant_id = $1 AND $2::text IS NULL) a
            JOIN (
                SELECT * FROM lanes WHERE tenant_id = $1 AND platform = $2 AND account_id = $3
                UNION ALL SELECT * FROM lanes WHERE tenant_id = $1 AND $2::text IS NULL) l
                ON l.tenant_id = a.tenant_id AND l.platform = a.platform AND l.account_id = a.account_id
            WHERE a.hidden_at IS NULL
            ORDER BY a.tenant_id, a.platform, a.account_id"#,
            tenant_id,
            key.map(AccountKey::platform),
            key.map(AccountKey::account_id),
            self.clock.skew() as _,
        );
        Ok(accounts.fetch_all(&self.pool).await?)
    }

    /// The credentials of an account that is not hidden, if it has any.
    pub async fn credentials(
        &self,
        tenant_id: Uuid,
        key: &AccountKey,
        vault: &Vault,
    ) -> Result<Option<Credentials>, StoreError> {
        let sealed = sqlx::query_scalar!(
            "SELECT credentials_sealed FROM accounts
            WHERE tenant_id = $1 AND platform = $2 AND account_id = $3 AND hidden_at IS NULL",
            tenant_id,
            key.platform(),
            key.account_id(),
        )
        .fetch_optional(&self.pool)
        .await?
        .flatten();
        Ok(sealed.map(|sealed| open_credentials(vault, tenant_id, key, &sealed)).transpose()?)
    }

    /// Creates an account, or replaces all of it but the credentials, which are kept where none are sent. One that was
    /// deleted is there again. Credentials that are sent renew a login that has expired. They and other settings end a
    /// pause that the platform asked for: whether it still does is asked again.
    pub async fn put_account(
        &self,
        tenant_id: Uuid,
        key: &AccountKey,
        input: &AccountInput,
        vault: &Vault,
        terms: Terms<'_>,
    ) -> Result<AccountPut, StoreError> {
        if !self.knows_time_zone(input.time_zone).await? {
            return Ok(AccountPut::UnknownTimeZone);
        }
        let mut transaction = self.pool.begin().await?;
        lock_tenant(tenant_id, &mut transaction).await?;
        let stored = lock_account(tenant_id, key, &mut transaction).await?;
        let visible = stored.as_ref().filter(|stored| !stored.hidden);
        if visible.is_none() && count_accounts(tenant_id, &mut transaction).await? >= ACCOUNTS_MAX {
            return Ok(AccountPut::TooMany);
        }
        if terms.keeps_credentials && !visible.is_some_and(|stored| stored.has_credentials) {
            return Ok(AccountPut::Changed);
        }
        let moves = visible.is_some_and(|stored| !(terms.same_site)(&stored.settings));
        let had_expired = lane_has_expired(tenant_id, key, &mut transaction).await?;
        if moves {
            let bound = bound_to_site(tenant_id, key, &mut transaction).await?;
            if bound != Unfinished::default() {
                return Ok(AccountPut::Unfinished(bound));
            }
        }
        let sealed =
            input.credentials.as_ref().map(|credentials| self.sealed(tenant_id, key, credentials, vault));
        let sealed = sealed.as_deref();
        let row = self.write_account(tenant_id, key, input, (sealed, terms.pulled), &mut transaction).await?;
        let mut renewal = Renewal::default();
        if had_expired && sealed.is_some() {
            renewal = count_waiting(tenant_id, key, &mut transaction).await?;
        }
        transaction.commit().await?;
        Ok(AccountPut::Done(Box::new(row), renewal))
    }

    /// Whether the database can tell the time there. A statement with a zone that it cannot would fail as a whole, and
    /// hold up all accounts of the tenant.
    async fn knows_time_zone(&self, name: &str) -> Result<bool, StoreError> {
        let asked = sqlx::query_scalar!("SELECT now() AT TIME ZONE $1", name).fetch_one(&self.pool).await;
        match asked {
            // 22023, `invalid_parameter_value`.
            Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("22023") => Ok(false),
            other => Ok(other.map(|_| true)?),
        }
    }

    fn sealed(&self, tenant_id: Uuid, key: &AccountKey, credentials: &Credentials, vault: &Vault) -> Vec<u8> {
        let text = Zeroizing::new(credentials.expose().to_string());
        let row = key.to_string();
        vault.seal(text.as_bytes(), credentials_place(tenant_id, &row), &*self.clock)
    }

    /// Writes account and lane in one statement: their versions are the same at any moment.
    async fn write_account(
        &self,
        tenant_id: Uuid,
        key: &AccountKey,
        input: &AccountInput,
        (sealed, pulled): (Option<&[u8]>, bool),
        transaction: &mut PgTransaction<'_>,
    ) -> Result<AccountRow, StoreError> {
        let row = sqlx::query_as!(
            AccountRow,
            r#"WITH before AS MATERIALIZED (
                SELECT hidden_at IS NOT NULL AS hidden, $8::bytea IS NOT NULL OR settings <> $5 AS anew FROM accounts
                WHERE tenant_id = $1 AND platform = $2 AND account_id = $3
            ), account AS (
                INSERT INTO accounts AS a (tenant_id, platform, account_id, display_name, settings, credentials_sealed,
                    created_at, updated_at)
                VALUES ($1, $2, $3, $4, $5, $8, now() + $9::interval, now() + $9::interval)
                ON CONFLICT (tenant_id, platform, account_id) DO UPDATE
                SET display_name = excluded.display_name, settings = excluded.settings, hidden_at = NULL,
                    credentials_sealed = coalesce(excluded.credentials_sealed, a.credentials_sealed),
                    credentials_version = a.credentials_version + CASE WHEN $8::bytea IS NULL THEN 0 ELSE 1 END,
                    updated_at = excluded.updated_at
                RETURNING *
            ), lane AS (
                INSERT INTO lanes AS l (tenant_id, platform, account_id, max_in_flight, min_interval, free_at,
                    credentials_version, daily_limit, time_zone, pull)
                SELECT tenant_id, platform, account_id, $10, make_interval(secs => $11::int), now() + $9::interval,
                    credentials_version, $6, $7, $14
                FROM account
                ON CONFLICT (tenant_id, platform, account_id) DO UPDATE
                SET max_in_flight = excluded.max_in_flight, min_interval = excluded.min_interval,
                    daily_limit = excluded.daily_limit, time_zone = excluded.time_zone, pull = excluded.pull,
                    parked_until = CASE WHEN NOT (SELECT anew FROM before) THEN l.parked_until END,
                    -- Its last start is not longer ago than its pace: a shorter one, and the end of a pause, hold from now
                    -- on, not after what was set before.
                    free_at = CASE WHEN (SELECT anew FROM before) AND l.parked_until IS NOT NULL
                            THEN least(l.free_at, now() + $9::interval + excluded.min_interval)
                        WHEN l.min_interval <= excluded.min_interval THEN l.free_at
                        ELSE greatest(least(l.free_at, now() + $9::interval + excluded.min_interval), l.parked_until) END,
                    credentials_version = excluded.credentials_version,
                    login_state = CASE WHEN $8::bytea IS NOT NULL OR (SELECT hidden FROM before) THEN 'active'
                        ELSE l.login_state END,
                    resume_from = CASE WHEN $8::bytea IS NULL OR l.login_state = 'active' THEN l.resume_from
                        WHEN $12::boolean THEN now() + $9::interval - $13::interval END,
                    declined_version = CASE WHEN $8::bytea IS NULL OR l.login_state = 'active' OR $12::boolean
                        THEN l.declined_version ELSE l.credentials_version END
                RETURNING *
            )
            SELECT a.platform AS "platform!", a.account_id AS "account_id!", a.display_name AS "display_name!",
                a.settings AS "settings!", extract(epoch FROM l.min_interval)::bigint AS "min_interval_seconds!",
                l.max_in_flight AS "max_in_flight!", l.daily_limit, l.time_zone AS "time_zone!",
                l.login_state AS "login_state!", a.credentials_sealed IS NOT NULL AS "credentials_set!",
                a.created_at AS "created_at!", a.updated_at AS "updated_at!",
                greatest(CASE WHEN l.parked_until > now() + $9::interval THEN l.parked_until END,
                    full_until(l.daily_limit, l.day, l.day_count, l.time_zone, now() + $9::interval)) AS parked_until
            FROM account a CROSS JOIN lane l"#,
            tenant_id,
            key.platform(),
            key.account_id(),
            input.display_name,
            input.settings,
            input.daily_limit,
            input.time_zone,
            sealed,
            self.clock.skew() as _,
            input.max_in_flight,
            input.min_interval_seconds,
            input.resume,
            RESUME_WITHIN as _,
            pulled,
        );
        Ok(row.fetch_one(&mut **transaction).await?)
    }

    /// Hides an account of which nothing is unfinished, takes it out of all groups, and forgets its credentials.
    pub async fn delete_account(
        &self,
        tenant_id: Uuid,
        key: &AccountKey,
    ) -> Result<AccountDeleted, StoreError> {
        let mut transaction = self.pool.begin().await?;
        let Some((groups, unfinished)) = lock_whole(tenant_id, key, &mut transaction).await? else {
            return Ok(AccountDeleted::Absent);
        };
        if unfinished != Unfinished::default() {
            return Ok(AccountDeleted::Unfinished(unfinished));
        }
        sqlx::query!(
            "WITH gone AS (
                DELETE FROM group_members
                WHERE tenant_id = $1 AND platform = $2 AND account_id = $3 AND group_code = ANY ($4::text[])
            ), changed AS (
                -- A new version of the row is what tells an article that is being accepted to look again.
                UPDATE groups SET updated_at = now() + $5::interval
                WHERE tenant_id = $1 AND group_code = ANY ($4::text[])
            )
            UPDATE accounts SET hidden_at = now() + $5::interval, credentials_sealed = NULL
            WHERE tenant_id = $1 AND platform = $2 AND account_id = $3",
            tenant_id,
            key.platform(),
            key.account_id(),
            &groups,
            self.clock.skew() as _,
        )
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(AccountDeleted::Done)
    }
}

async fn count_accounts(tenant_id: Uuid, transaction: &mut PgTransaction<'_>) -> Result<usize, StoreError> {
    let count = sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM accounts WHERE tenant_id = $1 AND hidden_at IS NULL"#,
        tenant_id
    );
    Ok(usize::try_from(count.fetch_one(&mut **transaction).await?).unwrap_or(usize::MAX))
}

/// What goes on and what does not, as the lane that was just renewed says: the worker resumes by the same rule.
pub(super) async fn count_waiting(
    tenant_id: Uuid,
    key: &AccountKey,
    transaction: &mut PgTransaction<'_>,
) -> Result<Renewal, StoreError> {
    let counts = sqlx::query!(
        r#"SELECT count(*) AS "waiting!", count(*) FILTER (WHERE p.updated_at >= l.resume_from
                AND p.credentials_version > l.declined_version) AS "resumed!"
        FROM lanes l JOIN publications p
            ON p.tenant_id = l.tenant_id AND p.platform = l.platform AND p.account_id = l.account_id
        WHERE l.tenant_id = $1 AND l.platform = $2 AND l.account_id = $3 AND p.status = 'login_expired'"#,
        tenant_id,
        key.platform(),
        key.account_id(),
    )
    .fetch_one(&mut **transaction)
    .await?;
    Ok(Renewal { renewed: true, resumed: counts.resumed, left: counts.waiting - counts.resumed })
}
