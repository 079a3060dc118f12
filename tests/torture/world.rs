//! All that takes part: the database, the doors of the services, the platforms behind their proxies, the receiver.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use publish_ingest::clock::{Clock as _, SystemClock};
use publish_ingest::local_postgres::{Cluster, Durability, OnExit, Options};
use publish_ingest::retry::SCHEDULE_STEPS_MAX;
use publish_ingest::vault::MasterKey;
use serde_json::Value;
use sqlx::PgPool;

use crate::Arguments;
use crate::api::Api;
use crate::operator::{Shell, put_group};
use crate::platforms::{self, Platform};
use crate::program::{programs, random};
use crate::proxy::Proxy;
use crate::receiver::Receiver;
use crate::services::{Manner, Service, Start};

/// Short, so that a run sees many run out; a call to a platform has half of it.
pub(crate) const LEASE: Duration = Duration::from_millis(LEASE_MS);
pub(crate) const LEASE_MS: u64 = 4_000;

/// The group of all accounts.
pub(crate) const EVERYWHERE: &str = "everywhere";

/// The account of each platform.
pub(crate) const ACCOUNT: &str = "torture";

/// A platform that takes part, and its proxy, where it is called.
pub(crate) struct Part {
    pub(crate) platform: Box<dyn Platform>,
    pub(crate) proxy: Option<Proxy>,
}

impl Part {
    /// The body of a PUT of its account.
    pub(crate) fn account(&self) -> Value {
        self.platform.account(&self.base())
    }

    /// The same of its account that may not publish.
    pub(crate) fn refused(&self) -> Option<Value> {
        self.platform.refused(&self.base())
    }

    fn base(&self) -> String {
        self.proxy.as_ref().map(|proxy| format!("http://{}", proxy.address)).unwrap_or_default()
    }
}

pub(crate) struct World {
    folder: PathBuf,
    cluster: Option<Cluster>,
    pub(crate) parts: Vec<Part>,
    /// The platforms that were to take part and do not, and why.
    pub(crate) absent: Vec<(String, String)>,
    pub(crate) receiver: Receiver,
    pub(crate) callbacks: Proxy,
    /// Where the services are reached, whoever serves there.
    pub(crate) doors: [Proxy; 2],
    pub(crate) start: Start,
    pub(crate) apis: Vec<Api>,
    pub(crate) seed: u64,
    begun: std::time::Instant,
}

impl World {
    pub(crate) async fn start(arguments: &Arguments, seed: u64) -> Result<Self, String> {
        let begun = SystemClock.instant();
        let folder = std::env::temp_dir().canonicalize().unwrap();
        let folder = folder.join(format!("publish-torture-{:016x}", u64::from_be_bytes(random())));
        std::fs::create_dir(&folder).unwrap();
        std::fs::create_dir(folder.join("site")).unwrap();
        let cluster = blocking({
            let options = Options {
                durability: Durability::None,
                on_exit: OnExit::Keep,
                settings: vec![("max_connections".to_owned(), "200".to_owned())],
                ..Options::new(folder.join("pg"))
            };
            move || Cluster::start(&programs(), options).unwrap()
        })
        .await;
        let master_key = MasterKey::generate(&SystemClock).expose().to_string();
        let shell = Shell { url: cluster.url("postgres"), master_key };
        let (parts, absent) = parts(arguments, &folder, &shell.url, seed).await?;
        shell.text(&["migrate"]).await;
        let tenant = shell.json(&["tenant", "create", "demo"]).await;
        let key = shell.json(&["key", "create", "demo", "--scopes", "publish,read,manage"]).await;
        let receiver = Receiver::start(tenant["signing_secret"].as_str().unwrap()).await;
        let callbacks = Proxy::start(Some(receiver.address.clone()), seed ^ 1, LEASE).await;
        let doors = [Proxy::start(None, seed ^ 2, LEASE).await, Proxy::start(None, seed ^ 3, LEASE).await];
        let api =
            |door: &Proxy| Api::new(&format!("http://{}", door.address), key["api_key"].as_str()).impatient();
        let apis = doors.iter().map(api).collect();
        let settings = settings(&folder, arguments.without_search);
        let start = Start { shell, folder: folder.clone(), settings };
        let mut world = Self {
            folder,
            cluster: Some(cluster),
            parts,
            absent,
            receiver,
            callbacks,
            doors,
            start,
            apis,
            seed,
            begun,
        };
        world.furnish(arguments.platforms.is_some()).await?;
        let names = world.parts.iter().map(|part| part.platform.name()).collect::<Vec<_>>();
        println!("runs: {}", names.join(", "));
        for (name, why) in &world.absent {
            println!("DOES NOT RUN: {name}: {why}");
        }
        Ok(world)
    }

    /// Puts the accounts, a group of them all, and one of each; leaves out what the program does not have.
    async fn furnish(&mut self, asked: bool) -> Result<(), String> {
        let mut service = self.serve(0, Manner::default()).await?;
        let answer = self.apis[0].get("/platforms").await.unwrap().ok();
        let known = answer["platforms"].as_array().unwrap().iter().map(|one| one["platform"].clone());
        let known = known.collect::<Vec<_>>();
        let unknown = self.parts.extract_if(.., |part| !known.contains(&part.platform.name().into()));
        let why = "this build of the program does not have it";
        self.absent.extend(unknown.map(|part| (part.platform.name().to_owned(), why.to_owned())));
        if let Some((name, why)) = self.absent.first().filter(|_| asked) {
            return Err(format!("{name}: {why}"));
        }
        let mut members = Vec::new();
        for part in &self.parts {
            let member = format!("{}/{ACCOUNT}", part.platform.name());
            self.apis[0].put(&format!("/accounts/{member}"), &part.account()).await.unwrap().ok();
            put_group(&self.apis[0], part.platform.name(), &[&member]).await;
            members.push(member);
        }
        let members = members.iter().map(String::as_str).collect::<Vec<_>>();
        put_group(&self.apis[0], EVERYWHERE, &members).await;
        service.end().await;
        Ok(())
    }

