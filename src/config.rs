//! Settings: from flags and the environment, read once, at the start.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use ipnet::IpNet;
use secrecy::SecretString;

use crate::retry::{BadSchedule, Schedule, duration};
use crate::telemetry::LogFormat;

/// The shortest lease: a call to a platform may take half of it.
pub const LEASE_MIN: Duration = Duration::from_secs(2);

/// The settings of a service. Durations are a whole number and `ms`, `s`, `m` or `h`; lists have commas.
#[derive(Debug, Clone, Args)]
pub struct Settings {
    /// The database; without it, `dev` starts its own
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, value_name = "URL")]
    pub database_url: Option<Secret>,

    /// Where to listen
    #[arg(long, env = "PUBLISH_LISTEN", default_value = "127.0.0.1:8080", value_parser = listen, value_name = "ADDRESS:PORT")]
    pub listen: SocketAddr,

    /// Encrypts secrets at rest: 32 bytes in base64; without it, `dev` makes its own
    #[arg(long, env = "PUBLISH_MASTER_KEY", hide_env_values = true, value_name = "BASE64")]
    pub master_key: Option<Secret>,

    /// Networks (CIDR, commas) that may be called although not public; `dev`: loopback
    #[arg(long, env = "PUBLISH_OUTBOUND_ALLOW", value_name = "NETWORKS")]
    pub outbound_allow: Option<Networks>,

    /// Whether http may be called, not only https; `dev`: true
    #[arg(long, env = "PUBLISH_ALLOW_HTTP", value_name = "true|false")]
    pub allow_http: Option<bool>,

    /// The folder that the platform `static_site` writes to; `dev`: ./.dev/site
    #[arg(long, env = "PUBLISH_SITE_ROOT", value_name = "FOLDER")]
    pub site_root: Option<PathBuf>,

    /// Where that folder is served; `dev`: its own /site
    #[arg(long, env = "PUBLISH_SITE_URL", value_parser = site_url, value_name = "URL")]
    pub site_url: Option<String>,

    /// The largest body of a request: bytes, or a number with KiB or MiB
    #[arg(long, env = "PUBLISH_BODY_LIMIT", default_value = "2MiB", value_name = "SIZE")]
    pub body_limit: Size,

    /// How long a publication is held, at least 2s; a call to a platform ends within half of it
    #[arg(long, env = "PUBLISH_LEASE", default_value = "30s", value_parser = lease, value_name = "DURATION")]
    pub lease: Duration,

    /// The waits before each try of a callback
    #[arg(
        long,
        env = "PUBLISH_CALLBACK_SCHEDULE",
        default_value = "0s,5s,30s,2m,10m,30m,1h,2h,4h,8h,12h",
        value_parser = callback_schedule,
        value_name = "DURATIONS"
    )]
    pub callback_schedule: Schedule,

    /// How long a callback may take, all of it
    #[arg(long, env = "PUBLISH_CALLBACK_TIMEOUT", default_value = "10s", value_parser = timeout, value_name = "DURATION")]
    pub callback_timeout: Duration,

    /// The waits before another try after a transient error of a platform
    #[arg(
        long,
        env = "PUBLISH_RETRY_SCHEDULE",
        default_value = "5s,30s,2m,10m,30m,1h",
        value_parser = Schedule::from_str,
        value_name = "DURATIONS"
    )]
    pub retry_schedule: Schedule,

    /// What is logged: a level, or target=level with commas
    #[arg(long, env = "PUBLISH_LOG", default_value = "info", value_name = "FILTER")]
    pub log: String,

    /// The form of the log
    #[arg(long, env = "PUBLISH_LOG_FORMAT", value_enum, default_value = "text")]
    pub log_format: LogFormat,
}

/// A setting that must not show.
#[derive(Clone)]
pub struct Secret(pub SecretString);

