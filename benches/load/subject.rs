//! Those that are compared, each a process that serves; round by round in turn, so that what else the machine does meets all of
//! them.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::article::{Articles, Sender};
use crate::drive::{Connections, Tally};
use crate::load::{Hand, Load};
use crate::machine::{Memory, Used};
use crate::program::Service;
use crate::prototype::Manner;
use crate::report::{Figure, Report};
use crate::{Arguments, Failed};

/// The service, as it is.
pub(crate) const SERVICE: &str = "service";
/// The same code, with a transaction for each request.
pub(crate) const SINGLE: &str = "service, one a request";
/// The service on a database that has been in use.
pub(crate) const FULL: &str = "service, full database";
/// What accepting costs when nothing is checked.
pub(crate) const PROTOTYPE: &str = "prototype";
/// The same, with a transaction for each request.
pub(crate) const NAIVE: &str = "prototype, one a request";

/// One of those that are compared.
pub(crate) struct Subject {
    pub(crate) name: &'static str,
    pub(crate) service: Service,
    connections: Connections,
    senders: Vec<Sender>,
    articles: Arc<[Articles]>,
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
    /// How many requests a second are sent; none: as many as are answered.
    pub(crate) per_second: Option<f64>,
}

impl Subject {
    /// One that articles of `bytes` are handed to, by these senders in turn.
    pub(crate) fn new(
        name: &'static str,
        service: Service,
        senders: &[Sender],
        bytes: usize,
        database: u32,
    ) -> Self {
        let host = service.address.to_string();
        let senders = senders.iter().map(|sender| Sender { host: host.clone(), ..sender.clone() });
        let connections = Connections::new(service.address);
        let mut subject = Self {
            name,
            service,
            connections,
            senders: senders.collect(),
            articles: Arc::new([]),
            next: Arc::default(),
            database,
        };
        subject.size(bytes);
        subject
    }

    /// From now on articles are of `bytes`.
    pub(crate) fn size(&mut self, bytes: usize) {
        let prefix = self.name.chars().filter(char::is_ascii_alphabetic).collect::<String>();
        self.articles =
            self.senders.iter().map(|sender| Articles::new(sender.clone(), &prefix, bytes)).collect();
    }

    pub(crate) async fn round(&mut self, case: Case, lasts: Duration) -> Result<Round, Failed> {
        let load = Arc::new(Load::new(&self.articles, &self.next, case.hand));
        let before = Used::until_now(self.service.pid(), self.database)?;
        let tally = match case.per_second {
            None => self.connections.closed(&load, case.connections, lasts).await?,
            Some(rate) => self.connections.open(&load, case.connections, rate, lasts).await?,
        };
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
        let memory = Memory::of(subject.service.pid())?;
        report.add(Figure::of(case.name, subject.name, rounds, memory));
    }
    report.print_case(case.name);
    Ok(())
}

/// Starts the prototype on that database.
pub(crate) async fn prototype(url: &str, manner: Manner) -> Result<Service, Failed> {
    let mut command = Command::new(std::env::current_exe()?);
    let manner = match manner {
        Manner::Gathered => "gathered",
        Manner::Naive => "naive",
    };
    command.args(["--prototype", manner]).env("LOAD_DATABASE_URL", url).stdin(Stdio::null());
    Service::start(command).await
}
