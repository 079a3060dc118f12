//! `ghost`: sites that run Ghost, by version 5 of its Admin API (<https://ghost.org/docs/admin-api/>).
//!
//! A post carries the marker twice: in an internal tag (`#pi-…`), which no reader sees, and in its slug. It is found by
//! either, and by its id where that is known. It is made as a draft and published by its id; Ghost changes a post only for
//! who names when it was last changed (`updated_at`), so of two who change it one is refused. That time is kept to the
//! second, though, and guards nothing within one.
//!
//! Nothing is mailed: that would take the parameter `newsletter`, which is never sent.

use std::time::{Duration, Instant};

use chrono::TimeDelta;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::marks::Whose;
use super::media::{Images as Fate, Media, Moved, TransferError};
use super::{
    Access, Answering, Connector, ContentProblem, Description, Failure, Guarantee, Job, Listing, Login,
    Prepared, Removal, Sighting, Trace, Verdict,
};
use crate::account::Credentials;
use crate::article::Content;
use crate::clock::SharedClock;
use crate::fields::FieldError;
use crate::outbound::{Client, Method};

mod account;
mod admin;
mod answers;
mod images;
mod limits;
mod post;
#[cfg(test)]
mod tests;
mod token;

use account::{ADMIN_API_KEY, BASE_URL};
use admin::Admin;
use answers::Fault;
use images::Images;
use post::{Post, REMOVING, Standing};
use token::AdminKey;

/// The platform's name.
pub const PLATFORM: &str = "ghost";

/// How long Ghost may still carry out what it gave no answer to. It sets itself no limit, so this is a guess that was never
/// seen to fail: a process that was stopped and goes on works off what its sockets hold within seconds.
const SETTLE_TIME: Duration = Duration::from_secs(30);

/// How often a draft that others change meanwhile is read again before it is left for another time.
const COLLISIONS_MAX: usize = 3;

/// What is made ready before the post.
const COVER: &str = "cover";
const CONTENT_HTML: &str = "content_html";
/// The images that were moved, while others are left.
const MOVED: &str = "moved";

/// The platform.
pub struct Ghost {
    client: Client,
    media: Media,
    /// How long a question may take that no publication asks.
    timeout: Duration,
    clock: SharedClock,
}

impl Ghost {
    /// The platform, whose questions about an account end within `timeout`.
    #[must_use]
    pub fn new(client: Client, media: Media, timeout: Duration, clock: SharedClock) -> Self {
        Self { client, media, timeout, clock }
    }

