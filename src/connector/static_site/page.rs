//! One article as a page, and what a listing reads back from it.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use askama::Template;
use chrono::{DateTime, SecondsFormat, Utc};
use scraper::{Html, Node};

use super::body;
use crate::article::Content;
use crate::connector::fragment::TooComplex;

/// How much of a page is read for the listing, in bytes. A head of the longest title, summary, author, tags and
/// addresses, all escaped, stays below 48 KiB.
const HEAD_BYTES: u64 = 64 * 1024;

/// Stands in every page, so that a listing takes no file of the operator's for an article.
const GENERATOR: &str = "publish-ingest";

#[derive(Template)]
#[template(path = "static_site/page.html")]
struct Page<'a> {
    policy: &'static str,
    generator: &'static str,
    title: Cow<'a, str>,
    author: Option<Cow<'a, str>>,
    summary: Option<Cow<'a, str>>,
    cover: Option<&'a str>,
    canonical: &'a str,
    feed: &'a str,
    index: &'a str,
    tags: Vec<Cow<'a, str>>,
    time: String,
    day: String,
    body: &'a str,
}

/// The addresses that stand in a page, absolute.
pub(super) struct Addresses<'a> {
    pub(super) own: &'a str,
    pub(super) index: &'a str,
    pub(super) feed: &'a str,
}

/// The page of an article.
pub(super) fn rendered(
    content: &Content,
    submitted_at: DateTime<Utc>,
    addresses: &Addresses<'_>,
) -> Result<String, RenderError> {
    let body = body::settled(&content.content_html)?;
    let page = Page {
        policy: super::PAGE_POLICY,
        generator: GENERATOR,
        title: printable(&content.title),
        author: content.author.as_deref().map(printable),
        summary: content.summary.as_deref().map(printable),
        cover: content.cover_url.as_deref().filter(|url| is_web(url)),
        canonical: content.canonical_url.as_deref().filter(|url| is_web(url)).unwrap_or(addresses.own),
        feed: addresses.feed,
        index: addresses.index,
        tags: content.tags.iter().map(|tag| printable(tag)).collect(),
        time: submitted_at.to_rfc3339_opts(SecondsFormat::Micros, true),
        day: submitted_at.format("%-d %B %Y").to_string(),
        body: &body,
    };
    Ok(page.render()?)
}

#[derive(Debug, thiserror::Error)]
pub(super) enum RenderError {
    #[error(transparent)]
    TooComplex(#[from] TooComplex),
    #[error("the page could not be rendered: {0}")]
    Template(#[from] askama::Error),
}

fn is_web(url: &str) -> bool {
    let starts = |scheme: &str| url.get(..scheme.len()).is_some_and(|s| s.eq_ignore_ascii_case(scheme));
    starts("http://") || starts("https://")
}

/// The text without what XML 1.0 (§2.2) or HTML forbid: control characters and noncharacters become U+FFFD.
fn printable(text: &str) -> Cow<'_, str> {
    let forbidden = |c: char| {
        (c.is_control() && !matches!(c, '\t' | '\n' | '\r'))
            || matches!(c, '\u{FDD0}'..='\u{FDEF}')
            || u32::from(c) & 0xFFFE == 0xFFFE
    };
    if text.contains(forbidden) { text.replace(forbidden, "\u{FFFD}").into() } else { text.into() }
}

/// What a listing says of an article.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) marker: String,
    pub(super) title: String,
    pub(super) author: Option<String>,
    pub(super) summary: Option<String>,
    pub(super) tags: Vec<String>,
    pub(super) published: DateTime<Utc>,
}

/// Reads a page's head. None: the file is no page of ours.
pub(super) fn read_entry(path: &Path, marker: &str) -> io::Result<Option<Entry>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(HEAD_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.split_once("</head>").and_then(|(head, _)| entry(head, marker)))
}

fn entry(head: &str, marker: &str) -> Option<Entry> {
    let (mut title, mut author, mut summary, mut published) = (None, None, None, None);
    let (mut tags, mut ours) = (Vec::new(), false);
    for node in Html::parse_document(head).tree.nodes() {
        let Node::Element(element) = node.value() else { continue };
        match element.name() {
            "title" => {
                title = node
                    .first_child()
                    .and_then(|text| text.value().as_text())
                    .map(|text| text.text.to_string());
            }
            "meta" => {
                let Some(value) = element.attr("content") else { continue };
                match element.attr("name").or_else(|| element.attr("property")) {
                    Some("generator") => ours = value == GENERATOR,
                    Some("author") => author = Some(value.to_owned()),
                    Some("description") => summary = Some(value.to_owned()),
                    Some("article:tag") => tags.push(value.to_owned()),
                    Some("article:published_time") => published = DateTime::parse_from_rfc3339(value).ok(),
                    _ => {}
                }
            }
            _ => {}
        }
    }
    let (title, published) = (title?, published?.to_utc());
    ours.then(|| Entry { marker: marker.to_owned(), title, author, summary, tags, published })
}
