//! Claiming publications: those that are due, and those whose holder's lease ran out.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::types::Json;
use uuid::Uuid;

use super::accounts::open_credentials;
use super::{Store, StoreError};
use crate::account::{AccountKey, Credentials};
use crate::article::Content;
use crate::retry::interval;
use crate::vault::{CannotOpen, Vault};

/// The most that one claim takes of what is due, and again of what awaits an answer, of as many accounts: a claim walks past
/// every account of its tenant that has something due, so each should be worth it. It stands in the statements as a literal:
/// with a parameter the planner guesses, and scans the table.
pub const CLAIM_DUE: usize = 128;

/// The most that one claim takes of what was left behind, and again of what is to be swept: little, since it is looked for first.
pub const CLAIM_LEFT: usize = 16;

/// The most that one turn takes.
pub const CLAIM_MOST: usize = 2 * (CLAIM_DUE + CLAIM_LEFT);

/// How a claim is made.
#[derive(Debug, Clone)]
pub struct ClaimLimits {
    /// Who claims: a name that is new at every start.
    pub owner: String,
    /// How long a publication is held.
    pub lease: Duration,
}

/// A publication in hand.
#[derive(Debug, Clone)]
pub struct Claimed {
    /// Whose.
    pub tenant_id: Uuid,
    /// The tenant's name.
    pub tenant: String,
    /// Its id.
    pub publication_id: Uuid,
    /// Its task.
    pub task_id: Uuid,
    /// The caller's id of the article.
    pub external_id: String,
    /// The platform.
    pub platform: String,
    /// The account.
    pub account_id: String,
    /// The account's settings.
    pub settings: serde_json::Value,
    /// The account's credentials, sealed.
    pub credentials_sealed: Option<Vec<u8>>,
    /// Which run.
    pub round: i32,
    /// What every later write must name.
    pub fence: i32,
    /// Whether it was asked for before and its outcome is not known: another holder's lease ran out, or it awaits an answer.
    pub taken_over: bool,
    /// Transient failures of this round so far.
    pub tries: i32,
    /// Its mark, if an earlier claim stored it.
    pub marker: Option<String>,
    /// The draft on the platform that is to be published, if there is one.
    pub draft_id: Option<String>,
    /// When the task was submitted.
    pub submitted_at: DateTime<Utc>,
    /// What is to be published.
    pub content: Content,
}

impl Claimed {
    /// The account's credentials.
    pub fn credentials(&self, vault: &Vault) -> Result<Credentials, CannotOpen> {
        let Some(sealed) = &self.credentials_sealed else { return Ok(Credentials::none()) };
        let key = AccountKey::new(&self.platform, &self.account_id).map_err(|_| CannotOpen::Damaged)?;
        open_credentials(vault, self.tenant_id, &key, sealed)
    }
}