    fn admin<'a>(
        &'a self,
        settings: &Value,
        credentials: &Credentials,
        until: Instant,
    ) -> Result<Admin<'a>, Fault> {
        let base_url = settings.get(BASE_URL).and_then(Value::as_str).and_then(admin::base);
        let base = base_url.ok_or_else(|| {
            let message = "the account does not say where its site is: set its setting `base_url`";
            Fault::Refused(Failure::new("bad_settings", message))
        })?;
        let key = credentials.text(ADMIN_API_KEY).and_then(|text| AdminKey::parse(text).ok());
        let key = key.ok_or_else(|| {
            let message = "the account has no key: set its credential `admin_api_key`";
            Fault::Refused(Failure::new("bad_credentials", message))
        })?;
        let (client, clock) = (&self.client, &self.clock);
        Ok(Admin { client, clock, base, key, request_id: "", trace: None, until, ahead: TimeDelta::zero() })
    }

    fn for_job<'a>(&'a self, job: &'a Job) -> Result<Admin<'a>, Fault> {
        let admin = self.admin(&job.settings, &job.credentials, job.until)?;
        let trace: Option<(&Trace, &Credentials)> = Some((&job.trace, &job.credentials));
        Ok(Admin { request_id: &job.request_id, trace, ..admin })
    }

    fn for_access(&self, access: &Access) -> Result<Admin<'_>, Fault> {
        self.admin(&access.settings, &access.credentials, self.clock.instant() + self.timeout)
    }

    async fn look(&self, job: &Job) -> Result<Sighting, Fault> {
        let mut admin = self.for_job(job)?;
        let mut found: Vec<Post> = Vec::new();
        for filter in post::filters(&job.marker) {
            for post in admin.posts(&filter).await? {
                match post.whose(&job.marker) {
                    Whose::Ours => found.push(post),
                    Whose::Disputed => return Err(disputed(&post)),
                    Whose::Another | Whose::Nobodys => {}
                }
            }
        }
        // Known to be ours, whatever somebody has made of its slug and its tags; Ghost gives no id twice.
        let known =
            job.draft_id.as_ref().filter(|id| post::is_id(id) && !found.iter().any(|one| one.id == **id));
        if let Some(id) = known {
            match admin.post(id).await {
                Ok(post) => match post.whose(&job.marker) {
                    Whose::Ours | Whose::Nobodys => found.push(post),
                    Whose::Disputed => return Err(disputed(&post)),
                    Whose::Another => {}
                },
                Err(Fault::Absent) => {}
                Err(fault) => return Err(fault),
            }
        }
        found.sort_by_key(Post::age);
        found.dedup_by(|a, b| a.id == b.id);
        Ok(Sighting::Seen(found.iter().map(|post| post.marked(&admin.base)).collect()))
    }

    async fn make_ready(&self, job: &Job) -> Result<Prepared, Verdict> {
        refused_content(&job.content)?;
        let mut admin = self.for_job(job).map_err(Fault::verdict)?;
        let mut images = Images { admin: &mut admin, submitted_at: job.submitted_at };
        let rules = account::images(&job.settings);
        let so_far = job.prepared.get(MOVED).and_then(|moved| Moved::deserialize(moved).ok());
        let mut so_far = so_far.unwrap_or_default();
        let moved = self.media.transfer(&job.content, rules, job.until, &mut so_far, &mut images).await;
        let moved = moved.map_err(|error| match error {
            TransferError::Broken(failure) => Verdict::Rejected(failure),
            TransferError::Transient(failure) => Verdict::Transient(failure),
            TransferError::Upload(fault) => fault.verdict(),
        })?;
        Ok(match moved {
            None => Prepared { ready: json!({MOVED: so_far}), in_part: true, warnings: Vec::new() },
            Some(moved) => {
                let cover = moved.cover.map(|placed| placed.url);
                let ready = json!({COVER: cover, CONTENT_HTML: moved.content_html});
                Prepared { ready, in_part: false, warnings: moved.left_out }
            }
        })
    }

    async fn make_draft(&self, job: &Job) -> Result<Verdict, Fault> {
        if let Err(verdict) = refused_content(&job.content) {
            return Ok(verdict);
        }
        let mut admin = self.for_job(job)?;
        let ready = |name: &str| job.prepared.get(name).and_then(Value::as_str);
        let html = ready(CONTENT_HTML).unwrap_or(&job.content.content_html);
        let body = post::draft(&job.content, &job.marker, html, ready(COVER));
        let made = admin.write(Method::Post, "posts/", &body).await?;
        if made.whose(&job.marker) != Whose::Ours {
            return Ok(Verdict::Unknown(
                "Ghost answered with a post that does not carry this article's mark".to_owned(),
            ));
        }
        if !made.kept_its_text() {
            let message = "this Ghost is too old to keep the article's text, as Lexical: update it";
            return Ok(Verdict::Rejected(Failure::new("unsupported_version", message)));
        }
        Ok(Verdict::Drafted(made.id))
    }

    async fn go_public(&self, job: &Job) -> Result<Verdict, Fault> {
        let Some(id) = job.draft_id.as_deref().filter(|id| post::is_id(id)) else {
            let message = "there is no draft to be published: report this to the operator";
            return Ok(Verdict::Rejected(Failure::new("no_draft", message)));
        };
        let mut admin = self.for_job(job)?;
        for _ in 0..COLLISIONS_MAX {
            let post = match admin.post(id).await {
                Ok(post) => post,
                Err(fault) => return Ok(fault.verdict_of_reading()),
            };
            if matches!(post.whose(&job.marker), Whose::Another | Whose::Disputed) {
                return Ok(disputed(&post).verdict_of_reading());
            }
            match post.standing(&admin.base) {
                Standing::Public(remote) => return Ok(Verdict::Done(remote)),
                Standing::Scheduled => {
                    let message = "somebody has scheduled the draft in Ghost, so it is left alone: retry when it is public, \
                                   or after it was made a draft again";
                    return Ok(Verdict::Rejected(Failure::new("scheduled_by_hand", message)));
                }
                Standing::Removing => {
                    let message = "the draft is being removed from Ghost";
                    return Ok(Verdict::Transient(Failure::new("draft_changed", message)));
                }
                Standing::Draft => {}
            }
            let body = json!({"posts": [{"status": "published", "updated_at": post.updated_at}]});
            match admin.write(Method::Put, &format!("posts/{id}/"), &body).await {
                Ok(post) => {
                    let post = post.asked_for(id)?;
                    let Standing::Public(remote) = post.standing(&admin.base) else {
                        return Ok(Verdict::Unknown("Ghost answered, and has not published it".to_owned()));
                    };
                    return Ok(Verdict::Done(remote));
                }
                Err(Fault::Collision) => {}
                Err(fault) => return Err(fault),
            }
        }
        Err(Fault::Collision)
    }

    /// Only what is as it was made is removed. The draft is changed before it is deleted, for deleting asks for no `updated_at`: whoever has read it as a draft
    /// cannot publish it after that, and whoever reads it then does not.
    async fn take_away(&self, job: &Job) -> Result<Removal, Fault> {
        let Some(id) = job.draft_id.as_deref().filter(|id| post::is_id(id)) else { return Ok(Removal::Gone) };
        let mut admin = self.for_job(job)?;
        let post = admin.whole_post(id).await?;
        let standing = post.standing(&admin.base);
        let touched = post.touched(&standing, &job.content, &job.marker);
        match (standing, touched) {
            (Standing::Public(_), _) => return Ok(Removal::Public),
            (Standing::Scheduled, _) => {
                return Ok(Removal::Unknown(
                    "somebody has scheduled the draft in Ghost: it is left alone".to_owned(),
                ));
            }
            (_, Some(why)) => {
                return Ok(Removal::Unknown(format!(
                    "{why}, so it may be a person's work: it is left alone, delete it in Ghost if nobody needs it"
                )));
            }
            (Standing::Removing, None) => {}
            (Standing::Draft, None) => {
                let body =
                    json!({"posts": [{"codeinjection_foot": REMOVING, "updated_at": post.updated_at}]});
                let locked = admin.write(Method::Put, &format!("posts/{id}/"), &body).await?.asked_for(id)?;
                if locked.updated_at == post.updated_at {
                    let why = "the draft was changed within this second, so it is removed later";
                    return Ok(Removal::Unknown(why.to_owned()));
                }
            }
        }
        admin.ask(Method::Delete, &format!("posts/{id}/"), None).await?;
        Ok(Removal::Gone)
    }
}

