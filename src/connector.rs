//! What publishes to one kind of platform.
//!
//! A connector knows a platform and nothing of tasks, leases or databases: it is asked to look for a marked article,
//! or to publish one, and says what it saw. What follows from that is decided by [`crate::task`]. Before that, it says
//! what is wrong with an account's settings and credentials.

use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::time::Instant;

use chrono::{DateTime, Utc};
use serde_json::Value;
use uuid::Uuid;

use crate::account::Credentials;
use crate::article::Content;
use crate::fields::{FieldError, Fields};
use crate::json::InvalidJson;
use crate::store::Claimed;

mod describe;
mod fragment;
pub mod http_bridge;
pub mod media;
pub mod static_site;

pub use describe::{ContentProblem, ContentRule, Description};

/// A connector's answer, when it comes.
pub type Answering<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a platform lets the service promise about "once": of all that could be, what a platform here has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guarantee {
    /// The platform drops a second request with our key: sending the same request again *is* the look-up.
    NativeKey,
}

impl Guarantee {
    /// The name used in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NativeKey => "native_key",
        }
    }
}

/// One article to be published on one account.
#[derive(Debug, Clone)]
pub struct Job {
    /// The publication's mark on the platform: the same for every try, safe in a URL and as a file name.
    pub marker: String,
    /// The tenant's name.
    pub tenant: String,
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
            publication_id: one.publication_id,
            round: one.round,
            external_id: one.external_id.clone(),
            account_id: one.account_id.clone(),
            settings: one.settings.clone(),
            credentials,
            content: one.content.clone(),
            submitted_at: one.submitted_at,
            until,
        }
    }
}

/// Where an article stands on a platform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    /// The public address.
    pub url: String,
    /// The platform's own id of it, where it gives one.
    pub remote_id: Option<String>,
}

/// The longest id of an article on its platform, in characters: none that is known has half of it.
pub const REMOTE_ID_MAX: usize = 200;

/// Reads the field `remote_id` of a body that says where an article stands.
pub fn remote_id(fields: &mut Fields<'_>) -> Result<Option<String>, InvalidJson> {
    let id = fields.text("remote_id", Some(REMOTE_ID_MAX), false)?;
    if id.as_deref().is_some_and(|id| id.is_empty() || id.chars().any(char::is_control)) {
        fields.refuse("remote_id", "not_allowed", "must not be empty or hold control characters");
    }
    Ok(id)
}

/// An error to be shown to the tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Stable, `snake_case`.
    pub code: Cow<'static, str>,
    /// What happened and what to do, in a sentence.
    pub message: String,
}

impl Failure {
    /// A failure of that code.
    #[must_use]
    pub fn new(code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into() }
    }
}

/// What a look-up by marker saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sighting {
    /// The article is public.
    Published(Remote),
    /// It is proven that the article is not there.
    Absent,
    /// The platform could not be asked; why.
    CannotTell(String),
    /// The platform drops a second request with our key and answers it: sending the same request again is the look-up.
    SendToAsk,
}

/// What a request to publish came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The article is public.
    Done(Remote),
    /// The platform proved that it did nothing; another try may succeed.
    Transient(Failure),
    /// The platform has the article and works on it; what comes of it is told later, or when it is asked again.
    Accepted,
    /// Nothing was done, and another try would end the same.
    Rejected(Failure),
    /// The platform itself says that it failed and published nothing: a retry by the caller may help.
    Reported(Failure),
    /// The platform itself says that it does not let the account in.
    LoginExpired(Failure),
    /// Neither is proven: it is to be looked up, not repeated.
    Unknown(String),
}

/// One kind of platform.
pub trait Connector: Send + Sync {
    /// What can be promised about "once" here.
    fn guarantee(&self) -> Guarantee;

    /// What an account needs here, and what the platform takes.
    fn describe(&self) -> Description;

    /// What is wrong with an account's settings and credentials (those that are to hold, sent now or stored before), all
    /// of it, with pointers below `/settings` and `/credentials`. Credentials that are needed and not there are
    /// `required` at `/credentials`. Nothing of the credentials stands in the answer but names of their members.
    fn check_account(&self, settings: &Value, credentials: Option<&Value>) -> Vec<FieldError>;

    /// What would keep an article from being published, as far as it can be told without asking the platform.
    fn check_content<'a>(&'a self, _: &'a Content) -> Answering<'a, Vec<ContentProblem>> {
        Box::pin(std::future::ready(Vec::new()))
    }

    /// What of the settings says where articles go: it must not change while publications of the account are submitted,
    /// running or `login_expired`, or an article would be looked for where it is not.
    fn site(&self, settings: &Value) -> Option<String>;

    /// Looks for the article that carries `job.marker`. Publishes nothing, and changes nothing that anyone published. A
    /// platform that can only be asked by sending the same request again says [`Sighting::SendToAsk`].
    fn find<'a>(&'a self, job: &'a Job) -> Answering<'a, Sighting>;

    /// Publishes the article, marked with `job.marker`. Called only after [`Connector::find`] said [`Sighting::Absent`], or
    /// [`Sighting::SendToAsk`]: then it may have been sent before, and the platform answers what became of it.
    fn publish<'a>(&'a self, job: &'a Job) -> Answering<'a, Verdict>;
}
