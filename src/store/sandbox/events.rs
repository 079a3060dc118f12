//! What accounts of the sandbox say of the events that tell of them.

use uuid::Uuid;

use crate::store::{Store, StoreError};

impl Store {
    /// The settings of the accounts of the sandbox that events are about, and the articles' ids: of events about accounts
    /// that are not hidden.
    pub async fn sandbox_settings(
        &self,
        tenant_id: Uuid,
        event_ids: &[Uuid],
    ) -> Result<Vec<(Uuid, serde_json::Value, String)>, StoreError> {
        let rows = sqlx::query!(
            // Row by row, by the keys: joined, all publications of the platform would be read.
            "SELECT e.event_id, a.settings, t.external_id
            FROM unnest($2::uuid[]) AS u(event_id)
            CROSS JOIN LATERAL (SELECT event_id, publication_id, task_id FROM events
                WHERE tenant_id = $1 AND event_id = u.event_id LIMIT 1) e
            CROSS JOIN LATERAL (SELECT platform, account_id FROM publications
                WHERE tenant_id = $1 AND publication_id = e.publication_id LIMIT 1) p
            CROSS JOIN LATERAL (SELECT settings FROM accounts WHERE tenant_id = $1 AND platform = p.platform
                AND account_id = p.account_id AND hidden_at IS NULL LIMIT 1) a
            CROSS JOIN LATERAL (SELECT external_id FROM tasks WHERE tenant_id = $1 AND task_id = e.task_id LIMIT 1) t
            WHERE p.platform = 'sandbox'",
            tenant_id,
            event_ids,
        );
        let rows = rows.fetch_all(&self.pool).await?;
        Ok(rows.into_iter().map(|row| (row.event_id, row.settings, row.external_id)).collect())
    }
}
