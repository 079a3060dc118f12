//! A real site, and what a test asks of it.

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use chrono::DateTime;
use publish_ingest::account::Credentials;
use publish_ingest::article::Content;
use publish_ingest::connector::media::Media;
use publish_ingest::connector::wordpress::WordPress;
use publish_ingest::connector::{Access, Connector, Job, Marked, Prepared, Sighting, Trace, Verdict};
use serde_json::{Value, json};
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use uuid::Uuid;

use crate::server::{Server, client, clock, marker};

/// How long a request may take: far longer than a busy machine needs.
pub(super) const ROOMY: Duration = Duration::from_mins(1);

/// One site for all tests that run at the time; the last one ends it.
static SHARED: Mutex<Weak<Blog>> = Mutex::new(Weak::new());

/// A real site, and the connector.
pub(super) struct Blog {
    pub(super) server: Server,
    pub(super) connector: WordPress,
    peace: RwLock<()>,
}

/// A user's name and application password.
#[derive(Clone)]
pub(super) struct User(pub(super) String, pub(super) String);

impl Blog {
    pub(super) fn shared() -> Arc<Self> {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let server = Server::start("wordpress.py");
            let connector = WordPress::new(client(), Media::new(client(), clock()), ROOMY, clock());
            let blog = Arc::new(Self { server, connector, peace: RwLock::default() });
            *shared = Arc::downgrade(&blog);
            blog
        })
    }

    /// Held by a test that needs the site as it is.
    pub(super) async fn in_peace(&self) -> RwLockReadGuard<'_, ()> {
        self.peace.read().await
    }

    /// Held by a test that changes the site for all.
    pub(super) async fn alone(&self) -> RwLockWriteGuard<'_, ()> {
        self.peace.write().await
    }

    pub(super) fn base_url(&self) -> &str {
        self.server.text("base_url")
    }

    pub(super) fn administrator(&self) -> User {
        User(self.server.text("username").to_owned(), self.server.text("application_password").to_owned())
    }

    /// A user who has that role from the start.
    pub(super) fn user(&self, role: &str) -> User {
        let others = self.server.told["other"].as_array().unwrap();
        let one = others.iter().find(|other| other["role"] == role).unwrap();
        let text = |name: &str| one[name].as_str().unwrap().to_owned();
        User(text("username"), text("application_password"))
    }

    /// A new user of that role.
    pub(super) fn new_user(&self, role: &str) -> User {
        let name = format!("{role}-{}", marker());
        let password = self.php(&format!(
            "$id = wp_insert_user(['user_login' => '{name}', 'user_email' => '{name}@example.org', 'role' => '{role}',
                'user_pass' => wp_generate_password(24)]);
             echo WP_Application_Passwords::create_new_application_password($id, ['name' => 'test'])[0];"
        ));
        User(name, password)
    }

    /// Runs PHP within the site; what it printed.
    pub(super) fn php(&self, code: &str) -> String {
        let code = format!("$_SERVER['HTTP_HOST'] = 'localhost'; require 'wp-load.php'; {code}");
        told(Command::new("php").args(["-d", "display_errors=stderr", "-r", &code]).current_dir(self.site()))
    }

    /// Asks the site's database.
    pub(super) fn sql(&self, statement: &str) -> String {
        let database = self.server.text("database");
        let socket = self.server.text("mysql_socket");
        told(
            Command::new("mariadb")
                .args(["-u", "root", "-N", "-B", "--socket", socket, database, "-e", statement]),
        )
    }

    /// The folder of the site's files.
    pub(super) fn site(&self) -> PathBuf {
        self.server.data().join("site")
    }

    /// The posts of every state that carry a job's comment, or its marker in the slug, as the database counts them.
    pub(super) fn count(&self, job: &Job) -> u32 {
        let marker = &job.marker;
        let count = self.sql(&format!(
            "select count(*) from wp_posts where post_type = 'post'
             and (post_name like '%{marker}%' or post_content like '%{marker}%')"
        ));
        count.parse().unwrap()
    }

    pub(super) fn access(&self, user: &User) -> Access {
        Access {
            tenant: "acme".to_owned(),
            tenant_id: Uuid::nil(),
            account_id: "blog".to_owned(),
            settings: json!({"base_url": self.base_url()}),
            credentials: credentials(user),
        }
    }

    /// An article of its own, in an administrator's name.
    pub(super) fn job(&self, title: &str) -> Job {
        self.job_of(&self.administrator(), title)
    }

    pub(super) fn job_of(&self, user: &User, title: &str) -> Job {
        Job {
            marker: marker(),
            tenant: "acme".to_owned(),
            tenant_id: Uuid::nil(),
            publication_id: Uuid::nil(),
            round: 1,
            external_id: "post-1".to_owned(),
            account_id: "blog".to_owned(),
            settings: json!({"base_url": self.base_url()}),
            credentials: credentials(user),
            content: Content {
                title: title.to_owned(),
                content_html: "<p>One\ntwo &amp; three.</p>".to_owned(),
                summary: None,
                cover_url: None,
                canonical_url: None,
                author: None,
                tags: Vec::new(),
            },
            submitted_at: DateTime::UNIX_EPOCH,
            draft_id: None,
            prepared: Value::Null,
            request_id: "test-1-0".to_owned(),
            trace: Trace::default(),
            until: clock().instant() + ROOMY,
        }
    }

    pub(super) async fn find(&self, job: &Job) -> Sighting {
        self.connector.find(job).await
    }

    /// What carries the mark; each as its id, and whether it is public.
    pub(super) async fn seen(&self, job: &Job) -> Vec<(String, bool)> {
        let sighting = self.find(job).await;
        let Sighting::Seen(seen) = sighting else { panic!("{sighting:?}") };
        seen.into_iter().map(|Marked { id, public }| (id, public.is_some())).collect()
    }

    /// Makes a draft, which must succeed; its id, which the job then names.
    pub(super) async fn drafted(&self, job: &mut Job) -> String {
        let verdict = self.connector.draft(job).await;
        let Verdict::Drafted(id) = verdict else { panic!("{verdict:?}") };
        job.draft_id = Some(id.clone());
        id
    }

    /// A column of a post.
    pub(super) fn column(&self, id: &str, column: &str) -> String {
        self.sql(&format!("select {column} from wp_posts where ID = {id}"))
    }
}

fn credentials(User(username, password): &User) -> Credentials {
    Credentials::new(json!({"username": username, "application_password": password}))
}

fn told(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

/// Code of the site's own, while this value lives.
pub(super) struct Plugin(PathBuf);

impl Plugin {
    pub(super) fn put(blog: &Blog, code: &str) -> Self {
        // PHP keeps what it has compiled of a file for some seconds, so each gets a name of its own.
        let path = blog.site().join(format!("wp-content/mu-plugins/{}.php", marker()));
        std::fs::write(&path, format!("<?php\n{code}\n")).unwrap();
        Self(path)
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).unwrap();
    }
}

/// The code of the failure of a rejection.
pub(super) fn rejected(verdict: Verdict) -> String {
    match verdict {
        Verdict::Rejected(failure) => failure.code.into_owned(),
        other => format!("{other:?}"),
    }
}

/// A member of what was made ready.
pub(super) fn member<'a>(prepared: &'a Prepared, name: &str) -> &'a Value {
    prepared.ready.get(name).unwrap()
}
