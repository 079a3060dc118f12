//! How far the removal is.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use crate::retention::keep::Keep;
use crate::store::{Store, StoreError};

/// How far is counted what would go: enough to tell whether it is much, and soon counted.
pub const COUNTED_MOST: i64 = 100_000;

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

impl Store {
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
}
