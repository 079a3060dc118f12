//! Many tasks at once: those of given ids, and page by page.

use chrono::{DateTime, TimeDelta, Utc};
use sqlx::types::Json;
use uuid::Uuid;

use super::{PublicationRow, Store, StoreError, TaskRow};
use crate::account::GroupCode;
use crate::article::{EXTERNAL_ID_MAX, ExternalId};
use crate::task::state::Status;

/// How many tasks one page looks at, so that a filter that fits few does not walk through all: some ten milliseconds.
pub(super) const SCANNED_MAX: i64 = 2_000;

/// A prefix that no more ids have is looked for among these alone.
const NAMED_MAX: usize = 1_000;

/// How far the clock of a node, which its ids carry, may be from the database's, which `created_at` is by. A task of a
/// node that is further off can be missed by a filter for times.
pub(super) const CLOCKS_APART: TimeDelta = TimeDelta::minutes(5);

/// Which tasks are wanted: all that fit every filter that is there.
#[derive(Debug, Clone, Default)]
pub struct TaskFilters {
    /// The caller's id.
    pub external_id: Option<ExternalId>,
    /// The task.
    pub task_id: Option<Uuid>,
    /// What the caller's id begins with; NFC, not empty, without control characters.
    pub external_id_prefix: Option<String>,
    /// The task's state.
    pub status: Option<Status>,
    /// Its group.
    pub group_code: Option<GroupCode>,
    /// A platform that a publication of it is for.
    pub platform: Option<String>,
    /// An account that a publication of it is for; with a platform: one of that platform.
    pub account_id: Option<String>,
    /// Created at this time or later.
    pub created_from: Option<DateTime<Utc>>,
    /// Created before this time.
    pub created_before: Option<DateTime<Utc>>,
}

/// A page of tasks.
#[derive(Debug, Clone)]
pub struct TaskPage {
    /// The newest first.
    pub tasks: Vec<TaskRow>,
    /// Before which task the next page begins; none: this is the last.
    pub next: Option<Uuid>,
}

/// A task as a statement returns it.
struct Stored {
    task_id: Uuid,
    external_id: String,
    group_code: String,
    callback_url: Option<String>,
    publish_at: Option<DateTime<Utc>>,
    created_at: DateTime<Utc>,
    submitted_at: Option<DateTime<Utc>>,
    finished_at: Option<DateTime<Utc>>,
    content_removed_at: Option<DateTime<Utc>>,
    title: Option<String>,
    summary: Option<String>,
    cover_url: Option<String>,
    canonical_url: Option<String>,
    author: Option<String>,
    tags: Option<Json<Vec<String>>>,
    metadata: Option<String>,
    publications: Option<Json<Vec<PublicationRow>>>,
    /// Whether it fits the filters.
    fits: bool,
    /// Whether it is the last that was looked at.
    last: bool,
}

impl From<Stored> for TaskRow {
    fn from(row: Stored) -> Self {
        Self {
            task_id: row.task_id,
            external_id: row.external_id,
            group_code: row.group_code,
            callback_url: row.callback_url,
            publish_at: row.publish_at,
            created_at: row.created_at,
            submitted_at: row.submitted_at,
            finished_at: row.finished_at,
            content_removed_at: row.content_removed_at,
            title: row.title,
            content_html: None,
            summary: row.summary,
            cover_url: row.cover_url,
            canonical_url: row.canonical_url,
            author: row.author,
            tags: row.tags.map(|list| list.0),
            metadata: row.metadata,
            publications: row.publications.map_or(Vec::new(), |list| list.0),
        }
    }
}

