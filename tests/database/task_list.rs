//! Tasks page by page.

use std::collections::HashSet;

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use publish_ingest::clock::Clock;
use publish_ingest::store::NewTask;
use publish_ingest::task::state::Status;
use publish_ingest::tenant::Scope;
use serde_json::{Value, json};
use sqlx::Executor as _;
use tokio::sync::watch;

use crate::harness::{Api, BOTH, ONE, World, article_with, in_world, redacted};

/// Accepts drafts, which nobody touches.
async fn drafts(world: &World, external_ids: impl IntoIterator<Item = String>, group: &str) {
    let draft = |id: String| NewTask { draft: true, ..world.new_task(&id, group) };
    let tasks = external_ids.into_iter().map(draft).collect::<Vec<_>>();
    world.accept(&tasks).await;
}

fn path(parameters: &[(&str, &str)]) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    format!("/tasks?{}", query.extend_pairs(parameters).finish())
}

fn ids(page: &Value) -> Vec<String> {
    let tasks = page["tasks"].as_array().unwrap().iter();
    tasks.map(|task| task["external_id"].as_str().unwrap().to_owned()).collect()
}

/// All pages, one after the other.
async fn pages(api: &Api, parameters: &[(&str, &str)]) -> Vec<Value> {
    let mut pages = Vec::<Value>::new();
    loop {
        let mut all = parameters.to_vec();
        let cursor = pages.last().and_then(|page| page["next_cursor"].as_str()).map(str::to_owned);
        all.extend(cursor.as_deref().map(|cursor| ("cursor", cursor)));
        let page = api.get(&path(&all)).await.ok();
        let last = page["next_cursor"].is_null();
        pages.push(page);
        if last {
            return pages;
        }
        assert!(pages.len() < 1_000, "pages without end");
    }
}

async fn all_ids(api: &Api, parameters: &[(&str, &str)]) -> Vec<String> {
    pages(api, parameters).await.iter().flat_map(ids).collect()
}

async fn sorted_ids(api: &Api, parameters: &[(&str, &str)]) -> Vec<String> {
    let mut ids = all_ids(api, parameters).await;
    ids.sort();
    ids
}

#[tokio::test]
async fn a_page_shows_tasks_the_newest_first() {
    in_world(async |world: &World| {
        let api = world.start().await;
        assert_eq!(api.get("/tasks").await.ok(), json!({"tasks": [], "next_cursor": null}));
        for id in ["a", "b", "c"] {
            api.publish(&article_with(id, json!({"group_code": BOTH, "draft": id == "b"}))).await.ok();
            // Ids that are made in one millisecond have no order.
            world.advance(1);
        }
        for id in ["a", "c"] {
            api.finished(id).await;
        }
        let first = api.get("/tasks?limit=2").await.ok();
        assert_eq!(ids(&first), ["c", "b"]);
        for task in first["tasks"].as_array().unwrap() {
            assert_eq!(*task, api.task(task["external_id"].as_str().unwrap()).await.ok());
        }
        let mut shown = redacted(&first);
        assert!(shown["next_cursor"].take().is_string());
        insta::assert_json_snapshot!("task_list", shown);
        let second =
            api.get(&path(&[("limit", "2"), ("cursor", first["next_cursor"].as_str().unwrap())])).await.ok();
        assert_eq!((ids(&second), &second["next_cursor"]), (vec!["a".to_owned()], &Value::Null));
        // A full page that is the last one says so.
        assert_eq!(api.get("/tasks?limit=3").await.ok()["next_cursor"], Value::Null);
    })
    .await;
}

/// Parameters, and the ids that fit, the newest first.
type Case<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str]);

