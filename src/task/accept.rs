//! Accepting: one row per (tenant, `external_id`), decided by the database, answered after its commit.
//!
//! Concurrent requests are gathered into one statement. Whether a task is new is told by its id: if the stored id is
//! the one made for this request, this request created it, also when the database's answer was lost and the statement
//! was sent again.

use std::borrow::Cow;
use std::num::NonZeroUsize;

use chrono::{DateTime, Utc};
use serde::Serialize;
use tokio_util::task::TaskTracker;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::article::{Defaults, Digests, ExternalId, OnDuplicate, OptionsSent, Submission};
use crate::clock::SharedClock;
use crate::gather::{Bounds, Busy, Gatherer, Partial};
use crate::json;
use crate::store::{self, ExistingTask, NewTask, PublicationRow, QuotaStanding, Store};
use crate::telemetry::metrics::Metrics;
use crate::turns::Wake;

pub mod check;
mod quota;
mod write;

use quota::Quotas;
use write::Writer;

/// From how many articles on a batch is written beside another that is not full: a statement costs the database as much as
/// seven rows in it, and of 16 to 30 each was as fast.
const BESIDE_ROWS: usize = 24;

/// Four batches that are full keep the disk busy; beyond 128 rows a batch gains little; 4,096 requests of
/// 64 MiB in all may wait, which at the slowest rate seen is below a second of work.
const BOUNDS: Bounds =
    Bounds { queue: 4_096, queue_kib: 64 * 1024, rows: 128, batch_kib: 4 * 1024, writers: 4 };

/// A remark that is no error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Warning {
    /// Stable, `snake_case`.
    #[schema(example = "content_changed")]
    pub code: Cow<'static, str>,
    /// What it means and what to do.
    pub detail: String,
    /// The article it speaks of, if it is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_id: Option<String>,
}

impl From<store::Warning> for Warning {
    fn from(stored: store::Warning) -> Self {
        Self { code: stored.code.into(), detail: stored.detail, external_id: None }
    }
}

/// How accepting is bounded. `rows`, if given, is the most articles in one statement, to measure what gathering gains: at 1
/// each has a transaction of its own, and each of the pool's `connections` a writer.
fn bounds(rows: Option<NonZeroUsize>, connections: u32) -> Bounds {
    let rows = rows.map_or(BOUNDS.rows, NonZeroUsize::get);
    let writers = if rows == 1 { connections as usize } else { BOUNDS.writers };
    Bounds { rows, writers, ..BOUNDS }
}

/// What became of a request to publish.
#[derive(Debug, Clone)]
pub struct Acceptance {
    /// The task.
    pub task_id: Uuid,
    /// The caller's id.
    pub external_id: ExternalId,
    /// Whether this request created it, or one with the same `Idempotency-Key` did.
    pub created: bool,
    /// Whether it existed before this request.
    pub replayed: bool,
    /// The fields that differ from what is stored.
    pub changed_fields: Vec<&'static str>,
    /// Whether content is among them.
    pub content_changed: bool,
    /// The publications as they stand.
    pub publications: Vec<PublicationRow>,
    /// When the task was submitted.
    pub submitted_at: Option<DateTime<Utc>>,
    /// Remarks.
    pub warnings: Vec<Warning>,
}

/// Why a request to publish was not accepted; nothing was stored.
#[derive(Debug, Clone, thiserror::Error)]
pub enum NotAccepted {
    /// Strict mode, and the `external_id` exists.
    #[error("this external_id exists")]
    Duplicate(Box<Acceptance>),
    /// No such group.
    #[error("there is no such group")]
    UnknownGroup,
    /// A group without accounts.
    #[error("the group has no accounts")]
    EmptyGroup,
    /// The tenant's daily quota is used up.
    #[error("the daily quota is used up")]
    QuotaExceeded(QuotaStanding),
    /// The database cannot be reached, or too much is waiting. It may have been stored; the same again is safe.
    #[error("cannot be stored now")]
    Unavailable,
    /// The database refused it: a fault of ours.
    #[error("the database refused it")]
    Refused,
}

