//! A model of everything that can go wrong around one publication, explored to its end: the decisions are the service's own
//! ([`Run`](publish_ingest::task::run::Run) and [`Journal`](publish_ingest::store::Journal)), and only what carries them out
//! is modelled, statement by statement (`hand.rs`, `database.rs`).
//!
//! Two workers, a database and a platform. A worker may be killed, or stopped and continued up to beyond its lease and the
//! settle time, before and after every statement and call; between "the call may still begin" and the call only where a
//! space says so ([`Budget::gaps`]). A request is carried out while it is waited for, later, or never; its answer comes, is
//! lost, or refuses. An older database is restored, all workers being killed. Drafts are swept; the caller retries.
//!
//! Bounds: how often each of these happens is stated for each space ([`Budget`]), and time has no bound. A tick is 15 seconds
//! (half a lease of 30), or half of that ([`Pace`]); a worker is stopped for at most five times 15 seconds, and ages
//! beyond six times that are one age, but for a day. A decision and the statement that follows it are one step: a worker that
//! is stopped between them is as one that is stopped before, since no decision becomes wrong by waiting. At most two times a
//! bridge says that it works on an article. Tries by schedule have no end, so that nothing may be given up.
//!
//! `cargo test --test model -- --nocapture` tells how many states each space has, and the traces of what breaks it;
//! `cargo test --test model -- --ignored --nocapture` explores larger spaces, in finer time, for minutes.
#![expect(clippy::unwrap_used, reason = "clippy.toml allows it in tests, but misses what tests share")]

mod database;
mod hand;
mod happening;
mod laws;
mod plan;
mod platform;
mod world;

use publish_ingest::connector::Guarantee::{AtMostOnce, DraftThenPublish, NativeKey, Search};

use database::Pace;
use laws::{FENCED, ONCE, TRUE_FAILURE, breaks, holds};
use plan::{Broken, Budget, Plan};

/// Time by half a lease: what most faults need.
const COARSE: Pace = Pace(1);

/// Twice as fine, and several times the states.
const FINE: Pace = Pace(2);

/// Nothing goes wrong.
const NONE: Budget =
    Budget { deaths: 0, stops: 0, gaps: 0, lost: 0, late: 0, odd: 0, restores: 0, retries: 0, days: 0 };

/// Workers are killed and stopped, and what they sent is late.
const CRASHES: Budget = Budget { deaths: 1, stops: 1, late: 1, ..NONE };

/// Answers are lost and requests late while the platform refuses, and a caller retries.
const ANSWERS: Budget = Budget { lost: 1, late: 1, odd: 1, retries: 1, ..NONE };

/// The platform never answers.
const SILENCE: Budget = Budget { lost: 4, ..NONE };

/// The platform cannot be asked for a day.
const A_DAY: Budget = Budget { lost: 1, odd: 1, days: 1, ..NONE };

/// An older database is restored.
const RESTORED: Budget = Budget { restores: 1, deaths: 1, lost: 1, late: 1, ..NONE };

#[test]
fn with_a_key_of_its_own_a_platform_publishes_once() {
    for budget in [CRASHES, ANSWERS, SILENCE, A_DAY, RESTORED] {
        println!("{}", holds(Plan::of(NativeKey, COARSE, budget)));
    }
    // Stopped in the gap, and restored at once: neither makes a double of it.
    let gap = Budget { gaps: 1, stops: 1, ..NONE };
    println!("{}", holds(Plan::of(NativeKey, COARSE, gap)));
    println!("{}", holds(Plan::of(NativeKey, COARSE, RESTORED).restored_at_once()));
}

#[test]
fn where_sending_is_asking_a_platform_publishes_once() {
    for budget in [CRASHES, ANSWERS, SILENCE, A_DAY, RESTORED] {
        println!("{}", holds(Plan::of(NativeKey, COARSE, budget).asked()));
    }
}

#[test]
fn a_draft_is_published_once() {
    for budget in [CRASHES, ANSWERS, SILENCE, A_DAY, RESTORED] {
        println!("{}", holds(Plan::of(DraftThenPublish, COARSE, budget)));
    }
    let gap = Budget { gaps: 1, lost: 1, late: 1, ..NONE };
    println!("{}", holds(Plan::of(DraftThenPublish, COARSE, gap)));
    // Its request comes when it was given up, its draft could not be removed, and the caller has retried.
    let given_up = Budget { gaps: 1, lost: 1, odd: 1, retries: 1, ..NONE };
    println!("{}", holds(Plan::of(DraftThenPublish, COARSE, given_up).but_for(TRUE_FAILURE)));
    println!("{}", holds(Plan::of(DraftThenPublish, COARSE, RESTORED).restored_at_once()));
}

