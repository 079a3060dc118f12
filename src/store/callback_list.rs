//! Callbacks page by page.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::task_list::SCANNED_MAX;
use super::{Store, StoreError};
use crate::article::ExternalId;
use crate::callback::status::CallbackStatus;

/// Which callbacks are wanted: all that fit every filter that is there.
#[derive(Debug, Clone, Default)]
pub struct CallbackFilters {
    /// How they stand.
    pub status: Option<CallbackStatus>,
    /// The caller's id of the article.
    pub external_id: Option<ExternalId>,
}

/// A page of callbacks.
#[derive(Debug, Clone)]
pub struct CallbackPage {
    /// The newest first.
    pub callbacks: Vec<CallbackItem>,
    /// Before which event the next page begins; none: this is the last.
    pub next: Option<Uuid>,
}

/// A callback in a list.
#[derive(Debug, Clone)]
pub struct CallbackItem {
    /// The event.
    pub event_id: Uuid,
    /// The publication's state that it tells of.
    pub told: String,
    /// The caller's id of the article.
    pub external_id: String,
    /// The task.
    pub task_id: Uuid,
    /// The platform.
    pub platform: String,
    /// The account.
    pub account_id: String,
    /// Where to.
    pub url: String,
    /// `pending`, `delivered`, `exhausted` or `gone`.
    pub status: String,
    /// How often it was tried.
    pub attempts: i32,
    /// The status of the last answer.
    pub http_status: Option<i32>,
    /// What went wrong at the last try.
    pub error: Option<String>,
    /// When the next try is due, if one is.
    pub next_try_at: Option<DateTime<Utc>>,
    /// When the event was written.
    pub created_at: DateTime<Utc>,
    /// When it ended.
    pub ended_at: Option<DateTime<Utc>>,
    /// Whether it fits the filters.
    fits: bool,
    /// Whether it is the last that was looked at.
    last: bool,
}

impl Store {
    /// A page of callbacks, the newest first, of those before an event.
    ///
    /// A page looks at no more than `SCANNED_MAX` callbacks, so it may hold fewer than fit while there is a next one.
    pub async fn callback_page(
        &self,
        tenant_id: Uuid,
        filters: &CallbackFilters,
        before: Option<Uuid>,
        limit: usize,
    ) -> Result<CallbackPage, StoreError> {
        let mut of_task = None;
        if let Some(external_id) = &filters.external_id {
            let task_id = sqlx::query_scalar!(
                "SELECT task_id FROM tasks WHERE tenant_id = $1 AND external_id = $2",
                tenant_id,
                external_id.as_str(),
            );
            of_task = task_id.fetch_optional(&self.pool).await?;
            if of_task.is_none() {
                return Ok(CallbackPage { callbacks: Vec::new(), next: None });
            }
        }
        // One more tells whether there is a next page.
        let rows_max = i64::try_from(limit + 1).unwrap_or(SCANNED_MAX);
        let scanned_max = if filters.status.is_none() { rows_max } else { SCANNED_MAX };
        let before = before.unwrap_or(Uuid::max());
        let mut rows =
            self.callback_rows(tenant_id, (of_task, filters.status), before, [scanned_max, rows_max]).await?;
        let more = rows.len() > limit;
        rows.truncate(limit);
        let next = rows.last().filter(|row| more || row.last).map(|row| row.event_id);
        Ok(CallbackPage { callbacks: rows.into_iter().filter(|row| row.fits).collect(), next })
    }

    /// The rows of a page: what fits, and the last that was looked at when there may be more behind it. What was not
    /// delivered has an index of its own; of a task, all events are looked at.
    async fn callback_rows(
        &self,
        tenant_id: Uuid,
        (of_task, status): (Option<Uuid>, Option<CallbackStatus>),
        before: Uuid,
        [scanned_max, rows_max]: [i64; 2],
    ) -> Result<Vec<CallbackItem>, StoreError> {
        let rows = sqlx::query_as!(
            CallbackItem,
            r#"WITH candidates AS (
                SELECT s.event_id, s.status, row_number() OVER (ORDER BY s.event_id DESC) AS place FROM (
                    SELECT c.event_id, c.status FROM callbacks c
                    WHERE $2::uuid IS NULL AND ($3::text IS NULL OR $3 = 'delivered')
                        AND c.tenant_id = $1 AND c.event_id < $4
                    ORDER BY c.event_id DESC LIMIT $5) s
                UNION ALL
                SELECT s.event_id, s.status, 0 FROM (
                    SELECT c.event_id, c.status FROM callbacks c
                    WHERE $2::uuid IS NULL AND $3 <> 'delivered'
                        AND c.tenant_id = $1 AND c.status = $3 AND c.status <> 'delivered' AND c.tries >= 0
                        AND c.event_id < $4
                    ORDER BY c.event_id DESC LIMIT $6) s
                UNION ALL
                SELECT c.event_id, c.status, 0 FROM events e CROSS JOIN LATERAL (
                    SELECT c.event_id, c.status FROM callbacks c
                    WHERE c.tenant_id = $1 AND c.event_id = e.event_id LIMIT 1) c
                WHERE $2::uuid IS NOT NULL AND e.tenant_id = $1 AND e.task_id = $2 AND e.event_id < $4
            ), page AS MATERIALIZED (
                SELECT c.event_id, c.place, f.fits FROM candidates c
                CROSS JOIN LATERAL (SELECT $3::text IS NULL OR c.status = $3 AS fits) f
                WHERE f.fits OR c.place = $5
                ORDER BY c.event_id DESC LIMIT $6
            )
            SELECT c.event_id, e.status AS told, t.external_id, e.task_id, p.platform, p.account_id, c.url, c.status,
                c.tries AS attempts, l.http_status AS "http_status?", l.error AS "error?",
                CASE WHEN c.status = 'pending' THEN c.due_at END AS next_try_at, c.created_at, c.ended_at,
                g.fits AS "fits!", g.place = $5 AS "last!"
            FROM page g
            CROSS JOIN LATERAL (SELECT * FROM callbacks c WHERE c.tenant_id = $1 AND c.event_id = g.event_id LIMIT 1) c
            CROSS JOIN LATERAL (SELECT * FROM events e WHERE e.tenant_id = $1 AND e.event_id = g.event_id LIMIT 1) e
            CROSS JOIN LATERAL (SELECT * FROM tasks t WHERE t.tenant_id = $1 AND t.task_id = e.task_id LIMIT 1) t
            CROSS JOIN LATERAL (
                SELECT * FROM publications p WHERE p.tenant_id = $1 AND p.publication_id = e.publication_id LIMIT 1) p
            LEFT JOIN LATERAL (
                SELECT * FROM callback_tries l WHERE l.tenant_id = $1 AND l.event_id = g.event_id
                ORDER BY l.tenant_id, l.event_id, l.fence DESC LIMIT 1) l ON true
            ORDER BY g.event_id DESC"#,
            tenant_id,
            of_task,
            status.map(CallbackStatus::as_str),
            before,
            scanned_max,
            rows_max,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows)
    }
}
