//! `POST /publish`.

use axum::Json;
use std::collections::BTreeMap;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use serde::Serialize;
use utoipa::openapi::{self, RefOr};
use utoipa::{IntoResponses, ToSchema};
use uuid::Uuid;

use super::AppState;
use super::admission::{Caller, NoQuery, idempotency_key, json_body};
use super::gate::used_up;
use super::problem::{Kind, Problem, body_errors};
use crate::account::GroupCode;
use crate::article::{PublishRequest, Submission};
use crate::callback::event::ErrorView;
use crate::store::PublicationRow;
use crate::task::accept::{Acceptance, NotAccepted, Warning};
use crate::task::state::{Counts, Status};
use crate::tenant::Scope;

/// Says that the answer tells of an earlier request.
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// The answer to `POST /publish`.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct PublishAnswer {
    /// The task, for ever the same for this `external_id`.
    pub task_id: Uuid,
    /// The id as it is stored: normalised to NFC.
    pub external_id: String,
    /// Whether this request, or one with the same `Idempotency-Key`, created the task.
    pub created: bool,
    /// Whether other content was sent than is stored.
    pub content_changed: bool,
    /// The fields that differ from what is stored.
    pub changed_fields: Vec<&'static str>,
    /// The task's state.
    pub status: Status,
    /// How many publications are in each state.
    pub counts: Counts,
    /// The publications as they stand.
    pub publications: Vec<PublicationBrief>,
    /// When the task was submitted; null while it is a draft.
    #[schema(required)]
    pub submitted_at: Option<DateTime<Utc>>,
    /// Remarks that are no errors.
    pub warnings: Vec<Warning>,
}

/// A publication, in brief.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct PublicationBrief {
    /// The platform.
    pub platform: String,
    /// The account.
    pub account_id: String,
    /// Its state.
    pub status: Status,
    /// Its public address.
    #[schema(required)]
    pub url: Option<String>,
    /// Why it failed, or why its last try did.
    #[schema(required)]
    pub error: Option<ErrorView>,
}

impl From<Acceptance> for PublishAnswer {
    fn from(acceptance: Acceptance) -> Self {
        let (counts, status) = standing(&acceptance.publications);
        let brief = |row: PublicationRow| PublicationBrief {
            error: ErrorView::of(
                row.error_code.as_deref(),
                row.error_message.as_deref(),
                row.error_retryable,
            ),
            platform: row.platform,
            account_id: row.account_id,
            status: row.status,
            url: row.url,
        };
        Self {
            task_id: acceptance.task_id,
            external_id: acceptance.external_id.as_str().to_owned(),
            created: acceptance.created,
            content_changed: acceptance.content_changed,
            changed_fields: acceptance.changed_fields,
            status,
            counts,
            publications: acceptance.publications.into_iter().map(brief).collect(),
            submitted_at: acceptance.submitted_at,
            warnings: acceptance.warnings,
        }
    }
}

/// The counts and the state of a task with these publications.
pub(super) fn standing(publications: &[PublicationRow]) -> (Counts, Status) {
    let counts = Counts::of(publications.iter().map(|row| row.status));
    (counts, counts.task_status(publications.iter().any(|row| row.claimed)))
}

struct PublishErrors;

impl IntoResponses for PublishErrors {
    fn responses() -> BTreeMap<String, RefOr<openapi::Response>> {
        body_errors(&[
            (409, "`duplicate_external_id`: strict mode; also holds `task` and `hint`"),
            (422, "`validation_failed`, `unknown_group`, `empty_group`"),
            (429, "`rate_limited`, `quota_exceeded`"),
            (503, "`unavailable`: the same request again is safe"),
        ])
    }
}

/// Hand in an article
///
/// The article is published once on every account of its group. The same `external_id` again returns the existing
/// task and does nothing, whatever became of it; what else was sent differently is named in `changed_fields`.
#[utoipa::path(
    post, path = "/publish", tag = "publish", operation_id = "publish",
    security(("api_key" = [])),
    params(("Idempotency-Key" = Option<String>, Header, description = "1–255 visible ASCII characters: who sends the \
        creator's key gets the creator's answer", min_length = 1, max_length = 255)),
    request_body = PublishRequest,
    responses(
        (status = 200, description = "Accepted and on disk, or accepted before", body = PublishAnswer,
            headers(("Idempotent-Replayed" = String, description = "`true` when the task existed before this request"))),
        PublishErrors,
    )
)]
pub(super) async fn publish(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    caller.need(Scope::Publish)?;
    let key = idempotency_key(&headers)?;
    let body = json_body(&headers, body, state.body_limit).await?;
    let submission = Submission::parse(&body, |url| check_callback(&state, url))?;
    let group_code = submission.group_code.clone();
    let outcome = caller.within(state.acceptor.accept(&caller.sender(), submission, key)).await?;
    let now = state.clock.now();
    caller.tell_quota(state.acceptor.quota(caller.tenant_id), now);
    let answered = Answered::of(outcome, &group_code, now)?;
    let mut response = Json(answered.task).into_response();
    if answered.replayed {
        response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    }
    Ok(response)
}

/// What keeps a callback URL from being called, if anything does.
pub(super) fn check_callback(state: &AppState, url: &str) -> Result<(), String> {
    state.policy.check_url(url).map(|_| ()).map_err(|refusal| refusal.to_string())
}

/// An article that was accepted, or had been.
#[derive(Debug)]
pub(super) struct Answered {
    /// The task.
    pub task: PublishAnswer,
    /// Whether it existed before this request.
    pub replayed: bool,
}

impl Answered {
    /// How an outcome is answered, of an article for that group: alone, or in a batch.
    pub(super) fn of(
        outcome: Result<Acceptance, NotAccepted>,
        group_code: &GroupCode,
        now: DateTime<Utc>,
    ) -> Result<Self, Problem> {
        let not_accepted = match outcome {
            Ok(acceptance) => {
                return Ok(Self { replayed: acceptance.replayed, task: acceptance.into() });
            }
            Err(not_accepted) => not_accepted,
        };
        Err(match not_accepted {
            NotAccepted::Duplicate(acceptance) => Problem::new(
                Kind::DuplicateExternalId,
                "an article with this external_id was accepted before; nothing was done",
            )
            .with("task", PublishAnswer::from(*acceptance))
            .with(
                "hint",
                "if your own first request may have got in, send an Idempotency-Key with it and with every repeat; for a \
                 new version of the article, put the version into the external_id",
            ),
            NotAccepted::UnknownGroup => Problem::new(
                Kind::UnknownGroup,
                format!("there is no group {group_code}: create it, or name another; nothing was stored"),
            ),
            NotAccepted::EmptyGroup => Problem::new(
                Kind::EmptyGroup,
                format!("the group {group_code} has no accounts: add one; nothing was stored"),
            ),
            NotAccepted::QuotaExceeded(quota) => used_up(quota, now),
            NotAccepted::Unavailable => Problem::unavailable(),
            NotAccepted::Refused => {
                Problem::new(Kind::Internal, "this article could not be stored; it is logged")
            }
        })
    }
}
