//! `serve` and `migrate`, as an operator meets them.

use std::process::Command;
use std::time::Duration;

use publish_ingest::clock::{Clock as _, SystemClock};
use publish_ingest::lifecycle::STOP_WITHIN;
use publish_ingest::vault::MasterKey;
use rustix::process::Signal;
use serde_json::Value;
use sqlx::{Connection as _, Executor as _, PgConnection};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::api::{Api, article};
use crate::program::{Dev, Folder, database, dev, eventually, failure, program, refused, run};
use crate::receiver::{Receiver, SILENT};

/// What a busy machine may add to a time that is promised.
const SLACK: Duration = Duration::from_secs(5);

fn master_key() -> String {
    MasterKey::generate(&SystemClock).expose().to_string()
}

/// An operator's shell.
fn command(arguments: &[&str], url: &str, master_key: &str) -> Command {
    let mut command = program(arguments);
    command.env("DATABASE_URL", url).env("PUBLISH_MASTER_KEY", master_key);
    command.env("PUBLISH_LISTEN", "127.0.0.1:0");
    command
}

/// A `serve` that is ready.
async fn serve(mut command: Command) -> Dev {
    command.arg("serve");
    let mut serve = Dev::begin(command);
    serve.url = serve.said_after("publish-ingest is ready on ").await;
    serve
}

#[tokio::test]
async fn all_wrong_settings_are_told_at_once_and_nothing_is_started() {
    let mut wrong = program(&["serve", "--lease", "1s", "--roles", ""]);
    wrong
        .env("PUBLISH_MASTER_KEY", "hunter2")
        .env("PUBLISH_CALLBACK_SCHEDULE", "soon,")
        .env("PUBLISH_LOG", "loud");
    wrong.env("PUBLISH_SITE_ROOT", "/nowhere/at/all").env("PUBLISH_BODY_LIMIT", "2GB");
    let told = refused(wrong).await;
    let names = told.iter().map(|line| line.split(": ").take(2).collect::<Vec<_>>().join(": "));
    let expected = [
        "DATABASE_URL",
        "PUBLISH_ROLES",
        "PUBLISH_MASTER_KEY",
        "PUBLISH_SITE_ROOT",
        "PUBLISH_SITE_URL",
        "PUBLISH_BODY_LIMIT",
        "PUBLISH_LEASE",
        "PUBLISH_CALLBACK_SCHEDULE",
        "PUBLISH_LOG",
    ];
    assert_eq!(names.collect::<Vec<_>>(), expected.map(|name| format!("publish-ingest: {name}")), "{told:?}");
    assert!(!told.concat().contains("hunter2"), "{told:?}");

    // A secret in a place where it does not belong is not repeated either.
    let mut wrong = program(&["serve", "--masterkey=hunter2"]);
    wrong.env("DATABASE_URL", "mysql://hunter2@h/d");
    assert!(!refused(wrong).await.concat().contains("hunter2"));
    let mut wrong = program(&["serve"]);
    wrong.env("DATABASE_URL", "mysql://hunter2@h/d").env("PUBLISH_MASTER_KEY", "hunter2,hunter2");
    let told = refused(wrong).await;
    assert!(told.len() == 2 && !told.concat().contains("hunter2"), "{told:?}");
    assert!(told[0].contains("postgres://") && told[1].contains("not a master key"), "{told:?}");

    let folder = Folder::new();
    let mut wrong = dev(&folder);
    wrong.env("PUBLISH_LEASE", "1s").env("PUBLISH_LOG_FORMAT", "xml");
    let told = refused(wrong).await;
    assert!(told.len() == 2 && !folder.dev().exists(), "{told:?}");
}

#[tokio::test]
async fn a_schema_is_checked_and_brought_up_to_date_when_asked() {
    let (url, key) = (database().await, master_key());
    let line = failure(command(&["serve"], &url, &key)).await;
    assert!(line.contains("publish-ingest migrate") && line.contains("serve --migrate"), "{line}");

    let mut migrate = program(&["migrate", "--json"]);
    migrate.env("DATABASE_URL", &url);
    let migrated = run(migrate).await;
    assert!(migrated.status.success(), "{migrated:?}");
    let facts: Value = serde_json::from_slice(&migrated.stdout).unwrap();
    assert!(facts["schema"].as_i64().unwrap() >= 4, "{facts}");
    let again = run(command(&["migrate"], &url, &key)).await;
    assert!(
        again.status.success() && String::from_utf8_lossy(&again.stdout).contains("up to date"),
        "{again:?}"
    );
    assert!(serve(command(&[], &url, &key)).await.stop(Signal::TERM).await.0.success());

    let fresh = database().await;
    let mut first = command(&[], &fresh, &key);
    first.args(["serve", "--migrate"]);
    let mut first = Dev::begin(first);
    first.url = first.said_after("publish-ingest is ready on ").await;
    assert_eq!(Api::new(&first.url, None).get("/readyz").await.unwrap().status, 200);
    assert!(first.stop(Signal::INT).await.0.success());
    assert_eq!(refused(program(&["migrate"])).await.len(), 1);
}

