//! How many articles a tenant hands in on a day: exactly its quota, whatever the number of nodes and what becomes of them.

use chrono::Timelike as _;
use publish_ingest::clock::Clock as _;
use publish_ingest::store::{Admitted, Grant, LimitsSet, NewTask, QuotaStanding, Store};
use publish_ingest::tenant::Scope;
use publish_ingest::tenant::limits::LimitsChange;
use serde_json::{Value, json};
use sqlx::Connection as _;
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use crate::harness::{EMPTY, LOCK_WAIT, ONE, Reply, World, article_with, at_once, in_world, within};

/// How long a change of a limit takes to hold on every node, in seconds.
const HOLDS: i64 = 5;

async fn set(world: &World, articles_per_day: Option<u32>) {
    let change = LimitsChange { articles_per_day: Some(articles_per_day), ..LimitsChange::default() };
    let set = world.store.set_limits("acme", &change).await.unwrap();
    assert!(matches!(set, LimitsSet::Done(limits) if limits.articles_per_day == articles_per_day));
    world.advance(HOLDS);
}

/// Lets the time pass in which a node may not know of a quota yet: then more is given out than is needed at once.
async fn known_everywhere(world: &World) {
    for wait in [0, 11] {
        world.advance(wait);
        world.store.grant_quota(world.tenant.tenant_id, Uuid::from_u128(1), 0).await.unwrap();
    }
}

/// Moves the time on to the forenoon: no test is about midnight by accident.
fn in_the_forenoon(world: &World) {
    let hours = (33 - i64::from(world.clock_now().hour())) % 24;
    world.advance(hours * 3_600);
}

/// Drafts: nothing else happens to them meanwhile.
fn draft(id: &str) -> Value {
    article_with(id, json!({"draft": true}))
}

async fn tasks(world: &World) -> i64 {
    world.number("SELECT count(*) FROM tasks").await
}

/// The answer of who has used up the day.
#[track_caller]
fn used_up(reply: &Reply, quota: u32) -> i64 {
    let problem = reply.problem(429, "quota_exceeded");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains(&format!("{quota} articles")) && detail.contains("T00:00:00Z"), "{detail}");
    let wait = reply.header("retry-after").unwrap().parse().unwrap();
    assert_eq!(reply.header("ratelimit-policy"), Some(&*format!("\"articles\";q={quota};w=86400")));
    assert_eq!(reply.header("ratelimit"), Some(&*format!("\"articles\";r=0;t={wait}")));
    wait
}

#[tokio::test]
async fn many_callers_of_two_nodes_get_exactly_the_articles_of_the_day() {
    const QUOTA: u32 = 43;
    const CALLERS: usize = 80;
    in_world(async |world: &World| {
        in_the_forenoon(world);
        set(world, Some(QUOTA)).await;
        let nodes = [world.start().await, world.start().await];
        let other = world.another_tenant("other").await;
        let theirs = nodes[0].with_key(&world.key(other.tenant_id, &Scope::ALL).await);
        // Each article comes twice, at both nodes, among those of a tenant without a quota.
        let replies = at_once((0..2 * CALLERS).map(|caller| {
            let (api, theirs) = (nodes[caller % 2].clone(), theirs.clone());
            async move {
                theirs.publish(&draft(&format!("post-{caller}"))).await.ok();
                api.publish(&draft(&format!("post-{}", caller / 2))).await
            }
        }))
        .await;
        let created = replies.iter().filter(|reply| reply.status == 200 && reply.json()["created"] == true);
        assert_eq!(created.count(), QUOTA as usize);
        for refused in replies.iter().filter(|reply| reply.status != 200) {
            used_up(refused, QUOTA);
        }
        let count = "SELECT count(*) FROM tasks t JOIN tenants n USING (tenant_id) WHERE n.name = 'acme'";
        assert_eq!(world.number(count).await, i64::from(QUOTA));
        assert_eq!(world.number("SELECT coalesce(sum(amount), 0)::bigint FROM quota_shares").await, 0);
        assert_eq!(world.number("SELECT given::bigint FROM quotas").await, i64::from(QUOTA));
        let theirs = world.number("SELECT count(*) FROM quotas").await;
        assert_eq!(theirs, 1, "who has no quota leaves no trace of one");
    })
    .await;
}

