//! The services: the real program, started, killed, stopped and continued. What they say goes into files of the run's folder.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use publish_ingest::clock::{Clock as _, SystemClock};
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::oneshot;

use crate::operator::Shell;
use crate::proxy::Proxy;

/// How long a service may take to be ready, or to end: far above what it takes.
const WITHIN: Duration = Duration::from_mins(1);

/// The pause between two looks at what no signal tells.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// How long a service that is armed is left to come to its point before it may be killed elsewhere.
const ON_ITS_WAY: Duration = Duration::from_secs(5);

/// Where Debian puts it; other systems say so by `PUBLISH_FAKETIME`.
const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

/// A fault that a service is started with: it happens when it comes to that point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Armed {
    pub(crate) point: &'static str,
    /// For the how many-th time, from 1.
    pub(crate) count: u32,
    /// Whether it stops there, to be continued, rather than die.
    pub(crate) stops: bool,
}

/// What a service is started with.
#[derive(Debug, Clone, Default)]
pub(crate) struct Manner {
    pub(crate) armed: Option<Armed>,
    /// How far its clock is off, as libfaketime is told.
    pub(crate) clock: Option<&'static str>,
}

/// The library that moves a program's clock, where it is installed.
pub(crate) fn faketime() -> Result<PathBuf, String> {
    let named = std::env::var_os("PUBLISH_FAKETIME").map_or_else(|| FAKETIME.into(), PathBuf::from);
    if named.is_file() {
        return Ok(named);
    }
    Err(format!("{} is not there: run .ci/platforms/install, or set PUBLISH_FAKETIME", named.display()))
}

/// Waits until something is so, which no signal tells.
pub(crate) async fn until(what: &str, within: Duration, mut so: impl AsyncFnMut() -> bool) {
    let begun = SystemClock.instant();
    while !so().await {
        assert!(begun.elapsed() < within, "{what}: not within {within:?}");
        tokio::time::sleep(LOOK).await;
    }
}

/// One of the services; whoever serves in this place is reached through its door.
pub(crate) struct Service {
    name: &'static str,
    child: Child,
    pub(crate) manner: Manner,
    began: Instant,
    /// Set while it is stopped, or about to be continued.
    pub(crate) stopped: bool,
}

/// What services are started from.
pub(crate) struct Start {
    pub(crate) shell: Shell,
    pub(crate) folder: PathBuf,
    pub(crate) settings: Vec<(&'static str, String)>,
}

impl Start {
    /// Starts a service and waits until it is ready, and reached through `door`; none if it died meanwhile.
    pub(crate) async fn serve(
        &self,
        name: &'static str,
        manner: Manner,
        door: &Proxy,
    ) -> Result<Service, String> {
        let mut command = self.shell.command(&["serve"]);
        command.envs(self.settings.iter().map(|(name, value)| (*name, value.as_str())));
        if let Some(armed) = &manner.armed {
            let deed = if armed.stops { "stop" } else { "abort" };
            command.env("PUBLISH_FAULT_AT", format!("{}:{}:{deed}", armed.point, armed.count));
        }
        if let Some(clock) = manner.clock {
            command.env("LD_PRELOAD", faketime()?).env("FAKETIME", clock);
            // Or waits would never end.
            command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("DONT_FAKE_MONOTONIC", "1");
        }
        self.spawn(name, manner, command, door).await
    }

    async fn spawn(
        &self,
        name: &'static str,
        manner: Manner,
        mut command: Command,
        door: &Proxy,
    ) -> Result<Service, String> {
        command.stdout(Stdio::piped()).stderr(self.log(name));
        let mut child = command.spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (tell, told) = oneshot::channel();
        std::thread::spawn(move || {
            let mut lines = stdout.lines().map_while(Result::ok);
            let ready = lines
                .find_map(|line| line.strip_prefix("publish-ingest is ready on http://").map(str::to_owned));
            let _ = tell.send(ready);
            for _ in lines {}
        });
        let mut service = Service { name, child, manner, began: SystemClock.instant(), stopped: false };
        let Ok(Ok(Some(address))) = tokio::time::timeout(WITHIN, told).await else {
            service.kill();
            return Err(format!("{name} did not start: see {name}.log in {}", self.folder.display()));
        };
        door.lead_to(Some(address));
        Ok(service)
    }

    fn log(&self, name: &str) -> File {
        let path = self.folder.join(format!("{name}.log"));
        OpenOptions::new().create(true).append(true).open(path).unwrap()
    }
}

impl Service {
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Whether it is on its way to the point that it is armed with.
    pub(crate) fn is_on_its_way(&self) -> bool {
        self.manner.armed.is_some() && self.began.elapsed() < ON_ITS_WAY
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }

    /// How it ended, if it did.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// As the kernel would when memory is short.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn stop(&mut self) {
        self.signal(Signal::STOP);
        self.stopped = true;
    }

    pub(crate) fn go_on(&mut self) {
        self.signal(Signal::CONT);
        self.stopped = false;
    }

    /// Whether it has stopped itself, or was stopped: Linux alone tells.
    pub(crate) fn stands_still(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
    }

    /// Asks it to end, and waits until it has, with all that it had in hand.
    pub(crate) async fn end(&mut self) {
        if self.ended().is_some() {
            return;
        }
        self.signal(Signal::TERM);
        let mut status = None;
        let name = self.name;
        until(&format!("{name} ends"), WITHIN, async || {
            status = self.ended();
            status.is_some()
        })
        .await;
        assert!(status.is_some_and(|status| status.success()), "{name}: {status:?}");
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
