//! `GET /events`: the feed, for those who pull.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Json;
use axum::extract::{RawQuery, State};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::openapi::{self, RefOr};
use utoipa::{IntoResponses, ToSchema};

use super::AppState;
use super::admission::{Caller, query};
use super::cursor::{feed_cursor, feed_place};
use super::problem::{Kind, Problem, errors};
use super::tasks::raw_json;
use crate::callback::event::EventBody;
use crate::callback::feed::WAITING_OF_TENANT_MAX;
use crate::retry::duration;
use crate::store::{FeedPlace, FeedRead};
use crate::tenant::Scope;

/// The most events of one answer.
const LIMIT_MAX: i64 = 200;

/// The events of an answer for who does not say.
const LIMIT_DEFAULT: i64 = 100;

/// How long an answer may wait for an event: shorter than what proxies on the way wait for an answer.
const WAIT_MAX: Duration = Duration::from_secs(30);

const PARAMETERS: [&str; 3] = ["after", "limit", "wait"];

/// Events in the order of their `sequence`.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct EventList {
    /// The bodies, each byte for byte as a callback delivers it; none when there is nothing new.
    #[schema(value_type = Vec<EventBody>)]
    pub events: Vec<Box<RawValue>>,
    /// What to send as `after` next, whether or not there were events: keep it when the events are safe.
    pub next_cursor: String,
}

struct EventErrors;

impl IntoResponses for EventErrors {
    fn responses() -> BTreeMap<String, RefOr<openapi::Response>> {
        errors(&[
            (400, "`invalid_query`: also a cursor of another feed"),
            (401, "`unauthorized`"),
            (403, "`forbidden`"),
            (410, "`cursor_expired`: what comes behind the cursor is no longer kept; begin without it"),
            (503, "`unavailable`: also when too many requests wait for events"),
        ])
    }
}

/// Pull events
///
/// All events of the tenant, also of tasks without a callback URL, in the order of their `sequence`; none is skipped, and
/// none is given twice. Send `next_cursor` as `after` to go on; without `after`, it begins with the oldest event that is
/// kept. With `wait`, an answer without events waits so long for one.
#[utoipa::path(
    get, path = "/events", tag = "callbacks", operation_id = "get_events",
    security(("api_key" = [])),
    params(
        ("after" = Option<String>, Query, description = "The `next_cursor` of the answer before"),
        ("limit" = Option<u32>, Query, description = "How many at most; 100 if not given", minimum = 1, maximum = 200),
        ("wait" = Option<String>, Query, pattern = "^[0-9]+(ms|s|m|h)?$", example = "30s",
            description = "How long to wait for an event, at most 30 s: a whole number and `s` or `ms`, or seconds alone"),
    ),
    responses((status = 200, description = "The next events", body = EventList), EventErrors)
)]
pub(super) async fn get_events(
    State(state): State<AppState>,
    caller: Caller,
    RawQuery(text): RawQuery,
) -> Result<Json<EventList>, Problem> {
    caller.need(Scope::Read)?;
    let asked = Asked::read(text.as_deref())?;
    let read = async || {
        let read = state.store.feed(caller.tenant_id, asked.after, asked.limit);
        page(caller.within(read).await??)
    };
    let (mut events, mut place) = read().await?;
    if events.is_empty() && !asked.wait.is_zero() {
        let mut waiting = state.feeds.place(caller.tenant_id).ok_or_else(too_many)?;
        tokio::select! {
            () = waiting.past(place.position) => {}
            () = tokio::time::sleep(asked.wait) => {}
            () = state.readiness.stopping.cancelled() => {}
        }
        drop(waiting);
        (events, place) = read().await?;
    }
    let events = events.into_iter().map(|body| raw_json(String::from_utf8_lossy(&body).into_owned()));
    Ok(Json(EventList { events: events.collect(), next_cursor: feed_cursor(place) }))
}

fn too_many() -> Problem {
    let detail = format!(
        "too many requests wait for events, of a tenant at most {WAITING_OF_TENANT_MAX}: ask without wait, or later"
    );
    Problem::new(Kind::Unavailable, detail)
}

