//! What is explored: a class of platforms, what goes wrong at most, and what is taken out.

use std::collections::HashSet;
use std::sync::Mutex;
use std::time::Duration;

use publish_ingest::connector::Guarantee;
use publish_ingest::task::run::Terms;

use super::database::Pace;

/// The wait before what failed is tried again: a short one, as the schedule's first.
const RETRY_WAIT: Duration = Duration::from_secs(5);

/// A space to be explored.
pub(crate) struct Plan {
    pub(crate) guarantee: Guarantee,
    /// How fine time is.
    pub(crate) pace: Pace,
    /// The platform cannot be searched; sending again is asking.
    pub(crate) asks: bool,
    /// For how many ticks the platform may carry out a request after nobody waits for it any more.
    pub(crate) settle: i16,
    /// What goes wrong at most.
    pub(crate) budget: Budget,
    /// Whether a database is restored only when all that was sent has been carried out, or never will be.
    pub(crate) rests: bool,
    /// What is taken out.
    pub(crate) broken: Option<Broken>,
    /// The law that is known to end here.
    pub(crate) ends: Option<&'static str>,
    /// States of which it is known that they lead to an end.
    pub(crate) ending: Mutex<HashSet<u64>>,
}

/// How often each thing may go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Budget {
    /// A worker is killed.
    pub(crate) deaths: u8,
    /// A worker is stopped, for until its lease and a settle time have passed.
    pub(crate) stops: u8,
    /// A worker is stopped between seeing that it may begin a call and the call.
    pub(crate) gaps: u8,
    /// A request gets no answer, or one that says nothing, whether it was carried out or not.
    pub(crate) lost: u8,
    /// A request is carried out after nobody waits for it any more.
    pub(crate) late: u8,
    /// The platform refuses, or cannot tell.
    pub(crate) odd: u8,
    /// An older database is restored.
    pub(crate) restores: u8,
    /// The caller retries.
    pub(crate) retries: u8,
    /// A day passes while nobody works.
    pub(crate) days: u8,
}

/// What can be taken out, each to see that the model misses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Broken {
    /// A run does not look: it takes for there what it made itself, and nothing else.
    NoLook,
    /// A step is not noted before it is taken.
    NoJournal,
    /// A step is noted in a statement of its own, which does not renew the lease: a successor may not see it.
    LeaseApart,
    /// Whoever ends is not asked for its fence.
    NoFence,
    /// Absence counts as proof at once.
    NoSettleTime,
    /// The ages that the journal tells are counted on from the claim.
    AgesFromBeforeTheyAreRead,
    /// Absence counts from when its answer was taken in.
    AbsenceDatedAtItsEnd,
}

impl Budget {
    /// All that may go wrong, in a line.
    fn name(&self) -> String {
        let all = [
            (self.deaths, "deaths"),
            (self.stops, "stops"),
            (self.gaps, "stops in the gap"),
            (self.lost, "answers lost"),
            (self.late, "late requests"),
            (self.odd, "refusals"),
            (self.restores, "restores"),
            (self.retries, "retries"),
            (self.days, "days"),
        ];
        let named = all.iter().filter(|(times, _)| *times > 0);
        named.map(|(times, what)| format!("{times} {what}")).collect::<Vec<_>>().join(", ")
    }
}

impl Plan {
    /// The space of a class of platforms, where so much goes wrong.
    pub(crate) fn of(guarantee: Guarantee, pace: Pace, budget: Budget) -> Self {
        let settle = match guarantee {
            // As WordPress and Ghost: 30 seconds.
            Guarantee::DraftThenPublish | Guarantee::Search => 2 * pace.call(),
            Guarantee::NativeKey | Guarantee::AtMostOnce => 0,
        };
        Self {
            guarantee,
            pace,
            asks: false,
            settle,
            budget,
            rests: true,
            broken: None,
            ends: None,
            ending: Mutex::default(),
        }
    }

    /// The same, with that taken out.
    pub(crate) fn without(self, broken: Broken) -> Self {
        Self { broken: Some(broken), ..self }
    }

    /// The same, of a platform that cannot be searched: to send again is to ask.
    pub(crate) fn asked(self) -> Self {
        Self { asks: true, ..self }
    }

    /// The same, where a database is restored at once, while what was sent is on its way.
    pub(crate) fn restored_at_once(self) -> Self {
        Self { rests: false, ..self }
    }

    /// The same, where that law is known to end.
    pub(crate) fn but_for(self, law: &'static str) -> Self {
        Self { ends: Some(law), ..self }
    }

    /// What is explored, in a line.
    pub(crate) fn name(&self) -> String {
        let asked = if self.asks { ", asked by sending" } else { "" };
        let rests = if self.rests { "" } else { ", restored at once" };
        let without = self.broken.map(|broken| format!(", {broken:?}")).unwrap_or_default();
        let but_for = self.ends.map(|law| format!(", but for \"{law}\"")).unwrap_or_default();
        let budget = self.budget.name();
        format!("{}{asked}{rests}{without}, {budget}{but_for}", self.guarantee.as_str())
    }

    /// What a run goes by; the schedule of tries has no end.
    pub(crate) fn terms(&self, tries: i64) -> Terms {
        let no_settle_time = self.broken == Some(Broken::NoSettleTime);
        let settle = if no_settle_time { 0 } else { self.settle };
        Terms {
            guarantee: self.guarantee,
            settle: self.pace.tick() * u32::from(settle.unsigned_abs()),
            prepares: false,
            tries,
            next_wait: Some(RETRY_WAIT),
            ask_wait: RETRY_WAIT,
        }
    }
}
