//! Tasks: accepting them, and looking one up.

use chrono::{DateTime, Utc};
use serde::Deserialize;
use sqlx::PgExecutor;
use sqlx::types::Json;
use uuid::Uuid;

use super::{Store, StoreError, Warning, stored_keys};
use crate::account::AccountKey;
use crate::article::{Content, Digests, ExternalId};
use crate::task::state::Status;

/// An article to be accepted.
#[derive(Debug, Clone)]
pub struct NewTask {
    /// Whose.
    pub tenant_id: Uuid,
    /// The id it gets if it is new.
    pub task_id: Uuid,
    /// The caller's id.
    pub external_id: ExternalId,
    /// Its group.
    pub group_code: String,
    /// What it holds.
    pub content: Content,
    /// What tells its content from another.
    pub digests: Digests,
    /// The request's `Idempotency-Key`.
    pub idempotency_key: Option<String>,
    /// Where events go.
    pub callback_url: Option<String>,
    /// Not before then.
    pub publish_at: Option<DateTime<Utc>>,
    /// Whether it waits for a submit.
    pub draft: bool,
    /// The caller's own data, a JSON object.
    pub metadata: String,
    /// Whether its tenant has a daily quota: then it takes one of its writer's share (`super::quotas`).
    pub limited: bool,
}

/// What became of an article that was to be accepted.
#[derive(Debug, Clone)]
pub enum Admitted {
    /// It is new, and on disk.
    Created {
        /// The accounts it goes to.
        members: Vec<AccountKey>,
        /// When.
        at: DateTime<Utc>,
        /// Another article of its group with the same content.
        same_content_as: Option<String>,
    },
    /// Its `external_id` exists, or this very task does, by an earlier try of ours.
    Existing(Box<ExistingTask>),
    /// There is no such group.
    UnknownGroup,
    /// The group has no accounts.
    EmptyGroup,
    /// It may be new, and the writer's share of its tenant's quota does not reach for it.
    NothingLeft,
    /// Somebody else's, or its group is just changing; not visible to this statement yet: ask again.
    Unseen,
}

/// A stored task, as far as a repeated request is compared with it.
#[derive(Debug, Clone)]
pub struct ExistingTask {
    /// Its id.
    pub task_id: Uuid,
    /// Its group.
    pub group_code: String,
    /// The digests of its fields.
    pub digests: Vec<u8>,
    /// The `Idempotency-Key` it was created with.
    pub idempotency_key: Option<String>,
    /// Where its events go.
    pub callback_url: Option<String>,
    /// Not before then.
    pub publish_at: Option<DateTime<Utc>>,
    /// Whether it was created as a draft.
    pub draft: bool,
    /// When it was submitted.
    pub submitted_at: Option<DateTime<Utc>>,
    /// Its publications, in the order of the group.
    pub publications: Vec<PublicationRow>,
}

/// A publication, as the API shows it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct PublicationRow {
    /// The platform.
    pub platform: String,
    /// The account.
    pub account_id: String,
    /// Its state.
    pub status: Status,
    /// Whether its outcome is being found out.
    pub confirming: bool,
    /// Which run.
    pub round: i32,
    /// Whether a worker has had it.
    pub claimed: bool,
    /// How often the platform was asked to publish.
    pub attempts: i32,
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
    /// What it goes, or went, without; none: nothing.
    pub warnings: Option<Vec<Warning>>,
    /// When it is due.
    pub due_at: DateTime<Utc>,
    /// When it last changed.
    pub updated_at: DateTime<Utc>,
}

