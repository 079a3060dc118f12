//! The one HTTP client that calls what tenants name: guarded, bounded, and by itself.
//!
//! Every URL and every address it leads to is judged at every call ([`address`]): a literal address before the
//! connection is asked for, since the HTTP library dials those without its resolver; a name when it is resolved, so
//! that a name which changes its mind (DNS rebinding) is judged by what is dialled. A connection that is kept was
//! judged when it was made. No redirect is followed, no proxy of the environment used, nothing decompressed, nothing
//! sent a second time: one call is at most one request.

use std::error::Error as _;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{
    AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, DATE, HeaderMap, HeaderName, HeaderValue, LOCATION,
    RETRY_AFTER,
};

use crate::clock::SharedClock;

pub mod address;
mod port;
mod resolver;
pub mod retry_after;
#[cfg(test)]
mod tests;

pub use address::{Policy, Refusal, receiver};
use resolver::{Guard, Lookup, system_lookup};
pub use retry_after::{RETRY_AFTER_MAX, retry_after};

/// What the client calls itself.
pub const USER_AGENT: &str = concat!("publish-ingest/", env!("CARGO_PKG_VERSION"));

/// Idle connections kept per receiver: as many as it is called at once while it works as usual, or connections would be made
/// and closed for nothing; each idle one costs a descriptor, for [`IDLE_MAX`].
const IDLE_PER_RECEIVER_MAX: usize = 16;

/// How long an idle connection is kept: shorter than common servers keep theirs (Node closes after 5 s), since a request that
/// meets a connection which is just being closed is lost, and nobody knows whether it arrived.
const IDLE_MAX: Duration = Duration::from_secs(4);

/// How far an HTTP/2 receiver may send ahead of us on one answer, in bytes: an image of 10 MiB from 100 ms away takes
/// 4 s, and 1,024 callbacks whose long answers are not read hold 256 MiB.
const STREAM_WINDOW_BYTES: u32 = 256 * 1024;

/// How far an HTTP/2 receiver may send ahead of us on one connection, in bytes.
const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;

/// The most header bytes of an HTTP/2 answer: what browsers and proxies take, and far more than is looked at.
const HEADERS_MAX_BYTES: u32 = 16 * 1024;

/// The most header fields of an HTTP/1 answer, which may have about 400 KiB: its bytes have the library's own limit, which
/// cannot be set. A hundred callbacks that are answered so hold 40 MiB, until their deadline at the latest.
const HEADERS_MAX: usize = 100;

/// How long it may take to be connected, names and TLS included: a lost packet is sent again after 1 s and after 3 s
/// (RFC 6298 §2), and a call that was not connected proves that nothing was sent, which the end of its deadline does not.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// The longest `Retry-After` text that is passed on, in bytes: the longest date form has 33.
const RETRY_AFTER_TEXT_MAX: usize = 64;

/// The longest `Content-Type` that is passed on, in bytes: two names of 127 (RFC 6838 §4.2) and a parameter.
const CONTENT_TYPE_MAX: usize = 320;

/// The longest `Date` that is passed on, in bytes: the longest date form has 33.
const DATE_MAX: usize = 64;

/// The longest `Location` that is passed on, in bytes: as long as an article's URLs may be.
const LOCATION_MAX: usize = 2_048;

/// What is asked of a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Read.
    Get,
    /// Create, or act.
    Post,
    /// Replace.
    Put,
    /// Remove.
    Delete,
}

impl Method {
    fn of_library(self) -> reqwest::Method {
        match self {
            Self::Get => reqwest::Method::GET,
            Self::Post => reqwest::Method::POST,
            Self::Put => reqwest::Method::PUT,
            Self::Delete => reqwest::Method::DELETE,
        }
    }
}

/// One request. It has no `Debug`: URL, headers and body may hold secrets.
pub struct Call<'a> {
    /// What is asked.
    pub method: Method,
    /// Of which URL, in full; judged at every call.
    pub url: &'a str,
    /// Beside those that HTTP itself needs and `user-agent`.
    pub headers: &'a [(&'static str, String)],
    /// The body; empty: none is sent (`POST` and `PUT`: one of no bytes).
    pub body: Vec<u8>,
    /// How much the call may take.
    pub limits: Limits,
}

/// How much a call may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// One deadline for all of it: resolving, connecting, TLS, the headers and the answer's body.
    pub deadline: Duration,
    /// The bytes that are read of the answer's body; what is longer is cut off, and the connection closed.
    pub answer_bytes: usize,
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status; a redirect's is here too, since none is followed.
    pub status: u16,
    /// The `Retry-After` field as it was sent, to be read by [`retry_after()`]; none if it is not readable text or
    /// longer than 64 bytes.
    pub retry_after: Option<String>,
    /// The `Content-Type` field as it was sent; none if it is not readable text or longer than 320 bytes. It is what
    /// the other side says, and proves nothing.
    pub content_type: Option<String>,
    /// The `Location` field as it was sent, perhaps relative; none if it is not readable text or longer than 2,048
    /// bytes.
    pub location: Option<String>,
    /// The `Date` field as it was sent, when the other side's clock says it answered; none if it is not readable text or
    /// longer than 64 bytes.
    pub date: Option<String>,
    /// The first bytes of the body, at most [`Limits::answer_bytes`], not decompressed.
    pub head: Vec<u8>,
    /// Whether the body may go on after `head`: it filled the limit, and its length was not told or is more.
    pub cut: bool,
    /// How long the call took.
    pub elapsed: Duration,
}

