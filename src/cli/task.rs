//! `publish-ingest task`.

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::remote::{Remote, lines, list, part, shown};
use super::{Failure, print};
use crate::account::AccountKey;

#[derive(Subcommand)]
pub(super) enum Task {
    /// Show a task
    Show {
        /// The caller's id of the article
        external_id: String,
        /// Show what happened to it instead
        #[arg(long)]
        history: bool,
        #[command(flatten)]
        remote: Remote,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Run again what has failed or waits for a login
    Retry(Retry),
    /// Cancel what has not started
    Cancel {
        /// The caller's id of the article
        external_id: String,
        #[command(flatten)]
        remote: Remote,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args)]
pub(super) struct Retry {
    /// The caller's id of the article
    external_id: String,
    /// Of this account alone
    #[arg(long, value_name = "PLATFORM/ACCOUNT_ID")]
    account: Option<AccountKey>,
    /// You have looked: the account does not have the article, though its outcome is unknown here
    #[arg(long, requires = "account", conflicts_with = "confirmed_published")]
    confirmed_not_published: bool,
    /// You have looked: the account has the article, at this address
    #[arg(long, value_name = "URL", requires = "account")]
    confirmed_published: Option<String>,
    /// The platform's id of it
    #[arg(long, value_name = "ID", requires = "confirmed_published")]
    remote_id: Option<String>,
    #[command(flatten)]
    remote: Remote,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn path(external_id: &str) -> String {
    format!("/tasks/{}", part(external_id))
}

impl Retry {
    fn body(&self) -> Value {
        let mut body = Map::new();
        if let Some(account) = &self.account {
            body.insert("platform".to_owned(), account.platform().into());
            body.insert("account_id".to_owned(), account.account_id().into());
        }
        if self.confirmed_not_published {
            body.insert("confirmed_not_published".to_owned(), true.into());
        }
        if let Some(url) = &self.confirmed_published {
            let mut published = json!({"url": url});
            if let Some(remote_id) = &self.remote_id {
                published["remote_id"] = remote_id.as_str().into();
            }
            body.insert("confirmed_published".to_owned(), published);
        }
        body.into()
    }

    async fn run(&self) -> Result<(), Failure> {
        let answer = self.remote.post(&format!("{}/retry", path(&self.external_id)), &self.body()).await?;
        print(self.json, &answer, &outcome(&answer, &["retried", "skipped"]));
        if list(&answer, "retried").is_empty() {
            return Err(Failure::Told("nothing was retried: see the reasons above".to_owned()));
        }
        Ok(())
    }
}

impl Task {
    pub(super) async fn run(self) -> Result<(), Failure> {
        match self {
            Self::Show { external_id, history: false, remote, json } => {
                let answer = remote.get(&path(&external_id)).await?;
                print(json, &answer, &task(&answer));
            }
            Self::Show { external_id, history: true, remote, json } => {
                let answer = remote.get(&format!("{}/history", path(&external_id))).await?;
                print(json, &answer, &lines(list(&answer, "entries"), entry));
            }
            Self::Retry(retry) => retry.run().await?,
            Self::Cancel { external_id, remote, json } => {
                let answer = remote.post(&format!("{}/cancel", path(&external_id)), &json!({})).await?;
                print(json, &answer, &outcome(&answer, &["cancelled", "live", "in_flight"]));
            }
        }
        Ok(())
    }
}

/// The account that a part of an answer speaks of.
fn account(part: &Value) -> String {
    format!("{}/{}", shown(part, "platform"), shown(part, "account_id"))
}

fn task(task: &Value) -> String {
    let publication = |one: &Value| {
        let error = &one["error"];
        let what = if error.is_null() {
            shown(one, "url")
        } else {
            format!("{}: {}", shown(error, "code"), shown(error, "message"))
        };
        let phase = one["phase"].as_str().map_or(String::new(), |phase| format!(" ({phase})"));
        format!("  {}  {}{phase}  {what}", account(one), shown(one, "status"))
    };
    let head = format!("{}  {}  {}", shown(task, "external_id"), shown(task, "status"), shown(task, "title"));
    format!("{head}\n{}", lines(list(task, "publications"), publication))
}

fn entry(entry: &Value) -> String {
    let members =
        ["from", "to", "reason", "phase", "outcome", "http_status", "detail", "request_id", "error"];
    let said = members.iter().filter(|name| !entry[**name].is_null()).map(|name| shown(entry, name));
    let of = if entry["platform"].is_null() { String::new() } else { format!("  {}", account(entry)) };
    let line = format!(
        "{}  {}{of}  {}",
        shown(entry, "at"),
        shown(entry, "kind"),
        said.collect::<Vec<_>>().join(" ")
    );
    line.trim_end().to_owned()
}

/// What became of each account, by lists of an answer; then how the task stands.
fn outcome(answer: &Value, names: &[&str]) -> String {
    let mut told = Vec::new();
    for name in names {
        for one in list(answer, name) {
            let url = one["url"].as_str().map(str::to_owned);
            let why = one["reason"].as_str().map(|reason| format!("{reason}: {}", skipped(reason)));
            let said = [(*name).to_owned(), account(one)].into_iter().chain(url).chain(why);
            told.push(said.collect::<Vec<_>>().join("  "));
        }
    }
    told.push(task(&answer["task"]));
    told.join("\n")
}

/// Why a retry leaves a publication as it is, for a person.
fn skipped(reason: &str) -> &'static str {
    match reason {
        "draft" => "submit the task first",
        "submitted" => "it waits for its turn",
        "running" => "it is being published, or found out",
        "success" => "it is published, for good",
        "failed" => "it failed in another way: there is nothing to confirm, retry it as it is",
        "outcome_unknown" => {
            "look at the platform, then say --confirmed-published or --confirmed-not-published for this account"
        }
        "cancelled_while_draft" => "it was never submitted: hand the article in anew",
        "account_deleted" => "put the account again first",
        _ => "see the task",
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(subcommand)]
        task: Task,
    }

