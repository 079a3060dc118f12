//! What processes use of the machine, as Linux tells it.

use std::path::PathBuf;
use std::time::Duration;

use crate::Failed;

/// The processor time of a tick of `/proc`: 100 Hz on every Linux.
const TICK: Duration = Duration::from_millis(10);

/// The processor time that the parts of a run have used.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Used {
    pub(crate) service: Duration,
    pub(crate) database: Duration,
    pub(crate) driver: Duration,
}

impl Used {
    /// What has been used until now.
    pub(crate) fn until_now(service: u32, database: u32) -> Result<Self, Failed> {
        let service = of_process(service)?;
        let driver = of_process(std::process::id())?;
        Ok(Self { service, database: of_tree(database)?, driver })
    }

    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            service: self.service.saturating_sub(earlier.service),
            database: self.database.saturating_sub(earlier.database),
            driver: self.driver.saturating_sub(earlier.driver),
        }
    }

    pub(crate) fn all(self) -> Duration {
        self.service + self.database + self.driver
    }
}

/// A line of `/proc/PID/stat`.
struct Stat {
    parent: u32,
    own: u32,
    /// Of children that have ended and were waited for.
    ended: u32,
}

impl Stat {
    fn read(process: &str) -> Result<Self, Failed> {
        let text = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
        // The name, in brackets, may hold anything.
        let (_, rest) = text.rsplit_once(')').ok_or("a line of /proc without a name")?;
        let fields = rest.split_whitespace().collect::<Vec<_>>();
        let number =
            |at: usize| fields.get(at).and_then(|field| field.parse::<u32>().ok()).unwrap_or_default();
        Ok(Self { parent: number(1), own: number(11) + number(12), ended: number(13) + number(14) })
    }
}

fn of_process(pid: u32) -> Result<Duration, Failed> {
    Ok(TICK * Stat::read(&pid.to_string())?.own)
}

/// Of a process and its children, also of those that have ended.
fn of_tree(pid: u32) -> Result<Duration, Failed> {
    let root = Stat::read(&pid.to_string())?;
    let mut ticks = root.own + root.ended;
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let name = entry.file_name().into_string().unwrap_or_default();
        if !name.starts_with(|first: char| first.is_ascii_digit()) {
            continue;
        }
        // A process may end while it is looked at.
        if let Ok(stat) = Stat::read(&name)
            && stat.parent == pid
        {
            ticks += stat.own;
        }
    }
    Ok(TICK * ticks)
}

/// The memory that a process has, and the most that it had, in KiB.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Memory {
    pub(crate) now_kib: u64,
    pub(crate) peak_kib: u64,
}

impl Memory {
    pub(crate) fn of(pid: u32) -> Result<Self, Failed> {
        let text = std::fs::read_to_string(PathBuf::from(format!("/proc/{pid}/status")))?;
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse().ok()
        };
        let missing = "a process without memory";
        Ok(Self { now_kib: value("VmRSS:").ok_or(missing)?, peak_kib: value("VmHWM:").ok_or(missing)? })
    }
}
