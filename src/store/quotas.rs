//! The daily quota of a tenant: given out in shares, exactly, whatever the number of nodes and whatever becomes of them.
//!
//! Each writer of each node has a share. The statement that accepts articles locks the share, takes what it inserts from it
//! and commits both together (`super::tasks`), so a share says what is left of it after any crash. A share that is used up
//! asks for more ([`Store::grant_quota`]). The more is left of the day, the more it gets, down to one; where the rest of the day
//! does not do, what is left in all other shares is taken back first, of the living and of the dead: nothing waits for a
//! lease to run out, and nothing is lost.

use chrono::{DateTime, NaiveDate, NaiveTime, TimeDelta, Utc};
use uuid::Uuid;

use super::{Store, StoreError};
use crate::tenant::limits::{BurstAlone, Limits, LimitsChange, Rate};

/// The most that a share gets at once, unless more wait for it: twice a full batch, so that asking is seldom.
const GRANT_MOST: i32 = 256;

/// A share gets one of so many parts of what is left of the day: four nodes of four writers come to all of it, and near the
/// limit each gets one.
const GRANT_PARTS: i32 = 16;

/// How a tenant's quota stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaStanding {
    /// Articles a day.
    pub limit: u32,
    /// How many are left of this day.
    pub left: u32,
    /// When the next day begins: midnight in UTC.
    pub until: DateTime<Utc>,
}

impl QuotaStanding {
    fn of(limit: i32, left: i64, day: NaiveDate) -> Self {
        let until = day.and_time(NaiveTime::MIN).and_utc() + TimeDelta::days(1);
        Self { limit: number(limit), left: u32::try_from(left).unwrap_or(0), until }
    }
}

/// What a share was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grant {
    /// As much as there was, or nothing.
    Given {
        /// What is in the share now: nothing only where nothing is left of the day.
        amount: u32,
        /// How the quota stands after it.
        standing: QuotaStanding,
    },
    /// The tenant has no quota any more.
    Unlimited,
}

/// What became of a change of limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitsSet {
    /// These hold now.
    Done(Limits),
    /// Nothing: it does not fit what the tenant has.
    BurstAlone(BurstAlone),
    /// There is no such tenant.
    NoTenant,
}

/// Limits as they are stored; the database holds none below 1.
pub(super) fn limits(per_second: Option<i32>, burst: Option<i32>, articles_per_day: Option<i32>) -> Limits {
    let rate = per_second.zip(burst);
    Limits {
        rate: rate.map(|(rate, burst)| Rate { per_second: number(rate), burst: number(burst) }),
        articles_per_day: articles_per_day.map(number),
    }
}

fn number(stored: i32) -> u32 {
    u32::try_from(stored).unwrap_or(0)
}

fn column(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

impl Store {
    /// Changes a tenant's limits. They hold from now on where they are asked for anew, which each node does for every key
    /// within seconds; a quota counts what the day has had already.
    pub async fn set_limits(&self, name: &str, change: &LimitsChange) -> Result<LimitsSet, StoreError> {
        let mut transaction = self.pool.begin().await?;
        // Shares are given under a weaker lock of it: none is given by the old limit after this.
        let before = sqlx::query!(
            "SELECT tenant_id, rate_per_second, rate_burst, articles_per_day FROM tenants WHERE name = $1 FOR UPDATE",
            name,
        )
        .fetch_optional(&mut *transaction)
        .await?;
        let Some(before) = before else { return Ok(LimitsSet::NoTenant) };
        let present = limits(before.rate_per_second, before.rate_burst, before.articles_per_day);
        let after = match change.of(present) {
            Ok(after) => after,
            Err(alone) => return Ok(LimitsSet::BurstAlone(alone)),
        };
        sqlx::query!(
            "UPDATE tenants SET rate_per_second = $2, rate_burst = $3, articles_per_day = $4 WHERE tenant_id = $1",
            before.tenant_id,
            after.rate.map(|rate| column(rate.per_second)),
            after.rate.map(|rate| column(rate.burst)),
            after.articles_per_day.map(column),
        )
        .execute(&mut *transaction)
        .await?;
        if after.articles_per_day != present.articles_per_day {
            // The next who needs some counts what the day has had, also without a quota.
            sqlx::query!("DELETE FROM quotas WHERE tenant_id = $1", before.tenant_id)
                .execute(&mut *transaction)
                .await?;
            sqlx::query!("DELETE FROM quota_shares WHERE tenant_id = $1", before.tenant_id)
                .execute(&mut *transaction)
                .await?;
        }
        transaction.commit().await?;
        Ok(LimitsSet::Done(after))
    }

    /// Gives a share at least `wanted`, if the tenant's day has that many.
    pub async fn grant_quota(
        &self,
        tenant_id: Uuid,
        share_id: Uuid,
        wanted: u32,
    ) -> Result<Grant, StoreError> {
        let row = sqlx::query!(
            "SELECT daily, today, own, unused FROM quota_grant($1, $2, $3, $4, $5, now() + $6::interval)",
            tenant_id,
            share_id,
            column(wanted),
            GRANT_MOST,
            GRANT_PARTS,
            self.clock.skew() as _,
        )
        .fetch_one(&self.pool)
        .await?;
        let (Some(limit), Some(day)) = (row.daily, row.today) else { return Ok(Grant::Unlimited) };
        let standing = QuotaStanding::of(limit, row.unused.unwrap_or(0), day);
        Ok(Grant::Given { amount: row.own.map_or(0, number), standing })
    }

    /// How a tenant's quota stands; none if it has none.
    pub async fn quota_standing(&self, tenant_id: Uuid) -> Result<Option<QuotaStanding>, StoreError> {
        let row = sqlx::query!(
            r#"SELECT articles_per_day AS "limit!", day AS "day!",
                articles_per_day - CASE WHEN begun = day THEN given - (
                    SELECT coalesce(sum(amount), 0) FROM quota_shares s WHERE s.tenant_id = $1
                ) ELSE quota_had($1, day) END AS "left!"
            FROM (SELECT t.articles_per_day, q.given, q.day AS begun, account_day(q.day, 'UTC', now() + $2::interval) AS day
                FROM tenants t LEFT JOIN quotas q ON q.tenant_id = t.tenant_id
                WHERE t.tenant_id = $1 AND t.articles_per_day IS NOT NULL) t"#,
            tenant_id,
            self.clock.skew() as _,
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(row.map(|row| QuotaStanding::of(row.limit, row.left, row.day)))
    }
}