impl Store {
    /// The tasks of these ids that there are, in the order asked, without content.
    pub async fn tasks_named(
        &self,
        tenant_id: Uuid,
        external_ids: &[ExternalId],
    ) -> Result<Vec<TaskRow>, StoreError> {
        let external_ids = external_ids.iter().map(ExternalId::as_str).collect::<Vec<_>>();
        // Row by row, by the key, as in `accept`.
        let rows = sqlx::query_as!(
            Stored,
            r#"SELECT t.task_id, t.external_id, t.group_code, t.callback_url, t.publish_at, t.created_at, t.submitted_at,
                t.finished_at, t.content_removed_at, a.title AS "title?", a.summary, a.cover_url, a.canonical_url, a.author,
                a.tags AS "tags?: Json<Vec<String>>", a.metadata AS "metadata?",
                (SELECT json_agg(json_build_object(
                        'platform', p.platform, 'account_id', p.account_id, 'status', p.status,
                        'confirming', p.confirming, 'round', p.round, 'claimed', p.fence > 0, 'attempts', p.attempts,
                        'url', p.url, 'remote_id', p.remote_id, 'error_code', p.error_code,
                        'error_message', p.error_message, 'error_retryable', p.error_retryable, 'warnings', p.warnings,
                        'due_at', p.due_at, 'updated_at', p.updated_at) ORDER BY p.position)
                    FROM publications p WHERE p.tenant_id = t.tenant_id AND p.task_id = t.task_id
                ) AS "publications: Json<Vec<PublicationRow>>", true AS "fits!", false AS "last!"
            FROM unnest($2::text[]) WITH ORDINALITY AS i(external_id, place)
            CROSS JOIN LATERAL (
                SELECT * FROM tasks t WHERE t.tenant_id = $1 AND t.external_id = i.external_id LIMIT 1) t
            LEFT JOIN LATERAL (
                SELECT * FROM articles a WHERE a.tenant_id = $1 AND a.task_id = t.task_id LIMIT 1) a ON true
            ORDER BY i.place"#,
            tenant_id,
            &external_ids as &[&str],
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows.into_iter().map(Into::into).collect())
    }

    /// At most `limit` tasks that fit, the newest first, of those older than `before` if that is given.
    ///
    /// A page looks at no more than `SCANNED_MAX` tasks, so it may hold fewer than fit while there is a next one.
    pub async fn task_page(
        &self,
        tenant_id: Uuid,
        filters: &TaskFilters,
        before: Option<Uuid>,
        limit: usize,
    ) -> Result<TaskPage, StoreError> {
        let named = self.named(tenant_id, filters).await?;
        let until = filters.created_before.map(|at| first_id_at(at + CLOCKS_APART));
        let before = [before, until].into_iter().flatten().min().unwrap_or(Uuid::max());
        let from = filters.created_from.map_or(Uuid::nil(), |at| first_id_at(at - CLOCKS_APART));
        // One more tells whether there is a next page.
        let rows_max = i64::try_from(limit + 1).unwrap_or(SCANNED_MAX);
        let scanned_max = if filters.fit_all() { rows_max } else { SCANNED_MAX };
        let mut rows =
            self.page_rows(tenant_id, filters, named, from..before, [scanned_max, rows_max]).await?;
        let more = rows.len() > limit;
        rows.truncate(limit);
        let next = rows.last().filter(|row| more || row.last).map(|row| row.task_id);
        let tasks = rows.into_iter().filter(|row| row.fits).map(Into::into).collect();
        Ok(TaskPage { tasks, next })
    }

    /// The tasks that the filters for ids name; none if those do not narrow it down.
    async fn named(&self, tenant_id: Uuid, filters: &TaskFilters) -> Result<Option<Vec<Uuid>>, StoreError> {
        if let Some(task_id) = filters.task_id {
            return Ok(Some(vec![task_id]));
        }
        let Some((from, until)) = filters.range() else { return Ok(None) };
        let task_ids = sqlx::query_scalar!(
            "SELECT task_id FROM tasks WHERE tenant_id = $1 AND external_id >= $2 AND external_id < $3
            ORDER BY external_id LIMIT $4",
            tenant_id,
            from,
            until,
            i64::try_from(NAMED_MAX + 1).unwrap_or(i64::MAX),
        )
        .fetch_all(&self.pool)
        .await?;
        Ok((task_ids.len() <= NAMED_MAX).then_some(task_ids))
    }

