//! A backlog: of one tenant so many articles are due, on accounts that allow next to nothing, while another tenant's articles
//! live beside them at a fixed rate; and before it, in the same run, without them.

use std::time::Duration;

use serde_json::{Value, json};
use sqlx::{Connection as _, Executor as _, PgConnection};
use uuid::Uuid;

use crate::database::{Server, number};
use crate::lives::Run;
use crate::program::{GROUPS, Pace, World};
use crate::reads;
use crate::report::Report;
use crate::{Arguments, Failed, used};

/// The tenant with the backlog.
const HELD_UP: &str = "held-up";

/// What its accounts allow: one at a time, and the next after a day.
const PACE: Pace = Pace { max_in_flight: 1, min_interval_seconds: 24 * 60 * 60 };

/// How many of its articles are written in one transaction.
const CHUNK: u64 = 50_000;

/// How much of `--lives-per-second` the other tenant asks for: little enough that its own queues are short.
const PART_OF_RATE: f64 = 1.0 / 3.0;

/// How long lives are handed in before anything is measured.
const WARM_UP: Duration = Duration::from_secs(2);

/// The statements that accept articles, as `store/accept.rs` leaves them; `$1` is the tenant, `$2` and `$3` the first and the last
/// number, `$4` the number of groups, `$5` how many there are in all. The first was handed in so many milliseconds ago.
const STATEMENTS: [&str; 3] = [
    "INSERT INTO tasks (tenant_id, external_id, task_id, group_code, fingerprint, digests, draft, drafts, open, created_at,
        submitted_at)
    SELECT $1, 'due-' || lpad(n::text, 9, '0'), task_id, 'g' || n % $4, sha256(n::text::bytea),
        sha256(n::text::bytea) || sha256(n::text::bytea), false, 0, 2, at, at
    FROM pg_temp.due($2, $3, $5)",
    "INSERT INTO articles (tenant_id, task_id, title, content_html, tags, metadata)
    SELECT $1, task_id, 'About ' || n, '<p>' || n || '</p>', '[]', '{}' FROM pg_temp.due($2, $3, $5) WHERE $4 > 0",
    "INSERT INTO publications (tenant_id, publication_id, task_id, platform, account_id, position, status, due_at, updated_at)
    SELECT $1, encode(substring(uuid_send(task_id) FROM 1 FOR 8) || substring(uuid_send(gen_random_uuid()) FROM 9 FOR 8), 'hex')::uuid,
        task_id, 'sandbox', half || n % $4, CASE half WHEN 'a' THEN 1 ELSE 2 END, 'submitted', at, at
    FROM pg_temp.due($2, $3, $5), unnest(ARRAY['a', 'b']) AS half",
];

/// Of the benchmark alone, and gone afterwards: numbers, each with an id of version 7 and the time in it.
const FUNCTION: &str = "CREATE FUNCTION pg_temp.due(first bigint, last bigint, of_all bigint)
    RETURNS TABLE (n bigint, task_id uuid, at timestamptz) LANGUAGE sql AS $$
    SELECT n, (lpad(to_hex(ms), 12, '0') || '70008000' || lpad(to_hex(n), 12, '0'))::uuid, to_timestamp(ms / 1000.0)
    FROM generate_series(first, last) AS n, LATERAL (
        SELECT floor(extract(epoch FROM pg_postmaster_start_time()) * 1000)::bigint - of_all + n AS ms) AS begun $$";

pub(crate) async fn run(report: &mut Report, arguments: &Arguments, server: &Server) -> Result<(), Failed> {
    let world = World::make(server.create("backlog").await?, &arguments.folder).await?;
    let held_up = world.tenant(HELD_UP).await?;
    let mut run = Run::start(arguments, server, &world).await?;
    run.service.furnish(&held_up, GROUPS, PACE).await?;
    let rate = arguments.lives_per_second * PART_OF_RATE;
    let lasts = Duration::from_secs(arguments.lives_seconds);
    run.live(rate, WARM_UP).await?;
    let without = run.live(rate, lasts).await?;
    report.fact("lives beside nothing", without.clone());
    let read = reads::run(run.service.address, &world.tenant, &run.external_id(0)).await?;
    report.fact("calls beside nothing, ms", read.clone());

    seed(&world.url, arguments.backlog).await?;
    let due = number(&world.url, DUE).await?;
    report.fact("publications that are due and held up", due.into());
    run.live(rate, WARM_UP).await?;
    let beside = run.live(rate, lasts).await?;
    report.fact("lives beside a backlog", beside.clone());
    let read_beside = reads::run(run.service.address, &world.tenant, &run.external_id(0)).await?;
    report.fact("calls beside a backlog, ms", read_beside.clone());
    let own = reads::run(run.service.address, &held_up, &format!("due-{:09}", arguments.backlog)).await?;
    report.fact("calls of the tenant with the backlog, ms", own.clone());

    report.fact("a backlog, as a multiple of none", ratios(&beside, &without));
    report.fact("calls beside a backlog, as a multiple of none", ratios(&read_beside, &read));
    report.fact("calls of the tenant with the backlog, as a multiple of the other's", ratios(&own, &read));
    report.memory("after a backlog", run.service.pid())?;
    run.end().await?;
    let still = number(&world.url, DUE).await?;
    report.fact("publications that are held up at the end", still.into());
    used::check(arguments, &world.url).await
}

const DUE: &str = "SELECT count(*) FROM publications WHERE status = 'submitted' AND fence >= 0";

/// The figures of both that are numbers, each divided by that of the other.
fn ratios(one: &Value, other: &Value) -> Value {
    let mut told = serde_json::Map::new();
    for (name, figure) in one.as_object().into_iter().flatten() {
        let other = &other[name];
        let ratio = match (figure.as_f64(), other.as_f64()) {
            (Some(figure), Some(other)) if other > 0.0 => json!(figure / other),
            (None, _) if figure.is_object() => ratios(figure, other),
            _ => continue,
        };
        told.insert(name.clone(), ratio);
    }
    told.into()
}

/// Accepts so many articles of that tenant.
async fn seed(url: &str, articles: u64) -> Result<(), Failed> {
    let mut connection = PgConnection::connect(url).await?;
    connection.execute("SET synchronous_commit = off").await?;
    connection.execute(FUNCTION).await?;
    let tenant_id: Uuid = sqlx::query_scalar("SELECT tenant_id FROM tenants WHERE name = $1")
        .bind(HELD_UP)
        .fetch_one(&mut connection)
        .await?;
    let mut first = 1;
    while first <= articles {
        let last = articles.min(first + CHUNK - 1);
        let mut transaction = connection.begin().await?;
        for statement in STATEMENTS {
            let mut insert = sqlx::query(statement).bind(tenant_id);
            for number in [first, last, GROUPS, articles] {
                insert = insert.bind(i64::try_from(number)?);
            }
            insert.execute(&mut *transaction).await?;
        }
        transaction.commit().await?;
        first = last + 1;
    }
    // As it would have come to be while they were handed in.
    connection.execute("VACUUM (ANALYZE) tasks, articles, publications").await?;
    connection.execute("CHECKPOINT").await?;
    Ok(connection.close().await?)
}
