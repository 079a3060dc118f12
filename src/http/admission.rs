//! What every request passes before its handler: its id, its key, its query, its body.

use std::any::Any;
use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequestParts, MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use http_body_util::BodyExt as _;
use hyper::body::Body as _;
use percent_encoding::percent_decode_str;
use tracing::Instrument as _;
use uuid::Uuid;

use super::AppState;
use super::bounds;
use super::gate::{Address, Standing, Told};
use super::problem::{Kind, Problem};
use crate::article::is_idempotency_key;
use crate::clock::SharedClock;
use crate::store::{AuthenticatedKey, QuotaStanding};
use crate::task::accept::Sender;
use crate::tenant::{ApiKey, Scope};

/// The header that names a request.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

const JSON: &str = "application/json";
const MERGE_PATCH: &str = "application/merge-patch+json";

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The longest request id that is taken over from a caller, in characters.
const REQUEST_ID_MAX: usize = 128;

/// What an answer may wait for the database, in all: with it, "unavailable" comes within 2 s.
const DATABASE_BUDGET: Duration = Duration::from_millis(1_800);

/// The largest body of a call that manages accounts and groups, in bytes: a thousand accounts of the longest names come to
/// half of it.
pub(super) const MANAGE_BODY_MAX_BYTES: usize = 512 * 1024;

/// The request's id, for handlers whose answer holds it.
#[derive(Debug, Clone)]
pub(super) struct RequestId(pub String);

/// Names the request, and writes down the problem it ended in.
pub(super) async fn name_request(
    State(clock): State<SharedClock>,
    mut request: Request,
    next: Next,
) -> Response {
    let given = request.headers().get(REQUEST_ID).and_then(|id| id.to_str().ok());
    let request_id = match given.filter(|id| is_request_id(id)) {
        Some(id) => id.to_owned(),
        None => clock.new_id().to_string(),
    };
    request.extensions_mut().insert(RequestId(request_id.clone()));
    let told = Told::default();
    request.extensions_mut().insert(told.clone());
    // The route as it is described, without what a caller put into it.
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    // Of the highest level, or a filter for warnings would take the id away from them.
    let span = tracing::error_span!("request", request_id, method = %request.method(), route);
    let begun = clock.instant();
    let mut response = next.run(request).instrument(span.clone()).await;
    let mut code = None;
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        code = Some(problem.code());
        let allow = response.headers_mut().remove(header::ALLOW);
        response = problem.into_response_for(&request_id);
        response.headers_mut().extend(allow.map(|allow| (header::ALLOW, allow)));
    }
    told.write(response.headers_mut());
    if let Ok(id) = HeaderValue::from_str(&request_id) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    let took = clock.instant() - begun;
    // Whoever hands in a request_id of something that went wrong finds it at the usual level.
    span.in_scope(|| match response.status().as_u16() {
        status @ 500.. => tracing::warn!(status, code, ?took, "answered"),
        status @ 400.. => tracing::info!(status, code, ?took, "refused"),
        status => tracing::debug!(status, ?took, "answered"),
    });
    response
}

fn is_request_id(id: &str) -> bool {
    (1..=REQUEST_ID_MAX).contains(&id.len())
        && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

/// A panic in a handler, as an answer.
#[must_use]
pub(super) fn panicked(_: Box<dyn Any + Send + 'static>) -> Response {
    Problem::new(Kind::Internal, "this request met a fault; it is logged").into_response()
}

/// Who asks, by a live key.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    /// The tenant.
    pub tenant_id: Uuid,
    key: Arc<AuthenticatedKey>,
    told: Told,
    /// What is left of the time that the answer may wait for the database.
    left: Duration,
}

impl Caller {
    /// Refuses a caller whose key lacks the scope.
    pub(super) fn need(&self, scope: Scope) -> Result<(), Problem> {
        if self.key.scopes.contains(&scope) {
            return Ok(());
        }
        Err(Problem::new(Kind::Forbidden, format!("this needs a key with the scope {scope}")))
    }

    /// As whom it hands articles in.
    pub(super) fn sender(&self) -> Sender {
        let AuthenticatedKey { tenant_id, defaults, limits, .. } = &*self.key;
        let limited = limits.articles_per_day.is_some();
        Sender { tenant_id: *tenant_id, defaults: defaults.clone(), limited }
    }

    /// Has the answer tell how the tenant's daily quota stands.
    pub(super) fn tell_quota(&self, quota: Option<QuotaStanding>, now: DateTime<Utc>) {
        // What this node saw under another limit says nothing any more.
        if let Some(quota) = quota.filter(|quota| self.key.limits.articles_per_day == Some(quota.limit)) {
            self.told.tell(Standing::of_quota(quota, now));
        }
    }

    /// The answer, or "unavailable" when it takes too long.
    pub(super) async fn within<T>(&self, answer: impl Future<Output = T>) -> Result<T, Problem> {
        within(self.left, answer).await
    }
}

