//! What follows in the run of one publication: pure decisions; [`super::work`] only carries them out.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use crate::connector::{Failure, Remote, Sighting, Verdict};
use crate::store::OpenTries;

pub use crate::task::act::OUTCOME_UNKNOWN;

/// How long an outcome may stay unknown before it is reported as such: a day, in which any operator has looked.
pub const CONFIRM_LIMIT: TimeDelta = TimeDelta::hours(24);

/// How many tries may follow each other at once whose outcomes are unknown: one crash is made good without delay, but what
/// does not end in time again and again waits by the schedule, or it would only be in its own way.
pub const OPEN_TRIES_MAX: i64 = 2;

/// How long a platform that works on an article is left alone before it is asked what came of it: the last wait repeats.
pub const ACCEPTED_WAITS: [Duration; 3] =
    [Duration::from_mins(1), Duration::from_mins(5), Duration::from_mins(15)];

/// What is known before the next step.
#[derive(Debug, Clone, Copy)]
pub struct Known {
    /// The time.
    pub now: DateTime<Utc>,
    /// The tries whose outcome is unknown.
    pub open: OpenTries,
    /// The wait before another try after a transient error, if the schedule has one left.
    pub next_wait: Option<Duration>,
    /// The wait before the platform is asked again that gave no answer.
    pub ask_wait: Duration,
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
    /// Nothing can be said now: give lane and lease back, and ask again after a while.
    AskAgain {
        /// Why.
        why: String,
        /// After how long.
        wait: Duration,
        /// Whether the platform said that it works on it.
        accepted: bool,
    },
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
    /// The platform does not let the account in.
    LoginExpired(Failure),
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
        Sighting::SendToAsk => match known.open.since {
            Some(since) if known.now - since >= CONFIRM_LIMIT => {
                outcome_unknown("the platform has not said for a day")
            }
            _ => Step::Publish,
        },
        Sighting::Absent if known.open.tries < OPEN_TRIES_MAX => Step::Publish,
        Sighting::Absent => {
            let message = "the platform gave no answer in time, and has not published it";
            Step::Settle(transient(Failure::new("platform_unavailable", message), known))
        }
        Sighting::CannotTell(why) => match known.open.since {
            // Nothing was sent since the last proof of absence, so nothing can have been published.
            None => Step::Settle(transient(Failure::new("platform_unavailable", why), known)),
            Some(since) if known.now - since < CONFIRM_LIMIT => Step::LookAgain(why),
            Some(_) => outcome_unknown(&why),
        },
    }
}

/// What follows from the answer to a request to publish; `sighting` is what the look before it saw.
#[must_use]
pub fn after_publish(verdict: Verdict, sighting: &Sighting, known: Known) -> Step {
    let asks = *sighting == Sighting::SendToAsk;
    // An earlier try may have got in, and only the platform itself can say what came of it.
    let in_doubt = asks && known.open.tries > 0;
    match verdict {
        Verdict::Done(remote) => Step::Settle(Outcome::Success { remote, found: false }),
        Verdict::Accepted => {
            let earlier = usize::try_from(known.open.accepted).unwrap_or(usize::MAX);
            let wait = ACCEPTED_WAITS[earlier.min(ACCEPTED_WAITS.len() - 1)];
            Step::AskAgain { why: "the platform works on it".to_owned(), wait, accepted: true }
        }
        Verdict::Unknown(why) if asks => Step::AskAgain { why, wait: known.ask_wait, accepted: false },
        Verdict::Unknown(why) => Step::LookAgain(why),
        Verdict::Transient(failure) | Verdict::Rejected(failure) if in_doubt => {
            Step::AskAgain { why: failure.message, wait: known.ask_wait, accepted: false }
        }
        Verdict::Transient(failure) => Step::Settle(transient(failure, known)),
        Verdict::Rejected(failure) => {
            Step::Settle(Outcome::Failed { failure, retryable: false, reason: "rejected" })
        }
        Verdict::Reported(failure) => {
            Step::Settle(Outcome::Failed { failure, retryable: true, reason: "reported_failed" })
        }
        Verdict::LoginExpired(failure) => Step::Settle(Outcome::LoginExpired(failure)),
    }
}

