//! The token bucket: so many at once, and after that so many a second. Pure.

use std::time::Duration;

use crate::clock::Moment;
use crate::tenant::limits::Rate;

/// What was taken lately, as the time that it takes to come back. A new one is full.
#[derive(Debug)]
pub(in crate::http) struct Bucket {
    owed: Duration,
    at: Moment,
}

impl Bucket {
    pub(in crate::http) fn full(at: Moment) -> Self {
        Self { owed: Duration::ZERO, at }
    }

    /// Takes one; else says after how long there is one.
    pub(in crate::http) fn take(&mut self, rate: Rate, now: Moment) -> Result<(), Duration> {
        let all = one(rate) * rate.burst;
        // Of a burst that was larger, no more is owed than what there is.
        self.owed = self.owed.saturating_sub(now.after(self.at)).min(all);
        self.at = now;
        let owed = self.owed + one(rate);
        if owed > all {
            return Err(owed.saturating_sub(all));
        }
        self.owed = owed;
        Ok(())
    }

    /// Gives one back.
    pub(in crate::http) fn give_back(&mut self, rate: Rate) {
        self.owed = self.owed.saturating_sub(one(rate));
    }

    /// How many are there after the last [`take`](Self::take).
    pub(in crate::http) fn left(&self, rate: Rate) -> u32 {
        let there = (one(rate) * rate.burst).saturating_sub(self.owed);
        u32::try_from(there.as_nanos() / one(rate).as_nanos().max(1)).unwrap_or(u32::MAX)
    }

    /// How long it then takes to be full.
    pub(in crate::http) fn full_in(&self) -> Duration {
        self.owed
    }
}

/// How long one takes to come back.
fn one(rate: Rate) -> Duration {
    Duration::from_secs(1) / rate.per_second.max(1)
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;
    use proptest::prelude::*;

    use super::*;
    use crate::clock::{Clock as _, TestClock};

    #[test]
    fn a_burst_is_had_at_once_and_comes_back_by_the_rate() {
        let clock = TestClock::seeded(1);
        let rate = Rate { per_second: 2, burst: 5 };
        // The same moment throughout, but where it is moved.
        let (mut now, mut bucket) = (clock.moment(), Bucket::full(clock.moment()));
        assert_eq!((0..9).filter(|_| bucket.take(rate, now).is_ok()).count(), 5);
        assert_eq!((bucket.left(rate), bucket.full_in()), (0, Duration::from_millis(2_500)));
        let wait = bucket.take(rate, now).unwrap_err();
        assert!(wait <= Duration::from_millis(500), "{wait:?}");
        for (millis, more) in [(1_000, 2), (500, 1), (60_000, 5)] {
            clock.advance(TimeDelta::milliseconds(millis));
            now = clock.moment();
            assert_eq!((0..9).filter(|_| bucket.take(rate, now).is_ok()).count(), more, "{millis}");
        }
        // A smaller burst holds at once: no more is owed than all of it.
        let smaller = Rate { per_second: 1, burst: 1 };
        assert!(bucket.take(smaller, now).unwrap_err() <= Duration::from_secs(1));
        clock.advance(TimeDelta::milliseconds(1_001));
        now = clock.moment();
        assert_eq!((0..9).filter(|_| bucket.take(smaller, now).is_ok()).count(), 1);
        bucket.give_back(smaller);
        assert_eq!((bucket.left(smaller), bucket.take(smaller, now)), (1, Ok(())));
    }

    proptest! {
        #[test]
        fn no_more_come_than_the_burst_and_the_time(
            per_second in 1_u32..2_000, burst in 1_u32..2_000, waits in prop::collection::vec(0_i64..3_000, 1..60),
        ) {
            let (clock, rate) = (TestClock::seeded(1), Rate { per_second, burst });
            let first = clock.moment();
            let mut bucket = Bucket::full(first);
            let mut came = 0;
            for millis in waits {
                clock.advance(TimeDelta::milliseconds(millis));
                let now = clock.moment();
                while bucket.take(rate, now).is_ok() {
                    came += 1;
                }
                let most = f64::from(burst) + now.after(first).as_secs_f64() * f64::from(per_second);
                prop_assert!(f64::from(came) <= most * 1.001 + 1.0, "{came} of {most}");
                prop_assert_eq!(bucket.left(rate), 0);
            }
        }
    }
}
