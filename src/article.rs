//! Articles as callers send them: parsed once, valid from then on.

/// What of an article is published: the fields whose change is a change of content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// 1–300 characters, not blank.
    pub title: String,
    /// HTML, not blank.
    pub content_html: String,
    /// At most 1,000 characters.
    pub summary: Option<String>,
    /// An http(s) URL.
    pub cover_url: Option<String>,
    /// An http(s) URL.
    pub canonical_url: Option<String>,
    /// At most 100 characters.
    pub author: Option<String>,
    /// At most 20, each 1–50 characters, ordered.
    pub tags: Vec<String>,
}
