//! `GET /healthz` and `GET /readyz`.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::AppState;
use super::problem::{Kind, Problem, ProblemDocument};
use crate::store::StoreError;

/// How long the database may take to answer before the service calls itself not ready.
const READY_WITHIN: Duration = Duration::from_millis(1_500);

/// A good answer.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Health {
    /// `ok`.
    #[schema(example = "ok")]
    pub status: &'static str,
}

/// Whether the process lives
#[utoipa::path(
    get, path = "/healthz", tag = "health", operation_id = "healthz", security(()),
    responses((status = 200, description = "It lives", body = Health))
)]
pub(super) async fn healthz() -> Json<Health> {
    Json(Health { status: "ok" })
}

/// Whether requests can be served
///
/// The database is reachable and its schema is the right one.
#[utoipa::path(
    get, path = "/readyz", tag = "health", operation_id = "readyz", security(()),
    responses(
        (status = 200, description = "Requests can be served", body = Health),
        (status = 503, description = "`unavailable`", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
pub(super) async fn readyz(State(state): State<AppState>) -> Result<Json<Health>, Problem> {
    match tokio::time::timeout(READY_WITHIN, state.store.check()).await {
        Ok(Ok(())) => Ok(Json(Health { status: "ok" })),
        Ok(Err(StoreError::Schema(error))) => Err(Problem::new(Kind::Unavailable, error.to_string())),
        Ok(Err(_)) | Err(_) => Err(Problem::new(Kind::Unavailable, "the database cannot be reached")),
    }
}
