//! The database is killed under load: the service says so, and is back by itself.

use std::time::Duration;

use publish_ingest::clock::{Clock as _, SystemClock};
use publish_ingest::local_postgres::Cluster;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use rustix::process::{Pid, Signal, kill_process};

use crate::api::article;
use crate::callers::{Callers, all_published_once};
use crate::program::{Dev, Folder, eventually, postmaster, programs, random, runs, seed};
use crate::receiver::{Receiver, WILLING};

const ARTICLES: usize = 120;

/// What is promised, and what a busy machine may add to it.
const UNAVAILABLE_WITHIN: Duration = Duration::from_millis(2_000 + 1_500);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_database_is_told_at_once_and_loses_nothing() {
    let mut chance = StdRng::seed_from_u64(seed());
    let folder = Folder::new();
    let receiver = Receiver::start(WILLING).await;
    let start = || Cluster::scratch(&programs(), &std::env::temp_dir(), random(), Vec::new()).unwrap();
    let mut cluster = tokio::task::spawn_blocking(start).await.unwrap();
    let url = cluster.url("postgres");
    let settings = [("DATABASE_URL", url.as_str()), ("PUBLISH_LEASE", "2s")];
    let dev = Dev::start(&folder, &settings).await;
    let secret = dev.env("PUBLISH_SIGNING_SECRET").to_owned();
    let (patient, api) = (dev.api(), dev.api().impatient());
    let callers = Callers::start(&dev, &receiver.url);
    let mut meanwhile = article("meanwhile");
    meanwhile["callback_url"] = receiver.url.as_str().into();
    for kill in 0..2 {
        let stretch = ARTICLES / 2;
        callers.send(stretch);
        callers.answered(kill * stretch + chance.random_range(1..stretch - 8)).await;
        cluster = blocking(cluster, |cluster| cluster.kill().unwrap()).await;
        for request in [api.publish(&meanwhile).await, api.task("meanwhile").await] {
            let answer = request.unwrap();
            assert_eq!(answer.status, 503, "{}", answer.text());
            assert!(answer.header("retry-after").unwrap().parse::<u32>().is_ok());
            assert_eq!(answer.json()["code"], "unavailable");
        }
        let begun = SystemClock.instant();
        assert_eq!(api.publish(&meanwhile).await.unwrap().status, 503);
        let took = begun.elapsed();
        assert!(took < UNAVAILABLE_WITHIN, "{took:?}");
        assert_eq!(api.get("/readyz").await.unwrap().status, 503);
        assert_eq!(api.get("/healthz").await.unwrap().status, 200);
        cluster = blocking(cluster, |cluster| cluster.restart().unwrap()).await;
        let back = SystemClock.instant();
        eventually("/readyz is green", async || api.get("/readyz").await.unwrap().status == 200).await;
        println!("503 within {took:?}; green {:?} after the database", back.elapsed());
    }
    let mut answers = callers.answered(ARTICLES).await;
    // The same again is safe, whatever became of it.
    answers
        .insert("meanwhile".to_owned(), patient.publish(&meanwhile).await.unwrap().ok()["task_id"].clone());
    all_published_once(&patient, &answers, &folder).await;
    let external_ids = answers.keys().cloned().collect::<Vec<_>>();
    receiver.one_event_each(&external_ids, &secret).await;
    let (status, _, stderr) = dev.stop(Signal::TERM).await;
    assert!(status.success() && !stderr.contains("panicked"), "{stderr}");
    tokio::task::spawn_blocking(move || cluster.stop().unwrap()).await.unwrap();
}

#[tokio::test]
async fn a_private_database_that_is_killed_is_started_again() {
    let folder = Folder::new();
    let dev = Dev::start(&folder, &[("PUBLISH_LEASE", "2s")]).await;
    let sent = dev.api().publish(&article("before")).await.unwrap().ok();
    let first = postmaster(&folder).unwrap();
    kill(first);
    eventually("another one runs", async || postmaster(&folder).is_some_and(|pid| pid != first && runs(pid)))
        .await;
    let ready = async || dev.api().get("/readyz").await.unwrap().status == 200;
    eventually("/readyz is green", ready).await;
    assert_eq!(dev.api().published("before").await["task_id"], sent["task_id"]);
    dev.api().publish(&article("after")).await.unwrap().ok();
    dev.api().published("after").await;
    let second = postmaster(&folder).unwrap();
    assert!(dev.stop(Signal::TERM).await.0.success());
    assert!(!runs(second));
}

fn kill(pid: u32) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
}

async fn blocking(mut cluster: Cluster, act: impl FnOnce(&mut Cluster) + Send + 'static) -> Cluster {
    let acting = tokio::task::spawn_blocking(move || {
        act(&mut cluster);
        cluster
    });
    acting.await.unwrap()
}
