//! The private PostgreSQL, with real processes: what it survives, and what it leaves behind.
#![expect(clippy::unwrap_used, reason = "clippy.toml allows it in tests, but misses what tests share")]

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use publish_ingest::clock::{Clock, SystemClock};
use publish_ingest::local_postgres::{self, Cluster, Durability, Error, OnExit, Options, Programs};
use rustix::process::{Pid, Signal, geteuid, kill_process, test_kill_process};
use sqlx::{Connection, Executor, PgConnection};

/// How long the end of a process or of a folder is waited for.
const LIMIT: Duration = Duration::from_secs(15);

fn programs() -> Programs {
    let chosen = std::env::var_os("PUBLISH_POSTGRES_BIN").map(PathBuf::from);
    Programs::find(std::env::var_os("PATH").as_deref(), chosen.as_deref()).unwrap()
}

fn random() -> [u8; 8] {
    let mut bytes = [0; 8];
    SystemClock.fill(&mut bytes);
    bytes
}

/// A folder of one test, removed with what is left of its database.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let root = std::env::temp_dir().join(format!("publish-test-{:016x}", u64::from_be_bytes(random())));
        std::fs::create_dir(&root).unwrap();
        std::fs::set_permissions(&root, PermissionsExt::from_mode(0o755)).unwrap();
        Self(root)
    }

    fn database(&self) -> PathBuf {
        self.0.join("pg")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let database = self.database();
        let removed = local_postgres::remove(&database);
        std::fs::remove_dir_all(&self.0).unwrap();
        if !std::thread::panicking() {
            removed.unwrap();
        }
    }
}

/// Where a database's files are: in its folder, unless that is closed to the database's account.
fn home(folder: &Path) -> PathBuf {
    std::fs::read_to_string(folder.join("data-is-at"))
        .map_or_else(|_| folder.to_owned(), |path| PathBuf::from(path.trim()))
}

fn quick(folder: &Path) -> Options {
    Options { durability: Durability::None, ..Options::new(folder) }
}

fn query(url: &str, statements: &'static str) -> i32 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut connection = PgConnection::connect(url).await.unwrap();
        let (last, before) = statements.rsplit_once(';').map_or((statements, ""), |(a, b)| (b, a));
        connection.execute(before).await.unwrap();
        let value = sqlx::query_scalar(last).fetch_one(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        value
    })
}

fn number(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()
}

fn runs(pid: u32) -> bool {
    // A process that nobody has reaped yet runs no more.
    let zombie = std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z')));
    test_kill_process(number(pid)).is_ok() && !zombie
}

/// Waits, in short steps, for what no signal tells; says how long it took.
fn eventually(what: &str, done: impl Fn() -> bool) -> Duration {
    let (_keep, never) = channel::<()>();
    let start = SystemClock.instant();
    while !done() {
        assert!(start.elapsed() < LIMIT, "{what}: not within {LIMIT:?}");
        let _ = never.recv_timeout(Duration::from_millis(2));
    }
    start.elapsed()
}

fn one_line(error: &Error) -> String {
    let line = error.to_string();
    assert!(!line.contains('\n') && !line.is_empty(), "{line}");
    line
}

/// Another process that runs a cluster: this program again, with the one test that does so.
struct Parent {
    process: Child,
    url: String,
    server: u32,
    folder: PathBuf,
}

impl Parent {
    fn spawn(kind: &str, folder: &Path) -> Child {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_parent_until_it_is_killed", "--ignored", "--nocapture"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        writeln!(process.stdin.as_mut().unwrap(), "{kind} {}", folder.display()).unwrap();
        process
    }

    fn start(kind: &str, folder: &Path) -> Self {
        let mut process = Self::spawn(kind, folder);
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let line =
            lines.map_while(Result::ok).find_map(|line| line.split_once("READY ").map(|l| l.1.to_owned()));
        let line = line.expect("the parent failed");
        let mut words = line.splitn(3, ' ');
        let server = words.next().unwrap().parse().unwrap();
        let url = words.next().unwrap().to_owned();
        Self { process, url, server, folder: PathBuf::from(words.next().unwrap()) }
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    fn watcher(&self) -> Option<Pid> {
        // The watcher is the shell in the server's process group.
        std::fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            let rest = stat.rsplit_once(')')?.1;
            let group: u32 = rest.split_whitespace().nth(2)?.parse().ok()?;
            (group == self.server && stat.contains("(sh)")).then(|| Pid::from_raw(pid))?
        })
    }
}

