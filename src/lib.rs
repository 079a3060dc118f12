//! The unified article API of a content platform.

pub mod account;
pub mod article;
pub mod callback;
pub mod clock;
pub mod connector;
pub mod gather;
pub mod json;
pub mod local_postgres;
pub mod outbound;
pub mod retry;
pub mod store;
pub mod task;
pub mod tenant;
pub mod turns;
pub mod vault;