    /// The rows of a page: what fits, and the last that was looked at when there may be more behind it.
    ///
    /// The task's state is derived as [`crate::task::state::Counts::task_status`] does, and a test holds the two against
    /// each other. The look at publications is a plain subselect: an EXISTS may be planned to read the whole table.
    async fn page_rows(
        &self,
        tenant_id: Uuid,
        filters: &TaskFilters,
        named: Option<Vec<Uuid>>,
        ids: std::ops::Range<Uuid>,
        [scanned_max, rows_max]: [i64; 2],
    ) -> Result<Vec<Stored>, StoreError> {
        let rows = sqlx::query_as!(
            Stored,
            r#"WITH candidates AS (
                SELECT s.*, row_number() OVER (ORDER BY s.task_id DESC) AS place FROM (
                    SELECT t.* FROM tasks t
                    WHERE $2::uuid[] IS NULL AND t.tenant_id = $1 AND t.task_id >= $3 AND t.task_id < $4
                    ORDER BY t.task_id DESC LIMIT $5) s
                UNION ALL
                SELECT t.*, 0 FROM unnest($2::uuid[]) AS i(task_id) CROSS JOIN LATERAL (
                    SELECT t.* FROM tasks t
                    WHERE t.tenant_id = $1 AND t.task_id = i.task_id AND t.task_id >= $3 AND t.task_id < $4 LIMIT 1) t
            ), page AS MATERIALIZED (
                SELECT c.*, f.fits FROM candidates c CROSS JOIN LATERAL (SELECT
                    ($7::text IS NULL OR c.external_id = $7)
                    AND ($8::text IS NULL OR starts_with(c.external_id, $8))
                    AND ($9::text IS NULL OR c.group_code = $9)
                    AND ($10::timestamptz IS NULL OR c.created_at >= $10)
                    AND ($11::timestamptz IS NULL OR c.created_at < $11)
                    AND ($12::text IS NULL OR $12 = CASE
                        WHEN c.drafts > 0 THEN 'draft'
                        WHEN c.open > 0 AND c.succeeded + c.failed + c.login_expired = 0 AND (
                            SELECT true FROM publications p WHERE p.tenant_id = $1 AND p.task_id = c.task_id
                                AND (p.status = 'running' OR p.fence > 0) LIMIT 1) IS NULL THEN 'submitted'
                        WHEN c.open > 0 THEN 'running'
                        WHEN c.login_expired > 0 THEN 'login_expired'
                        WHEN c.failed > 0 THEN 'failed'
                        ELSE 'success' END)
                    AND ($13::text IS NULL AND $14::text IS NULL OR (
                        SELECT true FROM publications p WHERE p.tenant_id = $1 AND p.task_id = c.task_id
                            AND ($13 IS NULL OR p.platform = $13) AND ($14 IS NULL OR p.account_id = $14) LIMIT 1)
                        IS NOT NULL) AS fits) f
                WHERE f.fits OR c.place = $5
                ORDER BY c.task_id DESC LIMIT $6
            )
            SELECT g.task_id AS "task_id!", g.external_id AS "external_id!", g.group_code AS "group_code!",
                g.callback_url, g.publish_at, g.created_at AS "created_at!", g.submitted_at, g.finished_at,
                g.content_removed_at, a.title AS "title?", a.summary, a.cover_url, a.canonical_url, a.author,
                a.tags AS "tags?: Json<Vec<String>>", a.metadata AS "metadata?",
                (SELECT json_agg(json_build_object(
                        'platform', p.platform, 'account_id', p.account_id, 'status', p.status,
                        'confirming', p.confirming, 'round', p.round, 'claimed', p.fence > 0, 'attempts', p.attempts,
                        'url', p.url, 'remote_id', p.remote_id, 'error_code', p.error_code,
                        'error_message', p.error_message, 'error_retryable', p.error_retryable, 'warnings', p.warnings,
                        'due_at', p.due_at, 'updated_at', p.updated_at) ORDER BY p.position)
                    FROM publications p WHERE p.tenant_id = $1 AND p.task_id = g.task_id
                ) AS "publications: Json<Vec<PublicationRow>>", g.fits AS "fits!", g.place = $5 AS "last!"
            FROM page g LEFT JOIN LATERAL (
                SELECT * FROM articles a WHERE a.tenant_id = $1 AND a.task_id = g.task_id LIMIT 1) a ON true
            ORDER BY g.task_id DESC"#,
            tenant_id,
            named.as_deref() as Option<&[Uuid]>,
            ids.start,
            ids.end,
            scanned_max,
            rows_max,
            filters.external_id.as_ref().map(ExternalId::as_str),
            filters.external_id_prefix.as_deref(),
            filters.group_code.as_ref().map(GroupCode::as_str),
            filters.created_from,
            filters.created_before,
            filters.status.map(Status::as_str),
            filters.platform.as_deref(),
            filters.account_id.as_deref(),
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows)
    }
}

