//! `POST /tasks/{external_id}/cancel`, `…/retry` and `…/accounts`.

use std::collections::BTreeMap;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State, rejection::PathRejection};
use axum::http::HeaderMap;
use serde::Serialize;
use utoipa::openapi::{self, RefOr};
use utoipa::{IntoResponses, ToSchema};

use super::AppState;
use super::accounts::AccountKeyView;
use super::admission::{Caller, NoQuery, json_body, optional_json_body};
use super::problem::{Kind, Problem, body_errors};
use super::task_requests::{AccountsBody, NoFields, RetryBody, accounts, no_fields, retry_request};
use super::tasks::{TaskView, id};
use crate::fields::FieldError;
use crate::store::{Acted, ActedOr, Cancellation, Retry, StoreError};
use crate::task::act::Refusal;
use crate::tenant::Scope;

/// What a cancellation came to.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct CancelAnswer {
    /// What is cancelled, by this call or an earlier one: it is not published.
    pub cancelled: Vec<AccountKeyView>,
    /// What is public.
    pub live: Vec<LiveView>,
    /// What is under way at its platform, or may be public where the login was lost before that was found out: it ends as it
    /// ends, and its event tells how.
    pub in_flight: Vec<AccountKeyView>,
    /// The task.
    pub task: TaskView,
}

/// An account on which a task is public.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct LiveView {
    /// The platform.
    pub platform: String,
    /// Its id on the platform.
    pub account_id: String,
    /// The public address.
    #[schema(required)]
    pub url: Option<String>,
}

/// What a retry came to.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RetryAnswer {
    /// What runs again, or is public as was confirmed.
    pub retried: Vec<AccountKeyView>,
    /// What is left as it is.
    pub skipped: Vec<SkippedView>,
    /// The task.
    pub task: TaskView,
}

/// An account that is left as it is.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SkippedView {
    /// The platform.
    pub platform: String,
    /// Its id on the platform.
    pub account_id: String,
    /// Why: its state (`draft`, `submitted`, `running`, `success`; `failed` or `login_expired` where a confirmation was
    /// sent for what is known), `outcome_unknown`, `cancelled_while_draft` or `account_deleted`.
    #[schema(example = "outcome_unknown")]
    pub reason: &'static str,
}

/// The error answers of an action, in the OpenAPI document.
pub(super) struct ActionErrors;

impl IntoResponses for ActionErrors {
    fn responses() -> BTreeMap<String, RefOr<openapi::Response>> {
        body_errors(&[
            (404, "`not_found`"),
            (409, "`conflict`: the state does not allow it; `detail` says which state that is"),
            (422, "`validation_failed`, `unknown_group`, `empty_group`: nothing was changed"),
            (503, "`unavailable`: the same request again is safe"),
        ])
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let kind = match &refusal {
            Refusal::NoTask | Refusal::NoAccount(_) => Kind::NotFound,
            Refusal::Conflict(_) => Kind::Conflict,
            Refusal::UnknownGroup(_) => Kind::UnknownGroup,
            Refusal::EmptyGroup(_) => Kind::EmptyGroup,
            Refusal::UnknownAccounts(places) => {
                let detail = "there is no such account: create it, or take it out; nothing was changed";
                let unknown = places.iter().map(|at| FieldError {
                    pointer: format!("/accounts/{at}"),
                    code: "not_allowed",
                    detail: detail.to_owned(),
                });
                return Self::invalid_fields(unknown.collect());
            }
        };
        Self::new(kind, refusal.to_string())
    }
}

/// Waits for an action, and wakes those who have something to do now.
pub(super) async fn finish<T>(
    state: &AppState,
    caller: &Caller,
    action: impl Future<Output = Result<ActedOr<T>, StoreError>>,
) -> Result<(T, TaskView), Problem> {
    let Acted { did, task, due, told } = caller.within(action).await???;
    if due {
        state.work.wake(caller.tenant_id);
    }
    if told {
        state.deliver.wake(caller.tenant_id);
    }
    Ok((did, task.into()))
}

