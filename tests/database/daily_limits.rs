//! How much an account publishes in a day: exactly its limit, in its own time zone, whoever claims.

use chrono::{DateTime, TimeDelta, Utc};
use publish_ingest::account::{AccountInput, AccountKey};
use publish_ingest::clock::Clock as _;
use publish_ingest::store::{AccountPut, Claimed, Move, Store, Terms};
use publish_ingest::task::act::{Confirmed, RetryRequest};
use publish_ingest::task::settle::telling;
use publish_ingest::task::state::Status;
use serde_json::json;
use uuid::Uuid;

use crate::claims::success;
use crate::harness::{ONE, World, account_input, article_with, at_once, in_world, limits};

/// A zone without summer time, whose midnight is at a quarter past the hour elsewhere.
const ZONE: &str = "Asia/Kathmandu";

async fn limit(world: &World, daily_limit: Option<i32>, time_zone: &'static str) {
    let input = AccountInput { daily_limit, time_zone, ..account_input("blog1") };
    world.put_account(world.tenant.tenant_id, "static_site", "blog1", &input).await;
}

async fn accept(world: &World, name: &str, count: usize) {
    let tasks = (0..count).map(|n| world.new_task(&format!("{name}-{n:03}"), ONE));
    world.accept(&tasks.collect::<Vec<_>>()).await;
}

async fn taken(world: &World) -> i64 {
    world.number("SELECT day_count::bigint FROM lanes WHERE account_id = 'blog1'").await
}

/// How the run of what was claimed ends.
type Outcome = dyn Fn(&Claimed) -> Move;

fn ends(one: &Claimed, to: Status, code: &str) -> Move {
    Move {
        error: Some((code.to_owned(), "no".to_owned(), false)),
        reason: "for the test",
        outcome: Some("rejected"),
        ..Move::new(one.tenant_id, (one.publication_id, one.fence), (Status::Running, to))
    }
}

/// Moves the time to just before the account's next midnight, and says when that is.
async fn late_in_the_evening(world: &World) -> DateTime<Utc> {
    let midnight: DateTime<Utc> = sqlx::query_scalar("SELECT day_end(account_day(NULL, $1, now() + $2), $1)")
        .bind(ZONE)
        .bind(world.clock.skew())
        .fetch_one(&world.pool)
        .await
        .unwrap();
    // A night later, or so little could be left of this one that the lane is not yet free.
    let midnight = midnight + TimeDelta::days(1);
    world.advance((midnight - world.clock_now()).num_seconds() - 60);
    midnight
}

#[tokio::test]
async fn many_claimers_of_two_nodes_take_exactly_the_slots_of_the_day() {
    const ARTICLES: usize = 90;
    const LIMIT: i64 = 12;
    in_world(async |world: &World| {
        let tenant_id = world.tenant.tenant_id;
        limit(world, Some(12), "UTC").await;
        accept(world, "post", ARTICLES).await;
        // A claim that takes its time meets others on its way.
        world
            .execute(
                "CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS
                    $$ BEGIN PERFORM pg_sleep(0.002); RETURN NEW; END $$;
                CREATE TRIGGER dawdle BEFORE UPDATE ON lanes FOR EACH ROW EXECUTE FUNCTION dawdle()",
            )
            .await;
        let other = Store::open(&world.url, 10, world.shared_clock()).unwrap();
        let settler = world.settler();
        at_once((0..8).map(|claimer| {
            let store = if claimer % 2 == 0 { world.store.clone() } else { other.clone() };
            let (pool, settler) = (world.pool.clone(), settler.clone());
            async move {
                let held = "SELECT count(*) FROM publications WHERE status IN ('running', 'success')";
                let public = "SELECT count(*) FROM publications WHERE status = 'success'";
                let ask = async |statement: &'static str| -> i64 {
                    sqlx::query_scalar(statement).fetch_one(&pool).await.unwrap()
                };
                while ask(public).await < LIMIT {
                    for one in store.claim(tenant_id, &limits(&format!("w{claimer}"))).await.unwrap() {
                        let held = ask(held).await;
                        assert!(held <= LIMIT, "{held} of {LIMIT} slots are taken");
                        // Every second fails, and gives its slot back.
                        let fails = one.external_id.ends_with(['1', '3', '5', '7', '9']);
                        let end = if fails { ends(&one, Status::Failed, "rejected") } else { success(&one) };
                        assert!(settler.settle(end).await);
                    }
                }
            }
        }))
        .await;
        other.close().await;
        assert_eq!((taken(world).await, world.claim("w").await.len()), (LIMIT, 0));
        assert_eq!(world.number("SELECT count(*) FROM publications WHERE status = 'success'").await, LIMIT);
        // Each that failed gave its slot to another.
        assert!(world.number("SELECT count(*) FROM publications WHERE status = 'failed'").await > 0);
    })
    .await;
}

