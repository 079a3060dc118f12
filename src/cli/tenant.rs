//! `publish-ingest tenant`.

use std::time::Duration;

use chrono::SecondsFormat;
use clap::builder::RangedI64ValueParser;
use clap::{Args, Subcommand, value_parser};
use serde_json::{Value, json};

use super::{Database, Failure, print, vault};
use crate::article::{OnDuplicate, callback_url};
use crate::callback::signature::{Scheme, SigningKey};
use crate::clock::SharedClock;
use crate::config::{BadSetting, Secret};
use crate::retry::{BadSchedule, WAIT_MAX, duration};
use crate::store::{DefaultsChange, LimitsSet, LiveKey, Rotation, Store, Tenant as StoredTenant};
use crate::tenant::limits::{ARTICLES_MAX, LimitsChange, REQUESTS_MAX};
use crate::tenant::{TenantName, public_keys_path};

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
    /// Set what holds for its articles that do not say otherwise, what its callbacks are signed by, and what it may ask for,
    /// from now on
    Set(Set),
    /// Replace what its callbacks are signed with, and print the new secret: it is shown only now
    RotateSigningSecret(RotateSigningSecret),
    /// List the tenants
    List {
        #[command(flatten)]
        database: Database,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args)]
#[command(group = clap::ArgGroup::new("change").required(true).multiple(true))]
pub(super) struct Set {
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
    /// What its callbacks are signed by: v1 (a secret that receivers share), v1a (a key pair), or both with a comma
    #[arg(long, group = "change", value_delimiter = ',', value_name = "v1|v1a|v1,v1a")]
    signatures: Vec<Scheme>,
    #[command(flatten)]
    limits: LimitFlags,
    /// Encrypts secrets at rest; needed with --signatures
    #[arg(long, env = "PUBLISH_MASTER_KEY", hide_env_values = true, value_name = "BASE64")]
    master_key: Option<Secret>,
    #[command(flatten)]
    database: Database,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What a tenant may ask for; holds on every node within 5 seconds.
#[derive(Args)]
struct LimitFlags {
    /// Requests a second, at each node
    #[arg(long, group = "change", value_parser = requests(), value_name = "N")]
    rate: Option<u32>,
    /// As many as come
    #[arg(long, group = "change", conflicts_with_all = ["rate", "burst"])]
    no_rate: bool,
    /// How many requests may come at once; not said with a new rate: as many as in a second
    #[arg(long, group = "change", value_parser = requests(), value_name = "N")]
    burst: Option<u32>,
    /// New articles a day, which begins at midnight in UTC
    #[arg(long, group = "change", value_parser = articles(), value_name = "N")]
    articles_per_day: Option<u32>,
    /// As many as come
    #[arg(long, group = "change", conflicts_with = "articles_per_day")]
    no_articles_per_day: bool,
}

fn requests() -> RangedI64ValueParser<u32> {
    value_parser!(u32).range(1..=i64::from(REQUESTS_MAX))
}

fn articles() -> RangedI64ValueParser<u32> {
    value_parser!(u32).range(1..=i64::from(ARTICLES_MAX))
}

impl LimitFlags {
    fn change(&self) -> LimitsChange {
        LimitsChange {
            per_second: if self.no_rate { Some(None) } else { self.rate.map(Some) },
            burst: self.burst,
            articles_per_day: if self.no_articles_per_day {
                Some(None)
            } else {
                self.articles_per_day.map(Some)
            },
        }
    }
}

#[derive(Args)]
pub(super) struct RotateSigningSecret {
    /// The tenant's name
    name: TenantName,
    /// How long callbacks carry a signature by the old one too, at most 168h
    #[arg(long, value_parser = overlap, value_name = "DURATION", default_value = "24h")]
    overlap: Duration,
    /// Encrypts secrets at rest: 32 bytes in base64
    #[arg(long, env = "PUBLISH_MASTER_KEY", hide_env_values = true, value_name = "BASE64")]
    master_key: Secret,
    #[command(flatten)]
    database: Database,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn overlap(text: &str) -> Result<Duration, String> {
    duration(text).map_err(|error| match error {
        BadSchedule::TooLong(..) => format!("the longest overlap is {}h", WAIT_MAX.as_secs() / 3_600),
        other => other.to_string(),
    })
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
            Self::Set(set) => set.run(clock).await?,
            Self::RotateSigningSecret(rotate) => rotate.run(clock).await?,
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

impl Set {
    async fn run(self, clock: SharedClock) -> Result<(), Failure> {
        let vault = match &self.master_key {
            Some(key) if !self.signatures.is_empty() => Some(vault(key)?),
            _ => None,
        };
        let store = self.database.open(clock).await?;
        let tenant = named(&store, &self.name).await?;
        let limits = self.limits.change();
        if !limits.is_none()
            && let LimitsSet::BurstAlone(alone) = store.set_limits(&tenant.name, &limits).await?
        {
            return Err(Failure::Told(alone.to_string()));
        }
        let mut schemes = self.signatures;
        schemes.sort_unstable();
        schemes.dedup();
        if !schemes.is_empty() {
            let why = "--signatures stores keys under it: set it as `serve` has it".to_owned();
            let vault =
                vault.ok_or(Failure::Settings(vec![BadSetting { name: "PUBLISH_MASTER_KEY", why }]))?;
            store.check_vault(&vault).await?;
            store.set_signatures(tenant.tenant_id, &schemes, &vault).await?;
        }
        let callback_url = if self.no_callback_url { Some(None) } else { self.callback_url.map(Some) };
        let change = DefaultsChange { callback_url, on_duplicate: self.on_duplicate };
        store.set_defaults(&tenant.name, &change).await?;
        let tenant = named(&store, &self.name).await?;
        print(self.json, &facts(&tenant), &described(&tenant));
        Ok(())
    }
}

impl RotateSigningSecret {
    async fn run(self, clock: SharedClock) -> Result<(), Failure> {
        let vault = vault(&self.master_key)?;
        let store = self.database.open(clock).await?;
        store.check_vault(&vault).await?;
        let tenant = named(&store, &self.name).await?;
        match store.rotate_signing_keys(tenant.tenant_id, self.overlap, &vault).await? {
            Rotation::Done(keys) => {
                let (facts, text) = rotated(&tenant, &keys);
                print(self.json, &facts, &text);
                Ok(())
            }
            Rotation::TooMany { until } => {
                let why = Rotation::too_many(until);
                Err(Failure::Told(format!("{why}, or with --overlap 0s, which ends the present one at once")))
            }
        }
    }
}

/// What signs from now on, and until when the old ones do. Of a key pair, only the public key is shown.
fn rotated(tenant: &StoredTenant, keys: &[LiveKey]) -> (Value, String) {
    let mut facts = json!({"tenant_id": tenant.tenant_id, "name": tenant.name});
    let (mut lines, mut ends) = (vec![format!("tenant {}", tenant.name)], Vec::new());
    for LiveKey { key, expires_at, .. } in keys {
        if let Some(ends_at) = expires_at {
            ends.push(*ends_at);
            continue;
        }
        match key {
            SigningKey::Secret(secret) => {
                facts["signing_secret"] = json!(*secret.expose());
                lines.push(format!("signing secret {}", *secret.expose()));
            }
            SigningKey::Pair(pair) => {
                facts["public_key"] = json!(pair.public_key());
                facts["public_keys_path"] = json!(public_keys_path(tenant.tenant_id));
                lines.push(format!("public key {}", pair.public_key()));
            }
        }
    }
    ends.sort_unstable();
    ends.dedup();
    let until = |end: &chrono::DateTime<_>| end.to_rfc3339_opts(SecondsFormat::Secs, true);
    lines.extend(ends.iter().map(|end| format!("an old one signs until {}", until(end))));
    facts["old_until"] = json!(ends);
    (facts, lines.join("\n"))
}

async fn named(store: &Store, name: &TenantName) -> Result<StoredTenant, Failure> {
    let name = name.as_str();
    let none = || Failure::Told(format!("there is no tenant {name}: see `publish-ingest tenant list`"));
    store.tenant_named(name).await?.ok_or_else(none)
}

fn facts(tenant: &StoredTenant) -> Value {
    json!({
        "tenant_id": tenant.tenant_id, "name": tenant.name, "created_at": tenant.created_at,
        "callback_url": tenant.defaults.callback_url, "on_duplicate": tenant.defaults.on_duplicate,
        "signatures": tenant.signatures.iter().map(|scheme| scheme.as_str()).collect::<Vec<_>>(),
        "rate": tenant.limits.rate.map(|rate| rate.per_second), "burst": tenant.limits.rate.map(|rate| rate.burst),
        "articles_per_day": tenant.limits.articles_per_day,
        "public_keys_path": public_keys(tenant),
    })
}

/// A tenant and its defaults, in a line.
fn described(tenant: &StoredTenant) -> String {
    let callback_url = tenant.defaults.callback_url.as_deref().unwrap_or("none");
    let on_duplicate = tenant.defaults.on_duplicate.as_str();
    let signatures = tenant.signatures.iter().map(|scheme| scheme.as_str()).collect::<Vec<_>>().join(",");
    let public_keys = public_keys(tenant).map(|path| format!("  public_keys {path}")).unwrap_or_default();
    let rate = tenant.limits.rate.map_or("none".to_owned(), |rate| format!("{}/s", rate.per_second));
    let burst = tenant.limits.rate.map(|rate| format!("  burst {}", rate.burst)).unwrap_or_default();
    let articles = tenant.limits.articles_per_day.map_or("none".to_owned(), |articles| articles.to_string());
    let name = &tenant.name;
    format!(
        "{name}  callback_url {callback_url}  on_duplicate {on_duplicate}  signatures {signatures}{public_keys}  rate \
         {rate}{burst}  articles_per_day {articles}"
    )
}

/// Where its public keys are, if it has some.
fn public_keys(tenant: &StoredTenant) -> Option<String> {
    tenant.signatures.contains(&Scheme::V1a).then(|| public_keys_path(tenant.tenant_id))
}
