//! `POST /publish/batch`: many articles in one call, each answered as if it had come alone.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::task::JoinSet;
use utoipa::openapi::{self, RefOr, Schema};
use utoipa::{IntoResponses, PartialSchema, ToSchema};

use super::AppState;
use super::admission::{Caller, NoQuery, RequestId, json_body, no_idempotency_key};
use super::list_body;
use super::problem::{Kind, Problem, ProblemDocument, body_errors};
use super::publish::{Answered, PublishAnswer, check_callback};
use crate::account::GroupCode;
use crate::article::{BatchArticle, ExternalId, Submission};
use crate::inbound::BODY_MAX_BYTES;
use crate::task::accept::{Acceptance, Acceptor, NotAccepted, Sender};
use crate::tenant::Scope;

/// The most articles in one call: a few statements of the writers, answered within a second or two.
const ARTICLES_MAX: usize = 500;

/// How long the articles of one call may wait for the database, in all. What was not stored by then is answered as
/// unavailable; the callers' clients commonly give up after 30 s.
const WITHIN: Duration = Duration::from_secs(20);

/// The body of `POST /publish/batch` in the OpenAPI document.
pub(super) struct BatchRequest;

impl ToSchema for BatchRequest {}

impl PartialSchema for BatchRequest {
    fn schema() -> RefOr<Schema> {
        let description = "The articles, each at most as large as a body of `POST /publish`.";
        list_body::schema("articles", ARTICLES_MAX, BatchArticle::schema(), description)
    }
}

/// The answer to `POST /publish/batch`.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct BatchAnswer<'a> {
    /// One for each article, in the order sent.
    pub results: Vec<BatchResult<'a>>,
}

/// What became of one article of a batch.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct BatchResult<'a> {
    /// The article's place in the batch, from 0.
    pub index: usize,
    /// The status that `POST /publish` would have answered with.
    #[schema(example = 200)]
    pub http_status: u16,
    /// The task; null when there is a problem.
    #[schema(required)]
    pub task: Option<BatchTask>,
    /// The problem, as `POST /publish` would have answered it; null when there is none.
    #[schema(required)]
    pub problem: Option<ProblemDocument<'a>>,
}

/// A task as `POST /publish` answers it, and what is a header there.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct BatchTask {
    /// The task.
    #[serde(flatten)]
    pub task: PublishAnswer,
    /// Whether the task existed before: by an earlier request, or by an earlier article of this one.
    pub replayed: bool,
}

struct BatchErrors;

impl IntoResponses for BatchErrors {
    fn responses() -> BTreeMap<String, RefOr<openapi::Response>> {
        body_errors(&[
            (400, "`invalid_json`, `invalid_query`, `invalid_header`: also an `Idempotency-Key`"),
            (422, "`validation_failed`: not a list of at most 500 `articles`"),
            (503, "`unavailable`: the same request again is safe"),
        ])
    }
}

/// Hand in many articles
///
/// At most 500 in 32 MiB. Each is accepted, or not, as if it had been sent alone: one that is bad touches no other. An
/// `external_id` that stands twice is new at its first place and a duplicate at the others. The same batch again, or a
/// part of it, is safe.
#[utoipa::path(
    post, path = "/publish/batch", tag = "publish", operation_id = "publish_batch",
    security(("api_key" = [])),
    request_body = BatchRequest,
    responses((status = 200, description = "What became of each", body = BatchAnswer), BatchErrors)
)]
pub(super) async fn publish_batch(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    Extension(RequestId(request_id)): Extension<RequestId>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    caller.need(Scope::Publish)?;
    no_idempotency_key(&headers)?;
    let body = json_body(&headers, body, BODY_MAX_BYTES).await?;
    let begun = state.clock.instant();
    // As it came it takes little; its articles, one by one, take more.
    let place = tokio::time::timeout(WITHIN, state.bounds.batches.acquire()).await;
    let _place = place.ok().and_then(Result::ok).ok_or_else(Problem::unavailable)?;
    let mut batch = Batch { answers: Vec::new(), waiting: Vec::new() };
    for (index, item) in list_body::items(&body, "articles", ARTICLES_MAX)?.into_iter().enumerate() {
        let parsed = parse(&state, item);
        batch.answers.push(None);
        match parsed {
            Ok((submission, key)) => batch.waiting.push(Item { index, submission, key }),
            Err(problem) => batch.answers[index] = Some(Err(problem)),
        }
        // Reading all of it takes a while, in which others have a turn.
        tokio::task::yield_now().await;
    }
    // Every article has its own copy now.
    drop(body);
    let answers = batch.accept(&state, &caller, begun).await;
    caller.tell_quota(state.acceptor.quota(caller.tenant_id), state.clock.now());
    Ok(respond(answers, &request_id))
}

