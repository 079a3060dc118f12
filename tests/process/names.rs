//! Whatever an article is called, it stays in its site's folder.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use crate::api::{article, words};
use crate::program::{Dev, Folder, database};

const NAMES: [&str; 12] = [
    "../../x",
    "../../../../../../../../tmp/x",
    "/etc/x",
    "..\\..\\x",
    "%2e%2e%2fx",
    "index",
    "index.html",
    "feed.xml",
    ".hidden",
    "a/b/c",
    "C:x",
    "x\u{202e}\u{2028}y",
];

fn tree(folder: &Path, into: &mut BTreeSet<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        if entry.file_type().unwrap().is_dir() {
            tree(&entry.path(), into);
        }
        into.insert(entry.path());
    }
}

#[tokio::test]
async fn an_articles_name_cannot_lead_out_of_the_sites_folder() {
    let folder = Folder::new();
    let url = database().await;
    let dev = Dev::start(&folder, &[("DATABASE_URL", &url)]).await;
    let (mut before, mut after) = (BTreeSet::new(), BTreeSet::new());
    tree(folder.path(), &mut before);
    let api = dev.api();
    for name in NAMES {
        let sent = api.publish(&article(name)).await.unwrap().ok();
        assert_eq!(sent["external_id"], name);
        let task = api.published(name).await;
        let page = api.get(task["publications"][0]["url"].as_str().unwrap()).await.unwrap();
        assert!(page.status == 200 && page.text().contains(&words(name)), "{name:?}");
    }
    for refused in [".", "..", " x", "a\nb", ""] {
        assert_eq!(api.publish(&article(refused)).await.unwrap().status, 422, "{refused:?}");
    }
    assert!(dev.stop(Signal::TERM).await.0.success());
    tree(folder.path(), &mut after);
    let site = folder.site();
    let new = after.difference(&before).collect::<Vec<_>>();
    let outside = new.iter().filter(|path| !path.starts_with(&site) && !site.starts_with(path));
    assert_eq!(outside.collect::<Vec<_>>(), Vec::<&&PathBuf>::new());
    let names = new.iter().filter_map(|path| path.strip_prefix(&site).ok()?.to_str());
    let odd = names.filter(|name| {
        let plain = |name: &str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        let page = name.strip_suffix(".html").is_some_and(plain);
        !name.is_empty() && !page && !["feed.xml", ".listing.lock"].contains(name)
    });
    assert_eq!(odd.collect::<Vec<_>>(), Vec::<&str>::new());
    assert_eq!(folder.pages().len(), NAMES.len(), "one page each");
}

/// The served site shows pages, and nothing above or beside them.
#[tokio::test]
async fn a_request_cannot_lead_out_of_the_served_folder() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    let folder = Folder::new();
    let url = database().await;
    let dev = Dev::start(&folder, &[("DATABASE_URL", &url)]).await;
    let secrets = [dev.env("PUBLISH_API_KEY").to_owned(), dev.env("PUBLISH_SIGNING_SECRET").to_owned()];
    let address = dev.url.strip_prefix("http://").unwrap();
    dev.api().publish(&article("there")).await.unwrap().ok();
    dev.api().published("there").await;
    assert!(folder.site().join(".listing.lock").exists());
    for path in [
        "/site/../env",
        "/site/%2e%2e/env",
        "/site/..%2fenv",
        "/site/demo/../../env",
        "/site/demo/%2e%2e/%2e%2e/env",
        "/site/demo/..%2f..%2fenv",
        "/site//etc/passwd",
        "/site/%2fetc%2fpasswd",
        "/site/..\\env",
        "/site/demo/demo/.listing.lock",
        "/site/demo/demo/%2elisting.lock",
        "/env",
        "/.dev/env",
    ] {
        let mut connection = tokio::net::TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
        connection.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await.unwrap();
        let status = answer.split(' ').nth(1).unwrap();
        assert!(["400", "404"].contains(&status), "{path}: {answer}");
        assert!(secrets.iter().all(|secret| !answer.contains(secret)) && !answer.contains("root:"), "{path}");
    }
    assert!(dev.stop(Signal::TERM).await.0.success());
}
