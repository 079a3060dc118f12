//! A receiver of callbacks, at `/dev/callbacks`: verifies them and prints them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::callback::signature::TOLERANCE_SECONDS;
use crate::cli::say;
use crate::clock::SharedClock;
use crate::http::{Kind, Problem};
use crate::store::Store;
use crate::vault::Vault;

/// How many callbacks are kept to be looked at.
const KEPT_MAX: usize = 100;

/// Where the receiver finds what callbacks are signed with, also after that was replaced.
#[derive(Clone)]
pub(super) struct Keys {
    pub(super) store: Store,
    pub(super) vault: Vault,
    pub(super) tenant_id: Uuid,
}

#[derive(Clone)]
struct Receiver {
    keys: Keys,
    clock: SharedClock,
    kept: Arc<Mutex<VecDeque<Value>>>,
}

pub(super) fn routes(keys: Keys, clock: SharedClock) -> Router {
    let receiver = Receiver { keys, clock, kept: Arc::default() };
    Router::new().route("/dev/callbacks", get(list).post(receive).with_state(receiver))
}

/// The newest callbacks, the newest first.
async fn list(State(receiver): State<Receiver>) -> Json<Value> {
    let kept = receiver.kept.lock().unwrap_or_else(PoisonError::into_inner);
    Json(json!({"callbacks": kept.iter().rev().collect::<Vec<_>>()}))
}

async fn receive(
    State(receiver): State<Receiver>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<StatusCode, Problem> {
    let body = body.map_err(|_| Problem::new(Kind::PayloadTooLarge, "no callback of ours is that large"))?;
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let id = header("webhook-id");
    let now = receiver.clock.now().timestamp();
    let Keys { store, vault, tenant_id } = &receiver.keys;
    let keys = store.signing_keys(*tenant_id, vault).await?;
    let verified = header("webhook-timestamp").parse::<i64>().is_ok_and(|timestamp| {
        (now - timestamp).abs() <= TOLERANCE_SECONDS
            && keys.iter().any(|one| one.key.verifies(header("webhook-signature"), id, timestamp, &body))
    });
    let event = serde_json::from_slice::<Value>(&body).unwrap_or_default();
    let word = if verified { "verified" } else { "NOT VERIFIED" };
    // Escaped, since whoever sends it may not be us, and this is a terminal.
    let text = |name: &str| event[name].as_str().unwrap_or("-").escape_debug().to_string();
    say(format_args!(
        "callback {word}: {} {} on {}/{} {}",
        text("type"),
        text("external_id"),
        text("platform"),
        text("account_id"),
        text("url")
    ));
    let mut kept = receiver.kept.lock().unwrap_or_else(PoisonError::into_inner);
    // Of what is not ours, only that it came.
    let event = if verified { event } else { Value::Null };
    kept.push_back(json!({"webhook_id": id, "verified": verified, "event": event}));
    if kept.len() > KEPT_MAX {
        kept.pop_front();
    }
    Ok(if verified { StatusCode::NO_CONTENT } else { StatusCode::UNAUTHORIZED })
}
