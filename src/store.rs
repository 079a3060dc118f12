//! All SQL: one file per aggregate. Nothing above this room names `sqlx`.
//!
//! Every statement on an article's path names the tenant. Due times, leases and pacing run on the database's clock, `now()`, to which each
//! statement adds the clock's skew (zero outside tests). Locks are taken in one order everywhere: tenant, quota, its shares, accounts,
//! groups, publications, tasks, lanes, feed, each sorted by key; replays, callbacks, then receivers.

use std::str::FromStr;
use std::time::Duration;

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPoolOptions};
use sqlx::types::Json;
use sqlx::{Connection, PgPool};
use uuid::Uuid;

use crate::account::AccountKey;
use crate::clock::SharedClock;
use crate::lines::Lines;
use crate::telemetry::metrics::PoolReading;

mod accept;
mod accounts;
mod actions;
mod audit;
mod bridge;
mod callback_list;
mod callbacks;
mod check;
mod codec;
mod distribute;
mod drafts;
mod due;
mod error;
mod events;
mod feed;
mod groups;
mod history;
mod hold;
mod journal;
mod locks;
mod login_checks;
mod logins;
mod moves;
mod pooler;
mod publications;
mod pull;
mod quotas;
mod receivers;
mod replays;
mod retention;
mod rights;
mod sandbox;
mod sealed;
mod signing;
mod sweeps;
mod task_list;
mod tasks;
mod tenants;

pub use accept::{Admitted, NewTask};
pub use accounts::{AccountDeleted, AccountPut, AccountRow, RESUME_WITHIN, Renewal, Terms};
pub use actions::{Acted, ActedOr, Cancellation, Retry};
pub use audit::Recorded;
pub use bridge::{ReportDoes, ReportTaken, Standing};
pub use callback_list::{CallbackFilters, CallbackItem, CallbackPage};
pub use callbacks::{BreakersMoved, CallbackRow, ClaimedCallback, RecordedTry, Then, TryRow};
pub use check::AccountStanding;
pub use distribute::{DISTRIBUTED, DistributeError, LOCAL, REFERENCE};
pub use due::{Due, Queue};
pub use error::{SchemaError, StoreError};
pub use feed::{FeedPlace, FeedRead};
pub use groups::{GroupPut, GroupRow};
pub use history::{HistoryRow, HistorySource};
pub use journal::{
    ANSWER_LOST, Came, Evidence, Intent, Journal, JournalEntry, NOT_PUBLISHED, OpenTries, Probe, Warning,
};
pub use locks::Unfinished;
pub use login_checks::AskedAccount;
pub use logins::LOGIN_EXPIRED;
pub use moves::{Composed, Move, Moved, Published, SWEEP_AFTER, Telling};
pub use pooler::PoolerError;
pub use publications::{CLAIM_DUE, CLAIM_LEFT, CLAIM_MOST, ClaimLimits, Claimed};
pub use pull::{Beat, HandOut, HandedOut, Handing};
pub use quotas::{Grant, LimitsSet, QuotaStanding};
pub use receivers::Receivers;
pub use replays::{
    REPLAY_BATCH, REPLAY_MOST, REPLAY_PAUSE, REPLAYS_UNFINISHED_MAX, ReplayAsked, ReplayRange, ReplayRow,
};
pub use retention::{COUNTED_MOST, EventsRemoved, REMOVE_MOST, Removable, RemovalRow, Step};
pub use rights::{RightsError, WorksAs};
pub use sandbox::{
    SANDBOX_ARTICLES_MAX, SANDBOX_REQUESTS_MAX, SandboxAbout, SandboxArticle, SandboxAsk, SandboxAsks,
    SandboxDone, SandboxEmptied, SandboxNote, SandboxPage, SandboxPlace, SandboxRequest, SandboxServed,
    SandboxStanding,
};
pub use sealed::{NotOpened, Resealed, Sealed, SealedCount};
pub use signing::{LiveKey, Rotation, SIGNING_KEYS_MAX};
pub use sweeps::Sweep;
pub use task_list::{TaskFilters, TaskPage};
pub use tasks::{ExistingTask, PublicationRow, TaskRow};
pub use tenants::{AuthenticatedKey, DefaultsChange, KeyRow, Tenant};

/// The two names of accounts, each as a column for `unnest`.
fn columns<'a>(keys: impl IntoIterator<Item = &'a AccountKey>) -> (Vec<String>, Vec<String>) {
    keys.into_iter().map(|key| (key.platform().to_owned(), key.account_id().to_owned())).unzip()
}

/// How many rows a batch has, as a limit.
fn rows<T>(batch: &[T]) -> i64 {
    i64::try_from(batch.len()).unwrap_or(i64::MAX)
}

/// Accounts that a statement has gathered into a list of pairs.
fn stored_keys(Json(pairs): Json<Vec<(String, String)>>) -> Vec<AccountKey> {
    pairs.into_iter().map(|(platform, account_id)| AccountKey::stored(platform, account_id)).collect()
}

