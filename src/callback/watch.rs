//! Showing operators how many receivers are left alone.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::clock::SharedClock;
use crate::retry::jittered;
use crate::store::Store;
use crate::telemetry::metrics::Metrics;

/// How often open breakers are counted: about as often as metrics are asked for, by an index that holds them alone.
pub const LOOK: Duration = Duration::from_secs(20);

/// Counts open breakers until stopped.
pub async fn open_breakers(store: Store, metrics: Metrics, clock: SharedClock, stop: CancellationToken) {
    loop {
        match store.breakers_open().await {
            Ok(open) => metrics.breakers_open(u32::try_from(open).unwrap_or(u32::MAX)),
            // It shows what it last saw.
            Err(error) => tracing::debug!(%error, "cannot count open breakers"),
        }
        let pause = tokio::time::sleep(jittered(LOOK, clock.fraction()));
        if stop.run_until_cancelled(pause).await.is_none() {
            return;
        }
    }
}
