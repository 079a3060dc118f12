//! Distributing the tables over the machines of a Citus cluster, by tenant.
//!
//! The schema is made for it: a tenant is the first column of every key, so all rows of a tenant lie on one machine, and what names
//! one tenant runs there as a whole. Each table is moved in a transaction of its own, and one that is in its place is left alone:
//! a run that was interrupted goes on where it ended.
//!
//! Written for Citus 13 (its manual, "Citus Utility Functions"; `commands/create_distributed_table.c`): `create_distributed_table`
//! and `create_reference_table` take a lock that lets others read, copy the rows, and leave the old ones behind, which
//! `truncate_local_data_after_distributing_table` removes.

use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection as _, FromRow};

use super::error::told;
use super::{Store, StoreError};

/// The table that all others are co-located with.
const ANCHOR: &str = "tasks";

/// The tables of tenants, each distributed by `tenant_id`.
pub const DISTRIBUTED: [&str; 25] = [
    ANCHOR,
    "accounts",
    "api_keys",
    "articles",
    "attempts",
    "callback_tries",
    "callbacks",
    "events",
    "feeds",
    "group_members",
    "groups",
    "lanes",
    "publications",
    "quota_shares",
    "quotas",
    "receivers",
    "replay_events",
    "replays",
    "retentions",
    "sandbox_accounts",
    "sandbox_articles",
    "sandbox_marks",
    "sandbox_requests",
    "signing_secrets",
    "transitions",
];

/// Copied to every machine. Of `tenants`, the name is the key of all of them, which a table distributed by tenant cannot have; it is
/// joined to what a tenant's statements read, so it has to lie beside that; and it is small and hardly ever written.
pub const REFERENCE: [&str; 1] = ["tenants"];

/// What stays where it is: only `migrate` writes it, and only the coordinator is asked for it.
pub const LOCAL: [&str; 1] = ["_sqlx_migrations"];

/// What looks into another table before a row goes, which a trigger on a part of a table cannot: these stay off, and the
/// statements of `super::retention` alone see to it.
const LOOKS_ELSEWHERE: &str = "refuse_loss_of_";

/// The first version of Citus that this was written for.
const CITUS: u32 = 13;

/// Why the tables cannot be distributed.
#[derive(Debug, thiserror::Error)]
pub enum DistributeError {
    /// The extension is not there.
    #[error(
        "this database has no Citus, and nothing was distributed: on every machine of the cluster put citus first into \
         shared_preload_libraries and run CREATE EXTENSION citus in this database, add the workers on the coordinator \
         (citus_set_coordinator_host, citus_add_node), and run this again"
    )]
    NoCitus,
    /// It is older than what this was written for.
    #[error(
        "this database has Citus {0}, and the tables can be distributed by Citus {CITUS} or later: update it first"
    )]
    Old(String),
    /// This is not the coordinator.
    #[error("this is a worker of the cluster: name its coordinator in DATABASE_URL")]
    Worker,
    /// The list of machines cannot be read.
    #[error(
        "the cluster's nodes cannot be read ({0}): run this as the role that owns the tables, on the coordinator, and let \
         that role read pg_dist_node"
    )]
    Unreadable(String),
    /// Some machines are not in use.
    #[error(
        "nodes of the cluster are not active: {0}: bring them back (citus_activate_node) or take them out \
         (citus_remove_node), and run this again"
    )]
    Inactive(String),
    /// Somebody works on the database.
    #[error(
        "publish-ingest has {0} other connections to this database: stop every process of it first, since tables are moved \
         one after the other"
    )]
    InUse(i64),
    /// A table is somewhere else.
    #[error(
        "the table {table} is {how}, not as this program needs it: take it back by \
         SELECT undistribute_table('{table}'), and run this again"
    )]
    Elsewhere {
        /// The table.
        table: &'static str,
        /// How it lies.
        how: String,
    },
}

/// Where a table lies, by Citus' own list.
#[derive(FromRow)]
struct Place {
    method: String,
    model: String,
    colocation: i32,
    column: Option<String>,
}

