//! The folder that `static_site` writes to.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{Holdings, Platform, TITLE, note};

pub(crate) struct Site(PathBuf);

impl Site {
    pub(crate) fn new(folder: &Path) -> Self {
        Self(folder.join("site/demo/torture"))
    }
}

impl Platform for Site {
    fn name(&self) -> &'static str {
        "static_site"
    }

    fn account(&self, _: &str) -> Value {
        json!({"settings": {"site": "torture"}, "max_in_flight": 8})
    }

    /// Pages: everything but the index, its further pages and what is hidden.
    fn holdings(&self) -> Holdings {
        let mut holdings = Holdings::new();
        for entry in std::fs::read_dir(&self.0).into_iter().flatten().flatten() {
            let name = entry.file_name().into_string().unwrap();
            let Some(marker) = name.strip_suffix(".html") else { continue };
            if marker.starts_with('.') || marker.split('.').next() == Some("index") {
                continue;
            }
            let page = std::fs::read_to_string(entry.path()).unwrap();
            let title = page.split_once("<title>").and_then(|(_, rest)| rest.split_once("</title>"));
            let title = title.map(|(title, _)| title).unwrap_or_default();
            let whole = page.trim_end().ends_with("</html>") && title.starts_with(TITLE);
            assert!(whole, "a page that is not whole: {name}");
            note(&mut holdings, title, true);
        }
        holdings
    }
}
