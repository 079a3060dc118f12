//! The platform `static_site`: an article becomes the page `<marker>.html` in a folder that something serves.
//!
//! The file's name is the platform's key: a page that is there is never written again, whoever asks and with
//! whatever content. It appears whole, by a link from a durable temporary file, which cannot replace anything; the
//! file system must therefore know hard links and tell upper from lower case.
//!
//! Index and feed are derived from the pages and never the other way round. [`Connector::publish`] answers when they
//! list the page; if deriving them fails or takes longer than [`LISTING_PATIENCE`] the article is public all the
//! same, and the next look-up or publication catches up. [`Connector::find`], too, makes sure that a page it sees is
//! listed, since after a crash nothing is published again: it changes what is derived, and nothing else.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use self::folder::Folder;
use self::listing::Listing;
use self::page::{Addresses, RenderError};
use super::{
    Access, Answering, Connector, ContentProblem, Description, Failure, Guarantee, Job, Login, Remote,
    Sighting, Verdict,
};
use crate::article::Content;
use crate::clock::SharedClock;
use crate::fields::FieldError;

mod account;
mod body;
mod folder;
mod listing;
mod page;
mod shown;

pub use self::listing::{FEED_ENTRIES, INDEX_ENTRIES};

macro_rules! page_policy {
    () => {
        "default-src 'none'; script-src 'none'; object-src 'none'; base-uri 'none'; form-action 'none'; \
         img-src * data:; media-src * data:; font-src * data:; style-src 'unsafe-inline'; frame-src http: https:"
    };
}

/// The policy that stands in each page itself, so that no script runs however the folder is served.
const PAGE_POLICY: &str = page_policy!();

/// The header `Content-Security-Policy` for whoever serves the folder: what each page says, and `frame-ancestors`,
/// which counts only in a header. Not `sandbox`: it would also stop the players that articles embed from elsewhere,
/// and scripts of the article's own are stopped already.
pub const CONTENT_SECURITY_POLICY: &str = concat!(page_policy!(), "; frame-ancestors 'self'");

/// The longest name of a site or tenant, and the longest marker, in bytes: with the temporary file's additions it
/// stays far below the 255 that file systems take.
pub const NAME_BYTES: usize = 64;

/// How long an answer waits for index and feed. A call to a platform has half a lease, and the page
/// itself is what was asked for.
pub const LISTING_PATIENCE: Duration = Duration::from_secs(5);

/// How many pages are rendered at once: one of 2 MiB can take 100 MB meanwhile.
const RENDERS_AT_ONCE: usize = 4;

/// An account's settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The site's name, which is the name of its folder.
    pub site: String,
}

/// Why settings cannot be used; the message says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// No JSON object.
    #[error("settings must be an object: {{\"site\": \"<name>\"}}")]
    NotAnObject,
    /// A setting that this platform does not have.
    #[error("static_site has no setting `{0}`: take it out, only `site` is known")]
    Unknown(String),
    /// `site` is missing or no string.
    #[error("set `site` to the site's name, a string")]
    NoSite,
    /// `site` is no name of a folder below the tenant's.
    #[error(
        "`site` must be 1 to {NAME_BYTES} of A-Z a-z 0-9 _ . - and not begin with a dot: choose such a name"
    )]
    BadSite,
}

/// Checks an account's settings: `site` and nothing else.
pub fn check_settings(settings: &Value) -> Result<Settings, SettingsError> {
    let settings = settings.as_object().ok_or(SettingsError::NotAnObject)?;
    if let Some(unknown) = settings.keys().find(|key| *key != "site") {
        return Err(SettingsError::Unknown(unknown.clone()));
    }
    let site = settings.get("site").and_then(Value::as_str).ok_or(SettingsError::NoSite)?;
    if !is_name(site) {
        return Err(SettingsError::BadSite);
    }
    Ok(Settings { site: site.to_owned() })
}

/// Whether it names a folder that is visible and stays below its parent: no separator, no leading dot, hence no `..`.
fn is_name(name: &str) -> bool {
    (1..=NAME_BYTES).contains(&name.len())
        && !name.starts_with('.')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
}

/// Whether it can name a page: no dot, so that the index's further pages (`index.1.html`) are never taken for one.
fn is_marker(name: &str) -> bool {
    is_name(name) && !name.contains('.') && !name.eq_ignore_ascii_case("index")
}

/// The connector of `static_site`.
pub struct StaticSite {
    shared: Arc<Shared>,
}

struct Shared {
    root: PathBuf,
    url: String,
    clock: SharedClock,
    renders: Arc<Semaphore>,
    /// How long a publication waits for index and feed.
    patience: Duration,
    sites: Mutex<HashMap<(String, String), Arc<Site>>>,
}

/// One site's folder, and what is known of it.
struct Site {
    name: String,
    /// The folder's public address, without a slash at its end.
    base: String,
    folder: Folder,
    listing: Arc<tokio::sync::Mutex<Listing>>,
}

