//! The body of an event: fixed when it is written, byte for byte. Pure.

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::task::state::Status;

/// An error, as tenants see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ErrorView {
    /// Stable, `snake_case`.
    #[schema(example = "site_unwritable")]
    pub code: String,
    /// What happened and what to do.
    pub message: String,
    /// Whether a retry may help.
    pub retryable: bool,
}

impl ErrorView {
    /// The error whose parts stand in a publication's row; they stand or lack together.
    #[must_use]
    pub fn of(code: Option<&str>, message: Option<&str>, retryable: Option<bool>) -> Option<Self> {
        let (code, message, retryable) = (code?.to_owned(), message?.to_owned(), retryable?);
        Some(Self { code, message, retryable })
    }
}

/// An event: a publication reached `success`, `failed` or `login_expired` in some round.
#[derive(Debug, Serialize, ToSchema)]
pub struct EventBody<'a> {
    /// `publication.` and the status.
    #[serde(rename = "type")]
    #[schema(example = "publication.success")]
    pub kind: String,
    /// The event's id; also the header `webhook-id`, on every try.
    pub event_id: Uuid,
    /// The event's position in the tenant's feed.
    pub sequence: i64,
    /// When it happened.
    pub timestamp: DateTime<Utc>,
    /// The caller's id of the article.
    pub external_id: &'a str,
    /// The task.
    pub task_id: Uuid,
    /// The platform.
    pub platform: &'a str,
    /// The account.
    pub account_id: &'a str,
    /// The publication's state.
    pub status: Status,
    /// Its public address.
    #[schema(required)]
    pub url: Option<&'a str>,
    /// The platform's id of it.
    #[schema(required)]
    pub remote_id: Option<&'a str>,
    /// Why it failed.
    #[schema(required)]
    pub error: Option<ErrorView>,
    /// Which run.
    pub round: i32,
    /// The task's state with this event.
    pub task_status: Status,
    /// One row per key tells a receiver's state; only a higher sequence may overwrite it.
    #[schema(example = "post-1:static_site:demo:success")]
    pub dedupe_key: String,
    /// The caller's own data.
    #[schema(value_type = Object)]
    pub metadata: &'a RawValue,
}

impl EventBody<'_> {
    /// The bytes that are stored, signed and sent.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        // Strings, numbers and JSON that was read before: nothing here can fail to be written.
        serde_json::to_vec(self).unwrap_or_else(|_| unreachable!("an event can always be written"))
    }
}
