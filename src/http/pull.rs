//! `POST /bridge/claim` and `POST /bridge/{publication_id}/heartbeat`: for robots that fetch their articles.

use std::collections::BTreeMap;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State, rejection::PathRejection};
use axum::http::HeaderMap;
use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::openapi::schema::{AdditionalProperties, ArrayBuilder, Type};
use utoipa::openapi::{ObjectBuilder, RefOr, Response, Schema};
use utoipa::{IntoResponses, PartialSchema, ToSchema};
use uuid::Uuid;

use super::AppState;
use super::admission::{Caller, NoQuery, json_body};
use super::problem::{Kind, Problem, body_errors};
use crate::account::{ACCOUNT_ID_MAX, bad_account_id};
use crate::article::Content;
use crate::connector::http_bridge::{LEASE_ID_MAX, PLATFORM};
use crate::fields::{FieldError, Fields, Invalid};
use crate::json::{self, InvalidJson};
use crate::store::{Beat, HandOut, HandedOut, Handing};
use crate::task::pull::{PULL_ACCOUNTS_MAX, PULL_LEASE, PULL_MAX};
use crate::task::report::{beats, lease_id};
use crate::task::run::CONFIRM_LIMIT;
use crate::tenant::Scope;

/// The largest body, in bytes: a hundred accounts of the longest names come to half of it.
const BODY_MAX_BYTES: usize = 32 * 1024;

/// How a robot holds what it fetched.
const HANDING: Handing = Handing { lease: PULL_LEASE, limit: CONFIRM_LIMIT };

/// The body of `POST /bridge/claim`, as it is read.
#[derive(Debug, PartialEq, Eq)]
struct Claim {
    account_ids: Vec<String>,
    max: usize,
}

impl Claim {
    fn parse(body: &[u8]) -> Result<Self, Invalid> {
        let mut fields = Fields::of_body(body, &["platform", "account_ids", "max"])?;
        fields.required("platform");
        if fields.string("platform")?.is_some_and(|platform| platform != PLATFORM) {
            fields.refuse("platform", "not_allowed", format!("only articles of {PLATFORM} are fetched"));
        }
        let account_ids = account_ids(&mut fields)?;
        let max = fields.integer("max", 1, PULL_MAX).unwrap_or(1);
        if !fields.errors().is_empty() {
            return Err(Invalid::Fields(fields.into_errors()));
        }
        Ok(Self { account_ids, max: usize::try_from(max).unwrap_or(1) })
    }
}

/// The accounts, each once; a text that cannot be an account's id is told by its place.
fn account_ids(fields: &mut Fields<'_>) -> Result<Vec<String>, InvalidJson> {
    fields.required("account_ids");
    let Some(raw) = fields.get("account_ids") else { return Ok(Vec::new()) };
    let Some(list) = json::list(raw, PULL_ACCOUNTS_MAX)? else {
        fields.refuse("account_ids", "wrong_type", "send a list of strings");
        return Ok(Vec::new());
    };
    if list.more {
        let detail =
            format!("has more than {PULL_ACCOUNTS_MAX} items: fetch for the rest in another request");
        fields.refuse("account_ids", "too_long", detail);
    }
    if list.items.is_empty() {
        fields.refuse("account_ids", "required", "name at least one account");
    }
    let mut ids = Vec::new();
    for (at, item) in list.items.into_iter().enumerate() {
        let place = format!("account_ids/{at}");
        if !item.get().starts_with('"') {
            fields.refuse(place, "wrong_type", "send a string");
            continue;
        }
        let id = serde_json::from_str::<String>(item.get())?;
        match bad_account_id(&id) {
            Some(bad) => fields.refuse(place, "bad_format", bad.to_string()),
            None if ids.contains(&id) => fields.refuse(place, "not_allowed", "stands in the list already"),
            None => ids.push(id),
        }
    }
    Ok(ids)
}

/// The body of `POST /bridge/claim` in the `OpenAPI` document. It is read by [`Claim::parse`].
pub(super) struct ClaimRequest;

impl ToSchema for ClaimRequest {}

