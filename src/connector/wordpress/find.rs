//! Looking for what carries an article's mark.
//!
//! Three ways, since each can be closed: the slug, which sites and people rewrite; the comment in the content, by core's
//! search; the id, where one is known. Drafts, scheduled and private posts count. What a person threw into the trash is not
//! seen, so that nobody sweeps it away; but no draft is made while it is there ([`in_trash`]), or what somebody took off the
//! site would be published again in silence.

use std::collections::BTreeMap;

use chrono::{DateTime, NaiveDateTime, TimeDelta, Utc};
use serde_json::Value;

use super::answers::{Heard, number};
use super::call::{Body, Session};
use super::mark;
use super::prepare::Ready;
use crate::article::is_http_url;
use crate::connector::marks::{Whose, reads_as};
use crate::connector::{Job, Listed, Listing, Marked, Remote, Sighting};
use crate::outbound::Method;

/// The status of what a person threw away.
pub(super) const TRASH: &str = "trash";

/// What is read of a post.
pub(super) const FIELDS: &str = "id,slug,status,link,title.raw,content.raw,modified_gmt";

/// What is read of a post that may be removed.
pub(super) const REMOVAL_FIELDS: &str =
    "id,slug,status,link,title.raw,content.raw,excerpt.raw,author,_links.version-history";

/// Posts on a page of a list: with their contents, so that ten articles of the largest size fit into an answer.
const PAGE: &str = "10";

/// How far a site's clock may be behind ours before a post that was just made is taken for an older one.
const CLOCK_OFF_MAX: TimeDelta = TimeDelta::minutes(5);

/// A post as `WordPress` shows it to whoever may edit it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Post {
    pub(super) id: u64,
    pub(super) slug: String,
    /// `publish`, `draft`, `pending`, `private`, `future`, `trash`, or a plugin's.
    pub(super) status: String,
    link: String,
    title: String,
    content: String,
    pub(super) excerpt: String,
    /// The id of its author's user.
    pub(super) author: Option<u64>,
    /// How often it was saved after it was made, where the site keeps that.
    pub(super) revisions: Option<u64>,
    modified: Option<DateTime<Utc>>,
}

impl Post {
    /// Reads what was asked for by [`FIELDS`].
    pub(super) fn of(value: &Value) -> Option<Self> {
        let text = |place: &str| value.pointer(place).and_then(Value::as_str).map(str::to_owned);
        Some(Self {
            id: value.get("id").and_then(number)?,
            slug: text("/slug")?,
            status: text("/status")?,
            link: text("/link").unwrap_or_default(),
            title: text("/title/raw").unwrap_or_default(),
            content: text("/content/raw").unwrap_or_default(),
            excerpt: text("/excerpt/raw").unwrap_or_default(),
            author: value.get("author").and_then(number),
            revisions: value.pointer("/_links/version-history/0/count").and_then(number),
            modified: text("/modified_gmt")
                .and_then(|at| at.parse::<NaiveDateTime>().ok())
                .map(|at| at.and_utc()),
        })
    }

    /// Whose article it is.
    pub(super) fn whose(&self, job: &Job) -> Whose {
        mark::whose(&self.slug, &self.content, &job.marker)
    }

    /// Whether it is the job's article, where its id is known to be, or to have been, that article's: also without a mark,
    /// if it reads as it was sent. A title alone says nothing: a site that was restored gives its ids a second time, and
    /// titles come again.
    pub(super) fn is_of(&self, job: &Job) -> bool {
        match self.whose(job) {
            Whose::Ours => true,
            Whose::Nobodys => self.reads_as_sent(job),
            Whose::Another | Whose::Disputed => false,
        }
    }

    /// Whether its title and its text are as they were sent.
    pub(super) fn reads_as_sent(&self, job: &Job) -> bool {
        let title = &job.content.title;
        let ready = Ready::of(&job.prepared);
        let html = ready.content_html.as_ref().unwrap_or(&job.content.content_html);
        (self.title == *title || self.title == mark::escaped(title)) && reads_as(&self.content, html)
    }

    /// Where it stands, if it is public.
    pub(super) fn public(&self, base_url: &str) -> Option<Remote> {
        (self.status == "publish").then(|| {
            let plain = || format!("{base_url}/?p={}", self.id);
            let url = if is_http_url(&self.link) { self.link.clone() } else { plain() };
            Remote { url, remote_id: Some(self.id.to_string()) }
        })
    }
}

/// Looks for a job's article.
pub(super) async fn find(session: &Session<'_>, job: &Job) -> Sighting {
    let mut found = BTreeMap::new();
    match looked(session, job, &mut found).await {
        // By id: `WordPress` counts upwards, so the oldest comes first.
        Ok(()) => Sighting::Seen(found.into_values().collect()),
        Err(heard) => heard.sighting(),
    }
}

async fn looked(session: &Session<'_>, job: &Job, found: &mut BTreeMap<u64, Marked>) -> Result<(), Heard> {
    // Of every state but the trash.
    for post in marked(session, job, "any").await? {
        found.extend([shown(session, &post)]);
    }
    let Some(id) = job.draft_id.as_deref().and_then(|id| id.parse::<u64>().ok()) else { return Ok(()) };
    if found.contains_key(&id) {
        return Ok(());
    }
    match post(session, id, FIELDS).await? {
        Some(post) if post.status != TRASH && post.is_of(job) => found.extend([shown(session, &post)]),
        // A site that was restored gives its ids a second time.
        Some(post) if post.status != TRASH && post.whose(job) != Whose::Another => {
            let slug = mark::slug(&job.content.title, &job.marker);
            return Err(Heard::Unclear(format!(
                "post {id} in WordPress was this article's and carries its mark no more: give it back its slug, {slug}, or delete it"
            )));
        }
        _ => {}
    }
    Ok(())
}

