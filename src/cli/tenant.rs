//! `publish-ingest tenant`.

use clap::Subcommand;
use serde_json::json;

use super::{Database, Failure, print, vault};
use crate::clock::SharedClock;
use crate::config::Secret;
use crate::tenant::TenantName;

#[derive(Subcommand)]
pub(super) enum Tenant {
    /// Create a tenant, and print the secret that its callbacks are signed with
    Create {
        /// 1–63 of a-z 0-9 _ -, beginning with a letter or digit
        name: TenantName,
        /// Encrypts secrets at rest: 32 bytes in base64
        #[arg(long, env = "PUBLISH_MASTER_KEY", hide_env_values = true, value_name = "BASE64")]
        master_key: Secret,
        #[command(flatten)]
        database: Database,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// List the tenants
    List {
        #[command(flatten)]
        database: Database,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

impl Tenant {
    pub(super) async fn run(self, clock: SharedClock) -> Result<(), Failure> {
        match self {
            Self::Create { name, master_key, database, json } => {
                let vault = vault(&master_key)?;
                let store = database.open(clock).await?;
                store.check_vault(&vault).await?;
                let Some((tenant, secret)) = store.create_tenant(&name, &vault).await? else {
                    let name = name.as_str();
                    return Err(Failure::Told(format!(
                        "there is a tenant {name} already: choose another name"
                    )));
                };
                let secret = secret.expose();
                let facts = json!({
                    "tenant_id": tenant.tenant_id, "name": tenant.name, "created_at": tenant.created_at,
                    "signing_secret": *secret,
                });
                print(json, &facts, &format!("tenant {}\nsigning secret {}", tenant.name, *secret));
            }
            Self::List { database, json } => {
                let tenants = database.open(clock).await?.tenants().await?;
                let facts = tenants.iter().map(|tenant| {
                    json!({"tenant_id": tenant.tenant_id, "name": tenant.name, "created_at": tenant.created_at})
                });
                let lines = tenants.iter().map(|tenant| format!("{}  {}", tenant.tenant_id, tenant.name));
                print(
                    json,
                    &json!({"tenants": facts.collect::<Vec<_>>()}),
                    &lines.collect::<Vec<_>>().join("\n"),
                );
            }
        }
        Ok(())
    }
}
