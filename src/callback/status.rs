//! How the delivery of an event stands. Pure.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How the delivery of an event stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CallbackStatus {
    /// It is tried, or waits for its next try.
    Pending,
    /// The receiver took it.
    Delivered,
    /// The schedule has run out.
    Exhausted,
    /// The receiver answered 410.
    Gone,
}

impl CallbackStatus {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Pending, Self::Delivered, Self::Exhausted, Self::Gone];

    /// Its name, as it is stored and shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Delivered => "delivered",
            Self::Exhausted => "exhausted",
            Self::Gone => "gone",
        }
    }

    /// The status of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.as_str() == name)
    }

    /// All names, for a sentence.
    #[must_use]
    pub fn names() -> String {
        Self::ALL.map(Self::as_str).join(", ")
    }
}
