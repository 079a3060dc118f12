//! Handing articles out to robots that fetch them.
//!
//! What is handed out runs as what a platform has accepted does: without a lease of ours and without a slot, awaiting an
//! answer until it is due, which is when the robot's own lease ends. The intent is journalled in the transaction that hands
//! it out, so whatever becomes of the answer, the next robot is told that it was attempted before.

use std::collections::HashMap;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use sqlx::PgTransaction;
use sqlx::types::Json;
use uuid::Uuid;

use super::{Store, StoreError};
use crate::article::Content;
use crate::retry::interval;
use crate::task::marker::MarkerKey;
use crate::task::pull::{DueJob, PulledLane, choose};

mod held;

pub use held::Beat;

/// How a robot holds what was handed out to it.
#[derive(Debug, Clone, Copy)]
pub struct Handing {
    /// How long it has it to itself.
    pub lease: Duration,
    /// How long after it was first handed out nobody is asked any more.
    pub limit: TimeDelta,
}

/// An article that was handed out.
#[derive(Debug, Clone, PartialEq)]
pub struct HandedOut {
    /// The publication.
    pub publication_id: Uuid,
    /// Its fence, by which this handing out is told from others.
    pub fence: i32,
    /// Its run.
    pub round: i32,
    /// The caller's id of the article.
    pub external_id: String,
    /// The account.
    pub account_id: String,
    /// Its mark, the same for every try and round.
    pub marker: String,
    /// What is to be published.
    pub content: Content,
    /// Whether it was handed out before, and nobody has said what came of it.
    pub attempted_before: bool,
    /// Until when the robot has it to itself.
    pub lease_until: DateTime<Utc>,
}

/// What came of a robot's call for articles.
#[derive(Debug, Clone, PartialEq)]
pub enum HandOut {
    /// These are its articles.
    Jobs(Vec<HandedOut>),
    /// Nothing is handed out for accounts that are not there, or that articles are sent to: their places in the call, and
    /// whether they are there.
    Unfit(Vec<(usize, bool)>),
}

/// A job that was chosen, with what is written of it.
struct Chosen {
    external_id: String,
    marker: Option<String>,
    /// Since when nobody has said what came of it.
    open_since: Option<DateTime<Utc>>,
}

impl Store {
    /// Hands out what is due of accounts whose articles are fetched, at most `max` ([`crate::task::pull`] says which):
    /// articles that a robot had to itself until its lease ran out, and new ones.
    ///
    /// The lanes are locked in order, and waited for; publications that others hold are passed over, so this waits for
    /// nobody who waits for it. On one node a tenant's robots wait in a line, not each with a connection: those are for
    /// everybody's requests. What is counted and chosen is read after the locks, in statements of their own.
    pub async fn hand_out(
        &self,
        tenant_id: Uuid,
        (platform, account_ids): (&str, &[String]),
        max: usize,
        handing: Handing,
        marker_key: &MarkerKey,
    ) -> Result<HandOut, StoreError> {
        let _turn = self.fetching.turn(tenant_id).await;
        let mut transaction = self.pool.begin().await?;
        let lanes = self.lock_pulled(tenant_id, (platform, account_ids), &mut transaction).await?;
        let fit = |id: &String| lanes.get(id).is_some_and(Option::is_some);
        let unfit = account_ids.iter().enumerate().filter(|(_, id)| !fit(id));
        let unfit = unfit.map(|(at, id)| (at, lanes.contains_key(id))).collect::<Vec<_>>();
        if !unfit.is_empty() {
            return Ok(HandOut::Unfit(unfit));
        }
        let free = lanes.into_values().flatten().filter(|(_, free)| *free).map(|(lane, _)| lane);
        let mut free = free.collect::<Vec<_>>();
        if free.is_empty() {
            return Ok(HandOut::Jobs(Vec::new()));
        }
        count_in_hand(tenant_id, platform, &mut free, &mut transaction).await?;
        let (due, mut known) =
            self.due_of(tenant_id, platform, &free, handing.limit, &mut transaction).await?;
        let chosen = choose(&free, due, max);
        let chosen = chosen.into_iter().filter_map(|job| {
            let known = known.remove(&job.publication_id)?;
            let own = || marker_key.marker(&known.external_id, platform, &job.account_id);
            Some((job.publication_id, known.marker.clone().unwrap_or_else(own), known.open_since))
        });
        let chosen = chosen.collect::<Vec<_>>();
        if chosen.is_empty() {
            return Ok(HandOut::Jobs(Vec::new()));
        }
        let jobs = self.give(tenant_id, platform, &chosen, handing, &mut transaction).await?;
        transaction.commit().await?;
        Ok(HandOut::Jobs(jobs))
    }

