//! Settings: from flags and the environment, read once, at the start.
//!
//! What is given is text; [`Settings::read`] makes values of it, and tells all that is wrong at once.

use std::ffi::OsString;
use std::fmt::Display;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use secrecy::ExposeSecret;

use crate::inbound::Limits;
use crate::retention::keep::Keep;
use crate::retry::Schedule;
use crate::telemetry::{LogFilter, LogFormat};
use crate::vault::{BadMasterKey, MasterKeys};

mod inbound;
mod retention;
mod values;

pub use retention::GivenKeep;
pub use values::{Networks, Ports, Roles, Secret, Size};

use inbound::GivenInbound;
use values::{callback_schedule, lease, listen, rows, site_url, timeout, truth};

/// The shortest lease: a call to a platform may take half of it.
pub const LEASE_MIN: Duration = Duration::from_secs(2);

/// The most articles in one statement that can be asked for: beyond it a batch gains little.
const ROWS_MAX: usize = 128;

/// The settings of a service as they were given. Durations are a whole number and `ms`, `s`, `m` or `h`; lists have
/// commas.
// Text throughout: the parser of the command line would stop at the first that is wrong.
#[derive(Debug, Clone, Args)]
pub struct Given {
    /// The database, which `serve` needs; without it, `dev` starts its own
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, value_name = "URL")]
    database_url: Option<Secret>,

    /// Where to listen
    #[arg(long, env = "PUBLISH_LISTEN", default_value = "127.0.0.1:8080", value_name = "ADDRESS:PORT")]
    listen: String,

    /// What this node does: api (answers requests), worker (publishes), dispatcher (delivers callbacks)
    #[arg(long, env = "PUBLISH_ROLES", default_value = "api,worker,dispatcher", value_name = "ROLES")]
    roles: String,

    /// Encrypts secrets at rest: 32 bytes in base64; while it is being replaced, the new one, a comma, the old one; `serve`
    /// needs it; without it, `dev` makes its own
    #[arg(long, env = "PUBLISH_MASTER_KEY", hide_env_values = true, value_name = "BASE64")]
    master_key: Option<Secret>,

    /// Networks (CIDR, commas) that may be called although not public; `dev`: loopback
    #[arg(long, env = "PUBLISH_OUTBOUND_ALLOW", value_name = "NETWORKS")]
    outbound_allow: Option<String>,

    /// The only ports that may be called (commas, ranges: 443,8000-8999); without it, all but those of other protocols
    #[arg(long, env = "PUBLISH_OUTBOUND_PORTS", value_name = "PORTS")]
    outbound_ports: Option<String>,

    /// Whether http may be called, not only https; without it: false; `dev`: true
    #[arg(long, env = "PUBLISH_ALLOW_HTTP", value_name = "true|false")]
    allow_http: Option<String>,

    /// The folder that the platform `static_site` writes to; without it, the platform is off; `dev`: ./.dev/site
    #[arg(long, env = "PUBLISH_SITE_ROOT", value_name = "FOLDER")]
    // Not a path, which the command line's parser refuses when it is empty.
    site_root: Option<OsString>,

    /// Where that folder is served; `dev`: its own /site
    #[arg(long, env = "PUBLISH_SITE_URL", value_name = "URL")]
    site_url: Option<String>,

    /// The largest body of a request: bytes, or a number with KiB or MiB
    #[arg(long, env = "PUBLISH_BODY_LIMIT", default_value = "2MiB", value_name = "SIZE")]
    body_limit: String,

    #[command(flatten)]
    inbound: GivenInbound,

    /// The most articles in one statement, for measuring what gathering gains: 1 is a transaction for each request
    #[arg(long, env = "PUBLISH_ACCEPT_ROWS", hide = true, value_name = "NUMBER")]
    accept_rows: Option<String>,

    /// How long a publication is held, at least 2s; a call to a platform ends within half of it
    #[arg(long, env = "PUBLISH_LEASE", default_value = "30s", value_name = "DURATION")]
    lease: String,

    /// The waits before each try of a callback
    #[arg(
        long,
        env = "PUBLISH_CALLBACK_SCHEDULE",
        default_value = "0s,5s,30s,2m,10m,30m,1h,2h,4h,8h,12h",
        value_name = "DURATIONS"
    )]
    callback_schedule: String,

    /// How long a callback may take, all of it
    #[arg(long, env = "PUBLISH_CALLBACK_TIMEOUT", default_value = "10s", value_name = "DURATION")]
    callback_timeout: String,

    /// The waits before another try after a transient error of a platform
    #[arg(
        long,
        env = "PUBLISH_RETRY_SCHEDULE",
        default_value = "5s,30s,2m,10m,30m,1h",
        value_name = "DURATIONS"
    )]
    retry_schedule: String,

    #[command(flatten)]
    keep: GivenKeep,

    /// What is logged: a level, or target=level with commas
    #[arg(long, env = "PUBLISH_LOG", default_value = "info", value_name = "FILTER")]
    log: String,

    /// The form of the log
    #[arg(long, env = "PUBLISH_LOG_FORMAT", default_value = "text", value_name = "text|json")]
    log_format: String,
}

