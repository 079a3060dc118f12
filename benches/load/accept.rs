//! The cases of accepting.

use std::time::Duration;

use serde_json::json;

use crate::article::Sender;
use crate::database::{Server, number, written};
use crate::load::Hand;
use crate::program::{FREE, World};
use crate::prototype::Manner;
use crate::report::{Report, count};
use crate::subject::{Case, FULL, NAIVE, PROTOTYPE, SERVICE, SINGLE, Subject, compare, prototype};
use crate::{Arguments, Failed, TENANT};

/// The connections of the cases that ask for the highest rate.
const MANY: usize = 64;

/// The connections of the calls with many articles: each is one of a pipeline's processes.
const BATCH_CONNECTIONS: usize = 4;

/// The articles of such a call.
const BATCH: u64 = 500;

/// The sizes of texts beside the usual one, in bytes.
const SMALL: usize = 1_024;
const LARGE: usize = 64 * 1_024;

/// How much of the highest rate without gathering is asked for where latencies are told at a fixed rate: what both can bear.
const BEARABLE: f64 = 0.6;

/// From when on all backends have told what they did: at the latest 10 s after it.
const ALL_IS_TOLD: Duration = Duration::from_secs(11);

const NEW: Case = Case { name: "new", hand: Hand::New, connections: MANY, per_second: None };

/// Those that are compared: some serve on the database that has not been in use, one on that which has, two are prototypes.
struct Field {
    service: Subject,
    single: Subject,
    bare: Subject,
    naive: Subject,
    full: Option<Subject>,
}

impl Field {
    async fn start(
        arguments: &Arguments,
        server: &Server,
        world: &World,
        full: Option<&World>,
    ) -> Result<Self, Failed> {
        let roles = ("PUBLISH_ROLES", "api");
        let single = [roles, ("PUBLISH_ACCEPT_ROWS", "1")];
        let subject = |name, service, world: &World| {
            let sender = Sender::of(&world.tenant, 1);
            Subject::new(name, service, &[sender], arguments.bytes, server.pid())
        };
        let bare = server.create("bare").await?;
        Ok(Self {
            service: subject(SERVICE, world.serve("service", &[roles]).await?, world),
            single: subject(SINGLE, world.serve("single", &single).await?, world),
            bare: subject(PROTOTYPE, prototype(&bare, Manner::Gathered).await?, world),
            naive: subject(NAIVE, prototype(&bare, Manner::Naive).await?, world),
            full: match full {
                Some(full) => Some(subject(FULL, full.serve("full", &[roles]).await?, full)),
                None => None,
            },
        })
    }

    /// The service, in its three ways.
    fn ours(&mut self) -> Vec<&mut Subject> {
        [&mut self.service, &mut self.single].into_iter().chain(&mut self.full).collect()
    }

    fn all(&mut self) -> Vec<&mut Subject> {
        let Self { service, single, bare, naive, full } = self;
        [service, single, bare, naive].into_iter().chain(full).collect()
    }

    fn gathered(&mut self) -> Vec<&mut Subject> {
        let Self { service, bare, full, .. } = self;
        [service, bare].into_iter().chain(full).collect()
    }
}

