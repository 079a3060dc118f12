//! Renewing a login: what goes on, what is left, and which version of the credentials that is said of.

use std::time::Duration;

use publish_ingest::account::{AccountInput, AccountKey, Credentials};
use publish_ingest::store::{AccountPut, Claimed, Move, Renewal};
use publish_ingest::task::settle::telling;
use publish_ingest::task::state::Status;
use serde_json::json;
use sqlx::Executor as _;

use crate::claims::success;
use crate::harness::{ONE, World, account_input, at_once, in_world};

fn expired(one: &Claimed) -> Move {
    Move {
        to: Status::LoginExpired,
        url: None,
        remote_id: None,
        error: Some(("login_expired".to_owned(), "renew the login".to_owned(), true)),
        reason: "login_expired",
        outcome: Some("login_expired"),
        ..success(one)
    }
}

/// Articles of `blog1` that found its login expired, under the present version of its credentials.
async fn wait_for_login(world: &World, ids: &[&str]) {
    world.execute("UPDATE lanes SET login_state = 'active' WHERE account_id = 'blog1'").await;
    world.accept(&ids.iter().map(|id| world.new_task(id, ONE)).collect::<Vec<_>>()).await;
    let settler = world.settler();
    let claimed = world.claim("w").await;
    assert_eq!(claimed.len(), ids.len());
    for one in &claimed {
        assert!(settler.settle(expired(one)).await);
        sqlx::query(
            "UPDATE publications SET credentials_version = (
                SELECT credentials_version FROM lanes WHERE account_id = 'blog1') WHERE publication_id = $1",
        )
        .bind(one.publication_id)
        .execute(&world.pool)
        .await
        .unwrap();
    }
    world.execute("UPDATE lanes SET login_state = 'login_expired' WHERE account_id = 'blog1'").await;
}

async fn put(world: &World, sends_credentials: bool, resume: bool) -> Renewal {
    let credentials = sends_credentials.then(|| Credentials::new(json!({})));
    let input = AccountInput { credentials, resume, ..account_input("blog1") };
    match world.put_account(world.tenant.tenant_id, "static_site", "blog1", &input).await {
        AccountPut::Done(_, renewal) => renewal,
        other => panic!("{other:?}"),
    }
}

/// The lane's login, its version, what was declined, and since when it resumes, in days back from now.
async fn lane(world: &World) -> String {
    let text: String = sqlx::query_scalar(
        "SELECT concat_ws(' ', login_state, credentials_version, declined_version,
            coalesce(round(extract(epoch FROM now() + $1 - resume_from) / 86400)::text, '-'))
        FROM lanes WHERE account_id = 'blog1'",
    )
    .bind(publish_ingest::clock::Clock::skew(&*world.clock))
    .fetch_one(&world.pool)
    .await
    .unwrap();
    text
}

const fn renewed(resumed: i64, left: i64) -> Renewal {
    Renewal { renewed: true, resumed, left }
}

const NOTHING: Renewal = Renewal { renewed: false, resumed: 0, left: 0 };

const DAY: i64 = 24 * 60 * 60;

#[tokio::test]
async fn what_has_waited_for_a_week_goes_on_and_what_has_waited_longer_is_left() {
    in_world(async |world: &World| {
        wait_for_login(world, &["a", "b"]).await;
        world.advance(60);
        wait_for_login(world, &["c"]).await;
        world.advance(5 * DAY);
        wait_for_login(world, &["d", "e"]).await;
        // The third has waited for a week less half a minute, the first two for half a minute more.
        world.advance(2 * DAY - 30);
        assert_eq!(put(world, true, true).await, renewed(3, 2));
        assert_eq!(lane(world).await, "active 2 0 7");
        // Once renewed, there is nothing to renew.
        assert_eq!(put(world, true, true).await, NOTHING);
        assert_eq!(lane(world).await, "active 3 0 7");
    })
    .await;
}

