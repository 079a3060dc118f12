//! Accepting: the service beside the same code without gathering, and beside a bare prototype; round by round in turn, so that
//! what else the machine does meets all of them.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::article::{Articles, Sender};
use crate::database::Server;
use crate::drive::{Connections, Tally};
use crate::load::{Hand, Load};
use crate::machine::Used;
use crate::program::{Service, World};
use crate::prototype::Manner;
use crate::report::{Figure, Report};
use crate::{Arguments, Failed};

/// The connections of the cases that ask for the highest rate.
pub(crate) const MANY: usize = 64;

/// The connections of the calls with many articles: each is one of a pipeline's processes.
const BATCH_CONNECTIONS: usize = 4;

/// The articles of such a call.
const BATCH: u64 = 500;

/// What is measured beside the service.
pub(crate) const SERVICE: &str = "service";
pub(crate) const SINGLE: &str = "one a request";
pub(crate) const PROTOTYPE: &str = "prototype";
pub(crate) const NAIVE: &str = "prototype, one a request";

/// One of those that are compared.
pub(crate) struct Subject {
    pub(crate) name: &'static str,
    pub(crate) service: Service,
    connections: Connections,
    articles: Arc<Articles>,
    next: Arc<AtomicU64>,
    database: u32,
}

/// What came of one round of one subject.
pub(crate) struct Round {
    pub(crate) tally: Tally,
    pub(crate) used: Used,
}

/// A case.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) hand: Hand,
    pub(crate) connections: usize,
}

impl Subject {
    pub(crate) fn new(
        name: &'static str,
        service: Service,
        sender: Sender,
        bytes: usize,
        database: u32,
    ) -> Self {
        let prefix = name.chars().filter(char::is_ascii_alphabetic).collect::<String>();
        let connections = Connections::new(service.address);
        let articles = Arc::new(Articles::new(sender, &prefix, bytes));
        Self { name, service, connections, articles, next: Arc::default(), database }
    }

    async fn round(&mut self, case: Case, lasts: Duration) -> Result<Round, Failed> {
        let load = Arc::new(Load::new(&self.articles, &self.next, case.hand));
        let before = Used::until_now(self.service.pid(), self.database)?;
        let tally = self.connections.closed(&load, case.connections, lasts).await?;
        let used = Used::until_now(self.service.pid(), self.database)?.since(before);
        Ok(Round { tally, used })
    }

    /// How many articles it has accepted.
    pub(crate) fn accepted(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }
}

/// Runs a case on all of them, in turn.
pub(crate) async fn compare(
    report: &mut Report,
    arguments: &Arguments,
    case: Case,
    subjects: &mut [&mut Subject],
) -> Result<(), Failed> {
    let mut rounds = subjects.iter().map(|_| Vec::new()).collect::<Vec<_>>();
    for subject in subjects.iter_mut() {
        subject.round(case, arguments.round() / 4).await?;
    }
    for number in 0..arguments.rounds {
        for at in 0..subjects.len() {
            // Each has every place in the order.
            let at = (at + number) % subjects.len();
            rounds[at].push(subjects[at].round(case, arguments.round()).await?);
        }
    }
    for (subject, rounds) in subjects.iter().zip(&rounds) {
        report.add(Figure::of(case.name, subject.name, rounds));
    }
    report.print_case(case.name);
    Ok(())
}

/// Starts the prototype.
async fn prototype(url: &str, manner: Manner) -> Result<Service, Failed> {
    let mut command = Command::new(std::env::current_exe()?);
    let manner = match manner {
        Manner::Gathered => "gathered",
        Manner::Naive => "naive",
    };
    command.args(["--prototype", manner]).env("LOAD_DATABASE_URL", url).stdin(Stdio::null());
    Service::start(command).await
}

/// All cases of accepting.
pub(crate) async fn run(
    report: &mut Report,
    arguments: &Arguments,
    server: &Server,
    world: &World,
) -> Result<(), Failed> {
    let tenant = world.tenant("accept").await?;
    let roles = ("PUBLISH_ROLES", "api");
    let service = world.serve("service", &[roles]).await?;
    let single = world.serve("single", &[roles, ("PUBLISH_ACCEPT_ROWS", "1")]).await?;
    let sender = service.furnish(&tenant, 1).await?;
    let bare_url = server.create("bare").await?;
    let bare = prototype(&bare_url, Manner::Gathered).await?;
    let naive = prototype(&bare_url, Manner::Naive).await?;
    let subject = |name, service: Service| {
        let sender = Sender { host: service.host(), ..sender.clone() };
        Subject::new(name, service, sender, arguments.bytes, server.pid())
    };
    let mut service = subject(SERVICE, service);
    let mut single = subject(SINGLE, single);
    let mut bare = subject(PROTOTYPE, bare);
    let mut naive = subject(NAIVE, naive);
    let new = Case { name: "new", hand: Hand::New, connections: MANY };
    let mut all = [&mut service, &mut single, &mut bare, &mut naive];
    compare(report, arguments, new, &mut all).await?;
    let case = Case { name: "new, 1 connection", connections: 1, ..new };
    compare(report, arguments, case, &mut all).await?;
    let case = Case { name: "duplicates", hand: Hand::Duplicate, ..new };
    compare(report, arguments, case, &mut all).await?;
    let case = Case { name: "mixed", hand: Hand::Mixed, ..new };
    compare(report, arguments, case, &mut all).await?;
    let case =
        Case { name: "batches of 500", hand: Hand::Batch(BATCH), connections: BATCH_CONNECTIONS };
    compare(report, arguments, case, &mut [&mut service, &mut single]).await?;
    report.memory("accepting", service.service.pid())?;
    let stored = crate::database::number(&world.url, "SELECT count(*) FROM tasks").await?;
    let published = crate::database::number(&world.url, "SELECT count(*) FROM publications").await?;
    let accepted = i64::try_from(service.accepted() + single.accepted())?;
    if (stored, published) != (accepted, 2 * accepted) {
        return Err(format!("{accepted} articles were accepted; stored: {stored} tasks, {published} publications").into());
    }
    for subject in [service, single, bare, naive] {
        let name = subject.name;
        if matches!(name, SERVICE | SINGLE) {
            subject.service.end().await?;
        }
    }
    Ok(())
}
