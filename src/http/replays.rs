//! `POST /callbacks/{event_id}/replay`, `POST /callbacks/replay`, `GET /callbacks/replay/{replay_id}`.

use std::collections::BTreeMap;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State, rejection::PathRejection};
use axum::http::{HeaderMap, StatusCode};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::openapi::{self, RefOr};
use utoipa::{IntoResponses, ToSchema};
use uuid::Uuid;

use super::AppState;
use super::admission::{Caller, MANAGE_BODY_MAX_BYTES, NoQuery, json_body, optional_json_body};
use super::callbacks::{CallbackView, no_callback};
use super::cursor::time;
use super::problem::{Kind, Problem, ReadErrors, errors};
use super::task_requests::{NoFields, no_fields};
use crate::callback::status::CallbackStatus;
use crate::fields::{Fields, Invalid};
use crate::json::InvalidJson;
use crate::store::{REPLAY_MOST, REPLAYS_UNFINISHED_MAX, ReplayAsked, ReplayRange, ReplayRow};
use crate::tenant::Scope;

/// Which callbacks are to be sent again.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "describes in the OpenAPI document what `range` reads")]
pub(super) struct ReplayBody {
    /// Of events that were written at this time or later (RFC 3339).
    since: DateTime<Utc>,
    /// Of events that were written before this time, not at it; now if not given.
    until: Option<DateTime<Utc>>,
    /// Of callbacks that have this status now.
    status: CallbackStatus,
}

/// A range of callbacks that is being sent again.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ReplayView {
    /// Its id.
    pub replay_id: Uuid,
    /// `running` or `done`: all were made due.
    #[schema(example = "running")]
    pub status: &'static str,
    /// What was asked for.
    pub range: ReplayRangeView,
    /// How many callbacks it is for: those that fitted when it was asked for.
    pub matched: i32,
    /// How many of them were made due again so far, each of them once.
    pub replayed: i32,
    /// When it was asked for.
    pub created_at: DateTime<Utc>,
    /// When it was done.
    #[schema(required)]
    pub finished_at: Option<DateTime<Utc>>,
}

/// The range that was asked for.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ReplayRangeView {
    /// Of events that were written at this time or later.
    pub since: DateTime<Utc>,
    /// Of events that were written before this time.
    pub until: DateTime<Utc>,
    /// Of callbacks that had this status.
    #[schema(example = "exhausted")]
    pub status: String,
}

impl From<ReplayRow> for ReplayView {
    fn from(row: ReplayRow) -> Self {
        Self {
            replay_id: row.replay_id,
            status: if row.finished_at.is_some() { "done" } else { "running" },
            range: ReplayRangeView { since: row.since, until: row.until, status: row.status },
            matched: row.matched,
            replayed: row.replayed,
            created_at: row.created_at,
            finished_at: row.finished_at,
        }
    }
}

/// The error answers of a call that sends again, in the OpenAPI document.
pub(super) struct ReplayErrors;

impl IntoResponses for ReplayErrors {
    fn responses() -> BTreeMap<String, RefOr<openapi::Response>> {
        errors(&[
            (400, "`invalid_json`, `invalid_query`, `invalid_header`"),
            (401, "`unauthorized`"),
            (403, "`forbidden`"),
            (404, "`not_found`"),
            (409, "`conflict`: too many replays are unfinished"),
            (413, "`payload_too_large`"),
            (415, "`unsupported_media_type`"),
            (422, "`validation_failed`"),
            (503, "`unavailable`"),
        ])
    }
}

/// Send a callback again
///
/// A new delivery of the same event: the same `webhook-id` and the same bytes, with a fresh timestamp and signature, as
/// often as wanted and whatever its status. It is due at once, and its schedule begins anew. What is being sent right now
/// is sent once more after that, whatever comes of it.
#[utoipa::path(
    post, path = "/callbacks/{event_id}/replay", tag = "callbacks", operation_id = "replay_callback",
    security(("api_key" = [])),
    params(("event_id" = Uuid, Path, description = "The event, as in the header `webhook-id`")),
    request_body = Option<NoFields>,
    responses((status = 202, description = "The callback, which is due", body = CallbackView), ReplayErrors)
)]
pub(super) async fn replay_callback(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    event_id: Result<Path<Uuid>, PathRejection>,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<CallbackView>), Problem> {
    caller.need(Scope::Manage)?;
    no_fields(&optional_json_body(&headers, body, MANAGE_BODY_MAX_BYTES).await?)?;
    let Path(event_id) = event_id.map_err(|_| no_callback())?;
    let replay = async {
        let replayed = state.store.replay_callback(caller.tenant_id, event_id).await?;
        if replayed { state.store.callback(caller.tenant_id, event_id).await } else { Ok(None) }
    };
    let callback = caller.within(replay).await??.ok_or_else(no_callback)?;
    state.deliver.wake(caller.tenant_id);
    Ok((StatusCode::ACCEPTED, Json(callback.into())))
}