#[tokio::test]
async fn what_a_dead_node_held_is_used_by_the_living_at_once() {
    const QUOTA: u32 = 64;
    in_world(async |world: &World| {
        in_the_forenoon(world);
        set(world, Some(QUOTA)).await;
        known_everywhere(world).await;
        let dead = world.start().await;
        dead.publish(&draft("first")).await.ok();
        world.stop().await;
        // One more, which died in the moment after it was given something.
        let given = world.store.grant_quota(world.tenant.tenant_id, Uuid::max(), 30).await.unwrap();
        assert!(matches!(given, Grant::Given { amount: 30, .. }), "{given:?}");
        let held = world.number("SELECT sum(amount)::bigint FROM quota_shares").await;
        assert_eq!(held, 30 + 64 / 16 - 1);
        let api = world.start().await;
        let articles = (0..QUOTA).map(|n| draft(&format!("post-{n}"))).collect::<Vec<_>>();
        let answer = api.post("/publish/batch", &json!({"articles": articles})).await.ok();
        let results = answer["results"].as_array().unwrap();
        let statuses = |status| results.iter().filter(|one| one["http_status"] == status).count();
        assert_eq!((statuses(200), statuses(429)), (63, 1));
        assert_eq!(tasks(world).await, i64::from(QUOTA));
    })
    .await;
}

#[tokio::test]
async fn what_a_node_accepts_that_does_not_know_of_the_quota_yet_is_counted() {
    in_world(async |world: &World| {
        in_the_forenoon(world);
        let (knows, learns) = (world.start().await, world.start().await);
        learns.publish(&draft("before")).await.ok();
        let change = LimitsChange { articles_per_day: Some(Some(10)), ..LimitsChange::default() };
        world.store.set_limits("acme", &change).await.unwrap();
        let first = knows.publish(&draft("first")).await;
        assert!(first.ok()["created"] == true && first.header("ratelimit-policy").is_some());
        for n in 0..3 {
            let reply = learns.publish(&draft(&format!("unknowing-{n}"))).await;
            assert!(reply.ok()["created"] == true && reply.header("ratelimit-policy").is_none());
        }
        world.advance(HOLDS);
        for n in 0..4 {
            [&knows, &learns][n % 2].publish(&draft(&format!("later-{n}"))).await.ok();
        }
        world.advance(11);
        knows.publish(&draft("last")).await.ok();
        for api in [&knows, &learns] {
            used_up(&api.publish(&draft("too-late")).await, 10);
        }
        assert_eq!(tasks(world).await, 10);
    })
    .await;
}

