//! `publish-ingest migrate`.

use clap::Args;
use serde_json::json;

use super::running::{self, Schema};
use super::{Database, Failure, print};
use crate::clock::SharedClock;
use crate::store::Store;

#[derive(Args)]
pub(super) struct Migrate {
    #[command(flatten)]
    database: Database,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Migrate {
    pub(super) async fn run(self, clock: SharedClock) -> Result<(), Failure> {
        let url = self.database.url()?;
        let store = Store::open(url, 1, clock)?;
        running::prepare(&store, url, Schema::Migrate).await?;
        let version = Store::schema_version();
        print(self.json, &json!({"schema": version}), &format!("the schema is up to date ({version})"));
        Ok(())
    }
}
