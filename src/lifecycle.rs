//! The service from start to stop: its loops, its writers, its server.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::callback::deliver::{self, Dispatcher, Recorder};
use crate::callback::doors::Doors;
use crate::callback::feed::Feeds;
use crate::callback::replay::Replayer;
use crate::callback::share::{self, InHand};
use crate::callback::watch;
use crate::clock::SharedClock;
use crate::config::Roles;
use crate::connector::Connector;
use crate::connector::ghost::{self, Ghost};
use crate::connector::http_bridge::{self, HttpBridge};
use crate::connector::media::Media;
use crate::connector::sandbox::{self, Sandbox};
use crate::connector::static_site::StaticSite;
use crate::connector::wordpress::{self, WordPress};
use crate::gather::Partial;
use crate::http::{self, AppState, Bounds, Gate, Outer, Readiness};
use crate::inbound::{self, Door, Limits};
use crate::outbound::{Client, Policy, SetupError};
use crate::retention::keep::Keep;
use crate::retention::{KINDS, Remover};
use crate::retry::Schedule;
use crate::store::{CLAIM_MOST, ClaimLimits, LOGIN_EXPIRED, Queue, Store, StoreError, Telling, Then};
use crate::task::accept::Acceptor;
use crate::task::run::OUTCOME_UNKNOWN;
use crate::task::scribe::Scribe;
use crate::task::settle::{Settler, Settling, telling};
use crate::task::work::{self, Connectors, Worker};
use crate::telemetry::metrics::Metrics;
use crate::turns::{Turns, Wake};
use crate::vault::Vault;

mod idle;

/// How long a stop takes at most, whatever receivers and callers do; what is not done by then is left to its lease.
pub const STOP_WITHIN: Duration = Duration::from_secs(10);

/// How much of it is kept for closing the connections to the database.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);

/// Connections for requests: four writers, and look-ups beside them.
const API_CONNECTIONS: u32 = 16;

/// Connections of a node without the role `api`: it is only asked whether it is ready.
const READY_CONNECTIONS: u32 = 2;

/// Connections for the loops: claims and journals of many runs at once, each for a moment.
const LOOP_CONNECTIONS: u32 = 16;

/// Connections for the walks' questions what is due: one for each walk.
const LOOK_CONNECTIONS: u32 = 3;

/// Connections of the sandbox, apart from the loops': what is rehearsed takes nothing from what is meant.
const SANDBOX_CONNECTIONS: u32 = 4;

/// All that a service is made from.
pub struct Plan {
    /// What this node does.
    pub roles: Roles,
    /// The database; its schema is up to date.
    pub database_url: String,
    /// Opens secrets.
    pub vault: Vault,
    /// Which addresses may be called.
    pub policy: Policy,
    /// Where `static_site` writes, and where that folder is served; none: the platform is off.
    pub site: Option<(PathBuf, String)>,
    /// What can be published to besides what is built in: platforms that a test plays.
    pub connectors: Connectors,
    /// The largest body, in bytes.
    pub body_limit: usize,
    /// How much callers may take.
    pub inbound: Limits,
    /// The most articles in one statement; none: as many as is best.
    pub accept_rows: Option<NonZeroUsize>,
    /// How long a publication is held.
    pub lease: Duration,
    /// The waits after transient errors of a platform.
    pub retries: Schedule,
    /// The waits before each try of a callback.
    pub callback_schedule: Schedule,
    /// How long a callback may take.
    pub callback_timeout: Duration,
    /// How long contents, journals and events are kept.
    pub keep: Keep,
    /// Time and chance.
    pub clock: SharedClock,
}

/// Why a service cannot start.
#[derive(Debug, thiserror::Error)]
pub enum CannotStart {
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The client that calls out.
    #[error(transparent)]
    Client(#[from] SetupError),
}

/// A running service.
pub struct Service {
    stores: Vec<Store>,
    stop: CancellationToken,
    server: tokio::task::JoinHandle<()>,
    tracker: TaskTracker,
}

impl Service {
    /// Starts what the node's roles ask for, and serves on `listener`; `more` routes stand beside the service's.
    pub fn start(plan: Plan, listener: TcpListener, more: Router) -> Result<Self, CannotStart> {
        let (stop, tracker) = (CancellationToken::new(), TaskTracker::new());
        let (work, feed) = (Wake::default(), Wake::default());
        let deliver = Wake::default().and(feed.clone());
        let client = Client::new(plan.policy.clone(), plan.clock.clone())?;
        let sandbox = Store::open_patient(&plan.database_url, SANDBOX_CONNECTIONS, plan.clock.clone())?;
        let partial = Partial::at_once(work::PARTIAL);
        let shared = Shared {
            connectors: connectors(&plan, &client, &sandbox, &partial),
            partial,
            telling: telling(plan.callback_schedule.wait(0).unwrap_or_default()),
            client,
            metrics: Metrics::new(),
            work,
            deliver,
            replays: Wake::default(),
            feed,
            stop: stop.clone(),
            tracker: tracker.clone(),
        };
        let verdicts = ["published", OUTCOME_UNKNOWN, LOGIN_EXPIRED];
        let outcomes = [Then::Delivered, Then::Exhausted, Then::Gone].map(Then::status);
        shared.metrics.expect(shared.connectors.keys().copied(), &verdicts, &outcomes);
        tracker.spawn(shared.metrics.clone().keep(stop.clone()));
        let (router, store) = router(&plan, more, &shared)?;
        let clock = plan.clock.clone();
        let door = Door { limits: plan.inbound, refusal: http::refusal(clock.clone()), clock };
        shared.watch_pool("api", &store);
        let mut stores = vec![store, sandbox];
        if plan.roles.worker || plan.roles.dispatcher {
            let store = Store::open(&plan.database_url, LOOP_CONNECTIONS, plan.clock.clone())?;
            shared.watch_pool("loops", &store);
            let looks = Store::open_for_looks(&plan.database_url, LOOK_CONNECTIONS, plan.clock.clone())?;
            stores.extend([store.clone(), looks.clone()]);
            Loops { plan, shared, store, looks }.start();
        }
        let server = tokio::spawn(inbound::serve(listener, router, door, stop.clone()));
        Ok(Self { stores, stop, server, tracker })
    }

