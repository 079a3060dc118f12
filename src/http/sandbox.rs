//! `GET /sandbox/{account_id}/articles`, `…/articles/{article_id}`, `…/requests`, and `DELETE …/articles`.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Path, RawQuery, State, rejection::PathRejection};
use axum::http::StatusCode;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;
use unicode_normalization::UnicodeNormalization as _;
use utoipa::openapi::{self, RefOr};
use utoipa::{IntoResponses, ToSchema};

use super::AppState;
use super::accounts::unfinished_conflict;
use super::admission::{Caller, NoQuery, query};
use super::problem::{Kind, Problem, ReadErrors, errors};
use crate::account::AccountKey;
use crate::connector::sandbox::{PLATFORM, url};
use crate::store::{SandboxArticle, SandboxEmptied, SandboxPage, SandboxPlace, SandboxRequest};
use crate::tenant::Scope;

/// The most entries on a page.
const LIMIT_MAX: i64 = 200;

/// The entries on a page for who does not say.
const LIMIT_DEFAULT: i64 = 50;

const PARAMETERS: [&str; 3] = ["external_id", "limit", "cursor"];

/// An article that the sandbox holds.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SandboxArticleView {
    /// The sandbox's id of it, as `remote_id` has it.
    #[schema(example = "7")]
    pub article_id: String,
    /// Our mark.
    pub marker: String,
    /// The caller's id of it.
    #[schema(example = "post-1")]
    pub external_id: String,
    /// Its title.
    pub title: String,
    /// `draft` or `public`.
    #[schema(example = "public")]
    pub state: &'static str,
    /// Its address; null for a draft. The name `sandbox.invalid` never resolves.
    #[schema(required)]
    pub url: Option<String>,
    /// Since when it is there.
    pub made_at: DateTime<Utc>,
    /// Since when it is public.
    #[schema(required)]
    pub published_at: Option<DateTime<Utc>>,
    /// What it holds beside the title; only where one is asked for by its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub content: Option<Value>,
}

/// A page of articles.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SandboxArticles {
    /// The newest first.
    pub articles: Vec<SandboxArticleView>,
    /// Where the next page begins; null on the last page.
    #[schema(required)]
    pub next_cursor: Option<String>,
}

/// A request that reached the sandbox.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SandboxRequestView {
    /// Its number among those of the account; they rise.
    pub number: i64,
    /// `find`, `draft`, `publish`, `remove`, `login` or `list`.
    #[schema(example = "draft")]
    pub kind: String,
    /// The caller's id of the article that it was about.
    #[schema(required)]
    pub external_id: Option<String>,
    /// The mark that it bore.
    #[schema(required)]
    pub marker: Option<String>,
    /// The how manieth of its kind about this article it was.
    #[schema(required)]
    pub nth: Option<i32>,
    /// The id that it bore; the history of the task has the same.
    #[schema(required)]
    pub request_id: Option<String>,
    /// What the sandbox did instead of what it should; null: what it should.
    #[schema(required, example = "lose_answer")]
    pub behaviour: Option<String>,
    /// What the request changed: `made`, `published`, `removed`, or null: nothing.
    #[schema(required)]
    pub effect: Option<String>,
    /// The article that it was about, or made.
    #[schema(required)]
    pub article_id: Option<String>,
    /// What was answered; null: no answer was given.
    #[schema(required)]
    pub http_status: Option<i32>,
    /// When it came.
    pub at: DateTime<Utc>,
    /// When the sandbox was done with it; null: it hung up, or still is at it.
    #[schema(required)]
    pub answered_at: Option<DateTime<Utc>>,
}

/// A page of requests.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SandboxRequests {
    /// The newest first.
    pub requests: Vec<SandboxRequestView>,
    /// Where the next page begins; null on the last page.
    #[schema(required)]
    pub next_cursor: Option<String>,
}

struct SandboxErrors;

impl IntoResponses for SandboxErrors {
    fn responses() -> BTreeMap<String, RefOr<openapi::Response>> {
        errors(&[
            (400, "`invalid_query`"),
            (401, "`unauthorized`"),
            (403, "`forbidden`"),
            (404, "`not_found`"),
            (409, "`conflict`: publications of the account are unfinished"),
            (503, "`unavailable`: the same request again is safe"),
        ])
    }
}

fn view(account_id: &str, row: SandboxArticle, content: Option<Value>) -> SandboxArticleView {
    let public = row.public_at.is_some();
    SandboxArticleView {
        article_id: row.article_id.to_string(),
        marker: row.marker,
        external_id: row.external_id,
        title: row.title,
        state: if public { "public" } else { "draft" },
        url: public.then(|| url(account_id, row.article_id)),
        made_at: row.made_at,
        published_at: row.public_at,
        content,
    }
}

