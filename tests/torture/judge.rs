//! What came of it: each platform is counted by itself, the database by its rules, the events by what the receiver has.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;

use crate::Arguments;
use crate::invariants;
use crate::platforms::{Held, Holdings};
use crate::proxy::Proxy;
use crate::services::Manner;
use crate::storm::Toll;
use crate::world::{ACCOUNT, World};

/// How many histories are printed: a fault shows in the first.
const HISTORIES_MAX: usize = 5;

/// What is wrong on one platform, by the articles' ids.
#[derive(Default)]
struct Found {
    doubles: BTreeSet<String>,
    losses: BTreeSet<String>,
    drafts: BTreeSet<String>,
    strangers: BTreeSet<String>,
}

impl Found {
    fn of(holdings: &Holdings, ids: &[String]) -> Self {
        let mut found = Self::default();
        for id in ids {
            let held = holdings.get(id).copied().unwrap_or_default();
            let name = || id.clone();
            match held.public {
                0 => drop(found.losses.insert(name())),
                1 => {}
                _ => drop(found.doubles.insert(name())),
            }
            if held.drafts > 0 {
                found.drafts.insert(name());
            }
        }
        let known = ids.iter().collect::<std::collections::HashSet<_>>();
        let strangers = holdings.iter().filter(|(id, held)| !known.contains(id) && **held != Held::default());
        found.strangers = strangers.map(|(id, _)| id.clone()).filter(|id| id.starts_with("storm-")).collect();
        found
    }

    fn all(&self) -> impl Iterator<Item = &String> {
        self.doubles.iter().chain(&self.losses).chain(&self.drafts).chain(&self.strangers)
    }
}

/// Prints the tables; true if all is as it was promised.
pub(crate) async fn judge(world: &World, arguments: &Arguments, toll: &Toll) -> bool {
    let mut faults = world.receiver.faults();
    if toll.accepted.len() < arguments.articles {
        faults.push(format!("{} of {} articles were answered", toll.accepted.len(), arguments.articles));
    }
    if !toll.ended {
        faults.push("not everything came to its end in time".to_owned());
    }
    let mut guilty = BTreeSet::new();
    println!(
        "\n{:<12} {:>8} {:>7} {:>6} {:>11} {:>11}",
        "platform", "articles", "doubles", "losses", "drafts left", "answers lost"
    );
    for part in &world.parts {
        let found = Found::of(&part.platform.holdings(), &toll.accepted);
        guilty.extend(found.all().cloned());
        let lost = part.proxy.as_ref().map(|proxy| proxy.faults().0);
        println!(
            "{:<12} {:>8} {:>7} {:>6} {:>11} {:>11}",
            part.platform.name(),
            toll.accepted.len(),
            found.doubles.len(),
            found.losses.len(),
            found.drafts.len(),
            lost.map_or("-".to_owned(), |lost| lost.to_string()),
        );
    }
    for (name, why) in &world.absent {
        println!("{name:<12} did not run: {why}");
    }
    tell_of_faults(world, toll);
    events(world, &mut faults).await;
    ends(world, &mut guilty).await;
    let pool = world.pool().await;
    if let Err(panic) = tokio::spawn(async move { invariants::check(&pool).await }).await {
        faults.push(format!("the database breaks its rules: {panic}"));
    }
    tell(world, &faults, &guilty).await;
    faults.is_empty() && guilty.is_empty()
}

fn tell_of_faults(world: &World, toll: &Toll) {
    let (lost, late) = world.proxies().map(Proxy::faults).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
    println!("\n{} kills of a service in {} s; seed {}", toll.kills, world.seconds(), world.seed);
    for (fault, count) in &toll.faults {
        println!("  {fault}: {count}");
    }
    println!("  answers lost after delivery: {lost}, late: {late}");
    let points = toll.points.iter().map(|(point, count)| format!("{point} {count}")).collect::<Vec<_>>();
    println!("  points struck: {}", points.join(", "));
    let never = publish_ingest::fault::POINTS.iter().filter(|point| !toll.points.contains_key(*point));
    println!("  points not struck in the storm: {}", never.copied().collect::<Vec<_>>().join(", "));
}

/// Every event is delivered, with the bytes that the database has; one of each end.
async fn events(world: &World, faults: &mut Vec<String>) {
    let rows: Vec<(String, Vec<u8>, Option<String>)> = sqlx::query_as(
        "SELECT e.event_id::text, e.body, c.status FROM events e LEFT JOIN callbacks c USING (tenant_id, event_id)",
    )
    .fetch_all(&world.pool().await)
    .await
    .unwrap();
    let received = world.receiver.events();
    let mut ends = HashMap::new();
    for (id, body, status) in &rows {
        let event: Value = serde_json::from_slice(body).unwrap();
        let end =
            ["external_id", "platform", "account_id", "round", "status"].map(|name| event[name].to_string());
        if let Some(other) = ends.insert(end, id) {
            faults.push(format!("two events, {other} and {id}, tell of one end"));
        }
        // What the scenarios publish has no receiver.
        match status.as_deref() {
            None => {}
            Some("delivered") if received.get(id).is_some_and(|bytes| **bytes == **body) => {}
            Some(other) => faults.push(format!(
                "event {id} of {} is {other}, or the receiver has other bytes",
                event["external_id"]
            )),
        }
    }
    let (deliveries, untimely) = world.receiver.deliveries();
    println!(
        "  {} events, {} known to the receiver, {deliveries} deliveries, {untimely} refused for their clock",
        rows.len(),
        received.len()
    );
}

/// All that was handed in is a success in the database.
async fn ends(world: &World, guilty: &mut BTreeSet<String>) {
    let others: Vec<(String, String, String, Option<String>)> = sqlx::query_as(
        "SELECT external_id, platform, status, error_message FROM publications JOIN tasks USING (tenant_id, task_id)
        WHERE status <> 'success' AND account_id = $1 ORDER BY 1, 2",
    )
    .bind(ACCOUNT)
    .fetch_all(&world.pool().await)
    .await
    .unwrap();
    for (id, platform, status, error) in others {
        println!("  {id} on {platform} is {status}: {}", error.unwrap_or_default());
        guilty.insert(id);
    }
}

async fn tell(world: &World, faults: &[String], guilty: &BTreeSet<String>) {
    for fault in faults {
        println!("FAULT: {fault}");
    }
    if guilty.is_empty() {
        if faults.is_empty() {
            println!("each article stands once on each platform, and every event was delivered");
        }
        return;
    }
    println!("FAULT: {}", guilty.iter().map(String::as_str).collect::<Vec<_>>().join(", "));
    let mut service = world.serve(0, Manner::default()).await.unwrap();
    for id in guilty.iter().take(HISTORIES_MAX) {
        let history = match world.apis[0].get(&format!("/tasks/{id}/history")).await {
            Ok(answer) => answer.json(),
            Err(error) => Value::from(error.to_string()),
        };
        println!("history of {id}:");
        for entry in history["entries"].as_array().unwrap_or(&Vec::new()) {
            println!("  {entry}");
        }
    }
    service.end().await;
}
