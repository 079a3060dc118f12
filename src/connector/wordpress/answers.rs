//! What an answer of `WordPress` proves. Pure.
//!
//! An error of a create or an update is no proof of absence: terms and meta are written after the post itself, and their
//! errors come although it exists. What counts as a refusal is a list of codes that are known to come before any write
//! (`WP_REST_Posts_Controller`, `…_Terms_…`, `…_Attachments_…`, read in 6.1); all else is unclear.

use chrono::{DateTime, Utc};
use serde_json::Value;

use crate::connector::{Failure, Login, Pause, Sighting, Verdict};
use crate::outbound::{Answer, CallError, retry_after};
use crate::store::LOGIN_EXPIRED;

/// The longest code of `WordPress` that is shown, in characters.
const CODE_MAX: usize = 64;

/// What maintenance answers in `Retry-After`, in seconds (`wp_maintenance()`, <https://developer.wordpress.org/reference/functions/wp_maintenance/>).
const MAINTENANCE_SECONDS: &str = "600";

/// Codes that say that nobody is logged in, when they come with 401: without a login every right is missing.
const NOT_LOGGED_IN: [&str; 17] = [
    "rest_not_logged_in",
    "rest_login_required",
    "rest_forbidden",
    "rest_forbidden_context",
    "rest_forbidden_status",
    "rest_cannot_create",
    "rest_cannot_edit",
    "rest_cannot_delete",
    "rest_cannot_publish",
    "rest_cannot_view",
    "rest_cannot_read",
    "incorrect_password",
    "invalid_username",
    "invalid_email",
    "invalid_application_password",
    "application_passwords_disabled",
    "application_passwords_disabled_for_user",
];

/// Codes of missing rights, checked before anything is written.
const MISSING_RIGHT: [&str; 11] = [
    "rest_forbidden",
    "rest_forbidden_context",
    "rest_forbidden_status",
    "rest_cannot_create",
    "rest_cannot_edit",
    "rest_cannot_delete",
    "rest_cannot_publish",
    "rest_cannot_view",
    "rest_cannot_read",
    "rest_cannot_assign_term",
    "rest_cannot_edit_others",
];

/// Codes of requests that are refused before anything is written.
const BEFORE_ANY_WRITE: [&str; 4] =
    ["rest_invalid_param", "rest_missing_callback_param", "rest_invalid_json", "rest_post_exists"];

/// What `WordPress`, or whoever answered for it, said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Heard {
    /// It did what was asked: the body.
    Told(Value),
    /// It does not know who asks.
    LoginExpired(Failure),
    /// It knows, and does not let them; nothing was done.
    Denied(Failure),
    /// The request was refused before anything was done.
    Refused(Failure),
    /// A term of that name exists: its id.
    TermExists(u64),
    /// A file that it does not take, and never will; why, as a sentence's end.
    FileRefused(String),
    /// There is no such post.
    Gone,
    /// There is no REST API at this address.
    NoApi(Failure),
    /// Something in front of it answered instead.
    Blocked(Failure),
    /// Nothing was done, and another time it may be.
    NotNow(Failure),
    /// It asks for a pause; nothing was done.
    Paused(Pause),
    /// PHP ended with an error: what was done before is not known.
    Broke(String),
    /// Neither is known.
    Unclear(String),
}

impl Heard {
    /// What it says of a request that was to change something; not of [`Heard::Told`], which its caller reads.
    pub(super) fn verdict(self) -> Verdict {
        match self {
            Self::LoginExpired(failure) => Verdict::LoginExpired(failure),
            Self::Denied(failure) | Self::Refused(failure) | Self::Blocked(failure) => {
                Verdict::Rejected(failure)
            }
            Self::Gone => {
                let message = "the draft is not in WordPress any more: it is made again";
                Verdict::Transient(Failure::new("draft_vanished", message))
            }
            Self::NotNow(failure) => Verdict::Transient(failure),
            Self::Paused(pause) => Verdict::RateLimited(pause),
            other => Verdict::Unknown(other.sentence()),
        }
    }

    /// What it says of a look; not of [`Heard::Told`], which its caller reads.
    pub(super) fn sighting(self) -> Sighting {
        match self {
            Self::LoginExpired(failure) => Sighting::LoginExpired(failure),
            Self::Paused(pause) => Sighting::RateLimited(pause),
            other => Sighting::CannotTell(other.sentence()),
        }
    }

