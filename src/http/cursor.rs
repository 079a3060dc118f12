//! Cursors: of lists that are walked from the newest on, the last id of a page, bound to the filters that it was asked with;
//! of the feed, the place behind an event.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, Datelike as _, Utc};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::store::FeedPlace;

/// The most entries on a page.
pub const LIMIT_MAX: usize = 200;

/// The entries on a page for who does not say.
pub const LIMIT_DEFAULT: usize = 50;

/// How many bytes of a cursor tell which filters it belongs to: enough that two are not alike by mistake.
const DIGEST_BYTES: usize = 8;

/// What tells filters from others.
pub type FilterDigest = [u8; DIGEST_BYTES];

/// Reads how many entries a page may have at most.
pub fn limit(value: &str) -> Result<usize, String> {
    let limit = value.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
    limit.ok_or_else(|| format!("takes a number from 1 to {LIMIT_MAX}"))
}

/// What tells these filters from others, in whatever order they were sent; `filters` are all that there are.
#[must_use]
pub fn digest(parameters: &[(String, String)], filters: &[&str]) -> FilterDigest {
    let mut hash = Sha256::new();
    for filter in filters {
        let value = parameters.iter().find(|(name, _)| name == filter).map(|(_, value)| value.as_str());
        // The length before the text: no two lists of values run together.
        hash.update(value.map_or(u64::MAX, |value| value.len() as u64).to_be_bytes());
        hash.update(value.unwrap_or_default());
    }
    let mut digest = [0; DIGEST_BYTES];
    digest.copy_from_slice(&hash.finalize()[..DIGEST_BYTES]);
    digest
}

/// The place behind an entry, for these filters.
#[must_use]
pub fn cursor(last: Uuid, digest: FilterDigest) -> String {
    URL_SAFE_NO_PAD.encode([&last.as_bytes()[..], &digest[..]].concat())
}

/// The entry that a cursor lies behind, if it is of these filters.
pub fn before(cursor: &str, digest: FilterDigest) -> Result<Uuid, String> {
    let bytes = URL_SAFE_NO_PAD.decode(cursor).ok().filter(|bytes| bytes.len() == 16 + DIGEST_BYTES);
    let bytes = bytes.ok_or("takes the next_cursor of the page before, as it was given")?;
    let (last, of) = bytes.split_at(16);
    if of != digest {
        return Err("belongs to other filters: send those of the page before, or begin without it".to_owned());
    }
    Uuid::from_slice(last).map_err(|error| error.to_string())
}

/// What a cursor of the feed has before the event's id: its position, in bytes.
const POSITION_BYTES: usize = 8;

/// The place behind an event. It holds the event's id beside its position, so that a feed that was begun anew from a
/// backup is not taken for the one that was read.
#[must_use]
pub fn feed_cursor(place: FeedPlace) -> String {
    URL_SAFE_NO_PAD.encode([&place.position.to_be_bytes()[..], &place.event_id.as_bytes()[..]].concat())
}

/// The place that a cursor of the feed stands for, if it is one.
#[must_use]
pub fn feed_place(cursor: &str) -> Option<FeedPlace> {
    let bytes = URL_SAFE_NO_PAD.decode(cursor).ok()?;
    let (position, event_id) = bytes.split_at_checked(POSITION_BYTES)?;
    let position = i64::from_be_bytes(position.try_into().ok()?);
    let event_id = Uuid::from_slice(event_id).ok()?;
    // One more than the highest would be asked for.
    (0..i64::MAX).contains(&position).then_some(FeedPlace { position, event_id })
}

/// Reads a time; RFC 3339 has years of four digits, also in UTC.
#[must_use]
pub fn time(value: &str) -> Option<DateTime<Utc>> {
    let at = DateTime::parse_from_rfc3339(value).ok().map(|at| at.to_utc());
    at.filter(|at| (0..=9999).contains(&at.year()))
}
