//! Contents and journals of tasks, which are walked by their ids.

use std::time::Duration;

use chrono::TimeDelta;
use uuid::Uuid;

use super::Step;
use crate::retention::keep::Keep;
use crate::retry::interval;
use crate::store::{Store, StoreError};

/// How often the walk begins anew: what it passed then is met again, at the cost of passing the traces of what was removed, for
/// which a vacuum has had the time.
const LAP: TimeDelta = TimeDelta::hours(24);

/// Which tasks are looked at.
struct Walk {
    tenant_id: Uuid,
    /// Up to which id.
    before: Uuid,
    /// How long ago they must have ended to go.
    age: Duration,
    /// How many at most.
    most: i64,
}

/// What was met.
struct Found {
    /// Those that were marked.
    gone: Option<Vec<Uuid>>,
    /// The last that was looked at.
    last: Option<Uuid>,
    /// The first that had not ended long enough.
    kept: Option<Uuid>,
    /// How many were looked at.
    looked: i64,
}

impl Store {
    /// Removes content and journal of the next tasks of a tenant, of at most `most`, that have ended long enough ago.
    ///
    /// Kept is what may still go on by itself, or what a person has yet to decide: an unknown outcome, a try or a removal whose
    /// answer is not known, drafts on the platform that are looked for, and what waits for a login and was begun or is just
    /// being resumed. Whatever changes a publication changes its task, too, which is locked here: what is seen stays so.
    pub async fn remove_contents(&self, tenant_id: Uuid, keep: &Keep, most: i64) -> Result<Step, StoreError> {
        let (Some(age), Some(before)) = (keep.contents, self.contents_before(keep)) else {
            return Ok(Step::default());
        };
        let mut transaction = self.pool.begin().await?;
        let Some(held) = self.lock_removal(tenant_id, &mut transaction).await? else {
            return Ok(Step::default());
        };
        let walk = Walk { tenant_id, before, age, most };
        let mut from = held.contents_after;
        let mut found = self.mark_ripe(&walk, from, &mut transaction).await?;
        // Not before the walk is at its end: one that takes longer than a lap would never come to it.
        let laps = held.lap_due && found.looked == 0;
        if laps {
            from = Uuid::nil();
            found = self.mark_ripe(&walk, from, &mut transaction).await?;
        }
        let gone = found.gone.unwrap_or_default();
        if !gone.is_empty() {
            self.remove_of_tasks(tenant_id, &gone, &mut transaction).await?;
        }
        let full = found.looked >= most;
        // At its end the walk stands where the age to remove begins, and not behind the last that it met: between the two lies
        // nothing but traces of what was removed.
        let end = if full { found.last.unwrap_or_default() } else { before_of(before) };
        let kept = held.contents_kept.filter(|_| !laps).or(found.kept);
        sqlx::query!(
            "UPDATE retentions SET contents_after = $2, contents_kept = $3, contents_removed = contents_removed + $4,
                contents_removed_at = CASE WHEN $4 > 0 THEN now() + $6::interval ELSE contents_removed_at END,
                lap_at = CASE WHEN $5 THEN now() + $6::interval + $7::interval ELSE lap_at END
            WHERE tenant_id = $1",
            tenant_id,
            end.max(from),
            kept,
            i64::try_from(gone.len()).unwrap_or_default(),
            laps,
            self.clock.skew() as _,
            LAP as _,
        )
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(Step { removed: gone.len() as u64, more: full || held.lap_due && !laps })
    }

    /// Looks at the next tasks behind `after`, and marks those of them that have ended long enough ago.
    async fn mark_ripe(
        &self,
        walk: &Walk,
        after: Uuid,
        transaction: &mut sqlx::PgTransaction<'_>,
    ) -> Result<Found, StoreError> {
        let found = sqlx::query_as!(
            Found,
            r#"WITH looked AS MATERIALIZED (
                SELECT a.task_id FROM articles a WHERE a.tenant_id = $1 AND a.task_id > $2 AND a.task_id < $3
                ORDER BY a.tenant_id, a.task_id LIMIT $4
            ), ripe AS MATERIALIZED (
                SELECT t.task_id FROM tasks t
                WHERE t.tenant_id = $1 AND t.task_id = ANY (ARRAY(SELECT task_id FROM looked))
                    AND t.finished_at <= now() + $5::interval - $6::interval AND t.content_removed_at IS NULL
                    AND (SELECT true FROM publications p WHERE p.tenant_id = $1 AND p.task_id = t.task_id
                        AND (p.status NOT IN ('success', 'failed', 'login_expired') OR p.sweep_at IS NOT NULL
                            OR p.status = 'failed' AND p.error_code = 'outcome_unknown'
                            OR p.status = 'login_expired' AND (p.attempts > 0 OR p.drafts > 0 OR (
                                SELECT true FROM lanes l WHERE l.tenant_id = $1 AND l.platform = p.platform
                                    AND l.account_id = p.account_id AND l.resume_from <= p.expired_at) IS NOT NULL)
                            OR (SELECT true FROM attempts o WHERE o.tenant_id = $1 AND o.publication_id = p.publication_id
                                AND o.ended_at IS NULL LIMIT 1) IS NOT NULL)
                        LIMIT 1) IS NULL
                ORDER BY t.task_id FOR NO KEY UPDATE OF t SKIP LOCKED
            ), marked AS (
                UPDATE tasks t SET content_removed_at = now() + $5::interval
                WHERE t.tenant_id = $1 AND t.task_id = ANY (ARRAY(SELECT task_id FROM ripe))
                RETURNING t.task_id
            )
            SELECT (SELECT array_agg(task_id) FROM marked) AS gone,
                (SELECT l.task_id FROM looked l ORDER BY l.task_id DESC LIMIT 1) AS last,
                (SELECT l.task_id FROM looked l WHERE l.task_id <> ALL (ARRAY(SELECT task_id FROM marked))
                    ORDER BY l.task_id LIMIT 1) AS kept,
                (SELECT count(*) FROM looked) AS "looked!""#,
            walk.tenant_id,
            after,
            walk.before,
            walk.most,
            self.clock.skew() as _,
            interval(walk.age) as _,
        )
        .fetch_one(&mut **transaction)
        .await?;
        Ok(found)
    }

    /// Removes what is of tasks that were marked in this transaction; in a statement of its own, since the database looks
    /// for the mark.
    async fn remove_of_tasks(
        &self,
        tenant_id: Uuid,
        gone: &[Uuid],
        transaction: &mut sqlx::PgTransaction<'_>,
    ) -> Result<(), StoreError> {
        sqlx::query!(
            "WITH tries AS (
                DELETE FROM attempts WHERE tenant_id = $1 AND publication_id = ANY (ARRAY(
                    SELECT publication_id FROM publications WHERE tenant_id = $1 AND task_id = ANY ($2)))
            ), moves AS (
                DELETE FROM transitions WHERE tenant_id = $1 AND task_id = ANY ($2)
            )
            DELETE FROM articles WHERE tenant_id = $1 AND task_id = ANY ($2)",
            tenant_id,
            gone,
        )
        .execute(&mut **transaction)
        .await?;
        Ok(())
    }
}

/// The id before another.
fn before_of(id: Uuid) -> Uuid {
    Uuid::from_u128(id.as_u128().saturating_sub(1))
}
