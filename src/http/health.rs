//! `GET /healthz` and `GET /readyz`.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;

use super::problem::{Kind, Problem, ProblemDocument};
use crate::store::{Store, StoreError};

/// How long the database may take to answer before the service calls itself not ready.
const READY_WITHIN: Duration = Duration::from_millis(1_500);

/// What decides whether requests can be served.
#[derive(Clone)]
pub struct Readiness {
    /// The database.
    pub store: Store,
    /// The node is ending: whoever shares load out shall send it nothing more.
    pub stopping: CancellationToken,
}

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
/// The database is reachable, its schema is the right one, and the node is not ending.
#[utoipa::path(
    get, path = "/readyz", tag = "health", operation_id = "readyz", security(()),
    responses(
        (status = 200, description = "Requests can be served", body = Health),
        (status = 503, description = "`unavailable`", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
pub(super) async fn readyz(State(ready): State<Readiness>) -> Result<Json<Health>, Problem> {
    if ready.stopping.is_cancelled() {
        return Err(Problem::new(
            Kind::Unavailable,
            "this node is ending; ask another, or the next one here",
        ));
    }
    match tokio::time::timeout(READY_WITHIN, ready.store.check()).await {
        Ok(Ok(())) => Ok(Json(Health { status: "ok" })),
        Ok(Err(StoreError::Schema(error))) => Err(Problem::new(Kind::Unavailable, error.to_string())),
        Ok(Err(_)) | Err(_) => Err(Problem::new(Kind::Unavailable, "the database cannot be reached")),
    }
}
