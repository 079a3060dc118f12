//! Errors as callers see them: RFC 9457 problem documents.
//!
//! A handler returns a [`Problem`]; the outermost layer writes it down, since only there the request's id is known.

use std::collections::BTreeMap;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::openapi::{self, RefOr};
use utoipa::{IntoResponses, ToSchema};

use crate::fields::{FieldError, Invalid};
use crate::json::InvalidJson;
use crate::store::StoreError;

/// The media type of a problem document.
pub(super) const CONTENT_TYPE: &str = "application/problem+json";

/// How long a caller should wait when the database cannot be reached, in seconds.
const RETRY_AFTER_SECONDS: u64 = 1;

/// What went wrong; [`Kind::facts`] gives each its status, code and title.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The body is no JSON that we read.
    InvalidJson,
    /// A query parameter is unknown or bad.
    InvalidQuery,
    /// A header is bad.
    InvalidHeader,
    /// No key, or a wrong one.
    Unauthorized,
    /// The key lacks the scope.
    Forbidden,
    /// No such thing, or no such route.
    NotFound,
    /// The route has no such method.
    MethodNotAllowed,
    /// The body is not declared as JSON.
    UnsupportedMediaType,
    /// Strict mode, and the `external_id` exists.
    DuplicateExternalId,
    /// The state of what it speaks of does not allow it.
    Conflict,
    /// What comes behind the cursor of the feed is no longer kept.
    CursorExpired,
    /// The body comes too slowly.
    RequestTimeout,
    /// The body is over its limit.
    PayloadTooLarge,
    /// The target and the headers are over their limit.
    HeadTooLarge,
    /// Fields break rules.
    ValidationFailed,
    /// There is no such group.
    UnknownGroup,
    /// The group has no accounts.
    EmptyGroup,
    /// Requests come too fast.
    RateLimited,
    /// The articles of the day are used up.
    QuotaExceeded,
    /// The database cannot be reached, or too much is waiting.
    Unavailable,
    /// A fault of ours.
    Internal,
}

impl Kind {
    /// Status, code and title.
    #[must_use]
    pub fn facts(self) -> (StatusCode, &'static str, &'static str) {
        use StatusCode as S;
        match self {
            Self::InvalidJson => (S::BAD_REQUEST, "invalid_json", "The body is not valid JSON"),
            Self::InvalidQuery => (S::BAD_REQUEST, "invalid_query", "A query parameter is unknown or bad"),
            Self::InvalidHeader => (S::BAD_REQUEST, "invalid_header", "A header is bad"),
            Self::Unauthorized => (S::UNAUTHORIZED, "unauthorized", "No valid API key"),
            Self::Forbidden => (S::FORBIDDEN, "forbidden", "The API key may not do this"),
            Self::NotFound => (S::NOT_FOUND, "not_found", "There is no such thing"),
            Self::MethodNotAllowed => {
                (S::METHOD_NOT_ALLOWED, "method_not_allowed", "This route has no such method")
            }
            Self::UnsupportedMediaType => {
                (S::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", "The body must be JSON")
            }
            Self::DuplicateExternalId => (S::CONFLICT, "duplicate_external_id", "This external_id exists"),
            Self::Conflict => (S::CONFLICT, "conflict", "The state does not allow it"),
            Self::CursorExpired => (S::GONE, "cursor_expired", "The cursor is older than what is kept"),
            Self::RequestTimeout => (S::REQUEST_TIMEOUT, "request_timeout", "The body came too slowly"),
            Self::PayloadTooLarge => (S::PAYLOAD_TOO_LARGE, "payload_too_large", "The body is too large"),
            Self::HeadTooLarge => {
                (S::REQUEST_HEADER_FIELDS_TOO_LARGE, "head_too_large", "The request's head is too large")
            }
            Self::ValidationFailed => (S::UNPROCESSABLE_ENTITY, "validation_failed", "Fields break rules"),
            Self::UnknownGroup => (S::UNPROCESSABLE_ENTITY, "unknown_group", "There is no such group"),
            Self::EmptyGroup => (S::UNPROCESSABLE_ENTITY, "empty_group", "The group has no accounts"),
            Self::RateLimited => (S::TOO_MANY_REQUESTS, "rate_limited", "Requests come too fast"),
            Self::QuotaExceeded => (S::TOO_MANY_REQUESTS, "quota_exceeded", "The daily quota is used up"),
            Self::Unavailable => (S::SERVICE_UNAVAILABLE, "unavailable", "The service cannot do this now"),
            Self::Internal => (S::INTERNAL_SERVER_ERROR, "internal", "The service made a mistake"),
        }
    }
}

/// An error, to be answered as a problem document.
#[derive(Debug, Clone)]
pub struct Problem {
    kind: Kind,
    detail: String,
    errors: Vec<FieldError>,
    members: Map<String, Value>,
    retry_after_seconds: Option<u64>,
}

impl Problem {
    /// A problem; `detail` says what to do.
    #[must_use]
    pub fn new(kind: Kind, detail: impl Into<String>) -> Self {
        let retry_after_seconds = (kind == Kind::Unavailable).then_some(RETRY_AFTER_SECONDS);
        Self { kind, detail: detail.into(), errors: Vec::new(), members: Map::new(), retry_after_seconds }
    }

