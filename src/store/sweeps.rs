//! Looking once more after the end: drafts that nobody needs are removed from their platform.

use std::time::Duration;

use chrono::TimeDelta;
use sqlx::types::Json;
use uuid::Uuid;

use super::{ClaimLimits, Claimed, Store, StoreError};
use crate::article::Content;
use crate::retry::interval;

/// A publication that has ended, in hand to be swept.
#[derive(Debug, Clone)]
pub struct Sweep {
    /// The publication.
    pub one: Claimed,
    /// The platform's id of what is public.
    pub remote_id: Option<String>,
    /// How long ago it ended.
    pub age: TimeDelta,
    /// How many drafts were asked for of which nobody has seen anything: they may still appear.
    pub unseen: i64,
}

impl Store {
    /// Claims what is to be swept of one tenant, the earliest first and at most 16 at once. The fence rises, so that of two
    /// who sweep the first can write nothing more; what is held comes again when the lease has run out.
    pub async fn claim_sweeps(
        &self,
        tenant_id: Uuid,
        limits: &ClaimLimits,
    ) -> Result<Vec<Sweep>, StoreError> {
        let rows = sqlx::query!(
            r#"WITH due AS MATERIALIZED (
                SELECT publication_id FROM publications
                WHERE tenant_id = $1 AND sweep_at <= now() + $3::interval
                ORDER BY tenant_id, sweep_at LIMIT 16 FOR UPDATE SKIP LOCKED
            ), mine AS (
                UPDATE publications p SET fence = p.fence + 1, sweep_at = now() + $3::interval + $2::interval
                FROM accounts a
                WHERE p.tenant_id = $1 AND p.publication_id = ANY (ARRAY(SELECT publication_id FROM due))
                    AND a.tenant_id = $1 AND a.platform = p.platform AND a.account_id = p.account_id
                RETURNING p.*, a.settings, a.credentials_sealed
            )
            SELECT m.tenant_id, n.name AS tenant, m.publication_id, m.task_id, t.external_id, m.platform, m.account_id,
                m.settings, m.credentials_sealed, m.round, m.fence, m.tries, m.marker, m.draft_id, m.remote_id,
                (extract(epoch FROM now() + $3::interval - m.updated_at))::float8 AS "age!",
                m.drafts - (SELECT count(DISTINCT s.remote_id) FROM attempts s
                    WHERE s.tenant_id = m.tenant_id AND s.publication_id = m.publication_id
                        AND s.kind IN ('draft', 'publish', 'remove')) AS "unseen!",
                coalesce(t.submitted_at, t.created_at) AS "submitted_at!", x.title, x.content_html, x.summary, x.cover_url,
                x.canonical_url, x.author, x.tags AS "tags: Json<Vec<String>>"
            FROM mine m
            JOIN tenants n ON n.tenant_id = m.tenant_id
            JOIN tasks t ON t.tenant_id = m.tenant_id AND t.task_id = m.task_id
            JOIN articles x ON x.tenant_id = m.tenant_id AND x.task_id = m.task_id"#,
            tenant_id,
            interval(limits.lease) as _,
            self.clock.skew() as _,
        )
        .fetch_all(&self.pool)
        .await?;
        let sweeps = rows.into_iter().map(|row| Sweep {
            remote_id: row.remote_id,
            age: super::journal::seconds(row.age),
            unseen: row.unseen,
            one: Claimed {
                tenant_id: row.tenant_id,
                tenant: row.tenant,
                publication_id: row.publication_id,
                task_id: row.task_id,
                external_id: row.external_id,
                platform: row.platform,
                account_id: row.account_id,
                settings: row.settings,
                credentials_sealed: row.credentials_sealed,
                round: row.round,
                fence: row.fence,
                taken_over: false,
                tries: row.tries,
                marker: row.marker,
                draft_id: row.draft_id,
                submitted_at: row.submitted_at,
                content: Content {
                    title: row.title,
                    content_html: row.content_html,
                    summary: row.summary,
                    cover_url: row.cover_url,
                    canonical_url: row.canonical_url,
                    author: row.author,
                    tags: row.tags.0,
                },
            },
        });
        Ok(sweeps.collect())
    }

    /// Ends a sweep, or puts it off; nothing if another has it by now. At its end removals without an answer are over, too:
    /// the platform was looked at since.
    pub async fn swept(&self, one: &Claimed, again: Option<Duration>) -> Result<(), StoreError> {
        sqlx::query!(
            "WITH put_off AS (
                UPDATE publications SET sweep_at = now() + $4::interval + $5::interval
                WHERE tenant_id = $1 AND publication_id = $2 AND fence = $3 AND sweep_at IS NOT NULL
                RETURNING sweep_at
            )
            UPDATE attempts a SET ended_at = now() + $4::interval, outcome = 'answer_lost'
            FROM put_off
            WHERE put_off.sweep_at IS NULL AND a.tenant_id = $1 AND a.publication_id = $2 AND a.kind = 'remove'
                AND a.ended_at IS NULL",
            one.tenant_id,
            one.publication_id,
            one.fence,
            self.clock.skew() as _,
            again.map(interval) as _,
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }
}
