//! The service is killed under load: nothing that was answered is lost, nothing is published twice.

use publish_ingest::clock::{Clock as _, SystemClock};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use rustix::process::Signal;

use crate::callers::{Callers, all_published_once};
use crate::program::{Dev, Folder, database, eventually, seed};
use crate::receiver::{AT_THE_SECOND_TRY, Receiver};

const ARTICLES: usize = 200;

/// How often it is killed: half of the times as articles are being accepted, half as they are being published.
const KILLS: usize = 6;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_killed_again_and_again_publishes_each_article_once() {
    let mut random = StdRng::seed_from_u64(seed());
    let folder = Folder::new();
    let receiver = Receiver::start(AT_THE_SECOND_TRY).await;
    let url = database().await;
    let settings = [
        ("DATABASE_URL", url.as_str()),
        ("PUBLISH_LEASE", "2s"),
        ("PUBLISH_CALLBACK_TIMEOUT", "1s"),
        ("PUBLISH_CALLBACK_SCHEDULE", "0s,100ms,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s"),
    ];
    let begun = SystemClock.instant();
    let mut dev = Dev::start(&folder, &settings).await;
    let secret = dev.env("PUBLISH_SIGNING_SECRET").to_owned();
    let callers = Callers::start(&dev, &receiver.url);
    for kill in 0..KILLS {
        // A moment within each stretch of the load, so that the kills fall everywhere.
        let stretch = ARTICLES / KILLS;
        callers.send(stretch);
        let at = kill * stretch + random.random_range(1..stretch);
        if kill % 2 == 0 {
            callers.answered(at).await;
        } else {
            eventually("articles are published", async || folder.pages().len() >= at).await;
        }
        dev.kill();
        println!(
            "{:?}: killed with {} answered, {} published, {} callbacks",
            begun.elapsed(),
            callers.count(),
            folder.pages().len(),
            receiver.received().len()
        );
        dev = Dev::start(&folder, &settings).await;
        callers.service_is_at(&dev.url);
    }
    callers.send(ARTICLES % KILLS);
    let answers = callers.answered(ARTICLES).await;
    all_published_once(&dev.api(), &answers, &folder).await;
    let external_ids = answers.keys().cloned().collect::<Vec<_>>();
    receiver.one_event_each(&external_ids, &secret).await;
    println!("all told: {:?}", begun.elapsed());
    assert!(dev.stop(Signal::TERM).await.0.success());
}