#[tokio::test]
async fn a_slot_is_kept_by_what_may_be_public_and_given_back_by_all_else() {
    in_world(async |world: &World| {
        limit(world, Some(100), "UTC").await;
        let settler = world.settler();
        let awaits = |one: &Claimed| Move {
            wait: Some(TimeDelta::hours(1)),
            ..Move::new(one.tenant_id, (one.publication_id, one.fence), (Status::Running, Status::Running))
        };
        let back =
            |one: &Claimed| Move { wait: Some(TimeDelta::hours(1)), ..ends(one, Status::Submitted, "busy") };
        let outcomes: [(&str, &Outcome, i64); 6] = [
            ("success", &success, 1),
            ("outcome_unknown", &|one| ends(one, Status::Failed, "outcome_unknown"), 1),
            ("an answer that is awaited", &awaits, 1),
            ("failed", &|one| ends(one, Status::Failed, "rejected"), 0),
            ("another try", &back, 0),
            ("login_expired", &|one| ends(one, Status::LoginExpired, "login_expired"), 0),
        ];
        let mut kept = 0;
        for (name, outcome, keeps) in outcomes {
            accept(world, name, 1).await;
            let one = world.claim("w").await.remove(0);
            assert_eq!(taken(world).await, kept + 1, "{name}");
            assert!(settler.settle(outcome(&one)).await);
            kept += keeps;
            assert_eq!(taken(world).await, kept, "{name}");
        }
        // What awaits an answer has no lease, and gives its slot back all the same when it has failed.
        let (publication_id, fence): (Uuid, i32) =
            sqlx::query_as("SELECT publication_id, fence FROM publications WHERE status = 'running'")
                .fetch_one(&world.pool)
                .await
                .unwrap();
        let failed = Move {
            error: Some(("bridge_failed".to_owned(), "no".to_owned(), true)),
            outcome: Some("rejected"),
            ..Move::new(world.tenant.tenant_id, (publication_id, fence), (Status::Running, Status::Failed))
        };
        assert!(settler.settle(failed).await);
        assert_eq!(taken(world).await, 2);
        // A person has looked: it was not published. It takes a slot again when it runs again.
        world.execute("UPDATE lanes SET login_state = 'active'").await;
        let id = "outcome_unknown-000".parse().unwrap();
        let request = RetryRequest {
            account: Some(AccountKey::new("static_site", "blog1").unwrap()),
            confirmed: Some(Confirmed::NotPublished),
        };
        let retried = world
            .store
            .retry(world.tenant.tenant_id, &id, &request, telling(std::time::Duration::ZERO))
            .await
            .unwrap();
        assert_eq!(retried.unwrap().did.retried.len(), 1);
        assert_eq!(taken(world).await, 1);
        assert_eq!(world.claim("w").await.len(), 1);
        assert_eq!(taken(world).await, 2);
    })
    .await;
}

