//! Hostile input to everything that reads what others send: valid texts that are changed, and noise.
//!
//! `cargo test --test fuzz` runs ten million cases on the parsers and 50,000 requests against a service in this process, and
//! says how many each got and the peak of memory. `-- --short` is for continuous integration. A case is made of the
//! seed, the parser's name and a number: what it prints of a case that failed repeats just that one. It exits with 1 when a parser
//! panics or breaks a law of its own, when a request is answered by a fault of ours, or when memory grows.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "clippy.toml allows them in tests, but misses what tests share"
)]

use std::process::ExitCode;

use clap::Parser;
use publish_ingest::clock::{Clock as _, SystemClock};

#[expect(dead_code, reason = "the tests of the database use more of it")]
#[path = "../database/harness.rs"]
mod harness;
#[path = "../database/invariants.rs"]
mod invariants;

mod chance;
mod connection;
mod laws;
mod parsers;
mod requests;
mod texts;

/// The most that this process may ever have had in memory, in KiB: some ten times what a run takes, so that only what grows with
/// the cases comes there.
const MEMORY_MAX_KIB: u64 = 512 * 1024;

/// Cases and requests of the short form: ten seconds on two free cores.
const SHORT_CASES: u64 = 200_000;
const SHORT_REQUESTS: u64 = 2_000;

/// Feeds hostile input to everything that reads what others send
#[derive(Debug, Parser)]
struct Arguments {
    /// How many cases the parsers get in all
    #[arg(long, default_value_t = 10_000_000)]
    cases: u64,

    /// How many requests the service gets
    #[arg(long, default_value_t = 50_000)]
    requests: u64,

    /// Repeats the cases of another run
    #[arg(long)]
    seed: Option<u64>,

    /// Only this parser
    #[arg(long)]
    only: Option<String>,

    /// With --only and --seed: only this case
    #[arg(long, requires = "only")]
    case: Option<u64>,

    /// What continuous integration has time for
    #[arg(long, conflicts_with_all = ["cases", "requests"])]
    short: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let seed = arguments.seed.unwrap_or_else(|| {
        let mut bytes = [0; 8];
        SystemClock.fill(&mut bytes);
        u64::from_be_bytes(bytes) >> 16
    });
    let (cases, requests) =
        if arguments.short { (SHORT_CASES, SHORT_REQUESTS) } else { (arguments.cases, arguments.requests) };
    println!("seed {seed}: {cases} cases, {requests} requests");
    let wanted = |name: &str| arguments.only.as_deref().is_none_or(|only| only == name);
    let mut sound = parsers::run(seed, cases, arguments.case, wanted);
    if requests > 0 && arguments.case.is_none() && wanted("requests") {
        sound &= requests::run(seed, requests);
    }
    let peak = peak_kib();
    println!(
        "peak of memory: {} MiB",
        peak.map_or_else(|| "not told".to_owned(), |kib| (kib / 1024).to_string())
    );
    if peak.is_some_and(|kib| kib > MEMORY_MAX_KIB) {
        println!("that is more than {} MiB", MEMORY_MAX_KIB / 1024);
        sound = false;
    }
    if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The most that this process has had in memory; Linux alone tells it.
fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}
