//! The database: a private server with full durability, and what it says of itself.

use std::path::{Path, PathBuf};

use publish_ingest::local_postgres::{Cluster, Durability, OnExit, Options, Programs};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection, Row as _};

use crate::{Failed, statements};

/// What an operator would set on a machine with some memory: the journal is not folded into the tables every few seconds, of
/// which one round would see more than another.
const SETTINGS: [(&str, &str); 5] = [
    ("max_connections", "200"),
    ("shared_buffers", "512MB"),
    ("max_wal_size", "8GB"),
    ("min_wal_size", "2GB"),
    ("checkpoint_timeout", "15min"),
];

/// The server of a run.
pub(crate) struct Server {
    cluster: Cluster,
}

/// What a database has written: positions and counts to be held against later ones.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Written {
    /// Bytes of the journal, of the whole server.
    pub(crate) wal_bytes: i64,
    /// Rows that were inserted, updated or deleted, of the tables of one database.
    pub(crate) rows: i64,
    /// Transactions that wrote, of the whole server.
    pub(crate) writers: i64,
    /// Transactions of one database, also of those that only read.
    pub(crate) transactions: i64,
}

impl Server {
    /// One that counts its statements, where that is asked for; on data that is there, or on new data.
    pub(crate) async fn start(folder: &Path, on_exit: OnExit, counts: bool) -> Result<Self, Failed> {
        let chosen = std::env::var_os("PUBLISH_POSTGRES_BIN").map(PathBuf::from);
        let programs = Programs::find(std::env::var_os("PATH").as_deref(), chosen.as_deref())?;
        let counting = counts.then_some(("shared_preload_libraries", statements::MODULE));
        let settings = SETTINGS.into_iter().chain(counting);
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let options = Options { durability: Durability::Full, on_exit, settings, ..Options::new(folder) };
        let cluster = tokio::task::spawn_blocking(move || Cluster::start(&programs, options)).await??;
        Ok(Self { cluster })
    }

    /// Makes an empty database, in the place of one that an earlier run has left; returns its URL.
    pub(crate) async fn create(&self, name: &str) -> Result<String, Failed> {
        let mut admin = PgConnection::connect(&self.cluster.url("postgres")).await?;
        admin.execute(AssertSqlSafe(format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"))).await?;
        admin.execute(AssertSqlSafe(format!("CREATE DATABASE {name}"))).await?;
        admin.close().await?;
        Ok(self.url(name))
    }

    /// The URL of a database.
    pub(crate) fn url(&self, name: &str) -> String {
        self.cluster.url(name)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.cluster.pid()
    }

    pub(crate) async fn stop(self) -> Result<(), Failed> {
        Ok(tokio::task::spawn_blocking(move || self.cluster.stop()).await??)
    }
}

/// What that database has written until now. Each backend tells its counts at the end of a transaction, at most once a
/// second: ask when it has been quiet.
pub(crate) async fn written(url: &str) -> Result<Written, Failed> {
    let mut connection = PgConnection::connect(url).await?;
    let row = connection
        .fetch_one(
            "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint,
                (SELECT coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::bigint FROM pg_stat_user_tables),
                pg_snapshot_xmax(pg_current_snapshot())::text::bigint,
                (SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database())",
        )
        .await?;
    let written = Written {
        wal_bytes: row.try_get(0)?,
        rows: row.try_get(1)?,
        writers: row.try_get(2)?,
        transactions: row.try_get(3)?,
    };
    connection.close().await?;
    Ok(written)
}

/// Counts the tables anew, as the server does by itself within a minute of what empty ones have become: a plan that was made
/// for an empty table reads all of it.
pub(crate) async fn analyze(url: &str) -> Result<(), Failed> {
    let mut connection = PgConnection::connect(url).await?;
    connection.execute("ANALYZE").await?;
    Ok(connection.close().await?)
}

/// A number that a statement answers.
pub(crate) async fn number(url: &str, statement: &'static str) -> Result<i64, Failed> {
    let mut connection = PgConnection::connect(url).await?;
    let number = sqlx::query_scalar(statement).fetch_one(&mut connection).await?;
    connection.close().await?;
    Ok(number)
}
