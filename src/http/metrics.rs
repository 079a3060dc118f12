//! `GET /metrics`, and the counting of requests.

use axum::extract::{MatchedPath, Request, State};
use axum::http::header;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::clock::SharedClock;
use crate::telemetry::metrics::{CONTENT_TYPE, Metrics, NONE};

/// What the service counts and measures
///
/// In Prometheus' text format; every metric says in its HELP what it tells. Asks for no key and does not ask the
/// database: keep it on a private network.
#[utoipa::path(
    get, path = "/metrics", tag = "health", operation_id = "metrics", security(()),
    responses((status = 200, description = "All metrics of this process", body = String, content_type = "text/plain"))
)]
pub(super) async fn metrics(State(metrics): State<Metrics>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], metrics.render())
}

/// Counts an answer, by the pattern of its route: what a caller writes into the path names no series.
pub(super) async fn count(
    State((metrics, clock)): State<(Metrics, SharedClock)>,
    request: Request,
    next: Next,
) -> Response {
    let route = request.extensions().get::<MatchedPath>().cloned();
    let method = request.method().clone();
    let begun = clock.instant();
    let response = next.run(request).await;
    let route = route.as_ref().map_or(NONE, MatchedPath::as_str);
    metrics.answered(route, method.as_str(), response.status().as_u16(), clock.instant() - begun);
    response
}
