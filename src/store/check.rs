//! What a request to publish would meet.

use chrono::{DateTime, Utc};
use sqlx::types::Json;
use uuid::Uuid;

use super::{ExistingTask, PublicationRow, Store, StoreError};
use crate::article::ExternalId;

/// An account, as an article for its group would meet it now.
#[derive(Debug, Clone, PartialEq)]
pub struct AccountStanding {
    /// The platform.
    pub platform: String,
    /// Its id on the platform.
    pub account_id: String,
    /// `active` or `login_expired`.
    pub login_state: String,
    /// Not sooner than then, by the article's time and the account's pace, its pause, and its day if that is full; what
    /// waits before it is not counted.
    pub earliest_at: DateTime<Utc>,
}

impl Store {
    /// The task of that `external_id`, as a repeated request is compared with it.
    pub async fn existing(
        &self,
        tenant_id: Uuid,
        external_id: &ExternalId,
    ) -> Result<Option<ExistingTask>, StoreError> {
        let row = sqlx::query!(
            r#"SELECT t.task_id, t.group_code, t.digests, t.idempotency_key, t.callback_url, t.publish_at, t.draft,
                t.submitted_at, (SELECT json_agg(json_build_object(
                        'platform', p.platform, 'account_id', p.account_id, 'status', p.status,
                        'confirming', p.confirming, 'round', p.round, 'claimed', p.fence > 0, 'attempts', p.attempts,
                        'url', p.url, 'remote_id', p.remote_id, 'error_code', p.error_code,
                        'error_message', p.error_message, 'error_retryable', p.error_retryable, 'warnings', p.warnings,
                        'due_at', p.due_at, 'updated_at', p.updated_at) ORDER BY p.position)
                    FROM publications p WHERE p.tenant_id = t.tenant_id AND p.task_id = t.task_id
                ) AS "publications: Json<Vec<PublicationRow>>"
            FROM tasks t WHERE t.tenant_id = $1 AND t.external_id = $2"#,
            tenant_id,
            external_id.as_str(),
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(row.map(|row| ExistingTask {
            task_id: row.task_id,
            group_code: row.group_code,
            digests: row.digests,
            idempotency_key: row.idempotency_key,
            callback_url: row.callback_url,
            publish_at: row.publish_at,
            draft: row.draft,
            submitted_at: row.submitted_at,
            publications: row.publications.map_or(Vec::new(), |list| list.0),
        }))
    }

    /// The accounts of a group, in order, as an article that is due at `publish_at` would meet them; none if there is no
    /// such group.
    pub async fn group_standing(
        &self,
        tenant_id: Uuid,
        group_code: &str,
        publish_at: Option<DateTime<Utc>>,
    ) -> Result<Option<Vec<AccountStanding>>, StoreError> {
        let rows = sqlx::query!(
            r#"SELECT m.platform AS "platform?", m.account_id AS "account_id?", l.login_state AS "login_state?",
                greatest($3, now() + $4::interval, l.free_at, full_until(l.daily_limit, l.day, l.day_count, l.time_zone,
                    now() + $4::interval)) AS "earliest_at!"
            FROM groups g
            LEFT JOIN group_members m ON m.tenant_id = g.tenant_id AND m.group_code = g.group_code
            LEFT JOIN lanes l ON l.tenant_id = m.tenant_id AND l.platform = m.platform AND l.account_id = m.account_id
            WHERE g.tenant_id = $1 AND g.group_code = $2 ORDER BY m.position"#,
            tenant_id,
            group_code,
            publish_at,
            self.clock.skew() as _,
        )
        .fetch_all(&self.pool)
        .await?;
        if rows.is_empty() {
            return Ok(None);
        }
        let accounts = rows.into_iter().filter_map(|row| {
            Some(AccountStanding {
                platform: row.platform?,
                account_id: row.account_id?,
                login_state: row.login_state?,
                earliest_at: row.earliest_at,
            })
        });
        Ok(Some(accounts.collect()))
    }

    /// An article of that group with that content, if one of this week or the last has it.
    pub async fn same_content(
        &self,
        tenant_id: Uuid,
        group_code: &str,
        fingerprint: &[u8],
    ) -> Result<Option<String>, StoreError> {
        let same = sqlx::query_scalar!(
            "SELECT external_id FROM tasks
            WHERE tenant_id = $1 AND content_week(created_at) = ANY ((SELECT recent_weeks(now() + $4::interval))::timestamp[])
                AND substring(fingerprint FROM 1 FOR 8) = substring($2::bytea FROM 1 FOR 8)
                AND fingerprint = $2 AND group_code = $3
            LIMIT 1",
            tenant_id,
            fingerprint,
            group_code,
            self.clock.skew() as _,
        );
        Ok(same.fetch_optional(&self.pool).await?)
    }
}
