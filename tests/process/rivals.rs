//! Many callers, one article, at the same moment.

use publish_ingest::clock::{Clock as _, SystemClock};
use rustix::process::Signal;
use serde_json::Value;

use crate::api::{Answer, Api, article};
use crate::program::{Dev, Folder, database};
use crate::receiver::{Receiver, WILLING};

const RIVALS: usize = 100;
const ROUNDS: usize = 50;
const STRICT_ROUNDS: usize = 10;

/// Sends the same request from all at once.
async fn all_at_once(api: &Api, article: &Value, headers: &[(&str, &str)]) -> Vec<Answer> {
    let mut requests = tokio::task::JoinSet::new();
    for _ in 0..RIVALS {
        let (api, article) = (api.clone(), article.clone());
        let headers = headers.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect::<Vec<_>>();
        requests.spawn(async move {
            let headers = headers.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect::<Vec<_>>();
            api.publish_with(&article, &headers).await.unwrap()
        });
    }
    requests.join_all().await
}

/// How many must have won: one, or none where the winner's answer was lost to "unavailable" and asked for again.
fn winners(answers: &[Answer], found: usize) -> usize {
    if answers.iter().any(|answer| answer.repeated) { found.min(1) } else { 1 }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_hundred_at_once_one_creates_and_all_get_the_same_task() {
    let folder = Folder::new();
    let receiver = Receiver::start(WILLING).await;
    let url = database().await;
    let dev = Dev::start(&folder, &[("DATABASE_URL", &url)]).await;
    let api = dev.api();
    let begun = SystemClock.instant();
    let mut external_ids = Vec::new();
    let mut sent = |external_id: String| {
        let mut article = article(&external_id);
        article["callback_url"] = receiver.url.as_str().into();
        external_ids.push(external_id);
        article
    };
    for round in 0..ROUNDS {
        let answers = all_at_once(&api, &sent(format!("race-{round}")), &[]).await;
        let bodies = answers.iter().map(Answer::ok).collect::<Vec<_>>();
        let created = bodies.iter().filter(|body| body["created"] == true).count();
        let replayed = answers.iter().filter(|a| a.header("idempotent-replayed") == Some("true")).count();
        assert_eq!(created, winners(&answers, created), "round {round}");
        assert_eq!(created + replayed, RIVALS, "round {round}");
        assert!(bodies.iter().all(|body| body["task_id"] == bodies[0]["task_id"]), "round {round}");
        assert!(bodies.iter().all(|body| body["content_changed"] == false), "round {round}");
    }
    println!("{ROUNDS} rounds of {RIVALS}: {:?}", begun.elapsed());
    for round in 0..STRICT_ROUNDS {
        let mut article = sent(format!("strict-{round}"));
        article["on_duplicate"] = "reject".into();
        let answers = all_at_once(&api, &article, &[]).await;
        let won = answers.iter().filter(|answer| answer.status == 200).collect::<Vec<_>>();
        assert_eq!(won.len(), winners(&answers, won.len()), "round {round}");
        let task = api.task(article["external_id"].as_str().unwrap()).await.unwrap().ok();
        assert!(won.iter().all(|answer| answer.json()["task_id"] == task["task_id"]));
        for lost in answers.iter().filter(|answer| answer.status != 200) {
            let problem = lost.json();
            assert_eq!((lost.status, &problem["code"]), (409, &"duplicate_external_id".into()));
            assert_eq!(problem["task"]["task_id"], task["task_id"]);
        }
    }
    // Who all send the creator's key are all told that they created it.
    let mut article = sent("keyed".to_owned());
    article["on_duplicate"] = "reject".into();
    let answers = all_at_once(&api, &article, &[("idempotency-key", "one-pipeline-run")]).await;
    assert!(answers.iter().all(|answer| answer.ok()["created"] == true));
    let first = answers.iter().filter(|a| a.header("idempotent-replayed").is_none()).count();
    assert_eq!(first, winners(&answers, first));
    println!("with {STRICT_ROUNDS} strict ones: {:?}", begun.elapsed());

    for external_id in &external_ids {
        api.published(external_id).await;
    }
    assert_eq!(folder.pages().len(), external_ids.len());
    receiver.one_event_each(&external_ids, dev.env("PUBLISH_SIGNING_SECRET")).await;
    assert!(dev.stop(Signal::TERM).await.0.success());
    assert_eq!(folder.pages().len(), external_ids.len());
}
