//! What strikes, and when: by the seed alone.

use std::collections::HashMap;
use std::time::Duration;

use publish_ingest::fault::POINTS;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};

use crate::services::{Armed, Manner};

/// The pause between two strikes, in milliseconds.
const GAP_MS: std::ops::Range<u64> = 200..1_200;

/// For the how many-th time that a point is passed the fault happens, at most: the first times are those after a start.
const COUNT_MAX: u32 = 3;

/// Of 100 starts, how many are armed; the others live until they are killed at any moment.
const ARMED: u32 = 90;

/// Of 100 armed starts, how many stop at their point and go on after their lease, rather than die there.
const STOPS: u32 = 20;

/// What strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strike {
    /// A service is killed.
    Kill,
    /// A service is stopped past its lease.
    Pause,
    /// A service is killed, and the next one's clock is off by two hours.
    Clock(&'static str),
    /// A platform is stopped for longer than a call, or a part of it.
    StopPlatform(usize),
    /// The next answers of a platform are lost.
    LoseAnswers(usize),
    /// The database is killed, and started again.
    KillDatabase,
}

/// Draws strikes so that each kind comes in its turn.
pub(crate) struct Strikes {
    random: StdRng,
    platforms: usize,
    clock: bool,
    left: Vec<Strike>,
    /// How often each point was chosen.
    chosen: HashMap<&'static str, usize>,
    points: Vec<&'static str>,
}

impl Strikes {
    /// On so many platforms; points that none of them comes to are left out: of these kinds of steps.
    pub(crate) fn new(seed: u64, platforms: usize, never: &[&str], clock: bool) -> Self {
        let fits = |point: &&&str| !never.iter().any(|kind| point.ends_with(kind));
        let points = POINTS.iter().filter(fits).copied().collect::<Vec<_>>();
        // There is seldom anything to remove: who waits for that mostly waits in vain.
        let seldom = points.iter().filter(|point| point.ends_with("remove"));
        let chosen = seldom.map(|point| (*point, 1)).collect();
        let random = StdRng::seed_from_u64(seed);
        Self { random, platforms, clock, left: Vec::new(), chosen, points }
    }

    /// What strikes next.
    pub(crate) fn next(&mut self) -> Strike {
        if self.left.is_empty() {
            let platforms = 0..self.platforms;
            self.left.extend([Strike::Kill, Strike::Kill, Strike::Kill, Strike::Pause]);
            self.left.extend(platforms.clone().map(Strike::StopPlatform));
            self.left.extend(platforms.map(Strike::LoseAnswers));
            self.left.push(Strike::KillDatabase);
            if self.clock {
                self.left.push(Strike::Clock(["+2h", "-2h"][self.random.random_range(0..2)]));
            }
            self.left.shuffle(&mut self.random);
        }
        self.left.pop().unwrap_or(Strike::Kill)
    }

    pub(crate) fn gap(&mut self) -> Duration {
        Duration::from_millis(self.random.random_range(GAP_MS))
    }

    /// One of so many.
    pub(crate) fn one_of(&mut self, many: usize) -> usize {
        self.random.random_range(0..many)
    }

    /// How the next service is started: armed with a point that was chosen seldom, most of the times.
    pub(crate) fn manner(&mut self) -> Manner {
        if self.random.random_range(0..100) >= ARMED {
            return Manner::default();
        }
        self.points.shuffle(&mut self.random);
        let seldom = self.points.iter().min_by_key(|point| self.chosen.get(*point).copied().unwrap_or(0));
        let armed = seldom.copied().map(|point| {
            *self.chosen.entry(point).or_default() += 1;
            let count = self.random.random_range(1..=COUNT_MAX);
            Armed { point, count, stops: self.random.random_range(0..100) < STOPS }
        });
        Manner { armed, clock: None }
    }
}