    /// What it says of a login; not of [`Heard::Told`], which its caller reads.
    pub(super) fn login(self) -> Login {
        match self {
            Self::LoginExpired(failure) => Login::Expired(failure),
            Self::Denied(failure)
            | Self::Refused(failure)
            | Self::Blocked(failure)
            | Self::NoApi(failure) => Login::Unfit(failure),
            other => Login::CannotTell(other.sentence()),
        }
    }

    /// It in words.
    pub(super) fn sentence(self) -> String {
        match self {
            Self::LoginExpired(failure)
            | Self::Denied(failure)
            | Self::Refused(failure)
            | Self::NoApi(failure)
            | Self::Blocked(failure)
            | Self::NotNow(failure) => failure.message,
            Self::Paused(pause) => pause.failure.message,
            Self::FileRefused(why) | Self::Broke(why) | Self::Unclear(why) => why,
            Self::Gone => "there is no such post in WordPress".to_owned(),
            Self::Told(_) | Self::TermExists(_) => "WordPress answered with something else".to_owned(),
        }
    }
}

/// What came of a call, at `now`.
pub(super) fn heard(called: Result<Answer, CallError>, now: DateTime<Utc>) -> Heard {
    match called {
        Ok(answer) => of_answer(&answer, now),
        Err(error @ CallError::Refused(_)) => {
            Heard::Refused(Failure::new("address_not_allowed", error.to_string()))
        }
        Err(error) if error.proved_unsent() => {
            let message = format!("WordPress cannot be reached: {error}");
            Heard::NotNow(Failure::new("platform_unreachable", message))
        }
        Err(error) => Heard::Unclear(error.to_string()),
    }
}

fn of_answer(answer: &Answer, now: DateTime<Utc>) -> Heard {
    let body = (!answer.cut).then(|| serde_json::from_slice::<Value>(&answer.head).ok()).flatten();
    match answer.status {
        200..=299 => match body {
            Some(body) => Heard::Told(body),
            None if answer.cut => Heard::Unclear("WordPress's answer is too long to be read".to_owned()),
            None => Heard::Unclear(format!(
                "WordPress answered {} with something that is not JSON: look for PHP notices or a cache in front of it",
                answer.status
            )),
        },
        300..=399 => Heard::NoApi(moved(answer)),
        429 => {
            let wait = answer.retry_after.as_deref().and_then(|text| retry_after(text, now));
            let failure =
                Failure::new("rate_limited", "WordPress, or what stands before it, asks for a pause (429)");
            Heard::Paused(Pause { failure, wait })
        }
        503 if is_maintenance(answer, body.as_ref()) => {
            let message = "WordPress is in maintenance; it is tried again";
            Heard::NotNow(Failure::new("maintenance", message))
        }
        status => match body.as_ref().and_then(code_of) {
            Some(code) => of_code(status, code, body.as_ref()),
            None => without_code(status),
        },
    }
}

/// The envelope's content (`?_envelope`), judged as if it had come alone; the second is how many it found in all.
pub(super) fn unwrapped(heard: Heard) -> (Heard, Option<u64>) {
    let Heard::Told(mut envelope) = heard else { return (heard, None) };
    let status = envelope.get("status").and_then(Value::as_u64).and_then(|status| u16::try_from(status).ok());
    let Some(status) = status else {
        return (
            Heard::Unclear("WordPress did not answer as asked: look for a cache in front of it".to_owned()),
            None,
        );
    };
    let total = envelope.pointer("/headers/X-WP-Total").and_then(number);
    let body = envelope.get_mut("body").map(Value::take).unwrap_or_default();
    let heard = match (status, code_of(&body)) {
        (200..=299, _) => Heard::Told(body),
        (_, Some(code)) => of_code(status, code, Some(&body)),
        (_, None) => without_code(status),
    };
    (heard, total)
}

/// A number, also one that PHP wrote as a text.
pub(super) fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// The code of an error as `WordPress` writes it, of harmless characters.
fn code_of(body: &Value) -> Option<&str> {
    let code = body.get("code")?.as_str()?;
    let harmless = code.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
    (harmless && (1..=CODE_MAX).contains(&code.len())).then_some(code)
}

