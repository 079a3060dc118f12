//! What is asked of statements and migrations so that the same schema can be distributed by tenant over a Citus cluster:
//! every statement names its tenant, so that one machine answers it, and none does what Citus 13 refuses.
//!
//! The statements are those that were checked against the database (`.sqlx`). One that breaks a rule stands in
//! [`EXCEPTIONS`] by a part of its text, with the reason.
#![expect(clippy::unwrap_used, reason = "clippy.toml allows it in tests, but misses what tests share")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// The tables of tenants; `tests/database/distribute.rs` sees to it that all tables have their place.
use publish_ingest::store::DISTRIBUTED;

/// A rule that is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Breach {
    /// A table of tenants is named without a tenant: all machines are asked.
    NoTenant,
    /// Rows of more than one tenant are locked (`FOR UPDATE` and the like).
    LocksAcross,
    /// A recursive or LATERAL query over more than one tenant.
    NestedAcross,
    /// `DO UPDATE SET` names the time, which is not the same on every machine.
    UpsertsTime,
    /// An UPDATE names chance, or the time of the very call.
    UpdatesByChance,
    /// Stays on the machine that it was said on.
    Notifies,
}

use Breach::{LocksAcross, NestedAcross, NoTenant, UpsertsTime};

/// A part of the statement, what it breaks, and why.
const EXCEPTIONS: [(&str, &[Breach], &str); 14] = [
    // The loops, and what operators ask of all.
    (
        "FROM tenants t CROSS JOIN LATERAL (SELECT s.sweep_at",
        &[NestedAcross],
        "a loop asks which tenants have something due",
    ),
    ("t.tenant_id > $1 AND l.at <=", &[NestedAcross], "the same, of callbacks"),
    ("t.tenant_id > $1 AND l.due_at <=", &[NestedAcross], "the same, of replays"),
    ("FROM retentions r CROSS JOIN LATERAL (SELECT", &[NoTenant, NestedAcross], "the same, of what is old"),
    ("FROM retentions r JOIN tenants t USING", &[NoTenant], "`retention`: of all tenants"),
    (
        "FROM receivers WHERE failures >= 5",
        &[NoTenant],
        "how many breakers are open: a gauge, once in a while",
    ),
    ("FROM api_keys k JOIN tenants t USING", &[NoTenant], "`key list`: all keys"),
    ("UPDATE api_keys SET revoked_at", &[NoTenant], "`key revoke` has the key's id alone"),
    (
        "SELECT tenant_id, secret_id, scheme, sealed FROM signing_secrets",
        &[NoTenant],
        "whether the master key fits: the first secret",
    ),
    ("credentials_sealed IS NOT NULL ORDER BY tenant_id", &[NoTenant], "the same, of credentials"),
    (
        "UNION ALL SELECT substr(sealed",
        &[NoTenant],
        "under which keys everything is sealed: at the start, and for operators",
    ),
    (
        "SELECT tenant_id, position FROM feeds WHERE tenant_id = ANY ($1)",
        &[NoTenant],
        "one read for all tenants whose callers wait for events; Citus asks only the machines that have them",
    ),
    // Known to be refused.
    (
        "LIMIT 1 FOR KEY SHARE) l",
        &[LocksAcross, NestedAcross],
        "accepting gathers articles of several tenants in one statement: on Citus a batch has to be of one tenant, and to name it",
    ),
    (
        "resume_from = CASE WHEN $8::bytea IS NULL",
        &[UpsertsTime],
        "an account that is put: on Citus, `excluded.free_at` can stand for the time",
    ),
];

