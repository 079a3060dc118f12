use std::collections::HashSet;
use std::fs;
use std::path::Path;

use chrono::{DateTime, TimeDelta};
use scraper::{Html, Node};
use serde_json::json;
use tempfile::TempDir;
use uuid::Uuid;

use super::*;
use crate::account::Credentials;
use crate::article::Content;
use crate::clock::{Clock as _, TestClock};
use crate::connector::Trace;

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn site(root: &Path) -> StaticSite {
    site_at(root, Arc::new(TestClock::seeded(1)))
}

/// A site whose publications wait for index and feed however slow the machine is.
fn site_at(root: &Path, clock: SharedClock) -> StaticSite {
    StaticSite::patient(root.to_owned(), "https://news.example/site/", clock, Duration::MAX)
}

fn job(marker: &str) -> Job {
    Job {
        marker: marker.to_owned(),
        tenant: "acme".to_owned(),
        tenant_id: Uuid::nil(),
        publication_id: Uuid::nil(),
        round: 1,
        external_id: marker.to_owned(),
        account_id: "blog".to_owned(),
        credentials: Credentials::none(),
        settings: json!({"site": "blog"}),
        content: Content {
            title: format!("Title of {marker}"),
            content_html: format!("<p>Onlyhere{marker}"),
            summary: None,
            cover_url: None,
            canonical_url: None,
            author: None,
            tags: Vec::new(),
        },
        until: TestClock::seeded(1).instant() + Duration::from_hours(1),
        submitted_at: DateTime::parse_from_rfc3339("2026-03-04T05:06:07.123456Z").unwrap().to_utc(),
        draft_id: None,
        prepared: Value::Null,
        request_id: String::new(),
        trace: Trace::default(),
    }
}

fn read(root: &Path, name: &str) -> String {
    fs::read_to_string(root.join("acme/blog").join(name)).unwrap()
}

fn code(verdict: Verdict) -> String {
    match verdict {
        Verdict::Rejected(failure) | Verdict::Transient(failure) => failure.code.into_owned(),
        other => panic!("{other:?}"),
    }
}

async fn derivations(site: &StaticSite) -> u64 {
    let site = site.shared.site(&job("m")).unwrap();
    site.listing.lock().await.derivations
}

#[tokio::test]
async fn whoever_comes_after_its_time_places_nothing() {
    let root = folder();
    let site = site(root.path());
    let mut late = job("m1");
    late.until = TestClock::seeded(1).instant();
    assert!(matches!(site.publish(&late).await, Verdict::Unknown(_)));
    assert_eq!(site.find(&job("m1")).await, Sighting::absent());
    assert!(matches!(site.publish(&job("m1")).await, Verdict::Done(_)));
}

