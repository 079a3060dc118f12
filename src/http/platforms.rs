//! `GET /platforms`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::AppState;
use super::admission::{Caller, NoQuery};
use super::problem::{ListErrors, Problem};
use crate::connector::{Connector, Description};
use crate::tenant::Scope;

/// A platform that is set up here.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct PlatformView {
    /// Its name, as accounts have it.
    #[schema(example = "static_site")]
    pub platform: &'static str,
    /// What can be promised about "once": `native_key`, `draft_then_publish`, `search` or `at_most_once`.
    #[schema(example = "native_key")]
    pub guarantee: &'static str,
    #[serde(flatten)]
    description: Description,
}

/// All platforms.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Platforms {
    /// By name.
    pub platforms: Vec<PlatformView>,
}

/// See what can be published to
///
/// What each platform promises, what an account of it needs, and what it takes.
#[utoipa::path(
    get, path = "/platforms", tag = "accounts", operation_id = "get_platforms",
    security(("api_key" = [])),
    responses(
        (status = 200, description = "The platforms", body = Platforms),
        ListErrors,
    )
)]
pub(super) async fn get_platforms(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
) -> Result<Json<Platforms>, Problem> {
    caller.need(Scope::Read)?;
    let view = |(platform, connector): (&&'static str, &Arc<dyn Connector>)| {
        let guarantee = connector.guarantee().as_str();
        PlatformView { platform, guarantee, description: connector.describe() }
    };
    let mut platforms = state.connectors.iter().map(view).collect::<Vec<_>>();
    platforms.sort_by_key(|view| view.platform);
    Ok(Json(Platforms { platforms }))
}
