//! `POST /accounts/{platform}/{account_id}/check`.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use serde::Serialize;
use utoipa::openapi::{RefOr, Response};
use utoipa::{IntoResponses, ToSchema};

use super::AppState;
use super::accounts::{AccountView, Names, named, not_found};
use super::admission::{Caller, NoQuery, optional_json_body};
use super::problem::{Problem, body_errors};
use super::task_requests::{NoFields, no_fields};
use crate::account::AccountKey;
use crate::callback::event::ErrorView;
use crate::connector::{Access, Login};
use crate::store::{AskedAccount, LOGIN_EXPIRED, Renewal};
use crate::tenant::Scope;

/// How long a platform may take to say whether it lets an account in, all of it: somebody waits for the answer.
const LOGIN_CHECK_MAX: Duration = Duration::from_secs(10);

/// What the platform says of a login.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct LoginCheck {
    /// `works`; `login_expired`: the platform says so; `unfit`: it lets the account in, but the account cannot publish;
    /// `cannot_tell`: it could not be found out, and nothing was changed.
    #[schema(example = "works")]
    pub result: &'static str,
    /// Why it does not work; null if it does.
    #[schema(required)]
    pub error: Option<ErrorView>,
}

/// An account whose login was checked.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct LoginCheckAnswer {
    /// The account, as it is after that.
    pub account: AccountView,
    /// What the platform said.
    pub check: LoginCheck,
    /// How many publications that waited for this login go on, in order, because it works again.
    pub resumed: i64,
    /// How many do not: they wait for a retry.
    pub left: i64,
}

struct CheckErrors;

impl IntoResponses for CheckErrors {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        body_errors(&[
            (404, "`not_found`"),
            (422, "`validation_failed`"),
            (503, "`unavailable`: the same request again is safe"),
        ])
    }
}

/// Ask the platform whether an account's login works
///
/// Nothing is published. What the platform says explicitly counts: a login that it calls expired parks the account, and
/// what is due becomes `login_expired` without a call for each article; one that had expired and works again is renewed,
/// and what waits on it goes on in order, as after new credentials. The platform has 10 seconds to answer.
#[utoipa::path(
    post, path = "/accounts/{platform}/{account_id}/check", tag = "accounts", operation_id = "check_account",
    security(("api_key" = [])),
    params(
        ("platform" = String, Path, description = "The platform"),
        ("account_id" = String, Path, description = "Its id there"),
    ),
    request_body = Option<NoFields>,
    responses(
        (status = 200, description = "What the platform says, and the account after that", body = LoginCheckAnswer),
        CheckErrors,
    )
)]
pub(super) async fn check_account(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    names: Names,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<LoginCheckAnswer>, Problem> {
    caller.need(Scope::Manage)?;
    let key = named(names).map_err(|_| not_found())?;
    no_fields(&optional_json_body(&headers, body, state.body_limit).await?)?;
    let (tenant_id, store) = (caller.tenant_id, &state.store);
    let asked = caller.within(store.account_to_ask(tenant_id, &key, &state.vault)).await??;
    let asked = asked.ok_or_else(not_found)?;
    let mut check = ask(&state, &caller, &key, &asked).await;
    let mut renewal = Renewal::default();
    if let WORKS | LOGIN_EXPIRED = check.result {
        let works = check.result == WORKS;
        let taken = caller.within(store.take_login(tenant_id, &key, &asked, works)).await??;
        if taken.is_none() {
            let why = "the account was changed while its platform was asked: check it again";
            check = cannot_tell("account_changed", why.to_owned(), true);
        }
        renewal = taken.unwrap_or_default();
        if renewal.renewed || !works {
            state.work.wake(tenant_id);
        }
    }
    tracing::info!(account = %key, result = check.result, "login checked");
    let account = caller.within(store.account(tenant_id, &key)).await??.ok_or_else(not_found)?;
    let (resumed, left) = (renewal.resumed, renewal.left);
    Ok(Json(LoginCheckAnswer { account: account.into(), check, resumed, left }))
}

const WORKS: &str = "works";

/// Asks the platform; nothing of ours is held meanwhile.
async fn ask(state: &AppState, caller: &Caller, key: &AccountKey, asked: &AskedAccount) -> LoginCheck {
    let Some(connector) = state.connectors.get(key.platform()) else {
        let why = "this platform is not set up here: the operator must set it up";
        return cannot_tell("platform_not_set_up", why.to_owned(), false);
    };
    let access = Access {
        tenant: asked.tenant.clone(),
        tenant_id: caller.tenant_id,
        account_id: key.account_id().to_owned(),
        settings: asked.settings.clone(),
        credentials: asked.credentials.clone(),
    };
    let answer = tokio::time::timeout(LOGIN_CHECK_MAX, connector.check_login(&access)).await;
    answer.map_or_else(|_| no_answer(), told)
}

fn no_answer() -> LoginCheck {
    let seconds = LOGIN_CHECK_MAX.as_secs();
    let why = format!("the platform did not answer within {seconds} seconds: check again");
    cannot_tell("platform_unavailable", why, true)
}

fn told(login: Login) -> LoginCheck {
    let (result, failure, retryable) = match login {
        Login::Works => return LoginCheck { result: WORKS, error: None },
        Login::Expired(failure) => (LOGIN_EXPIRED, failure, true),
        Login::Unfit(failure) => ("unfit", failure, false),
        Login::CannotTell(why) => return cannot_tell("login_unknown", why, true),
    };
    let error = ErrorView { code: failure.code.into_owned(), message: failure.message, retryable };
    LoginCheck { result, error: Some(error) }
}

fn cannot_tell(code: &str, message: String, retryable: bool) -> LoginCheck {
    LoginCheck { result: "cannot_tell", error: Some(ErrorView { code: code.to_owned(), message, retryable }) }
}
