//! A pooler (`PgBouncer`, say) between this program and the database: what has to hold for it to be one.
//!
//! In transaction mode each transaction gets any of the pooler's connections. So what the program sets for its connections has
//! to be set for its role, since a pooler drops it; a prepared statement has to be there on every connection, which `PgBouncer`
//! sees to from 1.21 on; and what is kept in a connection from one transaction to the next is lost. Of that the program keeps
//! nothing, but `migrate` holds a lock. A pooler that does not know of prepared statements is refused, not put up with: two
//! processes give their statements the same names, so one could run the other's.

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, Connection as _, Row as _};

use super::{SETTINGS, StoreError};

/// How often two connections are compared: in transaction mode they meet at the first time, unless others are very busy.
const COMPARISONS: usize = 16;

/// Why a pooler is not worked through.
#[derive(Debug, thiserror::Error)]
pub enum PoolerError {
    /// The schema is changed.
    #[error(
        "this needs a connection to PostgreSQL itself, and this one goes through a pooler: name the database's own address \
         in DATABASE_URL, for this command alone"
    )]
    Migration,
    /// The role lacks settings.
    #[error(
        "this connection goes through a pooler, which drops the settings that it should have, so give them to the role, and \
         have the pooler connect anew (RECONNECT on its console): {0}"
    )]
    Settings(String),
    /// Prepared statements are not known to it.
    #[error(
        "this pooler does not see to it that a prepared statement is there on each of its connections, so statements would \
         be taken for others: use PgBouncer 1.21 or later with max_prepared_statements = 200, or pool_mode = session, or \
         name PostgreSQL itself in DATABASE_URL"
    )]
    Statements,
}

/// Whether what was set for this connection at its start has reached the database.
pub(super) async fn is_direct(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    // In one message: nothing is prepared.
    let source = sqlx::raw_sql("SELECT source FROM pg_settings WHERE name = 'lock_timeout'");
    Ok(source.fetch_one(connection).await?.try_get::<String, _>(0)? == "client")
}

/// Whether the program can work through what is at this address.
pub(super) async fn check(
    connection: &mut PgConnection,
    options: &PgConnectOptions,
) -> Result<(), StoreError> {
    if is_direct(connection).await? {
        return Ok(());
    }
    let settings = SETTINGS.map(|(name, value)| format!("('{name}', '{value}')")).join(", ");
    let missing = format!(
        "SELECT coalesce(string_agg(format('ALTER ROLE %I SET %s = %L;', current_user, name, value), ' ' ORDER BY name), '')
        FROM (VALUES {settings}) AS s(name, value) WHERE current_setting(name) <> value"
    );
    let missing =
        sqlx::raw_sql(AssertSqlSafe(missing)).fetch_one(&mut *connection).await?.try_get::<String, _>(0)?;
    if !missing.is_empty() {
        return Err(PoolerError::Settings(missing).into());
    }
    if !renames(connection).await? && shares(connection, options).await? {
        return Err(PoolerError::Statements.into());
    }
    Ok(())
}

/// Whether the pooler gives prepared statements names of its own, by which it finds them on each of its connections.
async fn renames(connection: &mut PgConnection) -> Result<bool, StoreError> {
    let own = "SELECT count(*) = 0 FROM pg_prepared_statements WHERE starts_with(name, $1)";
    match sqlx::query_scalar::<_, bool>(own).bind("sqlx").fetch_one(connection).await {
        Ok(renamed) => Ok(renamed),
        // It exists, or does not, or has other parameters: somebody else's.
        Err(sqlx::Error::Database(error))
            if ["42P05", "26000", "08P01"].contains(&&*error.code().unwrap_or_default()) =>
        {
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}

/// Whether two connections that are open are one at the database.
async fn shares(connection: &mut PgConnection, options: &PgConnectOptions) -> Result<bool, StoreError> {
    let mut other = PgConnection::connect_with(options).await?;
    let mut shares = false;
    for _ in 0..COMPARISONS {
        shares = shares || backend(connection).await? == backend(&mut other).await?;
    }
    other.close().await?;
    Ok(shares)
}

async fn backend(connection: &mut PgConnection) -> Result<String, sqlx::Error> {
    sqlx::raw_sql("SELECT pg_backend_pid()::text").fetch_one(connection).await?.try_get(0)
}
