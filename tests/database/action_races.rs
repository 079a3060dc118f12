//! Actions that meet claims, settles and each other: as interleavings of two connections, and all at once.

use std::time::Duration;

use chrono::TimeDelta;
use publish_ingest::account::{AccountInput, AccountKey, Credentials};
use publish_ingest::store::{AccountPut, Acted, Cancellation, Move, Store, StoreError, Terms};
use publish_ingest::task::act::RetryRequest;
use publish_ingest::task::settle::telling;
use publish_ingest::task::state::Status;
use publish_ingest::vault::Vault;
use serde_json::json;
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::actions::{end, id};
use crate::drafts::{pause, waiting};
use crate::harness::{ONE, World, account_input, article, at_once, in_world, limits};

/// Has whoever writes to a table wait within its transaction for a lock that the test holds.
async fn gate(world: &World, table: &'static str) -> sqlx::PgTransaction<'static> {
    let statement = format!(
        "CREATE FUNCTION at_the_gate() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NEW; END $$;
        CREATE TRIGGER gate BEFORE UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION at_the_gate()"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(statement)).execute(&world.pool).await.unwrap();
    let mut keeper = world.pool.begin().await.unwrap();
    sqlx::query("SELECT pg_advisory_xact_lock(1)").execute(&mut *keeper).await.unwrap();
    keeper
}

/// Cancels the task `a` beside the test.
fn cancelling(world: &World) -> JoinHandle<Acted<Cancellation>> {
    let (store, tenant_id) = (world.store.clone(), world.tenant.tenant_id);
    tokio::spawn(
        async move { store.cancel(tenant_id, &id("a"), telling(Duration::ZERO)).await.unwrap().unwrap() },
    )
}

#[tokio::test]
async fn a_cancel_that_meets_a_claim_waits_for_it_and_says_in_flight() {
    in_world(async |world: &World| {
        world.accept(&[world.new_task("a", ONE)]).await;
        let keeper = gate(world, "publications").await;
        let (store, tenant_id) = (world.store.clone(), world.tenant.tenant_id);
        let claim = tokio::spawn(async move { store.claim(tenant_id, &limits("w")).await.unwrap() });
        waiting(world, 1).await;
        let cancel = cancelling(world);
        waiting(world, 2).await;
        keeper.rollback().await.unwrap();
        assert_eq!(claim.await.unwrap().len(), 1);
        let did = cancel.await.unwrap().did;
        assert_eq!((did.cancelled.len(), did.in_flight.len()), (0, 1));
        assert_eq!(world.text("SELECT status FROM publications").await, "running");
    })
    .await;
}

#[tokio::test]
async fn a_claim_that_meets_a_cancel_takes_nothing() {
    in_world(async |world: &World| {
        world.accept(&[world.new_task("a", ONE)]).await;
        // It has locked the publication, and is about to count.
        let keeper = gate(world, "tasks").await;
        let cancel = cancelling(world);
        waiting(world, 1).await;
        assert!(world.claim("w").await.is_empty());
        keeper.rollback().await.unwrap();
        let did = cancel.await.unwrap().did;
        assert_eq!((did.cancelled.len(), did.in_flight.len()), (1, 0));
        assert!(world.claim("w").await.is_empty());
    })
    .await;
}

#[tokio::test]
async fn a_cancel_that_meets_a_settle_sees_how_it_ended() {
    in_world(async |world: &World| {
        world.accept(&[world.new_task("a", ONE)]).await;
        let one = world.claim("w").await.remove(0);
        let keeper = gate(world, "publications").await;
        let (store, tenant_id) = (world.store.clone(), world.tenant.tenant_id);
        let again = Move { wait: Some(TimeDelta::days(1)), ..end(&one, Status::Submitted, Some("x")) };
        let settle =
            tokio::spawn(
                async move { store.settle(tenant_id, &[again], telling(Duration::ZERO)).await.unwrap() },
            );
        waiting(world, 1).await;
        let cancel = cancelling(world);
        waiting(world, 2).await;
        keeper.rollback().await.unwrap();
        settle.await.unwrap();
        assert_eq!(cancel.await.unwrap().did.cancelled.len(), 1);
        assert_eq!(world.text("SELECT error_code FROM publications").await, "cancelled");
    })
    .await;
}

#[tokio::test]
async fn what_waited_for_others_stands_in_the_history_after_them() {
    in_world(async |world: &World| {
        world.accept(&[world.new_task("a", ONE)]).await;
        let one = world.claim("w").await.remove(0);
        // The retry begins first, and waits before it has looked.
        let mut holder = world.pool.begin().await.unwrap();
        sqlx::query("SELECT FROM accounts FOR UPDATE").execute(&mut *holder).await.unwrap();
        let (store, tenant_id) = (world.store.clone(), world.tenant.tenant_id);
        let retry = tokio::spawn(async move {
            let all = RetryRequest::default();
            store.retry(tenant_id, &id("a"), &all, telling(Duration::ZERO)).await.unwrap().unwrap()
        });
        waiting(world, 1).await;
        let failed = end(&one, Status::Failed, Some("x"));
        assert_eq!(world.store.settle(tenant_id, &[failed], telling(Duration::ZERO)).await.unwrap().len(), 1);
        holder.rollback().await.unwrap();
        assert_eq!(retry.await.unwrap().did.retried.len(), 1);
        let reasons = "SELECT string_agg(reason, ',' ORDER BY at) FROM transitions";
        assert_eq!(world.text(reasons).await, "claimed,test,retried_by_caller");
    })
    .await;
}

#[tokio::test]
async fn a_cancel_that_meets_an_account_being_added_cancels_it_too() {
    in_world(async |world: &World| {
        world.accept(&[world.new_task("a", ONE)]).await;
        // The account is added, but not yet counted.
        let keeper = gate(world, "tasks").await;
        let (store, tenant_id) = (world.store.clone(), world.tenant.tenant_id);
        let add = tokio::spawn(async move {
            let more = AccountKey::new("static_site", "blog2").unwrap();
            store.add_accounts(tenant_id, &id("a"), &[more]).await.unwrap().unwrap();
        });
        waiting(world, 1).await;
        let cancel = cancelling(world);
        waiting(world, 2).await;
        keeper.rollback().await.unwrap();
        add.await.unwrap();
        assert_eq!(cancel.await.unwrap().did.cancelled.len(), 2);
        assert!(world.claim("w").await.is_empty());
    })
    .await;
}

/// One of those who work on the same tasks at once.
async fn work(store: &Store, tenant_id: Uuid, who: usize, turn: usize) -> Result<(), StoreError> {
    let telling = telling(Duration::ZERO);
    // Neighbours of one task meet, and each is met by all.
    let external_id = id(&format!("post-{}", (turn * 7 + who * 3) % TASKS));
    match who % 4 {
        0 | 1 => {
            let claimed = store.claim(tenant_id, &limits(&format!("w{who}"))).await?;
            let ends = claimed.iter().enumerate().map(|(n, one)| match (n + turn) % 4 {
                0 => end(one, Status::LoginExpired, Some("login_expired")),
                1 => end(one, Status::Submitted, Some("site_unwritable")),
                2 => end(one, Status::Failed, Some("outcome_unknown")),
                _ => end(one, Status::Failed, Some("rejected")),
            });
            store.settle(tenant_id, &ends.collect::<Vec<_>>(), telling).await?;
        }
        2 => {
            let _ = store.cancel(tenant_id, &external_id, telling).await?;
            let more = ["many0", "many1", "late"].map(|name| AccountKey::new("static_site", name).unwrap());
            let _ = store.add_accounts(tenant_id, &external_id, &more).await?;
        }
        _ => {
            let _ = store.retry(tenant_id, &external_id, &RetryRequest::default(), telling).await?;
            store.expire_due(tenant_id, telling).await?;
            store.resume(tenant_id, telling).await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn an_account_that_is_added_and_at_once_claimed_is_in_flight() {
    in_world(async |world: &World| {
        world.accept(&[world.new_task("a", ONE)]).await;
        let mut adder = world.pool.begin().await.unwrap();
        sqlx::raw_sql(
            "SELECT FROM publications FOR UPDATE;
            INSERT INTO publications (tenant_id, publication_id, task_id, platform, account_id, position, status, due_at,
                updated_at)
            SELECT tenant_id, gen_random_uuid(), task_id, platform, 'blog2', 2, status, due_at, updated_at
            FROM publications;
            UPDATE tasks SET open = open + 1",
        )
        .execute(&mut *adder)
        .await
        .unwrap();
        // Takes it in the moment in which it is there, which a plain claim would have to be lucky for.
        let mut claim = world.pool.begin().await.unwrap();
        let claim = tokio::spawn(async move {
            let take = "INSERT INTO publications (tenant_id, publication_id, task_id, platform, account_id, position, status,
                    due_at, updated_at)
                SELECT tenant_id, gen_random_uuid(), task_id, platform, 'blog2', 2, status, due_at, updated_at
                FROM publications
                ON CONFLICT (tenant_id, task_id, platform, account_id) DO UPDATE SET status = 'running', fence = 1,
                    lease_owner = 'w', lease_until = now() + interval '1 hour', updated_at = now()";
            sqlx::query(take).execute(&mut *claim).await.unwrap();
            sqlx::query("UPDATE lanes SET in_flight = 1 WHERE account_id = 'blog2'").execute(&mut *claim).await.unwrap();
            claim
        });
        waiting(world, 1).await;
        let cancel = cancelling(world);
        waiting(world, 2).await;
        adder.commit().await.unwrap();
        let claim = claim.await.unwrap();
        waiting(world, 1).await;
        claim.commit().await.unwrap();
        let did = cancel.await.unwrap().did;
        assert_eq!((did.cancelled.len(), did.in_flight.len()), (1, 1));
        assert_eq!(did.in_flight[0].account_id(), "blog2");
    })
    .await;
}

/// Sends new credentials of one account, as its owner does, which renews its login where it has expired.
async fn renew(store: &Store, vault: &Vault, tenant_id: Uuid, name: &str) -> Result<(), StoreError> {
    let key = AccountKey::new("static_site", name).unwrap();
    let credentials = Some(Credentials::new(json!({})));
    let input = AccountInput { credentials, max_in_flight: MANY_IN_FLIGHT, ..account_input(name) };
    let put = store.put_account(tenant_id, &key, &input, vault, Terms::NONE).await?;
    assert!(matches!(put, AccountPut::Done(..)), "{put:?}");
    Ok(())
}

/// Enough that a claim takes more than one of an account.
const MANY_IN_FLIGHT: i32 = 8;

const TASKS: usize = 12;

#[tokio::test]
async fn eight_at_once_claim_settle_cancel_retry_and_resume_without_a_deadlock() {
    const TURNS: usize = 300;
    in_world(async |world: &World| {
        let tenant_id = world.tenant.tenant_id;
        let names = (0..5).map(|n| format!("many{n}")).collect::<Vec<_>>();
        for name in names.iter().map(String::as_str).chain(["late"]) {
            world.account(tenant_id, name, MANY_IN_FLIGHT, TimeDelta::zero()).await;
        }
        world.group(tenant_id, "many", &names.iter().map(String::as_str).collect::<Vec<_>>()).await;
        world
            .accept(&(0..TASKS).map(|n| world.new_task(&format!("post-{n}"), "many")).collect::<Vec<_>>())
            .await;
        let errors = at_once((0..8).map(|who| {
            let (store, vault) = (world.store.clone(), world.vault.clone());
            async move {
                let mut results = Vec::new();
                for turn in 0..TURNS {
                    results.push(work(&store, tenant_id, who, turn).await);
                    if who == 3 && turn % 2 == 0 {
                        results
                            .push(renew(&store, &vault, tenant_id, &format!("many{}", turn / 2 % 5)).await);
                    }
                }
                results.into_iter().filter_map(Result::err).map(|error| error.to_string()).collect::<Vec<_>>()
            }
        }))
        .await;
        let errors = errors.into_iter().flatten().collect::<Vec<_>>();
        assert!(errors.is_empty(), "{} errors, such as {}", errors.len(), errors[0]);
        let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
        assert_eq!(world.number(deadlocks).await, 0);
        // They were in each other's way: each kind of move was made.
        for reason in [
            "claimed",
            "cancelled_by_caller",
            "retried_by_caller",
            "added_by_caller",
            "login_renewed",
            "account_login_expired",
            "test",
        ] {
            let made: i64 = sqlx::query_scalar("SELECT count(*) FROM transitions WHERE reason = $1")
                .bind(reason)
                .fetch_one(&world.pool)
                .await
                .unwrap();
            assert!(made > 0, "{reason}");
        }
    })
    .await;
}

/// The one who waits longest is answered, and not with a fault of ours.
#[tokio::test]
async fn an_action_that_waits_too_long_is_answered_as_unavailable() {
    in_world(async |world: &World| {
        let api = world.start().await;
        pause(world).await;
        api.publish(&article("a")).await.ok();
        let mut holder = world.pool.begin().await.unwrap();
        sqlx::query("SELECT FROM publications FOR UPDATE").execute(&mut *holder).await.unwrap();
        let reply = api.act("a", "cancel", &json!({})).await;
        reply.problem(503, "unavailable");
        assert!(reply.header("retry-after").is_some());
        holder.rollback().await.unwrap();
        assert_eq!(api.act("a", "cancel", &json!({})).await.ok()["cancelled"].as_array().unwrap().len(), 1);
    })
    .await;
}
