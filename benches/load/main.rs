//! The load benchmark: what it costs to accept articles, and to live them, beside the same code with a transaction for each
//! request and beside a bare prototype, in one run.
//!
//! `cargo bench --bench load`; `-- --help` lists what can be chosen. Linux only. A table is printed; JSON and a plot are
//! written to `target/load`. It exits with 1 when something was wrong (an error, an article lost or doubled, a callback that did
//! not come), never because something was slow.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "clippy.toml allows them in tests, but a benchmark is none to it"
)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use publish_ingest::clock::{Clock as _, SystemClock};
use publish_ingest::local_postgres::OnExit;

mod accept;
mod article;
mod backlog;
mod churn;
mod client;
mod database;
mod drive;
#[path = "../../tests/database/invariants.rs"]
#[expect(dead_code, reason = "a benchmark says what is broken, and does not fail by a panic")]
mod invariants;
mod lives;
mod load;
mod machine;
mod plot;
mod program;
mod prototype;
mod reads;
mod receiver;
mod report;
mod seed;
mod statements;
mod subject;
mod used;

use database::Server;
use program::World;
use prototype::Manner;
use report::{Report, median};

/// The name of the tenant, and the beginning of those of others.
pub(crate) const TENANT: &str = "load";

/// What went wrong.
pub(crate) type Failed = Box<dyn std::error::Error + Send + Sync>;

/// Measures what it costs to accept articles, and to live them
#[derive(Debug, Parser)]
pub(crate) struct Arguments {
    /// The rounds of each case, of which the medians count
    #[arg(long, default_value_t = 5)]
    rounds: usize,

    /// How long a round takes, in milliseconds
    #[arg(long, default_value_t = 1_000)]
    round_ms: u64,

    /// The size of an article's text
    #[arg(long, default_value_t = 4_096)]
    bytes: usize,

    /// Whole lives a second: an article, two publications, two callbacks
    #[arg(long, default_value_t = 1_500.0)]
    lives_per_second: f64,

    /// How long they are handed in at that rate, and before it at a tenth of it
    #[arg(long, default_value_t = 10)]
    lives_seconds: u64,

    /// How long a service is watched that has nothing to do
    #[arg(long, default_value_t = 10)]
    idle_seconds: u64,

    /// How many tenants hand in at once where many do
    #[arg(long, default_value_t = 64)]
    tenants: usize,

    /// Measures a second database as well that holds so many finished tasks; 10,000,000 take most of an hour and 40 GB
    #[arg(long, default_value_t = 0)]
    finished: i64,

    /// How many whole lives `churn` takes: it tells something from about 500,000 on
    #[arg(long, default_value_t = 20_000)]
    churn: u64,

    /// How many due articles of another tenant `backlog` has beside whole lives
    #[arg(long, default_value_t = 100_000)]
    backlog: u64,

    /// Keeps the server's data in that folder for the next run, which then needs not write those finished tasks again; it may be
    /// removed
    #[arg(long)]
    data: Option<PathBuf>,

    /// Tells of whole lives which statements they cost the database, by `pg_stat_statements`; to count them costs a little
    #[arg(long)]
    statements: bool,

    /// Where the figures are written, and the database is while it runs; it must be a disk
    #[arg(long, default_value_os_t = folder())]
    folder: PathBuf,

    /// The process of the prototype: of the benchmark's own use
    #[arg(long, hide = true)]
    prototype: Option<Manner>,

    /// As cargo calls it
    #[arg(long, hide = true)]
    bench: bool,

    /// Only these
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Part::Lives, Part::Accept])]
    only: Vec<Part>,
}

/// A part of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Whole lives, and a service that has nothing to do
    Lives,
    /// New articles and duplicates, beside the baselines
    Accept,
    /// Whether tables and indexes hold steady under many whole lives, which takes a while
    Churn,
    /// Whole lives of a tenant beside a backlog of another
    Backlog,
    /// Of the databases of the parts with finished tasks, churn and backlog, whether all holds that must hold
    Check,
}

impl Arguments {
    fn round(&self) -> Duration {
        Duration::from_millis(self.round_ms)
    }
}

/// `load` in the folder of what is built.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("load")
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match arguments.prototype {
        Some(manner) => serve_prototype(manner),
        // One thread: the driver leaves the rest of the machine to what it measures.
        None => tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Failed::from)
            .and_then(|runtime| runtime.block_on(run(&arguments))),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("WRONG: {why}");
            ExitCode::FAILURE
        }
    }
}

fn serve_prototype(manner: Manner) -> Result<(), Failed> {
    let url = std::env::var_os("LOAD_DATABASE_URL").ok_or("the prototype needs a database")?;
    let url = url.into_string().map_err(|_| "the database's URL is no text")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(prototype::serve(&url, manner))
}

async fn run(arguments: &Arguments) -> Result<(), Failed> {
    std::fs::create_dir_all(&arguments.folder)?;
    let (data, on_exit) = if let Some(folder) = &arguments.data {
        std::fs::create_dir_all(folder)?;
        (used::postgres(folder), OnExit::Keep)
    } else {
        let mut random = [0; 4];
        SystemClock.fill(&mut random);
        (arguments.folder.join(format!("postgres-{:08x}", u32::from_be_bytes(random))), OnExit::Remove)
    };
    let server = Server::start(&data, on_exit, arguments.statements).await?;
    let mut report = Report::default();
    let done = measure(&mut report, arguments, &server).await;
    server.stop().await?;
    // Also of a run that went wrong: what was measured before may tell why.
    std::fs::write(arguments.folder.join("load.json"), format!("{:#}\n", report.json()))?;
    std::fs::write(arguments.folder.join("load.svg"), plot::draw(&report))?;
    println!("written: load.json and load.svg in {}", arguments.folder.display());
    done
}

async fn measure(report: &mut Report, arguments: &Arguments, server: &Server) -> Result<(), Failed> {
    let full = if used::is_wanted(arguments) {
        let full = used::open(report, arguments, server).await?;
        used::check(arguments, &full.url).await?;
        Some(full)
    } else {
        None
    };
    if arguments.only.contains(&Part::Churn) {
        churn::run(report, arguments, server).await?;
    }
    if arguments.only.contains(&Part::Backlog) {
        backlog::run(report, arguments, server).await?;
    }
    if !arguments.only.iter().any(|part| matches!(part, Part::Lives | Part::Accept)) {
        return Ok(());
    }
    let world = World::make(server.create("fresh").await?, &arguments.folder).await?;
    let ready_ms = world.ready_after.iter().map(|after| after.as_secs_f64() * 1e3).collect();
    report.fact("start to ready, ms", median(ready_ms).into());
    if let Some(full) = &full {
        let ready_ms = full.serve("start", &[]).await?.ready_after.as_secs_f64() * 1e3;
        report.fact("start to ready, full database, ms", ready_ms.into());
    }
    // Before the rest: what that accepts is published by nobody.
    if arguments.only.contains(&Part::Lives) {
        lives::run(report, arguments, server, &world, "lives").await?;
        if let Some(full) = &full {
            lives::run(report, arguments, server, full, "lives, full database").await?;
        }
    }
    if arguments.only.contains(&Part::Accept) {
        Report::print_heads();
        accept::run(report, arguments, server, &world, full.as_ref()).await?;
    }
    Ok(())
}