/// Who hands an article in, and what holds for it.
#[derive(Debug, Clone, Default)]
pub struct Sender {
    /// The tenant.
    pub tenant_id: Uuid,
    /// What holds for its articles.
    pub defaults: Defaults,
    /// Whether it has a daily quota.
    pub limited: bool,
}

/// The door of the service.
#[derive(Clone)]
pub struct Acceptor {
    gatherer: Gatherer<NewTask, Answer>,
    quotas: Quotas,
    clock: SharedClock,
}

/// A task that is stored.
#[derive(Debug, Clone)]
struct Stored {
    task: ExistingTask,
    same_content_as: Option<String>,
}

impl Acceptor {
    /// Starts the writers; `rows`, if given, is the most articles in one statement.
    #[must_use]
    pub fn start(
        rows: Option<NonZeroUsize>,
        store: Store,
        wake: Wake,
        metrics: &Metrics,
        clock: SharedClock,
        tracker: &TaskTracker,
    ) -> Self {
        let quotas = Quotas::new(clock.clone());
        let writer = Writer { store, wake, quotas: quotas.clone(), clock: clock.clone() };
        let counting = metrics.clone();
        let bounds = bounds(rows, writer.store.connections().max);
        let gatherer = Gatherer::start(
            bounds,
            &Partial::one_and_one_of(BESIDE_ROWS),
            tracker,
            move |batch: Vec<NewTask>| {
                counting.batch_accepted(batch.len());
                let writer = writer.clone();
                async move { writer.write(batch).await }
            },
        );
        metrics.watch_accepting(gatherer.waiting());
        Self { gatherer, quotas, clock }
    }

    /// How a tenant's daily quota stands, as far as this node has seen: others may have used more since.
    #[must_use]
    pub fn quota(&self, tenant_id: Uuid) -> Option<QuotaStanding> {
        self.quotas.standing(tenant_id)
    }

    /// Accepts an article, or finds the task it is already; refused at once if too much is waiting. What it does not say is
    /// as the sender's `defaults` have it now; it is compared by what it says.
    pub async fn accept(
        &self,
        sender: &Sender,
        submission: Submission,
        idempotency_key: Option<String>,
    ) -> Result<Acceptance, NotAccepted> {
        let asked = self.ask(sender, submission, idempotency_key);
        let stored = self.gatherer.submit(asked.task, asked.bytes).await;
        asked.question.answer(stored)
    }

    /// Accepts an article of many that come at once: waits until there is room for it.
    pub async fn accept_patiently(
        &self,
        sender: &Sender,
        submission: Submission,
        idempotency_key: Option<String>,
    ) -> Result<Acceptance, NotAccepted> {
        let asked = self.ask(sender, submission, idempotency_key);
        let stored = self.gatherer.submit_patiently(asked.task, asked.bytes).await;
        asked.question.answer(stored)
    }

    fn ask(&self, sender: &Sender, mut sent: Submission, key: Option<String>) -> Asked {
        let Sender { tenant_id, defaults, limited } = sender;
        let metadata = sent.metadata.clone().unwrap_or_else(|| "{}".to_owned());
        let digests = Digests::of(&sent.content, &json::canonical_text(&metadata));
        let task = NewTask {
            tenant_id: *tenant_id,
            task_id: self.clock.new_id(),
            external_id: sent.external_id.clone(),
            group_code: sent.group_code.as_str().to_owned(),
            // Moved, for it is the most of it: what is asked of it later, its digests tell.
            content: std::mem::take(&mut sent.content),
            digests: digests.clone(),
            idempotency_key: key.clone(),
            callback_url: sent.callback_url.clone().or_else(|| defaults.callback_url.clone()),
            publish_at: sent.publish_at,
            draft: sent.draft.unwrap_or(false),
            metadata,
            limited: *limited,
        };
        let bytes = task.content.content_html.len() + task.metadata.len();
        let on_duplicate = sent.on_duplicate.unwrap_or(defaults.on_duplicate);
        let question = Question { my_id: task.task_id, sent, on_duplicate, digests, key };
        Asked { task, bytes, question }
    }
}

