//! Deleting accounts while articles are accepted: one sees the other, in either order.

use publish_ingest::account::{AccountKey, GroupCode, GroupInput};
use publish_ingest::store::{AccountDeleted, Admitted, GroupPut, Unfinished};
use sqlx::PgTransaction;
use uuid::Uuid;

use crate::drafts::waiting;
use crate::harness::{BOTH, LOCK_WAIT, World, in_world, within};

/// A lock that the test holds while what it paused waits for it, longer than statements may wait for each other.
const PAUSE: &str = "CREATE FUNCTION pause() RETURNS trigger LANGUAGE plpgsql SET lock_timeout = '20s' AS
    $$ BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NEW; END $$";

const ACCEPTS: &str =
    "CREATE TRIGGER pause BEFORE INSERT ON publications FOR EACH STATEMENT EXECUTE FUNCTION pause()";

const DELETES: &str = "CREATE TRIGGER pause BEFORE UPDATE OF hidden_at ON accounts FOR EACH ROW
    WHEN (NEW.hidden_at IS NOT NULL) EXECUTE FUNCTION pause()";

/// Has those statements wait until the transaction ends.
async fn paused(world: &World, trigger: &'static str) -> PgTransaction<'static> {
    world.execute(PAUSE).await;
    world.execute(trigger).await;
    let mut held = world.pool.begin().await.unwrap();
    sqlx::query("SELECT pg_advisory_xact_lock(1)").execute(&mut *held).await.unwrap();
    held
}

fn blog2() -> AccountKey {
    AccountKey::new("static_site", "blog2").unwrap()
}

#[tokio::test]
async fn what_is_being_accepted_blocks_a_delete() {
    in_world(async |world: &World| {
        let held = paused(world, ACCEPTS).await;
        let task = world.new_task("a", BOTH);
        let (accepting, store) = (world.store.clone(), world.store.clone());
        let tenant_id = world.tenant.tenant_id;
        let accepted =
            tokio::spawn(async move { accepting.accept(&[&task], Uuid::nil(), LOCK_WAIT).await.unwrap() });
        waiting(world, 1).await;
        let deleted = tokio::spawn(async move { store.delete_account(tenant_id, &blog2()).await.unwrap() });
        waiting(world, 2).await;
        held.rollback().await.unwrap();
        let accepted = within("accepting", accepted).await.unwrap();
        assert!(
            matches!(&accepted[0], Admitted::Created { members, .. } if members.len() == 2),
            "{accepted:?}"
        );
        let submitted = Unfinished { submitted: 1, ..Unfinished::default() };
        assert_eq!(within("deleting", deleted).await.unwrap(), AccountDeleted::Unfinished(submitted));
    })
    .await;
}

#[tokio::test]
async fn what_comes_during_a_delete_sees_the_group_without_the_account() {
    in_world(async |world: &World| {
        let held = paused(world, DELETES).await;
        let task = world.new_task("a", BOTH);
        let (accepting, store) = (world.store.clone(), world.store.clone());
        let (tenant_id, first) = (world.tenant.tenant_id, task.clone());
        let deleted = tokio::spawn(async move { store.delete_account(tenant_id, &blog2()).await.unwrap() });
        waiting(world, 1).await;
        let accepted =
            tokio::spawn(async move { accepting.accept(&[&first], Uuid::nil(), LOCK_WAIT).await.unwrap() });
        waiting(world, 2).await;
        held.rollback().await.unwrap();
        assert_eq!(within("deleting", deleted).await.unwrap(), AccountDeleted::Done);
        // Its snapshot is older than the delete, so it has to ask again.
        let accepted = within("accepting", accepted).await.unwrap();
        assert!(matches!(&accepted[0], Admitted::Unseen), "{accepted:?}");
        let again = world.store.accept(&[&task], Uuid::nil(), LOCK_WAIT).await.unwrap();
        let Admitted::Created { members, .. } = &again[0] else { panic!("{again:?}") };
        assert_eq!(members.iter().map(AccountKey::account_id).collect::<Vec<_>>(), ["blog1"]);
    })
    .await;
}

#[tokio::test]
async fn a_group_without_an_account_hides_nothing_that_is_being_accepted_from_its_delete() {
    in_world(async |world: &World| {
        let held = paused(world, ACCEPTS).await;
        let task = world.new_task("a", BOTH);
        let (accepting, store) = (world.store.clone(), world.store.clone());
        let tenant_id = world.tenant.tenant_id;
        let accepted =
            tokio::spawn(async move { accepting.accept(&[&task], Uuid::nil(), LOCK_WAIT).await.unwrap() });
        waiting(world, 1).await;
        // First out of its group, then deleted: the group holds it no more, the article does.
        let deleted = tokio::spawn(async move {
            let code: GroupCode = BOTH.parse().unwrap();
            let without = GroupInput { title: String::new(), accounts: Vec::new() };
            store.put_group(tenant_id, &code, &without).await.unwrap();
            store.delete_account(tenant_id, &blog2()).await.unwrap()
        });
        waiting(world, 2).await;
        held.rollback().await.unwrap();
        within("accepting", accepted).await.unwrap();
        let submitted = Unfinished { submitted: 1, ..Unfinished::default() };
        assert_eq!(within("deleting", deleted).await.unwrap(), AccountDeleted::Unfinished(submitted));
    })
    .await;
}

#[tokio::test]
async fn a_group_does_not_take_an_account_that_is_being_deleted() {
    in_world(async |world: &World| {
        let held = paused(world, DELETES).await;
        let (store, putting) = (world.store.clone(), world.store.clone());
        let tenant_id = world.tenant.tenant_id;
        let deleted = tokio::spawn(async move { store.delete_account(tenant_id, &blog2()).await.unwrap() });
        waiting(world, 1).await;
        let put = tokio::spawn(async move {
            let group = GroupInput { title: String::new(), accounts: vec![blog2()] };
            putting.put_group(tenant_id, &"late".parse().unwrap(), &group).await.unwrap()
        });
        waiting(world, 2).await;
        held.rollback().await.unwrap();
        assert_eq!(within("deleting", deleted).await.unwrap(), AccountDeleted::Done);
        assert_eq!(within("putting", put).await.unwrap(), GroupPut::UnknownAccounts(vec![0]));
    })
    .await;
}
