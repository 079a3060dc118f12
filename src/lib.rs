//! The unified article API of a content platform: the same article is published once.
//!
//! Callers hand articles in with an `external_id`, again and again, after every crash, timeout and re-run. One row per
//! (tenant, `external_id`) stands in the database for ever; workers publish it on every account of its group; signed
//! callbacks tell the caller, again and again, until it has heard or the schedule has run out.
//!
//! # The path of one article
//!
//! ```text
//!            http::publish            task::accept               store::tasks
//! POST ─────▶ key, body, rules ─────▶ gathered with what ──────▶ tasks, articles, publications
//! /publish                            comes at the same time      one statement, answered after its commit
//!                                                                      │ a row that is due *is* the queue entry
//!            task::work               connector                        ▼
//!            claim: lane, lease, ◀─────────────────────────────── publications
//!            fence   │
//!                    ├─▶ find(marker) ── found: adopt it
//!                    │         │ proven absent
//!                    ├─▶ journal: the intent, committed, with the lease renewed
//!                    ├─▶ publish
//!                    ▼
//!            task::settle             store::settle
//!            gathered outcomes ─────▶ state, counters, lane, event, callback: one transaction
//!                                                                      │
//!            callback::deliver        outbound                         ▼
//!            claim, sign, send ─────▶ the receiver ◀───────────── callbacks
//!                    └─▶ record the try; at least once, same id, same bytes
//! ```
//!
//! Nothing runs backwards along this line. No transaction is open while anything outside is called.
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
//! | the database goes away | 503 with `Retry-After`; outcomes wait in memory; leases cover what is lost there |
//! | a receiver fails | the callback is tried again by schedule; its lease covers a dispatcher that dies |
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
//! | [`task`] | accepting, working, settling; the states, the decisions of a run and of what callers do to a task, pure |
//! | [`callback`] | delivering; events and signatures, pure |
//! | [`turns`], [`gather`] | tenants in turn, and writing together what comes together: what the loops share |
//! | [`connector`] | the trait, and one file per platform |
//! | [`outbound`] | the one guarded HTTP client |
//! | [`store`] | all SQL, one file per aggregate |
//! | [`article`], [`account`], [`tenant`] | parsed values: what exists is valid |
//! | [`fields`] | the fields of a JSON body, and all that is wrong with them |
//! | [`vault`], [`json`], [`retry`], [`clock`], [`config`], [`telemetry`], [`local_postgres`] | the ground |

pub mod account;
pub mod article;
pub mod callback;
pub mod cli;
pub mod clock;
pub mod config;
pub mod connector;
pub mod fields;
pub mod gather;
pub mod http;
pub mod json;
pub mod lifecycle;
pub mod local_postgres;
pub mod outbound;
pub mod retry;
pub mod store;
pub mod task;
pub mod telemetry;
pub mod tenant;
pub mod turns;
pub mod vault;
