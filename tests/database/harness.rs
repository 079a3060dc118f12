//! What tests share: the private PostgreSQL, a database for each test, the service in this process, and its client.

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use publish_ingest::account::{AccountInput, AccountKey, GroupCode, GroupInput};
use publish_ingest::article::{Content, Digests};
use publish_ingest::callback::signature::SigningSecret;
use publish_ingest::clock::{Clock, SharedClock, SystemClock, TestClock};
use publish_ingest::config::Roles;
use publish_ingest::gather::Partial;
use publish_ingest::inbound::Limits;
use publish_ingest::lifecycle::{Plan, Service};
use publish_ingest::local_postgres::{Cluster, Programs};
use publish_ingest::outbound::Policy;
use publish_ingest::retention::keep::Keep;
use publish_ingest::retry::Schedule;
use publish_ingest::store::{
    AccountDeleted, AccountPut, Admitted, ClaimLimits, Claimed, GroupPut, NewTask, Queue, Store, Tenant,
    Terms,
};
use publish_ingest::task::settle::{Settler, Settling, telling};
use publish_ingest::task::work::Connectors;
use publish_ingest::tenant::{ApiKey, Scope};
use publish_ingest::turns::Wake;
use publish_ingest::vault::{MasterKey, Vault};
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection, Executor};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::{Mutex, OnceCell, Semaphore};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::invariants;

/// How long anything may take before the test fails. It only ends what would hang for ever: the longest waits take some
/// seconds on a machine of their own, and many times that on one that is shared.
pub(crate) const LIMIT: Duration = Duration::from_mins(2);

/// Worlds at once: each opens up to 36 connections for its service and some of its own.
static PLACES: Semaphore = Semaphore::const_new(8);

/// Enough for all places.
const CONNECTIONS: &str = "440";

const TEMPLATE: &str = "template";

/// The private PostgreSQL of this run. It ends with the process, and its folder goes with it.
struct Shared {
    cluster: Cluster,
    databases: AtomicU32,
}

static SHARED: OnceCell<Shared> = OnceCell::const_new();

/// Starts a private PostgreSQL.
pub(crate) async fn cluster() -> Cluster {
    // Without autovacuum, what a statement touches does not depend on when it runs.
    cluster_with(&[("autovacuum", "off")]).await
}

/// Starts a private PostgreSQL with more settings.
pub(crate) async fn cluster_with(more: &[(&str, &str)]) -> Cluster {
    let chosen = std::env::var_os("PUBLISH_POSTGRES_BIN").map(PathBuf::from);
    let programs = Programs::find(std::env::var_os("PATH").as_deref(), chosen.as_deref()).unwrap();
    let mut random = [0; 8];
    SystemClock.fill(&mut random);
    let settings = [("max_connections", CONNECTIONS), ("shared_buffers", "128MB")];
    let settings = settings.iter().chain(more).map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let settings = settings.collect();
    let start = move || Cluster::scratch(&programs, &std::env::temp_dir(), random, settings).unwrap();
    tokio::task::spawn_blocking(start).await.unwrap()
}

/// The role that services work as: it may do what it was granted, so every test shows that this is enough.
pub(crate) const ROLE: &str = "publish_serve";

/// The address of a database for that role.
pub(crate) fn serving_url(url: &str) -> String {
    assert!(url.contains("://postgres@"), "{url}");
    url.replacen("://postgres@", &format!("://{ROLE}@"), 1)
}

/// Creates a database with our schema, on which [`ROLE`] may serve.
pub(crate) async fn create_migrated(cluster: &Cluster, name: &str) -> String {
    publish_ingest::store::create_database(&cluster.url("postgres"), name).await.unwrap();
    publish_ingest::store::create_role(&cluster.url("postgres"), ROLE).await.unwrap();
    let url = cluster.url(name);
    let store = Store::open(&url, 1, Arc::new(SystemClock)).unwrap();
    store.migrate().await.unwrap();
    store.grant_rights(ROLE).await.unwrap();
    store.close().await;
    url
}