impl TaskFilters {
    /// Whether every task fits.
    fn fit_all(&self) -> bool {
        let Self {
            external_id,
            task_id,
            external_id_prefix,
            status,
            group_code,
            platform,
            account_id,
            created_from,
            created_before,
        } = self;
        external_id.is_none()
            && task_id.is_none()
            && external_id_prefix.is_none()
            && status.is_none()
            && group_code.is_none()
            && platform.is_none()
            && account_id.is_none()
            && created_from.is_none()
            && created_before.is_none()
    }

    /// The range of ids that are asked for, its end not among them; none if all are.
    fn range(&self) -> Option<(String, String)> {
        if let Some(id) = &self.external_id {
            // No id has a control character, so nothing else lies between the two.
            return Some((id.as_str().to_owned(), format!("{id}\u{1}")));
        }
        self.external_id_prefix.as_ref().map(|prefix| (prefix.clone(), after_prefix(prefix)))
    }
}

/// What sorts, byte by byte, after every id that begins with `prefix`, and before all that sort behind those.
fn after_prefix(prefix: &str) -> String {
    let mut chars = prefix.chars().collect::<Vec<_>>();
    while let Some(last) = chars.pop() {
        // The next scalar value: a step over the surrogates, and none behind the last.
        let next = if last == '\u{d7ff}' { Some('\u{e000}') } else { char::from_u32(u32::from(last) + 1) };
        if let Some(next) = next {
            chars.push(next);
            return chars.into_iter().collect();
        }
    }
    // Nothing but the last scalar value: longer than any id.
    "\u{10ffff}".repeat(EXTERNAL_ID_MAX + 1)
}

/// The lowest id that is made at that time.
pub(super) fn first_id_at(at: DateTime<Utc>) -> Uuid {
    let millis = u64::try_from(at.timestamp_millis()).unwrap_or(0);
    uuid::Builder::from_unix_timestamp_millis(millis, &[0; 10]).into_uuid()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_end_of_a_prefix_is_the_next_text() {
        for (prefix, end) in [
            ("post-", "post."),
            ("é", "ê"),
            ("\u{7f}", "\u{80}"),
            ("a\u{d7ff}", "a\u{e000}"),
            ("a\u{10ffff}", "b"),
            ("a\u{ffff}", "a\u{10000}"),
        ] {
            assert_eq!(after_prefix(prefix), end, "{prefix:?}");
        }
        assert!(after_prefix("\u{10ffff}\u{10ffff}") > "\u{10ffff}".repeat(EXTERNAL_ID_MAX));
    }

    #[test]
    fn ids_made_at_a_time_do_not_lie_below_its_first() {
        let at = DateTime::from_timestamp_millis(1_700_000_000_123).unwrap();
        let id = |millis, random| uuid::Builder::from_unix_timestamp_millis(millis, random).into_uuid();
        assert!(first_id_at(at) <= id(1_700_000_000_123, &[0; 10]));
        assert!(first_id_at(at) > id(1_700_000_000_122, &[0xff; 10]));
        assert!(first_id_at(DateTime::UNIX_EPOCH - TimeDelta::days(1)) <= id(0, &[0; 10]));
    }

    proptest! {
        #[test]
        fn what_has_the_prefix_lies_in_its_range(prefix in "[a\u{d7ff}\u{e000}\u{10ffff}]{1,3}", text in "[ab\u{d7ff}\u{e000}\u{10ffff}]{1,5}") {
            let within = text.as_str() >= prefix.as_str() && text < after_prefix(&prefix);
            prop_assert_eq!(within, text.starts_with(&prefix));
        }
    }
}