/// Cancel a task
///
/// What has not started is cancelled, with an event each; what is public stays, and what is under way ends as it ends.
/// The same call again answers the same.
#[utoipa::path(
    post, path = "/tasks/{external_id}/cancel", tag = "tasks", operation_id = "cancel_task",
    security(("api_key" = [])),
    params(("external_id" = String, Path, description = "The caller's id, percent-encoded")),
    request_body = Option<NoFields>,
    responses(
        (status = 200, description = "What is cancelled, what is live, and what is under way", body = CancelAnswer),
        ActionErrors,
    )
)]
pub(super) async fn cancel_task(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    external_id: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<CancelAnswer>, Problem> {
    caller.need(Scope::Publish)?;
    no_fields(&optional_json_body(&headers, body, state.body_limit).await?)?;
    let external_id = id(external_id)?;
    let action = Box::pin(state.store.cancel(caller.tenant_id, &external_id, state.telling));
    let (did, task) = finish(&state, &caller, action).await?;
    let Cancellation { cancelled, live, in_flight } = did;
    let live = live.into_iter().map(|(account, url)| {
        let (platform, account_id) = account.into_names();
        LiveView { platform, account_id, url }
    });
    Ok(Json(CancelAnswer {
        cancelled: cancelled.into_iter().map(Into::into).collect(),
        live: live.collect(),
        in_flight: in_flight.into_iter().map(Into::into).collect(),
        task,
    }))
}

/// Retry a task
///
/// What has failed or waits for a login runs again, in a new round; of all accounts, or of the one that is named. What
/// may have been published (`outcome_unknown`) only if that account is named and somebody has looked:
/// `confirmed_not_published` runs it again, `confirmed_published` ends it as a success without calling the platform. The
/// same may be said of what waits for a login and may have been published before that was lost.
#[utoipa::path(
    post, path = "/tasks/{external_id}/retry", tag = "tasks", operation_id = "retry_task",
    security(("api_key" = [])),
    params(("external_id" = String, Path, description = "The caller's id, percent-encoded")),
    request_body = Option<RetryBody>,
    responses(
        (status = 200, description = "What runs again, and what is left as it is", body = RetryAnswer),
        ActionErrors,
    )
)]
pub(super) async fn retry_task(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    external_id: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<RetryAnswer>, Problem> {
    caller.need(Scope::Publish)?;
    let request = retry_request(&optional_json_body(&headers, body, state.body_limit).await?)?;
    let external_id = id(external_id)?;
    let action = Box::pin(state.store.retry(caller.tenant_id, &external_id, &request, state.telling));
    let (did, task) = finish(&state, &caller, action).await?;
    let Retry { retried, skipped } = did;
    let skipped = skipped.into_iter().map(|(account, reason)| {
        let (platform, account_id) = account.into_names();
        SkippedView { platform, account_id, reason }
    });
    Ok(Json(RetryAnswer {
        retried: retried.into_iter().map(Into::into).collect(),
        skipped: skipped.collect(),
        task,
    }))
}

/// Add accounts to a task
///
/// The task goes to these accounts as well; those that it has stay as they are. Of a draft they are published when it is
/// submitted, whatever has become of its group.
#[utoipa::path(
    post, path = "/tasks/{external_id}/accounts", tag = "tasks", operation_id = "add_accounts",
    security(("api_key" = [])),
    params(("external_id" = String, Path, description = "The caller's id, percent-encoded")),
    request_body = AccountsBody,
    responses(
        (status = 200, description = "The task", body = TaskView),
        ActionErrors,
    )
)]
pub(super) async fn add_accounts(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    external_id: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<TaskView>, Problem> {
    caller.need(Scope::Publish)?;
    let accounts = accounts(&json_body(&headers, body, state.body_limit).await?)?;
    let external_id = id(external_id)?;
    let action = Box::pin(state.store.add_accounts(caller.tenant_id, &external_id, &accounts));
    Ok(Json(finish(&state, &caller, action).await?.1))
}
