//! Desks for accounts at which nothing goes wrong: what is asked at the same time is served together, so that a rehearsal
//! of many articles costs the database no more than it must. Where a rule of an account might apply, or a request takes its
//! time, each goes its own way ([`super::request`]).

use std::sync::Arc;

use serde_json::{Value, json};
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::behaviour::Settings;
use super::request::{Refusal, UNREACHED};
use super::{Sandbox, draft_id, full, remote, vanished};
use crate::connector::secrets::Secrets;
use crate::connector::{Job, Marked, Sighting, Verdict};
use crate::gather::fan::Fan;
use crate::gather::tenants::{Then, WritesParts, by_tenant};
use crate::gather::{Bounds, Gatherer, Partial};
use crate::store::{SandboxAsk, SandboxAsks, SandboxServed, Store, StoreError};

/// How many desks there are; with more the batches would be smaller. An account has its own, so that what is served at one waits
/// for no account's row that another holds.
const DESKS: usize = 2;

/// Of one desk; full queues of articles of 64 KiB hold 64 MiB.
const BOUNDS: Bounds = Bounds { queue: 256, queue_kib: 16_384, rows: 128, batch_kib: 1_024, writers: 1 };

/// What came of a request; none where there is no such account, or nobody knows.
type Served = Result<Option<SandboxServed>, Arc<StoreError>>;

/// Where requests are served.
pub(super) struct Desks {
    all: Fan<SandboxAsk, Served>,
}

impl Desks {
    /// Opens them; their writers end with them.
    pub(super) fn open(store: &Store, partial: &Partial) -> Self {
        let open = || {
            let clerk = Clerk(store.clone());
            Gatherer::start(BOUNDS, partial, &TaskTracker::new(), move |batch| {
                let clerk = clerk.clone();
                async move { by_tenant(&clerk, batch, |ask: &SandboxAsk| ask.tenant_id).await }
            })
        };
        Self { all: Fan::open(DESKS, open) }
    }

    fn of(&self, job: &Job) -> &Gatherer<SandboxAsk, Served> {
        self.all.of((job.tenant_id, &job.account_id))
    }
}

/// Serves what was gathered.
#[derive(Clone)]
struct Clerk(Store);

impl WritesParts<SandboxAsk> for Clerk {
    type Written = Served;
    type Error = StoreError;

    async fn write(&self, tenant_id: Uuid, part: &[SandboxAsk]) -> Result<Vec<Served>, StoreError> {
        let served = self.0.sandbox_serve(tenant_id, part).await?;
        Ok(served.into_iter().map(Ok).collect())
    }

    async fn refused(&self, error: StoreError, part: &[SandboxAsk]) -> Then<Served> {
        match error {
            // One that the database refuses, or that somebody holds up, must not fail its neighbours.
            StoreError::Refused(_) | StoreError::HeldUp(_) if part.len() > 1 => Then::Halves,
            error => Then::Answer(Err(Arc::new(error))),
        }
    }
}

/// Whether no rule can apply to a request, and none takes its time.
pub(super) fn serves(settings: &Settings) -> bool {
    settings.rules.is_empty() && settings.latency.is_zero()
}

impl Sandbox {
    async fn at_desk(&self, job: &Job, what: SandboxAsks, bytes: usize) -> Result<SandboxServed, Refusal> {
        let ask = SandboxAsk {
            tenant_id: job.tenant_id,
            account_id: job.account_id.clone(),
            marker: job.marker.clone(),
            external_id: job.external_id.clone(),
            request_id: job.request_id.clone(),
            what,
        };
        match self.desks.of(job).submit_patiently(ask, bytes).await {
            Ok(Ok(Some(SandboxServed::LoggedOut))) => {
                note(job, 401, &json!({"error": "logged_out"}));
                Err(Refusal::logged_out())
            }
            Ok(Ok(Some(served))) => Ok(served),
            Ok(Err(error)) => Err(StoreError::from(error).into()),
            Ok(Ok(None)) | Err(_) => Err(Refusal::Unknown(UNREACHED.to_owned())),
        }
    }

    pub(super) async fn look_at_desk(&self, job: &Job) -> Result<Sighting, Refusal> {
        let SandboxServed::Found(found) = self.at_desk(job, SandboxAsks::Find, 0).await? else {
            return Err(Refusal::Unknown(UNREACHED.to_owned()));
        };
        note(job, 200, &json!({"found": found.iter().map(|(id, _)| id).collect::<Vec<_>>()}));
        let marked = |(id, public): (i64, bool)| {
            let public = public.then(|| remote(&job.account_id, id));
            Marked { id: id.to_string(), public }
        };
        Ok(Sighting::Seen(found.into_iter().map(marked).collect()))
    }

    pub(super) async fn make_at_desk(&self, job: &Job) -> Result<Verdict, Refusal> {
        let draft = SandboxAsks::draft(&job.content);
        let bytes = job.content.content_html.len();
        let SandboxServed::Drafted(made) = self.at_desk(job, draft, bytes).await? else {
            return Err(Refusal::Unknown(UNREACHED.to_owned()));
        };
        let Some(id) = made else {
            note(job, 507, &json!({"error": "full"}));
            return Ok(full());
        };
        note(job, 201, &json!({"id": id}));
        Ok(Verdict::Drafted(id.to_string()))
    }

    pub(super) async fn make_public_at_desk(&self, job: &Job) -> Result<Verdict, Refusal> {
        let publish = SandboxAsks::Publish(draft_id(job));
        let SandboxServed::Published(there) = self.at_desk(job, publish, 0).await? else {
            return Err(Refusal::Unknown(UNREACHED.to_owned()));
        };
        let Some(id) = there else {
            note(job, 404, &json!({"error": "not_found"}));
            return Ok(vanished());
        };
        note(job, 200, &json!({"id": id}));
        Ok(Verdict::Done(remote(&job.account_id, id)))
    }
}

fn note(job: &Job, http_status: u16, body: &Value) {
    job.trace.note(http_status, body.to_string().as_bytes(), &Secrets::of(&job.credentials));
}
