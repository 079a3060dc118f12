//! The newcomer's path: start, paste, look.

use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::api::Answer;
use crate::program::{Dev, Folder, run};

/// The command that is printed, as it would be pasted.
fn printed_curl(stdout: &str) -> String {
    let from = stdout.lines().skip_while(|line| !line.starts_with("curl ")).collect::<Vec<_>>();
    let to = from.iter().position(|line| line.is_empty()).unwrap_or(from.len());
    from[..to].join("\n")
}

/// The request in it: method and URL by curl's own rules, headers and body by the shell's.
fn request_in(curl: &str) -> (String, Vec<(String, String)>, Value) {
    let flat = curl.replace("\\\n", " ");
    let url = flat.split_whitespace().find(|word| word.starts_with("http")).unwrap().to_owned();
    let quoted = |flag: &str| {
        let parts = flat.split(flag).skip(1);
        parts.map(|part| part.split('\'').nth(1).unwrap().to_owned()).collect::<Vec<_>>()
    };
    let headers = quoted("-H ").into_iter().map(|header| {
        let (name, value) = header.split_once(": ").unwrap();
        (name.to_owned(), value.to_owned())
    });
    (url, headers.collect(), serde_json::from_str(&quoted("-d ")[0]).unwrap())
}

#[tokio::test]
async fn what_dev_prints_publishes_the_article_once_and_shows_it() {
    let folder = Folder::new();
    let dev = Dev::start(&folder, &[]).await;
    let curl = printed_curl(&dev.stdout());
    let (url, headers, sent) = request_in(&curl);
    assert_eq!(url, format!("{}/publish", dev.url));
    let api = dev.api();
    let key = headers.iter().find_map(|(_, value)| value.strip_prefix("Bearer ")).unwrap();
    assert_eq!(key, dev.env("PUBLISH_API_KEY"));

    // Pasted into a shell where there is curl, else sent as it stands.
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", &format!("command -v curl >/dev/null || exit 127\n{curl}")]);
    let pasted = run(shell).await;
    let first = if pasted.status.code() == Some(127) {
        api.publish(&sent).await.unwrap().ok()
    } else {
        let text = String::from_utf8(pasted.stdout).unwrap();
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        assert!(!text.to_lowercase().contains("idempotent-replayed"), "{text}");
        serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap()
    };
    assert_eq!(first["created"], true, "{first}");

    let external_id = sent["external_id"].as_str().unwrap();
    let task = api.published(external_id).await;
    let page_url = task["publications"][0]["url"].as_str().unwrap();
    assert!(page_url.starts_with(&format!("{}/site/", dev.url)), "{page_url}");
    let page = api.get(page_url).await.unwrap();
    assert_eq!(page.status, 200);
    assert!(page.text().contains(sent["content_html"].as_str().unwrap()), "{}", page.text());
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.contains("script-src 'none'"), "{policy}");
    for listing in ["/site/", "/site/demo/demo/", "/site/demo/demo/feed.xml"] {
        let listing = api.get(listing).await.unwrap();
        assert!(listing.status == 200 && listing.text().contains(page_url), "{}", listing.text());
    }
    let feed = api.get("/site/demo/demo/feed.xml").await.unwrap().text();
    let feed = roxmltree::Document::parse(&feed).unwrap();
    let entries =
        feed.descendants().filter(|node| node.has_tag_name(("http://www.w3.org/2005/Atom", "entry")));
    assert_eq!(entries.count(), 1);
    let told = dev.said_after("callback verified: ").await;
    assert!(told.contains("publication.success") && told.ends_with(page_url), "{told}");

    again_and_changed(&dev, &sent, &first, &page).await;
    assert_eq!(folder.pages().len(), 1);
    let (status, stdout, stderr) = dev.stop(Signal::INT).await;
    assert!(status.success() && !stdout.contains("NOT VERIFIED"), "{stdout}{stderr}");
    assert_eq!(stdout.matches("callback verified").count(), 1, "{stdout}");
}

async fn again_and_changed(dev: &Dev, sent: &Value, first: &Value, page: &Answer) {
    let api = dev.api();
    let again = api.publish(sent).await.unwrap();
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    let again = again.ok();
    assert_eq!((&again["created"], &again["task_id"]), (&json!(false), &first["task_id"]));
    assert_eq!((&again["status"], &again["content_changed"]), (&json!("success"), &json!(false)));

    let mut other = sent.clone();
    other["title"] = json!("Another title");
    let changed = api.publish(&other).await.unwrap().ok();
    assert_eq!((&changed["created"], &changed["task_id"]), (&json!(false), &first["task_id"]));
    assert_eq!((&changed["content_changed"], &changed["changed_fields"]), (&json!(true), &json!(["title"])));
    assert_eq!(changed["warnings"][0]["code"], "content_changed");
    let url = changed["publications"][0]["url"].as_str().unwrap();
    assert_eq!(api.get(url).await.unwrap().body, page.body);
}