fn parse(state: &AppState, item: &RawValue) -> Result<(Submission, Option<String>), Problem> {
    let (text, limit) = (item.get(), state.body_limit);
    if text.len() > limit {
        let detail = format!("this article has more than {limit} bytes; send a smaller one");
        return Err(Problem::new(Kind::PayloadTooLarge, detail));
    }
    Ok(Submission::parse_in_batch(text.as_bytes(), |url| check_callback(state, url))?)
}

fn respond(answers: Vec<Result<Answered, Problem>>, request_id: &str) -> Response {
    let (mut tasks, mut problems) = (Vec::new(), Vec::new());
    for answer in answers {
        let (task, problem) = match answer {
            Ok(Answered { task, replayed }) => (Some(BatchTask { task, replayed }), None),
            Err(problem) => (None, Some(problem)),
        };
        tasks.push(task);
        problems.push(problem);
    }
    let results = tasks.into_iter().zip(&problems).enumerate().map(|(index, (task, problem))| BatchResult {
        index,
        http_status: problem.as_ref().map_or(StatusCode::OK, Problem::status).as_u16(),
        task,
        problem: problem.as_ref().map(|problem| problem.document(request_id)),
    });
    let answer = BatchAnswer { results: results.collect() };
    let body = serde_json::to_vec(&answer).unwrap_or_default();
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// An article that waits to be handed in.
struct Item {
    index: usize,
    submission: Submission,
    key: Option<String>,
}

/// The articles of one call.
struct Batch {
    answers: Vec<Option<Result<Answered, Problem>>>,
    /// In the order sent.
    waiting: Vec<Item>,
}

/// What is known of an `external_id` that stands more than once.
#[derive(Default)]
struct Known {
    stored: HashSet<ExternalId>,
    lost: HashSet<ExternalId>,
}

impl Batch {
    /// Hands all in, and waits for what becomes of each, [`WITHIN`] its time since it `begun`.
    ///
    /// Of an `external_id` that stands more than once, the later ones wait for the first that is stored: whichever a
    /// writer took first would be the new one otherwise.
    async fn accept(
        mut self,
        state: &AppState,
        caller: &Caller,
        begun: Instant,
    ) -> Vec<Result<Answered, Problem>> {
        let (mut known, sender) = (Known::default(), Arc::new(caller.sender()));
        while !self.waiting.is_empty() {
            let turn = self.turn(&known);
            let left = WITHIN.saturating_sub(state.clock.instant() - begun);
            for done in hand_in(&state.acceptor, &sender, turn, left).await {
                match &done.outcome {
                    Ok(_) | Err(NotAccepted::Duplicate(_)) => known.stored.insert(done.external_id),
                    Err(NotAccepted::Unavailable) => known.lost.insert(done.external_id),
                    Err(_) => false,
                };
                self.answers[done.index] =
                    Some(Answered::of(done.outcome, &done.group_code, state.clock.now()));
            }
            self.give_up(&known);
        }
        // None of these is without an answer, unless handing it in met a fault.
        let fault = || Err(Problem::new(Kind::Internal, "this article met a fault; it is logged"));
        self.answers.into_iter().map(|answer| answer.unwrap_or_else(fault)).collect()
    }

    /// Takes those out whose turn it is: the first of each `external_id`, or all of one that is stored.
    fn turn(&mut self, known: &Known) -> Vec<Item> {
        let mut first = HashSet::new();
        let (turn, later) = std::mem::take(&mut self.waiting).into_iter().partition(|item| {
            let id = &item.submission.external_id;
            known.stored.contains(id) || first.insert(id.clone())
        });
        self.waiting = later;
        turn
    }

    /// Of a first one that may be stored or not, the later ones cannot be told more.
    fn give_up(&mut self, known: &Known) {
        let answers = &mut self.answers;
        self.waiting.retain(|item| {
            let lost = known.lost.contains(&item.submission.external_id);
            if lost {
                answers[item.index] = Some(Err(Problem::unavailable()));
            }
            !lost
        });
    }
}

/// An article that was handed in.
struct Done {
    index: usize,
    external_id: ExternalId,
    group_code: GroupCode,
    outcome: Result<Acceptance, NotAccepted>,
}

/// Hands these in at once. What is written is written, also when the caller goes away.
async fn hand_in(acceptor: &Acceptor, sender: &Arc<Sender>, items: Vec<Item>, within: Duration) -> Vec<Done> {
    let mut handed_in = JoinSet::new();
    for Item { index, submission, key } in items {
        let (acceptor, sender) = (acceptor.clone(), sender.clone());
        handed_in.spawn(async move {
            let (external_id, group_code) = (submission.external_id.clone(), submission.group_code.clone());
            let accepted = acceptor.accept_patiently(&sender, submission, key);
            let outcome = tokio::time::timeout(within, accepted).await;
            let outcome = outcome.unwrap_or(Err(NotAccepted::Unavailable));
            Done { index, external_id, group_code, outcome }
        });
    }
    let mut all = Vec::new();
    while let Some(done) = handed_in.join_next().await {
        match done {
            Ok(done) => all.push(done),
            Err(error) => tracing::error!(%error, "handing an article in met a fault"),
        }
    }
    all
}
