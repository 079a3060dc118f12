//! The service behind `PgBouncer` in transaction mode, with fewer connections than it has open itself: `.ci/pooler/run`, or
//!
//!     PUBLISH_PGBOUNCER=/usr/sbin/pgbouncer cargo test --test process pooler -- --ignored
//!
//! It needs `PgBouncer` 1.21 or later; the tests that something is refused take an earlier one, too.

use std::collections::HashSet;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use futures_util::future::join_all;
use rustix::process::{Signal, geteuid};
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPool};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};

use crate::api::{Api, article};
use crate::invariants;
use crate::operator::{Furnished, Shell, put_group};
use crate::program::{Folder, eventually, random};
use crate::receiver::{Received, Receiver, WILLING};

/// Connections to the database. A service opens up to 36 to the pooler.
const POOL: usize = 4;

/// Articles between two blows.
const STRETCH: usize = 40;

fn pgbouncer() -> PathBuf {
    std::env::var_os("PUBLISH_PGBOUNCER").map_or_else(|| "/usr/sbin/pgbouncer".into(), PathBuf::from)
}

/// Whether it can hand prepared statements to each of its connections.
fn knows_statements() -> bool {
    let version = Command::new(pgbouncer()).arg("--version").output().expect("PgBouncer is installed").stdout;
    let version = String::from_utf8(version).unwrap();
    let mut numbers =
        version.split_whitespace().nth(1).unwrap().split('.').map(|part| part.parse::<u32>().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap()) >= (1, 21)
}

/// A `PgBouncer` before the server that the tests share. It ends with this value.
struct Pooler {
    folder: Folder,
    process: Option<Child>,
    port: u16,
    /// The server's.
    account: (u32, u32),
}

