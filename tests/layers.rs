//! The house plan: arrows between rooms only point down, and no two shapes of the API share a name.
#![expect(clippy::unwrap_used, reason = "clippy.toml allows it in tests, but misses what tests share")]

use std::fs;
use std::path::{Path, PathBuf};

/// The rooms from top to bottom; a file belongs to the room with the longest name that fits it.
const ROOMS: [&str; 34] = [
    "main",
    "cli",
    "lifecycle",
    "http",
    "task",
    "callback",
    "turns",
    "task::run",
    "connector",
    "outbound",
    "store",
    "callback::breaker",
    "callback::event",
    "callback::signature",
    "callback::status",
    "task::act",
    "task::marker",
    "task::pull",
    "task::state",
    "article",
    "account",
    "tenant",
    "fields",
    "json",
    "local_postgres",
    "config",
    "inbound",
    "vault",
    "telemetry",
    "retry",
    "lines",
    "gather",
    "recent",
    "fault",
];

/// The ground that everything stands on.
const GROUND: &str = "clock";

#[test]
fn arrows_point_down() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut arrows = 0;
    let mut wrong = Vec::new();
    for file in rust_files(&src) {
        let from = module(&src, &file);
        if from == "lib" {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        for (number, line) in code.enumerate() {
            for path in line.split("crate::").skip(1) {
                let path = path.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).next();
                let to = path.unwrap_or_default();
                arrows += 1;
                if room(to) < room(&from) {
                    wrong.push(format!("{from} uses {to} ({} +{number})", file.display()));
                }
            }
        }
    }
    assert!(arrows > 50, "only {arrows} arrows found: the test has lost its way");
    assert!(wrong.is_empty(), "arrows that point up:\n{}", wrong.join("\n"));
}

/// The `OpenAPI` document knows a schema by its type's name alone: of two, it would show one in the place of both.
#[test]
fn every_schema_has_a_name_of_its_own() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut names = Vec::new();
    for file in rust_files(&src) {
        let text = fs::read_to_string(&file).unwrap();
        for rest in text.split("#[derive(").skip(1) {
            let (traits, item) = rest.split_once(")]").unwrap();
            let mut words = item.split_whitespace().skip_while(|word| !["struct", "enum"].contains(word));
            if traits.contains("ToSchema") {
                names.push(words.nth(1).unwrap().trim_end_matches(|c: char| !c.is_alphanumeric()).to_owned());
            }
        }
        let by_hand = text.split("impl ToSchema for ").skip(1);
        names.extend(by_hand.map(|rest| rest.split_whitespace().next().unwrap().to_owned()));
    }
    names.sort();
    let twice = names.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| &pair[0]).collect::<Vec<_>>();
    assert!(names.len() > 40, "only {} schemas found: the test has lost its way", names.len());
    assert!(twice.is_empty(), "names of two schemas: {twice:?}");
}

fn room(module: &str) -> usize {
    let fits = |room: &str| module == room || module.starts_with(&format!("{room}::"));
    if fits(GROUND) {
        return ROOMS.len();
    }
    let rooms = ROOMS.iter().enumerate().filter(|(_, room)| fits(room));
    let room = rooms.max_by_key(|(_, room)| room.len()).map(|(at, _)| at);
    room.unwrap_or_else(|| panic!("{module} stands in no room of the plan: give it one in this test"))
}

fn module(src: &Path, file: &Path) -> String {
    let path = file.strip_prefix(src).unwrap().with_extension("");
    path.iter().map(|part| part.to_str().unwrap()).collect::<Vec<_>>().join("::")
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| if path.is_dir() { rust_files(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|ext| ext == "rs"))
        .collect()
}
