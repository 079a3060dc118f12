//! What the database refuses, whoever sends the statement.

use publish_ingest::task::state::Status;
use sqlx::postgres::{PgConnection, PgPool};
use sqlx::{Connection, Executor, PgTransaction};

use crate::harness::{BOTH, World, in_world, limits};

/// Tries a statement and undoes it; the message if it was refused.
async fn refused(transaction: &mut PgTransaction<'_>, statement: &str) -> Option<String> {
    let mut inner = transaction.begin().await.unwrap();
    let result = inner.execute(sqlx::AssertSqlSafe(statement.to_owned())).await;
    let refused = result.err().map(|error| match error {
        sqlx::Error::Database(error) => format!("{} {}", error.code().unwrap(), error.message()),
        other => panic!("{statement}: {other}"),
    });
    inner.rollback().await.unwrap();
    refused
}

/// The columns that go with a state, so that nothing but the transition itself can be refused.
fn columns(status: Status, error_code: &str) -> String {
    let lease = "lease_owner = 'w', lease_until = now()";
    let no_lease = "lease_owner = NULL, lease_until = NULL";
    let error = format!("error_code = '{error_code}', error_message = 'm', error_retryable = false");
    let no_error = "error_code = NULL, error_message = NULL, error_retryable = NULL";
    let since = if status == Status::LoginExpired { "expired_at = now()" } else { "expired_at = NULL" };
    match status {
        Status::Running => format!("{lease}, {no_error}, {since}"),
        Status::Failed => format!("{no_lease}, {error}, {since}"),
        _ => format!("{no_lease}, {no_error}, {since}"),
    }
}

/// Puts the one publication into a state, past the triggers.
async fn put(connection: &mut PgConnection, status: Status) {
    let statement = format!(
        "SET LOCAL session_replication_role = replica;
        UPDATE publications SET status = '{status}', {};
        SET LOCAL session_replication_role = origin",
        columns(status, "rejected")
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(statement)).execute(connection).await.unwrap();
}

const RESTRICTED: &str = "23001";

#[tokio::test]
async fn the_database_allows_exactly_the_transitions_that_the_code_allows() {
    in_world(async |world: &World| {
        world.accept(&[world.new_task("a", "one")]).await;
        let mut transaction = world.pool.begin().await.unwrap();
        for from in Status::ALL {
            for next in Status::ALL.into_iter().filter(|next| *next != from) {
                for error_code in ["rejected", "cancelled"] {
                    put(&mut transaction, from).await;
                    let move_it =
                        format!("UPDATE publications SET status = '{next}', {}", columns(next, error_code));
                    let refused = refused(&mut transaction, &move_it).await;
                    // Only by cancelling does what does not run become failed.
                    let cancels = next == Status::Failed && from != Status::Running;
                    let allowed = from.may_become(next) && (!cancels || error_code == "cancelled");
                    assert_eq!(refused.is_none(), allowed, "{from} → {next} ({error_code}): {refused:?}");
                    assert!(refused.is_none_or(|why| why.starts_with(RESTRICTED)), "{from} → {next}");
                }
            }
        }
        transaction.rollback().await.unwrap();
    })
    .await;
}

async fn all_refused(pool: &PgPool, setup: Option<Status>, statements: &[&str]) {
    let mut transaction = pool.begin().await.unwrap();
    if let Some(status) = setup {
        put(&mut transaction, status).await;
    }
    for statement in statements {
        let refused = refused(&mut transaction, statement).await;
        assert!(refused.as_ref().is_some_and(|why| why.starts_with(RESTRICTED)), "{statement}: {refused:?}");
    }
    transaction.rollback().await.unwrap();
}

#[tokio::test]
async fn success_is_final() {
    in_world(async |world: &World| {
        world.accept(&[world.new_task("a", "one")]).await;
        let rewrites = [
            "UPDATE publications SET url = 'https://other.example/'",
            "UPDATE publications SET remote_id = 'other'",
            "UPDATE publications SET round = round + 1",
            "UPDATE publications SET status = 'success'",
        ];
        all_refused(&world.pool, Some(Status::Success), &rewrites).await;
    })
    .await;
}

