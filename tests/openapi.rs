//! The committed `OpenAPI` document is the one that is served.

use std::path::Path;

#[test]
fn the_committed_document_is_what_the_program_prints() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi.json");
    let printed = publish_ingest::http::openapi().to_pretty_json().unwrap() + "\n";
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        printed == committed,
        "openapi.json is out of date: write it anew with `cargo run -- openapi > openapi.json` and read the difference"
    );
}
