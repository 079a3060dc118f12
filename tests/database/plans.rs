//! What a statement touches does not grow with what is finished or parked: counted in buffers, not in time.

use std::time::Duration;

use chrono::TimeDelta;
use publish_ingest::account::AccountKey;
use publish_ingest::store::{
    AccountDeleted, Admitted, Claimed, Queue, SandboxAsk, SandboxAsks, SandboxServed, Store, TaskFilters,
};
use publish_ingest::task::settle::telling;
use publish_ingest::task::state::Status;
use sqlx::Executor;
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use crate::claims::success;
use crate::harness::{BOTH, LOCK_WAIT, ONE, World, eventually, in_world, limits, settler_on};
use crate::leases::{entry, note};

/// A page has 8 KiB: so many are touched by a few rows and indexes of a few levels, and by no scan of a table.
pub(crate) const FEW: i64 = 400;

/// How far a tenant looks ahead of whom nothing could be claimed.
const SOON: Duration = Duration::from_secs(5);

/// What one article may touch on its way, in four statements and all that they write: seen were 213, and 360 by plans
/// that walk a tenant's rows.
pub(crate) const LIFE: i64 = 280;

/// How many articles one claim takes: of a plan that reads too much for each, it shows as many times.
const MANY: i32 = 16;

/// How many buffers of tables and indexes a connection touched, all in all.
pub(crate) async fn touched<T>(world: &World, asked: impl AsyncFnOnce(&Store) -> T) -> (T, i64) {
    let before = buffers(world).await;
    // A connection of its own: what it touched is counted when it ends.
    let store = Store::open(&world.url, 1, world.shared_clock()).unwrap();
    let result = asked(&store).await;
    store.close().await;
    let after = buffers(world).await;
    (result, after - before)
}

async fn buffers(world: &World) -> i64 {
    // What others touched is counted when they have ended.
    let alone = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
        AND application_name = 'publish-ingest' AND pid <> pg_backend_pid()";
    eventually("alone", async || world.number(alone).await == 0).await;
    world.number(TOUCHED).await
}

const TOUCHED: &str =
    "SELECT sum(heap_blks_hit + heap_blks_read + coalesce(idx_blks_hit + idx_blks_read, 0))::bigint
    FROM pg_statio_user_tables WHERE schemaname = 'public'";

/// Has this connection's own counts added now, and not in the middle of what is counted.
pub(crate) async fn told(connection: &mut PgConnection) {
    connection.execute("SELECT pg_stat_force_next_flush()").await.unwrap();
}

/// Has the planner know the tables as they are, and this connection's counts added.
async fn analyze(connection: &mut PgConnection) {
    connection.execute("ANALYZE").await.unwrap();
    told(connection).await;
}

/// What the tenant's claim takes, and touches.
async fn claim(world: &World) -> (Vec<Claimed>, i64) {
    touched(world, async |store: &Store| store.claim(world.tenant.tenant_id, &limits("w")).await.unwrap())
        .await
}

/// When an account of the tenant is free again, and what the question touches.
async fn next_free(world: &World) -> (Option<TimeDelta>, i64) {
    touched(world, async |store: &Store| store.next_free(world.tenant.tenant_id, SOON).await.unwrap()).await
}