impl From<SandboxRequest> for SandboxRequestView {
    fn from(row: SandboxRequest) -> Self {
        Self {
            number: row.number,
            kind: row.kind,
            external_id: row.external_id,
            marker: row.marker,
            nth: row.nth,
            request_id: row.request_id,
            behaviour: row.behaviour,
            effect: row.effect,
            article_id: row.article_id.map(|id| id.to_string()),
            http_status: row.http_status,
            at: row.at,
            answered_at: row.answered_at,
        }
    }
}

/// Which page is asked for.
#[derive(Debug)]
struct Asked {
    external_id: Option<String>,
    before: i64,
    limit: i64,
}

impl Asked {
    fn read(text: Option<&str>) -> Result<Self, Problem> {
        let mut asked = Self { external_id: None, before: i64::MAX, limit: LIMIT_DEFAULT };
        for (name, value) in query(text, &PARAMETERS)? {
            let wrong =
                |rule: String| Problem::new(Kind::InvalidQuery, format!("the parameter {name:?} {rule}"));
            match name.as_str() {
                "external_id" => asked.external_id = Some(value.nfc().collect()),
                "limit" => {
                    let limit = value.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
                    asked.limit =
                        limit.ok_or_else(|| wrong(format!("takes a number from 1 to {LIMIT_MAX}")))?;
                }
                _ => {
                    let rule = "takes the next_cursor of the page before, as it was given";
                    asked.before = before(&value).ok_or_else(|| wrong(rule.to_owned()))?;
                }
            }
        }
        Ok(asked)
    }

    /// One more than fits, so that it shows whether there is another page.
    fn page(&self) -> SandboxPage<'_> {
        SandboxPage { external_id: self.external_id.as_deref(), before: self.before, limit: self.limit + 1 }
    }

    /// Leaves what fits, and says where the next page begins.
    fn cut<T>(&self, rows: &mut Vec<T>, id: impl Fn(&T) -> i64) -> Option<String> {
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        let more = rows.len() > limit;
        rows.truncate(limit);
        rows.last().filter(|_| more).map(|last| cursor(id(last)))
    }
}

/// The place behind an entry. It is one in any list, whatever the filter: the numbers are those of the account.
fn cursor(last: i64) -> String {
    URL_SAFE_NO_PAD.encode(last.to_be_bytes())
}

fn before(cursor: &str) -> Option<i64> {
    let bytes = URL_SAFE_NO_PAD.decode(cursor).ok()?;
    Some(i64::from_be_bytes(bytes.try_into().ok()?))
}

fn no_account() -> Problem {
    Problem::new(Kind::NotFound, "there is no account of the sandbox of this id; see GET /accounts")
}

type Name = Result<Path<String>, PathRejection>;

/// The account that a path names, which must exist.
async fn named(state: &AppState, caller: &Caller, account_id: &str) -> Result<AccountKey, Problem> {
    let key = AccountKey::new(PLATFORM, account_id).map_err(|_| no_account())?;
    let account = caller.within(state.store.account(caller.tenant_id, &key)).await??;
    account.map(|_| key).ok_or_else(no_account)
}

/// See what the sandbox holds
///
/// The articles of an account of the platform `sandbox`, drafts too, the newest first: whether one stands there twice.
#[utoipa::path(
    get, path = "/sandbox/{account_id}/articles", tag = "sandbox", operation_id = "get_sandbox_articles",
    security(("api_key" = [])),
    params(
        ("account_id" = String, Path, description = "The account"),
        ("external_id" = Option<String>, Query, description = "Only this article, by the caller's id"),
        ("limit" = Option<u32>, Query, description = "How many at most; 50 if not given", minimum = 1, maximum = 200),
        ("cursor" = Option<String>, Query, description = "The `next_cursor` of the page before"),
    ),
    responses((status = 200, description = "A page of articles", body = SandboxArticles), ReadErrors)
)]
pub(super) async fn get_articles(
    State(state): State<AppState>,
    caller: Caller,
    account_id: Name,
    RawQuery(text): RawQuery,
) -> Result<Json<SandboxArticles>, Problem> {
    caller.need(Scope::Read)?;
    let asked = Asked::read(text.as_deref())?;
    let Path(account_id) = account_id.map_err(|_| no_account())?;
    named(&state, &caller, &account_id).await?;
    let place = SandboxPlace { tenant_id: caller.tenant_id, account_id: &account_id };
    let mut rows = caller.within(state.store.sandbox_articles(place, asked.page())).await??;
    let next_cursor = asked.cut(&mut rows, |row| row.article_id);
    let articles = rows.into_iter().map(|row| view(&account_id, row, None)).collect();
    Ok(Json(SandboxArticles { articles, next_cursor }))
}