async fn shared() -> &'static Shared {
    let start = async || {
        let cluster = cluster().await;
        create_migrated(&cluster, TEMPLATE).await;
        Shared { cluster, databases: AtomicU32::new(0) }
    };
    SHARED.get_or_init(start).await
}

async fn administer(statement: String) {
    let mut connection = PgConnection::connect(&shared().await.cluster.url("postgres")).await.unwrap();
    connection.execute(AssertSqlSafe(statement)).await.unwrap();
    connection.close().await.unwrap();
}

/// Runs a test in a world of its own, then asks what must always hold.
pub(crate) async fn in_world(body: impl AsyncFnOnce(&World)) {
    let _place = PLACES.acquire().await.unwrap();
    let shared = shared().await;
    let name = format!("test_{}", shared.databases.fetch_add(1, Ordering::Relaxed));
    administer(format!("CREATE DATABASE {name} TEMPLATE {TEMPLATE}")).await;
    in_world_at(&shared.cluster.url(&name), body).await;
    administer(format!("DROP DATABASE {name} WITH (FORCE)")).await;
}

/// Runs a test in a world on that database, then asks what must always hold.
pub(crate) async fn in_world_at(url: &str, body: impl AsyncFnOnce(&World)) {
    let world = World::on(url).await;
    body(&world).await;
    for service in world.services.lock().await.drain(..) {
        service.stop().await;
    }
    invariants::check(&world.pool).await;
    world.store.close().await;
    world.pool.close().await;
}

/// A database with a tenant that has two accounts and some groups, a clock that can be moved, and a folder for pages.
pub(crate) struct World {
    /// The database.
    pub(crate) url: String,
    /// For plain SQL.
    pub(crate) pool: PgPool,
    pub(crate) store: Store,
    pub(crate) clock: Arc<TestClock>,
    pub(crate) master_key: MasterKey,
    pub(crate) vault: Vault,
    pub(crate) tenant: Tenant,
    pub(crate) secret: SigningSecret,
    site: TempDir,
    services: Mutex<Vec<Service>>,
}

/// The group of the two accounts `blog1` and `blog2`.
pub(crate) const BOTH: &str = "both";
/// The group of `blog1` alone.
pub(crate) const ONE: &str = "one";
/// The group without accounts.
pub(crate) const EMPTY: &str = "empty";

/// How long accepting waits for a lock, where a test asks for it: longer than to find that two wait in a circle.
pub(crate) const LOCK_WAIT: Duration = Duration::from_secs(2);

impl World {
    async fn on(url: &str) -> Self {
        let clock = Arc::new(TestClock::seeded(7));
        let options: PgConnectOptions = url.parse().unwrap();
        let pool = PgPoolOptions::new().max_connections(4).connect_lazy_with(options);
        let store = Store::open(url, 10, clock.clone()).unwrap();
        let master_key = MasterKey::generate(&*clock);
        let vault = Vault::new(&master_key.clone().into());
        let (tenant, secret) = store.create_tenant(&"acme".parse().unwrap(), &vault).await.unwrap().unwrap();
        let site = TempDir::new().unwrap();
        let services = Mutex::default();
        let url = url.to_owned();
        let world = Self { url, pool, store, clock, master_key, vault, tenant, secret, site, services };
        world.furnish(world.tenant.tenant_id).await;
        world
    }

    /// Gives a tenant its accounts and groups.
    async fn furnish(&self, tenant_id: Uuid) {
        self.account(tenant_id, "blog1", 4, TimeDelta::zero()).await;
        self.account(tenant_id, "blog2", 4, TimeDelta::zero()).await;
        self.group(tenant_id, BOTH, &["blog1", "blog2"]).await;
        self.group(tenant_id, ONE, &["blog1"]).await;
        self.group(tenant_id, EMPTY, &[]).await;
    }

    pub(crate) async fn another_tenant(&self, name: &str) -> Tenant {
        let (tenant, _) =
            self.store.create_tenant(&name.parse().unwrap(), &self.vault).await.unwrap().unwrap();
        self.furnish(tenant.tenant_id).await;
        tenant
    }