    fn body(arguments: &[&str]) -> Result<Value, String> {
        let arguments = ["x", "retry", "post-1"].into_iter().chain(arguments.iter().copied());
        match Program::try_parse_from(arguments).map_err(|error| error.to_string())?.task {
            Task::Retry(retry) => Ok(retry.body()),
            _ => Err("another command".to_owned()),
        }
    }

    #[test]
    fn a_retry_says_what_a_person_found() {
        assert_eq!(body(&[]), Ok(json!({})));
        let one = ["--account", "ghost/blog"];
        let named = json!({"platform": "ghost", "account_id": "blog"});
        assert_eq!(body(&one).as_ref(), Ok(&named));
        let mut absent = named.clone();
        absent["confirmed_not_published"] = json!(true);
        assert_eq!(body(&[&one[..], &["--confirmed-not-published"]].concat()), Ok(absent));
        let mut there = named;
        there["confirmed_published"] = json!({"url": "https://h/1", "remote_id": "1"});
        let published = ["--confirmed-published", "https://h/1", "--remote-id", "1"];
        assert_eq!(body(&[&one[..], &published].concat()), Ok(there));
        for wrong in
            [&["--confirmed-not-published"][..], &published, &["--remote-id", "1"], &["--account", "blog"]]
        {
            assert!(body(wrong).is_err(), "{wrong:?}");
        }
        let both = [&one[..], &["--confirmed-not-published"], &published].concat();
        assert!(body(&both).is_err());
    }

    #[test]
    fn outcomes_are_told_account_by_account() {
        let answer = json!({
            "cancelled": [{"platform": "ghost", "account_id": "a"}],
            "live": [{"platform": "ghost", "account_id": "b", "url": "https://h/1"}], "in_flight": [],
            "task": {"external_id": "post-1", "status": "failed", "title": "T", "publications": [
                {"platform": "ghost", "account_id": "a", "status": "failed", "url": null,
                    "error": {"code": "cancelled", "message": "m"}}]},
        });
        let expected = "cancelled  ghost/a\nlive  ghost/b  https://h/1\npost-1  failed  T\n  ghost/a  failed  cancelled: m";
        assert_eq!(outcome(&answer, &["cancelled", "live", "in_flight"]), expected);
    }
}
