//! Telling the caller.

pub mod signature;
