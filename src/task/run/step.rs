//! What a run can do next, and how it can end: words only.

use std::time::Duration;

use crate::connector::{Failure, Remote};

/// What is done on the platform, each noted before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Images and tags are made ready: nothing of the article.
    Prepare,
    /// A draft is made.
    Draft,
    /// The article, or its draft, is published.
    Publish,
    /// A draft is removed that may yet be published by an earlier request.
    Remove,
}

impl Action {
    /// Its name in the journal.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Prepare => "prepare",
            Self::Draft => "draft",
            Self::Publish => "publish",
            Self::Remove => "remove",
        }
    }
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Step {
    /// Look for what carries the mark.
    Look,
    /// Note the intent, then do it; where a draft is to be published or removed, this one.
    Do(Action, Option<String>),
    /// It is over.
    Settle(Outcome),
    /// Nothing can be said now: give lane and lease back, and look again after a while.
    Wait {
        /// Why.
        why: String,
        /// After how long.
        wait: Duration,
        /// Whether the platform said that it works on it.
        accepted: bool,
        /// Whether the account is to be left alone for that long.
        parks: bool,
    },
}

/// How a run ends.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It is public.
    Success {
        /// Where.
        remote: Remote,
        /// Whether a look found it, rather than an answer to our request.
        found: bool,
        /// Whether the platform showed drafts of it besides.
        strays: bool,
    },
    /// It is not, and nothing more is done by itself.
    Failed {
        /// Why.
        failure: Failure,
        /// Whether a retry by the caller may help.
        retryable: bool,
        /// Why, in a word.
        reason: &'static str,
    },
    /// The platform does not let the account in.
    LoginExpired {
        /// What it said.
        failure: Failure,
        /// Whether an earlier try may have got in: it is looked up when the login was renewed.
        in_doubt: bool,
    },
    /// It is certain that nothing was published: another try is due later.
    Again {
        /// Why.
        failure: Failure,
        /// After how long.
        wait: Duration,
    },
    /// The platform asks for a pause: the account is left alone, and it costs no try.
    Parked {
        /// What it said.
        failure: Failure,
        /// For how long.
        wait: Duration,
    },
}
