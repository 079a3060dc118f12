//! Where a cluster's files are, and who may work on them.

use std::fs::{DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, geteuid, kill_process};
use sha2::{Digest, Sha256};

use super::account::Account;
use super::{Error, PORT, attempts, pause};

/// Where files go that cannot be in the folder itself: open to every account, and kept over a reboot.
const ELSEWHERE: &str = "/var/tmp";
/// The longest path of a socket on the systems this runs on (macOS; Linux has four bytes more).
const SOCKET_PATH_LIMIT: usize = 103;
/// The file in the folder that says that the data is elsewhere, and where.
const POINTER: &str = "data-is-at";
/// How long a lock of an owner that was just killed may stay: a child it was about to start still holds a copy.
pub(super) const OWNER_GRACE: Duration = Duration::from_millis(500);
/// How long an ending database may take before it is ended the hard way: the last checkpoint of a busy one.
const ORDERLY_LIMIT: Duration = Duration::from_secs(20);
/// How long it may take after that: PostgreSQL itself kills after 5 seconds what does not react.
const IMMEDIATE_LIMIT: Duration = Duration::from_secs(10);

/// The files of one cluster.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// The folder the caller named.
    pub(super) folder: PathBuf,
    /// Where the locks, the log and the data are: the folder, or a folder elsewhere.
    home: PathBuf,
    /// The folder of the socket.
    pub(super) socket: PathBuf,
    /// The folder elsewhere, if it is needed.
    pub(super) elsewhere: Option<PathBuf>,
    pub(super) account: Account,
}

impl Place {
    /// Finds a cluster's place, and makes the folders that are missing.
    pub(super) fn prepare(folder: &Path) -> Result<Self, Error> {
        std::fs::create_dir_all(folder).map_err(Error::unwritable(folder))?;
        // One folder has one name here, however the caller came to it.
        let folder = folder.canonicalize().map_err(Error::unwritable(folder))?;
        let elsewhere = elsewhere(&folder);
        let account = Account::choose(&[&folder.join("data"), &elsewhere.join("data")])?;
        set_mode(&folder, account)?;
        let apart = folder.join(POINTER).exists() || !account.reaches(&folder)?;
        let home = if apart { elsewhere.clone() } else { folder.clone() };
        let fits = |socket: &Path| {
            // sqlx takes a socket's path as text only.
            let name = socket.to_str().map(|socket| format!("{socket}/.s.PGSQL.{PORT}"));
            name.is_some_and(|name| name.len() <= SOCKET_PATH_LIMIT)
        };
        let socket = Some(home.join("s")).filter(|s| fits(s)).unwrap_or_else(|| elsewhere.join("s"));
        let elsewhere = (apart || !socket.starts_with(&home)).then_some(elsewhere);
        if let Some(elsewhere) = &elsewhere {
            make_own(elsewhere, account)?;
        }
        Ok(Self { folder, home, socket, elsewhere, account })
    }

    pub(super) fn data(&self) -> PathBuf {
        self.home.join("data")
    }

    pub(super) fn new_data(&self) -> PathBuf {
        self.home.join("data.new")
    }

    pub(super) fn log(&self) -> PathBuf {
        self.home.join("log")
    }

    /// Takes the lock that only one service at a time has; another one gets it when this one lets go or dies.
    pub(super) fn own(&self, grace: Duration) -> Result<Owner, Error> {
        Owner::of(&self.home.join("owner.lock"), &self.folder, grace)
    }

    /// Waits until no process of an earlier database is left, and gives the lock that the next one's processes
    /// inherit. What still runs has lost its service (the caller owns the folder), so it is told to end.
    pub(super) fn settle(&self, _: &Owner, first: Signal) -> Result<File, Error> {
        let alive = open_lock(&self.home.join("alive.lock"))?;
        let orderly = attempts(ORDERLY_LIMIT);
        for attempt in 0..orderly + attempts(IMMEDIATE_LIMIT) {
            // The lock alone would miss a server that somebody started here by hand.
            let postmaster = self.postmaster();
            match alive.try_lock() {
                Ok(()) if postmaster.is_none() => {
                    // With another process under its old number, it would keep the next server from starting.
                    remove_file(&self.data().join("postmaster.pid"))?;
                    return Ok(alive);
                }
                Ok(()) => alive.unlock().map_err(Error::unwritable(&self.home))?,
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(source)) => return Err(Error::unwritable(&self.home)(source)),
            }
            let signal = if attempt == 0 { Some(first) } else { None };
            let signal = if attempt == orderly { Some(Signal::QUIT) } else { signal };
            if let (Some(postmaster), Some(signal)) = (postmaster, signal) {
                // It may have ended by itself meanwhile.
                let _ = kill_process(postmaster, signal);
            }
            pause();
        }
        Err(Error::Survivor { folder: self.folder.clone() })
    }

    /// The server that runs on this data, by its own file, if that file still tells the truth.
    fn postmaster(&self) -> Option<Pid> {
        let data = self.data();
        let text = std::fs::read_to_string(data.join("postmaster.pid")).ok()?;
        let pid = text.lines().next()?.trim().parse().ok().filter(|pid| *pid > 1).and_then(Pid::from_raw)?;
        runs_on(pid, &data).then_some(pid)
    }

    /// Readies the place for a new server; data of a folder that was removed meanwhile is not taken over.
    pub(super) fn tidy(&self, _: &Owner) -> Result<(), Error> {
        remove_tree(&self.new_data())?;
        if self.home != self.folder && !self.folder.join(POINTER).exists() {
            remove_tree(&self.data())?;
            let pointer = self.folder.join(POINTER);
            std::fs::write(&pointer, format!("{}\n", self.home.display()))
                .map_err(Error::unwritable(&pointer))?;
        }
        remove_tree(&self.socket)?;
        self.make_given(&self.socket)?;
        let log = self.log();
        remove_file(&log)?;
        File::create_new(&log).map_err(Error::unwritable(&log))?;
        self.account.give(&log)
    }

    /// Makes a folder that only the database's account may enter.
    pub(super) fn make_given(&self, folder: &Path) -> Result<(), Error> {
        DirBuilder::new().mode(0o700).create(folder).map_err(Error::unwritable(folder))?;
        self.account.give(folder)
    }

    /// Removes everything.
    pub(super) fn remove(&self, _: &Owner) -> Result<(), Error> {
        self.elsewhere.iter().chain([&self.folder]).try_for_each(|folder| remove_tree(folder))
    }
}

