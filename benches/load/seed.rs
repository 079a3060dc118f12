//! A database that has been in use: so many finished tasks, written in bulk as they would stand after their content has been
//! dropped, with all that must hold of them (`tests/database/invariants.rs`).

use serde_json::json;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use uuid::Uuid;

use crate::Failed;
use crate::report::Report;

/// How many tasks are written in one transaction.
const CHUNK: i64 = 50_000;

/// Their statements, in turn; `$1` is the tenant, `$2` and `$3` the first and the last number. An id carries a time, one
/// millisecond for each task; what is random otherwise is random here.
const STATEMENTS: [&str; 5] = [
    "INSERT INTO tasks (tenant_id, external_id, task_id, group_code, fingerprint, digests, draft, drafts, open, succeeded,
        created_at, submitted_at, finished_at)
    SELECT $1, 'done-' || lpad(n::text, 9, '0'), seed_id(n, 0), 'g' || n % $4, sha256(n::text::bytea),
        sha256(n::text::bytea) || sha256(n::text::bytea), false, 0, 0, 2, at, at, at
    FROM seed_numbers($2, $3)",
    "INSERT INTO articles (tenant_id, task_id, title, content_html, tags, metadata)
    SELECT $1, seed_id(n, 0), 'About ' || n, '<p>' || n || '</p>', '[]', '{}' FROM seed_numbers($2, $3)",
    "INSERT INTO publications (tenant_id, publication_id, task_id, platform, account_id, position, status, due_at, fence,
        marker, url, remote_id, updated_at)
    SELECT $1, seed_id(n, half + 1), seed_id(n, 0), 'sandbox', (ARRAY['a', 'b'])[half + 1] || n % $4, half + 1, 'success', at, 1,
        lpad(to_hex(2 * n + half), 16, '0'), 'https://sandbox.example/' || n, n::text, at
    FROM seed_numbers($2, $3), generate_series(0, 1) AS half",
    "INSERT INTO transitions (tenant_id, task_id, publication_id, at, from_status, to_status, round, fence, reason)
    SELECT $1, seed_id(n, 0), seed_id(n, half + 1), at, 'running', 'success', 1, 1, 'published'
    FROM seed_numbers($2, $3), generate_series(0, 1) AS half",
    "INSERT INTO events (tenant_id, position, event_id, task_id, publication_id, round, status, body, created_at)
    SELECT $1, position, event_id, task_id, seed_id(n, half + 1), 1, 'success', convert_to(json_build_object(
            'type', 'publication.success', 'event_id', event_id, 'sequence', position, 'task_id', task_id, 'status', 'success',
            'round', 1, 'task_status', (ARRAY['running', 'success'])[half + 1])::text, 'UTF8'), at
    FROM seed_numbers($2, $3), generate_series(0, 1) AS half,
        LATERAL (SELECT 2 * n + half - 1 AS position, seed_id(n, 0) AS task_id, seed_id(n, half + 3) AS event_id) AS ids",
];

/// The tables that hold what was done since, and the ids by which that is told from what was seeded, which is years old.
const LATER: [(&str, &str); 7] = [
    ("articles", "task_id"),
    ("transitions", "task_id"),
    ("attempts", "publication_id"),
    ("publications", "publication_id"),
    ("tasks", "task_id"),
    ("callback_tries", "event_id"),
    ("callbacks", "event_id"),
];

/// The tables of which nothing is seeded.
const EMPTIED: [&str; 5] =
    ["receivers", "sandbox_requests", "sandbox_articles", "sandbox_marks", "sandbox_accounts"];

/// Of the benchmark alone, and gone afterwards.
const FUNCTIONS: [&str; 2] = [
    "CREATE FUNCTION pg_temp.seed_id(n bigint, what int) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
        SELECT (lpad(to_hex(1700000000000 + n), 12, '0') || '70008' || what || '00' || lpad(to_hex(n), 12, '0'))::uuid $$",
    "CREATE FUNCTION pg_temp.seed_numbers(first bigint, last bigint) RETURNS TABLE (n bigint, at timestamptz)
        LANGUAGE sql IMMUTABLE AS $$
        SELECT n, to_timestamp(1700000000 + n / 1000.0) FROM generate_series(first, last) AS n $$",
];

/// Has the database hold `finished` tasks of that tenant (0: as many as are there), over `groups` groups, and nothing else: what an earlier run has
/// seeded stays, what was done since then goes, and what is missing is added. Each transaction leaves a database in which all
/// holds, so that whoever was interrupted goes on.
pub(crate) async fn seed(
    report: &mut Report,
    url: &str,
    tenant: &str,
    groups: u64,
    finished: i64,
) -> Result<(), Failed> {
    let mut connection = PgConnection::connect(url).await?;
    // What has ended did not begin so, as a trigger has it; and functions of the session are found first.
    for set in [
        "SET session_replication_role = replica",
        "SET synchronous_commit = off",
        "SET maintenance_work_mem = '512MB'",
    ] {
        connection.execute(set).await?;
    }
    for function in FUNCTIONS {
        connection.execute(function).await?;
    }
    let tenant_id: Uuid = sqlx::query_scalar("SELECT tenant_id FROM tenants WHERE name = $1")
        .bind(tenant)
        .fetch_one(&mut connection)
        .await?;
    let there = seeded(&mut connection, tenant_id).await?;
    let finished = if finished == 0 { there } else { finished };
    if there > finished {
        let wrong = format!(
            "{there} finished tasks are there, not {finished}: ask for as many, or remove the folder"
        );
        return Err(wrong.into());
    }
    let mut touched = clear(&mut connection, tenant_id, there).await?;
    let fillfactors = fillfactors(&mut connection).await?;
    let mut first = there + 1;
    while first <= finished {
        let last = finished.min(first + CHUNK - 1);
        let mut transaction = connection.begin().await?;
        for (table, _) in &fillfactors {
            fill(&mut transaction, table, "100").await?;
        }
        write(&mut transaction, tenant_id, groups, first, last).await?;
        for (table, fillfactor) in &fillfactors {
            fill(&mut transaction, table, fillfactor).await?;
        }
        transaction.commit().await?;
        touched += 1;
        first = last + 1;
        if (first - 1) % 1_000_000 == 0 {
            println!("{} finished tasks are written", first - 1);
        }
    }
    if touched > 0 {
        connection.execute("VACUUM (ANALYZE)").await?;
        connection.execute("CHECKPOINT").await?;
    }
    let bytes: i64 =
        sqlx::query_scalar("SELECT pg_database_size(current_database())").fetch_one(&mut connection).await?;
    connection.close().await?;
    report.fact("the database that was in use", json!({"finished_tasks": finished, "mib": bytes >> 20}));
    Ok(())
}