/// What holds for each connection; behind a pooler, the role has them ([`pooler`]).
const SETTINGS: [(&str, &str); 7] = [
    // No statement waits long for a lock, and none runs without end.
    ("lock_timeout", "2s"),
    ("statement_timeout", "30s"),
    // A transaction left open holds back vacuum for every table.
    ("idle_in_transaction_session_timeout", "10s"),
    // Compiling costs more than any of our statements takes.
    ("jit", "off"),
    // To plan our statements takes longer than to run them, so each is planned once for all values.
    ("plan_cache_mode", "force_generic_plan"),
    // A plan is kept while its tables grow: what looks good on a small one must be good on a large one.
    ("enable_seqscan", "off"),
    // Few rows are asked for by any key: to gather their places first costs more than it saves.
    ("enable_bitmapscan", "off"),
];

static MIGRATIONS: Migrator = sqlx::migrate!();

/// The advisory lock of whoever changes the schema of a database: "publish" in ASCII.
const MIGRATING: i64 = 0x0070_7562_6c69_7368;

/// How long a first connection may take, where somebody waits for its outcome at a terminal.
const REACH_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a new connection or a free one is waited for: with it, an answer "unavailable" comes within 2 s.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(1);

/// How long the patient wait for one: below half of the usual lease, within which a call ends anyway.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection that lay idle for longer is asked whether it still lives before it is used.
const TRUSTED_IDLE: Duration = Duration::from_millis(500);

/// The database.
#[derive(Clone)]
pub struct Store {
    pool: PgPool,
    clock: SharedClock,
    /// Robots that fetch, by tenant.
    fetching: Lines<Uuid>,
}

impl Store {
    /// A pool of at most `connections`, opened when needed: the database need not be there yet.
    pub fn open(url: &str, connections: u32, clock: SharedClock) -> Result<Self, StoreError> {
        let pool = asking(pool_options(connections)).connect_lazy_with(connect_options(url)?);
        Ok(Self { pool, clock, fetching: Lines::default() })
    }

    /// As [`Self::open`], for what is asked of few connections by many at once: nobody is turned away for that.
    pub fn open_patient(url: &str, connections: u32, clock: SharedClock) -> Result<Self, StoreError> {
        let pool = asking(pool_options(connections)).acquire_timeout(PATIENCE);
        let pool = pool.connect_lazy_with(connect_options(url)?);
        Ok(Self { pool, clock, fetching: Lines::default() })
    }

    /// As [`Self::open`], for questions that are asked again and again: no connection is asked whether it still lives before
    /// it is used, which would be as many statements once more. One that does not fails the question.
    pub fn open_for_looks(url: &str, connections: u32, clock: SharedClock) -> Result<Self, StoreError> {
        let pool = pool_options(connections).connect_lazy_with(connect_options(url)?);
        Ok(Self { pool, clock, fetching: Lines::default() })
    }

    /// The version of the schema that this program is made for.
    #[must_use]
    pub fn schema_version() -> i64 {
        MIGRATIONS.iter().map(|migration| migration.version).max().unwrap_or_default()
    }

