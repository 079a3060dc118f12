//! `PUT`, `GET` and `DELETE /accounts/{platform}/{account_id}`, and `GET /accounts`.

use std::collections::BTreeMap;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State, rejection::PathRejection};
use axum::http::{HeaderMap, StatusCode};
use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;
use utoipa::openapi::{self, RefOr};
use utoipa::{IntoResponses, ToSchema};

use super::AppState;
use super::admission::{Caller, MANAGE_BODY_MAX_BYTES, NoQuery, json_body};
use super::problem::{Kind, ListErrors, Problem, ReadErrors, body_errors, errors};
use crate::account::{ACCOUNTS_MAX, AccountInput, AccountKey, AccountRequest, BadName, Credentials};
use crate::fields::FieldError;
use crate::store::{AccountDeleted, AccountPut, AccountRow, Terms, Unfinished};
use crate::tenant::Scope;

/// An account. Its credentials are never read back.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AccountView {
    /// The platform.
    #[schema(example = "static_site")]
    pub platform: String,
    /// Its id on the platform.
    #[schema(example = "blog")]
    pub account_id: String,
    /// For people.
    pub display_name: String,
    /// As the platform defines them.
    #[schema(value_type = Object)]
    pub settings: Value,
    /// Whether credentials are stored.
    pub credentials_set: bool,
    /// The least time between two starts.
    pub min_interval_seconds: i64,
    /// How many publications it may have in hand at once.
    pub max_in_flight: i32,
    /// The most publications a day, in its time zone.
    #[schema(required)]
    pub daily_limit: Option<i32>,
    /// The IANA name of the zone in which its days begin.
    pub time_zone: String,
    /// `active` or `login_expired`.
    #[schema(example = "active")]
    pub login_state: String,
    /// Until when nothing of it is started, because its platform asked for a pause or its day is full; null when neither
    /// holds it.
    #[schema(required)]
    pub parked_until: Option<DateTime<Utc>>,
    /// When it was created.
    pub created_at: DateTime<Utc>,
    /// When it was last put.
    pub updated_at: DateTime<Utc>,
}

impl From<AccountRow> for AccountView {
    fn from(row: AccountRow) -> Self {
        Self {
            platform: row.platform,
            account_id: row.account_id,
            display_name: row.display_name,
            settings: row.settings,
            credentials_set: row.credentials_set,
            min_interval_seconds: row.min_interval_seconds,
            max_in_flight: row.max_in_flight,
            daily_limit: row.daily_limit,
            time_zone: row.time_zone,
            login_state: row.login_state,
            parked_until: row.parked_until,
            created_at: row.created_at,
            updated_at: row.updated_at,
        }
    }
}

/// An account, by its two names.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AccountKeyView {
    /// The platform.
    #[schema(example = "static_site")]
    pub platform: String,
    /// Its id on the platform.
    #[schema(example = "blog")]
    pub account_id: String,
}

impl From<AccountKey> for AccountKeyView {
    fn from(key: AccountKey) -> Self {
        let (platform, account_id) = key.into_names();
        Self { platform, account_id }
    }
}

/// An account that was put.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AccountPutAnswer {
    #[serde(flatten)]
    account: AccountView,
    /// How many publications that waited for this login go on, in order.
    resumed: i64,
    /// How many do not: they wait for a retry.
    left: i64,
}

/// All accounts.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Accounts {
    /// By platform and id.
    pub accounts: Vec<AccountView>,
}

/// The error answers of a call that changes what a tenant manages, in the `OpenAPI` document.
pub(super) struct PutErrors;

impl IntoResponses for PutErrors {
    fn responses() -> BTreeMap<String, RefOr<openapi::Response>> {
        body_errors(&[
            (409, "`conflict`: the state does not allow it"),
            (422, "`validation_failed`"),
            (503, "`unavailable`: the same request again is safe"),
        ])
    }
}

struct DeleteErrors;

impl IntoResponses for DeleteErrors {
    fn responses() -> BTreeMap<String, RefOr<openapi::Response>> {
        errors(&[
            (400, "`invalid_query`"),
            (401, "`unauthorized`"),
            (403, "`forbidden`"),
            (404, "`not_found`"),
            (409, "`conflict`: publications of it are unfinished"),
            (503, "`unavailable`: the same request again is safe"),
        ])
    }
}

pub(super) type Names = Result<Path<(String, String)>, PathRejection>;

/// The account that a path names, for a call that makes it. An id that is not UTF-8 breaks the same rule.
pub(super) fn named(path: Names) -> Result<AccountKey, BadName> {
    let (platform, account_id) = path.map(|Path(names)| names).unwrap_or_default();
    AccountKey::new(&platform, &account_id)
}

pub(super) fn not_found() -> Problem {
    Problem::new(Kind::NotFound, "there is no such account; see GET /accounts")
}

