//! `publish-ingest openapi`.

use super::Failure;
use crate::http;

pub(super) fn run() -> Result<(), Failure> {
    let document = http::openapi().to_pretty_json().map_err(|error| Failure::Told(error.to_string()))?;
    println!("{document}");
    Ok(())
}
