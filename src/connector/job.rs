//! What a connector is given: an article to be published, or an account to be asked about.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use serde_json::Value;
use uuid::Uuid;

use super::secrets::Secrets;
use crate::account::Credentials;
use crate::article::Content;
use crate::store::{Claimed, Evidence};

/// How much of a platform's answer is kept for the history, in characters: enough for an error's code and sentence.
pub const ANSWER_HEAD_CHARS: usize = 500;

/// One article to be published on one account.
#[derive(Debug, Clone)]
pub struct Job {
    /// The publication's mark on the platform: the same for every try, safe in a URL, a slug and as a file name.
    pub marker: String,
    /// The tenant's name.
    pub tenant: String,
    /// Whose it is.
    pub tenant_id: Uuid,
    /// The publication, by which a platform that answers later names it.
    pub publication_id: Uuid,
    /// Which run of it.
    pub round: i32,
    /// The caller's id of the article.
    pub external_id: String,
    /// The account.
    pub account_id: String,
    /// The account's settings, as its platform defines them.
    pub settings: Value,
    /// The account's credentials, as its platform defines them.
    pub credentials: Credentials,
    /// The article.
    pub content: Content,
    /// When the task was submitted: the article's date.
    pub submitted_at: DateTime<Utc>,
    /// The draft on the platform: where one is to be published, that one; in a look, the one that is known, if any.
    pub draft_id: Option<String>,
    /// What [`super::Connector::prepare`] made ready, as the connector defines it; null where nothing was.
    pub prepared: Value,
    /// The id that this step's requests bear (`X-Request-Id`), by which they are found in the platform's own log.
    pub request_id: String,
    /// What the platform last said.
    pub trace: Trace,
    /// Nothing outside may be begun after this: another holder may have it by then.
    pub until: Instant,
}

impl Job {
    /// What a publication in hand asks for.
    #[must_use]
    pub fn of(one: &Claimed, marker: &str, credentials: Credentials, until: Instant) -> Self {
        Self {
            marker: marker.to_owned(),
            tenant: one.tenant.clone(),
            tenant_id: one.tenant_id,
            publication_id: one.publication_id,
            round: one.round,
            external_id: one.external_id.clone(),
            account_id: one.account_id.clone(),
            settings: one.settings.clone(),
            credentials,
            content: one.content.clone(),
            submitted_at: one.submitted_at,
            draft_id: one.draft_id.clone(),
            prepared: Value::Null,
            request_id: String::new(),
            trace: Trace::default(),
            until,
        }
    }
}

/// An account, to be asked about itself.
#[derive(Debug, Clone)]
pub struct Access {
    /// The tenant's name.
    pub tenant: String,
    /// Whose it is.
    pub tenant_id: Uuid,
    /// The account.
    pub account_id: String,
    /// The account's settings.
    pub settings: Value,
    /// The account's credentials.
    pub credentials: Credentials,
}

/// Keeps what the platform last answered in a step: also where the step is then given up, because its time is over.
#[derive(Debug, Clone, Default)]
pub struct Trace(Arc<Mutex<Evidence>>);

impl Trace {
    /// Notes an answer, its body without the secrets, at most [`ANSWER_HEAD_CHARS`] of it; the latest answer counts.
    pub(super) fn note(&self, http_status: u16, body: &[u8], secrets: &Secrets) {
        // Taken out before it is cut, or the beginning of one would stay at its end.
        let head = secrets.taken_out(&String::from_utf8_lossy(body));
        let head = head.chars().map(|c| if c.is_control() { ' ' } else { c }).take(ANSWER_HEAD_CHARS);
        let evidence = Evidence { http_status: Some(http_status), head: Some(head.collect()) };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = evidence;
    }

    /// What was noted last; from now on nothing is.
    #[must_use]
    pub fn take(&self) -> Evidence {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The wait of a platform that asks for a pause and does not say how long: most count by the minute.
pub const PAUSE_DEFAULT: Duration = Duration::from_mins(1);

/// The longest pause that is kept because a platform asks for it: a day, after which it is asked again.
pub const PAUSE_MAX: Duration = Duration::from_hours(24);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_platform_echoes_of_the_credentials_is_not_kept() {
        let credentials =
            Credentials::new(json!({"username": "editor", "application_password": "abcd efgh"}));
        let secrets = Secrets::of(&credentials);
        let trace = Trace::default();
        trace.note(500, b"first", &Secrets::of(&Credentials::none()));
        trace.note(401, b"no such user: editor with abcd efgh\n", &secrets);
        let head = Some("no such user: … with … ".to_owned());
        assert_eq!(trace.take(), Evidence { http_status: Some(401), head });
        assert_eq!(trace.take(), Evidence::default());
        trace.note(200, "é".repeat(600).as_bytes(), &secrets);
        assert_eq!(trace.take().head.unwrap().chars().count(), ANSWER_HEAD_CHARS);
        trace.note(500, format!("{}abcd efgh", "x".repeat(ANSWER_HEAD_CHARS - 4)).as_bytes(), &secrets);
        assert!(trace.take().head.unwrap().ends_with("x…"));
    }
}
