//! Hostile requests to every route that the service describes, with a key and a database behind it.
//!
//! The service only answers: nothing is published, and nothing is called but a port where nobody listens.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use publish_ingest::clock::{Clock as _, SystemClock};
use publish_ingest::config::Roles;
use publish_ingest::outbound::Policy;
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::chance::Dice;
use crate::connection::{Answer, Connection, pour};
use crate::harness::{World, in_world, within};
use crate::texts;

/// Callers at once.
const CALLERS: usize = 8;

/// One in so many requests is changed as a whole, its head and framing too.
const BROKEN: usize = 5;

/// What need not be escaped in a path.
const IN_PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A route, as the service describes it.
struct Route {
    method: String,
    path: String,
    query: Vec<String>,
    media_types: Vec<String>,
}

fn routes() -> Vec<Route> {
    let document = serde_json::to_value(publish_ingest::http::openapi()).unwrap();
    let mut routes = Vec::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            let query = parameters.filter(|one| one["in"] == "query");
            let media_types = operation["requestBody"]["content"].as_object();
            routes.push(Route {
                method: method.to_uppercase(),
                path: path.clone(),
                query: query.map(|one| one["name"].as_str().unwrap().to_owned()).collect(),
                media_types: media_types.into_iter().flat_map(|types| types.keys().cloned()).collect(),
            });
        }
    }
    assert!(routes.len() > 30, "only {} routes are described", routes.len());
    routes
}

/// Sends so many requests; whether all were answered as they should be.
pub(crate) fn run(seed: u64, requests: u64) -> bool {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let begun = SystemClock.instant();
    let statuses = Arc::new(Mutex::new(BTreeMap::<u16, u64>::new()));
    let counted = statuses.clone();
    let sound = catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(in_world(async |world| storm(world, seed, requests, counted).await));
    }));
    let statuses = runtime.block_on(async { statuses.lock().await.clone() });
    let told = statuses.iter().map(|(status, count)| format!("{status} × {count}")).collect::<Vec<_>>();
    let seconds = SystemClock.instant().duration_since(begun).as_secs_f64();
    println!("{:>20} {requests:>10} cases {seconds:>7.1} s: {}", "requests", told.join(", "));
    sound.is_ok()
}

async fn storm(world: &World, seed: u64, requests: u64, statuses: Arc<Mutex<BTreeMap<u16, u64>>>) {
    let mut plan = world.plan();
    plan.roles = Roles { api: true, worker: false, dispatcher: false };
    plan.policy =
        Policy { allow: vec!["127.0.0.0/8".parse().unwrap()], allow_http: true, ports: Some(vec![2..=2]) };
    let api = world.start_with(plan).await;
    let address: SocketAddr = api.base.strip_prefix("http://").unwrap().parse().unwrap();
    let (routes, next) = (Arc::new(routes()), Arc::new(AtomicU64::new(0)));
    let callers = (0..CALLERS).map(|_| {
        let (routes, next, key, statuses) = (routes.clone(), next.clone(), api.key.clone(), statuses.clone());
        async move {
            let mut connection = Connection::to(address);
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= requests {
                    return;
                }
                let mut dice = Dice::of_case(seed, "requests", number);
                let request = request(&mut dice, &routes, &key);
                let what = format!("--seed {seed}, request {number}: {}", request.escape_ascii());
                let status = if dice.once_in(BROKEN) {
                    let broken =
                        dice.case(&[&request], &[b"HTTP/1.1", b"\r\n\r\n", b"chunked", b"content-length: "]);
                    let what = format!("{what}\nsent as {}", broken.escape_ascii());
                    judge_poured(&within(&what, pour(address, &broken)).await, &what)
                } else {
                    let answer = within(&what, connection.ask(&request)).await;
                    judge(answer.unwrap_or_else(|| panic!("no answer to {what}")), &what)
                };
                *statuses.lock().await.entry(status).or_default() += 1;
            }
        }
    });
    // Each request has a limit of its own, and however many there are may take as long as they take.
    callers.collect::<JoinSet<()>>().join_all().await;
}