#[tokio::test]
async fn the_quota_comes_after_duplicates_and_before_the_group() {
    in_world(async |world: &World| {
        in_the_forenoon(world);
        set(world, Some(2)).await;
        let api = world.start().await;
        let of_group = |id: &str, group: &str| article_with(id, json!({"group_code": group, "draft": true}));
        let check = async |article: &Value| api.post("/publish/check", article).await;
        // What is not stored costs nothing.
        for (n, (group, code)) in
            [("nowhere", "unknown_group"), (EMPTY, "empty_group")].into_iter().enumerate()
        {
            for again in 0..3 {
                api.publish(&of_group(&format!("no-{n}-{again}"), group)).await.problem(422, code);
            }
        }
        assert_eq!(check(&draft("a")).await.ok()["would"], "create");
        let first = api.publish(&draft("a")).await;
        assert_eq!(first.ok()["created"], true);
        assert!(first.header("ratelimit").unwrap().starts_with("\"articles\";r=1;t="), "{first:?}");
        for _ in 0..5 {
            assert_eq!(api.publish(&draft("a")).await.ok()["created"], false);
        }
        api.publish(&draft("b")).await.ok();
        let wait = used_up(&api.publish(&draft("c")).await, 2);
        let midnight = world.clock_now().date_naive().succ_opt().unwrap().and_hms_opt(0, 0, 0).unwrap();
        let left = (midnight.and_utc() - world.clock_now()).num_seconds();
        assert!((left..left + 60).contains(&wait), "{wait} for {left}");
        used_up(&api.publish(&of_group("c", "nowhere")).await, 2);
        used_up(&check(&draft("c")).await, 2);
        // Whatever became of the quota.
        let again = api.publish(&draft("a")).await;
        assert_eq!(again.ok()["created"], false);
        assert_eq!(again.header("idempotent-replayed"), Some("true"));
        assert_eq!(api.publish_as("k", &draft("b")).await.ok()["created"], false);
        let strict = article_with("b", json!({"draft": true, "on_duplicate": "reject"}));
        api.publish(&strict).await.problem(409, "duplicate_external_id");
        assert_eq!(check(&draft("a")).await.ok()["would"], "return_existing");
        // In a batch each is answered alone.
        let batch = json!({"articles": [draft("d"), draft("b"), {"external_id": "x"}, draft("d")]});
        let reply = api.post("/publish/batch", &batch).await;
        let results = reply.ok()["results"].clone();
        let told = results.as_array().unwrap().iter().map(|one| {
            let code = one["problem"]["code"].as_str().unwrap_or("-").to_owned();
            (one["http_status"].as_u64().unwrap(), code)
        });
        let exceeded = (429, "quota_exceeded".to_owned());
        let expected =
            [exceeded.clone(), (200, "-".to_owned()), (422, "validation_failed".to_owned()), exceeded];
        assert_eq!(told.collect::<Vec<_>>(), expected);
        assert!(reply.header("ratelimit").unwrap().starts_with("\"articles\";r=0;t="), "{reply:?}");
        assert_eq!(tasks(world).await, 2);
    })
    .await;
}

#[tokio::test]
async fn a_new_day_begins_at_midnight_in_utc() {
    in_world(async |world: &World| {
        in_the_forenoon(world);
        set(world, Some(3)).await;
        let nodes = [world.start().await, world.start().await];
        for day in 0..3 {
            for n in 0..4 {
                let reply = nodes[n % 2].publish(&draft(&format!("day-{day}-{n}"))).await;
                if n < 3 {
                    assert_eq!(reply.ok()["created"], true, "{day} {n}");
                } else {
                    let wait = used_up(&reply, 3);
                    // A minute before, it is the same day.
                    world.advance(wait - 60);
                    for api in &nodes {
                        used_up(&api.publish(&draft("too-soon")).await, 3);
                    }
                    world.advance(61);
                }
            }
        }
        assert_eq!(tasks(world).await, 9);
        assert_eq!(world.number("SELECT count(*) FROM quotas").await, 1);
        // Put back over midnight, the day goes on.
        for (n, api) in nodes.iter().enumerate() {
            api.publish(&draft(&format!("after-{n}"))).await.ok();
        }
        world.advance(-3_600);
        nodes[1].publish(&draft("put-back-1")).await.ok();
        nodes[0].publish(&draft("put-back-2")).await.problem(429, "quota_exceeded");
        // Whose days the database counts does not fit their times now.
        world.execute("DELETE FROM quotas").await;
        world.execute("DELETE FROM quota_shares").await;
    })
    .await;
}

