//! What an answer of Ghost's Admin API means. Pure.
//!
//! Ghost's own errors are JSON (`{"errors": [{type, code, message, context}]}`), and all of them but an internal one come
//! before anything is written or with what was written rolled back. What is not JSON comes from something before Ghost,
//! or from a Ghost that is starting.

use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde_json::Value;

use crate::connector::{Failure, Login, Pause, Sighting, Verdict};
use crate::outbound::{Answer, CallError, retry_after};

/// How much of Ghost's words stands in a message, in characters: its longest sentences have half of it.
const WORDS_MAX: usize = 300;

/// Why a request came to nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    /// Ghost says that it does not let the key in.
    LoginExpired(Failure),
    /// A pause is asked for.
    RateLimited(Pause),
    /// Nothing was done, and another try would end the same.
    Refused(Failure),
    /// Nothing was done; another try may succeed.
    Passing(Failure),
    /// The post was changed by somebody since it was read; nothing was done.
    Collision,
    /// There is no such post.
    Absent,
    /// It may have been done.
    Unknown(String),
}

impl Fault {
    /// What it means for a step whose request it was.
    pub(super) fn verdict(self) -> Verdict {
        match self {
            Self::LoginExpired(failure) => Verdict::LoginExpired(failure),
            Self::RateLimited(pause) => Verdict::RateLimited(pause),
            Self::Refused(failure) => Verdict::Rejected(failure),
            Self::Passing(failure) => Verdict::Transient(failure),
            Self::Collision | Self::Absent => Verdict::Transient(Failure::new("draft_changed", self.why())),
            Self::Unknown(why) => Verdict::Unknown(why),
        }
    }

    /// What it means for a step that had only read by then: it did nothing.
    pub(super) fn verdict_of_reading(self) -> Verdict {
        match self {
            Self::Unknown(why) => Verdict::Transient(Failure::new("platform_unavailable", why)),
            other => other.verdict(),
        }
    }

    /// What it means for a look.
    pub(super) fn sighting(self) -> Sighting {
        match self {
            Self::LoginExpired(failure) => Sighting::LoginExpired(failure),
            Self::RateLimited(pause) => Sighting::RateLimited(pause),
            other => Sighting::CannotTell(other.why()),
        }
    }

    /// What it means for the question whether a login works.
    pub(super) fn login(self) -> Login {
        match self {
            Self::LoginExpired(failure) => Login::Expired(failure),
            Self::Refused(failure) => Login::Unfit(failure),
            other => Login::CannotTell(other.why()),
        }
    }

    /// It in a sentence.
    pub(super) fn why(self) -> String {
        match self {
            Self::LoginExpired(failure) | Self::Refused(failure) | Self::Passing(failure) => failure.message,
            Self::RateLimited(pause) => pause.failure.message,
            Self::Collision => "somebody changed the post on Ghost at the same time".to_owned(),
            Self::Absent => "the post is not on Ghost any more".to_owned(),
            Self::Unknown(why) => why,
        }
    }
}

#[derive(Deserialize)]
struct Errors {
    errors: Vec<Told>,
}

/// An error in Ghost's words.
#[derive(Deserialize)]
struct Told {
    #[serde(rename = "type", default)]
    kind: String,
    code: Option<String>,
    #[serde(default)]
    message: String,
    context: Option<String>,
}

impl Told {
    fn words(&self) -> String {
        let context = self.context.as_deref().filter(|context| *context != self.message);
        let words = match context {
            Some(context) => format!("{} {context}", self.message),
            None => self.message.clone(),
        };
        let words = words.chars().map(|c| if c.is_control() { ' ' } else { c }).take(WORDS_MAX);
        words.collect::<String>().trim().trim_end_matches('.').to_owned()
    }

    /// Whether a token is refused for its time alone: in the words of `jsonwebtoken`, which Ghost passes on.
    fn is_out_of_date(&self) -> bool {
        ["jwt expired", "maxAge exceeded", "jwt not active"].iter().any(|words| self.message.contains(words))
    }
}

