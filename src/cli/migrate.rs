//! `publish-ingest migrate`.

use clap::Args;
use serde_json::json;

use super::running::{self, Schema};
use super::{Database, Failure, print};
use crate::clock::SharedClock;
use crate::store::Store;
use crate::telemetry::{self, LogFilter, LogFormat};

#[derive(Args)]
pub(super) struct Migrate {
    /// A role that `serve` is to run as, which gets what it needs there and no more; it must exist
    #[arg(long, env = "PUBLISH_GRANT", value_name = "ROLE")]
    grant: Option<String>,
    /// Distribute the tables of tenants over the machines of a Citus cluster, with their rows; stop all processes of the
    /// service first: each table is locked while it is moved
    #[arg(long)]
    distribute: bool,
    #[command(flatten)]
    database: Database,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Migrate {
    pub(super) async fn run(self, clock: SharedClock) -> Result<(), Failure> {
        // What it waits for is said while it waits.
        telemetry::start(&LogFilter::ours(), LogFormat::Text);
        let url = self.database.url()?;
        let store = Store::open(url, 1, clock)?;
        running::prepare(&store, url, Schema::Migrate).await?;
        let moved = if self.distribute { Some(store.distribute().await?) } else { None };
        let grant = self.grant.as_deref().filter(|role| !role.is_empty());
        if let Some(role) = grant {
            store.grant_rights(role).await?;
        }
        let version = Store::schema_version();
        let distributed = moved.as_ref().map(|moved| match moved.len() {
            0 => "; its tables were distributed already, and nothing was done".to_owned(),
            moved => format!("; {moved} tables were distributed by tenant"),
        });
        let distributed = distributed.unwrap_or_default();
        let granted = grant.map(|role| format!("; {role} may serve on it")).unwrap_or_default();
        let text = format!("the schema is up to date ({version}){distributed}{granted}");
        print(self.json, &json!({"schema": version, "granted": grant, "distributed": moved}), &text);
        Ok(())
    }
}