    /// Locks the lanes of accounts that are there: with each, where its articles are fetched, whether it is free.
    async fn lock_pulled(
        &self,
        tenant_id: Uuid,
        (platform, account_ids): (&str, &[String]),
        transaction: &mut PgTransaction<'_>,
    ) -> Result<HashMap<String, Option<(PulledLane, bool)>>, StoreError> {
        let rows = sqlx::query!(
            r#"SELECT l.account_id, l.pull, l.login_state = 'active' AS "may_send!", l.min_interval > '0' AS "paced!",
                l.max_in_flight, l.free_at <= now() + $4::interval AS "free!",
                l.daily_limit - CASE WHEN l.day = account_day(l.day, l.time_zone, now() + $4::interval) THEN l.day_count
                    ELSE 0 END AS left_today
            FROM lanes l JOIN accounts a
                ON a.tenant_id = l.tenant_id AND a.platform = l.platform AND a.account_id = l.account_id
            WHERE l.tenant_id = $1 AND l.platform = $2 AND l.account_id = ANY ($3) AND a.hidden_at IS NULL
            ORDER BY l.platform, l.account_id FOR NO KEY UPDATE OF l"#,
            tenant_id,
            platform,
            account_ids,
            self.clock.skew() as _,
        )
        .fetch_all(&mut **transaction)
        .await?;
        let lanes = rows.into_iter().map(|row| {
            let lane = row.pull.then(|| PulledLane {
                account_id: row.account_id.clone(),
                may_send: row.may_send,
                paced: row.paced,
                max_in_flight: row.max_in_flight.into(),
                in_hand: 0,
                left_today: row.left_today.map(i64::from),
            });
            (row.account_id, lane.map(|lane| (lane, row.free)))
        });
        Ok(lanes.collect())
    }

