//! The program that is measured: its commands, and the service as a process of its own.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use publish_ingest::clock::{Clock as _, SystemClock};
use publish_ingest::vault::MasterKey;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::client::Connection;
use crate::{Failed, TENANT};

/// How long a process may take to be ready, or to end.
const WITHIN: Duration = Duration::from_mins(1);

/// The groups of the first tenant.
pub(crate) const GROUPS: u64 = 256;

/// How often a service is started to see how long that takes.
const STARTS: usize = 5;

/// What an account of the sandbox allows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    pub(crate) max_in_flight: u32,
    pub(crate) min_interval_seconds: u32,
}

/// What it allows where nothing is to wait for it.
pub(crate) const FREE: Pace = Pace { max_in_flight: 32, min_interval_seconds: 0 };

/// A database with a schema and the key that its secrets are under.
pub(crate) struct World {
    pub(crate) url: String,
    /// With [`GROUPS`] groups.
    pub(crate) tenant: Tenant,
    /// How long services took to be ready.
    pub(crate) ready_after: Vec<Duration>,
    pub(crate) master_key: String,
    logs: PathBuf,
}

/// A tenant, and its key.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tenant {
    pub(crate) api_key: String,
}

/// A process that serves.
pub(crate) struct Service {
    child: Child,
    pub(crate) address: SocketAddr,
    /// From its start until it said that it is ready.
    pub(crate) ready_after: Duration,
}

impl World {
    /// Makes the schema, and a tenant with groups.
    pub(crate) async fn make(url: String, logs: &Path) -> Result<Self, Failed> {
        let master_key = MasterKey::generate(&SystemClock).expose().to_string();
        let mut world = Self::again(url, logs, master_key, Tenant::default()).await?;
        world.tenant = world.tenant(TENANT).await?;
        for _ in 0..STARTS {
            let service = world.serve("start", &[]).await?;
            world.ready_after.push(service.ready_after);
            service.end().await?;
        }
        let service = world.serve("start", &[("PUBLISH_ROLES", "api")]).await?;
        service.furnish(&world.tenant, GROUPS, FREE).await?;
        service.end().await?;
        Ok(world)
    }

    /// One that was made before: with the present schema.
    pub(crate) async fn again(
        url: String,
        logs: &Path,
        master_key: String,
        tenant: Tenant,
    ) -> Result<Self, Failed> {
        let world = Self { url, tenant, ready_after: Vec::new(), master_key, logs: logs.to_owned() };
        world.run(&["migrate"]).await?;
        Ok(world)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_publish-ingest"));
        command.args(arguments).env_clear().current_dir("/").stdin(Stdio::null());
        command.env("DATABASE_URL", &self.url).env("PUBLISH_MASTER_KEY", &self.master_key);
        command
    }

    pub(crate) async fn run(&self, arguments: &[&str]) -> Result<String, Failed> {
        let mut command = self.command(arguments);
        let output = tokio::task::spawn_blocking(move || command.output()).await??;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into());
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// A new tenant with a key of all scopes.
    pub(crate) async fn tenant(&self, name: &str) -> Result<Tenant, Failed> {
        self.run(&["tenant", "create", name]).await?;
        let scopes = "publish,read,manage";
        let key = self.run(&["key", "create", name, "--scopes", scopes, "--json"]).await?;
        let key: Value = serde_json::from_str(&key)?;
        let api_key = key["api_key"].as_str().ok_or("no key was printed")?.to_owned();
        Ok(Tenant { api_key })
    }

    /// The log of the service of that name.
    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.logs.join(format!("{name}.log"))
    }

    /// Starts a service on this database.
    pub(crate) async fn serve(&self, name: &str, settings: &[(&str, &str)]) -> Result<Service, Failed> {
        let mut command = self.command(&["serve"]);
        command.env("PUBLISH_LISTEN", "127.0.0.1:0").env("PUBLISH_OUTBOUND_ALLOW", "127.0.0.0/8");
        // What is seeded is years old: to remove it is not what is measured.
        command.env("PUBLISH_KEEP", "off").env("PUBLISH_KEEP_EVENTS", "off");
        command.env("PUBLISH_ALLOW_HTTP", "true").envs(settings.iter().copied());
        command.stderr(File::create(self.log(name))?);
        Service::start(command).await
    }
}

impl Service {
    /// Starts a process, and waits until it says `ready on http://…`.
    pub(crate) async fn start(mut command: Command) -> Result<Self, Failed> {
        let begun = SystemClock.instant();
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let stdout = BufReader::new(child.stdout.take().ok_or("no output")?);
        let (tell, told) = oneshot::channel();
        std::thread::spawn(move || {
            let mut lines = stdout.lines().map_while(Result::ok);
            let ready = lines.find_map(|line| Some(line.split_once("ready on http://")?.1.trim().to_owned()));
            let _ = tell.send((ready, SystemClock.instant()));
            for _ in lines {}
        });
        // Kills what does not come up.
        let mut service = Self { child, address: ([127, 0, 0, 1], 0).into(), ready_after: Duration::ZERO };
        let (ready, at) = tokio::time::timeout(WITHIN, told).await??;
        service.address = ready.ok_or("a service ended before it was ready: its log says why")?.parse()?;
        service.ready_after = at - begun;
        Ok(service)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asks it to end, and waits until it has.
    pub(crate) async fn end(mut self) -> Result<(), Failed> {
        let pid = i32::try_from(self.pid())?;
        kill_process(Pid::from_raw(pid).ok_or("no process")?, Signal::TERM)?;
        let begun = SystemClock.instant();
        while self.child.try_wait()?.is_none() {
            if begun.elapsed() > WITHIN {
                return Err("a service did not end".into());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Puts `groups` groups of two accounts of the sandbox, which answers at once.
    pub(crate) async fn furnish(&self, tenant: &Tenant, groups: u64, pace: Pace) -> Result<(), Failed> {
        let Pace { max_in_flight, min_interval_seconds } = pace;
        let mut connection = Connection::open(self.address).await?;
        for group in 0..groups {
            let names = ["a", "b"].map(|half| format!("{half}{group}"));
            for name in &names {
                let account = json!({
                    "settings": {}, "max_in_flight": max_in_flight, "min_interval_seconds": min_interval_seconds,
                });
                self.put(&mut connection, tenant, &format!("/accounts/sandbox/{name}"), &account).await?;
            }
            let accounts = names.map(|name| json!({"platform": "sandbox", "account_id": name}));
            let put = json!({"title": format!("Group {group}"), "accounts": accounts});
            self.put(&mut connection, tenant, &format!("/groups/g{group}"), &put).await?;
        }
        Ok(())
    }

    async fn put(
        &self,
        connection: &mut Connection,
        tenant: &Tenant,
        path: &str,
        body: &Value,
    ) -> Result<(), Failed> {
        let (body, host, key) = (body.to_string(), self.address, &tenant.api_key);
        let length = body.len();
        let request = format!(
            "PUT {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n{body}"
        );
        let answer = connection.call(request.as_bytes()).await?;
        if answer.status >= 300 {
            return Err(format!("{path}: {}", String::from_utf8_lossy(answer.body)).into());
        }
        Ok(())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
