//! Several nodes on one database: two and four that do everything, and some that have a role each. Whatever is handed in at
//! whichever of them is published once, told, and kept to what its account allows; no tenant waits for another; what a
//! worker leaves behind is taken up when its lease has run out.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use futures_util::future::join_all;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use rustix::process::Signal;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, PgPool};

use crate::api::{Api, article};
use crate::invariants;
use crate::operator::{Furnished, put_group};
use crate::program::{Dev, Folder, eventually, seed};
use crate::receiver::{Received, Receiver, WILLING};

/// Of each tenant.
const ARTICLES: usize = 40;

const TENANTS: [&str; 3] = ["demo", "acme", "zeta"];

/// How much each account may have in hand.
const IN_FLIGHT_MAX: i32 = 2;

/// Notes each moment in which an account had more in hand than it may, or a receiver.
const WATCH: &str = "
    CREATE TABLE exceeded (what text);
    CREATE FUNCTION note_exceeded() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO exceeded VALUES (TG_TABLE_NAME || ' ' || NEW::text); RETURN NULL;
    END $$;
    CREATE TRIGGER exceeded AFTER INSERT OR UPDATE ON lanes FOR EACH ROW
        WHEN (NEW.in_flight > NEW.max_in_flight) EXECUTE FUNCTION note_exceeded();
    CREATE TRIGGER exceeded AFTER INSERT OR UPDATE ON receivers FOR EACH ROW
        WHEN (NEW.in_flight > NEW.max_in_flight) EXECUTE FUNCTION note_exceeded();
    CREATE TABLE filled (n int);
    CREATE FUNCTION note_filled() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO filled VALUES (NEW.in_flight); RETURN NULL;
    END $$;
    CREATE TRIGGER filled AFTER UPDATE ON lanes FOR EACH ROW
        WHEN (NEW.in_flight = NEW.max_in_flight) EXECUTE FUNCTION note_filled()";

async fn count(pool: &PgPool, statement: &str) -> i64 {
    sqlx::query_scalar(AssertSqlSafe(statement.to_owned())).fetch_one(pool).await.unwrap()
}

/// A tenant's key, and the secret that its callbacks are signed with.
async fn tenant(furnished: &Furnished, name: &str) -> (String, String) {
    if name == "demo" {
        return (furnished.api_key.clone(), furnished.signing_secret.clone());
    }
    let tenant = furnished.shell.json(&["tenant", "create", name]).await;
    let key = furnished.shell.json(&["key", "create", name, "--scopes", "publish,read,manage"]).await;
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(&key["api_key"]), text(&tenant["signing_secret"]))
}

/// Hands an article in at all nodes at once, the one that chance names first.
async fn at_all(nodes: &[Api], article: &Value, first: usize) -> Vec<Value> {
    let (later, sooner) = nodes.split_at(first);
    let answers = join_all(sooner.iter().chain(later).map(|api| api.publish(article))).await;
    answers.into_iter().map(|answer| answer.unwrap().ok()).collect()
}

/// Pages of articles in a folder, without the lists of them.
fn pages(folder: &Path) -> usize {
    let names =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let markers = names.filter_map(|name| name.strip_suffix(".html").map(str::to_owned));
    markers.filter(|marker| !marker.starts_with('.') && marker.split('.').next() != Some("index")).count()
}