#[tokio::test]
async fn what_a_renewal_declines_stays_declined() {
    in_world(async |world: &World| {
        wait_for_login(world, &["a", "b"]).await;
        assert_eq!(put(world, false, true).await, NOTHING);
        assert_eq!(lane(world).await, "login_expired 1 0 -");
        assert_eq!(put(world, true, false).await, renewed(0, 2));
        assert_eq!(lane(world).await, "active 2 1 -");
        wait_for_login(world, &["c"]).await;
        assert_eq!(put(world, true, true).await, renewed(1, 2));
        assert_eq!(lane(world).await, "active 3 1 7");
        // Declining ends what was being resumed.
        world.execute("UPDATE lanes SET login_state = 'login_expired' WHERE account_id = 'blog1'").await;
        assert_eq!(put(world, true, false).await, renewed(0, 3));
        assert_eq!(lane(world).await, "active 4 3 -");
    })
    .await;
}

#[tokio::test]
async fn the_api_says_what_goes_on_and_what_is_left() {
    in_world(async |world: &World| {
        wait_for_login(world, &["a", "b"]).await;
        let api = world.start().await;
        let path = "/accounts/static_site/blog1";
        assert_eq!(api.get(path).await.ok()["login_state"], "login_expired");
        let body = json!({"settings": {"site": "blog1"}, "credentials": {}, "resume": false});
        let put = api.put(path, &body).await.ok();
        assert_eq!(
            (&put["resumed"], &put["left"], &put["login_state"]),
            (&json!(0), &json!(2), &json!("active"))
        );
        let put = api.put(path, &body).await.ok();
        assert_eq!((&put["resumed"], &put["left"]), (&json!(0), &json!(0)));
        let body = api.delete(path).await.problem(409, "conflict");
        assert!(body["detail"].as_str().unwrap().contains("2 login_expired;"), "{body}");
    })
    .await;
}

#[tokio::test]
async fn each_renewal_is_a_version_of_its_own_in_both_places() {
    const RENEWALS: usize = 12;
    in_world(async |world: &World| {
        let tenant_id = world.tenant.tenant_id;
        let key = AccountKey::new("static_site", "blog1").unwrap();
        at_once((0..RENEWALS).map(|n| {
            let (store, vault, key) = (world.store.clone(), world.vault.clone(), key.clone());
            let credentials = Some(Credentials::new(json!({"n": n})));
            let input = AccountInput { credentials, ..account_input("blog1") };
            async move {
                let terms = publish_ingest::store::Terms::NONE;
                store.put_account(tenant_id, &key, &input, &vault, terms).await.unwrap();
            }
        }))
        .await;
        assert_eq!(lane(world).await, format!("active {} 0 -", RENEWALS + 1));
    })
    .await;
}

#[tokio::test]
async fn a_renewal_beside_a_late_expiry_leaves_nothing_waiting_for_ever() {
    in_world(async |world: &World| {
        let tenant_id = world.tenant.tenant_id;
        world.accept(&[world.new_task("a", ONE)]).await;
        let one = world.claim("w").await.remove(0);
        // A renewal just before, of whose waiting ones none is left.
        world
            .execute("UPDATE lanes SET resume_from = now() - interval '7 days' WHERE account_id = 'blog1'")
            .await;
        // The expiry holds the lane, and waits for the feed; the renewal waits for the lane.
        let mut feed = world.pool.begin().await.unwrap();
        feed.execute("SELECT position FROM feeds FOR UPDATE").await.unwrap();
        let blocked = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
            AND wait_event_type = 'Lock'";
        let renewing = async {
            world.until(blocked, 1).await;
            put(world, true, true).await
        };
        let resuming = async {
            world.until(blocked, 2).await;
            world.store.resume(tenant_id, telling(Duration::ZERO)).await.unwrap()
        };
        let releasing = async {
            world.until(blocked, 3).await;
            feed.commit().await.unwrap();
        };
        let settler = world.settler();
        let (settled, renewal, resumed, ()) =
            tokio::join!(settler.settle(expired(&one)), renewing, resuming, releasing);
        assert!(settled);
        assert_eq!((renewal.resumed, resumed), (1, 0));
        assert_eq!(world.number("SELECT count(*) FROM lanes WHERE resume_from IS NOT NULL").await, 1);
        assert_eq!(world.store.resume(tenant_id, telling(Duration::ZERO)).await.unwrap(), 1);
    })
    .await;
}
