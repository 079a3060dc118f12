//! `GET /signing-secrets`, `POST /signing-secrets/rotate`, and the public keys that receivers verify with.

use std::collections::BTreeMap;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State, rejection::PathRejection};
use axum::http::{HeaderMap, HeaderName, header};
use chrono::{DateTime, Utc};
use serde::Serialize;
use utoipa::openapi::{self, RefOr};
use utoipa::{IntoResponses, ToSchema};
use uuid::Uuid;

use super::AppState;
use super::admission::{Caller, NoQuery, Peer, optional_json_body, within_budget};
use super::gate::PublicKeySet;
use super::problem::{Kind, ListErrors, Problem, ProblemDocument, errors};
use super::task_requests::{NoFields, no_fields};
use crate::callback::signature::SigningKey;
use crate::store::{LiveKey, Rotation};
use crate::tenant::{OVERLAP, Scope, public_keys_path};

/// How long a receiver may keep the public keys, in seconds: the old one signs for much longer when it is replaced.
const PUBLIC_KEYS_FOR: &str = "public, max-age=300";

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

/// A key pair that callbacks are signed with now; its private key is shown to nobody.
#[derive(Serialize, ToSchema)]
pub(super) struct PublicKeyView {
    /// The public key.
    #[schema(example = "whpk_…")]
    pub public_key: String,
    /// When it ends; null for the present one.
    #[schema(required)]
    pub expires_at: Option<DateTime<Utc>>,
}

/// What callbacks are signed with now.
#[derive(Serialize, ToSchema)]
pub(super) struct SigningKeys {
    /// The secrets of signatures `v1`, the newest first.
    pub secrets: Vec<SecretView>,
    /// The public keys of signatures `v1a`, the newest first; none unless they were asked for.
    pub public_keys: Vec<PublicKeyView>,
    /// Where anybody reads the public keys; null without any.
    #[schema(required)]
    pub public_keys_path: Option<String>,
}

impl SigningKeys {
    fn of(caller: &Caller, keys: Vec<LiveKey>) -> Self {
        let (mut secrets, mut public_keys) = (Vec::new(), Vec::new());
        for LiveKey { key, expires_at, .. } in keys {
            match key {
                SigningKey::Secret(secret) => {
                    secrets.push(SecretView { secret: secret.expose().to_string(), expires_at });
                }
                SigningKey::Pair(pair) => {
                    public_keys.push(PublicKeyView { public_key: pair.public_key(), expires_at });
                }
            }
        }
        let public_keys_path = (!public_keys.is_empty()).then(|| public_keys_path(caller.tenant_id));
        Self { secrets, public_keys, public_keys_path }
    }
}

type NotKept = [(HeaderName, &'static str); 1];

const NOT_KEPT: NotKept = [(header::CACHE_CONTROL, "no-store")];

/// See what callbacks are signed with
///
/// A callback carries a signature by each; a receiver needs one of them.
#[utoipa::path(
    get, path = "/signing-secrets", tag = "callbacks", operation_id = "get_signing_secrets",
    security(("api_key" = [])),
    responses(
        (status = 200, description = "The secrets", body = SigningKeys),
        ListErrors,
    )
)]
pub(super) async fn get_signing_secrets(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
) -> Result<(NotKept, Json<SigningKeys>), Problem> {
    caller.need(Scope::Manage)?;
    let keys = caller.within(state.store.signing_keys(caller.tenant_id, &state.vault)).await??;
    Ok((NOT_KEPT, Json(SigningKeys::of(&caller, keys))))
}

/// Errors of `POST /signing-secrets/rotate`.
pub(super) struct RotateErrors;

impl IntoResponses for RotateErrors {
    fn responses() -> BTreeMap<String, RefOr<openapi::Response>> {
        errors(&[
            (400, "`invalid_json`, `invalid_query`, `invalid_header`"),
            (401, "`unauthorized`"),
            (403, "`forbidden`"),
            (409, "`conflict`: as many as may be were replaced within their day"),
            (413, "`payload_too_large`"),
            (415, "`unsupported_media_type`"),
            (422, "`validation_failed`"),
            (503, "`unavailable`: see `GET /signing-secrets` before you rotate again"),
        ])
    }
}