    /// Stops: the node calls itself not ready, no connection is accepted and nothing new is claimed; answers under way
    /// are given, and what runs is finished. All within [`STOP_WITHIN`]; the rest is left to its lease.
    pub async fn stop(self) {
        self.stop.cancel();
        self.tracker.close();
        let server = self.server.abort_handle();
        let ended = async {
            let _ = self.server.await;
            self.tracker.wait().await;
        };
        if tokio::time::timeout(STOP_WITHIN.saturating_sub(CLOSE_WITHIN), ended).await.is_err() {
            tracing::warn!("stopped with work under way; it is taken up again when its lease has run out");
            server.abort();
        }
        let closing = async {
            for store in &self.stores {
                store.close().await;
            }
        };
        let _ = tokio::time::timeout(CLOSE_WITHIN, closing).await;
    }
}

/// What the doors and the loops of a service have in common.
struct Shared {
    client: Client,
    metrics: Metrics,
    connectors: Connectors,
    /// Of the loops and the sandbox.
    partial: Partial,
    telling: Telling,
    work: Wake,
    /// Woken with `deliver`: who waits for events.
    feed: Wake,
    deliver: Wake,
    /// Woken when a range is to be sent again.
    replays: Wake,
    stop: CancellationToken,
    tracker: TaskTracker,
}

impl Shared {
    fn watch_pool(&self, pool: &'static str, store: &Store) {
        let store = store.clone();
        self.metrics.watch_pool(pool, move || store.connections());
    }
}

/// What is served, by the node's roles, and the store that it asks.
fn router(plan: &Plan, more: Router, shared: &Shared) -> Result<(Router, Store), StoreError> {
    let clock = plan.clock.clone();
    let connections = if plan.roles.api { API_CONNECTIONS } else { READY_CONNECTIONS };
    let store = Store::open(&plan.database_url, connections, clock.clone())?;
    let readiness = Readiness { store: store.clone(), stopping: shared.stop.clone() };
    let bounds = Bounds::new(&plan.inbound);
    if !plan.roles.api {
        let outer = Outer { bounds, metrics: shared.metrics.clone(), clock };
        return Ok((http::router_without_api(readiness, more, outer), store));
    }
    let (stop, tracker) = (shared.stop.clone(), &shared.tracker);
    let feeds = Feeds::start(store.clone(), shared.feed.clone(), clock.clone(), stop, tracker);
    let waiting = feeds.clone();
    shared.metrics.watch_feeds(move || waiting.count());
    let state = AppState::new(http::Api {
        store: store.clone(),
        gate: Gate::new(store.clone(), clock.clone()),
        readiness,
        acceptor: Acceptor::start(
            plan.accept_rows,
            store.clone(),
            shared.work.clone(),
            &shared.metrics,
            clock.clone(),
            tracker,
        ),
        vault: plan.vault.clone(),
        connectors: shared.connectors.clone(),
        telling: shared.telling,
        work: shared.work.clone(),
        deliver: shared.deliver.clone(),
        replays: shared.replays.clone(),
        feeds,
        policy: Arc::new(plan.policy.clone()),
        body_limit: plan.body_limit,
        bounds,
        metrics: shared.metrics.clone(),
        clock,
    });
    Ok((http::router(state, more), store))
}

/// What the loops are made from.
struct Loops {
    plan: Plan,
    shared: Shared,
    store: Store,
    looks: Store,
}

impl Loops {
    fn start(self) {
        let owner = owner(&self.plan.clock);
        let (work, deliver, tracker) = (&self.shared.work, &self.shared.deliver, &self.shared.tracker);
        if self.plan.roles.worker {
            let turns = self.turns(Queue::Publications, work, work::IN_HAND_MAX);
            tracker.spawn(turns.walk(Arc::new(self.worker(&owner))));
            tracker.spawn(self.remover().run(self.shared.stop.clone()));
        }
        if self.plan.roles.dispatcher {
            let turns = self.turns(Queue::Callbacks, deliver, share::IN_HAND_MAX);
            tracker.spawn(turns.walk(Arc::new(self.dispatcher(&owner))));
            tracker.spawn(watch::open_breakers(
                self.store.clone(),
                self.shared.metrics.clone(),
                self.plan.clock.clone(),
                self.shared.stop.clone(),
            ));
            // It takes one turn at a time.
            let turns = self.turns(Queue::Replays, &self.shared.replays, CLAIM_MOST);
            let replayer = Replayer { store: self.store.clone(), deliver: deliver.clone() };
            tracker.spawn(turns.walk(Arc::new(replayer)));
        }
    }

