//! Everything that needs a database, in one process: one private PostgreSQL for all tests, a database for each.
//!
//! A test runs in a [`harness::World`]; when its body is over, what must always hold is asked of the database
//! ([`invariants`]). Time is moved, not slept through; receivers of callbacks are scripted and signal what they got.
#![expect(clippy::unwrap_used, reason = "clippy.toml allows it in tests, but misses what tests share")]

mod accept;
mod action_races;
mod actions;
mod callbacks;
mod cancel_race;
mod claims;
mod contract;
mod drafts;
mod harness;
mod invariants;
mod leases;
mod outage;
mod plans;
mod platform;
mod races;
mod receiver;
mod retries;
mod rules;
mod settle;