    /// Brings the schema up to date. Of several who do so at once, one does it.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        let mut connection = self.for_migrations().await?;
        let migrated = MIGRATIONS.run(&mut connection).await;
        // Whatever it says, what was done is done.
        let _ = connection.close().await;
        migrated.map_err(|error| match error {
            MigrateError::VersionMissing(version) => SchemaError::Newer(version).into(),
            MigrateError::VersionMismatch(version) => SchemaError::Other(version).into(),
            MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _)
                if error::is_passing(&error) || error::is_held_up(&error) =>
            {
                StoreError::from(error)
            }
            other => StoreError::from(SchemaError::Failed(other.to_string())),
        })
    }

    /// A connection for what changes the schema.
    async fn for_migrations(&self) -> Result<PgConnection, StoreError> {
        let options = self.pool.connect_options().as_ref().clone().options([
            // A migration of a large table takes its time, unlike what the service itself asks.
            ("statement_timeout", "0"),
            // Where the tables are distributed, it has triggers on them, and changes their parts one by one, so that one
            // transaction can do several things to a table. Without Citus, these are names that mean nothing.
            ("citus.enable_unsafe_triggers", "on"),
            ("citus.multi_shard_modify_mode", "sequential"),
        ]);
        let mut connection = within(PgConnection::connect_with(&options)).await??;
        // One run at a time is seen to by a lock that the connection holds.
        if !pooler::is_direct(&mut connection).await? {
            return Err(PoolerError::Migration.into());
        }
        let free = sqlx::query_scalar::<_, bool>("SELECT pg_try_advisory_lock($1)").bind(MIGRATING);
        if !free.fetch_one(&mut connection).await? {
            tracing::info!(
                "another process is changing the schema of this database: waiting until it is done"
            );
            // As long as it takes; the library's own lock, which is free then, and those of tables are waited for shortly.
            sqlx::raw_sql("SET lock_timeout = 0").execute(&mut connection).await?;
            sqlx::query("SELECT pg_advisory_lock($1)").bind(MIGRATING).execute(&mut connection).await?;
            sqlx::raw_sql("RESET lock_timeout").execute(&mut connection).await?;
        }
        Ok(connection)
    }

    /// Checks that the database answers, that its schema is the one this program is made for, and that it takes writes.
    pub async fn check(&self) -> Result<(), StoreError> {
        let applied = sqlx::query_as::<_, (i64, Vec<u8>)>(
            "SELECT version, checksum FROM _sqlx_migrations WHERE success ORDER BY version",
        )
        .fetch_all(&self.pool)
        .await;
        let applied = match applied {
            Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("42P01") => Vec::new(),
            // Nothing was granted to this role.
            Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("42501") => {
                let role = self.pool.connect_options().get_username().to_owned();
                let missing = "SELECT on _sqlx_migrations".to_owned();
                return Err(RightsError::Missing { role, missing }.into());
            }
            other => other?,
        };
        for (version, checksum) in &applied {
            match MIGRATIONS.iter().find(|migration| migration.version == *version) {
                None => return Err(SchemaError::Newer(*version).into()),
                Some(known) if *known.checksum != **checksum => {
                    return Err(SchemaError::Other(*version).into());
                }
                Some(_) => {}
            }
        }
        if applied.len() < MIGRATIONS.iter().count() {
            return Err(SchemaError::Missing.into());
        }
        // Changes nothing, and is refused where nothing can be changed.
        sqlx::query("UPDATE feeds SET position = position WHERE false").execute(&self.pool).await?;
        Ok(())
    }

    /// How the pool stands, from memory.
    #[must_use]
    pub fn connections(&self) -> PoolReading {
        // Read one after the other while others take and give back, so they may not fit each other for a moment.
        let idle = u32::try_from(self.pool.num_idle()).unwrap_or(u32::MAX);
        let used = self.pool.size().saturating_sub(idle);
        PoolReading { idle, used, max: self.pool.options().get_max_connections() }
    }

    /// Closes all connections.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}

/// Whether `url` is the address of a database; nothing is asked.
pub fn check_address(url: &str) -> Result<(), StoreError> {
    connect_options(url).map(|_| ())
}

/// Tries one connection: unlike a pool, which only says that none was had in time, it says why. Says, too, what keeps the
/// program from working through a pooler.
pub async fn reach(url: &str) -> Result<(), StoreError> {
    let options = connect_options(url)?;
    let reaching = async {
        let mut connection = PgConnection::connect_with(&options).await?;
        pooler::check(&mut connection, &options).await?;
        Ok(connection.close().await?)
    };
    within(reaching).await?
}

async fn within<T>(reaching: impl Future<Output = T>) -> Result<T, StoreError> {
    let reached = tokio::time::timeout(REACH_TIMEOUT, reaching).await;
    reached.map_err(|_| StoreError::Unavailable(sqlx::Error::PoolTimedOut))
}

/// Creates a database on the server of `url` if it is not there. `name` is ours, never a caller's.
pub async fn create_database(url: &str, name: &str) -> Result<(), StoreError> {
    // 42P04: it exists.
    create(url, format!("CREATE DATABASE \"{name}\""), "42P04").await
}

/// Creates a role on the server of `url` if it is not there, which is let in without a password where the server asks
/// for none. `name` is ours, never a caller's.
pub async fn create_role(url: &str, name: &str) -> Result<(), StoreError> {
    // 42710: it exists.
    create(url, format!("CREATE ROLE \"{name}\" LOGIN"), "42710").await
}

/// Creates something, unless the database says by that code that it exists.
async fn create(url: &str, statement: String, exists: &str) -> Result<(), StoreError> {
    let mut connection = PgConnection::connect_with(&connect_options(url)?).await?;
    match sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&mut connection).await {
        Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some(exists) => Ok(()),
        other => other.map(|_| ()).map_err(Into::into),
    }
}

fn pool_options(connections: u32) -> PgPoolOptions {
    PgPoolOptions::new()
        .max_connections(connections)
        .min_connections(0)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .test_before_acquire(false)
}

/// Has a connection that lay idle asked whether it still lives before it is used.
fn asking(options: PgPoolOptions) -> PgPoolOptions {
    options.before_acquire(|connection, meta| {
        Box::pin(async move { Ok(meta.idle_for < TRUSTED_IDLE || connection.ping().await.is_ok()) })
    })
}

fn connect_options(url: &str) -> Result<PgConnectOptions, StoreError> {
    // The library does not look at the scheme.
    if !["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme)) {
        return Err(StoreError::Address);
    }
    let options = PgConnectOptions::from_str(url).map_err(|_| StoreError::Address)?;
    Ok(options.application_name("publish-ingest").options(SETTINGS))
}
