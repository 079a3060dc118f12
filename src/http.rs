//! The API over HTTP: one file per resource, each with its request, its answer, its handler and its description.

use std::sync::Arc;

use axum::response::IntoResponse;
use axum::{Json, Router, middleware};
use tower_http::catch_panic::CatchPanicLayer;
use utoipa::OpenApi;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::clock::SharedClock;
use crate::outbound::Policy;
use crate::store::{Store, Telling};
use crate::task::accept::Acceptor;
use crate::turns::Wake;

mod admission;
mod callbacks;
mod drafts;
mod health;
mod problem;
mod publish;
mod task_actions;
mod task_requests;
mod tasks;

pub use admission::{NoQuery, REQUEST_ID};
pub use problem::{Kind, Problem};

/// What handlers use; cheap to clone.
#[derive(Clone)]
pub struct AppState {
    /// The database.
    pub store: Store,
    /// Accepts articles.
    pub acceptor: Acceptor,
    /// How ends are told.
    pub telling: Telling,
    /// Wakes the workers.
    pub work: Wake,
    /// Wakes the dispatchers.
    pub deliver: Wake,
    /// Which addresses may be called.
    pub policy: Arc<Policy>,
    /// The largest body, in bytes.
    pub body_limit: usize,
    /// Time and chance.
    pub clock: SharedClock,
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "publish-ingest",
        description = "A unified article API: the same article is published once. One row per (tenant, external_id), for \
            ever; the same request again is safe at any time. Every answer carries `x-request-id`; every error is an \
            RFC 9457 problem document.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0")
    ),
    servers((url = "/", description = "This service")),
    tags(
        (name = "publish", description = "Handing articles in"),
        (name = "tasks", description = "What became of them"),
        (name = "callbacks", description = "Telling the caller"),
        (name = "health", description = "Operating the service"),
    )
)]
struct Document;

fn described() -> OpenApiRouter<AppState> {
    OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(publish::publish))
        .routes(routes!(tasks::get_task, drafts::patch_task))
        .routes(routes!(tasks::get_history))
        .routes(routes!(drafts::submit_task))
        .routes(routes!(task_actions::cancel_task))
        .routes(routes!(task_actions::retry_task))
        .routes(routes!(task_actions::add_accounts))
        .routes(routes!(callbacks::get_callback))
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(openapi_json))
}

/// The OpenAPI 3.1 document.
#[must_use]
pub fn openapi() -> utoipa::openapi::OpenApi {
    let mut document = described().into_openapi();
    let bearer = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    document.components.get_or_insert_default().add_security_scheme("api_key", bearer);
    document
}

/// This document
///
/// What callers may send, and every answer they can get.
#[utoipa::path(
    get, path = "/openapi.json", tag = "health", operation_id = "openapi", security(()),
    responses((status = 200, description = "The OpenAPI 3.1 document", content_type = "application/json"))
)]
async fn openapi_json() -> impl IntoResponse {
    Json(openapi())
}

/// The service's routes, and `more` beside them, all behind the same layers.
pub fn router(state: AppState, more: Router<AppState>) -> Router {
    let (routes, _) = described().split_for_parts();
    routes
        .merge(more)
        .fallback(|| async { Problem::new(Kind::NotFound, "there is no such route; see /openapi.json") })
        .method_not_allowed_fallback(|| async {
            Problem::new(Kind::MethodNotAllowed, "see the header Allow for the methods of this route")
        })
        .layer(CatchPanicLayer::custom(admission::panicked))
        .layer(middleware::from_fn_with_state(state.clone(), admission::name_request))
        .with_state(state)
}