/// The answer to somebody without a key, or "unavailable" when it takes too long.
pub(super) async fn within_budget<T>(answer: impl Future<Output = T>) -> Result<T, Problem> {
    within(DATABASE_BUDGET, answer).await
}

async fn within<T>(limit: Duration, answer: impl Future<Output = T>) -> Result<T, Problem> {
    tokio::time::timeout(limit, answer).await.map_err(|_| Problem::unavailable())
}

impl FromRequestParts<AppState> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        let begun = state.clock.instant();
        let none = || Problem::new(Kind::Unauthorized, "send the header Authorization: Bearer <api key>");
        let wrong = || Problem::new(Kind::Unauthorized, "this API key is not known, or was revoked");
        let credentials = one_header(&parts.headers, &header::AUTHORIZATION)?.ok_or_else(none)?;
        // RFC 9110 §11.1: the scheme's name is compared without case.
        let (scheme, token) = credentials.split_once(' ').ok_or_else(none)?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(none());
        }
        let key = ApiKey::parse(token.trim()).ok_or_else(wrong)?;
        let Peer { address, told } = Peer::of(parts);
        let known = within_budget(state.gate.admit(&key, address, &told)).await??.ok_or_else(wrong)?;
        let left = DATABASE_BUDGET.saturating_sub(state.clock.instant() - begun);
        Ok(Self { tenant_id: known.tenant_id, key: known, told, left })
    }
}

/// Where a request comes from, with or without a key, and what its answer tells of limits.
pub(super) struct Peer {
    /// The address.
    pub address: Address,
    /// What is told.
    pub told: Told,
}

impl Peer {
    fn of(parts: &Parts) -> Self {
        let told = parts.extensions.get::<Told>().cloned().unwrap_or_default();
        Self { address: Address::of(parts), told }
    }
}

impl<S: Sync> FromRequestParts<S> for Peer {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::of(parts))
    }
}

/// A header that may stand once, as text.
fn one_header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Problem> {
    let bad = |why| Problem::new(Kind::InvalidHeader, format!("the header {name} {why}"));
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(bad("stands more than once"));
    }
    value.to_str().map(Some).map_err(|_| bad("holds other than visible ASCII"))
}

/// The `Idempotency-Key`: 1–255 visible ASCII characters.
pub(super) fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(key) = one_header(headers, &IDEMPOTENCY_KEY)? else { return Ok(None) };
    if is_idempotency_key(key) {
        return Ok(Some(key.to_owned()));
    }
    let rule = "the header Idempotency-Key takes 1–255 visible ASCII characters without blanks";
    Err(Problem::new(Kind::InvalidHeader, rule))
}

/// Refuses the `Idempotency-Key` where each article has its own.
pub(super) fn no_idempotency_key(headers: &HeaderMap) -> Result<(), Problem> {
    if !headers.contains_key(IDEMPOTENCY_KEY) {
        return Ok(());
    }
    let rule = "the header Idempotency-Key is for one article; in a batch, send idempotency_key as a field of each article";
    Err(Problem::new(Kind::InvalidHeader, rule))
}

/// A query without parameters; anything in it is refused by name.
#[derive(Debug, Clone, Copy)]
pub struct NoQuery;

impl<S: Sync> FromRequestParts<S> for NoQuery {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        query(parts.uri.query(), &[]).map(|_| Self)
    }
}

/// The parameters of a query, of which each may stand once; others than `known` are refused by name.
pub(super) fn query(text: Option<&str>, known: &[&str]) -> Result<Vec<(String, String)>, Problem> {
    let bad = |detail: String| Problem::new(Kind::InvalidQuery, detail);
    if percent_decode_str(text.unwrap_or_default()).decode_utf8().is_err() {
        return Err(bad("the query is not UTF-8: percent-encode the bytes of UTF-8".to_owned()));
    }
    let mut parameters = Vec::<(String, String)>::new();
    for (name, value) in url::form_urlencoded::parse(text.unwrap_or_default().as_bytes()) {
        if !known.contains(&&*name) {
            let takes = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(bad(format!("unknown parameter {name:?}; this route takes: {takes}")));
        }
        if parameters.iter().any(|(earlier, _)| *earlier == name) {
            return Err(bad(format!("the parameter {name:?} stands more than once")));
        }
        parameters.push((name.into_owned(), value.into_owned()));
    }
    Ok(parameters)
}

/// Reads a JSON body of at most `limit` bytes.
pub(super) async fn json_body(headers: &HeaderMap, body: Body, limit: usize) -> Result<Vec<u8>, Problem> {
    must_be(headers, &[JSON])?;
    read_body(headers, body, limit).await
}

/// Reads a merge patch (RFC 7396) of at most `limit` bytes; plain JSON is taken for one.
pub(super) async fn patch_body(headers: &HeaderMap, body: Body, limit: usize) -> Result<Vec<u8>, Problem> {
    must_be(headers, &[MERGE_PATCH, JSON])?;
    read_body(headers, body, limit).await
}

