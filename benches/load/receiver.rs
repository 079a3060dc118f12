//! The receiver of callbacks, and what it has heard: it answers 200 as cheaply as it can, and notes each event.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use hdrhistogram::Histogram;
use publish_ingest::clock::{Clock as _, SystemClock};
use serde::Deserialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::Failed;
use crate::client::content_length;
use crate::drive::LATENCY_MAX_US;

/// The most headers of a callback.
const HEADERS_MAX: usize = 32;

const TAKEN: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

/// The accounts of a group: `a0` and `b0` of the first.
const ACCOUNTS: [char; 2] = ['a', 'b'];

/// What of an event is looked at.
#[derive(Deserialize)]
struct Told<'a> {
    event_id: Uuid,
    #[serde(borrow)]
    external_id: &'a str,
    #[serde(borrow)]
    account_id: &'a str,
    #[serde(borrow)]
    status: &'a str,
}

/// The life of an article, as its sender sees it.
#[derive(Debug, Clone, Copy, Default)]
struct Life {
    accepted: Option<Instant>,
    /// The event of each account, and when it came.
    events: [Option<(Uuid, Instant)>; ACCOUNTS.len()],
}

#[derive(Default)]
struct Lives {
    /// By number.
    of: Vec<Life>,
    accepted: u64,
    events: u64,
    /// Events that came again, which is allowed.
    again: u64,
    wrong: Vec<String>,
}

/// What is known of all lives; shared by who hands in and who hears.
#[derive(Clone, Default)]
pub(crate) struct Book(Arc<Mutex<Lives>>);

/// How many lives there are.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Standing {
    pub(crate) accepted: u64,
    pub(crate) events: u64,
    pub(crate) again: u64,
}

impl Standing {
    /// The events that have not come yet.
    pub(crate) fn open(self) -> u64 {
        (self.accepted * ACCOUNTS.len() as u64).saturating_sub(self.events)
    }
}

impl Book {
    fn with<T>(&self, number: u64, change: impl FnOnce(&mut Lives, usize) -> T) -> T {
        let mut lives = self.0.lock().unwrap();
        let at = usize::try_from(number).unwrap();
        if lives.of.len() <= at {
            lives.of.resize(at + 1, Life::default());
        }
        change(&mut lives, at)
    }

    /// Notes that an article was accepted.
    pub(crate) fn accepted(&self, number: u64) {
        let now = SystemClock.instant();
        self.with(number, |lives, at| {
            lives.accepted += 1;
            lives.of[at].accepted = Some(now);
        });
    }

    fn heard(&self, body: &[u8]) -> Result<(), Failed> {
        let now = SystemClock.instant();
        let event: Told<'_> = serde_json::from_slice(body)?;
        let (_, number) = event.external_id.rsplit_once('-').ok_or("an event of a strange article")?;
        let account = ACCOUNTS.iter().position(|account| event.account_id.starts_with(*account));
        let account = account.ok_or("an event of a strange account")?;
        self.with(number.parse()?, |lives, at| {
            if event.status != "success" {
                lives.wrong.push(format!("{}: {}", event.external_id, event.status));
            }
            match lives.of[at].events[account] {
                Some((first, _)) if first == event.event_id => lives.again += 1,
                Some(_) => lives.wrong.push(format!("{}: two events of one account", event.external_id)),
                None => {
                    lives.of[at].events[account] = Some((event.event_id, now));
                    lives.events += 1;
                }
            }
        });
        Ok(())
    }

    pub(crate) fn standing(&self) -> Standing {
        let lives = self.0.lock().unwrap();
        Standing { accepted: lives.accepted, events: lives.events, again: lives.again }
    }

    /// From each article's acceptance to each of its callbacks, of the articles from `first` on, in microseconds.
    pub(crate) fn latency(&self, first: u64) -> Result<Histogram<u64>, Failed> {
        let mut latency = Histogram::new_with_max(LATENCY_MAX_US, 3)?;
        let lives = self.0.lock().unwrap();
        for life in lives.of.iter().skip(usize::try_from(first)?) {
            for (_, at) in life.events.iter().flatten() {
                // The callback may come before the answer has been read.
                let after = life.accepted.map(|accepted| at.saturating_duration_since(accepted));
                let micros = after.map_or(Ok(LATENCY_MAX_US), |after| u64::try_from(after.as_micros()))?;
                latency.saturating_record(micros.max(1));
            }
        }
        Ok(latency)
    }

    /// What was wrong of what was heard. Whether something was not heard, [`Standing::open`] says.
    pub(crate) fn wrong(&self) -> Vec<String> {
        let lives = self.0.lock().unwrap();
        let mut wrong = lives.wrong.clone();
        let strange = lives.of.iter().filter(|life| life.accepted.is_none()).count();
        if strange > 0 {
            wrong.push(format!("{strange} articles with events that nobody handed in"));
        }
        wrong
    }
}

/// The receiver, as long as it is kept.
pub(crate) struct Receiver {
    address: SocketAddr,
    server: JoinHandle<()>,
}

impl Receiver {
    pub(crate) async fn start(book: Book) -> Result<Self, Failed> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let server = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(hear(stream, book.clone()));
            }
        });
        Ok(Self { address, server })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/callbacks", self.address)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Answers one connection until it ends; one that says something strange is broken off, and its events are missed.
async fn hear(mut stream: TcpStream, book: Book) -> Result<(), Failed> {
    stream.set_nodelay(true)?;
    let mut read = Vec::with_capacity(8 * 1024);
    loop {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut head = httparse::Request::new(&mut headers);
        let whole = match head.parse(&read)? {
            httparse::Status::Complete(begin) => {
                let end = begin + content_length(head.headers)?;
                (read.len() >= end).then_some((begin, end))
            }
            httparse::Status::Partial => None,
        };
        if let Some((begin, end)) = whole {
            book.heard(&read[begin..end])?;
            stream.write_all(TAKEN).await?;
            read.drain(..end);
        } else if stream.read_buf(&mut read).await? == 0 {
            return Ok(());
        }
    }
}
