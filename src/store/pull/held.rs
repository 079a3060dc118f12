//! What robots have in hand: they keep it by heartbeats, and what nobody reports is given up.

use chrono::{DateTime, TimeDelta, Utc};
use uuid::Uuid;

use super::Handing;
use crate::retry::interval;
use crate::store::bridge::lock_standing;
use crate::store::{Move, Standing, Store, StoreError, Telling};

/// What came of a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Beat {
    /// The robot has it to itself until then.
    Until(DateTime<Utc>),
    /// It is not the robot's; why.
    Refused(String),
}

impl Store {
    /// Leaves an article to its robot for another lease, if `decide` lets it, under the publication's lock; none if there is
    /// no such publication.
    pub async fn heartbeat(
        &self,
        tenant_id: Uuid,
        (publication_id, platform): (Uuid, &str),
        handing: Handing,
        decide: impl FnOnce(Standing, (Uuid, i32)) -> Result<(), String>,
    ) -> Result<Option<Beat>, StoreError> {
        let mut transaction = self.pool.begin().await?;
        let standing = lock_standing(tenant_id, publication_id, platform, &mut transaction).await?;
        let Some((standing, fence)) = standing else { return Ok(None) };
        if let Err(why) = decide(standing, (publication_id, fence)) {
            return Ok(Some(Beat::Refused(why)));
        }
        let until = sqlx::query_scalar!(
            "WITH kept AS (
                UPDATE publications p SET due_at = least(now() + $4::interval + $5::interval, o.since + $6::interval),
                    updated_at = now() + $4::interval
                FROM (SELECT min(started_at) AS since FROM attempts WHERE tenant_id = $1 AND publication_id = $2
                    AND kind IN ('draft', 'publish') AND ended_at IS NULL) o
                WHERE p.tenant_id = $1 AND p.publication_id = $2 AND o.since + $6::interval > now() + $4::interval
                RETURNING p.due_at
            ), held AS (
                UPDATE attempts SET over_at = due_at FROM kept
                WHERE tenant_id = $1 AND publication_id = $2 AND fence = $3 AND ended_at IS NULL
            )
            SELECT due_at FROM kept",
            tenant_id,
            publication_id,
            fence,
            self.clock.skew() as _,
            interval(handing.lease) as _,
            handing.limit as _,
        )
        .fetch_optional(&mut *transaction)
        .await?;
        let Some(until) = until else {
            let why = "it was first handed out over a day ago, and nobody has said what came of it";
            return Ok(Some(Beat::Refused(why.to_owned())));
        };
        transaction.commit().await?;
        Ok(Some(Beat::Until(until)))
    }

    /// Gives up what was handed out of one tenant and not reported within the limit, once no robot has it to itself, at most
    /// 100 at once; returns how many. `end` says how each ends.
    pub async fn give_up_pulled(
        &self,
        tenant_id: Uuid,
        limit: TimeDelta,
        telling: Telling,
        end: impl Fn((Uuid, i32)) -> Move,
    ) -> Result<usize, StoreError> {
        let mut transaction = self.pool.begin().await?;
        // Skips what others hold, so it waits for nobody. Of each account no more are looked at than it may have in hand.
        let given_up = sqlx::query!(
            "SELECT p.publication_id, p.fence FROM lanes l CROSS JOIN LATERAL (
                SELECT p.publication_id, p.fence FROM publications p
                WHERE p.tenant_id = l.tenant_id AND p.platform = l.platform AND p.account_id = l.account_id
                    AND p.status = 'running' AND p.lease_until IS NULL AND p.due_at <= now() + $2::interval
                    AND EXISTS (SELECT FROM attempts a WHERE a.tenant_id = p.tenant_id
                        AND a.publication_id = p.publication_id AND a.kind IN ('draft', 'publish')
                        AND a.ended_at IS NULL AND a.started_at <= now() + $2::interval - $3::interval)
                ORDER BY p.due_at LIMIT 100 FOR UPDATE SKIP LOCKED) p
            WHERE l.tenant_id = $1 AND l.pull LIMIT 100",
            tenant_id,
            self.clock.skew() as _,
            limit as _,
        )
        .fetch_all(&mut *transaction)
        .await?;
        if given_up.is_empty() {
            return Ok(0);
        }
        let moves = given_up.into_iter().map(|row| end((row.publication_id, row.fence))).collect::<Vec<_>>();
        let ended = self.apply(tenant_id, &moves, telling, &mut transaction).await?;
        transaction.commit().await?;
        Ok(ended.len())
    }
}