#[test]
fn every_statement_names_its_tenant_and_does_nothing_that_citus_refuses() {
    let statements = statements();
    assert!(statements.len() > 100, "only {} statements found: the test has lost its way", statements.len());
    let mut wrong = Vec::new();
    let mut used = BTreeSet::new();
    for statement in &statements {
        let exception = EXCEPTIONS.iter().position(|(part, ..)| statement.contains(part));
        used.extend(exception);
        let allowed = exception.map_or(&[][..], |at| EXCEPTIONS[at].1);
        let found = breaches(statement);
        if found != allowed {
            wrong.push(format!("{found:?}, and {allowed:?} is excepted:\n{statement}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    let unused = (0..EXCEPTIONS.len()).filter(|at| !used.contains(at)).map(|at| EXCEPTIONS[at].0);
    assert_eq!(unused.collect::<Vec<_>>(), [""; 0], "exceptions of statements that are not there");
}

/// The rules find what they are for.
#[test]
fn what_breaks_a_rule_is_found() {
    for (statement, breach) in [
        ("SELECT url FROM callbacks WHERE event_id = $1", NoTenant),
        ("UPDATE lanes SET in_flight = 0 WHERE account_id = $1", NoTenant),
        (
            "SELECT 1 FROM tasks t JOIN lanes l ON l.account_id = t.group_code WHERE t.tenant_id = $1",
            NoTenant,
        ),
        ("SELECT 1 FROM lanes WHERE tenant_id = ANY ($1) FOR NO KEY UPDATE SKIP LOCKED", LocksAcross),
        (
            "SELECT 1 FROM tenants t CROSS JOIN LATERAL (SELECT 1 FROM tasks WHERE tenant_id = t.tenant_id) x",
            NestedAcross,
        ),
        (
            "INSERT INTO groups (tenant_id) VALUES ($1) ON CONFLICT (tenant_id) DO UPDATE SET updated_at = now()",
            UpsertsTime,
        ),
        ("UPDATE tasks SET task_id = gen_random_uuid() WHERE tenant_id = $1", Breach::UpdatesByChance),
        ("UPDATE tasks SET created_at = clock_timestamp() WHERE tenant_id = $1", Breach::UpdatesByChance),
        ("SELECT pg_notify('due', '')", Breach::Notifies),
    ] {
        assert!(breaches(statement).contains(&breach), "{breach:?}: {statement}");
    }
    for fine in [
        "INSERT INTO groups (tenant_id, updated_at) VALUES ($1, now()) ON CONFLICT (tenant_id) DO UPDATE
        SET updated_at = excluded.updated_at RETURNING now()",
        "WITH g AS (INSERT INTO groups (tenant_id, n) VALUES ($1, 1) ON CONFLICT (tenant_id) DO UPDATE
        SET n = abs(excluded.n)) UPDATE tasks SET finished_at = now() WHERE tenant_id = $1",
    ] {
        assert_eq!(breaches(fine), [], "{fine}");
    }
}

/// The rules that a statement breaks, in their order.
fn breaches(statement: &str) -> Vec<Breach> {
    let words = plain(statement);
    let upper = words.to_uppercase();
    let single = names_one_tenant(&words);
    let mut found = Vec::new();
    if tables(&words) > tenants(&words) || tables(&words) > 0 && !single && !gathers(&words) {
        found.push(NoTenant);
    }
    let locks = ["FOR UPDATE", "FOR NO KEY UPDATE", "FOR KEY SHARE", "FOR SHARE"]
        .iter()
        .any(|lock| upper.contains(lock));
    if locks && !single && tables(&words) > 0 {
        found.push(LocksAcross);
    }
    if !single && tables(&words) > 0 && ["RECURSIVE", "LATERAL"].iter().any(|word| upper.contains(word)) {
        found.push(NestedAcross);
    }
    if upserts(&upper).any(|set| {
        ["NOW()", "CLOCK_TIMESTAMP", "CURRENT_TIMESTAMP", "RANDOM"].iter().any(|time| set.contains(time))
    }) {
        found.push(UpsertsTime);
    }
    let chance = ["CLOCK_TIMESTAMP(", "RANDOM(", "GEN_RANDOM_UUID("]
        .iter()
        .any(|chance| updates(&upper).any(|set| set.contains(chance)));
    if chance {
        found.push(Breach::UpdatesByChance);
    }
    if ["NOTIFY", "LISTEN ", "PG_NOTIFY"].iter().any(|word| upper.contains(word)) {
        found.push(Breach::Notifies);
    }
    found
}

/// Without comments, on one line.
fn plain(statement: &str) -> String {
    let lines = statement.lines().map(|line| line.split("--").next().unwrap_or_default());
    lines.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
}

/// Whether one tenant is named by a parameter, or written as one.
fn names_one_tenant(words: &str) -> bool {
    let named = |words: &str| words.match_indices("tenant_id = $").any(|_| true);
    named(words) || words.contains("SELECT $1,") || words.contains("VALUES ($1,")
}

/// Whether each row brings its tenant along, or comes from a table that does.
fn gathers(words: &str) -> bool {
    words.contains("unnest(") && words.contains("tenant_id") || words.contains("= t.tenant_id")
}

/// How often tables of tenants are named.
fn tables(words: &str) -> usize {
    let words =
        words.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '=')).filter(|word| !word.is_empty());
    let words = words.collect::<Vec<_>>();
    let named = |pair: &&[&str]| {
        ["FROM", "JOIN", "UPDATE", "INTO"].contains(&pair[0]) && DISTRIBUTED.contains(&pair[1])
    };
    words.windows(2).filter(named).count()
}

/// How often a tenant is.
fn tenants(words: &str) -> usize {
    let by_parameter = words.matches("SELECT $1,").count();
    let joined = words.matches("USING (tenant_id").count();
    words.matches("tenant_id").count() + by_parameter + joined
}

/// What follows each `DO UPDATE SET`, to its end.
fn upserts(upper: &str) -> impl Iterator<Item = &str> {
    upper
        .split("DO UPDATE SET")
        .skip(1)
        .map(|set| bracketed(set).split(" RETURNING ").next().unwrap_or_default())
}

/// The text up to the bracket that closes what it stands in.
fn bracketed(text: &str) -> &str {
    let mut depth = 0;
    let end = text.find(|c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        depth < 0
    });
    end.map_or(text, |end| &text[..end])
}