impl Drop for Parent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
#[ignore = "a part of other tests: runs a cluster until it is killed"]
fn a_parent_until_it_is_killed() {
    let mut input = std::io::stdin().lines();
    let Some(Ok(line)) = input.next() else { return };
    let (kind, folder) = line.split_once(' ').unwrap();
    let (kind, folder) = (kind.to_owned(), PathBuf::from(folder));
    // A thread that ends must not take the database with it.
    let cluster = std::thread::spawn(move || {
        let cluster = match kind.as_str() {
            "scratch" => Cluster::scratch(&programs(), &folder, random(), Vec::new()),
            _ => Cluster::start(&programs(), quick(&folder)),
        };
        (cluster.unwrap(), folder)
    });
    let (cluster, folder) = cluster.join().unwrap();
    println!("\nREADY {} {} {}", cluster.pid(), cluster.url("postgres"), folder.display());
    // Ends only by being killed, or when the other test has ended.
    assert!(input.next().is_none());
}

#[test]
fn a_second_start_keeps_the_data_and_an_orderly_stop_leaves_no_process() {
    let folder = Folder::new();
    let start = SystemClock.instant();
    let cluster = Cluster::start(&programs(), Options::new(folder.database())).unwrap();
    println!("empty to ready, durable: {:?}", start.elapsed());
    let pid = cluster.pid();
    let url = cluster.url("postgres");
    assert_eq!(query(&url, "CREATE TABLE t AS SELECT 7 AS n; SELECT n FROM t"), 7);
    let encoding = "SELECT (pg_encoding_to_char(encoding) = 'UTF8' AND datcollate = 'C' \
         AND current_setting('data_checksums') = 'on' AND current_setting('fsync') = 'on' \
         AND current_setting('listen_addresses') = '')::int FROM pg_database WHERE datname = current_database()";
    assert_eq!(query(&url, encoding), 1);
    let start = SystemClock.instant();
    cluster.stop().unwrap();
    println!("orderly stop: {:?}", start.elapsed());
    assert!(!runs(pid));

    let start = SystemClock.instant();
    let settings = vec![("work_mem".to_owned(), "7MB".to_owned())];
    let cluster = Cluster::start(&programs(), Options { settings, ..quick(&folder.database()) }).unwrap();
    println!("second start: {:?}", start.elapsed());
    assert_eq!(query(&cluster.url("postgres"), "SELECT n FROM t"), 7);
    let set = "SELECT (current_setting('work_mem') = '7MB' AND current_setting('fsync') = 'off')::int";
    assert_eq!(query(&cluster.url("postgres"), set), 1);
    // What is not stopped but dropped ends too.
    let pid = cluster.pid();
    drop(cluster);
    eventually("the server ends", || !runs(pid));
}

#[test]
fn only_the_databases_account_gets_in() {
    let folder = Folder::new();
    let cluster = Cluster::start(&programs(), quick(&folder.database())).unwrap();
    let server = std::fs::metadata(format!("/proc/{}", cluster.pid())).unwrap().uid();
    for closed in [home(&folder.database()).join("data"), local_socket(&cluster)] {
        let found = std::fs::metadata(&closed).unwrap();
        assert_eq!((found.mode() & 0o777, found.uid()), (0o700, server), "{closed:?}");
    }
    assert_ne!(server, 0);
}

#[test]
fn a_killed_parent_takes_database_and_folder_with_it() {
    let folder = Folder::new();
    let mut parent = Parent::start("scratch", &folder.0);
    let scratch = |folder: &Path| {
        let entries = std::fs::read_dir(folder).unwrap().flatten();
        entries.filter(|entry| entry.file_type().unwrap().is_dir()).count()
    };
    assert_eq!(query(&parent.url, "SELECT 1"), 1);
    assert_eq!(scratch(&parent.folder), 1);
    parent.kill();
    let gone = eventually("the server ends", || !runs(parent.server));
    let removed = eventually("the folder is removed", || scratch(&folder.0) == 0);
    println!("killed parent to server gone: {gone:?}, and to folder removed: {removed:?} more");
}

