//! Accepting: the statement that decides what is new.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::types::Json;
use uuid::Uuid;

use super::{ExistingTask, PublicationRow, Store, StoreError, Warning};
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

impl Store {
    /// Accepts a batch, in one statement and one commit; the answers are in the batch's order.
    ///
    /// The batch is sorted by (tenant, `external_id`) and holds none twice: two batches then never wait for each other
    /// in a circle. What somebody else is just writing is reported as [`Admitted::Unseen`]: the statement's snapshot
    /// cannot show it, so it takes another statement.
    /// What is limited is taken from that share, in the batch's order. A lock is waited for no longer than `lock_wait`.
    #[expect(clippy::too_many_lines, reason = "one statement, which reads best in one piece")]
    pub async fn accept(
        &self,
        batch: &[&NewTask],
        share_id: Uuid,
        lock_wait: Duration,
    ) -> Result<Vec<Admitted>, StoreError> {
        let column = |of: fn(&NewTask) -> Option<&str>| batch.iter().map(|task| of(task)).collect::<Vec<_>>();
        let tags = batch.iter().map(|task| Json(&task.content.tags)).collect::<Vec<_>>();
        let groups = Groups::of(batch);
        let rows = sqlx::query_as!(
            AdmittedRow,
            r#"WITH asked AS MATERIALIZED (
                SELECT u.*, t.task_id AS found, t.group_code AS found_group, t.digests AS found_digests,
                    t.idempotency_key AS found_key, t.callback_url AS found_url, t.publish_at AS found_publish_at,
                    t.draft AS found_draft, t.submitted_at
                FROM ROWS FROM (
                    -- It counts them, and has the planner expect a thousand, not ten: what is joined here is then hashed.
                    generate_series(1, cardinality($1::uuid[])),
                    unnest($1::uuid[]), unnest($2::text[]), unnest($3::uuid[]), unnest($4::text[]), unnest($22::int[]),
                    unnest($5::bytea[]), unnest($6::bytea[]), unnest($7::text[]), unnest($8::text[]),
                    unnest($9::timestamptz[]), unnest($10::boolean[]), unnest($20::boolean[])
                ) AS u(place, tenant_id, external_id, task_id, group_code, group_place, fingerprint, digests,
                    idempotency_key, callback_url, publish_at, draft, limited)
                -- Each row of a table is looked up by its key, here and below: joined, a young table would be read whole, and
                -- a grown one by the same plan.
                LEFT JOIN LATERAL (
                    SELECT * FROM tasks t WHERE t.tenant_id = u.tenant_id AND t.external_id = u.external_id LIMIT 1
                ) t ON true
                WHERE (SELECT set_config('lock_timeout', $25, true)) IS NOT NULL
            ), locked AS MATERIALIZED (
                -- Before all else, since who takes shares back waits for them.
                SELECT s.tenant_id, s.amount, s.ctid AS version
                FROM (SELECT DISTINCT tenant_id FROM asked WHERE limited AND found IS NULL) d
                JOIN quota_shares s USING (tenant_id)
                WHERE s.share_id = $21 AND s.day = account_day(s.day, 'UTC', now() + $19::interval)
                ORDER BY s.tenant_id FOR UPDATE OF s
            ), shares AS MATERIALIZED (
                -- Another version than the snapshot's is of an earlier try of this batch, whose articles it does not show.
                SELECT l.tenant_id, l.amount, s.ctid = l.version AS fresh
                FROM locked l JOIN quota_shares s ON s.tenant_id = l.tenant_id AND s.share_id = $21
            ), named AS MATERIALIZED (
                -- The groups of what is not found. Until the commit no account is taken out of them (`super::locks`). What
                -- is locked is the newest version of a row; members are read as the statement's snapshot shows them.
                SELECT d.place, s.ctid = l.ctid AS fresh, m.members, m.platforms, m.account_ids
                FROM (
                    SELECT * FROM unnest($23::uuid[], $24::text[]) WITH ORDINALITY AS d(tenant_id, group_code, place)
                    WHERE place = ANY (ARRAY(SELECT DISTINCT group_place FROM asked WHERE found IS NULL))
                        AND (SELECT count(*) FROM shares) >= 0
                    ORDER BY place OFFSET 0) d
                CROSS JOIN LATERAL (
                    SELECT ctid FROM groups g WHERE g.tenant_id = d.tenant_id AND g.group_code = d.group_code
                    LIMIT 1 FOR KEY SHARE) l
                CROSS JOIN LATERAL (
                    SELECT ctid FROM groups g WHERE g.tenant_id = d.tenant_id AND g.group_code = d.group_code LIMIT 1) s
                CROSS JOIN LATERAL (
                    SELECT count(*)::int AS members, array_agg(m.platform ORDER BY m.position) AS platforms,
                        array_agg(m.account_id ORDER BY m.position) AS account_ids
                    FROM group_members m WHERE m.tenant_id = d.tenant_id AND m.group_code = d.group_code) m
            ), input AS MATERIALIZED (
                SELECT a.*, n.fresh, n.members, n.platforms, n.account_ids, n.fresh AND n.members > 0 AS possible
                FROM asked a LEFT JOIN named n ON n.place = a.group_place AND a.found IS NULL
            ), covered AS MATERIALIZED (
                SELECT place FROM (
                    SELECT i.place, s.amount, row_number() OVER (PARTITION BY i.tenant_id ORDER BY i.place) AS nth
                    FROM input i JOIN shares s USING (tenant_id) WHERE i.limited AND i.possible AND s.fresh) c
                WHERE nth <= amount
            ), won AS (
                INSERT INTO tasks (tenant_id, external_id, task_id, group_code, fingerprint, digests, idempotency_key,
                    callback_url, publish_at, draft, drafts, open, created_at, submitted_at)
                SELECT tenant_id, external_id, task_id, group_code, fingerprint, digests, idempotency_key,
                    callback_url, publish_at, draft,
                    CASE WHEN draft THEN members ELSE 0 END, CASE WHEN draft THEN 0 ELSE members END,
                    now() + $19::interval, CASE WHEN NOT draft THEN now() + $19::interval END
                FROM input i
                WHERE possible AND (NOT limited OR EXISTS (SELECT FROM covered c WHERE c.place = i.place))
                ORDER BY tenant_id, external_id
                ON CONFLICT (tenant_id, external_id) DO NOTHING
                RETURNING tenant_id, task_id, group_code, draft, publish_at, created_at
            ), taken AS (
                UPDATE quota_shares s SET amount = s.amount - w.articles
                FROM (SELECT i.tenant_id, count(*)::int AS articles FROM input i JOIN won USING (tenant_id, task_id)
                    WHERE i.limited GROUP BY i.tenant_id) w
                WHERE s.tenant_id = w.tenant_id AND s.share_id = $21
            ), texts AS (
                INSERT INTO articles (tenant_id, task_id, title, content_html, summary, cover_url, canonical_url, author,
                    tags, metadata)
                SELECT w.tenant_id, w.task_id, u.title, u.content_html, u.summary, u.cover_url, u.canonical_url, u.author,
                    u.tags, u.metadata
                -- Apart from `asked`, which is copied for each of its readers.
                FROM unnest($3::uuid[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[], $16::text[],
                    $17::jsonb[], $18::text[]
                ) AS u(task_id, title, content_html, summary, cover_url, canonical_url, author, tags, metadata)
                JOIN won w USING (task_id)
            ), runs AS (
                INSERT INTO publications (tenant_id, publication_id, task_id, platform, account_id, position, status,
                    due_at, updated_at)
                -- The task's id, but for its last two bytes, which count: 16 bytes of chance for each would cost more than
                -- the row's checks.
                SELECT w.tenant_id,
                    encode(set_byte(set_byte(uuid_send(w.task_id), 14, m.position / 256), 15, m.position % 256), 'hex')::uuid,
                    w.task_id, m.platform, m.account_id, m.position,
                    CASE WHEN w.draft THEN 'draft' ELSE 'submitted' END,
                    greatest(w.publish_at, w.created_at), w.created_at
                FROM won w CROSS JOIN LATERAL (
                    SELECT * FROM group_members m WHERE m.tenant_id = w.tenant_id AND m.group_code = w.group_code OFFSET 0) m
            )
            SELECT i.place AS "place!",
                -- The quota goes before the group.
                i.found IS NULL AND i.limited AND coalesce(s.fresh, true) AND (coalesce(s.amount, 0) = 0
                    OR coalesce(i.possible, false) AND NOT EXISTS (SELECT FROM covered c WHERE c.place = i.place)
                ) AS "nothing_left!",
                CASE WHEN i.fresh THEN i.members END AS "members?", i.fresh AND coalesce(s.fresh, true) AS "fresh?",
                w.created_at AS "created_at?", i.submitted_at AS "submitted_at?",
                CASE WHEN w.task_id IS NOT NULL THEN i.platforms END AS platforms,
                CASE WHEN w.task_id IS NOT NULL THEN i.account_ids END AS account_ids,
                CASE WHEN w.task_id IS NOT NULL THEN (
                    SELECT s.external_id FROM tasks s
                    WHERE s.tenant_id = i.tenant_id AND content_week(s.created_at) = ANY ((SELECT recent_weeks(now() + $19::interval))::timestamp[])
                        AND substring(s.fingerprint FROM 1 FOR 8) = substring(i.fingerprint FROM 1 FOR 8)
                        AND s.fingerprint = i.fingerprint AND s.group_code = i.group_code
                    LIMIT 1
                ) END AS same_content_as,
                i.found AS "task_id?", i.found_group AS "group_code?", i.found_digests AS "digests?",
                i.found_key AS "idempotency_key?", i.found_url AS "callback_url?", i.found_publish_at AS "publish_at?",
                i.found_draft AS "draft?",
                -- A row for each publication of what was found.
                p.platform AS "platform?", p.account_id AS "account_id?", p.status AS "status?: Status",
                p.confirming AS "confirming?", p.round AS "round?", p.fence > 0 AS "claimed?", p.attempts AS "attempts?",
                p.url AS "url?", p.remote_id AS "remote_id?", p.error_code AS "error_code?",
                p.error_message AS "error_message?", p.error_retryable AS "error_retryable?",
                p.warnings AS "warnings?: Json<Vec<Warning>>", p.due_at AS "due_at?", p.updated_at AS "updated_at?"
            FROM input i
            LEFT JOIN won w ON w.tenant_id = i.tenant_id AND w.task_id = i.task_id
            LEFT JOIN LATERAL (
                SELECT * FROM publications p WHERE p.tenant_id = i.tenant_id AND p.task_id = i.found OFFSET 0) p ON true
            LEFT JOIN shares s ON s.tenant_id = i.tenant_id AND i.limited
            ORDER BY i.place, p.position"#,
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
            &groups.places,
            &groups.tenant_ids,
            &groups.codes as &[&str],
            format!("{}ms", lock_wait.as_millis()),
        )
        .fetch_all(&self.pool)
        .await?;
        let mut rows = rows.into_iter().peekable();
        let mut admitted = Vec::with_capacity(batch.len());
        while let Some(first) = rows.next() {
            let place = first.place;
            let others = std::iter::from_fn(|| rows.next_if(|row| row.place == place));
            admitted.push(first.admitted(others));
        }
        Ok(admitted)
    }
}

