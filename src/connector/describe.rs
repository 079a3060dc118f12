//! What a connector says of its platform: what an account needs, and what the platform takes.

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// What an account of a platform needs, and what the platform takes.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Description {
    /// A JSON Schema of an account's settings.
    #[schema(value_type = Object)]
    pub settings_schema: Value,
    /// A JSON Schema of its credentials.
    #[schema(value_type = Object)]
    pub credentials_schema: Value,
    /// What an article must keep to.
    pub rules: Vec<ContentRule>,
}

/// What would keep an article from being published on a platform.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ContentProblem {
    /// Stable, `snake_case`.
    #[schema(example = "content_too_complex")]
    pub code: &'static str,
    /// What it is and what to do.
    pub detail: String,
    /// The limit that is broken, if it is a number.
    #[schema(required)]
    pub limit: Option<u64>,
    /// Who says so.
    #[schema(required)]
    pub source: Option<&'static str>,
    /// When that was read: a date, as of RFC 3339.
    #[schema(required)]
    pub as_of: Option<&'static str>,
}

impl ContentProblem {
    /// A problem that no rule of the platform makes.
    #[must_use]
    pub fn new(code: &'static str, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), limit: None, source: None, as_of: None }
    }
}

/// A rule of a platform for what is published there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ContentRule {
    /// The article's field.
    #[schema(example = "title")]
    pub field: &'static str,
    /// What is limited.
    #[schema(example = "max_characters")]
    pub rule: &'static str,
    /// The limit; null for a rule without a number.
    #[schema(required)]
    pub limit: Option<u64>,
    /// Who says so: a page of the platform's documentation, or `publish-ingest`.
    pub source: &'static str,
    /// When that was read: a date, as of RFC 3339.
    #[schema(example = "2026-01-31")]
    pub as_of: &'static str,
}
