//! Telling the caller.

pub mod deliver;
pub mod event;
pub mod feed;
pub mod replay;
pub mod signature;
pub mod status;