/// Reads a JSON body of at most `limit` bytes that need not be there: then, or if it is null, it is an empty object.
pub(super) async fn optional_json_body(
    headers: &HeaderMap,
    body: Body,
    limit: usize,
) -> Result<Vec<u8>, Problem> {
    let read = read_body(headers, body, limit).await?;
    if read.is_empty() {
        return Ok(b"{}".to_vec());
    }
    must_be(headers, &[JSON])?;
    Ok(if read.trim_ascii() == b"null" { b"{}".to_vec() } else { read })
}

/// The media type of a body, one of these.
fn must_be(headers: &HeaderMap, media_types: &[&str]) -> Result<(), Problem> {
    let declared = one_header(headers, &header::CONTENT_TYPE)?.unwrap_or_default();
    let declared = declared.split(';').next().unwrap_or_default().trim();
    if media_types.iter().any(|one| declared.eq_ignore_ascii_case(one)) {
        return Ok(());
    }
    let detail = format!("send the header Content-Type: {}", media_types.join(" or "));
    Err(Problem::new(Kind::UnsupportedMediaType, detail))
}

/// Refuses a compressed body: unfolded, it may be a thousand times as large as what was sent.
fn must_be_plain(headers: &HeaderMap) -> Result<(), Problem> {
    let codings = headers.get_all(header::CONTENT_ENCODING).iter();
    if codings.map(HeaderValue::as_bytes).all(|coding| coding.eq_ignore_ascii_case(b"identity")) {
        return Ok(());
    }
    let detail = "send the body as it is, not compressed, and no header Content-Encoding";
    Err(Problem::new(Kind::UnsupportedMediaType, detail))
}

async fn read_body(headers: &HeaderMap, mut body: Body, limit: usize) -> Result<Vec<u8>, Problem> {
    must_be_plain(headers)?;
    let too_large = || {
        let detail = format!("the body has more than {limit} bytes; send less in one request");
        Problem::new(Kind::PayloadTooLarge, detail)
    };
    // By its own word, before any of it is asked for.
    if body.size_hint().lower() > u64::try_from(limit).unwrap_or(u64::MAX) {
        return Err(too_large());
    }
    let mut read = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(bounds::broken)?.into_data() else { continue };
        if read.len() + data.len() > limit {
            return Err(too_large());
        }
        // A body that grows would hold up to twice its size otherwise, and the room counts what has come.
        if read.capacity() - read.len() < data.len() {
            read.reserve_exact(data.len().max(read.len() / 4));
        }
        read.extend_from_slice(&data);
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(problem: Result<impl std::fmt::Debug, Problem>) -> String {
        format!("{:?}", problem.unwrap_err())
    }

    #[test]
    fn queries_are_read_strictly() {
        assert_eq!(query(None, &[]).unwrap(), []);
        assert_eq!(query(Some("include=a%20b"), &["include"]).unwrap(), [("include".into(), "a b".into())]);
        assert!(code(query(Some("includ=1"), &["include"])).contains("includ"));
        assert!(code(query(Some("a=1&a=2"), &["a"])).contains("more than once"));
        for bytes in ["%ff", "a%ED%A0%80", "%c3"] {
            assert!(code(query(Some(&format!("a={bytes}")), &["a"])).contains("UTF-8"), "{bytes}");
        }
        assert_eq!(query(Some("a=%EF%BF%BD+%c3%a9"), &["a"]).unwrap(), [("a".into(), "\u{fffd} é".into())]);
    }

    #[test]
    fn idempotency_keys_are_visible_ascii() {
        let with = |value: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert(IDEMPOTENCY_KEY, HeaderValue::from_bytes(value).unwrap());
            idempotency_key(&headers)
        };
        assert_eq!(idempotency_key(&HeaderMap::new()).unwrap(), None);
        assert_eq!(with(b"k-1/~!").unwrap().as_deref(), Some("k-1/~!"));
        assert_eq!(with(&[b'x'; 255]).unwrap().map(|key| key.len()), Some(255));
        for bad in [&b""[..], b"a b", "é".as_bytes(), &[b'x'; 256]] {
            assert!(with(bad).is_err(), "{bad:?}");
        }
        let mut twice = HeaderMap::new();
        twice.append(IDEMPOTENCY_KEY, HeaderValue::from_static("a"));
        twice.append(IDEMPOTENCY_KEY, HeaderValue::from_static("a"));
        assert!(idempotency_key(&twice).is_err());
    }

    #[test]
    fn foreign_request_ids_are_kept_when_harmless() {
        assert!(is_request_id("018f-abc_1.x"));
        for bad in ["", "a b", "a\"b", &"x".repeat(129)] {
            assert!(!is_request_id(bad), "{bad:?}");
        }
    }
}
