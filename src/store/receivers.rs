//! Receivers of callbacks: when one is free again, how many are left alone, and what lets a callback through.

use std::time::Duration;

use uuid::Uuid;

use super::{Store, StoreError};
use crate::callback::breaker::FAILURES_MAX;

/// Which receivers a claim is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receivers {
    /// All.
    All,
    /// Those whose last answer was 2xx.
    Proven,
}

impl Store {
    /// How long until something that waits for a receiver of a tenant can be sent, for which a claim found none; none if
    /// nothing waits but for what is under way.
    pub async fn receiver_free(
        &self,
        tenant_id: Uuid,
        receivers: Receivers,
    ) -> Result<Option<Duration>, StoreError> {
        let seconds = sqlx::query_scalar!(
            r#"WITH RECURSIVE due AS (
                (SELECT receiver, due_at FROM callbacks
                WHERE tenant_id = $1 AND status = 'pending' AND lease_until IS NULL
                ORDER BY tenant_id, receiver, due_at LIMIT 1)
                UNION ALL
                SELECT n.receiver, n.due_at FROM due CROSS JOIN LATERAL (
                    SELECT c.receiver, c.due_at FROM callbacks c
                    WHERE c.tenant_id = $1 AND c.status = 'pending' AND c.lease_until IS NULL
                        AND c.receiver > due.receiver
                    ORDER BY c.tenant_id, c.receiver, c.due_at LIMIT 1) n
            )
            SELECT min(extract(epoch FROM greatest(due.due_at, r.free_at) - now() - $2::interval))::float8 AS "wait"
            FROM due JOIN receivers r ON r.tenant_id = $1 AND r.receiver = due.receiver
            WHERE r.in_flight < CASE WHEN r.proven THEN r.max_in_flight ELSE 1 END AND (r.proven OR $3)"#,
            tenant_id,
            self.clock.skew() as _,
            receivers == Receivers::All,
        )
        .fetch_one(&self.pool)
        .await?;
        // What has passed is no wait.
        Ok(seconds.map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or_default()))
    }

    /// How many receivers have an open breaker, of all tenants.
    pub async fn breakers_open(&self) -> Result<i64, StoreError> {
        // The number is `FAILURES_MAX`, and written here for the index.
        let open = sqlx::query_scalar!(r#"SELECT count(*) AS "n!" FROM receivers WHERE failures >= 5"#);
        Ok(open.fetch_one(&self.pool).await?)
    }

    /// Lets a callback through to a receiver that is left alone, before all that waits for it: somebody says that it is
    /// back. It is a probe, whose answer says what becomes of the rest; where one is under way, it is the next.
    pub(super) async fn let_through(
        &self,
        tenant_id: Uuid,
        event_id: Uuid,
        transaction: &mut sqlx::PgTransaction<'_>,
    ) -> Result<(), StoreError> {
        sqlx::query!(
            "WITH held AS MATERIALIZED (
                SELECT r.receiver FROM callbacks c JOIN receivers r ON r.tenant_id = $1 AND r.receiver = c.receiver
                WHERE c.tenant_id = $1 AND c.event_id = $2 AND c.lease_until IS NULL
                    AND (r.free_at > now() + $3::interval OR r.failures >= $4)
                FOR NO KEY UPDATE OF r
            ), first AS (
                UPDATE callbacks c SET due_at = least(c.due_at, (
                    SELECT o.due_at FROM callbacks o
                    WHERE o.tenant_id = $1 AND o.receiver = h.receiver AND o.status = 'pending' AND o.lease_until IS NULL
                    ORDER BY o.tenant_id, o.receiver, o.due_at LIMIT 1) - interval '1 microsecond')
                FROM held h WHERE c.tenant_id = $1 AND c.event_id = $2
            )
            UPDATE receivers r SET free_at = now() + $3::interval, proven = false, 
                -- Of an open breaker: there is a probe already, and after that this one goes.
                recovering = r.failures < $4 OR r.in_flight > 0
            FROM held h WHERE r.tenant_id = $1 AND r.receiver = h.receiver",
            tenant_id,
            event_id,
            self.clock.skew() as _,
            FAILURES_MAX,
        )
        .execute(&mut **transaction)
        .await?;
        Ok(())
    }
}
