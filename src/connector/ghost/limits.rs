//! What Ghost takes, and what becomes of it. Pure.

use crate::article::Content;
use crate::connector::{ContentProblem, ContentRule};

/// The longest title, in characters.
const TITLE_MAX: usize = 255;

/// The longest summary, in characters: Ghost's `custom_excerpt`.
const SUMMARY_MAX: usize = 300;

/// The longest canonical URL, in characters.
const CANONICAL_URL_MAX: usize = 2_000;

/// Where these limits stand.
const SCHEMA: &str =
    "https://github.com/TryGhost/Ghost/blob/v5.130.6/ghost/core/core/server/data/schema/schema.js";

/// What Ghost's documentation says of posts.
const DOCS: &str = "https://ghost.org/docs/admin-api/#posts";

/// When both were read.
const AS_OF: &str = "2026-11-30";

/// What an article must keep to, and what becomes of it.
pub(super) fn rules() -> Vec<ContentRule> {
    let rule = |field, rule, limit: Option<usize>, source| ContentRule {
        field,
        rule,
        limit: limit.and_then(|limit| u64::try_from(limit).ok()),
        source,
        as_of: AS_OF,
    };
    vec![
        rule("title", "max_characters", Some(TITLE_MAX), SCHEMA),
        rule("summary", "max_characters", Some(SUMMARY_MAX), SCHEMA),
        rule("canonical_url", "max_characters", Some(CANONICAL_URL_MAX), SCHEMA),
        rule("content_html", "kept_to_the_byte_in_an_html_card_with_its_scripts", None, "publish-ingest"),
        rule("tags", "first_is_primary_and_leading_number_signs_and_commas_are_dropped", None, DOCS),
        rule("author", "not_used_the_owner_is_shown", None, DOCS),
    ]
}

/// What keeps the article from being a post, all of it.
pub(super) fn problems(content: &Content) -> Vec<ContentProblem> {
    let long = |text: Option<&str>, max: usize, code, what: &str| {
        let characters = text.unwrap_or_default().trim().chars().count();
        (characters > max).then(|| ContentProblem {
            code,
            detail: format!("the {what} has {characters} characters, and Ghost takes {max}: shorten it"),
            limit: u64::try_from(max).ok(),
            source: Some(SCHEMA),
            as_of: Some(AS_OF),
        })
    };
    let title = long(Some(&content.title), TITLE_MAX, "title_too_long", "title");
    let summary = long(content.summary.as_deref(), SUMMARY_MAX, "summary_too_long", "summary");
    let canonical = content.canonical_url.as_deref();
    let canonical = long(canonical, CANONICAL_URL_MAX, "canonical_url_too_long", "canonical URL");
    [title, summary, canonical].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ghost_would_refuse_is_told_all_at_once() {
        let plain = Content {
            title: String::new(),
            content_html: "x".into(),
            summary: None,
            cover_url: None,
            canonical_url: None,
            author: None,
            tags: Vec::new(),
        };
        let at_the_limit = Content {
            title: "é".repeat(TITLE_MAX),
            summary: Some("é".repeat(SUMMARY_MAX)),
            canonical_url: Some("u".repeat(CANONICAL_URL_MAX)),
            ..plain.clone()
        };
        assert!(problems(&at_the_limit).is_empty());
        let over = Content {
            title: "é".repeat(TITLE_MAX + 1),
            summary: Some("é".repeat(SUMMARY_MAX + 1)),
            canonical_url: Some("u".repeat(CANONICAL_URL_MAX + 1)),
            ..plain
        };
        let told = problems(&over).into_iter().map(|one| (one.code, one.limit)).collect::<Vec<_>>();
        let expected = [
            ("title_too_long", Some(255)),
            ("summary_too_long", Some(300)),
            ("canonical_url_too_long", Some(2_000)),
        ];
        assert_eq!(told, expected);
    }
}
