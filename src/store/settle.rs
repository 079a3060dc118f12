//! Settling: the outcome, the counters, the lane, the event and its delivery, in one transaction.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::{Store, StoreError};
use crate::task::state::Status;

/// What is to become of a publication.
#[derive(Debug, Clone)]
pub struct Settlement {
    /// Whose.
    pub tenant_id: Uuid,
    /// The publication.
    pub publication_id: Uuid,
    /// The holder's fence.
    pub fence: i32,
    /// Its state from now on: `success`, `failed`, `login_expired`, or `submitted` for another try.
    pub status: Status,
    /// Its public address.
    pub url: Option<String>,
    /// The platform's id of it.
    pub remote_id: Option<String>,
    /// Code, sentence, and whether a retry may help.
    pub error: Option<(String, String, bool)>,
    /// The wait before the next try, for `submitted`.
    pub wait: chrono::TimeDelta,
    /// Why, in a word: for the history.
    pub reason: &'static str,
    /// How the open try of this holder ended, and what came back.
    pub outcome: (&'static str, Option<String>),
}

/// A publication that was settled.
#[derive(Debug, Clone)]
pub struct Settled {
    /// The publication.
    pub publication_id: Uuid,
    /// Its task.
    pub task_id: Uuid,
    /// The caller's id.
    pub external_id: String,
    /// The platform.
    pub platform: String,
    /// The account.
    pub account_id: String,
    /// Its state now.
    pub status: Status,
    /// Its run.
    pub round: i32,
    /// Its public address.
    pub url: Option<String>,
    /// The platform's id of it.
    pub remote_id: Option<String>,
    /// The error's code.
    pub error_code: Option<String>,
    /// The error's sentence.
    pub error_message: Option<String>,
    /// Whether a retry may help.
    pub error_retryable: Option<bool>,
    /// Where the event goes.
    pub callback_url: Option<String>,
    /// The caller's own data.
    pub metadata: String,
    /// How many of the task's publications are drafts, open, succeeded, failed, and wait for a login.
    pub counters: [i32; 5],
    /// The event's position in the tenant's feed; none if the publication only goes back to `submitted`.
    pub position: Option<i64>,
    /// The transaction's time.
    pub at: DateTime<Utc>,
}

/// An event to be written, composed from what the transaction saw.
#[derive(Debug, Clone)]
pub(super) struct NewEvent {
    pub position: i64,
    pub event_id: Uuid,
    pub task_id: Uuid,
    pub publication_id: Uuid,
    pub round: i32,
    pub status: Status,
    pub body: Vec<u8>,
    pub delivery: Option<(String, String)>,
}

impl Store {
    /// Settles a batch of one tenant and returns what was settled; a publication whose fence has moved on is left out,
    /// and nothing of it is written. `compose` makes the body of the event at a position, and names its delivery (URL and
    /// receiver), whose first try is due after `first_wait`.
    pub async fn settle(
        &self,
        tenant_id: Uuid,
        batch: &[Settlement],
        first_wait: chrono::TimeDelta,
        compose: impl Fn(&Settled, i64, Uuid) -> (Vec<u8>, Option<(String, String)>),
    ) -> Result<Vec<Settled>, StoreError> {
        let mut transaction = self.pool.begin().await?;
        let settled = self.move_states(tenant_id, batch, &mut transaction).await?;
        let events = settled.iter().filter_map(|one| {
            let position = one.position?;
            let event_id = self.clock.new_id();
            let (body, delivery) = compose(one, position, event_id);
            Some(NewEvent {
                position,
                event_id,
                task_id: one.task_id,
                publication_id: one.publication_id,
                round: one.round,
                status: one.status,
                body,
                delivery,
            })
        });
        let events = events.collect::<Vec<_>>();
        if !events.is_empty() {
            self.write_events(tenant_id, &events, first_wait, &mut transaction).await?;
        }
        transaction.commit().await?;
        Ok(settled)
    }

