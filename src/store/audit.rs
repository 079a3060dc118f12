//! What was recorded of an account's publications, for an operator who holds it against what the platform shows.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::{Store, StoreError};
use crate::account::AccountKey;
use crate::task::state::Status;

/// What one publication says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// The caller's id of the article.
    pub external_id: String,
    /// Its mark, once it was claimed.
    pub marker: Option<String>,
    /// Its state.
    pub status: Status,
    /// Its public address.
    pub url: Option<String>,
    /// The platform's id of it.
    pub remote_id: Option<String>,
    /// Whether it stood so already when the audit began.
    pub settled: bool,
}

impl Store {
    /// The time of the database.
    pub async fn now(&self) -> Result<DateTime<Utc>, StoreError> {
        let now = sqlx::query_scalar!(r#"SELECT now() + $1::interval AS "now!""#, self.clock.skew() as _);
        Ok(now.fetch_one(&self.pool).await?)
    }

    /// What was recorded of an account, among the next ten thousand publications of its tenant after `after` (in the order of
    /// their ids); and where to go on, unless these were the last.
    ///
    /// An account's own publications stand in no index once they have ended, so all are walked past, in steps that are short
    /// whatever the account's share is.
    pub async fn recorded(
        &self,
        tenant_id: Uuid,
        key: &AccountKey,
        begun: DateTime<Utc>,
        after: Uuid,
    ) -> Result<(Vec<Recorded>, Option<Uuid>), StoreError> {
        let rows = sqlx::query!(
            r#"WITH step AS MATERIALIZED (
                SELECT p.publication_id, p.task_id, p.platform, p.account_id, p.marker, p.status, p.url, p.remote_id,
                    p.updated_at
                FROM publications p WHERE p.tenant_id = $1 AND p.publication_id > $2
                ORDER BY p.tenant_id, p.publication_id LIMIT 10000
            )
            SELECT t.external_id AS "external_id?", s.marker, s.status AS "status: Status", s.url, s.remote_id,
                s.updated_at <= $5 AS "settled!", s.publication_id
            FROM step s LEFT JOIN tasks t ON t.tenant_id = $1 AND t.task_id = s.task_id
                AND s.platform = $3 AND s.account_id = $4
            WHERE t.task_id IS NOT NULL OR s.publication_id = (SELECT publication_id FROM step
                ORDER BY publication_id DESC LIMIT 1)
            ORDER BY s.publication_id"#,
            tenant_id,
            after,
            key.platform(),
            key.account_id(),
            begun,
        )
        .fetch_all(&self.pool)
        .await?;
        let next = rows.last().map(|row| row.publication_id);
        let recorded = rows.into_iter().filter_map(|row| {
            Some(Recorded {
                external_id: row.external_id?,
                marker: row.marker,
                status: row.status,
                url: row.url,
                remote_id: row.remote_id,
                settled: row.settled,
            })
        });
        Ok((recorded.collect(), next))
    }
}