impl Place {
    /// Whether the table lies where it should: an error if it lies elsewhere, which a move does not mend.
    fn stands(&self, table: &'static str, anchor: Option<i32>) -> Result<bool, DistributeError> {
        let reference = REFERENCE.contains(&table);
        let how = match (&*self.method, &*self.model) {
            ("n", "t") if reference => return Ok(true),
            ("n", "t") => "a reference table".to_owned(),
            // Known to Citus and not moved: both moves begin from there.
            ("n", _) if self.colocation == 0 => return Ok(false),
            ("h", _) if self.column.as_deref() != Some("tenant_id") => {
                format!("distributed by {}", self.column.as_deref().unwrap_or("another column"))
            }
            ("h", _) if reference => "distributed by tenant_id".to_owned(),
            ("h", _) if table == ANCHOR || anchor == Some(self.colocation) => return Ok(true),
            ("h", _) => format!("distributed by tenant_id, but not co-located with {ANCHOR}"),
            _ => "distributed in another way".to_owned(),
        };
        Err(DistributeError::Elsewhere { table, how })
    }
}

impl Store {
    /// Distributes every table of tenants by `tenant_id`, with all its rows, and makes the functions of the schema known on every
    /// machine; gives the tables that were moved: none if all were in their places.
    ///
    /// Nobody may work on the database meanwhile: each table in turn is locked against reads and writes while its rows are copied.
    pub async fn distribute(&self) -> Result<Vec<&'static str>, StoreError> {
        let mut connection = self.for_migrations().await?;
        let distributed = distribute(&mut connection, i64::from(self.pool.size())).await;
        // Whatever it says, what was done is done.
        let _ = connection.close().await;
        distributed
    }
}

async fn distribute(connection: &mut PgConnection, own: i64) -> Result<Vec<&'static str>, StoreError> {
    check_cluster(connection).await?;
    let mut moved = Vec::new();
    for table in REFERENCE.into_iter().chain(DISTRIBUTED) {
        if is_to_move(connection, table).await? {
            check_unused(connection, own).await?;
            if place(connection, table).await? {
                moved.push(table);
            }
        }
    }
    place_functions(connection).await?;
    Ok(moved)
}

/// Whether this is the coordinator of a cluster whose machines are there.
async fn check_cluster(connection: &mut PgConnection) -> Result<(), StoreError> {
    let version = "SELECT extversion FROM pg_extension WHERE extname = 'citus'";
    let version = sqlx::query_scalar::<_, String>(version).fetch_optional(&mut *connection).await?;
    let version = version.ok_or(DistributeError::NoCitus)?;
    let major = version.split(['.', '-']).next().and_then(|major| major.parse::<u32>().ok());
    if major.is_none_or(|major| major < CITUS) {
        return Err(DistributeError::Old(version).into());
    }
    let nodes = "SELECT citus_is_coordinator(), (SELECT string_agg(nodename || ':' || nodeport, ', ' ORDER BY nodename, nodeport)
            FROM pg_dist_node WHERE noderole::text = 'primary' AND NOT isactive)";
    let nodes = sqlx::query_as::<_, (bool, Option<String>)>(nodes).fetch_one(&mut *connection).await;
    match nodes.map_err(|error| unreadable(error.into()))? {
        (false, _) => Err(DistributeError::Worker.into()),
        (true, Some(inactive)) => Err(DistributeError::Inactive(inactive).into()),
        (true, None) => Ok(()),
    }
}

/// What keeps a role from reading Citus' own tables is told as that.
fn unreadable(error: StoreError) -> StoreError {
    match error {
        StoreError::Refused(error) => DistributeError::Unreadable(told(&error)).into(),
        other => other,
    }
}

/// Whether nobody of this program has a connection but the `own` of this process. Those of Citus, between its machines, have
/// another name.
async fn check_unused(connection: &mut PgConnection, own: i64) -> Result<(), StoreError> {
    let others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
        AND application_name = 'publish-ingest' AND pid <> pg_backend_pid()";
    let others = sqlx::query_scalar::<_, i64>(others).fetch_one(connection).await? - own;
    if others > 0 { Err(DistributeError::InUse(others).into()) } else { Ok(()) }
}

