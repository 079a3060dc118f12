//! Requests to one site, in one account's name.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::account::Settings;
use super::answers::{Heard, heard, unwrapped};
use crate::account::Credentials;
use crate::clock::SharedClock;
use crate::connector::secrets::Secrets;
use crate::connector::{Access, Failure, Job, Trace};
use crate::outbound::{Call, Client, Limits, Method};

/// The bytes that are read of an answer: a few articles of 2 MiB, as JSON escapes them.
const ANSWER_BYTES: usize = 16 * 1024 * 1024;

/// One account's way to its site.
pub(super) struct Session<'a> {
    pub(super) client: &'a Client,
    pub(super) clock: &'a SharedClock,
    pub(super) settings: Settings,
    credentials: &'a Credentials,
    /// How long a request may take.
    timeout: Duration,
    /// No request is begun after this, nor goes on beyond it.
    until: Option<Instant>,
    request_id: &'a str,
    trace: Option<&'a Trace>,
}

/// What is sent with a request.
pub(super) enum Body<'a> {
    None,
    Json(&'a Value),
    /// A file's bytes, its media type and its name, which needs no quoting.
    File(Vec<u8>, &'static str, String),
}

/// What the client and its clock make of a job or an access; the error says what the account lacks.
pub(super) struct Ways<'a> {
    pub(super) client: &'a Client,
    pub(super) clock: &'a SharedClock,
    pub(super) timeout: Duration,
}

impl<'a> Ways<'a> {
    pub(super) fn of_job(self, job: &'a Job) -> Result<Session<'a>, Failure> {
        let session = self.session(&job.settings, &job.credentials)?;
        let (until, trace) = (Some(job.until), Some(&job.trace));
        Ok(Session { until, trace, request_id: &job.request_id, ..session })
    }

    pub(super) fn of_access(self, access: &'a Access) -> Result<Session<'a>, Failure> {
        self.session(&access.settings, &access.credentials)
    }

    fn session(self, settings: &Value, credentials: &'a Credentials) -> Result<Session<'a>, Failure> {
        let settings = Settings::of(settings)?;
        if credentials.text("username").is_none() || credentials.text("application_password").is_none() {
            let message =
                "the account has no login: set its credentials `username` and `application_password`";
            return Err(Failure::new("bad_credentials", message));
        }
        let (client, clock, timeout) = (self.client, self.clock, self.timeout);
        Ok(Session {
            client,
            clock,
            settings,
            credentials,
            timeout,
            until: None,
            request_id: "",
            trace: None,
        })
    }
}

impl Session<'_> {
    /// Asks for a list in an envelope, which carries how many there are, also of those that the account may not see.
    pub(super) async fn list(&self, path: &str, query: &[(&str, &str)]) -> (Heard, Option<u64>) {
        let query = [query, &[("_envelope", "1")]].concat();
        unwrapped(self.send(Method::Get, path, &query, Body::None).await)
    }

    /// Sends one request to `/wp-json/wp/v2/{path}`, and notes the answer.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Body<'_>,
    ) -> Heard {
        let Some(deadline) = self.time_left() else {
            let message = "there was no time left to ask WordPress; it is tried again";
            return Heard::NotNow(Failure::new("platform_unavailable", message));
        };
        let url = self.url(path, query);
        let authorization = self.authorization();
        let secrets = self.trace.map(|trace| (trace, Secrets::of(self.credentials).sent(&authorization)));
        let mut headers = vec![("authorization", authorization), ("accept", "application/json".to_owned())];
        if !self.request_id.is_empty() {
            headers.push(("x-request-id", self.request_id.to_owned()));
        }
        let body = match body {
            Body::None => Vec::new(),
            Body::Json(value) => {
                headers.push(("content-type", "application/json".to_owned()));
                value.to_string().into_bytes()
            }
            Body::File(bytes, kind, name) => {
                headers.push(("content-type", kind.to_owned()));
                headers.push(("content-disposition", format!("attachment; filename=\"{name}\"")));
                bytes
            }
        };
        let limits = Limits { deadline, answer_bytes: ANSWER_BYTES };
        let answer = self.client.send(Call { method, url: &url, headers: &headers, body, limits }).await;
        if let (Ok(answer), Some((trace, secrets))) = (&answer, secrets) {
            trace.note(answer.status, &answer.head, &secrets);
        }
        heard(answer, self.clock.now())
    }

    /// How long a request that begins now may take; none: it must not begin.
    fn time_left(&self) -> Option<Duration> {
        let Some(until) = self.until else { return Some(self.timeout) };
        let left = until.checked_duration_since(self.clock.instant())?;
        (!left.is_zero()).then(|| left.min(self.timeout))
    }

    fn url(&self, path: &str, query: &[(&str, &str)]) -> String {
        let mut url = format!("{}/wp-json/wp/v2/{path}", self.settings.base_url);
        for (at, (name, value)) in query.iter().enumerate() {
            url.push(if at == 0 { '?' } else { '&' });
            url.push_str(name);
            url.push('=');
            url.extend(utf8_percent_encode(value, NON_ALPHANUMERIC));
        }
        url
    }

    /// Basic authentication with an application password
    /// (<https://developer.wordpress.org/rest-api/using-the-rest-api/authentication/>).
    fn authorization(&self) -> String {
        let text = |name| self.credentials.text(name).unwrap_or_default();
        let pair = format!("{}:{}", text("username"), text("application_password"));
        format!("Basic {}", STANDARD.encode(pair))
    }
}
