//! `http_bridge`: for every platform without an API of its own. An endpoint that the tenant runs (a browser robot, an
//! in-house system) gets each article by a signed POST, and publishes it.
//!
//! The request is signed as Standard Webhooks says, under the account's secret. Its `webhook-id` is the publication's
//! marker, the same for every try and every round: an endpoint that remembers what it has published, and what it works on,
//! by that id drops the second request and answers it. So sending again *is* the look-up, and nothing else is.
//!
//! An account without an endpoint belongs to a robot that nothing can be sent to, behind a firewall: it fetches its articles
//! by `POST /bridge/claim`, and nothing is done here.

use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

use super::secrets::Secrets;
use super::{Access, Answering, Connector, Description, Failure, Guarantee, Job, Login, Sighting, Verdict};
use crate::article::Content;
use crate::callback::signature::{SigningSecret, signed_headers};
use crate::clock::SharedClock;
use crate::fields::FieldError;
use crate::outbound::{Answer, Call, CallError, Client, Limits, Method};

mod account;
mod report;

pub use report::{LEASE_ID_MAX, Report, Reported, ResultsRequest};

/// The platform's name.
pub const PLATFORM: &str = "http_bridge";

/// The bytes that are read of an answer: it holds a URL, an id or a message.
const ANSWER_BYTES: usize = 64 * 1024;

/// The platform.
pub struct HttpBridge {
    client: Client,
    /// How long a call may take, all of it.
    timeout: Duration,
    clock: SharedClock,
}

/// What is sent.
#[derive(Serialize)]
struct Request<'a> {
    publication_id: Uuid,
    round: i32,
    external_id: &'a str,
    account_id: &'a str,
    article: Article<'a>,
}

#[derive(Serialize)]
struct Article<'a> {
    title: &'a str,
    content_html: &'a str,
    summary: Option<&'a str>,
    cover_url: Option<&'a str>,
    canonical_url: Option<&'a str>,
    author: Option<&'a str>,
    tags: &'a [String],
}

impl<'a> From<&'a Content> for Article<'a> {
    fn from(content: &'a Content) -> Self {
        Self {
            title: &content.title,
            content_html: &content.content_html,
            summary: content.summary.as_deref(),
            cover_url: content.cover_url.as_deref(),
            canonical_url: content.canonical_url.as_deref(),
            author: content.author.as_deref(),
            tags: &content.tags,
        }
    }
}

impl HttpBridge {
    /// The platform, whose calls end within `timeout`.
    #[must_use]
    pub fn new(client: Client, timeout: Duration, clock: SharedClock) -> Self {
        Self { client, timeout, clock }
    }

    async fn send(&self, job: &Job) -> Verdict {
        let Some(endpoint) = account::endpoint(&job.settings) else {
            let message = "the account has no endpoint: set its setting `endpoint`";
            return Verdict::Rejected(Failure::new("bad_settings", message));
        };
        let secret = job.credentials.text("secret");
        let Some(secret) = secret.and_then(|text| text.parse::<SigningSecret>().ok()) else {
            let message = "the account has no secret to sign with: set its credential `secret` (whsec_…)";
            return Verdict::Rejected(Failure::new("bad_credentials", message));
        };
        let request = Request {
            publication_id: job.publication_id,
            round: job.round,
            external_id: &job.external_id,
            account_id: &job.account_id,
            article: (&job.content).into(),
        };
        let Ok(body) = serde_json::to_vec(&request) else {
            return Verdict::Rejected(Failure::new("unrenderable", "the article cannot be written as JSON"));
        };
        let mut headers =
            signed_headers(&job.marker, self.clock.now().timestamp(), &body, &[secret.into()]).to_vec();
        headers.push(("x-request-id", job.request_id.clone()));
        let limits = Limits { deadline: self.timeout, answer_bytes: ANSWER_BYTES };
        let call = Call { method: Method::Post, url: endpoint, headers: &headers, body, limits };
        let answer = self.client.send(call).await;
        let signed =
            headers.iter().find(|(name, _)| *name == "webhook-signature").map(|(_, value)| value.as_str());
        let secrets = Secrets::of(&job.credentials).sent(signed.unwrap_or_default());
        if let Ok(answer) = &answer {
            job.trace.note(answer.status, &answer.head, &secrets);
        }
        match verdict(answer) {
            Verdict::Reported(failure) => Verdict::Reported(without(&secrets, failure)),
            Verdict::LoginExpired(failure) => Verdict::LoginExpired(without(&secrets, failure)),
            verdict => verdict,
        }
    }
}

/// What an endpoint says, shown to the tenant's readers without what signs its requests.
fn without(secrets: &Secrets, failure: Failure) -> Failure {
    Failure { message: secrets.taken_out(&failure.message), ..failure }
}

