//! What `dev` and `serve` share: their settings, the listener, the database at the start, and the end.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;
use rustix::fs::{Access, access};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use super::Failure;
use crate::clock::SharedClock;
use crate::config::{Given, Looks, Runs, Settings};
use crate::inbound::Limits;
use crate::lifecycle::{Plan, Service};
use crate::outbound::Policy;
use crate::store::{self, Store, StoreError};
use crate::task::work::Connectors;
use crate::telemetry;
use crate::vault::Vault;

/// How long a database that is named is waited for at the start.
const DATABASE_WITHIN: Duration = Duration::from_secs(10);

/// The pause between two tries meanwhile.
const DATABASE_AGAIN: Duration = Duration::from_millis(250);

/// Files beside the connections of callers: to the database, to platforms and receivers, and pages that are written.
const FILES_BESIDE: u64 = 512;

/// Why nothing can listen there.
#[derive(Debug, thiserror::Error)]
pub(super) enum CannotListen {
    #[error(
        "{address} is in use: end the program that listens there, or set PUBLISH_LISTEN to another address"
    )]
    InUse { address: SocketAddr },
    #[error("cannot listen on {address}: {source}: set PUBLISH_LISTEN to another address")]
    Other { address: SocketAddr, source: io::Error },
}

/// Asked to end a second time.
#[derive(Debug, thiserror::Error)]
#[error("asked twice: ended with work under way, which is taken up again when its lease has run out")]
pub(super) struct EndedAtOnce;

/// Reads the settings, and starts logging by them. However the program dies from then on, it leaves no core file.
pub(super) fn settings(given: &Given, runs: Runs) -> Result<Settings, Failure> {
    let looks = Looks {
        database_url: &|url| store::check_address(url).map_err(|error| error.to_string()),
        site_root: &can_be_written_to,
    };
    let settings = Settings::read(given, runs, &looks).map_err(Failure::Settings)?;
    telemetry::start(&settings.log, settings.log_format);
    // It would hold every key and secret in clear.
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    if let Err(error) = setrlimit(Resource::Core, none) {
        tracing::warn!(%error, "core files cannot be switched off");
    }
    Ok(settings)
}

fn can_be_written_to(folder: &Path) -> Result<(), String> {
    if !folder.is_dir() {
        return Err(format!("{} is no folder: create it, or name another", folder.display()));
    }
    access(folder, Access::WRITE_OK | Access::EXEC_OK).map_err(|error| {
        format!(
            "{} cannot be written to: {error}: let this user write there, or name another",
            folder.display()
        )
    })
}

pub(super) async fn listen(address: SocketAddr) -> Result<TcpListener, CannotListen> {
    TcpListener::bind(address).await.map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => CannotListen::InUse { address },
        _ => CannotListen::Other { address, source },
    })
}

/// An address that listens everywhere is reached on this machine by the loopback one.
pub(super) fn reachable(address: SocketAddr) -> SocketAddr {
    let mut reachable = address;
    if address.ip().is_unspecified() {
        let loopback: [std::net::IpAddr; 2] =
            [std::net::Ipv4Addr::LOCALHOST.into(), std::net::Ipv6Addr::LOCALHOST.into()];
        reachable.set_ip(loopback[usize::from(address.is_ipv6())]);
    }
    reachable
}

/// What is done to a database before it is worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Schema {
    /// It is brought up to date.
    Migrate,
    /// It must be up to date.
    Check,
}

/// Prepares the database; one that is just starting is waited for. To change the schema of a large one takes its time.
pub(super) async fn prepare(store: &Store, url: &str, schema: Schema) -> Result<(), StoreError> {
    let mut late = std::pin::pin!(tokio::time::sleep(DATABASE_WITHIN));
    let mut told = String::new();
    loop {
        let error = match prepare_once(store, url, schema).await {
            Err(error) if error.is_passing() => error,
            done => return done,
        };
        if told != error.to_string() {
            tracing::warn!(%error, "waiting for the database");
            told = error.to_string();
        }
        tokio::select! {
            biased;
            () = &mut late => return Err(error),
            () = tokio::time::sleep(DATABASE_AGAIN) => {}
        }
    }
}

async fn prepare_once(store: &Store, url: &str, schema: Schema) -> Result<(), StoreError> {
    match schema {
        Schema::Migrate => store.migrate().await?,
        Schema::Check => store::reach(url).await?,
    }
    store.check().await
}

/// Which addresses and ports may be called, by the settings: what is not set is wider for `dev`.
pub(super) fn policy(settings: &Settings, runs: Runs) -> Policy {
    let dev = runs == Runs::Dev;
    let allow = settings.outbound_allow.clone().map(|networks| networks.0);
    Policy {
        allow: allow.unwrap_or_else(|| if dev { loopback() } else { Vec::new() }),
        allow_http: settings.allow_http.unwrap_or(dev),
        ports: settings.outbound_ports.clone().map(|ports| ports.0),
    }
}

fn loopback() -> Vec<IpNet> {
    ["127.0.0.0/8", "::1/128"].iter().filter_map(|network| network.parse().ok()).collect()
}

/// The plan of a service by its settings, and what the command made itself.
pub(super) fn plan(
    settings: &Settings,
    database_url: &str,
    vault: Vault,
    policy: Policy,
    site: Option<(PathBuf, String)>,
    clock: SharedClock,
) -> Plan {
    Plan {
        roles: settings.roles,
        database_url: database_url.to_owned(),
        vault,
        policy,
        site,
        connectors: Connectors::new(),
        body_limit: settings.body_limit.0,
        inbound: Limits { connections: files_for(settings.inbound.connections), ..settings.inbound },
        accept_rows: settings.accept_rows,
        lease: settings.lease,
        retries: settings.retry_schedule.clone(),
        callback_schedule: settings.callback_schedule.clone(),
        callback_timeout: settings.callback_timeout,
        keep: settings.keep,
        clock,
    }
}

/// How many of these connections the files suffice that this process may have open; it takes as many as it is granted.
fn files_for(connections: usize) -> usize {
    let wanted = connections as u64 + FILES_BESIDE;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let mut files = current.unwrap_or(u64::MAX);
    let granted = maximum.unwrap_or(u64::MAX).min(wanted);
    if files < granted && setrlimit(Resource::Nofile, Rlimit { current: Some(granted), maximum }).is_ok() {
        files = granted;
    }
    if files >= wanted {
        return connections;
    }
    let fewer = usize::try_from(files.saturating_sub(FILES_BESIDE)).unwrap_or(usize::MAX).max(1);
    tracing::warn!(
        fewer,
        files,
        "too few open files for PUBLISH_CONNECTIONS: raise the limit (ulimit -n), or set it lower"
    );
    fewer
}

/// Runs the service until it is asked to end, and ends it: in good order, or at once when asked again.
pub(super) async fn until_asked(service: Service, stop: &mut Stop) -> Result<(), EndedAtOnce> {
    stop.asked().await;
    tracing::info!("ending");
    tokio::select! {
        () = service.stop() => Ok(()),
        () = stop.asked() => Err(EndedAtOnce),
    }
}

/// The signals that ask for an end.
pub(super) struct Stop {
    signals: Vec<tokio::signal::unix::Signal>,
}

impl Stop {
    pub(super) fn listen() -> Self {
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        Self { signals: kinds.into_iter().filter_map(|kind| signal(kind).ok()).collect() }
    }

    pub(super) async fn asked(&mut self) {
        let signals = &mut self.signals;
        std::future::poll_fn(|context| {
            let asked = signals.iter_mut().any(|signal| signal.poll_recv(context).is_ready());
            if asked { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
    }
}
