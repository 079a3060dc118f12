//! The API over HTTP: one file per resource, each with its request, its answer, its handler and its description.

use std::ops::Deref;
use std::sync::{Arc, LazyLock};

use axum::body::Bytes;
use axum::extract::FromRef;
use axum::http::{HeaderValue, header};
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Router, middleware};
use tower_http::catch_panic::CatchPanicLayer;
use utoipa::OpenApi;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::callback::feed::Feeds;
use crate::clock::SharedClock;
use crate::outbound::Policy;
use crate::store::{Store, Telling};
use crate::task::accept::Acceptor;
use crate::task::work::Connectors;
use crate::telemetry::metrics::Metrics;
use crate::turns::Wake;
use crate::vault::Vault;

mod accounts;
mod admission;
mod batch;
mod bounds;
mod bridge;
mod callback_list;
mod callbacks;
mod check;
pub mod cursor;
mod described;
mod drafts;
mod events;
mod gate;
mod groups;
mod health;
mod list_body;
mod login_checks;
mod lookup;
mod metrics;
mod platforms;
mod problem;
mod publish;
mod pull;
mod replays;
mod sandbox;
mod signing_secrets;
mod task_actions;
mod task_list;
mod task_requests;
mod tasks;

pub use admission::{NoQuery, REQUEST_ID};
pub use bounds::{Bounds, refusal};
pub use gate::Gate;
pub use health::Readiness;
pub use problem::{Kind, Problem};

/// The node's API, shared; cheap to clone, since each layer and handler of a request has one of its own.
#[derive(Clone)]
pub struct AppState(Arc<Api>);

impl AppState {
    /// Shared from now on.
    #[must_use]
    pub fn new(api: Api) -> Self {
        Self(Arc::new(api))
    }
}

impl Deref for AppState {
    type Target = Api;

    fn deref(&self) -> &Api {
        &self.0
    }
}

/// The API of a node: what its handlers use.
pub struct Api {
    /// The database.
    pub store: Store,
    /// Knows keys, and how fast each may come.
    pub gate: Gate,
    /// Whether requests can be served.
    pub readiness: Readiness,
    /// Accepts articles, one by one and by the batch.
    pub acceptor: Acceptor,
    /// Seals accounts' credentials and what signs, and opens them.
    pub vault: Vault,
    /// What can be published to: checks accounts and describes platforms; nothing is published here.
    pub connectors: Connectors,
    /// How ends are told that no worker brings about: what a caller cancels or confirms, and what a bridge reports.
    pub telling: Telling,
    /// Wakes the workers of this process: a caller or a renewed login made something due.
    pub work: Wake,
    /// Wakes the dispatchers of this process: an event was written.
    pub deliver: Wake,
    /// Woken when a range of callbacks is to be sent again.
    pub replays: Wake,
    /// Those who wait for events here.
    pub feeds: Feeds,
    /// Which addresses may be called: a URL that never may is refused when it is sent.
    pub policy: Arc<Policy>,
    /// The largest body, in bytes; of a batch: the largest article.
    pub body_limit: usize,
    /// What keeps requests within bounds before they are read.
    pub bounds: Bounds,
    /// Counts requests, and is what `/metrics` shows.
    pub metrics: Metrics,
    /// Time and chance.
    pub clock: SharedClock,
}

impl FromRef<AppState> for Readiness {
    fn from_ref(state: &AppState) -> Self {
        state.readiness.clone()
    }
}

impl FromRef<AppState> for Metrics {
    fn from_ref(state: &AppState) -> Self {
        state.metrics.clone()
    }
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
        (name = "accounts", description = "Where articles are published"),
        (name = "bridge", description = "Endpoints and robots behind an http_bridge account"),
        (name = "sandbox", description = "What the built-in platform holds, and what it was asked"),
        (name = "callbacks", description = "Telling the caller"),
        (name = "health", description = "Operating the service"),
    )
)]
struct Document;

