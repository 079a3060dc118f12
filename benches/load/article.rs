//! The articles that are handed in: all of one size, told apart by a number of fixed width, so that a request is a copy of a
//! template with the number put in.

use std::fmt::Write as _;

use publish_ingest::clock::{Clock as _, SystemClock, TestClock};

use crate::program::Tenant;

/// How many different texts there are: compression and caches see more than one.
const TEXTS: u64 = 64;

/// The digits of an article's number.
const DIGITS: usize = 9;

/// Where an article's number stands in a template.
const NUMBER: &str = "#########";

/// Whose articles, and for which group.
#[derive(Debug, Clone)]
pub(crate) struct Sender {
    /// `host:port` of the service.
    pub(crate) host: String,
    pub(crate) api_key: String,
    /// Articles are spread over groups `g0` … by their number.
    pub(crate) groups: u64,
    pub(crate) callback_url: Option<String>,
    /// What tells its articles from those of an earlier run on the same database.
    pub(crate) run: String,
}

impl Sender {
    /// One of that tenant, for its first groups; where to is said later.
    pub(crate) fn of(tenant: &Tenant, groups: u64) -> Self {
        let mut random = [0; 4];
        SystemClock.fill(&mut random);
        let run = format!("{:08x}", u32::from_be_bytes(random));
        Self { host: String::new(), api_key: tenant.api_key.clone(), groups, callback_url: None, run }
    }
}

/// Makes requests of one sender.
pub(crate) struct Articles {
    head: String,
    texts: Vec<String>,
    sender: Sender,
    /// What the `external_id`s begin with.
    prefix: String,
}

impl Articles {
    /// Articles with a `content_html` of `bytes`.
    pub(crate) fn new(sender: Sender, prefix: &str, bytes: usize) -> Self {
        let clock = TestClock::seeded(7);
        let texts = (0..TEXTS).map(|_| text(&clock, bytes)).collect();
        let head = format!(
            "host: {}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n",
            sender.host, sender.api_key
        );
        let prefix = format!("{prefix}-{}", sender.run);
        Self { head, texts, sender, prefix }
    }

    /// Writes the request that hands in the article of that number.
    pub(crate) fn write_one(&self, number: u64, request: &mut Vec<u8>) {
        let body = self.body(number);
        self.write("/publish", body.as_bytes(), request);
    }

    /// Writes the request that hands in many, in one call.
    pub(crate) fn write_batch(&self, numbers: impl Iterator<Item = u64>, request: &mut Vec<u8>) {
        let mut body = String::from("{\"articles\":[");
        for number in numbers {
            if !body.ends_with('[') {
                body.push(',');
            }
            body.push_str(&self.body(number));
        }
        body.push_str("]}");
        self.write("/publish/batch", body.as_bytes(), request);
    }

    /// The id of the article of that number.
    pub(crate) fn external_id(&self, number: u64) -> String {
        format!("{}-{number:0DIGITS$}", self.prefix)
    }

    fn write(&self, path: &str, body: &[u8], request: &mut Vec<u8>) {
        request.clear();
        let length = body.len();
        let head = format!("POST {path} HTTP/1.1\r\n{}content-length: {length}\r\n\r\n", self.head);
        request.extend_from_slice(head.as_bytes());
        request.extend_from_slice(body);
    }

    fn body(&self, number: u64) -> String {
        let text = &self.texts[usize::try_from(number % TEXTS).unwrap()];
        let (prefix, group) = (&self.prefix, number % self.sender.groups);
        let mut body = String::with_capacity(text.len() + 256);
        let id = format!("{number:0DIGITS$}");
        let _ = write!(body, "{{\"external_id\":\"{prefix}-{id}\",\"group_code\":\"g{group}\",");
        let _ = write!(body, "\"title\":\"About {prefix} {id}\",\"content_html\":\"");
        let (before, after) = text.split_once(NUMBER).unwrap();
        body.push_str(before);
        body.push_str(&id);
        body.push_str(after);
        body.push('"');
        if let Some(url) = &self.sender.callback_url {
            let _ = write!(body, ",\"callback_url\":\"{url}\"");
        }
        body.push('}');
        body
    }
}

/// A text of about `bytes`, of made-up words with the frequencies of a language's letters, as compressible as prose.
fn text(clock: &TestClock, bytes: usize) -> String {
    const SYLLABLES: [&str; 24] = [
        "ta", "re", "in", "o", "ne", "ser", "li", "con", "a", "mo", "ti", "ver", "le", "sta", "un", "de",
        "pro", "e", "ran", "is", "al", "tor", "che", "ma",
    ];
    let mut draws = vec![0; bytes];
    clock.fill(&mut draws);
    let mut draws = draws.into_iter().map(usize::from);
    let mut text = format!("<p>{NUMBER}");
    while text.len() < bytes.saturating_sub(4) {
        text.push(' ');
        for _ in 0..=draws.next().unwrap_or_default() % 4 {
            text.push_str(SYLLABLES[draws.next().unwrap_or_default() % SYLLABLES.len()]);
        }
    }
    text.truncate(bytes.saturating_sub(4).max("<p>".len() + NUMBER.len()));
    text.push_str("</p>");
    text
}
