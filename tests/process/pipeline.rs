//! A pipeline that hands articles in by batches, dies at any moment, and begins again from the start.
//!
//! Most articles are to be published in a later year: what is asked is what was accepted, and fifty thousand pages
//! would take minutes. In one round every fifth is published at once.

use std::collections::HashSet;
use std::time::Duration;

use publish_ingest::clock::{Clock as _, SystemClock};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rustix::process::Signal;
use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};
use tokio::sync::watch;

use crate::api::{Api, article};
use crate::program::{Dev, Folder, database, eventually, seed};

const ROUNDS: usize = 10;
const ARTICLES: usize = 5_000;
const IN_A_BATCH: usize = 500;
const IN_A_LOOKUP: usize = 1_000;

/// How often the pipeline is killed in each round.
const KILLS: usize = 2;

/// In every third round the last kill is the service's.
const SERVICE_DIES_EVERY: usize = 3;

/// The round in which every fifth article is published.
const PUBLISHED: usize = 4;
const PUBLISHED_EVERY: usize = 5;

/// How long after a batch was begun the kill may come: about as long as a batch takes.
const MOMENT_MAX_MS: u64 = 150;

/// How many articles are asked for one by one.
const SAMPLE: usize = 40;

struct Round {
    number: usize,
    ids: Vec<String>,
    /// What is sent, the same every time.
    batches: Vec<Value>,
}

impl Round {
    fn new(number: usize) -> Self {
        let ids = (0..ARTICLES).map(|n| format!("r{number}-{n:04}")).collect::<Vec<_>>();
        let articles = ids.iter().enumerate().map(|(n, id)| {
            let mut article = article(id);
            if number != PUBLISHED || !n.is_multiple_of(PUBLISHED_EVERY) {
                article["publish_at"] = "2100-01-01T00:00:00Z".into();
            }
            article
        });
        let articles = articles.collect::<Vec<_>>();
        let batches = articles.chunks(IN_A_BATCH).map(|articles| json!({"articles": articles})).collect();
        Self { number, ids, batches }
    }

    /// The ids that are published.
    fn published(&self) -> impl Iterator<Item = &String> {
        self.ids.iter().step_by(PUBLISHED_EVERY).filter(|_| self.number == PUBLISHED)
    }

    /// The pipeline, from the start until it is through, or until something goes wrong. It tells which batch it sends.
    async fn run(&self, api: &Api, at: &watch::Sender<usize>) -> bool {
        for (batch, (ids, body)) in self.ids.chunks(IN_A_BATCH).zip(&self.batches).enumerate() {
            at.send_replace(batch);
            let Ok(answer) = api.post("/publish/batch", body).await else { return false };
            if answer.status == 503 {
                return false;
            }
            let answer = answer.ok();
            let results = answer["results"].as_array().unwrap();
            assert_eq!(results.len(), ids.len());
            for (id, result) in ids.iter().zip(results) {
                match result["http_status"].as_u64() {
                    Some(200) => assert_eq!(result["task"]["external_id"], **id),
                    Some(503) => return false,
                    _ => panic!("{id}: {result}"),
                }
            }
        }
        true
    }

    /// What a look-up says is missing is what is not found one by one. A batch that was cut off may still come in, so
    /// it is asked for between two look-ups.
    async fn told_is_so(&self, api: &Api, random: &mut StdRng) -> usize {
        let earlier = missing(api, &self.ids).await;
        let sample = self.ids.sample(random, SAMPLE).cloned().collect::<Vec<_>>();
        let mut absent = HashSet::new();
        for id in &sample {
            match api.task(id).await.unwrap().status {
                200 => {}
                404 => drop(absent.insert(id.clone())),
                other => panic!("{id}: {other}"),
            }
        }
        let later = missing(api, &sample).await;
        for id in &sample {
            assert!(!absent.contains(id) || earlier.contains(id), "{id} was found and then was not");
            assert!(
                !later.contains(id) || absent.contains(id),
                "{id} was there, and a look-up says it is missing"
            );
        }
        earlier.len()
    }
}

