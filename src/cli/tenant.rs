//! `publish-ingest tenant`.

use clap::Subcommand;
use serde_json::{Value, json};

use super::{Database, Failure, print, vault};
use crate::article::{OnDuplicate, callback_url};
use crate::clock::SharedClock;
use crate::config::Secret;
use crate::store::{DefaultsChange, Tenant as StoredTenant};
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
    /// Set what holds for its articles that do not say otherwise, from now on
    #[command(group = clap::ArgGroup::new("change").required(true).multiple(true))]
    Set {
        /// The tenant's name
        name: TenantName,
        /// Where events are delivered
        #[arg(long, group = "change", value_parser = callback_url, value_name = "URL")]
        callback_url: Option<String>,
        /// Deliver none
        #[arg(long, group = "change", conflicts_with = "callback_url")]
        no_callback_url: bool,
        /// What to answer when an `external_id` exists: return its task, or reject the request
        #[arg(long, group = "change", value_name = "return|reject")]
        on_duplicate: Option<OnDuplicate>,
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
            Self::Set { name, callback_url, no_callback_url, on_duplicate, database, json } => {
                let callback_url = if no_callback_url { Some(None) } else { callback_url.map(Some) };
                let change = DefaultsChange { callback_url, on_duplicate };
                let name = name.as_str();
                let store = database.open(clock).await?;
                if !store.set_defaults(name, &change).await? {
                    return Err(Failure::Told(format!(
                        "there is no tenant {name}: see `publish-ingest tenant list`"
                    )));
                }
                if let Some(tenant) = store.tenant_named(name).await? {
                    print(json, &facts(&tenant), &described(&tenant));
                }
            }
            Self::List { database, json } => {
                let tenants = database.open(clock).await?.tenants().await?;
                let lines =
                    tenants.iter().map(|tenant| format!("{}  {}", tenant.tenant_id, described(tenant)));
                print(
                    json,
                    &json!({"tenants": tenants.iter().map(facts).collect::<Vec<_>>()}),
                    &lines.collect::<Vec<_>>().join("\n"),
                );
            }
        }
        Ok(())
    }
}

fn facts(tenant: &StoredTenant) -> Value {
    json!({
        "tenant_id": tenant.tenant_id, "name": tenant.name, "created_at": tenant.created_at,
        "callback_url": tenant.defaults.callback_url, "on_duplicate": tenant.defaults.on_duplicate,
    })
}

/// A tenant and its defaults, in a line.
fn described(tenant: &StoredTenant) -> String {
    let callback_url = tenant.defaults.callback_url.as_deref().unwrap_or("none");
    let on_duplicate = tenant.defaults.on_duplicate.as_str();
    format!("{}  callback_url {callback_url}  on_duplicate {on_duplicate}", tenant.name)
}
