//! Every route that the `OpenAPI` document has, and requests to it made of names.

use std::collections::BTreeMap;

use rand::RngExt as _;
use rand::rngs::StdRng;
use reqwest::Method;
use serde_json::{Value, json};

use super::names::{Names, PLATFORMS};
use crate::harness::{Api, Reply, article_with};

/// A route and what the document says of it.
pub(super) struct Route {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) operation_id: String,
    pub(super) needs_key: bool,
    /// Whether it is asked about something that may not be there.
    pub(super) finds: bool,
    pub(super) query: Vec<String>,
    headers: Vec<String>,
    has_body: bool,
}

/// All routes, from what the service says of itself.
pub(super) fn routes(document: &Value) -> Vec<Route> {
    let mut routes = Vec::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
            let within = |place: &str| {
                let there = parameters.iter().filter(|parameter| parameter["in"] == place);
                there.map(|parameter| parameter["name"].as_str().unwrap().to_owned()).collect()
            };
            routes.push(Route {
                method: method.to_uppercase().parse().unwrap(),
                path: path.clone(),
                operation_id: operation["operationId"].as_str().unwrap().to_owned(),
                needs_key: operation["security"][0].as_object().is_some_and(|scheme| !scheme.is_empty()),
                finds: path.contains('{') && operation["responses"].get("404").is_some(),
                query: within("query"),
                headers: within("header"),
                has_body: operation.get("requestBody").is_some(),
            });
        }
    }
    routes
}

/// Which names a request has: of each kind whose, and which.
pub(super) struct Picks {
    kinds: BTreeMap<String, (bool, usize)>,
    /// The members of the query that are there.
    query: u64,
}

impl Picks {
    /// Names of the other tenant alone.
    pub(super) fn foreign(at: usize, query: u64) -> Self {
        let kinds = KINDS.map(|kind| (kind.to_owned(), (true, at)));
        Self { kinds: kinds.into(), query }
    }

    pub(super) fn by_chance(chance: &mut StdRng) -> Self {
        let kinds =
            KINDS.map(|kind| (kind.to_owned(), (chance.random_bool(0.4), chance.random_range(0..30))));
        let query = if chance.random_bool(0.3) { 0 } else { chance.random::<u64>() & chance.random::<u64>() };
        Self { kinds: kinds.into(), query }
    }
}

const KINDS: [&str; 13] = [
    "account_id",
    "article_id",
    "content",
    "cursor",
    "event_id",
    "external_id",
    "group_code",
    "idempotency_key",
    "lease_id",
    "publication_id",
    "replay_id",
    "task_id",
    "tenant_id",
];

/// A caller: what it calls its own, and what it has heard of.
pub(super) struct Caller {
    pub(super) api: Api,
    pub(super) own: Names,
    pub(super) heard_of: Names,
}

impl Caller {
    /// Sends a request, and returns what was sent with the answer.
    pub(super) async fn send(&self, route: &Route, picks: &Picks) -> (String, Reply) {
        let pick = |kind: &str| self.pick(picks, kind, kind);
        let mut path = route.path.clone();
        while let Some((start, rest)) = path.split_once('{') {
            let (kind, end) = rest.split_once('}').unwrap();
            path = format!("{start}{}{end}", pick(kind));
        }
        let query = route.query.iter().enumerate().filter(|(at, _)| picks.query >> at & 1 == 1);
        let query = query.map(|(_, name)| format!("{name}={}", self.parameter(route, picks, name)));
        let query = query.collect::<Vec<_>>().join("&");
        let url = if query.is_empty() { path } else { format!("{path}?{query}") };
        let mut request = self.api.request(route.method.clone(), &url);
        for name in &route.headers {
            assert_eq!(name, "Idempotency-Key", "no value for this header: add it here");
            request = request.header(name, pick("idempotency_key"));
        }
        let body = route.has_body.then(|| body(&route.operation_id, &pick).to_string());
        let sent = format!("{} {url} {}", route.method, body.clone().unwrap_or_default());
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body);
        }
        (sent, self.api.send(request).await)
    }

    fn pick(&self, picks: &Picks, kind: &str, name: &str) -> String {
        // The place of an account's name says its platform.
        let of = if kind == "platform" { "account_id" } else { kind };
        let short = of.split(' ').next().unwrap();
        let (foreign, at) =
            picks.kinds.get(short).unwrap_or_else(|| panic!("nothing is called by {name}: add it here"));
        if kind == "platform" {
            return PLATFORMS[at % PLATFORMS.len()].to_owned();
        }
        (if *foreign { &self.heard_of } else { &self.own }).get(of, *at).to_owned()
    }

    fn parameter(&self, route: &Route, picks: &Picks, name: &str) -> String {
        match name {
            "limit" => "2".to_owned(),
            "wait" => "0s".to_owned(),
            "include" => "content".to_owned(),
            "created_after" => "2020-01-01T00:00:00Z".to_owned(),
            "created_before" => "2120-01-01T00:00:00Z".to_owned(),
            "status" if route.path == "/callbacks" => "delivered".to_owned(),
            "status" => "success".to_owned(),
            "cursor" | "after" => self.pick(picks, &format!("cursor {}", route.path), name),
            "external_id_prefix" => {
                self.pick(picks, "external_id", name).chars().take_while(|c| *c != '-').collect()
            }
            named => self.pick(picks, named, name),
        }
    }
}

/// The body of a request: readable, so that it gets as far as what it names.
fn body(operation_id: &str, pick: &impl Fn(&str) -> String) -> Value {
    let account = || json!({"platform": pick("platform"), "account_id": pick("account_id")});
    let article = || {
        let words = pick("content");
        let members = json!({"group_code": pick("group_code"), "title": words, "content_html": words});
        article_with(&pick("external_id"), members)
    };
    match operation_id {
        "put_account" if pick("platform") == PLATFORMS[0] => json!({"settings": {"site": "site"}}),
        "put_account"
        | "check_account"
        | "replay_callback"
        | "rotate_signing_secrets"
        | "cancel_task"
        | "submit_task" => {
            json!({})
        }
        "put_group" | "add_accounts" => json!({"accounts": [account()]}),
        "claim_jobs" => json!({"platform": PLATFORMS[2], "account_ids": [pick("account_id")], "max": 2}),
        "keep_job" => json!({"round": 1, "lease_id": pick("lease_id")}),
        "report_result" => {
            json!({"round": 1, "lease_id": pick("lease_id"), "status": "success", "url": "https://robot.example/1"})
        }
        "replay_callbacks" => json!({"since": "2020-01-01T00:00:00Z", "status": "delivered"}),
        "lookup" => json!({"external_ids": [pick("external_id"), pick("content")]}),
        "publish" | "check_article" => article(),
        "publish_batch" => {
            // The same twice: of two that are made in one moment, either may be the newer one.
            let mut second = article();
            second["idempotency_key"] = json!(pick("idempotency_key"));
            json!({"articles": [article(), second]})
        }
        "patch_task" => json!({"title": pick("content"), "group_code": pick("group_code")}),
        "retry_task" if pick("platform") == PLATFORMS[0] => json!({}),
        "retry_task" => account(),
        other => panic!("{other} takes a body, and nothing is sent to it: add one here, made of names"),
    }
}
