//! What follows in the run of one publication: pure decisions; [`super::work`] only carries them out.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use crate::connector::{Failure, Remote, Sighting, Verdict};

/// How long an outcome may stay unknown before it is reported as such: a day, in which any operator has looked.
pub const CONFIRM_LIMIT: TimeDelta = TimeDelta::hours(24);

/// How many tries may follow each other at once whose outcomes are unknown: one crash is made good without delay, but what
/// does not end in time again and again waits by the schedule, or it would only be in its own way.
pub const OPEN_TRIES_MAX: i64 = 2;

/// What is known before the next step.
#[derive(Debug, Clone, Copy)]
pub struct Known {
    /// The time.
    pub now: DateTime<Utc>,
    /// How many tries have an outcome that is unknown.
    pub open_tries: i64,
    /// When the earliest of them began.
    pub open_try_since: Option<DateTime<Utc>>,
    /// The wait before another try, if the schedule has one left.
    pub next_wait: Option<Duration>,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Note the intent, then publish.
    Publish,
    /// It is over.
    Settle(Outcome),
    /// Nothing can be said now: keep it, and look again when the lease has run out.
    LookAgain(String),
}

/// How a run ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is public.
    Success {
        /// Where.
        remote: Remote,
        /// Whether a look found it, rather than an answer to our request.
        found: bool,
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
    /// It is certain that nothing was published: another try is due later.
    Again {
        /// Why.
        failure: Failure,
        /// After how long.
        wait: Duration,
    },
}

/// What follows from a look at the platform, which comes before every try.
#[must_use]
pub fn after_find(sighting: Sighting, known: Known) -> Step {
    match sighting {
        Sighting::Published(remote) => Step::Settle(Outcome::Success { remote, found: true }),
        Sighting::Absent if known.open_tries < OPEN_TRIES_MAX => Step::Publish,
        Sighting::Absent => {
            let message = "the platform gave no answer in time, and has not published it".to_owned();
            Step::Settle(transient(Failure { code: "platform_unavailable", message }, known))
        }
        Sighting::CannotTell(why) => match known.open_try_since {
            // Nothing was sent since the last proof of absence, so nothing can have been published.
            None => Step::Settle(transient(Failure { code: "platform_unavailable", message: why }, known)),
            Some(since) if known.now - since < CONFIRM_LIMIT => Step::LookAgain(why),
            Some(_) => Step::Settle(Outcome::Failed {
                failure: Failure {
                    code: "outcome_unknown",
                    message: format!("it could not be found out whether the article was published: {why}"),
                },
                retryable: false,
                reason: "outcome_unknown",
            }),
        },
    }
}

/// What follows from the answer to a request to publish.
#[must_use]
pub fn after_publish(verdict: Verdict, known: Known) -> Step {
    match verdict {
        Verdict::Done(remote) => Step::Settle(Outcome::Success { remote, found: false }),
        Verdict::Transient(failure) => Step::Settle(transient(failure, known)),
        Verdict::Rejected(failure) => {
            Step::Settle(Outcome::Failed { failure, retryable: false, reason: "rejected" })
        }
        Verdict::Unknown(why) => Step::LookAgain(why),
    }
}

fn transient(failure: Failure, known: Known) -> Outcome {
    match known.next_wait {
        Some(wait) => Outcome::Again { failure, wait },
        None => Outcome::Failed { failure, retryable: true, reason: "retries_exhausted" },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock, TestClock};

    fn known(open_for: Option<TimeDelta>, next_wait: Option<u64>) -> Known {
        let now = TestClock::seeded(1).now();
        Known {
            now,
            open_tries: i64::from(open_for.is_some()),
            open_try_since: open_for.map(|age| now - age),
            next_wait: next_wait.map(Duration::from_secs),
        }
    }

    fn remote() -> Remote {
        Remote { url: "https://h/a".into(), remote_id: "a".into() }
    }

    fn failure() -> Failure {
        Failure { code: "c", message: "m".into() }
    }

    #[test]
    fn what_is_found_is_never_sent() {
        for open in [None, Some(TimeDelta::minutes(1)), Some(TimeDelta::days(9))] {
            let step = after_find(Sighting::Published(remote()), known(open, None));
            assert_eq!(step, Step::Settle(Outcome::Success { remote: remote(), found: true }));
        }
    }

    #[test]
    fn only_proven_absence_leads_to_a_try() {
        assert_eq!(after_find(Sighting::Absent, known(Some(TimeDelta::minutes(1)), None)), Step::Publish);
        for open in [None, Some(TimeDelta::minutes(1)), Some(TimeDelta::days(9))] {
            let step = after_find(Sighting::CannotTell("w".into()), known(open, Some(5)));
            assert_ne!(step, Step::Publish);
        }
    }

    #[test]
    fn what_never_ends_in_time_waits_by_the_schedule() {
        let again = |open_tries| Known { open_tries, ..known(Some(TimeDelta::minutes(1)), Some(30)) };
        assert_eq!(after_find(Sighting::Absent, again(1)), Step::Publish);
        let step = after_find(Sighting::Absent, again(2));
        let Step::Settle(Outcome::Again { failure, wait }) = step else { panic!("{step:?}") };
        assert_eq!((failure.code, wait), ("platform_unavailable", Duration::from_secs(30)));
    }

    #[test]
    fn an_unknown_outcome_is_looked_up_for_a_day_and_then_told() {
        let ask = |age| after_find(Sighting::CannotTell("w".into()), known(Some(age), Some(5)));
        assert_eq!(ask(TimeDelta::hours(23)), Step::LookAgain("w".into()));
        let Step::Settle(Outcome::Failed { failure, retryable: false, .. }) = ask(TimeDelta::hours(24))
        else {
            panic!()
        };
        assert_eq!(failure.code, "outcome_unknown");
        let step = after_publish(Verdict::Unknown("w".into()), known(Some(TimeDelta::zero()), Some(5)));
        assert_eq!(step, Step::LookAgain("w".into()));
    }

    #[test]
    fn what_is_certain_not_to_be_published_is_tried_by_schedule() {
        let again = after_publish(Verdict::Transient(failure()), known(None, Some(30)));
        let wait = Duration::from_secs(30);
        assert_eq!(again, Step::Settle(Outcome::Again { failure: failure(), wait }));
        let over = after_publish(Verdict::Transient(failure()), known(None, None));
        let failed = Outcome::Failed { failure: failure(), retryable: true, reason: "retries_exhausted" };
        assert_eq!(over, Step::Settle(failed));
        let rejected = after_publish(Verdict::Rejected(failure()), known(None, Some(30)));
        let failed = Outcome::Failed { failure: failure(), retryable: false, reason: "rejected" };
        assert_eq!(rejected, Step::Settle(failed));
    }
}
