//! For how long things are kept: what may be set, and why no less.

use std::time::Duration;

use crate::retry::{JITTER, Schedule, long_duration};

/// How a setting says that nothing is removed.
const OFF: &str = "off";

/// The shortest keep of contents and journals: what waits for a login may go on by itself for 7 days, what a robot has or nobody
/// knows the outcome of for one. The database refuses less as well.
pub const CONTENTS_MIN: Duration = Duration::from_hours(8 * 24);

/// The shortest keep of events: callbacks that were given up stay so long to be sent again, and one that stays keeps
/// what comes behind it in the feed.
pub const EVENTS_MIN: Duration = Duration::from_hours(90 * 24);

/// The longest keep, a hundred years: beyond it there are no dates to compute with.
pub const KEEP_MAX: Duration = Duration::from_hours(100 * 365 * 24);

/// How long a callback may be pending: longer than all tries of the usual schedule take if each answer asks for a day's
/// pause (11 days), and short enough that the queue for a receiver that is dead for good does not grow for ever.
pub const PENDING_MAX: Duration = Duration::from_hours(30 * 24);

/// For how long things are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// Contents, attempts and transitions of a task after all of it has ended; none: for ever.
    pub contents: Option<Duration>,
    /// Events with their callbacks and tries, and replays that are done; none: for ever.
    pub events: Option<Duration>,
    /// How long a callback may be pending before it is given up.
    pub pending: Duration,
}

impl Keep {
    /// What is kept where nothing is set: 90 days of both.
    pub const DEFAULT: Self =
        Self { contents: Some(EVENTS_MIN), events: Some(EVENTS_MIN), pending: PENDING_MAX };
}

/// How long a callback may be pending by this schedule: [`PENDING_MAX`], or for as long as its tries take.
#[must_use]
pub fn pending(schedule: &Schedule) -> Duration {
    PENDING_MAX.max(schedule.total().mul_f64(1.0 + JITTER))
}

/// Reads how long contents are kept.
pub fn contents(text: &str) -> Result<Option<Duration>, String> {
    let why = "what waits for its account's login goes on by itself for 7 days";
    read(text, CONTENTS_MIN, why)
}

/// Reads how long events are kept, if callbacks may be pending for so long.
pub fn events(text: &str, pending: Duration) -> Result<Option<Duration>, String> {
    if pending > EVENTS_MIN {
        return read(text, pending, "the tries of PUBLISH_CALLBACK_SCHEDULE take that long");
    }
    read(text, EVENTS_MIN, "callbacks that were given up stay so long to be sent again")
}

fn read(text: &str, least: Duration, why: &str) -> Result<Option<Duration>, String> {
    if text.trim() == OFF {
        return Ok(None);
    }
    let keep = long_duration(text.trim(), KEEP_MAX).map_err(|error| format!("{error}, or {OFF}"))?;
    if keep < least {
        let hours = least.as_secs().div_ceil(3_600);
        return Err(format!("{text} is too short: write {hours}h or more, since {why}, or {OFF}"));
    }
    Ok(Some(keep))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    #[test]
    fn a_keep_is_long_enough_or_off() {
        assert_eq!((contents("off"), events(" off ", PENDING_MAX)), (Ok(None), Ok(None)));
        assert_eq!(contents("192h"), Ok(Some(CONTENTS_MIN)));
        assert_eq!(events("2160h", PENDING_MAX), Ok(Some(EVENTS_MIN)));
        assert_eq!(contents("876000h"), Ok(Some(KEEP_MAX)));
        let short = contents("191h").unwrap_err();
        assert_eq!(
            short,
            "191h is too short: write 192h or more, since what waits for its account's login goes on by itself for 7 days, or off"
        );
        assert!(events("2159h", PENDING_MAX).unwrap_err().contains("write 2160h or more"));
        assert!(events("2160h", EVENTS_MIN + HOUR / 2).unwrap_err().contains("write 2161h or more"));
        for bad in ["", "0", "0s", "90d", "forever", "876001h", "99999999999999999999h"] {
            assert!(contents(bad).unwrap_err().ends_with("off"), "{bad:?}: {:?}", contents(bad));
        }
    }

    #[test]
    fn a_callback_is_pending_at_least_as_long_as_its_tries_take() {
        let usual = "0s,5s,30s,2m,10m,30m,1h,2h,4h,8h,12h".parse().unwrap();
        assert_eq!(pending(&usual), PENDING_MAX);
        let long = "168h,168h,168h,168h,168h".parse().unwrap();
        assert_eq!(pending(&long), HOUR * 5 * 168 * 12 / 10);
    }

    #[test]
    fn what_is_kept_by_default_may_be_set() {
        let Keep { contents: of_contents, events: of_events, pending } = Keep::DEFAULT;
        assert_eq!((contents("2160h"), events("2160h", pending)), (Ok(of_contents), Ok(of_events)));
    }
}
