//! Articles as callers send them: parsed once, valid from then on.
//!
//! [`Submission::parse`] reads the body of `POST /publish` and reports everything that is wrong with it at once;
//! [`ArticlePatch`] reads by the same rules what is to change in a draft;
//! [`Digests`] tell whether something else was sent under the same `external_id`; [`PublishRequest`] describes the same
//! fields in the OpenAPI document, from the same table of rules.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use unicode_normalization::UnicodeNormalization;
use utoipa::ToSchema;

use crate::account::GroupCode;

mod digest;
mod parse;
mod patch;
mod schema;
mod url;

pub use digest::{Digests, OptionsSent};
pub use patch::{ArticlePatch, Draft};
pub use schema::{BatchArticle, PatchRequest, PublishRequest};
pub use url::{callback_url, is_http_url};

pub use crate::fields::{FieldError, Invalid};

/// The longest `external_id`, in characters (Unicode scalar values).
pub const EXTERNAL_ID_MAX: usize = 200;
/// The longest title, in characters.
pub const TITLE_MAX: usize = 300;
/// The longest summary, in characters.
pub const SUMMARY_MAX: usize = 1_000;
/// The longest author, in characters.
pub const AUTHOR_MAX: usize = 100;
/// The longest URL, in characters.
pub const URL_MAX: usize = 2_048;
/// The most tags.
pub const TAGS_MAX: usize = 20;
/// The longest tag, in characters.
pub const TAG_MAX: usize = 50;
/// The largest metadata, in bytes of its JSON text.
pub const METADATA_MAX_BYTES: usize = 4 * 1024;
/// The longest `Idempotency-Key`, in characters.
pub const IDEMPOTENCY_KEY_MAX: usize = 255;

/// Whether a text is an `Idempotency-Key`: 1–255 visible ASCII characters without blanks.
#[must_use]
pub fn is_idempotency_key(text: &str) -> bool {
    (1..=IDEMPOTENCY_KEY_MAX).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic())
}

/// The caller's id of an article: NFC (UAX #15), 1–200 characters, no control characters, no white space at either
/// end, not `.` or `..`. Compared exactly.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct ExternalId(String);

/// Why a text is no `external_id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadExternalId {
    /// Empty.
    #[error("must not be empty")]
    Empty,
    /// Longer than [`EXTERNAL_ID_MAX`].
    #[error("is longer than {EXTERNAL_ID_MAX} characters")]
    TooLong,
    /// A control character.
    #[error("must not contain control characters")]
    Control,
    /// Nothing but white space.
    #[error("must not be blank")]
    Blank,
    /// White space at an end.
    #[error("must not begin or end with white space")]
    OuterSpace,
    /// `.` or `..`, which would not survive in a URL's path.
    #[error("must not be . or ..")]
    Dots,
}

impl ExternalId {
    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it looks as if it were made from a clock: such an id is new at every re-run, so nothing is deduplicated.
    #[must_use]
    pub fn looks_like_timestamp(&self) -> bool {
        let digits = self.0.chars().filter(char::is_ascii_digit).count();
        if digits == self.0.len() {
            let number = self.0.parse::<u64>().unwrap_or(0);
            // Unix seconds and milliseconds of the years 2001 to 2096, or YYYYMMDDhhmmss.
            return match digits {
                10 => (1_000_000_000..4_000_000_000).contains(&number),
                13 => (1_000_000_000_000..4_000_000_000_000).contains(&number),
                14 => (19_700_101_000_000..21_000_101_000_000).contains(&number),
                _ => false,
            };
        }
        let with_zone = |text: &str| DateTime::parse_from_rfc3339(text).is_ok();
        with_zone(&self.0) || with_zone(&format!("{}Z", self.0))
    }
}

impl FromStr for ExternalId {
    type Err = BadExternalId;

    fn from_str(text: &str) -> Result<Self, BadExternalId> {
        let id = text.nfc().collect::<String>();
        if id.is_empty() {
            Err(BadExternalId::Empty)
        } else if id.chars().count() > EXTERNAL_ID_MAX {
            Err(BadExternalId::TooLong)
        } else if id.chars().any(char::is_control) {
            Err(BadExternalId::Control)
        } else if id.trim().is_empty() {
            Err(BadExternalId::Blank)
        } else if id.trim() != id {
            Err(BadExternalId::OuterSpace)
        } else if id == "." || id == ".." {
            Err(BadExternalId::Dots)
        } else {
            Ok(Self(id))
        }
    }
}

