//! Removing by age what has ended, and giving up what is pending for too long.
//!
//! | table | grows with | what goes |
//! | --- | --- | --- |
//! | `tasks`, `publications` | articles | nothing: they are the keys and the outcomes, with digests, marker and warnings |
//! | `articles`, `attempts`, `transitions` | articles and tries | with `PUBLISH_KEEP`, together, when all of a task has ended |
//! | `events`, `callbacks`, `callback_tries` | ends and tries | with `PUBLISH_KEEP_EVENTS`, from the feed's beginning |
//! | `replays` | calls of operators | with `PUBLISH_KEEP_EVENTS`, when they are done |
//! | `replay_events`, `quota_shares` | what is under way | nothing: a row goes with the work it stands for |
//! | `sandbox_*` | what is rehearsed | nothing here: the sandbox bounds what it holds, but for a count by article, and is emptied by a call |
//! | `receivers` | hosts that are called | nothing: fewer than tasks, and a claim counts on its row |
//! | `tenants`, `feeds`, `quotas`, `retentions` | tenants | nothing: one row each |
//! | `api_keys`, `signing_secrets`, `accounts`, `lanes`, `groups`, `group_members` | what people set up | nothing |
//!
//! Nothing is looked at twice: ids of tasks are made by time, so contents are walked by them from `contents_after` on, up to
//! where the age to remove begins. What had not ended long enough when the walk came by is met again by the next lap, at most
//! once in [`LAP`]; a lap begins at the first of these and not at the beginning, where nothing but traces of what was removed
//! lies. The feed is one line, of which the end that is gone is known.
//!
//! One transaction removes a batch: it holds the tenant's row in `retentions`, before all other locks, so each tenant is served
//! by one node at a time; then it locks tasks, or callbacks, passing by those that others hold.

use chrono::{DateTime, TimeDelta, Utc};
use uuid::Uuid;

use super::task_list::{CLOCKS_APART, first_id_at};
use super::{Store, StoreError};
use crate::retention::keep::{EVENTS_MIN, Keep};
use crate::retry::interval;

/// How many tasks, events or callbacks one transaction deals with at most: some milliseconds' work, and a lock of no more rows.
pub const REMOVE_MOST: i64 = 200;

/// How long after its acceptance a task is first looked at, beyond the keep: most have ended by then, and are not met twice.
const ENDED_WITHIN: TimeDelta = TimeDelta::hours(1);

/// How often what had not ended long enough is looked at again at most.
const LAP: TimeDelta = TimeDelta::hours(24);

/// How many pending callbacks are looked at for those that are given up: those that are asked for again are no longer old,
/// although their events are.
const PENDING_LOOKED: i64 = 1_000;

/// A tenant of which something is to be removed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Removable {
    /// The tenant.
    pub tenant_id: Uuid,
    /// How long ago the oldest content should have been looked at, in seconds; none: nothing is to be looked at.
    pub contents_seconds: Option<f64>,
    /// How long ago the oldest event should have gone, in seconds; none: none is to go.
    pub events_seconds: Option<f64>,
    /// Whether callbacks are pending for too long.
    pub pending: bool,
    /// Whether replays are old and done.
    pub replays: bool,
}

/// What a step did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Step {
    /// How much it removed or gave up.
    pub removed: u64,
    /// Whether there may be more to do at once.
    pub more: bool,
}

/// Which events of a tenant's feed were removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventsRemoved {
    /// When the newest of them was written.
    pub before: DateTime<Utc>,
    /// When the last of them were removed.
    pub at: DateTime<Utc>,
}

/// How far the removal is of one tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovalRow {
    /// The tenant's name.
    pub tenant: String,
    /// How many tasks' contents were removed.
    pub contents_removed: i64,
    /// When the last of them were.
    pub contents_removed_at: Option<DateTime<Utc>>,
    /// How many tasks with content are old enough to be looked at, at most [`COUNTED_MOST`].
    pub contents_next: i64,
    /// The oldest content that had not ended long enough when it was looked at.
    pub contents_kept_since: Option<DateTime<Utc>>,
    /// How many events were removed.
    pub events_removed: i64,
    /// When the last of them were.
    pub events_removed_at: Option<DateTime<Utc>>,
    /// How many events are old enough to go, at most [`COUNTED_MOST`]; callbacks may keep them.
    pub events_next: i64,
}

/// How far is counted what would go: enough to tell whether it is much, and soon counted.
pub const COUNTED_MOST: i64 = 100_000;

struct Locked {
    contents_after: Uuid,
    contents_kept: Option<Uuid>,
    lap_due: bool,
    events_removed_to: i64,
}

