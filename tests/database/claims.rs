//! Claiming: who gets what, when, and how much of it.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::TimeDelta;
use publish_ingest::clock::Clock;
use publish_ingest::store::{CLAIM_DUE, Claimed, Due, Move, Queue, Store, StoreError};
use publish_ingest::task::state::Status;
use publish_ingest::telemetry::metrics::Metrics;
use publish_ingest::turns::{REST, TakesTurns, Turn, Turns, Wake};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::harness::{BOTH, ONE, World, at_once, in_world, limits, within};

/// An outcome for what was claimed.
pub(crate) fn success(one: &Claimed) -> Move {
    Move {
        url: Some(format!("https://site.example/{}", one.publication_id)),
        remote_id: Some(one.publication_id.to_string()),
        reason: "published",
        outcome: Some("done"),
        ..Move::new(one.tenant_id, (one.publication_id, one.fence), (Status::Running, Status::Success))
    }
}

async fn accept_many(world: &World, tenant_id: Uuid, group: &str, count: usize) {
    let tasks = (0..count).map(|n| {
        let mut task = world.new_task(&format!("post-{n:05}"), group);
        task.tenant_id = tenant_id;
        task
    });
    world.accept(&tasks.collect::<Vec<_>>()).await;
}

#[tokio::test]
async fn many_claimers_at_once_never_exceed_a_lane_and_never_share_a_publication() {
    const ARTICLES: usize = 60;
    const CLAIMERS: usize = 8;
    const LANE: i64 = 3;
    in_world(async |world: &World| {
        let tenant_id = world.tenant.tenant_id;
        world.account(tenant_id, "blog1", i32::try_from(LANE).unwrap(), TimeDelta::zero()).await;
        accept_many(world, tenant_id, ONE, ARTICLES).await;
        // A claim that takes its time meets others on its way.
        world
            .execute(
                "CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS
                    $$ BEGIN PERFORM pg_sleep(0.002); RETURN NEW; END $$;
                CREATE TRIGGER dawdle BEFORE UPDATE ON publications FOR EACH ROW EXECUTE FUNCTION dawdle();
                CREATE TRIGGER dawdle BEFORE UPDATE ON lanes FOR EACH ROW EXECUTE FUNCTION dawdle()",
            )
            .await;
        let settler = world.settler();
        let left = Arc::new(Mutex::new(ARTICLES));
        let claims = at_once((0..CLAIMERS).map(|claimer| {
            let (store, pool, settler, left) =
                (world.store.clone(), world.pool.clone(), settler.clone(), left.clone());
            async move {
                let mut mine = Vec::new();
                while *left.lock().unwrap() > 0 {
                    let claimed = store.claim(tenant_id, &limits(&format!("w{claimer}"))).await.unwrap();
                    let running: i64 =
                        sqlx::query_scalar("SELECT count(*) FROM publications WHERE status = 'running'")
                            .fetch_one(&pool)
                            .await
                            .unwrap();
                    assert!(running <= LANE, "{running} run on a lane of {LANE}");
                    for one in claimed {
                        assert!(settler.settle(success(&one)).await);
                        *left.lock().unwrap() -= 1;
                        mine.push(one.publication_id);
                    }
                }
                mine
            }
        }))
        .await;
        let claims = claims.into_iter().flatten().collect::<Vec<_>>();
        assert_eq!((claims.len(), claims.iter().collect::<HashSet<_>>().len()), (ARTICLES, ARTICLES));
        assert_eq!(world.number("SELECT max(fence)::bigint FROM publications").await, 1);
    })
    .await;
}

#[tokio::test]
async fn a_claim_waits_for_nobody_who_is_claiming() {
    in_world(async |world: &World| {
        accept_many(world, world.tenant.tenant_id, BOTH, 2).await;
        let mut other = world.pool.begin().await.unwrap();
        let lock = "SELECT FROM lanes WHERE account_id = 'blog1' FOR NO KEY UPDATE";
        sqlx::query(lock).execute(&mut *other).await.unwrap();
        let claimed = world.claim("w").await;
        assert!(claimed.iter().all(|one| one.account_id == "blog2") && claimed.len() == 2, "{claimed:?}");
        other.rollback().await.unwrap();
        assert_eq!(world.claim("w").await.len(), 2);
    })
    .await;
}

#[tokio::test]
async fn a_full_lane_holds_up_no_other_account() {
    in_world(async |world: &World| {
        let tenant_id = world.tenant.tenant_id;
        world.account(tenant_id, "blog1", 1, TimeDelta::zero()).await;
        accept_many(world, tenant_id, BOTH, 6).await;
        let accounts = |claimed: Vec<Claimed>| {
            let ones = claimed.iter().filter(|one| one.account_id == "blog1").count();
            (ones, claimed.len() - ones)
        };
        assert_eq!(accounts(world.claim("w").await), (1, 4));
        assert_eq!(accounts(world.claim("w").await), (0, 0));
    })
    .await;
}

#[tokio::test]
async fn starts_of_a_paced_account_keep_their_distance() {
    in_world(async |world: &World| {
        let tenant_id = world.tenant.tenant_id;
        // Within a lease, so that what was claimed stays with its holder.
        world.account(tenant_id, "blog1", 10, TimeDelta::seconds(20)).await;
        accept_many(world, tenant_id, ONE, 3).await;
        assert_eq!(world.claim("w").await.len(), 1);
        assert_eq!(world.claim("w").await.len(), 0);
        world.advance(15);
        assert_eq!(world.claim("w").await.len(), 0);
        world.advance(6);
        assert_eq!(world.claim("w").await.len(), 1);
        assert_eq!(world.claim("w").await.len(), 0);
    })
    .await;
}