#[tokio::test]
async fn every_filter_narrows_the_list_alone_and_with_others() {
    in_world(async |world: &World| {
        let api = world.start().await;
        world.account(world.tenant.tenant_id, "blog3", 4, TimeDelta::zero()).await;
        world.group(world.tenant.tenant_id, "third", &["blog3"]).await;
        let begun = world.clock.now();
        let time = |at: DateTime<Utc>| at.to_rfc3339_opts(SecondsFormat::Micros, true);
        for (id, group) in [("x-1", ONE), ("x-2", BOTH), ("y-1", "third"), ("e\u{301}-1", ONE), ("z", BOTH)] {
            api.publish(&article_with(id, json!({"group_code": group, "draft": id != "x-1"}))).await.ok();
            world.advance(3_600);
        }
        api.finished("x-1").await;
        let x2 = api.task("x-2").await.ok();
        let (x2_id, x2_at) = (x2["task_id"].as_str().unwrap(), x2["created_at"].as_str().unwrap());
        let (soon, late) = (time(begun + TimeDelta::minutes(90)), time(begun + TimeDelta::minutes(150)));
        let cases: [Case<'_>; 23] = [
            (&[("external_id", "e\u{301}-1")], &["\u{e9}-1"]),
            (&[("external_id", "\u{e9}-1"), ("status", "success")], &[]),
            (&[("external_id", "none")], &[]),
            (&[("task_id", x2_id)], &["x-2"]),
            (&[("task_id", x2_id), ("external_id", "x-1")], &[]),
            (&[("task_id", x2_id), ("external_id_prefix", "x")], &["x-2"]),
            (&[("external_id_prefix", "x-")], &["x-2", "x-1"]),
            (&[("external_id_prefix", "e\u{301}")], &["\u{e9}-1"]),
            (&[("external_id_prefix", "e")], &[]),
            (&[("external_id_prefix", "\u{10ffff}")], &[]),
            (&[("external_id_prefix", "x"), ("external_id", "z")], &[]),
            (&[("status", "success")], &["x-1"]),
            (&[("status", "draft"), ("external_id_prefix", "x")], &["x-2"]),
            (&[("group_code", "both")], &["z", "x-2"]),
            (&[("group_code", "nowhere")], &[]),
            (&[("platform", "static_site"), ("account_id", "blog2")], &["z", "x-2"]),
            (&[("platform", "elsewhere")], &[]),
            (&[("account_id", "blog3")], &["y-1"]),
            (&[("account_id", "blog3"), ("platform", "elsewhere")], &[]),
            (&[("created_after", &soon)], &["z", "\u{e9}-1", "y-1"]),
            (&[("created_before", &soon)], &["x-2", "x-1"]),
            (&[("created_after", &soon), ("created_before", &late)], &["y-1"]),
            // The time itself is after, and is not before.
            (&[("created_after", x2_at), ("created_before", &soon)], &["x-2"]),
        ];
        for (parameters, expected) in cases {
            assert_eq!(all_ids(&api, parameters).await, expected, "{parameters:?}");
        }
        assert_eq!(all_ids(&api, &[("created_before", x2_at)]).await, ["x-1"]);
        let zoned = time(begun + TimeDelta::minutes(90)).replace('Z', "+00:00");
        assert_eq!(all_ids(&api, &[("created_before", &zoned)]).await, ["x-2", "x-1"]);
    })
    .await;
}

#[tokio::test]
async fn bad_parameters_are_refused_by_name() {
    in_world(async |world: &World| {
        let api = world.start().await;
        drafts(world, ["a", "b"].map(str::to_owned), ONE).await;
        let page = api.get("/tasks?limit=1").await.ok();
        let cursor = page["next_cursor"].as_str().unwrap();
        let long = "x".repeat(201);
        for (name, value) in [
            ("external_id", " a"),
            ("external_id", ""),
            ("task_id", "a"),
            ("external_id_prefix", ""),
            ("external_id_prefix", &long),
            ("external_id_prefix", "a\0"),
            ("status", "done"),
            ("status", ""),
            ("group_code", "a b"),
            ("platform", "Static"),
            ("account_id", "a/b"),
            ("created_after", "yesterday"),
            ("created_before", "2030-01-01"),
            ("created_before", "2030-01-01T00:00:00 02:00"),
            ("limit", "0"),
            ("limit", "201"),
            ("limit", "-1"),
            ("limit", "x"),
            ("cursor", "x"),
            ("cursor", ""),
            ("colour", "red"),
        ] {
            let problem = api.get(&path(&[(name, value)])).await.problem(400, "invalid_query");
            assert!(problem["detail"].as_str().unwrap().contains(&format!("{name:?}")), "{problem}");
        }
        let twice = path(&[("status", "draft"), ("status", "draft")]);
        let problem = api.get(&twice).await.problem(400, "invalid_query");
        assert!(problem["detail"].as_str().unwrap().contains("\"status\""), "{problem}");
        let others = path(&[("cursor", cursor), ("status", "draft")]);
        let problem = api.get(&others).await.problem(400, "invalid_query");
        assert!(problem["detail"].as_str().unwrap().contains("other filters"), "{problem}");
        // The number of tasks is no filter.
        api.get(&path(&[("cursor", cursor), ("limit", "200")])).await.ok();
        let publisher = api.with_key(&world.key(world.tenant.tenant_id, &[Scope::Publish]).await);
        publisher.get("/tasks").await.problem(403, "forbidden");
    })
    .await;
}

