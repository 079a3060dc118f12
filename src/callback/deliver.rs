//! Delivering: callbacks that are due are claimed, signed, sent and recorded, at least once each.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::breaker::Heard;
use super::doors::Doors;
use super::share::{InHand, Room};
use super::signature::{SigningKey, signed_headers};
use crate::clock::SharedClock;
use crate::connector::sandbox;
use crate::fault;
use crate::gather::fan::Fan;
use crate::gather::tenants::{self as gather, WritesParts, by_tenant};
use crate::gather::{Bounds, Gatherer, Partial};
use crate::outbound::{Answer, Call, CallError, Client, Limits, Method, retry_after};
use crate::retry::{Schedule, jittered};
use crate::store::{
    BreakersMoved, ClaimLimits, ClaimedCallback, Due, Receivers, RecordedTry, Store, StoreError, Then,
};
use crate::telemetry::metrics::Metrics;
use crate::turns::{REST, TakesTurns, Turn, Wake};
use crate::vault::Vault;

/// How much of an answer is read and kept, in bytes.
pub const ANSWER_HEAD_BYTES: usize = 1_024;

/// What a delivery's lease lasts beyond its timeout.
pub const LEASE_MARGIN: Duration = Duration::from_secs(5);

/// How long a tenant rests at most of which nothing can be sent: when its receivers are left alone for longer, or others are
/// at it, it is looked after this often. What becomes due meanwhile ends the rest sooner.
const REST_MOST: Duration = Duration::from_secs(5);

/// The shortest rest of such a tenant: something becomes due just now, or somebody else was just at it. Beside receivers that
/// are left alone a tenant is always due, so this is what its others wait for what comes next.
const REST_MIN: Duration = Duration::from_millis(2);

/// How many record beside each other. Two batches of one receiver would only wait for each other; one tenant's locks hold up a
/// quarter of the others at most.
const GATHERERS: usize = 4;

/// Of one. A try holds the head of an answer at most, 1 KiB.
const BOUNDS: Bounds = Bounds { queue: 512, queue_kib: 512, rows: 128, batch_kib: 1_024, writers: 1 };

/// The pause before a batch is written again that the database could not take.
const AGAIN: Duration = Duration::from_millis(250);

/// Records tries.
#[derive(Clone)]
pub struct Recorder {
    gatherers: Fan<RecordedTry, ()>,
}

impl Recorder {
    /// Starts the writers; `deliver` is woken when lanes are free again.
    #[must_use]
    pub fn start(
        store: Store,
        deliver: Wake,
        metrics: Metrics,
        stop: CancellationToken,
        partial: &Partial,
        tracker: &TaskTracker,
    ) -> Self {
        let writer = Writer { store, deliver, metrics, stop };
        let start = || {
            let writer = writer.clone();
            Gatherer::start(BOUNDS, partial, tracker, move |batch| {
                let writer = writer.clone();
                async move { by_tenant(&writer, batch, |one: &RecordedTry| one.tenant_id).await }
            })
        };
        Self { gatherers: Fan::open(GATHERERS, start) }
    }
}

/// Writes what was gathered.
#[derive(Clone)]
struct Writer {
    store: Store,
    deliver: Wake,
    metrics: Metrics,
    stop: CancellationToken,
}

impl WritesParts<RecordedTry> for Writer {
    type Written = ();
    type Error = StoreError;

    async fn write(&self, tenant_id: Uuid, part: &[RecordedTry]) -> Result<Vec<()>, StoreError> {
        let BreakersMoved { opened, closed } = self.store.record_tries(tenant_id, part).await?;
        fault::point("callback.recorded", "");
        self.metrics.breakers_moved(opened.len(), closed.len());
        if !opened.is_empty() || !closed.is_empty() {
            tracing::warn!(%tenant_id, ?opened, ?closed, "receivers fail and are left alone, or are back");
        }
        self.deliver.wake(tenant_id);
        Ok(vec![(); part.len()])
    }

    async fn refused(&self, error: StoreError, part: &[RecordedTry]) -> gather::Then<()> {
        if error.is_passing() {
            tracing::warn!(%error, tries = part.len(), "cannot record callbacks yet; trying again");
            return tokio::select! {
                () = tokio::time::sleep(AGAIN) => gather::Then::Again,
                () = self.stop.cancelled() => gather::Then::Answer(()),
            };
        }
        if part.len() > 1 {
            return gather::Then::Halves;
        }
        tracing::error!(%error, event_id = %part[0].event_id, "the database refused a callback's try");
        gather::Then::Answer(())
    }
}

