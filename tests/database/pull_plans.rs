//! What fetching touches, counted as in [`crate::plans`].

use chrono::TimeDelta;
use publish_ingest::store::{HandOut, Handing, Store};
use publish_ingest::task::pull::{PULL_LEASE, PULL_MAX};
use publish_ingest::task::run::CONFIRM_LIMIT;
use publish_ingest::task::settle::telling;
use sqlx::Executor as _;

use crate::harness::{World, in_world};
use crate::plans::{FEW, FINISHED, LIFE, told, touched};

const HANDING: Handing = Handing { lease: PULL_LEASE, limit: CONFIRM_LIMIT };

async fn fetched(world: &World) -> (usize, i64) {
    let tenant_id = world.tenant.tenant_id;
    let accounts = ["blog2".to_owned()];
    touched(world, async |store: &Store| {
        let key = store.marker_key(tenant_id, &world.vault).await.unwrap();
        let asked = ("static_site", &accounts[..]);
        match store.hand_out(tenant_id, asked, 16, HANDING, &key).await.unwrap() {
            HandOut::Jobs(jobs) => jobs.len(),
            HandOut::Unfit(unfit) => panic!("{unfit:?}"),
        }
    })
    .await
}

#[tokio::test]
async fn a_robot_that_fetches_touches_what_it_gets_however_much_waits_and_is_finished() {
    in_world(async |world: &World| {
        let tenant_id = world.tenant.tenant_id;
        let mut connection = world.pool.acquire().await.unwrap();
        connection.execute(FINISHED).await.unwrap();
        world.account(tenant_id, "blog2", 500, TimeDelta::zero()).await;
        world.group(tenant_id, "pulled", &["blog2"]).await;
        let due = (0..3_000).map(|n| world.new_task(&format!("due-{n}"), "pulled")).collect::<Vec<_>>();
        world.accept(&due).await;
        world.execute("UPDATE lanes SET pull = true WHERE account_id = 'blog2'").await;
        world.store.close().await;
        let most = i64::from(PULL_MAX) * LIFE;
        for analyzed in [false, true] {
            if analyzed {
                connection.execute("ANALYZE").await.unwrap();
            }
            told(&mut connection).await;
            let (jobs, buffers) = fetched(world).await;
            assert!(jobs == 16 && buffers < most, "{jobs} fetched: {buffers} buffers, analyzed: {analyzed}");
        }
        // What was left behind is looked for among what is in hand.
        world.advance(301);
        told(&mut connection).await;
        let (jobs, buffers) = fetched(world).await;
        assert!(jobs == 16 && buffers < most, "{jobs} fetched again: {buffers} buffers");
        let (given_up, buffers) = touched(world, async |store: &Store| {
            let end = |_| unreachable!("nothing is a day old");
            store.give_up_pulled(tenant_id, CONFIRM_LIMIT, telling(PULL_LEASE), end).await.unwrap()
        })
        .await;
        assert!(given_up == 0 && buffers < FEW, "nothing given up: {buffers} buffers");
    })
    .await;
}
