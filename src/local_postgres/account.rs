//! As whom the database's processes run.

use std::os::unix::fs::{MetadataExt, lchown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::Error;

/// Who may stand in for root, best first.
const STAND_INS: [&str; 2] = ["postgres", "nobody"];

/// As whom the database's processes run: as the caller, or as somebody else if the caller is root, whom PostgreSQL
/// refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Account {
    Caller,
    StandIn { uid: u32, gid: u32 },
}

impl Account {
    /// The account for a cluster whose data is, if it exists, in one of `data`: a cluster keeps its owner.
    pub(super) fn choose(data: &[&Path]) -> Result<Self, Error> {
        if !rustix::process::geteuid().is_root() {
            return Ok(Self::Caller);
        }
        let owner = data.iter().find_map(|data| std::fs::symlink_metadata(data).ok());
        if let Some(owner) = owner.filter(|owner| owner.uid() != 0) {
            return Ok(Self::StandIn { uid: owner.uid(), gid: owner.gid() });
        }
        let accounts = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        STAND_INS.iter().find_map(|name| Self::entry(&accounts, name)).ok_or(Error::NoAccount)
    }

    fn entry(passwd: &str, name: &str) -> Option<Self> {
        passwd.lines().find_map(|line| {
            let mut fields = line.split(':');
            if fields.next() != Some(name) {
                return None;
            }
            let uid = fields.nth(1)?.parse().ok()?;
            let gid = fields.next()?.parse().ok()?;
            // An account with root's number would be refused just the same.
            (uid != 0).then_some(Self::StandIn { uid, gid })
        })
    }

    /// A command that runs as this account, in a process group of its own, so that a terminal's Ctrl-C, which goes
    /// to the caller's group, does not end the database before the caller is done with it.
    pub(super) fn command(self, program: &Path) -> Command {
        let mut command = Command::new(program);
        // The caller's folder may be closed to the account; its PG* variables are not meant for this database.
        command.current_dir("/").env_clear().env("PATH", "/usr/bin:/bin").env("LC_ALL", "C").process_group(0);
        if let Self::StandIn { uid, gid } = self {
            // The standard library drops root's supplementary groups along with root.
            command.uid(uid).gid(gid);
        }
        command
    }

    /// Makes the account the owner of `path`.
    pub(super) fn give(self, path: &Path) -> Result<(), Error> {
        match self {
            Self::Caller => Ok(()),
            Self::StandIn { uid, gid } => lchown(path, Some(uid), Some(gid)).map_err(Error::unwritable(path)),
        }
    }

    /// Whether the account can reach what is in `folder`.
    pub(super) fn reaches(self, folder: &Path) -> Result<bool, Error> {
        if self == Self::Caller {
            return Ok(true);
        }
        // Asking the kernel, as that account, counts every parent, every group and every access list.
        let sh = Path::new("/bin/sh");
        let status = self
            .command(sh)
            .args(["-c", "cd -- \"$1\"", "sh"])
            .arg(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .map_err(Error::run(sh))?;
        Ok(status.success())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_found_by_its_whole_name() {
        let passwd = "root:x:0:0::/root:/bin/sh\npostgres2:x:7:7::/:\npostgres:x:101:104:A,,,:/var:/bin/sh\n";
        assert_eq!(Account::entry(passwd, "postgres"), Some(Account::StandIn { uid: 101, gid: 104 }));
        assert_eq!(Account::entry(passwd, "nobody"), None);
        assert_eq!(Account::entry(passwd, "root"), None);
        assert_eq!(Account::entry("nobody:x:broken", "nobody"), None);
    }
}
