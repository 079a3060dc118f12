//! The command tree: one file per command.
//!
//! Exit codes: 0 done, 1 failed, 2 wrong usage. An error is one line on standard error that says what to do.

use std::fmt;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Parser, Subcommand};
use secrecy::ExposeSecret;
use serde_json::Value;

use crate::clock::{SharedClock, SystemClock};
use crate::config::{BadSetting, Secret};
use crate::lifecycle::CannotStart;
use crate::store::{Store, StoreError};
use crate::vault::{MasterKeys, Vault};

mod account;
mod audit;
mod callback;
mod dev;
mod group;
mod health;
mod key;
mod migrate;
mod openapi;
mod remote;
mod retention;
mod rotate_master_key;
mod running;
mod serve;
mod task;
mod tenant;

#[derive(Parser)]
#[command(name = "publish-ingest", version, about, arg_required_else_help = true)]
struct Program {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run everything on this machine, with nothing set up
    Dev(Box<dev::Dev>),
    /// Run the service against a database
    Serve(Box<serve::Serve>),
    /// Bring a database's schema up to date
    Migrate(migrate::Migrate),
    /// Create, list and set tenants, and replace what their callbacks are signed with
    #[command(subcommand)]
    Tenant(tenant::Tenant),
    /// Create, list and revoke API keys
    #[command(subcommand)]
    Key(key::Key),
    /// Put, list and delete accounts of the service at `PUBLISH_URL`
    #[command(subcommand)]
    Account(account::Account),
    /// Put, list and delete its groups
    #[command(subcommand)]
    Group(group::Group),
    /// Show its tasks, and act on them
    #[command(subcommand)]
    Task(task::Task),
    /// List its callbacks, and send them again
    #[command(subcommand)]
    Callback(callback::Callback),
    /// Compare what a platform shows of an account with what was recorded: doubles, losses, strangers
    Audit(Box<audit::Audit>),
    /// Show how far the removal of old contents and events is, and what is to go next
    Retention(retention::Retention),
    /// Store all secrets under the first of two master keys, so that the second can be taken away
    RotateMasterKey(rotate_master_key::RotateMasterKey),
    /// Print the OpenAPI 3.1 document
    Openapi,
    /// Ask a service whether it is ready; for health checks
    Health(health::Health),
}

/// Why a command failed, in one line; of wrong settings, a line each.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{}", lines(.0))]
    Settings(Vec<BadSetting>),
    #[error("{0}")]
    Told(String),
    #[error("{}", of_the_database(.0))]
    Store(#[from] StoreError),
    #[error("which database? set DATABASE_URL (a running `dev` prints its own), or give --database-url")]
    NoDatabase,
    #[error(transparent)]
    Listen(#[from] running::CannotListen),
    #[error(transparent)]
    Start(#[from] CannotStart),
    #[error(transparent)]
    AtOnce(#[from] running::EndedAtOnce),
    #[error("which service? set PUBLISH_URL (a running `dev` writes it to .dev/env), or give --url")]
    NoService,
    #[error("with which key? set PUBLISH_API_KEY (`publish-ingest key create` makes one), or give --api-key")]
    NoKey,
    #[error(transparent)]
    Dev(#[from] dev::CannotRun),
}

impl Failure {
    fn exit_code(&self) -> ExitCode {
        match self {
            Self::Settings(_) | Self::NoDatabase | Self::NoService | Self::NoKey => ExitCode::from(2),
            _ => ExitCode::FAILURE,
        }
    }
}

fn lines(bad: &[BadSetting]) -> String {
    bad.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Says which setting names the database that an error speaks of.
fn of_the_database(error: &StoreError) -> String {
    match error {
        StoreError::Address => format!("DATABASE_URL: {error}"),
        StoreError::Unavailable(_) | StoreError::Refused(_) => {
            format!("{error}: check DATABASE_URL, and that this database runs and lets you in")
        }
        StoreError::HeldUp(_) => {
            format!("{error}: see in pg_stat_activity who has a transaction open, end it, and run this again")
        }
        StoreError::Gathered(error) => of_the_database(error),
        StoreError::OtherKey { .. } => format!("{error} (it is the database that DATABASE_URL names)"),
        StoreError::Schema(_)
        | StoreError::Rights(_)
        | StoreError::Pooler(_)
        | StoreError::Distribute(_)
        | StoreError::Sealed(_) => error.to_string(),
    }
}

/// Runs the program with the arguments and the environment it was started with.
#[must_use]
pub fn main() -> ExitCode {
    let command = Program::parse().command;
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tell(&format!("cannot start: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let clock: SharedClock = Arc::new(SystemClock);
    let done = runtime.block_on(async {
        match command {
            Command::Dev(dev) => dev.run(clock).await,
            Command::Serve(serve) => serve.run(clock).await,
            Command::Migrate(migrate) => migrate.run(clock).await,
            Command::Tenant(tenant) => tenant.run(clock).await,
            Command::Key(key) => key.run(clock).await,
            Command::Account(account) => account.run().await,
            Command::Group(group) => group.run().await,
            Command::Task(task) => task.run().await,
            Command::Callback(callback) => callback.run().await,
            Command::Audit(audit) => audit.run(clock).await,
            Command::Retention(retention) => retention.run(clock).await,
            Command::RotateMasterKey(rotate) => rotate.run(clock).await,
            Command::Openapi => openapi::run(),
            Command::Health(health) => health.run().await,
        }
    });
    // A platform's call may still sit on a blocking thread; its lease is what ends it.
    runtime.shutdown_background();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error @ Failure::Settings(_)) => {
            error.to_string().lines().for_each(tell);
            error.exit_code()
        }
        Err(error) => {
            tell(&error.to_string());
            error.exit_code()
        }
    }
}

fn tell(why: &str) {
    // A database's message may have several lines.
    let line = why.split_whitespace().collect::<Vec<_>>().join(" ");
    let _ = writeln!(io::stderr(), "publish-ingest: {line}");
}

/// Prints a line. Whoever read it may have gone away, as `| head` does; that ends nothing.
fn say(line: impl fmt::Display) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// The database that a command works on.
#[derive(Args)]
struct Database {
    /// The database
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, value_name = "URL")]
    database_url: Option<Secret>,
}

impl Database {
    fn url(&self) -> Result<&str, Failure> {
        let url = self.database_url.as_ref().map(|url| url.0.expose_secret()).filter(|url| !url.is_empty());
        url.ok_or(Failure::NoDatabase)
    }

    /// The database, after a look whether its schema is ours.
    async fn open(&self, clock: SharedClock) -> Result<Store, Failure> {
        let url = self.url()?;
        crate::store::reach(url).await?;
        let store = Store::open(url, 1, clock)?;
        store.check().await?;
        Ok(store)
    }
}

fn vault(master_key: &Secret) -> Result<Vault, Failure> {
    let read = master_key.0.expose_secret().parse::<MasterKeys>();
    let bad = |error| BadSetting { name: "PUBLISH_MASTER_KEY", why: format!("{error}") };
    read.map(|keys| Vault::new(&keys)).map_err(|error| Failure::Settings(vec![bad(error)]))
}

/// Prints facts: as JSON where asked for, else as text.
fn print(json: bool, facts: &Value, text: &str) {
    if json { say(facts) } else { say(text) }
}