#[tokio::test]
async fn another_quota_holds_soon_and_counts_what_the_day_has_had() {
    in_world(async |world: &World| {
        in_the_forenoon(world);
        let api = world.start().await;
        let publish = async |id: &str| api.publish(&draft(id)).await;
        let first = publish("a").await;
        assert!(first.ok()["created"] == true && first.header("ratelimit-policy").is_none());
        // What was handed in on another day does not count.
        publish("old").await.ok();
        world
            .execute("UPDATE tasks SET created_at = created_at - interval '1 day' WHERE external_id = 'old'")
            .await;
        set(world, Some(3)).await;
        publish("b").await.ok();
        publish("c").await.ok();
        used_up(&publish("d").await, 3);
        set(world, Some(5)).await;
        publish("d").await.ok();
        set(world, Some(2)).await;
        used_up(&publish("e").await, 2);
        set(world, None).await;
        for id in ["e", "f", "g"] {
            publish(id).await.ok();
        }
        set(world, Some(8)).await;
        publish("h").await.ok();
        used_up(&publish("i").await, 8);
        let standing = world.store.quota_standing(world.tenant.tenant_id).await.unwrap().unwrap();
        assert_eq!((standing.limit, standing.left), (8, 0));
        assert_eq!(
            world.store.set_limits("nobody", &LimitsChange::default()).await.unwrap(),
            LimitsSet::NoTenant
        );
    })
    .await;
}

/// A task of the world's tenant, under its quota.
fn limited(world: &World, id: &str) -> NewTask {
    NewTask { limited: true, draft: true, ..world.new_task(id, ONE) }
}

