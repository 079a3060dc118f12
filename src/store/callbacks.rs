//! Callbacks: claiming what is due, recording what came of it, looking one up.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use sqlx::postgres::types::PgInterval;
use uuid::Uuid;

use super::{ClaimLimits, Receivers, Store, StoreError, rows};
use crate::callback::breaker::{FAILURES_MAX, Heard, OPEN_FIRST, OPEN_MAX, RECOVERY_PAUSE, Sign};
use crate::callback::status::CallbackStatus;
use crate::retry::{interval, jittered};

/// The most tries that are shown of one callback, the newest: it may be replayed as often as anybody likes.
const TRIES_MAX: i64 = 1_000;

/// How many deliveries to one receiver of a tenant run at once: a slow one then holds this many, not all.
pub(super) const RECEIVER_IN_FLIGHT: i32 = 16;

/// How many run at once to one that answers each within [`QUICK`], as long as they are needed. Most of a delivery's time is
/// then ours, to claim and to record it, and not the receiver's: 16 at once would be a thousand a second.
const RECEIVER_IN_FLIGHT_MOST: i32 = 128;

/// What such a receiver takes for an answer at most.
const QUICK: Duration = Duration::from_millis(250);

/// A callback in hand.
#[derive(Debug, Clone)]
pub struct ClaimedCallback {
    /// Whose.
    pub tenant_id: Uuid,
    /// The event it delivers.
    pub event_id: Uuid,
    /// Where to.
    pub url: String,
    /// The receiver that this is: scheme, host and port.
    pub receiver: String,
    /// What every later write must name.
    pub fence: i32,
    /// How many tries were recorded before.
    pub tries: i32,
    /// How many of them were made before the last replay: the schedule counts from there.
    pub tries_before: i32,
    /// The event's bytes.
    pub body: Vec<u8>,
    /// How long ago the event was written, in seconds.
    pub age_seconds: f64,
    /// Whether its receiver's last answer was 2xx.
    pub proven: bool,
}

/// What follows a try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// It arrived.
    Delivered,
    /// Another try after this wait.
    Again(Duration),
    /// The schedule has run out.
    Exhausted,
    /// The receiver answered 410.
    Gone,
}

impl Then {
    /// The callback's status from then on.
    #[must_use]
    pub fn status(self) -> &'static str {
        let status = match self {
            Self::Again(_) => CallbackStatus::Pending,
            Self::Delivered => CallbackStatus::Delivered,
            Self::Exhausted => CallbackStatus::Exhausted,
            Self::Gone => CallbackStatus::Gone,
        };
        status.as_str()
    }
}

/// A try and what follows.
#[derive(Debug, Clone)]
pub struct RecordedTry {
    /// Whose.
    pub tenant_id: Uuid,
    /// The event.
    pub event_id: Uuid,
    /// The holder's fence.
    pub fence: i32,
    /// How long it took.
    pub took: Duration,
    /// The answer's status, if there was one.
    pub http_status: Option<u16>,
    /// The answer's first bytes.
    pub answer_head: Option<Vec<u8>>,
    /// What went wrong.
    pub error: Option<String>,
    /// What follows.
    pub then: Then,
    /// What it says of the receiver.
    pub heard: Heard,
}

/// What tries did to the breakers of receivers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BreakersMoved {
    /// Receivers that are left alone from now on.
    pub opened: Vec<String>,
    /// Receivers that have come back.
    pub closed: Vec<String>,
}

/// A callback as it is shown.
#[derive(Debug, Clone)]
pub struct CallbackRow {
    /// The event.
    pub event_id: Uuid,
    /// The event's bytes.
    pub body: Vec<u8>,
    /// Where to.
    pub url: String,
    /// `pending`, `delivered`, `exhausted` or `gone`.
    pub status: String,
    /// When the next try is due, if one is.
    pub next_try_at: Option<DateTime<Utc>>,
    /// Until when its receiver is left alone, if it waits for that.
    pub held_until: Option<DateTime<Utc>>,
    /// When the event was written.
    pub created_at: DateTime<Utc>,
    /// When it ended.
    pub ended_at: Option<DateTime<Utc>>,
    /// Its tries, the first first: the newest of them, at most `TRIES_MAX`.
    pub tries: Vec<TryRow>,
}

/// A try as it is shown.
#[derive(Debug, Clone)]
pub struct TryRow {
    /// When it began.
    pub at: DateTime<Utc>,
    /// How long it took.
    pub took: Duration,
    /// The answer's status.
    pub http_status: Option<i32>,
    /// The answer's first bytes.
    pub answer_head: Option<Vec<u8>>,
    /// What went wrong.
    pub error: Option<String>,
}

