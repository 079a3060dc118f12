//! Telling the caller.

pub mod deliver;
pub mod event;
pub mod signature;