impl Site {
    fn render(&self, job: &Job) -> Result<String, RenderError> {
        let own = self.remote(&job.marker).url;
        let index = format!("{}/index.html", self.base);
        let feed = format!("{}/feed.xml", self.base);
        page::rendered(&job.content, job.submitted_at, &Addresses { own: &own, index: &index, feed: &feed })
    }

    fn remote(&self, marker: &str) -> Remote {
        Remote { url: format!("{}/{marker}.html", self.base), remote_id: Some(marker.to_owned()) }
    }
}

impl StaticSite {
    /// A connector that writes below `root`, which must exist and is served at `url`.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>, url: &str, clock: SharedClock) -> Self {
        Self::patient(root.into(), url, clock, LISTING_PATIENCE)
    }

    fn patient(root: PathBuf, url: &str, clock: SharedClock, patience: Duration) -> Self {
        let shared = Shared {
            root,
            url: url.trim_end_matches('/').to_owned(),
            clock,
            renders: Arc::new(Semaphore::new(RENDERS_AT_ONCE)),
            patience,
            sites: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }
}

impl Connector for StaticSite {
    fn guarantee(&self) -> Guarantee {
        Guarantee::NativeKey
    }

    fn describe(&self) -> Description {
        account::description()
    }

    fn check_account(&self, settings: &Value, credentials: Option<&Value>) -> Vec<FieldError> {
        account::check(settings, credentials)
    }

    fn site(&self, settings: &Value) -> Option<String> {
        account::site(settings)
    }

    fn check_content<'a>(&'a self, content: &'a Content) -> Answering<'a, Vec<ContentProblem>> {
        Box::pin(self.shared.rendering_problems(content))
    }

    /// There is no login; whether the account can be written to shows when it is.
    fn check_login<'a>(&'a self, access: &'a Access) -> Answering<'a, Login> {
        let login = match check_settings(&access.settings) {
            Ok(_) => Login::Works,
            Err(error) => Login::Unfit(Failure::new("bad_settings", error.to_string())),
        };
        Box::pin(std::future::ready(login))
    }

    /// As [`Connector::find`]. Settings or names that cannot name a page: there is none, nothing is seen.
    fn find<'a>(&'a self, job: &'a Job) -> Answering<'a, Sighting> {
        Box::pin(async move {
            let Ok(site) = self.shared.site(job) else { return Sighting::absent() };
            self.shared.find(site, &job.marker).await
        })
    }

    /// As [`Connector::publish`]. A caller that stops waiting before the page is being written stops it: nothing
    /// appears later that a look-up has meanwhile proven absent.
    fn publish<'a>(&'a self, job: &'a Job) -> Answering<'a, Verdict> {
        Box::pin(async move {
            match self.shared.site(job) {
                Ok(site) => self.shared.publish(site, job).await,
                Err(failure) => Verdict::Rejected(failure),
            }
        })
    }

    fn list<'a>(&'a self, access: &'a Access, next: Option<String>) -> Answering<'a, super::Listing> {
        Box::pin(async move {
            let cannot = |why: String| super::Listing::CannotTell(why);
            let site = match self.shared.site_of(&access.tenant, &access.settings) {
                Ok(site) => site,
                Err(failure) => return cannot(failure.message),
            };
            match spawn_blocking(move || shown::next_pages(&site, &next.unwrap_or_default())).await {
                Ok(Ok(listing)) => listing,
                Ok(Err(error)) => cannot(format!("the site's folder cannot be read: {error}")),
                Err(panic) => cannot(panic.to_string()),
            }
        })
    }
}

impl Shared {
    /// The site that a job names, and whose page it can be.
    fn site(&self, job: &Job) -> Result<Arc<Site>, Failure> {
        let site = self.site_of(&job.tenant, &job.settings)?;
        if is_marker(&job.marker) { Ok(site) } else { Err(bad_name("marker")) }
    }

    /// The site of an account; all names are checked here, whoever else has.
    fn site_of(&self, tenant: &str, settings: &Value) -> Result<Arc<Site>, Failure> {
        let settings =
            check_settings(settings).map_err(|error| Failure::new("bad_settings", error.to_string()))?;
        if !is_name(tenant) {
            return Err(bad_name("tenant"));
        }
        let mut sites = self.sites.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (tenant.to_owned(), settings.site);
        let site = sites.entry(key).or_insert_with_key(|(tenant, site)| {
            Arc::new(Site {
                name: site.clone(),
                base: format!("{}/{tenant}/{site}", self.url),
                folder: Folder::new(&self.root, tenant, site),
                listing: Arc::default(),
            })
        });
        Ok(site.clone())
    }

    async fn find(&self, site: Arc<Site>, marker: &str) -> Sighting {
        match seen(&site, marker).await {
            Ok(true) => {
                let remote = site.remote(marker);
                self.listed(site, marker).await;
                Sighting::published(remote)
            }
            Ok(false) => Sighting::absent(),
            Err(error) => Sighting::CannotTell(format!("the site's folder cannot be read: {error}")),
        }
    }