impl Store {
    /// Claims due callbacks of one tenant, for each receiver that has a free lane as many as fit, and takes over those
    /// whose holder's lease ran out, each with its slot of the lane. Whether these arrived is unknown, so they are sent
    /// again: the receiver drops the second by its id.
    ///
    /// A receiver that is not proven has a lane of one. One that is left alone has a `free_at` that lies ahead, and what
    /// is due for it keeps its place.
    pub async fn claim_callbacks(
        &self,
        tenant_id: Uuid,
        receivers: Receivers,
        limits: &ClaimLimits,
    ) -> Result<Vec<ClaimedCallback>, StoreError> {
        let claimed = sqlx::query_as!(
            ClaimedCallback,
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
            ), free AS MATERIALIZED (
                SELECT r.receiver, r.in_flight, r.recovering,
                    CASE WHEN r.proven THEN r.max_in_flight ELSE 1 END - r.in_flight AS slots
                FROM due JOIN receivers r ON r.tenant_id = $1 AND r.receiver = due.receiver
                WHERE due.due_at <= now() + $4::interval AND r.free_at <= now() + $4::interval
                    AND r.in_flight < CASE WHEN r.proven THEN r.max_in_flight ELSE 1 END AND (r.proven OR $5)
                ORDER BY r.free_at LIMIT 64
                FOR NO KEY UPDATE OF r SKIP LOCKED
            ), pick AS MATERIALIZED (
                SELECT q.event_id, q.receiver, f.in_flight, f.recovering, f.slots FROM free f CROSS JOIN LATERAL (
                    SELECT c.event_id, c.receiver FROM callbacks c
                    WHERE c.tenant_id = $1 AND c.receiver = f.receiver AND c.status = 'pending'
                        AND c.lease_until IS NULL AND c.due_at <= now() + $4::interval
                    ORDER BY c.due_at LIMIT f.slots FOR UPDATE SKIP LOCKED) q
                LIMIT 64
            ), left_behind AS MATERIALIZED (
                SELECT event_id FROM callbacks
                WHERE tenant_id = $1 AND lease_until IS NOT NULL AND lease_until <= now() + $4::interval
                ORDER BY tenant_id, lease_until LIMIT 16 FOR UPDATE SKIP LOCKED
            ), took AS (
                -- One that has come back is paced until less is due for it than it may have.
                UPDATE receivers r SET in_flight = k.in_flight + k.n,
                    free_at = now() + $4::interval + CASE WHEN k.recovering THEN k.n ELSE 0 END * $6::interval,
                    recovering = k.recovering AND (k.n >= k.slots OR (SELECT count(*) FROM pick) >= 64)
                FROM (SELECT receiver, in_flight, recovering, slots, count(*)::int AS n FROM pick GROUP BY 1, 2, 3, 4) k
                WHERE r.tenant_id = $1 AND r.receiver = k.receiver
            ), mine AS (
                UPDATE callbacks c SET fence = c.fence + 1, lease_owner = $2,
                    lease_until = now() + $4::interval + $3::interval,
                    -- What is taken over is sent after the replay was asked for.
                    tries_before = CASE WHEN c.replay_asked THEN c.tries ELSE c.tries_before END, replay_asked = false
                WHERE c.tenant_id = $1 AND c.event_id = ANY (ARRAY(
                    SELECT event_id FROM pick UNION ALL SELECT event_id FROM left_behind))
                RETURNING c.*
            )
            SELECT m.tenant_id, m.event_id, m.url, m.receiver, m.fence, m.tries, m.tries_before, e.body, r.proven,
                extract(epoch FROM now() + $4::interval - m.created_at)::float8 AS "age_seconds!"
            FROM mine m JOIN events e ON e.tenant_id = m.tenant_id AND e.event_id = m.event_id
            JOIN receivers r ON r.tenant_id = m.tenant_id AND r.receiver = m.receiver"#,
            tenant_id,
            limits.owner,
            interval(limits.lease) as _,
            self.clock.skew() as _,
            receivers == Receivers::All,
            interval(RECOVERY_PAUSE) as _,
        );
        Ok(claimed.fetch_all(&self.pool).await?)
    }

    /// Records a batch of tries of one tenant, frees their lanes, and keeps what they say of their receivers. A try whose
    /// fence has moved on is left out. What was asked for again meanwhile is due at once, whatever came of the try, by a
    /// schedule that begins anew.
    ///
    /// A breaker that is open counts only what was tried after its wait: what was under way when it opened says nothing
    /// new. It closes with the first answer that says that it lives.
    pub async fn record_tries(
        &self,
        tenant_id: Uuid,
        batch: &[RecordedTry],
    ) -> Result<BreakersMoved, StoreError> {
        let wait = |then: Then| match then {
            Then::Again(wait) => interval(wait),
            _ => TimeDelta::zero(),
        };
        let pause = |heard: Heard| interval(heard.pause.unwrap_or_default());
        let rows = sqlx::query!(
            r#"WITH input AS MATERIALIZED (
                -- Limited as in `moves`.
                SELECT * FROM unnest($2::uuid[], $3::int[], $4::interval[], $5::int[], $6::bytea[], $7::text[],
                    $8::text[], $9::interval[], $11::boolean[], $12::boolean[], $13::interval[])
                AS u(event_id, fence, took, http_status, answer_head, error, status, wait, well, failed, pause) LIMIT $20
            ), locked AS MATERIALIZED (
                SELECT c.event_id, i.fence, i.took, i.http_status, i.answer_head, i.error, c.replay_asked,
                    CASE WHEN c.replay_asked THEN 'pending' ELSE i.status END AS status,
                    CASE WHEN c.replay_asked THEN '0' ELSE i.wait END AS wait, i.well, i.failed, i.pause
                FROM (SELECT * FROM input ORDER BY event_id) i CROSS JOIN LATERAL (
                    SELECT event_id, replay_asked FROM callbacks
                    WHERE tenant_id = $1 AND event_id = i.event_id AND fence = i.fence AND lease_until IS NOT NULL
                    LIMIT 1 FOR UPDATE) c
            ), moved AS (
                UPDATE callbacks c SET status = l.status, tries = c.tries + 1,
                    tries_before = CASE WHEN l.replay_asked THEN c.tries + 1 ELSE c.tries_before END, replay_asked = false,
                    due_at = now() + $10::interval + l.wait,
                    lease_owner = NULL, lease_until = NULL,
                    ended_at = CASE WHEN l.status <> 'pending' THEN now() + $10::interval END
                FROM locked l WHERE c.tenant_id = $1 AND c.event_id = l.event_id
                RETURNING c.receiver, l.well, l.failed, l.pause, l.took
            ), noted AS (
                INSERT INTO callback_tries (tenant_id, event_id, fence, at, duration, http_status, answer_head, error)
                SELECT $1, event_id, fence, now() + $10::interval - took, took, http_status, answer_head, error FROM locked
            ), freed AS MATERIALIZED (
                SELECT receiver, count(*)::int AS n, bool_or(well) AS well, bool_or(NOT failed) AS alive,
                    count(*) FILTER (WHERE failed)::int AS failed, max(pause) AS pause, max(took) < $17::interval AS quick
                FROM moved GROUP BY 1
            ), lane_locks AS MATERIALIZED (
                SELECT r.receiver, r.in_flight, r.failures, r.proven, r.recovering, r.free_at, r.max_in_flight,
                    f.n, f.well, f.alive, f.failed, f.pause, f.quick
                FROM receivers r JOIN freed f USING (receiver)
                WHERE r.tenant_id = $1 ORDER BY r.receiver FOR NO KEY UPDATE OF r
            ), judged AS MATERIALIZED (
                SELECT *, CASE WHEN alive THEN 0
                    WHEN failures < $14 THEN least(failures + failed, $14)
                    WHEN failed > 0 AND free_at <= now() + $10::interval THEN least(failures + 1, $14 + 16)
                    ELSE failures END AS failures_now
                FROM lane_locks
            ), updated AS (
                UPDATE receivers r SET in_flight = j.in_flight - j.n, failures = j.failures_now,
                    proven = j.failures_now = 0 AND (j.well OR j.proven),
                    -- Who answers all at once gets more while it is at work, and back to the least when it does not.
                    max_in_flight = CASE WHEN NOT j.quick OR j.failures_now > 0 THEN $18
                        WHEN j.proven AND NOT j.recovering AND 2 * j.in_flight >= j.max_in_flight
                            THEN least(2 * j.max_in_flight, $19)
                        ELSE j.max_in_flight END,
                    -- One that is left alone has no other pace than its probes'.
                    recovering = j.failures_now < $14 AND (r.recovering OR j.alive AND j.failures >= $14),
                    free_at = CASE WHEN j.alive AND j.failures >= $14 THEN now() + $10::interval + j.pause
                        -- A replay was asked for while it was probed: that goes now.
                        WHEN j.failures >= $14 AND j.recovering THEN now() + $10::interval
                        WHEN j.failures_now >= $14 AND (j.failures < $14 OR j.free_at <= now() + $10::interval)
                            THEN greatest(j.free_at, now() + $10::interval
                                + greatest(j.pause, least($15::interval * power(2, j.failures_now - $14), $16::interval)))
                        WHEN j.pause > '0' THEN greatest(j.free_at, now() + $10::interval + j.pause)
                        ELSE j.free_at END
                FROM judged j WHERE r.tenant_id = $1 AND r.receiver = j.receiver
            )
            SELECT receiver, failures_now > 0 AS "opened!" FROM judged
            WHERE (failures >= $14) <> (failures_now >= $14) ORDER BY receiver"#,
            tenant_id,
            &batch.iter().map(|one| one.event_id).collect::<Vec<_>>(),
            &batch.iter().map(|one| one.fence).collect::<Vec<_>>(),
            &batch.iter().map(|one| interval(one.took)).collect::<Vec<_>>() as &[TimeDelta],
            &batch.iter().map(|one| one.http_status.map(i32::from)).collect::<Vec<_>>() as &[Option<i32>],
            &batch.iter().map(|one| one.answer_head.as_deref()).collect::<Vec<_>>() as &[Option<&[u8]>],
            &batch.iter().map(|one| one.error.as_deref()).collect::<Vec<_>>() as &[Option<&str>],
            &batch.iter().map(|one| one.then.status()).collect::<Vec<_>>() as &[&str],
            &batch.iter().map(|one| wait(one.then)).collect::<Vec<_>>() as &[TimeDelta],
            self.clock.skew() as _,
            &batch.iter().map(|one| one.heard.sign == Sign::Well).collect::<Vec<_>>(),
            &batch.iter().map(|one| one.heard.sign == Sign::Failed).collect::<Vec<_>>(),
            &batch.iter().map(|one| pause(one.heard)).collect::<Vec<_>>() as &[TimeDelta],
            FAILURES_MAX,
            interval(jittered(OPEN_FIRST, self.clock.fraction())) as _,
            interval(jittered(OPEN_MAX, self.clock.fraction())) as _,
            interval(QUICK) as _,
            RECEIVER_IN_FLIGHT,
            RECEIVER_IN_FLIGHT_MOST,
            rows(batch),
        )
        .fetch_all(&self.pool)
        .await?;
        let mut moved = BreakersMoved::default();
        for row in rows {
            if row.opened { moved.opened.push(row.receiver) } else { moved.closed.push(row.receiver) }
        }
        Ok(moved)
    }

    /// The callback of one event, with its tries.
    pub async fn callback(&self, tenant_id: Uuid, event_id: Uuid) -> Result<Option<CallbackRow>, StoreError> {
        // One statement: a try and the state that it led to are seen together or not at all.
        let rows = sqlx::query!(
            r#"SELECT c.event_id, e.body, c.url, c.status, CASE WHEN c.status = 'pending' THEN c.due_at END AS next_try_at,
                CASE WHEN c.status = 'pending' AND r.free_at > now() + $4::interval THEN r.free_at END AS held_until,
                c.created_at, c.ended_at, t.at AS "at?", t.duration AS "duration?", t.http_status, t.answer_head, t.error
            FROM callbacks c JOIN events e USING (tenant_id, event_id) JOIN receivers r USING (tenant_id, receiver)
            LEFT JOIN (
                SELECT * FROM callback_tries t WHERE t.tenant_id = $1 AND t.event_id = $2
                ORDER BY t.tenant_id, t.event_id, t.fence DESC LIMIT $3) t USING (tenant_id, event_id)
            WHERE c.tenant_id = $1 AND c.event_id = $2 ORDER BY t.fence"#,
            tenant_id,
            event_id,
            TRIES_MAX,
            self.clock.skew() as _,
        )
        .fetch_all(&self.pool)
        .await?;
        let mut shown = None;
        for row in rows {
            let callback = shown.get_or_insert_with(|| CallbackRow {
                event_id: row.event_id,
                body: row.body,
                url: row.url,
                status: row.status,
                next_try_at: row.next_try_at,
                held_until: row.held_until,
                created_at: row.created_at,
                ended_at: row.ended_at,
                tries: Vec::new(),
            });
            if let (Some(at), Some(took)) = (row.at, row.duration) {
                let (http_status, answer_head, error) = (row.http_status, row.answer_head, row.error);
                callback.tries.push(TryRow { at, took: duration(&took), http_status, answer_head, error });
            }
        }
        Ok(shown)
    }
}

/// A stored duration; ours are below a day, so months and days are zero.
pub(super) fn duration(stored: &PgInterval) -> Duration {
    Duration::from_micros(u64::try_from(stored.microseconds).unwrap_or(0))
}
