//! How fast a tenant may ask: by the bucket of each node, before anything of the request is read.

use std::time::Instant;

use publish_ingest::clock::Clock as _;
use publish_ingest::store::LimitsSet;
use publish_ingest::tenant::Scope;
use publish_ingest::tenant::limits::LimitsChange;

use crate::harness::{Api, Reply, World, in_world};

async fn set(world: &World, rate: Option<u32>, burst: Option<u32>) {
    let change = LimitsChange { per_second: Some(rate), burst, ..LimitsChange::default() };
    let set = world.store.set_limits("acme", &change).await.unwrap();
    assert!(matches!(set, LimitsSet::Done(_)), "{set:?}");
    world.advance(5);
}

/// Asks until it is refused; returns how often it was let in, and the refusal.
async fn ask(api: &Api) -> (u64, Reply) {
    for passed in 0.. {
        // A body that cannot be read: the rate comes before it.
        let reply = api.send(api.publishing("{")).await;
        if reply.status == 429 {
            return (passed, reply);
        }
        reply.problem(400, "invalid_json");
        assert!(reply.header("ratelimit").unwrap().starts_with("\"requests\";r="), "{reply:?}");
        assert_eq!(reply.header("retry-after"), None);
        assert!(passed < 1_000, "never refused");
    }
    unreachable!()
}

/// What may have come back meanwhile, at one a second.
fn since(world: &World, begun: Instant) -> u64 {
    (world.clock.instant() - begun).as_secs() + 1
}

#[tokio::test]
async fn a_tenant_asks_as_fast_as_its_bucket_lets_it_and_others_do_not_feel_it() {
    in_world(async |world: &World| {
        let (api, node) = (world.start().await, world.start().await);
        let other = world.another_tenant("other").await;
        let theirs = api.with_key(&world.key(other.tenant_id, &Scope::ALL).await);
        let without = api.get("/groups").await;
        assert!(without.status == 200 && without.header("ratelimit").is_none());

        set(world, Some(1), Some(4)).await;
        let begun = world.clock.instant();
        let first = api.get("/groups").await;
        first.ok();
        assert_eq!(first.header("ratelimit-policy"), Some("\"requests\";q=4;w=4"));
        assert_eq!(first.header("ratelimit"), Some("\"requests\";r=3;t=1"));
        let (passed, refused) = ask(&api).await;
        assert!((3..=3 + since(world, begun)).contains(&passed), "{passed}");
        let problem = refused.problem(429, "rate_limited");
        assert!(problem["detail"].as_str().unwrap().contains("1 requests a second"), "{problem}");
        assert_eq!(refused.header("retry-after"), Some("1"));
        assert!(refused.header("ratelimit").unwrap().starts_with("\"requests\";r=0;t="), "{refused:?}");
        assert_eq!(refused.header("ratelimit-policy"), Some("\"requests\";q=4;w=4"));
        // Another key of the tenant has the same bucket, another tenant none, and another node one of its own.
        let second = api.with_key(&world.key(world.tenant.tenant_id, &Scope::ALL).await);
        let (passed, _) = ask(&second).await;
        assert!(passed <= since(world, begun), "{passed}");
        assert!(theirs.get("/groups").await.header("ratelimit").is_none());
        let begun = world.clock.instant();
        let (passed, _) = ask(&node).await;
        assert!((4..=4 + since(world, begun)).contains(&passed), "{passed}");

        // It comes back by the rate, and no more than the burst.
        for (seconds, back) in [(2, 2), (3_600, 4)] {
            let begun = world.clock.instant();
            ask(&api).await;
            world.advance(seconds);
            let (passed, _) = ask(&api).await;
            assert!((back..=back + since(world, begun)).contains(&passed), "{passed} of {back}");
        }
        set(world, None, None).await;
        for _ in 0..20 {
            assert!(api.get("/groups").await.header("ratelimit").is_none());
        }
    })
    .await;
}