/// Whether an article lies in the trash; the error says why that cannot be told.
pub(super) async fn in_trash(session: &Session<'_>, job: &Job) -> Result<bool, Heard> {
    Ok(!marked(session, job, TRASH).await?.is_empty())
}

/// The posts of a status that carry the job's marks, by slug and by content; one that carries both comes twice.
async fn marked(session: &Session<'_>, job: &Job, status: &str) -> Result<Vec<Post>, Heard> {
    let (marker, slug) = (job.marker.as_str(), mark::slug(&job.content.title, &job.marker));
    let mut all = posts(session, status, ("slug", &mark::slugs(&slug))).await?;
    all.extend(posts(session, status, ("search", marker)).await?);
    if let Some(disputed) = all.iter().find(|post| post.whose(job) == Whose::Disputed) {
        return Err(Heard::Unclear(format!(
            "post {} in WordPress carries the marks of two articles: take the comment that is not its own out of its text",
            disputed.id
        )));
    }
    all.retain(|post| post.whose(job) == Whose::Ours);
    Ok(all)
}

/// A post that reads as the job's article, was written since that was submitted, and carries no mark of any: it is what a
/// site that takes both marks away made of a draft of ours. None also where that cannot be told.
pub(super) async fn unmarked(session: &Session<'_>, job: &Job) -> Option<Post> {
    let title = mark::escaped(&job.content.title);
    let query = [
        ("search", title.as_str()),
        ("status", "any"),
        ("context", "edit"),
        ("orderby", "id"),
        ("order", "desc"),
        ("_fields", FIELDS),
    ];
    let Heard::Told(Value::Array(posts)) = session.list("posts", &query).await.0 else { return None };
    let since = job.submitted_at - CLOCK_OFF_MAX;
    posts.iter().filter_map(Post::of).find(|post| {
        post.whose(job) == Whose::Nobodys
            && post.reads_as_sent(job)
            && post.modified.is_some_and(|modified| modified >= since)
    })
}

fn shown(session: &Session<'_>, post: &Post) -> (u64, Marked) {
    (post.id, Marked { id: post.id.to_string(), public: post.public(&session.settings.base_url) })
}

/// The posts of a status that a query names.
async fn posts(session: &Session<'_>, status: &str, by: (&str, &str)) -> Result<Vec<Post>, Heard> {
    let query = [
        by,
        ("status", status),
        ("context", "edit"),
        ("orderby", "id"),
        ("order", "asc"),
        ("_fields", FIELDS),
    ];
    let (heard, total) = session.list("posts", &query).await;
    let posts = match heard {
        Heard::Told(Value::Array(posts)) => posts.iter().map(Post::of).collect::<Option<Vec<_>>>(),
        Heard::Told(_) => None,
        heard => return Err(heard),
    };
    let (Some(posts), Some(total)) = (posts, total) else {
        return Err(Heard::Unclear("WordPress lists its posts in a form that is not its own".to_owned()));
    };
    // What a user may not edit is counted and not listed: absence would be a guess.
    if usize::try_from(total) != Ok(posts.len()) {
        let why = "WordPress holds a post that may be this article, and the account's user may not see it: use the user who made it, or an editor";
        return Err(Heard::Unclear(why.to_owned()));
    }
    Ok(posts)
}

/// One post, of it these fields; none: there is none of that id.
pub(super) async fn post(session: &Session<'_>, id: u64, fields: &str) -> Result<Option<Post>, Heard> {
    let query = [("context", "edit"), ("_fields", fields)];
    match session.send(Method::Get, &format!("posts/{id}"), &query, Body::None).await {
        Heard::Told(value) => {
            let unreadable =
                || Heard::Unclear("WordPress shows a post in a form that is not its own".to_owned());
            let post = Post::of(&value).ok_or_else(unreadable)?;
            if post.id != id {
                let why = "WordPress shows another post than was asked for: look for a cache or a proxy in front of it";
                return Err(Heard::Unclear(why.to_owned()));
            }
            Ok(Some(post))
        }
        Heard::Gone => Ok(None),
        heard => Err(heard),
    }
}

/// One page of what the account may edit; pages are numbered from 1.
pub(super) async fn list(session: &Session<'_>, next: Option<String>) -> Listing {
    let page = next.as_deref().map_or(Some(1), |page| page.parse::<u64>().ok());
    let Some(page) = page else { return Listing::CannotTell("there is no page of that name".to_owned()) };
    let number = page.to_string();
    let query = [
        ("status", "any"),
        ("context", "edit"),
        ("orderby", "id"),
        ("order", "asc"),
        ("per_page", PAGE),
        ("page", &number),
        ("_fields", FIELDS),
    ];
    let (heard, total) = session.list("posts", &query).await;
    let posts = match heard {
        Heard::Told(Value::Array(posts)) => posts.iter().map(Post::of).collect::<Option<Vec<_>>>(),
        Heard::Told(_) => None,
        heard => return Listing::CannotTell(heard.sentence()),
    };
    let (Some(posts), Some(total)) = (posts, total) else {
        return Listing::CannotTell("WordPress lists its posts in a form that is not its own".to_owned());
    };
    let articles = posts.iter().map(|post| Listed {
        id: post.id.to_string(),
        marker: mark::marker_of(&post.slug, &post.content),
        title: post.title.clone(),
        url: post.public(&session.settings.base_url).map(|remote| remote.url),
    });
    let more = PAGE.parse::<u64>().is_ok_and(|size| page.saturating_mul(size) < total);
    Listing::Page { articles: articles.collect(), next: more.then(|| (page + 1).to_string()) }
}
