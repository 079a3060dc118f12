//! `publish-ingest account`.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use secrecy::zeroize::Zeroizing;
use serde_json::{Map, Value, json};

use super::remote::{Remote, lines, list, part, shown};
use super::{Failure, print, say};

#[derive(Subcommand)]
pub(super) enum Account {
    /// Create an account, or replace all of it: settings and limits that are not given are gone, but not its credentials
    Put(Box<Put>),
    /// Give an account new credentials, and leave all else of it as it is
    Renew(Renew),
    /// List the accounts
    List {
        #[command(flatten)]
        remote: Remote,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show an account
    Show {
        #[command(flatten)]
        name: Name,
        #[command(flatten)]
        remote: Remote,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Ask the platform whether an account's login works; fails if it does not
    Check {
        #[command(flatten)]
        name: Name,
        #[command(flatten)]
        remote: Remote,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Delete an account of which nothing is unfinished
    Delete {
        #[command(flatten)]
        name: Name,
        #[command(flatten)]
        remote: Remote,
    },
}

/// What names an account.
#[derive(Args)]
pub(super) struct Name {
    /// The platform
    platform: String,
    /// Its id there
    account_id: String,
}

impl Name {
    fn path(&self) -> String {
        format!("/accounts/{}/{}", part(&self.platform), part(&self.account_id))
    }
}

#[derive(Args)]
pub(super) struct Put {
    #[command(flatten)]
    name: Name,
    /// For people; without it, the id
    #[arg(long, value_name = "TEXT")]
    display_name: Option<String>,
    /// One setting; a value that is JSON is taken as such, else it is text
    #[arg(long = "setting", value_name = "NAME=VALUE", value_parser = setting)]
    setting: Vec<(String, Value)>,
    /// All settings, a JSON object
    #[arg(long, value_name = "JSON", value_parser = object, conflicts_with = "setting")]
    settings: Option<Value>,
    /// A file with the credentials, a JSON object; - reads standard input
    #[arg(long, value_name = "FILE")]
    credentials_file: Option<PathBuf>,
    /// The least time between two starts
    #[arg(long, value_name = "SECONDS")]
    min_interval_seconds: Option<u32>,
    /// How many publications it may have in hand at once
    #[arg(long, value_name = "COUNT")]
    max_in_flight: Option<u32>,
    /// The most publications a day
    #[arg(long, value_name = "COUNT")]
    daily_limit: Option<u32>,
    /// The IANA name of the zone in which its days begin
    #[arg(long, value_name = "NAME")]
    time_zone: Option<String>,
    /// Leave what waits for the login, when it is renewed
    #[arg(long)]
    no_resume: bool,
    #[command(flatten)]
    remote: Remote,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub(super) struct Renew {
    #[command(flatten)]
    name: Name,
    /// A file with the credentials, a JSON object; - reads standard input. Without it, `{}`, for a platform without any
    #[arg(long, value_name = "FILE")]
    credentials_file: Option<PathBuf>,
    /// Leave what waits for the login
    #[arg(long)]
    no_resume: bool,
    #[command(flatten)]
    remote: Remote,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What of an account's answer is put again as it is.
const KEPT: [&str; 6] =
    ["display_name", "settings", "min_interval_seconds", "max_in_flight", "daily_limit", "time_zone"];

fn setting(text: &str) -> Result<(String, Value), &'static str> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
    Ok((name.to_owned(), value))
}

fn object(text: &str) -> Result<Value, &'static str> {
    let value = serde_json::from_str::<Value>(text).ok().filter(Value::is_object);
    value.ok_or("write a JSON object, such as '{\"site\": \"blog\"}'")
}

/// Reads credentials. What is wrong with them is told without showing them.
fn credentials(path: &Path) -> Result<Value, Failure> {
    let mut text = Zeroizing::new(String::new());
    let read = if path == Path::new("-") {
        std::io::stdin().read_to_string(&mut text).map(|_| ())
    } else {
        std::fs::File::open(path).and_then(|mut file| file.read_to_string(&mut text)).map(|_| ())
    };
    let name = path.display();
    read.map_err(|error| Failure::Told(format!("cannot read credentials from {name}: {error}")))?;
    object(&text).map_err(|_| {
        Failure::Told(format!(
            "the credentials in {name} are no JSON object: write one, such as GET /platforms asks for"
        ))
    })
}

impl Put {
    fn body(&self) -> Result<Value, Failure> {
        let settings = self
            .settings
            .clone()
            .unwrap_or_else(|| self.setting.iter().cloned().collect::<Map<_, _>>().into());
        let mut body = json!({
            "display_name": self.display_name, "settings": settings, "min_interval_seconds": self.min_interval_seconds,
            "max_in_flight": self.max_in_flight, "daily_limit": self.daily_limit, "time_zone": self.time_zone,
            "resume": !self.no_resume,
        });
        if let Some(path) = &self.credentials_file {
            body["credentials"] = credentials(path)?;
        }
        Ok(body)
    }

    async fn run(&self) -> Result<(), Failure> {
        let answer = self.remote.put(&self.name.path(), &self.body()?).await?;
        print(self.json, &answer, &put(&answer));
        Ok(())
    }
}

impl Renew {
    async fn run(&self) -> Result<(), Failure> {
        let mut body = json!({"credentials": {}, "resume": !self.no_resume});
        if let Some(path) = &self.credentials_file {
            body["credentials"] = credentials(path)?;
        }
        let account = self.remote.get(&self.name.path()).await?;
        for name in KEPT {
            body[name] = account[name].clone();
        }
        let answer = self.remote.put(&self.name.path(), &body).await?;
        print(self.json, &answer, &put(&answer));
        Ok(())
    }
}

impl Account {
    pub(super) async fn run(self) -> Result<(), Failure> {
        match self {
            Self::Put(put) => put.run().await?,
            Self::Renew(renew) => renew.run().await?,
            Self::List { remote, json } => {
                let answer = remote.get("/accounts").await?;
                print(json, &answer, &lines(list(&answer, "accounts"), line));
            }
            Self::Show { name, remote, json } => {
                let answer = remote.get(&name.path()).await?;
                print(json, &answer, &details(&answer));
            }
            Self::Check { name, remote, json } => {
                let answer = remote.post(&format!("{}/check", name.path()), &json!({})).await?;
                let (check, account) = (&answer["check"], &answer["account"]);
                let (result, error) = (shown(check, "result"), &check["error"]);
                let (resumed, left) = (shown(&answer, "resumed"), shown(&answer, "left"));
                let said = format!("{result}; resumed {resumed}, left {left}");
                print(json, &answer, &format!("{}  {said}", line(account)));
                if check["result"] != "works" {
                    let why = format!("{}: {}", shown(error, "code"), shown(error, "message"));
                    return Err(Failure::Told(format!("{result}: {why}")));
                }
            }
            Self::Delete { name, remote } => {
                remote.delete(&name.path()).await?;
                say("deleted, and taken out of the groups that held it");
            }
        }
        Ok(())
    }
}

/// An account that was put, and what becomes of what waits for its login.
fn put(answer: &Value) -> String {
    let (resumed, left) = (shown(answer, "resumed"), shown(answer, "left"));
    format!("{}; resumed {resumed}, left {left}", line(answer))
}

fn line(account: &Value) -> String {
    let text = |name| shown(account, name);
    let parked = account["parked_until"].as_str().map(|until| format!("  parked until {until}"));
    let names = format!("{}/{}", text("platform"), text("account_id"));
    format!("{names}  {}  {}{}", text("login_state"), text("display_name"), parked.unwrap_or_default())
}

fn details(account: &Value) -> String {
    let members = account.as_object().into_iter().flatten();
    members.map(|(name, _)| format!("{name}  {}", shown(account, name))).collect::<Vec<_>>().join("\n")
}
