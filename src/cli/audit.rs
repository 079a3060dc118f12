//! `publish-ingest audit`: what a platform shows of an account, held against what was recorded.

use clap::Args;
use secrecy::ExposeSecret as _;
use serde_json::json;
use uuid::Uuid;

use super::running::{self, Schema};
use super::{Failure, print};
use crate::account::{AccountKey, Credentials};
use crate::clock::SharedClock;
use crate::config::{Given, Runs, Settings};
use crate::connector::{Access, Connector, Listing};
use crate::gather::Partial;
use crate::lifecycle::{CannotStart, connectors};
use crate::outbound::Client;
use crate::store::{AccountRow, Store};
use crate::task::audit::{self, TOLD_MAX};
use crate::task::audit::{Finding, Findings, Report};
use crate::tenant::TenantName;
use crate::vault::Vault;

#[derive(Args)]
pub(super) struct Audit {
    /// The tenant's name
    tenant: TenantName,
    /// The account: its platform, a slash, and its id there
    #[arg(long, value_name = "PLATFORM/ID")]
    account: AccountKey,
    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    given: Given,
}

impl Audit {
    pub(super) async fn run(self, clock: SharedClock) -> Result<(), Failure> {
        let settings = running::settings(&self.given, Runs::Serve)?;
        let (Some(database_url), Some(master_key)) = (&settings.database_url, &settings.master_key) else {
            return Err(Failure::NoDatabase);
        };
        let database_url = database_url.0.expose_secret();
        let store = Store::open(database_url, 1, clock.clone())?;
        running::prepare(&store, database_url, Schema::Check).await?;
        let vault = Vault::new(master_key);
        store.check_vault(&vault).await?;
        let (tenant, key) = (self.tenant.as_str(), &self.account);
        let Some(tenant) = store.tenant_named(tenant).await? else {
            let why = format!("there is no tenant {tenant}: see `publish-ingest tenant list`");
            return Err(Failure::Told(why));
        };
        let Some(account) = store.account(tenant.tenant_id, key).await? else {
            let why = format!("{} has no account {key}: see `publish-ingest account list`", tenant.name);
            return Err(Failure::Told(why));
        };
        let credentials = store.credentials(tenant.tenant_id, key, &vault).await?;
        let access = access(tenant.name, tenant.tenant_id, account, credentials);
        let report = self.compare(&settings, (&store, vault), database_url, &access, clock).await?;
        print(self.json, &json!(report), &described(&report));
        if report.is_broken() {
            let (doubles, losses) = (report.doubles.count, report.losses.count);
            let why = format!("{key} does not hold each article once: doubles {doubles}, losses {losses}");
            return Err(Failure::Told(why));
        }
        Ok(())
    }

    async fn compare(
        &self,
        settings: &Settings,
        (store, vault): (&Store, Vault),
        database_url: &str,
        access: &Access,
        clock: SharedClock,
    ) -> Result<Report, Failure> {
        let policy = running::policy(settings, Runs::Serve);
        let site = settings.site_root.clone().zip(settings.site_url.clone());
        let plan = running::plan(settings, database_url, vault, policy.clone(), site, clock.clone());
        let client = Client::new(policy, clock).map_err(CannotStart::from)?;
        let connectors = connectors(&plan, &client, store, &Partial::at_once(1));
        let Some(connector) = connectors.get(self.account.platform()) else {
            let platform = self.account.platform();
            let why = format!(
                "the platform {platform} is not set up here: set what `serve` needs for it (static_site: PUBLISH_SITE_ROOT and PUBLISH_SITE_URL)"
            );
            return Err(Failure::Told(why));
        };
        let begun = store.now().await?;
        let mut audit = audit::Audit::default();
        list(&**connector, access, &mut audit).await?;
        let mut after = Some(Uuid::nil());
        while let Some(from) = after {
            let (recorded, next) = store.recorded(access.tenant_id, &self.account, begun, from).await?;
            for one in &recorded {
                audit.recorded(one);
            }
            after = next;
        }
        Ok(audit.end())
    }
}

fn access(tenant: String, tenant_id: Uuid, account: AccountRow, credentials: Option<Credentials>) -> Access {
    Access {
        tenant,
        tenant_id,
        account_id: account.account_id,
        settings: account.settings,
        credentials: credentials.unwrap_or_else(Credentials::none),
    }
}

/// Takes in all that the platform shows.
async fn list(connector: &dyn Connector, access: &Access, audit: &mut audit::Audit) -> Result<(), Failure> {
    let mut page = None;
    loop {
        match connector.list(access, page).await {
            Listing::Page { articles, next } => {
                for one in articles {
                    audit.listed(one).map_err(|error| Failure::Told(error.to_string()))?;
                }
                if next.is_none() {
                    return Ok(());
                }
                page = next;
            }
            Listing::CannotTell(why) => {
                return Err(Failure::Told(format!("nothing can be compared: {why}")));
            }
        }
    }
}

/// A report for people: a line for each kind, and under it one for each finding.
fn described(report: &Report) -> String {
    let mut lines = vec![format!("listed {}  recorded {}", report.listed, report.recorded)];
    for (name, kind) in [
        ("doubles", &report.doubles),
        ("losses", &report.losses),
        ("strangers", &report.strangers),
        ("public, and failed with us", &report.unrecorded),
        ("left-over drafts", &report.left_over_drafts),
        ("unfinished", &report.unfinished),
    ] {
        lines.push(format!("{name}: {}", kind.count));
        lines.extend(told(kind));
    }
    lines.join("\n")
}

fn told(kind: &Findings) -> Vec<String> {
    let mut lines = kind.found.iter().map(line).collect::<Vec<_>>();
    if kind.count > kind.found.len() {
        lines.push(format!("  … the first {TOLD_MAX} of them"));
    }
    lines
}

fn line(finding: &Finding) -> String {
    let status = finding.status.map(|status| status.to_string());
    let texts = [&finding.external_id, &status, &finding.marker, &finding.title];
    let texts = texts.into_iter().flatten().map(String::as_str);
    let places = if finding.urls.is_empty() { &finding.remote_ids } else { &finding.urls };
    format!("  {}", texts.chain(places.iter().map(String::as_str)).collect::<Vec<_>>().join("  "))
}
