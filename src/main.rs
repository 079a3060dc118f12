//! The program `publish-ingest`.

fn main() {}
