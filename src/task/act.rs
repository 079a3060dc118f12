//! What a caller may do to a task: pure decisions about publications that are locked; [`crate::store`] carries them out.

use std::collections::HashSet;

use chrono::{DateTime, TimeDelta, Utc};
use uuid::Uuid;

use super::state::{Counts, Status};
use crate::account::AccountKey;

/// The error code of what may have been published, or not.
pub const OUTCOME_UNKNOWN: &str = "outcome_unknown";

/// The error code of what the caller cancelled.
pub const CANCELLED: &str = "cancelled";

/// Why something runs again of which a person says that it is not public.
pub const CONFIRMED_NOT_PUBLISHED: &str = "confirmed_not_published";

/// A publication under its lock: nobody changes it before we have.
#[derive(Debug, Clone, PartialEq)]
pub struct HeldPublication {
    /// Its id.
    pub publication_id: Uuid,
    /// Its fence.
    pub fence: i32,
    /// Its account.
    pub account: AccountKey,
    /// Its place among the task's publications.
    pub position: i32,
    /// Its state.
    pub status: Status,
    /// Its public address.
    pub url: Option<String>,
    /// The error's code.
    pub error_code: Option<String>,
    /// Whether it rests although a try to publish it is open, since the login was lost before that was found out: it may
    /// be public, and is looked for before anything else when the login works again.
    pub in_doubt: bool,
    /// Whether the caller added its account by hand.
    pub added: bool,
    /// Whether its account was deleted.
    pub account_deleted: bool,
    /// When it last changed.
    pub updated_at: DateTime<Utc>,
}

/// A task all of whose publications are locked.
#[derive(Debug, Clone, PartialEq)]
pub struct HeldTask {
    /// Its id.
    pub task_id: Uuid,
    /// Its group.
    pub group_code: String,
    /// Not before then.
    pub publish_at: Option<DateTime<Utc>>,
    /// When it was submitted; none for a draft, and for what was cancelled while a draft.
    pub submitted_at: Option<DateTime<Utc>>,
    /// Whether its content was removed by age.
    pub content_removed: bool,
    /// The time of this transaction.
    pub now: DateTime<Utc>,
    /// Its publications, in order.
    pub publications: Vec<HeldPublication>,
}

/// Why nothing was done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no such task.
    #[error("there is no task with this external_id")]
    NoTask,
    /// The task has no such account.
    #[error("this task has no account {0}")]
    NoAccount(String),
    /// The state does not allow it; the sentence says which state that is.
    #[error("{0}")]
    Conflict(String),
    /// There is no such group.
    #[error("there is no group {0}: create it, or name another; nothing was changed")]
    UnknownGroup(String),
    /// The group has no accounts.
    #[error("the group {0} has no accounts: add one; nothing was changed")]
    EmptyGroup(String),
    /// There are no such accounts: their places in the list.
    #[error("{} accounts do not exist", .0.len())]
    UnknownAccounts(Vec<usize>),
}

impl HeldTask {
    /// Whether it still waits to be submitted.
    #[must_use]
    pub fn is_draft(&self) -> bool {
        self.publications.iter().any(|one| one.status == Status::Draft)
    }

    /// Whether it was cancelled before it was submitted; it can never be published any more.
    #[must_use]
    pub fn cancelled_while_draft(&self) -> bool {
        self.submitted_at.is_none() && !self.is_draft()
    }

    /// Its state.
    #[must_use]
    pub fn status(&self) -> Status {
        let counts = Counts::of(self.publications.iter().map(|one| one.status));
        counts.task_status(self.publications.iter().any(|one| one.fence > 0))
    }

    /// How long what is to run now has to wait: `publish_at` holds for retries, too.
    #[must_use]
    pub fn wait(&self) -> TimeDelta {
        self.publish_at.map_or(TimeDelta::zero(), |at| (at - self.now).max(TimeDelta::zero()))
    }

    /// Refuses what only a draft allows.
    pub fn must_be_draft(&self) -> Result<(), Refusal> {
        if self.is_draft() {
            return Ok(());
        }
        let state = if self.cancelled_while_draft() { "cancelled" } else { self.status().as_str() };
        Err(Refusal::Conflict(format!(
            "only a draft can be changed, and this task's state is {state}; to publish other content, hand it in under a new \
             external_id"
        )))
    }

