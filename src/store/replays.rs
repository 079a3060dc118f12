//! Sending callbacks again: one, or all of a range, as a job that any node goes on with.

use std::time::Duration;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::locks::lock_tenant;
use super::task_list::{CLOCKS_APART, first_id_at};
use super::{Store, StoreError};
use crate::callback::status::CallbackStatus;
use crate::retry::interval;

/// How many callbacks one step of a replay makes due: with [`REPLAY_PAUSE`], a hundred a second of each tenant, so that a
/// receiver that has just come back is not met by all at once.
pub const REPLAY_BATCH: i64 = 100;

/// The pause after such a step, of all replays of the tenant together.
pub const REPLAY_PAUSE: Duration = Duration::from_secs(1);

/// The most callbacks of one range: they are written down within the time that an answer may take.
pub const REPLAY_MOST: i64 = 50_000;

/// How many replays of a tenant may be unfinished: they take turns, so more would only wait.
pub const REPLAYS_UNFINISHED_MAX: i64 = 16;

/// Which callbacks are to be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplayRange {
    /// Of events that were written at this time or later.
    pub since: DateTime<Utc>,
    /// Of events that were written before this time.
    pub until: DateTime<Utc>,
    /// With this status at the time of asking.
    pub status: CallbackStatus,
}

/// What came of asking for a replay.
#[derive(Debug)]
pub enum ReplayAsked {
    /// It is written down.
    Begun(ReplayRow),
    /// The range has more than [`REPLAY_MOST`]; nothing was written.
    TooMany,
    /// [`REPLAYS_UNFINISHED_MAX`] are unfinished; nothing was written.
    Busy,
}

/// A replay.
#[derive(Debug, Clone)]
pub struct ReplayRow {
    /// Its id.
    pub replay_id: Uuid,
    /// From when.
    pub since: DateTime<Utc>,
    /// Until when.
    pub until: DateTime<Utc>,
    /// Of which status.
    pub status: String,
    /// How many callbacks it is for.
    pub matched: i32,
    /// How many of them were made due again.
    pub replayed: i32,
    /// When it was asked for.
    pub created_at: DateTime<Utc>,
    /// When all were made due.
    pub finished_at: Option<DateTime<Utc>>,
}

impl Store {
    /// Makes a callback due again, whatever its status and however its receiver does; false if there is none.
    pub async fn replay_callback(&self, tenant_id: Uuid, event_id: Uuid) -> Result<bool, StoreError> {
        let mut transaction = self.pool.begin().await?;
        let replayed = self.send_again(tenant_id, &[event_id], &mut transaction).await?;
        self.let_through(tenant_id, event_id, &mut transaction).await?;
        transaction.commit().await?;
        Ok(replayed > 0)
    }

    /// Makes callbacks due again by a schedule that begins anew. What is being sent right now is due when that has come to
    /// something: what came of it was sent before this was asked.
    async fn send_again(
        &self,
        tenant_id: Uuid,
        event_ids: &[Uuid],
        transaction: &mut sqlx::PgTransaction<'_>,
    ) -> Result<u64, StoreError> {
        // In a statement of its own: one that has waited for the lock would hold what it locked against the constraints
        // together with what its snapshot shows of the same row.
        sqlx::query!(
            r#"SELECT true AS "there!" FROM callbacks WHERE tenant_id = $1 AND event_id = ANY ($2)
            ORDER BY event_id FOR UPDATE"#,
            tenant_id,
            event_ids,
        )
        .fetch_all(&mut **transaction)
        .await?;
        let done = sqlx::query!(
            "UPDATE callbacks SET status = 'pending', ended_at = NULL, replay_asked = lease_until IS NOT NULL,
                replayed_at = now() + $3::interval,
                due_at = CASE WHEN lease_until IS NULL THEN now() + $3::interval ELSE due_at END,
                tries_before = CASE WHEN lease_until IS NULL THEN tries ELSE tries_before END
            WHERE tenant_id = $1 AND event_id = ANY ($2)",
            tenant_id,
            event_ids,
            self.clock.skew() as _,
        )
        .execute(&mut **transaction)
        .await?;
        Ok(done.rows_affected())
    }

