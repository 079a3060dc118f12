//! What every request passes before it costs the database something: known keys, and how fast each may come.

use std::sync::Arc;

use uuid::Uuid;

use super::problem::Problem;
use super::signing_secrets::{PublicKeyJwk, public_keys};
use crate::clock::SharedClock;
use crate::store::{AuthenticatedKey, Store};
use crate::tenant::ApiKey;
use crate::vault::Vault;

mod addresses;
mod bucket;
mod known;
mod limits;

pub(super) use addresses::Address;
pub(super) use limits::{Standing, Told, used_up};

use addresses::Addresses;
use known::Known;
use limits::Rates;

/// The public keys of a tenant.
pub(super) type PublicKeySet = Arc<[PublicKeyJwk]>;

/// Who may pass; cheap to clone.
#[derive(Clone)]
pub struct Gate(Arc<Inner>);

struct Inner {
    keys: Known<(Uuid, [u8; 32]), Arc<AuthenticatedKey>>,
    public_keys: Known<Uuid, PublicKeySet>,
    rates: Rates,
    store: Store,
}

impl Gate {
    /// A gate that knows nobody yet.
    #[must_use]
    pub fn new(store: Store, clock: SharedClock) -> Self {
        let wrong_keys = Addresses::new("wrong-keys", "API keys that do not exist", clock.clone());
        let no_keys = Addresses::new("no-public-keys", "public keys that do not exist", clock.clone());
        Self(Arc::new(Inner {
            keys: Known::new(wrong_keys, clock.clone()),
            public_keys: Known::new(no_keys, clock.clone()),
            rates: Rates::new(clock),
            store,
        }))
    }

    /// Whose key it is, within its tenant's rate; none if it is not known, or revoked.
    pub(super) async fn admit(
        &self,
        key: &ApiKey,
        address: Address,
        told: &Told,
    ) -> Result<Option<Arc<AuthenticatedKey>>, Problem> {
        let Inner { keys, rates, store, .. } = &*self.0;
        let look_up = async { Ok(store.authenticate(key).await?.map(Arc::new)) };
        let known = keys.get((key.tenant_id(), *key.hash()), (address, told), look_up).await?;
        if let Some(known) = &known
            && let Some(rate) = known.limits.rate
        {
            rates.pass(known.tenant_id, rate, told)?;
        }
        Ok(known)
    }

    /// The public keys of a tenant; none if it has none, or is none.
    pub(super) async fn public_keys(
        &self,
        tenant_id: Uuid,
        vault: &Vault,
        address: Address,
        told: &Told,
    ) -> Result<Option<PublicKeySet>, Problem> {
        let look_up = async {
            let keys = public_keys(self.0.store.signing_keys(tenant_id, vault).await?);
            Ok((!keys.is_empty()).then(|| keys.into()))
        };
        self.0.public_keys.get(tenant_id, (address, told), look_up).await
    }
}