fn outcome_unknown(why: &str) -> Step {
    let message = format!("it could not be found out whether the article was published: {why}");
    let failure = Failure::new(OUTCOME_UNKNOWN, message);
    Step::Settle(Outcome::Failed { failure, retryable: false, reason: OUTCOME_UNKNOWN })
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
            open: OpenTries {
                tries: i64::from(open_for.is_some()),
                accepted: 0,
                since: open_for.map(|age| now - age),
            },
            next_wait: next_wait.map(Duration::from_secs),
            ask_wait: Duration::from_secs(7),
        }
    }

    fn remote() -> Remote {
        Remote { url: "https://h/a".into(), remote_id: Some("a".into()) }
    }

    fn failure() -> Failure {
        Failure::new("c", "m")
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
        let again = |tries| {
            let mut known = known(Some(TimeDelta::minutes(1)), Some(30));
            known.open.tries = tries;
            known
        };
        assert_eq!(after_find(Sighting::Absent, again(1)), Step::Publish);
        let step = after_find(Sighting::Absent, again(2));
        let Step::Settle(Outcome::Again { failure, wait }) = step else { panic!("{step:?}") };
        assert_eq!((&*failure.code, wait), ("platform_unavailable", Duration::from_secs(30)));
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
        let step = after_publish(
            Verdict::Unknown("w".into()),
            &Sighting::Absent,
            known(Some(TimeDelta::zero()), Some(5)),
        );
        assert_eq!(step, Step::LookAgain("w".into()));
    }

    #[test]
    fn what_is_certain_not_to_be_published_is_tried_by_schedule() {
        let again = after_publish(Verdict::Transient(failure()), &Sighting::Absent, known(None, Some(30)));
        let wait = Duration::from_secs(30);
        assert_eq!(again, Step::Settle(Outcome::Again { failure: failure(), wait }));
        let over = after_publish(Verdict::Transient(failure()), &Sighting::Absent, known(None, None));
        let failed = Outcome::Failed { failure: failure(), retryable: true, reason: "retries_exhausted" };
        assert_eq!(over, Step::Settle(failed));
        let rejected = after_publish(Verdict::Rejected(failure()), &Sighting::Absent, known(None, Some(30)));
        let failed = Outcome::Failed { failure: failure(), retryable: false, reason: "rejected" };
        assert_eq!(rejected, Step::Settle(failed));
    }
    #[test]
    fn where_sending_is_the_look_up_it_is_sent_again_for_a_day() {
        let minute = Some(TimeDelta::minutes(1));
        assert_eq!(after_find(Sighting::SendToAsk, known(None, None)), Step::Publish);
        let mut many = known(Some(TimeDelta::hours(23)), None);
        many.open.tries = 50;
        assert_eq!(after_find(Sighting::SendToAsk, many), Step::Publish);
        let over = after_find(Sighting::SendToAsk, known(Some(TimeDelta::hours(24)), Some(5)));
        let Step::Settle(Outcome::Failed { failure: unknown, .. }) = over else { panic!("{over:?}") };
        assert_eq!(unknown.code, OUTCOME_UNKNOWN);
        let ask = |verdict, open, wait| after_publish(verdict, &Sighting::SendToAsk, known(open, wait));
        let again =
            |why: &str| Step::AskAgain { why: why.into(), wait: Duration::from_secs(7), accepted: false };
        assert_eq!(ask(Verdict::Unknown("w".into()), None, None), again("w"));
        // What is certain of this try says nothing of an earlier one.
        assert_eq!(ask(Verdict::Transient(failure()), minute, Some(5)), again("m"));
        assert_eq!(ask(Verdict::Rejected(failure()), minute, Some(5)), again("m"));
        let first = ask(Verdict::Transient(failure()), None, Some(5));
        assert!(matches!(first, Step::Settle(Outcome::Again { .. })), "{first:?}");
        // What the platform says itself does.
        for open in [None, minute] {
            let step = ask(Verdict::Reported(failure()), open, Some(5));
            assert!(matches!(step, Step::Settle(Outcome::Failed { retryable: true, .. })), "{step:?}");
            let step = ask(Verdict::LoginExpired(failure()), open, Some(5));
            assert_eq!(step, Step::Settle(Outcome::LoginExpired(failure())));
        }
    }

    #[test]
    fn a_platform_that_works_on_it_is_asked_less_and_less_often() {
        let waits = [0, 1, 2, 9].map(|accepted| {
            let mut known = known(Some(TimeDelta::minutes(1)), None);
            known.open.accepted = accepted;
            let step = after_publish(Verdict::Accepted, &Sighting::SendToAsk, known);
            let Step::AskAgain { wait, accepted: true, .. } = step else { panic!("{step:?}") };
            wait.as_secs()
        });
        assert_eq!(waits, [60, 300, 900, 900]);
    }
}