    pub(crate) async fn account(&self, tenant_id: Uuid, id: &str, max_in_flight: i32, interval: TimeDelta) {
        let min_interval_seconds = i32::try_from(interval.num_seconds()).unwrap();
        let input = AccountInput { max_in_flight, min_interval_seconds, ..account_input(id) };
        self.put_account(tenant_id, "static_site", id, &input).await;
    }

    /// Puts an account as it is, whatever its platform says of it.
    pub(crate) async fn put_account(
        &self,
        tenant_id: Uuid,
        platform: &str,
        id: &str,
        input: &AccountInput,
    ) -> AccountPut {
        let key = AccountKey::new(platform, id).unwrap();
        let put = self.store.put_account(tenant_id, &key, input, &self.vault, Terms::NONE).await.unwrap();
        assert!(matches!(put, AccountPut::Done(..)), "{put:?}");
        put
    }

    /// Deletes an account of which nothing is unfinished.
    pub(crate) async fn delete_account(&self, tenant_id: Uuid, id: &str) {
        let key = AccountKey::new("static_site", id).unwrap();
        assert_eq!(self.store.delete_account(tenant_id, &key).await.unwrap(), AccountDeleted::Done);
    }

    pub(crate) async fn group(&self, tenant_id: Uuid, code: &str, accounts: &[&str]) {
        let accounts = accounts.iter().map(|id| AccountKey::new("static_site", id).unwrap()).collect();
        let input = GroupInput { title: code.to_owned(), accounts };
        let code: GroupCode = code.parse().unwrap();
        let put = self.store.put_group(tenant_id, &code, &input).await.unwrap();
        assert!(matches!(put, GroupPut::Done(_)), "{put:?}");
    }

    pub(crate) async fn key(&self, tenant_id: Uuid, scopes: &[Scope]) -> String {
        let key = ApiKey::generate(tenant_id, &*self.clock);
        self.store.create_key(&key, scopes).await.unwrap();
        key.expose().to_owned()
    }

    pub(crate) fn advance(&self, seconds: i64) {
        self.clock.advance(TimeDelta::seconds(seconds));
    }

    pub(crate) fn site_root(&self) -> &Path {
        self.site.path()
    }

    /// The pages of one account's site, by their markers.
    pub(crate) fn pages(&self, account_id: &str) -> Vec<String> {
        let Ok(files) = std::fs::read_dir(self.site_root().join("acme").join(account_id)) else {
            return Vec::new();
        };
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        let pages = names.filter_map(|name| name.strip_suffix(".html").map(str::to_owned));
        pages.filter(|name| !name.starts_with('.') && !name.starts_with("index")).collect()
    }

    pub(crate) fn plan(&self) -> Plan {
        Plan {
            roles: Roles::ALL,
            database_url: serving_url(&self.url),
            vault: self.vault.clone(),
            policy: Policy { allow: vec!["127.0.0.0/8".parse().unwrap()], allow_http: true, ports: None },
            site: Some((self.site_root().to_owned(), "https://site.example".to_owned())),
            connectors: Connectors::new(),
            body_limit: 64 * 1024,
            inbound: Limits::DEFAULT,
            accept_rows: None,
            lease: Duration::from_secs(30),
            retries: "5s,30s".parse().unwrap(),
            callback_schedule: "0s,5s,30s".parse().unwrap(),
            callback_timeout: Duration::from_secs(10),
            keep: Keep::DEFAULT,
            clock: self.clock.clone(),
        }
    }

    /// Starts the service, which is stopped at the end; the client has a key of all scopes.
    pub(crate) async fn start(&self) -> Api {
        self.start_with(self.plan()).await
    }

    pub(crate) async fn start_with(&self, plan: Plan) -> Api {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let service = Service::start(plan, listener, axum::Router::new()).unwrap();
        self.services.lock().await.push(service);
        let http = reqwest::Client::builder().no_proxy().timeout(LIMIT).build().unwrap();
        Api { base, key: self.key(self.tenant.tenant_id, &Scope::ALL).await, http }
    }