/// Finished articles, each with all that belongs to it.
pub(crate) const FINISHED: &str = "
    SET session_replication_role = replica;
    CREATE TEMP TABLE seed AS SELECT n, t.tenant_id, gen_random_uuid() AS task_id, gen_random_uuid() AS publication_id,
            gen_random_uuid() AS event_id, now() - interval '1 day' AS at, f.position + n AS position
        FROM tenants t JOIN feeds f USING (tenant_id), generate_series(1, 20000) n WHERE t.name = 'acme';
    INSERT INTO tasks (tenant_id, external_id, task_id, group_code, fingerprint, digests, draft, drafts, open, succeeded,
            created_at, submitted_at, finished_at)
        SELECT tenant_id, 'old-' || n, task_id, 'one', sha256(n::text::bytea), sha256('') || sha256(''), false, 0, 0, 1,
            at, at, at FROM seed;
    INSERT INTO articles (tenant_id, task_id, title, content_html, tags, metadata)
        SELECT tenant_id, task_id, 'Old', '<p>old</p>', '[]', '{}' FROM seed;
    INSERT INTO publications (tenant_id, publication_id, task_id, platform, account_id, position, status, due_at, fence,
            url, updated_at)
        SELECT tenant_id, publication_id, task_id, 'static_site', 'blog1', 1, 'success', at, 1, 'https://a.example/', at
        FROM seed;
    INSERT INTO transitions (tenant_id, task_id, publication_id, at, from_status, to_status, round, fence, reason)
        SELECT tenant_id, task_id, publication_id, at, 'running', 'success', 1, 1, 'published' FROM seed;
    INSERT INTO events (tenant_id, position, event_id, task_id, publication_id, round, status, body, created_at)
        SELECT tenant_id, position, event_id, task_id, publication_id, 1, 'success', convert_to(jsonb_build_object('type',
            'publication.success', 'event_id', event_id, 'sequence', position, 'task_id', task_id, 'status', 'success', 'round', 1,
            'task_status', 'success')::text, 'UTF8'), at FROM seed;
    UPDATE feeds SET position = position + 20000 WHERE tenant_id IN (SELECT tenant_id FROM seed);
    SET session_replication_role = origin;
    DROP TABLE seed";

/// Ten thousand accounts of the sandbox.
const BOXES: &str = "WITH made AS (
        INSERT INTO accounts (tenant_id, platform, account_id, display_name, settings, created_at, updated_at)
        SELECT tenant_id, 'sandbox', 'box' || n, 'Box', '{}', now(), now()
        FROM tenants CROSS JOIN generate_series(1, 10000) AS n WHERE name = 'acme'
        RETURNING tenant_id, platform, account_id)
    INSERT INTO lanes (tenant_id, platform, account_id, max_in_flight, min_interval, free_at)
    SELECT tenant_id, platform, account_id, 4, '0', now() FROM made";

/// An article for each of those accounts, for next year.
const LATER: &str = "CREATE TEMP TABLE later AS
        SELECT n, tenant_id, gen_random_uuid() AS task_id, now() + interval '300 days' AS at
        FROM tenants, generate_series(1, 10000) n WHERE name = 'acme';
    INSERT INTO tasks (tenant_id, external_id, task_id, group_code, fingerprint, digests, publish_at, draft, drafts, open,
            created_at, submitted_at)
        SELECT tenant_id, 'later-' || n, task_id, 'one', sha256(n::text::bytea), sha256('') || sha256(''), at, false, 0, 1,
            now(), now() FROM later;
    INSERT INTO articles (tenant_id, task_id, title, content_html, tags, metadata)
        SELECT tenant_id, task_id, 'Later', '<p>later</p>', '[]', '{}' FROM later;
    INSERT INTO publications (tenant_id, publication_id, task_id, platform, account_id, position, status, due_at, updated_at)
        SELECT tenant_id, gen_random_uuid(), task_id, 'sandbox', 'box' || n, 1, 'submitted', at, now() FROM later;
    DROP TABLE later";

