//! Sending a range of callbacks again, step by step: what is to be done stands in the database, so whichever node is there
//! goes on with it.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use crate::fault;
use crate::store::{Due, Store, StoreError};
use crate::turns::{REST, TakesTurns, Turn, Wake};

/// Makes callbacks due again; the dispatchers send them.
pub struct Replayer {
    /// Where they are.
    pub store: Store,
    /// Wakes the dispatchers.
    pub deliver: Wake,
}

impl TakesTurns for Replayer {
    async fn take_turn(self: &Arc<Self>, due: &Due, _: OwnedSemaphorePermit) -> Result<Turn, StoreError> {
        let tenant_id = due.tenant_id;
        fault::point("replay.step", "");
        let taken = self.store.replay_step(tenant_id).await?;
        if taken > 0 {
            tracing::debug!(%tenant_id, callbacks = taken, "to be sent again");
            self.deliver.wake(tenant_id);
        }
        Ok(Turn { taken, rest: REST })
    }
}
