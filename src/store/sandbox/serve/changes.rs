//! What makes drafts and publishes them.

use std::collections::HashMap;

use sqlx::PgConnection;
use uuid::Uuid;

use super::{Answer, SandboxAsk, SandboxAsks, SandboxServed, column, last, place};
use crate::clock::SharedClock;
use crate::store::sandbox::SANDBOX_ARTICLES_MAX;
use crate::store::{StoreError, rows};

/// The how manieth draft of its account each is; none for what makes no draft.
fn drafts(asks: &[&SandboxAsk]) -> Vec<Option<i32>> {
    let mut made = HashMap::<&str, i32>::new();
    let drafts = asks.iter().map(|ask| {
        let SandboxAsks::Draft(..) = ask.what else { return None };
        let made = made.entry(&ask.account_id).or_default();
        *made += 1;
        Some(*made)
    });
    drafts.collect()
}

/// Those of accounts that are there, whose login is not new, and that nobody else has just changed.
pub(super) async fn serve(
    tenant_id: Uuid,
    asks: &[&SandboxAsk],
    clock: &SharedClock,
    connection: &mut PgConnection,
) -> Result<Vec<Answer>, StoreError> {
    let (titles, contents) = asks.iter().map(|ask| ask.what.text().unzip()).unzip::<_, _, Vec<_>, Vec<_>>();
    let rows = sqlx::query!(
        r#"WITH asked AS MATERIALIZED (
            SELECT i.account_id, i.marker, i.last, i.at, i.draft IS NOT NULL AS drafts, a.xmin AS version, a.logged_out,
                CASE WHEN i.draft IS NULL THEN coalesce(m.publishes, 0) ELSE coalesce(m.drafts, 0) END + 1 AS nth,
                CASE WHEN i.draft IS NULL THEN r.article_id
                    WHEN NOT a.logged_out AND a.held + i.draft <= $8 THEN a.last_article + i.draft END AS article_id,
                a.last_request + count(*) OVER turns AS number,
                a.seen + count(*) FILTER (WHERE m.marker IS NULL) OVER turns AS seen,
                (count(*) FILTER (WHERE NOT a.logged_out AND a.held + i.draft <= $8) OVER turns)::int AS made,
                (count(*) FILTER (WHERE r.article_id IS NOT NULL AND r.public_at IS NULL) OVER turns)::int AS published
            FROM (SELECT * FROM unnest($2::text[], $3::text[], $4::boolean[], $10::int[], $11::bigint[]) WITH ORDINALITY
                AS u(account_id, marker, last, draft, publish, at)
                -- As in `crate::store::moves`.
                LIMIT $9) i
            JOIN sandbox_accounts a ON a.tenant_id = $1 AND a.account_id = i.account_id
            JOIN accounts l ON l.tenant_id = $1 AND l.platform = 'sandbox' AND l.account_id = i.account_id
                AND l.credentials_version <= a.login_version
            LEFT JOIN sandbox_marks m ON m.tenant_id = $1 AND m.account_id = i.account_id AND m.marker = i.marker
            -- One at most, which the planner would not think of a number that each account has.
            LEFT JOIN LATERAL (
                SELECT article_id, public_at FROM sandbox_articles
                WHERE tenant_id = $1 AND account_id = i.account_id AND article_id = i.publish
                    AND made_at <= now() + $7::interval AND NOT a.logged_out
                ORDER BY tenant_id, account_id, article_id LIMIT 1) r ON true
            -- Sorted by it, so that the accounts are locked in order.
            WINDOW turns AS (PARTITION BY i.account_id ORDER BY i.at)
        ), counted AS (
            UPDATE sandbox_accounts a SET last_request = k.number, seen = k.seen, last_article = a.last_article + k.made,
                held = a.held + k.made, published = a.published + k.published
            FROM asked k WHERE k.last AND a.tenant_id = $1 AND a.account_id = k.account_id AND a.xmin = k.version
            RETURNING a.account_id
        ), done AS MATERIALIZED (
            -- Not as a join, which would compare each with each.
            SELECT * FROM asked WHERE (account_id IN (SELECT account_id FROM counted)) IS TRUE
        ), marks AS (
            INSERT INTO sandbox_marks AS m (tenant_id, account_id, marker, ordinal, drafts, publishes)
            SELECT $1, account_id, marker, seen, drafts::int, (NOT drafts)::int FROM done
            ON CONFLICT (tenant_id, account_id, marker) DO UPDATE SET drafts = m.drafts + excluded.drafts,
                publishes = m.publishes + excluded.publishes
        ), published AS (
            UPDATE sandbox_articles r SET public_at = least(r.public_at, now() + $7::interval)
            FROM done k WHERE NOT k.drafts AND r.tenant_id = $1 AND r.account_id = k.account_id AND r.article_id = k.article_id
        ), made AS (
            INSERT INTO sandbox_articles (tenant_id, account_id, article_id, marker, external_id, title, content, made_at)
            SELECT $1, account_id, article_id, marker, ($5::text[])[at], ($12::text[])[at], ($13::text[])[at],
                now() + $7::interval
            FROM done WHERE drafts AND article_id IS NOT NULL
        ), noted AS (
            INSERT INTO sandbox_requests (tenant_id, account_id, number, kind, marker, external_id, request_id, nth, behaviour,
                article_id, effect, http_status, at, answered_at)
            SELECT $1, account_id, number, CASE WHEN drafts THEN 'draft' ELSE 'publish' END, marker, ($5::text[])[at],
                ($6::text[])[at], nth, CASE WHEN logged_out THEN 'login_expired' END, article_id,
                CASE WHEN article_id IS NULL THEN NULL WHEN drafts THEN 'made' ELSE 'published' END,
                CASE WHEN logged_out THEN 401
                    WHEN drafts THEN CASE WHEN article_id IS NULL THEN 507 ELSE 201 END
                    WHEN article_id IS NULL THEN 404 ELSE 200 END,
                now() + $7::interval, now() + $7::interval
            FROM done
        )
        SELECT at AS "at!", number AS "number!", logged_out AS "logged_out!", article_id FROM done"#,
        tenant_id,
        &column(asks, |ask| ask.account_id.as_str()) as &[&str],
        &column(asks, |ask| ask.marker.as_str()) as &[&str],
        &last(asks),
        &column(asks, |ask| ask.external_id.as_str()) as &[&str],
        &column(asks, |ask| ask.request_id.as_str()) as &[&str],
        clock.skew() as _,
        SANDBOX_ARTICLES_MAX,
        rows(asks),
        &drafts(asks) as &[Option<i32>],
        &column(asks, |ask| ask.what.article_id()) as &[Option<i64>],
        &titles as &[Option<&str>],
        &contents as &[Option<&str>],
    )
    .fetch_all(connection)
    .await?;
    let answers = rows.into_iter().map(|row| {
        let at = place(row.at);
        let served = match asks[at].what {
            _ if row.logged_out => SandboxServed::LoggedOut,
            SandboxAsks::Draft(..) => SandboxServed::Drafted(row.article_id),
            _ => SandboxServed::Published(row.article_id),
        };
        Answer { at, number: row.number, served }
    });
    Ok(answers.collect())
}
