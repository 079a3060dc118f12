//! The journal: what was about to be done, committed before it is done, and what came back.

use std::time::Duration;

use chrono::TimeDelta;
use serde::{Deserialize, Serialize};
use sqlx::types::Json;
use uuid::Uuid;

use super::{Store, StoreError};
use crate::fault;
use crate::retry::interval;

/// The word for a try of which it was proven that it published nothing and no longer will.
pub const NOT_PUBLISHED: &str = "not_published";

/// The word for a try of which nobody can say what came of it.
pub const ANSWER_LOST: &str = "answer_lost";

/// What is written between two steps of a run: what the one before came to, and what is about to be done.
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
    /// What the holder's request came to.
    pub came: Option<Came<'a>>,
    /// A look at the platform that is over.
    pub probe: Option<Probe<'a>>,
    /// Whether it proves that no earlier try published or still will.
    pub disproved: bool,
    /// What is about to be done.
    pub intent: Option<Intent<'a>>,
    /// Whether the outcome is being found out.
    pub confirming: bool,
}

/// What a request came to.
#[derive(Debug, Clone)]
pub struct Came<'a> {
    /// The step's number among the holder's.
    pub step: i32,
    /// In a word; none while it is not known.
    pub outcome: Option<&'a str>,
    /// What came back.
    pub detail: &'a str,
    /// The draft that there is now.
    pub draft_id: Option<&'a str>,
    /// What the platform said.
    pub evidence: Evidence,
    /// What the article goes without; none: that is not known by it.
    pub warnings: Option<&'a [Warning]>,
}

/// A remark on a publication that is no error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// Stable, `snake_case`.
    pub code: String,
    /// What it means, in a sentence.
    pub detail: String,
}

/// What a platform answered, as the history shows it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Evidence {
    /// The HTTP status.
    pub http_status: Option<u16>,
    /// The first characters of the body, without secrets.
    pub head: Option<String>,
}

/// A look at the platform.
#[derive(Debug, Clone)]
pub struct Probe<'a> {
    /// The step's number among the holder's.
    pub step: i32,
    /// What it saw, in a word.
    pub outcome: &'a str,
    /// In more words.
    pub detail: Option<&'a str>,
    /// How long it took.
    pub took: Duration,
    /// What the platform said.
    pub evidence: Evidence,
}

/// A step that is about to be taken.
#[derive(Debug, Clone, Copy)]
pub struct Intent<'a> {
    /// Its number among the holder's.
    pub step: i32,
    /// Its kind: `prepare`, `draft`, `publish` or `remove`.
    pub kind: &'a str,
    /// The draft it is about.
    pub draft_id: Option<&'a str>,
}

/// What the journal says of a publication.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Journal {
    /// The tries whose outcome is unknown.
    pub open: OpenTries,
    /// How many tries of this round are known by now to have published nothing, after nobody knew.
    pub disproved: i64,
    /// The draft that is to be published.
    pub draft_id: Option<String>,
    /// The drafts that somebody has asked to publish, and nobody knows, or only the time says, that nothing comes of it.
    pub asked: Vec<String>,
    /// The drafts that somebody was about to remove.
    pub removing: Vec<String>,
}

/// The tries of a publication whose outcome is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct OpenTries {
    /// How many there are.
    pub tries: i64,
    /// To how many of them the platform said that it was working on the article.
    pub accepted: i64,
    /// How long ago the earliest of them began, by the database's clock.
    pub since: Option<TimeDelta>,
    /// How long ago the last of them was out of our hands; negative while a holder may still begin it.
    pub over: Option<TimeDelta>,
}

