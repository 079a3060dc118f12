//! What a key costs: known ones are looked up seldom and stop soon, unknown ones are slowed down by their address.

use std::time::Instant;

use publish_ingest::article::OnDuplicate;
use publish_ingest::callback::signature::Scheme;
use publish_ingest::clock::Clock as _;
use publish_ingest::store::DefaultsChange;
use publish_ingest::tenant::{ApiKey, Scope};
use uuid::Uuid;

use crate::harness::{Api, Reply, World, article, at_once, eventually, in_world};

/// How long a key is known without being looked up, in seconds.
const KNOWN: i64 = 5;

/// How often something unknown is looked up for one address, and again for each second.
const UNKNOWN: u64 = 30;

/// How often a table was looked into by an index, by services that have ended.
async fn looked_up(world: &World, statement: &'static str) -> i64 {
    world.stop().await;
    let alone = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
        AND application_name = 'publish-ingest' AND pid <> pg_backend_pid() AND state <> 'idle'";
    eventually("alone", async || world.number(alone).await == 0).await;
    // What the world's own connections did is told when they are closed.
    world.store.close().await;
    let open = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
        AND application_name = 'publish-ingest'";
    eventually("closed", async || world.number(open).await == 0).await;
    world.number(statement).await
}

const KEYS: &str = "SELECT idx_scan FROM pg_stat_user_tables WHERE relname = 'api_keys'";
const SECRETS: &str = "SELECT idx_scan FROM pg_stat_user_tables WHERE relname = 'signing_secrets'";

/// The most look-ups for one address since then.
fn most(world: &World, begun: Instant) -> i64 {
    i64::try_from(UNKNOWN + (world.clock.instant() - begun).as_secs() + 1).unwrap()
}

fn stranger(world: &World, api: &Api) -> Api {
    let tenant_id = world.tenant.tenant_id;
    api.with_key(ApiKey::generate(tenant_id, &*world.clock).expose())
}

/// The answer of who is slowed down.
#[track_caller]
fn slowed_down(reply: &Reply, policy: &str) {
    reply.problem(429, "rate_limited");
    let wait = reply.header("retry-after").unwrap().parse::<u64>().unwrap();
    assert!((1..=UNKNOWN).contains(&wait), "{wait}");
    assert_eq!(reply.header("ratelimit-policy"), Some(&*format!("\"{policy}\";q=30;w=30")));
    assert!(reply.header("ratelimit").unwrap().starts_with(&format!("\"{policy}\";r=0;t=")));
}

#[tokio::test]
async fn a_key_is_looked_up_once_for_all_who_send_it() {
    in_world(async |world: &World| {
        let api = world.start().await;
        let begun = world.clock.instant();
        for _ in 0..3 {
            let replies = at_once((0..50).map(|_| {
                let api = api.clone();
                async move { api.get("/groups").await }
            }));
            assert!(replies.await.iter().all(|reply| reply.status == 200));
        }
        let again = (world.clock.instant() - begun).as_secs() / u64::try_from(KNOWN).unwrap();
        let most = 1 + i64::try_from(again).unwrap();
        let looked_up = looked_up(world, KEYS).await;
        assert!((1..=most).contains(&looked_up), "{looked_up} look-ups of {most}");
    })
    .await;
}

#[tokio::test]
async fn a_revoked_key_stops_on_every_node_within_5_seconds_and_so_holds_what_is_set() {
    in_world(async |world: &World| {
        let nodes = [world.start().await, world.start().await];
        let keep = world.key(world.tenant.tenant_id, &[Scope::Read]).await;
        let goes = world.key(world.tenant.tenant_id, &[Scope::Read]).await;
        let key_id = world.store.keys().await.unwrap().last().unwrap().key_id;
        for api in &nodes {
            for key in [&keep, &goes] {
                api.with_key(key).get("/groups").await.ok();
            }
            api.publish(&article("a")).await.ok();
        }
        assert!(world.store.revoke_key(key_id).await.unwrap());
        let reject = DefaultsChange { on_duplicate: Some(OnDuplicate::Reject), ..DefaultsChange::default() };
        assert!(world.store.set_defaults("acme", &reject).await.unwrap());
        world.advance(KNOWN);
        for api in &nodes {
            for _ in 0..3 {
                api.with_key(&goes).get("/groups").await.problem(401, "unauthorized");
                api.with_key(&keep).get("/groups").await.ok();
            }
            api.publish(&article("a")).await.problem(409, "duplicate_external_id");
        }
        // A clock that is put back keeps none alive.
        world.advance(-24 * 3_600);
        nodes[0].with_key(&goes).get("/groups").await.problem(401, "unauthorized");
        nodes[0].finished("a").await;
    })
    .await;
}

