//! Which tenants have something due: the question the loops ask first.

use uuid::Uuid;

use super::{Store, StoreError};

/// What a loop works through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// Publications, for the workers.
    Publications,
    /// Callbacks, for the dispatchers.
    Callbacks,
}

impl Store {
    /// At most `limit` tenants after `after` (in the order of their ids) that have something due, or held by a lease
    /// that ran out.
    ///
    /// Asked for the earliest, in the order of the index: for `EXISTS` the planner may read the table from its
    /// beginning instead, where what is finished lies, since it expects to meet a due row soon.
    pub async fn tenants_due(&self, queue: Queue, after: Uuid, limit: i64) -> Result<Vec<Uuid>, StoreError> {
        let skew = self.clock.skew();
        let tenants = match queue {
            Queue::Publications => {
                sqlx::query_scalar!(
                    "SELECT t.tenant_id FROM tenants t CROSS JOIN LATERAL (SELECT
                        (SELECT p.lease_until FROM publications p WHERE p.tenant_id = t.tenant_id
                            AND p.status = 'running' ORDER BY p.tenant_id, p.lease_until LIMIT 1) AS lease_until,
                        (SELECT p.due_at FROM publications p WHERE p.tenant_id = t.tenant_id
                            AND p.status = 'submitted' AND p.fence >= 0 ORDER BY p.tenant_id, p.due_at LIMIT 1) AS due_at) l
                    WHERE t.tenant_id > $1
                        AND (l.lease_until <= now() + $3::interval OR l.due_at <= now() + $3::interval)
                    ORDER BY t.tenant_id LIMIT $2",
                    after,
                    limit,
                    skew as _,
                )
                .fetch_all(&self.pool)
                .await?
            }
            Queue::Callbacks => {
                sqlx::query_scalar!(
                    "SELECT t.tenant_id FROM tenants t CROSS JOIN LATERAL (SELECT
                        (SELECT c.lease_until FROM callbacks c WHERE c.tenant_id = t.tenant_id
                            AND c.lease_until IS NOT NULL ORDER BY c.tenant_id, c.lease_until LIMIT 1) AS lease_until,
                        (SELECT c.due_at FROM callbacks c WHERE c.tenant_id = t.tenant_id AND c.status = 'pending'
                            AND c.lease_until IS NULL AND c.fence >= 0 ORDER BY c.tenant_id, c.due_at LIMIT 1) AS due_at) l
                    WHERE t.tenant_id > $1
                        AND (l.lease_until <= now() + $3::interval OR l.due_at <= now() + $3::interval)
                    ORDER BY t.tenant_id LIMIT $2",
                    after,
                    limit,
                    skew as _,
                )
                .fetch_all(&self.pool)
                .await?
            }
        };
        Ok(tenants)
    }
}