/// A request that is framed well, whatever stands in it.
fn request(dice: &mut Dice, routes: &[Route], key: &str) -> Vec<u8> {
    let route = dice.one(&routes.iter().collect::<Vec<_>>());
    let mut target = String::new();
    for part in route.path.split('/').skip(1) {
        target.push('/');
        let name = if part.starts_with('{') { value(dice) } else { part.as_bytes().to_vec() };
        target.extend(percent_encode(&name, IN_PATH));
    }
    let asked = route.query.iter().filter(|_| dice.once_in(3)).collect::<Vec<_>>();
    for (at, name) in asked.into_iter().enumerate() {
        // A wait that is granted would only make the run longer.
        let value =
            if name == "wait" { dice.one(&[&b"0s"[..], b"1ms", b"31s", b"x"]).to_vec() } else { value(dice) };
        target.push(if at == 0 { '?' } else { '&' });
        target.extend([&**name, "="].into_iter().chain(percent_encode(&value, NON_ALPHANUMERIC)));
    }
    let body =
        if route.media_types.is_empty() && !dice.once_in(20) { Vec::new() } else { body(dice, &route.path) };
    let mut head =
        format!("{} {target} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n", route.method, body.len());
    let kind = route.media_types.first().map_or("application/json", String::as_str);
    let kind = if dice.once_in(30) { "text/plain; x=é" } else { kind };
    head.extend(["content-type: ", kind, "\r\n"]);
    match dice.below(40) {
        0 => {}
        1 => head.push_str("authorization: Basic x\r\n"),
        2 => head.extend(["authorization: Bearer ", &key[..key.len() - 1], "\r\n"]),
        _ => head.extend(["authorization: Bearer ", key, "\r\n"]),
    }
    if dice.once_in(10) {
        let name =
            dice.one(&["idempotency-key", "x-request-id", "accept", "content-encoding", "expect", "x"]);
        let value = value(dice).into_iter().filter(|byte| *byte >= b' ' && *byte != 0x7f).collect::<Vec<_>>();
        return [head.as_bytes(), name.as_bytes(), b": ", &value, b"\r\n\r\n", &body].concat();
    }
    [head.as_bytes(), b"\r\n", &body].concat()
}

/// What stands in a path or a query: mostly as it is.
fn value(dice: &mut Dice) -> Vec<u8> {
    if dice.once_in(3) { dice.case(texts::NAMES, &[]) } else { dice.one(texts::NAMES).to_vec() }
}

/// A body: mostly of the route's kind.
fn body(dice: &mut Dice, path: &str) -> Vec<u8> {
    let own: &[&[u8]] = match path {
        "/publish" | "/publish/check" => texts::ARTICLES,
        "/tasks/{external_id}" => texts::PATCHES,
        "/groups/{group_code}" => texts::GROUPS,
        "/accounts/{platform}/{account_id}" => texts::ACCOUNTS,
        _ => texts::BODIES,
    };
    let own = if dice.once_in(10) { texts::BODIES } else { own };
    if dice.once_in(3) { dice.one(own).to_vec() } else { dice.case(own, texts::NAMES) }
}

fn judge(answer: Answer, what: &str) -> u16 {
    let Answer { status, head, body } = answer;
    // The database is asked by many callers on a busy machine, and then says so.
    assert!(status < 500 || status == 503, "{status} {} to {what}", body.escape_ascii());
    if status < 400 {
        return status;
    }
    // What cannot be read as HTTP is answered before there is a request to be named.
    if !head.contains("\r\nx-request-id: ") {
        assert!(body.is_empty() && [400, 413, 414, 417, 431].contains(&status), "{head} to {what}");
        return status;
    }
    assert!(head.contains("\r\ncontent-type: application/problem+json"), "{head} to {what}");
    let problem: Value =
        serde_json::from_slice(&body).unwrap_or_else(|_| panic!("{} to {what}", body.escape_ascii()));
    assert!(problem["code"].is_string() && problem["status"] == status, "{problem} to {what}");
    status
}

/// The first of the statuses that came; 0: none.
fn judge_poured(answers: &[u8], what: &str) -> u16 {
    let text = String::from_utf8_lossy(answers);
    let statuses = text.split("HTTP/1.1 ").skip(1).filter_map(|rest| rest.get(..3)?.parse::<u16>().ok());
    let statuses = statuses.collect::<Vec<_>>();
    assert!(statuses.iter().all(|status| *status < 500 || *status == 503), "{text} to {what}");
    statuses.first().copied().unwrap_or_default()
}