/// What a dispatcher needs.
pub struct Dispatcher {
    /// Where callbacks are.
    pub store: Store,
    /// Opens what signs.
    pub vault: Vault,
    /// Calls receivers.
    pub client: Client,
    /// Where tries are recorded.
    pub recorder: Recorder,
    /// What is in hand, by tenant.
    pub in_hand: InHand,
    /// What is open, by receiver.
    pub doors: Doors,
    /// How claims are made.
    pub limits: ClaimLimits,
    /// The waits before each try.
    pub schedule: Schedule,
    /// How long a try may take, all of it.
    pub timeout: Duration,
    /// Counts tries.
    pub metrics: Metrics,
    /// Time and chance.
    pub clock: SharedClock,
    /// Keeps the deliveries that are under way.
    pub tracker: TaskTracker,
}

impl TakesTurns for Dispatcher {
    async fn take_turn(
        self: &Arc<Self>,
        due: &Due,
        mut slots: OwnedSemaphorePermit,
    ) -> Result<Turn, StoreError> {
        let tenant_id = due.tenant_id;
        let receivers = match self.in_hand.room(tenant_id) {
            Room::All => Receivers::All,
            Room::Proven => Receivers::Proven,
            // It is woken when one of them is recorded.
            Room::Nothing => return Ok(Turn { taken: 0, rest: REST }),
        };
        // Read before anything is claimed: an unsigned callback cannot be sent. And at every turn: what is claimed after a
        // rotation is signed by it, on every node.
        let live = self.store.signing_keys(tenant_id, &self.vault).await?;
        let keys: Arc<[_]> = live.into_iter().map(|one| one.key).collect();
        let claimed = self.store.claim_callbacks(tenant_id, receivers, &self.limits).await?;
        let taken = claimed.len();
        let twice = self.told_twice(tenant_id, &claimed).await;
        for one in claimed {
            let twice = twice.contains(&one.event_id);
            let slot = (slots.split(1), self.in_hand.hold(tenant_id, one.proven));
            let (dispatcher, keys) = (self.clone(), keys.clone());
            self.tracker.spawn(async move {
                let _slot = slot;
                dispatcher.send(one, &keys, twice).await;
            });
        }
        let rest = if taken == 0 { self.rest(tenant_id, receivers).await? } else { REST };
        Ok(Turn { taken, rest })
    }
}

impl Dispatcher {
    /// How long a tenant rests of which nothing could be claimed: until a receiver is free for what waits for it. An open
    /// breaker is asked about every few seconds by that, and not at every poll.
    async fn rest(&self, tenant_id: Uuid, receivers: Receivers) -> Result<Duration, StoreError> {
        let free = self.store.receiver_free(tenant_id, receivers).await?;
        // Nothing waits but for what is under way: here that ends with a wake-up, on another node with none.
        Ok(free.unwrap_or(REST).clamp(REST_MIN, REST_MOST))
    }

    /// Which events are to be delivered twice, because their account of the sandbox says so. Of others nothing is asked.
    async fn told_twice(&self, tenant_id: Uuid, claimed: &[ClaimedCallback]) -> HashSet<Uuid> {
        let of_sandbox = claimed.iter().filter(|one| one.tries == 0 && is_of_sandbox(&one.body));
        let of_sandbox = of_sandbox.map(|one| one.event_id).collect::<Vec<_>>();
        if of_sandbox.is_empty() {
            return HashSet::new();
        }
        let asked = self.store.sandbox_settings(tenant_id, &of_sandbox).await;
        // A rehearsal that fails is no reason to deliver nothing.
        let told = asked.unwrap_or_default().into_iter();
        let twice = told.filter(|(_, settings, external_id)| sandbox::tells_twice(settings, external_id));
        twice.map(|(event_id, ..)| event_id).collect()
    }

