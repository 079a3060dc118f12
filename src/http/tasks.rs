//! `GET /tasks/{external_id}` and its history.

use axum::Json;
use axum::extract::{Path, RawQuery, State, rejection::PathRejection};
use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;
use uuid::Uuid;

use super::AppState;
use super::admission::{Caller, NoQuery, query};
use super::problem::{Kind, Problem, ReadErrors};
use super::publish::standing;
use crate::article::ExternalId;
use crate::callback::event::ErrorView;
use crate::store::{EventsRemoved, HistoryRow, HistorySource, PublicationRow, TaskRow};
use crate::task::accept::Warning;
use crate::task::state::{Counts, Status};
use crate::task::steps::request_id;
use crate::tenant::Scope;

/// A task.
#[expect(clippy::option_option, reason = "what is not asked for is left out, and what was removed is null")]
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct TaskView {
    /// The task.
    pub task_id: Uuid,
    /// The caller's id of the article.
    pub external_id: String,
    /// The group it was accepted for.
    pub group_code: String,
    /// When its content and its journal were removed by age; null while they are there. Title, summary, cover, address, author,
    /// tags and metadata are null then; what became of it stays.
    #[schema(required)]
    pub content_removed_at: Option<DateTime<Utc>>,
    /// The title.
    #[schema(required)]
    pub title: Option<String>,
    /// The summary.
    #[schema(required)]
    pub summary: Option<String>,
    /// The cover image.
    #[schema(required)]
    pub cover_url: Option<String>,
    /// Where the article stands first.
    #[schema(required)]
    pub canonical_url: Option<String>,
    /// The author.
    #[schema(required)]
    pub author: Option<String>,
    /// The tags, in order.
    #[schema(required)]
    pub tags: Option<Vec<String>>,
    /// Where its events go.
    #[schema(required)]
    pub callback_url: Option<String>,
    /// Not executed before then.
    #[schema(required)]
    pub publish_at: Option<DateTime<Utc>>,
    /// The caller's own data.
    #[schema(value_type = Option<Object>, required)]
    pub metadata: Option<Box<RawValue>>,
    /// Its state.
    pub status: Status,
    /// How many publications are in each state.
    pub counts: Counts,
    /// Its publications.
    pub publications: Vec<PublicationView>,
    /// When it was accepted.
    pub created_at: DateTime<Utc>,
    /// When it was submitted; null while it is a draft.
    #[schema(required)]
    pub submitted_at: Option<DateTime<Utc>>,
    /// When its last publication ended; null while one has not.
    #[schema(required)]
    pub finished_at: Option<DateTime<Utc>>,
    /// The content; with `include=content` only, and null when it was removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub content_html: Option<Option<String>>,
}

/// A publication: the task on one account.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct PublicationView {
    /// The platform.
    pub platform: String,
    /// The account.
    pub account_id: String,
    /// Its state.
    pub status: Status,
    /// `confirming` while its outcome is being found out at the platform.
    #[schema(required)]
    pub phase: Option<&'static str>,
    /// Which run.
    pub round: i32,
    /// Its public address.
    #[schema(required)]
    pub url: Option<String>,
    /// The platform's id of it.
    #[schema(required)]
    pub remote_id: Option<String>,
    /// Why it failed, or why its last try did.
    #[schema(required)]
    pub error: Option<ErrorView>,
    /// Remarks that are no errors: what the article goes without in this round (`cover_omitted`, `image_omitted`).
    pub warnings: Vec<Warning>,
    /// How often the platform was asked to publish it, over all rounds.
    pub attempts: i32,
    /// When it is, or was, due.
    pub due_at: DateTime<Utc>,
    /// When it last changed.
    pub updated_at: DateTime<Utc>,
}

impl From<PublicationRow> for PublicationView {
    fn from(row: PublicationRow) -> Self {
        let error =
            ErrorView::of(row.error_code.as_deref(), row.error_message.as_deref(), row.error_retryable);
        Self {
            platform: row.platform,
            account_id: row.account_id,
            status: row.status,
            phase: row.confirming.then_some("confirming"),
            round: row.round,
            url: row.url,
            remote_id: row.remote_id,
            error,
            warnings: row.warnings.into_iter().flatten().map(Warning::from).collect(),
            attempts: row.attempts,
            due_at: row.due_at,
            updated_at: row.updated_at,
        }
    }
}