    fn worker(&self, owner: &str) -> Worker {
        let (plan, shared) = (&self.plan, &self.shared);
        let settling = Settling {
            store: self.store.clone(),
            telling: shared.telling,
            work: shared.work.clone(),
            deliver: shared.deliver.clone(),
            stop: shared.stop.clone(),
        };
        Worker {
            store: self.store.clone(),
            vault: plan.vault.clone(),
            connectors: shared.connectors.clone(),
            settler: Settler::start(&settling, &shared.partial, &shared.tracker),
            scribe: Scribe::start(self.store.clone(), &shared.partial, &shared.tracker),
            telling: shared.telling,
            deliver: shared.deliver.clone(),
            limits: ClaimLimits { owner: owner.to_owned(), lease: plan.lease },
            retries: plan.retries.clone(),
            metrics: shared.metrics.clone(),
            clock: plan.clock.clone(),
            tracker: shared.tracker.clone(),
            room: Arc::new(Semaphore::new(work::IN_HAND_KIB)),
            marker_keys: Mutex::new(HashMap::new()),
        }
    }

    fn remover(&self) -> Remover {
        self.shared.metrics.expect_removal(&KINDS);
        Remover {
            store: self.store.clone(),
            keep: self.plan.keep,
            metrics: self.shared.metrics.clone(),
            clock: self.plan.clock.clone(),
        }
    }

    fn dispatcher(&self, owner: &str) -> Dispatcher {
        let (plan, shared) = (&self.plan, &self.shared);
        let (deliver, stop) = (shared.deliver.clone(), shared.stop.clone());
        Dispatcher {
            store: self.store.clone(),
            vault: plan.vault.clone(),
            client: shared.client.clone(),
            recorder: Recorder::start(
                self.store.clone(),
                deliver,
                shared.metrics.clone(),
                stop,
                &shared.partial,
                &shared.tracker,
            ),
            in_hand: InHand::default(),
            doors: Doors::default(),
            limits: ClaimLimits {
                owner: owner.to_owned(),
                lease: plan.callback_timeout + deliver::LEASE_MARGIN,
            },
            schedule: plan.callback_schedule.clone(),
            timeout: plan.callback_timeout,
            metrics: shared.metrics.clone(),
            clock: plan.clock.clone(),
            tracker: shared.tracker.clone(),
        }
    }

    fn turns(&self, queue: Queue, wake: &Wake, slots: usize) -> Turns {
        Turns {
            store: self.looks.clone(),
            queue,
            wake: wake.clone(),
            poll: idle::poll(queue, self.plan.roles),
            slots: Arc::new(Semaphore::new(slots)),
            metrics: self.shared.metrics.clone(),
            clock: self.plan.clock.clone(),
            stop: self.shared.stop.clone(),
        }
    }
}

/// The platforms that a plan sets up.
#[must_use]
pub fn connectors(plan: &Plan, client: &Client, sandbox: &Store, partial: &Partial) -> Connectors {
    let clock = || plan.clock.clone();
    let bridge: Arc<dyn Connector> = Arc::new(HttpBridge::new(client.clone(), plan.lease / 2, clock()));
    let sandbox: Arc<dyn Connector> = Arc::new(Sandbox::new(sandbox.clone(), partial));
    // One for all connectors: it bounds what a node holds of images.
    let media = Media::new(client.clone(), clock());
    let ghost: Arc<dyn Connector> =
        Arc::new(Ghost::new(client.clone(), media.clone(), plan.lease / 2, clock()));
    let wordpress: Arc<dyn Connector> =
        Arc::new(WordPress::new(client.clone(), media, plan.lease / 2, clock()));
    let mut connectors = Connectors::from([
        (ghost::PLATFORM, ghost),
        (http_bridge::PLATFORM, bridge),
        (sandbox::PLATFORM, sandbox),
        (wordpress::PLATFORM, wordpress),
    ]);
    if let Some((root, url)) = plan.site.clone() {
        connectors.insert("static_site", Arc::new(StaticSite::new(root, &url, clock())));
    }
    connectors.extend(plan.connectors.clone());
    connectors
}

/// A name that is new at every start: under a reused one, what a crash left behind would look alive.
fn owner(clock: &SharedClock) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}/{}", host.trim(), clock.new_id())
}