    /// Stops what was started.
    pub(crate) async fn stop(&self) {
        for service in self.services.lock().await.drain(..) {
            service.stop().await;
        }
    }

    pub(crate) fn new_task(&self, external_id: &str, group_code: &str) -> NewTask {
        let content = Content {
            title: format!("About {external_id}"),
            content_html: format!("<p>{external_id}</p>"),
            summary: None,
            cover_url: None,
            canonical_url: None,
            author: None,
            tags: Vec::new(),
        };
        NewTask {
            tenant_id: self.tenant.tenant_id,
            task_id: self.clock.new_id(),
            external_id: external_id.parse().unwrap(),
            group_code: group_code.to_owned(),
            digests: Digests::of(&content, "{}"),
            content,
            idempotency_key: None,
            callback_url: None,
            publish_at: None,
            draft: false,
            metadata: "{}".to_owned(),
            limited: false,
        }
    }

    /// Accepts articles without a service.
    pub(crate) async fn accept(&self, tasks: &[NewTask]) {
        let admitted =
            self.store.accept(&tasks.iter().collect::<Vec<_>>(), Uuid::nil(), LOCK_WAIT).await.unwrap();
        assert!(admitted.iter().all(|one| matches!(one, Admitted::Created { .. })), "{admitted:?}");
    }

    /// Claims what is due of the world's tenant, as a worker of that name.
    pub(crate) async fn claim(&self, owner: &str) -> Vec<Claimed> {
        self.store.claim(self.tenant.tenant_id, &limits(owner)).await.unwrap()
    }

    /// The tenants that have publications due.
    pub(crate) async fn due(&self) -> Vec<Uuid> {
        let due = self.store.tenants_due(Queue::Publications, Uuid::nil(), 9, Duration::ZERO).await.unwrap();
        due.into_iter().map(|one| one.tenant_id).collect()
    }

    /// A settler, without the rest of a service.
    pub(crate) fn settler(&self) -> Settler {
        settler_on(&self.store)
    }

    pub(crate) fn shared_clock(&self) -> SharedClock {
        self.clock.clone()
    }

    pub(crate) fn clock_now(&self) -> DateTime<Utc> {
        self.clock.now()
    }

    /// One number by plain SQL.
    pub(crate) async fn number(&self, statement: &'static str) -> i64 {
        sqlx::query_scalar(statement).fetch_one(&self.pool).await.unwrap()
    }

    /// One text by plain SQL.
    pub(crate) async fn text(&self, statement: &'static str) -> String {
        sqlx::query_scalar(statement).fetch_one(&self.pool).await.unwrap()
    }

    pub(crate) async fn execute(&self, statement: &'static str) {
        self.pool.execute(statement).await.unwrap();
    }

    /// Waits until a number is what it should become.
    pub(crate) async fn until(&self, statement: &'static str, expected: i64) {
        eventually(statement, async || self.number(statement).await == expected).await;
    }
}

/// An account of `static_site` with a site of its own.
pub(crate) fn account_input(id: &str) -> AccountInput {
    AccountInput {
        display_name: id.to_owned(),
        settings: json!({"site": id}),
        credentials: None,
        min_interval_seconds: 0,
        max_in_flight: 4,
        daily_limit: None,
        time_zone: "UTC",
        resume: true,
    }
}

/// A settler, without the rest of a service.
pub(crate) fn settler_on(store: &Store) -> Settler {
    let settling = Settling {
        store: store.clone(),
        telling: telling(Duration::ZERO),
        work: Wake::default(),
        deliver: Wake::default(),
        stop: CancellationToken::new(),
    };
    Settler::start(&settling, &Partial::at_once(1), &TaskTracker::new())
}

pub(crate) fn limits(owner: &str) -> ClaimLimits {
    ClaimLimits { owner: owner.to_owned(), lease: Duration::from_secs(30) }
}

pub(crate) fn schedule(text: &str) -> Schedule {
    text.parse().unwrap()
}

