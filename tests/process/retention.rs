//! Removal by age as an operator and a caller see it: what a service removes, what `retention` shows of it, and what stays.

use chrono::{DateTime, TimeDelta, Utc};
use publish_ingest::clock::{Clock as _, SystemClock};
use rustix::process::Signal;
use serde_json::{Value, json};
use sqlx::PgPool;

use crate::api::{Api, article};
use crate::operator::{Furnished, put_group};
use crate::program::{Folder, eventually};
use crate::receiver::{Receiver, WILLING};

/// How much older everything becomes: beyond what is kept by default.
const OLDER: TimeDelta = TimeDelta::days(100);

/// Makes everything older, ids included, as if the time had gone by while no service ran.
const AGE: &str = "
    SET session_replication_role = replica;
    CREATE FUNCTION pg_temp.older(id uuid) RETURNS uuid LANGUAGE sql AS $$
        SELECT (lpad(to_hex(greatest(('x' || '0000' || left(hex, 12))::bit(64)::bigint - 100 * 86400000::bigint, 0)), 12, '0')
            || substr(hex, 13))::uuid FROM replace(id::text, '-', '') AS hex $$;
    UPDATE tasks SET task_id = pg_temp.older(task_id), created_at = created_at - interval '100 days',
        submitted_at = submitted_at - interval '100 days', finished_at = finished_at - interval '100 days';
    UPDATE articles SET task_id = pg_temp.older(task_id);
    UPDATE publications SET task_id = pg_temp.older(task_id), updated_at = updated_at - interval '100 days';
    UPDATE transitions SET task_id = pg_temp.older(task_id), at = at - interval '100 days';
    UPDATE events SET task_id = pg_temp.older(task_id), event_id = pg_temp.older(event_id),
        created_at = created_at - interval '100 days';
    UPDATE callbacks SET event_id = pg_temp.older(event_id), created_at = created_at - interval '100 days',
        ended_at = ended_at - interval '100 days';
    UPDATE callback_tries SET event_id = pg_temp.older(event_id), at = at - interval '100 days';
    UPDATE retentions SET contents_after = pg_temp.older(contents_after), lap_at = lap_at - interval '100 days'";

async fn count(pool: &PgPool, statement: &'static str) -> i64 {
    sqlx::query_scalar(statement).fetch_one(pool).await.unwrap()
}

/// What `retention` shows of the tenant.
async fn shown(operator: &Furnished) -> Value {
    let facts = operator.shell.json(&["retention"]).await;
    assert_eq!(
        (&facts["keep_seconds"], &facts["keep_events_seconds"]),
        (&json!(7_776_000), &json!(7_776_000))
    );
    assert_eq!(facts["tenants"].as_array().unwrap().len(), 1, "{facts}");
    assert_eq!(facts["tenants"][0]["tenant"], "demo");
    facts["tenants"][0].clone()
}

fn time(value: &Value) -> DateTime<Utc> {
    value.as_str().unwrap_or_else(|| panic!("no time: {value}")).parse().unwrap()
}

fn of_site(external_id: &str) -> Value {
    let mut article = article(external_id);
    article["group_code"] = "all".into();
    article
}