/// Why there is no answer. The texts are safe to show to a tenant: no address, no resolver's or library's words.
/// Those are in the source, for the operator's log.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// A rule forbids the call.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A header that we were to send is not one (RFC 9110 §5.5).
    #[error("the header {0} has a name or value that cannot be sent")]
    Header(&'static str),
    /// https was asked for, and this machine trusts no certificate authority.
    #[error(
        "https cannot be called: this service has no certificate authorities to trust; the operator must install \
         the system's CA certificates and restart it"
    )]
    NoRoots,
    /// The name has no address, or the resolver failed.
    #[error("the host's name could not be resolved: check its DNS")]
    Resolve(#[source] reqwest::Error),
    /// No connection was made.
    #[error("no connection could be made: check that the receiver listens on this host and port")]
    Connect(#[source] reqwest::Error),
    /// No connection was made in time.
    #[error(
        "no connection was made within {} ms: check the host's DNS, that the receiver listens on this port, and that \
         no firewall stands before it",
        CONNECT_MAX.as_millis()
    )]
    Unreachable(#[source] reqwest::Error),
    /// No agreement on TLS was reached, or the certificate is not trusted.
    #[error("the TLS handshake failed: check the receiver's certificate and that the port speaks TLS")]
    Tls(#[source] reqwest::Error),
    /// The deadline passed before the answer was complete.
    #[error("no complete answer came within {} ms", .0.as_millis())]
    Timeout(Duration),
    /// The connection was lost, or what came is not HTTP.
    #[error("the connection was lost before the answer was complete, or the answer was not valid HTTP")]
    Protocol(#[source] reqwest::Error),
}

impl CallError {
    /// Whether it is certain that nothing of the request was sent, so that it can have had no effect.
    ///
    /// The end of the deadline proves nothing, even if it struck while the connection was being made.
    #[must_use]
    pub fn proved_unsent(&self) -> bool {
        match self {
            Self::Refused(_)
            | Self::Header(_)
            | Self::NoRoots
            | Self::Resolve(_)
            | Self::Connect(_)
            | Self::Unreachable(_)
            | Self::Tls(_) => true,
            Self::Timeout(_) | Self::Protocol(_) => false,
        }
    }

    fn from_library(error: reqwest::Error) -> Self {
        // A callback URL may hold a secret in its path.
        let error = error.without_url();
        let mut refusal = None;
        let mut io_kind = None;
        let mut source = error.source();
        while let Some(cause) = source {
            refusal = refusal.or_else(|| cause.downcast_ref::<Refusal>().copied());
            io_kind = io_kind.or_else(|| cause.downcast_ref::<io::Error>().map(innermost_kind));
            source = cause.source();
        }
        match refusal {
            Some(refusal) => Self::Refused(refusal),
            None if error.is_dns() => Self::Resolve(error),
            None if error.is_connect() && error.is_timeout() => Self::Unreachable(error),
            // The TLS library reports its alerts as invalid data, and a peer that hangs up as an unexpected end.
            None if error.is_connect() => match io_kind {
                Some(io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) => Self::Tls(error),
                _ => Self::Connect(error),
            },
            None => Self::Protocol(error),
        }
    }
}

/// The kind of the first cause: an I/O error passes over the one that it wraps when it is asked for its source.
fn innermost_kind(error: &io::Error) -> io::ErrorKind {
    let wrapped = error.get_ref().and_then(|inner| inner.downcast_ref::<io::Error>());
    wrapped.map_or(error.kind(), innermost_kind)
}

/// The client could not be set up; the source says what the HTTP library found.
#[derive(Debug, thiserror::Error)]
#[error("the outbound HTTP client could not be set up")]
pub struct SetupError(#[from] reqwest::Error);

/// Which certificate authorities are trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Roots {
    System,
    Nobody,
}

/// The guarded client. Clones share their connections.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    policy: Arc<Policy>,
    clock: SharedClock,
    roots: Roots,
}

impl Client {
    /// A client that keeps to `policy`, trusts the system's certificate authorities and resolves by the system.
    ///
    /// A machine without certificate authorities gets a client that can call `http` only
    /// ([`Client::can_call_https`]); every `https` call is then [`CallError::NoRoots`].
    pub fn new(policy: Policy, clock: SharedClock) -> Result<Self, SetupError> {
        let lookup = system_lookup();
        // The library refuses to be set up without any roots; http needs none.
        Self::build(policy.clone(), clock.clone(), lookup.clone(), CONNECT_MAX, Roots::System)
            .or_else(|_| Self::build(policy, clock, lookup, CONNECT_MAX, Roots::Nobody))
    }

    fn build(
        policy: Policy,
        clock: SharedClock,
        lookup: Lookup,
        connect_max: Duration,
        roots: Roots,
    ) -> Result<Self, SetupError> {
        let policy = Arc::new(policy);
        let guard = Guard { policy: policy.clone(), lookup };
        let builder = reqwest::Client::builder()
            .user_agent(USER_AGENT)
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .no_proxy()
            .referer(false)
            // Other crates of a build may switch the library's decompression on.
            .no_gzip()
            .no_brotli()
            .no_zstd()
            .no_deflate()
            .dns_resolver(guard)
            .connect_timeout(connect_max)
            .http1_max_headers(HEADERS_MAX)
            .pool_max_idle_per_host(IDLE_PER_RECEIVER_MAX)
            .pool_idle_timeout(IDLE_MAX)
            .http2_initial_stream_window_size(STREAM_WINDOW_BYTES)
            .http2_initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .http2_max_header_list_size(HEADERS_MAX_BYTES)
            .tls_backend_rustls();
        let builder = match roots {
            Roots::System => builder,
            Roots::Nobody => builder.tls_certs_only([]),
        };
        Ok(Self { http: builder.build()?, policy, clock, roots })
    }

    /// Whether this machine has certificate authorities to trust: a start without them deserves a warning.
    #[must_use]
    pub fn can_call_https(&self) -> bool {
        self.roots == Roots::System
    }

    /// The rules that the client keeps to.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Sends one request and reads the answer, within the call's limits.
    ///
    /// Any status is an answer. A body longer than the limit is cut; a body that does not end, neither by itself nor
    /// by the limit, before the deadline is a timeout: the status alone does not make an answer.
    pub async fn send(&self, call: Call<'_>) -> Result<Answer, CallError> {
        let started = self.clock.instant();
        // A literal address never comes to the resolver, so it is judged here, at every call.
        let url = self.policy.check_url(call.url)?;
        if url.scheme() == "https" && !self.can_call_https() {
            return Err(CallError::NoRoots);
        }
        let request = self.http.request(call.method.of_library(), url).headers(header_map(call.headers)?);
        let request = match (call.body.is_empty(), call.method) {
            (true, Method::Get | Method::Delete) => request,
            // The library leaves it out, and servers may refuse such a request with 411 (RFC 9110 §8.6).
            (true, Method::Post | Method::Put) => request.header(CONTENT_LENGTH, 0),
            (false, _) => request.body(call.body),
        };
        let limits = call.limits;
        let mut answer = tokio::time::timeout(limits.deadline, exchange(request, limits.answer_bytes))
            .await
            .map_err(|_| CallError::Timeout(limits.deadline))?
            .map_err(CallError::from_library)?;
        answer.elapsed = self.clock.instant().duration_since(started);
        Ok(answer)
    }
}

/// The answer, but for how long it took.
async fn exchange(request: reqwest::RequestBuilder, limit: usize) -> reqwest::Result<Answer> {
    let mut response = request.send().await?;
    let mut answer = Answer {
        status: response.status().as_u16(),
        retry_after: field(&response, &RETRY_AFTER, RETRY_AFTER_TEXT_MAX),
        content_type: field(&response, &CONTENT_TYPE, CONTENT_TYPE_MAX),
        location: field(&response, &LOCATION, LOCATION_MAX),
        date: field(&response, &DATE, DATE_MAX),
        head: Vec::new(),
        cut: false,
        elapsed: Duration::ZERO,
    };
    let told = response.content_length();
    let head = &mut answer.head;
    while head.len() < limit {
        let Some(chunk) = response.chunk().await? else { break };
        head.extend_from_slice(&chunk[..chunk.len().min(limit - head.len())]);
    }
    // To wait for the end of a body that fills the limit would let it hold the call until the deadline.
    answer.cut = head.len() == limit && told.is_none_or(|told| told != limit as u64);
    // An answer that is dropped before its end closes its connection (HTTP/2: its stream).
    Ok(answer)
}

fn field(response: &reqwest::Response, name: &HeaderName, max_bytes: usize) -> Option<String> {
    let text = response.headers().get(name)?.to_str().ok()?;
    (text.len() <= max_bytes).then(|| text.to_owned())
}

fn header_map(headers: &[(&'static str, String)]) -> Result<HeaderMap, CallError> {
    let mut map = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        let refused = || CallError::Header(name);
        let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| refused())?;
        let mut value = HeaderValue::from_str(value).map_err(|_| refused())?;
        // Kept out of the library's debug output, and of HTTP/2's header tables (RFC 7541 §7.1.3).
        value.set_sensitive(key == AUTHORIZATION);
        map.append(key, value);
    }
    Ok(map)
}
