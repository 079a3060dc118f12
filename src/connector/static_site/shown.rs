//! What a site's folder holds, for an operator who compares it with what was recorded.

use std::io;

use super::page;
use super::{Site, is_marker};
use crate::connector::{Listed, Listing};

/// How many pages one look at the folder lists: their heads are read in a second or two, and a folder of a million is walked
/// through 200 times.
const LIST_PAGES: usize = 5_000;

/// What stands in the folder after a page. Its mark is a page's name, where the page is ours.
pub(super) fn next_pages(site: &Site, after: &str) -> io::Result<Listing> {
    let pages = site.folder.pages_after(after, LIST_PAGES)?;
    let next = pages.last().filter(|_| pages.len() == LIST_PAGES).cloned();
    let mut articles = Vec::new();
    for name in pages {
        let entry = match page::read_entry(&site.folder.page(&name), &name) {
            Ok(entry) => entry.filter(|_| is_marker(&name)),
            // It went away meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let url = Some(site.remote(&name).url);
        let (marker, title) = entry.map_or((None, name.clone()), |entry| (Some(entry.marker), entry.title));
        articles.push(Listed { id: name, marker, title, url });
    }
    Ok(Listing::Page { articles, next })
}