#[tokio::test]
async fn a_full_day_ends_at_the_accounts_own_midnight_and_everyone_knows_when() {
    in_world(async |world: &World| {
        let tenant_id = world.tenant.tenant_id;
        limit(world, Some(1), ZONE).await;
        let midnight = late_in_the_evening(world).await;
        accept(world, "post", 3).await;
        let settler = world.settler();
        for one in world.claim("w").await {
            assert!(settler.settle(success(&one)).await);
        }
        assert_eq!((taken(world).await, world.claim("w").await.len()), (1, 0));
        let wait = world.store.next_free(tenant_id, std::time::Duration::ZERO).await.unwrap().unwrap();
        assert!((wait - (midnight - world.clock_now())).abs() < TimeDelta::seconds(5), "{wait}");
        let api = world.start().await;
        let account = api.get("/accounts/static_site/blog1").await.ok();
        let told = api.post("/publish/check", &article_with("new", json!({}))).await.ok();
        for at in [&account["parked_until"], &told["accounts"][0]["earliest_at"]] {
            assert_eq!(DateTime::parse_from_rfc3339(at.as_str().unwrap()).unwrap(), midnight);
        }
        world.stop().await;
        world.advance(61);
        assert_eq!(world.claim("w").await.len(), 1);
        assert_eq!((taken(world).await, world.claim("w").await.len()), (1, 0));
    })
    .await;
}

#[tokio::test]
async fn what_fails_after_midnight_gives_nothing_back_to_the_new_day() {
    in_world(async |world: &World| {
        limit(world, Some(1), ZONE).await;
        late_in_the_evening(world).await;
        accept(world, "post", 3).await;
        let of_yesterday = world.claim("w").await.remove(0);
        // Within the lease of the first, which its holder has renewed meanwhile.
        world.execute("UPDATE publications SET lease_until = lease_until + interval '1 hour' WHERE status = 'running'").await;
        world.advance(61);
        let of_today = world.claim("w").await.remove(0);
        let settler = world.settler();
        assert!(settler.settle(ends(&of_yesterday, Status::Failed, "rejected")).await);
        assert_eq!((taken(world).await, world.claim("w").await.len()), (1, 0));
        assert!(settler.settle(ends(&of_today, Status::Failed, "rejected")).await);
        assert_eq!((taken(world).await, world.claim("w").await.len()), (0, 1));
    })
    .await;
}

#[tokio::test]
async fn another_limit_holds_at_once_and_counts_what_was_published_before_it() {
    in_world(async |world: &World| {
        accept(world, "post", 20).await;
        let settler = world.settler();
        // The lane has four slots.
        let claims = async || {
            let claimed = world.claim("w").await;
            for one in &claimed {
                assert!(settler.settle(success(one)).await);
            }
            claimed.len()
        };
        assert_eq!(claims().await, 4);
        limit(world, Some(6), "UTC").await;
        assert_eq!((claims().await, claims().await), (2, 0));
        limit(world, Some(5), "UTC").await;
        assert_eq!(claims().await, 0);
        limit(world, Some(7), "UTC").await;
        assert_eq!((claims().await, claims().await), (1, 0));
        limit(world, None, "UTC").await;
        assert_eq!(claims().await, 4);
        assert_eq!(taken(world).await, 11);
    })
    .await;
}

#[tokio::test]
async fn what_awaits_an_answer_is_asked_about_on_a_full_day_too() {
    in_world(async |world: &World| {
        limit(world, Some(1), "UTC").await;
        accept(world, "post", 2).await;
        let one = world.claim("w").await.remove(0);
        let awaits = Move {
            wait: Some(TimeDelta::seconds(60)),
            ..Move::new(one.tenant_id, (one.publication_id, one.fence), (Status::Running, Status::Running))
        };
        assert!(world.settler().settle(awaits).await);
        assert!(world.claim("w").await.is_empty());
        world.advance(61);
        let again = world.claim("w").await;
        assert_eq!(again.iter().map(|one| one.publication_id).collect::<Vec<_>>(), [one.publication_id]);
        assert_eq!(taken(world).await, 1);
    })
    .await;
}