/// Replace what callbacks are signed with
///
/// From now on callbacks carry a signature by the new one and, for 24 hours, by the one it replaces; one that was replaced
/// earlier ends when it was said to end.
#[utoipa::path(
    post, path = "/signing-secrets/rotate", tag = "callbacks", operation_id = "rotate_signing_secrets",
    security(("api_key" = [])),
    request_body = Option<NoFields>,
    responses(
        (status = 200, description = "The secrets, the new one first", body = SigningKeys),
        RotateErrors,
    )
)]
pub(super) async fn rotate_signing_secrets(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    headers: HeaderMap,
    body: Body,
) -> Result<(NotKept, Json<SigningKeys>), Problem> {
    caller.need(Scope::Manage)?;
    no_fields(&optional_json_body(&headers, body, state.body_limit).await?)?;
    let rotating = state.store.rotate_signing_keys(caller.tenant_id, OVERLAP, &state.vault);
    match caller.within(rotating).await?? {
        Rotation::Done(keys) => Ok((NOT_KEPT, Json(SigningKeys::of(&caller, keys)))),
        Rotation::TooMany { until } => Err(Problem::new(Kind::Conflict, Rotation::too_many(until))),
    }
}

/// A public key as a JSON Web Key (RFC 7517, RFC 8037), and as Standard Webhooks writes it.
#[derive(Clone, Serialize, ToSchema)]
pub(super) struct PublicKeyJwk {
    /// `OKP`.
    pub kty: &'static str,
    /// `Ed25519`.
    pub crv: &'static str,
    /// The key, in base64url.
    pub x: String,
    /// Names the key.
    pub kid: Uuid,
    /// `EdDSA`.
    pub alg: &'static str,
    /// `sig`.
    #[serde(rename = "use")]
    pub usage: &'static str,
    /// The same key.
    #[schema(example = "whpk_…")]
    pub public_key: String,
    /// When it signs no more; null for the present one.
    #[schema(required)]
    pub expires_at: Option<DateTime<Utc>>,
}

/// The keys that verify a tenant's signatures `v1a`.
#[derive(Serialize, ToSchema)]
pub(super) struct PublicKeys {
    /// The newest first.
    #[schema(value_type = Vec<PublicKeyJwk>)]
    pub keys: PublicKeySet,
}

/// What is public of the keys that sign.
pub(super) fn public_keys(live: Vec<LiveKey>) -> Vec<PublicKeyJwk> {
    let keys = live.into_iter().filter_map(|LiveKey { key, key_id, expires_at }| match key {
        SigningKey::Secret(_) => None,
        SigningKey::Pair(pair) => Some(PublicKeyJwk {
            kty: "OKP",
            crv: "Ed25519",
            x: pair.public_key_base64url(),
            kid: key_id,
            alg: "EdDSA",
            usage: "sig",
            public_key: pair.public_key(),
            expires_at,
        }),
    });
    keys.collect()
}

/// Read the public keys that verify a tenant's callbacks
///
/// For everybody, without a key: receivers verify signatures `v1a` with them. A JSON Web Key Set (RFC 7517), good for 5
/// minutes. A tenant without such signatures is not told from one that is not there. What changed is seen within 5 seconds.
#[utoipa::path(
    get, path = "/.well-known/webhooks/{tenant_id}", tag = "callbacks", operation_id = "get_public_keys",
    security(()),
    params(("tenant_id" = Uuid, Path, description = "The tenant's id, as `GET /signing-secrets` has it in `public_keys_path`")),
    responses(
        (status = 200, description = "The public keys", body = PublicKeys),
        (status = 400, description = "`invalid_query`", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 404, description = "`not_found`", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 429, description = "`rate_limited`: too many that do not exist were asked for from this address",
            body = ProblemDocument, content_type = "application/problem+json"),
        (status = 503, description = "`unavailable`", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
pub(super) async fn get_public_keys(
    State(state): State<AppState>,
    tenant_id: Result<Path<Uuid>, PathRejection>,
    Peer { address, told }: Peer,
    _: NoQuery,
) -> Result<(NotKept, Json<PublicKeys>), Problem> {
    let not_found = || Problem::new(Kind::NotFound, "there are no public keys here");
    let Path(tenant_id) = tenant_id.map_err(|_| not_found())?;
    let keys = state.gate.public_keys(tenant_id, &state.vault, address, &told);
    let keys = within_budget(keys).await??.ok_or_else(not_found)?;
    Ok(([(header::CACHE_CONTROL, PUBLIC_KEYS_FOR)], Json(PublicKeys { keys })))
}