/// What follows each `UPDATE … SET`, to the end of what it is part of.
fn updates(upper: &str) -> impl Iterator<Item = &str> {
    upper.split("UPDATE ").skip(1).map(|set| {
        set.split(" RETURNING ").next().unwrap_or_default().split("INSERT INTO").next().unwrap_or_default()
    })
}

fn statements() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(".sqlx");
    let files = files(&folder).into_iter().map(|file| fs::read_to_string(file).unwrap());
    files
        .map(|text| serde_json::from_str::<Value>(&text).unwrap()["query"].as_str().unwrap().to_owned())
        .collect()
}

/// The last migration that every database had before there was a way to distribute it.
const BEFORE: &str = "0017";

/// What a later migration does to a table that is distributed by then.
#[test]
fn later_migrations_can_be_applied_to_tables_that_are_distributed() {
    let migrations = files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations"));
    let mut wrong = Vec::new();
    for file in migrations {
        let name = file.file_name().unwrap().to_str().unwrap().to_owned();
        if &name[..4] > BEFORE {
            wrong.extend(
                refused(&fs::read_to_string(&file).unwrap()).into_iter().map(|why| format!("{name}: {why}")),
            );
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for (migration, why) in [
        ("ALTER TABLE tasks ADD COLUMN a int, ADD CONSTRAINT b CHECK (a > 0);", "in one ALTER"),
        ("ALTER TABLE tasks ADD COLUMN a int CHECK (a > 0);", "ADD COLUMN"),
        ("ALTER TABLE tasks ALTER COLUMN group_code SET (n_distinct = 5);", "SET (n_distinct"),
    ] {
        assert!(refused(migration).iter().any(|found| found.contains(why)), "{migration}");
    }
    let fine = "CREATE TABLE a (tenant_id uuid PRIMARY KEY); ALTER TABLE a ALTER COLUMN tenant_id SET (n_distinct = 1);
        ALTER TABLE tasks ADD COLUMN b numeric(3, 1), ADD COLUMN c int; ALTER TABLE tasks ADD CONSTRAINT d CHECK (b IN (1, 2));";
    assert_eq!(refused(fine), [""; 0]);
}

/// What Citus 13 refuses of a migration, of tables that the migration does not make itself.
fn refused(migration: &str) -> Vec<String> {
    let words = plain(migration);
    let mut found = Vec::new();
    for statement in words.split(';').map(str::trim) {
        let Some(rest) = statement.strip_prefix("ALTER TABLE ") else { continue };
        let (table, changes) = rest.split_once(' ').unwrap_or((rest, ""));
        if words.contains(&format!("CREATE TABLE {table} ")) {
            continue;
        }
        let parts = top_level_parts(changes);
        let constrains = |part: &&str| {
            ["CONSTRAINT", "CHECK", "UNIQUE", "PRIMARY KEY", "REFERENCES"]
                .iter()
                .any(|word| part.contains(word))
        };
        if parts.len() > 1 && parts.iter().any(constrains) {
            found.push(format!("a constraint beside something else in one ALTER: {statement}"));
        }
        if parts.iter().any(|part| part.starts_with("ADD COLUMN") && constrains(part)) {
            found.push(format!(
                "ADD COLUMN with a constraint, which needs a statement of its own: {statement}"
            ));
        }
        if changes.contains("SET (n_distinct") {
            found.push(format!("SET (n_distinct …) on a table that may be distributed: {statement}"));
        }
    }
    found
}

/// The parts between commas that stand in no parentheses.
fn top_level_parts(changes: &str) -> Vec<&str> {
    let mut depth = 0;
    changes
        .split(|c| {
            depth += match c {
                '(' => 1,
                ')' => -1,
                _ => 0,
            };
            c == ',' && depth == 0
        })
        .map(str::trim)
        .collect()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    files.sort();
    files
}
