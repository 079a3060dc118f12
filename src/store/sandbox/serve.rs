//! Requests to accounts of the sandbox at which nothing goes wrong: served together, each as it would be alone.

use std::collections::HashMap;

use serde_json::Value;
use sqlx::PgTransaction;
use sqlx::types::Json;
use uuid::Uuid;

use super::articles::body;
use super::{SANDBOX_ARTICLES_MAX, SANDBOX_REQUESTS_MAX};
use crate::article::Content;
use crate::store::{Store, StoreError, rows};

/// How many articles one mark finds: more than there ever are.
const FOUND_MAX: i64 = 1_000;

/// A request of that kind.
#[derive(Debug, Clone)]
pub struct SandboxAsk {
    /// Whose.
    pub tenant_id: Uuid,
    /// The account.
    pub account_id: String,
    /// The article's mark.
    pub marker: String,
    /// The caller's id of it.
    pub external_id: String,
    /// The id that the request bears.
    pub request_id: String,
    /// What is asked.
    pub what: SandboxAsks,
}

/// What is asked of an account of the sandbox.
#[derive(Debug, Clone)]
pub enum SandboxAsks {
    /// Which articles carry the mark.
    Find,
    /// A draft of that title, and what it holds beside.
    Draft(String, Value),
    /// The draft of that id, public.
    Publish(Option<i64>),
}

impl SandboxAsks {
    /// A draft of that content.
    #[must_use]
    pub fn draft(content: &Content) -> Self {
        Self::Draft(content.title.clone(), body(content))
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Find => "find",
            Self::Draft(..) => "draft",
            Self::Publish(_) => "publish",
        }
    }
}

/// What came of such a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SandboxServed {
    /// The account is not let in.
    LoggedOut,
    /// The articles that carry the mark, the oldest first, and whether each is public.
    Found(Vec<(i64, bool)>),
    /// The draft; none: the account holds as many articles as it may.
    Drafted(Option<i64>),
    /// The article is public; none: it is not there.
    Published(Option<i64>),
}

/// An account whose row is locked, as it stands while its requests are numbered.
struct Standing {
    last_request: i64,
    last_article: i64,
    held: i32,
    seen: i32,
    logged_out: bool,
}

/// What is decided of a request before it is carried out.
struct Taken {
    number: i64,
    refused: bool,
    /// How many articles the account had been asked about.
    seen: i32,
    /// The draft that it makes, or the article that it is about.
    article_id: Option<i64>,
}

impl Store {
    /// Serves requests of one tenant in one transaction, as if each had come alone: the searches first, then all others. For
    /// each, in order; none where there is no such account.
    pub async fn sandbox_serve(
        &self,
        tenant_id: Uuid,
        batch: &[SandboxAsk],
    ) -> Result<Vec<Option<SandboxServed>>, StoreError> {
        let mut transaction = self.pool.begin().await?;
        let mut accounts = take_in(tenant_id, batch, &mut transaction).await?;
        let taken = batch.iter().map(|one| {
            let account = accounts.get_mut(&one.account_id)?;
            account.last_request += 1;
            let article_id = match one.what {
                SandboxAsks::Draft(..) if !account.logged_out && account.held < SANDBOX_ARTICLES_MAX => {
                    (account.held, account.last_article) = (account.held + 1, account.last_article + 1);
                    Some(account.last_article)
                }
                SandboxAsks::Publish(id) => id,
                _ => None,
            };
            let (refused, seen) = (account.logged_out, account.seen);
            Some(Taken { number: account.last_request, refused, seen, article_id })
        });
        let taken = taken.collect::<Vec<_>>();
        let served = self.carry_out(tenant_id, batch, &taken, &mut transaction).await?;
        transaction.commit().await?;
        Ok(served)
    }

