//! Which addresses a name leads to, judged each time that it is resolved.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::sync::Semaphore;

use super::address::{self, Policy};

/// Name look-ups under way at once: half of the runtime's 512 blocking threads, which the system's resolver holds
/// also after a call has given up on it.
const LOOKUPS_MAX: usize = 256;

/// Finds the addresses of a name.
pub(super) type Lookup = Arc<dyn Fn(String) -> LookingUp + Send + Sync>;
type LookingUp = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// Resolves names for the HTTP library and lets no address through that the policy refuses.
pub(super) struct Guard {
    pub(super) policy: Arc<Policy>,
    pub(super) lookup: Lookup,
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let (policy, lookup) = (self.policy.clone(), self.lookup.clone());
        Box::pin(async move {
            let addresses = if address::is_localhost(name.as_str()) {
                policy.loopback()
            } else {
                lookup(name.as_str().to_owned()).await?
            };
            if addresses.is_empty() {
                return Err(io::Error::from(io::ErrorKind::NotFound).into());
            }
            policy.check_resolved(&addresses)?;
            // Port 0 stands for the URL's port.
            let dialled = addresses.into_iter().map(|ip| SocketAddr::new(ip, 0));
            Ok(Box::new(dialled) as Addrs)
        })
    }
}

/// Asks the system.
pub(super) fn system_lookup() -> Lookup {
    let places = Arc::new(Semaphore::new(LOOKUPS_MAX));
    Arc::new(move |name| {
        let places = places.clone();
        Box::pin(async move {
            let place = places.acquire_owned().await.map_err(io::Error::other)?;
            // A task of its own: the system's resolver goes on when the call gives up, and must keep its place.
            let found = tokio::spawn(async move {
                let found = tokio::net::lookup_host((name, 0)).await;
                drop(place);
                found.map(|addresses| addresses.map(|address| address.ip()).collect())
            });
            found.await.map_err(io::Error::other)?
        })
    })
}
