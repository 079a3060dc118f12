//! What a connector saw, and what came of what it did.

use std::borrow::Cow;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::fields::Fields;
use crate::json::InvalidJson;

/// Where an article stands on a platform.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Remote {
    /// The public address.
    pub url: String,
    /// The platform's own id of it, where it gives one.
    pub remote_id: Option<String>,
}

/// The longest id of an article on its platform, in characters: none that is known has half of it.
pub const REMOTE_ID_MAX: usize = 200;

/// Reads the field `remote_id` of a body that says where an article stands.
pub fn remote_id(fields: &mut Fields<'_>) -> Result<Option<String>, InvalidJson> {
    let id = fields.text("remote_id", Some(REMOTE_ID_MAX), false)?;
    if id.as_deref().is_some_and(|id| id.is_empty() || id.chars().any(char::is_control)) {
        fields.refuse("remote_id", "not_allowed", "must not be empty or hold control characters");
    }
    Ok(id)
}

/// An error, or a warning, to be shown to the tenant.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Failure {
    /// Stable, `snake_case`.
    pub code: Cow<'static, str>,
    /// What happened and what to do, in a sentence.
    pub message: String,
}

impl Failure {
    /// A failure of that code.
    #[must_use]
    pub fn new(code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into() }
    }
}

/// An article on a platform that carries the mark that was looked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Marked {
    /// The platform's id of it.
    pub id: String,
    /// Where it stands, if it is public; else it is a draft.
    pub public: Option<Remote>,
}

/// What a look-up by marker saw.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Sighting {
    /// All that carries the mark, the oldest first; nothing: the article is not there.
    Seen(Vec<Marked>),
    /// The platform could not be asked; why.
    CannotTell(String),
    /// The platform drops a second request with our key and answers it: sending the same request again is the look-up.
    SendToAsk,
    /// The platform itself says that it does not let the account in.
    LoginExpired(Failure),
    /// The platform asks for a pause.
    RateLimited(Pause),
}

impl Sighting {
    /// Nothing carries the mark.
    #[must_use]
    pub fn absent() -> Self {
        Self::Seen(Vec::new())
    }

    /// One article carries the mark, and is public.
    #[must_use]
    pub fn published(remote: Remote) -> Self {
        let id = remote.remote_id.clone().unwrap_or_else(|| remote.url.clone());
        Self::Seen(vec![Marked { id, public: Some(remote) }])
    }
}

/// A platform's wish to be left alone by an account for a while; it proves that the request did nothing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pause {
    /// What it said.
    pub failure: Failure,
    /// For how long, if it said so.
    pub wait: Option<Duration>,
}

/// What a request to make or to publish an article came to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The article is public.
    Done(Remote),
    /// There is a draft of it, of that id, and nothing is public yet.
    Drafted(String),
    /// The platform proved that it did nothing; another try may succeed.
    Transient(Failure),
    /// The platform has the article and works on it; what comes of it is told later, or when it is asked again.
    Accepted,
    /// Nothing was done, and another try would end the same.
    Rejected(Failure),
    /// The platform itself says that it failed and published nothing: a retry by the caller may help.
    Reported(Failure),
    /// The platform itself says that it does not let the account in.
    LoginExpired(Failure),
    /// The platform asks for a pause, and did nothing.
    RateLimited(Pause),
    /// Neither is proven: it is to be looked up, not repeated.
    Unknown(String),
}

/// What was made ready before an article is made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prepared {
    /// As its connector defines it; null where nothing was.
    pub ready: Value,
    /// Whether there was no time for some of it: to be asked for again, with what is ready.
    pub in_part: bool,
    /// What the article goes without.
    pub warnings: Vec<Failure>,
}

/// What came of removing a draft.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Removal {
    /// It is gone, or was not there.
    Gone,
    /// It is public by now, so it was left alone.
    Public,
    /// It could not be found out; why.
    Unknown(String),
}

/// What a platform says of an account's login.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Login {
    /// It lets the account in.
    Works,
    /// It does not, and says so.
    Expired(Failure),
    /// It lets the account in, but the account may not do what publishing needs, or its settings lead nowhere.
    Unfit(Failure),
    /// It could not be asked; why.
    CannotTell(String),
}

/// An article that a platform holds of an account, whoever put it there.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Listed {
    /// The platform's id of it.
    pub id: String,
    /// Our mark, where it carries one.
    pub marker: Option<String>,
    /// Its title, for people.
    pub title: String,
    /// Its address, if it is public; else it is a draft.
    pub url: Option<String>,
}

/// What a platform holds of an account, page by page.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Listing {
    /// Some of it.
    Page {
        /// What stands on this page.
        articles: Vec<Listed>,
        /// What to ask for next; none: that was all.
        next: Option<String>,
    },
    /// It could not be asked, or does not tell; why.
    CannotTell(String),
}