fn page(read: FeedRead) -> Result<(Vec<Vec<u8>>, FeedPlace), Problem> {
    match read {
        FeedRead::Page(events, place) => Ok((events, place)),
        FeedRead::Expired(kept_from) => Err(Problem::new(
            Kind::CursorExpired,
            format!(
                "events behind this cursor are no longer kept, up to sequence {}: begin without it, and read the tasks for what \
                 was missed",
                kept_from - 1
            ),
        )),
        FeedRead::Foreign => Err(bad(
            "after",
            "is no cursor of this feed, or of one before a backup was restored: begin without it",
        )),
    }
}

fn bad(name: &str, rule: &str) -> Problem {
    Problem::new(Kind::InvalidQuery, format!("the parameter {name:?} {rule}"))
}

/// What is asked for.
#[derive(Debug)]
struct Asked {
    after: Option<FeedPlace>,
    limit: i64,
    wait: Duration,
}

impl Asked {
    fn read(text: Option<&str>) -> Result<Self, Problem> {
        let mut asked = Self { after: None, limit: LIMIT_DEFAULT, wait: Duration::ZERO };
        for (name, value) in query(text, &PARAMETERS)? {
            asked.take(&name, &value).map_err(|rule| bad(&name, &rule))?;
        }
        Ok(asked)
    }

    fn take(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "after" => {
                let place =
                    feed_place(value).ok_or("takes the next_cursor of the answer before, as it was given")?;
                self.after = Some(place);
            }
            "limit" => {
                let limit = value.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
                self.limit = limit.ok_or_else(|| format!("takes a number from 1 to {LIMIT_MAX}"))?;
            }
            _ => {
                let alone = value.bytes().all(|b| b.is_ascii_digit());
                let wait = if alone { duration(&format!("{value}s")) } else { duration(value) };
                let wait = wait.ok().filter(|wait| *wait <= WAIT_MAX);
                self.wait = wait.ok_or("takes at most 30s: a whole number and s or ms, or seconds alone")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    fn asked(text: &str) -> Result<Asked, String> {
        Asked::read(Some(text)).map_err(|problem| format!("{problem:?}"))
    }

    #[test]
    fn limits_and_waits_are_read_strictly() {
        let nothing = Asked::read(None).unwrap();
        assert_eq!((nothing.after, nothing.limit, nothing.wait), (None, LIMIT_DEFAULT, Duration::ZERO));
        for (text, millis) in [("0", 0), ("30", 30_000), ("30s", 30_000), ("250ms", 250), ("0s", 0)] {
            let wait = asked(&format!("wait={text}")).unwrap().wait;
            assert_eq!(wait, Duration::from_millis(millis), "{text}");
        }
        for bad in
            ["wait=31", "wait=31s", "wait=1m", "wait=", "wait=-1", "wait=1.5", "wait=30001ms", "wait=%2B1"]
        {
            assert!(asked(bad).unwrap_err().contains("\"wait\\\""), "{bad}");
        }
        assert_eq!(asked("limit=200").unwrap().limit, 200);
        for bad in ["limit=0", "limit=201", "limit=x", "limit=", "limit=-1"] {
            assert!(asked(bad).is_err(), "{bad}");
        }
        assert!(asked("before=x").unwrap_err().contains("after, limit, wait"));
    }

    #[test]
    fn only_what_was_given_is_a_cursor() {
        let here = feed_cursor(FeedPlace { position: 7, event_id: Uuid::from_u128(7) });
        assert_eq!(asked(&format!("after={here}")).unwrap().after.unwrap().position, 7);
        let far = feed_cursor(FeedPlace { position: i64::MAX, event_id: Uuid::nil() });
        let negative = feed_cursor(FeedPlace { position: -1, event_id: Uuid::nil() });
        for bad in ["", "7", "x", "AAAA", &here[1..], &format!("{here}A"), &far, &negative] {
            assert!(asked(&format!("after={bad}")).unwrap_err().contains("next_cursor"), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn a_cursor_is_read_back(position in 0..i64::MAX, id: u128) {
            let there = FeedPlace { position, event_id: Uuid::from_u128(id) };
            prop_assert_eq!(feed_place(&feed_cursor(there)), Some(there));
        }

        #[test]
        fn no_text_is_more_than_no_cursor(text in "\\PC{0,60}") {
            let _ = feed_place(&text);
        }
    }
}
