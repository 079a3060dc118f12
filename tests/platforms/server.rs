//! A real server, started by a script of `tests/servers`, and ended by closing the script's standard input.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;

use publish_ingest::clock::{Clock, SharedClock, SystemClock};
use publish_ingest::outbound::{Client, Policy};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// A server that ends with this value.
pub(crate) struct Server {
    child: Child,
    input: Option<ChildStdin>,
    /// What it said of itself when it answered first.
    pub(crate) told: Value,
    folder: TempDir,
}

impl Server {
    /// Starts `tests/servers/{script}` on a folder of its own, and waits until it answers.
    pub(crate) fn start(script: &str) -> Self {
        // Reachable for the user that a database runs as, which a folder below /root is not.
        let folder = tempfile::Builder::new().prefix("publish-platform-").tempdir_in("/var/tmp").unwrap();
        open_to_others(folder.path());
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/servers").join(script);
        let mut command = Command::new("python3");
        command.arg(path).arg(folder.path().join("data"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if line.is_empty() {
            let mut why = String::new();
            child.stderr.take().unwrap().read_to_string(&mut why).unwrap();
            child.wait().unwrap();
            panic!("{script} did not start: {why}");
        }
        Self { child, input, told: serde_json::from_str(&line).unwrap(), folder }
    }

    /// One of the texts that it said of itself.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.told[name].as_str().unwrap_or_else(|| panic!("the server tells no `{name}`"))
    }

    /// The folder of its data.
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Sends a signal to all of its processes that it listed under that name.
    pub(crate) fn signal(&self, pids: &str, signal: Signal) {
        for pid in self.told[pids].as_array().unwrap() {
            let pid = i32::try_from(pid.as_i64().unwrap()).unwrap();
            kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.input.take());
        self.child.wait().unwrap();
    }
}

fn open_to_others(folder: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// The clock of the machine.
pub(crate) fn clock() -> SharedClock {
    Arc::new(SystemClock)
}

/// A client that may call this machine, by plain http.
pub(crate) fn client() -> Client {
    let allow = ["127.0.0.0/8", "::1/128"].map(|network| network.parse().unwrap());
    Client::new(Policy { allow: allow.into(), allow_http: true, ports: None }, clock()).unwrap()
}

/// A marker that no other test has.
pub(crate) fn marker() -> String {
    let mut bytes = [0; 16];
    SystemClock.fill(&mut bytes);
    bytes.iter().map(|byte| char::from(b"abcdefghijklmnopqrstuvwxyz234567"[usize::from(byte & 31)])).collect()
}
