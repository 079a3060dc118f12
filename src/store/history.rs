//! What happened to a task, from all that was written down.

use chrono::{DateTime, Utc};
use sqlx::types::Json;
use uuid::Uuid;

use super::callbacks::duration;
use super::{Store, StoreError, Warning};

/// The most entries that one call returns, the newest: a task with many accounts and retries stays readable.
const ENTRIES_MAX: i64 = 1_000;

/// What an entry tells of.
#[derive(Debug, Clone, PartialEq)]
pub enum HistorySource {
    /// A publication changed its state, or its holder.
    Transition {
        /// From; none where it began.
        from: Option<String>,
        /// To.
        to: String,
        /// Why.
        reason: String,
    },
    /// The platform was asked: to do something, or whether it holds the article.
    Attempt {
        /// `prepare`, `draft`, `publish`, `remove` or `probe`.
        kind: String,
        /// The publication, its holder's fence and the step, which name the requests that were made.
        step: (Uuid, i32, i32),
        /// When the answer came.
        ended_at: Option<DateTime<Utc>>,
        /// What it came to.
        outcome: Option<String>,
        /// What came back.
        detail: Option<String>,
        /// The HTTP status of the last answer.
        http_status: Option<i32>,
        /// The first characters of that answer, without secrets.
        answer_head: Option<String>,
        /// What on the platform it was about, or made.
        remote_id: Option<String>,
        /// What the article goes without.
        warnings: Option<Vec<Warning>>,
    },
    /// A callback was tried.
    Callback {
        /// The event.
        event_id: Uuid,
        /// The answer's status.
        http_status: Option<i32>,
        /// How long it took, in milliseconds.
        duration_ms: u64,
        /// What went wrong.
        error: Option<String>,
    },
}

/// An entry.
#[derive(Debug, Clone, PartialEq)]
pub struct HistoryRow {
    /// When.
    pub at: DateTime<Utc>,
    /// The platform.
    pub platform: String,
    /// The account.
    pub account_id: String,
    /// Which run.
    pub round: i32,
    /// What.
    pub source: HistorySource,
}

impl Store {
    /// The history of a task's publications, the oldest entry first.
    pub async fn history(&self, tenant_id: Uuid, task_id: Uuid) -> Result<Vec<HistoryRow>, StoreError> {
        let transitions = sqlx::query!(
            // What one transaction did has one time: only in this order can it move a publication on.
            "SELECT x.at, p.platform, p.account_id, x.round, nullif(x.from_status, '') AS from_status, x.to_status, x.reason
            FROM transitions x JOIN publications p USING (tenant_id, publication_id)
            WHERE x.tenant_id = $1 AND x.task_id = $2 ORDER BY x.at DESC, x.fence DESC, array_position('{submitted,running}', x.to_status) DESC
            LIMIT $3",
            tenant_id,
            task_id,
            ENTRIES_MAX,
        )
        .fetch_all(&self.pool)
        .await?;
        let attempts = sqlx::query!(
            r#"SELECT a.started_at, p.platform, p.account_id, a.round, a.publication_id, a.fence, a.step, a.kind, a.ended_at,
                a.outcome, a.detail, a.http_status, a.answer_head, a.warnings AS "warnings: Json<Vec<Warning>>",
                coalesce(a.remote_id, CASE WHEN a.outcome = 'done' THEN p.remote_id END) AS remote_id
            FROM publications p JOIN attempts a USING (tenant_id, publication_id)
            WHERE p.tenant_id = $1 AND p.task_id = $2 ORDER BY a.started_at DESC, a.fence DESC, a.step DESC LIMIT $3"#,
            tenant_id,
            task_id,
            ENTRIES_MAX,
        )
        .fetch_all(&self.pool)
        .await?;
        let tries = sqlx::query!(
            "SELECT c.at, p.platform, p.account_id, e.round, e.event_id, c.http_status, c.duration, c.error
            FROM events e
            JOIN callback_tries c USING (tenant_id, event_id)
            JOIN publications p ON p.tenant_id = e.tenant_id AND p.publication_id = e.publication_id
            WHERE e.tenant_id = $1 AND e.task_id = $2 ORDER BY c.at DESC, c.fence DESC LIMIT $3",
            tenant_id,
            task_id,
            ENTRIES_MAX,
        )
        .fetch_all(&self.pool)
        .await?;
        let mut rows = Vec::with_capacity(transitions.len() + attempts.len() + tries.len());
        // Read from the newest on; what has one time stays in its order.
        rows.extend(transitions.into_iter().rev().map(|row| HistoryRow {
            at: row.at,
            platform: row.platform,
            account_id: row.account_id,
            round: row.round,
            source: HistorySource::Transition {
                from: row.from_status,
                to: row.to_status,
                reason: row.reason,
            },
        }));
        rows.extend(attempts.into_iter().rev().map(|row| HistoryRow {
            at: row.started_at,
            platform: row.platform,
            account_id: row.account_id,
            round: row.round,
            source: HistorySource::Attempt {
                kind: row.kind,
                step: (row.publication_id, row.fence, row.step),
                ended_at: row.ended_at,
                outcome: row.outcome,
                detail: row.detail,
                http_status: row.http_status,
                answer_head: row.answer_head,
                remote_id: row.remote_id,
                warnings: row.warnings.map(|list| list.0),
            },
        }));
        rows.extend(tries.into_iter().rev().map(|row| HistoryRow {
            at: row.at,
            platform: row.platform,
            account_id: row.account_id,
            round: row.round,
            source: HistorySource::Callback {
                event_id: row.event_id,
                http_status: row.http_status,
                duration_ms: u64::try_from(duration(&row.duration).as_millis()).unwrap_or(u64::MAX),
                error: row.error,
            },
        }));
        rows.sort_by_key(|row| row.at);
        let surplus = rows.len().saturating_sub(usize::try_from(ENTRIES_MAX).unwrap_or(usize::MAX));
        rows.drain(..surplus);
        Ok(rows)
    }
}
