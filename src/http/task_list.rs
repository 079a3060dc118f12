//! `GET /tasks`: tasks page by page.

use std::str::FromStr;

use axum::Json;
use axum::extract::{RawQuery, State};
use chrono::{DateTime, Utc};
use serde::Serialize;
use unicode_normalization::UnicodeNormalization as _;
use utoipa::ToSchema;
use uuid::Uuid;

use super::AppState;
use super::admission::{Caller, query};
use super::cursor::{self, FilterDigest, LIMIT_DEFAULT, before, cursor, digest};
use super::problem::{Kind, ListErrors, Problem};
use super::tasks::TaskView;
use crate::account::{BadName, bad_account_id, bad_platform};
use crate::article::EXTERNAL_ID_MAX;
use crate::store::TaskFilters;
use crate::task::state::Status;
use crate::tenant::Scope;

/// The parameters; the first ones are the filters, to which a cursor is bound.
const PARAMETERS: [&str; 11] = [
    "external_id",
    "task_id",
    "external_id_prefix",
    "status",
    "group_code",
    "platform",
    "account_id",
    "created_after",
    "created_before",
    "limit",
    "cursor",
];

/// A page of tasks.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct TaskList {
    /// The newest first; there may be few or none while `next_cursor` is set.
    pub tasks: Vec<TaskView>,
    /// Where the next page begins, for the same filters; null on the last page.
    #[schema(required)]
    pub next_cursor: Option<String>,
}

/// List tasks
///
/// The newest first, of those that fit every filter. A page looks at a bounded number of tasks, so it may be short while
/// `next_cursor` is set: go on until it is null. Tasks that are accepted meanwhile do not move the pages: none is skipped
/// and none is given twice.
#[utoipa::path(
    get, path = "/tasks", tag = "tasks", operation_id = "list_tasks",
    security(("api_key" = [])),
    params(
        ("external_id" = Option<String>, Query, description = "The caller's id", min_length = 1),
        ("task_id" = Option<Uuid>, Query, description = "The task"),
        ("external_id_prefix" = Option<String>, Query, min_length = 1, max_length = 200,
            description = "What the caller's id begins with, after its normalisation to NFC"),
        ("status" = Option<Status>, Query, description = "The task's state"),
        ("group_code" = Option<String>, Query, description = "Its group", pattern = "^[A-Za-z0-9_.-]{1,64}$"),
        ("platform" = Option<String>, Query, description = "A platform that it is for", pattern = "^[a-z0-9_]{1,32}$"),
        ("account_id" = Option<String>, Query, pattern = "^[A-Za-z0-9._@-]{1,128}$",
            description = "An account that it is for; with `platform`: of that platform"),
        ("created_after" = Option<DateTime<Utc>>, Query, description = "Accepted at this time or later (RFC 3339)"),
        ("created_before" = Option<DateTime<Utc>>, Query, description = "Accepted before this time, not at it (RFC 3339)"),
        ("limit" = Option<u32>, Query, description = "How many at most; 50 if not given", minimum = 1, maximum = 200),
        ("cursor" = Option<String>, Query, description = "The `next_cursor` of the page before, with the same filters"),
    ),
    responses((status = 200, description = "A page of tasks", body = TaskList), ListErrors)
)]
pub(super) async fn list_tasks(
    State(state): State<AppState>,
    caller: Caller,
    RawQuery(text): RawQuery,
) -> Result<Json<TaskList>, Problem> {
    caller.need(Scope::Read)?;
    let asked = Asked::read(text.as_deref())?;
    let page = state.store.task_page(caller.tenant_id, &asked.filters, asked.before, asked.limit);
    let page = caller.within(page).await??;
    Ok(Json(TaskList {
        tasks: page.tasks.into_iter().map(Into::into).collect(),
        next_cursor: page.next.map(|last| cursor(last, asked.digest)),
    }))
}

