//! The `Ghost` connector against a real `Ghost`.
//!
//! Others are asked in between, by processes that the tests wait for; so connections are kept by a thread of their own.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use publish_ingest::article::Content;
use publish_ingest::clock::TestClock;
use publish_ingest::connector::{Connector, Job, Listing, Login, Marked, Removal, Sighting, Verdict};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::server::{Server, clock, marker};

mod blog;

use blog::{
    PNG, access, alone, ask, connector, credentials, done, draft, drafted, gallery, job, page, page_status,
    seen, shared, sql, usual,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_post_lives_from_its_draft_to_its_page() {
    let server = shared();
    let (ghost, job) = (usual(), job(&server));
    assert_eq!(seen(&ghost, &job).await, []);
    let job = drafted(&ghost, job).await;
    let id = job.draft_id.clone().unwrap();
    assert_eq!(seen(&ghost, &job).await, [Marked { id: id.clone(), public: None }]);

    let remote = done(&ghost, &job).await;
    assert_eq!(remote.remote_id.as_ref(), Some(&id));
    let slug = format!("uber-die-brucke-{}", job.marker);
    assert_eq!(remote.url, format!("{}/{slug}/", server.text("base_url")));
    let public = Marked { id: id.clone(), public: Some(remote.clone()) };
    assert_eq!(seen(&ghost, &Job { draft_id: None, ..job.clone() }).await, [public]);

    let path = format!("posts/{id}/?formats=html&include=tags");
    let (_, before) = ask(&server, "GET", &path, &Value::Null);
    assert_eq!(done(&ghost, &job).await, remote, "publishing it again is harmless");
    let (_, after) = ask(&server, "GET", &path, &Value::Null);
    assert_eq!(before, after);

    let post = &after["posts"][0];
    let card = "<!--kg-card-begin: html-->\nbare <mark>text</mark><dl><dt>t</dt><dd>d</dd></dl>\n<!--kg-card-end: html-->";
    assert_eq!(post["html"].as_str().unwrap().trim(), card);
    assert_eq!(
        (&post["custom_excerpt"], &post["primary_tag"]["name"]),
        (&json!("In short"), &json!("First"))
    );
    assert_eq!(post["canonical_url"], "https://elsewhere.example/a");
    let tags = post["tags"].as_array().unwrap().iter().map(|tag| tag["name"].as_str().unwrap());
    let mark = format!("#pi-{}", job.marker);
    assert_eq!(tags.collect::<Vec<_>>(), ["First", "Second, third", &mark]);

    // Readers are not shown the tag; themes make it a class, by which it can be styled.
    let (status, html) = page(&remote.url);
    assert!(status == 200 && html.contains("bare <mark>text</mark>"), "{status}");
    assert!(!html.contains("#pi-") && !html.contains("/tag/hash-pi-"), "{html}");
    let (_, feed) = page(&format!("{}/rss/", server.text("base_url")));
    assert!(feed.contains(&slug) && !feed.contains("#pi-") && !feed.contains("hash-pi-"), "{feed}");
    assert_eq!(page(&format!("{}/tag/hash-pi-{}/", server.text("base_url"), job.marker)).0, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn nobody_is_mailed() {
    let server = shared();
    let member = json!({"members": [{"email": format!("{}@reader.example", marker())}]});
    assert_eq!(ask(&server, "POST", "members/", &member).0, 201);
    let ghost = usual();
    let job = drafted(&ghost, job(&server)).await;
    done(&ghost, &job).await;
    let path = format!("posts/{}/", job.draft_id.unwrap());
    let (_, told) = ask(&server, "GET", &path, &Value::Null);
    assert_eq!((&told["posts"][0]["newsletter"], &told["posts"][0]["email"]), (&Value::Null, &Value::Null));
    assert_eq!(sql(&server, "SELECT count(*) FROM emails"), [0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn of_several_drafts_all_are_found_and_the_oldest_is_first() {
    let server = alone();
    let (ghost, job) = (usual(), job(&server));
    let five = futures_util::future::join_all((0..5).map(|_| draft(&ghost, &job))).await;
    // Taken slugs get a counter, not an error.
    let slug = format!("SELECT group_concat(slug) FROM posts WHERE slug LIKE '%{}%'", job.marker);
    let slugs = sql(&server, &slug)[0].as_str().unwrap().to_owned();
    assert!(slugs.contains(&format!("{}-2", job.marker)), "{slugs}");
    let found = seen(&ghost, &job).await.into_iter().map(|one| one.id).collect::<Vec<_>>();
    let mut sorted = five.clone();
    sorted.sort();
    assert_eq!(found, sorted, "ids rise within a second");

    // One is published; the others are removed, and it is not.
    let first = Job { draft_id: Some(found[0].clone()), ..job.clone() };
    done(&ghost, &first).await;
    let older = format!(
        "UPDATE posts SET created_at = '2026-01-31 00:00:00', updated_at = '2026-01-31 00:00:00' WHERE slug LIKE '%{}%'",
        job.marker
    );
    sql(&server, &older);
    for id in &found[1..] {
        let stray = Job { draft_id: Some(id.clone()), ..job.clone() };
        assert_eq!(ghost.remove(&stray).await, Removal::Gone);
        assert_eq!(ghost.remove(&stray).await, Removal::Gone, "it is gone already");
        assert!(matches!(ghost.publish(&stray).await, Verdict::Transient(_)), "and cannot be published");
    }
    assert_eq!(ghost.remove(&first).await, Removal::Public);
    assert_eq!(seen(&ghost, &job).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_post_is_found_by_each_of_its_marks_alone() {
    let server = shared();
    let ghost = usual();
    for change in [json!({"slug": "renamed-by-hand"}), json!({"tags": []})] {
        let job = job(&server);
        let id = draft(&ghost, &job).await;
        let path = format!("posts/{id}/");
        let (_, told) = ask(&server, "GET", &path, &Value::Null);
        let mut change = change;
        change["updated_at"] = told["posts"][0]["updated_at"].clone();
        assert_eq!(ask(&server, "PUT", &path, &json!({"posts": [change]})).0, 200);
        assert_eq!(seen(&ghost, &job).await.len(), 1);
        // Nothing of others.
        assert_eq!(seen(&ghost, &Job { marker: marker(), ..job }).await, []);
    }
}

/// What the connector builds on, of which Ghost's documentation says less.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_change_is_refused_to_who_read_an_older_post() {
    let server = alone();
    let ghost = usual();
    let job = drafted(&ghost, job(&server)).await;
    let id = job.draft_id.clone().unwrap();
    let path = format!("posts/{id}/");
    sql(&server, &format!("UPDATE posts SET updated_at = '2026-01-31 00:00:00' WHERE id = '{id}'"));
    let body = |member: Value| json!({"posts": [member]});
    let first = "2026-01-31T00:00:00.000Z";
    let lock =
        json!({"codeinjection_foot": "<!-- publish-ingest removes this draft -->", "updated_at": first});
    assert_eq!(ask(&server, "PUT", &path, &body(lock)).0, 200);
    let (status, told) =
        ask(&server, "PUT", &path, &body(json!({"status": "published", "updated_at": first})));
    assert_eq!((status, &told["errors"][0]["code"]), (409, &json!("UPDATE_COLLISION")));
    assert_eq!(ask(&server, "PUT", &path, &body(json!({"status": "published"}))).0, 422);

    // What somebody is about to remove is not published, and goes.
    assert!(matches!(ghost.publish(&job).await, Verdict::Transient(_)));
    assert_eq!(ghost.remove(&job).await, Removal::Gone);
    assert_eq!(ask(&server, "GET", &path, &Value::Null).0, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_draft_that_a_person_has_worked_on_is_left_alone() {
    let server = alone();
    let ghost = usual();
    let card = json!({"type": "html", "version": 1, "html": "two hours of work"});
    let text = json!({"root": {"children": [card], "direction": null, "format": "", "indent": 0, "type": "root", "version": 1}});
    for work in [
        json!({"title": "A better title"}),
        json!({"lexical": text.to_string()}),
        json!({"tags": [{"name": "Mine"}], "slug": "mine"}),
        json!({"status": "scheduled", "published_at": "2041-01-01T00:00:00.000Z"}),
    ] {
        let job = drafted(&ghost, job(&server)).await;
        let id = job.draft_id.clone().unwrap();
        let path = format!("posts/{id}/");
        // As if a while had passed.
        let made = "created_at = '2026-01-31 00:00:00', updated_at = '2026-01-31 00:00:00'";
        sql(&server, &format!("UPDATE posts SET {made} WHERE id = '{id}'"));
        let mut change = work.clone();
        change["updated_at"] = json!("2026-01-31T00:00:00.000Z");
        assert_eq!(ask(&server, "PUT", &path, &json!({"posts": [change]})).0, 200, "{work}");
        let removal = ghost.remove(&job).await;
        assert!(matches!(removal, Removal::Unknown(_)), "{work} {removal:?}");
        assert_eq!(ask(&server, "GET", &path, &Value::Null).0, 200);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn tags_that_look_like_marks_are_no_marks() {
    let server = shared();
    let (ghost, original) = (usual(), job(&server));
    let id = draft(&ghost, &original).await;
    let marker = &original.marker;
    let tags = ["#pi-", "\u{a0}#pi-", "hash-pi-", "Hash PI ", "hásh!pi–"].map(|tag| format!("{tag}{marker}"));
    let other = job(&server);
    let content = Content { tags: tags.into(), title: format!("Of {marker}"), ..other.content.clone() };
    let other = drafted(&ghost, Job { content, ..other }).await;
    done(&ghost, &other).await;
    assert_eq!(seen(&ghost, &original).await, [Marked { id, public: None }]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_limits_that_are_told_are_ghosts() {
    let server = shared();
    let (ghost, job) = (usual(), job(&server));
    let content = Content {
        title: "é".repeat(255),
        summary: Some("é".repeat(300)),
        canonical_url: Some(format!("https://h/{}", "u".repeat(1_990))),
        tags: vec!["😀".into(), "t".repeat(50)],
        ..job.content.clone()
    };
    draft(&ghost, &Job { content, ..job.clone() }).await;
    for over in [
        json!({"title": "é".repeat(256)}),
        json!({"title": "a", "custom_excerpt": "é".repeat(301)}),
        json!({"title": "a", "canonical_url": format!("https://h/{}", "u".repeat(1_991))}),
    ] {
        let (status, told) = ask(&server, "POST", "posts/", &json!({"posts": [over]}));
        assert_eq!((status, &told["errors"][0]["type"]), (422, &json!("ValidationError")));
    }
    let content = Content { title: "é".repeat(256), ..job.content.clone() };
    let Verdict::Rejected(failure) = ghost.draft(&Job { content, ..job }).await else { panic!() };
    assert_eq!(failure.code, "title_too_long");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_rotated_key_and_a_deleted_integration_expire_the_login() {
    let server = alone();
    let ghost = usual();
    // An integration of this test's own, whose key can be changed.
    let (id, secret) = ("6b0cca33b8367819c653e3aa", "0f".repeat(32));
    let columns = "type, role_id, integration_id, user_id, last_seen_at, last_seen_version, created_at, created_by, updated_at";
    let (_, known) = server.text("admin_api_key").split_once(':').unwrap();
    sql(
        &server,
        &format!(
            "INSERT INTO api_keys (id, secret, {columns}) SELECT '{id}', '{secret}', {columns} FROM api_keys \
                  WHERE secret = '{known}'"
        ),
    );
    let job = Job { credentials: credentials(&format!("{id}:{secret}")), ..job(&server) };
    assert_eq!(ghost.check_login(&access(&job)).await, Login::Works);
    assert_eq!(seen(&ghost, &job).await, []);
    let rotated = format!("UPDATE api_keys SET secret = '{}' WHERE id = '{id}'", "1f".repeat(32));
    let deleted = format!("DELETE FROM api_keys WHERE id = '{id}'");
    for change in [rotated, deleted] {
        sql(&server, &change);
        assert!(matches!(ghost.find(&job).await, Sighting::LoginExpired(_)), "{change}");
        assert!(matches!(ghost.draft(&job).await, Verdict::LoginExpired(_)), "{change}");
        assert!(matches!(ghost.check_login(&access(&job)).await, Login::Expired(_)), "{change}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_clock_that_is_two_hours_off_hinders_nothing() {
    let server = shared();
    for hours in [-2, 2] {
        let clock = TestClock::seeded(1);
        clock.advance(TimeDelta::hours(hours));
        let ghost = connector(Arc::new(clock));
        let job = job(&server);
        assert_eq!(ghost.check_login(&access(&job)).await, Login::Works, "{hours} h");
        assert_eq!(seen(&ghost, &job).await, []);
        let job = drafted(&ghost, job).await;
        done(&ghost, &job).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_was_sent_to_a_stopped_ghost_is_unknown_and_found_afterwards() {
    let server = Server::start("ghost.py");
    let (ghost, job) = (usual(), job(&server));
    assert_eq!(seen(&ghost, &job).await, []);
    server.signal("site_pids", Signal::STOP);
    let soon = clock().instant() + Duration::from_secs(1);
    let hurried = Job { until: soon, ..job.clone() };
    assert!(matches!(ghost.draft(&hurried).await, Verdict::Unknown(_)));
    let hurried = Job { until: clock().instant() + Duration::from_secs(1), ..job.clone() };
    assert!(matches!(ghost.find(&hurried).await, Sighting::CannotTell(_)));
    server.signal("site_pids", Signal::CONT);
    // It is carried out within the settle time, which is what absence waits for.
    let found = tokio::time::timeout(ghost.settle_time(), async {
        let mut every = tokio::time::interval(Duration::from_millis(200));
        loop {
            every.tick().await;
            let seen = seen(&ghost, &job).await;
            if !seen.is_empty() {
                return seen;
            }
        }
    });
    let found = found.await.unwrap();
    assert_eq!(found.len(), 1);

    // The same of the step that publishes.
    let job = Job { draft_id: Some(found[0].id.clone()), ..job };
    server.signal("site_pids", Signal::STOP);
    let hurried = Job { until: clock().instant() + Duration::from_secs(1), ..job.clone() };
    assert!(matches!(ghost.publish(&hurried).await, Verdict::Transient(_)), "it had only read");
    server.signal("site_pids", Signal::CONT);
    done(&ghost, &job).await;
    assert_eq!(seen(&ghost, &job).await.len(), 1);

    drop(server);
    let unsent = ghost.draft(&job).await;
    assert!(matches!(unsent, Verdict::Transient(_)), "{unsent:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn images_are_uploaded_once_and_shown_from_the_site() {
    let server = shared();
    let (ghost, job) = (usual(), job(&server));
    let cover = gallery(PNG).await;
    let html = format!("<p><img src=\"{cover}\" alt=\"a\"></p>");
    let content = Content { cover_url: Some(cover.clone()), content_html: html, ..job.content.clone() };
    let settings = json!({"base_url": server.text("base_url"), "images": "upload"});
    let job = Job { content, settings, ..job };
    assert!(ghost.prepares(&job));
    let prepared = ghost.prepare(&job).await.unwrap();
    // Begun again, as after a crash.
    assert_eq!(ghost.prepare(&job).await.unwrap(), prepared);
    let hash = prepared.ready["cover"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    let stored =
        Command::new("find").arg(server.data().join("content/images")).args(["-name", "*.png"]).output();
    let stored = String::from_utf8(stored.unwrap().stdout).unwrap();
    assert_eq!(stored.lines().filter(|path| path.contains(&hash[..64])).count(), 1, "{stored}");

    let job = drafted(&ghost, Job { prepared: prepared.ready, ..job }).await;
    done(&ghost, &job).await;
    let (_, told) =
        ask(&server, "GET", &format!("posts/{}/?formats=html", job.draft_id.unwrap()), &Value::Null);
    let place = told["posts"][0]["feature_image"].as_str().unwrap();
    assert!(place.starts_with(server.text("base_url")), "{place}");
    let html = told["posts"][0]["html"].as_str().unwrap();
    assert!(html.contains(place) && !html.contains(&cover), "{html}");
    assert_eq!(page_status(place), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_image_that_ghost_does_not_take_is_told_before_anything_is_made() {
    let server = shared();
    let (ghost, job) = (usual(), job(&server));
    let cover = gallery(b"\0\0\0\x14ftypavif\0\0\0\0mif1").await;
    let content = Content { cover_url: Some(cover), ..job.content.clone() };
    let job = Job { content, ..job };
    let Err(Verdict::Rejected(failure)) = ghost.prepare(&job).await else { panic!() };
    assert_eq!(failure.code, "cover_refused");
    assert!(failure.message.contains("PNG"), "{}", failure.message);
    let settings = json!({"base_url": server.text("base_url"), "broken_images": "omit"});
    let prepared = ghost.prepare(&Job { settings, ..job.clone() }).await.unwrap();
    assert_eq!(prepared.ready["cover"], Value::Null);
    assert_eq!(prepared.warnings[0].code, "cover_omitted");
    assert_eq!(seen(&ghost, &job).await, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn all_that_the_site_holds_is_listed_once() {
    let server = alone();
    let ghost = usual();
    let job = drafted(&ghost, job(&server)).await;
    // More than a page.
    let many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 120) INSERT OR IGNORE INTO posts \
                (id, uuid, title, slug, status, type, email_recipient_filter, created_at, created_by, updated_at) \
                SELECT printf('%024x', i), printf('00000000-0000-4000-8000-%012d', i), 'By hand', 'by-hand-' || i, 'draft', \
                'post', 'all', '2026-01-31 00:00:00', '1', '2026-01-31 00:00:00' FROM n";
    sql(&server, many);
    let (mut all, mut next) = (Vec::new(), None);
    loop {
        let Listing::Page { articles, next: more } = ghost.list(&access(&job), next).await else { panic!() };
        all.extend(articles);
        next = more;
        if next.is_none() {
            break;
        }
    }
    let ours = all.iter().filter(|one| one.marker.as_ref() == Some(&job.marker)).collect::<Vec<_>>();
    assert_eq!((ours.len(), ours[0].url.as_deref(), &*ours[0].title), (1, None, "Über die Brücke"));
    assert_eq!(all.iter().filter(|one| one.title == "By hand" && one.marker.is_none()).count(), 120);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_site_that_is_no_ghost_is_told_so() {
    let server = shared();
    let ghost = usual();
    let url = gallery(PNG).await;
    let elsewhere = url.trim_end_matches("/cover");
    let job = Job { settings: json!({"base_url": elsewhere}), ..job(&server) };
    assert!(matches!(ghost.find(&job).await, Sighting::CannotTell(_)));
    assert!(matches!(ghost.check_login(&access(&job)).await, Login::CannotTell(_)));
    assert!(matches!(ghost.draft(&job).await, Verdict::Transient(_)));
}
