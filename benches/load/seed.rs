//! A database that has been in use: so many finished tasks, written in bulk as they would stand after their content has been
//! dropped, with all that must hold of them (`tests/database/invariants.rs`).

use serde_json::json;
use sqlx::{Connection as _, Executor as _, PgConnection};

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

/// Of the benchmark alone, and gone afterwards.
const FUNCTIONS: [&str; 2] = [
    "CREATE FUNCTION pg_temp.seed_id(n bigint, what int) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
        SELECT (lpad(to_hex(1700000000000 + n), 12, '0') || '70008' || what || '00' || lpad(to_hex(n), 12, '0'))::uuid $$",
    "CREATE FUNCTION pg_temp.seed_numbers(first bigint, last bigint) RETURNS TABLE (n bigint, at timestamptz)
        LANGUAGE sql IMMUTABLE AS $$
        SELECT n, to_timestamp(1700000000 + n / 1000.0) FROM generate_series(first, last) AS n $$",
];

/// Writes `finished` tasks of that tenant, over `groups` groups.
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
    let tenant_id: uuid::Uuid = sqlx::query_scalar("SELECT tenant_id FROM tenants WHERE name = $1")
        .bind(tenant)
        .fetch_one(&mut connection)
        .await?;
    let mut first = 1;
    while first <= finished {
        let last = finished.min(first + CHUNK - 1);
        let mut transaction = connection.begin().await?;
        for statement in STATEMENTS {
            let statement = statement.replace("seed_", "pg_temp.seed_");
            let mut insert =
                sqlx::query(sqlx::AssertSqlSafe(statement)).bind(tenant_id).bind(first).bind(last);
            insert = insert.bind(i64::try_from(groups)?);
            insert.execute(&mut *transaction).await?;
        }
        transaction.commit().await?;
        first = last + 1;
        if (first - 1) % 1_000_000 == 0 {
            println!("{} finished tasks are written", first - 1);
        }
    }
    sqlx::query("INSERT INTO feeds (tenant_id, position) VALUES ($1, $2) ON CONFLICT (tenant_id) DO UPDATE SET position = $2")
        .bind(tenant_id)
        .bind(2 * finished)
        .execute(&mut connection)
        .await?;
    connection.execute("VACUUM (ANALYZE)").await?;
    connection.execute("CHECKPOINT").await?;
    let bytes: i64 =
        sqlx::query_scalar("SELECT pg_database_size(current_database())").fetch_one(&mut connection).await?;
    connection.close().await?;
    report.fact("the database that was in use", json!({"finished_tasks": finished, "mib": bytes >> 20}));
    Ok(())
}
