//! `publish-ingest dev`: everything on one machine, with nothing set up.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clap::Args;
use secrecy::ExposeSecret;
use serde_json::json;
use tokio::net::TcpListener;

use super::running::{self, CannotListen, EndedAtOnce, Schema, Stop};
use super::{Failure, say};
use crate::account::{AccountInput, AccountKey, GroupCode, GroupInput};
use crate::callback::signature::SigningSecret;
use crate::clock::SharedClock;
use crate::config::{Given, Runs, Settings};
use crate::lifecycle::{CannotStart, Service};
use crate::local_postgres::{self, Cluster, Options, Programs};
use crate::store::{Store, StoreError, Terms};
use crate::tenant::{ApiKey, Scope, TenantName};
use crate::vault::Vault;

mod folder;
mod receiver;
mod site;

use folder::{DevFolder, FolderError};

/// The name of the tenant, the group, the account and the site.
const DEMO: &str = "demo";

/// The database in the private Postgres.
const DATABASE: &str = "publish_ingest";

/// What the service works as in the private Postgres; its owner is `postgres`.
const ROLE: &str = "publish_serve";

/// How many publications the demo account may have in hand: the disk is the only limit.
const DEMO_MAX_IN_FLIGHT: i32 = 16;

/// How often it is looked whether the private database still runs.
const LOOK_AFTER_DATABASE: Duration = Duration::from_millis(500);

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
    given: Given,
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
    #[error(transparent)]
    Listen(#[from] CannotListen),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{}", super::of_the_database(.0))]
    NamedDatabase(StoreError),
    #[error(transparent)]
    Start(#[from] CannotStart),
    #[error(transparent)]
    AtOnce(#[from] EndedAtOnce),
    #[error("{0}")]
    Broken(&'static str),
}

impl Dev {
    pub(super) async fn run(self, clock: SharedClock) -> Result<(), Failure> {
        let settings = running::settings(&self.given, Runs::Dev)?;
        Ok(self.run_by(&settings, clock).await?)
    }

    async fn run_by(&self, settings: &Settings, clock: SharedClock) -> Result<(), CannotRun> {
        let mut stop = Stop::listen();
        let named = settings.database_url.as_ref().map(|url| url.0.expose_secret().to_owned());
        // The folder's master key is the only one to what a named database holds.
        if self.reset && named.is_some() {
            return Err(CannotRun::ResetOfNamed);
        }
        let folder = DevFolder::open(&self.folder, self.reset)?;
        // Before the database: the likeliest mistake is told first.
        let listener = running::listen(settings.listen).await?;
        let cluster = match named {
            Some(_) => None,
            None => Some(self.start_postgres(&folder).await?),
        };
        let database_url = named
            .unwrap_or_else(|| cluster.as_ref().map(|cluster| cluster.url(DATABASE)).unwrap_or_default());
        if let Some(cluster) = &cluster {
            crate::store::create_database(&cluster.url("postgres"), DATABASE).await?;
            crate::store::create_role(&cluster.url("postgres"), ROLE).await?;
        }
        let database = Database {
            serving_url: cluster.as_ref().map(|cluster| cluster.url_as(ROLE, DATABASE)),
            url: database_url,
        };
        let serving = serve(settings, &folder, &database, listener, clock, &mut stop);
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

    async fn start_postgres(&self, folder: &DevFolder) -> Result<Cluster, CannotRun> {
        let path = std::env::var_os("PATH");
        let programs = Programs::find(path.as_deref(), self.postgres_bin.as_deref())?;
        let options = Options::new(folder.postgres());
        let started = tokio::task::spawn_blocking(move || Cluster::start(&programs, options)).await;
        Ok(started.map_err(|_| CannotRun::Broken("the start of the database was broken off"))??)
    }
}

/// The database that `dev` works on.
struct Database {
    /// As its owner.
    url: String,
    /// As what the service works there; none: it is a named one, and the service works as it is named.
    serving_url: Option<String>,
}

/// Makes what is missing, serves until asked to end, and ends.
async fn serve(
    settings: &Settings,
    folder: &DevFolder,
    database: &Database,
    listener: TcpListener,
    clock: SharedClock,
    stop: &mut Stop,
) -> Result<(), CannotRun> {
    let store = Store::open(&database.url, 1, clock.clone())?;
    tokio::select! {
        prepared = running::prepare(&store, &database.url, Schema::Migrate) => prepared?,
        () = stop.asked() => return Ok(()),
    }
    if database.serving_url.is_some() {
        store.grant_rights(ROLE).await?;
    }
    let master_key = match &settings.master_key {
        Some(given) => given.clone(),
        None => folder.master_key(&*clock)?,
    };
    let vault = Vault::new(&master_key);
    store.check_vault(&vault).await?;
    let address = listener.local_addr().unwrap_or(settings.listen);
    let url = format!("http://{}", running::reachable(address));
    let site_root = settings.site_root.clone().unwrap_or_else(|| folder.site());
    folder::make(&site_root)?;
    let site_url = settings.site_url.clone().unwrap_or_else(|| format!("{url}/site"));
    let (api_key, secret) = furnish(&store, &vault, folder, &clock).await?;
    folder.write_env(&url, &api_key, &secret)?;

    let policy = running::policy(settings, Runs::Dev);
    let site = Some((site_root.clone(), site_url.clone()));
    let serving_url = database.serving_url.as_ref().unwrap_or(&database.url);
    let plan = running::plan(settings, serving_url, vault, policy, site, clock.clone());
    let keys = receiver::Keys { store, vault: plan.vault.clone(), tenant_id: api_key.tenant_id() };
    let routes = site::routes(site_root).merge(receiver::routes(keys, clock));
    let service = Service::start(plan, listener, routes)?;
    let private = database.serving_url.is_some().then_some(database.url.as_str());
    welcome(&url, &site_url, folder, &api_key, private);
    Ok(running::until_asked(service, stop).await?)
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
    let secret = store.present_secret(tenant_id, vault).await?;
    let secret =
        secret.ok_or(CannotRun::Broken("the demo tenant has no signing secret: start with --reset"))?;
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

/// A path as a person reads it.
fn shown(path: &Path) -> String {
    path.display().to_string()
}