impl From<TaskRow> for TaskView {
    fn from(row: TaskRow) -> Self {
        let (counts, status) = standing(&row.publications);
        Self {
            task_id: row.task_id,
            external_id: row.external_id,
            group_code: row.group_code,
            content_removed_at: row.content_removed_at,
            title: row.title,
            summary: row.summary,
            cover_url: row.cover_url,
            canonical_url: row.canonical_url,
            author: row.author,
            tags: row.tags,
            callback_url: row.callback_url,
            publish_at: row.publish_at,
            metadata: row.metadata.map(raw_json),
            status,
            counts,
            publications: row.publications.into_iter().map(Into::into).collect(),
            created_at: row.created_at,
            submitted_at: row.submitted_at,
            finished_at: row.finished_at,
            content_html: row.content_html.map(Some),
        }
    }
}

/// JSON text that was read before it was stored.
pub(super) fn raw_json(text: String) -> Box<RawValue> {
    RawValue::from_string(text).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// A look at the platform, which is no try.
const PROBE: &str = "probe";

/// What happened to a task.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct History {
    /// The oldest first; at most the newest 1,000.
    pub entries: Vec<HistoryEntry>,
}

/// One thing that happened.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(super) struct HistoryEntry {
    /// When.
    pub at: DateTime<Utc>,
    /// `accepted`; `transition`: a publication changed its state or its holder; `probe`: the platform was asked whether
    /// it holds the article; `try`: it was asked to do something about it, which `phase` names; `callback`: an event was sent
    /// to the caller; `removed`: the entries that stood here were removed by age, and `detail` says which.
    #[schema(example = "transition")]
    pub kind: &'static str,
    /// The platform.
    #[schema(required)]
    pub platform: Option<String>,
    /// The account.
    #[schema(required)]
    pub account_id: Option<String>,
    /// Which run.
    #[schema(required)]
    pub round: Option<i32>,
    /// Of a transition: the state before; none where it began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Of a transition: the state after.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Of a transition: why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Of a try: `prepare`: its images and tags were made ready; `draft`: a draft was made; `publish`: the article, or that
    /// draft, was published; `remove`: a draft that nobody needs was removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "publish")]
    pub phase: Option<String>,
    /// Of a probe or a try: the id that its requests bore (`X-Request-Id`), by which they stand in the platform's own log; of
    /// an article that a robot fetched: its `lease_id`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Of a probe or a try: when its answer came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<DateTime<Utc>>,
    /// Of a probe (`found`, `draft_found`, `absent`, `cannot_tell`, `login_expired`, `rate_limited`) or a try (`done`,
    /// `rejected`, `login_expired`, `answer_lost`, `not_published` when it was found out later that it had not been done,
    /// `done_late` when the answer came after the lease, or `open` while it is not known): what it came to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// What came back, in a sentence, or where the article or its draft stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Of a probe or a try: the first characters of the platform's last answer, without secrets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer_head: Option<String>,
    /// Of a try: the platform's id of what it was about, or made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_id: Option<String>,
    /// Of a try: what the article goes without by it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
    /// Of a callback: the event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_id: Option<Uuid>,
    /// The HTTP status of the answer; of a probe or a try: of the platform's last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_status: Option<i32>,
    /// Of a callback: how long it took, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Of a callback: what went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl From<HistoryRow> for HistoryEntry {
    fn from(row: HistoryRow) -> Self {
        let entry = Self {
            at: row.at,
            platform: Some(row.platform),
            account_id: Some(row.account_id),
            round: Some(row.round),
            ..Self::default()
        };
        match row.source {
            HistorySource::Transition { from, to, reason } => {
                Self { kind: "transition", from, to: Some(to), reason: Some(reason), ..entry }
            }
            HistorySource::Attempt {
                kind,
                step: (publication_id, fence, step),
                ended_at,
                outcome,
                detail,
                http_status,
                answer_head,
                remote_id,
                warnings,
            } => Self {
                kind: if kind == PROBE { PROBE } else { "try" },
                phase: (kind != PROBE).then_some(kind),
                request_id: Some(request_id(publication_id, fence, step)),
                ended_at,
                outcome: Some(outcome.unwrap_or_else(|| "open".to_owned())),
                detail,
                http_status,
                answer_head,
                remote_id,
                warnings: warnings.into_iter().flatten().map(Warning::from).collect(),
                ..entry
            },
            HistorySource::Callback { event_id, http_status, duration_ms, error } => Self {
                kind: "callback",
                event_id: Some(event_id),
                http_status,
                duration_ms: Some(duration_ms),
                error,
                ..entry
            },
        }
    }
}

