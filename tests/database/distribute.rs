//! `migrate --distribute`, on a database that has functions and tables named like Citus' own, which note what was asked of
//! them; and the schema, by what Citus asks of it. A real cluster is no part of these tests.

use std::collections::BTreeSet;

use publish_ingest::store::{DISTRIBUTED, DistributeError, LOCAL, REFERENCE, StoreError};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};

use crate::harness::{World, in_world};

/// Citus' names, as of 13: its catalogue says what was distributed, and every call is noted with its arguments.
const CITUS: &str = "
    CREATE SCHEMA stub;
    CREATE TABLE stub.calls (number serial, call text NOT NULL);
    CREATE TABLE stub.pg_dist_partition (logicalrelid regclass, partmethod \"char\", partkey text, colocationid int,
        repmodel \"char\");
    CREATE TABLE stub.pg_dist_object (classid oid, objid oid);
    CREATE TABLE stub.pg_dist_node (nodename text, nodeport int, noderole text, isactive boolean);
    INSERT INTO stub.pg_dist_node VALUES ('one', 5432, 'primary', true), ('two', 5432, 'secondary', false);
    CREATE FUNCTION stub.citus_is_coordinator() RETURNS boolean LANGUAGE sql RETURN true;
    CREATE FUNCTION stub.column_to_column_name(table_name regclass, column_var_text text) RETURNS text LANGUAGE sql
        RETURN column_var_text;
    CREATE FUNCTION stub.note(said text) RETURNS void LANGUAGE sql AS $$ INSERT INTO stub.calls (call) VALUES (said) $$;
    CREATE FUNCTION stub.settings() RETURNS text LANGUAGE sql RETURN ' triggers ' || current_setting('citus.enable_unsafe_triggers')
        || ', ' || current_setting('citus.multi_shard_modify_mode');
    CREATE FUNCTION stub.create_reference_table(table_name regclass) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
        PERFORM stub.note('reference ' || table_name || stub.settings());
        INSERT INTO stub.pg_dist_partition VALUES (table_name, 'n', NULL, 1, 't');
    END $$;
    CREATE FUNCTION stub.create_distributed_table(table_name regclass, distribution_column text,
        distribution_type text DEFAULT 'hash', colocate_with text DEFAULT 'default', shard_count int DEFAULT NULL)
        RETURNS void LANGUAGE plpgsql AS $$ BEGIN
        PERFORM stub.note(format('%s by %s %s with %s%s', table_name, distribution_column, distribution_type, colocate_with,
            stub.settings()));
        IF EXISTS (SELECT FROM pg_trigger WHERE tgrelid = table_name AND NOT tgisinternal) THEN
            RAISE 'the rows would be refused';
        END IF;
        INSERT INTO stub.pg_dist_partition VALUES (table_name, 'h', distribution_column, 2, 's');
    END $$;
    CREATE FUNCTION stub.truncate_local_data_after_distributing_table(function_name regclass) RETURNS void LANGUAGE sql
        AS $$ SELECT stub.note('emptied ' || function_name) $$;
    CREATE FUNCTION stub.create_distributed_function(function_name regprocedure, distribution_arg_name text DEFAULT NULL,
        colocate_with text DEFAULT 'default', force_delegation bool DEFAULT NULL) RETURNS void LANGUAGE sql AS $$
        SELECT stub.note('function ' || function_name || coalesce(distribution_arg_name, ''));
        INSERT INTO stub.pg_dist_object VALUES ('pg_proc'::regclass, function_name)
    $$;
    SET allow_system_table_mods = on;
    INSERT INTO pg_extension (oid, extname, extowner, extnamespace, extrelocatable, extversion)
        SELECT 999999, 'citus', r.oid, 'pg_catalog'::regnamespace, false, '13.0-1' FROM pg_roles r WHERE rolname = 'postgres';
    RESET allow_system_table_mods";

/// Without parentheses: written anew, a chain of AND and OR has fewer. And without those that look into another table.
const TRIGGERS: &str =
    "SELECT string_agg(translate(pg_get_triggerdef(oid), '()', ''), E'\\n' ORDER BY tgrelid::regclass::text, tgname)
    FROM pg_trigger WHERE NOT tgisinternal AND tgfoid::regproc::text NOT LIKE 'refuse\\_loss\\_of\\_%'";

/// Those.
const LOOK_ELSEWHERE: &str =
    "SELECT count(*) FROM pg_trigger WHERE tgfoid::regproc::text LIKE 'refuse\\_loss\\_of\\_%'";

/// From then on, new connections find them.
async fn with_citus(world: &World) {
    world.execute(CITUS).await;
    world
        .execute(
            "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = public, stub', current_database()); END $$",
        )
        .await;
}

async fn calls(world: &World) -> Vec<String> {
    let calls = "DELETE FROM stub.calls RETURNING number, call";
    let mut calls = sqlx::query_as::<_, (i32, String)>(calls).fetch_all(&world.pool).await.unwrap();
    calls.sort();
    calls.into_iter().map(|(_, call)| call).collect()
}

async fn refused(world: &World) -> DistributeError {
    match world.store.distribute().await {
        Err(StoreError::Distribute(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn every_table_goes_to_its_place_with_its_rows_and_what_it_refuses() {
    in_world(async |world: &World| {
        with_citus(world).await;
        let triggers = world.text(TRIGGERS).await;
        assert_eq!(world.number(LOOK_ELSEWHERE).await, 6);
        let moved = world.store.distribute().await.unwrap();
        assert_eq!(moved, [&REFERENCE[..], &DISTRIBUTED[..]].concat());
        let calls_made = calls(world).await;
        let beginning = [
            "reference tenants triggers on, sequential",
            "emptied tenants",
            "tasks by tenant_id hash with none triggers on, sequential",
            "accounts by tenant_id hash with tasks triggers on, sequential",
            "emptied accounts",
            "api_keys by tenant_id hash with tasks triggers on, sequential",
            "articles by tenant_id hash with tasks triggers on, sequential",
        ];
        assert_eq!(calls_made[..beginning.len()], beginning);
        // The rest of the tables, and then the functions, which may name them.
        let functions = calls_made.iter().position(|call| call.starts_with("function ")).unwrap();
        assert!(calls_made[functions..].iter().all(|call| call.starts_with("function ")), "{calls_made:?}");
        for name in ["refuse()", "account_day(date,text,timestamp with time zone)", "quota_had(uuid,date)"] {
            assert!(calls_made.contains(&format!("function {name}")), "{name}: {calls_made:?}");
        }
        assert!(!calls_made.iter().any(|call| call.contains("stub")), "{calls_made:?}");
        assert_eq!(world.text(TRIGGERS).await, triggers);
        assert_eq!(world.number(LOOK_ELSEWHERE).await, 0);
        // Again: there is nothing to do.
        assert_eq!(world.store.distribute().await.unwrap(), [""; 0]);
        assert_eq!(calls(world).await, [""; 0]);
    })
    .await;
}

#[tokio::test]
async fn a_run_that_was_interrupted_goes_on_where_it_ended() {
    in_world(async |world: &World| {
        with_citus(world).await;
        let triggers = world.text(TRIGGERS).await;
        // The twelfth table cannot be moved, as when the program is killed or a machine is lost in the middle of it.
        world
            .execute(
                "CREATE FUNCTION stub.lost() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'a node is lost'; END $$;
                CREATE TRIGGER lost BEFORE INSERT ON stub.pg_dist_partition FOR EACH ROW
                    WHEN (NEW.logicalrelid = 'public.publications'::regclass) EXECUTE FUNCTION stub.lost()",
            )
            .await;
        let lost = world.store.distribute().await.unwrap_err().to_string();
        assert!(lost.contains("a node is lost"), "{lost}");
        // What it refuses is refused by the table that was not moved, and by those that were.
        let before = "SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal AND tgrelid = 'publications'::regclass";
        assert_eq!(world.number(before).await, 7);
        calls(world).await;
        world.execute("DROP TRIGGER lost ON stub.pg_dist_partition").await;
        let moved = world.store.distribute().await.unwrap();
        let place = DISTRIBUTED.iter().position(|table| *table == "publications").unwrap();
        assert_eq!(moved, DISTRIBUTED[place..]);
        let calls_made = calls(world).await;
        let first = "publications by tenant_id hash with tasks triggers on, sequential";
        assert!(calls_made[0] == first && calls_made.last().unwrap().starts_with("function "), "{calls_made:?}");
        assert_eq!(world.text(TRIGGERS).await, triggers);

        // Between the tables and the functions.
        world.execute("DELETE FROM stub.pg_dist_object WHERE objid = 'refuse'::regproc").await;
        assert_eq!(world.store.distribute().await.unwrap(), [""; 0]);
        assert_eq!(calls(world).await, ["function refuse()"]);
    })
    .await;
}

#[tokio::test]
async fn what_is_in_the_way_is_said_and_nothing_is_done() {
    in_world(async |world: &World| {
        let none = refused(world).await;
        assert!(matches!(none, DistributeError::NoCitus) && none.to_string().contains("CREATE EXTENSION citus"));
        with_citus(world).await;
        let old = "SET allow_system_table_mods = on; UPDATE pg_extension SET extversion = '12.1-1' WHERE extname = 'citus'";
        world.execute(old).await;
        assert!(matches!(refused(world).await, DistributeError::Old(version) if version == "12.1-1"));
        let new = "UPDATE pg_extension SET extversion = '14.0-1' WHERE extname = 'citus'; RESET allow_system_table_mods";
        world.execute(new).await;

        world.execute("UPDATE stub.pg_dist_node SET isactive = false").await;
        let inactive = refused(world).await.to_string();
        // A secondary is never active.
        assert!(inactive.contains("one:5432") && !inactive.contains("two"), "{inactive}");
        world.execute("ALTER TABLE stub.pg_dist_node RENAME TO gone").await;
        let unreadable = refused(world).await;
        assert!(matches!(&unreadable, DistributeError::Unreadable(why) if why.contains("pg_dist_node")));
        world.execute("ALTER TABLE stub.gone RENAME TO pg_dist_node; UPDATE stub.pg_dist_node SET isactive = true").await;
        let worker = "CREATE OR REPLACE FUNCTION stub.citus_is_coordinator() RETURNS boolean LANGUAGE sql RETURN false";
        world.execute(worker).await;
        assert!(matches!(refused(world).await, DistributeError::Worker));
        let coordinator = "CREATE OR REPLACE FUNCTION stub.citus_is_coordinator() RETURNS boolean LANGUAGE sql RETURN true";
        world.execute(coordinator).await;

        let url = format!("{}&application_name=publish-ingest", world.url);
        let other = PgConnection::connect(&url).await.unwrap();
        assert!(matches!(refused(world).await, DistributeError::InUse(1)));
        other.close().await.unwrap();
        assert_eq!(calls(world).await, [""; 0]);
    })
    .await;
}

#[tokio::test]
async fn a_table_that_lies_elsewhere_is_named_and_left_alone() {
    in_world(async |world: &World| {
        with_citus(world).await;
        for (place, how) in [
            ("'tasks', 'n', NULL, 1, 't'", "tasks is a reference table"),
            ("'tasks', 'h', 'task_id', 2, 's'", "tasks is distributed by task_id"),
            ("'tenants', 'h', 'tenant_id', 2, 's'", "tenants is distributed by tenant_id"),
            ("'tasks', 'n', NULL, 9, 's'", "tasks is distributed in another way"),
            ("'lanes', 'h', 'tenant_id', 9, 's'", "lanes is distributed by tenant_id, but not co-located with tasks"),
        ] {
            let mut connection = world.pool.acquire().await.unwrap();
            let insert = format!("TRUNCATE stub.pg_dist_partition; INSERT INTO stub.pg_dist_partition VALUES ({place})");
            connection.execute(AssertSqlSafe(insert)).await.unwrap();
            drop(connection);
            let elsewhere = refused(world).await.to_string();
            assert!(elsewhere.contains(how) && elsewhere.contains("undistribute_table"), "{how}: {elsewhere}");
        }
        // Known to Citus, and not moved: as a local table of its is, which it makes of some by itself.
        world.execute("TRUNCATE stub.pg_dist_partition; INSERT INTO stub.pg_dist_partition VALUES ('groups', 'n', NULL, 0, 's')").await;
        assert!(world.store.distribute().await.unwrap().contains(&"groups"));
    })
    .await;
}

/// The tables of the schema, and of each: whether its keys begin with the tenant.
const KEYS: &str = "SELECT c.relname || ': ' || i.indexrelid::regclass
    FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
    LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]
    WHERE c.relnamespace = 'public'::regnamespace AND i.indisunique AND a.attname IS DISTINCT FROM 'tenant_id'
    ORDER BY 1";

#[tokio::test]
async fn every_key_begins_with_the_tenant_and_every_table_has_its_place() {
    in_world(async |world: &World| {
        let list = async |statement| sqlx::query_scalar::<_, String>(statement).fetch_all(&world.pool).await.unwrap();
        let keys = list(KEYS).await;
        assert_eq!(
            keys,
            ["_sqlx_migrations: _sqlx_migrations_pkey", "tenants: tenants_name_key"],
            "a key of a table of tenants begins with tenant_id, or the table cannot be distributed"
        );
        // A table without a key has nothing by which a change finds its row on one machine.
        let keyless = "SELECT relname::text FROM pg_class c WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
            AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)";
        assert_eq!(list(keyless).await, [""; 0]);
        let exclusions = "SELECT conname::text FROM pg_constraint WHERE contype = 'x'";
        assert_eq!(list(exclusions).await, [""; 0]);

        let tables = "SELECT relname::text FROM pg_class WHERE relkind IN ('r', 'p', 'v', 'm', 'S', 'f')
            AND relnamespace = 'public'::regnamespace";
        let tables = list(tables).await.into_iter().collect::<BTreeSet<_>>();
        let places = DISTRIBUTED.iter().chain(&REFERENCE).chain(&LOCAL);
        let places = places.map(|table| (*table).to_owned()).collect::<BTreeSet<_>>();
        assert_eq!(tables, places, "a table of a new migration needs its place in `store/distribute.rs`");
        assert_eq!(places.len(), DISTRIBUTED.len() + REFERENCE.len() + LOCAL.len());
        let tenantless = "SELECT relname::text FROM pg_class c WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
            AND NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant_id'
                AND a.atttypid = 'uuid'::regtype AND a.attnotnull)";
        assert_eq!(list(tenantless).await, LOCAL);

        // Rows that belong together lie together: by the tenant, or on every machine.
        let foreign = "SELECT conname::text FROM pg_constraint f WHERE contype = 'f' AND NOT EXISTS (
            SELECT FROM generate_subscripts(f.conkey, 1) n
            JOIN pg_attribute a ON a.attrelid = f.conrelid AND a.attnum = f.conkey[n] AND a.attname = 'tenant_id'
            JOIN pg_attribute b ON b.attrelid = f.confrelid AND b.attnum = f.confkey[n] AND b.attname = 'tenant_id')";
        assert_eq!(list(foreign).await, [""; 0]);
    })
    .await;
}
