//! What a role that `migrate --grant` prepares may do: all that services do, as every other test shows, and no more.

use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};

use publish_ingest::store::{RightsError, Store, StoreError, WorksAs};

use crate::harness::{ROLE, World, in_world, serving_url};

/// What the database says of it: nothing when it was done.
async fn refusal(connection: &mut PgConnection, statement: &str) -> Option<String> {
    let done = connection.execute(AssertSqlSafe(statement.to_owned())).await;
    let error = done.err()?;
    Some(error.as_database_error().unwrap().code().unwrap().into_owned())
}

const NOT_PERMITTED: &str = "42501";

fn store(world: &World, url: &str) -> Store {
    Store::open(url, 1, world.shared_clock()).unwrap()
}

#[tokio::test]
async fn every_table_is_readable_and_nothing_is_owned() {
    in_world(async |world: &World| {
        // A table of a new migration has to be given its rights in `store/rights.rs`.
        let forgotten = "SELECT coalesce(string_agg(relname, ', '), '') FROM pg_class
            WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace
                AND NOT has_table_privilege('publish_serve', oid, 'SELECT')";
        assert_eq!(world.text(forgotten).await, "");
        let owned = "SELECT count(*) FROM pg_shdepend d JOIN pg_roles r ON r.oid = d.refobjid
            WHERE r.rolname = 'publish_serve' AND d.deptype = 'o'";
        assert_eq!(world.number(owned).await, 0);
        let granted = store(world, &serving_url(&world.url));
        assert_eq!(granted.works_as().await.unwrap(), WorksAs::Granted);
        granted.close().await;
        assert_eq!(world.store.works_as().await.unwrap(), WorksAs::Owner("postgres".to_owned()));
    })
    .await;
}

#[tokio::test]
async fn a_role_that_serves_changes_no_schema_and_makes_no_keys() {
    in_world(async |world: &World| {
        let mut connection = PgConnection::connect(&serving_url(&world.url)).await.unwrap();
        for statement in [
            "CREATE TABLE mine (x int)",
            "CREATE FUNCTION mine() RETURNS int LANGUAGE sql RETURN 1",
            "ALTER TABLE publications ADD COLUMN x int",
            "ALTER TABLE publications DISABLE TRIGGER refuse_transition",
            "ALTER TABLE publications DROP CONSTRAINT publications_pkey",
            "CREATE INDEX ON publications (url)",
            "DROP TABLE publications",
            "DROP TRIGGER refuse_transition ON publications",
            "DROP FUNCTION refuse CASCADE",
            "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
            "TRUNCATE callbacks",
            "SET session_replication_role = replica",
            "SET ROLE postgres",
            "COPY tasks TO '/tmp/stolen'",
            "UPDATE _sqlx_migrations SET success = false",
            "INSERT INTO api_keys SELECT * FROM api_keys",
            "UPDATE api_keys SET scopes = '{manage}'",
            "INSERT INTO tenants SELECT * FROM tenants",
            "UPDATE tenants SET marker_key_sealed = ''",
            "DELETE FROM tenants",
            "DELETE FROM tasks",
            "UPDATE transitions SET reason = ''",
            "DELETE FROM retentions",
            "INSERT INTO retentions SELECT * FROM retentions",
            "UPDATE events SET body = ''",
            "DELETE FROM feeds",
        ] {
            let refused = refusal(&mut connection, statement).await;
            assert_eq!(refused.as_deref(), Some(NOT_PERMITTED), "{statement}");
        }
        connection.close().await.unwrap();
    })
    .await;
}

/// The role's rights on tables and their columns.
const RIGHTS: &str = "SELECT string_agg(relname || coalesce(relacl::text, ''), ' ' ORDER BY relname)
    || (SELECT string_agg(attname || attacl::text, ' ' ORDER BY attname) FROM pg_attribute WHERE attacl IS NOT NULL)
    FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace";

#[tokio::test]
async fn a_grant_gives_what_is_missing_and_takes_what_is_too_much() {
    in_world(async |world: &World| {
        let before = world.text(RIGHTS).await;
        world
            .execute("REVOKE INSERT ON tasks FROM publish_serve; REVOKE DELETE ON groups FROM publish_serve")
            .await;
        world
            .execute(
                "REVOKE ALL ON tenants FROM publish_serve; GRANT DELETE, TRIGGER ON events TO publish_serve",
            )
            .await;
        let serving = store(world, &serving_url(&world.url));
        let missing = serving.works_as().await.unwrap_err().to_string();
        for part in [
            "DELETE on groups, INSERT on tasks, SELECT on tenants, UPDATE on tenants",
            "`publish-ingest migrate --grant publish_serve`",
        ] {
            assert!(missing.contains(part), "{missing}");
        }
        world.store.grant_rights(ROLE).await.unwrap();
        assert_eq!(serving.works_as().await.unwrap(), WorksAs::Granted);
        assert_eq!(world.text(RIGHTS).await, before);
        // Again, and by two at once.
        let (one, other) = tokio::join!(world.store.grant_rights(ROLE), world.store.grant_rights(ROLE));
        one.unwrap();
        other.unwrap();
        assert_eq!(world.text(RIGHTS).await, before);

        world.execute("REVOKE ALL ON _sqlx_migrations FROM publish_serve").await;
        let nothing = serving.check().await.unwrap_err().to_string();
        assert!(
            nothing.contains("role publish_serve lacks rights (SELECT on _sqlx_migrations)"),
            "{nothing}"
        );
        serving.close().await;
    })
    .await;
}

#[tokio::test]
async fn only_a_role_that_is_there_and_less_than_the_owner_is_granted_anything() {
    in_world(async |world: &World| {
        let refused = async |role: &str| match world.store.grant_rights(role).await {
            Err(StoreError::Rights(error)) => error,
            other => panic!("{role}: {other:?}"),
        };
        assert!(matches!(refused("nobody \"; DROP TABLE tasks").await, RightsError::NoRole(_)));
        assert!(matches!(refused("postgres").await, RightsError::Owner(_)));
        // Roles belong to the whole server: these names are of this test alone.
        world.execute("CREATE ROLE rights_member NOINHERIT IN ROLE postgres; CREATE ROLE \"Rights, odd\"").await;
        assert!(matches!(refused("rights_member").await, RightsError::Owner(_)));
        world.store.grant_rights("Rights, odd").await.unwrap();
        let may = "SELECT count(*) FROM pg_roles WHERE rolname = 'Rights, odd' AND has_table_privilege(oid, 'tasks', 'INSERT')";
        assert_eq!(world.number(may).await, 1);
        world.execute("DROP OWNED BY \"Rights, odd\"; DROP ROLE \"Rights, odd\"; DROP ROLE rights_member").await;
    })
    .await;
}
