//! `publish-ingest retention`.

use chrono::{DateTime, SecondsFormat, Utc};
use clap::Args;
use serde_json::{Value, json};

use super::{Database, Failure, print};
use crate::clock::SharedClock;
use crate::config::GivenKeep;
use crate::retention::keep::Keep;
use crate::store::{COUNTED_MOST, RemovalRow};

#[derive(Args)]
pub(super) struct Retention {
    #[command(flatten)]
    keep: GivenKeep,
    #[command(flatten)]
    database: Database,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Retention {
    pub(super) async fn run(self, clock: SharedClock) -> Result<(), Failure> {
        let keep = self.keep.read_alone(None).map_err(Failure::Settings)?;
        let store = self.database.open(clock).await?;
        let rows = store.removals(&keep).await?;
        print(self.json, &facts(&keep, &rows), &text(&keep, &rows));
        Ok(())
    }
}

fn facts(keep: &Keep, rows: &[RemovalRow]) -> Value {
    let tenants = rows.iter().map(|row| {
        json!({
            "tenant": row.tenant,
            "contents": {"removed": row.contents_removed, "removed_at": row.contents_removed_at, "next": row.contents_next,
                "kept_since": row.contents_kept_since},
            "events": {"removed": row.events_removed, "removed_at": row.events_removed_at, "next": row.events_next},
        })
    });
    let seconds = |keep: Option<std::time::Duration>| keep.map(|keep| keep.as_secs());
    json!({
        "keep_seconds": seconds(keep.contents), "keep_events_seconds": seconds(keep.events), "counted_most": COUNTED_MOST,
        "tenants": tenants.collect::<Vec<_>>(),
    })
}

fn text(keep: &Keep, rows: &[RemovalRow]) -> String {
    let kept = |keep: Option<std::time::Duration>| match keep {
        Some(keep) => format!("{}h", keep.as_secs() / 3_600),
        None => "for ever".to_owned(),
    };
    let head = format!("contents are kept {}, events {}", kept(keep.contents), kept(keep.events));
    let lines = rows.iter().map(|row| {
        let waiting = row.contents_kept_since.map_or(String::new(), |at| {
            format!("; of those looked at, the oldest that has not ended long enough is of {}", time(at))
        });
        format!(
            "{}  contents: {}{waiting}  events: {}",
            row.tenant,
            progress(row.contents_removed, row.contents_removed_at, row.contents_next),
            progress(row.events_removed, row.events_removed_at, row.events_next),
        )
    });
    std::iter::once(head).chain(lines).collect::<Vec<_>>().join("\n")
}

fn progress(removed: i64, at: Option<DateTime<Utc>>, next: i64) -> String {
    let last = at.map_or(String::new(), |at| format!(" (last {})", time(at)));
    let next = if next >= COUNTED_MOST { format!("{next} or more") } else { next.to_string() };
    format!("{removed} removed{last}, {next} old enough")
}

fn time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_far_a_tenant_is() {
        let at = DateTime::from_timestamp(1_700_000_000, 0);
        let row = RemovalRow {
            tenant: "acme".to_owned(),
            contents_removed: 12,
            contents_removed_at: at,
            contents_next: COUNTED_MOST,
            contents_kept_since: at,
            events_removed: 0,
            events_removed_at: None,
            events_next: 3,
        };
        let keep = Keep { events: None, ..Keep::DEFAULT };
        assert_eq!(
            text(&keep, &[row]),
            "contents are kept 2160h, events for ever\n\
            acme  contents: 12 removed (last 2023-11-14T22:13:20Z), 100000 or more old enough; of those looked at, the oldest \
            that has not ended long enough is of 2023-11-14T22:13:20Z  events: 0 removed, 3 old enough"
        );
    }
}
