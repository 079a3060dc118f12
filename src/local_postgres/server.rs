//! The processes of one database: the server, what ends it with its parent, and what removes its folder.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::Signal;

use super::place::Place;
use super::programs::Programs;
use super::{Durability, Error, OnExit, Options, PORT, SUPERUSER};

/// How long a server may take to be ready: one that was killed replays its journal first.
const START_LIMIT: Duration = Duration::from_mins(1);
/// The pause between two looks at the server's status file; also how late its end is noticed at worst.
const LOOK: Duration = Duration::from_millis(10);

/// Starts the server in place of the shell, and beside it a watcher that waits for the end of the lifeline: when
/// the parent lets go of it, or dies, the watcher ends the server; a line tells it that there is nothing to end.
/// The watcher is nobody's child, so that its end does not alarm the server. The server and all it starts hold the
/// lock (as their input) and the remover's pipe, for as long as one of them lives.
const WATCHED: &str = r#"
signal=$1 log=$2
shift 2
exec 3<&0
( ( read -r line <&3 || kill -s "$signal" $$ ) >/dev/null 2>&1 & )
exec "$@" <&2 3>&1 >"$log" 2>&1
"#;

/// Removes folders when nobody holds the other end of its input any more.
const REMOVER: &str = r#"cat >/dev/null; rm -rf -- "$@""#;

/// A running server.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) pid: u32,
    lifeline: Arc<Mutex<Option<ChildStdin>>>,
    ended: Mutex<Receiver<Option<ExitStatus>>>,
}

