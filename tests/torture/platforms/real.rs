//! Real servers that others wrote, as `tests/servers` starts them; counted in their own databases.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{Holdings, Platform, note};

/// How many articles may be in hand at once: on two slow cores more would only make each other late.
const IN_FLIGHT_MAX: u32 = 2;

/// A server's script, and what it told of the server.
struct Server {
    script: Child,
    told: Value,
}

impl Server {
    fn start(name: &str, folder: &Path) -> Result<Self, String> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/servers").join(format!("{name}.py"));
        let mut command = Command::new("python3");
        command.arg("-B").arg(path).arg(folder.join(name));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut script = command.spawn().map_err(|error| format!("python3: {error}"))?;
        let mut line = String::new();
        BufReader::new(script.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if let Ok(told) = serde_json::from_str(&line) {
            return Ok(Self { script, told });
        }
        let mut why = String::new();
        script.stderr.take().unwrap().read_to_string(&mut why).unwrap();
        script.wait().unwrap();
        Err(why.trim().to_owned())
    }

    fn text(&self, name: &str) -> &str {
        self.told[name].as_str().unwrap_or_else(|| panic!("the server did not tell its {name}"))
    }

    fn address(&self) -> Option<String> {
        Some(self.text("base_url").strip_prefix("http://")?.to_owned())
    }

    fn signal(&self, members: &[&str], signal: Signal) {
        for pid in members.iter().flat_map(|member| self.told[member].as_array().unwrap()) {
            let pid = i32::try_from(pid.as_i64().unwrap()).unwrap();
            kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The end of its input ends the script, and that its servers.
        drop(self.script.stdin.take());
        let _ = self.script.wait();
    }
}

/// What a program printed that must succeed.
fn printed(mut command: Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Titles and states, a pair a line with a tab between.
fn counted(lines: &str, public: &str) -> Holdings {
    let mut holdings = Holdings::new();
    for line in lines.lines() {
        let (status, title) = line.split_once('\t').unwrap();
        note(&mut holdings, title, status == public);
    }
    holdings
}

pub(crate) struct WordPress(Server);

pub(crate) fn start_wordpress(folder: &Path) -> Result<WordPress, String> {
    Server::start("wordpress", folder).map(WordPress)
}

impl Platform for WordPress {
    fn name(&self) -> &'static str {
        "wordpress"
    }

    fn address(&self) -> Option<String> {
        self.0.address()
    }

    fn account(&self, base: &str) -> Value {
        let password = self.0.text("application_password");
        json!({
            "settings": {"base_url": base},
            "credentials": {"username": self.0.text("username"), "application_password": password},
            "max_in_flight": IN_FLIGHT_MAX,
        })
    }

    fn refused(&self, base: &str) -> Option<Value> {
        let contributor =
            self.0.told["other"].as_array()?.iter().find(|user| user["role"] == "contributor")?;
        let (username, password) = (&contributor["username"], &contributor["application_password"]);
        Some(json!({
            "settings": {"base_url": base},
            "credentials": {"username": username, "application_password": password},
        }))
    }

    fn drafts(&self) -> bool {
        true
    }

    fn prepares(&self) -> bool {
        true
    }

    /// PHP, its database, or both.
    fn stop(&self, part: usize) -> bool {
        let parts: [&[&str]; 3] = [&["site_pids"], &["database_pids"], &["site_pids", "database_pids"]];
        self.0.signal(parts[part % parts.len()], Signal::STOP);
        true
    }

    fn go_on(&self) {
        self.0.signal(&["database_pids", "site_pids"], Signal::CONT);
    }

    /// Posts in every state, the trash too; revisions are no posts.
    fn holdings(&self) -> Holdings {
        let mut command = Command::new("mariadb");
        command
            .args(["--no-defaults", "-u", "root", "-N", "-B", "--socket"])
            .arg(self.0.text("mysql_socket"));
        let posts = "SELECT post_status, post_title FROM wp_posts WHERE post_type = 'post'";
        command.arg(self.0.text("database")).args(["-e", posts]);
        counted(&printed(command), "publish")
    }
}

pub(crate) struct Ghost {
    server: Server,
    sqlite: PathBuf,
}

pub(crate) fn start_ghost(folder: &Path) -> Result<Ghost, String> {
    let server = Server::start("ghost", folder)?;
    let sqlite = server.text("sqlite").into();
    Ok(Ghost { server, sqlite })
}

/// The own program of `SQLite` is seldom installed; Python brings its library.
const POSTS: &str = "import sqlite3, sys
base = sqlite3.connect('file:' + sys.argv[1] + '?mode=ro', uri=True)
for row in base.execute(\"SELECT status, title FROM posts WHERE type = 'post'\"): print(*row, sep='\\t')";

impl Platform for Ghost {
    fn name(&self) -> &'static str {
        "ghost"
    }

    fn address(&self) -> Option<String> {
        self.server.address()
    }

    fn account(&self, base: &str) -> Value {
        let key = self.server.text("admin_api_key");
        json!({
            "settings": {"base_url": base}, "credentials": {"admin_api_key": key}, "max_in_flight": IN_FLIGHT_MAX,
        })
    }

    fn drafts(&self) -> bool {
        true
    }

    fn stop(&self, _: usize) -> bool {
        self.server.signal(&["site_pids"], Signal::STOP);
        true
    }

    fn go_on(&self) {
        self.server.signal(&["site_pids"], Signal::CONT);
    }

    fn holdings(&self) -> Holdings {
        let mut command = Command::new("python3");
        command.args(["-c", POSTS]).arg(&self.sqlite);
        counted(&printed(command), "published")
    }
}
