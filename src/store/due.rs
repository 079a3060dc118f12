//! Which tenants have something due: the question the loops ask first.

use std::time::Duration;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::{Store, StoreError};
use crate::retry::interval;

/// What a loop works through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// Publications, for the workers.
    Publications,
    /// Callbacks, for the dispatchers.
    Callbacks,
    /// Ranges of callbacks that are sent again, for the dispatchers.
    Replays,
}

impl Queue {
    /// The queue's name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Publications => "publications",
            Self::Callbacks => "callbacks",
            Self::Replays => "replays",
        }
    }
}

/// A tenant that has something due now, or soon.
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a question of its own, asked in one statement")]
pub struct Due {
    /// The tenant.
    pub tenant_id: Uuid,
    /// How long until then: zero if it is due; how long it has been due, negative.
    pub seconds: f64,
    /// Whether accounts of it have lost their login: what is due for them is to expire.
    pub parked: bool,
    /// Whether something that has ended is to be swept.
    pub sweeping: bool,
    /// Whether accounts of it had their login renewed: what waits for them is to be resumed.
    pub resuming: bool,
    /// Whether robots fetch articles of accounts of it: what none has reported for a day is to be given up.
    pub pulled: bool,
    /// When the newest of what is due became due: it moves when something more does. Not of replays.
    pub newest: Option<DateTime<Utc>>,
}