/// The id in a path. What cannot be an id is no task's.
pub(super) fn id(path: Result<Path<String>, PathRejection>) -> Result<ExternalId, Problem> {
    path.ok().and_then(|Path(text)| text.parse().ok()).ok_or_else(not_found)
}

pub(super) fn not_found() -> Problem {
    Problem::new(Kind::NotFound, "there is no task with this external_id")
}

/// Look a task up
///
/// By the caller's id, percent-encoded: any Unicode text.
#[utoipa::path(
    get, path = "/tasks/{external_id}", tag = "tasks", operation_id = "get_task",
    security(("api_key" = [])),
    params(
        ("external_id" = String, Path, description = "The caller's id, percent-encoded"),
        ("include" = Option<String>, Query, description = "`content`: also `content_html`", pattern = "^content$"),
    ),
    responses(
        (status = 200, description = "The task", body = TaskView),
        ReadErrors,
    )
)]
pub(super) async fn get_task(
    State(state): State<AppState>,
    caller: Caller,
    RawQuery(parameters): RawQuery,
    external_id: Result<Path<String>, PathRejection>,
) -> Result<Json<TaskView>, Problem> {
    caller.need(Scope::Read)?;
    let parameters = query(parameters.as_deref(), &["include"])?;
    let with_content = match parameters.first().map(|(_, value)| value.as_str()) {
        None => false,
        Some("content") => true,
        Some(_) => {
            return Err(Problem::new(Kind::InvalidQuery, "the parameter \"include\" takes: content"));
        }
    };
    let external_id = id(external_id)?;
    let task = caller.within(state.store.task(caller.tenant_id, &external_id, with_content)).await??;
    let mut task: TaskView = task.ok_or_else(not_found)?.into();
    if with_content {
        // Asked for, and null where it was removed.
        task.content_html.get_or_insert(None);
    }
    Ok(Json(task))
}

/// See what happened to a task
///
/// Every transition, probe, try and callback, with what was answered: whether it was sent twice, in one call.
#[utoipa::path(
    get, path = "/tasks/{external_id}/history", tag = "tasks", operation_id = "get_task_history",
    security(("api_key" = [])),
    params(("external_id" = String, Path, description = "The caller's id, percent-encoded")),
    responses(
        (status = 200, description = "The history", body = History),
        ReadErrors,
    )
)]
pub(super) async fn get_history(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    external_id: Result<Path<String>, PathRejection>,
) -> Result<Json<History>, Problem> {
    caller.need(Scope::Read)?;
    let external_id = id(external_id)?;
    let read = async {
        let Some(task) = state.store.task(caller.tenant_id, &external_id, false).await? else {
            return Ok(None);
        };
        let rows = state.store.history(caller.tenant_id, task.task_id).await?;
        let removed = state.store.events_removed(caller.tenant_id).await?;
        Ok::<_, Problem>(Some((task, rows, removed)))
    };
    let (task, rows, removed) = caller.within(read).await??.ok_or_else(not_found)?;
    let accepted = HistoryEntry { at: task.created_at, kind: "accepted", ..HistoryEntry::default() };
    let mut entries = vec![accepted];
    entries.extend(rows.into_iter().map(Into::into));
    entries.extend(removals(&task, removed));
    entries.sort_by_key(|entry| entry.at);
    Ok(Json(History { entries }))
}

/// What a history says in the place of what was removed by age.
fn removals(task: &TaskRow, events: Option<EventsRemoved>) -> impl Iterator<Item = HistoryEntry> {
    let removed =
        |at, detail| HistoryEntry { at, kind: "removed", detail: Some(detail), ..HistoryEntry::default() };
    let contents = task.content_removed_at.map(|at| {
        let detail = "the content, and all transitions, probes and tries before, were removed by age; the outcome stays";
        removed(at, detail.to_owned())
    });
    // Of what was accepted later, no event is as old.
    let events = events.filter(|events| task.created_at <= events.before).map(|events| {
        let before = events.before.to_rfc3339_opts(SecondsFormat::Micros, true);
        removed(events.at, format!("events up to {before}, and what was sent for them, were removed by age"))
    });
    contents.into_iter().chain(events)
}