impl Pooler {
    /// Lets these roles in; `more` are further lines of its settings.
    async fn start(database_url: &str, roles: &[&str], more: &str) -> Self {
        let options = database_url.parse::<PgConnectOptions>().unwrap();
        let server = options.get_socket().unwrap().display().to_string();
        let owner = std::fs::metadata(&server).unwrap();
        let account = (owner.uid(), owner.gid());
        let mut pooler = Self { folder: Folder::new(), process: None, port: 6432, account };
        let path = pooler.folder.path();
        // Its socket is made in it.
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o777)).unwrap();
        let users = roles.iter().map(|role| format!("\"{role}\" \"\"")).collect::<Vec<_>>().join("\n");
        std::fs::write(path.join("users"), users).unwrap();
        let settings = format!(
            "[databases]\n* = host={server} port={server_port}\n[pgbouncer]\npool_mode = transaction\n\
            default_pool_size = {POOL}\nmax_client_conn = 300\nlisten_port = {port}\nunix_socket_dir = {folder}\n\
            auth_type = trust\nauth_file = {folder}/users\nignore_startup_parameters = extra_float_digits, options\n{more}\n",
            server_port = options.get_port(),
            port = pooler.port,
            folder = path.display(),
        );
        std::fs::write(path.join("pgbouncer.ini"), settings).unwrap();
        pooler.begin().await;
        pooler
    }

    async fn begin(&mut self) {
        let mut command = Command::new(pgbouncer());
        command.arg("--quiet").arg(self.folder.path().join("pgbouncer.ini"));
        // It does not run as root, and the server's socket is closed to others.
        if geteuid().is_root() {
            command.uid(self.account.0).gid(self.account.1);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.process = Some(command.spawn().unwrap());
        let socket = self.folder.path().join(format!(".s.PGSQL.{}", self.port));
        eventually("the pooler listens", async || tokio::net::UnixStream::connect(&socket).await.is_ok())
            .await;
    }

    fn kill(&mut self) {
        let mut process = self.process.take().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    async fn restart(&mut self) {
        self.kill();
        self.begin().await;
    }

    /// The address of a database behind it.
    fn url(&self, role: &str, database_url: &str) -> String {
        let database = database_url.parse::<PgConnectOptions>().unwrap().get_database().unwrap().to_owned();
        let encode = |text: &str| {
            percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
        };
        let folder = encode(&self.folder.path().display().to_string());
        format!("postgres://{role}@{folder}:{}/{database}?sslmode=disable", self.port)
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        if self.process.is_some() {
            self.kill();
        }
    }
}

/// A database that a role of its own serves on, as an operator sets it up.
async fn with_role() -> (Furnished, String) {
    let owner = Furnished::new().await;
    // Roles belong to the server, which other tests share.
    let role = format!("pooled_{:016x}", u64::from_be_bytes(random()));
    execute(&owner.shell.url, &format!("CREATE ROLE {role} LOGIN")).await;
    owner.shell.text(&["migrate", "--grant", &role]).await;
    (owner, role)
}

async fn execute(url: &str, statements: &str) {
    let mut connection = PgConnection::connect(url).await.unwrap();
    connection.execute(AssertSqlSafe(statements.to_owned())).await.unwrap();
    connection.close().await.unwrap();
}

/// Gives a role what the program says that it lacks, in the words that it says it in.
async fn give_settings(serving: &Shell, owner: &Shell, pooler: &mut Pooler) {
    let line = serving.failure(&["serve", "--listen", "127.0.0.1:0"]).await;
    let (_, statements) = line.split_once("console): ").unwrap_or_else(|| panic!("{line}"));
    assert_eq!(statements.matches("ALTER ROLE").count(), 7, "{line}");
    execute(&owner.url, statements).await;
    pooler.restart().await;
}

fn callbacks_of(received: &[Received]) -> HashSet<String> {
    received.iter().map(|one| one.event()["external_id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PgBouncer 1.21 or later"]
async fn the_service_does_its_whole_work_behind_a_pooler_that_is_killed_and_comes_back() {
    assert!(knows_statements(), "PgBouncer 1.21 or later: see .ci/pooler/install");
    let (owner, role) = with_role().await;
    let mut pooler = Pooler::start(&owner.shell.url, &[&role], "max_prepared_statements = 200").await;
    let shell =
        Shell { url: pooler.url(&role, &owner.shell.url), master_key: owner.shell.master_key.clone() };
    give_settings(&shell, &owner.shell, &mut pooler).await;
    let behind =
        Furnished { shell, api_key: owner.api_key.clone(), signing_secret: owner.signing_secret.clone() };
    let folder = Folder::new();
    let site = folder.dev().join("site");
    std::fs::create_dir_all(&site).unwrap();
    let settings = [
        ("PUBLISH_SITE_ROOT", site.to_str().unwrap()),
        ("PUBLISH_SITE_URL", "https://example.org"),
        ("PUBLISH_LEASE", "2s"),
        ("PUBLISH_CALLBACK_SCHEDULE", "0s,500ms,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s"),
    ];
    let nodes = [behind.serve(&settings).await, behind.serve(&settings).await];
    let apis = nodes.each_ref().map(|node| behind.api(node));
    apis[0].put("/accounts/static_site/demo", &json!({"settings": {"site": "demo"}})).await.unwrap().ok();
    apis[1]
        .put("/accounts/sandbox/box", &json!({"settings": {"behaviour": "lose_answer"}}))
        .await
        .unwrap()
        .ok();
    put_group(&apis[0], "all", &["static_site/demo", "sandbox/box"]).await;
    let receiver = Receiver::start(WILLING).await;
    let articles = (0..3 * STRETCH).map(|n| {
        let mut article = article(&format!("pooled-{n}"));
        article["group_code"] = "all".into();
        article["callback_url"] = receiver.url.as_str().into();
        article
    });
    let articles = articles.collect::<Vec<_>>();
    for (stretch, articles) in articles.chunks(STRETCH).enumerate() {
        // Each at both nodes at once, and all of them as a batch.
        let all = json!({"articles": articles});
        let single =
            join_all(articles.iter().flat_map(|article| apis.iter().map(move |api| api.publish(article))));
        let batch = apis[stretch % 2].post("/publish/batch", &all);
        let strikes = async {
            if stretch > 0 {
                receiver
                    .wait_for("work goes on", |received| {
                        callbacks_of(received).len() > (stretch - 1) * STRETCH + 5
                    })
                    .await;
                pooler.restart().await;
            }
        };
        let (answers, _, ()) = tokio::join!(single, batch, strikes);
        for answer in answers {
            answer.unwrap().ok();
        }
    }
    // It is gone for a while: who asks is told so, and what was accepted goes on when it is back.
    pooler.kill();
    assert_eq!(apis[0].impatient().publish(&articles[0]).await.unwrap().status, 503);
    pooler.begin().await;
    for article in &articles {
        let task = apis[1].published(article["external_id"].as_str().unwrap()).await;
        assert_eq!(task["counts"]["success"], 2, "{task}");
    }
    let again = apis[1].publish(&articles[0]).await.unwrap();
    assert!(again.ok()["created"] == false && again.header("idempotent-replayed") == Some("true"));
    receiver.wait_for("every callback", |received| distinct(received) == 2 * articles.len()).await;
    for received in receiver.received() {
        received.verify(&behind.signing_secret);
    }
    assert_eq!(folder.pages().len(), articles.len());
    replays(&apis[0], &receiver).await;

    for node in nodes {
        let (status, _, stderr) = node.stop(Signal::TERM).await;
        assert!(status.success() && !stderr.contains("prepared statement"), "{stderr}");
    }
    let pool = PgPool::connect(&owner.shell.url).await.unwrap();
    invariants::check(&pool).await;
    let held = "SELECT count(*) FROM sandbox_articles WHERE public_at IS NOT NULL";
    let held = sqlx::query_scalar::<_, i64>(held).fetch_one(&pool).await.unwrap();
    assert_eq!(usize::try_from(held).unwrap(), articles.len());
    pool.close().await;
}

fn distinct(received: &[Received]) -> usize {
    received.iter().map(|one| &one.id).collect::<HashSet<_>>().len()
}

/// One callback again, and then all of them.
async fn replays(api: &Api, receiver: &Receiver) {
    let of = |received: &[Received], id: &str| received.iter().filter(|one| one.id == id).count();
    let first = receiver.received()[0].id.clone();
    let before = of(&receiver.received(), &first);
    api.post(&format!("/callbacks/{first}/replay"), &json!({})).await.unwrap();
    receiver.wait_for("one again", |received| of(received, &first) > before).await;
    let range =
        json!({"since": "2020-01-01T00:00:00Z", "until": "2100-01-01T00:00:00Z", "status": "delivered"});
    let answer = api.post("/callbacks/replay", &range).await.unwrap();
    assert_eq!(answer.status, 202, "{}", answer.text());
    let replay = answer.json()["replay_id"].as_str().unwrap().to_owned();
    let mut told = Value::Null;
    eventually("the range is sent again", async || {
        told = api.get(&format!("/callbacks/replay/{replay}")).await.unwrap().ok();
        told["status"] != "running"
    })
    .await;
    assert_eq!(told["matched"], told["replayed"], "{told}");
}

#[tokio::test]
#[ignore = "needs PgBouncer"]
async fn a_pooler_that_would_take_statements_for_others_is_refused() {
    let (owner, role) = with_role().await;
    let none = if knows_statements() { "max_prepared_statements = 0" } else { "" };
    let mut pooler = Pooler::start(&owner.shell.url, &[&role], none).await;
    let shell =
        Shell { url: pooler.url(&role, &owner.shell.url), master_key: owner.shell.master_key.clone() };
    give_settings(&shell, &owner.shell, &mut pooler).await;
    for _ in 0..3 {
        let line = shell.failure(&["serve", "--listen", "127.0.0.1:0"]).await;
        assert!(line.contains("PgBouncer 1.21") && line.contains("max_prepared_statements"), "{line}");
    }
    // A connection of its own for each client is as good as none between them.
    drop((pooler, shell));
    let session =
        Pooler::start(&owner.shell.url, &[&role], "pool_mode = session\ndefault_pool_size = 60").await;
    let shell =
        Shell { url: session.url(&role, &owner.shell.url), master_key: owner.shell.master_key.clone() };
    let served =
        Furnished { shell, api_key: owner.api_key.clone(), signing_secret: owner.signing_secret.clone() };
    let service = served.serve(&[]).await;
    assert_eq!(served.api(&service).get("/readyz").await.unwrap().status, 200);
    assert!(service.stop(Signal::TERM).await.0.success());
}

#[tokio::test]
#[ignore = "needs PgBouncer"]
async fn the_schema_is_not_changed_through_a_pooler() {
    let (owner, _) = with_role().await;
    let pooler = Pooler::start(&owner.shell.url, &["postgres"], "").await;
    let shell =
        Shell { url: pooler.url("postgres", &owner.shell.url), master_key: owner.shell.master_key.clone() };
    for command in
        [&["migrate"][..], &["migrate", "--distribute"], &["serve", "--migrate", "--listen", "127.0.0.1:0"]]
    {
        let line = shell.failure(command).await;
        assert!(line.contains("PostgreSQL itself") && line.contains("DATABASE_URL"), "{line}");
    }
}