impl Store {
    /// At most `limit` tenants after `after` (in the order of their ids) that have something due within `horizon`, or held
    /// by a lease that runs out by then.
    ///
    /// Asked for the earliest, in the order of the index: for `EXISTS` the planner may read the table from its
    /// beginning instead, where what is finished lies, since it expects to meet a due row soon.
    pub async fn tenants_due(
        &self,
        queue: Queue,
        after: Uuid,
        limit: i64,
        horizon: Duration,
    ) -> Result<Vec<Due>, StoreError> {
        let (skew, horizon) = (self.clock.skew(), interval(horizon));
        let tenants = match queue {
            Queue::Publications => {
                sqlx::query_as!(
                    Due,
                    r#"SELECT t.tenant_id,
                        CASE WHEN l.resuming THEN 0 ELSE extract(epoch FROM l.at - now() - $3::interval) END::float8 AS "seconds!",
                        l.parked AS "parked!", coalesce(l.sweep_at <= now() + $3::interval, false) AS "sweeping!",
                        l.resuming AS "resuming!",
                        EXISTS (SELECT FROM lanes l WHERE l.tenant_id = t.tenant_id AND l.pull) AS "pulled!",
                        greatest(
                            (SELECT p.lease_until FROM publications p WHERE p.tenant_id = t.tenant_id
                                AND p.status = 'running' AND p.lease_until <= now() + $3::interval
                                ORDER BY p.tenant_id DESC, p.lease_until DESC LIMIT 1),
                            (SELECT p.due_at FROM publications p WHERE p.tenant_id = t.tenant_id
                                AND p.status = 'submitted' AND p.fence >= 0 AND p.due_at <= now() + $3::interval
                                ORDER BY p.tenant_id DESC, p.due_at DESC LIMIT 1),
                            (SELECT p.due_at FROM publications p WHERE p.tenant_id = t.tenant_id
                                AND p.status = 'running' AND p.lease_until IS NULL AND p.fence >= 0
                                AND p.due_at <= now() + $3::interval
                                ORDER BY p.tenant_id DESC, p.due_at DESC LIMIT 1)) AS newest
                    FROM tenants t CROSS JOIN LATERAL (SELECT s.sweep_at, least(s.sweep_at,
                            (SELECT p.lease_until FROM publications p WHERE p.tenant_id = t.tenant_id
                                AND p.status = 'running' ORDER BY p.tenant_id, p.lease_until LIMIT 1),
                            CASE WHEN EXISTS (SELECT FROM lanes l WHERE l.tenant_id = t.tenant_id AND l.pull) THEN
                                -- What robots fetch is due for nobody here.
                                (SELECT min(d.due_at) FROM lanes l CROSS JOIN LATERAL (
                                    SELECT p.due_at FROM publications p WHERE p.tenant_id = t.tenant_id
                                        AND p.platform = l.platform AND p.account_id = l.account_id AND p.status = 'submitted'
                                    ORDER BY p.tenant_id, p.platform, p.account_id, p.due_at LIMIT 1) d
                                WHERE l.tenant_id = t.tenant_id AND NOT (l.pull AND l.login_state = 'active'))
                            ELSE (SELECT p.due_at FROM publications p WHERE p.tenant_id = t.tenant_id
                                AND p.status = 'submitted' AND p.fence >= 0 ORDER BY p.tenant_id, p.due_at LIMIT 1) END,
                            (SELECT p.due_at FROM publications p WHERE p.tenant_id = t.tenant_id
                                AND p.status = 'running' AND p.lease_until IS NULL AND p.fence >= 0
                                ORDER BY p.tenant_id, p.due_at LIMIT 1)) AS at,
                        EXISTS (SELECT FROM lanes l WHERE l.tenant_id = t.tenant_id AND l.login_state = 'login_expired') AS parked,
                        EXISTS (SELECT FROM lanes l WHERE l.tenant_id = t.tenant_id AND l.resume_from IS NOT NULL) AS resuming
                        FROM (SELECT (SELECT p.sweep_at FROM publications p WHERE p.tenant_id = t.tenant_id
                            AND p.sweep_at IS NOT NULL ORDER BY p.tenant_id, p.sweep_at LIMIT 1) AS sweep_at) s) l
                    WHERE t.tenant_id > $1 AND (l.at <= now() + $3::interval + $4::interval OR l.resuming)
                    ORDER BY t.tenant_id LIMIT $2"#,
                    after,
                    limit,
                    skew as _,
                    horizon as _,
                )
                .fetch_all(&self.pool)
                .await?
            }
            Queue::Callbacks => {
                sqlx::query_as!(
                    Due,
                    r#"SELECT t.tenant_id, extract(epoch FROM l.at - now() - $3::interval)::float8 AS "seconds!", false AS "parked!",
                        false AS "sweeping!", false AS "resuming!", false AS "pulled!",
                        (SELECT c.due_at FROM callbacks c WHERE c.tenant_id = t.tenant_id AND c.status = 'pending'
                            AND c.lease_until IS NULL AND c.fence >= 0 AND c.due_at <= now() + $3::interval
                            ORDER BY c.tenant_id DESC, c.due_at DESC LIMIT 1) AS newest
                    FROM tenants t CROSS JOIN LATERAL (SELECT least(
                        (SELECT c.lease_until FROM callbacks c WHERE c.tenant_id = t.tenant_id
                            AND c.lease_until IS NOT NULL ORDER BY c.tenant_id, c.lease_until LIMIT 1),
                        (SELECT c.due_at FROM callbacks c WHERE c.tenant_id = t.tenant_id AND c.status = 'pending'
                            AND c.lease_until IS NULL AND c.fence >= 0 ORDER BY c.tenant_id, c.due_at LIMIT 1)) AS at) l
                    WHERE t.tenant_id > $1 AND l.at <= now() + $3::interval + $4::interval
                    ORDER BY t.tenant_id LIMIT $2"#,
                    after,
                    limit,
                    skew as _,
                    horizon as _,
                )
                .fetch_all(&self.pool)
                .await?
            }
            Queue::Replays => {
                sqlx::query_as!(
                    Due,
                    r#"SELECT t.tenant_id, extract(epoch FROM l.due_at - now() - $3::interval)::float8 AS "seconds!", false AS "parked!",
                        false AS "sweeping!", false AS "resuming!", false AS "pulled!", NULL::timestamptz AS newest
                    FROM tenants t CROSS JOIN LATERAL (
                        SELECT r.due_at FROM replays r WHERE r.tenant_id = t.tenant_id AND r.finished_at IS NULL
                        ORDER BY r.tenant_id, r.replay_id LIMIT 1) l
                    WHERE t.tenant_id > $1 AND l.due_at <= now() + $3::interval + $4::interval
                    ORDER BY t.tenant_id LIMIT $2"#,
                    after,
                    limit,
                    skew as _,
                    horizon as _,
                )
                .fetch_all(&self.pool)
                .await?
            }
        };
        Ok(tenants)
    }
}
