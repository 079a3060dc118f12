//! The folder of `dev`: its version, its lock, the master key, and what it tells of itself in `env`.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::shown;
use crate::callback::signature::SigningSecret;
use crate::clock::Clock;
use crate::local_postgres;
use crate::tenant::ApiKey;
use crate::vault::{MasterKey, MasterKeys};

/// The layout of the folder; a folder of another one is not touched.
const LAYOUT: &str = "1";

/// What is wrong with the folder.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FolderError {
    #[error("cannot write {path}: {source}: make it writable, or choose another place with --folder")]
    Unwritable { path: String, source: io::Error },
    #[error("{path} is in use by another `dev`: end it, or choose another place with --folder")]
    InUse { path: String },
    #[error(
        "{path} was made by another version of `dev` (layout {found}, not {LAYOUT}): start over with --reset"
    )]
    OtherVersion { path: String, found: String },
    #[error("{path} is not a folder of `dev`: choose another place with --folder")]
    NotOurs { path: String },
    #[error("{path} is damaged: put the right key back, or start over with --reset")]
    BadKey { path: String },
    #[error(transparent)]
    Postgres(#[from] local_postgres::Error),
}

/// The folder, locked against another `dev` while this lives.
pub(crate) struct DevFolder {
    path: PathBuf,
    _lock: File,
}

impl DevFolder {
    /// Opens the folder, and makes it if it is not there.
    pub(super) fn open(path: &Path, reset: bool) -> Result<Self, FolderError> {
        let was_there = path.exists();
        make(path)?;
        let path = path.canonicalize().map_err(|source| unwritable(path, source))?;
        let version = path.join("version");
        let found = fs::read_to_string(&version).ok().map(|text| text.trim().to_owned());
        let is_empty = fs::read_dir(&path).is_ok_and(|mut entries| entries.next().is_none());
        if was_there && found.is_none() && !is_empty && !path.join("lock").exists() {
            return Err(FolderError::NotOurs { path: shown(&path) });
        }
        let lock_path = path.join("lock");
        let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&lock_path);
        let lock = lock.map_err(|source| unwritable(&lock_path, source))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(FolderError::InUse { path: shown(&path) }),
            Err(TryLockError::Error(source)) => return Err(unwritable(&lock_path, source)),
        }
        let folder = Self { path, _lock: lock };
        if reset {
            folder.empty()?;
        } else if let Some(found) = found.filter(|found| found != LAYOUT) {
            return Err(FolderError::OtherVersion { path: shown(&folder.path), found });
        }
        folder.write("version", format!("{LAYOUT}\n").as_bytes())?;
        Ok(folder)
    }

    /// Removes all but the lock.
    fn empty(&self) -> Result<(), FolderError> {
        local_postgres::remove(&self.postgres())?;
        for name in ["site", "master.key", "env", "version"] {
            let path = self.path.join(name);
            let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            match removed {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(unwritable(&path, error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Where the private database lives.
    pub(super) fn postgres(&self) -> PathBuf {
        self.path.join("postgres")
    }

    /// Where articles are written.
    pub(super) fn site(&self) -> PathBuf {
        self.path.join("site")
    }

    /// Where key and secret are told.
    pub(super) fn env(&self) -> PathBuf {
        self.path.join("env")
    }

    /// The master key, made at the first start; two where somebody replaces it.
    pub(super) fn master_key(&self, clock: &dyn Clock) -> Result<MasterKeys, FolderError> {
        let path = self.path.join("master.key");
        match fs::read_to_string(&path) {
            Ok(text) => text.parse().map_err(|_| FolderError::BadKey { path: shown(&path) }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let key = MasterKey::generate(clock);
                self.write("master.key", format!("{}\n", *key.expose()).as_bytes())?;
                Ok(key.into())
            }
            Err(source) => Err(unwritable(&path, source)),
        }
    }

    /// The key of an earlier start, as `env` tells it.
    pub(super) fn api_key(&self) -> Option<ApiKey> {
        let env = fs::read_to_string(self.env()).ok()?;
        let key = env.lines().find_map(|line| line.strip_prefix("PUBLISH_API_KEY="))?;
        ApiKey::parse(key)
    }

    /// Tells where the service is, its key and its secret, one `NAME=value` a line.
    pub(super) fn write_env(
        &self,
        url: &str,
        key: &ApiKey,
        secret: &SigningSecret,
    ) -> Result<(), FolderError> {
        let text = format!(
            "PUBLISH_URL={url}\nPUBLISH_API_KEY={}\nPUBLISH_SIGNING_SECRET={}\n",
            key.expose(),
            *secret.expose()
        );
        self.write("env", text.as_bytes())
    }

    /// Writes a file that only its owner reads, whole or not at all.
    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), FolderError> {
        let path = self.path.join(name);
        let unfinished = self.path.join(format!(".{name}.tmp"));
        let written = (|| {
            let mut file =
                OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&unfinished)?;
            file.set_permissions(fs::Permissions::from_mode(0o600))?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&unfinished, &path)
        })();
        written.map_err(|source| unwritable(&path, source))
    }
}

/// Makes a folder, with those above it.
pub(super) fn make(path: &Path) -> Result<(), FolderError> {
    fs::create_dir_all(path).map_err(|source| unwritable(path, source))
}

fn unwritable(path: &Path, source: io::Error) -> FolderError {
    FolderError::Unwritable { path: shown(path), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::TestClock;
    use crate::vault::Vault;

    fn open(path: &Path, reset: bool) -> Result<DevFolder, String> {
        DevFolder::open(path, reset).map_err(|error| error.to_string())
    }

    #[test]
    fn a_second_start_keeps_keys_and_a_reset_does_not() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a/.dev");
        let clock = TestClock::seeded(1);
        let first = open(&path, false).unwrap();
        let header = |folder: &DevFolder| Vault::new(&folder.master_key(&clock).unwrap()).header();
        let of_the_first = header(&first);
        let (key, secret) = (ApiKey::generate(clock.new_id(), &clock), SigningSecret::generate(&clock));
        first.write_env("http://127.0.0.1:1", &key, &secret).unwrap();
        assert!(open(&path, false).err().unwrap().contains("in use by another"));
        drop(first);
        let second = open(&path, false).unwrap();
        assert_eq!(header(&second), of_the_first);
        assert_eq!(second.api_key().unwrap().hash(), key.hash());
        drop(second);
        let third = open(&path, true).unwrap();
        assert!(third.api_key().is_none());
        assert_ne!(header(&third), of_the_first);
    }

    #[test]
    fn only_the_owner_reads_secrets() {
        let parent = tempfile::tempdir().unwrap();
        let folder = open(&parent.path().join("d"), false).unwrap();
        folder.master_key(&TestClock::seeded(1)).unwrap();
        let mode = fs::metadata(folder.path.join("master.key")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn folders_of_others_are_not_touched() {
        let parent = tempfile::tempdir().unwrap();
        fs::write(parent.path().join("thesis.txt"), "x").unwrap();
        assert!(open(parent.path(), true).err().unwrap().contains("is not a folder of `dev`"));
        let later = parent.path().join("later");
        drop(open(&later, false).unwrap());
        fs::write(later.join("version"), "2\n").unwrap();
        let error = open(&later, false).err().unwrap();
        assert!(error.contains("layout 2") && error.contains("--reset"), "{error}");
        drop(open(&later, true).unwrap());
        drop(open(&later, false).unwrap());
        let file = parent.path().join("thesis.txt/x");
        assert!(open(&file, false).err().unwrap().starts_with("cannot write"));
    }
}
