//! A receiver of callbacks.

use std::collections::{HashMap, HashSet};
use std::future::pending;
use std::net::SocketAddr;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Version};
use axum::routing::post;
use axum::serve::Listener;
use serde_json::Value;
use standardwebhooks::Webhook;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::program::LIMIT;

/// A callback as it arrived.
#[derive(Clone)]
pub(crate) struct Received {
    pub(crate) id: String,
    /// Of HTTP.
    pub(crate) version: String,
    headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Received {
    pub(crate) fn event(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// Checks its signature, by somebody else's library.
    pub(crate) fn verify(&self, secret: &str) {
        Webhook::new(secret).unwrap().verify(&self.body, &self.headers).unwrap();
    }
}

/// How the n-th callback of an id is answered, n from 1; `None` is never.
pub(crate) type Manner = fn(usize) -> Option<StatusCode>;

pub(crate) const WILLING: Manner = |_| Some(StatusCode::NO_CONTENT);
pub(crate) const AT_THE_SECOND_TRY: Manner =
    |n| Some(if n == 1 { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::OK });
pub(crate) const SILENT: Manner = |_| None;

pub(crate) struct Receiver {
    pub(crate) url: String,
    arrived: watch::Sender<Vec<Received>>,
    server: JoinHandle<()>,
}

impl Receiver {
    pub(crate) async fn start(manner: Manner) -> Self {
        Self::start_on(TcpListener::bind("127.0.0.1:0").await.unwrap(), "http", manner)
    }

    pub(crate) fn start_on<L>(listener: L, scheme: &str, manner: Manner) -> Self
    where
        L: Listener<Addr = SocketAddr>,
    {
        let url = format!("{scheme}://{}/callbacks", listener.local_addr().unwrap());
        let arrived = watch::Sender::new(Vec::new());
        let routes = Router::new().route("/callbacks", post(receive)).with_state((arrived.clone(), manner));
        let server = tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self { url, arrived, server }
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.arrived.borrow().clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.arrived.borrow().len()
    }

    /// Waits until `enough` of what has arrived.
    pub(crate) async fn wait_for(&self, what: &str, enough: impl Fn(&[Received]) -> bool) {
        let mut arrivals = self.arrived.subscribe();
        let waited = tokio::time::timeout(LIMIT, arrivals.wait_for(|received| enough(received))).await;
        assert!(waited.is_ok(), "{what}: {} callbacks within {LIMIT:?}", self.received().len());
    }

    /// Waits for an event of each article, and checks them all: signed, of one article and round only one, and the
    /// same bytes at every try.
    pub(crate) async fn one_event_each(&self, external_ids: &[String], secret: &str) {
        let told = |received: &[Received]| {
            let ids = received.iter().map(|one| one.event()["external_id"].as_str().unwrap().to_owned());
            ids.collect::<HashSet<_>>().len() >= external_ids.len()
        };
        self.wait_for("an event of each article", told).await;
        let judge = Webhook::new(secret).unwrap();
        let (mut bodies, mut events) = (HashMap::new(), HashMap::new());
        for one in self.received() {
            judge.verify(&one.body, &one.headers).unwrap();
            let event = one.event();
            assert_eq!(event["event_id"], one.id.as_str());
            assert_eq!(
                (&event["type"], &event["status"]),
                (&"publication.success".into(), &"success".into())
            );
            let body = bodies.entry(one.id.clone()).or_insert_with(|| one.body.clone());
            assert_eq!(*body, one.body, "other bytes under one id");
            let external_id = event["external_id"].as_str().unwrap().to_owned();
            let first = events.entry((external_id, event["round"].clone())).or_insert_with(|| one.id.clone());
            assert_eq!(*first, one.id, "two events of one round: {event}");
        }
        let rounds = external_ids.iter().map(|id| (id.clone(), Value::from(1))).collect::<HashSet<_>>();
        assert_eq!(events.into_keys().collect::<HashSet<_>>(), rounds);
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn receive(
    State((arrived, manner)): State<(watch::Sender<Vec<Received>>, Manner)>,
    version: Version,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    let id = headers["webhook-id"].to_str().unwrap().to_owned();
    let mut count = 0;
    arrived.send_modify(|all| {
        all.push(Received { id: id.clone(), version: format!("{version:?}"), headers, body });
        count = all.iter().filter(|one| one.id == id).count();
    });
    match manner(count) {
        Some(status) => status,
        None => pending().await,
    }
}
