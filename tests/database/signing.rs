//! What signs callbacks, and how it is replaced: promises are kept, and anybody verifies with what is public.

use std::time::Duration;

use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use publish_ingest::callback::signature::{Scheme, SigningKey, SigningSecret};
use publish_ingest::store::{LiveKey, Rotation, SIGNING_KEYS_MAX};
use publish_ingest::tenant::Scope;
use serde_json::{Value, json};

use crate::harness::{Api, World, article_with, at_once, in_world};
use crate::receiver::{Received, Receiver};

/// All that is moved in a test, in seconds: other people's libraries allow a timestamp to be 300 off the machine's clock.
const SOON: u64 = 100;

async fn rotate(world: &World, seconds: u64) -> Rotation {
    let overlap = Duration::from_secs(seconds);
    world.store.rotate_signing_keys(world.tenant.tenant_id, overlap, &world.vault).await.unwrap()
}

/// The present secret after a rotation.
async fn rotated(world: &World, seconds: u64) -> SigningSecret {
    let Rotation::Done(keys) = rotate(world, seconds).await else { panic!("refused") };
    let Some(LiveKey { key: SigningKey::Secret(secret), expires_at: None, .. }) = keys.into_iter().next()
    else {
        panic!("no present secret first")
    };
    secret
}

/// The nth callback of a receiver, brought about by an article of its own.
async fn callback(api: &Api, receiver: &Receiver, n: usize) -> Received {
    let url = json!({"callback_url": receiver.url});
    api.publish(&article_with(&format!("a{n}"), url)).await.ok();
    let got = receiver.first(n).await.remove(n - 1);
    api.tried(&got.header("webhook-id"), 1).await;
    got
}

fn signatures(received: &Received) -> Vec<String> {
    received.header("webhook-signature").split(' ').map(str::to_owned).collect()
}

#[tokio::test]
async fn a_replaced_secret_signs_until_it_was_promised_to_whatever_is_replaced_later() {
    in_world(async |world: &World| {
        let (receiver, api) = (Receiver::start([]).await, world.start().await);
        let by = |received: &Received, secrets: &[&SigningSecret]| {
            secrets.iter().map(|secret| received.is_verified_by(secret)).collect::<Vec<_>>()
        };
        // The service runs all the while.
        let first = &world.secret;
        assert_eq!(by(&callback(&api, &receiver, 1).await, &[first]), [true]);
        let second = rotated(world, SOON).await;
        let both = callback(&api, &receiver, 2).await;
        assert_eq!(by(&both, &[first, &second]), [true, true]);
        assert_eq!(signatures(&both).len(), 2);
        world.advance(40);
        // For longer, and for less: the first ends when it was said to end.
        let third = rotated(world, 2 * SOON).await;
        let fourth = rotated(world, 30).await;
        let all = callback(&api, &receiver, 3).await;
        assert_eq!(by(&all, &[first, &second, &third, &fourth]), [true; 4]);
        world.advance(35);
        let later = callback(&api, &receiver, 4).await;
        assert_eq!(by(&later, &[first, &second, &third, &fourth]), [true, true, false, true]);
        world.advance(30);
        let later = callback(&api, &receiver, 5).await;
        assert_eq!(by(&later, &[first, &second, &third, &fourth]), [false, true, false, true]);
        world.advance(140);
        let last = callback(&api, &receiver, 6).await;
        assert_eq!(by(&last, &[first, &second, &third, &fourth]), [false, false, false, true]);
        assert_eq!(signatures(&last).len(), 1);
        // At once.
        let fifth = rotated(world, 0).await;
        let after = callback(&api, &receiver, 7).await;
        assert_eq!(by(&after, &[&fourth, &fifth]), [false, true]);
        // What has ended is not kept.
        rotated(world, 0).await;
        assert_eq!(world.number("SELECT count(*) FROM signing_secrets").await, 2);
    })
    .await;
}