    /// Writes down a range of callbacks that is to be sent again: which ones these are is fixed by that.
    pub async fn begin_replay(&self, tenant_id: Uuid, range: ReplayRange) -> Result<ReplayAsked, StoreError> {
        let mut transaction = self.pool.begin().await?;
        lock_tenant(tenant_id, &mut transaction).await?;
        let unfinished = sqlx::query_scalar!(
            r#"SELECT count(*) AS "n!" FROM replays WHERE tenant_id = $1 AND finished_at IS NULL"#,
            tenant_id,
        );
        if unfinished.fetch_one(&mut *transaction).await? >= REPLAYS_UNFINISHED_MAX {
            return Ok(ReplayAsked::Busy);
        }
        let replay_id = self.clock.new_id();
        let Some(matched) = self.match_range(tenant_id, replay_id, range, &mut transaction).await? else {
            return Ok(ReplayAsked::TooMany);
        };
        let begun = sqlx::query_as!(
            ReplayRow,
            "INSERT INTO replays (tenant_id, replay_id, since, until, status, matched, due_at, created_at, finished_at)
            VALUES ($1, $2, $3, $4, $5, $6, now() + $7::interval, now() + $7::interval,
                CASE WHEN $6 = 0 THEN now() + $7::interval END)
            RETURNING replay_id, since, until, status, matched, replayed, created_at, finished_at",
            tenant_id,
            replay_id,
            range.since,
            range.until,
            range.status.as_str(),
            matched,
            self.clock.skew() as _,
        )
        .fetch_one(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(ReplayAsked::Begun(begun))
    }

    /// Notes the callbacks of a range, and says how many they are; none if it has too many, or if too many would have to be
    /// looked at for those that were delivered. An event's id tells when it was written but for what clocks are apart.
    async fn match_range(
        &self,
        tenant_id: Uuid,
        replay_id: Uuid,
        range: ReplayRange,
        transaction: &mut sqlx::PgTransaction<'_>,
    ) -> Result<Option<i32>, StoreError> {
        let row = sqlx::query!(
            r#"WITH looked AS MATERIALIZED (
                (SELECT c.event_id, c.status, c.created_at FROM callbacks c
                WHERE $3 = 'delivered' AND c.tenant_id = $1 AND c.event_id >= $4 AND c.event_id < $5
                ORDER BY c.event_id LIMIT $8)
                UNION ALL
                (SELECT c.event_id, c.status, c.created_at FROM callbacks c
                WHERE $3 <> 'delivered' AND c.tenant_id = $1 AND c.status = $3 AND c.status <> 'delivered' AND c.tries >= 0
                    AND c.event_id >= $4 AND c.event_id < $5
                ORDER BY c.event_id LIMIT $8)
            ), noted AS (
                INSERT INTO replay_events (tenant_id, replay_id, event_id)
                SELECT $1, $2, event_id FROM looked WHERE status = $3 AND created_at >= $6 AND created_at < $7
                RETURNING 1
            )
            SELECT (SELECT count(*) FROM looked) AS "looked!", (SELECT count(*) FROM noted)::int AS "matched!""#,
            tenant_id,
            replay_id,
            range.status.as_str(),
            first_id_at(range.since - CLOCKS_APART),
            first_id_at(range.until + CLOCKS_APART),
            range.since,
            range.until,
            REPLAY_MOST + 1,
        )
        .fetch_one(&mut **transaction)
        .await?;
        Ok((row.looked <= REPLAY_MOST).then_some(row.matched))
    }

    /// A replay of a tenant.
    pub async fn replay(&self, tenant_id: Uuid, replay_id: Uuid) -> Result<Option<ReplayRow>, StoreError> {
        let row = sqlx::query_as!(
            ReplayRow,
            "SELECT replay_id, since, until, status, matched, replayed, created_at, finished_at
            FROM replays WHERE tenant_id = $1 AND replay_id = $2",
            tenant_id,
            replay_id,
        );
        Ok(row.fetch_optional(&self.pool).await?)
    }

    /// Makes the next callbacks of a tenant's oldest replay due, the oldest first; how many these were.
    ///
    /// What is left to do and what was done change in one transaction: whoever dies in it has done nothing, and nothing is
    /// done twice. Of several nodes one has the replay, and the others pass by.
    pub async fn replay_step(&self, tenant_id: Uuid) -> Result<usize, StoreError> {
        let mut transaction = self.pool.begin().await?;
        let oldest = sqlx::query_scalar!(
            "SELECT replay_id FROM replays
            WHERE tenant_id = $1 AND replay_id = (
                SELECT replay_id FROM replays WHERE tenant_id = $1 AND finished_at IS NULL ORDER BY replay_id LIMIT 1)
                AND finished_at IS NULL AND due_at <= now() + $2::interval
            FOR UPDATE SKIP LOCKED",
            tenant_id,
            self.clock.skew() as _,
        );
        let Some(replay_id) = oldest.fetch_optional(&mut *transaction).await? else { return Ok(0) };
        let event_ids = sqlx::query_scalar!(
            "DELETE FROM replay_events WHERE tenant_id = $1 AND replay_id = $2 AND event_id = ANY (ARRAY(
                SELECT event_id FROM replay_events WHERE tenant_id = $1 AND replay_id = $2 ORDER BY event_id LIMIT $3))
            RETURNING event_id",
            tenant_id,
            replay_id,
            REPLAY_BATCH,
        )
        .fetch_all(&mut *transaction)
        .await?;
        let replayed = self.send_again(tenant_id, &event_ids, &mut transaction).await?;
        // The next of the tenant begins no sooner than this one would have gone on.
        sqlx::query!(
            "UPDATE replays SET due_at = now() + $4::interval + $5::interval,
                replayed = replayed + CASE WHEN replay_id = $2 THEN $3 ELSE 0 END,
                finished_at = CASE WHEN replay_id = $2 AND NOT EXISTS (
                    SELECT FROM replay_events WHERE tenant_id = $1 AND replay_id = $2) THEN now() + $4::interval END
            WHERE tenant_id = $1 AND finished_at IS NULL",
            tenant_id,
            replay_id,
            i32::try_from(replayed).unwrap_or(i32::MAX),
            self.clock.skew() as _,
            interval(REPLAY_PAUSE) as _,
        )
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(event_ids.len())
    }
}