/// Has every change of the schema wait until nobody holds a lock, as long as that takes.
const SLOW_CHANGES: &str = "
    CREATE FUNCTION wait() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
        WHILE NOT pg_try_advisory_xact_lock_shared(1) LOOP PERFORM pg_sleep(0.05); END LOOP;
    END $$;
    CREATE EVENT TRIGGER wait ON ddl_command_start EXECUTE FUNCTION wait()";

#[tokio::test]
async fn a_schema_may_take_long_to_change_and_who_comes_meanwhile_waits() {
    let (url, key) = (database().await, master_key());
    let mut connection = PgConnection::connect(&url).await.unwrap();
    connection.execute(SLOW_CHANGES).await.unwrap();
    connection.execute("SELECT pg_advisory_lock(1)").await.unwrap();
    let migrate = || run(command(&["migrate"], &url, &key));
    let release = async {
        // Longer than a database is waited for, and than a lock of a table.
        let both = "SELECT count(*) = 2 FROM pg_stat_activity WHERE datname = current_database()
            AND pid <> pg_backend_pid() AND state = 'active' AND clock_timestamp() - query_start > interval '11 s'";
        eventually("both are at work", async || {
            sqlx::query_scalar::<_, bool>(both).fetch_one(&mut connection).await.unwrap()
        })
        .await;
        connection.execute("SELECT pg_advisory_unlock(1)").await.unwrap();
    };
    let (one, other, ()) = tokio::join!(migrate(), migrate(), release);
    assert!(one.status.success() && other.status.success(), "{one:?} {other:?}");
    let said = [one, other].map(|output| String::from_utf8(output.stderr).unwrap());
    let waits = said.iter().filter(|said| said.contains("waiting until it is done")).count();
    // And nothing of how slow a statement of a migration is.
    assert!(waits == 1 && said.iter().all(|said| said.lines().count() <= 1), "{said:#?}");
}

/// A tenant `demo` with its key, as `dev` makes them in that database.
async fn furnished(url: &str, key: &str, folder: &Folder) -> String {
    let dev = Dev::start(folder, &[("DATABASE_URL", url), ("PUBLISH_MASTER_KEY", key)]).await;
    let api_key = dev.env("PUBLISH_API_KEY").to_owned();
    assert!(dev.stop(Signal::TERM).await.0.success());
    api_key
}

#[tokio::test]
async fn serve_publishes_to_its_site_and_refuses_another_master_key() {
    let (url, key, folder) = (database().await, master_key(), Folder::new());
    let api_key = furnished(&url, &key, &folder).await;
    let line = failure(command(&["serve"], &url, &master_key())).await;
    assert!(line.contains("2 of the 2 secrets") && line.contains("PUBLISH_MASTER_KEY"), "{line}");
    let line = failure(command(&["tenant", "create", "acme"], &url, &master_key())).await;
    assert!(line.contains("another master key"), "{line}");

    let mut with_site = command(&[], &url, &key);
    with_site
        .env("PUBLISH_SITE_ROOT", folder.dev().join("site"))
        .env("PUBLISH_SITE_URL", "https://example.org/a");
    let serve = serve(with_site).await;
    let api = Api::new(&serve.url, Some(&api_key));
    api.publish(&article("served")).await.unwrap().ok();
    let task = api.published("served").await;
    let page = task["publications"][0]["url"].as_str().unwrap();
    assert!(page.starts_with("https://example.org/a/demo/demo/"), "{page}");
    assert_eq!(folder.pages().len(), 1);
    // Only what `dev` serves.
    assert_eq!(api.get("/site/").await.unwrap().status, 404);
    let port = serve.url.rsplit(':').next().unwrap().to_owned();
    for (listen, well) in [(format!("0.0.0.0:{port}"), true), ("127.0.0.1:1".to_owned(), false)] {
        let mut health = program(&["health"]);
        health.env("PUBLISH_LISTEN", listen);
        let output = run(health).await;
        assert_eq!(output.status.success(), well, "{output:?}");
    }
    assert!(!run(program(&["health", &format!("{}/nowhere", serve.url)])).await.status.success());
    assert!(serve.stop(Signal::TERM).await.0.success());
}