impl fmt::Display for ExternalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What of an article is published: the fields whose change is a change of content.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
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

/// What to answer when the `external_id` exists.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnDuplicate {
    /// 200 and the existing task.
    #[default]
    Return,
    /// 409: strict mode.
    Reject,
}

impl OnDuplicate {
    /// The name used in the API and in the database.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Return => "return",
            Self::Reject => "reject",
        }
    }
}

/// A text that is no such mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there are return and reject")]
pub struct BadOnDuplicate;

impl FromStr for OnDuplicate {
    type Err = BadOnDuplicate;

    fn from_str(text: &str) -> Result<Self, BadOnDuplicate> {
        [Self::Return, Self::Reject].into_iter().find(|mode| mode.as_str() == text).ok_or(BadOnDuplicate)
    }
}

/// What holds for a tenant's articles that do not say otherwise.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Defaults {
    /// Where events are delivered.
    pub callback_url: Option<String>,
    /// What to answer for a duplicate.
    pub on_duplicate: OnDuplicate,
}

/// The body of `POST /publish`, valid.
#[derive(Debug, Clone, PartialEq)]
pub struct Submission {
    /// The caller's id.
    pub external_id: ExternalId,
    /// Where it is to be published.
    pub group_code: GroupCode,
    /// What is to be published.
    pub content: Content,
    /// Where events are to be delivered.
    pub callback_url: Option<String>,
    /// Not before then.
    pub publish_at: Option<DateTime<Utc>>,
    /// Whether it waits for a submit; none: not sent.
    pub draft: Option<bool>,
    /// What to answer for a duplicate; none: the tenant's default.
    pub on_duplicate: Option<OnDuplicate>,
    /// The caller's own data, the JSON text as sent.
    pub metadata: Option<String>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id(text: &str) -> Result<ExternalId, BadExternalId> {
        text.parse()
    }

    #[test]
    fn ids_are_normalised_and_compared_exactly() {
        assert_eq!(id("cafe\u{301}").unwrap(), id("caf\u{e9}").unwrap());
        assert_ne!(id("Post").unwrap(), id("post").unwrap());
        for good in
            ["a", "a b", "文章/1?x=%20#&", "…", "...", "🙂", &"é".repeat(200), &"e\u{301}".repeat(200)]
        {
            assert!(id(good).is_ok(), "{good:?}");
        }
    }

    #[test]
    fn ids_that_break_a_rule_say_which() {
        assert_eq!(id(""), Err(BadExternalId::Empty));
        assert_eq!(id(&"é".repeat(201)), Err(BadExternalId::TooLong));
        assert_eq!(id("a\nb"), Err(BadExternalId::Control));
        assert_eq!(id("a\u{85}b"), Err(BadExternalId::Control));
        assert_eq!(id("  "), Err(BadExternalId::Blank));
        assert_eq!(id(" a"), Err(BadExternalId::OuterSpace));
        assert_eq!(id("a\u{3000}"), Err(BadExternalId::OuterSpace));
        assert_eq!(id("."), Err(BadExternalId::Dots));
        assert_eq!(id(".."), Err(BadExternalId::Dots));
    }

    #[test]
    fn ids_made_from_a_clock_are_noticed() {
        for made in
            ["1764439366", "1764439366123", "20261129180246", "2026-11-29T18:02:46Z", "2026-11-29T18:02:46.5"]
        {
            assert!(id(made).unwrap().looks_like_timestamp(), "{made}");
        }
        for chosen in ["17644", "post-1764439366", "2026-11-29", "99999999999999", "release 2026"] {
            assert!(!id(chosen).unwrap().looks_like_timestamp(), "{chosen}");
        }
    }

    proptest! {
        #[test]
        fn an_id_is_the_same_when_read_again(text in "\\PC{0,40}") {
            if let Ok(first) = id(&text) {
                prop_assert_eq!(id(first.as_str()), Ok(first));
            }
        }
    }
}