    /// Refuses what would publish an article that is no longer there.
    fn must_have_content(&self) -> Result<(), Refusal> {
        if !self.content_removed {
            return Ok(());
        }
        Err(Refusal::Conflict(format!(
            "this task has ended as {}, and its content was removed by age since: nothing of it can be published any more; to \
             publish the article, hand it in under a new external_id",
            self.status()
        )))
    }

    /// Whether there is something to submit: not, if it was submitted before.
    pub fn submits(&self) -> Result<bool, Refusal> {
        if self.cancelled_while_draft() {
            return Err(Refusal::Conflict(CANCELLED_DRAFT.to_owned()));
        }
        Ok(self.is_draft())
    }
}

/// Why nothing more comes of a draft that was cancelled.
const CANCELLED_DRAFT: &str = "this task was cancelled while it was a draft, which cannot be undone; hand the article in \
    under a new external_id";

/// What a cancellation means for one publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It has not started: it is cancelled now.
    Cancel,
    /// It was cancelled before.
    Cancelled,
    /// It is public.
    Live,
    /// It may be under way at its platform, or public and not yet found there: it ends as it ends.
    InFlight,
    /// It failed by itself.
    Over,
}

/// What a cancellation means for each publication of a task. Refused when there is nothing that it could say.
pub fn cancelling(task: &HeldTask) -> Result<Vec<Fate>, Refusal> {
    let fates = task.publications.iter().map(fate).collect::<Vec<_>>();
    if fates.iter().any(|fate| matches!(fate, Fate::Cancel | Fate::Cancelled | Fate::InFlight)) {
        return Ok(fates);
    }
    let state = task.status();
    Err(Refusal::Conflict(format!("this task has ended as {state}: nothing of it can be cancelled")))
}

fn fate(one: &HeldPublication) -> Fate {
    match one.status {
        // To call it cancelled would be to say that it is not public.
        Status::Submitted | Status::LoginExpired if one.in_doubt => Fate::InFlight,
        // All else was not published for certain, also where it was tried before.
        Status::Draft | Status::Submitted | Status::LoginExpired => Fate::Cancel,
        Status::Running => Fate::InFlight,
        Status::Success => Fate::Live,
        Status::Failed if one.error_code.as_deref() == Some(CANCELLED) => Fate::Cancelled,
        Status::Failed => Fate::Over,
    }
}

/// The error of a publication that is cancelled: code, sentence, and whether a retry may help.
#[must_use]
pub fn cancelled(from: Status) -> (String, String, bool) {
    let retryable = from != Status::Draft;
    let sentence = if retryable {
        "the caller cancelled it before it was published; to publish it after all, retry it"
    } else {
        "the caller cancelled it while it was a draft; to publish the article, hand it in under a new external_id"
    };
    (CANCELLED.to_owned(), sentence.to_owned(), retryable)
}

/// What a caller asks to be retried.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RetryRequest {
    /// One account; none: all of the task.
    pub account: Option<AccountKey>,
    /// What the caller knows of its outcome; only with an account.
    pub confirmed: Option<Confirmed>,
}

/// What a person found out about an outcome that the service could not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Confirmed {
    /// It is not there.
    NotPublished,
    /// It is there.
    Published {
        /// Its public address.
        url: String,
        /// The platform's id of it.
        remote_id: Option<String>,
    },
}

