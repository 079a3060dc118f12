//! Searches by mark.

use sqlx::PgConnection;
use uuid::Uuid;

use super::{Answer, SandboxAsk, SandboxServed, column, last, place};
use crate::clock::SharedClock;
use crate::store::{StoreError, rows};

/// How many articles one mark finds: more than there ever are.
const FOUND_MAX: i64 = 1_000;

/// Those of accounts that are there, whose login is not new, and that nobody else has just changed.
pub(super) async fn serve(
    tenant_id: Uuid,
    asks: &[&SandboxAsk],
    clock: &SharedClock,
    connection: &mut PgConnection,
) -> Result<Vec<Answer>, StoreError> {
    // The commit waits for no disk: a server that dies forgets that it was asked, which changes no article. (What changes one
    // waits, since an outcome in memory is recorded however long the database is away.)
    let rows = sqlx::query!(
        r#"WITH asked AS MATERIALIZED (
            SELECT i.account_id, i.marker, i.last, i.at, a.xmin AS version, a.logged_out, coalesce(m.finds, 0) + 1 AS nth,
                a.last_request + count(*) OVER turns AS number,
                a.seen + count(*) FILTER (WHERE m.marker IS NULL) OVER turns AS seen,
                -- A draft's id is below zero.
                ARRAY(SELECT CASE WHEN public_at <= now() + $7::interval THEN article_id ELSE -article_id END
                    FROM sandbox_articles
                    WHERE tenant_id = $1 AND account_id = i.account_id AND external_id = ($5::text[])[i.at]
                        AND marker = i.marker AND made_at <= now() + $7::interval AND NOT a.logged_out
                    ORDER BY tenant_id, account_id, external_id, article_id LIMIT $8) AS ids
            FROM (SELECT u.*, set_config('synchronous_commit', 'off', true)
                FROM unnest($2::text[], $3::text[], $4::boolean[]) WITH ORDINALITY AS u(account_id, marker, last, at)
                -- As in `crate::store::moves`.
                LIMIT $9) i
            JOIN sandbox_accounts a ON a.tenant_id = $1 AND a.account_id = i.account_id
            JOIN accounts l ON l.tenant_id = $1 AND l.platform = 'sandbox' AND l.account_id = i.account_id
                AND l.credentials_version <= a.login_version
            LEFT JOIN sandbox_marks m ON m.tenant_id = $1 AND m.account_id = i.account_id AND m.marker = i.marker
            -- Sorted by it, so that the accounts are locked in order.
            WINDOW turns AS (PARTITION BY i.account_id ORDER BY i.at)
        ), counted AS (
            UPDATE sandbox_accounts a SET last_request = k.number, seen = k.seen
            FROM asked k WHERE k.last AND a.tenant_id = $1 AND a.account_id = k.account_id AND a.xmin = k.version
            RETURNING a.account_id
        ), done AS MATERIALIZED (
            -- Not as a join, which would compare each with each.
            SELECT * FROM asked WHERE (account_id IN (SELECT account_id FROM counted)) IS TRUE
        ), marks AS (
            INSERT INTO sandbox_marks AS m (tenant_id, account_id, marker, ordinal, finds)
            SELECT $1, account_id, marker, seen, 1 FROM done
            ON CONFLICT (tenant_id, account_id, marker) DO UPDATE SET finds = m.finds + excluded.finds
        ), noted AS (
            INSERT INTO sandbox_requests (tenant_id, account_id, number, kind, marker, external_id, request_id, nth, behaviour,
                article_id, http_status, at, answered_at)
            SELECT $1, account_id, number, 'find', marker, ($5::text[])[at], ($6::text[])[at], nth,
                CASE WHEN logged_out THEN 'login_expired' END, abs(ids[1]), CASE WHEN logged_out THEN 401 ELSE 200 END,
                now() + $7::interval, now() + $7::interval
            FROM done
        )
        SELECT at AS "at!", number AS "number!", logged_out AS "logged_out!", ids AS "ids!" FROM done"#,
        tenant_id,
        &column(asks, |ask| ask.account_id.as_str()) as &[&str],
        &column(asks, |ask| ask.marker.as_str()) as &[&str],
        &last(asks),
        &column(asks, |ask| ask.external_id.as_str()) as &[&str],
        &column(asks, |ask| ask.request_id.as_str()) as &[&str],
        clock.skew() as _,
        FOUND_MAX,
        rows(asks),
    )
    .fetch_all(connection)
    .await?;
    let answers = rows.into_iter().map(|row| {
        let found = row.ids.into_iter().map(|id| (id.abs(), id > 0)).collect();
        let served = if row.logged_out { SandboxServed::LoggedOut } else { SandboxServed::Found(found) };
        Answer { at: place(row.at), number: row.number, served }
    });
    Ok(answers.collect())
}