    async fn send(&self, one: ClaimedCallback, keys: &[SigningKey], twice: bool) {
        if one.tries == 0 {
            self.metrics.callback_begun(one.age_seconds);
        }
        let place = self.doors.pass((one.tenant_id, one.receiver.clone())).await;
        let id = one.event_id.to_string();
        let headers = signed_headers(&id, self.clock.now().timestamp(), &one.body, keys);
        let begun = self.clock.instant();
        let limits = Limits { deadline: self.timeout, answer_bytes: ANSWER_HEAD_BYTES };
        let (url, headers, body) = (&*one.url, &headers, one.body);
        fault::point("callback.sending", "");
        let answer = self.client.send(Call { method: Method::Post, url, headers, body, limits }).await;
        fault::point("callback.sent", "");
        let took = self.clock.instant() - begun;
        drop(place);
        let asked = answer.as_ref().ok().and_then(|answer| answer.retry_after.as_deref());
        let asked = asked.and_then(|text| retry_after(text, self.clock.now()));
        let tries = one.tries.saturating_add(1);
        let place = usize::try_from(tries - one.tries_before).unwrap_or(usize::MAX);
        let next = self.schedule.wait(place).map(|wait| jittered(wait, self.clock.fraction()));
        let status = answer.as_ref().ok().map(|answer| answer.status);
        let heard = Heard::of(status, asked);
        let then = match then(status, next, asked) {
            // As if the record of it had been lost.
            Then::Delivered if twice => Then::Again(Duration::ZERO),
            then => then,
        };
        let outcome = then.status();
        self.metrics.callback_tried(outcome);
        let (http_status, answer_head, error) = describe(answer);
        if then == Then::Delivered {
            tracing::info!(event_id = %one.event_id, tries, "callback delivered");
        } else {
            // Not the URL: it may hold a secret. The event's callback names it.
            tracing::warn!(event_id = %one.event_id, tries, outcome, http_status, error, "callback not delivered");
        }
        let (tenant_id, event_id, fence) = (one.tenant_id, one.event_id, one.fence);
        let record =
            RecordedTry { tenant_id, event_id, fence, took, http_status, answer_head, error, then, heard };
        // Not recorded: the service is stopping, and the lease will run out.
        let _ = self.recorder.gatherers.of(tenant_id).submit_patiently(record, 0).await;
    }
}

/// Whether an event may be about an article on the sandbox: only a caller's metadata can say so of another, and then it is
/// asked for nothing.
fn is_of_sandbox(body: &[u8]) -> bool {
    let told = format!("\"platform\":\"{}\"", sandbox::PLATFORM);
    body.windows(told.len()).any(|part| part == told.as_bytes())
}

fn describe(answer: Result<Answer, CallError>) -> (Option<u16>, Option<Vec<u8>>, Option<String>) {
    match answer {
        Ok(answer) => (Some(answer.status), Some(answer.head), None),
        Err(error) => (None, None, Some(error.to_string())),
    }
}

/// What follows a try: `status` of the answer if there was one, the `next` wait if the schedule has one left, and how
/// long the receiver asked to be left alone.
fn then(status: Option<u16>, next: Option<Duration>, asked: Option<Duration>) -> Then {
    match (status, next) {
        (Some(200..=299), _) => Then::Delivered,
        (Some(410), _) => Then::Gone,
        (_, Some(wait)) => Then::Again(wait.max(asked.unwrap_or_default())),
        (_, None) => Then::Exhausted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Option<Duration> = Some(Duration::from_secs(5));

    #[test]
    fn only_2xx_is_delivered_and_410_ends_it() {
        for status in [200, 201, 204, 299] {
            assert_eq!(then(Some(status), WAIT, None), Then::Delivered);
        }
        assert_eq!(then(Some(410), WAIT, None), Then::Gone);
        for status in
            [None, Some(199), Some(301), Some(302), Some(400), Some(404), Some(429), Some(500), Some(503)]
        {
            assert_eq!(then(status, WAIT, None), Then::Again(Duration::from_secs(5)), "{status:?}");
            assert_eq!(then(status, None, None), Then::Exhausted, "{status:?}");
        }
    }

    #[test]
    fn a_receiver_is_never_called_sooner_than_it_asked() {
        let minute = Some(Duration::from_mins(1));
        assert_eq!(then(Some(503), WAIT, minute), Then::Again(Duration::from_mins(1)));
        assert_eq!(then(Some(503), minute, WAIT), Then::Again(Duration::from_mins(1)));
        assert_eq!(then(Some(200), WAIT, minute), Then::Delivered);
    }
}
