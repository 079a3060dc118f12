//! The journal: what was about to be done, committed before it is done.

use std::time::Duration;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::{Store, StoreError};
use crate::retry::interval;

/// A step of a run: a look at the platform that is over, or a try to publish that is about to begin.
#[derive(Debug, Clone)]
pub struct JournalEntry<'a> {
    /// Whose.
    pub tenant_id: Uuid,
    /// The publication.
    pub publication_id: Uuid,
    /// The holder's fence.
    pub fence: i32,
    /// The publication's mark, stored with the first entry.
    pub marker: &'a str,
    /// The lease from now on.
    pub lease: Duration,
    /// Of a look at the platform: its number among the holder's steps, outcome and detail, and how long it took.
    pub probe: Option<(i32, &'static str, Option<&'a str>, Duration)>,
    /// The number of the try that is about to begin, if one is.
    pub publish: Option<i32>,
    /// Whether the outcome is being found out.
    pub confirming: bool,
}

/// The tries of a publication whose outcome is unknown.
#[derive(Debug, Clone, Copy, Default)]
pub struct OpenTries {
    /// How many there are.
    pub tries: i64,
    /// To how many of them the platform said that it was working on the article.
    pub accepted: i64,
    /// When the earliest of them began.
    pub since: Option<DateTime<Utc>>,
}

impl Store {
    /// Writes an entry and renews the lease, in one statement: were they two, a successor could begin between them.
    /// False if the lease was lost: then nothing was written, and nothing may be done.
    pub async fn journal(&self, entry: &JournalEntry<'_>) -> Result<bool, StoreError> {
        let step = entry.probe.map(|probe| probe.0);
        let (outcome, detail) = entry.probe.map_or((None, None), |probe| (Some(probe.1), probe.2));
        let took = entry.probe.map_or(Duration::ZERO, |probe| probe.3);
        let held = sqlx::query_scalar!(
            "WITH held AS (
                UPDATE publications SET lease_until = now() + $4::interval + $5::interval, marker = $6, confirming = $12,
                    attempts = attempts + CASE WHEN $11::int IS NULL THEN 0 ELSE 1 END,
                    updated_at = now() + $4::interval
                WHERE tenant_id = $1 AND publication_id = $2 AND fence = $3 AND status = 'running'
                RETURNING round
            ), probed AS (
                INSERT INTO attempts (tenant_id, publication_id, fence, step, kind, round, started_at, ended_at, outcome, detail)
                SELECT $1, $2, $3, $7, 'probe', round, now() + $4::interval - $10::interval, now() + $4::interval, $8, $9
                FROM held WHERE $7::int IS NOT NULL
            ), tried AS (
                INSERT INTO attempts (tenant_id, publication_id, fence, step, kind, round, started_at)
                SELECT $1, $2, $3, $11, 'publish', round, now() + $4::interval FROM held WHERE $11::int IS NOT NULL
            )
            SELECT round FROM held",
            entry.tenant_id,
            entry.publication_id,
            entry.fence,
            self.clock.skew() as _,
            interval(entry.lease) as _,
            entry.marker,
            step,
            outcome,
            detail,
            interval(took) as _,
            entry.publish,
            entry.confirming,
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(held.is_some())
    }

    /// Notes that the outcome of a try is being found out.
    pub async fn confirming(
        &self,
        tenant_id: Uuid,
        publication_id: Uuid,
        fence: i32,
    ) -> Result<(), StoreError> {
        sqlx::query!(
            "UPDATE publications SET confirming = true, updated_at = now() + $4::interval
            WHERE tenant_id = $1 AND publication_id = $2 AND fence = $3 AND status = 'running'",
            tenant_id,
            publication_id,
            fence,
            self.clock.skew() as _,
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Notes, in the holder's own try, that the platform answered with this address after all: its lease was lost, so it
    /// decides nothing any more, but who asks what was sent must find it.
    pub async fn answered_late(
        &self,
        tenant_id: Uuid,
        publication_id: Uuid,
        fence: i32,
        url: &str,
    ) -> Result<(), StoreError> {
        sqlx::query!(
            "UPDATE attempts SET outcome = CASE WHEN ended_at IS NULL THEN NULL ELSE 'done_late' END, detail = $4
            WHERE tenant_id = $1 AND publication_id = $2 AND fence = $3 AND kind = 'publish'",
            tenant_id,
            publication_id,
            fence,
            url,
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// The tries of a publication whose outcome is still unknown.
    pub async fn open_tries(&self, tenant_id: Uuid, publication_id: Uuid) -> Result<OpenTries, StoreError> {
        let open = sqlx::query_as!(
            OpenTries,
            r#"SELECT count(*) AS "tries!", count(*) FILTER (WHERE accepted) AS "accepted!", min(started_at) AS since
            FROM attempts WHERE tenant_id = $1 AND publication_id = $2 AND kind = 'publish' AND ended_at IS NULL"#,
            tenant_id,
            publication_id,
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(open)
    }
}
