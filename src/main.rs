//! The program `publish-ingest`.

use std::process::ExitCode;

use mimalloc::MiMalloc;

// A quarter of the service's time went into the C library's allocator.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    publish_ingest::cli::main()
}