/// How many are there already.
async fn seeded(connection: &mut PgConnection, tenant_id: Uuid) -> Result<i64, Failed> {
    let highest = sqlx::query_scalar(
        "SELECT substring(external_id FROM 6)::bigint FROM tasks
        WHERE tenant_id = $1 AND external_id >= 'done-0' AND external_id < 'done-:'
        ORDER BY tenant_id DESC, external_id DESC LIMIT 1",
    );
    let highest: Option<i64> = highest.bind(tenant_id).fetch_optional(connection).await?;
    Ok(highest.unwrap_or_default())
}

/// Takes back what was done since; returns how many rows that were.
async fn clear(connection: &mut PgConnection, tenant_id: Uuid, there: i64) -> Result<u64, Failed> {
    let mut rows = 0;
    let mut transaction = connection.begin().await?;
    let id: Uuid = sqlx::query_scalar("SELECT pg_temp.seed_id($1, 0)")
        .bind(there + 1)
        .fetch_one(&mut *transaction)
        .await?;
    for (table, key) in LATER {
        let delete = format!("DELETE FROM {table} WHERE tenant_id = $1 AND {key} >= $2");
        let delete = sqlx::query(AssertSqlSafe(delete)).bind(tenant_id).bind(id);
        rows += delete.execute(&mut *transaction).await?.rows_affected();
    }
    for table in EMPTIED {
        let delete = format!("DELETE FROM {table} WHERE tenant_id = $1");
        let delete = sqlx::query(AssertSqlSafe(delete)).bind(tenant_id);
        rows += delete.execute(&mut *transaction).await?.rows_affected();
    }
    let delete = sqlx::query("DELETE FROM events WHERE tenant_id = $1 AND position > $2");
    rows += delete.bind(tenant_id).bind(2 * there).execute(&mut *transaction).await?.rows_affected();
    let free = sqlx::query(
        "UPDATE lanes SET in_flight = 0, free_at = now(), parked_until = NULL, day = NULL, day_count = 0
        WHERE tenant_id = $1 AND (in_flight > 0 OR day IS NOT NULL)",
    );
    rows += free.bind(tenant_id).execute(&mut *transaction).await?.rows_affected();
    position(&mut transaction, tenant_id, 2 * there).await?;
    transaction.commit().await?;
    Ok(rows)
}

/// The tables whose pages are left with room to grow, with how full they are filled. What has ended has grown into that room:
/// seeded with it, each old page would take one new row, since those are shorter, and be written whole for it.
async fn fillfactors(connection: &mut PgConnection) -> Result<Vec<(String, String)>, Failed> {
    let set = sqlx::query_as(
        "SELECT relname::text, option_value FROM pg_class CROSS JOIN pg_options_to_table(reloptions)
        WHERE relname IN ('tasks', 'publications') AND option_name = 'fillfactor'",
    );
    Ok(set.fetch_all(connection).await?)
}

async fn fill(connection: &mut PgConnection, table: &str, fillfactor: &str) -> Result<(), Failed> {
    let set = format!("ALTER TABLE {table} SET (fillfactor = {fillfactor})");
    connection.execute(AssertSqlSafe(set)).await?;
    Ok(())
}

/// Writes the tasks of those numbers.
async fn write(
    connection: &mut PgConnection,
    tenant_id: Uuid,
    groups: u64,
    first: i64,
    last: i64,
) -> Result<(), Failed> {
    for statement in STATEMENTS {
        let statement = statement.replace("seed_", "pg_temp.seed_");
        let insert = sqlx::query(AssertSqlSafe(statement)).bind(tenant_id).bind(first).bind(last);
        insert.bind(i64::try_from(groups)?).execute(&mut *connection).await?;
    }
    position(connection, tenant_id, 2 * last).await
}

/// Puts the position of the newest event; a tenant without events has none.
async fn position(connection: &mut PgConnection, tenant_id: Uuid, position: i64) -> Result<(), Failed> {
    let put = if position == 0 {
        "DELETE FROM feeds WHERE tenant_id = $1 AND $2 = 0"
    } else {
        "INSERT INTO feeds (tenant_id, position) VALUES ($1, $2)
        ON CONFLICT (tenant_id) DO UPDATE SET position = $2"
    };
    sqlx::query(put).bind(tenant_id).bind(position).execute(connection).await?;
    Ok(())
}
