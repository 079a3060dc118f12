//! `publish-ingest callback`.

use std::fmt::Write as _;

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::remote::{Remote, lines, list, part, shown};
use super::{Failure, print};

#[derive(Subcommand)]
pub(super) enum Callback {
    /// List callbacks, the newest first
    List(List),
    /// Show a callback, with every try
    Show {
        /// The event, as in the header webhook-id
        event_id: String,
        #[command(flatten)]
        remote: Remote,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Send a callback again, or all of a time and a status
    Replay(Replay),
    /// Show how far a replay of a range is
    Progress {
        /// What `callback replay` printed
        replay_id: String,
        #[command(flatten)]
        remote: Remote,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args)]
pub(super) struct List {
    /// Of this status alone: pending, delivered, exhausted or gone
    #[arg(long)]
    status: Option<String>,
    /// Of this article alone
    #[arg(long)]
    external_id: Option<String>,
    /// How many at most, up to 200
    #[arg(long)]
    limit: Option<u32>,
    /// Where the page before ended
    #[arg(long)]
    cursor: Option<String>,
    #[command(flatten)]
    remote: Remote,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub(super) struct Replay {
    /// The event, as in the header webhook-id
    #[arg(required_unless_present = "since")]
    event_id: Option<String>,
    /// Instead of one: those whose events were written at this time (RFC 3339) or later
    #[arg(long, value_name = "TIME", conflicts_with = "event_id", requires = "status")]
    since: Option<String>,
    /// And before this time; now if not given
    #[arg(long, value_name = "TIME", requires = "since", conflicts_with = "event_id")]
    until: Option<String>,
    /// And of this status: pending, delivered, exhausted or gone
    #[arg(long, requires = "since", conflicts_with = "event_id")]
    status: Option<String>,
    #[command(flatten)]
    remote: Remote,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl List {
    fn path(&self) -> String {
        let limit = self.limit.map(|limit| limit.to_string());
        let given = [
            ("status", self.status.as_deref()),
            ("external_id", self.external_id.as_deref()),
            ("limit", limit.as_deref()),
            ("cursor", self.cursor.as_deref()),
        ];
        let given = given.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let query = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(given).finish();
        format!("/callbacks?{query}")
    }
}

impl Replay {
    /// Where to ask for it, and with what.
    fn request(&self) -> (String, Value) {
        if let Some(event_id) = &self.event_id {
            return (format!("/callbacks/{}/replay", part(event_id)), json!({}));
        }
        let given = [("since", &self.since), ("until", &self.until), ("status", &self.status)];
        let given = given
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), Value::from(value.as_deref()?))));
        ("/callbacks/replay".to_owned(), given.collect::<Map<_, _>>().into())
    }
}

impl Callback {
    pub(super) async fn run(self) -> Result<(), Failure> {
        match self {
            Self::List(asked) => {
                let answer = asked.remote.get(&asked.path()).await?;
                let mut text = lines(list(&answer, "callbacks"), item);
                if let Some(cursor) = answer["next_cursor"].as_str() {
                    let _ = write!(text, "\nmore: --cursor {cursor}");
                }
                print(asked.json, &answer, &text);
            }
            Self::Show { event_id, remote, json } => {
                let answer = remote.get(&format!("/callbacks/{}", part(&event_id))).await?;
                print(json, &answer, &callback(&answer));
            }
            Self::Replay(replay) => {
                let (path, body) = replay.request();
                let answer = replay.remote.post(&path, &body).await?;
                let text = if replay.event_id.is_some() { callback(&answer) } else { progress(&answer) };
                print(replay.json, &answer, &text);
            }
            Self::Progress { replay_id, remote, json } => {
                let answer = remote.get(&format!("/callbacks/replay/{}", part(&replay_id))).await?;
                print(json, &answer, &progress(&answer));
            }
        }
        Ok(())
    }
}

fn item(one: &Value) -> String {
    let names =
        ["event_id", "status", "type", "external_id", "platform", "account_id", "attempts", "http_status"];
    names.map(|name| shown(one, name)).join("  ")
}

fn callback(callback: &Value) -> String {
    let head = ["event_id", "status", "url", "next_try_at", "held_until"]
        .map(|name| shown(callback, name))
        .join("  ");
    let one = |one: &Value| {
        let said = ["at", "http_status", "duration_ms", "error"].map(|name| shown(one, name)).join("  ");
        format!("  {said}")
    };
    let tries = list(callback, "tries");
    if tries.is_empty() { head } else { format!("{head}\n{}", lines(tries, one)) }
}

fn progress(replay: &Value) -> String {
    let told = ["replay_id", "status", "replayed", "matched"].map(|name| shown(replay, name));
    let [replay_id, status, replayed, matched] = told;
    format!("{replay_id}  {status}  {replayed} of {matched}")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(subcommand)]
        callback: Callback,
    }

    fn request(arguments: &[&str]) -> Result<(String, Value), String> {
        let arguments = ["x", "replay"].into_iter().chain(arguments.iter().copied());
        match Program::try_parse_from(arguments).map_err(|error| error.to_string())?.callback {
            Callback::Replay(replay) => Ok(replay.request()),
            _ => Err("another command".to_owned()),
        }
    }

    #[test]
    fn one_is_replayed_or_a_range() {
        assert_eq!(request(&["a/b"]), Ok(("/callbacks/a%2Fb/replay".to_owned(), json!({}))));
        let range = ["--since", "2030-01-31T09:00:00Z", "--status", "exhausted"];
        let body = json!({"since": "2030-01-31T09:00:00Z", "status": "exhausted"});
        assert_eq!(request(&range), Ok(("/callbacks/replay".to_owned(), body)));
        for wrong in [
            &[][..],
            &range[..2],
            &["--until", "x"],
            &[&["a"][..], &range].concat(),
            &["a", "--status", "gone"],
        ] {
            assert!(request(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn filters_stand_in_the_query() {
        let arguments = ["x", "list", "--status", "gone", "--external-id", "a b&c", "--limit", "7"];
        let Callback::List(list) = Program::try_parse_from(arguments).unwrap().callback else {
            panic!("another command")
        };
        assert_eq!(list.path(), "/callbacks?status=gone&external_id=a+b%26c&limit=7");
    }
}