    /// Locks publications, tasks, lanes and feed, in that order, each sorted.
    ///
    /// The parts of one statement run when their rows are asked for, so each part asks how many rows the one before it
    /// made: it cannot lock before that has. Two settles then never wait for each other in a circle; the tests settle from
    /// eight sides at once.
    #[expect(clippy::too_many_lines, reason = "one statement, which reads best in one piece")]
    async fn move_states(
        &self,
        tenant_id: Uuid,
        batch: &[Settlement],
        transaction: &mut sqlx::PgTransaction<'_>,
    ) -> Result<Vec<Settled>, StoreError> {
        let error = |of: fn(&(String, String, bool)) -> &str| {
            batch.iter().map(|one| one.error.as_ref().map(of)).collect::<Vec<_>>()
        };
        let rows = sqlx::query!(
            r#"WITH input AS MATERIALIZED (
                SELECT * FROM unnest($2::uuid[], $3::int[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
                    $9::boolean[], $10::interval[], $11::text[], $12::text[], $13::text[])
                AS u(publication_id, fence, status, url, remote_id, error_code, error_message,
                    error_retryable, wait, reason, outcome, detail)
            ), locked AS MATERIALIZED (
                SELECT p.publication_id, i.status, i.url, i.remote_id, i.error_code, i.error_message, i.error_retryable,
                    i.wait, i.reason, i.outcome, i.detail
                FROM publications p JOIN input i ON i.publication_id = p.publication_id AND i.fence = p.fence
                WHERE p.tenant_id = $1 AND p.status = 'running'
                ORDER BY p.publication_id FOR UPDATE OF p
            ), moved AS (
                UPDATE publications p SET status = l.status, url = l.url, remote_id = l.remote_id,
                    error_code = l.error_code, error_message = l.error_message, error_retryable = l.error_retryable,
                    due_at = CASE WHEN l.status = 'submitted' THEN now() + $14::interval + l.wait ELSE p.due_at END,
                    tries = CASE WHEN l.status = 'submitted' THEN p.tries + 1 ELSE p.tries END,
                    lease_owner = NULL, lease_until = NULL, confirming = false, updated_at = now() + $14::interval
                FROM locked l WHERE p.tenant_id = $1 AND p.publication_id = l.publication_id
                RETURNING p.publication_id, p.task_id, p.platform, p.account_id, p.status, p.round, p.fence, p.url,
                    p.remote_id, p.error_code, p.error_message, p.error_retryable, l.reason, l.outcome, l.detail
            ), closed AS (
                -- The platform was looked at after each earlier try, so what is known now answers for them all.
                UPDATE attempts a SET ended_at = now() + $14::interval,
                    outcome = CASE WHEN a.fence = m.fence THEN m.outcome ELSE 'answer_lost' END,
                    detail = CASE WHEN a.fence = m.fence THEN m.detail END
                FROM moved m
                WHERE a.tenant_id = $1 AND a.publication_id = m.publication_id AND a.ended_at IS NULL
            ), noted AS (
                INSERT INTO transitions (tenant_id, task_id, publication_id, at, from_status, to_status, round, fence, reason)
                SELECT $1, task_id, publication_id, now() + $14::interval, 'running', status, round, fence, reason FROM moved
            ), ended AS MATERIALIZED (
                SELECT task_id, count(*)::int AS n, count(*) FILTER (WHERE status = 'success')::int AS succeeded,
                    count(*) FILTER (WHERE status = 'failed')::int AS failed,
                    count(*) FILTER (WHERE status = 'login_expired')::int AS login_expired
                FROM moved WHERE status <> 'submitted' GROUP BY 1
            ), task_locks AS MATERIALIZED (
                SELECT t.task_id FROM tasks t JOIN ended USING (task_id)
                WHERE t.tenant_id = $1 ORDER BY t.task_id FOR NO KEY UPDATE OF t
            ), counted AS (
                UPDATE tasks t SET open = t.open - e.n, succeeded = t.succeeded + e.succeeded,
                    failed = t.failed + e.failed, login_expired = t.login_expired + e.login_expired,
                    finished_at = CASE WHEN t.open = e.n AND t.drafts = 0 THEN now() + $14::interval END
                FROM ended e WHERE t.tenant_id = $1 AND t.task_id = e.task_id AND (SELECT count(*) FROM task_locks) >= 0
                RETURNING t.task_id, t.drafts, t.open, t.succeeded, t.failed, t.login_expired
            ), freed AS MATERIALIZED (
                SELECT platform, account_id, count(*)::int AS n FROM moved GROUP BY 1, 2
            ), lane_locks AS MATERIALIZED (
                SELECT l.account_id FROM lanes l JOIN freed USING (platform, account_id)
                WHERE l.tenant_id = $1 AND (SELECT count(*) FROM counted) >= 0
                ORDER BY l.platform, l.account_id FOR NO KEY UPDATE OF l
            ), lanes_freed AS (
                UPDATE lanes l SET in_flight = l.in_flight - f.n FROM freed f
                WHERE l.tenant_id = $1 AND l.platform = f.platform AND l.account_id = f.account_id
                    AND (SELECT count(*) FROM lane_locks) >= 0
                RETURNING 1
            ), fed AS (
                UPDATE feeds f SET position = f.position + k.n
                FROM (SELECT count(*)::int AS n FROM moved WHERE status <> 'submitted') k
                WHERE f.tenant_id = $1 AND k.n > 0 AND (SELECT count(*) FROM lanes_freed) >= 0
                RETURNING f.position - k.n AS before
            ), numbered AS (
                SELECT publication_id, row_number() OVER (ORDER BY publication_id) AS n
                FROM moved WHERE status <> 'submitted'
            )
            SELECT m.publication_id AS "publication_id!", m.task_id AS "task_id!", t.external_id AS "external_id!",
                m.platform AS "platform!", m.account_id AS "account_id!", m.status AS "status!: Status",
                m.round AS "round!", m.url, m.remote_id, m.error_code, m.error_message, m.error_retryable,
                t.callback_url, x.metadata AS "metadata!",
                c.drafts AS "drafts?", c.open AS "open?", c.succeeded AS "succeeded?", c.failed AS "failed?",
                c.login_expired AS "login_expired?",
                (SELECT before FROM fed) + n.n AS position, now() + $14::interval AS "at!",
                (SELECT count(*) FROM lanes_freed) AS "lanes_freed!"
            FROM moved m
            JOIN tasks t ON t.tenant_id = $1 AND t.task_id = m.task_id
            JOIN articles x ON x.tenant_id = $1 AND x.task_id = m.task_id
            LEFT JOIN counted c ON c.task_id = m.task_id
            LEFT JOIN numbered n ON n.publication_id = m.publication_id"#,
            tenant_id,
            &batch.iter().map(|one| one.publication_id).collect::<Vec<_>>(),
            &batch.iter().map(|one| one.fence).collect::<Vec<_>>(),
            &batch.iter().map(|one| one.status.as_str()).collect::<Vec<_>>() as &[&str],
            &batch.iter().map(|one| one.url.as_deref()).collect::<Vec<_>>() as &[Option<&str>],
            &batch.iter().map(|one| one.remote_id.as_deref()).collect::<Vec<_>>() as &[Option<&str>],
            &error(|error| &error.0) as &[Option<&str>],
            &error(|error| &error.1) as &[Option<&str>],
            &batch.iter().map(|one| one.error.as_ref().map(|error| error.2)).collect::<Vec<_>>() as &[Option<bool>],
            &batch.iter().map(|one| one.wait).collect::<Vec<_>>() as &[chrono::TimeDelta],
            &batch.iter().map(|one| one.reason).collect::<Vec<_>>() as &[&str],
            &batch.iter().map(|one| one.outcome.0).collect::<Vec<_>>() as &[&str],
            &batch.iter().map(|one| one.outcome.1.as_deref()).collect::<Vec<_>>() as &[Option<&str>],
            self.clock.skew() as _,
        )
        .fetch_all(&mut **transaction)
        .await?;
        Ok(rows
            .into_iter()
            .map(|row| Settled {
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
