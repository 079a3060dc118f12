//! The receiver of callbacks: it checks each signature, and remembers every event.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use standardwebhooks::Webhook;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

#[derive(Default)]
struct Memory {
    /// The body of each event.
    events: HashMap<String, Bytes>,
    deliveries: usize,
    /// Signed rightly, by a clock that is wrong.
    untimely: usize,
    faults: Vec<String>,
}

struct Shared {
    memory: Mutex<Memory>,
    judge: Webhook,
}

pub(crate) struct Receiver {
    /// `host:port`.
    pub(crate) address: String,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

impl Receiver {
    pub(crate) async fn start(secret: &str) -> Self {
        let judge = Webhook::new(secret).unwrap();
        let shared = Arc::new(Shared { memory: Mutex::default(), judge });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let routes = Router::new().route("/callbacks", post(receive)).with_state(shared.clone());
        let server = tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self { address, shared, server }
    }

    /// The body of each event that was taken.
    pub(crate) fn events(&self) -> HashMap<String, Bytes> {
        self.shared.memory.lock().unwrap().events.clone()
    }

    /// How many deliveries were taken, and how many refused for their time.
    pub(crate) fn deliveries(&self) -> (usize, usize) {
        let memory = self.shared.memory.lock().unwrap();
        (memory.deliveries, memory.untimely)
    }

    pub(crate) fn faults(&self) -> Vec<String> {
        self.shared.memory.lock().unwrap().faults.clone()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Whether a signature is right, and its time too.
pub(crate) enum Signed {
    Rightly,
    /// By a clock that is wrong.
    Untimely,
    Wrongly,
}

pub(crate) fn signed(judge: &Webhook, headers: &HeaderMap, body: &[u8]) -> Signed {
    if judge.verify(body, headers).is_ok() {
        return Signed::Rightly;
    }
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let again = judge.sign(text("webhook-id"), text("webhook-timestamp").parse().unwrap_or_default(), body);
    let right = again.is_ok_and(|again| text("webhook-signature").split(' ').any(|one| one == again));
    if right { Signed::Untimely } else { Signed::Wrongly }
}

async fn receive(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let mut memory = shared.memory.lock().unwrap();
    let id = headers.get("webhook-id").and_then(|id| id.to_str().ok()).unwrap_or_default().to_owned();
    match signed(&shared.judge, &headers, &body) {
        Signed::Rightly => {}
        Signed::Untimely => {
            memory.untimely += 1;
            return StatusCode::BAD_REQUEST;
        }
        Signed::Wrongly => {
            memory.faults.push(format!("callback {id} is not signed rightly"));
            return StatusCode::BAD_REQUEST;
        }
    }
    memory.deliveries += 1;
    let first = memory.events.entry(id.clone()).or_insert_with(|| body.clone()).clone();
    if first != body {
        memory.faults.push(format!("callback {id} came with two bodies"));
    }
    StatusCode::NO_CONTENT
}
