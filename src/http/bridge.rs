//! `POST /bridge/{publication_id}/results`.

use std::collections::BTreeMap;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State, rejection::PathRejection};
use axum::http::HeaderMap;
use serde::Serialize;
use utoipa::openapi::{RefOr, Response};
use utoipa::{IntoResponses, ToSchema};
use uuid::Uuid;

use super::AppState;
use super::admission::{Caller, NoQuery, json_body};
use super::problem::{Kind, Problem, body_errors};
use crate::connector::http_bridge::{PLATFORM, Reported, ResultsRequest};
use crate::store::ReportTaken;
use crate::task::report::decide;
use crate::tenant::Scope;

/// The largest report, in bytes: a URL, an id and a message.
const REPORT_MAX_BYTES: usize = 64 * 1024;

/// A report was taken.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ReportAnswer {
    /// The publication it told of.
    pub publication_id: Uuid,
    /// The round it told of.
    pub round: i32,
}

struct ReportErrors;

impl IntoResponses for ReportErrors {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        body_errors(&[
            (404, "`not_found`"),
            (409, "`conflict`: another round, or nobody waits for it any more"),
            (422, "`validation_failed`"),
            (
                503,
                "`unavailable`: also while the article is being sent again; the same request again is safe",
            ),
        ])
    }
}

/// Report what came of an article
///
/// For the endpoint behind an `http_bridge` account that answered 202, and for a robot that fetched it. A report counts for the present round of a
/// publication that runs; a success is also taken after `outcome_unknown`. A report that was taken before is answered 409.
#[utoipa::path(
    post, path = "/bridge/{publication_id}/results", tag = "bridge", operation_id = "report_result",
    security(("api_key" = [])),
    params(("publication_id" = Uuid, Path, description = "As the request to the endpoint named it")),
    request_body = ResultsRequest,
    responses(
        (status = 200, description = "Taken", body = ReportAnswer),
        ReportErrors,
    )
)]
pub(super) async fn post_results(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    publication_id: Result<Path<Uuid>, PathRejection>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<ReportAnswer>, Problem> {
    caller.need(Scope::Publish)?;
    let not_found = || Problem::new(Kind::NotFound, "no bridge was asked for a publication of this id");
    let Ok(Path(publication_id)) = publication_id else { return Err(not_found()) };
    let body = json_body(&headers, body, REPORT_MAX_BYTES).await?;
    let reported = Reported::parse(&body)?;
    let (tenant_id, round) = (caller.tenant_id, reported.round);
    let decide = |standing, held| decide(reported, tenant_id, standing, held);
    let taking = state.store.report(tenant_id, publication_id, PLATFORM, state.telling, decide);
    match caller.within(taking).await?? {
        None => Err(not_found()),
        Some(ReportTaken::Refused(why)) => {
            Err(Problem::new(Kind::Conflict, format!("{why}: nobody waits for this report")))
        }
        Some(ReportTaken::NotNow) => {
            let detail =
                "the article is being sent again just now, and that answer counts; report once more after it";
            Err(Problem::new(Kind::Unavailable, detail))
        }
        Some(ReportTaken::Done) => {
            state.work.wake(tenant_id);
            state.deliver.wake(tenant_id);
            Ok(Json(ReportAnswer { publication_id, round }))
        }
    }
}
