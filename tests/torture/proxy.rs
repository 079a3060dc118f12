//! Stands before a server, and loses or delays its answers: the request is delivered first, always.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The longest head of a request that is read, in bytes: far above what any client here sends.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Of 1,000 answers in a storm, how many are lost.
const LOST: u32 = 40;

/// Of 1,000 answers in a storm, how many are late.
const LATE: u32 = 20;

/// How answers fare.
struct Fate {
    random: Mutex<StdRng>,
    /// Whether some are lost and late by chance.
    storm: watch::Sender<bool>,
    /// How many of the next ones are lost.
    lose: AtomicU32,
    lost: AtomicU32,
    late: AtomicU32,
    /// How late: longer than anyone waits.
    delay: Duration,
}

pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    upstream: watch::Sender<Option<String>>,
    fate: Arc<Fate>,
    server: JoinHandle<()>,
}

impl Proxy {
    /// Before the server at `upstream` (`host:port`), if that is known yet.
    pub(crate) async fn start(upstream: Option<String>, seed: u64, delay: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let upstream = watch::Sender::new(upstream);
        let fate = Arc::new(Fate {
            random: Mutex::new(StdRng::seed_from_u64(seed)),
            storm: watch::Sender::new(false),
            lose: AtomicU32::new(0),
            lost: AtomicU32::new(0),
            late: AtomicU32::new(0),
            delay,
        });
        let (told, shared) = (upstream.subscribe(), fate.clone());
        let server = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (upstream, fate) = (told.borrow().clone(), shared.clone());
                tokio::spawn(async move {
                    // What breaks here is a lost connection to both sides, as on any network.
                    if let Some(upstream) = upstream {
                        let _ = pass(client, &upstream, &fate).await;
                    }
                });
            }
        });
        Self { address, upstream, fate, server }
    }

    /// Where the server is now; none: nowhere.
    pub(crate) fn lead_to(&self, upstream: Option<String>) {
        self.upstream.send_replace(upstream);
    }

    pub(crate) fn storm(&self, storm: bool) {
        self.fate.storm.send_replace(storm);
        if !storm {
            self.fate.lose.store(0, Ordering::SeqCst);
        }
    }

    pub(crate) fn lose_next(&self, answers: u32) {
        self.fate.lose.store(answers, Ordering::SeqCst);
    }

    /// How many answers were lost, and how many late.
    pub(crate) fn faults(&self) -> (u32, u32) {
        (self.fate.lost.load(Ordering::SeqCst), self.fate.late.load(Ordering::SeqCst))
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn pass(mut client: TcpStream, upstream: &str, fate: &Fate) -> std::io::Result<()> {
    let Some(request) = read_request(&mut client, upstream).await? else { return Ok(()) };
    let mut server = TcpStream::connect(upstream).await?;
    server.write_all(&request).await?;
    let mut answer = Vec::new();
    server.read_to_end(&mut answer).await?;
    if answer.is_empty() {
        return Ok(());
    }
    let chance = fate.random.lock().unwrap().random_range(0..1_000);
    let storm = *fate.storm.borrow();
    let next = fate.lose.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
    if next.is_ok() || (storm && chance < LOST) {
        fate.lost.fetch_add(1, Ordering::SeqCst);
        return Ok(());
    }
    if storm && chance < LOST + LATE {
        fate.late.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(fate.delay).await;
    }
    client.write_all(&answer).await?;
    client.shutdown().await
}

/// A request, as the server is to see it: addressed to itself, and the only one of its connection. None if the client went
/// away before it was complete.
async fn read_request(client: &mut TcpStream, upstream: &str) -> std::io::Result<Option<Vec<u8>>> {
    let mut read = Vec::new();
    let end = loop {
        if let Some(at) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            break at;
        }
        if read.len() > HEAD_BYTES_MAX || client.read_buf(&mut read).await? == 0 {
            return Ok(None);
        }
    };
    let head = String::from_utf8_lossy(&read[..end]).into_owned();
    let mut body = read.split_off(end + 4);
    let (mut length, mut request) = (0, String::new());
    for (number, line) in head.split("\r\n").enumerate() {
        let name = line.split(':').next().unwrap_or_default().to_ascii_lowercase();
        match name.as_str() {
            _ if number == 0 => {}
            "content-length" => length = line[15..].trim().parse().unwrap_or(0),
            "host" | "connection" => continue,
            "transfer-encoding" => panic!("no client here sends its body in pieces: {line}"),
            _ => {}
        }
        request.push_str(line);
        request.push_str("\r\n");
    }
    while body.len() < length {
        if client.read_buf(&mut body).await? == 0 {
            return Ok(None);
        }
    }
    let rest = format!("host: {upstream}\r\nconnection: close\r\n\r\n");
    Ok(Some([request.as_bytes(), rest.as_bytes(), &body].concat()))
}