#[tokio::test]
async fn a_flood_of_wrong_keys_costs_few_look_ups_and_good_keys_go_on() {
    in_world(async |world: &World| {
        let api = world.start().await;
        let fresh = api.with_key(&world.key(world.tenant.tenant_id, &[Scope::Read]).await);
        api.get("/groups").await.ok();
        let begun = world.clock.instant();
        let replies = at_once((0..300).map(|_| {
            let api = stranger(world, &api);
            async move { api.get("/groups").await }
        }))
        .await;
        let refused = replies.iter().filter(|reply| reply.status == 429).collect::<Vec<_>>();
        for reply in &refused {
            slowed_down(reply, "wrong-keys");
        }
        for reply in replies.iter().filter(|reply| reply.status != 429) {
            reply.problem(401, "unauthorized");
        }
        let answered = i64::try_from(replies.len() - refused.len()).unwrap();
        assert!((i64::try_from(UNKNOWN).unwrap()..=most(world, begun)).contains(&answered), "{answered}");
        // A key that was good goes on, also when it has to be looked up again while nothing is left for the address.
        world.advance(KNOWN);
        at_once((0..40).map(|_| {
            let api = stranger(world, &api);
            async move { api.get("/groups").await }
        }))
        .await;
        api.get("/groups").await.ok();
        // What has not the form of a key costs nothing.
        for malformed in ["pik_x", "x", "pik_"] {
            for _ in 0..20 {
                api.with_key(malformed).get("/groups").await.problem(401, "unauthorized");
            }
        }
        // Later, others get in again.
        world.advance(3_600);
        fresh.get("/groups").await.ok();
        stranger(world, &api).get("/groups").await.problem(401, "unauthorized");
        // What came back meanwhile for the address, and the good keys.
        let most = most(world, begun) + KNOWN + 10;
        let looked_up = looked_up(world, KEYS).await;
        assert!(looked_up <= most, "{looked_up} look-ups of {most}");
    })
    .await;
}

/// Clients that were not told of a revocation go on for days.
#[tokio::test]
async fn a_wrong_key_that_is_sent_again_and_again_keeps_nobody_else_out() {
    in_world(async |world: &World| {
        let api = world.start().await;
        let wrong = stranger(world, &api);
        let replies = at_once((0..4 * UNKNOWN).map(|_| {
            let wrong = wrong.clone();
            async move { wrong.get("/groups").await }
        }));
        for reply in replies.await {
            reply.problem(401, "unauthorized");
        }
        let fresh = api.with_key(&world.key(world.tenant.tenant_id, &[Scope::Read]).await);
        fresh.get("/groups").await.ok();
    })
    .await;
}

#[tokio::test]
async fn good_keys_that_come_at_once_after_a_restart_are_all_let_in() {
    in_world(async |world: &World| {
        let api = world.start().await;
        let mut keys = Vec::new();
        for _ in 0..100 {
            keys.push(api.with_key(&world.key(world.tenant.tenant_id, &[Scope::Read]).await));
        }
        let replies = at_once(keys.into_iter().map(|api| async move { api.get("/groups").await })).await;
        assert!(replies.iter().all(|reply| reply.status == 200));
        // None of them is held against the address.
        stranger(world, &api).get("/groups").await.problem(401, "unauthorized");
    })
    .await;
}

#[tokio::test]
async fn a_flood_at_the_public_keys_costs_few_look_ups() {
    in_world(async |world: &World| {
        let tenant_id = world.tenant.tenant_id;
        world.store.set_signatures(tenant_id, &[Scheme::V1a], &world.vault).await.unwrap();
        let api = world.start().await;
        let path = |tenant_id: Uuid| format!("/.well-known/webhooks/{tenant_id}");
        let read = async |tenant_id| api.send(api.without_key(&path(tenant_id))).await;
        read(tenant_id).await.ok();
        let begun = world.clock.instant();
        let strangers = at_once((0..300).map(|_| {
            let (api, path) = (api.clone(), path(world.clock.new_id()));
            async move { api.send(api.without_key(&path)).await }
        }))
        .await;
        let refused = strangers.iter().filter(|reply| reply.status == 429).collect::<Vec<_>>();
        for reply in &refused {
            slowed_down(reply, "no-public-keys");
        }
        for reply in strangers.iter().filter(|reply| reply.status != 429) {
            reply.problem(404, "not_found");
        }
        let answered = i64::try_from(strangers.len() - refused.len()).unwrap();
        assert!((i64::try_from(UNKNOWN).unwrap()..=most(world, begun)).contains(&answered), "{answered}");
        // Those that are there are read on, however often, and wrong keys have a bucket of their own.
        for _ in 0..200 {
            read(tenant_id).await.ok();
        }
        stranger(world, &api).get("/groups").await.problem(401, "unauthorized");
        // Each reads two tables, and those of the tenant are few; so is what the world itself has done.
        let most = most(world, begun) + 30;
        let looked_up = looked_up(world, SECRETS).await;
        assert!(looked_up <= most, "{looked_up} look-ups of {most}");
    })
    .await;
}
