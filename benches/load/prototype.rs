//! The measure: what accepting costs when nothing is checked. axum and sqlx, an article with its task and two publications
//! in tables of its own; no key, no rules, no fingerprint, no callback, no log. Runs as a process of its own, as the service does.

use std::io::Write as _;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use chrono::{DateTime, Utc};
use publish_ingest::clock::{Clock as _, SystemClock};
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgPoolOptions;
use sqlx::{PgPool, Row as _};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, mpsc, oneshot};
use uuid::Uuid;

use crate::Failed;

/// The tables, as bare as they can be and still hold what has to be published.
const TABLES: [&str; 4] = [
    "CREATE TABLE IF NOT EXISTS bare_tasks (
        tenant_id uuid NOT NULL, external_id text NOT NULL COLLATE \"C\", task_id uuid NOT NULL, group_code text NOT NULL,
        created_at timestamptz NOT NULL, PRIMARY KEY (tenant_id, external_id))",
    "CREATE TABLE IF NOT EXISTS bare_articles (
        tenant_id uuid NOT NULL, task_id uuid NOT NULL, title text NOT NULL, content_html text COMPRESSION lz4 NOT NULL,
        PRIMARY KEY (tenant_id, task_id))",
    "CREATE TABLE IF NOT EXISTS bare_publications (
        tenant_id uuid NOT NULL, task_id uuid NOT NULL, account text NOT NULL, status text NOT NULL,
        due_at timestamptz NOT NULL, PRIMARY KEY (tenant_id, task_id, account))",
    "CREATE INDEX IF NOT EXISTS bare_due ON bare_publications (tenant_id, due_at) WHERE status = 'submitted'",
];

const INSERT: &str = "WITH sent AS (
        SELECT * FROM unnest($2::text[], $3::uuid[], $4::text[], $5::text[], $6::text[])
            AS sent (external_id, task_id, group_code, title, content_html)),
    new AS (
        INSERT INTO bare_tasks SELECT $1, external_id, task_id, group_code, $7 FROM sent ON CONFLICT DO NOTHING
        RETURNING task_id),
    articles AS (
        INSERT INTO bare_articles SELECT $1, task_id, title, content_html FROM sent JOIN new USING (task_id)),
    publications AS (
        INSERT INTO bare_publications SELECT $1, task_id, account, 'submitted', $7
        FROM new CROSS JOIN (VALUES ('sandbox/a'), ('sandbox/b')) AS accounts (account))
    SELECT task_id FROM new";

const SELECT: &str =
    "SELECT external_id, task_id FROM bare_tasks WHERE tenant_id = $1 AND external_id = ANY($2::text[])";

/// All belongs to one tenant.
const TENANT: Uuid = Uuid::from_u128(1);

/// How many may wait to be written.
const QUEUE: usize = 4_096;

#[derive(Deserialize)]
struct Article {
    external_id: String,
    group_code: String,
    title: String,
    content_html: String,
}

#[derive(Debug, Clone, Serialize)]
struct Answer {
    task_id: Uuid,
    external_id: String,
    created: bool,
}

type Waiting = (Article, oneshot::Sender<Answer>);

/// How it writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Manner {
    /// Four writers, each of what waits, up to 128.
    Gathered,
    /// A transaction for each request, on 16 connections.
    Naive,
}

impl Manner {
    fn writers_and_rows(self) -> (u32, usize) {
        match self {
            Self::Gathered => (4, 128),
            Self::Naive => (16, 1),
        }
    }
}

/// Serves until it is killed; says where.
pub(crate) async fn serve(database_url: &str, manner: Manner) -> Result<(), Failed> {
    let (writers, rows) = manner.writers_and_rows();
    let options = [("plan_cache_mode", "force_generic_plan"), ("enable_seqscan", "off"), ("jit", "off")];
    let options = database_url.parse::<sqlx::postgres::PgConnectOptions>()?.options(options);
    let pool = PgPoolOptions::new()
        .max_connections(writers)
        .test_before_acquire(false)
        .connect_with(options)
        .await?;
    for table in TABLES {
        sqlx::query(table).execute(&pool).await?;
    }
    let (queue, waiting) = mpsc::channel::<Waiting>(QUEUE);
    let waiting = Arc::new(Mutex::new(waiting));
    for _ in 0..writers {
        tokio::spawn(write_batches(pool.clone(), waiting.clone(), rows));
    }
    let routes = Router::new().route("/publish", post(publish)).with_state(queue);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    writeln!(std::io::stdout(), "ready on http://{}", listener.local_addr()?)?;
    Ok(axum::serve(listener, routes).await?)
}

async fn publish(
    State(queue): State<mpsc::Sender<Waiting>>,
    body: Bytes,
) -> Result<Json<Answer>, StatusCode> {
    let article = serde_json::from_slice(&body).map_err(|_| StatusCode::BAD_REQUEST)?;
    let (answer, answered) = oneshot::channel();
    queue.try_send((article, answer)).map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    answered.await.map(Json).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
}

async fn write_batches(pool: PgPool, waiting: Arc<Mutex<mpsc::Receiver<Waiting>>>, rows: usize) {
    loop {
        let mut batch = Vec::new();
        {
            let mut waiting = waiting.lock().await;
            if waiting.recv_many(&mut batch, rows).await == 0 {
                return;
            }
        }
        // What fails is not answered: the driver counts it as a fault.
        let _ = write(&pool, batch).await;
    }
}

async fn write(pool: &PgPool, mut batch: Vec<Waiting>) -> Result<(), sqlx::Error> {
    batch.sort_by(|(one, _), (other, _)| one.external_id.cmp(&other.external_id));
    let ids = batch.iter().map(|_| SystemClock.new_id()).collect::<Vec<_>>();
    let column = |of: fn(&Article) -> &str| batch.iter().map(|(one, _)| of(one)).collect::<Vec<_>>();
    let now: DateTime<Utc> = SystemClock.now();
    let external_ids = column(|one| &one.external_id);
    let new = sqlx::query(INSERT)
        .bind(TENANT)
        .bind(&external_ids)
        .bind(&ids)
        .bind(column(|one| &one.group_code))
        .bind(column(|one| &one.title))
        .bind(column(|one| &one.content_html))
        .bind(now)
        .fetch_all(pool)
        .await?;
    let new = new.iter().map(|row| row.get::<Uuid, _>(0)).collect::<std::collections::HashSet<_>>();
    let mut existing = std::collections::HashMap::new();
    if new.len() < batch.len() {
        let rows = sqlx::query(SELECT).bind(TENANT).bind(&external_ids).fetch_all(pool).await?;
        existing.extend(rows.iter().map(|row| (row.get::<String, _>(0), row.get::<Uuid, _>(1))));
    }
    for ((article, answer), id) in batch.into_iter().zip(ids) {
        let created = new.contains(&id);
        let task_id =
            if created { id } else { existing.get(&article.external_id).copied().unwrap_or_default() };
        let _ = answer.send(Answer { task_id, external_id: article.external_id, created });
    }
    Ok(())
}
