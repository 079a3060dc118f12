//! An article as a post of Ghost, and a post as it is read back. Pure.

use chrono::{DateTime, TimeDelta};
use serde::Deserialize;
use serde_json::{Value, json};
use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::is_combining_mark;

use super::answers::Fault;
use crate::article::{Content, is_http_url};
use crate::connector::marks::{self, Whose, reads_as};
use crate::connector::{Listed, Marked, Remote};

/// Before the marker in the name of the internal tag (`#pi-…`) that marks a post.
const TAG_PREFIX: &str = "#pi-";

/// How Ghost begins the slug of a tag whose name begins with `#pi-`.
const TAG_SLUG_PREFIX: &str = "hash-pi-";

/// What a look reads of a post.
pub(super) const FIELDS: &str = "id,uuid,slug,title,status,url,created_at,updated_at,codeinjection_foot";

/// What is read of a post that may be removed.
pub(super) const WHOLE_FIELDS: &str =
    "id,uuid,slug,title,status,url,created_at,updated_at,codeinjection_foot,lexical";

/// How far the two times of a post that was just made may lie apart: Ghost takes each by itself and keeps seconds.
const MADE_AT_ONCE: TimeDelta = TimeDelta::seconds(1);

/// In the draft that is about to be removed: whoever reads it does not publish it any more. An HTML comment, which nobody
/// sees if it stays.
pub(super) const REMOVING: &str = "<!-- publish-ingest removes this draft -->";

/// How much of a title stands in a slug, in characters that Ghost makes of it: with marker and counter it stays far below
/// 185, where Ghost would cut the marker off.
const SLUG_TITLE_MAX: usize = 100;

/// What Ghost makes of one character that is not ASCII, in characters at most: `zhuang` and a hyphen.
const TRANSLITERATED_MAX: usize = 7;

/// The body of the request that makes a draft of the article.
///
/// The text is sent as the one HTML card of a Lexical document, which Ghost keeps and shows as it is. With `source=html`
/// Ghost would read the text itself: its converter drops `mark`, `dl`, `details`, `video`, classes, styles and anchors, and
/// of a text between `kg-card-begin` and `kg-card-end` all that stands outside of an element. Neither makes scripts safe.
pub(super) fn draft(content: &Content, marker: &str, html: &str, cover: Option<&str>) -> Value {
    let card = json!({"type": "html", "version": 1, "html": html});
    let lexical = json!({"root": {
        "children": [card], "direction": null, "format": "", "indent": 0, "type": "root", "version": 1,
    }});
    json!({"posts": [{
        "status": "draft",
        "title": content.title,
        "slug": slug(&content.title, marker),
        "lexical": lexical.to_string(),
        "custom_excerpt": content.summary,
        "feature_image": cover,
        "canonical_url": content.canonical_url,
        "tags": tags(&content.tags, marker),
    }]})
}

/// The tags of the post: those of the article in their order, since Ghost shows the first as the primary one, then the mark.
fn tags(tags: &[String], marker: &str) -> Vec<Value> {
    // A name with `#` in front, also behind what JavaScript takes for blanks, would be an internal tag, which nobody sees;
    // one with a comma in front is refused.
    let in_front = |c: char| matches!(c, '#' | ',' | '\u{feff}') || c.is_whitespace();
    let names = tags.iter().map(|tag| tag.trim_start_matches(in_front).trim_end());
    let names = names.filter(|name| !name.is_empty() && !is_like_a_mark(name));
    names
        .map(|name| json!({"name": name}))
        .chain([json!({"name": format!("{TAG_PREFIX}{marker}")})])
        .collect()
}

/// Whether Ghost would give a tag the slug of a mark, so that the article of that mark were found by it, or could not get it.
fn is_like_a_mark(name: &str) -> bool {
    let words = name.nfkd().filter(|c| !is_combining_mark(*c)).flat_map(char::to_lowercase);
    let words = words.map(|c| if c.is_alphanumeric() { c } else { ' ' }).collect::<String>();
    words.split_whitespace().collect::<Vec<_>>().join("-").starts_with(TAG_SLUG_PREFIX)
}

/// The slug: what is readable of the title, and the marker. Ghost writes it in ASCII.
fn slug(title: &str, marker: &str) -> String {
    let mut slug = String::new();
    let mut left = SLUG_TITLE_MAX;
    for c in title.chars() {
        let cost = if c.is_ascii() { 1 } else { TRANSLITERATED_MAX };
        if cost > left {
            break;
        }
        if c.is_alphanumeric() {
            slug.extend(c.to_lowercase());
            left -= cost;
        } else if c != '\'' && !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
            left -= 1;
        }
    }
    format!("{}-{marker}", slug.trim_end_matches('-')).trim_start_matches('-').to_owned()
}

/// Which posts may carry the mark, as filters (NQL) that are asked one by one: Ghost 5.130 answers some of those that ask
/// for either of two with all its posts.
pub(super) fn filters(marker: &str) -> [String; 2] {
    // The slug may have gained a counter at its end, and the tag may have been taken off.
    [format!("tag:{TAG_SLUG_PREFIX}{marker}"), format!("slug:~'{marker}'")]
}

