//! What the daily quotas leave this node.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use uuid::Uuid;

use crate::clock::{Moment, SharedClock};
use crate::recent::Recent;
use crate::store::{Grant, QuotaStanding, Store, StoreError};

/// How long a node takes a day for used up without asking again: another limit holds after that.
const USED_UP_FOR: Duration = Duration::from_secs(5);

/// Of how many tenants a node remembers how their quota stands; of others it asks once more.
const TENANTS_MAX: usize = 10_000;

/// What this node has seen of the quotas, and the shares of its writers.
#[derive(Clone)]
pub(super) struct Quotas {
    seen: Arc<Mutex<Recent<Uuid, Seen>>>,
    // Free ones: as many as there are writers, in the end.
    shares: Arc<Mutex<Vec<Uuid>>>,
    clock: SharedClock,
}

struct Seen {
    standing: QuotaStanding,
    used_up: bool,
    at: Moment,
}

/// A share that one writer has.
pub(super) struct Share {
    pub id: Uuid,
    free: Arc<Mutex<Vec<Uuid>>>,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(self.id);
    }
}

/// What is to be had for a share.
pub(super) enum More {
    Some,
    /// The day is used up.
    None(QuotaStanding),
    /// There is no quota any more.
    Unlimited,
}

impl Quotas {
    pub(super) fn new(clock: SharedClock) -> Self {
        let seen = Arc::new(Mutex::new(Recent::new(TENANTS_MAX)));
        Self { seen, shares: Arc::default(), clock }
    }

    /// A share that nobody else has meanwhile.
    pub(super) fn share(&self) -> Share {
        let free = self.shares.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Share { id: free.unwrap_or_else(|| self.clock.new_id()), free: self.shares.clone() }
    }

    /// Gets more for a share.
    pub(super) async fn more(
        &self,
        store: &Store,
        share: &Share,
        tenant_id: Uuid,
        wanted: u32,
    ) -> Result<More, StoreError> {
        let at = self.clock.moment();
        let granted = store.grant_quota(tenant_id, share.id, wanted).await?;
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let Grant::Given { amount, standing } = granted else {
            seen.remove(&tenant_id);
            return Ok(More::Unlimited);
        };
        seen.insert(tenant_id, Seen { standing, used_up: amount == 0, at });
        Ok(if amount == 0 { More::None(standing) } else { More::Some })
    }

    /// Those of the tenants whose day was just seen to be used up.
    pub(super) fn used_up(&self, tenants: impl Iterator<Item = Uuid>) -> HashMap<Uuid, QuotaStanding> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let holds = |tenant_id| {
            let seen = seen.get(&tenant_id).filter(|seen| seen.used_up)?;
            let still =
                self.clock.moment().after(seen.at) < USED_UP_FOR && self.clock.now() < seen.standing.until;
            still.then_some((tenant_id, seen.standing))
        };
        tenants.filter_map(holds).collect()
    }

    /// Notes that an article was accepted.
    pub(super) fn took_one(&self, tenant_id: Uuid) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(seen) = seen.get(&tenant_id) {
            seen.standing.left = seen.standing.left.saturating_sub(1);
        }
    }

    /// How a quota stands, as far as it was seen today.
    pub(super) fn standing(&self, tenant_id: Uuid) -> Option<QuotaStanding> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let standing = seen.get(&tenant_id)?.standing;
        (self.clock.now() < standing.until).then_some(standing)
    }
}