/// See one article that the sandbox holds
///
/// With its content, as it reached the platform.
#[utoipa::path(
    get, path = "/sandbox/{account_id}/articles/{article_id}", tag = "sandbox", operation_id = "get_sandbox_article",
    security(("api_key" = [])),
    params(
        ("account_id" = String, Path, description = "The account"),
        ("article_id" = String, Path, description = "The sandbox's id of it"),
    ),
    responses((status = 200, description = "The article", body = SandboxArticleView), ReadErrors)
)]
pub(super) async fn get_article(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    names: Result<Path<(String, String)>, PathRejection>,
) -> Result<Json<SandboxArticleView>, Problem> {
    caller.need(Scope::Read)?;
    let Path((account_id, article_id)) = names.map_err(|_| no_account())?;
    named(&state, &caller, &account_id).await?;
    let not_found = || Problem::new(Kind::NotFound, "the sandbox holds no article of this id");
    let id = article_id.parse().map_err(|_| not_found())?;
    let place = SandboxPlace { tenant_id: caller.tenant_id, account_id: &account_id };
    let found = caller.within(state.store.sandbox_article(place, id)).await??;
    let (row, content) = found.ok_or_else(not_found)?;
    Ok(Json(view(&account_id, row, Some(content))))
}

/// See what was asked of the sandbox
///
/// The newest 10,000 requests of an account, the newest first: what each of them changed, and what was answered.
#[utoipa::path(
    get, path = "/sandbox/{account_id}/requests", tag = "sandbox", operation_id = "get_sandbox_requests",
    security(("api_key" = [])),
    params(
        ("account_id" = String, Path, description = "The account"),
        ("external_id" = Option<String>, Query, description = "Only about this article, by the caller's id"),
        ("limit" = Option<u32>, Query, description = "How many at most; 50 if not given", minimum = 1, maximum = 200),
        ("cursor" = Option<String>, Query, description = "The `next_cursor` of the page before"),
    ),
    responses((status = 200, description = "A page of requests", body = SandboxRequests), ReadErrors)
)]
pub(super) async fn get_requests(
    State(state): State<AppState>,
    caller: Caller,
    account_id: Name,
    RawQuery(text): RawQuery,
) -> Result<Json<SandboxRequests>, Problem> {
    caller.need(Scope::Read)?;
    let asked = Asked::read(text.as_deref())?;
    let Path(account_id) = account_id.map_err(|_| no_account())?;
    named(&state, &caller, &account_id).await?;
    let place = SandboxPlace { tenant_id: caller.tenant_id, account_id: &account_id };
    let mut rows = caller.within(state.store.sandbox_requests(place, asked.page())).await??;
    let next_cursor = asked.cut(&mut rows, |row| row.number);
    Ok(Json(SandboxRequests { requests: rows.into_iter().map(Into::into).collect(), next_cursor }))
}

/// Empty the sandbox
///
/// The account holds nothing afterwards and counts anew; its settings, its login and the tasks stay. Only while nothing of
/// it is unfinished.
#[utoipa::path(
    delete, path = "/sandbox/{account_id}/articles", tag = "sandbox", operation_id = "delete_sandbox_articles",
    security(("api_key" = [])),
    params(("account_id" = String, Path, description = "The account")),
    responses((status = 204, description = "It is empty"), SandboxErrors)
)]
pub(super) async fn delete_articles(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    account_id: Name,
) -> Result<StatusCode, Problem> {
    caller.need(Scope::Manage)?;
    let Path(account_id) = account_id.map_err(|_| no_account())?;
    let key = AccountKey::new(PLATFORM, &account_id).map_err(|_| no_account())?;
    match caller.within(state.store.empty_sandbox(caller.tenant_id, &key)).await?? {
        SandboxEmptied::Done => Ok(StatusCode::NO_CONTENT),
        SandboxEmptied::Absent => Err(no_account()),
        SandboxEmptied::Unfinished(unfinished) => Err(unfinished_conflict(
            unfinished,
            "wait until they have ended, or cancel their tasks; then empty it",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_asked_for_and_told_where_the_next_begins() {
        let asked = Asked::read(Some(&format!("limit=2&external_id=e%CC%81&cursor={}", cursor(7)))).unwrap();
        assert_eq!((asked.external_id.as_deref(), asked.before, asked.limit), (Some("é"), 7, 2));
        let mut rows = vec![6, 5, 4];
        assert_eq!(asked.cut(&mut rows, |row| *row), Some(cursor(5)));
        assert_eq!((asked.cut(&mut rows, |row| *row), rows), (None, vec![6, 5]));
        for bad in ["limit=0", "limit=201", "cursor=x", "cursor=AAAA", "state=draft"] {
            assert!(Asked::read(Some(bad)).is_err(), "{bad}");
        }
    }
}
