//! `sandbox`: a platform that is built in, on which everything can go wrong as it is wanted.
//!
//! Whoever calls the service rehearses here what the real platforms do once a year; the service's own tests do the same.
//! It is a platform like others behind the same trait, of the most demanding class: nothing at it keeps two articles with
//! one mark from standing side by side. What it holds lies in tables that only it writes ([`crate::store`]), each request
//! in transactions of its own, so a request that was given up is done, or not, as its account's rules say.
//!
//! An article's address is `https://sandbox.invalid/sandbox/{account_id}/articles/{id}`: nobody takes it for a page, since
//! that name never resolves (RFC 2606 §2), and its path is where `GET` shows the article on this service.

use std::future::Future;
use std::time::Duration;

use serde_json::{Value, json};

use super::{
    Access, Answering, Connector, Description, Failure, Guarantee, Job, Listed, Listing, Login, Marked,
    Remote, Removal, Sighting, Verdict,
};
use crate::fields::FieldError;
use crate::gather::Partial;
use crate::store::{SandboxArticle, SandboxDone, SandboxPage, Store};

mod account;
mod behaviour;
mod desk;
mod request;

use behaviour::Kind;
use desk::Desks;
use request::{Refusal, about};

/// The platform's name.
pub const PLATFORM: &str = "sandbox";

/// How long after a request the sandbox may still carry it out: longer than it is ever late.
const SETTLE_TIME: Duration = Duration::from_secs(30);

/// How many articles a page of its list holds.
const LIST_PAGE: i64 = 100;

/// The platform.
pub struct Sandbox {
    store: Store,
    desks: Desks,
}

impl Sandbox {
    /// The platform, whose tables are in that store; its desks share `partial`.
    #[must_use]
    pub fn new(store: Store, partial: &Partial) -> Self {
        Self { desks: Desks::open(&store, partial), store }
    }

    /// Whether nothing can go wrong with a job, so that it is served with others.
    fn serves(job: &Job) -> bool {
        account::read(&job.settings).is_ok_and(|settings| desk::serves(&settings))
    }

    async fn look(&self, job: &Job) -> Result<Sighting, Refusal> {
        if Self::serves(job) {
            return self.look_at_desk(job).await;
        }
        let call = self.ask(job, Kind::Find).await?;
        let found = self.store.sandbox_find(call.place, about(job)).await?;
        let ids = found.iter().map(|(id, _)| *id).collect::<Vec<_>>();
        let done = SandboxDone { article_id: ids.first().copied(), ..SandboxDone::default() };
        self.answer(&call, 200, &json!({"found": ids}), done).await?;
        let marked = |(id, public): (i64, bool)| {
            let public = public.then(|| remote(&job.account_id, id));
            Marked { id: id.to_string(), public }
        };
        Ok(Sighting::Seen(found.into_iter().map(marked).collect()))
    }

    async fn make(&self, job: &Job) -> Result<Verdict, Refusal> {
        if Self::serves(job) {
            return self.make_at_desk(job).await;
        }
        let call = self.ask(job, Kind::Draft).await?;
        let made = self.store.sandbox_draft(call.place, about(job), &job.content, call.delay()).await?;
        let Some(id) = made else {
            self.answer(&call, 507, &json!({"error": "full"}), SandboxDone::default()).await?;
            return Ok(full());
        };
        self.tell(&call, (201, "made", id), Verdict::Drafted(id.to_string())).await
    }

    async fn make_public(&self, job: &Job) -> Result<Verdict, Refusal> {
        if Self::serves(job) {
            return self.make_public_at_desk(job).await;
        }
        let call = self.ask(job, Kind::Publish).await?;
        let there = match draft_id(job) {
            Some(id) => self.store.sandbox_publish(call.place, id, call.delay()).await?.then_some(id),
            None => None,
        };
        let Some(id) = there else {
            self.answer(&call, 404, &json!({"error": "not_found"}), SandboxDone::default()).await?;
            return Ok(vanished());
        };
        self.tell(&call, (200, "published", id), Verdict::Done(remote(&job.account_id, id))).await
    }

    async fn take_away(&self, job: &Job) -> Result<Removal, Refusal> {
        let Some(id) = draft_id(job) else { return Ok(Removal::Gone) };
        let call = self.ask(job, Kind::Remove).await?;
        let (status, effect, removal) = match self.store.sandbox_remove(call.place, id).await? {
            Some(true) => (409, None, Removal::Public),
            Some(false) => (200, Some("removed"), Removal::Gone),
            None => (404, None, Removal::Gone),
        };
        let done = SandboxDone { effect, article_id: Some(id), ..SandboxDone::default() };
        self.answer(&call, status, &json!({"id": id}), done).await?;
        Ok(removal)
    }

