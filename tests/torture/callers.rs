//! Callers as pipelines are: each article is sent again and again until it is answered, and all of them once more when the
//! pipeline runs again.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::api::Api;
use crate::platforms::TITLE;

/// How many call at once.
const CALLERS: usize = 6;

/// How long a caller rests after an error.
const REST: Duration = Duration::from_millis(200);

/// How many articles are sent at once when all are sent again.
const IN_A_BATCH: usize = 50;

struct Shared {
    /// The doors of the services.
    apis: Vec<Api>,
    callback_url: String,
    group_code: String,
    next: AtomicUsize,
    /// What was answered.
    accepted: Mutex<Vec<String>>,
    repeated: AtomicUsize,
}

pub(crate) struct Callers {
    shared: Arc<Shared>,
    allowed: Arc<Semaphore>,
    _tasks: JoinSet<()>,
}

impl Callers {
    /// Starts them; nothing is sent before it is allowed.
    pub(crate) fn start(apis: Vec<Api>, group_code: &str, callback_url: &str) -> Self {
        let shared = Arc::new(Shared {
            apis,
            callback_url: callback_url.to_owned(),
            group_code: group_code.to_owned(),
            next: AtomicUsize::new(0),
            accepted: Mutex::default(),
            repeated: AtomicUsize::new(0),
        });
        let allowed = Arc::new(Semaphore::new(0));
        let mut tasks = JoinSet::new();
        for _ in 0..CALLERS {
            let (shared, allowed) = (shared.clone(), allowed.clone());
            tasks.spawn(async move {
                loop {
                    allowed.acquire().await.unwrap().forget();
                    let n = shared.next.fetch_add(1, Ordering::SeqCst);
                    shared.hand_in(n).await;
                }
            });
        }
        Self { shared, allowed, _tasks: tasks }
    }

    /// Lets them send so many articles more.
    pub(crate) fn send(&self, articles: usize) {
        self.allowed.add_permits(articles);
    }

    /// The ids of what was answered.
    pub(crate) fn accepted(&self) -> Vec<String> {
        self.shared.accepted.lock().unwrap().clone()
    }

    /// How often an article was sent again.
    pub(crate) fn repeated(&self) -> usize {
        self.shared.repeated.load(Ordering::SeqCst)
    }

    /// Sends all again that was answered; to be awaited, or left to run beside everything else. Returns how many were new.
    pub(crate) fn send_again(&self) -> impl Future<Output = usize> + Send + use<> {
        let shared = self.shared.clone();
        async move {
            let ids = shared.accepted.lock().unwrap().clone();
            let mut created = 0;
            for ids in ids.chunks(IN_A_BATCH) {
                created += shared.hand_in_again(ids).await;
            }
            created
        }
    }
}

impl Shared {
    fn article(&self, external_id: &str) -> Value {
        let mut article = article(external_id, &self.group_code);
        article["callback_url"] = self.callback_url.as_str().into();
        article
    }

    async fn hand_in(&self, n: usize) {
        let external_id = format!("storm-{n}");
        let article = self.article(&external_id);
        for door in self.apis.iter().cycle().skip(n) {
            match door.publish(&article).await {
                Ok(answer) if answer.status == 200 => break,
                Ok(answer) => assert_eq!(answer.status, 503, "{}", answer.text()),
                Err(_) => {}
            }
            self.repeated.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(REST).await;
        }
        self.accepted.lock().unwrap().push(external_id);
    }

    async fn hand_in_again(&self, ids: &[String]) -> usize {
        let articles = ids.iter().map(|id| self.article(id)).collect::<Vec<_>>();
        let batch = json!({"articles": articles});
        for door in self.apis.iter().cycle() {
            if let Ok(answer) = door.post("/publish/batch", &batch).await {
                let body = if answer.status == 200 { answer.json() } else { Value::Null };
                let results = body["results"].as_array().cloned().unwrap_or_default();
                if !results.is_empty() && results.iter().all(|one| one["http_status"] == 200) {
                    return results.iter().filter(|one| one["task"]["created"] == true).count();
                }
            }
            tokio::time::sleep(REST).await;
        }
        0
    }
}

/// An article, known by its title on every platform; every other one has tags.
pub(crate) fn article(external_id: &str, group_code: &str) -> Value {
    let number = external_id.bytes().map(usize::from).sum::<usize>();
    let tags = if number.is_multiple_of(2) {
        vec![format!("tag {}", number % 5), "storm".to_owned()]
    } else {
        vec![]
    };
    json!({
        "external_id": external_id, "group_code": group_code, "title": format!("{TITLE}{external_id}"),
        "content_html": format!("<p>These are the words of {external_id}.</p>"), "tags": tags,
    })
}