impl Store {
    /// At most `limit` tenants after `after`, in the order of their ids, of which something is to be removed or given up.
    ///
    /// Asked for the first by an index, as in [`Store::tenants_due`].
    pub async fn tenants_removable(
        &self,
        keep: &Keep,
        after: Uuid,
        limit: i64,
    ) -> Result<Vec<Removable>, StoreError> {
        let rows = sqlx::query!(
            r#"SELECT r.tenant_id, d.content AS "content?", coalesce(r.contents_kept IS NOT NULL AND r.lap_at <= now() + $3::interval, false)
                    AND $4::uuid IS NOT NULL AS "lap_due!",
                (extract(epoch FROM now() + $3::interval - $5::interval - d.event))::float8 AS "event_seconds?",
                d.pending IS NOT NULL AS "pending!", d.replay IS NOT NULL AS "replays!"
            FROM retentions r CROSS JOIN LATERAL (SELECT
                (SELECT a.task_id FROM articles a
                    WHERE a.tenant_id = r.tenant_id AND a.task_id > r.contents_after AND a.task_id < $4
                    ORDER BY a.tenant_id, a.task_id LIMIT 1) AS content,
                (SELECT e.created_at FROM events e
                    WHERE e.tenant_id = r.tenant_id AND e.position = r.events_removed_to + 1
                        AND e.created_at < now() + $3::interval - $5::interval
                        AND (SELECT true FROM callbacks c WHERE c.tenant_id = r.tenant_id AND c.event_id = e.event_id
                            AND (c.status = 'pending' OR c.status <> 'delivered'
                                AND c.ended_at > now() + $3::interval - $6::interval) LIMIT 1) IS NULL
                        AND (SELECT true FROM replays p JOIN replay_events x USING (tenant_id, replay_id)
                            WHERE p.tenant_id = r.tenant_id AND p.finished_at IS NULL AND x.event_id = e.event_id
                            LIMIT 1) IS NULL) AS event,
                (SELECT true FROM (
                        SELECT c.replayed_at, c.created_at, c.lease_until FROM callbacks c
                        WHERE c.tenant_id = r.tenant_id AND c.status = 'pending' AND c.status <> 'delivered' AND c.tries >= 0
                            AND c.event_id < $7
                        ORDER BY c.tenant_id, c.status, c.event_id LIMIT $8) o
                    WHERE o.lease_until IS NULL
                        AND coalesce(o.replayed_at, o.created_at) < now() + $3::interval - $9::interval LIMIT 1) AS pending,
                (SELECT p.replay_id FROM replays p
                    WHERE p.tenant_id = r.tenant_id AND p.replay_id < $10
                        AND p.finished_at < now() + $3::interval - $5::interval
                    ORDER BY p.tenant_id, p.replay_id LIMIT 1) AS replay) d
            WHERE r.tenant_id > $1 AND (d.content IS NOT NULL OR d.event IS NOT NULL OR d.pending OR d.replay IS NOT NULL
                OR $4 IS NOT NULL AND r.contents_kept IS NOT NULL AND r.lap_at <= now() + $3::interval)
            ORDER BY r.tenant_id LIMIT $2"#,
            after,
            limit,
            self.clock.skew() as _,
            self.contents_before(keep),
            keep.events.map(interval) as _,
            interval(EVENTS_MIN) as _,
            self.first_id_before(keep.pending),
            PENDING_LOOKED,
            interval(keep.pending) as _,
            keep.events.map(|age| self.first_id_before(age)),
        )
        .fetch_all(&self.pool)
        .await?;
        let overdue = |id: Uuid| {
            let made = id.get_timestamp().map_or(0, |made| made.to_unix().0);
            let due = i64::try_from(made).unwrap_or_default()
                + keep.contents.map_or(0, |age| age.as_secs().cast_signed());
            #[expect(clippy::cast_precision_loss, reason = "seconds of a century at most")]
            let seconds = (self.clock.now().timestamp() - due - ENDED_WITHIN.num_seconds()) as f64;
            seconds.max(0.0)
        };
        let removable = rows.into_iter().map(|row| Removable {
            tenant_id: row.tenant_id,
            contents_seconds: row.content.map(overdue).or_else(|| row.lap_due.then_some(0.0)),
            events_seconds: row.event_seconds,
            pending: row.pending,
            replays: row.replays,
        });
        Ok(removable.collect())
    }

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
        let found = sqlx::query!(
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
            tenant_id,
            held.contents_after,
            before,
            most,
            self.clock.skew() as _,
            interval(age) as _,
        )
        .fetch_one(&mut *transaction)
        .await?;
        let gone = found.gone.unwrap_or_default();
        if !gone.is_empty() {
            self.remove_of_tasks(tenant_id, &gone, &mut transaction).await?;
        }
        let full = found.looked >= most;
        // At its end the walk stands where the age to remove begins, and not behind the last that it met: between the two lies
        // nothing but traces of what was removed.
        let mut after = if full { found.last } else { Some(before_of(before)) }
            .unwrap_or_default()
            .max(held.contents_after);
        let mut kept = held.contents_kept.or(found.kept);
        let laps = !full && held.lap_due && kept.is_some();
        if let Some(first) = kept.filter(|_| laps) {
            after = before_of(first);
            kept = None;
        }
        sqlx::query!(
            "UPDATE retentions SET contents_after = $2, contents_kept = $3, contents_removed = contents_removed + $4,
                contents_removed_at = CASE WHEN $4 > 0 THEN now() + $6::interval ELSE contents_removed_at END,
                lap_at = CASE WHEN $5 THEN now() + $6::interval + $7::interval ELSE lap_at END
            WHERE tenant_id = $1",
            tenant_id,
            after,
            kept,
            i64::try_from(gone.len()).unwrap_or_default(),
            laps,
            self.clock.skew() as _,
            LAP as _,
        )
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(Step { removed: gone.len() as u64, more: full || laps })
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