#[test]
fn where_it_can_be_searched_an_article_is_published_once() {
    for budget in [CRASHES, ANSWERS, SILENCE, A_DAY, RESTORED] {
        println!("{}", holds(Plan::of(Search, COARSE, budget)));
    }
}

#[test]
fn where_nothing_can_be_found_it_is_published_at_most_once() {
    for budget in [CRASHES, ANSWERS, SILENCE, A_DAY] {
        println!("{}", holds(Plan::of(AtMostOnce, COARSE, budget)));
    }
}

/// What would go wrong if it were not there, each with the shortest way to it.
#[test]
fn what_is_taken_out_is_missed() {
    let one = |guarantee, budget| Plan::of(guarantee, COARSE, budget);
    let late = Budget { deaths: 1, late: 1, ..NONE };
    let stop = Budget { stops: 1, ..NONE };
    let restore = Budget { restores: 1, ..NONE };
    println!("{}", breaks(one(Search, late).without(Broken::NoLook), ONCE));
    println!("{}", breaks(one(DraftThenPublish, restore).without(Broken::NoLook), ONCE));
    println!("{}", breaks(one(Search, late).without(Broken::NoJournal), ONCE));
    println!("{}", breaks(one(AtMostOnce, late).without(Broken::NoJournal), ONCE));
    println!("{}", breaks(one(Search, stop).without(Broken::LeaseApart), ONCE));
    println!("{}", breaks(one(Search, stop).without(Broken::NoFence), FENCED));
    let refused = Budget { odd: 1, ..stop };
    println!("{}", breaks(one(Search, refused).without(Broken::NoFence), ONCE));
    println!("{}", breaks(one(DraftThenPublish, refused).without(Broken::NoFence), TRUE_FAILURE));
    println!("{}", breaks(one(Search, late).without(Broken::NoSettleTime), ONCE));
    // Two that were there, until this model found them.
    println!("{}", breaks(one(Search, CRASHES).without(Broken::AbsenceDatedAtItsEnd), ONCE));
    let ages = Plan::of(Search, FINE, CRASHES).without(Broken::AgesFromBeforeTheyAreRead);
    println!("{}", breaks(ages, ONCE));
}

/// Where a class cannot do better: what `Guarantee` and the README name.
#[test]
fn what_is_promised_ends_where_it_is_said_to_end() {
    let one = |guarantee, budget| Plan::of(guarantee, COARSE, budget);
    let gap = Budget { gaps: 1, ..NONE };
    println!("{}", breaks(one(Search, gap), ONCE));
    println!("{}", breaks(one(AtMostOnce, Budget { restores: 1, ..NONE }), ONCE));
    // A restore is one sooner than the settle time after the last request.
    let restore = Budget { restores: 1, late: 1, ..NONE };
    println!("{}", breaks(one(Search, restore).restored_at_once(), ONCE));
    println!("{}", breaks(one(DraftThenPublish, Budget { gaps: 1, ..restore }).restored_at_once(), ONCE));
    println!("{}", breaks(one(DraftThenPublish, Budget { odd: 1, ..gap }), TRUE_FAILURE));
}

/// Larger spaces, in finer time.
#[test]
#[ignore = "it takes many minutes: cargo test --test model -- --ignored --nocapture"]
fn larger_spaces_hold_as_well() {
    for guarantee in [NativeKey, DraftThenPublish, Search, AtMostOnce] {
        println!("{}", holds(Plan::of(guarantee, FINE, CRASHES)));
        println!("{}", holds(Plan::of(guarantee, FINE, ANSWERS)));
    }
    println!("{}", holds(Plan::of(NativeKey, FINE, CRASHES).asked()));
    let crashes = Budget { stops: 1, deaths: 1, odd: 1, ..NONE };
    println!("{}", holds(Plan::of(DraftThenPublish, COARSE, crashes)));
    println!("{}", holds(Plan::of(NativeKey, COARSE, crashes).asked()));
    let restored = Budget { restores: 1, stops: 1, deaths: 1, ..NONE };
    println!("{}", holds(Plan::of(DraftThenPublish, COARSE, restored)));
}
