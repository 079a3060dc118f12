//! `GET /callbacks/{event_id}`.

use axum::Json;
use axum::extract::{Path, State, rejection::PathRejection};
use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;
use uuid::Uuid;

use super::AppState;
use super::admission::{Caller, NoQuery};
use super::problem::{Kind, Problem, ReadErrors};
use super::tasks::raw_json;
use crate::callback::event::EventBody;
use crate::store::{CallbackRow, TryRow};
use crate::tenant::Scope;

/// The delivery of an event.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct CallbackView {
    /// The event.
    pub event_id: Uuid,
    /// Where it goes.
    pub url: String,
    /// `pending`, `delivered`, `exhausted` (the schedule has run out) or `gone` (the receiver answered 410).
    #[schema(example = "delivered")]
    pub status: String,
    /// When the next try is due; null when none is.
    #[schema(required)]
    pub next_try_at: Option<DateTime<Utc>>,
    /// Until when nothing is sent to its receiver (scheme, host, port), since that asked for a pause or keeps failing; null
    /// when it is not left alone. What is due by then is sent after it, and nothing of it counts as a try.
    #[schema(required)]
    pub held_until: Option<DateTime<Utc>>,
    /// When the event was written.
    pub created_at: DateTime<Utc>,
    /// When it was delivered or given up.
    #[schema(required)]
    pub ended_at: Option<DateTime<Utc>>,
    /// The body, as it is signed and sent, byte for byte.
    #[schema(value_type = EventBody)]
    pub body: Box<RawValue>,
    /// Every try, the first first; of more than 1,000, the newest.
    pub tries: Vec<TryView>,
}

/// A try.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct TryView {
    /// When it began.
    pub at: DateTime<Utc>,
    /// The status of the answer; null when there was none.
    #[schema(required)]
    pub http_status: Option<i32>,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
    /// The first 1 KiB of the answer, as text.
    #[schema(required)]
    pub answer: Option<String>,
    /// What went wrong when there was no answer.
    #[schema(required)]
    pub error: Option<String>,
}

impl From<TryRow> for TryView {
    fn from(row: TryRow) -> Self {
        Self {
            at: row.at,
            http_status: row.http_status,
            duration_ms: u64::try_from(row.took.as_millis()).unwrap_or(u64::MAX),
            answer: row.answer_head.map(|head| String::from_utf8_lossy(&head).into_owned()),
            error: row.error,
        }
    }
}

impl From<CallbackRow> for CallbackView {
    fn from(row: CallbackRow) -> Self {
        Self {
            event_id: row.event_id,
            url: row.url,
            status: row.status,
            next_try_at: row.next_try_at,
            held_until: row.held_until,
            created_at: row.created_at,
            ended_at: row.ended_at,
            body: raw_json(String::from_utf8_lossy(&row.body).into_owned()),
            tries: row.tries.into_iter().map(Into::into).collect(),
        }
    }
}

/// See the delivery of an event
///
/// Its body, its status, and every try.
#[utoipa::path(
    get, path = "/callbacks/{event_id}", tag = "callbacks", operation_id = "get_callback",
    security(("api_key" = [])),
    params(("event_id" = Uuid, Path, description = "The event, as in the header `webhook-id`")),
    responses(
        (status = 200, description = "The callback", body = CallbackView),
        ReadErrors,
    )
)]
pub(super) async fn get_callback(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    event_id: Result<Path<Uuid>, PathRejection>,
) -> Result<Json<CallbackView>, Problem> {
    caller.need(Scope::Read)?;
    let Path(event_id) = event_id.map_err(|_| no_callback())?;
    let callback = caller.within(state.store.callback(caller.tenant_id, event_id)).await??;
    Ok(Json(callback.ok_or_else(no_callback)?.into()))
}

pub(super) fn no_callback() -> Problem {
    Problem::new(Kind::NotFound, "there is no callback of this event_id")
}
