//! `GET /callbacks`: callbacks page by page.

use axum::Json;
use axum::extract::{RawQuery, State};
use chrono::{DateTime, Utc};
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::AppState;
use super::admission::{Caller, query};
use super::cursor::{self, FilterDigest, LIMIT_DEFAULT, before, cursor, digest};
use super::problem::{Kind, ListErrors, Problem};
use super::task_list::parsed;
use crate::callback::status::CallbackStatus;
use crate::store::{CallbackFilters, CallbackItem};
use crate::tenant::Scope;

/// The parameters; the first ones are the filters, to which a cursor is bound.
const PARAMETERS: [&str; 4] = ["status", "external_id", "limit", "cursor"];

/// A callback in a list.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct CallbackListItem {
    /// The event, as in the header `webhook-id`.
    pub event_id: Uuid,
    /// The event's type.
    #[serde(rename = "type")]
    #[schema(example = "publication.success")]
    pub kind: String,
    /// The caller's id of the article.
    pub external_id: String,
    /// The task.
    pub task_id: Uuid,
    /// The platform.
    pub platform: String,
    /// The account.
    pub account_id: String,
    /// Where it goes.
    pub url: String,
    /// `pending`, `delivered`, `exhausted` (the schedule has run out) or `gone` (the receiver answered 410).
    #[schema(example = "delivered")]
    pub status: String,
    /// How often it was tried.
    pub attempts: i32,
    /// The status of the last answer; null when there was none.
    #[schema(required)]
    pub http_status: Option<i32>,
    /// What went wrong at the last try when there was no answer.
    #[schema(required)]
    pub error: Option<String>,
    /// When the next try is due; null when none is.
    #[schema(required)]
    pub next_try_at: Option<DateTime<Utc>>,
    /// When the event was written.
    pub created_at: DateTime<Utc>,
    /// When it was delivered or given up.
    #[schema(required)]
    pub ended_at: Option<DateTime<Utc>>,
}

/// A page of callbacks.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct CallbackList {
    /// The newest first; there may be few or none while `next_cursor` is set.
    pub callbacks: Vec<CallbackListItem>,
    /// Where the next page begins, for the same filters; null on the last page.
    #[schema(required)]
    pub next_cursor: Option<String>,
}

impl From<CallbackItem> for CallbackListItem {
    fn from(row: CallbackItem) -> Self {
        Self {
            event_id: row.event_id,
            kind: format!("publication.{}", row.told),
            external_id: row.external_id,
            task_id: row.task_id,
            platform: row.platform,
            account_id: row.account_id,
            url: row.url,
            status: row.status,
            attempts: row.attempts,
            http_status: row.http_status,
            error: row.error,
            next_try_at: row.next_try_at,
            created_at: row.created_at,
            ended_at: row.ended_at,
        }
    }
}

/// List callbacks
///
/// The newest first, of those that fit every filter. A page looks at a bounded number of callbacks, so it may be short
/// while `next_cursor` is set: go on until it is null. Events that are written meanwhile do not move the pages.
#[utoipa::path(
    get, path = "/callbacks", tag = "callbacks", operation_id = "list_callbacks",
    security(("api_key" = [])),
    params(
        ("status" = Option<CallbackStatus>, Query, description = "How they stand"),
        ("external_id" = Option<String>, Query, description = "The caller's id of the article", min_length = 1),
        ("limit" = Option<u32>, Query, description = "How many at most; 50 if not given", minimum = 1, maximum = 200),
        ("cursor" = Option<String>, Query, description = "The `next_cursor` of the page before, with the same filters"),
    ),
    responses((status = 200, description = "A page of callbacks", body = CallbackList), ListErrors)
)]
pub(super) async fn list_callbacks(
    State(state): State<AppState>,
    caller: Caller,
    RawQuery(text): RawQuery,
) -> Result<Json<CallbackList>, Problem> {
    caller.need(Scope::Read)?;
    let asked = Asked::read(text.as_deref())?;
    let page = state.store.callback_page(caller.tenant_id, &asked.filters, asked.before, asked.limit);
    let page = caller.within(page).await??;
    Ok(Json(CallbackList {
        callbacks: page.callbacks.into_iter().map(Into::into).collect(),
        next_cursor: page.next.map(|last| cursor(last, asked.digest)),
    }))
}

/// Which page is asked for.
#[derive(Debug)]
struct Asked {
    filters: CallbackFilters,
    /// Of the filters, as they were sent.
    digest: FilterDigest,
    before: Option<Uuid>,
    limit: usize,
}

impl Asked {
    fn read(text: Option<&str>) -> Result<Self, Problem> {
        let parameters = query(text, &PARAMETERS)?;
        let digest = digest(&parameters, &PARAMETERS[..PARAMETERS.len() - 2]);
        let mut asked =
            Self { filters: CallbackFilters::default(), digest, before: None, limit: LIMIT_DEFAULT };
        for (name, value) in &parameters {
            asked
                .take(name, value)
                .map_err(|rule| Problem::new(Kind::InvalidQuery, format!("the parameter {name:?} {rule}")))?;
        }
        Ok(asked)
    }

    fn take(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "status" => {
                let status = CallbackStatus::named(value);
                let status = status.ok_or_else(|| format!("takes one of: {}", CallbackStatus::names()))?;
                self.filters.status = Some(status);
            }
            "external_id" => self.filters.external_id = Some(parsed(value)?),
            "limit" => self.limit = cursor::limit(value)?,
            _ => self.before = Some(before(value, self.digest)?),
        }
        Ok(())
    }
}
