//! How limits are told: `RateLimit` and `RateLimit-Policy`, as draft-ietf-httpapi-ratelimit-headers-10 writes them.
//!
//! A policy stands by its name, with its quota `q` in a window of `w` seconds; how it stands, with `r` that are left and the
//! `t` seconds until all are there again.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::bucket::Bucket;
use crate::clock::SharedClock;
use crate::http::problem::{Kind, Problem};
use crate::recent::Recent;
use crate::store::QuotaStanding;
use crate::tenant::limits::Rate;

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// Of how many tenants a node remembers what they asked for; one that it forgets begins with a full bucket again.
const TENANTS_MAX: usize = 10_000;

/// The day of a daily quota, in seconds.
const DAY_SECONDS: u64 = 24 * 60 * 60;

/// A limit, and how it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::http) struct Standing {
    name: &'static str,
    quota: u32,
    window_seconds: u64,
    left: u32,
    full_in_seconds: u64,
}

impl Standing {
    pub(in crate::http) fn of_bucket(name: &'static str, rate: Rate, bucket: &Bucket) -> Self {
        Self {
            name,
            quota: rate.burst,
            window_seconds: u64::from(rate.burst.div_ceil(rate.per_second.max(1))),
            left: bucket.left(rate),
            full_in_seconds: seconds(bucket.full_in()),
        }
    }

    /// A daily quota of articles.
    pub(in crate::http) fn of_quota(quota: QuotaStanding, now: DateTime<Utc>) -> Self {
        Self {
            name: "articles",
            quota: quota.limit,
            window_seconds: DAY_SECONDS,
            left: quota.left,
            full_in_seconds: seconds(until(quota, now)),
        }
    }
}

/// How long it is until the next day of a quota.
fn until(quota: QuotaStanding, now: DateTime<Utc>) -> Duration {
    (quota.until - now).to_std().unwrap_or_default()
}

/// Whole seconds, rounded up.
fn seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

/// What the answer to a request tells of the limits that it met; the layer that names the request writes it.
#[derive(Debug, Clone, Default)]
pub(in crate::http) struct Told(Arc<Mutex<Vec<Standing>>>);

impl Told {
    pub(in crate::http) fn tell(&self, standing: Standing) {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.retain(|other| other.name != standing.name);
        told.push(standing);
    }

    /// Writes the headers, if there is something to tell.
    pub(in crate::http) fn write(&self, headers: &mut HeaderMap) {
        let told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut policies, mut standings) = (String::new(), String::new());
        for (at, one) in told.iter().enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            // Writing to a text does not fail.
            let _ = write!(policies, "{comma}\"{}\";q={};w={}", one.name, one.quota, one.window_seconds);
            let _ = write!(standings, "{comma}\"{}\";r={};t={}", one.name, one.left, one.full_in_seconds);
        }
        for (name, value) in [(RATE_LIMIT_POLICY, policies), (RATE_LIMIT, standings)] {
            if let Some(value) = HeaderValue::try_from(value).ok().filter(|value| !value.is_empty()) {
                headers.insert(name, value);
            }
        }
    }
}

/// The problem of who comes too fast.
pub(in crate::http) fn too_fast(detail: String, wait: Duration) -> Problem {
    Problem::new(Kind::RateLimited, detail).after(seconds(wait))
}

/// The problem of who has used up the day.
pub(in crate::http) fn used_up(quota: QuotaStanding, now: DateTime<Utc>) -> Problem {
    let detail = format!(
        "the {} articles of this day are used up; the next day begins at {} (UTC): hand new ones in then; nothing was stored",
        quota.limit,
        quota.until.format("%Y-%m-%dT%H:%M:%SZ"),
    );
    Problem::new(Kind::QuotaExceeded, detail).after(seconds(until(quota, now)))
}

/// How fast each tenant has asked here.
pub(in crate::http) struct Rates {
    buckets: Mutex<Recent<Uuid, Bucket>>,
    clock: SharedClock,
}

impl Rates {
    pub(in crate::http) fn new(clock: SharedClock) -> Self {
        Self { buckets: Mutex::new(Recent::new(TENANTS_MAX)), clock }
    }

    /// Lets one more request of a tenant pass, or not; tells how the rate stands.
    pub(in crate::http) fn pass(&self, tenant_id: Uuid, rate: Rate, told: &Told) -> Result<(), Problem> {
        let now = self.clock.moment();
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.get(&tenant_id).is_none() {
            buckets.insert(tenant_id, Bucket::full(now));
        }
        let Some(bucket) = buckets.get(&tenant_id) else { return Ok(()) };
        let taken = bucket.take(rate, now);
        told.tell(Standing::of_bucket("requests", rate, bucket));
        taken.map_err(|wait| {
            let Rate { per_second, burst } = rate;
            let detail = format!(
                "more than {per_second} requests a second came of this tenant, beyond {burst} at once; nothing was done: \
                 send this one again later"
            );
            too_fast(detail, wait)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock as _, TestClock};

    #[test]
    fn limits_are_told_as_lists_of_strings_with_parameters() {
        let clock = TestClock::seeded(1);
        let (told, mut headers) = (Told::default(), HeaderMap::new());
        told.write(&mut headers);
        assert!(headers.is_empty());
        let rate = Rate { per_second: 20, burst: 50 };
        let mut bucket = Bucket::full(clock.moment());
        bucket.take(rate, clock.moment()).unwrap();
        told.tell(Standing::of_bucket("requests", rate, &bucket));
        let until = "2026-12-01T00:00:00Z".parse::<DateTime<Utc>>().unwrap();
        for left in [5, 3] {
            let quota = QuotaStanding { limit: 1_000, left, until };
            told.tell(Standing::of_quota(quota, until - Duration::from_millis(59_001)));
        }
        told.write(&mut headers);
        assert_eq!(headers[RATE_LIMIT_POLICY], "\"requests\";q=50;w=3, \"articles\";q=1000;w=86400");
        assert_eq!(headers[RATE_LIMIT], "\"requests\";r=49;t=1, \"articles\";r=3;t=60");
    }
}