/// Waits, in short steps, for what no signal tells.
pub(crate) async fn eventually(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let mut steps = tokio::time::interval(Duration::from_millis(10));
    let waiting = pin!(async {
        while !done().await {
            steps.tick().await;
        }
    });
    within(what, waiting).await;
}

/// The result, or a failed test when it takes too long.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let result = tokio::time::timeout(LIMIT, future).await;
    result.unwrap_or_else(|_| panic!("{what}: not within {LIMIT:?}"))
}

/// Runs all at once, and returns their results in order.
pub(crate) async fn at_once<T: Send + 'static>(
    futures: impl IntoIterator<Item = impl Future<Output = T> + Send + 'static>,
) -> Vec<T> {
    let mut running = JoinSet::new();
    for (at, future) in futures.into_iter().enumerate() {
        running.spawn(async move { (at, future.await) });
    }
    let mut results = within("all at once", running.join_all()).await;
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}

/// A client of the service. It holds every answer against what holds for all of them.
#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) base: String,
    pub(crate) key: String,
    http: reqwest::Client,
}

/// An answer.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) text: String,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("{} {}", self.status, self.text))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// The body of a good answer.
    #[track_caller]
    pub(crate) fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text);
        self.json()
    }

    /// The body of an error of that status and code.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16, code: &str) -> Value {
        let body = self.json();
        assert_eq!((self.status, body["code"].as_str()), (status, Some(code)), "{body}");
        body
    }

    /// What holds for every answer.
    fn check(&self) {
        let request_id = self.header("x-request-id").expect("every answer has x-request-id");
        if self.status < 400 {
            return;
        }
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let body = self.json();
        for member in ["type", "title", "detail", "code"] {
            assert!(body[member].as_str().is_some_and(|text| !text.is_empty()), "{member} in {body}");
        }
        assert_eq!(body["status"], self.status, "{body}");
        assert_eq!(body["request_id"], request_id, "{body}");
        assert_eq!(body["errors"].is_array(), body["code"] == "validation_failed", "{body}");
    }
}

impl Api {
    pub(crate) fn with_key(&self, key: &str) -> Self {
        Self { key: key.to_owned(), ..self.clone() }
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.http.request(method, format!("{}{path}", self.base)).bearer_auth(&self.key)
    }

    pub(crate) fn without_key(&self, path: &str) -> reqwest::RequestBuilder {
        self.http.get(format!("{}{path}", self.base))
    }

    pub(crate) async fn send(&self, request: reqwest::RequestBuilder) -> Reply {
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let reply = Reply { status, headers, text: response.text().await.unwrap() };
        reply.check();
        reply
    }

    pub(crate) fn publishing(&self, body: impl Into<reqwest::Body>) -> reqwest::RequestBuilder {
        self.posting("/publish", body)
    }

    pub(crate) async fn publish(&self, article: &Value) -> Reply {
        self.send(self.publishing(article.to_string())).await
    }

    pub(crate) async fn publish_as(&self, idempotency_key: &str, article: &Value) -> Reply {
        self.send(self.publishing(article.to_string()).header("idempotency-key", idempotency_key)).await
    }

