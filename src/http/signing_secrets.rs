//! `GET /signing-secrets`.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderName, header};
use chrono::{DateTime, Utc};
use serde::Serialize;
use utoipa::ToSchema;

use super::AppState;
use super::admission::{Caller, NoQuery};
use super::problem::{ListErrors, Problem};
use crate::store::LiveSecret;
use crate::tenant::Scope;

/// A secret that callbacks are signed with now.
#[derive(Serialize, ToSchema)]
pub(super) struct SecretView {
    /// The secret.
    #[schema(example = "whsec_…")]
    pub secret: String,
    /// When it ends; null for the present one.
    #[schema(required)]
    pub expires_at: Option<DateTime<Utc>>,
}

impl From<LiveSecret> for SecretView {
    fn from(live: LiveSecret) -> Self {
        Self { secret: live.secret.expose().to_string(), expires_at: live.expires_at }
    }
}

/// The secrets that callbacks are signed with now.
#[derive(Serialize, ToSchema)]
pub(super) struct Secrets {
    /// The newest first.
    pub secrets: Vec<SecretView>,
}

/// See the secrets that callbacks are signed with
///
/// A callback carries a signature by each; a receiver needs one of them.
#[utoipa::path(
    get, path = "/signing-secrets", tag = "callbacks", operation_id = "get_signing_secrets",
    security(("api_key" = [])),
    responses(
        (status = 200, description = "The secrets", body = Secrets),
        ListErrors,
    )
)]
pub(super) async fn get_signing_secrets(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
) -> Result<([(HeaderName, &'static str); 1], Json<Secrets>), Problem> {
    caller.need(Scope::Manage)?;
    let secrets = caller.within(state.store.signing_secrets(caller.tenant_id, &state.vault)).await??;
    let secrets = Secrets { secrets: secrets.into_iter().map(Into::into).collect() };
    Ok(([(header::CACHE_CONTROL, "no-store")], Json(secrets)))
}