/// A post that may be another article's: nothing is done with it until a person has decided.
fn disputed(post: &Post) -> Fault {
    Fault::Unknown(format!(
        "post {} on Ghost carries another article's mark: take the internal tag that is not its own off it",
        post.id
    ))
}

/// What of the article Ghost would refuse, told before anything is sent.
fn refused_content(content: &Content) -> Result<(), Verdict> {
    let Some(first) = limits::problems(content).into_iter().next() else { return Ok(()) };
    Err(Verdict::Rejected(Failure::new(first.code, first.detail)))
}

impl Connector for Ghost {
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

    fn check_content<'a>(&'a self, content: &'a Content) -> Answering<'a, Vec<ContentProblem>> {
        Box::pin(std::future::ready(limits::problems(content)))
    }

    fn site(&self, settings: &Value) -> Option<String> {
        account::site(settings)
    }

    /// By posts, since what Ghost tells of itself it tells everybody.
    fn check_login<'a>(&'a self, access: &'a Access) -> Answering<'a, Login> {
        Box::pin(async move {
            let asked = match self.for_access(access) {
                Ok(mut admin) => admin.ask(Method::Get, "posts/?limit=1&fields=id", None).await,
                Err(fault) => Err(fault),
            };
            match asked.and_then(admin::read::<Value>) {
                Ok(told) if told.get("posts").is_some() => Login::Works,
                Ok(_) => Login::CannotTell(
                    "the site's answer is not Ghost's: check the account's base_url".to_owned(),
                ),
                Err(fault) => fault.login(),
            }
        })
    }

    fn find<'a>(&'a self, job: &'a Job) -> Answering<'a, Sighting> {
        Box::pin(async move { self.look(job).await.unwrap_or_else(Fault::sighting) })
    }

    fn prepares(&self, job: &Job) -> bool {
        let moves_text = account::images(&job.settings).body == Fate::Upload;
        job.content.cover_url.is_some() || moves_text
    }

    fn prepare<'a>(&'a self, job: &'a Job) -> Answering<'a, Result<Prepared, Verdict>> {
        Box::pin(self.make_ready(job))
    }

    fn draft<'a>(&'a self, job: &'a Job) -> Answering<'a, Verdict> {
        Box::pin(async move { self.make_draft(job).await.unwrap_or_else(Fault::verdict) })
    }

    fn publish<'a>(&'a self, job: &'a Job) -> Answering<'a, Verdict> {
        Box::pin(async move { self.go_public(job).await.unwrap_or_else(Fault::verdict) })
    }

    fn remove<'a>(&'a self, job: &'a Job) -> Answering<'a, Removal> {
        Box::pin(async move {
            match self.take_away(job).await {
                Ok(removal) => removal,
                Err(Fault::Absent) => Removal::Gone,
                Err(fault) => Removal::Unknown(fault.why()),
            }
        })
    }

    fn list<'a>(&'a self, access: &'a Access, next: Option<String>) -> Answering<'a, Listing> {
        Box::pin(async move {
            let page = next.as_deref().map_or(Ok(1), str::parse);
            let Ok(page) = page else { return Listing::CannotTell("there is no such page".to_owned()) };
            let listed = match self.for_access(access) {
                Ok(mut admin) => admin.page(None, page).await.map(|posts| (posts, admin.base)),
                Err(fault) => Err(fault),
            };
            match listed {
                Ok((posts, base)) => Listing::Page {
                    next: posts.next().map(|next| next.to_string()),
                    articles: posts.posts.iter().map(|post| post.listed(&base)).collect(),
                },
                Err(fault) => Listing::CannotTell(fault.why()),
            }
        })
    }
}