    /// Fields that break rules, all of them.
    #[must_use]
    pub fn invalid_fields(errors: Vec<FieldError>) -> Self {
        let detail = match &errors[..] {
            // The pointer of the body as a whole is empty (RFC 6901).
            [one] if one.pointer.is_empty() => one.detail.clone(),
            [one] => format!("{}: {}", one.pointer, one.detail),
            several => format!("{} fields break rules; see errors", several.len()),
        };
        Self { errors, ..Self::new(Kind::ValidationFailed, detail) }
    }

    /// Whether it is of that kind.
    #[must_use]
    pub fn is(&self, kind: Kind) -> bool {
        self.kind == kind
    }

    /// Its code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.kind.facts().1
    }

    /// The service cannot answer now.
    #[must_use]
    pub fn unavailable() -> Self {
        Self::new(
            Kind::Unavailable,
            "the database cannot be reached or too much is waiting; send the same request again, it is safe",
        )
    }

    /// Adds a member of its own.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Serialize) -> Self {
        let value = serde_json::to_value(value).unwrap_or_default();
        self.members.insert(name.to_owned(), value);
        self
    }

    /// Says after how many seconds the same request may succeed, at least one.
    #[must_use]
    pub(super) fn after(self, seconds: u64) -> Self {
        Self { retry_after_seconds: Some(seconds.max(1)), ..self }
    }

    /// The status it is answered with.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.kind.facts().0
    }

    /// The document, for the request of that id.
    pub(super) fn document<'a>(&'a self, request_id: &'a str) -> ProblemDocument<'a> {
        let (status, code, title) = self.kind.facts();
        ProblemDocument {
            kind: format!("urn:publish-ingest:problem:{code}"),
            title,
            status: status.as_u16(),
            detail: &self.detail,
            code,
            request_id,
            errors: &self.errors,
            members: &self.members,
        }
    }

    /// The answer, for the request of that id.
    #[must_use]
    pub fn into_response_for(self, request_id: &str) -> Response {
        let body = serde_json::to_vec(&self.document(request_id)).unwrap_or_default();
        let mut response = (self.status(), body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(seconds) = self.retry_after_seconds {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        match self.kind {
            // RFC 9110 §11.6.1: a 401 says how to authenticate.
            Kind::Unauthorized => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            // RFC 9110 §12.5.3: a 415 says which codings are taken, lest a body is sent compressed again.
            Kind::UnsupportedMediaType => {
                headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
            }
            // What is left of the body is not waited for.
            Kind::RequestTimeout => {
                headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            _ => {}
        }
        response
    }
}

impl Problem {
    /// The whole answer as HTTP/1.1 writes it, where no server does; the connection is closed after it.
    #[must_use]
    pub(super) fn written_out(self, request_id: &str) -> Vec<u8> {
        let body = serde_json::to_vec(&self.document(request_id)).unwrap_or_default();
        let retry = match self.kind {
            Kind::Unavailable => format!("retry-after: {RETRY_AFTER_SECONDS}\r\n"),
            _ => String::new(),
        };
        let head = format!(
            "HTTP/1.1 {}\r\ncontent-type: {CONTENT_TYPE}\r\ncontent-length: {}\r\nx-request-id: {request_id}\r\n\
             cache-control: no-store\r\n{retry}connection: close\r\n\r\n",
            self.status(),
            body.len(),
        );
        [head.into_bytes(), body].concat()
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = self.status().into_response();
        response.extensions_mut().insert(self);
        response
    }
}

impl From<InvalidJson> for Problem {
    fn from(error: InvalidJson) -> Self {
        Self::new(Kind::InvalidJson, error.to_string())
    }
}

impl From<Invalid> for Problem {
    fn from(invalid: Invalid) -> Self {
        match invalid {
            Invalid::Json(error) => error.into(),
            Invalid::Fields(errors) => Self::invalid_fields(errors),
        }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        if error.is_passing() {
            tracing::warn!(%error, "answered as unavailable");
            return Self::unavailable();
        }
        tracing::error!(%error, "the database refused");
        Self::new(Kind::Internal, "the database refused a statement; it is logged under this request_id")
    }
}

/// The problem document of every error answer (RFC 9457).
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub(super) struct ProblemDocument<'a> {
    /// Names the kind of problem.
    #[serde(rename = "type")]
    kind: String,
    /// The kind in words.
    title: &'static str,
    /// The HTTP status.
    status: u16,
    /// What happened and what to do.
    detail: &'a str,
    /// Stable, `snake_case`.
    #[schema(example = "validation_failed")]
    code: &'static str,
    /// The request's id, also in the header `x-request-id`.
    request_id: &'a str,
    /// The fields that break rules.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    #[schema(required = false)]
    errors: &'a [FieldError],
    #[serde(flatten)]
    #[schema(ignore)]
    members: &'a Map<String, Value>,
}

/// The error answers of a call that reads one thing, in the OpenAPI document.
pub(super) struct ReadErrors;

impl IntoResponses for ReadErrors {
    fn responses() -> BTreeMap<String, RefOr<openapi::Response>> {
        errors(&[
            (400, "`invalid_query`"),
            (401, "`unauthorized`"),
            (403, "`forbidden`"),
            (404, "`not_found`"),
            (503, "`unavailable`"),
        ])
    }
}

/// The error answers of a call that reads a list or what is always there, in the OpenAPI document.
pub(super) struct ListErrors;

impl IntoResponses for ListErrors {
    fn responses() -> BTreeMap<String, RefOr<openapi::Response>> {
        errors(&[
            (400, "`invalid_query`: also a cursor that belongs to other filters"),
            (401, "`unauthorized`"),
            (403, "`forbidden`"),
            (503, "`unavailable`"),
        ])
    }
}

/// Error answers in the OpenAPI document: problem documents of these statuses, with what each may mean. Whoever needs a key
/// may also come too fast.
pub(super) fn errors(answers: &[(u16, &str)]) -> BTreeMap<String, RefOr<openapi::Response>> {
    let problem = || openapi::Content::new(Some(openapi::Ref::from_schema_name("Problem")));
    let answer = |(status, meaning): &(u16, &str)| {
        let response = openapi::ResponseBuilder::new().description(*meaning).content(CONTENT_TYPE, problem());
        (status.to_string(), response.build().into())
    };
    let with_key = answers.iter().any(|(status, _)| *status == 401);
    let too_fast = with_key.then_some(&(429, "`rate_limited`"));
    too_fast.into_iter().chain(answers).map(answer).collect()
}

/// The error answers of a call that takes a body: what any of them may answer, and its own, which go before.
pub(super) fn body_errors(own: &[(u16, &str)]) -> BTreeMap<String, RefOr<openapi::Response>> {
    let mut answers = errors(&[
        (400, "`invalid_json`, `invalid_query`, `invalid_header`"),
        (401, "`unauthorized`"),
        (403, "`forbidden`"),
        (408, "`request_timeout`: the body came too slowly"),
        (413, "`payload_too_large`"),
        (415, "`unsupported_media_type`: also a compressed body"),
    ]);
    answers.extend(errors(own));
    answers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn documents_look_like_this() {
        let error = FieldError { pointer: "/title".into(), code: "required", detail: "is required".into() };
        let problems = [
            Problem::invalid_fields(vec![error.clone()]),
            Problem::invalid_fields(vec![error.clone(), error]),
            Problem::unavailable(),
            Problem::new(Kind::Unauthorized, "d"),
            Problem::new(Kind::RateLimited, "d").after(0),
            Problem::new(Kind::QuotaExceeded, "d").after(3_600),
            Problem::new(Kind::DuplicateExternalId, "d").with("task", [1]).with("hint", "h"),
        ];
        let mut documents = Vec::new();
        for problem in problems {
            let response = problem.into_response_for("r-1");
            let asks = response.headers().get(header::RETRY_AFTER).cloned();
            let challenge = response.headers().get(header::WWW_AUTHENTICATE).cloned();
            let body = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
            documents.push((asks, challenge, serde_json::from_slice::<Value>(&body).unwrap()));
        }
        insta::assert_debug_snapshot!(documents);
    }
}