/// A task with its article.
#[derive(Debug, Clone)]
pub struct TaskRow {
    /// Its id.
    pub task_id: Uuid,
    /// The caller's id.
    pub external_id: String,
    /// Its group.
    pub group_code: String,
    /// Where events go.
    pub callback_url: Option<String>,
    /// Not before then.
    pub publish_at: Option<DateTime<Utc>>,
    /// When it was accepted.
    pub created_at: DateTime<Utc>,
    /// When it was submitted.
    pub submitted_at: Option<DateTime<Utc>>,
    /// When its last publication ended.
    pub finished_at: Option<DateTime<Utc>>,
    /// When its content was removed by age; its fields are none then.
    pub content_removed_at: Option<DateTime<Utc>>,
    /// The title.
    pub title: Option<String>,
    /// The content; only where asked for.
    pub content_html: Option<String>,
    /// The summary.
    pub summary: Option<String>,
    /// The cover image.
    pub cover_url: Option<String>,
    /// Where the article stands first.
    pub canonical_url: Option<String>,
    /// The author.
    pub author: Option<String>,
    /// The tags, in order.
    pub tags: Option<Vec<String>>,
    /// The caller's own data, a JSON object.
    pub metadata: Option<String>,
    /// Its publications, in the order of the group.
    pub publications: Vec<PublicationRow>,
}