    /// How far the removal is, by tenant.
    pub async fn removals(&self, keep: &Keep) -> Result<Vec<RemovalRow>, StoreError> {
        let rows = sqlx::query!(
            r#"SELECT t.name, r.contents_removed, r.contents_removed_at, r.contents_kept, r.events_removed_to, r.events_removed_at,
                (SELECT count(*) FROM (SELECT FROM articles a
                    WHERE a.tenant_id = r.tenant_id AND a.task_id > r.contents_after AND a.task_id < $1
                    ORDER BY a.tenant_id, a.task_id LIMIT $3) n) AS "contents_next!",
                (SELECT count(*) FROM (SELECT FROM events e
                    WHERE e.tenant_id = r.tenant_id AND e.position > r.events_removed_to AND e.event_id < $2
                    ORDER BY e.tenant_id, e.event_id LIMIT $3) n) AS "events_next!"
            FROM retentions r JOIN tenants t USING (tenant_id) ORDER BY t.name"#,
            self.contents_before(keep),
            keep.events.map(|age| self.first_id_before(age)),
            COUNTED_MOST,
        )
        .fetch_all(&self.pool)
        .await?;
        let made = |id: Uuid| {
            let (seconds, _) = id.get_timestamp()?.to_unix();
            DateTime::from_timestamp(i64::try_from(seconds).ok()?, 0)
        };
        let removals = rows.into_iter().map(|row| RemovalRow {
            tenant: row.name,
            contents_removed: row.contents_removed,
            contents_removed_at: row.contents_removed_at,
            contents_next: row.contents_next,
            contents_kept_since: row.contents_kept.and_then(made),
            events_removed: row.events_removed_to,
            events_removed_at: row.events_removed_at,
            events_next: row.events_next,
        });
        Ok(removals.collect())
    }

    /// Holds a tenant's removal until the commit; none if another node does.
    async fn lock_removal(
        &self,
        tenant_id: Uuid,
        transaction: &mut sqlx::PgTransaction<'_>,
    ) -> Result<Option<Locked>, StoreError> {
        let held = sqlx::query_as!(
            Locked,
            r#"SELECT contents_after, contents_kept, lap_at <= now() + $2::interval AS "lap_due!", events_removed_to
            FROM retentions WHERE tenant_id = $1 FOR NO KEY UPDATE SKIP LOCKED"#,
            tenant_id,
            self.clock.skew() as _,
        );
        Ok(held.fetch_optional(&mut **transaction).await?)
    }

    /// Up to which id tasks are looked at; none if contents are kept for ever.
    fn contents_before(&self, keep: &Keep) -> Option<Uuid> {
        let age = interval(keep.contents?);
        Some(first_id_at(self.clock.now() - age - ENDED_WITHIN))
    }

    /// The lowest id of what is not older, by a clock that is not too far off.
    fn first_id_before(&self, age: std::time::Duration) -> Uuid {
        first_id_at(self.clock.now() - interval(age) + CLOCKS_APART)
    }
}

/// The id before another.
fn before_of(id: Uuid) -> Uuid {
    Uuid::from_u128(id.as_u128().saturating_sub(1))
}
