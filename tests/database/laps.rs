//! The walk by which old contents are found: what it has passed is met again, whatever its id says.

use chrono::TimeDelta;
use publish_ingest::clock::Clock as _;
use publish_ingest::retention::keep::Keep;
use publish_ingest::task::state::Status;
use uuid::Uuid;

use crate::claims::success;
use crate::harness::{ONE, World, in_world};
use crate::leases::{entry, note};
use crate::retention::{DAY, OLD, claimed, ends, pass, published, with_content};

/// An id as a node makes it whose clock is wrong by that many days.
fn id_off_by(world: &World, days: i64) -> Uuid {
    world.advance(days * DAY);
    let id = world.clock.new_id();
    world.advance(-days * DAY);
    id
}

#[tokio::test]
async fn what_a_node_accepted_whose_clock_is_slow_goes_as_well() {
    in_world(async |world: &World| {
        published(world, &["first"], None).await;
        world.advance(OLD);
        assert_eq!(pass(world).await, [1, 1, 0, 0]);
        // By its id it was there before all that the walk has passed.
        let mut late = world.new_task("late", ONE);
        late.task_id = id_off_by(world, -200);
        world.accept(&[late]).await;
        let one = world.claim("w").await.remove(0);
        assert!(note(&world.store, entry(&one, "m")).await && world.settler().settle(success(&one)).await);
        // It goes by its end, and not by its id.
        world.advance(89 * DAY);
        assert_eq!(pass(world).await, [0, 0, 0, 0]);
        assert_eq!(with_content(world).await, "late");
        world.advance(DAY + 1);
        assert_eq!(pass(world).await, [1, 1, 0, 0]);
        assert_eq!(with_content(world).await, "");
    })
    .await;
}

#[tokio::test]
async fn a_walk_that_a_node_led_too_far_whose_clock_is_fast_comes_back() {
    in_world(async |world: &World| {
        published(world, &["a"], None).await;
        assert_eq!(pass(world).await, [0, 0, 0, 0]);
        let far = id_off_by(world, 10_000);
        sqlx::query("UPDATE retentions SET contents_after = $1")
            .bind(far)
            .execute(&world.pool)
            .await
            .unwrap();
        world.advance(OLD);
        assert_eq!(pass(world).await, [1, 1, 0, 0]);
        let after = sqlx::query_scalar::<_, Uuid>("SELECT contents_after FROM retentions");
        assert!(after.fetch_one(&world.pool).await.unwrap() < world.clock.new_id());
    })
    .await;
}

#[tokio::test]
async fn a_walk_that_takes_longer_than_a_day_comes_to_its_end_before_it_begins_anew() {
    in_world(async |world: &World| {
        let tenant_id = world.tenant.tenant_id;
        for name in ["a", "b"] {
            let unknown = claimed(world, name).await;
            world.settler().settle(ends(&unknown, Status::Failed, "outcome_unknown", None)).await;
            world.advance(1);
        }
        published(world, &["c"], None).await;
        world.advance(OLD);
        let mut removed = Vec::new();
        for _ in 0..4 {
            let step = world.store.remove_contents(tenant_id, &Keep::DEFAULT, 1).await.unwrap();
            removed.push(step.removed);
            world.advance(TimeDelta::hours(25).num_seconds());
        }
        assert_eq!(removed, [0, 0, 1, 0]);
        assert_eq!(with_content(world).await, "a b");
    })
    .await;
}
