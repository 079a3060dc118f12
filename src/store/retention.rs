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
//! Ids of tasks are made by time, so contents are walked by them from `contents_after` on, up to where the age to remove begins,
//! and little is looked at twice. What the walk has passed is met again by the next lap, which begins at the beginning, at most
//! once in 24 hours: what had not ended long enough, and what came in later under an earlier id, of a node whose clock
//! is slow. The feed is one line, of which the end that is gone is known.
//!
//! One transaction removes a batch: it holds the tenant's row in `retentions`, before all other locks, so each tenant is served
//! by one node at a time; then it locks tasks, or callbacks, passing by those that others hold.

use chrono::TimeDelta;
use uuid::Uuid;

use super::task_list::{CLOCKS_APART, first_id_at};
use super::{Store, StoreError};
use crate::retention::keep::{EVENTS_MIN, Keep};
use crate::retry::interval;

mod callbacks;
mod contents;
mod events;
mod progress;

pub use events::EventsRemoved;
pub use progress::{COUNTED_MOST, RemovalRow};

/// How many tasks, events or callbacks one transaction deals with at most: some milliseconds' work, and a lock of no more rows.
pub const REMOVE_MOST: i64 = 200;

/// How long after its acceptance a task is first looked at, beyond the keep: most have ended by then, and are not met twice.
const ENDED_WITHIN: TimeDelta = TimeDelta::hours(1);

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
            r#"SELECT r.tenant_id, d.content AS "content?", r.lap_at <= now() + $3::interval AND $4::uuid IS NOT NULL AS "lap_due!",
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
                OR $4 IS NOT NULL AND r.lap_at <= now() + $3::interval)
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
