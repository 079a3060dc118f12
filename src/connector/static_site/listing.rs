//! A site's index and feed, derived from the pages that are there.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::time::{Duration, SystemTime};

use askama::Template;
use chrono::{DateTime, SecondsFormat, Utc};

use super::folder::{Folder, TEMPORARY};
use super::is_marker;
use super::page::{self, Entry};
use crate::clock::SharedClock;

/// How many articles an older page of the index lists; `index.html` lists up to twice as many. Enough that a site
/// of thousands has few pages, few enough that a page loads at once.
pub const INDEX_ENTRIES: usize = 500;

/// How many articles the feed lists. A reader that asks once an hour misses none up to this many an hour; more
/// would make every reader fetch over a megabyte.
pub const FEED_ENTRIES: usize = 1_000;

/// A temporary file that is older was left by a crash: writing one takes seconds.
const STALE: Duration = Duration::from_hours(1);

/// Keeps several processes on one folder apart while they derive.
const LOCK: &str = ".listing.lock";

#[derive(Template)]
#[template(path = "static_site/index.html")]
struct Index<'a> {
    policy: &'static str,
    site: &'a str,
    base: &'a str,
    newer: Option<String>,
    older: Option<String>,
    entries: &'a [&'a Entry],
}

#[derive(Template)]
#[template(path = "static_site/feed.xml")]
struct Feed<'a> {
    site: &'a str,
    base: &'a str,
    updated: String,
    entries: &'a [&'a Entry],
}

impl Entry {
    fn time(&self) -> String {
        time(self.published)
    }

    fn day(&self) -> String {
        self.published.format("%-d %B %Y").to_string()
    }
}

fn time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Micros, true)
}

/// What this process knows of a site's pages. A page never changes, so it is read once.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// By marker; none: a file that is no page of ours.
    known: BTreeMap<String, Option<Entry>>,
    /// What the files last written were made of, by name.
    written: HashMap<String, u64>,
    /// Whether the last derivation ended well.
    current: bool,
    /// How many derivations there were.
    pub(super) derivations: u64,
}

impl Listing {
    /// Whether a derivation that ended has seen the page.
    pub(super) fn lists(&self, marker: &str) -> bool {
        self.current && self.known.contains_key(marker)
    }

    /// Derives index and feed anew; writes only what has changed.
    pub(super) fn derive(
        &mut self,
        folder: &Folder,
        site: &str,
        base: &str,
        clock: &SharedClock,
    ) -> io::Result<()> {
        self.derivations += 1;
        self.current = false;
        let lock = File::options().create(true).append(true).open(folder.path.join(LOCK))?;
        lock.lock()?;
        let files = self.read(folder, clock)?;
        let mut entries: Vec<&Entry> = self.known.values().flatten().collect();
        entries.sort_unstable_by(|a, b| (b.published, &b.marker).cmp(&(a.published, &a.marker)));

        // Older pages are counted from the oldest article on, so that a new one changes none of them.
        let older_pages = (entries.len() / INDEX_ENTRIES).saturating_sub(1);
        let name = |number: usize| format!("index.{number}.html");
        let address = |name: &str| format!("{base}/{name}");
        let mut write = |name: &str, made_of: u64, text: &dyn Fn() -> Result<String, askama::Error>| {
            if files.contains(name) && self.written.get(name) == Some(&made_of) {
                return Ok(());
            }
            folder.replace(name, &text().map_err(io::Error::other)?, clock.new_id())?;
            self.written.insert(name.to_owned(), made_of);
            io::Result::Ok(())
        };
        for number in (0..=older_pages).rev() {
            let newest = number == older_pages;
            let end = entries.len() - number * INDEX_ENTRIES;
            let index = Index {
                policy: super::PAGE_POLICY,
                site,
                base,
                newer: (!newest).then(|| {
                    address(&if number + 1 == older_pages {
                        "index.html".to_owned()
                    } else {
                        name(number + 2)
                    })
                }),
                older: (number > 0).then(|| address(&name(number))),
                entries: &entries[if newest { 0 } else { end - INDEX_ENTRIES }..end],
            };
            let own = if newest { "index.html".to_owned() } else { name(number + 1) };
            write(&own, digest(index.entries, (&index.newer, &index.older)), &|| index.render())?;
        }
        let feed = Feed {
            site,
            base,
            updated: time(entries.first().map_or(DateTime::UNIX_EPOCH, |entry| entry.published)),
            entries: &entries[..entries.len().min(FEED_ENTRIES)],
        };
        write("feed.xml", digest(feed.entries, ()), &|| feed.render())?;
        for left_over in files.iter().filter(|f| older_number(f).is_some_and(|n| n > older_pages)) {
            fs::remove_file(folder.path.join(left_over))?;
        }
        self.current = true;
        Ok(())
    }

    /// Reads the pages not yet known, forgets those that are gone, removes what crashes left; returns the folder's
    /// names.
    fn read(&mut self, folder: &Folder, clock: &SharedClock) -> io::Result<HashSet<String>> {
        let mut files = HashSet::new();
        for file in fs::read_dir(&folder.path)? {
            let file = file?;
            let Ok(name) = file.file_name().into_string() else { continue };
            if name.starts_with('.') && name.ends_with(TEMPORARY) {
                let age = file
                    .metadata()
                    .and_then(|m| m.modified())
                    .map(|at| SystemTime::from(clock.now()).duration_since(at));
                if matches!(age, Ok(Ok(age)) if age > STALE) {
                    // Another process may have been first.
                    let _ = fs::remove_file(file.path());
                }
                continue;
            }
            if let Some(marker) = name.strip_suffix(".html").filter(|m| is_marker(m))
                && !self.known.contains_key(marker)
            {
                match page::read_entry(&file.path(), marker) {
                    Ok(entry) => drop(self.known.insert(marker.to_owned(), entry)),
                    // One page that cannot be read must not keep the others from being listed.
                    Err(error) => tracing::warn!(%error, path = %file.path().display(), "cannot read a page"),
                }
            }
            files.insert(name);
        }
        self.known.retain(|marker, _| files.contains(&format!("{marker}.html")));
        Ok(files)
    }
}

fn older_number(name: &str) -> Option<usize> {
    name.strip_prefix("index.")?.strip_suffix(".html")?.parse().ok()
}

fn digest(entries: &[&Entry], links: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    links.hash(&mut hasher);
    for entry in entries {
        entry.marker.hash(&mut hasher);
    }
    hasher.finish()
}
