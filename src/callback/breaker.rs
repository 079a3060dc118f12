//! What one try says of its whole receiver, and when a receiver is left alone. Pure: the numbers are kept in the database,
//! where all nodes see them (`store::callbacks`).
//!
//! A receiver is a tenant's (scheme, host, port). Its breaker opens when it fails [`FAILURES_MAX`] times in a row: its
//! callbacks then keep their place, no try is counted, and one of them at a time is sent as a probe, after waits that
//! double from [`OPEN_FIRST`] to [`OPEN_MAX`]. A probe is a try like any other: it counts for the one callback that it
//! sends, so that a callback is exhausted by its own tries only. One answer that says that it lives closes the breaker, and what
//! waits goes out by [`RECOVERY_PAUSE`].
//!
//! A receiver whose last answer was not 2xx, or that is new, gets one call at a time.

use std::time::Duration;

/// How many failures in a row open a breaker: fewer are a restart or a deployment, which the callbacks' own schedule
/// bridges. The index `receivers_open` says the same number.
pub const FAILURES_MAX: i32 = 5;

/// How long a receiver is left alone when its breaker has just opened: about the schedule's third wait.
pub const OPEN_FIRST: Duration = Duration::from_secs(30);

/// The longest wait between two probes: a receiver that is back hears of it within this, and one that hangs for the
/// whole timeout costs a node 10 s of one call in 5 minutes.
pub const OPEN_MAX: Duration = Duration::from_mins(5);

/// How long a receiver is left alone that answers 429 or 503 and does not say for how long: past a deployment's blip.
pub const PAUSE: Duration = Duration::from_secs(10);

/// The pause for each callback that is sent to a receiver that has come back, until nothing waits any more: a hundred a
/// second, as replays go.
pub const RECOVERY_PAUSE: Duration = Duration::from_millis(10);

/// What a try says of its receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// It took it.
    Well,
    /// It gave no answer, or another gave 502, 503 or 504 for it.
    Failed,
    /// It lives, and refuses this callback, or wants it later.
    Alive,
}

/// What a try says of its receiver, and how long that asks to be left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heard {
    /// How it does.
    pub sign: Sign,
    /// How long nothing is to be sent to it.
    pub pause: Option<Duration>,
}

impl Heard {
    /// By the `status` of the answer, if there was one, and how long its `Retry-After` asks for.
    #[must_use]
    pub fn of(status: Option<u16>, asked: Option<Duration>) -> Self {
        let sign = match status {
            Some(200..=299) => Sign::Well,
            // What stands before it says so (RFC 9110 §15.6). A 500 is about one callback: of many, others may well be taken.
            Some(502..=504) | None => Sign::Failed,
            Some(_) => Sign::Alive,
        };
        let pause = match status {
            // To ask for a pause of nothing is to name none.
            Some(429 | 503) => Some(asked.filter(|asked| !asked.is_zero()).unwrap_or(PAUSE)),
            _ => None,
        };
        Self { sign, pause }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_answer_and_a_gateways_are_failures_2xx_is_well_and_the_rest_says_that_it_lives() {
        for (status, sign) in [
            (None, Sign::Failed),
            (Some(500), Sign::Alive),
            (Some(502), Sign::Failed),
            (Some(503), Sign::Failed),
            (Some(504), Sign::Failed),
            (Some(505), Sign::Alive),
            (Some(200), Sign::Well),
            (Some(299), Sign::Well),
            (Some(199), Sign::Alive),
            (Some(301), Sign::Alive),
            (Some(404), Sign::Alive),
            (Some(410), Sign::Alive),
            (Some(429), Sign::Alive),
        ] {
            assert_eq!(Heard::of(status, None).sign, sign, "{status:?}");
        }
    }

    #[test]
    fn only_429_and_503_pause_the_whole_receiver() {
        let hour = Some(Duration::from_hours(1));
        for status in [429, 503] {
            assert_eq!(Heard::of(Some(status), hour).pause, hour);
            assert_eq!(Heard::of(Some(status), None).pause, Some(PAUSE));
            assert_eq!(Heard::of(Some(status), Some(Duration::ZERO)).pause, Some(PAUSE));
        }
        for status in [None, Some(200), Some(404), Some(410), Some(500), Some(502)] {
            assert_eq!(Heard::of(status, hour).pause, None, "{status:?}");
        }
    }
}