#[tokio::test]
async fn a_plan_made_on_young_tables_serves_on_full_ones() {
    in_world(async |world: &World| {
        let tenant_id = world.tenant.tenant_id;
        world.account(tenant_id, "blog1", MANY, TimeDelta::zero()).await;
        world.store.close().await;
        // One connection, which keeps the plans it makes.
        let store = Store::open(&world.url, 1, world.shared_clock()).unwrap();
        let settler = settler_on(&store);
        let lives = async |name: &str, count: i32| {
            let tasks =
                (0..count).map(|n| world.new_task(&format!("{name}-{n:02}"), ONE)).collect::<Vec<_>>();
            store.accept(&tasks.iter().collect::<Vec<_>>(), Uuid::nil(), LOCK_WAIT).await.unwrap();
            let claimed = store.claim(tenant_id, &limits("w")).await.unwrap();
            assert_eq!(claimed.len(), tasks.len());
            for one in &claimed {
                assert!(note(&store, entry(one, "m")).await);
                assert!(settler.settle(success(one)).await);
            }
        };
        for n in 0..8 {
            lives(&format!("young-{n}"), 1).await;
        }
        let mut connection = world.pool.acquire().await.unwrap();
        connection.execute(FINISHED).await.unwrap();
        told(&mut connection).await;
        let before = world.number(TOUCHED).await;
        lives("late", MANY).await;
        store.close().await;
        let touched = buffers(world).await - before;
        assert!(touched < i64::from(MANY) * LIFE, "{MANY} lives: {touched} buffers");
    })
    .await;
}

#[tokio::test]
async fn an_article_whose_content_stands_in_many_of_other_groups_touches_no_more() {
    in_world(async |world: &World| {
        world.store.close().await;
        let mut connection = world.pool.acquire().await.unwrap();
        connection.execute(FINISHED).await.unwrap();
        let copy = world.new_task("copy", BOTH);
        sqlx::query("UPDATE tasks SET fingerprint = $1 WHERE external_id LIKE 'old-%'")
            .bind(&copy.digests.fingerprint[..])
            .execute(&mut *connection)
            .await
            .unwrap();
        told(&mut connection).await;
        let accept = async |store: &Store| store.accept(&[&copy], Uuid::nil(), LOCK_WAIT).await.unwrap();
        let (admitted, touched) = touched(world, accept).await;
        assert!(matches!(&admitted[..], [Admitted::Created { same_content_as: None, .. }]), "{admitted:?}");
        assert!(touched < FEW, "{touched} buffers");
    })
    .await;
}

#[tokio::test]
async fn a_request_to_the_sandbox_touches_no_other_account_where_few_were_counted() {
    in_world(async |world: &World| {
        world.store.close().await;
        let mut connection = world.pool.acquire().await.unwrap();
        connection.execute("VACUUM ANALYZE").await.unwrap();
        connection.execute(BOXES).await.unwrap();
        told(&mut connection).await;
        let tenant_id = world.tenant.tenant_id;
        let ask = SandboxAsk {
            tenant_id,
            account_id: "box1".to_owned(),
            marker: "m".to_owned(),
            external_id: "a".to_owned(),
            request_id: "r".to_owned(),
            what: SandboxAsks::Draft("T".to_owned(), "{}".to_owned()),
        };
        let serve = async |store: &Store| store.sandbox_serve(tenant_id, &[ask]).await.unwrap();
        let (served, touched) = touched(world, serve).await;
        assert!(matches!(served[..], [Some(SandboxServed::Drafted(Some(_)))]), "{served:?}");
        assert!(touched < FEW, "{touched} buffers");
    })
    .await;
}

#[tokio::test]
async fn a_claim_touches_little_however_much_is_finished_or_waits_for_a_full_lane() {
    in_world(async |world: &World| {
        let tenant_id = world.tenant.tenant_id;
        let mut connection = world.pool.acquire().await.unwrap();
        connection.execute(FINISHED).await.unwrap();
        // One account holds all that its lane takes, and 5,000 articles wait for it.
        world.account(tenant_id, "blog2", 1, TimeDelta::zero()).await;
        world.group(tenant_id, "parked", &["blog2"]).await;
        let parked = (0..5_000).map(|n| world.new_task(&format!("parked-{n}"), "parked")).collect::<Vec<_>>();
        world.accept(&parked).await;
        assert_eq!(world.claim("w").await.len(), 1);
        world.accept(&[world.new_task("new", "one")]).await;
        world.store.close().await;
        told(&mut connection).await;
        for analyzed in [false, true] {
            if analyzed {
                analyze(&mut connection).await;
            }
            let (due, buffers) = touched(world, async |store: &Store| {
                store.tenants_due(Queue::Publications, Uuid::nil(), 64, Duration::ZERO).await.unwrap()
            })
            .await;
            assert_eq!(due.len(), 1);
            assert!(buffers < FEW, "who has something due: {buffers} buffers, analyzed: {analyzed}");
            let (claimed, buffers) = claim(world).await;
            // The new one, once; what waits for the full lane, never.
            assert_eq!(claimed.len(), usize::from(!analyzed));
            assert!(buffers < FEW, "claim: {buffers} buffers, analyzed: {analyzed}");
            let (_, buffers) = touched(world, async |store: &Store| {
                store.tenants_due(Queue::Callbacks, Uuid::nil(), 64, Duration::ZERO).await.unwrap()
            })
            .await;
            assert!(buffers < FEW, "who has callbacks due: {buffers} buffers, analyzed: {analyzed}");
        }
    })
    .await;
}

