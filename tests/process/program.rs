//! The program as a process: started with an environment of its own, read by its lines, ended by its number.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use publish_ingest::clock::{Clock as _, SystemClock};
use publish_ingest::local_postgres::{self, Cluster, Programs};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use sqlx::{Connection as _, Executor as _, PgConnection};
use tokio::sync::watch;

use crate::api::Api;

/// How long anything is waited for. Far above what it takes: only a fault runs into it.
pub(crate) const LIMIT: Duration = Duration::from_mins(1);

/// The pause between two looks at what no signal tells.
const LOOK: Duration = Duration::from_millis(10);

pub(crate) fn random() -> [u8; 8] {
    let mut bytes = [0; 8];
    SystemClock.fill(&mut bytes);
    bytes
}

/// The seed of a test's chance; printed, so that a failure can be repeated.
pub(crate) fn seed() -> u64 {
    let given = std::env::var_os("PUBLISH_TEST_SEED").and_then(|seed| seed.to_str()?.parse().ok());
    let seed = given.unwrap_or_else(|| u64::from_be_bytes(random()));
    println!("PUBLISH_TEST_SEED={seed}");
    seed
}

pub(crate) fn programs() -> Programs {
    let chosen = std::env::var_os("PUBLISH_POSTGRES_BIN").map(PathBuf::from);
    Programs::find(std::env::var_os("PATH").as_deref(), chosen.as_deref()).unwrap()
}

/// Waits, in short steps, for what no signal tells.
pub(crate) async fn eventually(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !done().await {
            tokio::time::sleep(LOOK).await;
        }
    };
    assert!(tokio::time::timeout(LIMIT, waiting).await.is_ok(), "{what}: not within {LIMIT:?}");
}

/// A folder of one test, removed with what is left of its database.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        let name = format!("publish-process-{:016x}", u64::from_be_bytes(random()));
        let root = std::env::temp_dir().canonicalize().unwrap().join(name);
        std::fs::create_dir(&root).unwrap();
        // Or the database's account would need its data elsewhere.
        std::fs::set_permissions(&root, PermissionsExt::from_mode(0o755)).unwrap();
        Self(root)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn dev(&self) -> PathBuf {
        self.0.join(".dev")
    }

    pub(crate) fn site(&self) -> PathBuf {
        self.dev().join("site/demo/demo")
    }

    /// The text of every page, by its marker.
    pub(crate) fn pages(&self) -> HashMap<String, String> {
        let entries = std::fs::read_dir(self.site()).into_iter().flatten().flatten();
        let markers = entries.filter_map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            let marker = name.strip_suffix(".html")?;
            let page = !marker.starts_with('.') && marker.split('.').next() != Some("index");
            page.then(|| (marker.to_owned(), entry.path()))
        });
        markers.map(|(marker, path)| (marker, std::fs::read_to_string(path).unwrap())).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A predecessor that was killed has a database that is about to end.
        let removed = local_postgres::remove(&self.dev().join("postgres"));
        let emptied = std::fs::remove_dir_all(&self.0);
        if !std::thread::panicking() {
            removed.unwrap();
            emptied.unwrap();
        }
    }
}

/// A database of one test, on a server that all tests share and that ends with this process.
pub(crate) async fn database() -> String {
    static SHARED: OnceLock<Mutex<Cluster>> = OnceLock::new();
    let cluster = tokio::task::spawn_blocking(|| {
        SHARED.get_or_init(|| {
            let connections = vec![("max_connections".to_owned(), "400".to_owned())];
            let temporary = std::env::temp_dir();
            Mutex::new(Cluster::scratch(&programs(), &temporary, random(), connections).unwrap())
        })
    });
    let cluster = cluster.await.unwrap();
    let name = format!("process_{:016x}", u64::from_be_bytes(random()));
    let (admin, url) = {
        let cluster = cluster.lock().unwrap();
        (cluster.url("postgres"), cluster.url(&name))
    };
    let mut connection = PgConnection::connect(&admin).await.unwrap();
    let create = sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}"));
    connection.execute(create).await.unwrap();
    connection.close().await.unwrap();
    url
}

/// The program, with nothing of the test's own environment but what it takes to run.
pub(crate) fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_publish-ingest"));
    command.args(arguments).env_clear().current_dir("/").stdin(Stdio::null());
    for kept in ["PATH", "TMPDIR", "PUBLISH_POSTGRES_BIN", "LLVM_PROFILE_FILE"] {
        if let Some(value) = std::env::var_os(kept) {
            command.env(kept, value);
        }
    }
    command
}

/// Runs a command to its end, which must come by itself.
pub(crate) async fn run(mut command: Command) -> Output {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Ended(command.spawn().unwrap());
    let (mut stdout, mut stderr) = (child.0.stdout.take().unwrap(), child.0.stderr.take().unwrap());
    let read = |stream: &mut dyn Read| {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        bytes
    };
    let stdout = tokio::task::spawn_blocking(move || read(&mut stdout));
    let stderr = tokio::task::spawn_blocking(move || read(&mut stderr));
    let status = child.wait().await;
    Output { status, stdout: stdout.await.unwrap(), stderr: stderr.await.unwrap() }
}

/// What a command said that failed: exactly one line.
pub(crate) async fn failure(command: Command) -> String {
    let output = run(command).await;
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    let ours = text.lines().filter(|line| line.starts_with("publish-ingest: ")).collect::<Vec<_>>();
    assert!(ours.len() == 1 && text.trim_end().ends_with(ours[0]), "not one line: {text}");
    assert!(output.stdout.is_empty(), "{:?}", String::from_utf8_lossy(&output.stdout));
    ours[0].to_owned()
}

