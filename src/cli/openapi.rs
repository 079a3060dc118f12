//! `publish-ingest openapi`.

use super::{Failure, say};
use crate::http;

pub(super) fn run() -> Result<(), Failure> {
    let document = http::openapi().to_pretty_json().map_err(|error| Failure::Told(error.to_string()))?;
    say(document);
    Ok(())
}