    #[expect(clippy::too_many_lines, reason = "one statement, which reads best in one piece")]
    async fn carry_out(
        &self,
        tenant_id: Uuid,
        batch: &[SandboxAsk],
        taken: &[Option<Taken>],
        transaction: &mut PgTransaction<'_>,
    ) -> Result<Vec<Option<SandboxServed>>, StoreError> {
        let known = batch.iter().zip(taken).filter_map(|(one, taken)| Some((one, taken.as_ref()?)));
        let known = known.collect::<Vec<_>>();
        let text = |of: fn(&SandboxAsk) -> &str| known.iter().map(|(one, _)| of(one)).collect::<Vec<_>>();
        let draft = |one: &SandboxAsk| match &one.what {
            SandboxAsks::Draft(title, content) => Some((title.clone(), Json(content.clone()))),
            _ => None,
        };
        let (titles, contents): (Vec<_>, Vec<_>) = known.iter().map(|(one, _)| draft(one).unzip()).unzip();
        let rows = sqlx::query!(
            r#"WITH input AS MATERIALIZED (
                SELECT * FROM unnest($2::text[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bigint[],
                    $9::boolean[], $10::text[], $11::jsonb[], $14::int[])
                AS u(account_id, number, kind, marker, external_id, request_id, article_id, refused, title, content, seen)
                -- As in `super::moves`.
                LIMIT $16
            ), asked AS MATERIALIZED (
                SELECT account_id, marker, min(number) AS first, max(seen) AS seen, count(*) FILTER (WHERE kind = 'find')::int AS finds,
                    count(*) FILTER (WHERE kind = 'draft')::int AS drafts,
                    count(*) FILTER (WHERE kind = 'publish')::int AS publishes
                FROM input GROUP BY 1, 2
            ), heard_of AS MATERIALIZED (
                -- Here and below row by row, by the keys: joined, a young table would be read whole.
                SELECT k.account_id, k.marker FROM asked k CROSS JOIN LATERAL (
                    SELECT FROM sandbox_marks
                    WHERE tenant_id = $1 AND account_id = k.account_id AND marker = k.marker LIMIT 1) m
            ), marks AS (
                INSERT INTO sandbox_marks AS m (tenant_id, account_id, marker, ordinal, finds, drafts, publishes)
                SELECT $1, k.account_id, k.marker,
                    k.seen + row_number() OVER (PARTITION BY k.account_id, h.marker IS NULL ORDER BY k.first),
                    k.finds, k.drafts, k.publishes
                FROM asked k LEFT JOIN heard_of h ON h.account_id = k.account_id AND h.marker = k.marker
                ON CONFLICT (tenant_id, account_id, marker) DO UPDATE SET finds = m.finds + excluded.finds,
                    drafts = m.drafts + excluded.drafts, publishes = m.publishes + excluded.publishes
                RETURNING account_id, marker, ordinal, finds, drafts, publishes
            ), found AS MATERIALIZED (
                SELECT i.account_id, i.number, array_agg(r.article_id ORDER BY r.article_id) AS ids,
                    array_agg(coalesce(r.public_at <= now() + $12::interval, false) ORDER BY r.article_id) AS public
                FROM input i CROSS JOIN LATERAL (
                    SELECT article_id, public_at FROM sandbox_articles
                    WHERE tenant_id = $1 AND account_id = i.account_id AND marker = i.marker
                        AND made_at <= now() + $12::interval
                    ORDER BY tenant_id, account_id, marker, article_id LIMIT $15) r
                WHERE i.kind = 'find' AND NOT i.refused
                GROUP BY 1, 2
            ), there AS MATERIALIZED (
                -- Whoever changes an article holds its account's row.
                SELECT DISTINCT i.account_id, i.article_id, r.public_at FROM input i CROSS JOIN LATERAL (
                    SELECT public_at FROM sandbox_articles
                    WHERE tenant_id = $1 AND account_id = i.account_id AND article_id = i.article_id
                        AND made_at <= now() + $12::interval
                    ORDER BY tenant_id, account_id, article_id LIMIT 1) r
                WHERE i.kind = 'publish' AND NOT i.refused
            ), published AS (
                UPDATE sandbox_articles r SET public_at = least(r.public_at, now() + $12::interval)
                FROM there t WHERE r.tenant_id = $1 AND r.account_id = t.account_id AND r.article_id = t.article_id
            ), made AS (
                INSERT INTO sandbox_articles (tenant_id, account_id, article_id, marker, external_id, title, content, made_at)
                SELECT $1, account_id, article_id, marker, external_id, title, content, now() + $12::interval
                FROM input WHERE kind = 'draft' AND article_id IS NOT NULL
            ), counted AS (
                UPDATE sandbox_accounts a SET last_article = a.last_article + c.made, held = a.held + c.made,
                    published = a.published + c.published, seen = greatest(a.seen, c.seen)
                FROM (SELECT i.account_id,
                        count(*) FILTER (WHERE i.kind = 'draft' AND i.article_id IS NOT NULL)::int AS made,
                        (SELECT count(*)::int FROM there t WHERE t.account_id = i.account_id AND t.public_at IS NULL)
                            AS published,
                        (SELECT max(m.ordinal) FROM marks m WHERE m.account_id = i.account_id) AS seen
                    FROM input i GROUP BY 1) c
                WHERE a.tenant_id = $1 AND a.account_id = c.account_id
            ), forgotten AS (
                DELETE FROM sandbox_requests r USING (SELECT account_id, max(number) AS last FROM input GROUP BY 1) l
                WHERE r.tenant_id = $1 AND r.account_id = l.account_id AND r.number <= l.last - $13::bigint
            ), served AS MATERIALIZED (
                SELECT i.*, f.ids, f.public, t.article_id AS there,
                    count(*) OVER (PARTITION BY i.account_id, i.marker, i.kind ORDER BY i.number DESC) - 1 AS later
                FROM input i LEFT JOIN found f ON f.account_id = i.account_id AND f.number = i.number
                LEFT JOIN there t ON i.kind = 'publish' AND t.account_id = i.account_id AND t.article_id = i.article_id
            ), noted AS (
                INSERT INTO sandbox_requests (tenant_id, account_id, number, kind, marker, external_id, request_id, nth,
                    behaviour, article_id, effect, http_status, at, answered_at)
                SELECT $1, s.account_id, s.number, s.kind, s.marker, s.external_id, s.request_id,
                    CASE s.kind WHEN 'find' THEN m.finds WHEN 'draft' THEN m.drafts ELSE m.publishes END - s.later,
                    CASE WHEN s.refused THEN 'login_expired' END,
                    CASE WHEN s.refused THEN NULL WHEN s.kind = 'find' THEN s.ids[1] WHEN s.kind = 'draft' THEN s.article_id
                        ELSE s.there END,
                    CASE WHEN s.refused THEN NULL WHEN s.kind = 'draft' AND s.article_id IS NOT NULL THEN 'made'
                        WHEN s.there IS NOT NULL THEN 'published' END,
                    CASE WHEN s.refused THEN 401 WHEN s.kind = 'find' THEN 200
                        WHEN s.kind = 'draft' THEN CASE WHEN s.article_id IS NULL THEN 507 ELSE 201 END
                        WHEN s.there IS NULL THEN 404 ELSE 200 END,
                    now() + $12::interval, now() + $12::interval
                FROM served s JOIN marks m ON m.account_id = s.account_id AND m.marker = s.marker
            )
            SELECT account_id AS "account_id!", number AS "number!", ids AS "ids?", public AS "public?", there AS "there?" FROM served"#,
            tenant_id,
            &text(|one| &one.account_id) as &[&str],
            &known.iter().map(|(_, taken)| taken.number).collect::<Vec<_>>(),
            &text(|one| one.what.kind()) as &[&str],
            &text(|one| &one.marker) as &[&str],
            &text(|one| &one.external_id) as &[&str],
            &text(|one| &one.request_id) as &[&str],
            &known.iter().map(|(_, taken)| taken.article_id).collect::<Vec<_>>() as &[Option<i64>],
            &known.iter().map(|(_, taken)| taken.refused).collect::<Vec<_>>(),
            &titles as &[Option<String>],
            &contents as _,
            self.clock.skew() as _,
            SANDBOX_REQUESTS_MAX,
            &known.iter().map(|(_, taken)| taken.seen).collect::<Vec<_>>(),
            FOUND_MAX,
            rows(batch),
        )
        .fetch_all(&mut **transaction)
        .await?;
        let told = rows.into_iter().map(|row| {
            let found = row.ids.unwrap_or_default().into_iter().zip(row.public.unwrap_or_default());
            ((row.account_id, row.number), (found.collect::<Vec<_>>(), row.there))
        });
        let mut told = told.collect::<HashMap<_, _>>();
        let served = batch.iter().zip(taken).map(|(one, taken)| {
            let taken = taken.as_ref()?;
            let (found, there) = told.remove(&(one.account_id.clone(), taken.number))?;
            Some(match one.what {
                _ if taken.refused => SandboxServed::LoggedOut,
                SandboxAsks::Find => SandboxServed::Found(found),
                SandboxAsks::Draft(..) => SandboxServed::Drafted(taken.article_id),
                SandboxAsks::Publish(_) => SandboxServed::Published(there),
            })
        });
        Ok(served.collect())
    }
}