async fn left(world: &World, share_id: Uuid) -> Option<i32> {
    sqlx::query_scalar("SELECT amount FROM quota_shares WHERE share_id = $1")
        .bind(share_id)
        .fetch_optional(&world.pool)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_batch_takes_from_its_share_what_it_stores_and_no_more() {
    in_world(async |world: &World| {
        in_the_forenoon(world);
        set(world, Some(100)).await;
        known_everywhere(world).await;
        let (tenant_id, share, other) = (world.tenant.tenant_id, Uuid::max(), Uuid::nil());
        let grant =
            async |share, wanted| match world.store.grant_quota(tenant_id, share, wanted).await.unwrap() {
                Grant::Given { amount, standing: QuotaStanding { left, .. } } => (amount, left),
                Grant::Unlimited => panic!("there is a quota"),
            };
        assert_eq!(grant(share, 1).await, (6, 100));
        let named = |ids: &[&str]| ids.iter().map(|id| limited(world, id)).collect::<Vec<_>>();
        let accept = async |tasks: &[NewTask], share| {
            let admitted =
                world.store.accept(&tasks.iter().collect::<Vec<_>>(), share, LOCK_WAIT).await.unwrap();
            admitted
                .iter()
                .map(|one| match one {
                    Admitted::Created { .. } => 'c',
                    Admitted::Existing(_) => 'e',
                    Admitted::NothingLeft => 'n',
                    _ => '?',
                })
                .collect::<String>()
        };
        let batch = named(&["a", "b", "c", "d"]);
        assert_eq!(accept(&batch, share).await, "cccc");
        assert_eq!(left(world, share).await, Some(2));
        // The answer was lost: the same again costs nothing.
        assert_eq!(accept(&batch, share).await, "eeee");
        assert_eq!(accept(&named(&["a", "c"]), other).await, "ee");
        assert_eq!(left(world, share).await, Some(2));
        // What exists stands between what is new.
        assert_eq!(accept(&named(&["a", "e", "f", "g", "h"]), share).await, "eccnn");
        assert_eq!(left(world, share).await, Some(0));
        assert_eq!(accept(&named(&["g"]), other).await, "n");
        assert_eq!(grant(other, 90).await, (90, 94));
        // The last ones come from the other's share.
        assert_eq!(grant(share, 10).await, (10, 94));
        assert_eq!(left(world, other).await, None);
        assert_eq!(grant(other, 90).await, (90, 94));
        assert_eq!(left(world, share).await, None);
        let many = (0..95).map(|n| format!("m-{n:02}")).collect::<Vec<_>>();
        let many = named(&many.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(accept(&many, other).await.matches('c').count(), 90);
        assert_eq!(grant(share, 1).await, (1, 4));
        assert_eq!(accept(&named(&["z"]), share).await, "c");
        assert_eq!(world.store.quota_standing(tenant_id).await.unwrap().unwrap().left, 3);
        // Yesterday's share is worth nothing today.
        world.advance(24 * 3_600);
        assert_eq!(accept(&named(&["y", "z"]), share).await, "ne");
    })
    .await;
}

#[tokio::test]
async fn who_takes_a_share_back_waits_for_what_is_being_accepted_out_of_it() {
    in_world(async |world: &World| {
        in_the_forenoon(world);
        set(world, Some(4)).await;
        let (tenant_id, share, other) = (world.tenant.tenant_id, Uuid::max(), Uuid::nil());
        world.store.grant_quota(tenant_id, share, 4).await.unwrap();
        world
            .execute(
                "CREATE FUNCTION pause() RETURNS trigger LANGUAGE plpgsql SET lock_timeout = '20s' AS
                    $$ BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NEW; END $$;
                CREATE TRIGGER pause BEFORE INSERT ON publications FOR EACH STATEMENT EXECUTE FUNCTION pause()",
            )
            .await;
        let mut gate = PgConnection::connect(&world.url).await.unwrap();
        sqlx::query("SELECT pg_advisory_lock(1)").execute(&mut gate).await.unwrap();
        let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND database = (
            SELECT oid FROM pg_database WHERE datname = current_database()) AND locktype = 'advisory'";
        let blocked = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
            AND wait_event_type = 'Lock' AND wait_event <> 'advisory'";
        let tasks = [limited(world, "a"), limited(world, "b"), limited(world, "c")];
        let store = world.store.clone();
        let accepting =
            tokio::spawn(async move { store.accept(&tasks.iter().collect::<Vec<_>>(), share, LOCK_WAIT).await.unwrap() });
        world.until(waiting, 1).await;
        let store = Store::open(&world.url, 1, world.shared_clock()).unwrap();
        let taker = store.clone();
        let taking = tokio::spawn(async move { taker.grant_quota(tenant_id, other, 4).await.unwrap() });
        world.until(blocked, 1).await;
        sqlx::query("SELECT pg_advisory_unlock(1)").execute(&mut gate).await.unwrap();
        let admitted = within("the batch", accepting).await.unwrap();
        assert!(admitted.iter().all(|one| matches!(one, Admitted::Created { .. })), "{admitted:?}");
        let given = within("the grant", taking).await.unwrap();
        assert!(matches!(given, Grant::Given { amount: 1, standing } if standing.left == 1), "{given:?}");
        gate.close().await.unwrap();
        store.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_day_that_is_used_up_is_not_asked_for_again_and_again() {
    in_world(async |world: &World| {
        in_the_forenoon(world);
        set(world, Some(1)).await;
        let nodes = [world.start().await, world.start().await];
        world
            .execute(
                "CREATE TABLE asked (); GRANT INSERT ON asked TO PUBLIC;
                CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
                    $$ BEGIN INSERT INTO asked DEFAULT VALUES; RETURN NEW; END $$;
                CREATE TRIGGER note BEFORE UPDATE ON quotas FOR EACH ROW EXECUTE FUNCTION note()",
            )
            .await;
        nodes[0].publish(&draft("a")).await.ok();
        let begun = world.clock.instant();
        for n in 0..60 {
            used_up(&nodes[n % 2].publish(&draft(&format!("b-{n}"))).await, 1);
        }
        // Once for the first, once by each node, and again after each time that it is remembered.
        let most = 3 + 2 * (world.clock.instant() - begun).as_secs() / 5;
        let asked = world.number("SELECT count(*) FROM asked").await;
        assert!(asked <= i64::try_from(most).unwrap(), "{asked} of {most}");
        world.execute("DROP TRIGGER note ON quotas; DROP TABLE asked").await;
    })
    .await;
}