    pub(crate) async fn serve(&self, place: usize, manner: Manner) -> Result<Service, String> {
        self.start.serve(["first", "second"][place], manner, &self.doors[place]).await
    }

    pub(crate) async fn pool(&self) -> PgPool {
        PgPool::connect(&self.start.shell.url).await.unwrap()
    }

    pub(crate) fn callback_url(&self) -> String {
        format!("http://{}/callbacks", self.callbacks.address)
    }

    pub(crate) fn proxies(&self) -> impl Iterator<Item = &Proxy> {
        let platforms = self.parts.iter().filter_map(|part| part.proxy.as_ref());
        platforms.chain(&self.doors).chain([&self.callbacks])
    }

    /// The seconds since the run began.
    pub(crate) fn seconds(&self) -> u64 {
        self.begun.elapsed().as_secs()
    }

    pub(crate) fn say(&self, text: &str) {
        println!("{:4} s  {text}", self.seconds());
    }

    /// Kills the database, does something to its files, and starts it again.
    pub(crate) async fn restart_database(&mut self, meanwhile: impl FnOnce(&Path, &Path) + Send + 'static) {
        let mut cluster = self.cluster.take().unwrap();
        let (data, copy) = (data(&self.folder.join("pg")), self.folder.join("copy"));
        let again = move || {
            cluster.kill().unwrap();
            meanwhile(&data, &copy);
            cluster.restart().unwrap();
            cluster
        };
        self.cluster = Some(blocking(again).await);
    }

    /// What is called, by the platform's name.
    pub(crate) fn part(&self, name: &str) -> Option<&Part> {
        self.parts.iter().find(|part| part.platform.name() == name)
    }

    /// Ends the platforms and the database.
    pub(crate) async fn end(&mut self) {
        self.parts.clear();
        if let Some(cluster) = self.cluster.take() {
            blocking(move || cluster.stop().unwrap()).await;
        }
    }

    pub(crate) fn remove(&self) {
        publish_ingest::local_postgres::remove(&self.folder.join("pg")).unwrap();
        std::fs::remove_dir_all(&self.folder).unwrap();
    }

    pub(crate) fn keep(&self) {
        println!("logs and data are kept in {}", self.folder.display());
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.keep();
        }
    }
}

/// Copies a folder with its owners and rights, in the place of what is there.
pub(crate) fn put_in_place(from: &Path, to: &Path) {
    if to.exists() {
        std::fs::remove_dir_all(to).unwrap();
    }
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(copied.success());
}

/// Where a cluster keeps its data: it says so where that is elsewhere.
fn data(folder: &Path) -> PathBuf {
    let home = std::fs::read_to_string(folder.join("data-is-at"));
    home.map_or_else(|_| folder.to_owned(), |home| home.trim().into()).join("data")
}

async fn parts(
    arguments: &Arguments,
    folder: &Path,
    database_url: &str,
    seed: u64,
) -> Result<(Vec<Part>, Vec<(String, String)>), String> {
    let all = platforms::ALL.map(str::to_owned).to_vec();
    let asked = arguments.platforms.as_ref().unwrap_or(&all);
    let (mut parts, mut absent) = (Vec::new(), Vec::new());
    for (number, name) in (1_u64..).zip(asked) {
        match platforms::start(name, folder, database_url).await {
            Ok(platform) => {
                let seed = seed.wrapping_mul(31).wrapping_add(number);
                let proxy = match platform.address() {
                    Some(address) => Some(Proxy::start(Some(address), seed, LEASE).await),
                    None => None,
                };
                parts.push(Part { platform, proxy });
            }
            Err(why) if arguments.platforms.is_some() => return Err(format!("{name}: {why}")),
            Err(why) => absent.push((name.clone(), why)),
        }
    }
    Ok((parts, absent))
}

fn settings(folder: &Path, without_search: bool) -> Vec<(&'static str, String)> {
    // The first are short, and the last ones leave a busy machine to the others.
    let waits = |first: &str| format!("{first}{}{}", ",1s".repeat(18), ",2s".repeat(SCHEDULE_STEPS_MAX - 20));
    let mut settings = vec![
        ("PUBLISH_LISTEN", "127.0.0.1:0".to_owned()),
        ("PUBLISH_OUTBOUND_ALLOW", "127.0.0.0/8".to_owned()),
        ("PUBLISH_ALLOW_HTTP", "true".to_owned()),
        ("PUBLISH_LEASE", format!("{}s", LEASE.as_secs())),
        ("PUBLISH_FAULT_SETTLE", LEASE.as_secs().to_string()),
        ("PUBLISH_RETRY_SCHEDULE", waits("200ms,500ms")),
        ("PUBLISH_CALLBACK_SCHEDULE", waits("0s,200ms")),
        ("PUBLISH_CALLBACK_TIMEOUT", "1s".to_owned()),
        ("PUBLISH_SITE_ROOT", folder.join("site").display().to_string()),
        ("PUBLISH_SITE_URL", "https://site.example".to_owned()),
    ];
    if without_search {
        settings.push(("PUBLISH_FAULT_BLIND", "true".to_owned()));
    }
    settings
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}
