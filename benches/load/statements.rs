//! What the database did, statement by statement: by its own books, where it is asked to keep them.

use serde_json::{Value, json};
use sqlx::{Connection as _, Executor as _, PgConnection, Row as _};

use crate::Failed;

/// The module of the server that counts; it comes with Debian's server, elsewhere with its contrib package.
pub(crate) const MODULE: &str = "pg_stat_statements";

/// How many statements are told of, the dearest first.
const DEAREST: i64 = 25;

/// Begins to count in that database.
pub(crate) async fn begin(url: &str) -> Result<(), Failed> {
    let mut connection = PgConnection::connect(url).await?;
    connection.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements").await?;
    connection.execute("SELECT pg_stat_statements_reset()").await?;
    Ok(connection.close().await?)
}

/// The dearest statements since, each by the tables that it writes: for each of `lives`, in microseconds and bytes.
pub(crate) async fn told(url: &str, lives: f64) -> Result<Value, Failed> {
    let mut connection = PgConnection::connect(url).await?;
    let rows = sqlx::query(
        "SELECT query, calls, rows, total_exec_time * 1000, wal_bytes::float8, wal_records
        FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
        WHERE d.datname = current_database() ORDER BY total_exec_time DESC LIMIT $1",
    )
    .bind(DEAREST)
    .fetch_all(&mut connection)
    .await?;
    let mut told = serde_json::Map::new();
    for (place, row) in rows.iter().enumerate() {
        let (calls, took): (i64, f64) = (row.try_get(1)?, row.try_get(3)?);
        let figures = json!({
            "calls": calls, "rows": row.try_get::<i64, _>(2)?, "us_each": (took / lives).round(),
            "ms_a_call": took / 1e3 / f64::from(i32::try_from(calls)?),
            "wal_bytes_each": (row.try_get::<f64, _>(4)? / lives).round(), "wal_records": row.try_get::<i64, _>(5)?,
        });
        told.insert(format!("{place:>2} {}", label(row.try_get(0)?)), figures);
    }
    connection.close().await?;
    Ok(told.into())
}

/// The tables that a statement writes, or how it begins.
fn label(statement: &str) -> String {
    let words = statement.split_whitespace().collect::<Vec<_>>();
    let written = words.windows(2).filter_map(|pair| match pair {
        ["INTO" | "UPDATE", table] if table.starts_with(char::is_lowercase) => Some(*table),
        _ => None,
    });
    let mut written = written.collect::<Vec<_>>();
    written.dedup();
    if written.is_empty() {
        words.into_iter().take(14).collect::<Vec<_>>().join(" ")
    } else {
        written.join("+")
    }
}
