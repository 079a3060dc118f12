//! An endpoint behind accounts of `http_bridge`, as the platform's description wants it: it remembers by `webhook-id`
//! what it has published, and notes when each request came, and all that must not be.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::to_bytes;
use axum::extract::{Request, State};
use chrono::{DateTime, Utc};
use publish_ingest::callback::signature::SigningSecret;
use publish_ingest::clock::{Clock as _, SystemClock};
use serde_json::{Value, json};
use standardwebhooks::Webhook;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::program::LIMIT;

/// More than any request of a test has.
const BODY_BYTES: usize = 1024 * 1024;

/// A request.
#[derive(Clone)]
pub(crate) struct Asked {
    /// When its head was there.
    pub(crate) at: DateTime<Utc>,
    pub(crate) external_id: String,
    pub(crate) account_id: String,
}

#[derive(Default)]
struct Memory {
    asked: Vec<Asked>,
    /// What was published under each marker: article and account.
    published: HashMap<String, (String, String)>,
    under_way: HashSet<String>,
    faults: Vec<String>,
}

struct Shared {
    memory: Mutex<Memory>,
    /// How many requests came.
    count: watch::Sender<usize>,
    secret: SigningSecret,
    takes: Duration,
}

/// The endpoint; it ends with the test.
pub(crate) struct Bridge {
    url: String,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

impl Bridge {
    /// An endpoint that takes so long to publish an article.
    pub(crate) async fn start(takes: Duration) -> Self {
        let secret = SigningSecret::generate(&SystemClock);
        let count = watch::Sender::new(0);
        let shared = Arc::new(Shared { memory: Mutex::default(), count, secret, takes });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/articles", listener.local_addr().unwrap());
        let routes = Router::new().fallback(publish).with_state(shared.clone());
        let server = tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self { url, shared, server }
    }

    /// The body of a PUT of an account of it, which starts so many seconds apart at least.
    pub(crate) fn account(&self, min_interval_seconds: u32) -> Value {
        json!({
            "settings": {"endpoint": self.url}, "credentials": {"secret": *self.shared.secret.expose()},
            "min_interval_seconds": min_interval_seconds,
        })
    }

    /// Waits until so many requests came.
    pub(crate) async fn count(&self, enough: usize) {
        let mut count = self.shared.count.subscribe();
        let waited = tokio::time::timeout(LIMIT, count.wait_for(|count| *count >= enough)).await;
        assert!(waited.is_ok(), "{} of {enough} requests within {LIMIT:?}", self.asked().len());
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.shared.memory.lock().unwrap().asked.clone()
    }

    /// What was published under each marker: article and account.
    pub(crate) fn published(&self) -> HashMap<String, (String, String)> {
        self.shared.memory.lock().unwrap().published.clone()
    }

    /// No request was forged, none overlapped another of its marker, and no marker named two things.
    pub(crate) fn assert_faultless(&self) {
        let faults = &self.shared.memory.lock().unwrap().faults;
        assert!(faults.is_empty(), "{faults:#?}");
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// A request that is worked on, until its answer is given or its sender is gone.
struct UnderWay<'a>(&'a Shared, String);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.memory.lock().unwrap().under_way.remove(&self.1);
    }
}

async fn publish(State(shared): State<Arc<Shared>>, request: Request) -> String {
    let at = SystemClock.now();
    let (head, body) = request.into_parts();
    let body = to_bytes(body, BODY_BYTES).await.unwrap();
    let marker = head.headers["webhook-id"].to_str().unwrap().to_owned();
    let sent: Value = serde_json::from_slice(&body).unwrap();
    let text = |name: &str| sent[name].as_str().unwrap().to_owned();
    let (external_id, account_id) = (text("external_id"), text("account_id"));
    let _under_way = {
        let mut memory = shared.memory.lock().unwrap();
        let judge = Webhook::new(&shared.secret.expose()).unwrap();
        if let Err(error) = judge.verify(&body, &head.headers) {
            memory.faults.push(format!("{external_id}: {error}"));
        }
        if !memory.under_way.insert(marker.clone()) {
            memory.faults.push(format!("{external_id}: two requests at once"));
        }
        let what = (external_id.clone(), account_id.clone());
        let first = memory.published.entry(marker.clone()).or_insert_with(|| what.clone()).clone();
        if first != what {
            memory.faults.push(format!("{first:?} and {what:?} have one marker"));
        }
        memory.asked.push(Asked { at, external_id, account_id });
        shared.count.send_modify(|count| *count += 1);
        UnderWay(&shared, marker.clone())
    };
    // Longer on the way, so that kills meet it.
    tokio::time::sleep(shared.takes).await;
    json!({"status": "success", "url": format!("https://bridge.example/{marker}"), "remote_id": marker})
        .to_string()
}
