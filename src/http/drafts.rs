//! `PATCH /tasks/{external_id}` and `POST /tasks/{external_id}/submit`.

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State, rejection::PathRejection};
use axum::http::HeaderMap;

use super::AppState;
use super::admission::{Caller, NoQuery, optional_json_body, patch_body};
use super::problem::Problem;
use super::task_actions::{ActionErrors, finish};
use super::task_requests::{NoFields, no_fields};
use super::tasks::{TaskView, id};
use crate::article::{ArticlePatch, PatchRequest};
use crate::tenant::Scope;

/// Change a draft
///
/// A JSON merge patch (RFC 7396) of the fields of `POST /publish`, but for `external_id`, `draft` and `on_duplicate`: what
/// is not sent stays, null removes. `metadata` is replaced as a whole. With `group_code` the draft's accounts are taken
/// again. A later `POST /publish` of this article is compared with what is stored then.
#[utoipa::path(
    patch, path = "/tasks/{external_id}", tag = "tasks", operation_id = "patch_task",
    security(("api_key" = [])),
    params(("external_id" = String, Path, description = "The caller's id, percent-encoded")),
    request_body(content(
        (PatchRequest = "application/merge-patch+json"),
        (PatchRequest = "application/json"),
    )),
    responses(
        (status = 200, description = "The task", body = TaskView),
        ActionErrors,
    )
)]
pub(super) async fn patch_task(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    external_id: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<TaskView>, Problem> {
    caller.need(Scope::Publish)?;
    let body = patch_body(&headers, body, state.body_limit).await?;
    let check = |url: &str| state.policy.check_url(url).map(|_| ()).map_err(|refusal| refusal.to_string());
    let patch = ArticlePatch::parse(&body, check)?;
    let external_id = id(external_id)?;
    let action = Box::pin(state.store.patch(caller.tenant_id, &external_id, &patch));
    Ok(Json(finish(&state, &caller, action).await?.1))
}

/// Submit a draft
///
/// It goes to the accounts of its group as they are now, and to those that were added to it; not before `publish_at`.
/// Submitted before: the task as it is, and nothing is done.
#[utoipa::path(
    post, path = "/tasks/{external_id}/submit", tag = "tasks", operation_id = "submit_task",
    security(("api_key" = [])),
    params(("external_id" = String, Path, description = "The caller's id, percent-encoded")),
    request_body = Option<NoFields>,
    responses(
        (status = 200, description = "The task", body = TaskView),
        ActionErrors,
    )
)]
pub(super) async fn submit_task(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    external_id: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<TaskView>, Problem> {
    caller.need(Scope::Publish)?;
    no_fields(&optional_json_body(&headers, body, state.body_limit).await?)?;
    let external_id = id(external_id)?;
    let action = Box::pin(state.store.submit(caller.tenant_id, &external_id, state.telling));
    Ok(Json(finish(&state, &caller, action).await?.1))
}
