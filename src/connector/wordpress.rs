//! `wordpress`: sites that run WordPress, by its REST API (<https://developer.wordpress.org/rest-api/>) with an application
//! password.
//!
//! An article becomes a draft that carries two marks ([`mark`]), is looked for once more, and is published by its id, which
//! is harmless however often it is done: at most one becomes public. WordPress has no lock and no key: a slug that is taken
//! gets a number, so that of two creates at once both succeed; the oldest wins, and the other stays a draft and is removed.
//!
//! What a person did on the site stands: what is in the trash, private or scheduled there is not published, and the failure
//! says so; what they wrote in a draft is not removed. The canonical URL and the author are left out, since core has no field for the first and takes only users for the
//! second. Images of the text stay where they are unless the account's setting `images` says `upload`; a cover is always
//! uploaded, once for each content of a file.

use std::future::ready;
use std::time::Duration;

use serde_json::Value;

use self::answers::Heard;
use self::call::{Body, Session, Ways};
use self::prepare::Uploads;
use super::media::Media;
use super::{
    Access, Answering, Connector, Description, Failure, Guarantee, Job, Listing, Login, Prepared, Removal,
    Sighting, Verdict,
};
use crate::clock::SharedClock;
use crate::fields::FieldError;
use crate::outbound::{Client, Method};

mod account;
mod answers;
mod call;
mod find;
mod mark;
mod post;
mod prepare;
mod remove;

/// The platform's name.
pub const PLATFORM: &str = "wordpress";

/// How long after a request without an answer WordPress may still carry it out: PHP's own limit of a request
/// (`max_execution_time`, <https://www.php.net/manual/en/info.configuration.php#ini.max-execution-time>), which most hosts keep.
pub const SETTLE_TIME: Duration = Duration::from_secs(30);

/// What publishing needs, and what a cover does: rights of the role Author.
const RIGHTS: [&str; 3] = ["edit_posts", "publish_posts", "upload_files"];

/// The platform.
pub struct WordPress {
    client: Client,
    media: Media,
    uploads: Uploads,
    /// How long a request may take, all of it.
    timeout: Duration,
    clock: SharedClock,
}

impl WordPress {
    /// The platform, whose requests each end within `timeout`.
    #[must_use]
    pub fn new(client: Client, media: Media, timeout: Duration, clock: SharedClock) -> Self {
        Self { client, media, uploads: Uploads::default(), timeout, clock }
    }

    fn ways(&self) -> Ways<'_> {
        Ways { client: &self.client, clock: &self.clock, timeout: self.timeout }
    }

    fn session<'a>(&'a self, job: &'a Job) -> Result<Session<'a>, Failure> {
        self.ways().of_job(job)
    }
}

/// The draft that is meant.
fn draft_of(job: &Job) -> Result<u64, Failure> {
    let id = job.draft_id.as_deref().and_then(|id| id.parse().ok());
    id.ok_or_else(|| Failure::new("no_draft", "no draft of WordPress is named: report this to the operator"))
}

impl Connector for WordPress {
    fn guarantee(&self) -> Guarantee {
        Guarantee::DraftThenPublish
    }

    fn settle_time(&self) -> Duration {
        SETTLE_TIME
    }

    fn describe(&self) -> Description {
        account::description()
    }

    fn check_account(&self, settings: &Value, credentials: Option<&Value>) -> Vec<FieldError> {
        account::check(self.client.policy(), settings, credentials)
    }

    fn site(&self, settings: &Value) -> Option<String> {
        account::site(settings)
    }

    fn check_login<'a>(&'a self, access: &'a Access) -> Answering<'a, Login> {
        let session = match self.ways().of_access(access) {
            Ok(session) => session,
            Err(failure) => return Box::pin(ready(Login::Unfit(failure))),
        };
        Box::pin(async move {
            let query = [("context", "edit"), ("_fields", "capabilities")];
            match session.send(Method::Get, "users/me", &query, Body::None).await {
                Heard::Told(user) => rights(&user),
                heard => heard.login(),
            }
        })
    }

    fn find<'a>(&'a self, job: &'a Job) -> Answering<'a, Sighting> {
        match self.session(job) {
            Ok(session) => Box::pin(async move { find::find(&session, job).await }),
            Err(failure) => Box::pin(ready(Sighting::CannotTell(failure.message))),
        }
    }

    fn prepares(&self, job: &Job) -> bool {
        prepare::needed(job)
    }

    fn prepare<'a>(&'a self, job: &'a Job) -> Answering<'a, Result<Prepared, Verdict>> {
        match self.session(job) {
            Ok(session) => {
                Box::pin(async move { prepare::prepare(&session, &self.media, &self.uploads, job).await })
            }
            Err(failure) => Box::pin(ready(Err(Verdict::Rejected(failure)))),
        }
    }

    fn draft<'a>(&'a self, job: &'a Job) -> Answering<'a, Verdict> {
        match self.session(job) {
            Ok(session) => Box::pin(async move { post::draft(&session, job).await }),
            Err(failure) => Box::pin(ready(Verdict::Rejected(failure))),
        }
    }

    fn publish<'a>(&'a self, job: &'a Job) -> Answering<'a, Verdict> {
        match self.session(job).and_then(|session| Ok((session, draft_of(job)?))) {
            Ok((session, id)) => Box::pin(async move { post::publish(&session, job, id).await }),
            Err(failure) => Box::pin(ready(Verdict::Rejected(failure))),
        }
    }

    /// As [`Connector::remove`]. WordPress cannot be asked to delete a post only while it is a draft: what a person makes of
    /// one between our look and the request is deleted with it.
    fn remove<'a>(&'a self, job: &'a Job) -> Answering<'a, Removal> {
        match self.session(job).and_then(|session| Ok((session, draft_of(job)?))) {
            Ok((session, id)) => Box::pin(async move { remove::remove(&session, job, id).await }),
            Err(failure) => Box::pin(ready(Removal::Unknown(failure.message))),
        }
    }

    fn list<'a>(&'a self, access: &'a Access, next: Option<String>) -> Answering<'a, Listing> {
        match self.ways().of_access(access) {
            Ok(session) => Box::pin(async move { find::list(&session, next).await }),
            Err(failure) => Box::pin(ready(Listing::CannotTell(failure.message))),
        }
    }
}

/// Whether a user's rights suffice.
fn rights(user: &Value) -> Login {
    let has =
        |right: &&str| user.pointer(&format!("/capabilities/{right}")).and_then(Value::as_bool) == Some(true);
    let missing = RIGHTS.iter().filter(|right| !has(right)).copied().collect::<Vec<_>>();
    if missing.is_empty() {
        return Login::Works;
    }
    let message = format!(
        "the login works, but the user lacks rights in WordPress ({}): give it the role Author or Editor",
        missing.join(", ")
    );
    Login::Unfit(Failure::new("not_permitted", message))
}

#[cfg(test)]
mod tests;
