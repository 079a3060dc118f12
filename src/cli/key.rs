//! `publish-ingest key`.

use clap::Subcommand;
use serde_json::json;
use uuid::Uuid;

use super::{Database, Failure, print};
use crate::clock::SharedClock;
use crate::tenant::{ApiKey, Scope, TenantName};

#[derive(Subcommand)]
pub(super) enum Key {
    /// Create a key of a tenant, and print it: it is shown only now
    Create {
        /// The tenant's name
        tenant: TenantName,
        /// What it may do: publish, read, manage, with commas
        #[arg(long, value_delimiter = ',', required = true)]
        scopes: Vec<Scope>,
        #[command(flatten)]
        database: Database,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// List the keys of all tenants, without their secrets
    List {
        #[command(flatten)]
        database: Database,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// End a key
    Revoke {
        /// Its id, a UUID, as `key list` shows it
        #[arg(value_parser = key_id)]
        key_id: Uuid,
        #[command(flatten)]
        database: Database,
    },
}

fn key_id(text: &str) -> Result<Uuid, &'static str> {
    text.parse().map_err(|_| "a key's id is a UUID, as `key list` shows it")
}

impl Key {
    pub(super) async fn run(self, clock: SharedClock) -> Result<(), Failure> {
        match self {
            Self::Create { tenant, mut scopes, database, json } => {
                let store = database.open(clock.clone()).await?;
                let Some(tenant) = store.tenant_named(tenant.as_str()).await? else {
                    let name = tenant.as_str();
                    return Err(Failure::Told(format!(
                        "there is no tenant {name}: see `publish-ingest tenant list`"
                    )));
                };
                scopes.sort_by_key(|scope| scope.as_str());
                scopes.dedup();
                let key = ApiKey::generate(tenant.tenant_id, &*clock);
                let key_id = store.create_key(&key, &scopes).await?;
                let names = scopes.iter().map(|scope| scope.as_str()).collect::<Vec<_>>();
                let facts = json!({"key_id": key_id, "tenant": tenant.name, "scopes": names, "api_key": key.expose()});
                print(json, &facts, key.expose());
            }
            Self::List { database, json } => {
                let keys = database.open(clock).await?.keys().await?;
                let facts = keys.iter().map(|key| {
                    json!({
                        "key_id": key.key_id, "tenant": key.tenant, "scopes": key.scopes,
                        "created_at": key.created_at, "revoked_at": key.revoked_at,
                    })
                });
                let lines = keys.iter().map(|key| {
                    let state = if key.revoked_at.is_some() { "revoked" } else { "live" };
                    format!("{}  {}  {}  {state}", key.key_id, key.tenant, key.scopes.join(","))
                });
                print(
                    json,
                    &json!({"keys": facts.collect::<Vec<_>>()}),
                    &lines.collect::<Vec<_>>().join("\n"),
                );
            }
            Self::Revoke { key_id, database } => {
                if !database.open(clock).await?.revoke_key(key_id).await? {
                    return Err(Failure::Told(format!(
                        "there is no key {key_id}: see `publish-ingest key list`"
                    )));
                }
            }
        }
        Ok(())
    }
}
