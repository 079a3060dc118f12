//! The service from start to stop: its loops, its writers, its server.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::callback::deliver::{self, Dispatcher, Recorder};
use crate::clock::SharedClock;
use crate::connector::Connector;
use crate::connector::http_bridge::{self, HttpBridge};
use crate::connector::static_site::StaticSite;
use crate::http::{self, AppState};
use crate::outbound::{Client, Policy, SetupError};
use crate::retry::Schedule;
use crate::store::{ClaimLimits, Queue, Store, StoreError};
use crate::task::accept::Acceptor;
use crate::task::settle::{Settler, Settling, telling};
use crate::task::work::{self, Connectors, Worker};
use crate::turns::{Turns, Wake};
use crate::vault::Vault;

/// How long a stop waits for what is under way; what is not done by then is left to its lease.
pub const STOP_WITHIN: Duration = Duration::from_secs(10);

/// Connections for requests: four writers, and look-ups beside them.
const API_CONNECTIONS: u32 = 16;

/// Connections for the loops: claims and journals of many runs at once, each for a moment.
const LOOP_CONNECTIONS: u32 = 16;

/// All that a service is made from.
pub struct Plan {
    /// The database; its schema is up to date.
    pub database_url: String,
    /// Opens secrets.
    pub vault: Vault,
    /// Which addresses may be called.
    pub policy: Policy,
    /// Where `static_site` writes, and where that folder is served; none: the platform is off.
    pub site: Option<(PathBuf, String)>,
    /// The largest body, in bytes.
    pub body_limit: usize,
    /// How long a publication is held.
    pub lease: Duration,
    /// The waits after transient errors of a platform.
    pub retries: Schedule,
    /// The waits before each try of a callback.
    pub callback_schedule: Schedule,
    /// How long a callback may take.
    pub callback_timeout: Duration,
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
    stores: [Store; 2],
    stop: CancellationToken,
    server: tokio::task::JoinHandle<io::Result<()>>,
    tracker: TaskTracker,
}

impl Service {
    /// Starts the loops, and serves on `listener`; `more` routes stand beside the API's.
    pub fn start(plan: Plan, listener: TcpListener, more: Router<AppState>) -> Result<Self, CannotStart> {
        let clock = plan.clock.clone();
        let api = Store::open(&plan.database_url, API_CONNECTIONS, clock.clone())?;
        let loops = Store::open(&plan.database_url, LOOP_CONNECTIONS, clock.clone())?;
        let (stop, tracker) = (CancellationToken::new(), TaskTracker::new());
        let (work, deliver) = (Wake::default(), Wake::default());
        let acceptor = Acceptor::start(api.clone(), work.clone(), clock.clone(), &tracker);
        let state = AppState {
            store: api.clone(),
            acceptor,
            telling: telling(plan.callback_schedule.wait(0).unwrap_or_default()),
            work: work.clone(),
            deliver: deliver.clone(),
            policy: Arc::new(plan.policy.clone()),
            body_limit: plan.body_limit,
            clock: clock.clone(),
        };
        start_loops(plan, &loops, &work, &deliver, &stop, &tracker)?;
        let router = http::router(state, more);
        let stopping = stop.clone();
        let server = axum::serve(listener, router).with_graceful_shutdown(stopping.cancelled_owned());
        let server = tokio::spawn(async move { server.await });
        Ok(Self { stores: [api, loops], stop, server, tracker })
    }

    /// Stops: nothing new is claimed, answers under way are given, and what runs is finished, within
    /// [`STOP_WITHIN`]; the rest is left to its lease.
    pub async fn stop(self) {
        self.stop.cancel();
        self.tracker.close();
        let server = self.server.abort_handle();
        let ended = async {
            let _ = self.server.await;
            self.tracker.wait().await;
        };
        if tokio::time::timeout(STOP_WITHIN, ended).await.is_err() {
            tracing::warn!("stopped with work under way; it is taken up again when its lease has run out");
            server.abort();
        }
        let [api, loops] = &self.stores;
        let closing = async { tokio::join!(api.close(), loops.close()) };
        let _ = tokio::time::timeout(Duration::from_secs(1), closing).await;
    }
}

fn start_loops(
    plan: Plan,
    store: &Store,
    work: &Wake,
    deliver: &Wake,
    stop: &CancellationToken,
    tracker: &TaskTracker,
) -> Result<(), CannotStart> {
    let clock = plan.clock;
    let client = Client::new(plan.policy, clock.clone())?;
    let telling = telling(plan.callback_schedule.wait(0).unwrap_or_default());
    let settling = Settling {
        store: store.clone(),
        telling,
        work: work.clone(),
        deliver: deliver.clone(),
        stop: stop.clone(),
    };
    let owner = owner(&clock);
    let bridge = HttpBridge::new(client.clone(), plan.lease / 2, clock.clone());
    let mut connectors = Connectors::from([(http_bridge::PLATFORM, Arc::new(bridge) as Arc<dyn Connector>)]);
    if let Some((root, url)) = plan.site {
        connectors.insert("static_site", Arc::new(StaticSite::new(root, &url, clock.clone())));
    }
    let worker = Arc::new(Worker {
        store: store.clone(),
        vault: plan.vault.clone(),
        connectors,
        settler: Settler::start(settling, tracker),
        telling,
        deliver: deliver.clone(),
        limits: ClaimLimits { owner: owner.clone(), lease: plan.lease },
        retries: plan.retries,
        clock: clock.clone(),
        tracker: tracker.clone(),
        marker_keys: Mutex::new(HashMap::new()),
    });
    let dispatcher = Arc::new(Dispatcher {
        store: store.clone(),
        vault: plan.vault,
        client,
        recorder: Recorder::start(store.clone(), deliver.clone(), stop.clone(), tracker),
        limits: ClaimLimits { owner, lease: plan.callback_timeout + deliver::LEASE_MARGIN },
        schedule: plan.callback_schedule,
        timeout: plan.callback_timeout,
        clock: clock.clone(),
        tracker: tracker.clone(),
    });
    let turns = |queue, wake: &Wake, slots| Turns {
        store: store.clone(),
        queue,
        wake: wake.clone(),
        slots: Arc::new(Semaphore::new(slots)),
        clock: clock.clone(),
        stop: stop.clone(),
    };
    let working = turns(Queue::Publications, work, work::IN_HAND_MAX);
    let delivering = turns(Queue::Callbacks, deliver, deliver::IN_HAND_MAX);
    tracker.spawn(working.walk(worker));
    tracker.spawn(delivering.walk(dispatcher));
    Ok(())
}

/// A name that is new at every start: under a reused one, what a crash left behind would look alive.
fn owner(clock: &SharedClock) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}/{}", host.trim(), clock.new_id())
}
