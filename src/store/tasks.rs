//! Tasks, and looking one up.

use chrono::{DateTime, Utc};
use serde::Deserialize;
use sqlx::PgExecutor;
use sqlx::types::Json;
use uuid::Uuid;

use super::{Store, StoreError, Warning};
use crate::article::ExternalId;
use crate::task::state::Status;

/// A stored task, as far as a repeated request is compared with it.
#[derive(Debug, Clone)]
pub struct ExistingTask {
    /// Its id.
    pub task_id: Uuid,
    /// Its group.
    pub group_code: String,
    /// The digests of its fields.
    pub digests: Vec<u8>,
    /// The `Idempotency-Key` it was created with.
    pub idempotency_key: Option<String>,
    /// Where its events go.
    pub callback_url: Option<String>,
    /// Not before then.
    pub publish_at: Option<DateTime<Utc>>,
    /// Whether it was created as a draft.
    pub draft: bool,
    /// When it was submitted.
    pub submitted_at: Option<DateTime<Utc>>,
    /// Its publications, in the order of the group.
    pub publications: Vec<PublicationRow>,
}

/// A publication, as the API shows it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct PublicationRow {
    /// The platform.
    pub platform: String,
    /// The account.
    pub account_id: String,
    /// Its state.
    pub status: Status,
    /// Whether its outcome is being found out.
    pub confirming: bool,
    /// Which run.
    pub round: i32,
    /// Whether a worker has had it.
    pub claimed: bool,
    /// How often the platform was asked to publish.
    pub attempts: i32,
    /// Its public address.
    pub url: Option<String>,
    /// The platform's id of it.
    pub remote_id: Option<String>,
    /// The error's code.
    pub error_code: Option<String>,
    /// The error's sentence.
    pub error_message: Option<String>,
    /// Whether a retry may help.
    pub error_retryable: Option<bool>,
    /// What it goes, or went, without; none: nothing.
    pub warnings: Option<Vec<Warning>>,
    /// When it is due.
    pub due_at: DateTime<Utc>,
    /// When it last changed.
    pub updated_at: DateTime<Utc>,
}

/// A task with its article.
#[derive(Debug, Clone)]
pub struct TaskRow {
    /// Its id.
    pub task_id: Uuid,
    /// The caller's id.
    pub external_id: String,
    /// Its group.
    pub group_code: String,
    /// Where events go.
    pub callback_url: Option<String>,
    /// Not before then.
    pub publish_at: Option<DateTime<Utc>>,
    /// When it was accepted.
    pub created_at: DateTime<Utc>,
    /// When it was submitted.
    pub submitted_at: Option<DateTime<Utc>>,
    /// When its last publication ended.
    pub finished_at: Option<DateTime<Utc>>,
    /// When its content was removed by age; its fields are none then.
    pub content_removed_at: Option<DateTime<Utc>>,
    /// The title.
    pub title: Option<String>,
    /// The content; only where asked for.
    pub content_html: Option<String>,
    /// The summary.
    pub summary: Option<String>,
    /// The cover image.
    pub cover_url: Option<String>,
    /// Where the article stands first.
    pub canonical_url: Option<String>,
    /// The author.
    pub author: Option<String>,
    /// The tags, in order.
    pub tags: Option<Vec<String>>,
    /// The caller's own data, a JSON object.
    pub metadata: Option<String>,
    /// Its publications, in the order of the group.
    pub publications: Vec<PublicationRow>,
}

impl Store {
    /// The task of that `external_id`; with its content if asked for.
    pub async fn task(
        &self,
        tenant_id: Uuid,
        external_id: &ExternalId,
        with_content: bool,
    ) -> Result<Option<TaskRow>, StoreError> {
        Self::read_task(&self.pool, tenant_id, external_id, with_content).await
    }

    /// As [`Self::task`], as a transaction sees it.
    pub(super) async fn read_task(
        executor: impl PgExecutor<'_>,
        tenant_id: Uuid,
        external_id: &ExternalId,
        with_content: bool,
    ) -> Result<Option<TaskRow>, StoreError> {
        // One statement: a publication's end and the task's are seen together or not at all.
        let row = sqlx::query!(
            r#"SELECT t.task_id, t.external_id, t.group_code, t.callback_url, t.publish_at, t.created_at, t.submitted_at,
                t.finished_at, t.content_removed_at, a.title AS "title?", CASE WHEN $3 THEN a.content_html END AS content_html,
                a.summary, a.cover_url, a.canonical_url, a.author, a.tags AS "tags?: Json<Vec<String>>", a.metadata AS "metadata?",
                (SELECT json_agg(json_build_object(
                        'platform', p.platform, 'account_id', p.account_id, 'status', p.status,
                        'confirming', p.confirming, 'round', p.round, 'claimed', p.fence > 0, 'attempts', p.attempts,
                        'url', p.url, 'remote_id', p.remote_id, 'error_code', p.error_code,
                        'error_message', p.error_message, 'error_retryable', p.error_retryable, 'warnings', p.warnings,
                        'due_at', p.due_at, 'updated_at', p.updated_at) ORDER BY p.position)
                    FROM publications p WHERE p.tenant_id = t.tenant_id AND p.task_id = t.task_id
                ) AS "publications: Json<Vec<PublicationRow>>"
            FROM tasks t LEFT JOIN articles a USING (tenant_id, task_id)
            WHERE t.tenant_id = $1 AND t.external_id = $2"#,
            tenant_id,
            external_id.as_str(),
            with_content,
        )
        .fetch_optional(executor)
        .await?;
        let Some(row) = row else { return Ok(None) };
        Ok(Some(TaskRow {
            task_id: row.task_id,
            external_id: row.external_id,
            group_code: row.group_code,
            callback_url: row.callback_url,
            publish_at: row.publish_at,
            created_at: row.created_at,
            submitted_at: row.submitted_at,
            finished_at: row.finished_at,
            content_removed_at: row.content_removed_at,
            title: row.title,
            content_html: row.content_html,
            summary: row.summary,
            cover_url: row.cover_url,
            canonical_url: row.canonical_url,
            author: row.author,
            tags: row.tags.map(|list| list.0),
            metadata: row.metadata,
            publications: row.publications.map_or(Vec::new(), |list| list.0),
        }))
    }
}