#[tokio::test]
async fn one_account_and_one_group_are_read_and_changed_without_a_look_at_the_others() {
    const GROUPS: &str = "INSERT INTO groups (tenant_id, group_code, title, created_at, updated_at)
            SELECT tenant_id, 'group' || n, 'Group', now(), now()
            FROM tenants, generate_series(1, 2000) n WHERE name = 'acme';
        INSERT INTO group_members (tenant_id, group_code, platform, account_id, position)
            SELECT tenant_id, 'group' || n, 'sandbox', 'box' || (n + m), m + 1
            FROM tenants, generate_series(1, 2000) n, generate_series(0, 9) m WHERE name = 'acme'";
    in_world(async |world: &World| {
        world.store.close().await;
        let mut connection = world.pool.acquire().await.unwrap();
        connection.execute("VACUUM ANALYZE").await.unwrap();
        connection.execute(BOXES).await.unwrap();
        connection.execute(GROUPS).await.unwrap();
        told(&mut connection).await;
        let tenant_id = world.tenant.tenant_id;
        let account = AccountKey::new("sandbox", "box7").unwrap();
        let group = "group7".parse().unwrap();
        for analyzed in [false, true] {
            if analyzed {
                analyze(&mut connection).await;
            }
            let (read, buffers) =
                touched(world, async |store: &Store| store.account(tenant_id, &account).await.unwrap()).await;
            assert!(read.is_some() && buffers < FEW, "account: {buffers} buffers, analyzed: {analyzed}");
            let (read, buffers) =
                touched(world, async |store: &Store| store.group(tenant_id, &group).await.unwrap()).await;
            assert!(read.is_some() && buffers < FEW, "group: {buffers} buffers, analyzed: {analyzed}");
        }
        let (deleted, buffers) =
            touched(world, async |store: &Store| store.delete_account(tenant_id, &account).await.unwrap())
                .await;
        assert_eq!(deleted, AccountDeleted::Done);
        assert!(buffers < FEW, "an account is deleted: {buffers} buffers");
    })
    .await;
}

