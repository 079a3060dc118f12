//! The one HTTP client that calls what tenants name.

pub mod address;
pub mod retry_after;

pub use address::{Policy, Refusal, receiver};
pub use retry_after::{RETRY_AFTER_MAX, retry_after};
