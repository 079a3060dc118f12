//! An endpoint behind an account of `http_bridge`, as the platform's description wants it: what it has published it remembers
//! by `webhook-id`, for as long as the suite lives.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use publish_ingest::callback::signature::SigningSecret;
use publish_ingest::clock::SystemClock;
use serde_json::{Value, json};
use standardwebhooks::Webhook;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{Holdings, Platform, note};
use crate::receiver::{Signed, signed};

/// How long it takes for an article: long enough for kills to fall into it.
const TAKES: Duration = Duration::from_millis(30);

struct Shared {
    /// The title that was published under each marker.
    published: Mutex<HashMap<String, String>>,
    faults: Mutex<Vec<String>>,
    secret: SigningSecret,
    judge: Webhook,
    stopped: watch::Sender<bool>,
}

pub(crate) struct Bridge {
    address: String,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

impl Bridge {
    pub(crate) async fn start() -> Self {
        let secret = SigningSecret::generate(&SystemClock);
        let judge = Webhook::new(&secret.expose()).unwrap();
        let stopped = watch::Sender::new(false);
        let shared = Arc::new(Shared {
            published: Mutex::default(),
            faults: Mutex::default(),
            secret,
            judge,
            stopped,
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let routes = Router::new().fallback(publish).with_state(shared.clone());
        let server = tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self { address, shared, server }
    }
}

impl Platform for Bridge {
    fn name(&self) -> &'static str {
        "http_bridge"
    }

    fn address(&self) -> Option<String> {
        Some(self.address.clone())
    }

    fn account(&self, base: &str) -> Value {
        let secret = self.shared.secret.expose();
        json!({
            "settings": {"endpoint": format!("{base}/articles")}, "credentials": {"secret": *secret},
            "max_in_flight": 8,
        })
    }

    fn stop(&self, _: usize) -> bool {
        self.shared.stopped.send_replace(true);
        true
    }

    fn go_on(&self) {
        self.shared.stopped.send_replace(false);
    }

    fn holdings(&self) -> Holdings {
        let faults = self.shared.faults.lock().unwrap();
        assert!(faults.is_empty(), "{faults:#?}");
        let mut holdings = Holdings::new();
        for title in self.shared.published.lock().unwrap().values() {
            note(&mut holdings, title, true);
        }
        holdings
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn publish(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<String, StatusCode> {
    let mut stopped = shared.stopped.subscribe();
    // A stopped server takes the request when it goes on, also of a client that has gone by then.
    let work = async move {
        let _ = stopped.wait_for(|stopped| !stopped).await;
        tokio::time::sleep(TAKES).await;
        let marker = headers["webhook-id"].to_str().unwrap().to_owned();
        match signed(&shared.judge, &headers, &body) {
            Signed::Rightly => {}
            Signed::Untimely => return Err(StatusCode::UNAUTHORIZED),
            Signed::Wrongly => {
                shared.faults.lock().unwrap().push(format!("{marker} is not signed rightly"));
                return Err(StatusCode::UNAUTHORIZED);
            }
        }
        let sent: Value = serde_json::from_slice(&body).unwrap();
        let title = sent["article"]["title"].as_str().unwrap().to_owned();
        let mut published = shared.published.lock().unwrap();
        let first = published.entry(marker.clone()).or_insert_with(|| title.clone()).clone();
        if first != title {
            shared.faults.lock().unwrap().push(format!("{first} and {title} have one marker"));
        }
        let url = format!("https://bridge.example/{marker}");
        Ok(json!({"status": "success", "url": url, "remote_id": marker}).to_string())
    };
    tokio::spawn(work).await.unwrap()
}