#[tokio::test]
async fn a_claim_looks_at_no_account_that_has_something_later() {
    in_world(async |world: &World| {
        let mut connection = world.pool.acquire().await.unwrap();
        connection.execute("VACUUM ANALYZE").await.unwrap();
        connection.execute(BOXES).await.unwrap();
        connection.execute(LATER).await.unwrap();
        world.accept(&[world.new_task("new", ONE)]).await;
        world.store.close().await;
        told(&mut connection).await;
        for analyzed in [false, true] {
            if analyzed {
                analyze(&mut connection).await;
            }
            let (claimed, buffers) = claim(world).await;
            assert_eq!(claimed.len(), usize::from(!analyzed));
            assert!(buffers < FEW, "claim: {buffers} buffers, analyzed: {analyzed}");
            let (free, buffers) = next_free(world).await;
            assert!(free.is_none() && buffers < FEW, "next free: {buffers} buffers, analyzed: {analyzed}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_parked_account_costs_what_expires_and_no_more() {
    const DUE: usize = 40;
    in_world(async |world: &World| {
        let tenant_id = world.tenant.tenant_id;
        let mut connection = world.pool.acquire().await.unwrap();
        connection.execute(FINISHED).await.unwrap();
        world.group(tenant_id, "parked", &["blog2"]).await;
        let later = world.clock_now() + TimeDelta::days(300);
        let articles = (0..3_000).map(|n| {
            let mut task = world.new_task(&format!("parked-{n}"), "parked");
            task.publish_at = (n >= DUE).then_some(later);
            task
        });
        world.accept(&articles.collect::<Vec<_>>()).await;
        world.execute("UPDATE lanes SET login_state = 'login_expired' WHERE account_id = 'blog2'").await;
        world.store.close().await;
        told(&mut connection).await;
        let telling = telling(Duration::ZERO);
        let (claimed, buffers) = claim(world).await;
        assert!(claimed.is_empty() && buffers < FEW, "claim: {buffers} buffers");
        let (free, buffers) = next_free(world).await;
        assert!(free.is_none() && buffers < FEW, "next free: {buffers} buffers");
        let (expired, buffers) =
            touched(world, async |store: &Store| store.expire_due(tenant_id, telling).await.unwrap()).await;
        let most = i64::try_from(DUE).unwrap() * LIFE;
        assert!(expired == DUE && buffers < most, "{expired} expired: {buffers} buffers");
        let (expired, buffers) =
            touched(world, async |store: &Store| store.expire_due(tenant_id, telling).await.unwrap()).await;
        assert!(expired == 0 && buffers < FEW, "nothing more expired: {buffers} buffers");
        let renew = "UPDATE lanes SET login_state = 'active', resume_from = now() - interval '7 days',
            credentials_version = 2 WHERE account_id = 'blog2'";
        world.execute(renew).await;
        world.execute("UPDATE accounts SET credentials_version = 2 WHERE account_id = 'blog2'").await;
        told(&mut connection).await;
        let (resumed, buffers) =
            touched(world, async |store: &Store| store.resume(tenant_id, telling).await.unwrap()).await;
        assert!(resumed == DUE && buffers < most, "{resumed} resumed: {buffers} buffers");
        let (resumed, buffers) =
            touched(world, async |store: &Store| store.resume(tenant_id, telling).await.unwrap()).await;
        assert!(resumed == 0 && buffers < FEW, "nothing more resumed: {buffers} buffers");
        let id = "parked-2000".parse().unwrap();
        let (cancelled, buffers) = touched(world, async |store: &Store| {
            store.cancel(tenant_id, &id, telling).await.unwrap().unwrap().did.cancelled.len()
        })
        .await;
        assert!(cancelled == 1 && buffers < FEW, "cancel: {buffers} buffers");
    })
    .await;
}

#[tokio::test]
async fn a_full_day_costs_nothing_however_much_waits_for_its_end() {
    in_world(async |world: &World| {
        let tenant_id = world.tenant.tenant_id;
        let mut connection = world.pool.acquire().await.unwrap();
        connection.execute(FINISHED).await.unwrap();
        world.group(tenant_id, "full", &["blog2"]).await;
        let waiting = (0..5_000).map(|n| world.new_task(&format!("full-{n}"), "full")).collect::<Vec<_>>();
        world.accept(&waiting).await;
        let full = "UPDATE lanes SET daily_limit = 3, time_zone = 'Asia/Kathmandu', day_count = 3,
            day = account_day(NULL, 'Asia/Kathmandu', now()) WHERE account_id = 'blog2'";
        world.execute(full).await;
        world.store.close().await;
        told(&mut connection).await;
        for analyzed in [false, true] {
            if analyzed {
                analyze(&mut connection).await;
            }
            let (claimed, buffers) = claim(world).await;
            assert!(claimed.is_empty() && buffers < FEW, "claim: {buffers} buffers, analyzed: {analyzed}");
            let (free, buffers) = next_free(world).await;
            assert!(free.is_some() && buffers < FEW, "next free: {buffers} buffers, analyzed: {analyzed}");
        }
        // Nothing had a slot of that day, so it is taken back.
        world.execute("UPDATE lanes SET day_count = 0").await;
    })
    .await;
}

/// What a caller may ask for, by name, each asked of a store.
const ASKED: [&str; 10] = [
    "lookup",
    "first page",
    "second page",
    "one id",
    "few of a prefix",
    "many of a prefix",
    "no such state",
    "no such account",
    "no such group",
    "a time",
];

/// Asks for it; returns how many tasks came.
async fn ask(world: &World, store: &Store, what: &str) -> usize {
    let tenant_id = world.tenant.tenant_id;
    let id = |text: &str| text.parse().unwrap();
    if what == "lookup" {
        let asked = (0..20).map(|n| id(&format!("{}-{n}", ["late", "none"][n % 2]))).collect::<Vec<_>>();
        return store.tasks_named(tenant_id, &asked).await.unwrap().len();
    }
    let mut filters = TaskFilters::default();
    let mut before = None;
    match what {
        "first page" => {}
        "second page" => before = store.task_page(tenant_id, &filters, None, 20).await.unwrap().next,
        "one id" => filters.external_id = Some(id("late-0")),
        "few of a prefix" => filters.external_id_prefix = Some("late-".to_owned()),
        "many of a prefix" => filters.external_id_prefix = Some("old".to_owned()),
        "no such state" => filters.status = Some(Status::LoginExpired),
        "no such account" => filters.account_id = Some("nobody".to_owned()),
        "no such group" => filters.group_code = Some("nowhere".parse().unwrap()),
        // Of the ids that are made by time, all lie behind it.
        "a time" => filters.created_before = Some(world.clock_now() - TimeDelta::days(7)),
        other => panic!("nobody asks for {other}"),
    }
    store.task_page(tenant_id, &filters, before, 20).await.unwrap().tasks.len()
}

#[tokio::test]
async fn a_page_and_a_lookup_touch_no_more_of_a_larger_table() {
    in_world(async |world: &World| {
        let late = (0..20).map(|n| world.new_task(&format!("late-{n}"), ONE)).collect::<Vec<_>>();
        world.accept(&late).await;
        world.store.close().await;
        // One connection that plans while the tables are young.
        let young = Store::open(&world.url, 1, world.shared_clock()).unwrap();
        for what in ASKED {
            ask(world, &young, what).await;
        }
        let mut connection = world.pool.acquire().await.unwrap();
        connection.execute(FINISHED).await.unwrap();
        told(&mut connection).await;
        let before = world.number(TOUCHED).await;
        for what in ASKED {
            ask(world, &young, what).await;
        }
        young.close().await;
        let by_young_plans = buffers(world).await - before;
        let measure = async || {
            let mut all = Vec::new();
            for what in ASKED {
                all.push(touched(world, async |store: &Store| ask(world, store, what).await).await);
            }
            all
        };
        let first = measure().await;
        let total = first.iter().map(|(_, buffers)| buffers).sum::<i64>();
        println!("by young plans {by_young_plans}, by fresh ones {total}: {first:?}");
        assert!(by_young_plans < total + FEW, "by young plans {by_young_plans}, by fresh ones {total}");
        let larger = FINISHED.replace("'old-'", "'older-'");
        connection.execute(sqlx::AssertSqlSafe(larger)).await.unwrap();
        told(&mut connection).await;
        for analyzed in [false, true] {
            if analyzed {
                analyze(&mut connection).await;
            }
            for ((what, small), large) in ASKED.iter().zip(&first).zip(measure().await) {
                println!("{what}: {small:?}, {large:?}");
                assert_eq!(small.0, large.0, "{what}");
                assert!(
                    large.1 < small.1 + FEW / 2,
                    "{what}: {small:?} buffers, then {large:?}, analyzed: {analyzed}"
                );
            }
        }
        for what in [0, 1, 3, 4] {
            assert!(first[what].1 < 2 * FEW, "{}: {} buffers", ASKED[what], first[what].1);
        }
    })
    .await;
}