/// What the service says is missing of these; and what it found is as it should be.
async fn missing(api: &Api, ids: &[String]) -> HashSet<String> {
    let mut missing = HashSet::new();
    for ids in ids.chunks(IN_A_LOOKUP) {
        let answer = api.post("/lookup", &json!({"external_ids": ids})).await.unwrap().ok();
        let lost = answer["missing"].as_array().unwrap().iter().map(|id| id.as_str().unwrap().to_owned());
        let lost = lost.collect::<HashSet<_>>();
        let found = answer["tasks"].as_array().unwrap();
        let there = ids.iter().filter(|id| !lost.contains(*id)).collect::<Vec<_>>();
        assert_eq!(found.iter().map(|task| task["external_id"].as_str().unwrap()).collect::<Vec<_>>(), there);
        assert!(found.iter().all(|task| task["publications"].as_array().unwrap().len() == 1));
        missing.extend(lost);
    }
    missing
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pipeline_killed_again_and_again_hands_each_article_in_once() {
    let mut random = StdRng::seed_from_u64(seed());
    let folder = Folder::new();
    let url = database().await;
    let settings = [("DATABASE_URL", url.as_str()), ("PUBLISH_LEASE", "2s")];
    let begun = SystemClock.instant();
    let mut dev = Dev::start(&folder, &settings).await;
    let mut connection = PgConnection::connect(&url).await.unwrap();
    for number in 0..ROUNDS {
        let round = Round::new(number);
        for kill in 1..=KILLS {
            let api = dev.api().impatient();
            let (at, mut told) = watch::channel(0);
            let batch = random.random_range(0..ARTICLES / IN_A_BATCH);
            let moment = Duration::from_millis(random.random_range(0..MOMENT_MAX_MS));
            let service_dies = kill == KILLS && number % SERVICE_DIES_EVERY == 1;
            let death = async {
                told.wait_for(|sent| *sent >= batch).await.unwrap();
                tokio::time::sleep(moment).await;
                if service_dies {
                    dev.kill();
                }
            };
            // Whichever is first; what is dropped here hangs up in the middle of its request.
            let through = tokio::select! {
                through = round.run(&api, &at) => Some(through),
                () = death => None,
            };
            if service_dies && through.is_none() {
                dev = Dev::start(&folder, &settings).await;
            }
            let told_missing = round.told_is_so(&dev.api(), &mut random).await;
            println!("{:?}: round {number}, through: {through:?}, missing {told_missing}", begun.elapsed());
            assert!(through != Some(true) || told_missing == 0);
        }
        let (at, _) = watch::channel(0);
        let api = dev.api();
        eventually("the pipeline is through", async || round.run(&api, &at).await).await;
        assert_eq!(missing(&api, &round.ids).await, HashSet::new());
        let counted: (i64, i64) = sqlx::query_as(
            "SELECT count(DISTINCT t.task_id), count(p.publication_id) FROM tasks t
            LEFT JOIN publications p USING (tenant_id, task_id) WHERE starts_with(external_id, $1)",
        )
        .bind(format!("r{number}-"))
        .fetch_one(&mut connection)
        .await
        .unwrap();
        assert_eq!(counted, (5_000, 5_000));
        let published = round.published().count();
        // By the database, since asking for each would take longer than publishing; the list is asked in the end.
        eventually("what is due is published", async || {
            let done = "SELECT count(*) FROM tasks WHERE succeeded = 1 AND starts_with(external_id, $1)";
            let done = sqlx::query_scalar::<_, i64>(done).bind(format!("r{number}-"));
            usize::try_from(done.fetch_one(&mut connection).await.unwrap()).unwrap() == published
        })
        .await;
        println!("{:?}: round {number} is through", begun.elapsed());
    }
    let (api, round) = (dev.api(), Round::new(PUBLISHED));
    assert_eq!(listed(&api, &round, "").await, round.ids);
    let published = round.published().cloned().collect::<Vec<_>>();
    assert_eq!(listed(&api, &round, "&status=success").await, published);
    assert_eq!(folder.pages().len(), published.len());
    assert!(dev.stop(Signal::TERM).await.0.success());
    println!("all told: {:?}", begun.elapsed());
}

/// The ids of a round as they are listed, page by page; sorted.
async fn listed(api: &Api, round: &Round, filter: &str) -> Vec<String> {
    let (mut listed, mut cursor) = (Vec::new(), String::new());
    loop {
        let path = format!("/tasks?external_id_prefix=r{}-&limit=200{filter}{cursor}", round.number);
        let page = api.get(&path).await.unwrap().ok();
        let tasks = page["tasks"].as_array().unwrap().iter();
        listed.extend(tasks.map(|task| task["external_id"].as_str().unwrap().to_owned()));
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    listed.sort();
    listed
}