impl Given {
    fn database_url(&self, runs: Runs, looks: &Looks<'_>) -> Result<Option<Secret>, String> {
        match present(self.database_url.as_ref()) {
            Some(url) => (looks.database_url)(url.0.expose_secret()).map(|()| Some(url.clone())),
            None if runs == Runs::Dev => Ok(None),
            None => Err("which database? write postgres://user:password@host:port/database".to_owned()),
        }
    }

    fn master_key(&self, runs: Runs) -> Result<Option<MasterKeys>, String> {
        let missing = "secrets are stored under this key: write 32 bytes in base64, such as `openssl rand -base64 32` \
            makes, and keep it: without it a backup of the database cannot be used; a running `dev` has its own in \
            .dev/master.key";
        match present(self.master_key.as_ref()) {
            Some(key) => {
                key.0.expose_secret().parse().map(Some).map_err(|error: BadMasterKey| error.to_string())
            }
            None if runs == Runs::Dev => Ok(None),
            None => Err(missing.to_owned()),
        }
    }
}

/// The settings of a service, each of them good.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The database; always there for [`Runs::Serve`].
    pub database_url: Option<Secret>,
    /// Where to listen.
    pub listen: SocketAddr,
    /// What this node does.
    pub roles: Roles,
    /// Encrypt secrets at rest; always there for [`Runs::Serve`].
    pub master_key: Option<MasterKeys>,
    /// Networks that may be called although not public; none: the command's default.
    pub outbound_allow: Option<Networks>,
    /// The only ports that may be called; none: all but those of other protocols.
    pub outbound_ports: Option<Ports>,
    /// Whether http may be called; none: the command's default.
    pub allow_http: Option<bool>,
    /// The folder that `static_site` writes to; for [`Runs::Serve`] only together with `site_url`.
    pub site_root: Option<PathBuf>,
    /// Where that folder is served.
    pub site_url: Option<String>,
    /// The largest body of a request.
    pub body_limit: Size,
    /// How much callers may take.
    pub inbound: Limits,
    /// The most articles in one statement; none: as many as is best.
    pub accept_rows: Option<NonZeroUsize>,
    /// How long a publication is held, at least [`LEASE_MIN`].
    pub lease: Duration,
    /// The waits before each try of a callback, at least one.
    pub callback_schedule: Schedule,
    /// How long a callback may take, longer than 0.
    pub callback_timeout: Duration,
    /// The waits before another try after a transient error of a platform.
    pub retry_schedule: Schedule,
    /// How long contents, journals and events are kept.
    pub keep: Keep,
    /// What is logged.
    pub log: LogFilter,
    /// The form of the log.
    pub log_format: LogFormat,
}

/// Which command the settings are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runs {
    /// `dev` makes itself what it is not given.
    Dev,
    /// `serve` needs a database and a master key, and the folder of a site with its URL.
    Serve,
}

/// A setting that is wrong or missing. The text says what to write, and never repeats a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name}: {why}")]
pub struct BadSetting {
    /// The variable of the environment that sets it.
    pub name: &'static str,
    /// What is wrong, and what to do.
    pub why: String,
}

/// What only this machine and the database's library can tell of a setting; an error says what to do.
pub struct Looks<'a> {
    /// Whether this names a database.
    pub database_url: &'a dyn Fn(&str) -> Result<(), String>,
    /// Whether this is a folder that can be written to.
    pub site_root: &'a dyn Fn(&Path) -> Result<(), String>,
}

