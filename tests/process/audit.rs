//! `audit`: what a platform shows, held against what was recorded.

use std::fs;
use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::operator::{Furnished, put_group};
use crate::program::{Folder, eventually, run};

/// The shell's command, with the settings of the site.
fn audit(operator: &Furnished, folder: &Folder, arguments: &[&str]) -> Command {
    let mut command = operator.shell.command(&[&["audit", "demo", "--account"], arguments].concat());
    command.env("PUBLISH_SITE_ROOT", folder.path()).env("PUBLISH_SITE_URL", "https://news.example");
    command
}

/// The exit code, the report, and the line that says what is wrong.
async fn audited(operator: &Furnished, folder: &Folder) -> (Option<i32>, Value, String) {
    let output = run(audit(operator, folder, &["static_site/blog", "--json"])).await;
    let stderr = String::from_utf8(output.stderr).unwrap();
    let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no report: {stderr}"));
    (output.status.code(), report, stderr)
}

fn counts(report: &Value) -> [u64; 6] {
    ["doubles", "losses", "strangers", "unrecorded", "left_over_drafts", "unfinished"]
        .map(|kind| report[kind]["count"].as_u64().unwrap())
}

#[tokio::test]
async fn pages_that_were_removed_or_added_by_hand_are_told_and_no_service_needs_to_run() {
    let (operator, folder) = (Furnished::new().await, Folder::new());
    let root = folder.path().to_str().unwrap().to_owned();
    let site = [("PUBLISH_SITE_ROOT", &*root), ("PUBLISH_SITE_URL", "https://news.example")];
    let serve = operator.serve(&site).await;
    let api = operator.api(&serve);
    api.put("/accounts/static_site/blog", &json!({"settings": {"site": "blog"}})).await.unwrap().ok();
    put_group(&api, "blog", &["static_site/blog"]).await;
    for id in ["a", "b", "c"] {
        let article =
            json!({"external_id": id, "group_code": "blog", "title": id, "content_html": "<p>x</p>"});
        api.post("/publish", &article).await.unwrap().ok();
    }
    let later = json!({"external_id": "later", "group_code": "blog", "title": "later", "content_html": "<p>x</p>",
        "publish_at": "2099-01-01T00:00:00Z"});
    api.post("/publish", &later).await.unwrap().ok();
    let mut url = String::new();
    for id in ["a", "b", "c"] {
        eventually("it is published", async || {
            let task = api.task(id).await.unwrap().ok();
            url = task["publications"][0]["url"].as_str().unwrap_or_default().to_owned();
            task["status"] == "success"
        })
        .await;
    }
    assert!(serve.stop(Signal::TERM).await.0.success());

    let (code, report, stderr) = audited(&operator, &folder).await;
    assert_eq!((code, counts(&report), &*stderr), (Some(0), [0, 0, 0, 0, 0, 1], ""), "{report}");
    assert_eq!((&report["listed"], &report["recorded"]), (&json!(3), &json!(4)));

    // A copy of the last page, a page of the operator's own, and the last page gone.
    let pages = folder.path().join("demo/blog");
    let page = pages.join(url.rsplit('/').next().unwrap());
    fs::copy(&page, pages.join("copy.html")).unwrap();
    fs::write(pages.join("about.html"), "<title>About us</title>").unwrap();
    fs::remove_file(&page).unwrap();
    let (code, report, stderr) = audited(&operator, &folder).await;
    assert_eq!((code, counts(&report)), (Some(1), [0, 1, 2, 0, 0, 1]), "{report}");
    let lost = &report["losses"]["found"][0];
    assert_eq!((&lost["external_id"], &lost["urls"]), (&json!("c"), &json!([url])));
    assert!(stderr.lines().count() == 1 && stderr.contains("losses 1"), "{stderr}");
    let text = run(audit(&operator, &folder, &["static_site/blog"])).await;
    let text = String::from_utf8(text.stdout).unwrap();
    for told in ["losses: 1", &url, "strangers: 2", "https://news.example/demo/blog/copy.html", "later"] {
        assert!(text.contains(told), "{told}: {text}");
    }

    // What cannot be compared is no finding.
    for (account, told) in [
        ("static_site/none", "account list"),
        ("http_bridge/x", "account list"),
        ("static_site", "platform/account_id"),
    ] {
        let output = run(audit(&operator, &folder, &[account])).await;
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && output.stdout.is_empty() && stderr.contains(told), "{stderr}");
    }
}
