//! How much callers may take. Every limit has its reason beside it.

use std::time::Duration;

/// The most headers of a request: a client sends about ten, and proxies and content networks add about thirty.
pub const HEADERS_MAX: usize = 64;

/// The longest head of a request, in bytes of its target, its headers' names and values: the longest target is a search
/// by an `external_id` of 200 characters, 2,400 bytes percent-encoded, with its cursor; the longest header is a
/// request's cookies, which nobody sends here.
pub const HEAD_MAX_BYTES: usize = 16 * 1024;

/// How much of a head is read at all, in bytes: twice the limit, so that a head a little too long still gets the
/// answer of a handler; times [`Limits::connections`], what slow heads can hold.
pub(super) const HEAD_READ_MAX_BYTES: usize = 2 * HEAD_MAX_BYTES;

/// The same over HTTP/2, where each header counts 32 bytes more (RFC 9113 §10.5.1).
pub(super) const HEADER_LIST_MAX_BYTES: u32 = 32 * 1024;

/// The most requests under way on a node: twice the connections, so that one request on each never reaches it; more
/// come over HTTP/2 alone, at some KiB each.
pub const REQUESTS_MAX: usize = 4_096;

/// The largest body, in bytes: a batch of 500 articles of usual size.
pub const BODY_MAX_BYTES: usize = 32 * 1024 * 1024;

/// The slowest that a body may come in the long run, in bytes a second: a weak mobile uplink.
pub const BODY_RATE_MIN_BYTES: u32 = 64 * 1024;

/// The most requests at once on a connection of HTTP/2: the least that RFC 9113 §6.5.2 recommends.
pub const STREAMS_MAX: u32 = 100;

/// How much of a body HTTP/2 may send before it is asked for, in bytes: the protocol's own default (RFC 9113 §6.9.2).
pub(super) const STREAM_WINDOW_BYTES: u32 = 65_535;

/// The same for all bodies of a connection together: two of them at full speed; times [`Limits::connections`], what may
/// arrive before anybody has seen a key.
pub(super) const CONNECTION_WINDOW_BYTES: u32 = 128 * 1024;

/// The most requests that a connection may break off beyond those it lets finish, so that nobody has work done for
/// nothing by the thousand (CVE-2023-44487, "rapid reset"); a client with a short patience stays below.
pub const ABANDONED_MAX: u32 = 100;

/// The most requests that HTTP/2 may break off before they are looked at: the number that the library's authors chose
/// against that attack.
pub(super) const PENDING_RESETS_MAX: usize = 20;

/// The most faults of its own making that a connection of HTTP/2 may cause: a well-made client makes none.
pub(super) const LOCAL_RESETS_MAX: usize = 100;

/// What an operator can set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most connections of a node: some KiB each, and the files that a process may have open.
    pub connections: usize,
    /// The most of them from one address (IPv6: one /64): half, so that nobody has all. Behind a proxy, all come from
    /// one address.
    pub connections_per_address: usize,
    /// How long the head of a request may take: it is one packet, or two.
    pub head_within: Duration,
    /// How long a connection may be kept between two requests: above the 60 s for which proxies commonly keep theirs, so
    /// that they close first and lose no request.
    pub idle_within: Duration,
    /// How long a body may take, beyond what [`BODY_RATE_MIN_BYTES`] grants for what has come.
    pub body_within: Duration,
    /// How long a caller may leave an answer untaken.
    pub answer_within: Duration,
    /// The bodies in memory at once, in bytes, without the first 32 KiB of each; two of [`BODY_MAX_BYTES`] at least.
    pub body_memory_bytes: usize,
}

impl Limits {
    /// The limits without settings.
    pub const DEFAULT: Self = Self {
        connections: 2_048,
        connections_per_address: 1_024,
        head_within: Duration::from_secs(10),
        idle_within: Duration::from_secs(75),
        body_within: Duration::from_secs(20),
        answer_within: Duration::from_mins(1),
        body_memory_bytes: 64 * 1024 * 1024,
    };

    /// How often a connection is looked at: a limit is kept to within a tenth of the shortest.
    pub(super) fn look(&self) -> Duration {
        let shortest = self.head_within.min(self.idle_within).min(self.answer_within);
        (shortest / 10).clamp(Duration::from_millis(1), Duration::from_secs(1))
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}