/// An article to be written, and what is to be told of it.
struct Asked {
    task: NewTask,
    bytes: usize,
    question: Question,
}

/// What was sent, to be held against what is stored.
struct Question {
    my_id: Uuid,
    /// Without its content.
    sent: Submission,
    on_duplicate: OnDuplicate,
    digests: Digests,
    key: Option<String>,
}

impl Question {
    fn answer(self, stored: Result<Answer, Busy>) -> Result<Acceptance, NotAccepted> {
        let stored = stored.map_err(|Busy| NotAccepted::Unavailable)??;
        let acceptance = compare(&self.sent, &self.digests, self.key.as_deref(), self.my_id, stored);
        let strict = self.on_duplicate == OnDuplicate::Reject;
        if strict && !acceptance.created {
            return Err(NotAccepted::Duplicate(Box::new(acceptance)));
        }
        Ok(acceptance)
    }
}

/// Holds what was sent against what is stored.
fn compare(
    sent: &Submission,
    digests: &Digests,
    key: Option<&str>,
    my_id: Uuid,
    stored: Stored,
) -> Acceptance {
    let task = stored.task;
    let mine = task.task_id == my_id;
    let same_key = key.is_some() && task.idempotency_key.as_deref() == key;
    let mut changed_fields = Vec::new();
    let mut warnings = Vec::new();
    if sent.external_id.looks_like_timestamp() {
        warnings.push(Warning {
            code: "external_id_looks_like_timestamp".into(),
            detail: "this external_id looks as if it were made from the clock: a re-run would make another one, and \
                     publish the article again; use an id that the article keeps"
                .to_owned(),
            external_id: None,
        });
    }
    if !mine {
        changed_fields = digests.changed_content(&task.digests);
    }
    let content_changed = !changed_fields.is_empty();
    if content_changed {
        warnings.push(Warning {
            code: "content_changed".into(),
            detail: "this external_id holds other content, which stays as it is; to publish the new content, send it \
                     under a new external_id, such as one with a version in it"
                .to_owned(),
            external_id: None,
        });
    }
    if !mine {
        let options = OptionsSent {
            group_code: &task.group_code,
            callback_url: task.callback_url.as_deref(),
            publish_at: task.publish_at,
            draft: task.draft,
        };
        let changed = options.changed(sent, digests.metadata_changed(&task.digests));
        if !changed.is_empty() {
            warnings.push(Warning {
                code: "options_ignored".into(),
                detail: format!(
                    "the task keeps the options it was created with; not used: {}",
                    changed.join(", ")
                ),
                external_id: None,
            });
            changed_fields.extend(changed);
        }
    }
    if let Some(other) = stored.same_content_as.filter(|_| mine) {
        warnings.push(Warning {
            code: "same_content_as".into(),
            detail:
                "another article of this group holds the same content; if it is the same article, keep one \
                     external_id for it"
                    .to_owned(),
            external_id: Some(other),
        });
    }
    Acceptance {
        task_id: task.task_id,
        external_id: sent.external_id.clone(),
        created: mine || same_key,
        replayed: !mine,
        changed_fields,
        content_changed,
        publications: task.publications,
        submitted_at: task.submitted_at,
        warnings,
    }
}

type Answer = Result<Stored, NotAccepted>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_article_in_a_statement_has_all_connections_write() {
        let usual = bounds(None, 16);
        assert_eq!((usual.rows, usual.writers), (BOUNDS.rows, BOUNDS.writers));
        let single = bounds(NonZeroUsize::new(1), 16);
        assert_eq!((single.rows, single.writers, single.queue), (1, 16, BOUNDS.queue));
    }
}