/// The groups of a batch, each once, in the order in which all who lock several do so.
struct Groups<'a> {
    tenant_ids: Vec<Uuid>,
    codes: Vec<&'a str>,
    /// Which of them an article has, counted from 1.
    places: Vec<i32>,
}

impl<'a> Groups<'a> {
    fn of(batch: &[&'a NewTask]) -> Self {
        let named = batch.iter().map(|task| (task.tenant_id, task.group_code.as_str())).collect::<Vec<_>>();
        let mut groups = named.clone();
        groups.sort_unstable();
        groups.dedup();
        let place = |group| groups.partition_point(|other| other <= group);
        let places = named.iter().map(|group| i32::try_from(place(group)).unwrap_or(i32::MAX)).collect();
        let (tenant_ids, codes) = groups.into_iter().unzip();
        Self { tenant_ids, codes, places }
    }
}

/// What the statement says of an article: a row, or if it was found one for each of its publications.
struct AdmittedRow {
    place: i32,
    nothing_left: bool,
    members: Option<i32>,
    fresh: Option<bool>,
    created_at: Option<DateTime<Utc>>,
    submitted_at: Option<DateTime<Utc>>,
    platforms: Option<Vec<String>>,
    account_ids: Option<Vec<String>>,
    same_content_as: Option<String>,
    task_id: Option<Uuid>,
    group_code: Option<String>,
    digests: Option<Vec<u8>>,
    idempotency_key: Option<String>,
    callback_url: Option<String>,
    publish_at: Option<DateTime<Utc>>,
    draft: Option<bool>,
    platform: Option<String>,
    account_id: Option<String>,
    status: Option<Status>,
    confirming: Option<bool>,
    round: Option<i32>,
    claimed: Option<bool>,
    attempts: Option<i32>,
    url: Option<String>,
    remote_id: Option<String>,
    error_code: Option<String>,
    error_message: Option<String>,
    error_retryable: Option<bool>,
    warnings: Option<Json<Vec<Warning>>>,
    due_at: Option<DateTime<Utc>>,
    updated_at: Option<DateTime<Utc>>,
}

impl AdmittedRow {
    fn admitted(mut self, others: impl Iterator<Item = Self>) -> Admitted {
        let found = (self.task_id, self.group_code.take(), self.digests.take(), self.draft);
        if let (Some(task_id), Some(group_code), Some(digests), Some(draft)) = found {
            return Admitted::Existing(Box::new(ExistingTask {
                task_id,
                group_code,
                digests,
                draft,
                idempotency_key: self.idempotency_key.take(),
                callback_url: self.callback_url.take(),
                publish_at: self.publish_at,
                submitted_at: self.submitted_at,
                publications: std::iter::once(self).chain(others).filter_map(Self::publication).collect(),
            }));
        }
        let Some(at) = self.created_at else {
            return match self.members {
                _ if self.nothing_left => Admitted::NothingLeft,
                _ if self.fresh == Some(false) => Admitted::Unseen,
                None => Admitted::UnknownGroup,
                Some(0) => Admitted::EmptyGroup,
                Some(_) => Admitted::Unseen,
            };
        };
        let names = self.platforms.into_iter().flatten().zip(self.account_ids.into_iter().flatten());
        let members = names.map(|(platform, account_id)| AccountKey::stored(platform, account_id)).collect();
        Admitted::Created { members, at, same_content_as: self.same_content_as }
    }

    fn publication(self) -> Option<PublicationRow> {
        Some(PublicationRow {
            platform: self.platform?,
            account_id: self.account_id?,
            status: self.status?,
            confirming: self.confirming?,
            round: self.round?,
            claimed: self.claimed?,
            attempts: self.attempts?,
            url: self.url,
            remote_id: self.remote_id,
            error_code: self.error_code,
            error_message: self.error_message,
            error_retryable: self.error_retryable,
            warnings: self.warnings.map(|list| list.0),
            due_at: self.due_at?,
            updated_at: self.updated_at?,
        })
    }
}