impl FromStr for Secret {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.into()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// A list of networks; the empty text is the empty list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Networks(pub Vec<IpNet>);

impl FromStr for Networks {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Ok(Self(Vec::new()));
        }
        let network = |part: &str| {
            let part = part.trim();
            let whole = || part.parse::<IpAddr>().map(IpNet::from).ok();
            let bad = || format!("{part:?} is no network: write it like 10.0.0.0/8 or fd00::/8");
            part.parse().ok().or_else(whole).ok_or_else(bad)
        };
        text.split(',').map(network).collect::<Result<_, _>>().map(Self)
    }
}

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub usize);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is no size: write bytes, or a number with KiB or MiB");
        let text = text.trim();
        let unit_at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(unit_at);
        let bytes_per_unit = match unit.trim() {
            "" | "B" => 1,
            "KiB" => 1024,
            "MiB" => 1024 * 1024,
            _ => return Err(bad()),
        };
        let bytes = number.parse::<usize>().ok().and_then(|number| number.checked_mul(bytes_per_unit));
        bytes.filter(|bytes| *bytes > 0).map(Self).ok_or_else(bad)
    }
}

fn listen(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| "write an IP address and a port, such as 127.0.0.1:8080 or [::1]:8080")
}

fn site_url(text: &str) -> Result<String, &'static str> {
    let url = url::Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    url.map(|_| text.to_owned()).ok_or("write an http or https URL, such as https://example.org/articles")
}

fn lease(text: &str) -> Result<Duration, String> {
    let lease = duration(text).map_err(|error| error.to_string())?;
    if lease < LEASE_MIN { Err("a lease is at least 2s".to_owned()) } else { Ok(lease) }
}

fn timeout(text: &str) -> Result<Duration, String> {
    let timeout = duration(text).map_err(|error| error.to_string())?;
    if timeout.is_zero() { Err("a timeout is longer than 0".to_owned()) } else { Ok(timeout) }
}

fn callback_schedule(text: &str) -> Result<Schedule, String> {
    let schedule: Schedule = text.parse().map_err(|error: BadSchedule| error.to_string())?;
    let first =
        schedule.wait(0).ok_or("a callback has at least one try: name the wait before it, such as 0s");
    first.map_err(str::to_owned).map(|_| schedule)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        settings: Settings,
    }

    fn read(arguments: &[&str]) -> Result<Settings, String> {
        let arguments = std::iter::once("x").chain(arguments.iter().copied());
        Program::try_parse_from(arguments).map(|program| program.settings).map_err(|error| error.to_string())
    }

    #[test]
    fn lists_and_sizes_are_read() {
        let networks = |text: &str| text.parse::<Networks>().map(|list| list.0.len());
        assert_eq!(networks(""), Ok(0));
        assert_eq!(networks("127.0.0.0/8, ::1/128 ,10.1.2.3"), Ok(3));
        assert!(networks("10.0.0.0/33").is_err() && networks("a,").is_err());
        let size = |text: &str| text.parse::<Size>().map(|size| size.0);
        assert_eq!(size("2 MiB"), Ok(2 * 1024 * 1024));
        assert_eq!((size("10"), size("3KiB")), (Ok(10), Ok(3072)));
        for bad in ["", "0", "x", "1 GB", "-1", "99999999999999999999"] {
            assert!(size(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_wrong_setting_is_refused_with_what_to_write() {
        for (arguments, hint) in [
            (["--lease", "1s"], "at least 2s"),
            (["--callback-timeout", "0s"], "longer than 0"),
            (["--callback-schedule", ""], "at least one try"),
            (["--retry-schedule", "soon"], "30s"),
            (["--listen", "localhost:80"], "127.0.0.1:8080"),
            (["--site-url", "not a url"], "https://example.org"),
        ] {
            let error = read(&arguments).unwrap_err();
            assert!(error.contains(hint), "{error}");
        }
        assert_eq!(read(&["--retry-schedule", ""]).unwrap().retry_schedule.wait(0), None);
    }

    #[test]
    fn secrets_do_not_show() {
        let settings =
            read(&["--master-key", "hunter2", "--database-url", "postgres://u:hunter2@h/d"]).unwrap();
        assert!(!format!("{settings:?}").contains("hunter2"));
    }
}
