//! The database that has been in use: made for a run, or kept for the next ones in a folder with the keys to it.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use publish_ingest::clock::{Clock as _, SystemClock};
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::database::Server;
use crate::program::{GROUPS, Tenant, World};
use crate::report::Report;
use crate::{Arguments, Failed, Part, TENANT, invariants, seed};

/// Its name on the server.
const DATABASE: &str = "used";

/// The memory of a sort or of a hash while all of a large database is looked at.
const WORK_MEMORY: &str = "512MB";

/// Where the server's files are, of a folder whose data is kept.
pub(crate) fn postgres(folder: &Path) -> PathBuf {
    folder.join("postgres")
}

/// The file of the keys to what is kept, written when all of it has been made.
fn keys(folder: &Path) -> PathBuf {
    folder.join("keys.json")
}

/// Whether a run was asked for one, or has kept one.
pub(crate) fn is_wanted(arguments: &Arguments) -> bool {
    arguments.finished > 0 || arguments.data.as_deref().is_some_and(|folder| keys(folder).exists())
}

/// Opens what is kept, or makes it, and seeds what is missing.
pub(crate) async fn open(
    report: &mut Report,
    arguments: &Arguments,
    server: &Server,
) -> Result<World, Failed> {
    let logs = &arguments.folder;
    let Some(folder) = arguments.data.as_deref() else {
        let world = World::make(server.create(DATABASE).await?, logs).await?;
        seed::seed(report, &world.url, TENANT, GROUPS, arguments.finished).await?;
        return Ok(world);
    };
    let world = if keys(folder).exists() {
        let kept: Value = serde_json::from_slice(&std::fs::read(keys(folder))?)?;
        let key = |name: &str| kept[name].as_str().map(str::to_owned).ok_or("keys.json lacks a key");
        let tenant = Tenant { api_key: key("api_key")? };
        World::again(server.url(DATABASE), logs, key("master_key")?, tenant).await?
    } else {
        let world = World::make(server.create(DATABASE).await?, logs).await?;
        let kept = json!({"master_key": world.master_key, "api_key": world.tenant.api_key});
        let mut file =
            std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(keys(folder))?;
        writeln!(file, "{kept:#}")?;
        world
    };
    seed::seed(report, &world.url, TENANT, GROUPS, arguments.finished).await?;
    Ok(world)
}

/// Whether all holds of a database that must hold of every one, if that is asked for.
pub(crate) async fn check(arguments: &Arguments, url: &str) -> Result<(), Failed> {
    if !arguments.only.contains(&Part::Check) {
        return Ok(());
    }
    let options: PgConnectOptions = url.parse()?;
    let options = options.options([("work_mem", WORK_MEMORY)]);
    let pool = PgPoolOptions::new().max_connections(1).connect_with(options).await?;
    let begun = SystemClock.instant();
    let broken = invariants::broken(&pool).await;
    pool.close().await;
    println!(
        "looked at all that must hold, {:.0} s: {} rules are broken",
        begun.elapsed().as_secs_f64(),
        broken.len()
    );
    if broken.is_empty() { Ok(()) } else { Err(broken.join("; ").into()) }
}