/// A day, and when it begins and ends: New York's days of 23 and 25 hours; the Azores, whose clocks go back from one to
/// midnight, which then comes twice; Cairo, whose clocks go forward at midnight, which then does not come.
const DAYS: [(&str, &str, &str, &str); 7] = [
    ("America/New_York", "2024-03-10", "2024-03-10T05:00:00Z", "2024-03-11T04:00:00Z"),
    ("America/New_York", "2024-11-03", "2024-11-03T04:00:00Z", "2024-11-04T05:00:00Z"),
    ("Asia/Kathmandu", "2024-03-10", "2024-03-09T18:15:00Z", "2024-03-10T18:15:00Z"),
    ("Atlantic/Azores", "2024-10-26", "2024-10-26T00:00:00Z", "2024-10-27T00:00:00Z"),
    ("Atlantic/Azores", "2024-10-27", "2024-10-27T00:00:00Z", "2024-10-28T01:00:00Z"),
    ("Africa/Cairo", "2024-04-26", "2024-04-25T22:00:00Z", "2024-04-26T21:00:00Z"),
    ("UTC", "2024-02-29", "2024-02-29T00:00:00Z", "2024-03-01T00:00:00Z"),
];

#[tokio::test]
async fn days_begin_and_end_as_they_do_where_the_account_is() {
    in_world(async |world: &World| {
        for (zone, day, begins, ends) in DAYS {
            let told: (DateTime<Utc>, DateTime<Utc>) =
                sqlx::query_as("SELECT day_end($1::date - 1, $2), day_end($1::date, $2)")
                    .bind(day.parse::<chrono::NaiveDate>().unwrap())
                    .bind(zone)
                    .fetch_one(&world.pool)
                    .await
                    .unwrap();
            assert_eq!(told, (begins.parse().unwrap(), ends.parse().unwrap()), "{zone} {day}");
        }
        // At every quarter of an hour of a year: the day goes on until its end, and not beyond.
        let wrong: Vec<String> = sqlx::query_scalar(
            "SELECT concat(zone, ' ', t) FROM unnest($1::text[]) zone,
                generate_series('2024-01-01Z'::timestamptz, '2025-01-01Z', interval '15 minutes') t,
                LATERAL (SELECT account_day(NULL, zone, t) AS day) d, LATERAL (SELECT day_end(d.day, zone) AS e) e
            WHERE e <= t OR account_day(NULL, zone, e) <= d.day
                OR account_day(NULL, zone, e - interval '1 second') > d.day",
        )
        .bind(DAYS.map(|(zone, ..)| zone.to_owned()).to_vec())
        .fetch_all(&world.pool)
        .await
        .unwrap();
        assert!(wrong.is_empty(), "{} such as {}", wrong.len(), wrong[0]);
    })
    .await;
}

#[tokio::test]
async fn a_day_that_has_begun_does_not_come_back() {
    in_world(async |world: &World| {
        for (begun, zone, at, day) in [
            (None, "UTC", "2024-01-01T20:00:00Z", "2024-01-01"),
            (Some("2023-12-31"), "UTC", "2024-01-01T20:00:00Z", "2024-01-01"),
            // The account was moved from Samoa's side of the date line to the other.
            (Some("2024-01-02"), "Pacific/Pago_Pago", "2024-01-01T10:30:00Z", "2024-01-02"),
            // A clock was wrong.
            (Some("2025-01-02"), "UTC", "2024-01-01T20:00:00Z", "2024-01-01"),
        ] {
            let date = |text: &str| text.parse::<chrono::NaiveDate>().unwrap();
            let told: chrono::NaiveDate = sqlx::query_scalar("SELECT account_day($1, $2, $3)")
                .bind(begun.map(date))
                .bind(zone)
                .bind(at.parse::<DateTime<Utc>>().unwrap())
                .fetch_one(&world.pool)
                .await
                .unwrap();
            assert_eq!(told, date(day), "{begun:?} {zone} {at}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_time_zone_that_the_database_does_not_know_is_refused() {
    in_world(async |world: &World| {
        let (tenant_id, store) = (world.tenant.tenant_id, &world.store);
        let key = AccountKey::new("static_site", "blog1").unwrap();
        let input = AccountInput { time_zone: "Mars/Olympus", ..account_input("elsewhere") };
        let put = store.put_account(tenant_id, &key, &input, &world.vault, Terms::NONE).await.unwrap();
        assert_eq!(put, AccountPut::UnknownTimeZone);
        let account = store.account(tenant_id, &key).await.unwrap().unwrap();
        assert_eq!((account.time_zone.as_str(), account.display_name.as_str()), ("UTC", "blog1"));
    })
    .await;
}
