//! `publish-ingest dev`: everything on one machine, with nothing set up.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use clap::Args;
use ipnet::IpNet;
use secrecy::ExposeSecret;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use super::say;
use crate::account::{AccountInput, AccountKey, GroupCode, GroupInput};
use crate::callback::signature::SigningSecret;
use crate::clock::SharedClock;
use crate::config::Settings;
use crate::http::AppState;
use crate::lifecycle::{CannotStart, Plan, Service};
use crate::local_postgres::{self, Cluster, Options, Programs};
use crate::outbound::Policy;
use crate::store::{Store, StoreError, Terms};
use crate::telemetry::{self, BadFilter};
use crate::tenant::{ApiKey, Scope, TenantName};
use crate::vault::{BadMasterKey, Vault};

mod folder;
mod receiver;
mod site;

use folder::{DevFolder, FolderError};

/// The name of the tenant, the group, the account and the site.
const DEMO: &str = "demo";

/// The database in the private Postgres.
const DATABASE: &str = "publish_ingest";

/// How many publications the demo account may have in hand: the disk is the only limit.
const DEMO_MAX_IN_FLIGHT: i32 = 16;

/// How often it is looked whether the private database still runs.
const LOOK_AFTER_DATABASE: Duration = Duration::from_millis(500);

/// How long a database that is named is waited for at the start.
const DATABASE_WITHIN: Duration = Duration::from_secs(10);

/// The pause between two tries meanwhile.
const DATABASE_AGAIN: Duration = Duration::from_millis(250);

#[derive(Args)]
pub(super) struct Dev {
    /// Start over: remove the private database, the site and the keys first
    #[arg(long)]
    reset: bool,

    /// Where data, site and keys are kept
    #[arg(long, env = "PUBLISH_DEV_FOLDER", default_value = "./.dev", value_name = "FOLDER")]
    folder: PathBuf,

    /// The folder of Postgres's programs; without it, PATH and the usual places are searched
    #[arg(long, env = "PUBLISH_POSTGRES_BIN", value_name = "FOLDER")]
    postgres_bin: Option<PathBuf>,

    #[command(flatten)]
    settings: Settings,
}

