//! A private PostgreSQL from the programs that are installed on the machine, for `dev` and for tests.
//!
//! A [`Cluster`] is one server on one folder. It listens on a socket only, which nobody but its own account may
//! reach, and it ends with the process that started it, also if that is killed:
//!
//! - a small shell beside the server holds the read end of a pipe whose write end only the parent has; at its end,
//!   the shell ends the server. Both are in a process group of their own, out of reach of a terminal's Ctrl-C;
//! - every process of the database inherits a lock, so that whoever holds that lock knows that none is left;
//! - a folder that is to be removed is removed by another shell, when the last of them all has let go of its pipe.
//!
//! Everything here blocks; from async code call it through `tokio::task::spawn_blocking`. The database does not
//! depend on the thread that started it.

mod account;
mod place;
mod programs;
mod server;

use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use rustix::process::{Pid, Signal, geteuid, kill_process};

pub use self::programs::{MINIMUM_MAJOR, Programs};

use self::place::{OWNER_GRACE, Owner, Place};
use self::server::{Remover, Server};

/// The name of the cluster's superuser.
const SUPERUSER: &str = "postgres";
/// Only names the socket: the server listens on no network.
const PORT: u16 = 5432;
/// The pause between two looks at a process that is not a child, whose end no signal tells.
const POLL: Duration = Duration::from_millis(10);
/// How long others may take to sweep: each leftover may need an orderly and a hard end.
const SWEEP_LIMIT: Duration = Duration::from_mins(2);
/// How long a server may take to end before it is ended the hard way.
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// What can go wrong; each is one line that says what to do.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the message says what the variant and its fields are")]
#[non_exhaustive]
pub enum Error {
    #[error(
        "no PostgreSQL {MINIMUM_MAJOR} or later (initdb and postgres) in {looked}: install it (`apt install postgresql`, \
         `dnf install postgresql-server`, `brew install postgresql`) or set PUBLISH_POSTGRES_BIN to the folder of its programs"
    )]
    NoPrograms { looked: String },
    #[error(
        "PostgreSQL does not run as root, and there is neither an account `postgres` nor `nobody` to run it as: add one, or start as another user"
    )]
    NoAccount,
    #[error("cannot write {path}: {source}: choose another folder or make it writable")]
    Unwritable { path: String, source: std::io::Error },
    #[error("cannot run {program}: {source}")]
    Run { program: String, source: std::io::Error },
    #[error("the database in {folder} is in use by another process: stop that one, or choose another folder")]
    Busy { folder: PathBuf },
    #[error(
        "the database in {folder} still runs without its service and does not end: kill it, then start again"
    )]
    Survivor { folder: PathBuf },
    #[error("{folder} is needed for the database but belongs to somebody else: remove it")]
    NotOurs { folder: PathBuf },
    #[error(
        "the database in {folder} was made by PostgreSQL {made_by}, but the programs in {programs} are PostgreSQL \
         {major}: start over with `--reset`, or install PostgreSQL {made_by} and set PUBLISH_POSTGRES_BIN to its programs"
    )]
    OtherVersion { folder: PathBuf, made_by: String, programs: PathBuf, major: u32 },
    #[error("the database could not be made: {why}")]
    Init { why: String },
    #[error("the database did not start: {why}")]
    Start { why: String },
}

impl Error {
    fn unwritable(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.display().to_string();
        move |source| Self::Unwritable { path, source }
    }

    fn run(program: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let program = program.display().to_string();
        move |source| Self::Run { program, source }
    }
}

/// Whether the data outlives a crash of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// As PostgreSQL does it by itself.
    Full,
    /// Nothing waits for the disk. The data outlives a killed server all the same, but not a killed machine.
    None,
}

/// What becomes of the data when the database has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnExit {
    /// The next start finds it.
    Keep,
    /// It is removed, with its folder: for a folder that is not used again, since a start on it soon after could
    /// meet the removal.
    Remove,
}

/// What a cluster is to be like.
#[derive(Debug, Clone)]
pub struct Options {
    /// A folder for this cluster alone; it is made if it is missing.
    pub folder: PathBuf,
    /// Whether the data outlives a crash of the machine.
    pub durability: Durability,
    /// What becomes of the data when the database has ended.
    pub on_exit: OnExit,
    /// Settings of the server, as in `postgresql.conf`.
    pub settings: Vec<(String, String)>,
}

impl Options {
    /// A durable cluster in `folder` that is kept.
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        let folder = folder.into();
        Self { folder, durability: Durability::Full, on_exit: OnExit::Keep, settings: Vec::new() }
    }
}

/// A running private PostgreSQL. Dropped, it ends by itself soon after; [`Cluster::stop`] waits for that.
#[derive(Debug)]
pub struct Cluster {
    // Declared, and so dropped, in this order: the server is let go before the folder is.
    server: Server,
    remover: Option<Remover>,
    programs: Programs,
    options: Options,
    place: Place,
    owner: Owner,
}

impl Cluster {
    /// Starts the database in the options' folder, and makes it first if there is none. Returns when it is ready.
    pub fn start(programs: &Programs, options: Options) -> Result<Self, Error> {
        let place = Place::prepare(&options.folder)?;
        let owner = place.own(OWNER_GRACE)?;
        Self::start_owned(programs, options, place, owner)
    }