#[tokio::test]
async fn what_was_accepted_is_kept_for_ever() {
    in_world(async |world: &World| {
        world.accept(&[world.new_task("a", "one")]).await;
        let losses = [
            "DELETE FROM tasks",
            "DELETE FROM publications",
            "TRUNCATE tasks",
            "TRUNCATE publications",
            "TRUNCATE tasks, publications CASCADE",
            "DELETE FROM articles",
            "TRUNCATE articles",
            "DELETE FROM feeds",
            "DELETE FROM tenants",
            "DELETE FROM retentions",
        ];
        all_refused(&world.pool, None, &losses).await;
    })
    .await;
}

#[tokio::test]
async fn a_task_and_its_publications_keep_their_identity() {
    in_world(async |world: &World| {
        world.accept(&[world.new_task("a", "one")]).await;
        let changes = [
            "UPDATE tasks SET external_id = 'b'",
            "UPDATE tasks SET task_id = gen_random_uuid()",
            "UPDATE tasks SET tenant_id = gen_random_uuid()",
            "UPDATE publications SET task_id = gen_random_uuid()",
            "UPDATE publications SET publication_id = gen_random_uuid()",
            "UPDATE publications SET account_id = 'other'",
        ];
        all_refused(&world.pool, None, &changes).await;
        // A marker is stored once.
        world.execute("UPDATE publications SET marker = 'a'").await;
        all_refused(&world.pool, None, &["UPDATE publications SET marker = 'b'"]).await;
    })
    .await;
}

#[tokio::test]
async fn a_publication_begins_at_the_beginning_and_its_fence_and_round_only_rise() {
    in_world(async |world: &World| {
        world.accept(&[world.new_task("a", "one")]).await;
        assert_eq!(world.claim("w").await.len(), 1);
        let falls = ["UPDATE publications SET fence = fence - 1", "UPDATE publications SET round = round - 1"];
        all_refused(&world.pool, None, &falls).await;
        let births = ["running", "success", "failed", "login_expired"].map(|status| {
            let status = Status::named(status).unwrap();
            let of_row = columns(status, "x");
            // A row like the first one, but born in that state.
            format!(
                "WITH other AS (SELECT tenant_id, gen_random_uuid() AS publication_id, task_id, platform,
                    'other' AS account_id, position, '{status}' AS status, due_at, updated_at FROM publications)
                INSERT INTO publications (tenant_id, publication_id, task_id, platform, account_id, position, status,
                    due_at, updated_at, lease_owner, lease_until, error_code, error_message, error_retryable,
                    expired_at)
                SELECT *, {} FROM other",
                of_row.split(", ").map(|pair| pair.split(" = ").nth(1).unwrap()).collect::<Vec<_>>().join(", ")
            )
        });
        all_refused(&world.pool, None, &births.each_ref().map(String::as_str)).await;
    })
    .await;
}

#[tokio::test]
async fn an_event_is_fixed_when_it_is_written() {
    in_world(async |world: &World| {
        let api = world.start().await;
        api.publish(&crate::harness::article("a")).await.ok();
        api.finished("a").await;
        let changes = [
            "UPDATE events SET body = body || '\\x20'",
            "UPDATE events SET position = position + 1",
            "UPDATE events SET event_id = gen_random_uuid()",
            "UPDATE events SET status = 'failed', round = 2",
            "UPDATE feeds SET position = position - 1",
        ];
        all_refused(&world.pool, None, &changes).await;
    })
    .await;
}

#[tokio::test]
async fn what_contradicts_itself_cannot_be_stored() {
    in_world(async |world: &World| {
        world.accept(&[world.new_task("a", BOTH)]).await;
        let claimed = world.store.claim(world.tenant.tenant_id, &limits("w")).await.unwrap();
        assert_eq!(claimed.len(), 2);
        let mut transaction = world.pool.begin().await.unwrap();
        for statement in [
            "UPDATE publications SET lease_until = NULL, lease_owner = NULL",
            "UPDATE publications SET lease_owner = NULL",
            "UPDATE publications SET url = 'https://a.example/'",
            "UPDATE publications SET status = 'failed', lease_until = NULL, lease_owner = NULL",
            "UPDATE publications SET error_code = 'x'",
            "UPDATE publications SET expired_at = now()",
            "UPDATE lanes SET in_flight = -1",
            "UPDATE lanes SET max_in_flight = 0",
            "UPDATE tasks SET open = -1",
        ] {
            let refused = refused(&mut transaction, statement).await;
            assert!(refused.as_ref().is_some_and(|why| why.starts_with("23514")), "{statement}: {refused:?}");
        }
        transaction.rollback().await.unwrap();
    })
    .await;
}
