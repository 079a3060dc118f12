//! Where requests come from, and how often something unknown may be asked for from there.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::ConnectInfo;
use axum::http::request::Parts;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::bucket::Bucket;
use super::limits::{Standing, Told, too_fast};
use crate::clock::SharedClock;
use crate::http::problem::Problem;
use crate::inbound::network;
use crate::recent::Recent;
use crate::tenant::limits::Rate;

/// How often something that does not exist may be asked for from one address: a person who mends a mistake stays below it, and
/// to look up what cannot be guessed anyway needs no more.
pub(in crate::http) const UNKNOWN: Rate = Rate { per_second: 1, burst: 30 };

/// How many look-ups of what is not known yet run at once for one address: what is good among them, as after a restart behind
/// a proxy, waits for its turn, and does not find the bucket empty.
const AT_ONCE: usize = 8;

/// How long the answer to whoever asked too often, or for the same again that is not there, is held back: a flood of its connections costs the node next to nothing
/// then, and nobody who behaves ever meets it.
pub(super) const HELD_BACK_FOR: Duration = Duration::from_millis(250);

/// How many such answers are held back at once: a part of the requests that a node takes, so that they keep out nobody.
const HELD_BACK_MAX: usize = 1_024;

/// How many addresses a node remembers; one that it forgets begins anew.
const ADDRESSES_MAX: usize = 10_000;

/// Where a request comes from: an address of IPv4 or, of IPv6, the /64 that one machine commonly has (RFC 6177 §2). Behind a
/// proxy it is the proxy's. `None` where the server does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(in crate::http) struct Address(Option<IpAddr>);

impl Address {
    pub(in crate::http) fn of(parts: &Parts) -> Self {
        let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>();
        Self(peer.map(|ConnectInfo(peer)| network(peer.ip())))
    }
}

/// How often something unknown was asked for, by address.
pub(in crate::http) struct Addresses {
    name: &'static str,
    what: &'static str,
    known: Mutex<Recent<Address, Asked>>,
    held_back: Semaphore,
    clock: SharedClock,
}

struct Asked {
    bucket: Bucket,
    turns: Arc<Semaphore>,
}

impl Addresses {
    /// `name` is the policy's in the headers, `what` says what is unknown.
    pub(in crate::http) fn new(name: &'static str, what: &'static str, clock: SharedClock) -> Self {
        let (known, held_back) = (Mutex::new(Recent::new(ADDRESSES_MAX)), Semaphore::new(HELD_BACK_MAX));
        Self { name, what, known, held_back, clock }
    }

    /// Holds back the answer to whoever asked too often, or for the same again.
    pub(in crate::http) async fn hold_back(&self) {
        if let Ok(_place) = self.held_back.try_acquire() {
            tokio::time::sleep(HELD_BACK_FOR).await;
        }
    }

    /// Waits for a turn, and takes one of what the address may ask for; it is lost unless it is given back.
    pub(in crate::http) async fn take(&self, address: Address, told: &Told) -> Result<Taken<'_>, Problem> {
        let turns = self.with(address, |asked| asked.turns.clone());
        let turn = turns.acquire_owned().await.map_err(|_| Problem::unavailable())?;
        let now = self.clock.moment();
        let taken = self.with(address, |asked| {
            let taken = asked.bucket.take(UNKNOWN, now);
            if taken.is_err() {
                told.tell(Standing::of_bucket(self.name, UNKNOWN, &asked.bucket));
            }
            taken
        });
        match taken {
            Ok(()) => Ok(Taken { addresses: self, address, _turn: turn }),
            Err(wait) => {
                let detail = format!("too many {} were asked for from this address: wait", self.what);
                Err(too_fast(detail, wait))
            }
        }
    }

    fn with<T>(&self, address: Address, what: impl FnOnce(&mut Asked) -> T) -> T {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(asked) = known.get(&address) {
            return what(asked);
        }
        let bucket = Bucket::full(self.clock.moment());
        let mut asked = Asked { bucket, turns: Arc::new(Semaphore::new(AT_ONCE)) };
        let result = what(&mut asked);
        known.insert(address, asked);
        result
    }
}

/// A turn of an address.
pub(in crate::http) struct Taken<'a> {
    addresses: &'a Addresses,
    address: Address,
    _turn: OwnedSemaphorePermit,
}

impl Taken<'_> {
    /// It was not unknown, or nobody can tell.
    pub(in crate::http) fn give_back(self) {
        self.addresses.with(self.address, |asked| asked.bucket.give_back(UNKNOWN));
    }
}
