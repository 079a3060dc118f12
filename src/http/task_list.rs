//! `GET /tasks`: tasks page by page.

use std::str::FromStr;

use axum::Json;
use axum::extract::{RawQuery, State};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, Datelike as _, Utc};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use unicode_normalization::UnicodeNormalization as _;
use utoipa::ToSchema;
use uuid::Uuid;

use super::AppState;
use super::admission::{Caller, query};
use super::problem::{Kind, ListErrors, Problem};
use super::tasks::TaskView;
use crate::account::{BadName, bad_account_id, bad_platform};
use crate::article::EXTERNAL_ID_MAX;
use crate::store::TaskFilters;
use crate::task::state::Status;
use crate::tenant::Scope;

/// The most tasks on a page.
const LIMIT_MAX: usize = 200;

/// The tasks on a page for who does not say.
const LIMIT_DEFAULT: usize = 50;

/// How many bytes of a cursor tell which filters it belongs to: enough that two are not alike by mistake.
const DIGEST_BYTES: usize = 8;

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
    digest: [u8; DIGEST_BYTES],
    before: Option<Uuid>,
    limit: usize,
}

impl Asked {
    fn read(text: Option<&str>) -> Result<Self, Problem> {
        let parameters = query(text, &PARAMETERS)?;
        let digest = digest(&parameters);
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
            "limit" => {
                let limit = value.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
                self.limit = limit.ok_or_else(|| format!("takes a number from 1 to {LIMIT_MAX}"))?;
            }
            _ => self.before = Some(before(value, self.digest)?),
        }
        Ok(())
    }
}

fn parsed<T: FromStr<Err: std::fmt::Display>>(value: &str) -> Result<T, String> {
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
    // RFC 3339 has years of four digits, also in UTC.
    let at = DateTime::parse_from_rfc3339(value).ok().map(|at| at.to_utc());
    at.filter(|at| (0..=9999).contains(&at.year())).ok_or_else(|| {
        "takes an RFC 3339 time, such as 2030-01-31T09:00:00Z; a + in it is written %2B".to_owned()
    })
}

/// What tells these filters from others, in whatever order they were sent.
fn digest(parameters: &[(String, String)]) -> [u8; DIGEST_BYTES] {
    let mut hash = Sha256::new();
    for filter in &PARAMETERS[..PARAMETERS.len() - 2] {
        let value = parameters.iter().find(|(name, _)| name == filter).map(|(_, value)| value.as_str());
        // The length before the text: no two lists of values run together.
        hash.update(value.map_or(u64::MAX, |value| value.len() as u64).to_be_bytes());
        hash.update(value.unwrap_or_default());
    }
    let mut digest = [0; DIGEST_BYTES];
    digest.copy_from_slice(&hash.finalize()[..DIGEST_BYTES]);
    digest
}

/// The place behind a task, for these filters.
fn cursor(last: Uuid, digest: [u8; DIGEST_BYTES]) -> String {
    URL_SAFE_NO_PAD.encode([&last.as_bytes()[..], &digest[..]].concat())
}

fn before(cursor: &str, digest: [u8; DIGEST_BYTES]) -> Result<Uuid, String> {
    let bytes = URL_SAFE_NO_PAD.decode(cursor).ok().filter(|bytes| bytes.len() == 16 + DIGEST_BYTES);
    let bytes = bytes.ok_or("takes the next_cursor of the page before, as it was given")?;
    let (last, of) = bytes.split_at(16);
    if of != digest {
        return Err("belongs to other filters: send those of the page before, or begin without it".to_owned());
    }
    Uuid::from_slice(last).map_err(|error| error.to_string())
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
