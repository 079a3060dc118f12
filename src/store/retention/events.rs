//! Events with their callbacks, which go from the feed's beginning.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::Step;
use crate::retention::keep::{EVENTS_MIN, Keep};
use crate::retry::interval;
use crate::store::{Store, StoreError};

/// Which events of a tenant's feed were removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventsRemoved {
    /// When the newest of them was written.
    pub before: DateTime<Utc>,
    /// When the last of them were removed.
    pub at: DateTime<Utc>,
}

impl Store {
    /// Removes the next events of a tenant's feed, of at most `most`, that are old enough, with their callbacks; up to the
    /// first that one keeps: it is pending, was given up less than [`EVENTS_MIN`] ago, or is about to be sent again.
    pub async fn remove_events(&self, tenant_id: Uuid, keep: &Keep, most: i64) -> Result<Step, StoreError> {
        let Some(age) = keep.events else { return Ok(Step::default()) };
        let mut transaction = self.pool.begin().await?;
        let Some(held) = self.lock_removal(tenant_id, &mut transaction).await? else {
            return Ok(Step::default());
        };
        let next = sqlx::query!(
            r#"SELECT e.position, e.event_id, e.created_at,
                e.created_at < now() + $4::interval - $5::interval
                    AND coalesce(c.status <> 'pending' AND (c.status = 'delivered'
                        OR c.ended_at <= now() + $4::interval - $6::interval), true)
                    AND (SELECT true FROM replays p JOIN replay_events x USING (tenant_id, replay_id)
                        WHERE p.tenant_id = $1 AND p.finished_at IS NULL AND x.event_id = e.event_id LIMIT 1) IS NULL AS "goes!",
                c.event_id IS NOT NULL AS "called!"
            -- A range and not a limit, of which the planner would guess that it is a tenth of the feed: it has no gap.
            FROM (SELECT * FROM events e WHERE e.tenant_id = $1 AND e.position > $2 AND e.position <= $2 + $3) e
            LEFT JOIN LATERAL (
                SELECT * FROM callbacks c WHERE c.tenant_id = $1 AND c.event_id = e.event_id LIMIT 1) c ON true
            ORDER BY e.position"#,
            tenant_id,
            held.events_removed_to,
            most,
            self.clock.skew() as _,
            interval(age) as _,
            interval(EVENTS_MIN) as _,
        )
        .fetch_all(&mut *transaction)
        .await?;
        let old = next.into_iter().take_while(|one| one.goes).collect::<Vec<_>>();
        // Under lock: what is asked for again just now stays, and what comes behind it.
        let locked = sqlx::query_scalar!(
            "SELECT event_id FROM callbacks WHERE tenant_id = $1 AND event_id = ANY ($2) AND status <> 'pending'
            ORDER BY event_id FOR UPDATE SKIP LOCKED",
            tenant_id,
            &old.iter().map(|one| one.event_id).collect::<Vec<_>>(),
        )
        .fetch_all(&mut *transaction)
        .await?;
        let gone =
            old.iter().take_while(|one| !one.called || locked.contains(&one.event_id)).collect::<Vec<_>>();
        let Some(last) = gone.last() else { return Ok(Step::default()) };
        let before = gone.iter().map(|one| one.created_at).max();
        // In a statement of its own, and first: the database looks for it.
        sqlx::query!(
            "UPDATE retentions SET events_removed_to = $2, events_removed_before = greatest(events_removed_before, $3),
                events_removed_at = now() + $4::interval
            WHERE tenant_id = $1",
            tenant_id,
            last.position,
            before,
            self.clock.skew() as _,
        )
        .execute(&mut *transaction)
        .await?;
        sqlx::query!(
            "WITH tries AS (
                DELETE FROM callback_tries WHERE tenant_id = $1 AND event_id = ANY ($2)
            ), calls AS (
                DELETE FROM callbacks WHERE tenant_id = $1 AND event_id = ANY ($2)
            )
            DELETE FROM events WHERE tenant_id = $1 AND event_id = ANY ($2)",
            tenant_id,
            &gone.iter().map(|one| one.event_id).collect::<Vec<_>>(),
        )
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        let full = i64::try_from(gone.len()).is_ok_and(|gone| gone >= most);
        Ok(Step { removed: gone.len() as u64, more: full })
    }

    /// Which of a tenant's events were removed by age, if any were.
    pub async fn events_removed(&self, tenant_id: Uuid) -> Result<Option<EventsRemoved>, StoreError> {
        let row = sqlx::query!(
            "SELECT events_removed_before, events_removed_at FROM retentions WHERE tenant_id = $1",
            tenant_id,
        );
        let row = row.fetch_optional(&self.pool).await?;
        Ok(row.and_then(|row| {
            Some(EventsRemoved { before: row.events_removed_before?, at: row.events_removed_at? })
        }))
    }
}