/// Why `dev` cannot run.
#[derive(Debug, thiserror::Error)]
pub(super) enum CannotRun {
    #[error(
        "--reset starts the private database over, but DATABASE_URL names another one: unset it, or empty that database yourself"
    )]
    ResetOfNamed,
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error(transparent)]
    Postgres(#[from] local_postgres::Error),
    #[error(
        "{address} is in use: end the program that listens there, or set PUBLISH_LISTEN to another address"
    )]
    PortInUse { address: SocketAddr },
    #[error("cannot listen on {address}: {source}: set PUBLISH_LISTEN to another address")]
    Listen { address: SocketAddr, source: io::Error },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{}", super::of_the_database(.0))]
    NamedDatabase(StoreError),
    #[error("PUBLISH_MASTER_KEY: {0}")]
    MasterKey(#[from] BadMasterKey),
    #[error(transparent)]
    Start(#[from] CannotStart),
    #[error(transparent)]
    Log(#[from] BadFilter),
    #[error("{0}")]
    Broken(&'static str),
}

impl Dev {
    pub(super) async fn run(self, clock: SharedClock) -> Result<(), CannotRun> {
        telemetry::start(&self.settings.log, self.settings.log_format)?;
        let mut stop = Stop::listen();
        let named = self.named_database();
        // The folder's master key is the only one to what a named database holds.
        if self.reset && named.is_some() {
            return Err(CannotRun::ResetOfNamed);
        }
        let folder = DevFolder::open(&self.folder, self.reset)?;
        // Before the database: the likeliest mistake is told first.
        let listener = listen(self.settings.listen).await?;
        let address = listener.local_addr().unwrap_or(self.settings.listen);
        let cluster = match named {
            Some(_) => None,
            None => Some(self.start_postgres(&folder).await?),
        };
        let database_url = named
            .unwrap_or_else(|| cluster.as_ref().map(|cluster| cluster.url(DATABASE)).unwrap_or_default());
        if let Some(cluster) = &cluster {
            crate::store::create_database(&cluster.url("postgres"), DATABASE).await?;
        }
        let serving = self.serve(&folder, &database_url, listener, address, clock, &mut stop);
        let Some(cluster) = cluster else {
            return serving.await.map_err(|error| match error {
                CannotRun::Store(error) => CannotRun::NamedDatabase(error),
                other => other,
            });
        };
        let cluster = Arc::new(Mutex::new(Some(cluster)));
        let done = tokio::select! {
            done = serving => done,
            lost = keep_alive(&cluster) => Err(lost.into()),
        };
        let _ = tokio::task::spawn_blocking(move || held(&cluster).take().map(Cluster::stop)).await;
        done
    }

    /// The database that is named, if one is.
    fn named_database(&self) -> Option<String> {
        let named = self.settings.database_url.as_ref().map(|url| url.0.expose_secret().to_owned());
        named.filter(|url| !url.is_empty())
    }

    async fn start_postgres(&self, folder: &DevFolder) -> Result<Cluster, CannotRun> {
        let path = std::env::var_os("PATH");
        let programs = Programs::find(path.as_deref(), self.postgres_bin.as_deref())?;
        let options = Options::new(folder.postgres());
        let started = tokio::task::spawn_blocking(move || Cluster::start(&programs, options)).await;
        Ok(started.map_err(|_| CannotRun::Broken("the start of the database was broken off"))??)
    }

    async fn serve(
        &self,
        folder: &DevFolder,
        database_url: &str,
        listener: TcpListener,
        address: SocketAddr,
        clock: SharedClock,
        stop: &mut Stop,
    ) -> Result<(), CannotRun> {
        let store = Store::open(database_url, 2, clock.clone())?;
        tokio::select! {
            migrated = migrate(&store, database_url) => migrated?,
            () = stop.asked() => return Ok(()),
        }
        let master_key = match &self.settings.master_key {
            Some(given) => given.0.expose_secret().parse()?,
            None => folder.master_key(&*clock)?,
        };
        let vault = Vault::new(&master_key);
        store.check_vault(&vault).await?;
        let url = format!("http://{}", reachable(address));
        let site_root = self.settings.site_root.clone().unwrap_or_else(|| folder.site());
        folder::make(&site_root)?;
        let site_url = self.settings.site_url.clone().unwrap_or_else(|| format!("{url}/site"));
        let (api_key, secret) = furnish(&store, &vault, folder, &clock).await?;
        folder.write_env(&url, &api_key, &secret)?;
        store.close().await;

        let settings = &self.settings;
        let allow = settings.outbound_allow.clone().map_or_else(loopback, |networks| networks.0);
        let policy = Policy { allow, allow_http: settings.allow_http.unwrap_or(true) };
        let plan = Plan {
            database_url: database_url.to_owned(),
            vault,
            policy,
            site: Some((site_root.clone(), site_url.clone())),
            body_limit: settings.body_limit.0,
            lease: settings.lease,
            retries: settings.retry_schedule.clone(),
            callback_schedule: settings.callback_schedule.clone(),
            callback_timeout: settings.callback_timeout,
            clock: clock.clone(),
        };
        let routes: Router<AppState> = site::routes(site_root).merge(receiver::routes(secret, clock));
        let service = Service::start(plan, listener, routes)?;
        let database = self.named_database().is_none().then_some(database_url);
        welcome(&url, &site_url, folder, &api_key, database);
        stop.asked().await;
        service.stop().await;
        Ok(())
    }
}

/// Starts the database again whenever it has ended although nobody asked it to; returns when that fails.
async fn keep_alive(cluster: &Arc<Mutex<Option<Cluster>>>) -> local_postgres::Error {
    loop {
        tokio::time::sleep(LOOK_AFTER_DATABASE).await;
        let cluster = cluster.clone();
        let looked = tokio::task::spawn_blocking(move || match &mut *held(&cluster) {
            Some(cluster) if cluster.has_ended() => {
                tracing::warn!("the database has ended; starting it again");
                cluster.restart()
            }
            _ => Ok(()),
        });
        if let Ok(Err(error)) = looked.await {
            return error;
        }
    }
}

fn held(cluster: &Mutex<Option<Cluster>>) -> MutexGuard<'_, Option<Cluster>> {
    cluster.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn listen(address: SocketAddr) -> Result<TcpListener, CannotRun> {
    TcpListener::bind(address).await.map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => CannotRun::PortInUse { address },
        _ => CannotRun::Listen { address, source },
    })
}

/// An address that listens everywhere is reached on this machine by the loopback one.
fn reachable(address: SocketAddr) -> SocketAddr {
    let mut reachable = address;
    if address.ip().is_unspecified() {
        let loopback: [std::net::IpAddr; 2] =
            [std::net::Ipv4Addr::LOCALHOST.into(), std::net::Ipv6Addr::LOCALHOST.into()];
        reachable.set_ip(loopback[usize::from(address.is_ipv6())]);
    }
    reachable
}

fn loopback() -> Vec<IpNet> {
    ["127.0.0.0/8", "::1/128"].iter().filter_map(|network| network.parse().ok()).collect()
}

/// A database that is just starting is waited for.
async fn migrate(store: &Store, url: &str) -> Result<(), StoreError> {
    let begun = tokio::time::timeout(DATABASE_WITHIN, async {
        loop {
            let migrated = match crate::store::reach(url).await {
                Ok(()) => store.migrate().await,
                Err(error) => Err(error),
            };
            match migrated {
                Err(error) if error.is_passing() => {
                    tracing::warn!(%error, "waiting for the database");
                    tokio::time::sleep(DATABASE_AGAIN).await;
                }
                done => return done,
            }
        }
    });
    if let Ok(done) = begun.await {
        return done;
    }
    // Once more, for the reason.
    crate::store::reach(url).await?;
    store.migrate().await
}

/// Makes what is missing of the demo tenant; its key and its secret stay what they were.
async fn furnish(
    store: &Store,
    vault: &Vault,
    folder: &DevFolder,
    clock: &SharedClock,
) -> Result<(ApiKey, SigningSecret), CannotRun> {
    let name: TenantName = DEMO.parse().map_err(|_| CannotRun::Broken("the demo tenant has a bad name"))?;
    let code: GroupCode = DEMO.parse().map_err(|_| CannotRun::Broken("the demo group has a bad code"))?;
    store.create_tenant(&name, vault).await?;
    let tenant = store.tenant_named(DEMO).await?.ok_or(CannotRun::Broken("the demo tenant is gone"))?;
    let tenant_id = tenant.tenant_id;
    let secret = store.signing_secrets(tenant_id, vault).await?.into_iter().next();
    let secret =
        secret.ok_or(CannotRun::Broken("the demo tenant has no signing secret: start with --reset"))?.secret;
    if store.group(tenant_id, &code).await?.is_none() {
        let key = AccountKey::new("static_site", DEMO)
            .map_err(|_| CannotRun::Broken("the demo account has a bad name"))?;
        let account = AccountInput {
            display_name: "Demo site".to_owned(),
            settings: json!({"site": DEMO}),
            credentials: None,
            min_interval_seconds: 0,
            max_in_flight: DEMO_MAX_IN_FLIGHT,
            daily_limit: None,
            time_zone: "UTC",
            resume: true,
        };
        store.put_account(tenant_id, &key, &account, vault, Terms::NONE).await?;
        let group = GroupInput { title: "Demo".to_owned(), accounts: vec![key] };
        store.put_group(tenant_id, &code, &group).await?;
    }
    let kept = folder.api_key().filter(|key| key.tenant_id() == tenant_id);
    if let Some(key) = kept
        && store.authenticate(&key).await?.is_some()
    {
        return Ok((key, secret));
    }
    let key = ApiKey::generate(tenant_id, &**clock);
    store.create_key(&key, &Scope::ALL).await?;
    Ok((key, secret))
}

fn welcome(url: &str, site_url: &str, folder: &DevFolder, key: &ApiKey, private: Option<&str>) {
    say(format_args!(
        "publish-ingest is ready on {url}
  the site       {site}/
  callbacks      {url}/dev/callbacks (verified and printed here)
  key and secret {env}
  database       {database}

Publish an article; paste it twice, and see that nothing happens twice:

curl -i {url}/publish \\
  -H 'authorization: Bearer {key}' \\
  -H 'content-type: application/json' \\
  -d '{{\"external_id\": \"hello-1\", \"group_code\": \"{DEMO}\", \"title\": \"Hello\",
       \"content_html\": \"<p>The first article.</p>\",
       \"callback_url\": \"{url}/dev/callbacks\"}}'
",
        site = site_url.trim_end_matches('/'),
        env = shown(&folder.env()),
        database = private.unwrap_or("the one that DATABASE_URL names"),
        key = key.expose(),
    ));
}

/// The signals that ask for an end.
struct Stop {
    signals: Vec<tokio::signal::unix::Signal>,
}

impl Stop {
    fn listen() -> Self {
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        Self { signals: kinds.into_iter().filter_map(|kind| signal(kind).ok()).collect() }
    }

    async fn asked(&mut self) {
        let signals = &mut self.signals;
        std::future::poll_fn(|context| {
            let asked = signals.iter_mut().any(|signal| signal.poll_recv(context).is_ready());
            if asked { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
    }
}

/// A path as a person reads it.
fn shown(path: &Path) -> String {
    path.display().to_string()
}