/// The callbacks that have arrived.
async fn delivered(api: &Api) -> Vec<String> {
    let page = api.get("/callbacks?status=delivered").await.unwrap().ok();
    page["callbacks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["event_id"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_old_goes_and_is_shown_and_a_duplicate_is_answered_as_ever() {
    let (operator, folder) = (Furnished::new().await, Folder::new());
    let site = folder.dev().join("site");
    std::fs::create_dir_all(&site).unwrap();
    let settings =
        [("PUBLISH_SITE_ROOT", site.to_str().unwrap()), ("PUBLISH_SITE_URL", "https://site.example")];
    let service = operator.serve(&settings).await;
    let api = operator.api(&service);
    api.put("/accounts/static_site/demo", &json!({"settings": {"site": "demo"}})).await.unwrap().ok();
    put_group(&api, "all", &["static_site/demo"]).await;
    let receiver = Receiver::start(WILLING).await;
    let olds = ["old-1", "old-2"].map(|id| {
        let mut article = of_site(id);
        article["callback_url"] = receiver.url.as_str().into();
        article
    });
    let mut before = Vec::new();
    for old in &olds {
        api.publish(old).await.unwrap().ok();
        before.push(api.published(old["external_id"].as_str().unwrap()).await);
    }
    let mut draft = of_site("draft");
    draft["draft"] = true.into();
    api.publish(&draft).await.unwrap().ok();
    eventually("the callbacks are delivered", async || delivered(&api).await.len() == 2).await;
    assert!(service.stop(Signal::TERM).await.0.success());

    // Nothing is old.
    let none = json!({"removed": 0, "removed_at": null, "next": 0});
    let one = shown(&operator).await;
    assert_eq!(
        (&one["contents"]["removed"], &one["contents"]["next"], &one["events"]),
        (&json!(0), &json!(0), &none)
    );
    let pool = PgPool::connect(&operator.shell.url).await.unwrap();
    sqlx::raw_sql(AGE).execute(&pool).await.unwrap();
    let text = operator.shell.text(&["retention"]).await;
    assert_eq!(
        text,
        "contents are kept 2160h, events 2160h\ndemo  contents: 0 removed, 3 old enough  events: 0 removed, 2 old enough\n"
    );
    assert_eq!(count(&pool, "SELECT count(*) FROM articles").await, 3, "to look removes nothing");

    let begun = SystemClock.now();
    let service = operator.serve(&settings).await;
    let api = operator.api(&service);
    api.publish(&of_site("young")).await.unwrap().ok();
    let young = api.published("young").await;
    let mut one = Value::Null;
    eventually("what is old is removed", async || {
        one = shown(&operator).await;
        one["contents"]["removed"] == 2 && one["events"]["removed"] == 2
    })
    .await;
    for what in ["contents", "events"] {
        assert_eq!(one[what]["next"], 0, "{one}");
        assert!(time(&one[what]["removed_at"]) >= begun, "{one}");
    }
    // The draft, which never ended.
    let kept = SystemClock.now() - OLDER - time(&one["contents"]["kept_since"]);
    assert!(kept.num_minutes() < 60 && kept.num_seconds() >= 0, "{one}");
    let text = operator.shell.text(&["retention", "--keep", "off"]).await;
    assert!(
        text.starts_with("contents are kept for ever, events 2160h\ndemo  contents: 2 removed (last "),
        "{text}"
    );
    assert!(text.contains("the oldest that has not ended long enough is of "), "{text}");

    gone_and_kept(&api, &olds, &before, &pool).await;
    assert_eq!(api.task("young").await.unwrap().ok(), young);
    // What waited goes on.
    api.post("/tasks/draft/submit", &json!({})).await.unwrap().ok();
    assert_eq!(api.published("draft").await["title"], "Title of draft");
    assert_eq!(folder.pages().len(), 4, "each was published once");
    assert!(service.stop(Signal::TERM).await.0.success());
    pool.close().await;
}

async fn gone_and_kept(api: &Api, olds: &[Value], before: &[Value], pool: &PgPool) {
    // Of the draft and of the young one.
    assert_eq!(count(pool, "SELECT count(*) FROM articles").await, 2);
    assert_eq!(count(pool, "SELECT count(DISTINCT task_id) FROM transitions").await, 1);
    assert_eq!(count(pool, "SELECT count(DISTINCT publication_id) FROM attempts").await, 1);
    assert_eq!(count(pool, "SELECT count(*) FROM events").await, 1);
    assert_eq!(count(pool, "SELECT count(*) FROM callbacks").await, 0);
    assert_eq!(count(pool, "SELECT count(*) FROM callback_tries").await, 0);
    assert_eq!(count(pool, "SELECT count(*) FROM tasks").await, 4);
    for (old, before) in olds.iter().zip(before) {
        let id = old["external_id"].as_str().unwrap();
        let after = api.task(id).await.unwrap().ok();
        assert!(after["title"].is_null() && after["content_removed_at"].is_string(), "{after}");
        for stays in ["external_id", "status", "counts"] {
            assert_eq!(after[stays], before[stays], "{stays}");
        }
        assert_eq!(after["publications"][0]["url"], before["publications"][0]["url"]);
        let again = api.publish(old).await.unwrap();
        assert_eq!(again.header("idempotent-replayed"), Some("true"));
        let again = again.ok();
        assert_eq!((&again["created"], &again["content_changed"]), (&json!(false), &json!(false)), "{again}");
        assert_eq!(again["publications"][0]["url"], before["publications"][0]["url"]);
        let mut other = old.clone();
        other["title"] = "Other".into();
        other["tags"] = json!(["new"]);
        let changed = api.publish(&other).await.unwrap().ok();
        assert_eq!(changed["changed_fields"], json!(["title", "tags"]), "{changed}");
        other["on_duplicate"] = "reject".into();
        assert_eq!(api.publish(&other).await.unwrap().status, 409);
    }
    let feed = api.get("/events").await.unwrap().ok();
    let told = feed["events"].as_array().unwrap().iter().map(|one| &one["external_id"]).collect::<Vec<_>>();
    assert_eq!(told, ["young"]);
}