#[tokio::test]
async fn nothing_is_claimed_before_it_is_due_and_the_longest_due_goes_first() {
    in_world(async |world: &World| {
        let tenant_id = world.tenant.tenant_id;
        world.account(tenant_id, "blog1", 1, TimeDelta::zero()).await;
        let mut later = world.new_task("later", ONE);
        later.publish_at = Some(world.clock.now() + TimeDelta::hours(2));
        let mut soon = world.new_task("soon", ONE);
        soon.publish_at = Some(world.clock.now() + TimeDelta::hours(1));
        world.accept(&[later, soon]).await;
        world.advance(3590);
        assert!(world.claim("w").await.is_empty());
        assert!(world.due().await.is_empty());
        world.advance(3700);
        assert_eq!(world.due().await, [tenant_id]);
        assert_eq!(world.claim("w").await[0].external_id, "soon");
    })
    .await;
}

#[tokio::test]
async fn what_is_due_is_found_behind_more_of_another_account_than_a_claim_takes() {
    const MANY: usize = 150;
    in_world(async |world: &World| {
        let tenant_id = world.tenant.tenant_id;
        world.account(tenant_id, "blog2", i32::try_from(MANY).unwrap(), TimeDelta::zero()).await;
        world.group(tenant_id, "two", &["blog2"]).await;
        let settler = world.settler();
        let awaits = |one: &Claimed, wait| Move {
            wait: Some(wait),
            ..Move::new(one.tenant_id, (one.publication_id, one.fence), (Status::Running, Status::Running))
        };
        let asked_of_platforms = async |count: usize, wait| {
            let mut claimed = 0;
            for _ in 0..3 {
                for one in world.claim("w").await {
                    assert!(settler.settle(awaits(&one, wait)).await);
                    claimed += 1;
                }
            }
            assert_eq!(claimed, count);
        };
        accept_many(world, tenant_id, "two", MANY).await;
        asked_of_platforms(MANY, TimeDelta::minutes(60)).await;
        world.accept(&[world.new_task("asked", ONE)]).await;
        asked_of_platforms(1, TimeDelta::minutes(61)).await;
        world.execute("UPDATE lanes SET free_at = 'infinity' WHERE account_id = 'blog2'").await;
        world.advance(2 * 3600);
        assert_eq!(world.claim("w").await.iter().map(|one| &one.external_id).collect::<Vec<_>>(), ["asked"]);
        let waiting = (0..MANY).map(|n| world.new_task(&format!("waiting-{n}"), "two"));
        world.accept(&waiting.collect::<Vec<_>>()).await;
        world.accept(&[world.new_task("new", ONE)]).await;
        assert_eq!(world.claim("w").await.iter().map(|one| &one.external_id).collect::<Vec<_>>(), ["new"]);
    })
    .await;
}

/// Claims, and notes whose turn it was.
struct Noting {
    store: Store,
    turns: Mutex<Vec<(Uuid, usize)>>,
    enough: usize,
    stop: CancellationToken,
}

impl TakesTurns for Noting {
    async fn take_turn(self: &Arc<Self>, due: &Due, _: OwnedSemaphorePermit) -> Result<Turn, StoreError> {
        let claimed = self.store.claim(due.tenant_id, &limits("w")).await?.len();
        let mut turns = self.turns.lock().unwrap();
        turns.push((due.tenant_id, claimed));
        if turns.len() == self.enough {
            self.stop.cancel();
        }
        Ok(Turn { taken: claimed, rest: REST })
    }
}

#[tokio::test]
async fn a_tenant_with_thousands_of_articles_keeps_nobody_waiting() {
    in_world(async |world: &World| {
        let busy = world.tenant.tenant_id;
        world.account(busy, "blog1", 10_000, TimeDelta::zero()).await;
        accept_many(world, busy, ONE, 5_000).await;
        let small = world.another_tenant("small").await.tenant_id;
        world.account(small, "blog1", 10_000, TimeDelta::zero()).await;
        accept_many(world, small, ONE, CLAIM_DUE + 2).await;
        let stop = CancellationToken::new();
        let noting =
            Noting { store: world.store.clone(), turns: Mutex::default(), enough: 6, stop: stop.clone() };
        let noting = Arc::new(noting);
        let turns = Turns {
            store: world.store.clone(),
            queue: Queue::Publications,
            wake: Wake::default(),
            poll: Duration::from_millis(800),
            slots: Arc::new(Semaphore::new(512)),
            metrics: Metrics::new(),
            clock: world.shared_clock(),
            stop,
        };
        within("the walk", turns.walk(noting.clone())).await;
        let turns = noting.turns.lock().unwrap();
        // Each lap gives each one claim; the small one is done in two laps.
        assert_eq!(turns[..4], [(busy, CLAIM_DUE), (small, CLAIM_DUE), (busy, CLAIM_DUE), (small, 2)]);
        assert!(turns[4..].iter().all(|turn| *turn == (busy, CLAIM_DUE)), "{turns:?}");
    })
    .await;
}
