//! The line between a service and its database, which can be cut after the database has done what it was asked and before
//! anybody hears of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use sqlx::postgres::PgConnectOptions;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;

/// What ends an answer of `PostgreSQL` outside of a transaction: `ReadyForQuery`, which comes after the commit.
/// <https://www.postgresql.org/docs/current/protocol-message-formats.html>
const READY: &[u8] = b"Z\0\0\0\x05I";

/// Counts for each connection how often the line was cut when it began.
#[derive(Default)]
struct Cuts {
    made: AtomicUsize,
    lost: AtomicUsize,
}

/// A line to the server of a database. It ends with this value.
pub(crate) struct Wire {
    /// The address of the database over this line.
    pub(crate) url: String,
    cuts: Arc<Cuts>,
    passing: JoinHandle<()>,
    _folder: TempDir,
}

impl Wire {
    /// A line to the database at `url`.
    pub(crate) fn to(url: &str) -> Self {
        let options = url.parse::<PgConnectOptions>().unwrap();
        let name = format!(".s.PGSQL.{}", options.get_port());
        let server = options.get_socket().unwrap().join(&name);
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join(&name)).unwrap();
        let cuts = Arc::new(Cuts::default());
        let shared = cuts.clone();
        let passing = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (server, cuts) = (UnixStream::connect(&server).await.unwrap(), shared.clone());
                // What breaks here is a lost connection to both sides, as on any network.
                tokio::spawn(async move { pass(client, server, &cuts).await });
            }
        });
        let encoded = utf8_percent_encode(folder.path().to_str().unwrap(), NON_ALPHANUMERIC).to_string();
        let url = format!(
            "postgres://{}@{encoded}:{}/{}",
            options.get_username(),
            options.get_port(),
            options.get_database().unwrap()
        );
        Self { url, cuts, passing, _folder: folder }
    }

    /// The connections that there are lose their next answer, and end with it; later ones do not.
    pub(crate) fn cut(&self) {
        self.cuts.made.fetch_add(1, Ordering::SeqCst);
    }

    /// How many answers were lost.
    pub(crate) fn lost(&self) -> usize {
        self.cuts.lost.load(Ordering::SeqCst)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.passing.abort();
    }
}

async fn pass(client: UnixStream, server: UnixStream, cuts: &Cuts) -> std::io::Result<()> {
    let begun = cuts.made.load(Ordering::SeqCst);
    let (mut asked, mut told) = client.into_split();
    let (mut answered, mut asking) = server.into_split();
    let there = async {
        tokio::io::copy(&mut asked, &mut asking).await?;
        asking.shutdown().await
    };
    let back = async {
        let mut answer = Vec::new();
        while answered.read_buf(&mut answer).await? > 0 {
            if cuts.made.load(Ordering::SeqCst) == begun {
                told.write_all(&std::mem::take(&mut answer)).await?;
            } else if answer.ends_with(READY) {
                cuts.lost.fetch_add(1, Ordering::SeqCst);
                break;
            }
        }
        Ok(())
    };
    tokio::select! {
        ended = there => ended,
        ended = back => ended,
    }
}
