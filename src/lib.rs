//! The unified article API of a content platform: the same article is published once.
//!
//! Callers hand articles in with an `external_id`, again and again, after every crash, timeout and re-run. One row per
//! (tenant, `external_id`) stands in the database for ever; workers publish it on every account of its group; signed
//! callbacks tell the caller, again and again, until it has heard or the schedule has run out.
//!
//! # The path of one article
//!
//! ```text
//!            http::publish, batch     task::accept               store::tasks
//! POST ─────▶ key, body, rules ─────▶ gathered with what ──────▶ tasks, articles, publications
//! /publish,                           comes at the same time      one statement, answered after its commit
//! /publish/batch                                                       │ a row that is due *is* the queue entry
//!                                                                      │ (a draft is due when it is submitted)
//!            task::work               connector                        ▼
//!            claim: lane, lease, ◀─────────────────────────────── publications ◀──┐
//!            fence   │                                                            │ not before it is asked again
//!                    ├─▶ find(marker) ── found: adopt it                          │
//!                    │         │ proven absent, or sending is asking              │
//!                    ├─▶ journal: the intent, committed, with the lease renewed   │
//!                    ├─▶ publish ── the platform works on it, or is asked: ───────┘
//!                    │              lease and lane are given back meanwhile
//!            task::settle             store::moves
//!            gathered outcomes ─────▶ state, counters, lane, event, callback: one transaction
//!                                                                      │
//!            callback::deliver        outbound                         ▼
//!            claim, sign, send ─────▶ the receiver ◀───────────── callbacks
//!                    └─▶ record the try; at least once, same id, same bytes
//! ```
//!
//! Who would rather pull gets the same bytes from the feed ([`http`], `GET /events`): an event's position is taken under a lock
//! that is held until the commit, so what is visible has no gap. A callback that is asked for again is due again ([`store`],
//! `replays.rs`); a range of them is a row that any dispatcher goes on with, step by step ([`callback::replay`]).
//!
//! Nothing runs backwards along this line. No transaction is open while anything outside is called.
//!
//! Four more roads lead to the same moves of [`store`], each with its event in the same transaction:
//!
//! - *A caller acts* ([`task::act`]): submit, cancel, retry and adding accounts lock the task's publications, see their
//!   states as they are, and decide. What may be under way is never cancelled, what may be public never simply retried.
//! - *A login has expired*: the account's lane is parked, so nothing of it is claimed. What becomes due on it ends as
//!   `login_expired` without a call. Credentials that are sent renew the login, and what waits is resumed, in order. Both are
//!   rules that a worker finds to hold at its tenant's turn, not events that it could miss.
//! - *A bridge reports* ([`task::report`]): an endpoint that answered "later" calls back with what came of it. A success of
//!   the present round is taken also when the outcome was given up as unknown.
//! - *A robot fetches* ([`task::pull`]): what is due on an account without an endpoint is no worker's. A call hands it out, with
//!   its intent journalled, and leaves it as what a platform works on; it is handed out again when the robot's lease ran out.
//!
//! What is old goes by itself ([`retention`]), but for the keys and the outcomes: a batch at a time, of what has ended.
//!
//! # What happens when something breaks
//!
//! | where | then |
//! | --- | --- |
//! | before the commit of accepting | nothing is stored; the caller's repeat is the first |
//! | after it, before the answer | the caller's repeat gets the same task |
//! | a worker dies, or loses its lease | the next holder has a higher fence, *looks*, and never simply runs it again |
//! | a worker wakes up after its lease | its fence is old: it writes nothing |
//! | a platform's answer is lost | the publication stays `running`, `confirming`, and is looked up |
//! | a robot dies with an article, or never got the answer | handed out again after its lease, `attempted_before` |
//! | a platform never says what came of it | after a day: `failed`, `outcome_unknown`; a person or a late report says |
//! | a login expires under many publications | the first finds out; the others end without a call, and resume with it |
//! | a caller acts while a worker settles | one waits for the other's locks, and decides on what it left |
//! | the database goes away | 503 with `Retry-After`; outcomes wait in memory; leases cover what is lost there |
//! | a receiver fails | the callback is tried again by schedule; its lease covers a dispatcher that dies |
//! | a receiver fails again and again | all that is due for it waits, uncounted, while one callback at a time probes |
//! | a node dies while it removes what is old | the batch stays as it was; the next look finds it |
//! | a node dies in a step of a replay | the step has done nothing; another node makes it |
//!
//! # Where things live
//!
//! Arrows between these rooms only point down; `tests/layers.rs` refuses one that points up.
//!
//! | room | holds |
//! | --- | --- |
//! | [`cli`] | the commands, one file each |
//! | [`lifecycle`] | a service from start to stop |
//! | [`http`] | the routes, one file per resource; problems; what each request passes first |
//! | [`task`] | accepting, working, settling, what a bridge's report does, and what an audit finds |
//! | [`callback`] | delivering, replaying ranges, and waiting for events |
//! | [`retention`], [`retention::keep`] | removing what is old, and how long it is kept (pure) |
//! | [`turns`], [`gather`] | tenants in turn, and writing together what comes together: what the loops share |
//! | [`task::run`] | the decisions of one run, pure |
//! | [`connector`] | the trait, one file per platform, and the images that articles bring along |
//! | [`outbound`] | the one guarded HTTP client |
//! | [`store`] | all SQL, one file per aggregate |
//! | [`callback::breaker`], [`callback::event`], [`callback::signature`], [`callback::status`] | when a receiver is left alone, an event's body, how it is signed, how its delivery stands: pure |
//! | [`task::act`], [`task::marker`], [`task::pull`], [`task::state`] | what callers may do to a task, an article's mark, what a robot gets, the states: pure |
//! | [`article`], [`account`], [`tenant`] | parsed values: what exists is valid |
//! | [`fields`], [`json`] | the fields of a JSON body, and all that is wrong with them; JSON read strictly |
//! | [`inbound`] | the door for callers: connections, their time and their places |
//! | [`local_postgres`], [`config`], [`vault`], [`telemetry`] | the ground: a private PostgreSQL, settings, secrets, logs and metrics |
//! | [`retry`], [`recent`], [`lines`], [`clock`], [`fault`] | schedules; bounded memory; one at a time; time and chance; the points at which the crash suite strikes |

pub mod account;
pub mod article;
pub mod callback;
pub mod cli;
pub mod clock;
pub mod config;
pub mod connector;
pub mod fault;
pub mod fields;
pub mod gather;
pub mod http;
pub mod inbound;
pub mod json;
pub mod lifecycle;
pub mod lines;
pub mod local_postgres;
pub mod outbound;
pub mod recent;
pub mod retention;
pub mod retry;
pub mod store;
pub mod task;
pub mod telemetry;
pub mod tenant;
pub mod turns;
pub mod vault;
