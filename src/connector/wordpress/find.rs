//! Looking for what carries an article's mark.
//!
//! Three ways, since each can be closed: the slug, which sites and people rewrite; the comment in the content, by core's
//! search; the id, where one is known. Drafts, scheduled and private posts count. What a person threw into the trash is not
//! seen, so that nobody sweeps it away; but no draft is made while it is there ([`in_trash`]), or what somebody took off the
//! site would be published again in silence.

use std::collections::BTreeMap;

use serde_json::Value;

use super::answers::{Heard, number};
use super::call::{Body, Session};
use super::mark;
use crate::article::is_http_url;
use crate::connector::{Job, Listed, Listing, Marked, Remote, Sighting};
use crate::outbound::Method;

/// The status of what a person threw away.
pub(super) const TRASH: &str = "trash";

/// What is read of a post.
pub(super) const FIELDS: &str = "id,slug,status,link,title.raw,content.raw";

/// Posts on a page of a list: with their contents, so that ten articles of the largest size fit into an answer.
const PAGE: &str = "10";

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
        })
    }

    /// Whether it carries a mark of the article.
    pub(super) fn carries(&self, slug: &str, marker: &str) -> bool {
        mark::is_slug(&self.slug, slug) || mark::is_marked(&self.content, marker)
    }

    /// Where it stands, if it is public.
    pub(super) fn public(&self, base_url: &str) -> Option<Remote> {
        (self.status == "publish").then(|| {
            let plain = || format!("{base_url}/?p={}", self.id);
            let url = if is_http_url(&self.link) { self.link.clone() } else { plain() };
            Remote { url, remote_id: Some(self.id.to_string()) }
        })
    }

    fn has_title(&self, title: &str) -> bool {
        self.title == title || self.title == mark::escaped(title)
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
    let (marker, slug) = (job.marker.as_str(), mark::slug(&job.content.title, &job.marker));
    // Of every state but the trash.
    for post in marked(session, job, "any").await? {
        found.extend([shown(session, &post)]);
    }
    let Some(id) = job.draft_id.as_deref().and_then(|id| id.parse::<u64>().ok()) else { return Ok(()) };
    if found.contains_key(&id) {
        return Ok(());
    }
    match post(session, id).await {
        Ok(None) => Ok(()),
        Ok(Some(post)) if post.status == TRASH => Ok(()),
        // A site that was restored gives its ids a second time: neither a mark nor the title, and it is another's.
        Ok(Some(post)) if post.carries(&slug, marker) || post.has_title(&job.content.title) => {
            found.extend([shown(session, &post)]);
            Ok(())
        }
        Ok(Some(_)) => Err(Heard::Unclear(format!(
            "post {id} in WordPress was this article's and carries its mark no more: give it back its slug, {slug}, or delete it"
        ))),
        Err(heard) => Err(heard),
    }
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
    all.retain(|post| post.carries(&slug, marker));
    Ok(all)
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

/// One post; none: there is none of that id.
pub(super) async fn post(session: &Session<'_>, id: u64) -> Result<Option<Post>, Heard> {
    let query = [("context", "edit"), ("_fields", FIELDS)];
    match session.send(Method::Get, &format!("posts/{id}"), &query, Body::None).await {
        Heard::Told(value) => {
            let unreadable =
                || Heard::Unclear("WordPress shows a post in a form that is not its own".to_owned());
            Post::of(&value).map(Some).ok_or_else(unreadable)
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