/// Send a range of callbacks again
///
/// Those of a status whose events were written in a time, the oldest first, each as if it had been sent again alone. It is
/// done in the background, a hundred a second; `GET /callbacks/replay/{replay_id}` tells how far it is. Several of a tenant
/// take turns.
#[utoipa::path(
    post, path = "/callbacks/replay", tag = "callbacks", operation_id = "replay_callbacks",
    security(("api_key" = [])),
    request_body = ReplayBody,
    responses((status = 202, description = "It is written down and goes on by itself", body = ReplayView), ReplayErrors)
)]
pub(super) async fn post_replay(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<ReplayView>), Problem> {
    caller.need(Scope::Manage)?;
    let body = json_body(&headers, body, MANAGE_BODY_MAX_BYTES).await?;
    let range = range(&body, state.clock.now())?;
    match caller.within(state.store.begin_replay(caller.tenant_id, range)).await?? {
        ReplayAsked::Begun(row) => {
            state.replays.wake(caller.tenant_id);
            Ok((StatusCode::ACCEPTED, Json(row.into())))
        }
        ReplayAsked::TooMany => {
            let mut fields = Fields::of_body(&body, &FIELDS)?;
            let detail =
                format!("from then until `until` are more than {REPLAY_MOST} callbacks: take a shorter time");
            fields.refuse("since", "not_allowed", detail);
            Err(Problem::invalid_fields(fields.into_errors()))
        }
        ReplayAsked::Busy => {
            let detail = format!(
                "{REPLAYS_UNFINISHED_MAX} replays are unfinished, which take turns: wait until one of them is done"
            );
            Err(Problem::new(Kind::Conflict, detail))
        }
    }
}

/// See how far a replay is
#[utoipa::path(
    get, path = "/callbacks/replay/{replay_id}", tag = "callbacks", operation_id = "get_replay",
    security(("api_key" = [])),
    params(("replay_id" = Uuid, Path, description = "The replay")),
    responses((status = 200, description = "The replay", body = ReplayView), ReadErrors)
)]
pub(super) async fn get_replay(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    replay_id: Result<Path<Uuid>, PathRejection>,
) -> Result<Json<ReplayView>, Problem> {
    caller.need(Scope::Read)?;
    let not_found = || Problem::new(Kind::NotFound, "there is no replay of this replay_id");
    let Path(replay_id) = replay_id.map_err(|_| not_found())?;
    let replay = caller.within(state.store.replay(caller.tenant_id, replay_id)).await??;
    Ok(Json(replay.ok_or_else(not_found)?.into()))
}

const FIELDS: [&str; 3] = ["since", "until", "status"];

/// Reads which callbacks are to be sent again; none of a time that has not come.
fn range(body: &[u8], now: DateTime<Utc>) -> Result<ReplayRange, Invalid> {
    let mut fields = Fields::of_body(body, &FIELDS)?;
    fields.required("since");
    fields.required("status");
    let since = field_time(&mut fields, "since")?;
    let until = field_time(&mut fields, "until")?;
    let name = fields.string("status")?;
    let status = name.as_deref().and_then(CallbackStatus::named);
    if name.is_some() && status.is_none() {
        fields.refuse("status", "not_allowed", format!("send one of: {}", CallbackStatus::names()));
    }
    if since.zip(until).is_some_and(|(since, until)| until <= since) {
        fields.refuse("until", "not_allowed", "must be later than since");
    }
    match (since, status) {
        (Some(since), Some(status)) if fields.errors().is_empty() => {
            Ok(ReplayRange { since, until: until.unwrap_or(now), status })
        }
        _ => Err(Invalid::Fields(fields.into_errors())),
    }
}

fn field_time(fields: &mut Fields<'_>, name: &str) -> Result<Option<DateTime<Utc>>, InvalidJson> {
    let Some(text) = fields.string(name)? else { return Ok(None) };
    let at = time(&text);
    if at.is_none() {
        fields.refuse(name, "bad_format", "send an RFC 3339 time, such as 2030-01-31T09:00:00Z");
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_read_strictly() {
        let now = DateTime::from_timestamp(2_000_000_000, 0).unwrap();
        let read = |body: &str| match range(body.as_bytes(), now) {
            Ok(range) => Ok(range),
            Err(Invalid::Fields(errors)) => {
                Err(errors.into_iter().map(|error| (error.pointer, error.code)).collect::<Vec<_>>())
            }
            Err(Invalid::Json(error)) => panic!("{error}"),
        };
        let told = |errors: &[(&str, &'static str)]| {
            Err(errors.iter().map(|(name, code)| (format!("/{name}"), *code)).collect::<Vec<_>>())
        };
        let since = DateTime::from_timestamp(1_900_000_000, 0).unwrap();
        let asked = ReplayRange { since, until: now, status: CallbackStatus::Exhausted };
        let body = r#"{"since":"2030-03-17T17:46:40Z","status":"exhausted""#;
        assert_eq!(read(&format!("{body}}}")), Ok(asked));
        assert_eq!(read(&format!("{body},\"until\":null}}")), Ok(asked));
        let until = format!("{body},\"until\":\"2030-03-17T18:46:41+01:00\"}}");
        assert_eq!(read(&until).unwrap().until, since + chrono::TimeDelta::seconds(1));
        assert_eq!(read("{}"), told(&[("since", "required"), ("status", "required")]));
        assert_eq!(
            read(r#"{"since":"yesterday","until":7,"status":"failed","state":1}"#),
            told(&[
                ("state", "unknown_field"),
                ("since", "bad_format"),
                ("until", "wrong_type"),
                ("status", "not_allowed")
            ])
        );
        let empty = format!("{body},\"until\":\"2030-03-17T17:46:40Z\"}}");
        assert_eq!(read(&empty), told(&[("until", "not_allowed")]));
    }
}
