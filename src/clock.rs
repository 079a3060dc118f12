//! Time and chance, as parameters.
//!
//! Nothing in the crate asks the machine for the time or for a random number by itself: it asks a [`Clock`], so that
//! a test can move the time and repeat the chance. Leases, due times and pacing run on the *database's* clock; a
//! query that needs them adds [`Clock::skew`], which is zero outside tests, to the database's `now()`.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};
use rand::{Rng, SeedableRng, rngs::StdRng};
use uuid::Uuid;

/// A clock shared by the parts of a service.
pub type SharedClock = Arc<dyn Clock>;

/// Where time and chance come from.
pub trait Clock: Send + Sync {
    /// The wall clock's time.
    fn now(&self) -> DateTime<Utc>;

    /// A point on a clock that never goes back, to measure how long something took.
    fn instant(&self) -> Instant;

    /// This moment, to tell later how old something is.
    fn moment(&self) -> Moment {
        Moment { wall: self.now(), instant: self.instant() }
    }

    /// What a query adds to the database's `now()`: zero outside tests.
    fn skew(&self) -> TimeDelta;

    /// Fills `bytes` with random bytes that are fit for secrets.
    fn fill(&self, bytes: &mut [u8]);

    /// A new id: `UUIDv7` (RFC 9562 §5.7), so that ids made later sort later, to the millisecond.
    fn new_id(&self) -> Uuid {
        let mut random = [0; 10];
        self.fill(&mut random);
        let millis = u64::try_from(self.now().timestamp_millis()).unwrap_or(0);
        uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
    }

    /// A random number, at least 0 and below 1.
    fn fraction(&self) -> f64 {
        let mut bytes = [0; 4];
        self.fill(&mut bytes);
        f64::from(u32::from_le_bytes(bytes)) / (f64::from(u32::MAX) + 1.0)
    }
}

/// A moment, by both clocks.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    wall: DateTime<Utc>,
    instant: Instant,
}

impl Moment {
    /// How long after `earlier` this is, by the clock that says more: a wall clock that is put back keeps nothing young, nor
    /// does a machine that slept.
    #[must_use]
    pub fn after(self, earlier: Self) -> Duration {
        let by_wall = (self.wall - earlier.wall).to_std().unwrap_or_default();
        by_wall.max(self.instant.saturating_duration_since(earlier.instant))
    }
}

/// The machine's clock and the operating system's random numbers.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemClock;

#[expect(clippy::disallowed_methods, reason = "this is the one place where the machine is asked")]
impl Clock for SystemClock {
    fn now(&self) -> DateTime<Utc> {
        Utc::now()
    }

    fn instant(&self) -> Instant {
        Instant::now()
    }

    fn skew(&self) -> TimeDelta {
        TimeDelta::zero()
    }

    fn fill(&self, bytes: &mut [u8]) {
        // `rand`'s thread generator is a CSPRNG that reseeds itself from the operating system.
        rand::rng().fill_bytes(bytes);
    }
}

/// A clock for tests: it runs like the machine's, can be moved, and its chance follows a seed.
#[derive(Debug)]
pub struct TestClock {
    state: Mutex<(TimeDelta, StdRng)>,
}

impl TestClock {
    /// A clock at the machine's time whose random numbers follow `seed`.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self { state: Mutex::new((TimeDelta::zero(), StdRng::seed_from_u64(seed))) }
    }

    /// Moves the time on (or back, if `by` is negative).
    pub fn advance(&self, by: TimeDelta) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 += by;
    }
}

impl Clock for TestClock {
    fn now(&self) -> DateTime<Utc> {
        SystemClock.now() + self.skew()
    }

    fn instant(&self) -> Instant {
        SystemClock.instant()
    }

    fn skew(&self) -> TimeDelta {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    fn fill(&self, bytes: &mut [u8]) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).1.fill_bytes(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_v7_and_carry_the_clocks_time() {
        let clock = TestClock::seeded(1);
        clock.advance(TimeDelta::days(400));
        let id = clock.new_id();
        assert_eq!(id.get_version_num(), 7);
        let (seconds, _) = id.get_timestamp().unwrap().to_unix();
        assert!((clock.now().timestamp() - i64::try_from(seconds).unwrap()).abs() <= 1);
    }

    #[test]
    fn nothing_stays_young_because_the_clock_is_put_back() {
        let clock = TestClock::seeded(1);
        let first = clock.moment();
        clock.advance(TimeDelta::seconds(5));
        let later = clock.moment();
        assert!((5..60).contains(&later.after(first).as_secs()));
        clock.advance(TimeDelta::days(-1));
        assert!(clock.moment().after(later) < Duration::from_mins(1));
    }

    #[test]
    fn a_seed_repeats_the_chance() {
        let draw = |seed| (0..8).map(|_| TestClock::seeded(seed).fraction()).collect::<Vec<_>>();
        assert_eq!(draw(7), draw(7));
        assert!(draw(7).iter().all(|f| (0.0..1.0).contains(f)));
    }
}
