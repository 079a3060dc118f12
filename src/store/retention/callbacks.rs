//! Callbacks that are pending for too long, which are given up, and replays that are done.

use uuid::Uuid;

use super::{PENDING_LOOKED, Step};
use crate::retention::keep::Keep;
use crate::retry::interval;
use crate::store::{Store, StoreError};

impl Store {
    /// Gives up callbacks of a tenant that are pending for too long, since their event or since they were last asked for again:
    /// only what is sent counts as a try, and to a receiver that is dead for good little is sent.
    pub async fn give_up_pending(&self, tenant_id: Uuid, keep: &Keep, most: i64) -> Result<Step, StoreError> {
        let given_up = sqlx::query!(
            "WITH old AS MATERIALIZED (
                SELECT c.event_id FROM (
                    SELECT c.event_id, c.replayed_at, c.created_at FROM callbacks c
                    WHERE c.tenant_id = $1 AND c.status = 'pending' AND c.status <> 'delivered' AND c.tries >= 0
                        AND c.event_id < $2
                    ORDER BY c.tenant_id, c.status, c.event_id LIMIT $3) c
                WHERE coalesce(c.replayed_at, c.created_at) < now() + $4::interval - $5::interval
                LIMIT $6
            ), locked AS MATERIALIZED (
                SELECT c.event_id FROM callbacks c
                WHERE c.tenant_id = $1 AND c.event_id = ANY (ARRAY(SELECT event_id FROM old)) AND c.status = 'pending'
                    AND c.lease_until IS NULL AND coalesce(c.replayed_at, c.created_at) < now() + $4::interval - $5::interval
                ORDER BY c.event_id FOR UPDATE SKIP LOCKED
            )
            UPDATE callbacks SET status = 'exhausted', ended_at = now() + $4::interval
            WHERE tenant_id = $1 AND event_id = ANY (ARRAY(SELECT event_id FROM locked))",
            tenant_id,
            self.first_id_before(keep.pending),
            PENDING_LOOKED,
            self.clock.skew() as _,
            interval(keep.pending) as _,
            most,
        )
        .execute(&self.pool)
        .await?;
        let removed = given_up.rows_affected();
        Ok(Step { removed, more: i64::try_from(removed).is_ok_and(|removed| removed >= most) })
    }

    /// Removes replays of a tenant that were done long enough ago.
    pub async fn remove_replays(&self, tenant_id: Uuid, keep: &Keep, most: i64) -> Result<Step, StoreError> {
        let Some(age) = keep.events else { return Ok(Step::default()) };
        let gone = sqlx::query!(
            "DELETE FROM replays WHERE tenant_id = $1 AND replay_id = ANY (ARRAY(
                SELECT replay_id FROM replays
                WHERE tenant_id = $1 AND replay_id < $2 AND finished_at < now() + $3::interval - $4::interval
                ORDER BY tenant_id, replay_id LIMIT $5 FOR UPDATE SKIP LOCKED))",
            tenant_id,
            self.first_id_before(age),
            self.clock.skew() as _,
            interval(age) as _,
            most,
        )
        .execute(&self.pool)
        .await?;
        let removed = gone.rows_affected();
        Ok(Step { removed, more: i64::try_from(removed).is_ok_and(|removed| removed >= most) })
    }
}