/// Which page is asked for.
#[derive(Debug)]
struct Asked {
    filters: TaskFilters,
    /// Of the filters, as they were sent.
    digest: FilterDigest,
    before: Option<Uuid>,
    limit: usize,
}

impl Asked {
    fn read(text: Option<&str>) -> Result<Self, Problem> {
        let parameters = query(text, &PARAMETERS)?;
        let digest = digest(&parameters, &PARAMETERS[..PARAMETERS.len() - 2]);
        let mut asked = Self { filters: TaskFilters::default(), digest, before: None, limit: LIMIT_DEFAULT };
        for (name, value) in &parameters {
            asked
                .take(name, value)
                .map_err(|rule| Problem::new(Kind::InvalidQuery, format!("the parameter {name:?} {rule}")))?;
        }
        Ok(asked)
    }

    fn take(&mut self, name: &str, value: &str) -> Result<(), String> {
        let filters = &mut self.filters;
        match name {
            "external_id" => filters.external_id = Some(parsed(value)?),
            "task_id" => {
                filters.task_id =
                    Some(value.parse().map_err(|_| "takes a UUID, as in an answer".to_owned())?);
            }
            "external_id_prefix" => filters.external_id_prefix = Some(prefix(value)?),
            "status" => filters.status = Some(status(value)?),
            "group_code" => filters.group_code = Some(parsed(value)?),
            "platform" => filters.platform = Some(named(value, bad_platform)?),
            "account_id" => filters.account_id = Some(named(value, bad_account_id)?),
            "created_after" => filters.created_from = Some(time(value)?),
            "created_before" => filters.created_before = Some(time(value)?),
            "limit" => self.limit = cursor::limit(value)?,
            _ => self.before = Some(before(value, self.digest)?),
        }
        Ok(())
    }
}

pub(super) fn parsed<T: FromStr<Err: std::fmt::Display>>(value: &str) -> Result<T, String> {
    value.parse().map_err(|rule: T::Err| format!("breaks a rule: {rule}"))
}

fn prefix(value: &str) -> Result<String, String> {
    let prefix = value.nfc().collect::<String>();
    if prefix.is_empty() || prefix.chars().count() > EXTERNAL_ID_MAX || prefix.chars().any(char::is_control) {
        return Err(format!("takes 1–{EXTERNAL_ID_MAX} characters, none of them a control character"));
    }
    Ok(prefix)
}

fn status(value: &str) -> Result<Status, String> {
    let known = Status::ALL.map(Status::as_str).join(", ");
    Status::named(value).ok_or_else(|| format!("takes one of: {known}"))
}

fn named(value: &str, bad: fn(&str) -> Option<BadName>) -> Result<String, String> {
    bad(value).map_or(Ok(value.to_owned()), |bad| Err(bad.to_string()))
}

fn time(value: &str) -> Result<DateTime<Utc>, String> {
    cursor::time(value).ok_or_else(|| {
        "takes an RFC 3339 time, such as 2030-01-31T09:00:00Z; a + in it is written %2B".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_back_with_its_filters_only() {
        let id = Uuid::from_u128(7 << 70);
        let first = Asked::read(Some("status=draft&group_code=a")).unwrap();
        let next = |filters: &str, cursor: &str| Asked::read(Some(&format!("{filters}&cursor={cursor}")));
        let here = cursor(id, first.digest);
        assert_eq!(next("limit=7&group_code=a&status=draft", &here).unwrap().before, Some(id));
        for other in ["status=draft", "status=draft&group_code=b", "group_code=draft&account_id=a", "limit=1"]
        {
            let refused = format!("{:?}", next(other, &here).unwrap_err());
            assert!(refused.contains("cursor") && refused.contains("other filters"), "{refused}");
        }
        for bad in ["", "x", "AAAA", &here[1..], &format!("{here}A")] {
            let refused = format!("{:?}", next("status=draft&group_code=a", bad).unwrap_err());
            assert!(refused.contains("next_cursor"), "{refused}");
        }
    }
}