impl Store {
    /// Accepts a batch, in one statement and one commit; the answers are in the batch's order.
    ///
    /// The batch is sorted by (tenant, `external_id`) and holds none twice: two batches then never wait for each other
    /// in a circle. What somebody else is just writing is reported as [`Admitted::Unseen`]: the statement's snapshot
    /// cannot show it, so it takes another statement.
    /// What is limited is taken from that share, in the batch's order.
    #[expect(clippy::too_many_lines, reason = "one statement, which reads best in one piece")]
    pub async fn accept(&self, batch: &[&NewTask], share_id: Uuid) -> Result<Vec<Admitted>, StoreError> {
        let column = |of: fn(&NewTask) -> Option<&str>| batch.iter().map(|task| of(task)).collect::<Vec<_>>();
        let tags = batch.iter().map(|task| Json(&task.content.tags)).collect::<Vec<_>>();
        let rows = sqlx::query!(
            r#"WITH input AS MATERIALIZED (
                SELECT * FROM unnest(
                    $1::uuid[], $2::text[], $3::uuid[], $4::text[], $5::bytea[], $6::bytea[], $7::text[], $8::text[],
                    $9::timestamptz[], $10::boolean[], $11::text[], $12::text[], $13::text[], $14::text[],
                    $15::text[], $16::text[], $17::jsonb[], $18::text[], $20::boolean[]
                ) WITH ORDINALITY AS u(
                    tenant_id, external_id, task_id, group_code, fingerprint, digests, idempotency_key, callback_url,
                    publish_at, draft, title, content_html, summary, cover_url,
                    canonical_url, author, tags, metadata, limited, place)
            ), found AS MATERIALIZED (
                -- Row by row, by the key: joined, a young table would be read whole, and a grown one by the same plan.
                SELECT i.place, t.* FROM input i CROSS JOIN LATERAL (
                    SELECT * FROM tasks t WHERE t.tenant_id = i.tenant_id AND t.external_id = i.external_id LIMIT 1) t
            ), locked AS MATERIALIZED (
                -- Before all else, since who takes shares back waits for them.
                SELECT s.tenant_id, s.amount, s.ctid AS version
                FROM (SELECT DISTINCT tenant_id FROM input WHERE limited) d JOIN quota_shares s USING (tenant_id)
                WHERE s.share_id = $21 AND s.day = account_day(s.day, 'UTC', now() + $19::interval)
                ORDER BY s.tenant_id FOR UPDATE OF s
            ), shares AS MATERIALIZED (
                -- Another version than the snapshot's is of an earlier try of this batch, whose articles it does not show.
                SELECT l.tenant_id, l.amount, s.ctid = l.version AS fresh
                FROM locked l JOIN quota_shares s ON s.tenant_id = l.tenant_id AND s.share_id = $21
            ), held AS MATERIALIZED (
                -- Until the commit no account is taken out of these groups (`super::locks`).
                SELECT g.tenant_id, g.group_code, g.ctid AS version
                FROM (SELECT DISTINCT tenant_id, group_code FROM input) d JOIN groups g USING (tenant_id, group_code)
                WHERE (SELECT count(*) FROM shares) >= 0
                ORDER BY g.tenant_id, g.group_code FOR KEY SHARE OF g
            ), named AS MATERIALIZED (
                -- What is locked is the newest version of a row; members are read as the statement's snapshot shows them.
                SELECT g.tenant_id, g.group_code, g.ctid = h.version AS fresh, (
                    SELECT count(*)::int FROM group_members m
                    WHERE m.tenant_id = g.tenant_id AND m.group_code = g.group_code
                ) AS members
                FROM held h JOIN groups g USING (tenant_id, group_code)
            ), covered AS MATERIALIZED (
                SELECT place FROM (
                    SELECT i.place, s.amount, row_number() OVER (PARTITION BY i.tenant_id ORDER BY i.place) AS nth
                    FROM input i JOIN shares s USING (tenant_id) JOIN named n USING (tenant_id, group_code)
                    WHERE i.limited AND s.fresh AND n.fresh AND n.members > 0
                        AND NOT EXISTS (SELECT FROM found f WHERE f.place = i.place)) c
                WHERE nth <= amount
            ), won AS (
                INSERT INTO tasks (tenant_id, external_id, task_id, group_code, fingerprint, digests, idempotency_key,
                    callback_url, publish_at, draft, drafts, open, created_at, submitted_at)
                SELECT i.tenant_id, i.external_id, i.task_id, i.group_code, i.fingerprint, i.digests, i.idempotency_key,
                    i.callback_url, i.publish_at, i.draft,
                    CASE WHEN i.draft THEN n.members ELSE 0 END, CASE WHEN i.draft THEN 0 ELSE n.members END,
                    now() + $19::interval, CASE WHEN NOT i.draft THEN now() + $19::interval END
                FROM input i JOIN named n USING (tenant_id, group_code)
                WHERE n.fresh AND n.members > 0 AND NOT EXISTS (SELECT FROM found f WHERE f.place = i.place)
                    AND (NOT i.limited OR EXISTS (SELECT FROM covered c WHERE c.place = i.place))
                ORDER BY i.tenant_id, i.external_id
                ON CONFLICT (tenant_id, external_id) DO NOTHING
                RETURNING tenant_id, task_id, created_at
            ), taken AS (
                UPDATE quota_shares s SET amount = s.amount - w.articles
                FROM (SELECT i.tenant_id, count(*)::int AS articles FROM input i JOIN won USING (tenant_id, task_id)
                    WHERE i.limited GROUP BY i.tenant_id) w
                WHERE s.tenant_id = w.tenant_id AND s.share_id = $21
            ), texts AS (
                INSERT INTO articles (tenant_id, task_id, title, content_html, summary, cover_url, canonical_url, author,
                    tags, metadata)
                SELECT i.tenant_id, i.task_id, i.title, i.content_html, i.summary, i.cover_url, i.canonical_url, i.author,
                    i.tags, i.metadata
                FROM input i JOIN won USING (tenant_id, task_id)
            ), runs AS (
                INSERT INTO publications (tenant_id, publication_id, task_id, platform, account_id, position, status,
                    due_at, updated_at)
                -- A version 7 id: the task's time, then bits of chance.
                SELECT i.tenant_id, encode(
                        substring(uuid_send(i.task_id) FROM 1 FOR 8) || substring(uuid_send(gen_random_uuid()) FROM 9 FOR 8),
                        'hex')::uuid,
                    i.task_id, m.platform, m.account_id, m.position,
                    CASE WHEN i.draft THEN 'draft' ELSE 'submitted' END,
                    greatest(i.publish_at, now() + $19::interval), now() + $19::interval
                FROM input i JOIN won USING (tenant_id, task_id)
                JOIN group_members m ON m.tenant_id = i.tenant_id AND m.group_code = i.group_code
                RETURNING tenant_id, task_id, platform, account_id, position
            )
            SELECT i.place AS "place!",
                -- The quota goes before the group.
                i.limited AND coalesce(s.fresh, true) AND (coalesce(s.amount, 0) = 0
                    OR coalesce(n.fresh AND n.members > 0, false)
                        AND NOT EXISTS (SELECT FROM covered c WHERE c.place = i.place)
                ) AS "nothing_left!",
                CASE WHEN n.fresh THEN n.members END AS "members?", n.fresh AND coalesce(s.fresh, true) AS "fresh?",
                w.created_at AS "created_at?", f.submitted_at AS "submitted_at?",
                CASE WHEN w.task_id IS NOT NULL THEN (
                    SELECT json_agg(json_build_array(r.platform, r.account_id) ORDER BY r.position)
                    FROM runs r WHERE r.tenant_id = i.tenant_id AND r.task_id = i.task_id
                ) END AS "accounts: Json<Vec<(String, String)>>",
                CASE WHEN w.task_id IS NOT NULL THEN (
                    SELECT s.external_id FROM tasks s
                    WHERE s.tenant_id = i.tenant_id AND s.fingerprint = i.fingerprint AND s.group_code = i.group_code
                    LIMIT 1
                ) END AS same_content_as,
                f.task_id AS "task_id?", f.group_code AS "group_code?", f.digests AS "digests?", f.idempotency_key AS "idempotency_key?", f.callback_url AS "callback_url?",
                f.publish_at AS "publish_at?", f.draft AS "draft?",
                CASE WHEN f.task_id IS NOT NULL THEN (
                    SELECT json_agg(json_build_object(
                        'platform', p.platform, 'account_id', p.account_id, 'status', p.status,
                        'confirming', p.confirming, 'round', p.round, 'claimed', p.fence > 0, 'attempts', p.attempts,
                        'url', p.url, 'remote_id', p.remote_id, 'error_code', p.error_code,
                        'error_message', p.error_message, 'error_retryable', p.error_retryable, 'warnings', p.warnings,
                        'due_at', p.due_at, 'updated_at', p.updated_at) ORDER BY p.position)
                    FROM publications p WHERE p.tenant_id = f.tenant_id AND p.task_id = f.task_id
                ) END AS "publications: Json<Vec<PublicationRow>>"
            FROM input i
            LEFT JOIN won w ON w.tenant_id = i.tenant_id AND w.task_id = i.task_id
            LEFT JOIN found f ON f.place = i.place
            LEFT JOIN named n ON n.tenant_id = i.tenant_id AND n.group_code = i.group_code
            LEFT JOIN shares s ON s.tenant_id = i.tenant_id AND i.limited
            ORDER BY i.place"#,
            &batch.iter().map(|task| task.tenant_id).collect::<Vec<_>>(),
            &column(|task| Some(task.external_id.as_str())) as &[Option<&str>],
            &batch.iter().map(|task| task.task_id).collect::<Vec<_>>(),
            &column(|task| Some(&task.group_code)) as &[Option<&str>],
            &batch.iter().map(|task| &task.digests.fingerprint[..]).collect::<Vec<_>>() as &[&[u8]],
            &batch.iter().map(|task| &task.digests.fields[..]).collect::<Vec<_>>() as &[&[u8]],
            &column(|task| task.idempotency_key.as_deref()) as &[Option<&str>],
            &column(|task| task.callback_url.as_deref()) as &[Option<&str>],
            &batch.iter().map(|task| task.publish_at).collect::<Vec<_>>() as &[Option<DateTime<Utc>>],
            &batch.iter().map(|task| task.draft).collect::<Vec<_>>(),
            &column(|task| Some(&task.content.title)) as &[Option<&str>],
            &column(|task| Some(&task.content.content_html)) as &[Option<&str>],
            &column(|task| task.content.summary.as_deref()) as &[Option<&str>],
            &column(|task| task.content.cover_url.as_deref()) as &[Option<&str>],
            &column(|task| task.content.canonical_url.as_deref()) as &[Option<&str>],
            &column(|task| task.content.author.as_deref()) as &[Option<&str>],
            &tags as &[Json<&Vec<String>>],
            &column(|task| Some(&task.metadata)) as &[Option<&str>],
            self.clock.skew() as _,
            &batch.iter().map(|task| task.limited).collect::<Vec<_>>(),
            share_id,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows
            .into_iter()
            .map(|row| match (row.task_id, row.group_code, row.digests, row.draft) {
                (Some(task_id), Some(group_code), Some(digests), Some(draft)) => {
                    Admitted::Existing(Box::new(ExistingTask {
                        task_id,
                        group_code,
                        digests,
                        draft,
                        idempotency_key: row.idempotency_key,
                        callback_url: row.callback_url,
                        publish_at: row.publish_at,
                        submitted_at: row.submitted_at,
                        publications: row.publications.map_or(Vec::new(), |list| list.0),
                    }))
                }
                _ if row.nothing_left && row.created_at.is_none() => Admitted::NothingLeft,
                _ if row.fresh == Some(false) => Admitted::Unseen,
                _ => Self::admitted_anew(row.created_at, row.accounts, row.members, row.same_content_as),
            })
            .collect())
    }

    fn admitted_anew(
        created_at: Option<DateTime<Utc>>,
        accounts: Option<Json<Vec<(String, String)>>>,
        members: Option<i32>,
        same_content_as: Option<String>,
    ) -> Admitted {
        let Some(at) = created_at else {
            return match members {
                None => Admitted::UnknownGroup,
                Some(0) => Admitted::EmptyGroup,
                Some(_) => Admitted::Unseen,
            };
        };
        let members = accounts.map_or(Vec::new(), stored_keys);
        Admitted::Created { members, at, same_content_as }
    }

    /// The task of that `external_id`; with its content if asked for.
    pub async fn task(
        &self,
        tenant_id: Uuid,
        external_id: &ExternalId,
        with_content: bool,
    ) -> Result<Option<TaskRow>, StoreError> {
        Self::read_task(&self.pool, tenant_id, external_id, with_content).await
    }

    /// As [`Self::task`], as a transaction sees it.
    pub(super) async fn read_task(
        executor: impl PgExecutor<'_>,
        tenant_id: Uuid,
        external_id: &ExternalId,
        with_content: bool,
    ) -> Result<Option<TaskRow>, StoreError> {
        // One statement: a publication's end and the task's are seen together or not at all.
        let row = sqlx::query!(
            r#"SELECT t.task_id, t.external_id, t.group_code, t.callback_url, t.publish_at, t.created_at, t.submitted_at,
                t.finished_at, t.content_removed_at, a.title AS "title?", CASE WHEN $3 THEN a.content_html END AS content_html,
                a.summary, a.cover_url, a.canonical_url, a.author, a.tags AS "tags?: Json<Vec<String>>", a.metadata AS "metadata?",
                (SELECT json_agg(json_build_object(
                        'platform', p.platform, 'account_id', p.account_id, 'status', p.status,
                        'confirming', p.confirming, 'round', p.round, 'claimed', p.fence > 0, 'attempts', p.attempts,
                        'url', p.url, 'remote_id', p.remote_id, 'error_code', p.error_code,
                        'error_message', p.error_message, 'error_retryable', p.error_retryable, 'warnings', p.warnings,
                        'due_at', p.due_at, 'updated_at', p.updated_at) ORDER BY p.position)
                    FROM publications p WHERE p.tenant_id = t.tenant_id AND p.task_id = t.task_id
                ) AS "publications: Json<Vec<PublicationRow>>"
            FROM tasks t LEFT JOIN articles a USING (tenant_id, task_id)
            WHERE t.tenant_id = $1 AND t.external_id = $2"#,
            tenant_id,
            external_id.as_str(),
            with_content,
        )
        .fetch_optional(executor)
        .await?;
        let Some(row) = row else { return Ok(None) };
        Ok(Some(TaskRow {
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
            content_html: row.content_html,
            summary: row.summary,
            cover_url: row.cover_url,
            canonical_url: row.canonical_url,
            author: row.author,
            tags: row.tags.map(|list| list.0),
            metadata: row.metadata,
            publications: row.publications.map_or(Vec::new(), |list| list.0),
        }))
    }
}