#[test]
fn a_sweep_removes_what_nobody_ended_and_leaves_what_lives() {
    let folder = Folder::new();
    let living = Cluster::scratch(&programs(), &folder.0, random(), Vec::new()).unwrap();
    let mut parent = Parent::start("scratch", &folder.0);
    // With its watcher killed first, nothing ends this one.
    kill_process(parent.watcher().unwrap(), Signal::KILL).unwrap();
    parent.kill();
    assert!(runs(parent.server));

    let start = SystemClock.instant();
    let next = Cluster::scratch(&programs(), &folder.0, random(), Vec::new()).unwrap();
    // Told to end at once, not only when the wait for an orderly end is over.
    assert!(start.elapsed() < LIMIT, "{:?}", start.elapsed());
    assert!(!runs(parent.server));
    assert_eq!(query(&living.url("postgres"), "SELECT 1"), 1);
    assert_eq!(query(&next.url("postgres"), "SELECT 1"), 1);
    living.stop().unwrap();
    next.stop().unwrap();
    let left: Vec<_> = std::fs::read_dir(&folder.0).unwrap().flatten().map(|e| e.file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_database_starts_after_its_parent_was_killed() {
    let folder = Folder::new();
    let mut parent = Parent::start("keep", &folder.database());
    query(&parent.url, "CREATE TABLE t AS SELECT 5 AS n; SELECT 1");
    parent.kill();
    // At once: its predecessor is still about to end.
    let cluster = Cluster::start(&programs(), quick(&folder.database())).unwrap();
    assert_eq!(query(&cluster.url("postgres"), "SELECT n FROM t"), 5);
    cluster.stop().unwrap();

    // Now nothing ends the predecessor but the next start.
    let mut parent = Parent::start("keep", &folder.database());
    kill_process(parent.watcher().unwrap(), Signal::KILL).unwrap();
    parent.kill();
    assert!(runs(parent.server));
    let cluster = Cluster::start(&programs(), quick(&folder.database())).unwrap();
    assert!(!runs(parent.server));
    assert_eq!(query(&cluster.url("postgres"), "SELECT n FROM t"), 5);
    cluster.stop().unwrap();
}

#[test]
fn a_folder_has_one_service() {
    let folder = Folder::new();
    let cluster = Cluster::start(&programs(), quick(&folder.database())).unwrap();
    let error = Cluster::start(&programs(), quick(&folder.database())).unwrap_err();
    assert!(one_line(&error).contains("in use by another process"), "{error}");
    assert!(matches!(local_postgres::remove(&folder.database()), Err(Error::Busy { .. })));
    assert_eq!(query(&cluster.url("postgres"), "SELECT 1"), 1);
    cluster.stop().unwrap();
}

#[test]
fn a_killed_server_starts_again_on_its_data() {
    let folder = Folder::new();
    let mut cluster = Cluster::start(&programs(), quick(&folder.database())).unwrap();
    let (url, pid) = (cluster.url("postgres"), cluster.pid());
    query(&url, "CREATE TABLE t AS SELECT 3 AS n; SELECT 1");
    let start = SystemClock.instant();
    cluster.kill().unwrap();
    println!("killed server to gone: {:?}", start.elapsed());
    assert!(!runs(pid));
    let start = SystemClock.instant();
    cluster.restart().unwrap();
    println!("killed server to ready again: {:?}", start.elapsed());
    assert_ne!(cluster.pid(), pid);
    assert_eq!(query(&url, "SELECT n FROM t"), 3);
    cluster.restart().unwrap();
    assert_eq!(query(&url, "SELECT n FROM t"), 3);
    cluster.stop().unwrap();
}

#[test]
fn a_killed_server_is_gone_only_with_the_last_of_its_processes() {
    let folder = Folder::new();
    let mut cluster = Cluster::start(&programs(), quick(&folder.database())).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (backend, connection) = runtime.block_on(async {
        let mut connection = PgConnection::connect(&cluster.url("postgres")).await.unwrap();
        let pid: i32 =
            sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut connection).await.unwrap();
        (Pid::from_raw(pid).unwrap(), connection)
    });
    // A process that does not react is one that might still write.
    kill_process(backend, Signal::STOP).unwrap();
    let (tell, killed) = channel();
    let killing = std::thread::spawn(move || {
        tell.send(cluster.kill()).unwrap();
        cluster
    });
    let early = killed.recv_timeout(Duration::from_millis(300));
    kill_process(backend, Signal::CONT).unwrap();
    assert!(early.is_err(), "gone with a process left");
    killed.recv().unwrap().unwrap();
    let mut cluster = killing.join().unwrap();
    // The next start takes away the shared memory that a killed server leaves.
    cluster.restart().unwrap();
    cluster.stop().unwrap();
    drop(connection);
}

#[test]
fn a_terminals_ctrl_c_does_not_reach_the_database() {
    let folder = Folder::new();
    let parent = Parent::start("scratch", &folder.0);
    let group = |pid: Option<Pid>| rustix::process::getpgid(pid).unwrap();
    assert_ne!(group(Some(number(parent.server))), group(None));
    assert_eq!(group(parent.watcher()), number(parent.server));
}

#[test]
fn a_scratch_cluster_can_be_killed_and_restarted_and_is_removed() {
    let folder = Folder::new();
    let start = SystemClock.instant();
    let mut cluster = Cluster::scratch(&programs(), &folder.0, random(), Vec::new()).unwrap();
    println!("empty to ready, scratch: {:?}", start.elapsed());
    cluster.kill().unwrap();
    cluster.restart().unwrap();
    assert_eq!(query(&cluster.url("postgres"), "SELECT 1"), 1);
    let start = SystemClock.instant();
    cluster.stop().unwrap();
    println!("scratch stopped and removed: {:?}", start.elapsed());
    let dirs = std::fs::read_dir(&folder.0).unwrap().flatten().filter(|e| e.file_type().unwrap().is_dir());
    assert_eq!(dirs.count(), 0);
}

#[test]
fn a_half_made_cluster_is_made_anew() {
    let folder = Folder::new();
    Cluster::start(&programs(), quick(&folder.database())).unwrap().stop().unwrap();
    let (data, half) = (home(&folder.database()).join("data"), home(&folder.database()).join("data.new"));
    std::fs::rename(&data, &half).unwrap();
    std::fs::write(half.join("PG_VERSION"), "0\n").unwrap();
    let cluster = Cluster::start(&programs(), quick(&folder.database())).unwrap();
    assert_eq!(query(&cluster.url("postgres"), "SELECT 1"), 1);
    assert!(!half.exists());
    cluster.stop().unwrap();
}

#[test]
fn a_parent_killed_while_it_makes_the_cluster_leaves_nothing_to_trip_over() {
    let folder = Folder::new();
    let database = folder.database();
    let mut parent = Parent::spawn("keep", &database);
    eventually("the cluster is being made", || home(&database).join("data.new/base").exists());
    parent.kill().unwrap();
    parent.wait().unwrap();
    assert!(!home(&database).join("data").exists());
    let cluster = Cluster::start(&programs(), quick(&database)).unwrap();
    assert_eq!(query(&cluster.url("postgres"), "SELECT 1"), 1);
    assert!(!home(&database).join("data.new").exists());
    cluster.stop().unwrap();
}

#[test]
fn scratch_clusters_started_at_once_do_not_disturb_each_other() {
    fn shared<T: Send + Sync>(value: T) -> T {
        value
    }
    let folder = Folder::new();
    let clusters = std::thread::scope(|scope| {
        let start = || shared(Cluster::scratch(&programs(), &folder.0, random(), Vec::new()).unwrap());
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(start)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    for cluster in &clusters {
        assert_eq!(query(&cluster.url("postgres"), "SELECT 1"), 1);
    }
    for cluster in clusters {
        cluster.stop().unwrap();
    }
}

#[test]
fn another_versions_data_is_refused_in_one_line() {
    let folder = Folder::new();
    Cluster::start(&programs(), quick(&folder.database())).unwrap().stop().unwrap();
    let version = home(&folder.database()).join("data/PG_VERSION");
    std::fs::write(&version, "9\n").unwrap();
    let line = one_line(&Cluster::start(&programs(), quick(&folder.database())).unwrap_err());
    let ours = format!("PostgreSQL {}", programs().major());
    for part in ["made by PostgreSQL 9,", &ours, "--reset"] {
        assert!(line.contains(part), "{part} is not in: {line}");
    }
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let folder = Folder::new();
    let file = folder.0.join("file");
    std::fs::write(&file, "").unwrap();
    let line = one_line(&Cluster::start(&programs(), quick(&file.join("pg"))).unwrap_err());
    assert!(line.contains("cannot write") && line.contains(&*file.to_string_lossy()), "{line}");
}

#[test]
fn a_server_that_does_not_start_says_why_in_one_line() {
    let folder = Folder::new();
    let settings = vec![("shared_buffers".to_owned(), "much".to_owned())];
    let options = Options { settings, ..quick(&folder.database()) };
    let line = one_line(&Cluster::start(&programs(), options).unwrap_err());
    assert!(line.contains("did not start") && line.contains("shared_buffers"), "{line}");
    // And the folder is free again.
    Cluster::start(&programs(), quick(&folder.database())).unwrap().stop().unwrap();
}

#[test]
fn odd_and_long_folder_names_work() {
    for name in ["a, \"b\" %2F ü'$x".to_owned(), "long".repeat(40)] {
        let folder = Folder::new();
        let odd = folder.0.join(name);
        let options = Options { on_exit: OnExit::Remove, ..quick(&odd) };
        let cluster = Cluster::start(&programs(), options).unwrap();
        assert_eq!(query(&cluster.url("postgres"), "SELECT 1"), 1);
        assert!(home(&odd).join("data/PG_VERSION").exists());
        let socket = local_socket(&cluster);
        assert!(socket.exists());
        cluster.stop().unwrap();
        assert!(!odd.exists() && !socket.exists());
    }
}

/// The socket's folder, from the URL.
fn local_socket(cluster: &Cluster) -> PathBuf {
    let url = cluster.url("x");
    let host = url.split_once('@').unwrap().1.split_once(':').unwrap().0;
    PathBuf::from(percent_encoding::percent_decode_str(host).decode_utf8().unwrap().into_owned())
}

#[test]
fn below_a_folder_closed_to_the_databases_account_the_data_is_elsewhere() {
    if !geteuid().is_root() {
        // Whoever is not root runs the database as himself, and nothing of his is closed to him.
        return;
    }
    let folder = Folder::new();
    std::fs::set_permissions(&folder.0, PermissionsExt::from_mode(0o700)).unwrap();
    let cluster = Cluster::start(&programs(), quick(&folder.database())).unwrap();
    query(&cluster.url("postgres"), "CREATE TABLE t AS SELECT 9 AS n; SELECT 1");
    let pointer = std::fs::read_to_string(folder.database().join("data-is-at")).unwrap();
    let home = PathBuf::from(pointer.trim());
    assert!(home.starts_with("/var/tmp") && home.join("data/PG_VERSION").exists(), "{home:?}");
    assert!(matches!(Cluster::start(&programs(), quick(&folder.database())), Err(Error::Busy { .. })));
    cluster.stop().unwrap();

    let cluster = Cluster::start(&programs(), quick(&folder.database())).unwrap();
    assert_eq!(query(&cluster.url("postgres"), "SELECT n FROM t"), 9);
    cluster.stop().unwrap();

    // Who removes the folder starts over.
    std::fs::remove_dir_all(folder.database()).unwrap();
    let cluster = Cluster::start(&programs(), quick(&folder.database())).unwrap();
    assert_eq!(query(&cluster.url("postgres"), "SELECT count(*)::int FROM pg_class WHERE relname = 't'"), 0);
    cluster.stop().unwrap();
    local_postgres::remove(&folder.database()).unwrap();
    assert!(!home.exists() && !folder.database().exists());
}