/// The JSON of a success, or why there is none.
pub(super) fn judged(answer: Result<Answer, CallError>, now: DateTime<Utc>) -> Result<Value, Fault> {
    let answer = answer.map_err(|error| match error {
        CallError::Refused(_) | CallError::Header(_) => {
            Fault::Refused(Failure::new("site_not_allowed", error.to_string()))
        }
        // Ghost that is not started yet refuses the connection.
        error if error.proved_unsent() => Fault::Passing(Failure::new("unreachable", error.to_string())),
        error => Fault::Unknown(error.to_string()),
    })?;
    match answer.status {
        204 => Ok(Value::Null),
        200..=299 => serde_json::from_slice(&answer.head).map_err(|_| {
            Fault::Unknown(format!(
                "the site answered {} with what is no answer of Ghost: check the account's base_url",
                answer.status
            ))
        }),
        429 => Err(Fault::RateLimited(Pause {
            failure: Failure::new("rate_limited", "Ghost asks for a pause"),
            wait: answer.retry_after.as_deref().and_then(|text| retry_after(text, now)),
        })),
        _ => Err(match serde_json::from_slice::<Errors>(&answer.head) {
            Ok(Errors { errors }) if !errors.is_empty() => of_ghost(answer.status, &errors[0]),
            _ => not_of_ghost(&answer),
        }),
    }
}

/// What Ghost's own error means.
fn of_ghost(status: u16, told: &Told) -> Fault {
    let words = told.words();
    let refused =
        |code: &'static str, what: &str| Fault::Refused(Failure::new(code, format!("Ghost {what}: {words}")));
    let code = told.code.as_deref().unwrap_or_default();
    match (status, &*told.kind) {
        _ if code == "UPDATE_COLLISION" => Fault::Collision,
        (401, _) if code == "INVALID_JWT" && told.is_out_of_date() => {
            let message =
                format!("Ghost finds our tokens out of date ({words}): set this machine's clock, or its");
            Fault::Passing(Failure::new("clock_skew", message))
        }
        // Of 400, too: a token that Ghost cannot read, or without a key's id.
        (400 | 401, _) if code.contains("JWT") || code.contains("API_K") || status == 401 => {
            let message = format!(
                "Ghost does not take the key ({words}): send the integration's present Admin API key"
            );
            Fault::LoginExpired(Failure::new("login_expired", message))
        }
        (403, "NoPermissionError") if words.contains("determine the authenticated user or integration") => {
            let message = "Ghost saw no key: let the proxy before it pass the header Authorization on, then send the key again";
            Fault::LoginExpired(Failure::new("login_expired", message))
        }
        (403, "HostLimitError") => refused("host_limit", "is at a limit of its hosting plan"),
        (403, _) => refused("not_permitted", "does not permit this to the key"),
        (404, _) => Fault::Absent,
        (406, _) => refused("unsupported_version", "is of a version that does not know this request"),
        (413, _) => refused("content_too_large", "finds the article too large"),
        (400 | 415 | 422, _) => refused("rejected_by_platform", "refuses the article"),
        (503, "MaintenanceError") => {
            Fault::Passing(Failure::new("platform_unavailable", format!("Ghost is not up yet: {words}")))
        }
        _ => Fault::Unknown(format!("Ghost answered {status}: {words}")),
    }
}

