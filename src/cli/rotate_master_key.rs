//! `publish-ingest rotate-master-key`.

use clap::Args;
use serde_json::{Value, json};

use super::{Database, Failure, print, say, vault};
use crate::clock::SharedClock;
use crate::config::Secret;
use crate::store::{NotOpened, Resealed, SealedCount, StoreError};

/// After how many secrets it is said how far it is: every second or so.
const TOLD_EVERY: u64 = 1_000;

/// How many secrets that cannot be opened are named in the error: what fits a line; `--json` has all.
const NAMED_MAX: usize = 3;

#[derive(Args)]
pub(super) struct RotateMasterKey {
    /// The new key, a comma, the old one: each 32 bytes in base64
    #[arg(long, env = "PUBLISH_MASTER_KEY", hide_env_values = true, value_name = "BASE64,BASE64")]
    master_key: Secret,
    #[command(flatten)]
    database: Database,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl RotateMasterKey {
    pub(super) async fn run(self, clock: SharedClock) -> Result<(), Failure> {
        let vault = vault(&self.master_key)?;
        let store = self.database.open(clock).await?;
        let before = store.count_sealed(&vault).await?;
        if before.unknown > 0 {
            return Err(StoreError::OtherKey { other: before.unknown, all: before.all }.into());
        }
        let (left, quiet) = (before.left, self.json);
        let done = store.reseal(&vault, |resealed| {
            if !quiet && resealed > 0 && resealed.is_multiple_of(TOLD_EVERY) {
                say(format_args!("re-sealed {resealed} of {left}"));
            }
        });
        let done = done.await?;
        let after = store.count_sealed(&vault).await?;
        print(self.json, &facts(&done, after), &format!("re-sealed {} of {left}", done.resealed));
        if let Some(why) = unfinished(&done, after) {
            return Err(Failure::Told(why));
        }
        if !self.json {
            say(format_args!(
                "all {} secrets are stored under the first master key: once every process has it first, and this was run \
                 after the last of them started, take the second one away",
                after.all
            ));
        }
        Ok(())
    }
}

fn facts(done: &Resealed, after: SealedCount) -> Value {
    let not_opened = done
        .not_opened
        .iter()
        .map(|one| json!({"tenant": one.tenant, "secret": one.secret, "why": one.why.to_string()}));
    json!({
        "secrets": after.all, "resealed": done.resealed, "passed_over": done.passed_over, "left": after.left,
        "not_opened": not_opened.collect::<Vec<_>>(), "second_key_needed": after.left > 0,
    })
}

/// Why the second key must stay, and what to do.
fn unfinished(done: &Resealed, after: SealedCount) -> Option<String> {
    let named = |one: &NotOpened| format!("{} of tenant {}", one.secret, one.tenant);
    let named = done.not_opened.iter().take(NAMED_MAX).map(named).collect::<Vec<_>>().join(", ");
    let count = done.not_opened.len();
    if count > 0 {
        let more = if count > NAMED_MAX { ", …" } else { "" };
        return Some(format!(
            "{count} secrets are damaged or belong to other rows, and stay as they are ({named}{more}): restore them or put them \
             anew, and run this again; until then keep both master keys"
        ));
    }
    (after.left > 0).then(|| {
        format!(
            "{} of {} secrets are not under the first master key yet, since others wrote them meanwhile: see that every process \
             has it first, and run this again; until then keep both master keys",
            after.left, after.all
        )
    })
}
