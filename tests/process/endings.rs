//! How `dev` ends: when it is asked to, and when nobody asks.

use std::time::Duration;

use publish_ingest::clock::{Clock as _, SystemClock};
use rustix::process::Signal;

use crate::api::article;
use crate::program::{Dev, Folder, dev, eventually, postmaster, runs};
use crate::receiver::{Receiver, SILENT};

/// Beyond what a stop waits for work under way, and for the database's own end.
const SOON: Duration = Duration::from_secs(25);

#[tokio::test]
async fn a_signal_ends_everything_in_good_order_also_while_a_receiver_hangs() {
    let folder = Folder::new();
    let receiver = Receiver::start(SILENT).await;
    for (signal, hanging) in [(Signal::INT, false), (Signal::TERM, true)] {
        let dev = Dev::start(&folder, &[]).await;
        let server = postmaster(&folder).unwrap();
        assert!(runs(server));
        if hanging {
            let mut article = article("hangs");
            article["callback_url"] = receiver.url.as_str().into();
            dev.api().publish(&article).await.unwrap().ok();
            receiver.wait_for("the callback", |received| !received.is_empty()).await;
        }
        let begun = SystemClock.instant();
        let (status, _, stderr) = dev.stop(signal).await;
        println!("{signal:?}, hanging receiver {hanging}: {:?}", begun.elapsed());
        assert!(status.success(), "{signal:?}: {status} {stderr}");
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
        assert!(!runs(server), "{signal:?}");
    }
    // What was not delivered is not lost.
    let before = receiver.received().len();
    let dev = Dev::start(&folder, &[("PUBLISH_CALLBACK_TIMEOUT", "1s")]).await;
    receiver.wait_for("another try", |received| received.len() > before).await;
    let tries = receiver.received();
    assert!(tries.iter().all(|one| one.id == tries[0].id && one.body == tries[0].body));
    drop(receiver);
    assert!(dev.stop(Signal::TERM).await.0.success());
}

#[tokio::test]
async fn an_end_asked_for_while_it_starts_is_an_end() {
    let folder = Folder::new();
    let mut started = Dev::begin(dev(&folder));
    eventually("the database is being made", async || folder.dev().join("postgres").exists()).await;
    started.signal(Signal::TERM);
    let (status, _, stderr) = started.ended().await;
    assert!(status.success(), "{status} {stderr}");
    assert!(postmaster(&folder).is_none_or(|pid| !runs(pid)));
    // And it starts after that.
    started = Dev::start(&folder, &[]).await;
    assert!(started.stop(Signal::INT).await.0.success());
}

#[tokio::test]
async fn a_killed_dev_takes_its_database_with_it_and_loses_nothing() {
    let folder = Folder::new();
    let mut dev = Dev::start(&folder, &[("PUBLISH_LEASE", "2s")]).await;
    let server = postmaster(&folder).unwrap();
    let sent = dev.api().publish(&article("survives")).await.unwrap().ok();
    dev.kill();
    eventually("the database ends", async || !runs(server)).await;
    let mut dev = Dev::start(&folder, &[("PUBLISH_LEASE", "2s")]).await;
    assert_eq!(dev.api().published("survives").await["task_id"], sent["task_id"]);
    // Started again at once, while the predecessor's database is still about to end.
    dev.kill();
    let dev = Dev::start(&folder, &[("PUBLISH_LEASE", "2s")]).await;
    assert_eq!(dev.api().published("survives").await["task_id"], sent["task_id"]);
    assert_eq!(folder.pages().len(), 1);
    assert!(dev.stop(Signal::TERM).await.0.success());
}
