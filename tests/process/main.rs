//! The program as its operator and its callers meet it: real processes, real signals, real kills.
//!
//! Each test has a folder, processes and a database of its own, and ends and removes them, also when it fails.
//! `PUBLISH_TEST_SEED` repeats the chance of a run that failed.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "clippy.toml allows them in tests, but misses what tests share"
)]

#[path = "../database/invariants.rs"]
mod invariants;

mod api;
mod audit;
mod bridge;
mod callers;
mod commands;
mod crashes;
mod database;
mod endings;
mod feed;
mod flood;
mod folder;
mod https;
mod inbound;
mod master_key;
mod names;
mod newcomer;
mod nodes;
mod operator;
mod outbound;
mod pipeline;
mod pooler;
mod program;
mod receiver;
mod remote;
mod retention;
mod rights;
mod rivals;
mod schedule;
mod secrets;
mod serve;
mod two_services;
