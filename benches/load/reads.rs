//! What it takes to look things up: one call after the other, on one connection.

use std::net::SocketAddr;
use std::time::Duration;

use publish_ingest::clock::{Clock as _, SystemClock};
use serde_json::{Value, json};

use crate::Failed;
use crate::client::Connection;
use crate::program::Tenant;
use crate::report::median;

/// How often each is called.
const CALLS: usize = 300;

/// The lists, with filters that fit much and filters that fit little.
const LISTS: [&str; 6] = [
    "/tasks",
    "/tasks?status=success",
    "/tasks?status=submitted",
    "/tasks?account_id=a7",
    "/callbacks",
    "/callbacks?status=exhausted",
];

/// The median of each call, in milliseconds, and the one that 99 of 100 do not exceed.
pub(crate) async fn run(address: SocketAddr, tenant: &Tenant, external_id: &str) -> Result<Value, Failed> {
    let mut connection = Connection::open(address).await?;
    let mut told = serde_json::Map::new();
    let one = ["", "/history"].map(|what| format!("/tasks/{external_id}{what}"));
    let names = ["GET /tasks/{external_id}", "GET /tasks/{external_id}/history"].map(str::to_owned);
    let lists = LISTS.iter().map(|path| (format!("GET {path}"), (*path).to_owned()));
    for (name, path) in names.into_iter().zip(one).chain(lists) {
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\n\r\n",
            tenant.api_key
        );
        let mut took = Vec::new();
        for _ in 0..CALLS {
            let begun = SystemClock.instant();
            let answer = connection.call(request.as_bytes()).await?;
            took.push(ms(begun.elapsed()));
            if answer.status != 200 {
                return Err(
                    format!("{name}: {} {}", answer.status, String::from_utf8_lossy(answer.body)).into()
                );
            }
        }
        took.sort_by(f64::total_cmp);
        told.insert(name, json!({"median": median(took.clone()), "p99": took[CALLS * 99 / 100]}));
    }
    Ok(told.into())
}

fn ms(took: Duration) -> f64 {
    took.as_secs_f64() * 1e3
}