/// What an answer means that Ghost's API did not write.
fn not_of_ghost(answer: &Answer) -> Fault {
    let status = answer.status;
    match status {
        401 | 403 => Fault::Refused(Failure::new(
            "platform_blocked",
            format!(
                "something before Ghost answered {status}: let this service pass its firewall or password"
            ),
        )),
        300..=399 => {
            let to = answer.location.as_deref().and_then(|to| to.split(['?', '#']).next());
            let to = to.map(|to| format!(" to {}", to.chars().take(WORDS_MAX).collect::<String>()));
            let to = to.unwrap_or_default();
            let message = format!(
                "the site answered {status}, a redirect{to}, and none is followed: set the account's base_url to the \
                 address where Ghost's Admin API answers"
            );
            Fault::Refused(Failure::new("wrong_address", message))
        }
        // A web server that has no Ghost behind it just now, or never: nothing of Ghost has seen the request.
        404 => {
            let message =
                "there is no Ghost at the account's base_url: the site answered 404 with a page of its own";
            Fault::Passing(Failure::new("wrong_address", message))
        }
        413 => Fault::Refused(Failure::new(
            "content_too_large",
            "the web server before Ghost finds the request too large: send a smaller article, or raise its limit",
        )),
        // Also 503, which Ghost answers while it starts: a proxy answers the same after it has lost a running Ghost.
        _ => Fault::Unknown(format!("the site answered {status}, and not in Ghost's words")),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const NOW: &str = "2026-01-31T00:00:00Z";

    fn answer(status: u16, body: &str) -> Answer {
        Answer {
            status,
            retry_after: None,
            content_type: None,
            location: None,
            date: None,
            head: body.into(),
            cut: false,
            elapsed: Duration::ZERO,
        }
    }

    fn told(status: u16, body: &str) -> Result<Value, Fault> {
        judged(Ok(answer(status, body)), NOW.parse().unwrap())
    }

    fn ghost(status: u16, kind: &str, code: &str, message: &str, context: &str) -> Fault {
        let error = serde_json::json!({"message": message, "context": context, "type": kind, "code": code});
        told(status, &serde_json::json!({"errors": [error]}).to_string()).unwrap_err()
    }

    /// The errors are those of Ghost 5.130.6, in its words.
    #[test]
    fn only_what_is_said_about_the_key_expires_the_login() {
        let expired = |fault| match fault {
            Fault::LoginExpired(failure) => failure.message,
            other => panic!("{other:?}"),
        };
        let unauthorized = |code, message| ghost(401, "UnauthorizedError", code, message, "");
        let rotated = expired(unauthorized("INVALID_JWT", "Invalid token: invalid signature"));
        assert!(rotated.contains("invalid signature"), "{rotated}");
        expired(unauthorized("UNKNOWN_ADMIN_API_KEY", "Unknown Admin API Key"));
        expired(unauthorized("INVALID_API_KEY_TYPE", "Invalid API Key type"));
        expired(unauthorized(
            "INVALID_AUTH_HEADER",
            "Authorization header format is \"Authorization: Ghost [token]\"",
        ));
        expired(ghost(400, "BadRequestError", "INVALID_JWT", "Invalid token", ""));
        expired(ghost(400, "BadRequestError", "MISSING_ADMIN_API_KID", "Admin API kid missing.", ""));
        let nobody = "Unable to determine the authenticated user or integration. Check that cookies are being passed \
                      through if using session authentication.";
        assert!(
            expired(ghost(403, "NoPermissionError", "", "Authorization failed", nobody)).contains("proxy")
        );
    }

    #[test]
    fn a_token_out_of_date_is_no_expired_login() {
        for message in ["Invalid token: jwt expired", "Invalid token: maxAge exceeded"] {
            let Fault::Passing(failure) = ghost(401, "UnauthorizedError", "INVALID_JWT", message, "") else {
                panic!("{message}")
            };
            assert_eq!(failure.code, "clock_skew");
        }
    }

    #[test]
    fn what_ghost_refuses_was_not_done() {
        let table = [
            (403, "NoPermissionError", "", "You do not have permission to add posts", "not_permitted"),
            (403, "HostLimitError", "", "Host Limit error, cannot save post.", "host_limit"),
            (
                406,
                "RequestNotAcceptableError",
                "UPDATE_CLIENT",
                "Request could not be served",
                "unsupported_version",
            ),
            (413, "RequestEntityTooLargeError", "", "The request was too large", "content_too_large"),
            (415, "UnsupportedMediaTypeError", "", "Please select a valid image.", "rejected_by_platform"),
            (422, "ValidationError", "", "Validation error, cannot save post.", "rejected_by_platform"),
            (
                400,
                "BadRequestError",
                "",
                "Request not understood error, cannot list posts.",
                "rejected_by_platform",
            ),
        ];
        for (status, kind, code, message, expected) in table {
            let Fault::Refused(failure) =
                ghost(status, kind, code, message, "Value in [posts.title] exceeds")
            else {
                panic!("{kind}")
            };
            assert_eq!(failure.code, expected);
            assert!(failure.message.ends_with("Value in [posts.title] exceeds"), "{}", failure.message);
        }
        let collision = ghost(409, "UpdateCollisionError", "UPDATE_COLLISION", "Saving failed!", "");
        assert_eq!(collision, Fault::Collision);
        let absent =
            ghost(404, "NotFoundError", "", "Resource not found error, cannot read post.", "Post not found.");
        assert_eq!(absent, Fault::Absent);
    }

    #[test]
    fn what_is_not_in_ghosts_words_proves_little() {
        let page = "<!doctype html><title>403</title>";
        for status in [401, 403] {
            let Err(Fault::Refused(failure)) = told(status, page) else { panic!("{status}") };
            assert_eq!(failure.code, "platform_blocked");
        }
        assert!(matches!(told(404, page), Err(Fault::Passing(_))));
        assert!(matches!(told(413, page), Err(Fault::Refused(_))));
        for (status, body) in
            [(500, page), (502, page), (503, page), (504, ""), (200, page), (201, ""), (418, page)]
        {
            assert!(matches!(told(status, body), Err(Fault::Unknown(_))), "{status}");
        }
        let internal =
            ghost(500, "InternalServerError", "UNEXPECTED_ERROR", "An unexpected error occurred", "");
        assert!(matches!(internal, Fault::Unknown(_)), "{internal:?}");
        let moved = Answer { location: Some("https://www.h/ghost/?a=secret".into()), ..answer(301, "") };
        let Err(Fault::Refused(failure)) = judged(Ok(moved), NOW.parse().unwrap()) else { panic!() };
        assert!(failure.message.contains("to https://www.h/ghost/,"), "{}", failure.message);
    }

    #[test]
    fn a_call_without_an_answer_is_unknown_unless_nothing_was_sent() {
        let judged = |error| judged(Err(error), NOW.parse().unwrap()).unwrap_err();
        assert!(matches!(judged(CallError::Timeout(Duration::from_secs(1))), Fault::Unknown(_)));
        assert!(matches!(judged(CallError::NoRoots), Fault::Passing(_)));
        assert!(matches!(judged(CallError::Header("x-request-id")), Fault::Refused(_)));
    }

    #[test]
    fn a_pause_is_as_long_as_is_asked() {
        let slow = Answer { retry_after: Some("120".into()), ..answer(429, "") };
        let Err(Fault::RateLimited(pause)) = judged(Ok(slow), NOW.parse().unwrap()) else { panic!() };
        assert_eq!(pause.wait, Some(Duration::from_mins(2)));
        assert!(matches!(told(429, "{}"), Err(Fault::RateLimited(Pause { wait: None, .. }))));
    }

    #[test]
    fn success_is_json_or_nothing_at_all() {
        assert_eq!(told(201, r#"{"posts": []}"#).unwrap(), serde_json::json!({"posts": []}));
        assert_eq!(told(204, "").unwrap(), Value::Null);
    }

    #[test]
    fn a_step_that_only_read_did_nothing() {
        let unknown = || Fault::Unknown("lost".into());
        assert_eq!(unknown().verdict(), Verdict::Unknown("lost".into()));
        assert!(matches!(unknown().verdict_of_reading(), Verdict::Transient(_)));
        assert_eq!(unknown().sighting(), Sighting::CannotTell("lost".into()));
        assert_eq!(Fault::Collision.verdict_of_reading(), Fault::Collision.verdict());
    }
}