#[tokio::test]
async fn more_than_a_few_at_once_are_refused_until_one_has_ended() {
    in_world(async |world: &World| {
        let api = world.start().await;
        for _ in 1..SIGNING_KEYS_MAX {
            rotated(world, SOON).await;
            world.advance(1);
        }
        let before =
            world.text("SELECT string_agg(s::text, ',' ORDER BY s::text) FROM signing_secrets s").await;
        assert!(matches!(rotate(world, SOON).await, Rotation::TooMany { .. }));
        let refused = api.post("/signing-secrets/rotate", &json!({})).await.problem(409, "conflict");
        assert!(refused["detail"].as_str().unwrap().contains("rotate again after 20"), "{refused}");
        let after =
            world.text("SELECT string_agg(s::text, ',' ORDER BY s::text) FROM signing_secrets s").await;
        assert_eq!(before, after);
        // One that ends at once is not one more.
        rotated(world, 0).await;
        world.advance(100);
        rotated(world, SOON).await;
    })
    .await;
}

#[tokio::test]
async fn rotations_at_once_leave_one_present_secret_and_keep_every_promise() {
    in_world(async |world: &World| {
        let rotations = (0..4).map(|_| {
            let (store, vault, tenant_id) =
                (world.store.clone(), world.vault.clone(), world.tenant.tenant_id);
            async move { store.rotate_signing_keys(tenant_id, Duration::from_secs(SOON), &vault).await }
        });
        for done in at_once(rotations).await {
            assert!(matches!(done.unwrap(), Rotation::Done(_)));
        }
        let present = "SELECT count(*) FROM signing_secrets WHERE expires_at IS NULL";
        assert_eq!(world.number(present).await, 1);
        assert_eq!(world.number("SELECT count(*) FROM signing_secrets").await, 5);
        // Nor by hand.
        let shorten = "UPDATE signing_secrets SET expires_at = now() WHERE expires_at IS NOT NULL";
        let refused = sqlx::query(shorten).execute(&world.pool).await.unwrap_err().to_string();
        assert!(refused.contains("until the time that was promised"), "{refused}");
    })
    .await;
}

#[tokio::test]
async fn a_tenant_replaces_its_own_secret_over_the_api() {
    in_world(async |world: &World| {
        let other = world.another_tenant("other").await;
        let api = world.start().await;
        for scope in [Scope::Publish, Scope::Read] {
            let api = api.with_key(&world.key(world.tenant.tenant_id, &[scope]).await);
            api.post("/signing-secrets/rotate", &json!({})).await.problem(403, "forbidden");
        }
        api.post("/signing-secrets/rotate", &json!({"overlap": 1})).await.problem(422, "validation_failed");
        let rotated = api.send(api.posting("/signing-secrets/rotate", "")).await;
        assert_eq!(rotated.header("cache-control"), Some("no-store"));
        let secrets = rotated.ok();
        assert_eq!(api.get("/signing-secrets").await.ok(), secrets);
        let listed = secrets["secrets"].as_array().unwrap();
        assert_eq!(listed.len(), 2);
        assert!(listed[0]["expires_at"].is_null() && listed[1]["secret"] == *world.secret.expose());
        let until: chrono::DateTime<chrono::Utc> = listed[1]["expires_at"].as_str().unwrap().parse().unwrap();
        let hours = (until - world.clock_now()).as_seconds_f64() / 3_600.0;
        assert!((23.9..=24.0).contains(&hours), "{secrets}");
        let theirs = world.store.signing_keys(other.tenant_id, &world.vault).await.unwrap();
        assert_eq!(theirs.len(), 1);
    })
    .await;
}

/// Whether one of the signatures is by the key pair, by the public key alone.
fn is_verified_by(received: &Received, public_key: &str) -> bool {
    let key = BASE64_STANDARD.decode(public_key.strip_prefix("whpk_").unwrap()).unwrap();
    let (id, timestamp) = (received.header("webhook-id"), received.header("webhook-timestamp"));
    let message = [format!("{id}.{timestamp}.").as_bytes(), &received.body].concat();
    let key = UnparsedPublicKey::new(&ED25519, key);
    let given = signatures(received);
    let given = given.iter().filter_map(|one| one.strip_prefix("v1a,"));
    given.map(|one| BASE64_STANDARD.decode(one).unwrap()).any(|one| key.verify(&message, &one).is_ok())
}