async fn is_to_move(connection: &mut PgConnection, table: &'static str) -> Result<bool, StoreError> {
    let (place, anchor) = (place_of(connection, table).await?, place_of(connection, ANCHOR).await?);
    let anchor = anchor.filter(|anchor| anchor.method == "h").map(|anchor| anchor.colocation);
    place.map_or(Ok(true), |place| Ok(!place.stands(table, anchor)?))
}

async fn place_of(connection: &mut PgConnection, table: &str) -> Result<Option<Place>, StoreError> {
    let place = r#"SELECT partmethod::text AS method, repmodel::text AS model, colocationid AS colocation,
            column_to_column_name(logicalrelid, partkey) AS "column"
        FROM pg_dist_partition WHERE logicalrelid = $1::text::regclass"#;
    let place = sqlx::query_as::<_, Place>(place).bind(table).fetch_optional(connection).await;
    place.map_err(|error| unreadable(error.into()))
}

/// Moves a table with its rows, unless another run has done so meanwhile. What refuses statements is taken off while the rows
/// are copied and the old ones removed, which it would refuse, and put on again, by which it comes to every machine; nobody
/// sees the table without it, since that takes a lock which keeps out even those who read.
async fn place(connection: &mut PgConnection, table: &'static str) -> Result<bool, StoreError> {
    let mut transaction = connection.begin().await?;
    // One run at a time.
    sqlx::query("LOCK TABLE _sqlx_migrations IN SHARE ROW EXCLUSIVE MODE").execute(&mut *transaction).await?;
    if !is_to_move(&mut transaction, table).await? {
        return Ok(false);
    }
    let triggers = "SELECT format('DROP TRIGGER %I ON %s', tgname, tgrelid::regclass), CASE WHEN NOT starts_with(p.proname, $2)
            THEN pg_get_triggerdef(t.oid) END
        FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
        WHERE tgrelid = $1::text::regclass AND NOT tgisinternal ORDER BY tgname";
    let triggers = sqlx::query_as::<_, (String, Option<String>)>(triggers);
    let triggers = triggers.bind(table).bind(LOOKS_ELSEWHERE).fetch_all(&mut *transaction).await?;
    let (off, on): (Vec<_>, Vec<_>) = triggers.into_iter().unzip();
    let moving = if REFERENCE.contains(&table) {
        format!("SELECT create_reference_table('{table}')")
    } else {
        // A group of its own, not that of whatever else is distributed here.
        let beside = if table == ANCHOR { "none" } else { ANCHOR };
        format!("SELECT create_distributed_table('{table}', 'tenant_id', colocate_with => '{beside}')")
    };
    for statement in off {
        run(&mut transaction, statement).await?;
    }
    let rows = format!("SELECT EXISTS (SELECT FROM {table})");
    let rows = sqlx::query_scalar::<_, bool>(AssertSqlSafe(rows)).fetch_one(&mut *transaction).await?;
    run(&mut transaction, moving).await?;
    if rows {
        run(&mut transaction, format!("SELECT truncate_local_data_after_distributing_table('{table}')"))
            .await?;
    }
    for statement in on.into_iter().flatten() {
        run(&mut transaction, statement).await?;
    }
    transaction.commit().await?;
    Ok(true)
}

/// Makes the schema's functions known on every machine: statements that name them run there. Those that were made while Citus
/// was there are so already.
async fn place_functions(connection: &mut PgConnection) -> Result<(), StoreError> {
    let missing = "SELECT format('SELECT create_distributed_function(%L)', p.oid::regprocedure) FROM pg_proc p
        WHERE p.pronamespace = current_schema()::regnamespace
            AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e')
            AND NOT EXISTS (SELECT FROM pg_dist_object o WHERE o.classid = 'pg_proc'::regclass AND o.objid = p.oid)
        ORDER BY p.oid";
    let missing = sqlx::query_scalar::<_, String>(missing).fetch_all(&mut *connection).await;
    for statement in missing.map_err(|error| unreadable(error.into()))? {
        run(connection, statement).await?;
    }
    Ok(())
}

/// Runs a statement whose names are ours, or were quoted by the database.
async fn run(connection: &mut PgConnection, statement: String) -> Result<(), StoreError> {
    sqlx::raw_sql(AssertSqlSafe(statement)).execute(connection).await?;
    Ok(())
}