/// All cases of accepting.
pub(crate) async fn run(
    report: &mut Report,
    arguments: &Arguments,
    server: &Server,
    world: &World,
    full: Option<&World>,
) -> Result<(), Failed> {
    let before = number(&world.url, "SELECT count(*) FROM tasks").await?;
    let mut field = Field::start(arguments, server, world, full).await?;
    compare(report, arguments, NEW, &mut field.all()).await?;
    let case = Case { name: "new, 1 connection", connections: 1, ..NEW };
    compare(report, arguments, case, &mut field.all()).await?;
    if let Some(rate) = report.rate("new", SINGLE) {
        let case = Case { name: "new, fixed rate", per_second: Some(BEARABLE * rate), ..NEW };
        compare(report, arguments, case, &mut field.ours()).await?;
    }
    let case = Case { name: "duplicates", hand: Hand::Duplicate, ..NEW };
    compare(report, arguments, case, &mut field.all()).await?;
    duplicates_write_nothing(report, arguments, world, &mut field.service).await?;
    let case = Case { name: "mixed", hand: Hand::Mixed, ..NEW };
    compare(report, arguments, case, &mut field.all()).await?;
    let case =
        Case { name: "batches of 500", hand: Hand::Batch(BATCH), connections: BATCH_CONNECTIONS, ..NEW };
    compare(report, arguments, case, &mut field.ours()).await?;
    for (name, bytes) in [("new, 1 KiB", SMALL), ("new, 64 KiB", LARGE)] {
        field.all().iter_mut().for_each(|subject| subject.size(bytes));
        compare(report, arguments, Case { name, ..NEW }, &mut field.gathered()).await?;
    }
    field.all().iter_mut().for_each(|subject| subject.size(arguments.bytes));
    let accepted = i64::try_from(field.service.accepted() + field.single.accepted())?;
    let stored = number(&world.url, "SELECT count(*) FROM tasks").await? - before;
    let without = number(
        &world.url,
        "SELECT count(*) FROM tasks t WHERE 2 <> (
            SELECT count(*) FROM publications p WHERE (p.tenant_id, p.task_id) = (t.tenant_id, t.task_id))",
    )
    .await?;
    if (stored, without) != (accepted, 0) {
        let wrong =
            format!("{accepted} articles accepted, {stored} stored, {without} without their publications");
        return Err(wrong.into());
    }
    let Field { service, single, bare: _, naive: _, full } = field;
    for subject in [service, single].into_iter().chain(full) {
        subject.service.end().await?;
    }
    tenants(report, arguments, server, world).await
}

/// What the database writes while it answers duplicates alone.
async fn duplicates_write_nothing(
    report: &mut Report,
    arguments: &Arguments,
    world: &World,
    subject: &mut Subject,
) -> Result<(), Failed> {
    let case = Case { name: "duplicates", hand: Hand::Duplicate, ..NEW };
    // What was counted of the cases before has then been told.
    tokio::time::sleep(ALL_IS_TOLD).await;
    let before = written(&world.url).await?;
    let round = subject.round(case, arguments.round()).await?;
    let at_once = written(&world.url).await?;
    tokio::time::sleep(ALL_IS_TOLD).await;
    let later = written(&world.url).await?;
    let articles = round.tally.articles;
    let rows = later.rows - before.rows;
    let wal_bytes = at_once.wal_bytes - before.wal_bytes;
    report.fact(
        "written for duplicates",
        json!({
            "duplicates": articles,
            "rows": rows,
            "transactions_that_wrote": at_once.writers - before.writers,
            "wal_bytes": wal_bytes,
            "wal_bytes_each": count(u64::try_from(wal_bytes)?) / count(articles),
        }),
    );
    if rows == 0 { Ok(()) } else { Err(format!("{rows} rows were written for duplicates").into()) }
}

/// Many tenants at once.
async fn tenants(
    report: &mut Report,
    arguments: &Arguments,
    server: &Server,
    world: &World,
) -> Result<(), Failed> {
    let roles = ("PUBLISH_ROLES", "api");
    let service = world.serve("service", &[roles]).await?;
    let mut senders = Vec::new();
    for number in 0..arguments.tenants {
        let tenant = world.tenant(&format!("{TENANT}-{number}")).await?;
        service.furnish(&tenant, 1, FREE).await?;
        senders.push(Sender::of(&tenant, 1));
    }
    let single = world.serve("single", &[roles, ("PUBLISH_ACCEPT_ROWS", "1")]).await?;
    let mut service = Subject::new(SERVICE, service, &senders, arguments.bytes, server.pid());
    let mut single = Subject::new(SINGLE, single, &senders, arguments.bytes, server.pid());
    for (name, hand) in [("new, many tenants", Hand::New), ("duplicates, tenants", Hand::Duplicate)] {
        let case = Case { name, hand, ..NEW };
        compare(report, arguments, case, &mut [&mut service, &mut single]).await?;
    }
    service.service.end().await?;
    single.service.end().await
}