/// Starts a node of each of these roles, and puts several tenants' articles through.
async fn each_article_once(roles: &[&str]) {
    let mut random = StdRng::seed_from_u64(seed());
    let (furnished, folder) = (Furnished::new().await, Folder::new());
    let pool = PgPool::connect(&furnished.shell.url).await.unwrap();
    sqlx::raw_sql(WATCH).execute(&pool).await.unwrap();
    let site = folder.dev().join("site");
    std::fs::create_dir_all(&site).unwrap();
    let mut nodes = Vec::new();
    for roles in roles {
        let settings = [
            ("PUBLISH_ROLES", *roles),
            ("PUBLISH_SITE_ROOT", site.to_str().unwrap()),
            ("PUBLISH_SITE_URL", "https://site.example"),
        ];
        nodes.push(furnished.serve(&settings).await);
    }
    let doors = nodes
        .iter()
        .zip(roles)
        .filter(|(_, roles)| roles.contains("api"))
        .map(|(node, _)| node)
        .collect::<Vec<_>>();
    let receiver = Receiver::start(WILLING).await;
    let mut secrets = HashMap::new();
    let mut callers = Vec::new();
    for name in TENANTS {
        let (key, secret) = tenant(&furnished, name).await;
        let apis = doors.iter().map(|node| Api::new(&node.url, Some(&key))).collect::<Vec<_>>();
        let page = json!({"settings": {"site": name}, "max_in_flight": IN_FLIGHT_MAX});
        apis[0].put("/accounts/static_site/page", &page).await.unwrap().ok();
        let sandbox = json!({"settings": {"latency_ms": 3}, "max_in_flight": IN_FLIGHT_MAX});
        apis[0].put("/accounts/sandbox/box", &sandbox).await.unwrap().ok();
        put_group(&apis[0], "all", &["static_site/page", "sandbox/box"]).await;
        secrets.insert(name, secret);
        callers.push((name, apis));
    }
    let firsts = (0..ARTICLES).map(|_| random.random_range(0..doors.len())).collect::<Vec<_>>();
    let handed_in = join_all(callers.iter().map(async |(name, apis)| {
        for (n, first) in firsts.iter().enumerate() {
            let mut article = article(&format!("{name}-{n}"));
            article["group_code"] = "all".into();
            article["callback_url"] = receiver.url.as_str().into();
            let answers = at_all(apis, &article, *first).await;
            let created = answers.iter().filter(|answer| answer["created"] == true).count();
            let ids =
                answers.iter().map(|answer| answer["task_id"].as_str().unwrap()).collect::<HashSet<_>>();
            assert!(created == 1 && ids.len() == 1, "{answers:?}");
        }
    }));
    handed_in.await;
    for (name, apis) in &callers {
        for n in 0..ARTICLES {
            let task = apis[random.random_range(0..apis.len())].published(&format!("{name}-{n}")).await;
            assert_eq!(task["counts"]["success"], 2, "{task}");
        }
        // What it was asked to publish, and what it holds.
        let asked = format!(
            "SELECT count(*) FROM sandbox_requests r JOIN tenants t USING (tenant_id)
            WHERE t.name = '{name}' AND r.effect = 'published'"
        );
        assert_eq!(count(&pool, &asked).await, i64::try_from(ARTICLES).unwrap(), "{name}");
        assert_eq!(pages(&site.join(name).join(name)), ARTICLES, "{name}");
    }
    let events = 2 * ARTICLES * TENANTS.len();
    let distinct =
        |received: &[Received]| received.iter().map(|one| one.id.clone()).collect::<HashSet<_>>().len();
    receiver.wait_for("every event", |received| distinct(received) >= events).await;
    for received in receiver.received() {
        let event = received.event();
        let (name, _) = event["external_id"].as_str().unwrap().rsplit_once('-').unwrap();
        received.verify(&secrets[name]);
    }
    for node in nodes {
        assert!(node.stop(Signal::TERM).await.0.success());
    }
    // No receiver failed and no node died, so no event came twice.
    assert_eq!((receiver.count(), distinct(&receiver.received())), (events, events));
    assert_eq!(count(&pool, "SELECT count(*) FROM exceeded").await, 0);
    assert!(
        count(&pool, "SELECT count(*) FROM filled").await > 0,
        "no account was ever full: the test shows nothing"
    );
    invariants::check(&pool).await;
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_publish_each_article_once() {
    each_article_once(&["api,worker,dispatcher"; 2]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_nodes_publish_each_article_once() {
    each_article_once(&["api,worker,dispatcher"; 4]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_of_a_role_each_publish_each_article_once() {
    each_article_once(&["api", "api", "worker", "worker", "dispatcher"]).await;
}

/// A tenant that hands in far more than its account gets through, and one that hands in little, later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_with_a_backlog_does_not_keep_two_workers_from_others() {
    let furnished = Furnished::new().await;
    let nodes = [furnished.serve(&[]).await, furnished.serve(&[]).await];
    let busy = furnished.api(&nodes[0]);
    let (key, _) = tenant(&furnished, "acme").await;
    let quiet = Api::new(&nodes[1].url, Some(&key));
    for api in [&busy, &quiet] {
        let sandbox = json!({"settings": {"latency_ms": 100}, "max_in_flight": IN_FLIGHT_MAX});
        api.put("/accounts/sandbox/box", &sandbox).await.unwrap().ok();
        put_group(api, "all", &["sandbox/box"]).await;
    }
    let handed_in = async |api: &Api, name: &str, number: usize| {
        let articles = (0..number).map(|n| {
            let mut article = article(&format!("{name}-{n}"));
            article["group_code"] = "all".into();
            article
        });
        let answer = api
            .post("/publish/batch", &json!({"articles": articles.collect::<Vec<_>>()}))
            .await
            .unwrap()
            .ok();
        assert!(
            answer["results"].as_array().unwrap().iter().all(|one| one["http_status"] == 200),
            "{answer}"
        );
    };
    handed_in(&busy, "many", 500).await;
    busy.published("many-0").await;
    handed_in(&quiet, "few", 20).await;
    for n in 0..20 {
        quiet.published(&format!("few-{n}")).await;
    }
    // Both have the same pace, so from when the few were accepted as many of the others were published, give or take; not all
    // that had still to come.
    let pool = PgPool::connect(&furnished.shell.url).await.unwrap();
    let meanwhile = "SELECT count(*) FROM publications p JOIN tenants t USING (tenant_id),
            (SELECT min(k.created_at) AS from_then, max(p.updated_at) AS until FROM tasks k
            JOIN publications p USING (tenant_id, task_id) JOIN tenants t USING (tenant_id) WHERE t.name = 'acme') few
        WHERE t.name = 'demo' AND p.status = 'success' AND p.updated_at BETWEEN from_then AND until";
    let left = "SELECT count(*) FROM publications p JOIN tenants t USING (tenant_id)
        WHERE t.name = 'demo' AND p.status <> 'success'";
    let (meanwhile, left) = (count(&pool, meanwhile).await, count(&pool, left).await);
    assert!(meanwhile < 100 && left > 250, "{meanwhile}, {left} left");
    for node in nodes {
        node.stop(Signal::TERM).await;
    }
    pool.close().await;
}

/// What is in the hands of somebody: the publication, by whom and which hand it is.
const HELD: &str =
    "SELECT publication_id::text, lease_owner, fence FROM publications WHERE lease_until IS NOT NULL";

async fn held(pool: &PgPool) -> Vec<(String, String, i32)> {
    sqlx::query_as(HELD).fetch_all(pool).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_worker_held_is_taken_up_when_its_lease_has_run_out_and_not_before() {
    let furnished = Furnished::new().await;
    let pool = PgPool::connect(&furnished.shell.url).await.unwrap();
    // What the lease was when it was taken over: a statement that comes too early would find a later one.
    let watch = "CREATE TABLE taken (publication_id uuid, fence int, early boolean);
        CREATE FUNCTION note_taken() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            INSERT INTO taken VALUES (OLD.publication_id, OLD.fence, OLD.lease_until > now()); RETURN NULL;
        END $$;
        CREATE TRIGGER taken AFTER UPDATE ON publications FOR EACH ROW
            WHEN (OLD.lease_owner <> NEW.lease_owner) EXECUTE FUNCTION note_taken()";
    sqlx::raw_sql(watch).execute(&pool).await.unwrap();
    let roles = |roles| [("PUBLISH_ROLES", roles), ("PUBLISH_LEASE", "3s")];
    let door = furnished.serve(&roles("api")).await;
    let mut dies = furnished.serve(&roles("worker")).await;
    let api = furnished.api(&door);
    // Longer than it takes to look, and to kill; shorter than a call may take.
    let sandbox = json!({"settings": {"latency_ms": 700}, "max_in_flight": 8});
    api.put("/accounts/sandbox/box", &sandbox).await.unwrap().ok();
    put_group(&api, "all", &["sandbox/box"]).await;
    for n in 0..8 {
        let mut article = article(&format!("held-{n}"));
        article["group_code"] = "all".into();
        api.publish(&article).await.unwrap().ok();
    }
    eventually("it holds all of them", async || held(&pool).await.len() == 8).await;
    let lives = furnished.serve(&roles("worker")).await;
    dies.kill();
    let left = held(&pool).await;
    assert!(left.len() >= 2, "{left:?}");
    for n in 0..8 {
        api.published(&format!("held-{n}")).await;
    }
    let taken = "SELECT publication_id::text, fence, early FROM taken";
    let taken = sqlx::query_as::<_, (String, i32, bool)>(taken).fetch_all(&pool).await.unwrap();
    let mut expected =
        left.iter().map(|(publication, _, fence)| (publication.clone(), *fence, false)).collect::<Vec<_>>();
    let mut all = taken.clone();
    expected.sort();
    all.sort();
    assert_eq!(all, expected);
    let published = "SELECT count(*) FROM sandbox_articles WHERE public_at IS NOT NULL";
    assert_eq!(count(&pool, published).await, 8);
    stopped([door, lives]).await;
    invariants::check(&pool).await;
    pool.close().await;
}

async fn stopped(nodes: [Dev; 2]) {
    for node in nodes {
        assert!(node.stop(Signal::TERM).await.0.success());
    }
}
