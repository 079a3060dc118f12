//! Where PostgreSQL's programs are on this machine.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Error;

/// The oldest major version that is used: the first whose `initdb` knows `--no-instructions`, and still maintained.
pub const MINIMUM_MAJOR: u32 = 14;

/// Folders that hold one folder per version: where, how such a folder's name starts, and where its programs are.
const VERSIONED: [(&str, &str, &str); 5] = [
    ("usr/lib/postgresql", "", "bin"),
    ("usr", "pgsql-", "bin"),
    ("opt/homebrew/opt", "postgresql", "bin"),
    ("usr/local/opt", "postgresql", "bin"),
    ("Applications/Postgres.app/Contents/Versions", "", "bin"),
];

/// The programs of one PostgreSQL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Programs {
    folder: PathBuf,
    major: u32,
}

impl Programs {
    /// The first PostgreSQL that is new enough: in `override_dir` if there is one, else on `path_variable` (the
    /// value of `PATH`), then in the usual folders of Debian, Red Hat, Homebrew and Postgres.app, newest first.
    pub fn find(path_variable: Option<&OsStr>, override_dir: Option<&Path>) -> Result<Self, Error> {
        match override_dir {
            Some(dir) => Self::first_of(
                &[std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned())],
                &dir.to_string_lossy(),
            ),
            None => Self::find_under(Path::new("/"), path_variable),
        }
    }

    /// The folder the programs are in.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The major version, such as 17.
    #[must_use]
    pub fn major(&self) -> u32 {
        self.major
    }

    pub(super) fn initdb(&self) -> PathBuf {
        self.folder.join("initdb")
    }

    pub(super) fn postgres(&self) -> PathBuf {
        self.folder.join("postgres")
    }

    fn find_under(root: &Path, path_variable: Option<&OsStr>) -> Result<Self, Error> {
        // A relative entry would mean another folder for the database's processes, which start in `/`.
        let mut folders: Vec<PathBuf> = path_variable
            .map(|path| std::env::split_paths(path).filter(|entry| entry.is_absolute()).collect())
            .unwrap_or_default();
        let mut looked = vec!["PATH".to_owned()];
        for (parent, prefix, bin) in VERSIONED {
            folders.extend(newest_first(&root.join(parent), prefix).into_iter().map(|dir| dir.join(bin)));
            looked.push(format!("/{parent}/{prefix}*/{bin}"));
        }
        Self::first_of(&folders, &looked.join(", "))
    }

    fn first_of(folders: &[PathBuf], looked: &str) -> Result<Self, Error> {
        let mut unfit = Vec::new();
        for folder in folders {
            // Debian's PATH has wrappers of some programs, but not of these two.
            if !folder.join("initdb").is_file() || !folder.join("postgres").is_file() {
                continue;
            }
            match major_of(&folder.join("postgres")) {
                Some(major) if major >= MINIMUM_MAJOR => return Ok(Self { folder: folder.clone(), major }),
                Some(major) => unfit.push(format!("{} is version {major}", folder.display())),
                None => unfit.push(format!("{} does not run", folder.display())),
            }
        }
        let unfit = if unfit.is_empty() { String::new() } else { format!(" ({})", unfit.join(", ")) };
        Err(Error::NoPrograms { looked: looked.to_owned() + &unfit })
    }
}

fn newest_first(parent: &Path, prefix: &str) -> Vec<PathBuf> {
    let mut found: Vec<(u32, OsString)> = std::fs::read_dir(parent)
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let name = entry.ok()?.file_name();
            let version = name.to_str()?.strip_prefix(prefix)?;
            Some((first_number(version).unwrap_or(0), name))
        })
        .collect();
    found.sort_by(|a, b| b.cmp(a));
    found.into_iter().map(|(_, name)| parent.join(name)).collect()
}

fn major_of(postgres: &Path) -> Option<u32> {
    let output = Command::new(postgres).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    // "postgres (PostgreSQL) 17.2 (Debian 17.2-1)", "postgres (PostgreSQL) 18beta1"
    first_number(text.split_once("(PostgreSQL)")?.1)
}

fn first_number(text: &str) -> Option<u32> {
    let digits = text.trim_start_matches(|c: char| !c.is_ascii_digit());
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::clock::{Clock, SystemClock};

    struct Root(PathBuf);

    impl Root {
        fn new() -> Self {
            let root = std::env::temp_dir().join(format!("publish-programs-{}", SystemClock.new_id()));
            std::fs::create_dir_all(&root).unwrap();
            Self(root)
        }

        fn install(&self, folder: &str, says: &str) -> PathBuf {
            let bin = self.0.join(folder);
            std::fs::create_dir_all(&bin).unwrap();
            for name in ["initdb", "postgres"] {
                let program = bin.join(name);
                std::fs::write(&program, format!("#!/bin/sh\necho '{says}'\n")).unwrap();
                std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
            }
            bin
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_newest_of_a_place_is_taken_and_path_comes_first() {
        let root = Root::new();
        root.install("usr/lib/postgresql/9.6/bin", "postgres (PostgreSQL) 9.6.24");
        root.install("usr/lib/postgresql/15/bin", "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)");
        let newest = root.install("usr/lib/postgresql/18/bin", "postgres (PostgreSQL) 18beta1");
        assert_eq!(Programs::find_under(&root.0, None).unwrap(), Programs { folder: newest, major: 18 });

        let on_path = root.install("own/bin", "postgres (PostgreSQL) 14.1");
        let path = std::env::join_paths([Path::new("relative"), &root.0, &on_path]).unwrap();
        assert_eq!(
            Programs::find_under(&root.0, Some(&path)).unwrap(),
            Programs { folder: on_path, major: 14 }
        );
    }

    #[test]
    fn every_usual_place_is_looked_at() {
        for folder in [
            "usr/lib/postgresql/16/bin",
            "usr/pgsql-16/bin",
            "opt/homebrew/opt/postgresql@16/bin",
            "usr/local/opt/postgresql@16/bin",
            "Applications/Postgres.app/Contents/Versions/16/bin",
        ] {
            let root = Root::new();
            let bin = root.install(folder, "postgres (PostgreSQL) 16.3");
            assert_eq!(Programs::find_under(&root.0, None).unwrap().folder(), bin);
        }
    }

    #[test]
    fn without_programs_one_line_says_where_it_looked_and_what_to_do() {
        let root = Root::new();
        root.install("usr/pgsql-9.6/bin", "postgres (PostgreSQL) 9.6.24");
        let line = Programs::find_under(&root.0, None).unwrap_err().to_string();
        assert!(!line.contains('\n'), "{line}");
        for part in [
            "PATH",
            "/usr/lib/postgresql/*/bin",
            "/usr/pgsql-*/bin",
            "Postgres.app",
            "usr/pgsql-9.6/bin is version 9",
            "apt install postgresql",
            "brew install postgresql",
            "PUBLISH_POSTGRES_BIN",
        ] {
            assert!(line.contains(part), "{part} is not in: {line}");
        }
    }

    #[test]
    fn an_override_is_the_only_place_looked_at() {
        let root = Root::new();
        root.install("usr/lib/postgresql/16/bin", "postgres (PostgreSQL) 16.3");
        let line = Programs::find(None, Some(&root.0)).unwrap_err().to_string();
        assert!(line.contains(&*root.0.to_string_lossy()) && !line.contains("/usr/lib"), "{line}");
        let bin = root.install("own", "postgres (PostgreSQL) 17.0");
        assert_eq!(Programs::find(None, Some(&bin)).unwrap().major(), 17);
    }
}
