//! What publishes to one kind of platform.
//!
//! A connector knows a platform and nothing of tasks, leases or databases: it is asked to look for a marked article, to make
//! a draft of it, or to publish it, and says what it saw. What follows from that is decided by [`crate::task`]. Before that,
//! it says what is wrong with an account's settings and credentials. Only what [`sandbox`] holds lies in our database, in
//! tables of its own.

use std::future::{Future, ready};
use std::pin::Pin;
use std::time::Duration;

use serde_json::Value;

use crate::article::Content;
use crate::fields::FieldError;

mod answers;
mod describe;
mod fragment;
pub mod ghost;
pub mod http_bridge;
mod job;
mod marks;
pub mod media;
pub mod sandbox;
mod secrets;
pub mod static_site;
pub mod wordpress;

pub use answers::{
    Failure, Listed, Listing, Login, Marked, Pause, Prepared, REMOTE_ID_MAX, Remote, Removal, Sighting,
    Verdict, remote_id,
};
pub use describe::{ContentProblem, ContentRule, Description};
pub use job::{ANSWER_HEAD_CHARS, Access, Job, PAUSE_DEFAULT, PAUSE_MAX, Trace};

/// A connector's answer, when it comes.
pub type Answering<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a platform lets the service promise about "once".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Guarantee {
    /// The platform drops a second request with our key: sending the same request again *is* the look-up.
    NativeKey,
    /// A marked draft is found again before anything is public; publishing a draft by its id twice is harmless. A holder that
    /// is stopped between its journal and its request may publish what was reported as failed meanwhile, and still only once.
    /// A backup that is restored sooner than the settle time after the last request forgets which draft was being published.
    DraftThenPublish,
    /// A marked article can be found afterwards. A holder that is stopped between its journal and its request, and goes on
    /// after the settle time, publishes twice: nothing at the platform stands in its way. So does a backup that is restored
    /// sooner than the settle time after the last request. `tests/model` shows both.
    Search,
    /// Neither: after an unknown outcome a person decides. A restored backup forgets that there was one.
    AtMostOnce,
}

impl Guarantee {
    /// The name used in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NativeKey => "native_key",
            Self::DraftThenPublish => "draft_then_publish",
            Self::Search => "search",
            Self::AtMostOnce => "at_most_once",
        }
    }
}

/// One kind of platform.
pub trait Connector: Send + Sync {
    /// What can be promised about "once" here.
    fn guarantee(&self) -> Guarantee;

    /// How long after a request that got no answer the platform may still carry it out: absence proves nothing before.
    fn settle_time(&self) -> Duration {
        Duration::ZERO
    }

    /// What an account needs here, and what the platform takes.
    fn describe(&self) -> Description;

    /// What is wrong with an account's settings and credentials (those that are to hold, sent now or stored before), all
    /// of it, with pointers below `/settings` and `/credentials`. Credentials that are needed and not there are
    /// `required` at `/credentials`. Nothing of the credentials stands in the answer but names of their members.
    fn check_account(&self, settings: &Value, credentials: Option<&Value>) -> Vec<FieldError>;

    /// What would keep an article from being published, as far as it can be told without asking the platform.
    fn check_content<'a>(&'a self, _: &'a Content) -> Answering<'a, Vec<ContentProblem>> {
        Box::pin(ready(Vec::new()))
    }

    /// What of the settings says where articles go: it must not change while publications of the account are submitted,
    /// running or `login_expired`, or an article would be looked for where it is not.
    fn site(&self, settings: &Value) -> Option<String>;

    /// Whether, by its settings, nothing is sent to the account: a robot fetches its articles.
    fn pulled(&self, _: &Value) -> bool {
        false
    }

    /// Asks the platform whether it lets the account in.
    fn check_login<'a>(&'a self, access: &'a Access) -> Answering<'a, Login>;

    /// Looks for what carries `job.marker`, public or draft. Publishes nothing, and changes nothing that anyone published. A
    /// platform that can only be asked by sending the same request again says [`Sighting::SendToAsk`].
    fn find<'a>(&'a self, job: &'a Job) -> Answering<'a, Sighting>;

    /// Whether something is to be made ready on the platform before this article: its images, its tags.
    fn prepares(&self, _: &Job) -> bool {
        false
    }

    /// Makes that ready, or so much of it as there is time for until `job.until`; `job.prepared` says what is ready by then. It
    /// is begun again where it was given up, so what is there already is found and used. The error is what keeps the article
    /// from being made; nothing of it is on the platform then.
    fn prepare<'a>(&'a self, _: &'a Job) -> Answering<'a, Result<Prepared, Verdict>> {
        Box::pin(ready(Ok(Prepared::default())))
    }

    /// Makes a draft of the article, marked with `job.marker`: [`Verdict::Drafted`]. Called of
    /// [`Guarantee::DraftThenPublish`] only, after [`Connector::find`] saw nothing.
    fn draft<'a>(&'a self, _: &'a Job) -> Answering<'a, Verdict> {
        let none = Failure::new("no_drafts", "this platform has no drafts: report this to the operator");
        Box::pin(ready(Verdict::Rejected(none)))
    }

    /// Publishes the article: the draft `job.draft_id` of [`Guarantee::DraftThenPublish`]; else the article itself, marked
    /// with `job.marker`, after [`Connector::find`] saw nothing, or said [`Sighting::SendToAsk`]: then it may have been sent
    /// before, and the platform answers what became of it.
    fn publish<'a>(&'a self, job: &'a Job) -> Answering<'a, Verdict>;

    /// Removes the draft `job.draft_id` while it is as it was made, and never what is public or a person's work: in doubt it
    /// stays, and [`Removal::Unknown`] says why. Called of [`Guarantee::DraftThenPublish`] only.
    fn remove<'a>(&'a self, _: &'a Job) -> Answering<'a, Removal> {
        Box::pin(ready(Removal::Gone))
    }

    /// Lists what the platform holds of the account, from the beginning or from what the page before called `next`: for an
    /// operator who compares it with what was recorded.
    fn list<'a>(&'a self, _: &'a Access, _: Option<String>) -> Answering<'a, Listing> {
        let why = "this platform does not list what it holds";
        Box::pin(ready(Listing::CannotTell(why.to_owned())))
    }
}
