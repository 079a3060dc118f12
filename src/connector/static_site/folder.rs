//! The folder of one site: pages that appear whole and once.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use uuid::Uuid;

/// What a temporary file's name ends in; it begins with a dot, so that neither is served nor taken for a page.
pub(super) const TEMPORARY: &str = ".tmp";

/// `root/tenant/site`, whose names were checked.
#[derive(Debug)]
pub(super) struct Folder {
    root: PathBuf,
    tenant: PathBuf,
    pub(super) path: PathBuf,
    /// Whether this process has seen the folders' own entries on the disk.
    anchored: AtomicBool,
}

impl Folder {
    pub(super) fn new(root: &Path, tenant: &str, site: &str) -> Self {
        let tenant = root.join(tenant);
        let path = tenant.join(site);
        Self { root: root.to_owned(), tenant, path, anchored: AtomicBool::new(false) }
    }

    pub(super) fn page(&self, marker: &str) -> PathBuf {
        self.path.join(format!("{marker}.html"))
    }

    /// Whether the page is there, proven either way.
    pub(super) fn has(&self, marker: &str) -> io::Result<bool> {
        match fs::symlink_metadata(self.page(marker)) {
            Ok(found) if found.is_file() && found.len() > 0 => Ok(true),
            Ok(_) => Err(io::Error::other(format!("{marker}.html is there and is no page"))),
            // A root that is gone (not mounted, say) proves nothing about what is in it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => fs::read_dir(&self.root).map(|_| false),
            Err(error) => Err(error),
        }
    }

    /// The first `most` pages after one, by name; the site's own lists are none.
    pub(super) fn pages_after(&self, after: &str, most: usize) -> io::Result<Vec<String>> {
        let files = match fs::read_dir(&self.path) {
            Ok(files) => files,
            // As in `has`: where the root is there, nothing was placed yet.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return fs::read_dir(&self.root).map(|_| Vec::new());
            }
            Err(error) => return Err(error),
        };
        let mut pages = Vec::new();
        for file in files {
            let Ok(name) = file?.file_name().into_string() else { continue };
            let Some(page) = name.strip_suffix(".html") else { continue };
            let own = page.starts_with('.') || page.split('.').next() == Some("index");
            if !own && page > after {
                pages.push(page.to_owned());
            }
        }
        pages.sort_unstable();
        pages.truncate(most);
        Ok(pages)
    }

    /// Makes sure that what is seen in the folder survives a loss of power.
    pub(super) fn anchor(&self) -> io::Result<()> {
        sync(&self.path)?;
        if !self.anchored.load(Ordering::Relaxed) {
            sync(&self.tenant)?;
            sync(&self.root)?;
            self.anchored.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Places the page, whole and durable, unless one of that name is there already. The root is never created: a
    /// volume that is not mounted must not be written beside.
    ///
    /// `in_time` is asked last of all: a holder that was stopped meanwhile places nothing.
    pub(super) fn place(
        &self,
        marker: &str,
        page: &str,
        id: Uuid,
        in_time: impl Fn() -> bool,
    ) -> io::Result<()> {
        for folder in [&self.tenant, &self.path] {
            match fs::create_dir(folder) {
                Ok(()) => self.anchored.store(false, Ordering::Relaxed),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        let temporary = self.write_temporary(marker, page, id)?;
        // Unlike a rename, a link cannot replace a page that another worker has placed meanwhile.
        let linked = if in_time() {
            fs::hard_link(&temporary, self.page(marker))
        } else {
            Err(io::Error::from(io::ErrorKind::TimedOut))
        };
        // If this fails, the listing removes it later.
        let _ = fs::remove_file(&temporary);
        match linked {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => self.anchor(),
        }
    }

    /// Writes a derived file, replacing it as a whole.
    pub(super) fn replace(&self, name: &str, text: &str, id: Uuid) -> io::Result<()> {
        let temporary = self.write_temporary(name, text, id)?;
        fs::rename(&temporary, self.path.join(name)).inspect_err(|_| {
            let _ = fs::remove_file(&temporary);
        })
    }

    fn write_temporary(&self, name: &str, text: &str, id: Uuid) -> io::Result<PathBuf> {
        // The id keeps processes apart; the count keeps apart what in one process was given the same chance.
        static WRITTEN: AtomicU64 = AtomicU64::new(0);
        let count = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let temporary = self.path.join(format!(".{name}.{id}.{count}{TEMPORARY}"));
        let mut file = File::create_new(&temporary)?;
        match file.write_all(text.as_bytes()).and_then(|()| file.sync_all()) {
            Ok(()) => Ok(temporary),
            Err(error) => {
                let _ = fs::remove_file(&temporary);
                Err(error)
            }
        }
    }
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