/// A page of posts.
#[derive(Debug, Deserialize)]
pub(super) struct Posts {
    pub(super) posts: Vec<Post>,
    #[serde(default)]
    meta: Meta,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Meta {
    pagination: Pagination,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Pagination {
    next: Option<u32>,
    pages: u32,
}

impl Posts {
    /// The number of the page after this one, if there is one. Past the end Ghost still names a next one.
    pub(super) fn next(&self) -> Option<u32> {
        let pages = self.meta.pagination.pages;
        self.meta.pagination.next.filter(|next| *next <= pages)
    }
}

/// A post, as far as it is read.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Post {
    pub(super) id: String,
    #[serde(default)]
    slug: String,
    #[serde(default)]
    title: String,
    status: String,
    url: Option<String>,
    uuid: Option<String>,
    created_at: Option<String>,
    /// To the second.
    pub(super) updated_at: Option<String>,
    codeinjection_foot: Option<String>,
    mobiledoc: Option<String>,
    lexical: Option<String>,
    #[serde(default)]
    tags: Vec<Tag>,
}

#[derive(Debug, Clone, Deserialize)]
struct Tag {
    #[serde(default)]
    name: String,
    #[serde(default)]
    slug: String,
}

/// Where a post stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is a draft.
    Draft,
    /// It is a draft that somebody is about to remove.
    Removing,
    /// Somebody has set a time for it in Ghost.
    Scheduled,
    /// It was published, or sent to the members.
    Public(Remote),
}

impl Post {
    /// Where it stands; `base` is the address of the site.
    pub(super) fn standing(&self, base: &str) -> Standing {
        match &*self.status {
            "published" | "sent" => Standing::Public(self.remote(base)),
            "scheduled" => Standing::Scheduled,
            _ if self.codeinjection_foot.as_deref().is_some_and(|foot| foot.contains(REMOVING)) => {
                Standing::Removing
            }
            _ => Standing::Draft,
        }
    }

    fn remote(&self, base: &str) -> Remote {
        // While its routes are being made, Ghost gives every post the address of its 404 page; this one leads on to the post.
        let preview = || format!("{base}/p/{}/", self.uuid.as_deref().unwrap_or(&self.id));
        let url = self.url.clone().filter(|url| is_http_url(url) && !url.ends_with("/404/"));
        Remote { url: url.unwrap_or_else(preview), remote_id: Some(self.id.clone()) }
    }

    /// Itself, if it is the one that was asked for: answers are swapped on their way.
    pub(super) fn asked_for(self, id: &str) -> Result<Self, Fault> {
        if self.id == id {
            return Ok(self);
        }
        let why =
            "Ghost answered with another post than was asked for: look for a cache or a proxy before it";
        Err(Fault::Unknown(why.to_owned()))
    }

    /// Whose article it is: what a filter lets through is not believed.
    pub(super) fn whose(&self, marker: &str) -> Whose {
        marks::whose(&self.slug, &self.marks(), marker)
    }

    fn marks(&self) -> Vec<&str> {
        self.tags.iter().filter_map(Tag::marker).collect()
    }

    /// Why it may be more than the draft that was made; none: it is that draft.
    pub(super) fn touched(
        &self,
        standing: &Standing,
        content: &Content,
        marker: &str,
    ) -> Option<&'static str> {
        let time = |at: &Option<String>| at.as_deref().and_then(|at| DateTime::parse_from_rfc3339(at).ok());
        let since = time(&self.updated_at).zip(time(&self.created_at));
        let at_once = since.is_some_and(|(updated, created)| (updated - created).abs() <= MADE_AT_ONCE);
        if self.whose(marker) != Whose::Ours {
            Some("it does not carry its mark any more")
        } else if self.status != "draft" {
            Some("somebody has made something else of it than a draft")
        // One that is being removed was changed by that.
        } else if *standing != Standing::Removing && !at_once {
            Some("it was saved again in Ghost")
        } else if self.title.trim() != content.title.trim() || !self.reads_as_sent(&content.content_html) {
            Some("it does not read as it was sent")
        } else {
            None
        }
    }

    /// Whether its text is the one HTML card that was sent.
    fn reads_as_sent(&self, html: &str) -> bool {
        let lexical = self.lexical.as_deref().and_then(|text| serde_json::from_str::<Value>(text).ok());
        let cards = lexical.as_ref().and_then(|text| text.pointer("/root/children")?.as_array());
        match cards.map(Vec::as_slice) {
            Some([card]) => card.get("html").and_then(Value::as_str).is_some_and(|text| reads_as(text, html)),
            _ => false,
        }
    }

    /// As what a look saw.
    pub(super) fn marked(&self, base: &str) -> Marked {
        let public = match self.standing(base) {
            Standing::Public(remote) => Some(remote),
            _ => None,
        };
        Marked { id: self.id.clone(), public }
    }

    /// For an operator.
    pub(super) fn listed(&self, base: &str) -> Listed {
        Listed {
            id: self.id.clone(),
            marker: marks::marker_of(&self.slug, &self.marks()),
            title: self.title.clone(),
            url: self.marked(base).public.map(|remote| remote.url),
        }
    }

    /// What posts are sorted by, the oldest first: ids rise, too, within a second.
    pub(super) fn age(&self) -> (String, String) {
        (self.created_at.clone().unwrap_or_default(), self.id.clone())
    }

    /// Whether this Ghost has kept its Lexical document: one that knows none keeps an empty one of the kind before.
    pub(super) fn kept_its_text(&self) -> bool {
        self.mobiledoc.is_none()
    }
}

impl Tag {
    fn marker(&self) -> Option<&str> {
        let by_name = self.name.strip_prefix(TAG_PREFIX);
        by_name.or_else(|| self.slug.strip_prefix(TAG_SLUG_PREFIX)).filter(|marker| marks::is_marker(marker))
    }
}

/// Whether it is an id of Ghost, so that it can stand in a path.
pub(super) fn is_id(text: &str) -> bool {
    text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests;
