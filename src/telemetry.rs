//! What the service says of itself: logs, on standard error, and [`metrics`].

use std::io::{self, IsTerminal as _};

use tracing_subscriber::EnvFilter;

pub mod metrics;

/// The form of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// A filter that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error(
    "PUBLISH_LOG={0:?} is no filter: write a level (error, warn, info, debug, trace) or target=level, with commas"
)]
pub struct BadFilter(String);

/// The parser of HTML logs every word of an article, at a level that somebody may choose for everything; the database's
/// notices tell of nothing but that a migration was applied before.
const QUIET: [&str; 2] = ["html5ever=warn", "sqlx::postgres::notice=warn"];

/// Starts logging; the first call counts.
pub fn start(filter: &str, format: LogFormat) -> Result<(), BadFilter> {
    let mut filter = EnvFilter::try_new(filter).map_err(|_| BadFilter(filter.to_owned()))?;
    for quiet in QUIET.iter().filter_map(|directive| directive.parse().ok()) {
        filter = filter.add_directive(quiet);
    }
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    let subscriber = subscriber.with_ansi(io::stderr().is_terminal());
    // Fails only if logging was started before.
    let _ = match format {
        LogFormat::Text => subscriber.with_target(false).try_init(),
        LogFormat::Json => subscriber.json().flatten_event(true).try_init(),
    };
    Ok(())
}