impl Store {
    /// Claims what is due of one tenant, for each account that has a free lane as much as fits: first what awaits an
    /// answer, then, where the login works and the day is not full, what was not sent yet, which takes a slot of the
    /// account's day. Takes over, too, what its holder left when the lease ran out; the slot of the lane goes with it.
    /// What a robot fetches is left to it ([`Store::hand_out`]).
    ///
    /// The accounts with due work are found by skipping through the index, so that a parked account with a million due
    /// rows costs nothing; the lanes are locked, since counting running rows instead lets two claims exceed a limit.
    /// What the holder of a publication taken over did is unknown, so whoever gets it looks before anything else. Its
    /// journal is read in a later statement: a row that the old holder was just writing is visible only there.
    #[expect(clippy::too_many_lines, reason = "one statement, which reads best in one piece")]
    pub async fn claim(&self, tenant_id: Uuid, limits: &ClaimLimits) -> Result<Vec<Claimed>, StoreError> {
        let rows = sqlx::query!(
            r#"WITH RECURSIVE early AS MATERIALIZED (
                -- What is due, if a claim takes all of it: then nobody is looked at who has something later.
                (SELECT platform, account_id, false AS asks FROM publications
                WHERE tenant_id = $1 AND status = 'submitted' AND fence >= 0 AND due_at <= now() + $4::interval
                ORDER BY tenant_id, due_at LIMIT 129)
                UNION ALL
                (SELECT platform, account_id, true FROM publications
                WHERE tenant_id = $1 AND status = 'running' AND lease_until IS NULL AND fence >= 0
                    AND due_at <= now() + $4::interval
                ORDER BY tenant_id, due_at LIMIT 129)
            ), due AS (
                -- If not, from account to account, however much waits for one that takes nothing.
                (SELECT platform, account_id, due_at FROM publications
                WHERE tenant_id = $1 AND status = 'submitted' AND (SELECT count(*) FROM early WHERE NOT asks) > 128
                ORDER BY tenant_id, platform, account_id, due_at LIMIT 1)
                UNION ALL
                SELECT n.platform, n.account_id, n.due_at FROM due CROSS JOIN LATERAL (
                    SELECT p.platform, p.account_id, p.due_at FROM publications p
                    WHERE p.tenant_id = $1 AND p.status = 'submitted'
                        AND (p.platform, p.account_id) > (due.platform, due.account_id)
                    ORDER BY p.tenant_id, p.platform, p.account_id, p.due_at LIMIT 1) n
            ), awaited AS (
                (SELECT platform, account_id, due_at FROM publications
                WHERE tenant_id = $1 AND status = 'running' AND lease_until IS NULL
                    AND (SELECT count(*) FROM early WHERE asks) > 128
                ORDER BY tenant_id, platform, account_id, due_at LIMIT 1)
                UNION ALL
                SELECT n.platform, n.account_id, n.due_at FROM awaited CROSS JOIN LATERAL (
                    SELECT p.platform, p.account_id, p.due_at FROM publications p
                    WHERE p.tenant_id = $1 AND p.status = 'running' AND p.lease_until IS NULL
                        AND (p.platform, p.account_id) > (awaited.platform, awaited.account_id)
                    ORDER BY p.tenant_id, p.platform, p.account_id, p.due_at LIMIT 1) n
            ), free AS MATERIALIZED (
                SELECT l.platform, l.account_id, l.in_flight, t.day, t.day_count,
                    l.login_state = 'active' AND coalesce(t.day_count < l.daily_limit, true) AS may_send,
                    CASE WHEN l.min_interval > '0' THEN 1 ELSE l.max_in_flight - l.in_flight END AS slots,
                    l.daily_limit - t.day_count AS left_today
                FROM (
                    SELECT platform, account_id, bool_or(asks) AS asks FROM (
                        SELECT * FROM early
                        UNION ALL
                        SELECT platform, account_id, false AS asks FROM due WHERE due_at <= now() + $4::interval
                        UNION ALL
                        SELECT platform, account_id, true FROM awaited WHERE due_at <= now() + $4::interval) w
                    GROUP BY 1, 2) d
                JOIN lanes l ON l.tenant_id = $1 AND l.platform = d.platform AND l.account_id = d.account_id
                CROSS JOIN LATERAL (SELECT account_day(l.day, l.time_zone, now() + $4::interval) AS day,
                    CASE WHEN l.day = account_day(l.day, l.time_zone, now() + $4::interval) THEN l.day_count ELSE 0 END
                        AS day_count) t
                WHERE NOT l.pull AND l.free_at <= now() + $4::interval AND l.in_flight < l.max_in_flight
                    AND (l.login_state = 'active' AND coalesce(t.day_count < l.daily_limit, true) OR d.asks)
                ORDER BY l.free_at LIMIT 64
                FOR NO KEY UPDATE OF l SKIP LOCKED
            ), asked AS MATERIALIZED (
                SELECT q.*, f.in_flight, f.day, f.day_count, false AS counts FROM free f CROSS JOIN LATERAL (
                    SELECT p.publication_id, p.platform, p.account_id FROM publications p
                    WHERE p.tenant_id = $1 AND p.platform = f.platform AND p.account_id = f.account_id
                        AND p.status = 'running' AND p.lease_until IS NULL AND p.due_at <= now() + $4::interval
                    ORDER BY p.due_at LIMIT f.slots FOR UPDATE SKIP LOCKED) q
                LIMIT 128
            ), pick AS MATERIALIZED (
                SELECT q.*, f.in_flight, f.day, f.day_count, true AS counts FROM free f CROSS JOIN LATERAL (
                    SELECT p.publication_id, p.platform, p.account_id FROM publications p
                    WHERE p.tenant_id = $1 AND p.platform = f.platform AND p.account_id = f.account_id
                        AND p.status = 'submitted' AND p.due_at <= now() + $4::interval
                    ORDER BY p.due_at LIMIT least(f.left_today, f.slots - (
                        SELECT count(*) FROM asked a WHERE a.platform = f.platform AND a.account_id = f.account_id))
                    FOR UPDATE SKIP LOCKED) q
                WHERE f.may_send LIMIT 128
            ), left_behind AS MATERIALIZED (
                SELECT publication_id FROM publications
                WHERE tenant_id = $1 AND status = 'running' AND lease_until <= now() + $4::interval
                ORDER BY tenant_id, lease_until LIMIT 16 FOR UPDATE SKIP LOCKED
            ), took AS (
                UPDATE lanes l SET in_flight = k.in_flight + k.n, free_at = now() + $4::interval + l.min_interval,
                    day = k.day, day_count = k.day_count + k.counted
                FROM (
                    SELECT platform, account_id, in_flight, day, day_count, count(*)::int AS n,
                        count(*) FILTER (WHERE counts)::int AS counted
                    FROM (SELECT * FROM pick UNION ALL SELECT * FROM asked) t GROUP BY 1, 2, 3, 4, 5) k
                WHERE l.tenant_id = $1 AND l.platform = k.platform AND l.account_id = k.account_id
            ), mine AS (
                -- The credentials and their version from one row: an answer is held against the version that was used.
                UPDATE publications p SET status = 'running', fence = p.fence + 1, lease_owner = $2,
                    lease_until = now() + $4::interval + $3::interval, confirming = (p.status = 'running'),
                    credentials_version = a.credentials_version, updated_at = now() + $4::interval,
                    counted_on = coalesce(
                        (SELECT k.day FROM pick k WHERE k.publication_id = p.publication_id), p.counted_on)
                FROM accounts a
                WHERE p.tenant_id = $1 AND p.publication_id = ANY (ARRAY(
                    SELECT publication_id FROM pick UNION ALL SELECT publication_id FROM asked
                    UNION ALL SELECT publication_id FROM left_behind))
                    AND a.tenant_id = $1 AND a.platform = p.platform AND a.account_id = p.account_id
                RETURNING p.*, a.settings, a.credentials_sealed
            ), noted AS (
                INSERT INTO transitions (tenant_id, task_id, publication_id, at, from_status, to_status, round, fence, reason)
                SELECT tenant_id, task_id, publication_id, updated_at,
                    CASE WHEN confirming THEN 'running' ELSE 'submitted' END, 'running', round, fence,
                    CASE WHEN NOT confirming THEN 'claimed'
                        WHEN publication_id = ANY (ARRAY(SELECT publication_id FROM asked)) THEN 'asked_again'
                        ELSE 'lease_ran_out' END
                FROM mine
            )
            SELECT m.tenant_id, n.name AS tenant, m.publication_id, m.task_id, t.external_id, m.platform, m.account_id,
                m.settings, m.credentials_sealed, m.round, m.fence, m.confirming, m.tries, m.marker, m.draft_id,
                t.submitted_at AS "submitted_at!", x.title, x.content_html, x.summary, x.cover_url, x.canonical_url,
                x.author, x.tags AS "tags: Json<Vec<String>>"
            FROM mine m
            JOIN tenants n ON n.tenant_id = m.tenant_id
            JOIN tasks t ON t.tenant_id = m.tenant_id AND t.task_id = m.task_id
            JOIN articles x ON x.tenant_id = m.tenant_id AND x.task_id = m.task_id"#,
            tenant_id,
            limits.owner,
            interval(limits.lease) as _,
            self.clock.skew() as _,
        )
        .fetch_all(&self.pool)
        .await?;
        let claimed = rows.into_iter().map(|row| Claimed {
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
            taken_over: row.confirming,
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
        });
        Ok(claimed.collect())
    }
}
