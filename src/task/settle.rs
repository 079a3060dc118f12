//! Settling: outcomes are gathered, and each batch of a tenant is one transaction of state, event and callback.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::callback::event::{ErrorView, EventBody};
use crate::fault;
use crate::gather::fan::Fan;
use crate::gather::tenants::{Then, WritesParts, by_tenant};
use crate::gather::{Bounds, Gatherer, Partial};
use crate::outbound::receiver;
use crate::retry::interval;
use crate::store::{Composed, Move, Moved, Store, StoreError, Telling};
use crate::task::state::{Counts, Status};
use crate::turns::Wake;

/// How many settle beside each other. A tenant's outcomes all move its feed, so two batches of it would only wait for each
/// other; one tenant's locks hold up a quarter of the others at most.
const GATHERERS: usize = 4;

/// Of one. A transaction of 128 outcomes holds its tenant's feed for some tens of milliseconds.
const BOUNDS: Bounds = Bounds { queue: 512, queue_kib: 512, rows: 128, batch_kib: 1_024, writers: 1 };

/// The pause before a batch is written again that the database could not take.
const AGAIN: Duration = Duration::from_millis(250);

/// Records outcomes.
#[derive(Clone)]
pub struct Settler {
    gatherers: Fan<Move, bool>,
}

/// What the settler needs.
#[derive(Clone)]
pub struct Settling {
    /// Where to.
    pub store: Store,
    /// How ends are told.
    pub telling: Telling,
    /// Lanes are free again.
    pub work: Wake,
    /// Events were written.
    pub deliver: Wake,
    /// Ends the patience with a database that does not come back.
    pub stop: CancellationToken,
}

impl Settler {
    /// Starts the writers.
    #[must_use]
    pub fn start(settling: &Settling, partial: &Partial, tracker: &TaskTracker) -> Self {
        let start = || {
            let settling = settling.clone();
            Gatherer::start(BOUNDS, partial, tracker, move |batch| {
                let settling = settling.clone();
                async move { by_tenant(&settling, batch, |one: &Move| one.tenant_id).await }
            })
        };
        Self { gatherers: Fan::open(GATHERERS, start) }
    }

    /// Records an outcome, however long the database is away; false if the lease had been lost, or the service stops.
    /// What is not recorded is found again when its lease has run out.
    pub async fn settle(&self, outcome: Move) -> bool {
        self.gatherers.of(outcome.tenant_id).submit_patiently(outcome, 0).await.unwrap_or(false)
    }
}

impl WritesParts<Move> for Settling {
    type Written = bool;
    type Error = StoreError;

    async fn write(&self, tenant_id: Uuid, part: &[Move]) -> Result<Vec<bool>, StoreError> {
        fault::point("settle.writing", "");
        let settled = self.store.settle(tenant_id, part, self.telling).await?;
        fault::point("settle.written", "");
        self.work.wake(tenant_id);
        if settled.iter().any(|one| one.position.is_some()) {
            self.deliver.wake(tenant_id);
        }
        let settled = settled.into_iter().map(|one| one.publication_id).collect::<HashSet<_>>();
        Ok(part.iter().map(|one| settled.contains(&one.publication_id)).collect())
    }

    async fn refused(&self, error: StoreError, part: &[Move]) -> Then<bool> {
        if error.is_passing() {
            tracing::warn!(%error, outcomes = part.len(), "cannot settle yet; trying again");
            return tokio::select! {
                () = tokio::time::sleep(AGAIN) => Then::Again,
                () = self.stop.cancelled() => Then::Answer(false),
            };
        }
        if part.len() > 1 {
            return Then::Halves;
        }
        tracing::error!(%error, publication_id = %part[0].publication_id, "the database refused an outcome");
        Then::Answer(false)
    }
}

/// How ends are told: by events, delivered first after `first_wait`.
#[must_use]
pub fn telling(first_wait: Duration) -> Telling {
    Telling { compose, first_wait: interval(first_wait) }
}

/// An event's body, and its delivery: URL and receiver.
fn compose(one: &Moved, position: i64, event_id: Uuid) -> Composed {
    let metadata = serde_json::from_str::<&RawValue>(&one.metadata).unwrap_or(RawValue::NULL);
    let body = EventBody {
        kind: format!("publication.{}", one.status),
        event_id,
        sequence: position,
        timestamp: one.at,
        external_id: &one.external_id,
        task_id: one.task_id,
        platform: &one.platform,
        account_id: &one.account_id,
        status: one.status,
        url: one.url.as_deref(),
        remote_id: one.remote_id.as_deref(),
        error: ErrorView::of(one.error_code.as_deref(), one.error_message.as_deref(), one.error_retryable),
        round: one.round,
        task_status: task_status(one.counters),
        dedupe_key: format!("{}:{}:{}:{}", one.external_id, one.platform, one.account_id, one.status),
        metadata,
    };
    let delivery = one.callback_url.as_ref().map(|url| {
        // Checked when it was accepted; should it not be readable now, the dispatcher says so at every try.
        let receiver = url::Url::parse(url).map_or_else(|_| url.clone(), |url| receiver(&url));
        (url.clone(), receiver)
    });
    (body.bytes(), delivery)
}

/// The counters do not tell submitted from running; once a publication has ended, the task's state is the same.
fn task_status([drafts, open, succeeded, failed, login_expired]: [i32; 5]) -> Status {
    let count = |n| u32::try_from(n).unwrap_or(0);
    Counts {
        draft: count(drafts),
        submitted: 0,
        running: count(open),
        success: count(succeeded),
        failed: count(failed),
        login_expired: count(login_expired),
    }
    .task_status(true)
}