#[tokio::test]
async fn an_article_is_found_where_it_was_published() {
    let root = folder();
    let site = site(root.path());
    assert_eq!(site.find(&job("m1")).await, Sighting::absent());
    let remote =
        Remote { url: "https://news.example/site/acme/blog/m1.html".into(), remote_id: Some("m1".into()) };
    assert_eq!(site.publish(&job("m1")).await, Verdict::Done(remote.clone()));
    assert_eq!(site.find(&job("m1")).await, Sighting::published(remote));
    assert_eq!(site.find(&job("m2")).await, Sighting::absent());
    let names: HashSet<_> = fs::read_dir(root.path().join("acme/blog"))
        .unwrap()
        .map(|f| f.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(names, ["m1.html", "index.html", "feed.xml", ".listing.lock"].map(str::to_owned).into());
    for file in ["index.html", "feed.xml"] {
        assert!(!read(root.path(), file).contains("Onlyhere"));
    }
    assert_eq!(read(root.path(), "m1.html").matches("Onlyhere").count(), 1);
}

#[tokio::test]
async fn a_page_is_never_written_again() {
    let root = folder();
    site(root.path()).publish(&job("m1")).await;
    let before = read(root.path(), "m1.html");
    let mut other = job("m1");
    other.content.content_html = "other".repeat(9);
    assert!(matches!(site(root.path()).publish(&other).await, Verdict::Done(_)));
    // Also below the look-up that comes first.
    let shared = site(root.path()).shared;
    shared.site(&other).unwrap().folder.place("m1", "other", shared.clock.new_id(), || true).unwrap();
    assert_eq!(read(root.path(), "m1.html"), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn racing_workers_make_one_page() {
    let root = folder();
    let mut racing = tokio::task::JoinSet::new();
    for n in 0..32 {
        let site = site(root.path());
        racing.spawn(async move {
            let mut job = job("m1");
            job.content.content_html = format!("<p>worker {n}");
            site.publish(&job).await
        });
    }
    let verdicts = racing.join_all().await;
    assert!(
        verdicts.iter().all(|v| matches!(v, Verdict::Done(r) if r.url.ends_with("/m1.html"))),
        "{verdicts:?}"
    );
    assert_eq!(read(root.path(), "m1.html").matches("<p>worker").count(), 1);
    assert_eq!(read(root.path(), "feed.xml").matches("<entry>").count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_publications_share_the_listing() {
    let root = folder();
    let site = Arc::new(site(root.path()));
    let mut running = tokio::task::JoinSet::new();
    for n in 0..200 {
        let site = site.clone();
        running.spawn(async move { site.publish(&job(&format!("m{n}"))).await });
    }
    assert!(running.join_all().await.iter().all(|v| matches!(v, Verdict::Done(_))));
    let (index, feed) = (read(root.path(), "index.html"), read(root.path(), "feed.xml"));
    for n in 0..200 {
        let url = format!("\"https://news.example/site/acme/blog/m{n}.html\"");
        assert!(index.contains(&url) && feed.contains(&url), "{n}");
    }
    let derivations = derivations(&site).await;
    eprintln!("{derivations} derivations for 200 publications");
    assert!(derivations < 120, "{derivations}");
}

#[tokio::test]
async fn the_index_has_pages_and_each_article_stands_on_one() {
    let root = folder();
    let site = site(root.path());
    site.publish(&job("m0000")).await;
    let page = read(root.path(), "m0000.html");
    for n in 1..1600 {
        fs::write(root.path().join(format!("acme/blog/m{n:04}.html")), &page).unwrap();
    }
    site.publish(&job("n")).await;
    let pages = ["index.html", "index.2.html", "index.1.html"].map(|name| read(root.path(), name));
    let counts = pages.each_ref().map(|page| page.matches("<li>").count());
    assert_eq!(counts, [601, 500, 500]);
    assert!(pages[0].contains("blog/index.2.html\"") && pages[1].contains("blog/index.1.html\""));
    assert!(pages[1].contains("blog/index.html\"") && pages[2].contains("blog/index.2.html\""));
    assert!(pages[0].find("/n.html").unwrap() < pages[0].find("/m1599.html").unwrap());
    assert!(pages[2].contains("/m0000.html") && pages[1].contains("/m0999.html"));
    assert_eq!(read(root.path(), "feed.xml").matches("<entry>").count(), FEED_ENTRIES);
    for n in 0..1200 {
        fs::remove_file(root.path().join(format!("acme/blog/m{n:04}.html"))).unwrap();
    }
    site.publish(&job("o")).await;
    assert_eq!(read(root.path(), "index.html").matches("<li>").count(), 402);
    assert!(!root.path().join("acme/blog/index.1.html").exists());
}

#[tokio::test]
async fn after_a_crash_a_look_up_lists_the_page_and_leftovers_go() {
    let root = folder();
    site(root.path()).publish(&job("m1")).await;
    fs::remove_file(root.path().join("acme/blog/index.html")).unwrap();
    let leftover = root.path().join("acme/blog/.m2.x.tmp");
    fs::write(&leftover, "half").unwrap();
    let clock = Arc::new(TestClock::seeded(2));
    let again = site_at(root.path(), clock.clone());
    assert_ne!(again.find(&job("m1")).await, Sighting::absent());
    assert!(read(root.path(), "index.html").contains("/m1.html"));
    assert!(leftover.exists());
    clock.advance(TimeDelta::minutes(61));
    again.publish(&job("m3")).await;
    assert!(!leftover.exists());
}

#[tokio::test]
async fn what_cannot_be_known_is_not_guessed() {
    let root = folder();
    let gone = site(&root.path().join("missing"));
    assert!(matches!(gone.find(&job("m1")).await, Sighting::CannotTell(_)));
    assert!(matches!(gone.publish(&job("m1")).await, Verdict::Unknown(_)));
    assert!(!root.path().join("missing").exists());
    // A file where a folder should be; a folder where a page should be.
    fs::write(root.path().join("acme"), "").unwrap();
    assert!(matches!(site(root.path()).find(&job("m1")).await, Sighting::CannotTell(_)));
    fs::remove_file(root.path().join("acme")).unwrap();
    fs::create_dir_all(root.path().join("acme/blog/m1.html")).unwrap();
    assert!(matches!(site(root.path()).find(&job("m1")).await, Sighting::CannotTell(_)));
    // A site's folder that leads nowhere: nothing is there, and nothing can be written.
    std::os::unix::fs::symlink("nowhere", root.path().join("acme/b")).unwrap();
    let mut job = job("m1");
    job.settings = json!({"site": "b"});
    assert_eq!(site(root.path()).find(&job).await, Sighting::absent());
    assert_eq!(code(site(root.path()).publish(&job).await), "site_unwritable");
}

#[tokio::test]
async fn names_cannot_leave_the_folder() {
    let root = folder();
    let site = site(root.path());
    let long = "x".repeat(65);
    for bad in ["", ".", "..", ".x", "../x", "a/b", "a\\b", "a\0", "ä", "a b", long.as_str()] {
        let mut at = job("m1");
        at.settings = json!({"site": bad});
        assert_eq!(code(site.publish(&at).await), "bad_settings", "{bad}");
        assert_eq!(site.find(&at).await, Sighting::absent());
        let mut at = job("m1");
        bad.clone_into(&mut at.tenant);
        assert_eq!(code(site.publish(&at).await), "bad_name", "{bad}");
        assert_eq!(code(site.publish(&job(bad)).await), "bad_name", "{bad}");
    }
    assert_eq!(code(site.publish(&job("index")).await), "bad_name");
    assert_eq!(code(site.publish(&job("index.1")).await), "bad_name");
    for bad in [json!(null), json!({}), json!({"site": 1}), json!({"site": "a", "path": "/"})] {
        assert!(check_settings(&bad).is_err(), "{bad}");
    }
    assert_eq!(check_settings(&json!({"site": "a.b_C-1"})).unwrap().site, "a.b_C-1");
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn every_field_is_escaped_and_read_back() {
    let root = folder();
    let nasty = |what: &str| format!("{what} <b>&\"'</b></title></head>--><script>]]>\u{1}\u{FFFE}\n é🧑‍🚀");
    let mut job = job("m1");
    job.content.title = nasty("title");
    job.content.summary = Some(nasty("summary"));
    job.content.author = Some(nasty("author"));
    job.content.tags = vec![nasty("tag"), "second".into()];
    job.content.cover_url = Some("https://x.example/a.png?a=1&b=\"2\"".into());
    job.content.canonical_url = Some("https://x.example/canonical".into());
    job.content.content_html = "<p>Onlyhere</p><script>alert(1)</script>".into();
    site(root.path()).publish(&job).await;

    let html = read(root.path(), "m1.html");
    let page = Html::parse_document(&html);
    assert_eq!(page.errors, [""; 0]);
    let elements = || page.tree.nodes().filter_map(|n| n.value().as_element().map(|e| (n, e)));
    let scripts = elements().filter(|(_, e)| e.name() == "script").count();
    assert_eq!(scripts, 1, "{html}");
    let meta = |name: &str| {
        let named = |e: &&scraper::node::Element| {
            [e.attr("name"), e.attr("property"), e.attr("http-equiv")].contains(&Some(name))
        };
        elements().map(|(_, e)| e).find(named).and_then(|e| e.attr("content")).map(str::to_owned)
    };
    let clean = |what: &str| nasty(what).replace(['\u{1}', '\u{FFFE}'], "\u{FFFD}");
    assert_eq!(meta("description"), Some(clean("summary")));
    assert_eq!(meta("author"), Some(clean("author")));
    assert_eq!(meta("article:published_time").as_deref(), Some("2026-03-04T05:06:07.123456Z"));
    assert!(meta("Content-Security-Policy").unwrap().contains("script-src 'none'"));
    assert!(CONTENT_SECURITY_POLICY.starts_with(&meta("Content-Security-Policy").unwrap()));
    let text = |name: &str| {
        let (node, _) = elements().find(|(_, e)| e.name() == name).unwrap();
        node.descendants().filter_map(|n| n.value().as_text().map(|t| &*t.text)).collect::<String>()
    };
    assert_eq!(
        (text("title"), text("h1"), text("time").as_str()),
        (clean("title"), clean("title"), "4 March 2026")
    );
    assert!(elements().any(|(_, e)| e.name() == "img" && e.attr("src") == job.content.cover_url.as_deref()));
    assert!(
        elements().any(|(_, e)| e.attr("rel") == Some("canonical")
            && e.attr("href") == job.content.canonical_url.as_deref())
    );

    let feed = read(root.path(), "feed.xml");
    let feed = roxmltree::Document::parse(&feed).unwrap();
    let entry = feed.descendants().find(|n| n.has_tag_name("entry")).unwrap();
    let child = |name: &str| entry.descendants().find(|n| n.has_tag_name(name)).unwrap();
    assert_eq!(child("title").text(), Some(clean("title").as_str()));
    assert_eq!(child("summary").text(), Some(clean("summary").as_str()));
    assert_eq!(child("name").text(), Some(clean("author").as_str()));
    assert_eq!(
        child("category").attribute("term").unwrap().replace(' ', "\n"),
        clean("tag").replace(' ', "\n")
    );
    assert_eq!(child("link").attribute("href"), Some("https://news.example/site/acme/blog/m1.html"));
    let index = Html::parse_document(&read(root.path(), "index.html"));
    assert_eq!(index.errors, [""; 0]);
    assert!(!index.tree.values().filter_map(Node::as_element).any(|e| matches!(e.name(), "script" | "b")));
}

#[tokio::test]
async fn what_is_too_complex_is_rejected_and_leaves_nothing() {
    let root = folder();
    let mut deep = job("m1");
    deep.content.content_html = "<div>".repeat(1_000);
    assert_eq!(code(site(root.path()).publish(&deep).await), "content_too_complex");
    assert_eq!(site(root.path()).find(&deep).await, Sighting::absent());
}

/// All that is listed, page by page: names with their marks and titles.
async fn all_listed(
    site: &StaticSite,
    settings: Value,
) -> Result<Vec<(String, Option<String>, String)>, String> {
    let access = Access {
        tenant: "acme".to_owned(),
        tenant_id: Uuid::nil(),
        account_id: "blog".to_owned(),
        settings,
        credentials: Credentials::none(),
    };
    let (mut all, mut next) = (Vec::new(), None);
    loop {
        match site.list(&access, next).await {
            crate::connector::Listing::Page { articles, next: after } => {
                for one in articles {
                    assert_eq!(one.url, Some(format!("https://news.example/site/acme/blog/{}.html", one.id)));
                    all.push((one.id, one.marker, one.title));
                }
                next = after;
            }
            crate::connector::Listing::CannotTell(why) => return Err(why),
        }
        if next.is_none() {
            return Ok(all);
        }
    }
}

#[tokio::test]
async fn the_pages_of_a_folder_are_listed_and_the_lists_that_stand_beside_them_are_not() {
    let root = folder();
    let site = site(root.path());
    let settings = || json!({"site": "blog"});
    assert_eq!(all_listed(&site, settings()).await, Ok(Vec::new()));
    for marker in ["m2", "m1"] {
        site.publish(&job(marker)).await;
    }
    let blog = root.path().join("acme/blog");
    fs::write(blog.join("about.html"), "<title>About</title>").unwrap();
    fs::copy(blog.join("m1.html"), blog.join("m1.old.html")).unwrap();
    for own in ["index.1.html", ".m3.html", "notes.txt"] {
        fs::write(blog.join(own), "x").unwrap();
    }
    let own = |id: &str| (id.to_owned(), Some(id.to_owned()), format!("Title of {id}"));
    let strange = |id: &str, title: &str| (id.to_owned(), None, title.to_owned());
    let expected = vec![strange("about", "about"), own("m1"), strange("m1.old", "m1.old"), own("m2")];
    assert_eq!(all_listed(&site, settings()).await, Ok(expected));
    assert!(all_listed(&site, json!({"site": "../up"})).await.is_err());
    // A root that is not mounted holds who knows what.
    fs::remove_dir_all(root.path()).unwrap();
    assert!(all_listed(&site, settings()).await.is_err());
}

#[test]
fn a_folder_is_walked_page_by_page_in_the_order_of_names() {
    let root = folder();
    let folder = folder::Folder::new(root.path(), "acme", "blog");
    fs::create_dir_all(&folder.path).unwrap();
    for name in ["c", "a", "d", "b", "e"] {
        fs::write(folder.path.join(format!("{name}.html")), "x").unwrap();
    }
    assert_eq!(folder.pages_after("", 2).unwrap(), ["a", "b"]);
    assert_eq!(folder.pages_after("b", 2).unwrap(), ["c", "d"]);
    assert_eq!(folder.pages_after("d", 2).unwrap(), ["e"]);
    assert_eq!(folder.pages_after("e", 2).unwrap(), [""; 0]);
}
