//! What `dev` keeps in its folder, and what it says when it cannot start.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use publish_ingest::clock::{Clock as _, SystemClock};
use publish_ingest::local_postgres::Cluster;
use rustix::process::{Signal, geteuid};
use tokio::net::TcpListener;

use crate::api::{Api, article};
use crate::program::{
    Dev, Folder, database, dev, failure, postmaster, program, programs, refused, run, runs,
};

#[tokio::test]
async fn a_second_start_keeps_data_and_keys_and_a_reset_starts_over() {
    let folder = Folder::new();
    let first = Dev::start(&folder, &[]).await;
    let (key, secret) =
        (first.env("PUBLISH_API_KEY").to_owned(), first.env("PUBLISH_SIGNING_SECRET").to_owned());
    assert_eq!(first.env("PUBLISH_URL"), first.url);
    let env = std::fs::read_to_string(folder.dev().join("env")).unwrap();
    let names = env.lines().map(|line| line.split_once('=').unwrap().0).collect::<Vec<_>>();
    assert_eq!(names, ["PUBLISH_URL", "PUBLISH_API_KEY", "PUBLISH_SIGNING_SECRET"]);
    for holds_secrets in ["env", "master.key"] {
        let mode = std::fs::metadata(folder.dev().join(holds_secrets)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{holds_secrets}");
    }
    let sent = first.api().publish(&article("kept")).await.unwrap().ok();
    first.api().published("kept").await;

    let line = failure(dev(&folder)).await;
    assert!(line.contains("in use by another `dev`") && line.contains("--folder"), "{line}");
    assert_eq!(first.api().get("/readyz").await.unwrap().status, 200);
    assert!(first.stop(Signal::TERM).await.0.success());

    let second = Dev::start(&folder, &[]).await;
    assert_eq!((second.env("PUBLISH_API_KEY"), second.env("PUBLISH_SIGNING_SECRET")), (&*key, &*secret));
    let again = second.api().publish(&article("kept")).await.unwrap().ok();
    assert_eq!((&again["created"], &again["task_id"]), (&false.into(), &sent["task_id"]));
    assert_eq!(folder.pages().len(), 1);
    assert!(second.stop(Signal::TERM).await.0.success());

    let mut reset = dev(&folder);
    reset.arg("--reset");
    let third = Dev::spawn(reset, &folder).await;
    assert_ne!(third.env("PUBLISH_API_KEY"), key);
    assert_ne!(third.env("PUBLISH_SIGNING_SECRET"), secret);
    assert_eq!(folder.pages().len(), 0);
    assert_eq!(third.api().with_key(&key).task("kept").await.unwrap().status, 401);
    assert_eq!(third.api().task("kept").await.unwrap().status, 404);
    assert!(third.stop(Signal::TERM).await.0.success());
}

/// Before the first green answer everything that a script needs is there.
#[tokio::test]
async fn the_env_file_is_complete_before_readyz_is_green() {
    let folder = Folder::new();
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let url = database().await;
    let mut command = dev(&folder);
    command.env("PUBLISH_LISTEN", port.to_string()).env("DATABASE_URL", &url);
    let started = Dev::begin(command);
    let api = Api::new(&format!("http://{port}"), None);
    crate::program::eventually("/readyz is green", async || {
        api.get("/readyz").await.is_ok_and(|answer| answer.status == 200)
    })
    .await;
    let env = std::fs::read_to_string(folder.dev().join("env")).unwrap();
    let key = env.lines().find_map(|line| line.strip_prefix("PUBLISH_API_KEY=")).unwrap();
    assert_eq!(env.lines().count(), 3, "{env}");
    assert_eq!(api.with_key(key).publish(&article("early")).await.unwrap().ok()["created"], true);
    assert!(started.stop(Signal::TERM).await.0.success());
}

#[tokio::test]
async fn a_port_in_use_is_named_with_the_setting_that_changes_it() {
    let folder = Folder::new();
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut command = dev(&folder);
    command.env("PUBLISH_LISTEN", &address);
    let line = failure(command).await;
    assert!(line.contains(&address) && line.contains("PUBLISH_LISTEN"), "{line}");
}

#[tokio::test]
async fn a_folder_that_is_not_ours_to_use_is_refused_and_left_as_it_is() {
    let folder = Folder::new();
    std::fs::create_dir(folder.dev()).unwrap();
    std::fs::write(folder.dev().join("lock"), "").unwrap();
    std::fs::write(folder.dev().join("version"), "0\n").unwrap();
    let line = failure(dev(&folder)).await;
    assert!(line.contains("another version") && line.contains("--reset"), "{line}");
    assert_eq!(std::fs::read_to_string(folder.dev().join("version")).unwrap(), "0\n");

    std::fs::remove_file(folder.dev().join("version")).unwrap();
    std::fs::remove_file(folder.dev().join("lock")).unwrap();
    std::fs::write(folder.dev().join("thesis.txt"), "x").unwrap();
    for arguments in [&[][..], &["--reset"]] {
        let mut command = dev(&folder);
        command.args(arguments);
        let line = failure(command).await;
        assert!(line.contains("is not a folder of `dev`") && line.contains("--folder"), "{line}");
    }
    assert_eq!(std::fs::read_dir(folder.dev()).unwrap().count(), 1);

    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let mut command = dev(&folder);
    command.arg("--folder").arg(file.join("below"));
    let line = failure(command).await;
    assert!(line.contains("cannot write") && line.contains("--folder"), "{line}");
    if !geteuid().is_root() {
        let closed = folder.path().join("closed");
        std::fs::create_dir(&closed).unwrap();
        std::fs::set_permissions(&closed, PermissionsExt::from_mode(0o555)).unwrap();
        let mut command = dev(&folder);
        command.arg("--folder").arg(closed.join("below"));
        let line = failure(command).await;
        assert!(line.contains("cannot write") && line.contains("--folder"), "{line}");
    }
}

#[tokio::test]
async fn without_postgres_programs_one_line_says_what_to_do() {
    let folder = Folder::new();
    let nothing = folder.path().join("nothing");
    std::fs::create_dir(&nothing).unwrap();
    let mut command = dev(&folder);
    command.env("PATH", "").env("PUBLISH_POSTGRES_BIN", &nothing);
    let line = failure(command).await;
    for part in [nothing.to_str().unwrap(), "install", "PUBLISH_POSTGRES_BIN"] {
        assert!(line.contains(part), "{part} is not in: {line}");
    }
}

#[tokio::test]
async fn a_reset_does_not_take_the_key_to_a_database_that_is_named() {
    let folder = Folder::new();
    let url = database().await;
    let first = Dev::start(&folder, &[("DATABASE_URL", &url)]).await;
    let key = std::fs::read(folder.dev().join("master.key")).unwrap();
    assert!(first.stop(Signal::TERM).await.0.success());
    let mut reset = dev(&folder);
    reset.arg("--reset").env("DATABASE_URL", &url);
    let line = failure(reset).await;
    assert!(line.contains("--reset") && line.contains("DATABASE_URL"), "{line}");
    assert_eq!(std::fs::read(folder.dev().join("master.key")).unwrap(), key);
    let second = Dev::start(&folder, &[("DATABASE_URL", &url)]).await;
    assert!(second.stop(Signal::TERM).await.0.success());
}

#[tokio::test]
async fn a_database_that_is_named_is_used_and_no_other_is_started() {
    let folder = Folder::new();
    let url = database().await;
    let dev = Dev::start(&folder, &[("DATABASE_URL", &url)]).await;
    dev.api().publish(&article("elsewhere")).await.unwrap().ok();
    dev.api().published("elsewhere").await;
    assert!(!folder.dev().join("postgres").exists());
    assert!(dev.stop(Signal::TERM).await.0.success());
    // The data is there, whatever folder it is used from.
    let other = Folder::new();
    std::fs::create_dir(other.dev()).unwrap();
    for kept in ["lock", "version", "master.key", "env"] {
        std::fs::copy(folder.dev().join(kept), other.dev().join(kept)).unwrap();
    }
    let dev = Dev::start(&other, &[("DATABASE_URL", &url)]).await;
    dev.api().published("elsewhere").await;
    assert!(dev.stop(Signal::TERM).await.0.success());
}

#[tokio::test]
async fn a_database_that_is_not_there_is_told_in_bounded_time() {
    let folder = Folder::new();
    // Bound and dropped: nobody listens there.
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let mut command = dev(&folder);
    command.env("DATABASE_URL", format!("postgres://nobody:hunter2@127.0.0.1:{port}/none"));
    let begun = SystemClock.instant();
    let line = failure(command).await;
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert!(line.contains("DATABASE_URL") && !line.contains("hunter2"), "{line}");
    for wrong in ["mysql://u:hunter2@h/d", "nonsense", "postgres://u:hunter2@h:port/d"] {
        let mut command = dev(&folder);
        command.env("DATABASE_URL", wrong);
        let told = refused(command).await;
        assert!(told.len() == 1 && told[0].contains("DATABASE_URL: "), "{wrong}: {told:?}");
        assert!(told[0].contains("postgres://user") && !told[0].contains("hunter2"), "{told:?}");
    }
}

#[tokio::test]
async fn wrong_usage_exits_with_2() {
    let folder = Folder::new();
    for arguments in [&[][..], &["dve"], &["dev", "--lease", "1s"], &["dev", "--listen", "here"], &["key"]] {
        let mut command = program(arguments);
        command.current_dir(folder.path());
        let output = run(command).await;
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!output.stderr.is_empty());
    }
    let asked = run(program(&["--version"])).await;
    assert!(asked.status.success());
}

/// A start that fails has not begun a database that nobody ends.
#[tokio::test]
async fn a_start_that_fails_late_leaves_no_database_running() {
    let folder = Folder::new();
    // A private database with the tenant made under another master key.
    let first = Dev::start(&folder, &[]).await;
    assert!(first.stop(Signal::TERM).await.0.success());
    std::fs::write(folder.dev().join("master.key"), "bm90IGEga2V5\n").unwrap();
    let line = failure(dev(&folder)).await;
    assert!(line.contains("master.key") && line.contains("--reset"), "{line}");
    assert!(postmaster(&folder).is_none_or(|pid| !runs(pid)));
    let cluster = tokio::task::spawn_blocking({
        let data = folder.dev().join("postgres");
        move || Cluster::start(&programs(), publish_ingest::local_postgres::Options::new(data))
    });
    cluster.await.unwrap().unwrap().stop().unwrap();
}
