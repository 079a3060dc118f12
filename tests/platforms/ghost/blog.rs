//! A real `Ghost`, what is published on it, and what it says of itself when others than the connector ask.

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use publish_ingest::account::Credentials;
use publish_ingest::article::Content;
use publish_ingest::clock::SharedClock;
use publish_ingest::connector::ghost::Ghost;
use publish_ingest::connector::media::Media;
use publish_ingest::connector::{Access, Connector, Job, Marked, Remote, Sighting, Trace, Verdict};
use publish_ingest::outbound::{Client, Policy};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::server::{Server, clock, marker};

/// A 1 × 1 PNG.
pub(super) const PNG: &[u8] =
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89\0\0\0\rIDATx\x9cc\
\xf8\xcf\xc0\xf0\x1f\0\x05\0\x01\xff\x89\x99=\x1d\0\0\0\0IEND\xaeB`\x82";

/// A Ghost that the tests of this file share; it ends with the last of them that runs.
pub(super) fn shared() -> Arc<Server> {
    static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let server = Arc::new(Server::start("ghost.py"));
        *shared = Arc::downgrade(&server);
        server
    })
}

/// A server for a test that writes to its database: where another request is just being carried out, each would be in the
/// other's way, and Ghost does not wait for locks that are taken in a circle.
pub(super) fn alone() -> Server {
    Server::start("ghost.py")
}

/// Asks Ghost by itself, not by the connector; says what it answered.
pub(super) fn ask(server: &Server, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let script = "import json, sys; from ghost import token; from server import call\n\
        method, url, body, key = sys.argv[1:]\n\
        status, _, told = call(method, url, json.loads(body), token(key))\n\
        print(json.dumps([status, told if isinstance(told, (dict, list)) else None]))";
    let url = format!("{}/ghost/api/admin/{path}", server.text("base_url"));
    let told = python(script, &[method, &url, &body.to_string(), server.text("admin_api_key")]);
    serde_json::from_str(&told).unwrap()
}

/// Runs a statement in Ghost's own database; the first row of what it finds.
pub(super) fn sql(server: &Server, statement: &str) -> Vec<Value> {
    let script = "import json, sqlite3, sys\n\
        with sqlite3.connect(sys.argv[1], timeout=30) as database:\n\
        \x20   print(json.dumps(database.execute(sys.argv[2]).fetchone() or []))";
    serde_json::from_str(&python(script, &[server.text("sqlite"), statement])).unwrap()
}

fn python(script: &str, arguments: &[&str]) -> String {
    let servers = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/servers");
    let mut command = Command::new("python3");
    command
        .env("PYTHONPATH", servers)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .args(["-c", script])
        .args(arguments);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What a page says to anybody.
pub(super) fn page(url: &str) -> (u16, String) {
    let script = "import json, sys, urllib.request, urllib.error\n\
        try: answer = urllib.request.urlopen(sys.argv[1])\n\
        except urllib.error.HTTPError as error: answer = error\n\
        print(json.dumps([answer.status, answer.read().decode()]))";
    serde_json::from_str(&python(script, &[url])).unwrap()
}

pub(super) fn connector(clock: SharedClock) -> Ghost {
    let allow = vec!["127.0.0.0/8".parse().unwrap()];
    let client = Client::new(Policy { allow, allow_http: true, ports: None }, clock.clone()).unwrap();
    let media = Media::new(client.clone(), clock.clone());
    Ghost::new(client, media, Duration::from_secs(30), clock)
}

pub(super) fn usual() -> Ghost {
    connector(clock())
}

/// An article with a mark of its own; there is time for it also on a busy machine.
pub(super) fn job(server: &Server) -> Job {
    Job {
        marker: marker(),
        tenant: "acme".into(),
        tenant_id: Uuid::nil(),
        publication_id: Uuid::nil(),
        round: 1,
        external_id: "post-1".into(),
        account_id: "blog".into(),
        settings: json!({"base_url": server.text("base_url")}),
        credentials: credentials(server.text("admin_api_key")),
        content: Content {
            title: "Über die Brücke".into(),
            content_html: "bare <mark>text</mark><dl><dt>t</dt><dd>d</dd></dl>".into(),
            summary: Some("In short".into()),
            cover_url: None,
            canonical_url: Some("https://elsewhere.example/a".into()),
            author: Some("Nobody".into()),
            tags: vec!["#First".into(), "Second, third".into()],
        },
        submitted_at: clock().now(),
        draft_id: None,
        prepared: Value::Null,
        request_id: "request-7".into(),
        trace: Trace::default(),
        until: clock().instant() + Duration::from_mins(2),
    }
}

pub(super) fn credentials(key: &str) -> Credentials {
    Credentials::new(json!({"admin_api_key": key}))
}

pub(super) fn access(job: &Job) -> Access {
    Access {
        tenant: job.tenant.clone(),
        tenant_id: job.tenant_id,
        account_id: job.account_id.clone(),
        settings: job.settings.clone(),
        credentials: job.credentials.clone(),
    }
}

pub(super) async fn draft(ghost: &Ghost, job: &Job) -> String {
    match ghost.draft(job).await {
        Verdict::Drafted(id) => id,
        other => panic!("{other:?}"),
    }
}

pub(super) async fn seen(ghost: &Ghost, job: &Job) -> Vec<Marked> {
    match ghost.find(job).await {
        Sighting::Seen(seen) => seen,
        other => panic!("{other:?}"),
    }
}

pub(super) async fn done(ghost: &Ghost, job: &Job) -> Remote {
    match ghost.publish(job).await {
        Verdict::Done(remote) => remote,
        other => panic!("{other:?}"),
    }
}

/// A draft, to be published.
pub(super) async fn drafted(ghost: &Ghost, job: Job) -> Job {
    Job { draft_id: Some(draft(ghost, &job).await), ..job }
}

/// Serves one image from this machine.
pub(super) async fn gallery(bytes: &'static [u8]) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/cover", listener.local_addr().unwrap());
    let router =
        Router::new().route("/cover", get(move || async move { ([(CONTENT_TYPE, "text/plain")], bytes) }));
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

/// The status of what is not text.
pub(super) fn page_status(url: &str) -> u16 {
    let script = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1]).status)";
    python(script, &[url]).trim().parse().unwrap()
}