impl Server {
    /// Starts the server and waits until it is ready.
    pub(super) fn start(
        programs: &Programs,
        options: &Options,
        place: &Place,
        alive: File,
        remover: Option<&Remover>,
    ) -> Result<Self, Error> {
        let sh = Path::new("/bin/sh");
        let mut command = place.account.command(sh);
        command
            .args(["-c", WATCHED, "publish-ingest-watcher", signal_name(options.on_exit)])
            .arg(place.log());
        command.arg(programs.postgres()).arg("-D").arg(place.data()).arg("-p").arg(PORT.to_string());
        for (name, value) in settings(options, place) {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        command.stdin(Stdio::piped()).stdout(held(remover)?).stderr(alive);
        let mut child = command.spawn().map_err(Error::run(sh))?;
        // The parent's copy of the lock has to go, or the lock would tell nothing of the children.
        drop(command);
        let lifeline = Arc::new(Mutex::new(child.stdin.take()));
        let (tell, ended) = channel();
        let server = Self { pid: child.id(), lifeline: Arc::clone(&lifeline), ended: Mutex::new(ended) };
        std::thread::spawn(move || {
            let status = child.wait().ok();
            if let Some(mut lifeline) = lifeline.lock().unwrap_or_else(PoisonError::into_inner).take() {
                // The number may soon be another process's: the watcher must not signal it.
                let _ = std::io::Write::write_all(&mut lifeline, b"gone\n");
            }
            let _ = tell.send(status);
        });
        server.wait_until_ready(place)?;
        Ok(server)
    }

    fn wait_until_ready(&self, place: &Place) -> Result<(), Error> {
        let file = place.data().join("postmaster.pid");
        let tries = START_LIMIT.as_millis() / LOOK.as_millis();
        for _ in 0..tries {
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            let mut lines = text.lines();
            // Line 1 is the server's number, line 8 its status.
            let own = lines.next().is_some_and(|pid| pid.trim() == self.pid.to_string());
            if own && lines.nth(6).is_some_and(|status| status.trim() == "ready") {
                return Ok(());
            }
            if let Some(status) = self.wait(LOOK) {
                let status = status.map_or_else(|| "unknown".to_owned(), |status| status.to_string());
                return Err(Error::Start { why: log_tail(&place.log()).unwrap_or(status) });
            }
        }
        let why = format!("not ready after {} s; ", START_LIMIT.as_secs());
        Err(Error::Start { why: why + &log_tail(&place.log()).unwrap_or_default() })
    }

    /// Has the watcher end the server.
    pub(super) fn let_go(&self) {
        self.lifeline.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Waits for the server's end; `None` if it still runs after `limit`.
    #[expect(clippy::option_option, reason = "still running, ended, ended with a status")]
    pub(super) fn wait(&self, limit: Duration) -> Option<Option<ExitStatus>> {
        match self.ended.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(limit) {
            Ok(status) => Some(status),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(None),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The thread that waits for the server holds the lifeline too.
        self.let_go();
    }
}

/// A process that removes the folders when the parent and every process of the database are gone.
#[derive(Debug)]
pub(super) struct Remover {
    held: OwnedFd,
    child: Child,
}

impl Remover {
    pub(super) fn start(place: &Place) -> Result<Self, Error> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", REMOVER, "publish-ingest-remover"]).args(&place.elsewhere).arg(&place.folder);
        command.current_dir("/").process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(Error::run(Path::new("/bin/sh")))?;
        match child.stdin.take() {
            Some(held) => Ok(Self { held: held.into(), child }),
            None => Err(Error::run(Path::new("/bin/sh"))(std::io::ErrorKind::BrokenPipe.into())),
        }
    }

    /// Waits until the folders are removed; the database has to be gone.
    pub(super) fn finish(self) {
        let Self { held, mut child } = self;
        drop(held);
        let _ = child.wait();
    }
}

/// Makes the data of a new cluster.
pub(super) fn init(
    programs: &Programs,
    options: &Options,
    place: &Place,
    alive: &File,
    remover: Option<&Remover>,
) -> Result<(), Error> {
    let (new, data) = (place.new_data(), place.data());
    place.make_given(&new)?;
    let mut command = place.account.command(&programs.initdb());
    command.args(["--encoding=UTF8", "--locale=C", "--auth=trust", "--data-checksums", "--no-instructions"]);
    command.arg(format!("--username={SUPERUSER}"));
    if options.durability == Durability::None {
        command.arg("--no-sync");
    }
    command.arg("-D").arg(&new);
    // A killed caller's `initdb` runs on for a moment: it holds the lock, so that the next start waits for it.
    command.stdin(alive.try_clone().map_err(Error::unwritable(&place.folder))?);
    command.stdout(held(remover)?).stderr(Stdio::piped());
    let child = command.spawn().map_err(Error::run(&programs.initdb()))?;
    let output = child.wait_with_output().map_err(Error::run(&programs.initdb()))?;
    if !output.status.success() {
        let why = tail(&String::from_utf8_lossy(&output.stderr)).unwrap_or_else(|| output.status.to_string());
        return Err(Error::Init { why });
    }
    // Only a whole cluster ever has the name under which it is looked for.
    std::fs::rename(&new, &data).map_err(Error::unwritable(&data))
}

fn held(remover: Option<&Remover>) -> Result<Stdio, Error> {
    let Some(remover) = remover else { return Ok(Stdio::null()) };
    let copy = remover.held.try_clone().map_err(Error::run(Path::new("/bin/sh")))?;
    Ok(copy.into())
}

/// How a database ends with its parent: one that is thrown away needs no last checkpoint.
pub(super) fn signal(on_exit: OnExit) -> Signal {
    match on_exit {
        OnExit::Keep => Signal::INT,
        OnExit::Remove => Signal::QUIT,
    }
}

fn signal_name(on_exit: OnExit) -> &'static str {
    match on_exit {
        OnExit::Keep => "INT",
        OnExit::Remove => "QUIT",
    }
}

fn settings(options: &Options, place: &Place) -> Vec<(String, String)> {
    // The setting is a list: quotes keep a comma or a blank of a folder's name from ending an item.
    let socket = format!("\"{}\"", place.socket.to_string_lossy().replace('"', "\"\""));
    let own = [
        ("listen_addresses", ""),
        ("unix_socket_directories", socket.as_str()),
        ("unix_socket_permissions", "0700"),
        ("timezone", "UTC"),
        ("log_timezone", "UTC"),
    ];
    // Not `synchronous_commit`: without it a killed server loses what it has confirmed.
    let fast = [("fsync", "off"), ("full_page_writes", "off")];
    let fast = if options.durability == Durability::None { &fast[..] } else { &[] };
    let given = options.settings.iter().cloned();
    own.iter()
        .chain(fast)
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .chain(given)
        .collect()
}

fn log_tail(log: &Path) -> Option<String> {
    std::fs::read(log).ok().and_then(|text| tail(&String::from_utf8_lossy(&text)))
}

/// The last lines of a text, as one line.
fn tail(text: &str) -> Option<String> {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(4)..];
    (!last.is_empty()).then(|| last.join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_of_a_log_are_one_line() {
        assert_eq!(tail("a\nb\n\n c\nd\r\ne\n").as_deref(), Some("b | c | d | e"));
        assert_eq!(tail("one").as_deref(), Some("one"));
        assert_eq!(tail(" \n\n"), None);
    }
}
