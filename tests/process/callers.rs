//! Callers as pipelines are: many at once, who repeat their requests after errors, and who go away.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use rustix::process::Signal;
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::api::{Api, article, words};
use crate::program::{Dev, Folder, LIMIT, database, seed};

/// How many call at once.
const CALLERS: usize = 8;

/// How long a caller rests after an error, unless the service is elsewhere by then.
const REST: Duration = Duration::from_millis(50);

/// The task ids that were answered, by the article's id.
pub(crate) type Answers = HashMap<String, Value>;

/// Callers at work.
pub(crate) struct Callers {
    address: watch::Sender<String>,
    allowed: Arc<Semaphore>,
    answers: watch::Sender<Answers>,
    _tasks: JoinSet<()>,
}

impl Callers {
    /// Starts them; nothing is sent before it is allowed.
    pub(crate) fn start(dev: &Dev, callback_url: &str) -> Self {
        let (address, answers) = (watch::Sender::new(dev.url.clone()), watch::Sender::new(Answers::new()));
        let (allowed, next) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut tasks = JoinSet::new();
        for _ in 0..CALLERS {
            let (api, address, answers) = (dev.api().impatient(), address.subscribe(), answers.clone());
            let (allowed, next, callback_url) = (allowed.clone(), next.clone(), callback_url.to_owned());
            tasks.spawn(async move {
                loop {
                    allowed.acquire().await.unwrap().forget();
                    let external_id = format!("load-{}", next.fetch_add(1, Ordering::Relaxed));
                    let mut article = article(&external_id);
                    article["callback_url"] = callback_url.as_str().into();
                    let task_id = until_answered(&api, address.clone(), &article).await;
                    answers.send_modify(|answers| drop(answers.insert(external_id, task_id)));
                }
            });
        }
        Self { address, allowed, answers, _tasks: tasks }
    }

    /// Lets them send so many articles more.
    pub(crate) fn send(&self, articles: usize) {
        self.allowed.add_permits(articles);
    }

    /// Tells them where the service is now.
    pub(crate) fn service_is_at(&self, url: &str) {
        self.address.send_replace(url.to_owned());
    }

    pub(crate) fn count(&self) -> usize {
        self.answers.borrow().len()
    }

    /// Waits until so many articles were answered.
    pub(crate) async fn answered(&self, articles: usize) -> Answers {
        let mut answers = self.answers.subscribe();
        let waited = tokio::time::timeout(LIMIT, answers.wait_for(|all| all.len() >= articles)).await;
        let Ok(all) = waited else {
            panic!("{} of {articles} answered within {LIMIT:?}", self.count());
        };
        all.unwrap().clone()
    }
}

/// Repeats a request until it is answered with 200; returns the task's id.
async fn until_answered(api: &Api, mut address: watch::Receiver<String>, article: &Value) -> Value {
    loop {
        let url = address.borrow_and_update().clone();
        match api.at(&url).publish(article).await {
            Ok(answer) if answer.status == 200 => return answer.json()["task_id"].clone(),
            Ok(answer) => assert_eq!(answer.status, 503, "{}", answer.text()),
            Err(_) => {}
        }
        let _ = tokio::time::timeout(REST, address.changed()).await;
    }
}

/// Every article that was answered is published, on one page, and nothing else is; sent again, it is the same task.
pub(crate) async fn all_published_once(api: &Api, answers: &Answers, folder: &Folder) {
    let mut markers = HashMap::new();
    for (external_id, task_id) in answers {
        let task = api.published(external_id).await;
        assert_eq!(task["task_id"], *task_id, "{external_id}");
        assert_eq!(task["counts"]["success"], 1, "{task}");
        let marker = task["publications"][0]["remote_id"].as_str().unwrap().to_owned();
        assert!(markers.insert(marker, external_id).is_none(), "{external_id} shares its page");
    }
    let pages = folder.pages();
    assert_eq!(pages.len(), answers.len(), "pages that no article has");
    for (marker, external_id) in &markers {
        let page = &pages[marker];
        assert!(page.contains(&words(external_id)) && page.trim_end().ends_with("</html>"), "{external_id}");
        let holding = pages.values().filter(|page| page.contains(&words(external_id))).count();
        assert_eq!(holding, 1, "{external_id}");
    }
    let feed = api.get("/site/demo/demo/feed.xml").await.unwrap().text();
    for marker in markers.keys() {
        assert_eq!(
            feed.matches(&format!("<id>{}/site/demo/demo/{marker}.html</id>", api.url)).count(),
            1,
            "{marker}"
        );
    }
    for (external_id, task_id) in answers {
        let again = article(external_id);
        let again = api.publish(&again).await.unwrap().ok();
        assert_eq!((&again["task_id"], &again["created"]), (task_id, &Value::Bool(false)));
        assert_eq!(again["content_changed"], false, "{again}");
    }
    assert_eq!(folder.pages().len(), answers.len());
}