impl PartialSchema for ClaimRequest {
    fn schema() -> RefOr<Schema> {
        let id = ObjectBuilder::new()
            .schema_type(Type::String)
            .max_length(Some(ACCOUNT_ID_MAX))
            .pattern(Some("^[A-Za-z0-9._@-]{1,128}$"));
        let ids = ArrayBuilder::new()
            .items(id)
            .min_items(Some(1))
            .max_items(Some(PULL_ACCOUNTS_MAX))
            .unique_items(true)
            .description(Some("The accounts to fetch for: such as have no `endpoint`."));
        ObjectBuilder::new()
            .schema_type(Type::Object)
            .examples([json!({"platform": PLATFORM, "account_ids": ["robot"], "max": 1})])
            .property(
                "platform",
                ObjectBuilder::new().schema_type(Type::String).enum_values(Some([PLATFORM])),
            )
            .property("account_ids", ids)
            .property(
                "max",
                ObjectBuilder::new()
                    .schema_type(Type::Integer)
                    .minimum(Some(1))
                    .maximum(Some(PULL_MAX))
                    .default(Some(json!(1)))
                    .description(Some("The most articles to fetch.")),
            )
            .required("platform")
            .required("account_ids")
            .additional_properties(Some(AdditionalProperties::FreeForm(false)))
            .into()
    }
}

/// Articles that were fetched.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ClaimAnswer {
    /// What was left behind first, then what waits the longest; none: nothing is due.
    pub jobs: Vec<JobView>,
}

/// An article to be published by the robot that fetched it.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct JobView {
    /// The publication, which a report names.
    pub publication_id: Uuid,
    /// Which run of it: a report tells of this one.
    pub round: i32,
    /// The caller's id of the article.
    pub external_id: String,
    /// The account to publish on.
    pub account_id: String,
    /// What to publish.
    pub article: ArticleView,
    /// By which the robot remembers what it published: the same for every try and round of one article on one account, and
    /// the mark to leave on the platform where it can be searched for.
    pub webhook_id: String,
    /// Names this lease: for heartbeats and reports. The history shows the try under it, as `request_id`.
    pub lease_id: String,
    /// Whether it was fetched before, and nobody has said what came of it: look whether it is there before you post it.
    pub attempted_before: bool,
    /// Until when no other robot gets it; a heartbeat makes it longer. Do not begin to post after that.
    pub lease_until: DateTime<Utc>,
}

/// An article, in the words of a request to an endpoint.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ArticleView {
    /// The title.
    pub title: String,
    /// The content.
    pub content_html: String,
    /// The summary.
    #[schema(required)]
    pub summary: Option<String>,
    /// The cover image.
    #[schema(required)]
    pub cover_url: Option<String>,
    /// Where the article stands first.
    #[schema(required)]
    pub canonical_url: Option<String>,
    /// The author.
    #[schema(required)]
    pub author: Option<String>,
    /// The tags, in order.
    pub tags: Vec<String>,
}

impl From<Content> for ArticleView {
    fn from(content: Content) -> Self {
        Self {
            title: content.title,
            content_html: content.content_html,
            summary: content.summary,
            cover_url: content.cover_url,
            canonical_url: content.canonical_url,
            author: content.author,
            tags: content.tags,
        }
    }
}

impl From<HandedOut> for JobView {
    fn from(job: HandedOut) -> Self {
        Self {
            publication_id: job.publication_id,
            round: job.round,
            external_id: job.external_id,
            account_id: job.account_id,
            article: job.content.into(),
            webhook_id: job.marker,
            lease_id: lease_id(job.publication_id, job.fence),
            attempted_before: job.attempted_before,
            lease_until: job.lease_until,
        }
    }
}

struct ClaimErrors;

impl IntoResponses for ClaimErrors {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        body_errors(&[
            (422, "`validation_failed`: also an account that is not there, or that articles are sent to"),
            (503, "`unavailable`: the same request again is safe"),
        ])
    }
}

struct HeartbeatErrors;

impl IntoResponses for HeartbeatErrors {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        body_errors(&[
            (404, "`not_found`"),
            (409, "`conflict`: it is not the robot's any more; do not post it"),
            (422, "`validation_failed`"),
            (503, "`unavailable`: the same request again is safe"),
        ])
    }
}