    /// What is due on these lanes, for each the first of what was left behind and of what is new, locked; and what is known
    /// of it.
    async fn due_of(
        &self,
        tenant_id: Uuid,
        platform: &str,
        lanes: &[PulledLane],
        limit: TimeDelta,
        transaction: &mut PgTransaction<'_>,
    ) -> Result<(Vec<DueJob>, HashMap<Uuid, Chosen>), StoreError> {
        let rows = sqlx::query!(
            r#"WITH lane AS MATERIALIZED (
                SELECT * FROM unnest($3::text[], $4::boolean[]) AS u(account_id, may_send)
            ), left_behind AS MATERIALIZED (
                SELECT q.* FROM lane CROSS JOIN LATERAL (
                    SELECT p.publication_id, p.task_id, p.account_id, p.due_at, p.marker FROM publications p
                    WHERE p.tenant_id = $1 AND p.platform = $2 AND p.account_id = lane.account_id
                        AND p.status = 'running' AND p.lease_until IS NULL AND p.due_at <= now() + $5::interval
                        -- What nobody has reported for a day is given up.
                        AND NOT EXISTS (SELECT FROM attempts a WHERE a.tenant_id = $1
                            AND a.publication_id = p.publication_id AND a.kind IN ('draft', 'publish')
                            AND a.ended_at IS NULL AND a.started_at <= now() + $5::interval - $6::interval)
                    ORDER BY p.due_at LIMIT 16 FOR UPDATE OF p SKIP LOCKED) q
            ), new AS MATERIALIZED (
                SELECT q.* FROM lane CROSS JOIN LATERAL (
                    SELECT p.publication_id, p.task_id, p.account_id, p.due_at, p.marker FROM publications p
                    WHERE p.tenant_id = $1 AND p.platform = $2 AND p.account_id = lane.account_id
                        AND p.status = 'submitted' AND p.due_at <= now() + $5::interval
                    ORDER BY p.due_at LIMIT 16 FOR UPDATE OF p SKIP LOCKED) q
                WHERE lane.may_send
            )
            SELECT j.publication_id AS "publication_id!", j.account_id AS "account_id!", j.due_at AS "due_at!", j.marker,
                j.in_hand AS "in_hand!", t.external_id, o.since
            FROM (SELECT *, true AS in_hand FROM left_behind UNION ALL SELECT *, false FROM new) j
            JOIN tasks t ON t.tenant_id = $1 AND t.task_id = j.task_id
            CROSS JOIN LATERAL (
                SELECT min(a.started_at) AS since FROM attempts a
                WHERE a.tenant_id = $1 AND a.publication_id = j.publication_id AND a.kind IN ('draft', 'publish')
                    AND a.ended_at IS NULL) o"#,
            tenant_id,
            platform,
            &lanes.iter().map(|lane| lane.account_id.clone()).collect::<Vec<_>>(),
            &lanes.iter().map(|lane| lane.may_send).collect::<Vec<_>>(),
            self.clock.skew() as _,
            limit as _,
        )
        .fetch_all(&mut **transaction)
        .await?;
        let (mut due, mut known) = (Vec::new(), HashMap::new());
        for row in rows {
            let job = DueJob {
                publication_id: row.publication_id,
                account_id: row.account_id,
                in_hand: row.in_hand,
                due_at: row.due_at,
            };
            due.push(job);
            let chosen = Chosen { external_id: row.external_id, marker: row.marker, open_since: row.since };
            known.insert(row.publication_id, chosen);
        }
        Ok((due, known))
    }

    /// Hands these out: state, fence, intent and pace, in one statement.
    async fn give(
        &self,
        tenant_id: Uuid,
        platform: &str,
        chosen: &[(Uuid, String, Option<DateTime<Utc>>)],
        handing: Handing,
        transaction: &mut PgTransaction<'_>,
    ) -> Result<Vec<HandedOut>, StoreError> {
        let rows = sqlx::query!(
            r#"WITH given AS (
                UPDATE publications p SET status = 'running', fence = p.fence + 1, confirming = true, marker = u.marker,
                    attempts = p.attempts + 1, credentials_version = l.credentials_version,
                    due_at = least(now() + $6::interval + $7::interval, u.since + $8::interval),
                    counted_on = CASE WHEN p.status = 'submitted'
                        THEN account_day(l.day, l.time_zone, now() + $6::interval) ELSE p.counted_on END,
                    updated_at = now() + $6::interval
                FROM unnest($3::uuid[], $4::text[], $5::timestamptz[], $9::int[]) AS u(publication_id, marker, since, place),
                    lanes l
                WHERE p.tenant_id = $1 AND p.publication_id = u.publication_id
                    AND l.tenant_id = $1 AND l.platform = p.platform AND l.account_id = p.account_id
                RETURNING p.*, u.since, u.place
            ), tried AS (
                INSERT INTO attempts (tenant_id, publication_id, fence, step, kind, round, started_at, over_at)
                SELECT tenant_id, publication_id, fence, 0, 'publish', round, updated_at, due_at FROM given
            ), told AS (
                -- As it was before this statement.
                SELECT g.*, b.status = 'running' AS in_hand FROM given g JOIN publications b
                    ON b.tenant_id = g.tenant_id AND b.publication_id = g.publication_id
            ), noted AS (
                INSERT INTO transitions (tenant_id, task_id, publication_id, at, from_status, to_status, round, fence, reason)
                SELECT tenant_id, task_id, publication_id, updated_at,
                    CASE WHEN in_hand THEN 'running' ELSE 'submitted' END, 'running', round, fence,
                    CASE WHEN in_hand THEN 'handed_out_again' ELSE 'handed_out' END
                FROM told
            ), paced AS (
                -- Without a pace it stays free also for whoever began earlier, and had to wait for the lane.
                UPDATE lanes l SET free_at = CASE WHEN l.min_interval > '0' THEN now() + $6::interval + l.min_interval
                        ELSE l.free_at END,
                    day = account_day(l.day, l.time_zone, now() + $6::interval),
                    day_count = t.new + CASE WHEN l.day = account_day(l.day, l.time_zone, now() + $6::interval)
                        THEN l.day_count ELSE 0 END
                FROM (SELECT account_id, count(*) FILTER (WHERE NOT in_hand)::int AS new FROM told GROUP BY 1) t
                WHERE l.tenant_id = $1 AND l.platform = $2 AND l.account_id = t.account_id
            )
            SELECT g.publication_id, g.fence, g.round, g.account_id, g.marker AS "marker!", g.due_at,
                g.since IS NOT NULL AS "attempted_before!", t.external_id, x.title, x.content_html, x.summary, x.cover_url,
                x.canonical_url, x.author, x.tags AS "tags: Json<Vec<String>>"
            FROM given g
            JOIN tasks t ON t.tenant_id = g.tenant_id AND t.task_id = g.task_id
            JOIN articles x ON x.tenant_id = g.tenant_id AND x.task_id = g.task_id
            ORDER BY g.place"#,
            tenant_id,
            platform,
            &chosen.iter().map(|(id, ..)| *id).collect::<Vec<_>>(),
            &chosen.iter().map(|(_, marker, _)| marker.clone()).collect::<Vec<_>>(),
            &chosen.iter().map(|(.., since)| *since).collect::<Vec<_>>() as &[Option<DateTime<Utc>>],
            self.clock.skew() as _,
            interval(handing.lease) as _,
            handing.limit as _,
            &(0..).take(chosen.len()).collect::<Vec<i32>>(),
        )
        .fetch_all(&mut **transaction)
        .await?;
        let jobs = rows.into_iter().map(|row| HandedOut {
            publication_id: row.publication_id,
            fence: row.fence,
            round: row.round,
            external_id: row.external_id,
            account_id: row.account_id,
            marker: row.marker,
            content: Content {
                title: row.title,
                content_html: row.content_html,
                summary: row.summary,
                cover_url: row.cover_url,
                canonical_url: row.canonical_url,
                author: row.author,
                tags: row.tags.0,
            },
            attempted_before: row.attempted_before,
            lease_until: row.due_at,
        });
        Ok(jobs.collect())
    }
}

/// Counts what these accounts have in hand, under the locks of their lanes: it can only become less meanwhile.
async fn count_in_hand(
    tenant_id: Uuid,
    platform: &str,
    lanes: &mut [PulledLane],
    transaction: &mut PgTransaction<'_>,
) -> Result<(), StoreError> {
    let account_ids = lanes.iter().map(|lane| lane.account_id.clone()).collect::<Vec<_>>();
    let rows = sqlx::query!(
        r#"SELECT u.account_id AS "account_id!", (
                SELECT count(*) FROM publications p WHERE p.tenant_id = $1 AND p.platform = $2
                    AND p.account_id = u.account_id AND p.status = 'running' AND p.lease_until IS NULL) AS "in_hand!"
        FROM unnest($3::text[]) AS u(account_id)"#,
        tenant_id,
        platform,
        &account_ids,
    )
    .fetch_all(&mut **transaction)
    .await?;
    for row in rows {
        if let Some(lane) = lanes.iter_mut().find(|lane| lane.account_id == row.account_id) {
            lane.in_hand = row.in_hand;
        }
    }
    Ok(())
}
