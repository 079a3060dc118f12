//! What waits for a login: expiring what is due on a parked account, and resuming it when the login was renewed.
//!
//! Both are rules that hold, not events that could be missed: whoever works looks at the lanes, and goes on until nothing
//! is left. A publication becomes `login_expired` only under its lane's lock while the lane says so, and a renewal takes
//! that lock, so what a renewal finds is all that waits.

use std::time::Duration;

use chrono::TimeDelta;
use uuid::Uuid;

use super::{Move, Store, StoreError, Telling};
use crate::retry::interval;
use crate::task::state::Status;

/// The error of a publication that was due while its account's login was known to be expired.
const NOT_CALLED: &str = "the account's login has expired, so the platform was not called; renew the account's credentials, \
    and this goes on by itself";

/// The error code of everything that waits for a login.
pub const LOGIN_EXPIRED: &str = "login_expired";

impl Store {
    /// Marks what is due on parked accounts of one tenant as `login_expired`, the earliest first and at most 100 at once;
    /// returns how many, each with its event.
    pub async fn expire_due(&self, tenant_id: Uuid, telling: Telling) -> Result<usize, StoreError> {
        let mut transaction = self.pool.begin().await?;
        // Skips what others hold, so it waits for nobody, in whatever order it locks.
        let due = sqlx::query!(
            "SELECT p.publication_id, p.fence FROM lanes l CROSS JOIN LATERAL (
                SELECT p.publication_id, p.fence FROM publications p
                WHERE p.tenant_id = l.tenant_id AND p.platform = l.platform AND p.account_id = l.account_id
                    AND p.status = 'submitted' AND p.due_at <= now() + $2::interval
                ORDER BY p.due_at LIMIT 100 FOR UPDATE SKIP LOCKED) p
            WHERE l.tenant_id = $1 AND l.login_state = 'login_expired' LIMIT 100",
            tenant_id,
            self.clock.skew() as _,
        )
        .fetch_all(&mut *transaction)
        .await?;
        let moves = due.into_iter().map(|row| Move {
            error: Some((LOGIN_EXPIRED.to_owned(), NOT_CALLED.to_owned(), true)),
            reason: "account_login_expired",
            ..Move::new(tenant_id, (row.publication_id, row.fence), (Status::Submitted, Status::LoginExpired))
        });
        let moves = moves.collect::<Vec<_>>();
        if moves.is_empty() {
            return Ok(0);
        }
        let expired = self.apply(tenant_id, &moves, telling, &mut transaction).await?;
        transaction.commit().await?;
        Ok(expired.len())
    }

    /// Resumes what waits on accounts of one tenant whose login was renewed, in a new round, at most 200 at once; returns
    /// how many. What is resumed keeps the time it was due, so it goes on in order, and at its lane's pace.
    pub async fn resume(&self, tenant_id: Uuid, telling: Telling) -> Result<usize, StoreError> {
        let mut transaction = self.pool.begin().await?;
        let waiting = sqlx::query!(
            "SELECT p.publication_id, p.fence FROM lanes l CROSS JOIN LATERAL (
                SELECT p.publication_id, p.fence FROM publications p
                WHERE p.tenant_id = l.tenant_id AND p.platform = l.platform AND p.account_id = l.account_id
                    AND p.status = 'login_expired' AND p.expired_at >= l.resume_from
                    AND p.credentials_version > l.declined_version
                ORDER BY p.expired_at LIMIT 200 FOR UPDATE SKIP LOCKED) p
            WHERE l.tenant_id = $1 AND l.resume_from IS NOT NULL AND l.login_state = 'active' LIMIT 200",
            tenant_id,
        )
        .fetch_all(&mut *transaction)
        .await?;
        let moves = waiting.into_iter().map(|row| Move {
            new_round: true,
            reason: "login_renewed",
            ..Move::new(tenant_id, (row.publication_id, row.fence), (Status::LoginExpired, Status::Submitted))
        });
        let moves = moves.collect::<Vec<_>>();
        if !moves.is_empty() {
            self.apply(tenant_id, &moves, telling, &mut transaction).await?;
            transaction.commit().await?;
            return Ok(moves.len());
        }
        // Asked again, since what was skipped is not gone; and in a statement of its own once the lanes are locked, since one
        // that waits for a lock does not see what was written meanwhile.
        sqlx::query!(
            r#"SELECT true AS "there!" FROM lanes WHERE tenant_id = $1 AND resume_from IS NOT NULL
            ORDER BY platform, account_id FOR NO KEY UPDATE"#,
            tenant_id,
        )
        .fetch_all(&mut *transaction)
        .await?;
        sqlx::query!(
            "UPDATE lanes l SET resume_from = NULL
            WHERE l.tenant_id = $1 AND l.resume_from IS NOT NULL AND NOT EXISTS (
                SELECT FROM publications p
                WHERE p.tenant_id = l.tenant_id AND p.platform = l.platform AND p.account_id = l.account_id
                    AND p.status = 'login_expired' AND p.expired_at >= l.resume_from
                    AND p.credentials_version > l.declined_version)",
            tenant_id,
        )
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(0)
    }

    /// When the earliest account that has something due within `horizon` is free again, from now on, if its pace alone holds
    /// it up, its platform's wish for a pause, or a day that is full.
    pub async fn next_free(
        &self,
        tenant_id: Uuid,
        horizon: Duration,
    ) -> Result<Option<TimeDelta>, StoreError> {
        let seconds = sqlx::query_scalar!(
            r#"WITH RECURSIVE early AS MATERIALIZED (
                -- As for a claim: few are due, or each account is looked at.
                SELECT platform, account_id, due_at FROM publications
                WHERE tenant_id = $1 AND status = 'submitted' AND fence >= 0
                    AND due_at <= now() + $2::interval + $3::interval
                ORDER BY tenant_id, due_at LIMIT 129
            ), due AS (
                (SELECT platform, account_id, due_at FROM publications
                WHERE tenant_id = $1 AND status = 'submitted' AND (SELECT count(*) FROM early) > 128
                ORDER BY tenant_id, platform, account_id, due_at LIMIT 1)
                UNION ALL
                SELECT n.platform, n.account_id, n.due_at FROM due CROSS JOIN LATERAL (
                    SELECT p.platform, p.account_id, p.due_at FROM publications p
                    WHERE p.tenant_id = $1 AND p.status = 'submitted'
                        AND (p.platform, p.account_id) > (due.platform, due.account_id)
                    ORDER BY p.tenant_id, p.platform, p.account_id, p.due_at LIMIT 1) n
            )
            SELECT min(extract(epoch FROM greatest(due.due_at, l.free_at, full_until(l.daily_limit, l.day, l.day_count,
                l.time_zone, now() + $2::interval)) - now() - $2::interval))::float8 AS "wait"
            FROM (
                SELECT platform, account_id, min(due_at) AS due_at FROM (SELECT * FROM early UNION ALL SELECT * FROM due) e
                GROUP BY 1, 2) due
            JOIN lanes l ON l.tenant_id = $1 AND l.platform = due.platform AND l.account_id = due.account_id
            WHERE NOT l.pull AND l.in_flight < l.max_in_flight AND l.login_state = 'active'"#,
            tenant_id,
            self.clock.skew() as _,
            interval(horizon) as _,
        )
        .fetch_one(&self.pool)
        .await?;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a wait of at most a schedule's length, in microseconds"
        )]
        Ok(seconds.map(|seconds| TimeDelta::microseconds((seconds.max(0.0) * 1e6).ceil() as i64)))
    }
}
