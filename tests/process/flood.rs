//! A service that is flooded while somebody behaves: `cargo test --release --test process flood -- --ignored --nocapture`
//! prints what the one who behaves feels, and what memory the service takes, in a quiet phase and in each flood.
//!
//! The floods share the machine with the service, so they are as many and as large as two cores can send beside it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use publish_ingest::clock::{Clock as _, SystemClock};
use rustix::process::Signal;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::api::{Api, article};
use crate::program::{Dev, Folder};

/// How long each phase is.
const PHASE: Duration = Duration::from_secs(10);

/// How often somebody behaves: an article, and a look at it.
const EVERY: Duration = Duration::from_millis(10);

/// How much slower the 99th of 100 answers may be than in the quiet phase of the same run.
const SLOWER_MAX: u32 = 3;

/// Below this, a difference is the machine's.
const NOISE: Duration = Duration::from_millis(5);

/// How much memory the service may take on, in KiB: the bodies in memory at once, twice, since a buffer that grows is
/// copied; the first part and the buffer of each of 500 bodies; what 1,500 connections take. The allocator keeps a part of
/// it for the next.
const GROWTH_MAX_KIB: u64 = (2 * 64 + 32 + 32) * 1024;

/// What a flood sends, and how many of it there are.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Flood {
    Nothing,
    SlowHeads,
    SlowBodies,
    Oversized,
    Connections,
    WrongKeys,
}

impl Flood {
    const ALL: [Self; 5] =
        [Self::SlowHeads, Self::SlowBodies, Self::Oversized, Self::Connections, Self::WrongKeys];

    fn senders(self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::SlowHeads | Self::SlowBodies => 500,
            Self::Oversized => 4,
            Self::Connections => 1_500,
            Self::WrongKeys => 16,
        }
    }

    /// One of its senders, again and again.
    async fn send(self, address: Arc<str>, key: Arc<str>, sent: Arc<AtomicU64>) {
        loop {
            if let Ok(stream) = TcpStream::connect(&*address).await {
                sent.fetch_add(1, Ordering::Relaxed);
                let _ = self.once(stream, &key).await;
            }
            tokio::time::sleep(self.pause()).await;
        }
    }

    /// How long a sender that was shown out waits before it comes again.
    fn pause(self) -> Duration {
        match self {
            Self::SlowBodies | Self::Connections => Duration::from_secs(1),
            _ => EVERY,
        }
    }

    async fn once(self, mut stream: TcpStream, key: &str) -> std::io::Result<()> {
        let post = |length: usize| {
            format!(
                "POST /publish HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\n\
                 content-length: {length}\r\n\r\n"
            )
        };
        match self {
            Self::Nothing => Ok(()),
            Self::SlowHeads => drip(&mut stream, b"GET /healthz HTTP/1.1\r\nx-a: ", 1).await,
            // The first half at once, as fast as can be, then next to nothing.
            Self::SlowBodies => {
                let size = 2 * 1024 * 1024;
                let begun = post(size) + "{" + &" ".repeat(size / 2);
                drip(&mut stream, begun.as_bytes(), 100).await
            }
            Self::Oversized => {
                stream.write_all(post(64 * 1024 * 1024).as_bytes()).await?;
                let piece = vec![b' '; 64 * 1024];
                for _ in 0..1024 {
                    stream.write_all(&piece).await?;
                }
                end(&mut stream).await
            }
            Self::Connections => end(&mut stream).await,
            Self::WrongKeys => {
                let request = post(2).replace(key, &wrong(key)) + "{}";
                loop {
                    stream.write_all(request.as_bytes()).await?;
                    if stream.read(&mut [0; 4096]).await? == 0 {
                        return Ok(());
                    }
                }
            }
        }
    }
}

/// A key of the right form that nobody has.
fn wrong(key: &str) -> String {
    let (rest, last) = key.split_at(key.len() - 8);
    rest.to_owned() + &last.chars().map(|c| if c == 'a' { 'b' } else { 'a' }).collect::<String>()
}

async fn drip(stream: &mut TcpStream, begun: &[u8], bytes: usize) -> std::io::Result<()> {
    stream.write_all(begun).await?;
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        stream.write_all(&vec![b' '; bytes]).await?;
    }
}

async fn end(stream: &mut TcpStream) -> std::io::Result<()> {
    while stream.read(&mut [0; 4096]).await? > 0 {}
    Ok(())
}

/// What somebody who behaves felt.
struct Felt {
    p50: Duration,
    p99: Duration,
    answers: usize,
    failures: usize,
    /// The most memory that the service took meanwhile, in KiB.
    memory_kib: u64,
    /// Connections that the flood made.
    flood: u64,
}

async fn phase(dev: &Dev, api: &Api, flood: Flood) -> Felt {
    let sent = Arc::new(AtomicU64::new(0));
    let mut senders = JoinSet::new();
    let (address, key): (Arc<str>, Arc<str>) =
        (dev.url.strip_prefix("http://").unwrap().into(), dev.env("PUBLISH_API_KEY").into());
    for _ in 0..flood.senders() {
        senders.spawn(flood.send(address.clone(), key.clone(), sent.clone()));
    }
    let (mut times, mut failures, mut memory_kib) = (Vec::new(), 0, 0);
    let begun = SystemClock.instant();
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while begun.elapsed() < PHASE {
        ticks.tick().await;
        let mut article = article(&format!("{flood:?}-{}", times.len()));
        article["publish_at"] = "2100-01-01T00:00:00Z".into();
        let asked = SystemClock.instant();
        let answer = api.publish(&article).await;
        times.push(asked.elapsed());
        failures += usize::from(!answer.is_ok_and(|answer| answer.status == 200));
        memory_kib = memory_kib.max(dev.memory_kib());
    }
    senders.shutdown().await;
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    let (p50, p99, flood) = (at(50), at(99), sent.load(Ordering::Relaxed));
    Felt { p50, p99, answers: times.len(), failures, memory_kib, flood }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute and the whole machine"]
async fn floods_leave_room_for_who_behaves() {
    let folder = Folder::new();
    let dev = Dev::start(&folder, &[("PUBLISH_LOG", "error")]).await;
    let api = dev.api().impatient();
    phase(&dev, &api, Flood::Nothing).await;
    let quiet = phase(&dev, &api, Flood::Nothing).await;
    let print = |name: &str, felt: &Felt| {
        println!(
            "{name:<12} p50 {:>8.2?} p99 {:>8.2?} answers {:>4} not 200 {:>3} memory {:>4} MiB connections {:>6}",
            felt.p50,
            felt.p99,
            felt.answers,
            felt.failures,
            felt.memory_kib / 1024,
            felt.flood
        );
    };
    print("quiet", &quiet);
    let mut bad = Vec::new();
    for flood in Flood::ALL {
        let felt = phase(&dev, &api, flood).await;
        print(&format!("{flood:?}"), &felt);
        if felt.p99 > (quiet.p99 * SLOWER_MAX).max(NOISE) {
            bad.push(format!("{flood:?}: {:.2?} instead of {:.2?}", felt.p99, quiet.p99));
        }
        if felt.memory_kib > quiet.memory_kib + GROWTH_MAX_KIB || felt.failures > 0 {
            bad.push(format!("{flood:?}: {} KiB, {} failures", felt.memory_kib, felt.failures));
        }
    }
    let after = phase(&dev, &api, Flood::Nothing).await;
    print("quiet again", &after);
    assert!(bad.is_empty(), "{bad:#?}");
    assert!(dev.stop(Signal::TERM).await.0.success());
}
