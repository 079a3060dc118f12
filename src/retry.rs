//! When something is tried again. Pure: the caller brings the time and the chance.

use std::str::FromStr;
use std::time::Duration;

use chrono::TimeDelta;

/// How far a jittered wait may lie from its schedule, as a share of it: ± 20 %.
pub const JITTER: f64 = 0.2;

/// The most steps a schedule may have: a longer one is a mistake in a setting.
pub const SCHEDULE_STEPS_MAX: usize = 100;

/// The longest single wait of a schedule: a week, beyond which nobody waits for a repeat.
pub const WAIT_MAX: Duration = Duration::from_hours(7 * 24);

/// The waits before each try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule(Vec<Duration>);

impl Schedule {
    /// A schedule of these waits.
    #[must_use]
    pub fn new(waits: Vec<Duration>) -> Self {
        Self(waits)
    }

    /// The wait before try number `n`, counted from 0; none when the schedule has run out.
    #[must_use]
    pub fn wait(&self, n: usize) -> Option<Duration> {
        self.0.get(n).copied()
    }

    /// All waits together.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.0.iter().sum()
    }

    /// The wait before try number `n`, where the last step repeats; none if the schedule is empty.
    #[must_use]
    pub fn wait_repeating(&self, n: usize) -> Option<Duration> {
        self.wait(n).or_else(|| self.0.last().copied())
    }
}

/// Why a duration or a schedule cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadSchedule {
    /// Not a whole number and a unit.
    #[error("{0:?} is not a duration: write a whole number and ms, s, m or h, such as 30s")]
    Duration(String),
    /// Longer than is allowed: the text, and so many hours.
    #[error("{0:?} is too long: the longest is {1}h")]
    TooLong(String, u64),
    /// More than [`SCHEDULE_STEPS_MAX`] waits.
    #[error("a schedule has at most {SCHEDULE_STEPS_MAX} waits")]
    TooMany,
}

impl FromStr for Schedule {
    type Err = BadSchedule;

    /// Commas between the waits, blanks allowed; an empty text is an empty schedule.
    fn from_str(text: &str) -> Result<Self, BadSchedule> {
        if text.trim().is_empty() {
            return Ok(Self(Vec::new()));
        }
        let waits = text.split(',').map(|part| duration(part.trim())).collect::<Result<Vec<_>, _>>()?;
        if waits.len() > SCHEDULE_STEPS_MAX { Err(BadSchedule::TooMany) } else { Ok(Self(waits)) }
    }
}

/// Reads a wait: a whole number and `ms`, `s`, `m` or `h`, at most [`WAIT_MAX`].
pub fn duration(text: &str) -> Result<Duration, BadSchedule> {
    long_duration(text, WAIT_MAX)
}

/// Reads a duration of at most so much.
pub fn long_duration(text: &str, most: Duration) -> Result<Duration, BadSchedule> {
    let bad = || BadSchedule::Duration(text.to_owned());
    let unit_at = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
    let (number, unit) = text.split_at(unit_at);
    let number: u64 = number.parse().map_err(|_| bad())?;
    let millis_per_unit: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(bad()),
    };
    let wait = number.checked_mul(millis_per_unit).map(Duration::from_millis);
    let too_long = || BadSchedule::TooLong(text.to_owned(), most.as_secs() / 3_600);
    wait.filter(|wait| *wait <= most).ok_or_else(too_long)
}

/// `wait`, moved by up to [`JITTER`] either way; `fraction` is a random number in `0..1`.
#[must_use]
pub fn jittered(wait: Duration, fraction: f64) -> Duration {
    wait.mul_f64(1.0 - JITTER + 2.0 * JITTER * fraction.clamp(0.0, 1.0))
}

/// A duration as the database takes it. Ours are bounded by [`WAIT_MAX`] or a century, far below what an interval holds.
#[must_use]
pub fn interval(wait: Duration) -> TimeDelta {
    // An interval holds whole microseconds.
    TimeDelta::microseconds(i64::try_from(wait.as_micros()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_whole_numbers_with_a_unit() {
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(duration("2m"), Ok(Duration::from_mins(2)));
        assert_eq!(duration("12h"), Ok(Duration::from_hours(12)));
        for bad in ["", "s", "5", "1.5s", "-1s", "5 s", "5d", "ms", "99999999999999999999s"] {
            assert_eq!(duration(bad), Err(BadSchedule::Duration(bad.to_owned())), "{bad:?}");
        }
        assert_eq!(duration("169h"), Err(BadSchedule::TooLong("169h".to_owned(), 168)));
        assert_eq!(long_duration("169h", Duration::from_hours(169)), Ok(Duration::from_hours(169)));
    }

    #[test]
    fn a_schedule_is_a_list_and_runs_out() {
        let schedule: Schedule = "0s, 5s,30s".parse().unwrap();
        let waits = (0..4).map(|n| schedule.wait(n)).collect::<Vec<_>>();
        let seconds = |s| Some(Duration::from_secs(s));
        assert_eq!(waits, [seconds(0), seconds(5), seconds(30), None]);
        let repeating = (0..5).map(|n| schedule.wait_repeating(n)).collect::<Vec<_>>();
        assert_eq!(repeating, [seconds(0), seconds(5), seconds(30), seconds(30), seconds(30)]);
        let empty = " ".parse::<Schedule>().unwrap();
        assert_eq!((empty.wait(0), empty.wait_repeating(0)), (None, None));
        assert_eq!("5s,,".parse::<Schedule>(), Err(BadSchedule::Duration(String::new())));
        assert_eq!(vec!["1s"; 101].join(",").parse::<Schedule>(), Err(BadSchedule::TooMany));
    }

    proptest! {
        #[test]
        fn jitter_stays_within_a_fifth(ms in 0u64..100_000_000, fraction in 0.0f64..1.0) {
            let wait = Duration::from_millis(ms);
            let moved = jittered(wait, fraction).as_secs_f64();
            prop_assert!(moved >= wait.as_secs_f64() * 0.8 - 1e-6);
            prop_assert!(moved <= wait.as_secs_f64() * 1.2 + 1e-6);
        }
    }
}