/// Locks the accounts and counts their requests: as each stood before them.
async fn take_in(
    tenant_id: Uuid,
    batch: &[SandboxAsk],
    transaction: &mut PgTransaction<'_>,
) -> Result<HashMap<String, Standing>, StoreError> {
    // A login that was made since begins anew.
    let rows = sqlx::query!(
        r#"INSERT INTO sandbox_accounts AS s (tenant_id, account_id, last_request, login_version)
        SELECT a.tenant_id, a.account_id, i.requests, a.credentials_version
        FROM (SELECT account_id, count(*) AS requests FROM unnest($2::text[]) AS u(account_id) GROUP BY 1) i
        JOIN accounts a ON a.tenant_id = $1 AND a.platform = 'sandbox' AND a.account_id = i.account_id
        ORDER BY a.account_id
        ON CONFLICT (tenant_id, account_id) DO UPDATE SET last_request = s.last_request + excluded.last_request,
            published = CASE WHEN excluded.login_version > s.login_version THEN 0 ELSE s.published END,
            logged_out = s.logged_out AND excluded.login_version <= s.login_version,
            login_version = greatest(s.login_version, excluded.login_version)
        RETURNING account_id, last_request, last_article, held, seen, logged_out"#,
        tenant_id,
        &batch.iter().map(|one| one.account_id.as_str()).collect::<Vec<_>>() as &[&str],
    )
    .fetch_all(&mut **transaction)
    .await?;
    let accounts = rows.into_iter().map(|row| {
        let (last_request, last_article) = (row.last_request, row.last_article);
        let (held, seen, logged_out) = (row.held, row.seen, row.logged_out);
        (row.account_id, Standing { last_request, last_article, held, seen, logged_out })
    });
    let mut accounts = accounts.collect::<HashMap<_, _>>();
    for one in batch {
        if let Some(account) = accounts.get_mut(&one.account_id) {
            account.last_request -= 1;
        }
    }
    Ok(accounts)
}
