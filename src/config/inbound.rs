//! The settings of the door for callers.

use std::time::Duration;

use clap::Args;

use super::{Bad, Size, timeout};
use crate::inbound::{BODY_MAX_BYTES, Limits};

/// The least memory for bodies, in bytes: two of the largest, or two who send one would keep each other out.
const BODY_MEMORY_MIN_BYTES: usize = 2 * BODY_MAX_BYTES;

/// How much callers may take, as it was given.
#[derive(Debug, Clone, Args)]
pub(super) struct GivenInbound {
    /// The most connections of callers; a newcomer gets the place of whoever waits longest without a request
    #[arg(long, env = "PUBLISH_CONNECTIONS", default_value = "2048", value_name = "NUMBER")]
    connections: String,

    /// The most of them from one address (IPv6: one /64); behind a proxy, all come from one
    #[arg(long, env = "PUBLISH_CONNECTIONS_PER_ADDRESS", default_value = "1024", value_name = "NUMBER")]
    connections_per_address: String,

    /// How long the head of a request may take
    #[arg(long, env = "PUBLISH_HEAD_TIMEOUT", default_value = "10s", value_name = "DURATION")]
    head_timeout: String,

    /// How long a connection is kept between two requests
    #[arg(long, env = "PUBLISH_IDLE_TIMEOUT", default_value = "75s", value_name = "DURATION")]
    idle_timeout: String,

    /// How long a body may take, and a second more for every 64 KiB that have come
    #[arg(long, env = "PUBLISH_BODY_TIMEOUT", default_value = "20s", value_name = "DURATION")]
    body_timeout: String,

    /// How long a caller may leave an answer untaken
    #[arg(long, env = "PUBLISH_ANSWER_TIMEOUT", default_value = "60s", value_name = "DURATION")]
    answer_timeout: String,

    /// The bodies that are received at once, at least 64MiB: bytes, or a number with KiB or MiB
    #[arg(long, env = "PUBLISH_BODY_MEMORY", default_value = "64MiB", value_name = "SIZE")]
    body_memory: String,
}

impl GivenInbound {
    /// The limits; what is wrong is told.
    pub(super) fn read(&self, bad: &mut Bad) -> Option<Limits> {
        let connections = bad.read("PUBLISH_CONNECTIONS", number(&self.connections));
        let per_address = bad.read("PUBLISH_CONNECTIONS_PER_ADDRESS", number(&self.connections_per_address));
        let mut time = |name, text| bad.read(name, timeout(text));
        let head_within: Option<Duration> = time("PUBLISH_HEAD_TIMEOUT", &self.head_timeout);
        let idle_within = time("PUBLISH_IDLE_TIMEOUT", &self.idle_timeout);
        let body_within = time("PUBLISH_BODY_TIMEOUT", &self.body_timeout);
        let answer_within = time("PUBLISH_ANSWER_TIMEOUT", &self.answer_timeout);
        let body_memory_bytes = bad.read("PUBLISH_BODY_MEMORY", body_memory(&self.body_memory));
        Some(Limits {
            connections: connections?,
            connections_per_address: per_address?,
            head_within: head_within?,
            idle_within: idle_within?,
            body_within: body_within?,
            answer_within: answer_within?,
            body_memory_bytes: body_memory_bytes?,
        })
    }
}

fn number(text: &str) -> Result<usize, &'static str> {
    text.trim().parse().ok().filter(|number| *number > 0).ok_or("write a whole number of at least 1")
}

fn body_memory(text: &str) -> Result<usize, String> {
    let Size(bytes) = text.parse()?;
    if bytes < BODY_MEMORY_MIN_BYTES {
        return Err("write 64MiB or more: two of the largest batches".to_owned());
    }
    Ok(bytes)
}
