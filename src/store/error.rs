//! Why the database did not do what was asked, and whether the same again may succeed.

use std::sync::Arc;

use super::{DistributeError, PoolerError, RightsError};

/// Why the database did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It cannot be reached, or is too busy; the same again may succeed, and the first may have got in.
    #[error("the database cannot be reached: {}", told(.0))]
    Unavailable(#[source] sqlx::Error),
    /// Somebody else holds what it needs; the same again may succeed, smaller pieces sooner.
    #[error("the database is held up by others: {}", told(.0))]
    HeldUp(#[source] sqlx::Error),
    /// It refuses this statement or these values; the same again would end the same.
    #[error("the database refused: {}", told(.0))]
    Refused(#[source] sqlx::Error),
    /// It is named in a way that is no address of a `PostgreSQL` database; the text may hold a password.
    #[error("this is no address of a PostgreSQL database: write postgres://user:password@host:port/database")]
    Address,
    /// Its schema is not the one this program is made for.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// A role has too few rights, or too many.
    #[error(transparent)]
    Rights(#[from] RightsError),
    /// A pooler that cannot be worked through.
    #[error(transparent)]
    Pooler(#[from] PoolerError),
    /// The tables cannot be distributed.
    #[error(transparent)]
    Distribute(#[from] DistributeError),
    /// What befell a batch befell all of it.
    #[error(transparent)]
    Gathered(#[from] Arc<StoreError>),
    /// A stored secret cannot be opened.
    #[error(transparent)]
    Sealed(#[from] crate::vault::CannotOpen),
    /// Secrets were stored under a key that the vault has not.
    #[error(
        "{other} of the {all} secrets in this database are stored under another master key or damaged: set \
         PUBLISH_MASTER_KEY to the key they were stored under, or name that one second, after a comma, or restore the \
         database that belongs to this key"
    )]
    OtherKey {
        /// How many they are.
        other: i64,
        /// Of how many.
        all: i64,
    },
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        if is_held_up(&error) {
            Self::HeldUp(error)
        } else if is_passing(&error) {
            Self::Unavailable(error)
        } else {
            Self::Refused(error)
        }
    }
}

impl StoreError {
    /// Whether the same again may succeed.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Unavailable(_) | Self::HeldUp(_) => true,
            Self::Gathered(error) => error.is_passing(),
            _ => false,
        }
    }
}

/// What the database said, without the place in its own source; else what the library says.
pub(super) fn told(error: &sqlx::Error) -> String {
    error.as_database_error().map_or_else(|| error.to_string(), |database| database.message().to_owned())
}

/// Whether an error says that somebody else was in the way: lock wait, deadlock, serialisation.
pub(super) fn is_held_up(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    code.is_some_and(|code| ["55P03", "40P01", "40001"].contains(&&*code))
}

/// Whether an error says something of the moment, not of the statement (`PostgreSQL` manual, appendix A).
pub(super) fn is_passing(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed => true,
        sqlx::Error::Database(database) => {
            let code = database.code().unwrap_or_default();
            // Connection lost; not let in; no such database; out of resources; shut down, starting or cancelled;
            // system error; and a standby, as after a failover, takes no writes (`read_only_sql_transaction`).
            ["08", "28", "3D", "53", "57", "58", "25006"].iter().any(|class| code.starts_with(class))
        }
        _ => false,
    }
}

/// What is wrong with a database's schema.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// Made by a later version.
    #[error(
        "this database was made by a newer publish-ingest (schema {0}): run that version, or another database"
    )]
    Newer(i64),
    /// A migration that was applied is not the one we know.
    #[error("migration {0} of this database is not ours: it belongs to another build or another program")]
    Other(i64),
    /// Not there, or older.
    #[error(
        "this database's schema is missing or old: run `publish-ingest migrate`, or `serve --migrate`, which bring it up to \
         date"
    )]
    Missing,
    /// A migration failed.
    #[error("the schema could not be brought up to date: {0}")]
    Failed(String),
}