impl Settings {
    /// Reads what was given; of what is wrong, all.
    pub fn read(given: &Given, runs: Runs, looks: &Looks<'_>) -> Result<Self, Vec<BadSetting>> {
        let mut bad = Bad(Vec::new());
        let database_url = bad.read("DATABASE_URL", given.database_url(runs, looks));
        let listen = bad.read("PUBLISH_LISTEN", listen(&given.listen));
        let roles = bad.read("PUBLISH_ROLES", given.roles.parse::<Roles>());
        let master_key = bad.read("PUBLISH_MASTER_KEY", given.master_key(runs));
        let outbound_allow =
            bad.read("PUBLISH_OUTBOUND_ALLOW", optional(given.outbound_allow.as_deref(), str::parse));
        let outbound_ports =
            bad.read("PUBLISH_OUTBOUND_PORTS", optional(given.outbound_ports.as_deref(), str::parse));
        let allow_http = given.allow_http.as_deref().filter(|text| !text.is_empty());
        let allow_http = bad.read("PUBLISH_ALLOW_HTTP", optional(allow_http, truth));
        let (site_root, site_url) = bad.site(given, runs, roles, looks);
        let body_limit = bad.read("PUBLISH_BODY_LIMIT", given.body_limit.parse());
        let inbound = given.inbound.read(&mut bad);
        let accept_rows = given.accept_rows.as_deref().filter(|text| !text.is_empty());
        let accept_rows = bad.read("PUBLISH_ACCEPT_ROWS", optional(accept_rows, rows));
        let lease = bad.read("PUBLISH_LEASE", lease(&given.lease));
        let callback_schedule =
            bad.read("PUBLISH_CALLBACK_SCHEDULE", callback_schedule(&given.callback_schedule));
        let callback_timeout = bad.read("PUBLISH_CALLBACK_TIMEOUT", timeout(&given.callback_timeout));
        let retry_schedule = bad.read("PUBLISH_RETRY_SCHEDULE", given.retry_schedule.parse());
        let keep = given.keep.read(callback_schedule.as_ref(), &mut bad);
        let log = bad.read("PUBLISH_LOG", given.log.parse());
        let log_format = bad.read("PUBLISH_LOG_FORMAT", given.log_format.parse());
        let read = || {
            Some(Self {
                database_url: database_url?,
                listen: listen?,
                roles: roles?,
                master_key: master_key?,
                outbound_allow: outbound_allow?,
                outbound_ports: outbound_ports?,
                allow_http: allow_http?,
                site_root,
                site_url,
                body_limit: body_limit?,
                inbound: inbound?,
                accept_rows: accept_rows?,
                lease: lease?,
                callback_schedule: callback_schedule?,
                callback_timeout: callback_timeout?,
                retry_schedule: retry_schedule?,
                keep: keep?,
                log: log?,
                log_format: log_format?,
            })
        };
        if bad.0.is_empty() { read().ok_or(bad.0) } else { Err(bad.0) }
    }
}

/// What is wrong so far.
struct Bad(Vec<BadSetting>);

impl Bad {
    fn tell(&mut self, name: &'static str, why: impl Display) {
        self.0.push(BadSetting { name, why: why.to_string() });
    }

    fn read<T, E: Display>(&mut self, name: &'static str, read: Result<T, E>) -> Option<T> {
        read.map_err(|why| self.tell(name, why)).ok()
    }

    /// The folder of the site, and its URL.
    fn site(
        &mut self,
        given: &Given,
        runs: Runs,
        roles: Option<Roles>,
        looks: &Looks<'_>,
    ) -> (Option<PathBuf>, Option<String>) {
        let root = given.site_root.as_deref().filter(|root| !root.is_empty()).map(PathBuf::from);
        let url = given.site_url.as_deref().filter(|url| !url.is_empty());
        // Only a worker writes there, and `dev` makes the folder.
        if let Some(root) =
            root.as_deref().filter(|_| runs == Runs::Serve && roles.is_none_or(|roles| roles.worker))
        {
            self.read("PUBLISH_SITE_ROOT", (looks.site_root)(root));
        }
        let there = (root.is_some(), url.is_some());
        if runs == Runs::Serve && there == (false, true) {
            self.tell(
                "PUBLISH_SITE_ROOT",
                "PUBLISH_SITE_URL is set: name the folder that is served there, or unset both",
            );
        }
        let url = url.and_then(|url| self.read("PUBLISH_SITE_URL", site_url(url)));
        if runs == Runs::Serve && there == (true, false) {
            self.tell(
                "PUBLISH_SITE_URL",
                "PUBLISH_SITE_ROOT is set: write the URL that it is served at, or unset both",
            );
        }
        (root, url)
    }
}

/// A secret that is empty is none.
fn present(secret: Option<&Secret>) -> Option<&Secret> {
    secret.filter(|secret| !secret.0.expose_secret().trim().is_empty())
}

fn optional<T, E>(text: Option<&str>, read: impl FnOnce(&str) -> Result<T, E>) -> Result<Option<T>, E> {
    text.map(read).transpose()
}

#[cfg(test)]
mod tests;
