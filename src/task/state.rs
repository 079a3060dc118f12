//! The states of a publication and of a task. Pure.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The state of a publication, and of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Waits for the caller to submit it.
    Draft,
    /// Accepted; waits until it is due and its account is free.
    Submitted,
    /// A worker has it.
    Running,
    /// Published. Final.
    Success,
    /// Ended without being published, as far as could be found out.
    Failed,
    /// The account's login does not work; waits for it to be renewed.
    LoginExpired,
}

impl Status {
    /// All states, in the order of a publication's life.
    pub const ALL: [Self; 6] =
        [Self::Draft, Self::Submitted, Self::Running, Self::Success, Self::Failed, Self::LoginExpired];

    /// The state's name in the API and in the database.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Draft => "draft",
            Self::Submitted => "submitted",
            Self::Running => "running",
            Self::Success => "success",
            Self::Failed => "failed",
            Self::LoginExpired => "login_expired",
        }
    }

    /// The state of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == name)
    }

    /// Whether nothing more happens to it by itself.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Success | Self::Failed | Self::LoginExpired)
    }

    /// Whether a publication may go from here to `next`. The database refuses the others as well
    /// (`migrations/`, trigger `refuse_transition`), and a test holds the two against each other.
    #[must_use]
    pub fn may_become(self, next: Self) -> bool {
        use Status::{Draft, Failed, LoginExpired, Running, Submitted, Success};
        matches!(
            (self, next),
            (Draft | Running | Failed | LoginExpired, Submitted)
                | (Submitted, Running | LoginExpired)
                | (Running, Success | Failed | LoginExpired)
                // By cancelling only.
                | (Draft | Submitted | LoginExpired, Failed)
        )
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How many publications of a task are in each state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Counts {
    /// In `draft`.
    pub draft: u32,
    /// In `submitted`.
    pub submitted: u32,
    /// In `running`.
    pub running: u32,
    /// In `success`.
    pub success: u32,
    /// In `failed`.
    pub failed: u32,
    /// In `login_expired`.
    pub login_expired: u32,
}

impl Counts {
    /// Counts these states.
    pub fn of(states: impl IntoIterator<Item = Status>) -> Self {
        let mut counts = Self::default();
        for status in states {
            *match status {
                Status::Draft => &mut counts.draft,
                Status::Submitted => &mut counts.submitted,
                Status::Running => &mut counts.running,
                Status::Success => &mut counts.success,
                Status::Failed => &mut counts.failed,
                Status::LoginExpired => &mut counts.login_expired,
            } += 1;
        }
        counts
    }

    /// The task's state: the first that matches. `tried`: a worker has had one of them before.
    #[must_use]
    pub fn task_status(&self, tried: bool) -> Status {
        let Self { draft, submitted, running, success, failed, login_expired } = *self;
        if draft > 0 {
            Status::Draft
        } else if submitted + running > 0 {
            let untouched = !tried && running + success + failed + login_expired == 0;
            if untouched { Status::Submitted } else { Status::Running }
        } else if login_expired > 0 {
            Status::LoginExpired
        } else if failed > 0 {
            Status::Failed
        } else {
            Status::Success
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn success_is_final_and_nothing_returns_to_draft() {
        for next in Status::ALL {
            assert!(!Status::Success.may_become(next));
            assert!(!next.may_become(Status::Draft));
            assert!(!next.may_become(next));
        }
    }

    #[test]
    fn names_are_read_back() {
        for status in Status::ALL {
            assert_eq!(Status::named(status.as_str()), Some(status));
            assert_eq!(serde_json::to_value(status).unwrap(), status.as_str());
        }
        assert_eq!(Status::named("done"), None);
    }

    #[test]
    fn a_tasks_state_is_the_first_that_matches() {
        use Status::{Draft, Failed, LoginExpired, Running, Submitted, Success};
        let cases: [(&[Status], bool, Status); 12] = [
            (&[Draft, Draft], false, Draft),
            (&[Draft, Success], true, Draft),
            (&[Submitted, Submitted], false, Submitted),
            (&[Submitted, Submitted], true, Running),
            (&[Submitted, Success], true, Running),
            (&[Submitted, Failed], false, Running),
            (&[Submitted, Running], true, Running),
            (&[Running, LoginExpired], true, Running),
            (&[LoginExpired, Failed, Success], true, LoginExpired),
            (&[Failed, Success], true, Failed),
            (&[Success, Success], true, Success),
            (&[LoginExpired], false, LoginExpired),
        ];
        for (states, tried, expected) in cases {
            assert_eq!(Counts::of(states.iter().copied()).task_status(tried), expected, "{states:?} {tried}");
        }
    }

    proptest! {
        #[test]
        fn counts_hold_every_publication(picks in prop::collection::vec(0usize..6, 0..40)) {
            let counts = Counts::of(picks.iter().map(|&i| Status::ALL[i]));
            let Counts { draft, submitted, running, success, failed, login_expired } = counts;
            let sum = draft + submitted + running + success + failed + login_expired;
            prop_assert_eq!(usize::try_from(sum).unwrap(), picks.len());
        }
    }
}