fn public_keys(document: &Value) -> Vec<String> {
    let keys = document["keys"].as_array().unwrap().iter();
    keys.map(|key| key["public_key"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn key_pairs_sign_beside_secrets_or_alone_and_anybody_reads_the_public_keys() {
    in_world(async |world: &World| {
        let tenant_id = world.tenant.tenant_id;
        let set = async |schemes: &[Scheme]| {
            world.store.set_signatures(tenant_id, schemes, &world.vault).await.unwrap();
        };
        let other = world.another_tenant("other").await;
        let (receiver, api) = (Receiver::start([]).await, world.start().await);
        let path = format!("/.well-known/webhooks/{tenant_id}");
        // What changed is seen after 5 seconds.
        let read = async |path: &str| {
            world.advance(5);
            api.send(api.without_key(path)).await
        };
        // No key pair, no such tenant, no id: nobody is told which.
        let mut none = Vec::new();
        for path in
            [&*path, &format!("/.well-known/webhooks/{}", uuid::Uuid::max()), "/.well-known/webhooks/acme"]
        {
            let mut told = read(path).await.problem(404, "not_found");
            told["request_id"].take();
            none.push(told);
        }
        assert!(none.iter().all(|told| *told == none[0]), "{none:?}");

        set(&[Scheme::V1, Scheme::V1a]).await;
        let document = read(&path).await;
        assert_eq!(document.header("cache-control"), Some("public, max-age=300"));
        let first = public_keys(&document.ok());
        let shown = api.get("/signing-secrets").await.ok();
        assert_eq!(shown["public_keys"], json!([{"public_key": first[0], "expires_at": null}]));
        assert_eq!(shown["public_keys_path"], json!(path));
        let got = callback(&api, &receiver, 1).await;
        got.verify(&world.secret);
        assert!(first.len() == 1 && is_verified_by(&got, &first[0]));
        assert_eq!(signatures(&got).len(), 2);

        let Rotation::Done(keys) = rotate(world, SOON).await else { panic!("refused") };
        assert_eq!(keys.len(), 4);
        let both = public_keys(&read(&path).await.ok());
        assert!(both.len() == 2 && both[1] == first[0], "{both:?}");
        let got = callback(&api, &receiver, 2).await;
        got.verify(&world.secret);
        assert!(both.iter().all(|key| is_verified_by(&got, key)));
        world.advance(101);
        let left = public_keys(&read(&path).await.ok());
        assert_eq!(left, both[..1]);
        let got = callback(&api, &receiver, 3).await;
        assert!(is_verified_by(&got, &left[0]) && !is_verified_by(&got, &both[1]));
        assert!(!got.is_verified_by(&world.secret));

        set(&[Scheme::V1a]).await;
        let got = callback(&api, &receiver, 4).await;
        assert!(is_verified_by(&got, &left[0]) && signatures(&got).len() == 1);
        assert_eq!(api.get("/signing-secrets").await.ok()["secrets"], json!([]));
        set(&[Scheme::V1]).await;
        assert!(signatures(&callback(&api, &receiver, 5).await)[0].starts_with("v1,"));
        read(&path).await.problem(404, "not_found");
        // It comes back as it was.
        set(&[Scheme::V1, Scheme::V1a]).await;
        assert_eq!(public_keys(&read(&path).await.ok()), left);
        // The private key is nowhere, and one scheme's row is not opened as the other's.
        let theirs = world.store.signing_keys(other.tenant_id, &world.vault).await.unwrap();
        assert_eq!(theirs.len(), 1);
        world.execute("DELETE FROM signing_secrets WHERE scheme = 'v1'").await;
        world.execute("UPDATE signing_secrets SET scheme = 'v1'").await;
        let opened = world.store.signing_keys(tenant_id, &world.vault).await;
        assert!(opened.unwrap_err().to_string().contains("another row"));
    })
    .await;
}
