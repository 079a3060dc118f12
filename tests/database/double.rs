//! A platform that does as a test says: every call takes the next answer that was written for it, and is noted. What was
//! not written is done as by a platform in order, which finds what it published.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use publish_ingest::connector::{
    Access, Answering, Connector, Description, Failure, Guarantee, Job, Login, Pause, Prepared, Remote,
    Sighting, Verdict,
};
use publish_ingest::fields::FieldError;
use publish_ingest::lifecycle::Plan;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::harness::{Api, World};

/// The name of the platform, of its one account, and of the group that holds it.
pub(crate) const DOUBLE: &str = "double";

/// Where that account is managed.
pub(crate) const ACCOUNT: &str = "/accounts/double/double";

/// An answer, and a gate that it waits for.
type Scripted<T> = VecDeque<(T, Option<Arc<Semaphore>>)>;

#[derive(Default)]
struct Script {
    logins: Scripted<Login>,
    looks: Scripted<Sighting>,
    preparations: Scripted<Result<Prepared, Verdict>>,
    requests: Scripted<Verdict>,
    published: HashMap<String, Remote>,
    /// What was asked: `login`, `look`, `prepare` or `publish`, and of which article.
    calls: Vec<(&'static str, String)>,
}

/// The platform; cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Double(Arc<Mutex<Script>>);

impl Double {
    /// A plan of a service that knows the platform.
    pub(crate) fn plan(&self, world: &World) -> Plan {
        let mut plan = world.plan();
        plan.connectors.insert(DOUBLE, Arc::new(self.clone()));
        plan
    }

    /// A service that knows the platform, with an account of it, which may have so many in hand.
    pub(crate) async fn start(&self, world: &World, max_in_flight: usize) -> Api {
        let api = world.start_with(self.plan(world)).await;
        api.put(ACCOUNT, &json!({"max_in_flight": max_in_flight})).await.ok();
        let members = json!({"accounts": [{"platform": DOUBLE, "account_id": DOUBLE}]});
        api.put("/groups/double", &members).await.ok();
        api
    }

    pub(crate) fn next_login(&self, login: Login) {
        self.0.lock().unwrap().logins.push_back((login, None));
    }

    pub(crate) fn next_login_behind(&self, login: Login, gate: &Arc<Semaphore>) {
        self.0.lock().unwrap().logins.push_back((login, Some(gate.clone())));
    }

    pub(crate) fn next_look(&self, sighting: Sighting) {
        self.0.lock().unwrap().looks.push_back((sighting, None));
    }

    /// While there is one, something is to be made ready.
    pub(crate) fn next_preparation(&self, prepared: Result<Prepared, Verdict>) {
        self.0.lock().unwrap().preparations.push_back((prepared, None));
    }

    pub(crate) fn next_request(&self, verdict: Verdict) {
        self.0.lock().unwrap().requests.push_back((verdict, None));
    }

    pub(crate) fn next_request_behind(&self, verdict: Verdict, gate: &Arc<Semaphore>) {
        self.0.lock().unwrap().requests.push_back((verdict, Some(gate.clone())));
    }

    /// How often it was asked that.
    pub(crate) fn count(&self, kind: &str) -> usize {
        self.0.lock().unwrap().calls.iter().filter(|(call, _)| *call == kind).count()
    }

    /// How often it was asked anything.
    pub(crate) fn calls(&self) -> usize {
        self.0.lock().unwrap().calls.len()
    }

    /// How many articles it holds.
    pub(crate) fn published(&self) -> usize {
        self.0.lock().unwrap().published.len()
    }

    /// Publishes what bears that mark, outside of any request.
    pub(crate) fn publish_itself(&self, marker: &str) -> Remote {
        let url = format!("https://double.example/{marker}");
        let remote = Remote { url, remote_id: Some(marker.to_owned()) };
        self.0.lock().unwrap().published.entry(marker.to_owned()).or_insert(remote).clone()
    }

    fn note(&self, kind: &'static str, whose: &str) {
        self.0.lock().unwrap().calls.push((kind, whose.to_owned()));
    }
}

/// The platform's word that the login is dead.
pub(crate) fn dead() -> Failure {
    Failure::new("token_revoked", "the token was revoked: make another one")
}

/// The platform's wish to be left alone.
pub(crate) fn pause(seconds: u64) -> Pause {
    let failure = Failure::new("rate_limited", "too many requests");
    Pause { failure, wait: Some(std::time::Duration::from_secs(seconds)) }
}

async fn when_let<T>((answer, gate): (T, Option<Arc<Semaphore>>)) -> T {
    if let Some(gate) = gate {
        gate.acquire().await.unwrap().forget();
    }
    answer
}

impl Connector for Double {
    fn guarantee(&self) -> Guarantee {
        Guarantee::Search
    }

    fn describe(&self) -> Description {
        let none = json!({"type": "object"});
        Description { settings_schema: none.clone(), credentials_schema: none, rules: Vec::new() }
    }

    fn check_account(&self, _: &Value, _: Option<&Value>) -> Vec<FieldError> {
        Vec::new()
    }

    fn site(&self, _: &Value) -> Option<String> {
        None
    }

    fn check_login<'a>(&'a self, access: &'a Access) -> Answering<'a, Login> {
        Box::pin(async move {
            self.note("login", &access.account_id);
            let scripted = self.0.lock().unwrap().logins.pop_front();
            when_let(scripted.unwrap_or((Login::Works, None))).await
        })
    }

    fn find<'a>(&'a self, job: &'a Job) -> Answering<'a, Sighting> {
        Box::pin(async move {
            self.note("look", &job.external_id);
            let scripted = self.0.lock().unwrap().looks.pop_front();
            if let Some(scripted) = scripted {
                return when_let(scripted).await;
            }
            let published = self.0.lock().unwrap().published.get(&job.marker).cloned();
            published.map_or_else(Sighting::absent, Sighting::published)
        })
    }

    fn prepares(&self, _: &Job) -> bool {
        !self.0.lock().unwrap().preparations.is_empty()
    }

    fn prepare<'a>(&'a self, job: &'a Job) -> Answering<'a, Result<Prepared, Verdict>> {
        Box::pin(async move {
            self.note("prepare", &job.external_id);
            let scripted = self.0.lock().unwrap().preparations.pop_front();
            when_let(scripted.unwrap_or((Ok(Prepared::default()), None))).await
        })
    }

    fn publish<'a>(&'a self, job: &'a Job) -> Answering<'a, Verdict> {
        Box::pin(async move {
            self.note("publish", &job.external_id);
            let scripted = self.0.lock().unwrap().requests.pop_front();
            match scripted {
                Some(scripted) => when_let(scripted).await,
                None => Verdict::Done(self.publish_itself(&job.marker)),
            }
        })
    }
}