    /// Starts an empty database in a new folder in `parent` (such as `std::env::temp_dir()`), for tests: quick, and
    /// removed when it ends. `random` names the folder. First it removes what killed runs of the same user left.
    pub fn scratch(
        programs: &Programs,
        parent: &Path,
        random: [u8; 8],
        settings: Vec<(String, String)>,
    ) -> Result<Self, Error> {
        let prefix = scratch_prefix();
        let folder = parent.join(format!("{prefix}{:016x}", u64::from_be_bytes(random)));
        let options = Options { folder, durability: Durability::None, on_exit: OnExit::Remove, settings };
        // Under one lock, or a sweep could take a new folder for a leftover before its owner has locked it.
        let sweeping = Owner::of_existing(&programs.initdb(), parent, SWEEP_LIMIT)?;
        sweep(parent, &prefix);
        std::fs::create_dir(&options.folder).map_err(Error::unwritable(&options.folder))?;
        let place = Place::prepare(&options.folder)?;
        let owner = place.own(Duration::ZERO)?;
        drop(sweeping);
        Self::start_owned(programs, options, place, owner)
    }

    fn start_owned(programs: &Programs, options: Options, place: Place, owner: Owner) -> Result<Self, Error> {
        let remover = match options.on_exit {
            OnExit::Keep => None,
            OnExit::Remove => Some(Remover::start(&place)?),
        };
        let server = serve(programs, &options, &place, &owner, remover.as_ref())?;
        Ok(Self { server, remover, programs: programs.clone(), options, place, owner })
    }

    /// The URL of a database of this cluster, for `sqlx`. `postgres` always exists.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        self.url_as(SUPERUSER, database)
    }

    /// As [`Self::url`], for a role that is less than the superuser; whoever reaches the socket is let in as any.
    #[must_use]
    pub fn url_as(&self, role: &str, database: &str) -> String {
        let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let (role, database) = (encode(role), encode(database));
        let socket = encode(&self.place.socket.to_string_lossy());
        // Port and mode are named, or `PGPORT` and `PGSSLMODE` of the caller would count.
        format!("postgres://{role}@{socket}:{PORT}/{database}?sslmode=disable")
    }

    /// The number of the server's process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.server.pid
    }

    /// Whether the server has ended although nobody asked it to.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.server.wait(Duration::ZERO).is_some()
    }

    /// Ends the database in good order, and returns when it is gone.
    pub fn stop(mut self) -> Result<(), Error> {
        self.end()?;
        if let Some(remover) = self.remover.take() {
            remover.finish();
        }
        Ok(())
    }

    /// Ends the server, if it still runs, and starts it again on the same data and the same URL.
    pub fn restart(&mut self) -> Result<(), Error> {
        self.end()?;
        self.server = serve(&self.programs, &self.options, &self.place, &self.owner, self.remover.as_ref())?;
        Ok(())
    }

    /// Kills the server as the kernel would when memory is short, and returns when none of its processes is left.
    /// [`Cluster::restart`] starts it again.
    pub fn kill(&mut self) -> Result<(), Error> {
        // After its end is known, the number may be another process's.
        if self.server.wait(Duration::ZERO).is_none() {
            let pid = i32::try_from(self.server.pid).ok().and_then(Pid::from_raw);
            let _ = pid.map(|pid| kill_process(pid, Signal::KILL));
            self.server.wait(STOP_LIMIT);
        }
        self.place.settle(&self.owner, Signal::QUIT).map(drop)
    }

    fn end(&mut self) -> Result<(), Error> {
        self.server.let_go();
        self.server.wait(STOP_LIMIT);
        // If the shell that should have ended it was killed, this ends it.
        self.place.settle(&self.owner, server::signal(self.options.on_exit)).map(drop)
    }
}

/// Removes the database in `folder`, with the folder, wherever its data is. Fails if it is in use.
pub fn remove(folder: &Path) -> Result<(), Error> {
    if folder.exists() { remove_within(folder, OWNER_GRACE) } else { Ok(()) }
}

fn remove_within(folder: &Path, grace: Duration) -> Result<(), Error> {
    let place = Place::prepare(folder)?;
    let owner = place.own(grace)?;
    let _alive = place.settle(&owner, Signal::QUIT)?;
    place.remove(&owner)
}

fn serve(
    programs: &Programs,
    options: &Options,
    place: &Place,
    owner: &Owner,
    remover: Option<&Remover>,
) -> Result<Server, Error> {
    // An earlier service's database may be about to end.
    let alive = place.settle(owner, Signal::INT)?;
    place.tidy(owner)?;
    match std::fs::read_to_string(place.data().join("PG_VERSION")) {
        Err(_) => server::init(programs, options, place, &alive, remover)?,
        Ok(version) if version.trim() == programs.major().to_string() => {}
        Ok(version) => {
            return Err(Error::OtherVersion {
                folder: place.folder.clone(),
                made_by: version.trim().to_owned(),
                programs: programs.folder().to_owned(),
                major: programs.major(),
            });
        }
    }
    Server::start(programs, options, place, alive, remover)
}

/// How a test cluster's folder is named: per user, since one user cannot remove another's. Short, for the socket.
fn scratch_prefix() -> String {
    format!("publish-pg-{}-", geteuid().as_raw())
}

fn sweep(parent: &Path, prefix: &str) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix));
        if ours && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            let leftover = entry.path();
            if let Err(error) = remove_within(&leftover, Duration::ZERO) {
                // A leftover that stays does no harm to this run.
                tracing::debug!(%error, folder = %leftover.display(), "not swept");
            }
        }
    }
}

fn attempts(limit: Duration) -> u128 {
    limit.as_millis() / POLL.as_millis()
}

fn pause() {
    // A wait for something that is never sent is a bounded pause.
    let (_keep, never) = channel::<()>();
    let _ = never.recv_timeout(POLL);
}