fn verdict(answer: Result<Answer, CallError>) -> Verdict {
    match answer {
        Ok(Answer { status: 200, head, .. }) => match Report::parse(&head) {
            Ok(Report::Success(remote)) => Verdict::Done(remote),
            Ok(Report::Failed(failure)) => Verdict::Reported(failure),
            Ok(Report::LoginExpired(failure)) => Verdict::LoginExpired(failure),
            Err(why) => Verdict::Unknown(why),
        },
        Ok(Answer { status: 202, .. }) => Verdict::Accepted,
        Ok(Answer { status: status @ (401 | 403), .. }) => Verdict::Unknown(format!(
            "the bridge answered {status}: does it have the account's secret, and the right clock?"
        )),
        Ok(Answer { status, .. }) => Verdict::Unknown(format!("the bridge answered {status}")),
        Err(error @ CallError::Refused(_)) => {
            Verdict::Rejected(Failure::new("endpoint_not_allowed", error.to_string()))
        }
        Err(error) if error.proved_unsent() => {
            Verdict::Transient(Failure::new("bridge_unreachable", error.to_string()))
        }
        Err(error) => Verdict::Unknown(error.to_string()),
    }
}

impl Connector for HttpBridge {
    fn guarantee(&self) -> Guarantee {
        Guarantee::NativeKey
    }

    fn describe(&self) -> Description {
        account::description()
    }

    fn check_account(&self, settings: &Value, credentials: Option<&Value>) -> Vec<FieldError> {
        account::check(self.client.policy(), settings, credentials)
    }

    /// Where the endpoint stands is its owner's affair, as long as it takes its memory along. Whoever fetches has another
    /// memory: what was sent must not be handed to it, nor what it has be sent.
    fn site(&self, settings: &Value) -> Option<String> {
        self.pulled(settings).then(|| "fetched".to_owned())
    }

    fn pulled(&self, settings: &Value) -> bool {
        account::endpoint(settings).is_none()
    }

    fn check_login<'a>(&'a self, _: &'a Access) -> Answering<'a, Login> {
        let why = "a bridge tells of its login only with an article's outcome";
        Box::pin(std::future::ready(Login::CannotTell(why.to_owned())))
    }

    fn find<'a>(&'a self, job: &'a Job) -> Answering<'a, Sighting> {
        let sighting = if self.pulled(&job.settings) {
            Sighting::CannotTell("the account's robot fetches its articles: nothing is sent to it".to_owned())
        } else {
            Sighting::SendToAsk
        };
        Box::pin(std::future::ready(sighting))
    }

    fn publish<'a>(&'a self, job: &'a Job) -> Answering<'a, Verdict> {
        Box::pin(self.send(job))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Remote;
    use super::*;
    use crate::account::Credentials;

    fn told(status: u16, body: &str) -> Verdict {
        let (retry_after, content_type, location, date) = (None, None, None, None);
        let (head, cut, elapsed) = (body.into(), false, Duration::ZERO);
        verdict(Ok(Answer { status, retry_after, content_type, location, date, head, cut, elapsed }))
    }

    #[test]
    fn an_endpoint_says_what_came_of_it() {
        let done = told(200, r#"{"status": "success", "url": "https://h/a", "remote_id": "7", "more": [1]}"#);
        let remote = |id: Option<&str>| Remote { url: "https://h/a".into(), remote_id: id.map(Into::into) };
        assert_eq!(done, Verdict::Done(remote(Some("7"))));
        assert_eq!(told(200, r#"{"status": "success", "url": "https://h/a"}"#), Verdict::Done(remote(None)));
        let failed = told(200, r#"{"status": "failed", "error": {"code": "too_long", "message": "cut it"}}"#);
        assert_eq!(failed, Verdict::Reported(Failure::new("too_long", "cut it")));
        let expired = told(200, r#"{"status": "login_expired", "error": {"code": "Not a code"}}"#);
        assert_eq!(
            expired,
            Verdict::LoginExpired(Failure::new("login_expired", "the bridge gave no reason"))
        );
        assert_eq!(told(202, ""), Verdict::Accepted);
    }

    #[test]
    fn all_else_is_unknown() {
        for (status, body) in [
            (200, ""),
            (200, "ok"),
            (200, "[]"),
            (200, r#"{"status": "success"}"#),
            (200, r#"{"status": "success", "url": "ftp://h/a"}"#),
            (200, r#"{"status": "done", "url": "https://h/a"}"#),
            (201, r#"{"status": "success", "url": "https://h/a"}"#),
            (204, ""),
            (302, ""),
            (401, r#"{"status": "login_expired"}"#),
            (404, ""),
            (429, ""),
            (500, r#"{"status": "failed"}"#),
        ] {
            assert!(matches!(told(status, body), Verdict::Unknown(_)), "{status} {body}");
        }
        let timeout = Err(CallError::Timeout(Duration::from_secs(1)));
        assert!(matches!(verdict(timeout), Verdict::Unknown(_)));
        assert!(matches!(verdict(Err(CallError::NoRoots)), Verdict::Transient(_)));
    }

    #[test]
    fn an_endpoint_that_echoes_its_secret_has_it_taken_out() {
        let credentials =
            Credentials::new(serde_json::json!({"secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}));
        let secrets = Secrets::of(&credentials).sent("v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=");
        let words =
            "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4= do not fit";
        assert_eq!(without(&secrets, Failure::new("x", words)), Failure::new("x", "… … do not fit"));
    }

    #[test]
    fn long_words_of_an_endpoint_are_cut() {
        let body = format!(
            r#"{{"status": "failed", "error": {{"code": "{}", "message": "{}"}}}}"#,
            "x".repeat(65),
            "é".repeat(1_001)
        );
        let Verdict::Reported(failure) = told(200, &body) else { panic!() };
        assert_eq!((&*failure.code, failure.message.chars().count()), ("bridge_failed", 1_000));
    }
}