/// What a caller sends before it goes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sent {
    All,
    /// It goes when the answer comes, and does not read it.
    AllAndAnswered,
    SomeOfTheBody,
    Some,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_who_goes_away_leaves_a_whole_article_or_none() {
    const ARTICLES: usize = 90;
    let mut random = StdRng::seed_from_u64(seed());
    let folder = Folder::new();
    let url = database().await;
    let settings = [("DATABASE_URL", url.as_str())];
    let dev = Dev::start(&folder, &settings).await;
    let address = dev.url.strip_prefix("http://").unwrap().to_owned();
    let (mut articles, mut leaving) = (Vec::new(), JoinSet::new());
    for n in 0..ARTICLES {
        let external_id = format!("cut-{n}");
        let mut article = article(&external_id);
        // Long enough to arrive in several pieces; the words by which it is known come last.
        let filler = "<p>filler</p>".repeat(random.random_range(1..8_000));
        article["content_html"] = format!("{filler}<p>{}</p>", words(&external_id)).into();
        let body = article.to_string();
        let head = format!(
            "POST /publish HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            dev.env("PUBLISH_API_KEY"),
            body.len()
        );
        let request = [head.as_bytes(), body.as_bytes()].concat();
        let sent = [Sent::All, Sent::AllAndAnswered, Sent::SomeOfTheBody, Sent::Some][n % 4];
        let end = match sent {
            Sent::All | Sent::AllAndAnswered => request.len(),
            Sent::SomeOfTheBody => random.random_range(head.len()..request.len()),
            Sent::Some => random.random_range(0..request.len()),
        };
        let address = address.clone();
        leaving.spawn(async move {
            let mut connection = TcpStream::connect(&address).await.unwrap();
            connection.write_all(&request[..end]).await.unwrap();
            if sent == Sent::AllAndAnswered {
                connection.readable().await.unwrap();
            }
        });
        articles.push((external_id, article, sent));
    }
    tokio::time::timeout(LIMIT, leaving.join_all()).await.unwrap();
    // An orderly end finishes what is under way: after it, nothing more comes of these requests.
    let (status, _, stderr) = dev.stop(Signal::TERM).await;
    assert!(status.success() && !stderr.contains("panicked"), "{stderr}");

    let dev = Dev::start(&folder, &settings).await;
    let api = dev.api();
    let mut accepted = HashMap::new();
    for (external_id, _, sent) in &articles {
        let answer = api.task(external_id).await.unwrap();
        match sent {
            Sent::All => assert!([200, 404].contains(&answer.status), "{}", answer.text()),
            Sent::AllAndAnswered => assert_eq!(answer.status, 200, "answered and lost: {external_id}"),
            Sent::SomeOfTheBody | Sent::Some => assert_eq!(answer.status, 404, "half of {external_id}"),
        }
        if answer.status == 200 {
            let task = api.published(external_id).await;
            accepted.insert(external_id.clone(), task["task_id"].clone());
        }
    }
    println!("{} of {ARTICLES} were accepted", accepted.len());
    let pages = folder.pages();
    assert_eq!(pages.len(), accepted.len());
    for external_id in accepted.keys() {
        assert_eq!(pages.values().filter(|page| page.contains(&words(external_id))).count(), 1);
    }
    // Each caller comes back and finds what is so.
    for (external_id, article, _) in &articles {
        let answer = api.publish(article).await.unwrap().ok();
        match accepted.get(external_id) {
            Some(task_id) => assert_eq!((&answer["created"], &answer["task_id"]), (&false.into(), task_id)),
            None => assert_eq!(answer["created"], true),
        }
        assert_eq!(answer["content_changed"], false);
    }
    for (external_id, ..) in &articles {
        api.published(external_id).await;
    }
    assert_eq!(folder.pages().len(), ARTICLES);
    assert!(dev.stop(Signal::TERM).await.0.success());
}
