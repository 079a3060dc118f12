//! Everything that needs a database, in one process: one private PostgreSQL for all tests, a database for each.
//!
//! A test runs in a [`harness::World`]; when its body is over, what must always hold is asked of the database
//! ([`invariants`]). Time is moved, not slept through; receivers of callbacks are scripted and signal what they got.
#![expect(clippy::unwrap_used, reason = "clippy.toml allows it in tests, but misses what tests share")]

mod accept;
mod accidents;
mod accounts;
mod accounts_at_once;
mod action_races;
mod actions;
mod batch;
mod breakers;
mod bridge;
mod callback_list;
mod callbacks;
mod cancel_race;
mod check;
mod claims;
mod contract;
mod daily_limits;
mod defaults;
mod double;
mod drafts;
mod fairness;
mod feed;
mod flow;
mod groups;
mod harness;
mod history;
mod invariants;
mod keys;
mod leases;
mod login_checks;
mod login_complaints;
mod login_doubts;
mod logins;
mod lookup;
mod metrics;
mod outage;
mod parking;
mod plans;
mod platform;
mod pull;
mod pull_plans;
mod quotas;
mod races;
mod rates;
mod receiver;
mod removals;
mod renewals;
mod replays;
mod reseal;
mod retries;
mod rights;
mod robot;
mod roles;
mod rules;
mod sandbox;
mod sandbox_faults;
mod settle;
mod signing;
mod task_list;
mod vault;
mod walls;
mod warnings;