/// What a retry means for one publication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Retrying {
    /// It runs again, in a new round; why, for the history.
    Again(&'static str),
    /// It is public: so a person says.
    Published {
        /// Its public address.
        url: String,
        /// The platform's id of it.
        remote_id: Option<String>,
    },
    /// It is left as it is; why, in a word.
    Skip(&'static str),
}

/// What a retry means for the publications of a task, with their places; those that it does not name are not in it.
pub fn retrying(task: &HeldTask, request: &RetryRequest) -> Result<Vec<(usize, Retrying)>, Refusal> {
    let all = task.publications.iter().enumerate();
    let plans = match &request.account {
        None => all.map(|(at, one)| (at, retry(task, one, None))).collect::<Vec<_>>(),
        Some(named) => {
            let found = all.into_iter().find(|(_, one)| one.account == *named);
            let no_account = || Refusal::NoAccount(format!("{} of {}", named.account_id(), named.platform()));
            let (at, one) = found.ok_or_else(no_account)?;
            vec![(at, retry(task, one, request.confirmed.as_ref()))]
        }
    };
    // What is left as it is needs no content.
    if plans.iter().any(|(_, plan)| !matches!(plan, Retrying::Skip(_))) {
        task.must_have_content()?;
    }
    Ok(plans)
}

fn retry(task: &HeldTask, one: &HeldPublication, confirmed: Option<&Confirmed>) -> Retrying {
    if !matches!(one.status, Status::Failed | Status::LoginExpired) {
        return Retrying::Skip(one.status.as_str());
    }
    let code = one.error_code.as_deref().filter(|_| one.status == Status::Failed);
    if code == Some(CANCELLED) && task.submitted_at.is_none() {
        return Retrying::Skip("cancelled_while_draft");
    }
    let unknown = code == Some(OUTCOME_UNKNOWN);
    let doubtful = unknown || one.in_doubt;
    match confirmed {
        Some(Confirmed::Published { url, remote_id }) if doubtful => {
            Retrying::Published { url: url.clone(), remote_id: remote_id.clone() }
        }
        // Where the outcome is known, nobody can know better.
        Some(Confirmed::Published { .. }) => Retrying::Skip(one.status.as_str()),
        None if unknown => Retrying::Skip(OUTCOME_UNKNOWN),
        _ if one.account_deleted => Retrying::Skip("account_deleted"),
        Some(Confirmed::NotPublished) if doubtful => Retrying::Again(CONFIRMED_NOT_PUBLISHED),
        _ => Retrying::Again("retried_by_caller"),
    }
}

/// The accounts of a draft, taken again from its group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Taken {
    /// What is no longer in the group.
    pub gone: Vec<Uuid>,
    /// What stays, and its place.
    pub kept: Vec<(Uuid, i32)>,
    /// What is new, and its place.
    pub new: Vec<(AccountKey, i32)>,
}

/// Takes a draft's accounts again: those of the group, in its order, then those that the caller added by hand.
#[must_use]
pub fn taking(group: &[AccountKey], drafts: &[HeldPublication]) -> Taken {
    let mut taken = Taken::default();
    let mut place = 0;
    for account in group {
        place += 1;
        match drafts.iter().find(|one| one.account == *account) {
            Some(one) => taken.kept.push((one.publication_id, place)),
            None => taken.new.push((account.clone(), place)),
        }
    }
    for one in drafts.iter().filter(|one| !group.contains(&one.account)) {
        if one.added {
            place += 1;
            taken.kept.push((one.publication_id, place));
        } else {
            taken.gone.push(one.publication_id);
        }
    }
    taken
}

/// The accounts that are new to a task, each once, with their places after the last. `known` are those that exist.
pub fn adding(
    task: &HeldTask,
    wanted: &[AccountKey],
    known: &[AccountKey],
) -> Result<Vec<(AccountKey, i32)>, Refusal> {
    if task.cancelled_while_draft() {
        return Err(Refusal::Conflict(CANCELLED_DRAFT.to_owned()));
    }
    let mut seen = task.publications.iter().map(|one| one.account.clone()).collect::<HashSet<_>>();
    let mut place = task.publications.iter().map(|one| one.position).max().unwrap_or(0);
    let (mut new, mut unknown) = (Vec::new(), Vec::new());
    for (at, account) in wanted.iter().enumerate() {
        if !seen.insert(account.clone()) {
            continue;
        }
        if known.contains(account) {
            place += 1;
            new.push((account.clone(), place));
        } else {
            seen.remove(account);
            unknown.push(at);
        }
    }
    if !unknown.is_empty() {
        return Err(Refusal::UnknownAccounts(unknown));
    }
    if !new.is_empty() {
        task.must_have_content()?;
    }
    Ok(new)
}

#[cfg(test)]
#[path = "act_tests.rs"]
mod tests;
