//! The kinds of values that settings have: how each is written, and what is said of one that is not.

use std::fmt::{self, Display};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use ipnet::IpNet;
use secrecy::SecretString;

use super::{LEASE_MIN, ROWS_MAX};
use crate::retry::{BadSchedule, Schedule, duration};

/// What a node does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Roles {
    /// Answers requests.
    pub api: bool,
    /// Publishes.
    pub worker: bool,
    /// Delivers callbacks.
    pub dispatcher: bool,
}

impl Roles {
    /// All of them.
    pub const ALL: Self = Self { api: true, worker: true, dispatcher: true };
}

impl FromStr for Roles {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Err(
                "a node without a role does nothing: write some of api, worker, dispatcher".to_owned()
            );
        }
        let mut roles = Self { api: false, worker: false, dispatcher: false };
        for role in text.split(',') {
            match role.trim() {
                "api" => roles.api = true,
                "worker" => roles.worker = true,
                "dispatcher" => roles.dispatcher = true,
                other => return Err(format!("{other:?} is no role: write some of api, worker, dispatcher")),
            }
        }
        Ok(roles)
    }
}

impl Display for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let roles = [(self.api, "api"), (self.worker, "worker"), (self.dispatcher, "dispatcher")];
        let names = roles.iter().filter(|(has, _)| *has).map(|(_, name)| *name).collect::<Vec<_>>();
        f.write_str(&names.join(","))
    }
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

/// A list of ports and ranges of them; the empty text is the empty list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ports(pub Vec<RangeInclusive<u16>>);

impl FromStr for Ports {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Ok(Self(Vec::new()));
        }
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        let port = |part: &str| {
            let port = Some(part.trim()).filter(|part| digits(part))?.parse::<u16>().ok();
            port.filter(|port| *port > 0)
        };
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let range = port(first).zip(port(last)).filter(|(first, last)| first <= last);
            let bad = || format!("{:?} is no port: write it like 443 or 8000-8999", part.trim());
            range.map(|(first, last)| first..=last).ok_or_else(bad)
        };
        text.split(',').map(range).collect::<Result<_, _>>().map(Self)
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

pub(super) fn listen(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| "write an IP address and a port, such as 127.0.0.1:8080 or [::1]:8080")
}

pub(super) fn truth(text: &str) -> Result<bool, &'static str> {
    match text.trim() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err("write true or false"),
    }
}

pub(super) fn rows(text: &str) -> Result<NonZeroUsize, &'static str> {
    let rows = text.trim().parse::<NonZeroUsize>().ok().filter(|rows| rows.get() <= ROWS_MAX);
    rows.ok_or("write a whole number from 1 to 128")
}

pub(super) fn site_url(text: &str) -> Result<String, &'static str> {
    let url = url::Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    url.map(|_| text.to_owned()).ok_or("write an http or https URL, such as https://example.org/articles")
}

pub(super) fn lease(text: &str) -> Result<Duration, String> {
    let lease = duration(text).map_err(|error| error.to_string())?;
    if lease < LEASE_MIN { Err("a lease is at least 2s".to_owned()) } else { Ok(lease) }
}

pub(super) fn timeout(text: &str) -> Result<Duration, String> {
    let timeout = duration(text).map_err(|error| error.to_string())?;
    if timeout.is_zero() { Err("a timeout is longer than 0".to_owned()) } else { Ok(timeout) }
}

pub(super) fn callback_schedule(text: &str) -> Result<Schedule, String> {
    let schedule: Schedule = text.parse().map_err(|error: BadSchedule| error.to_string())?;
    let first =
        schedule.wait(0).ok_or("a callback has at least one try: name the wait before it, such as 0s");
    first.map_err(str::to_owned).map(|_| schedule)
}
