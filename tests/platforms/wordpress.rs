//! The `WordPress` connector against a real `WordPress`.

mod blog;
mod life;
mod logins;
mod media;
mod trouble;
