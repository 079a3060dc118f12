//! An operator's shell, and what an operator makes in it: a database with a tenant, its key, and services that run on it.

use std::process::{Command, Output};

use publish_ingest::clock::SystemClock;
use publish_ingest::vault::MasterKey;
use serde_json::{Value, json};

use crate::api::Api;
use crate::program::{Dev, database, eventually, failure, program, run};

/// A shell with the database and the master key at hand.
pub(crate) struct Shell {
    pub(crate) url: String,
    pub(crate) master_key: String,
}

impl Shell {
    /// On a database that is empty.
    pub(crate) async fn new() -> Self {
        Self { url: database().await, master_key: MasterKey::generate(&SystemClock).expose().to_string() }
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = program(arguments);
        command.env("DATABASE_URL", &self.url).env("PUBLISH_MASTER_KEY", &self.master_key);
        command
    }

    /// What a command prints that must succeed.
    pub(crate) async fn text(&self, arguments: &[&str]) -> String {
        let (mut output, mut stderr) = (None, String::new());
        eventually("the command reaches the database", async || {
            let ended = run(self.command(arguments)).await;
            stderr = String::from_utf8_lossy(&ended.stderr).into_owned();
            output = Some(ended);
            !stderr.contains("cannot be reached")
        })
        .await;
        let Output { status, stdout, .. } = output.unwrap();
        assert!(status.success() && stderr.is_empty(), "{arguments:?}: {stderr}");
        String::from_utf8(stdout).unwrap()
    }

    pub(crate) async fn json(&self, arguments: &[&str]) -> Value {
        let text = self.text(&[arguments, &["--json"]].concat()).await;
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("no JSON: {text}"))
    }

    pub(crate) async fn failure(&self, arguments: &[&str]) -> String {
        let mut line = String::new();
        eventually("the command reaches the database", async || {
            line = failure(self.command(arguments)).await;
            !line.contains("cannot be reached")
        })
        .await;
        line
    }

    pub(crate) async fn exit_code(&self, arguments: &[&str]) -> Option<i32> {
        run(self.command(arguments)).await.status.code()
    }
}

/// A database with a tenant `demo` and a key of it, as an operator makes them before any service runs.
pub(crate) struct Furnished {
    pub(crate) shell: Shell,
    /// Of all scopes.
    pub(crate) api_key: String,
    pub(crate) signing_secret: String,
}

impl Furnished {
    pub(crate) async fn new() -> Self {
        let shell = Shell::new().await;
        shell.text(&["migrate"]).await;
        let tenant = shell.json(&["tenant", "create", "demo"]).await;
        let key = shell.json(&["key", "create", "demo", "--scopes", "publish,read,manage"]).await;
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        Self { api_key: text(&key["api_key"]), signing_secret: text(&tenant["signing_secret"]), shell }
    }

    /// A service that is ready; it may call what listens on this machine.
    pub(crate) async fn serve(&self, settings: &[(&str, &str)]) -> Dev {
        let mut command = self.shell.command(&["serve"]);
        command.env("PUBLISH_LISTEN", "127.0.0.1:0").env("PUBLISH_OUTBOUND_ALLOW", "127.0.0.0/8");
        command.env("PUBLISH_ALLOW_HTTP", "true").envs(settings.iter().copied());
        let mut serve = Dev::begin(command);
        serve.url = serve.said_after("publish-ingest is ready on ").await;
        serve
    }

    pub(crate) fn api(&self, serve: &Dev) -> Api {
        Api::new(&serve.url, Some(&self.api_key))
    }
}

/// Puts a group of these accounts, each `platform/account_id`.
pub(crate) async fn put_group(api: &Api, code: &str, accounts: &[&str]) {
    let accounts = accounts.iter().map(|account| {
        let (platform, account_id) = account.split_once('/').unwrap();
        json!({"platform": platform, "account_id": account_id})
    });
    let group = json!({"title": code, "accounts": accounts.collect::<Vec<_>>()});
    api.put(&format!("/groups/{code}"), &group).await.unwrap().ok();
}
