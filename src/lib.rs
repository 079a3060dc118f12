//! The unified article API of a content platform.

pub mod article;
pub mod clock;
pub mod connector;
pub mod local_postgres;
