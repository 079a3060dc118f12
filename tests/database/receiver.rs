//! A receiver of callbacks whose answers a test scripts.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Response};
use publish_ingest::callback::signature::SigningSecret;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

use crate::harness::within;

/// One answer.
#[derive(Clone)]
pub(crate) struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: &'static str,
    gate: Option<Arc<Semaphore>>,
}

impl Answer {
    pub(crate) fn status(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: "", gate: None }
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(crate) fn saying(mut self, body: &'static str) -> Self {
        self.body = body;
        self
    }

    /// Answers only when the gate has a permit for it.
    pub(crate) fn behind(mut self, gate: &Arc<Semaphore>) -> Self {
        self.gate = Some(gate.clone());
        self
    }
}

/// What was received.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> String {
        self.headers[name].to_str().unwrap().to_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// Verified by somebody else's library.
    pub(crate) fn verify(&self, secret: &SigningSecret) {
        assert!(self.is_verified_by(secret));
    }

    pub(crate) fn is_verified_by(&self, secret: &SigningSecret) -> bool {
        let judge = standardwebhooks::Webhook::new(&secret.expose()).unwrap();
        judge.verify(&self.body, &self.headers).is_ok()
    }
}

struct Shared {
    script: Mutex<VecDeque<Answer>>,
    otherwise: Mutex<Answer>,
    received: watch::Sender<Vec<Received>>,
}

/// A receiver on this machine; it ends with the test.
pub(crate) struct Receiver {
    pub(crate) url: String,
    shared: Arc<Shared>,
    server: tokio::task::JoinHandle<()>,
}

impl Receiver {
    /// Answers by the script, and 200 when that is over.
    pub(crate) async fn start(script: impl IntoIterator<Item = Answer>) -> Self {
        Self::start_with(script, Answer::status(200)).await
    }

    /// Answers by the script, and `otherwise` when that is over.
    pub(crate) async fn start_with(script: impl IntoIterator<Item = Answer>, otherwise: Answer) -> Self {
        let (script, otherwise) = (Mutex::new(script.into_iter().collect()), Mutex::new(otherwise));
        let shared = Arc::new(Shared { script, otherwise, received: watch::Sender::default() });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let router = Router::new().fallback(receive).with_state(shared.clone());
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, shared, server }
    }

    /// Waits until `n` were received in all, and returns them.
    pub(crate) async fn first(&self, n: usize) -> Vec<Received> {
        let mut watching = self.shared.received.subscribe();
        let enough = watching.wait_for(|received| received.len() >= n);
        within(&format!("callback {n}"), enough).await.unwrap().to_vec()
    }

    /// Answers like that from now on, when the script is over.
    pub(crate) fn answers(&self, answer: Answer) {
        *self.shared.otherwise.lock().unwrap() = answer;
    }

    /// What was received so far.
    pub(crate) fn count(&self) -> usize {
        self.shared.received.borrow().len()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn receive(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> Response<Body> {
    let answer =
        shared.script.lock().unwrap().pop_front().unwrap_or_else(|| shared.otherwise.lock().unwrap().clone());
    shared.received.send_modify(|received| received.push(Received { headers, body }));
    if let Some(gate) = &answer.gate {
        gate.acquire().await.unwrap().forget();
    }
    let mut response = Response::builder().status(answer.status);
    for (name, value) in answer.headers {
        response = response.header(name, value);
    }
    response.body(Body::from(answer.body)).unwrap()
}