#[tokio::test]
async fn other_tenants_tasks_never_appear() {
    in_world(async |world: &World| {
        let api = world.start().await;
        let other = world.another_tenant("other").await;
        let theirs = api.with_key(&world.key(other.tenant_id, &Scope::ALL).await);
        let draft = article_with("a", json!({"draft": true}));
        let mine = api.publish(&draft).await.ok();
        api.publish(&article_with("b", json!({"draft": true}))).await.ok();
        let yours = theirs.publish(&draft).await.ok();
        let theirs_id = yours["task_id"].as_str().unwrap();
        assert_ne!(mine["task_id"], yours["task_id"]);
        for (parameters, expected) in [
            (vec![], vec![theirs_id]),
            (vec![("external_id", "a")], vec![theirs_id]),
            (vec![("external_id", "b")], vec![]),
            (vec![("external_id_prefix", "b")], vec![]),
            (vec![("task_id", mine["task_id"].as_str().unwrap())], vec![]),
            (vec![("status", "draft")], vec![theirs_id]),
            (vec![("account_id", "blog1")], vec![theirs_id]),
        ] {
            let page = theirs.get(&path(&parameters)).await.ok();
            let tasks = page["tasks"].as_array().unwrap().iter().map(|task| &task["task_id"]);
            assert_eq!(tasks.collect::<Vec<_>>(), expected, "{parameters:?}");
        }
        // Nor by a cursor of theirs.
        let first = api.get("/tasks?limit=1").await.ok();
        let stolen = path(&[("cursor", first["next_cursor"].as_str().unwrap())]);
        assert!(
            theirs.get(&stolen).await.ok()["tasks"]
                .as_array()
                .unwrap()
                .iter()
                .all(|task| task["task_id"] == theirs_id)
        );
    })
    .await;
}

#[tokio::test]
async fn pages_skip_none_and_give_none_twice_while_others_come_in() {
    in_world(async |world: &World| {
        let api = world.start().await;
        drafts(world, (0..300).map(|n| format!("here-{n:03}")), ONE).await;
        let (tell, mut told) = watch::channel(0);
        let coming = async {
            for round in 0_u32.. {
                let articles =
                    (0..10).map(|n| article_with(&format!("new-{round}-{n}"), json!({"draft": true})));
                let articles = articles.collect::<Vec<_>>();
                api.post("/publish/batch", &json!({"articles": articles})).await.ok();
                if tell.send(round + 1).is_err() {
                    return;
                }
            }
        };
        let reading = async {
            let (mut seen, mut cursor) = (Vec::new(), None::<String>);
            loop {
                // Between two pages, something has come in.
                told.changed().await.unwrap();
                let mut parameters = vec![("limit", "17")];
                parameters.extend(cursor.as_deref().map(|cursor| ("cursor", cursor)));
                let page = api.get(&path(&parameters)).await.ok();
                seen.extend(ids(&page));
                cursor = page["next_cursor"].as_str().map(str::to_owned);
                if cursor.is_none() {
                    drop(told);
                    return seen;
                }
            }
        };
        let ((), seen) = tokio::join!(coming, reading);
        assert_eq!(seen.iter().collect::<HashSet<_>>().len(), seen.len(), "given twice");
        let here = seen.iter().filter(|id| id.starts_with("here-")).count();
        assert_eq!(here, 300, "skipped");
        // Something did come in meanwhile.
        assert!(world.number("SELECT count(*) FROM tasks").await > 400);
    })
    .await;
}

#[tokio::test]
async fn a_page_looks_at_a_bounded_number_and_says_where_to_go_on() {
    in_world(async |world: &World| {
        let api = world.start().await;
        drafts(world, ["rare-a", "rare-b"].map(str::to_owned), BOTH).await;
        world.advance(1);
        drafts(world, (0..2_500).map(|n| format!("many-{n:04}")), ONE).await;
        world.advance(1);
        drafts(world, ["rare-c"].map(str::to_owned), BOTH).await;
        let found = pages(&api, &[("group_code", BOTH)]).await;
        assert_eq!(found.iter().map(|page| ids(page).len()).collect::<Vec<_>>(), [1, 2]);
        let none = pages(&api, &[("status", "failed")]).await;
        assert_eq!((none.len(), ids(&none[0]).len()), (2, 0));
        // Few of a prefix are found in one page, wherever they stand.
        let rare = pages(&api, &[("external_id_prefix", "rare-")]).await;
        assert_eq!((rare.len(), sorted_ids(&api, &[("external_id_prefix", "rare-")]).await.len()), (1, 3));
        // Many of a prefix are walked through.
        let many = all_ids(&api, &[("external_id_prefix", "many-"), ("limit", "200")]).await;
        assert_eq!((many.len(), many.iter().collect::<HashSet<_>>().len()), (2_500, 2_500));
        let exactly = all_ids(&api, &[("external_id_prefix", "many-0"), ("limit", "99")]).await;
        assert_eq!(exactly.len(), 1_000);
        assert_eq!(all_ids(&api, &[("limit", "200")]).await.len(), 2_503);
    })
    .await;
}

