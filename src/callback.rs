//! Telling the caller.

pub mod breaker;
pub mod deliver;
pub mod doors;
pub mod event;
pub mod feed;
pub mod replay;
pub mod share;
pub mod signature;
pub mod status;
pub mod watch;
