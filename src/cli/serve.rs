//! `publish-ingest serve`: the service against a database.

use axum::Router;
use clap::Args;
use secrecy::ExposeSecret;

use super::running::{self, Schema, Stop};
use super::{Failure, say};
use crate::clock::SharedClock;
use crate::config::{Given, Runs};
use crate::lifecycle::Service;
use crate::store::{Store, WorksAs};
use crate::vault::Vault;

#[derive(Args)]
pub(super) struct Serve {
    /// Bring the database's schema up to date first
    #[arg(long)]
    migrate: bool,

    #[command(flatten)]
    given: Given,
}

impl Serve {
    pub(super) async fn run(self, clock: SharedClock) -> Result<(), Failure> {
        let settings = running::settings(&self.given, Runs::Serve)?;
        let mut stop = Stop::listen();
        // Settings for `serve` have both.
        let (Some(database_url), Some(master_key)) = (&settings.database_url, &settings.master_key) else {
            return Err(Failure::NoDatabase);
        };
        let database_url = database_url.0.expose_secret();
        // Before the database: the likeliest mistake is told first.
        let listener = running::listen(settings.listen).await?;
        let address = listener.local_addr().unwrap_or(settings.listen);
        let store = Store::open(database_url, 1, clock.clone())?;
        let schema = if self.migrate { Schema::Migrate } else { Schema::Check };
        tokio::select! {
            prepared = running::prepare(&store, database_url, schema) => prepared?,
            () = stop.asked() => return Ok(()),
        }
        let vault = Vault::new(master_key);
        store.check_vault(&vault).await?;
        if let WorksAs::Owner(role) = store.works_as().await? {
            tracing::warn!(
                %role,
                "serving as a role that may change and drop the tables: `publish-ingest migrate --grant ROLE` lets another \
                 one serve, which may not"
            );
        }
        store.close().await;

        let policy = running::policy(&settings, Runs::Serve);
        let site = settings.site_root.clone().zip(settings.site_url.clone());
        let plan = running::plan(&settings, database_url, vault, policy, site, clock);
        let service = Service::start(plan, listener, Router::new())?;
        say(format_args!("publish-ingest is ready on http://{}", running::reachable(address)));
        tracing::info!(%address, roles = %settings.roles, version = env!("CARGO_PKG_VERSION"), "ready");
        Ok(running::until_asked(service, &mut stop).await?)
    }
}
