//! `POST /lookup`: which of these articles are there, and how they stand.

use std::collections::{BTreeMap, HashSet};

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use serde::Serialize;
use utoipa::openapi::{self, RefOr, Schema};
use utoipa::{IntoResponses, PartialSchema, ToSchema};

use super::AppState;
use super::admission::{Caller, NoQuery, json_body};
use super::list_body;
use super::problem::{Problem, body_errors};
use super::tasks::TaskView;
use crate::article::{ExternalId, FieldError};
use crate::json::InvalidJson;
use crate::tenant::Scope;

/// The most ids in one call: each is a few rows by their keys.
const EXTERNAL_IDS_MAX: usize = 1_000;

/// The largest body, in bytes: 1,000 ids of 200 characters, each written as two escapes of 6 bytes, are 2.4 MB.
const BODY_MAX_BYTES: usize = 4 * 1024 * 1024;

/// The body of `POST /lookup` in the OpenAPI document.
pub(super) struct LookupRequest;

impl ToSchema for LookupRequest {}

impl PartialSchema for LookupRequest {
    fn schema() -> RefOr<Schema> {
        list_body::schema("external_ids", EXTERNAL_IDS_MAX, String::schema(), "The ids to look for.")
    }
}

/// The answer to `POST /lookup`.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct LookupAnswer {
    /// The tasks that there are, in the order asked; one that was asked for twice stands at its first place.
    pub tasks: Vec<TaskView>,
    /// The ids that have no task, in the order asked and as sent, each once.
    pub missing: Vec<String>,
}

struct LookupErrors;

impl IntoResponses for LookupErrors {
    fn responses() -> BTreeMap<String, RefOr<openapi::Response>> {
        body_errors(&[
            (422, "`validation_failed`: not a list of at most 1,000 `external_ids`, all of them strings"),
            (503, "`unavailable`"),
        ])
    }
}

/// Look many tasks up
///
/// How a pipeline that was stopped goes on: what is `missing` was never accepted. At most 1,000 ids; a text that no
/// article can have as its id is missing.
#[utoipa::path(
    post, path = "/lookup", tag = "tasks", operation_id = "lookup",
    security(("api_key" = [])),
    request_body = LookupRequest,
    responses((status = 200, description = "What there is, and what is not", body = LookupAnswer), LookupErrors)
)]
pub(super) async fn lookup(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<LookupAnswer>, Problem> {
    caller.need(Scope::Read)?;
    let body = json_body(&headers, body, BODY_MAX_BYTES).await?;
    let asked = read(&body)?;
    let external_ids = asked.iter().filter_map(|one| one.external_id.clone()).collect::<Vec<_>>();
    let found = caller.within(state.store.tasks_named(caller.tenant_id, &external_ids)).await??;
    let there = found.iter().map(|task| task.external_id.clone()).collect::<HashSet<_>>();
    let is_there = |id: &ExternalId| there.contains(id.as_str());
    let missing = asked.into_iter().filter(|one| !one.external_id.as_ref().is_some_and(is_there));
    let missing = missing.map(|one| one.sent).collect();
    Ok(Json(LookupAnswer { tasks: found.into_iter().map(Into::into).collect(), missing }))
}

/// An id that is asked for.
struct Asked {
    sent: String,
    /// None: no article can have this text as its id.
    external_id: Option<ExternalId>,
}

/// The ids in the order asked, each once.
fn read(body: &[u8]) -> Result<Vec<Asked>, Problem> {
    let (mut asked, mut seen, mut errors) = (Vec::new(), HashSet::new(), Vec::new());
    for (at, item) in list_body::items(body, "external_ids", EXTERNAL_IDS_MAX)?.into_iter().enumerate() {
        if !item.get().starts_with('"') {
            let (pointer, detail) = (format!("/external_ids/{at}"), "send a string".to_owned());
            errors.push(FieldError { pointer, code: "wrong_type", detail });
            continue;
        }
        let sent: String = serde_json::from_str(item.get()).map_err(InvalidJson::from)?;
        let external_id = sent.parse::<ExternalId>().ok();
        // One id in two spellings is one id.
        if seen.insert(external_id.as_ref().map_or_else(|| sent.clone(), |id| id.as_str().to_owned())) {
            asked.push(Asked { sent, external_id });
        }
    }
    if errors.is_empty() { Ok(asked) } else { Err(Problem::invalid_fields(errors)) }
}