/// What a command said that was used wrongly, line by line.
pub(crate) async fn refused(command: Command) -> Vec<String> {
    let output = run(command).await;
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && output.stdout.is_empty(), "{text}");
    text.lines().map(str::to_owned).collect()
}

/// A process that ends with this value at the latest.
struct Ended(Child);

impl Ended {
    async fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        eventually("the process ends", async || {
            status = self.0.try_wait().unwrap();
            status.is_some()
        })
        .await;
        status.unwrap()
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a process has written so far.
struct Stream(watch::Receiver<String>);

impl Stream {
    fn of(stream: impl Read + Send + 'static) -> Self {
        let (tell, told) = watch::channel(String::new());
        std::thread::spawn(move || {
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                tell.send_modify(|text| {
                    text.push_str(&line);
                    text.push('\n');
                });
            }
        });
        Self(told)
    }

    fn text(&self) -> String {
        self.0.borrow().clone()
    }

    /// Waits for the end of what is written, which is the end of the process.
    async fn ended(&self) {
        let mut told = self.0.clone();
        let ended = tokio::time::timeout(LIMIT, async { while told.changed().await.is_ok() {} });
        ended.await.expect("the output ends");
    }
}

/// A running `dev`.
pub(crate) struct Dev {
    process: Ended,
    stdout: Stream,
    stderr: Stream,
    pub(crate) url: String,
    env: HashMap<String, String>,
}

/// `dev` in a folder, listening wherever there is room.
pub(crate) fn dev(folder: &Folder) -> Command {
    let mut command = program(&["dev"]);
    command.current_dir(folder.path()).env("PUBLISH_LISTEN", "127.0.0.1:0");
    command
}

impl Dev {
    pub(crate) async fn start(folder: &Folder, settings: &[(&str, &str)]) -> Self {
        let mut command = dev(folder);
        command.envs(settings.iter().copied());
        Self::spawn(command, folder).await
    }

    /// Starts it, and waits until it is ready.
    pub(crate) async fn spawn(command: Command, folder: &Folder) -> Self {
        let mut dev = Self::begin(command);
        dev.url = dev.said_after("publish-ingest is ready on ").await;
        let env = std::fs::read_to_string(folder.dev().join("env")).unwrap();
        let pairs = env.lines().map(|line| line.split_once('=').unwrap());
        dev.env = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let ready = dev.api().get("/readyz").await.unwrap();
        assert_eq!(ready.status, 200, "{}", ready.text());
        dev
    }

    /// Starts it, and waits for nothing.
    pub(crate) fn begin(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = Ended(command.spawn().unwrap());
        let stdout = Stream::of(process.0.stdout.take().unwrap());
        let stderr = Stream::of(process.0.stderr.take().unwrap());
        Self { process, stdout, stderr, url: String::new(), env: HashMap::new() }
    }

    /// Waits for a line on standard output, and returns what follows `beginning` in it.
    pub(crate) async fn said_after(&self, beginning: &str) -> String {
        let mut told = self.stdout.0.clone();
        let found = |text: &str| {
            text.lines().find_map(|line| line.split_once(beginning)).map(|(_, rest)| rest.to_owned())
        };
        let said = tokio::time::timeout(LIMIT, told.wait_for(|text| found(text).is_some())).await;
        match said {
            Ok(Ok(text)) => found(&text).unwrap(),
            _ => panic!("did not say {beginning:?}: {}{}", self.stdout(), self.stderr()),
        }
    }

    pub(crate) fn stdout(&self) -> String {
        self.stdout.text()
    }

    pub(crate) fn stderr(&self) -> String {
        self.stderr.text()
    }

    pub(crate) fn env(&self, name: &str) -> &str {
        &self.env[name]
    }

    pub(crate) fn api(&self) -> Api {
        Api::new(&self.url, self.env.get("PUBLISH_API_KEY").map(String::as_str))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(number(self.process.0.id()), signal).unwrap();
    }

    /// Whether its death, whatever its cause, leaves no image of its memory.
    pub(crate) fn leaves_no_core(&self) -> bool {
        // Told by Linux alone.
        let Ok(limits) = std::fs::read_to_string(format!("/proc/{}/limits", self.process.0.id())) else {
            return true;
        };
        let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
        core.split_whitespace().skip(4).take(2).all(|limit| limit == "0")
    }

    /// The memory it takes, in KiB; told by Linux alone.
    pub(crate) fn memory_kib(&self) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.process.0.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
    }

    /// Kills it as the kernel would when memory is short.
    pub(crate) fn kill(&mut self) {
        self.process.0.kill().unwrap();
        self.process.0.wait().unwrap();
    }

    /// Asks it to end, and waits until it has.
    pub(crate) async fn stop(self, with: Signal) -> (ExitStatus, String, String) {
        self.signal(with);
        self.ended().await
    }

    /// Waits until it has ended.
    pub(crate) async fn ended(mut self) -> (ExitStatus, String, String) {
        let status = self.process.wait().await;
        self.stdout.ended().await;
        self.stderr.ended().await;
        (status, self.stdout(), self.stderr())
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("what {} said:\n{}", self.url, self.stderr());
        }
    }
}

fn number(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()
}

/// Whether a process runs; one that nobody has reaped yet runs no more.
pub(crate) fn runs(pid: u32) -> bool {
    let zombie = std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z')));
    test_kill_process(number(pid)).is_ok() && !zombie
}

/// The number of the private server's process.
pub(crate) fn postmaster(folder: &Folder) -> Option<u32> {
    let file = folder.dev().join("postgres/data/postmaster.pid");
    std::fs::read_to_string(file).ok()?.lines().next()?.trim().parse().ok()
}
