//! What the service says of itself: logs, on standard error, and [`metrics`].
//!
//! Logs never hold a key, a secret or an article's text, whatever filter is chosen. Our own lines name no such thing;
//! what others' code may say is bounded here.

use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, IsTerminal as _};
use std::panic::PanicHookInfo;
use std::str::FromStr;

use tracing::Level;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::{Targets, filter_fn};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

pub mod metrics;

/// The form of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

impl FromStr for LogFormat {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.trim() {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err("write text or json"),
        }
    }
}

/// What is logged.
#[derive(Debug, Clone, PartialEq)]
pub struct LogFilter(Targets);

/// A filter that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no filter: write a level (error, warn, info, debug, trace, off) or target=level, with commas"
)]
pub struct BadFilter(String);

impl LogFilter {
    /// Our own lines from `info` on, and others' errors.
    #[must_use]
    pub fn ours() -> Self {
        Self(Targets::new().with_default(LevelFilter::ERROR).with_target(OURS, LevelFilter::INFO))
    }
}

impl FromStr for LogFilter {
    type Err = BadFilter;

    /// A level for all, or for a target and what is below it; the longest target counts. Empty: errors alone.
    fn from_str(text: &str) -> Result<Self, BadFilter> {
        let bad = || BadFilter(text.to_owned());
        let mut targets = Targets::new().with_default(LevelFilter::ERROR);
        for part in text.split(',').filter(|_| !text.trim().is_empty()) {
            let (target, level) = match part.split_once('=') {
                Some((target, level)) => (Some(target.trim()), level),
                None => (None, part),
            };
            // Nothing would be read as a level.
            let level = Some(level.trim()).filter(|level| !level.is_empty()).ok_or_else(bad)?;
            let level = level.parse::<LevelFilter>().map_err(|_| bad())?;
            targets = match target {
                None => targets.with_default(level),
                Some(target) if is_target(target) => targets.with_target(target, level),
                Some(_) => return Err(bad()),
            };
        }
        Ok(Self(targets))
    }
}

fn is_target(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_:-".contains(&b))
}

/// Our own code, whose lines are written with care.
const OURS: &str = "publish_ingest";

/// The most that others' code logs: beyond it, libraries print their inner state, with whatever passes through them.
const OTHERS: LevelFilter = LevelFilter::DEBUG;

/// What is bounded further, with all below it.
const QUIET: [(&str, LevelFilter); 4] = [
    // The parsers of HTML log every word of an article.
    ("html5ever", LevelFilter::WARN),
    ("markup5ever", LevelFilter::WARN),
    // The database's notices tell of nothing but that a migration was applied before.
    ("sqlx::postgres::notice", LevelFilter::WARN),
    // Warns of a parameter of the database's URL that it does not know, with its value: a misspelt password.
    ("sqlx_postgres::options", LevelFilter::OFF),
];

/// Whether a line may be logged at all; the filter that is chosen decides on top of that.
fn may_show(target: &str, level: Level) -> bool {
    let below =
        |room: &str| target.strip_prefix(room).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
    let quiet = QUIET.iter().find(|(room, _)| below(room)).map(|(_, most)| *most);
    let most = quiet.unwrap_or(if below(OURS) { LevelFilter::TRACE } else { OTHERS });
    level <= most
}

/// Starts logging; the first call counts. From then on a panic is a line of the log as well.
pub fn start(filter: &LogFilter, format: LogFormat) {
    let bounds = filter_fn(|line| may_show(line.target(), *line.level()));
    let lines =
        tracing_subscriber::fmt::layer().with_writer(io::stderr).with_ansi(io::stderr().is_terminal());
    // Both filter for everything. As filters of the one layer they would swallow lines: a library that only asks whether
    // a line of its own is wanted (as `sqlx` does) leaves the "no" behind for the next line of its thread.
    let log = tracing_subscriber::registry().with(filter.0.clone()).with(bounds);
    // Fails only if logging was started before.
    let _ = match format {
        LogFormat::Text => log.with(lines.with_target(false)).try_init(),
        LogFormat::Json => log.with(lines.json().flatten_event(true)).try_init(),
    };
    std::panic::set_hook(Box::new(tell_panic));
}

fn tell_panic(panic: &PanicHookInfo<'_>) {
    let at = panic.location().map(ToString::to_string).unwrap_or_default();
    // Taken only where RUST_BACKTRACE asks for it.
    let backtrace = Backtrace::capture();
    let backtrace = (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
    tracing::error!(at, what = what_was_said(panic.payload()), backtrace, "panicked");
}

/// What a panic said, where it is a text of the program's: one that is made as it runs may hold an article's words, as
/// that of a text cut between two bytes of a character does.
fn what_was_said(payload: &(dyn Any + Send)) -> &'static str {
    payload
        .downcast_ref::<&'static str>()
        .copied()
        .unwrap_or("(not shown: it may hold what is nobody's to read)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_levels_and_targets_with_levels() {
        let shows = |filter: &str, target: &str, level| {
            filter.parse::<LogFilter>().map(|filter| filter.0.would_enable(target, &level))
        };
        assert_eq!(shows("info", "publish_ingest::http", Level::INFO), Ok(true));
        assert_eq!(shows("info", "publish_ingest::http", Level::DEBUG), Ok(false));
        assert_eq!(
            shows(" warn , publish_ingest::http = trace", "publish_ingest::http", Level::TRACE),
            Ok(true)
        );
        assert_eq!(shows("warn,publish_ingest::http=trace", "publish_ingest::task", Level::INFO), Ok(false));
        assert_eq!(shows("", "publish_ingest", Level::ERROR), Ok(true));
        assert_eq!(shows("", "publish_ingest", Level::WARN), Ok(false));
        assert_eq!(shows("off", "publish_ingest", Level::ERROR), Ok(false));
        for bad in ["loud", "info,", ",", "=info", "a=loud", "a b=info", "a[b]=info", "a=b=info"] {
            assert_eq!(bad.parse::<LogFilter>(), Err(BadFilter(bad.to_owned())));
        }
        assert!("yaml".parse::<LogFormat>().is_err());
    }

    #[test]
    fn no_filter_lets_out_what_others_say_of_articles_and_secrets() {
        assert!(may_show("publish_ingest::http", Level::TRACE));
        assert!(!may_show("publish_ingestion", Level::TRACE));
        assert!(!may_show("html5ever::tokenizer", Level::DEBUG) && may_show("html5ever", Level::WARN));
        assert!(!may_show("hyper::proto::h1::conn", Level::TRACE) && may_show("hyper::proto", Level::DEBUG));
        assert!(!may_show("sqlx_postgres::options::parse", Level::ERROR));
    }

    #[test]
    fn a_panics_text_shows_only_where_the_program_wrote_it() {
        let panic = |act: fn(&str)| std::panic::catch_unwind(move || act("dé")).unwrap_err();
        assert_eq!(what_was_said(&*panic(|_| panic!("a fixed text"))), "a fixed text");
        for made in [panic(|text| drop(text[..2].to_owned())), panic(|text| panic!("{text}"))] {
            assert!(!what_was_said(&*made).contains('é'));
        }
    }
}
