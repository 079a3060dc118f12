//! The program `publish-ingest`.

use std::process::ExitCode;

fn main() -> ExitCode {
    publish_ingest::cli::main()
}
