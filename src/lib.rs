//! The unified article API of a content platform.

pub mod account;
pub mod article;
pub mod callback;
pub mod cli;
pub mod clock;
pub mod config;
pub mod connector;
pub mod gather;
pub mod http;
pub mod json;
pub mod lifecycle;
pub mod local_postgres;
pub mod outbound;
pub mod retry;
pub mod store;
pub mod task;
pub mod telemetry;
pub mod tenant;
pub mod turns;
pub mod vault;