/// Fetch articles to publish
///
/// For a robot behind an `http_bridge` account without an `endpoint`. What it gets is its own for five minutes, and longer by
/// heartbeats; it reports by `POST /bridge/{publication_id}/results`. What it does not report is handed out again after that,
/// with `attempted_before`: then, look before you post. At most `max_in_flight` articles of an account are in hand.
#[utoipa::path(
    post, path = "/bridge/claim", tag = "bridge", operation_id = "claim_jobs",
    security(("api_key" = [])),
    request_body = ClaimRequest,
    responses((status = 200, description = "What is due", body = ClaimAnswer), ClaimErrors)
)]
pub(super) async fn post_claim(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<ClaimAnswer>, Problem> {
    caller.need(Scope::Publish)?;
    let body = json_body(&headers, body, BODY_MAX_BYTES).await?;
    let Claim { account_ids, max } = Claim::parse(&body)?;
    let tenant_id = caller.tenant_id;
    let handing = async {
        let marker_key = state.store.marker_key(tenant_id, &state.vault).await?;
        state.store.hand_out(tenant_id, (PLATFORM, &account_ids), max, HANDING, &marker_key).await
    };
    match caller.within(handing).await?? {
        HandOut::Jobs(jobs) => Ok(Json(ClaimAnswer { jobs: jobs.into_iter().map(Into::into).collect() })),
        HandOut::Unfit(unfit) => Err(Problem::invalid_fields(unfit.into_iter().map(unfit_account).collect())),
    }
}

fn unfit_account((at, is_there): (usize, bool)) -> FieldError {
    let detail = if is_there {
        "articles are sent to the endpoint of this account: take its setting `endpoint` away to fetch them"
    } else {
        "there is no such account of http_bridge: see GET /accounts"
    };
    FieldError { pointer: format!("/account_ids/{at}"), code: "not_allowed", detail: detail.to_owned() }
}

/// The body of a heartbeat, as it is read: nothing of it is needed where an article was handed out once.
#[derive(Debug, Default, PartialEq, Eq)]
struct Heartbeat {
    round: Option<i32>,
    lease_id: Option<String>,
}

impl Heartbeat {
    fn parse(body: &[u8]) -> Result<Self, Invalid> {
        let mut fields = Fields::of_body(body, &["round", "lease_id"])?;
        let round = fields.integer("round", 1, i32::MAX);
        let lease_id = fields.text("lease_id", Some(LEASE_ID_MAX), false)?;
        if fields.errors().is_empty() {
            Ok(Self { round, lease_id })
        } else {
            Err(Invalid::Fields(fields.into_errors()))
        }
    }
}

/// The body of a heartbeat in the `OpenAPI` document. It is read by [`Heartbeat::parse`].
pub(super) struct HeartbeatRequest;

impl ToSchema for HeartbeatRequest {}

impl PartialSchema for HeartbeatRequest {
    fn schema() -> RefOr<Schema> {
        let round = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1)).maximum(Some(i32::MAX));
        let lease =
            ObjectBuilder::new().schema_type(Type::String).max_length(Some(LEASE_ID_MAX)).description(Some(
                "As the job named it. Needed where the article was handed out more than once.",
            ));
        ObjectBuilder::new()
            .schema_type(Type::Object)
            .property("round", round)
            .property("lease_id", lease)
            .additional_properties(Some(AdditionalProperties::FreeForm(false)))
            .examples([Value::Object(serde_json::Map::new())])
            .into()
    }
}

/// A robot goes on.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct HeartbeatAnswer {
    /// Until when no other robot gets it now.
    pub lease_until: DateTime<Utc>,
}

/// Keep an article that was fetched
///
/// For five minutes more from now, and not beyond a day after it was first fetched. Answered 409 when it is not this robot's
/// any more: it was handed out again, has ended, or is in another round.
#[utoipa::path(
    post, path = "/bridge/{publication_id}/heartbeat", tag = "bridge", operation_id = "keep_job",
    security(("api_key" = [])),
    params(("publication_id" = Uuid, Path, description = "As the job named it")),
    request_body = HeartbeatRequest,
    responses((status = 200, description = "It is kept", body = HeartbeatAnswer), HeartbeatErrors)
)]
pub(super) async fn post_heartbeat(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    publication_id: Result<Path<Uuid>, PathRejection>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<HeartbeatAnswer>, Problem> {
    caller.need(Scope::Publish)?;
    let not_found = || Problem::new(Kind::NotFound, "no robot was given a publication of this id");
    let Ok(Path(publication_id)) = publication_id else { return Err(not_found()) };
    let body = json_body(&headers, body, BODY_MAX_BYTES).await?;
    let Heartbeat { round, lease_id } = Heartbeat::parse(&body)?;
    let decide = |standing, held| beats(round, lease_id.as_deref(), standing, held);
    let named = (publication_id, PLATFORM);
    match caller.within(state.store.heartbeat(caller.tenant_id, named, HANDING, decide)).await?? {
        None => Err(not_found()),
        Some(Beat::Refused(why)) => {
            Err(Problem::new(Kind::Conflict, format!("{why}: it is not this robot's, so do not post it")))
        }
        Some(Beat::Until(lease_until)) => Ok(Json(HeartbeatAnswer { lease_until })),
    }
}
