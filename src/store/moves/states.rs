//! The statement that moves publications, with all that hangs on their states.

use chrono::TimeDelta;
use uuid::Uuid;

use super::{Move, Moved};
use crate::store::{Store, StoreError, rows};
use crate::task::state::Status;

impl Store {
    /// Locks publications, tasks, lanes and feed, in that order, each sorted.
    ///
    /// The parts of one statement run when their rows are asked for, so each part asks how many rows the one before it
    /// made: it cannot lock before that has. Two settles then never wait for each other in a circle; the tests settle from
    /// eight sides at once.
    ///
    /// Whether a login has expired is decided under the lane's lock, by the version of the credentials: an answer to old
    /// ones says nothing of those that were set meanwhile. So is whether a slot of the day is given back: that day may be
    /// over, and another counted.
    #[expect(clippy::too_many_lines, reason = "one statement, which reads best in one piece")]
    pub(super) async fn move_states(
        &self,
        tenant_id: Uuid,
        batch: &[Move],
        transaction: &mut sqlx::PgTransaction<'_>,
    ) -> Result<Vec<Moved>, StoreError> {
        let error = |of: fn(&(String, String, bool)) -> &str| {
            batch.iter().map(|one| one.error.as_ref().map(of)).collect::<Vec<_>>()
        };
        let rows = sqlx::query!(
            r#"WITH input AS MATERIALIZED (
                -- The limit is their number: of an unknown one the planner takes a tenth, so it counts on one row and goes by
                -- keys. For ten it would read a young table whole, and a grown one by the same plan.
                SELECT * FROM unnest($2::uuid[], $3::int[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
                    $9::text[], $10::boolean[], $11::interval[], $12::boolean[], $13::text[], $14::text[], $15::text[],
                    $16::boolean[], $18::interval[], $19::boolean[], $20::interval[], $21::int[], $22::text[])
                AS u(publication_id, fence, from_status, to_status, url, remote_id, error_code, error_message,
                    error_retryable, wait, new_round, reason, outcome, answer, accepted, parks, strays, sweep,
                    http_status, answer_head) LIMIT $23
            ), locked AS MATERIALIZED (
                -- Row by row, by the key, and in its order.
                SELECT i.*, p.task_id, p.platform, p.account_id, p.credentials_version, p.lease_until IS NOT NULL AS leased,
                    p.counted_on,
                    -- Nothing was published, as far as can be known: the slot of the day is free again.
                    p.counted_on IS NOT NULL AND (i.new_round
                        OR i.from_status = 'running' AND (i.to_status IN ('submitted', 'login_expired')
                            OR i.to_status = 'failed' AND i.error_code <> 'outcome_unknown')) AS uncounts
                FROM (SELECT * FROM input ORDER BY publication_id) i CROSS JOIN LATERAL (
                    SELECT * FROM publications p
                    WHERE p.tenant_id = $1 AND p.publication_id = i.publication_id AND p.fence = i.fence
                        AND p.status = i.from_status
                    LIMIT 1 FOR UPDATE) p
            ), task_locks AS MATERIALIZED (
                SELECT t.task_id FROM tasks t JOIN (
                    SELECT DISTINCT task_id FROM locked WHERE from_status <> to_status) k USING (task_id)
                WHERE t.tenant_id = $1 ORDER BY t.task_id FOR NO KEY UPDATE OF t
            ), lane_locks AS MATERIALIZED (
                SELECT l.platform, l.account_id, l.login_state, l.credentials_version AS lane_version, l.day
                FROM lanes l JOIN (
                    SELECT DISTINCT platform, account_id FROM locked
                    WHERE leased OR uncounts OR to_status = 'login_expired') k
                    USING (platform, account_id)
                WHERE l.tenant_id = $1 AND (SELECT count(*) FROM task_locks) >= 0
                ORDER BY l.platform, l.account_id FOR NO KEY UPDATE OF l
            ), decided AS MATERIALIZED (
                SELECT k.*, l.lane_version, coalesce(k.uncounts AND k.counted_on = l.day, false) AS gives_back, coalesce(k.from_status = 'running' AND k.to_status = 'login_expired'
                    AND l.lane_version > k.credentials_version, false) AS renewed
                -- Asked only of those for which it matters: here each is held against each.
                FROM locked k LEFT JOIN lane_locks l ON (k.uncounts OR k.to_status = 'login_expired')
                    AND l.platform = k.platform AND l.account_id = k.account_id
                -- Nobody asked the platform: it is the lane that says so, or nothing does.
                WHERE NOT (k.from_status = 'submitted' AND k.to_status = 'login_expired' AND l.login_state = 'active')
            ), moved AS (
                UPDATE publications p SET status = CASE WHEN d.renewed THEN 'submitted' ELSE d.to_status END,
                    url = d.url, remote_id = d.remote_id,
                    error_code = CASE WHEN NOT d.renewed THEN d.error_code END,
                    error_message = CASE WHEN NOT d.renewed THEN d.error_message END,
                    error_retryable = CASE WHEN NOT d.renewed THEN d.error_retryable END,
                    due_at = CASE WHEN NOT d.renewed AND d.wait IS NOT NULL THEN now() + $17::interval + d.wait
                        -- What was to be asked about later is to be sent now.
                        WHEN d.renewed OR d.new_round THEN least(p.due_at, now() + $17::interval)
                        ELSE p.due_at END,
                    tries = CASE WHEN d.new_round THEN 0
                        WHEN d.from_status = 'running' AND d.to_status = 'submitted' AND d.parks IS NULL THEN p.tries + 1
                        ELSE p.tries END,
                    round = CASE WHEN d.new_round THEN p.round + 1 ELSE p.round END,
                    warnings = CASE WHEN NOT d.new_round THEN p.warnings END,
                    credentials_version = CASE WHEN d.to_status = 'login_expired' AND NOT d.renewed THEN d.lane_version
                        ELSE p.credentials_version END,
                    lease_owner = NULL, lease_until = NULL, confirming = (d.to_status = 'running'),
                    counted_on = CASE WHEN NOT d.uncounts THEN p.counted_on END,
                    sweep_at = CASE WHEN d.to_status = 'success' AND (p.drafts > 1 OR d.strays AND p.drafts > 0)
                            OR d.to_status = 'failed' AND p.drafts > 0 AND d.error_code <> 'outcome_unknown'
                        THEN now() + $17::interval + d.sweep END,
                    expired_at = CASE WHEN d.to_status = 'login_expired' AND NOT d.renewed THEN now() + $17::interval END,
                    updated_at = now() + $17::interval
                FROM decided d WHERE p.tenant_id = $1 AND p.publication_id = d.publication_id
                RETURNING p.publication_id, p.task_id, p.platform, p.account_id, p.status, p.round, p.fence, p.url,
                    p.remote_id, p.error_code, p.error_message, p.error_retryable, d.from_status, d.leased, d.renewed,
                    d.gives_back, d.reason, d.outcome, d.answer, d.accepted, d.parks, d.http_status, d.answer_head
            ), journalled AS (
                -- The platform was looked at after each earlier try, so what is known now answers for them all; while it
                -- is not known, only what came back is noted. It came back to the last step of this holder.
                UPDATE attempts a SET
                    ended_at = CASE WHEN m.outcome IS NOT NULL THEN now() + $17::interval END,
                    outcome = CASE WHEN (a.fence, a.step) = (m.fence, s.last) OR m.outcome IS NULL THEN m.outcome ELSE 'answer_lost' END,
                    detail = CASE WHEN (a.fence, a.step) = (m.fence, s.last) THEN coalesce(m.answer, a.detail) ELSE a.detail END,
                    accepted = a.accepted OR (coalesce((a.fence, a.step) = (m.fence, s.last), false) AND m.accepted),
                    over_at = CASE WHEN a.fence = m.fence THEN least(a.over_at, now() + $17::interval) ELSE a.over_at END,
                    http_status = CASE WHEN (a.fence, a.step) = (m.fence, s.last) THEN coalesce(m.http_status, a.http_status) ELSE a.http_status END,
                    answer_head = CASE WHEN (a.fence, a.step) = (m.fence, s.last) THEN coalesce(m.answer_head, a.answer_head) ELSE a.answer_head END
                FROM moved m CROSS JOIN LATERAL (
                    SELECT max(l.step) AS last FROM attempts l WHERE l.tenant_id = $1
                        AND l.publication_id = m.publication_id AND l.fence = m.fence AND l.ended_at IS NULL) s
                WHERE a.tenant_id = $1 AND a.publication_id = m.publication_id AND a.ended_at IS NULL
            ), noted AS (
                INSERT INTO transitions (tenant_id, task_id, publication_id, at, from_status, to_status, round, fence, reason)
                SELECT $1, task_id, publication_id, now() + $17::interval, from_status, status, round, fence,
                    CASE WHEN renewed THEN 'login_renewed' ELSE reason END
                FROM moved
            ), deltas AS MATERIALIZED (
                SELECT task_id, (-count(*) FILTER (WHERE from_status = 'draft'))::int AS drafts,
                    (count(*) FILTER (WHERE status IN ('submitted', 'running'))
                        - count(*) FILTER (WHERE from_status IN ('submitted', 'running')))::int AS open,
                    count(*) FILTER (WHERE status = 'success')::int AS succeeded,
                    (count(*) FILTER (WHERE status = 'failed') - count(*) FILTER (WHERE from_status = 'failed'))::int AS failed,
                    (count(*) FILTER (WHERE status = 'login_expired')
                        - count(*) FILTER (WHERE from_status = 'login_expired'))::int AS login_expired
                FROM moved GROUP BY 1
            ), counted AS (
                UPDATE tasks t SET drafts = t.drafts + d.drafts, open = t.open + d.open,
                    succeeded = t.succeeded + d.succeeded, failed = t.failed + d.failed,
                    login_expired = t.login_expired + d.login_expired,
                    finished_at = CASE WHEN t.open + d.open = 0 AND t.drafts + d.drafts = 0 THEN now() + $17::interval END
                FROM deltas d
                WHERE t.tenant_id = $1 AND t.task_id = d.task_id AND (SELECT count(*) FROM task_locks) >= 0
                    AND (d.drafts, d.open, d.succeeded, d.failed, d.login_expired) <> (0, 0, 0, 0, 0)
                RETURNING t.task_id, t.drafts, t.open, t.succeeded, t.failed, t.login_expired
            ), freed AS MATERIALIZED (
                SELECT platform, account_id, count(*) FILTER (WHERE leased)::int AS n,
                    bool_or(from_status = 'running' AND status = 'login_expired') AS expired,
                    count(*) FILTER (WHERE gives_back)::int AS given_back,
                    now() + $17::interval + max(parks) AS parked_until
                FROM moved GROUP BY 1, 2
                HAVING bool_or(leased OR gives_back OR from_status = 'running' AND status = 'login_expired')
            ), lanes_changed AS (
                UPDATE lanes l SET in_flight = l.in_flight - f.n, day_count = l.day_count - f.given_back,
                    login_state = CASE WHEN f.expired THEN 'login_expired' ELSE l.login_state END,
                    resume_from = CASE WHEN NOT f.expired THEN l.resume_from END,
                    parked_until = greatest(l.parked_until, f.parked_until),
                    free_at = greatest(l.free_at, f.parked_until)
                FROM freed f
                WHERE l.tenant_id = $1 AND l.platform = f.platform AND l.account_id = f.account_id
                    AND (SELECT count(*) FROM counted) >= 0 AND (SELECT count(*) FROM lane_locks) >= 0
                RETURNING 1
            ), fed AS (
                UPDATE feeds f SET position = f.position + k.n
                FROM (SELECT count(*)::int AS n FROM moved WHERE status IN ('success', 'failed', 'login_expired')) k
                WHERE f.tenant_id = $1 AND k.n > 0 AND (SELECT count(*) FROM lanes_changed) >= 0
                RETURNING f.position - k.n AS before
            )
            SELECT m.publication_id AS "publication_id!", m.task_id AS "task_id!", t.external_id AS "external_id!",
                m.platform AS "platform!", m.account_id AS "account_id!", m.status AS "status!: Status",
                m.round AS "round!", m.url, m.remote_id, m.error_code, m.error_message, m.error_retryable,
                t.callback_url, coalesce(x.metadata, '{}') AS "metadata!",
                c.drafts AS "drafts?", c.open AS "open?", c.succeeded AS "succeeded?", c.failed AS "failed?",
                c.login_expired AS "login_expired?",
                CASE WHEN m.status IN ('success', 'failed', 'login_expired') THEN (SELECT before FROM fed)
                    + count(*) FILTER (WHERE m.status IN ('success', 'failed', 'login_expired')) OVER (ORDER BY m.publication_id)
                END AS position, now() + $17::interval AS "at!",
                (SELECT count(*) FROM lanes_changed) AS "lanes_changed!"
            FROM moved m
            JOIN tasks t ON t.tenant_id = $1 AND t.task_id = m.task_id
            -- Of what waits for a login it may have been removed by age; to cancel that is still possible.
            LEFT JOIN articles x ON x.tenant_id = $1 AND x.task_id = m.task_id
            LEFT JOIN counted c ON c.task_id = m.task_id"#,
            tenant_id,
            &batch.iter().map(|one| one.publication_id).collect::<Vec<_>>(),
            &batch.iter().map(|one| one.fence).collect::<Vec<_>>(),
            &batch.iter().map(|one| one.from.as_str()).collect::<Vec<_>>() as &[&str],
            &batch.iter().map(|one| one.to.as_str()).collect::<Vec<_>>() as &[&str],
            &batch.iter().map(|one| one.url.as_deref()).collect::<Vec<_>>() as &[Option<&str>],
            &batch.iter().map(|one| one.remote_id.as_deref()).collect::<Vec<_>>() as &[Option<&str>],
            &error(|error| &error.0) as &[Option<&str>],
            &error(|error| &error.1) as &[Option<&str>],
            &batch.iter().map(|one| one.error.as_ref().map(|error| error.2)).collect::<Vec<_>>() as &[Option<bool>],
            &batch.iter().map(|one| one.wait).collect::<Vec<_>>() as &[Option<TimeDelta>],
            &batch.iter().map(|one| one.new_round).collect::<Vec<_>>(),
            &batch.iter().map(|one| one.reason).collect::<Vec<_>>() as &[&str],
            &batch.iter().map(|one| one.outcome).collect::<Vec<_>>() as &[Option<&str>],
            &batch.iter().map(|one| one.answer.as_deref()).collect::<Vec<_>>() as &[Option<&str>],
            &batch.iter().map(|one| one.accepted).collect::<Vec<_>>(),
            self.clock.skew() as _,
            &batch.iter().map(|one| one.parks).collect::<Vec<_>>() as &[Option<TimeDelta>],
            &batch.iter().map(|one| one.strays).collect::<Vec<_>>(),
            &batch.iter().map(|one| one.sweep).collect::<Vec<_>>() as &[TimeDelta],
            &batch.iter().map(|one| one.evidence.http_status.map(i32::from)).collect::<Vec<_>>() as &[Option<i32>],
            &batch.iter().map(|one| one.evidence.head.as_deref()).collect::<Vec<_>>() as &[Option<&str>],
            rows(batch),
        )
        .fetch_all(&mut **transaction)
        .await?;
        Ok(rows
            .into_iter()
            .map(|row| Moved {
                publication_id: row.publication_id,
                task_id: row.task_id,
                external_id: row.external_id,
                platform: row.platform,
                account_id: row.account_id,
                status: row.status,
                round: row.round,
                url: row.url,
                remote_id: row.remote_id,
                error_code: row.error_code,
                error_message: row.error_message,
                error_retryable: row.error_retryable,
                callback_url: row.callback_url,
                metadata: row.metadata,
                counters: [row.drafts, row.open, row.succeeded, row.failed, row.login_expired]
                    .map(Option::unwrap_or_default),
                position: row.position,
                at: row.at,
            })
            .collect())
    }
}