/// Create an account, or replace it
///
/// All of it is replaced but the credentials, which are kept when none are sent. Credentials sent to an account whose
/// login has expired renew it: it is active again, and what waits on it goes on in order, unless `resume` is false; what
/// has waited over 7 days is left and counted.
#[utoipa::path(
    put, path = "/accounts/{platform}/{account_id}", tag = "accounts", operation_id = "put_account",
    security(("api_key" = [])),
    params(
        ("platform" = String, Path, description = "The platform; see GET /platforms", pattern = "^[a-z0-9_]{1,32}$"),
        ("account_id" = String, Path, description = "Its id there", pattern = "^[A-Za-z0-9._@-]{1,128}$"),
    ),
    request_body = AccountRequest,
    responses(
        (status = 200, description = "The account", body = AccountPutAnswer),
        PutErrors,
    )
)]
pub(super) async fn put_account(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    names: Names,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<AccountPutAnswer>, Problem> {
    caller.need(Scope::Manage)?;
    let whole = |code, detail: String| Problem::invalid_fields(vec![FieldError::of_body(code, detail)]);
    let key = named(names).map_err(|bad| whole("bad_format", format!("{bad}; it stands in the path")))?;
    let body = json_body(&headers, body, MANAGE_BODY_MAX_BYTES).await?;
    let Some(connector) = state.connectors.get(key.platform()) else {
        let needs = match key.platform() {
            "static_site" => ": it needs PUBLISH_SITE_ROOT and PUBLISH_SITE_URL, on every node",
            _ => "",
        };
        let detail = format!("the platform {} is not set up here{needs}; see GET /platforms", key.platform());
        return Err(whole("not_allowed", detail));
    };
    let (tenant_id, vault) = (caller.tenant_id, &state.vault);
    let put = async {
        let stored = state.store.credentials(tenant_id, &key, vault).await?;
        let mut relied = false;
        let input = AccountInput::parse(&body, &key, |settings, sent| {
            relied = sent.is_none() && stored.is_some();
            let credentials = sent.or(stored.as_ref()).map(Credentials::expose);
            connector.check_account(settings, credentials)
        })?;
        let site = connector.site(&input.settings);
        let same_site = |settings: &Value| connector.site(settings) == site;
        let pulled = connector.pulled(&input.settings);
        let terms = Terms { keeps_credentials: relied, same_site: &same_site, pulled };
        Ok::<_, Problem>(state.store.put_account(tenant_id, &key, &input, vault, terms).await?)
    };
    match caller.within(put).await?? {
        AccountPut::Done(row, renewal) => {
            if renewal.renewed {
                state.work.wake(tenant_id);
            }
            let (resumed, left) = (renewal.resumed, renewal.left);
            Ok(Json(AccountPutAnswer { account: (*row).into(), resumed, left }))
        }
        AccountPut::Unfinished(unfinished) => Err(unfinished_conflict(
            unfinished,
            "these look for their articles where they were sent, on the present site or by whoever has been asked: change \
             it when they have ended; or cancel their tasks, change it, and retry them",
        )),
        AccountPut::Changed => Err(Problem::new(
            Kind::Conflict,
            "this account was deleted at the same moment, and its credentials with it: send them, too",
        )),
        AccountPut::UnknownTimeZone => Err(Problem::invalid_fields(vec![FieldError {
            pointer: "/time_zone".to_owned(),
            code: "not_allowed",
            detail: "the database does not know this time zone: send another name of it, or have the operator update the \
                     database's time zones"
                .to_owned(),
        }])),
        AccountPut::TooMany => Err(whole(
            "not_allowed",
            format!("there are {ACCOUNTS_MAX} accounts, which is the most: delete one that is not used"),
        )),
    }
}

pub(super) fn unfinished_conflict(unfinished: Unfinished, advice: &str) -> Problem {
    let states = unfinished.states();
    let states = states.iter().map(|(count, state)| format!("{count} {state}")).collect::<Vec<_>>();
    let detail = format!("unfinished publications of this account: {}; {advice}", states.join(", "));
    Problem::new(Kind::Conflict, detail)
}

/// Look an account up
#[utoipa::path(
    get, path = "/accounts/{platform}/{account_id}", tag = "accounts", operation_id = "get_account",
    security(("api_key" = [])),
    params(
        ("platform" = String, Path, description = "The platform"),
        ("account_id" = String, Path, description = "Its id there"),
    ),
    responses(
        (status = 200, description = "The account", body = AccountView),
        ReadErrors,
    )
)]
pub(super) async fn get_account(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    names: Names,
) -> Result<Json<AccountView>, Problem> {
    caller.need(Scope::Read)?;
    let key = named(names).map_err(|_| not_found())?;
    let account = caller.within(state.store.account(caller.tenant_id, &key)).await??;
    Ok(Json(account.ok_or_else(not_found)?.into()))
}

/// List all accounts
#[utoipa::path(
    get, path = "/accounts", tag = "accounts", operation_id = "get_accounts",
    security(("api_key" = [])),
    responses(
        (status = 200, description = "The accounts", body = Accounts),
        ListErrors,
    )
)]
pub(super) async fn get_accounts(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
) -> Result<Json<Accounts>, Problem> {
    caller.need(Scope::Read)?;
    let accounts = caller.within(state.store.accounts(caller.tenant_id)).await??;
    Ok(Json(Accounts { accounts: accounts.into_iter().map(Into::into).collect() }))
}

/// Delete an account
///
/// Only while nothing of it is unfinished. It leaves all groups, its credentials are forgotten, and the history of what
/// it published stays.
#[utoipa::path(
    delete, path = "/accounts/{platform}/{account_id}", tag = "accounts", operation_id = "delete_account",
    security(("api_key" = [])),
    params(
        ("platform" = String, Path, description = "The platform"),
        ("account_id" = String, Path, description = "Its id there"),
    ),
    responses(
        (status = 204, description = "It is deleted"),
        DeleteErrors,
    )
)]
pub(super) async fn delete_account(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    names: Names,
) -> Result<StatusCode, Problem> {
    caller.need(Scope::Manage)?;
    let key = named(names).map_err(|_| not_found())?;
    match caller.within(state.store.delete_account(caller.tenant_id, &key)).await?? {
        AccountDeleted::Done => Ok(StatusCode::NO_CONTENT),
        AccountDeleted::Absent => Err(not_found()),
        AccountDeleted::Unfinished(unfinished) => Err(unfinished_conflict(
            unfinished,
            "wait until they have ended, or cancel their tasks; then delete the account",
        )),
    }
}
