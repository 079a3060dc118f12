//! Connectors against real servers of others, on loopback: `cargo test --test platforms -- wordpress`.
//!
//! Not among the tests that `cargo test` runs by itself: the servers have to be installed (`.ci/platforms/install`). One that
//! is not there makes its tests fail; nothing is skipped in silence.
#![expect(clippy::unwrap_used, reason = "clippy.toml allows it in tests, but misses what tests share")]

mod ghost;
mod server;
mod wordpress;