    async fn publish(&self, site: Arc<Site>, job: &Job) -> Verdict {
        let marker = job.marker.as_str();
        match seen(&site, marker).await {
            Ok(true) => {}
            Ok(false) => {
                if let Err(verdict) = self.place(&site, job).await {
                    return verdict;
                }
            }
            Err(error) => return Verdict::Unknown(format!("the site's folder cannot be read: {error}")),
        }
        let remote = site.remote(marker);
        self.listed(site, marker).await;
        Verdict::Done(remote)
    }

    /// What keeps an article from becoming a page.
    async fn rendering_problems(&self, content: &Content) -> Vec<ContentProblem> {
        let permit = self.renders.clone().acquire_owned().await;
        let html = content.content_html.clone();
        let settled = spawn_blocking(move || {
            let _permit = permit;
            body::settled(&html).map(|_| ())
        });
        match settled.await {
            Ok(Err(why)) => vec![ContentProblem::new("content_too_complex", why.to_string())],
            Ok(Ok(())) | Err(_) => Vec::new(),
        }
    }

    /// Renders and places the page.
    async fn place(&self, site: &Arc<Site>, job: &Job) -> Result<(), Verdict> {
        let marker = job.marker.clone();
        // Never closed; if it were, rendering without it would still be right.
        let permit = self.renders.clone().acquire_owned().await;
        let page = spawn_blocking({
            let (site, job) = (site.clone(), job.clone());
            move || {
                // Held until it is rendered: what a caller no longer waits for takes its time all the same.
                let _permit = permit;
                site.render(&job)
            }
        });
        let page = match page.await {
            Ok(Ok(page)) => page,
            Ok(Err(RenderError::TooComplex(why))) => return Err(rejected("content_too_complex", &why)),
            Ok(Err(RenderError::Template(why))) => return Err(rejected("unrenderable", &why)),
            // Nothing was written yet, and the same text would end the same.
            Err(panic) => return Err(rejected("unrenderable", &panic)),
        };
        let (site, id) = (site.clone(), self.clock.new_id());
        let (until, clock) = (job.until, self.clock.clone());
        let placed = spawn_blocking(move || {
            let placed = site.folder.place(&marker, &page, id, || clock.instant() < until);
            (placed, site.folder.has(&marker))
        });
        match placed.await {
            Ok((Ok(()), Ok(true))) => Ok(()),
            Ok((Ok(()), Ok(false))) => Err(Verdict::Unknown("the page was written and is gone".to_owned())),
            Ok((Err(error), Ok(false))) if error.kind() == io::ErrorKind::TimedOut => {
                Err(Verdict::Unknown("there was no time left to place the page".to_owned()))
            }
            Ok((Err(error), Ok(false))) => Err(Verdict::Transient(Failure::new(
                "site_unwritable",
                format!("the page could not be written; make the site's folder writable: {error}"),
            ))),
            Ok((Err(error), _) | (Ok(()), Err(error))) => Err(Verdict::Unknown(error.to_string())),
            Err(panic) => Err(Verdict::Unknown(panic.to_string())),
        }
    }

    /// Waits, within its patience, until index and feed list the page.
    async fn listed(&self, site: Arc<Site>, marker: &str) {
        let marker = marker.to_owned();
        let (path, clock) = (site.folder.path.clone(), self.clock.clone());
        // A task of its own: it ends also for a caller that no longer waits.
        let derived = tokio::spawn(async move {
            // Whoever waits here while another derives finds its page listed by the next one: many publications
            // share a derivation.
            let mut listing = site.listing.clone().lock_owned().await;
            if listing.lists(&marker) {
                return Ok(());
            }
            spawn_blocking(move || listing.derive(&site.folder, &site.name, &site.base, &clock)).await?
        });
        match tokio::time::timeout(self.patience, derived).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => {
                tracing::warn!(%error, path = %path.display(), "index and feed are out of date");
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, path = %path.display(), "index and feed are out of date");
            }
            Err(_) => tracing::warn!(path = %path.display(), "index and feed take long; they follow"),
        }
    }
}

/// Whether the page is there, and then for good.
async fn seen(site: &Arc<Site>, marker: &str) -> io::Result<bool> {
    let (site, marker) = (site.clone(), marker.to_owned());
    let looked = spawn_blocking(move || {
        let there = site.folder.has(&marker)?;
        // The worker that placed it may have crashed before it was on the disk.
        if there {
            site.folder.anchor()?;
        }
        Ok(there)
    });
    looked.await?
}

fn bad_name(what: &str) -> Failure {
    let message = format!("the {what} cannot be part of a file's name: report this to the operator");
    Failure::new("bad_name", message)
}

fn rejected(code: &'static str, why: &dyn std::fmt::Display) -> Verdict {
    Verdict::Rejected(Failure::new(code, why.to_string()))
}

#[cfg(test)]
mod tests;
