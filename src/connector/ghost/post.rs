//! An article as a post of Ghost, and a post as it is read back. Pure.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::article::{Content, is_http_url};
use crate::connector::{Listed, Marked, Remote};

/// Before the marker in the name of the internal tag (`#pi-…`) that marks a post.
const TAG_PREFIX: &str = "#pi-";

/// How Ghost begins the slug of a tag whose name begins with `#pi-`.
const TAG_SLUG_PREFIX: &str = "hash-pi-";

/// What a look reads of a post.
pub(super) const FIELDS: &str = "id,uuid,slug,title,status,url,created_at,updated_at,codeinjection_foot";

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
    // A name with `#` in front would be an internal tag, which nobody sees; one with a comma in front is refused.
    let names = tags.iter().map(|tag| tag.trim_start_matches(['#', ',', ' ']).trim_end());
    let names = names.filter(|name| !name.is_empty()).map(|name| json!({"name": name}));
    names.chain([json!({"name": format!("{TAG_PREFIX}{marker}")})]).collect()
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

    /// Whether it carries the mark: what a filter lets through is not believed.
    pub(super) fn carries(&self, marker: &str) -> bool {
        self.slug.contains(marker) || self.tags.iter().any(|tag| tag.marker().as_deref() == Some(marker))
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
            marker: self.tags.iter().find_map(Tag::marker),
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
    fn marker(&self) -> Option<String> {
        let by_name = self.name.strip_prefix(TAG_PREFIX);
        by_name.or_else(|| self.slug.strip_prefix(TAG_SLUG_PREFIX)).map(str::to_owned)
    }
}

/// Whether it is an id of Ghost, so that it can stand in a path.
pub(super) fn is_id(text: &str) -> bool {
    text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKER: &str = "abcdefghijklmnop";

    fn content() -> Content {
        Content {
            title: "A Title: It's 7!".into(),
            content_html: "bare <b>text</b>".into(),
            summary: None,
            cover_url: None,
            canonical_url: None,
            author: Some("Nobody".into()),
            tags: vec!["#News".into(), "a, b".into(), "#".into()],
        }
    }

    fn post(value: Value) -> Post {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_draft_holds_the_text_to_the_byte_and_nothing_that_sends_mail() {
        let html = "bare <b>text</b><!--kg-card-end: html--><script>1</script>";
        let body = draft(&content(), MARKER, html, Some("https://h/c.png"));
        let lexical = body["posts"][0]["lexical"].as_str().unwrap();
        let lexical = serde_json::from_str::<Value>(lexical).unwrap();
        assert_eq!(lexical["root"]["children"][0]["html"], html);
        assert_eq!(body["posts"][0]["status"], "draft");
        assert_eq!(body["posts"][0]["feature_image"], "https://h/c.png");
        let members = body["posts"][0].as_object().unwrap().keys().map(String::as_str).collect::<Vec<_>>();
        let expected = [
            "canonical_url",
            "custom_excerpt",
            "feature_image",
            "lexical",
            "slug",
            "status",
            "tags",
            "title",
        ];
        assert_eq!(members, expected);
    }

    #[test]
    fn the_mark_is_the_last_tag_and_no_tag_of_the_article_is_hidden() {
        let body = draft(&content(), MARKER, "x", None);
        let tags = body["posts"][0]["tags"].as_array().unwrap();
        let names = tags.iter().map(|tag| tag["name"].as_str().unwrap()).collect::<Vec<_>>();
        assert_eq!(names, ["News", "a, b", "#pi-abcdefghijklmnop"]);
    }

    #[test]
    fn a_slug_is_readable_and_ends_with_the_marker() {
        let cases = [
            ("A Title: It's 7!", "a-title-its-7-abcdefghijklmnop"),
            ("  ", "abcdefghijklmnop"),
            ("🎉 !", "abcdefghijklmnop"),
            ("你好 World", "你好-world-abcdefghijklmnop"),
        ];
        for (title, expected) in cases {
            assert_eq!(slug(title, MARKER), expected);
        }
        assert_eq!(slug(&"x".repeat(300), MARKER).len(), SLUG_TITLE_MAX + 1 + MARKER.len());
        let wide = slug(&"壮".repeat(300), MARKER);
        assert_eq!(wide.chars().count(), 14 + 1 + MARKER.len(), "Ghost makes 98 characters of 14");
    }

    #[test]
    fn a_post_stands_where_its_status_says() {
        let at = |status: &str, foot: Option<&str>| {
            let url = "https://h/a/";
            let post = post(json!({"id": "1", "status": status, "url": url, "codeinjection_foot": foot}));
            post.standing("https://h")
        };
        let public = Standing::Public(Remote { url: "https://h/a/".into(), remote_id: Some("1".into()) });
        assert_eq!(at("published", None), public);
        assert_eq!(at("sent", None), public);
        assert_eq!(at("published", Some(REMOVING)), public);
        assert_eq!(at("scheduled", None), Standing::Scheduled);
        assert_eq!(at("draft", Some("<script>")), Standing::Draft);
        assert_eq!(at("draft", Some(REMOVING)), Standing::Removing);
    }

    #[test]
    fn a_post_without_an_address_is_shown_by_its_preview() {
        for url in [json!(null), json!("https://h/404/"), json!("/a/")] {
            let post = post(json!({"id": "1", "uuid": "u-1", "status": "published", "url": url}));
            assert_eq!(post.remote("https://h").url, "https://h/p/u-1/");
        }
    }

    #[test]
    fn only_what_carries_the_mark_is_believed() {
        let tagged = |name: &str, slug: &str| {
            post(json!({"id": "1", "status": "draft", "slug": "a", "tags": [{"name": name, "slug": slug}]}))
        };
        assert!(tagged("#pi-abcdefghijklmnop", "hash-pi-abcdefghijklmnop").carries(MARKER));
        assert!(tagged("renamed", "hash-pi-abcdefghijklmnop").carries(MARKER));
        assert!(!tagged("#pi-abcdefghijklmnoq", "hash-pi-abcdefghijklmnoq").carries(MARKER));
        assert!(!tagged("abcdefghijklmnop", "abcdefghijklmnop").carries(MARKER));
        let named = post(json!({"id": "1", "status": "draft", "slug": "a-abcdefghijklmnop-2"}));
        assert!(named.carries(MARKER));
        assert_eq!(named.listed("https://h").marker, None);
        assert_eq!(tagged("#pi-abcdefghijklmnop", "x").listed("https://h").marker.as_deref(), Some(MARKER));
    }

    #[test]
    fn pages_end_where_ghost_has_no_more() {
        let next = |next: Value, pages: u32| {
            let meta = json!({"pagination": {"page": 1, "next": next, "pages": pages}});
            serde_json::from_value::<Posts>(json!({"posts": [], "meta": meta})).unwrap().next()
        };
        assert_eq!((next(json!(2), 2), next(json!(null), 1), next(json!(10), 3)), (Some(2), None, None));
        assert_eq!(serde_json::from_value::<Posts>(json!({"posts": []})).unwrap().next(), None);
    }

    #[test]
    fn ids_are_judged_before_they_stand_in_a_path() {
        assert!(is_id("5ddc9063c35e7700383b27e0"));
        for bad in
            ["", "1", "5ddc9063c35e7700383b27e", "5ddc9063c35e7700383b27e0/", "../../users/me/../../x/../"]
        {
            assert!(!is_id(bad), "{bad}");
        }
    }
}
