//! `PUT`, `GET` and `DELETE /groups/{group_code}`, and `GET /groups`.

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State, rejection::PathRejection};
use axum::http::{HeaderMap, StatusCode};
use chrono::{DateTime, Utc};
use serde::Serialize;
use utoipa::ToSchema;

use super::AppState;
use super::accounts::{AccountKeyView, PutErrors};
use super::admission::{Caller, MANAGE_BODY_MAX_BYTES, NoQuery, json_body};
use super::problem::{Kind, ListErrors, Problem, ReadErrors};
use crate::account::{BadName, GROUPS_MAX, GroupCode, GroupInput, GroupRequest};
use crate::fields::FieldError;
use crate::store::{GroupPut, GroupRow};
use crate::tenant::Scope;

/// A group: a named set of accounts.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct GroupView {
    /// Its code.
    #[schema(example = "blogs")]
    pub group_code: String,
    /// For people.
    pub title: String,
    /// Its accounts, in order.
    pub accounts: Vec<AccountKeyView>,
    /// When it was created.
    pub created_at: DateTime<Utc>,
    /// When it last changed.
    pub updated_at: DateTime<Utc>,
}

impl From<GroupRow> for GroupView {
    fn from(row: GroupRow) -> Self {
        Self {
            group_code: row.group_code,
            title: row.title,
            accounts: row.accounts.into_iter().map(Into::into).collect(),
            created_at: row.created_at,
            updated_at: row.updated_at,
        }
    }
}

/// All groups.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Groups {
    /// By code.
    pub groups: Vec<GroupView>,
}

type Name = Result<Path<String>, PathRejection>;

/// The group that a path names. A code that is not UTF-8 breaks the same rule.
fn named(path: Name) -> Result<GroupCode, BadName> {
    path.map(|Path(name)| name).unwrap_or_default().parse()
}

fn not_found() -> Problem {
    Problem::new(Kind::NotFound, "there is no group of this code; see GET /groups")
}

/// Create a group, or replace it
///
/// The accounts must exist; an empty list is allowed. Articles accepted before keep their accounts.
#[utoipa::path(
    put, path = "/groups/{group_code}", tag = "accounts", operation_id = "put_group",
    security(("api_key" = [])),
    params(("group_code" = String, Path, description = "Its code", pattern = "^[A-Za-z0-9_.-]{1,64}$")),
    request_body = GroupRequest,
    responses(
        (status = 200, description = "The group", body = GroupView),
        PutErrors,
    )
)]
pub(super) async fn put_group(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    name: Name,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<GroupView>, Problem> {
    caller.need(Scope::Manage)?;
    let whole = |code, detail: String| Problem::invalid_fields(vec![FieldError::of_body(code, detail)]);
    let code = named(name).map_err(|bad| whole("bad_format", format!("{bad}; it stands in the path")))?;
    let body = json_body(&headers, body, MANAGE_BODY_MAX_BYTES).await?;
    let input = GroupInput::parse(&body, &code)?;
    match caller.within(state.store.put_group(caller.tenant_id, &code, &input)).await?? {
        GroupPut::Done(row) => Ok(Json(row.into())),
        GroupPut::UnknownAccounts(places) => {
            let unknown = places.into_iter().filter_map(|at| {
                let detail =
                    format!("there is no account {}: create it, or take it out", input.accounts.get(at)?);
                Some(FieldError { pointer: format!("/accounts/{at}"), code: "not_allowed", detail })
            });
            Err(Problem::invalid_fields(unknown.collect()))
        }
        GroupPut::TooMany => Err(whole(
            "not_allowed",
            format!("there are {GROUPS_MAX} groups, which is the most: delete one that is not used"),
        )),
    }
}

/// Look a group up
#[utoipa::path(
    get, path = "/groups/{group_code}", tag = "accounts", operation_id = "get_group",
    security(("api_key" = [])),
    params(("group_code" = String, Path, description = "Its code")),
    responses(
        (status = 200, description = "The group", body = GroupView),
        ReadErrors,
    )
)]
pub(super) async fn get_group(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    name: Name,
) -> Result<Json<GroupView>, Problem> {
    caller.need(Scope::Read)?;
    let code = named(name).map_err(|_| not_found())?;
    let group = caller.within(state.store.group(caller.tenant_id, &code)).await??;
    Ok(Json(group.ok_or_else(not_found)?.into()))
}

/// List all groups
#[utoipa::path(
    get, path = "/groups", tag = "accounts", operation_id = "get_groups",
    security(("api_key" = [])),
    responses(
        (status = 200, description = "The groups", body = Groups),
        ListErrors,
    )
)]
pub(super) async fn get_groups(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
) -> Result<Json<Groups>, Problem> {
    caller.need(Scope::Read)?;
    let groups = caller.within(state.store.groups(caller.tenant_id)).await??;
    Ok(Json(Groups { groups: groups.into_iter().map(Into::into).collect() }))
}

/// Delete a group
///
/// Articles accepted before keep their accounts; one that comes later finds no such group.
#[utoipa::path(
    delete, path = "/groups/{group_code}", tag = "accounts", operation_id = "delete_group",
    security(("api_key" = [])),
    params(("group_code" = String, Path, description = "Its code")),
    responses(
        (status = 204, description = "It is deleted"),
        ReadErrors,
    )
)]
pub(super) async fn delete_group(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    name: Name,
) -> Result<StatusCode, Problem> {
    caller.need(Scope::Manage)?;
    let code = named(name).map_err(|_| not_found())?;
    let deleted = caller.within(state.store.delete_group(caller.tenant_id, &code)).await??;
    if deleted { Ok(StatusCode::NO_CONTENT) } else { Err(not_found()) }
}