/// The lock of the one that works on a folder.
#[derive(Debug)]
pub(super) struct Owner(File);

impl Owner {
    /// Takes the lock at `path`, which guards `folder`, if it is free within `grace`.
    pub(super) fn of(path: &Path, folder: &Path, grace: Duration) -> Result<Self, Error> {
        Self::take(open_lock(path)?, path, folder, grace)
    }

    /// Locks a file that is there anyway, so that nothing is left behind.
    pub(super) fn of_existing(path: &Path, folder: &Path, grace: Duration) -> Result<Self, Error> {
        let file = File::open(path).map_err(Error::run(path))?;
        Self::take(file, path, folder, grace)
    }

    fn take(file: File, path: &Path, folder: &Path, grace: Duration) -> Result<Self, Error> {
        for attempt in 0..=attempts(grace) {
            if attempt > 0 {
                pause();
            }
            match file.try_lock() {
                Ok(()) => return Ok(Self(file)),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(source)) => return Err(Error::unwritable(path)(source)),
            }
        }
        Err(Error::Busy { folder: folder.to_owned() })
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // Closing is not enough: a child that another thread is about to start still holds a copy.
        let _ = self.0.unlock();
    }
}

fn elsewhere(folder: &Path) -> PathBuf {
    let hash = Sha256::digest(folder.as_os_str().as_bytes());
    let short: String = hash.iter().take(8).fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
    Path::new(ELSEWHERE).join(format!("publish-pg-at-{}-{short}", geteuid().as_raw()))
}

/// Makes a folder in a place where everybody may make one, and refuses one that somebody else made.
fn make_own(folder: &Path, account: Account) -> Result<(), Error> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return Err(Error::unwritable(folder)(error));
        }
        _ => {}
    }
    let found = std::fs::symlink_metadata(folder).map_err(Error::unwritable(folder))?;
    if !found.is_dir() || found.uid() != geteuid().as_raw() {
        return Err(Error::NotOurs { folder: folder.to_owned() });
    }
    set_mode(folder, account)
}

fn set_mode(folder: &Path, account: Account) -> Result<(), Error> {
    // A stand-in passes through root's folder to its own folders within, which are closed to everybody else.
    let owner = std::fs::metadata(folder).map_err(Error::unwritable(folder))?.uid();
    let mode = match account {
        Account::StandIn { uid, .. } if uid != owner => 0o711,
        _ => 0o700,
    };
    std::fs::set_permissions(folder, Permissions::from_mode(mode)).map_err(Error::unwritable(folder))
}

fn open_lock(path: &Path) -> Result<File, Error> {
    // Closed, or anybody who can name it could hold it.
    OpenOptions::new().create(true).append(true).mode(0o600).open(path).map_err(Error::unwritable(path))
}

fn remove_file(path: &Path) -> Result<(), Error> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::unwritable(path)(error)),
        _ => Ok(()),
    }
}

pub(super) fn remove_tree(path: &Path) -> Result<(), Error> {
    // Somebody else may be removing the same folder: then entries vanish, or appear to stay, for a moment.
    for _ in 0..attempts(OWNER_GRACE) {
        match std::fs::remove_dir_all(path) {
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => pause(),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                if std::fs::symlink_metadata(path).is_err() {
                    return Ok(());
                }
            }
            other => return other.map_err(Error::unwritable(path)),
        }
    }
    std::fs::remove_dir_all(path).map_err(Error::unwritable(path))
}

/// Whether the process is a server with this data: its number may be another process's by now.
fn runs_on(pid: Pid, data: &Path) -> bool {
    let data = data.as_os_str().as_bytes();
    let number = pid.as_raw_pid().to_string();
    if Path::new("/proc/self/cmdline").exists() {
        let arguments = std::fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
        return arguments.split(|byte| *byte == 0).any(|argument| argument == data);
    }
    let output = std::process::Command::new("ps").args(["-ww", "-o", "command=", "-p", &number]).output();
    output.is_ok_and(|output| output.stdout.windows(data.len()).any(|part| part == data))
}
