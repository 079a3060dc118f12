//! `publish-ingest group`.

use clap::Subcommand;
use serde_json::{Value, json};

use super::remote::{Remote, lines, list, part, shown};
use super::{Failure, print};
use crate::account::AccountKey;

#[derive(Subcommand)]
pub(super) enum Group {
    /// Create a group, or replace it
    Put {
        /// Its code: 1–64 of A-Z a-z 0-9 _ . -
        group_code: String,
        /// For people; without it, the code
        #[arg(long, value_name = "TEXT")]
        title: Option<String>,
        /// An account, once for each, in order
        #[arg(long = "account", value_name = "PLATFORM/ACCOUNT_ID")]
        accounts: Vec<AccountKey>,
        #[command(flatten)]
        remote: Remote,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// List the groups
    List {
        #[command(flatten)]
        remote: Remote,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show a group
    Show {
        /// Its code
        group_code: String,
        #[command(flatten)]
        remote: Remote,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Delete a group; articles accepted before keep their accounts
    Delete {
        /// Its code
        group_code: String,
        #[command(flatten)]
        remote: Remote,
    },
}

fn path(group_code: &str) -> String {
    format!("/groups/{}", part(group_code))
}

impl Group {
    pub(super) async fn run(self) -> Result<(), Failure> {
        match self {
            Self::Put { group_code, title, accounts, remote, json } => {
                let account =
                    |key: &AccountKey| json!({"platform": key.platform(), "account_id": key.account_id()});
                let accounts = accounts.iter().map(account).collect::<Vec<_>>();
                let body = json!({"title": title, "accounts": accounts});
                let answer = remote.put(&path(&group_code), &body).await?;
                print(json, &answer, &line(&answer));
            }
            Self::List { remote, json } => {
                let answer = remote.get("/groups").await?;
                print(json, &answer, &lines(list(&answer, "groups"), line));
            }
            Self::Show { group_code, remote, json } => {
                let answer = remote.get(&path(&group_code)).await?;
                print(json, &answer, &line(&answer));
            }
            Self::Delete { group_code, remote } => {
                remote.delete(&path(&group_code)).await?;
            }
        }
        Ok(())
    }
}

fn line(group: &Value) -> String {
    let name = |account: &Value| format!("{}/{}", shown(account, "platform"), shown(account, "account_id"));
    let accounts = list(group, "accounts").iter().map(name).collect::<Vec<_>>();
    let accounts = if accounts.is_empty() { "no accounts".to_owned() } else { accounts.join(", ") };
    format!("{}  {}  {accounts}", shown(group, "group_code"), shown(group, "title"))
}
