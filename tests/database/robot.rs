//! An endpoint behind an `http_bridge` account, as the platform's description wants it: it remembers what it published by
//! `webhook-id`, and a test says how its answers get lost.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Response};
use publish_ingest::callback::signature::SigningSecret;
use publish_ingest::clock::TestClock;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

use crate::harness::within;
use crate::receiver::Received;

/// What becomes of one request.
#[derive(Clone)]
pub(crate) enum Does {
    /// Publishes, or remembers, and says so.
    Publishes,
    /// Publishes, and answers 500.
    PublishesAndAnswers500,
    /// Publishes, and the answer breaks off.
    PublishesAndIsCutOff,
    /// Publishes, and answers only when the gate lets it.
    PublishesAndHangs(Arc<Semaphore>),
    /// Answers 202, and publishes nothing yet.
    Accepts,
    /// Answers this JSON with 200, and publishes nothing.
    Says(Value),
    /// As [`Self::Says`], when the gate lets it.
    SaysLater(Value, Arc<Semaphore>),
}

impl Does {
    pub(crate) fn login_expired() -> Self {
        Self::Says(
            json!({"status": "login_expired", "error": {"code": "logged_out", "message": "log in again"}}),
        )
    }
}

struct Shared {
    script: Mutex<VecDeque<Does>>,
    published: Mutex<HashMap<String, String>>,
    received: watch::Sender<Vec<Received>>,
}

/// The endpoint; it ends with the test.
pub(crate) struct Robot {
    pub(crate) url: String,
    pub(crate) secret: SigningSecret,
    shared: Arc<Shared>,
    server: tokio::task::JoinHandle<()>,
}

impl Robot {
    /// Does as the script says, and publishes when that is over.
    pub(crate) async fn start(script: impl IntoIterator<Item = Does>) -> Self {
        let shared = Arc::new(Shared {
            script: Mutex::new(script.into_iter().collect()),
            published: Mutex::default(),
            received: watch::Sender::default(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/articles", listener.local_addr().unwrap());
        let router = Router::new().fallback(receive).with_state(shared.clone());
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, secret: SigningSecret::generate(&TestClock::seeded(21)), shared, server }
    }

    /// The body of a PUT of its account.
    pub(crate) fn account(&self) -> Value {
        json!({"settings": {"endpoint": self.url}, "credentials": {"secret": *self.secret.expose()}})
    }

    /// What it does next.
    pub(crate) fn then(&self, does: Does) {
        self.shared.script.lock().unwrap().push_back(does);
    }

    /// Waits until `n` requests came in all, and returns them, each verified by somebody else's library.
    pub(crate) async fn first(&self, n: usize) -> Vec<Received> {
        let mut watching = self.shared.received.subscribe();
        let enough = watching.wait_for(|received| received.len() >= n);
        let received = within(&format!("request {n} to the bridge"), enough).await.unwrap().to_vec();
        for one in &received {
            one.verify(&self.secret);
        }
        received
    }

    /// How many requests came.
    pub(crate) fn count(&self) -> usize {
        self.shared.received.borrow().len()
    }

    /// How many articles it published.
    pub(crate) fn published(&self) -> usize {
        self.shared.published.lock().unwrap().len()
    }

    /// Publishes, outside of any request, what was asked for under that id; returns the URL.
    pub(crate) fn publish(&self, id: &str) -> String {
        self.shared.publish(id)
    }
}

impl Drop for Robot {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Shared {
    fn publish(&self, id: &str) -> String {
        let url = format!("https://robot.example/{id}");
        self.published.lock().unwrap().entry(id.to_owned()).or_insert(url).clone()
    }
}

async fn receive(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> Response<Body> {
    let id = headers["webhook-id"].to_str().unwrap().to_owned();
    let does = shared.script.lock().unwrap().pop_front().unwrap_or(Does::Publishes);
    let success = |url: String| json!({"status": "success", "url": url, "remote_id": id}).to_string();
    let (status, answer) = match &does {
        Does::Publishes | Does::PublishesAndHangs(_) | Does::PublishesAndIsCutOff => {
            (200, success(shared.publish(&id)))
        }
        Does::PublishesAndAnswers500 => {
            shared.publish(&id);
            (500, String::new())
        }
        Does::Accepts => (202, String::new()),
        Does::Says(json) | Does::SaysLater(json, _) => (200, json.to_string()),
    };
    shared.received.send_modify(|received| received.push(Received { headers, body }));
    if let Does::PublishesAndHangs(gate) | Does::SaysLater(_, gate) = &does {
        gate.acquire().await.unwrap().forget();
    }
    let body = match does {
        Does::PublishesAndIsCutOff => {
            let parts = [Ok(Bytes::from_static(b"{")), Err(std::io::Error::other("cut off"))];
            Body::from_stream(futures_util::stream::iter(parts))
        }
        _ => Body::from(answer),
    };
    Response::builder().status(status).body(body).unwrap()
}