    async fn page(&self, access: &Access, next: Option<&str>) -> Result<Listing, Refusal> {
        let call = self.ask_about(access, Kind::List).await?;
        let before = next.and_then(|id| id.parse().ok()).unwrap_or(i64::MAX);
        let page = SandboxPage { external_id: None, before, limit: LIST_PAGE };
        let held = self.store.sandbox_articles(call.place, page).await?;
        self.answer(&call, 200, &Value::Null, SandboxDone::default()).await?;
        let full = i64::try_from(held.len()).is_ok_and(|n| n == LIST_PAGE);
        let next = held.last().filter(|_| full).map(|last| last.article_id.to_string());
        let listed = |one: SandboxArticle| Listed {
            id: one.article_id.to_string(),
            marker: Some(one.marker),
            title: one.title,
            url: one.public_at.map(|_| url(&access.account_id, one.article_id)),
        };
        Ok(Listing::Page { articles: held.into_iter().map(listed).collect(), next })
    }

    async fn log_in(&self, access: &Access) -> Result<Login, Refusal> {
        let call = self.ask_about(access, Kind::Login).await?;
        self.answer(&call, 200, &Value::Null, SandboxDone::default()).await?;
        Ok(Login::Works)
    }
}

/// Whether the events of an article are delivered twice, by the settings of its account.
#[must_use]
pub fn tells_twice(settings: &Value, external_id: &str) -> bool {
    account::read(settings).is_ok_and(|settings| settings.tells_twice(external_id))
}

/// The address of an article.
#[must_use]
pub fn url(account_id: &str, article_id: i64) -> String {
    format!("https://sandbox.invalid/sandbox/{account_id}/articles/{article_id}")
}

fn remote(account_id: &str, id: i64) -> Remote {
    Remote { url: url(account_id, id), remote_id: Some(id.to_string()) }
}

fn full() -> Verdict {
    let message = "the sandbox holds as many articles of this account as it may: empty it by DELETE \
        /sandbox/{account_id}/articles";
    Verdict::Rejected(Failure::new("sandbox_full", message))
}

fn vanished() -> Verdict {
    Verdict::Transient(Failure::new("draft_vanished", "the draft is not on the sandbox any more"))
}

fn draft_id(job: &Job) -> Option<i64> {
    job.draft_id.as_deref().and_then(|id| id.parse().ok())
}

/// What a request came to, as the trait asks for it; `told` is for one that came to nothing.
fn answering<'a, T: Send>(
    asking: impl Future<Output = Result<T, Refusal>> + Send + 'a,
    told: impl FnOnce(Refusal) -> T + Send + 'a,
) -> Answering<'a, T> {
    Box::pin(async move { asking.await.unwrap_or_else(told) })
}

impl Connector for Sandbox {
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
        account::check(settings, credentials)
    }

    /// None: each account is a site of its own.
    fn site(&self, _: &Value) -> Option<String> {
        None
    }

    fn check_login<'a>(&'a self, access: &'a Access) -> Answering<'a, Login> {
        answering(self.log_in(access), |refusal| match refusal {
            Refusal::LoggedOut(failure) => Login::Expired(failure),
            other => Login::CannotTell(other.told()),
        })
    }

    fn find<'a>(&'a self, job: &'a Job) -> Answering<'a, Sighting> {
        answering(self.look(job), Into::into)
    }

    fn draft<'a>(&'a self, job: &'a Job) -> Answering<'a, Verdict> {
        answering(self.make(job), Into::into)
    }

    fn publish<'a>(&'a self, job: &'a Job) -> Answering<'a, Verdict> {
        answering(self.make_public(job), Into::into)
    }

    fn remove<'a>(&'a self, job: &'a Job) -> Answering<'a, Removal> {
        answering(self.take_away(job), |refusal| Removal::Unknown(refusal.told()))
    }

    fn list<'a>(&'a self, access: &'a Access, next: Option<String>) -> Answering<'a, Listing> {
        answering(async move { self.page(access, next.as_deref()).await }, |refusal| {
            Listing::CannotTell(refusal.told())
        })
    }
}
