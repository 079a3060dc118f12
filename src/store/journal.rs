//! The journal: what was about to be done, committed before it is done, and what came back.

use std::collections::HashSet;
use std::time::Duration;

use chrono::TimeDelta;
use serde::{Deserialize, Serialize};
use sqlx::types::Json;
use uuid::Uuid;

use super::{Store, StoreError, rows};
use crate::retry::interval;

/// The word for a try of which it was proven that it published nothing and no longer will.
pub const NOT_PUBLISHED: &str = "not_published";

/// The word for a try of which nobody can say what came of it.
pub const ANSWER_LOST: &str = "answer_lost";

/// What is written between two steps of a run: what the one before came to, and what is about to be done.
#[derive(Debug, Clone)]
pub struct JournalEntry {
    /// Whose.
    pub tenant_id: Uuid,
    /// The publication.
    pub publication_id: Uuid,
    /// The holder's fence.
    pub fence: i32,
    /// The publication's mark, stored with the first entry.
    pub marker: String,
    /// The lease from now on.
    pub lease: Duration,
    /// What the holder's request came to.
    pub came: Option<Came>,
    /// A look at the platform that is over.
    pub probe: Option<Probe>,
    /// Whether it proves that no earlier try published or still will.
    pub disproved: bool,
    /// What is about to be done.
    pub intent: Option<Intent>,
    /// Whether the outcome is being found out.
    pub confirming: bool,
}