fn described() -> OpenApiRouter<AppState> {
    OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(publish::publish))
        .routes(routes!(batch::publish_batch))
        .routes(routes!(check::check))
        .routes(routes!(lookup::lookup))
        .routes(routes!(task_list::list_tasks))
        .routes(routes!(tasks::get_task, drafts::patch_task))
        .routes(routes!(tasks::get_history))
        .routes(routes!(drafts::submit_task))
        .routes(routes!(task_actions::cancel_task))
        .routes(routes!(task_actions::retry_task))
        .routes(routes!(task_actions::add_accounts))
        .routes(routes!(bridge::post_results))
        .routes(routes!(pull::post_claim))
        .routes(routes!(pull::post_heartbeat))
        .routes(routes!(accounts::put_account, accounts::get_account, accounts::delete_account))
        .routes(routes!(accounts::get_accounts))
        .routes(routes!(login_checks::check_account))
        .routes(routes!(groups::put_group, groups::get_group, groups::delete_group))
        .routes(routes!(groups::get_groups))
        .routes(routes!(platforms::get_platforms))
        .routes(routes!(sandbox::get_articles, sandbox::delete_articles))
        .routes(routes!(sandbox::get_article))
        .routes(routes!(sandbox::get_requests))
        .routes(routes!(signing_secrets::get_signing_secrets))
        .routes(routes!(signing_secrets::rotate_signing_secrets))
        .routes(routes!(signing_secrets::get_public_keys))
        .routes(routes!(callback_list::list_callbacks))
        .routes(routes!(callbacks::get_callback))
        .routes(routes!(replays::replay_callback))
        .routes(routes!(replays::post_replay))
        .routes(routes!(replays::get_replay))
        .routes(routes!(events::get_events))
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(metrics::metrics))
        .routes(routes!(openapi_json))
}

/// The OpenAPI 3.1 document.
#[must_use]
pub fn openapi() -> utoipa::openapi::OpenApi {
    let mut document = described().into_openapi();
    let bearer = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    document.components.get_or_insert_default().add_security_scheme("api_key", bearer);
    described::complete(&mut document);
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
    /// Made once: whoever asks needs no key.
    static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| openapi().to_json().unwrap_or_default().into());
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], DOCUMENT.clone())
}

/// The service's routes, and `more` beside them, all behind the same layers.
pub fn router(state: AppState, more: Router) -> Router {
    let outer =
        Outer { bounds: state.bounds.clone(), metrics: state.metrics.clone(), clock: state.clock.clone() };
    let (routes, _) = described().split_for_parts();
    let routes = routes.with_state(state).merge(more);
    behind_layers(routes, "there is no such route; see /openapi.json", outer)
}

/// What a node without the role `api` serves: how it is, and `more` beside that.
pub fn router_without_api(readiness: Readiness, more: Router, outer: Outer) -> Router {
    let health = Router::new().route("/healthz", get(health::healthz)).route("/readyz", get(health::readyz));
    let measured = Router::new().route("/metrics", get(metrics::metrics)).with_state(outer.metrics.clone());
    let elsewhere =
        "this node does not answer requests, since it has not the role api (PUBLISH_ROLES): ask one that has";
    behind_layers(health.with_state(readiness).merge(measured).merge(more), elsewhere, outer)
}

/// What every request passes, whatever the node does.
pub struct Outer {
    /// Keep requests within bounds.
    pub bounds: Bounds,
    /// Counts requests.
    pub metrics: Metrics,
    /// Names and measures them.
    pub clock: SharedClock,
}

fn behind_layers(routes: Router, no_route: &'static str, outer: Outer) -> Router {
    let Outer { bounds, metrics, clock } = outer;
    routes
        .fallback(async move || Problem::new(Kind::NotFound, no_route))
        .method_not_allowed_fallback(|| async {
            Problem::new(Kind::MethodNotAllowed, "see the header Allow for the methods of this route")
        })
        .layer(CatchPanicLayer::custom(admission::panicked))
        .layer(middleware::from_fn_with_state(bounds, bounds::keep))
        .layer(middleware::from_fn_with_state(clock.clone(), admission::name_request))
        // The outermost, so that it sees the status that goes out, and all of the time.
        .layer(middleware::from_fn_with_state((metrics, clock), metrics::count))
}
