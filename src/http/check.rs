//! `POST /publish/check`.

use std::collections::BTreeMap;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use chrono::{DateTime, Utc};
use serde::Serialize;
use utoipa::openapi::{RefOr, Response};
use utoipa::{IntoResponses, ToSchema};

use super::AppState;
use super::admission::{Caller, NoQuery, idempotency_key, json_body};
use super::problem::{Problem, body_errors};
use super::publish::{Answered, PublishAnswer, check_callback};
use crate::article::{Content, PublishRequest, Submission};
use crate::connector::ContentProblem;
use crate::store::AccountStanding;
use crate::task::accept::{NotAccepted, Warning, check::Would};
use crate::tenant::Scope;

/// What a request to publish would come to.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct CheckAnswer {
    /// `create`, `return_existing` or `reject`.
    #[schema(example = "create")]
    pub would: &'static str,
    /// The task that exists.
    #[schema(required)]
    pub task: Option<PublishAnswer>,
    /// The accounts that a new article would go to.
    pub accounts: Vec<CheckedAccount>,
    /// Remarks that are no errors.
    pub warnings: Vec<Warning>,
}

/// An account, as the article would meet it now.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct CheckedAccount {
    /// The platform.
    pub platform: String,
    /// The account.
    pub account_id: String,
    /// `active` or `login_expired`.
    #[schema(example = "active")]
    pub login_state: String,
    /// What would keep the article from being published there.
    pub problems: Vec<ContentProblem>,
    /// Not sooner than then, by `publish_at`, the account's pace, a pause that its platform asked for, and its day if that
    /// is full; null while its login has expired.
    #[schema(required)]
    pub earliest_at: Option<DateTime<Utc>>,
}

struct CheckErrors;

impl IntoResponses for CheckErrors {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        body_errors(&[
            (422, "`validation_failed`, `unknown_group`, `empty_group`"),
            (429, "`rate_limited`, `quota_exceeded`"),
            (503, "`unavailable`"),
        ])
    }
}

/// Try an article out
///
/// What `POST /publish` would do with this body now, and what would keep the article from being published on each
/// account. Nothing is stored, and no platform is called.
#[utoipa::path(
    post, path = "/publish/check", tag = "publish", operation_id = "check_article",
    security(("api_key" = [])),
    params(("Idempotency-Key" = Option<String>, Header, description = "As for `POST /publish`", min_length = 1,
        max_length = 255)),
    request_body = PublishRequest,
    responses((status = 200, description = "What would become of it", body = CheckAnswer), CheckErrors)
)]
pub(super) async fn check(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<CheckAnswer>, Problem> {
    caller.need(Scope::Publish)?;
    let key = idempotency_key(&headers)?;
    let body = json_body(&headers, body, state.body_limit).await?;
    let submission = Submission::parse(&body, |url| check_callback(&state, url))?;
    let (group_code, content) = (submission.group_code.clone(), submission.content.clone());
    let sender = caller.sender();
    let asking = state.acceptor.check(&state.store, &sender, submission, key);
    let existing = |would, task: PublishAnswer| CheckAnswer {
        would,
        warnings: task.warnings.clone(),
        task: Some(task),
        accounts: Vec::new(),
    };
    let answer = match caller.within(asking).await?? {
        Would::ReturnExisting(acceptance) => existing("return_existing", (*acceptance).into()),
        Would::Reject(acceptance) => existing("reject", (*acceptance).into()),
        Would::Refuse(why) => {
            if let NotAccepted::QuotaExceeded(quota) = why {
                caller.tell_quota(Some(quota), state.clock.now());
            }
            let refused = Answered::of(Err(why), &group_code, state.clock.now());
            return Err(refused.err().unwrap_or_else(Problem::unavailable));
        }
        Would::Create { accounts, warnings } => {
            let mut checked = Vec::with_capacity(accounts.len());
            for account in accounts {
                checked.push(look_at(&state, account, &content).await);
            }
            CheckAnswer { would: "create", task: None, accounts: checked, warnings }
        }
    };
    Ok(Json(answer))
}

async fn look_at(state: &AppState, account: AccountStanding, content: &Content) -> CheckedAccount {
    let mut problems = if let Some(connector) = state.connectors.get(account.platform.as_str()) {
        connector.check_content(content).await
    } else {
        let detail = "this platform is not set up here: the operator must set it up";
        vec![ContentProblem::new("platform_not_set_up", detail)]
    };
    let active = account.login_state == "active";
    if !active {
        let detail = "the account's login has expired: put new credentials";
        problems.push(ContentProblem::new("login_expired", detail));
    }
    CheckedAccount {
        platform: account.platform,
        account_id: account.account_id,
        login_state: account.login_state,
        problems,
        earliest_at: active.then_some(account.earliest_at),
    }
}