impl Store {
    /// Writes an entry and renews the lease, of a run or of a sweep, in one statement: were they two, a successor could begin
    /// between them. False if the lease was lost: then nothing was written, and nothing may be done.
    pub async fn journal(&self, entry: &JournalEntry<'_>) -> Result<bool, StoreError> {
        let (came, probe, intent) = (entry.came.as_ref(), entry.probe.as_ref(), entry.intent.as_ref());
        let status = |evidence: Option<&Evidence>| evidence.and_then(|all| all.http_status).map(i32::from);
        let came_evidence = came.map(|came| &came.evidence);
        let probe_evidence = probe.map(|probe| &probe.evidence);
        let kind = intent.map_or("look", |intent| intent.kind);
        fault::point("journal.writing", kind);
        let held = sqlx::query_scalar!(
            "WITH held AS (
                UPDATE publications SET marker = $6, confirming = $7,
                    lease_until = CASE WHEN status = 'running' THEN now() + $4::interval + $5::interval END,
                    sweep_at = CASE WHEN status <> 'running' THEN now() + $4::interval + $5::interval END,
                    attempts = attempts + CASE WHEN $8::text = 'publish' THEN 1 ELSE 0 END,
                    drafts = drafts + CASE WHEN $8::text = 'draft' THEN 1 ELSE 0 END,
                    draft_id = CASE WHEN status = 'running' THEN coalesce($9, CASE WHEN $8 <> 'remove' THEN $10 END, draft_id) ELSE draft_id END,
                    warnings = CASE WHEN $25::jsonb IS NULL THEN warnings ELSE nullif($25::jsonb, '[]') END,
                    updated_at = CASE WHEN status = 'running' THEN now() + $4::interval ELSE updated_at END
                WHERE tenant_id = $1 AND publication_id = $2 AND fence = $3
                    AND (status = 'running' OR sweep_at IS NOT NULL)
                RETURNING round
            ), came AS (
                UPDATE attempts SET ended_at = CASE WHEN $12::text IS NOT NULL THEN now() + $4::interval END, outcome = $12,
                    detail = $13, http_status = $14, answer_head = $15,
                    -- The draft that was removed is not the one that there is now.
                    remote_id = CASE WHEN kind = 'remove' THEN remote_id ELSE coalesce($9, remote_id) END,
                    warnings = nullif($25::jsonb, '[]'),
                    over_at = least(over_at, now() + $4::interval)
                WHERE tenant_id = $1 AND publication_id = $2 AND fence = $3 AND step = $11 AND EXISTS (SELECT FROM held)
            ), disproved AS (
                UPDATE attempts SET ended_at = now() + $4::interval, outcome = $22
                WHERE $21 AND tenant_id = $1 AND publication_id = $2 AND kind IN ('draft', 'publish') AND ended_at IS NULL
                    AND EXISTS (SELECT FROM held)
            ), probed AS (
                INSERT INTO attempts (tenant_id, publication_id, fence, step, kind, round, started_at, ended_at, outcome,
                    detail, http_status, answer_head)
                SELECT $1, $2, $3, $16, 'probe', round, now() + $4::interval - $19::interval, now() + $4::interval, $17, $18,
                    $23, $24
                FROM held WHERE $16::int IS NOT NULL
            ), tried AS (
                INSERT INTO attempts (tenant_id, publication_id, fence, step, kind, round, started_at, over_at, remote_id)
                SELECT $1, $2, $3, $20, $8, round, now() + $4::interval, now() + $4::interval + $5::interval / 2, $10
                FROM held WHERE $20::int IS NOT NULL
            )
            SELECT round FROM held",
            entry.tenant_id,
            entry.publication_id,
            entry.fence,
            self.clock.skew() as _,
            interval(entry.lease) as _,
            entry.marker,
            entry.confirming,
            intent.map(|intent| intent.kind),
            came.and_then(|came| came.draft_id),
            intent.and_then(|intent| intent.draft_id),
            came.map(|came| came.step),
            came.and_then(|came| came.outcome),
            came.map(|came| came.detail),
            status(came_evidence),
            came_evidence.and_then(|evidence| evidence.head.as_deref()),
            probe.map(|probe| probe.step),
            probe.map(|probe| probe.outcome),
            probe.and_then(|probe| probe.detail),
            interval(probe.map_or(Duration::ZERO, |probe| probe.took)) as _,
            intent.map(|intent| intent.step),
            entry.disproved,
            NOT_PUBLISHED,
            status(probe_evidence),
            probe_evidence.and_then(|evidence| evidence.head.as_deref()),
            came.and_then(|came| came.warnings).map(Json) as _,
        )
        .fetch_optional(&self.pool)
        .await?;
        fault::point("journal.written", kind);
        Ok(held.is_some())
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

    /// What the journal says of a publication, in that round. To be asked after the claim has been committed: what the
    /// holder before was just writing is visible only then.
    pub async fn read_journal(
        &self,
        tenant_id: Uuid,
        publication_id: Uuid,
        round: i32,
    ) -> Result<Journal, StoreError> {
        let row = sqlx::query!(
            r#"SELECT count(*) FILTER (WHERE open) AS "tries!", count(*) FILTER (WHERE open AND accepted) AS "accepted!",
                (extract(epoch FROM now() + $4::interval - min(started_at) FILTER (WHERE open)))::float8 AS since,
                (extract(epoch FROM now() + $4::interval - max(over_at) FILTER (WHERE open)))::float8 AS over,
                count(*) FILTER (WHERE outcome = $5 AND round = $3) AS "disproved!",
                coalesce(array_agg(DISTINCT remote_id) FILTER (WHERE kind = 'publish'
                    AND (ended_at IS NULL OR outcome IN ($5, $6))), '{}') AS "asked!: Vec<Option<String>>",
                coalesce(array_agg(DISTINCT remote_id) FILTER (WHERE kind = 'remove'), '{}') AS "removing!: Vec<Option<String>>",
                (SELECT draft_id FROM publications WHERE tenant_id = $1 AND publication_id = $2) AS draft_id
            FROM (
                SELECT *, kind IN ('draft', 'publish') AND ended_at IS NULL AS open
                FROM attempts WHERE tenant_id = $1 AND publication_id = $2) a"#,
            tenant_id,
            publication_id,
            round,
            self.clock.skew() as _,
            NOT_PUBLISHED,
            ANSWER_LOST,
        )
        .fetch_one(&self.pool)
        .await?;
        let open = OpenTries {
            tries: row.tries,
            accepted: row.accepted,
            since: row.since.map(seconds),
            over: row.over.map(seconds),
        };
        let asked = row.asked.into_iter().flatten().collect();
        let removing = row.removing.into_iter().flatten().collect();
        Ok(Journal { open, disproved: row.disproved, draft_id: row.draft_id, asked, removing })
    }
}

#[expect(clippy::cast_possible_truncation, reason = "an age of years at most, in microseconds")]
pub(super) fn seconds(seconds: f64) -> TimeDelta {
    TimeDelta::microseconds((seconds * 1e6) as i64)
}