/// A connection that has sent this, and what the service has answered so far is not read.
async fn connection(url: &str, sent: &str) -> TcpStream {
    let mut connection = TcpStream::connect(url.strip_prefix("http://").unwrap()).await.unwrap();
    connection.write_all(sent.as_bytes()).await.unwrap();
    connection
}

async fn rest(mut connection: TcpStream, more: &str) -> String {
    connection.write_all(more.as_bytes()).await.unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn a_stop_keeps_its_time_whatever_callers_and_receivers_do() {
    let (url, key, folder) = (database().await, master_key(), Folder::new());
    let api_key = furnished(&url, &key, &folder).await;
    let receiver = Receiver::start(SILENT).await;
    let mut hangs = command(&[], &url, &key);
    hangs.env("PUBLISH_OUTBOUND_ALLOW", "127.0.0.0/8").env("PUBLISH_ALLOW_HTTP", "true");
    hangs.env("PUBLISH_CALLBACK_TIMEOUT", "5m");
    hangs.env("PUBLISH_SITE_ROOT", folder.dev().join("site")).env("PUBLISH_SITE_URL", "https://example.org");
    let serve = serve(hangs).await;
    let mut article = article("hangs");
    article["callback_url"] = receiver.url.as_str().into();
    Api::new(&serve.url, Some(&api_key)).publish(&article).await.unwrap().ok();
    receiver.wait_for("the callback", |received| !received.is_empty()).await;

    let mut kept = connection(&serve.url, "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(kept.read(&mut [0; 1024]).await.unwrap() > 0);
    let head = format!(
        "POST /publish HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {api_key}\r\ncontent-type: application/json\r\n\
         content-length: 1000\r\n\r\n{{"
    );
    let half = connection(&serve.url, &head).await;
    let asking = connection(&serve.url, "GET /readyz HTTP/1.1\r\nhost: x\r\nx-a: ").await;
    // All that was sent is read before the signal.
    Api::new(&serve.url, None).get("/readyz").await.unwrap().ok();

    let begun = SystemClock.instant();
    serve.signal(Signal::TERM);
    let address = serve.url.strip_prefix("http://").unwrap();
    eventually("nobody is let in", async || TcpStream::connect(address).await.is_err()).await;
    // Whoever still asks is told.
    let answer = rest(asking, "b\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("this node is ending"), "{answer}");
    let mut end = Vec::new();
    assert_eq!(kept.read_to_end(&mut end).await.unwrap(), 0, "an idle connection is closed");
    let (status, _, stderr) = serve.ended().await;
    let took = begun.elapsed();
    assert!(status.success() && took < STOP_WITHIN + SLACK, "{status} after {took:?}: {stderr}");
    assert!(stderr.contains("stopped with work under way"), "{stderr}");
    drop(half);
}

#[tokio::test]
async fn an_answer_under_way_is_given_and_a_second_signal_ends_at_once() {
    let (url, key, folder) = (database().await, master_key(), Folder::new());
    let api_key = furnished(&url, &key, &folder).await;
    let ended = async |twice: bool| {
        let serve = serve(command(&[], &url, &key)).await;
        let body = article("half").to_string();
        let head = format!(
            "POST /publish HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {api_key}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n",
            body.len()
        );
        let half = connection(&serve.url, &format!("{head}{}", &body[..10])).await;
        Api::new(&serve.url, None).get("/readyz").await.unwrap().ok();
        serve.signal(Signal::TERM);
        let address = serve.url.strip_prefix("http://").unwrap();
        eventually("nobody is let in", async || TcpStream::connect(address).await.is_err()).await;
        if twice {
            serve.signal(Signal::TERM);
            let (status, _, stderr) = serve.ended().await;
            assert!(status.code() == Some(1) && stderr.contains("asked twice"), "{status} {stderr}");
            drop(half);
        } else {
            let answer = rest(half, &body[10..]).await;
            assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"created\":true"), "{answer}");
            let (status, _, stderr) = serve.ended().await;
            assert!(status.success() && !stderr.contains("under way"), "{status} {stderr}");
        }
    };
    ended(true).await;
    ended(false).await;
}
