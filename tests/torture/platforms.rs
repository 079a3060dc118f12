//! The platforms that are published to: started, stopped for a while, and counted by what they hold themselves.

use std::collections::HashMap;
use std::path::Path;

use serde_json::Value;

mod bridge;
mod real;
mod sandbox;
mod site;

use bridge::Bridge;

/// What all titles begin with; the article's id follows.
pub(crate) const TITLE: &str = "Title of ";

/// All that the suite knows, in the order in which they are told of.
pub(crate) const ALL: [&str; 5] = ["static_site", "http_bridge", "sandbox", "wordpress", "ghost"];

/// How many of an article a platform holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) public: usize,
    /// In any state that is not public.
    pub(crate) drafts: usize,
}

/// What a platform holds, by the article's id.
pub(crate) type Holdings = HashMap<String, Held>;

pub(crate) trait Platform {
    fn name(&self) -> &'static str;

    /// Where it listens, as `host:port`, if it does.
    fn address(&self) -> Option<String> {
        None
    }

    /// The body of a PUT of an account of it; `base` is the address to call it at, a URL without a path.
    fn account(&self, base: &str) -> Value;

    /// The same of an account on which drafts can be made and none be published, where there can be one.
    fn refused(&self, _base: &str) -> Option<Value> {
        None
    }

    /// Whether it has drafts.
    fn drafts(&self) -> bool {
        false
    }

    /// Whether anything is made ready on it before an article: tags.
    fn prepares(&self) -> bool {
        false
    }

    /// Stops all of it, or `part` of it where it has several, until it is continued; false if it cannot be stopped.
    fn stop(&self, _part: usize) -> bool {
        false
    }

    fn go_on(&self) {}

    /// Counted in its own memory, database or folder.
    fn holdings(&self) -> Holdings;
}

/// Adds one of that title.
pub(crate) fn note(holdings: &mut Holdings, title: &str, public: bool) {
    let Some(id) = title.strip_prefix(TITLE) else { return };
    let held = holdings.entry(id.to_owned()).or_default();
    if public {
        held.public += 1;
    } else {
        held.drafts += 1;
    }
}

/// Starts a platform; or says why it cannot be had. The sandbox stands in the service's own database.
pub(crate) async fn start(
    name: &str,
    folder: &Path,
    database_url: &str,
) -> Result<Box<dyn Platform>, String> {
    match name {
        "static_site" => Ok(Box::new(site::Site::new(folder))),
        "http_bridge" => Ok(Box::new(Bridge::start().await)),
        "sandbox" => Ok(Box::new(sandbox::Sandbox { database_url: database_url.to_owned() })),
        "wordpress" => real::start_wordpress(folder).map(|one| Box::new(one) as _),
        "ghost" => real::start_ghost(folder).map(|one| Box::new(one) as _),
        _ => Err("the suite does not know it".to_owned()),
    }
}