fn of_code(status: u16, code: &str, body: Option<&Value>) -> Heard {
    match (status, code) {
        (401, code) if NOT_LOGGED_IN.contains(&code) => Heard::LoginExpired(expired(code)),
        (403, code) if MISSING_RIGHT.contains(&code) => Heard::Denied(denied(code)),
        // A right that a parameter needs: the answer to that stands within.
        (400, "rest_invalid_param") => match nested(body) {
            Some((401, code)) if NOT_LOGGED_IN.contains(&code) => Heard::LoginExpired(expired(code)),
            Some((403, code)) if MISSING_RIGHT.contains(&code) => Heard::Denied(denied(code)),
            _ => Heard::Refused(refused(code)),
        },
        (400, "term_exists") => match body.and_then(|body| body.pointer("/data/term_id")).and_then(number) {
            Some(id) => Heard::TermExists(id),
            None => {
                Heard::Unclear("WordPress says that a term exists, and not which (term_exists)".to_owned())
            }
        },
        (400, code) if BEFORE_ANY_WRITE.contains(&code) => Heard::Refused(refused(code)),
        (404, "rest_post_invalid_id") => Heard::Gone,
        (404, "rest_no_route") => Heard::NoApi(no_api(code)),
        // Comes with 500, although no other try would end otherwise.
        (_, code) if code.starts_with("rest_upload_") => Heard::FileRefused(format!(
            "WordPress does not take this file ({code}): use another kind of image, or a smaller one"
        )),
        (401 | 403, code) => Heard::Blocked(blocked(status, code)),
        (500, code) => Heard::Broke(format!("WordPress answered 500 ({code})")),
        (status, code) => Heard::Unclear(format!("WordPress answered {status} ({code})")),
    }
}

fn without_code(status: u16) -> Heard {
    match status {
        401 | 403 | 406 => Heard::Blocked(blocked(status, "no answer of WordPress itself")),
        404 => Heard::NoApi(no_api("404")),
        500 => Heard::Broke("WordPress answered 500 with a page: its log says why".to_owned()),
        status => Heard::Unclear(format!("WordPress, or what stands before it, answered {status}")),
    }
}

/// Maintenance is found before anything is loaded that could write. It is known by all of: its status, its `Retry-After`, and
/// a page or an error of core's own (`wp_die`); a page that a site puts in its place proves nothing.
fn is_maintenance(answer: &Answer, body: Option<&Value>) -> bool {
    let page = || String::from_utf8_lossy(&answer.head).contains("wp-die-message");
    let by_core = body.and_then(code_of).map_or_else(page, |code| code == "wp_die");
    answer.retry_after.as_deref() == Some(MAINTENANCE_SECONDS) && by_core
}

/// Status and code of the error within `rest_invalid_param`.
fn nested(body: Option<&Value>) -> Option<(u16, &str)> {
    let details = body?.pointer("/data/details")?.as_object()?;
    details.values().find_map(|error| {
        let status = error.pointer("/data/status").and_then(Value::as_u64)?;
        Some((u16::try_from(status).ok()?, code_of(error)?))
    })
}

fn expired(code: &str) -> Failure {
    let message = format!(
        "WordPress does not let the account in ({code}): make a new application password and put it into the account"
    );
    Failure::new(LOGIN_EXPIRED, message)
}

fn denied(code: &str) -> Failure {
    let message = format!(
        "WordPress lets the account in, but its user may not do this ({code}): give it the role Author or Editor"
    );
    Failure::new("not_permitted", message)
}

fn refused(code: &str) -> Failure {
    let message = format!(
        "WordPress refused the request ({code}): look whether a plugin changes what its REST API takes"
    );
    Failure::new("refused_by_platform", message)
}

fn blocked(status: u16, by: &str) -> Failure {
    let message = format!(
        "something on the site keeps the REST API from us ({status}, {by}): let its firewall or security plugin allow it"
    );
    Failure::new("platform_blocked", message)
}

fn no_api(code: &str) -> Failure {
    let message = format!(
        "there is no WordPress REST API at the account's base_url ({code}): check the address, and that the site's permalinks are not \"Plain\""
    );
    Failure::new("no_rest_api", message)
}

fn moved(answer: &Answer) -> Failure {
    let to = answer.location.as_deref().and_then(|to| url::Url::parse(to).ok());
    let to = to.map_or_else(|| "elsewhere".to_owned(), |to| to.origin().ascii_serialization());
    let message = format!("the site redirects to {to}: set the account's base_url to where the site stands");
    Failure::new("no_rest_api", message)
}

#[cfg(test)]
mod tests;