/// Every way that up to three publications can stand, each had by a worker or not, each as a task `<n>`.
async fn every_standing(world: &World) -> usize {
    let one = Status::ALL.iter().flat_map(|status| [(*status, 0), (*status, 1)]).collect::<Vec<_>>();
    let mut standings = one.iter().map(|a| vec![*a]).collect::<Vec<_>>();
    for a in &one {
        for b in &one {
            standings.push(vec![*a, *b]);
            standings.extend(one.iter().map(|c| vec![*a, *b, *c]));
        }
    }
    let tenant_id = world.tenant.tenant_id;
    let (mut tasks, mut of_task, mut accounts, mut statuses, mut fences) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for standing in &standings {
        let task_id = world.clock.new_id();
        tasks.push(task_id);
        for (at, (status, fence)) in standing.iter().enumerate() {
            of_task.push(task_id);
            accounts.push(format!("blog{at}"));
            statuses.push(status.as_str());
            fences.push(*fence);
        }
    }
    let mut connection = world.pool.acquire().await.unwrap();
    connection.execute("SET session_replication_role = replica").await.unwrap();
    sqlx::query(
        "WITH runs AS (
            INSERT INTO publications (tenant_id, publication_id, task_id, platform, account_id, position, status, due_at,
                fence, lease_owner, lease_until, error_code, error_message, error_retryable, updated_at, expired_at)
            SELECT $1, gen_random_uuid(), task_id, 'static_site', account_id, 1, status, now(), fence,
                CASE WHEN status = 'running' THEN 'w' END, CASE WHEN status = 'running' THEN now() END,
                CASE WHEN status = 'failed' THEN 'e' END, CASE WHEN status = 'failed' THEN 'e' END,
                CASE WHEN status = 'failed' THEN false END, now(), CASE WHEN status = 'login_expired' THEN now() END
            FROM unnest($3::uuid[], $4::text[], $5::text[], $6::int[]) AS u(task_id, account_id, status, fence)
            RETURNING task_id, status
        ), texts AS (
            INSERT INTO articles (tenant_id, task_id, title, content_html, tags, metadata)
            SELECT $1, task_id, 'T', 'x', '[]', '{}' FROM unnest($2::uuid[]) AS t(task_id)
        )
        INSERT INTO tasks (tenant_id, external_id, task_id, group_code, fingerprint, digests, draft, drafts, open, succeeded,
            failed, login_expired, created_at)
        SELECT $1, t.task_id::text, t.task_id, 'one', sha256(''), sha256('') || sha256(''), false,
            count(*) FILTER (WHERE status = 'draft'), count(*) FILTER (WHERE status IN ('submitted', 'running')),
            count(*) FILTER (WHERE status = 'success'), count(*) FILTER (WHERE status = 'failed'),
            count(*) FILTER (WHERE status = 'login_expired'), now()
        FROM unnest($2::uuid[]) AS t(task_id) JOIN runs USING (task_id) GROUP BY t.task_id",
    )
    .bind(tenant_id)
    .bind(&tasks)
    .bind(&of_task)
    .bind(&accounts)
    .bind(&statuses)
    .bind(&fences)
    .execute(&mut *connection)
    .await
    .unwrap();
    standings.len()
}

#[tokio::test]
async fn the_filter_for_states_is_what_the_tasks_say() {
    in_world(async |world: &World| {
        // Without its workers: nothing of this may move.
        let filtered = async |status: Option<Status>| {
            let filters = publish_ingest::store::TaskFilters { status, ..Default::default() };
            let (mut tasks, mut before) = (Vec::new(), None);
            loop {
                let page =
                    world.store.task_page(world.tenant.tenant_id, &filters, before, 200).await.unwrap();
                tasks.extend(page.tasks);
                before = page.next;
                if before.is_none() {
                    return tasks;
                }
            }
        };
        let made = every_standing(world).await;
        let mut found = 0;
        for status in Status::ALL {
            for task in filtered(Some(status)).await {
                let counts =
                    publish_ingest::task::state::Counts::of(task.publications.iter().map(|one| one.status));
                let tried = task.publications.iter().any(|one| one.claimed);
                assert_eq!(counts.task_status(tried), status, "{:?}", task.publications);
                found += 1;
            }
        }
        assert_eq!((found, filtered(None).await.len()), (made, made));
        // What was made by hand breaks what must hold elsewhere.
        world
            .execute(
                "SET session_replication_role = replica;
                DELETE FROM tasks; DELETE FROM publications; DELETE FROM articles;
                SET session_replication_role = origin",
            )
            .await;
    })
    .await;
}