    pub(crate) fn posting(&self, path: &str, body: impl Into<reqwest::Body>) -> reqwest::RequestBuilder {
        self.request(Method::POST, path).header("content-type", "application/json").body(body)
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Reply {
        self.send(self.posting(path, body.to_string())).await
    }

    /// Does something to a task: `submit`, `cancel`, `retry` or `accounts`.
    pub(crate) async fn act(&self, external_id: &str, action: &str, body: &Value) -> Reply {
        self.post(&format!("{}/{action}", task_path(external_id)), body).await
    }

    pub(crate) async fn patch(&self, external_id: &str, body: &Value) -> Reply {
        let request = self.request(Method::PATCH, &task_path(external_id));
        self.send(request.header("content-type", "application/merge-patch+json").body(body.to_string())).await
    }

    /// The transitions of a task, as `from → to (reason)`.
    pub(crate) async fn transitions(&self, external_id: &str) -> Vec<String> {
        let history = self.get(&format!("{}/history", task_path(external_id))).await.ok();
        let entries = history["entries"].as_array().unwrap().iter();
        let text = |entry: &Value, name: &str| entry[name].as_str().unwrap_or("").to_owned();
        entries
            .filter(|entry| entry["kind"] == "transition")
            .map(|entry| {
                format!("{} → {} ({})", text(entry, "from"), text(entry, "to"), text(entry, "reason"))
            })
            .collect()
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.send(self.request(Method::GET, path)).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Reply {
        let request = self.request(Method::PUT, path).header("content-type", "application/json");
        self.send(request.body(body.to_string())).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Reply {
        self.send(self.request(Method::DELETE, path)).await
    }

    pub(crate) async fn task(&self, external_id: &str) -> Reply {
        self.get(&task_path(external_id)).await
    }

    /// The task, once all its publications have ended.
    pub(crate) async fn finished(&self, external_id: &str) -> Value {
        let mut task = Value::Null;
        eventually(&format!("the end of {external_id}"), async || {
            task = self.task(external_id).await.ok();
            !task["finished_at"].is_null()
        })
        .await;
        task
    }

    /// The callback of an event, once it has had so many tries.
    pub(crate) async fn tried(&self, event_id: &str, tries: usize) -> Value {
        let mut callback = Value::Null;
        eventually(&format!("try {tries} of {event_id}"), async || {
            callback = self.get(&format!("/callbacks/{event_id}")).await.ok();
            callback["tries"].as_array().unwrap().len() >= tries
        })
        .await;
        callback
    }
}

pub(crate) fn task_path(external_id: &str) -> String {
    format!("/tasks/{}", utf8_percent_encode(external_id, NON_ALPHANUMERIC))
}

/// An article for the group [`ONE`].
pub(crate) fn article(external_id: &str) -> Value {
    json!({"external_id": external_id, "group_code": ONE, "title": format!("About {external_id}"),
        "content_html": format!("<p>{external_id}</p>")})
}

/// An article with other members.
pub(crate) fn article_with(external_id: &str, members: Value) -> Value {
    let mut article = article(external_id);
    let Value::Object(members) = members else { panic!("members are an object") };
    article.as_object_mut().unwrap().extend(members);
    article
}

/// A time or an id that differs from run to run, made the same.
pub(crate) fn redacted(value: &Value) -> Value {
    match value {
        Value::Object(members) => Value::Object(
            members
                .iter()
                .map(|(name, value)| {
                    let number = matches!(name.as_str(), "duration_ms").then(|| json!("[ms]"));
                    (name.clone(), number.unwrap_or_else(|| redacted(value)))
                })
                .collect(),
        ),
        Value::Array(items) => items.iter().map(redacted).collect(),
        Value::String(text) => redacted_text(text).into(),
        other => other.clone(),
    }
}

fn redacted_text(text: &str) -> String {
    if text.parse::<Uuid>().is_ok() {
        return "[uuid]".to_owned();
    }
    if chrono::DateTime::parse_from_rfc3339(text).is_ok() {
        return "[time]".to_owned();
    }
    // The name of a step's requests: a publication's id, a fence and the step.
    if let Some((id, step)) = text.split_at_checked(36)
        && id.parse::<Uuid>().is_ok()
        && step.starts_with('-')
    {
        return format!("[uuid]{step}");
    }
    let is_marker = |part: &str| {
        part.len() == 16 && part.bytes().all(|b| b.is_ascii_lowercase() || (b'2'..=b'7').contains(&b))
    };
    if is_marker(text) {
        return "[marker]".to_owned();
    }
    if let Some((start, rest)) = text.split_once("127.0.0.1:") {
        let port = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        return format!("{start}127.0.0.1:[port]{}", &rest[port..]);
    }
    match text.rsplit_once('/') {
        Some((start, page)) if page.strip_suffix(".html").is_some_and(is_marker) => {
            format!("{start}/[marker].html")
        }
        _ => text.to_owned(),
    }
}
