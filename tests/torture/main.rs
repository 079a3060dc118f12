//! The crash suite: articles are published to real platforms while the services, their database, the platforms, the network
//! between them and the clock break, by a seed; in the end, what each platform holds is counted at the platform itself.
//!
//! `cargo test --features faults --test torture` (5 minutes), and the long form
//! `cargo test --features faults --test torture -- --kills 300 --articles 2000`. Linux only. It exits with 1 when an article
//! stands twice, is missing, or has not ended, when a draft is left over, or an event was not delivered.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "clippy.toml allows them in tests, but misses what tests share"
)]

use std::process::ExitCode;

use clap::Parser;

#[expect(dead_code, reason = "the tests of the process use more of it")]
#[path = "../process/api.rs"]
mod api;
#[path = "../database/invariants.rs"]
mod invariants;
#[expect(dead_code, reason = "the tests of the process use more of it")]
#[path = "../process/operator.rs"]
mod operator;
#[expect(dead_code, reason = "the tests of the process use more of it")]
#[path = "../process/program.rs"]
mod program;

mod callers;
mod judge;
mod pause;
mod platforms;
mod proxy;
mod receiver;
mod removal;
mod services;
mod storm;
mod strikes;
mod world;

/// What is left of a run's length by default: what continuous integration has time for.
const SHORT_KILLS: usize = 24;
const SHORT_ARTICLES: usize = 120;

/// Publishes to real platforms while everything breaks, and counts what they hold in the end
#[derive(Debug, Parser)]
pub(crate) struct Arguments {
    /// What is published to; without it, all that is there
    #[arg(long, value_delimiter = ',')]
    platforms: Option<Vec<String>>,

    /// How often a service is killed
    #[arg(long, default_value_t = SHORT_KILLS)]
    kills: usize,

    /// How many articles are published on each platform
    #[arg(long, default_value_t = SHORT_ARTICLES)]
    articles: usize,

    /// Repeats the chance of another run; what the processes make of it still differs
    #[arg(long)]
    seed: Option<u64>,

    /// The lengths of continuous integration, which are also what is taken where nothing is said
    #[arg(long, conflicts_with_all = ["kills", "articles"])]
    short: bool,

    /// Takes out the search before an article is made: the suite must fail
    #[arg(long)]
    without_search: bool,

    /// Keeps the run's folder, with the services' logs
    #[arg(long)]
    keep: bool,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let seed = arguments.seed.unwrap_or_else(|| u64::from_be_bytes(program::random()) >> 16);
    println!("seed {seed}: {} kills, {} articles", arguments.kills, arguments.articles);
    let world = world::World::start(&arguments, seed).await;
    match world {
        Ok(mut world) => {
            if !arguments.without_search {
                pause::run(&mut world).await;
                removal::run(&mut world).await;
            }
            let toll = storm::run(&mut world, &arguments).await;
            let sound = judge::judge(&world, &arguments, &toll).await;
            world.end().await;
            if sound && !arguments.keep {
                world.remove();
            } else {
                world.keep();
            }
            if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(why) => {
            println!("the suite cannot run: {why}");
            ExitCode::FAILURE
        }
    }
}