/// What a request came to.
#[derive(Debug, Clone)]
pub struct Came {
    /// The step's number among the holder's.
    pub step: i32,
    /// In a word; none while it is not known.
    pub outcome: Option<&'static str>,
    /// What came back.
    pub detail: String,
    /// The draft that there is now.
    pub draft_id: Option<String>,
    /// What the platform said.
    pub evidence: Evidence,
    /// What the article goes without; none: that is not known by it.
    pub warnings: Option<Vec<Warning>>,
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
pub struct Probe {
    /// The step's number among the holder's.
    pub step: i32,
    /// What it saw, in a word.
    pub outcome: &'static str,
    /// In more words.
    pub detail: Option<String>,
    /// How long it took.
    pub took: Duration,
    /// What the platform said.
    pub evidence: Evidence,
}

/// A step that is about to be taken.
#[derive(Debug, Clone)]
pub struct Intent {
    /// Its number among the holder's.
    pub step: i32,
    /// Its kind: `prepare`, `draft`, `publish` or `remove`.
    pub kind: &'static str,
    /// The draft it is about.
    pub draft_id: Option<String>,
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

impl JournalEntry {
    /// What it notes, for the points of a test.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.intent.as_ref().map_or("look", |intent| intent.kind)
    }
}

impl Store {
    /// Writes entries of one tenant and renews their leases, of runs or of sweeps, in one statement: were they two, a
    /// successor could begin between them. For each, in order, false if its lease was lost: then nothing of it was written,
    /// and nothing may be done.
    #[expect(clippy::too_many_lines, reason = "one statement, which reads best in one piece")]
    pub async fn journal(&self, tenant_id: Uuid, batch: &[JournalEntry]) -> Result<Vec<bool>, StoreError> {
        let came = |of: fn(&Came) -> Option<&str>| {
            batch.iter().map(|entry| entry.came.as_ref().and_then(of)).collect::<Vec<_>>()
        };
        let probe = |of: fn(&Probe) -> Option<&str>| {
            batch.iter().map(|entry| entry.probe.as_ref().and_then(of)).collect::<Vec<_>>()
        };
        let intent = |of: fn(&Intent) -> Option<&str>| {
            batch.iter().map(|entry| entry.intent.as_ref().and_then(of)).collect::<Vec<_>>()
        };
        let status = |evidence: &Evidence| evidence.http_status.map(i32::from);
        let warnings = batch.iter().map(|entry| entry.came.as_ref()?.warnings.as_ref().map(Json));
        let took =
            |probe: &Option<Probe>| interval(probe.as_ref().map_or(Duration::ZERO, |probe| probe.took));
        let held = sqlx::query!(
            r#"WITH input AS MATERIALIZED (
                -- The limit is their number: of an unknown one the planner takes a tenth, so it counts on one row and goes by
                -- keys. For ten it would read a young table whole, and a grown one by the same plan.
                SELECT * FROM unnest($2::uuid[], $3::int[], $4::text[], $5::interval[], $6::boolean[], $7::int[], $8::text[],
                    $9::text[], $10::text[], $11::int[], $12::text[], $13::jsonb[], $14::int[], $15::text[], $16::text[],
                    $17::interval[], $18::int[], $19::text[], $20::boolean[], $21::int[], $22::text[], $23::text[])
                AS u(publication_id, fence, marker, lease, confirming, came_step, came_outcome, came_detail, came_draft,
                    came_status, came_head, came_warnings, probe_step, probe_outcome, probe_detail, probe_took, probe_status,
                    probe_head, disproved, step, kind, intent_draft) LIMIT $26
            ), held AS MATERIALIZED (
                -- Row by row, by the key, and in its order.
                SELECT i.*, p.round FROM (SELECT * FROM input ORDER BY publication_id) i CROSS JOIN LATERAL (
                    SELECT p.round FROM publications p
                    WHERE p.tenant_id = $1 AND p.publication_id = i.publication_id AND p.fence = i.fence
                        AND (p.status = 'running' OR p.sweep_at IS NOT NULL)
                    LIMIT 1 FOR NO KEY UPDATE) p
            ), renewed AS (
                UPDATE publications p SET marker = h.marker, confirming = h.confirming,
                    -- The next call has half a lease, so one of which more is left stays as it is, and the row out of its index.
                    lease_until = CASE WHEN p.status <> 'running' THEN NULL
                        WHEN p.lease_until > now() + $24::interval + 0.75 * h.lease THEN p.lease_until
                        ELSE now() + $24::interval + h.lease END,
                    sweep_at = CASE WHEN p.status <> 'running' THEN now() + $24::interval + h.lease END,
                    attempts = p.attempts + CASE WHEN h.kind = 'publish' THEN 1 ELSE 0 END,
                    drafts = p.drafts + CASE WHEN h.kind = 'draft' THEN 1 ELSE 0 END,
                    draft_id = CASE WHEN p.status = 'running' THEN coalesce(h.came_draft,
                        CASE WHEN h.kind <> 'remove' THEN h.intent_draft END, p.draft_id) ELSE p.draft_id END,
                    warnings = CASE WHEN h.came_warnings IS NULL THEN p.warnings ELSE nullif(h.came_warnings, '[]') END,
                    updated_at = CASE WHEN p.status = 'running' THEN now() + $24::interval ELSE p.updated_at END
                FROM held h WHERE p.tenant_id = $1 AND p.publication_id = h.publication_id
            ), came AS (
                UPDATE attempts a SET ended_at = CASE WHEN h.came_outcome IS NOT NULL THEN now() + $24::interval END,
                    outcome = h.came_outcome, detail = h.came_detail, http_status = h.came_status, answer_head = h.came_head,
                    -- The draft that was removed is not the one that there is now.
                    remote_id = CASE WHEN a.kind = 'remove' THEN a.remote_id ELSE coalesce(h.came_draft, a.remote_id) END,
                    warnings = nullif(h.came_warnings, '[]'),
                    over_at = least(a.over_at, now() + $24::interval)
                FROM held h WHERE a.tenant_id = $1 AND a.publication_id = h.publication_id AND a.fence = h.fence
                    AND a.step = h.came_step
            ), disproved AS (
                UPDATE attempts a SET ended_at = now() + $24::interval, outcome = $25
                FROM held h WHERE h.disproved AND a.tenant_id = $1 AND a.publication_id = h.publication_id
                    AND a.kind IN ('draft', 'publish') AND a.ended_at IS NULL
            ), noted AS (
                -- The look that is over, and the step that is about to be taken.
                INSERT INTO attempts (tenant_id, publication_id, fence, step, kind, round, started_at, ended_at, over_at,
                    outcome, detail, http_status, answer_head, remote_id)
                SELECT $1, publication_id, fence, probe_step, 'probe', round, now() + $24::interval - probe_took,
                    now() + $24::interval, NULL, probe_outcome, probe_detail, probe_status, probe_head, NULL
                FROM held WHERE probe_step IS NOT NULL
                UNION ALL
                SELECT $1, publication_id, fence, step, kind, round, now() + $24::interval, NULL,
                    now() + $24::interval + lease / 2, NULL, NULL, NULL, NULL, intent_draft
                FROM held WHERE step IS NOT NULL
            )
            SELECT publication_id AS "publication_id!", fence AS "fence!" FROM held"#,
            tenant_id,
            &batch.iter().map(|entry| entry.publication_id).collect::<Vec<_>>(),
            &batch.iter().map(|entry| entry.fence).collect::<Vec<_>>(),
            &batch.iter().map(|entry| entry.marker.as_str()).collect::<Vec<_>>() as &[&str],
            &batch.iter().map(|entry| interval(entry.lease)).collect::<Vec<_>>() as &[TimeDelta],
            &batch.iter().map(|entry| entry.confirming).collect::<Vec<_>>(),
            &batch.iter().map(|entry| entry.came.as_ref().map(|came| came.step)).collect::<Vec<_>>() as &[Option<i32>],
            &came(|came| came.outcome) as &[Option<&str>],
            &came(|came| Some(&came.detail)) as &[Option<&str>],
            &came(|came| came.draft_id.as_deref()) as &[Option<&str>],
            &batch.iter().map(|entry| entry.came.as_ref().and_then(|came| status(&came.evidence))).collect::<Vec<_>>() as &[Option<i32>],
            &came(|came| came.evidence.head.as_deref()) as &[Option<&str>],
            &warnings.collect::<Vec<_>>() as _,
            &batch.iter().map(|entry| entry.probe.as_ref().map(|probe| probe.step)).collect::<Vec<_>>() as &[Option<i32>],
            &probe(|probe| Some(probe.outcome)) as &[Option<&str>],
            &probe(|probe| probe.detail.as_deref()) as &[Option<&str>],
            &batch.iter().map(|entry| took(&entry.probe)).collect::<Vec<_>>() as &[TimeDelta],
            &batch.iter().map(|entry| entry.probe.as_ref().and_then(|probe| status(&probe.evidence))).collect::<Vec<_>>() as &[Option<i32>],
            &probe(|probe| probe.evidence.head.as_deref()) as &[Option<&str>],
            &batch.iter().map(|entry| entry.disproved).collect::<Vec<_>>(),
            &batch.iter().map(|entry| entry.intent.as_ref().map(|intent| intent.step)).collect::<Vec<_>>() as &[Option<i32>],
            &intent(|intent| Some(intent.kind)) as &[Option<&str>],
            &intent(|intent| intent.draft_id.as_deref()) as &[Option<&str>],
            self.clock.skew() as _,
            NOT_PUBLISHED,
            rows(batch),
        )
        .fetch_all(&self.pool)
        .await?;
        let held = held.into_iter().map(|row| (row.publication_id, row.fence)).collect::<HashSet<_>>();
        Ok(batch.iter().map(|entry| held.contains(&(entry.publication_id, entry.fence))).collect())
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
