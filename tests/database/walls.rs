//! Nothing crosses tenants: what one has heard of another's things answers as what does not exist, changes nothing there,
//! and shows nothing.
//!
//! Two tenants that are alike send the same requests to every route. One puts in the names of a third tenant's things, the
//! other names like those that nothing has. Whatever they do in whatever order, they must get the same answers.

use std::collections::BTreeMap;

use publish_ingest::config::Roles;
use publish_ingest::lifecycle::Plan;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use crate::harness::{Api, Reply, World, in_world, redacted};
use crate::receiver::Receiver;
use names::{Names, PLANTED, SECRET, furnish};
use routes::{Caller, Picks, Route, routes};

mod names;
mod routes;

/// Requests of a walk by chance, over all routes.
const STEPS: usize = 400;

/// The third tenant, whose things are named to others.
struct Victim {
    tenant_id: Uuid,
    names: Names,
    /// Every id that is its own.
    ids: Vec<String>,
    /// All rows of it, as it was.
    rows: String,
}

/// One of the two who send the same requests.
struct Side {
    caller: Caller,
    /// All that it has sent.
    sent: String,
}

impl Side {
    async fn send(&mut self, route: &Route, picks: &Picks, victim: &Victim) -> (String, Reply) {
        let (sent, reply) = self.caller.send(route, picks).await;
        let shown = format!("{:?} {}", reply.headers, reply.text);
        assert!(!shown.contains(SECRET), "{sent}: {shown}");
        self.sent.push_str(&sent);
        for id in &victim.ids {
            assert!(
                !shown.contains(id.as_str()) || self.sent.contains(id.as_str()),
                "{sent} shows {id}: {shown}"
            );
        }
        assert_ne!(reply.status, 403, "{sent}: {shown}");
        assert!(reply.status < 500, "{sent}: {shown}");
        (sent, reply)
    }

    /// An answer with a word for each name, and for what differs from call to call.
    fn told(&self, reply: &Reply) -> Value {
        let mut text = reply.text.clone();
        for (name, word) in self.caller.heard_of.words().into_iter().chain(self.caller.own.words()) {
            text = text.replace(name, &word);
        }
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        json!([reply.status, reply.header("idempotent-replayed"), plain(&redacted(&body))])
    }
}

/// Without what is made by chance, or of ids.
fn plain(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let plain = |(name, value): (&String, &Value)| match name.as_str() {
                "next_cursor" | "secret" => (name.clone(), json!(value.is_string())),
                _ => (name.clone(), plain(value)),
            };
            Value::Object(members.iter().map(plain).collect())
        }
        Value::Array(items) => items.iter().map(plain).collect(),
        other => other.clone(),
    }
}

/// All rows of a tenant, in every table.
async fn rows(world: &World, tenant_id: Uuid) -> String {
    let tables = "SELECT table_name FROM information_schema.columns
        WHERE table_schema = 'public' AND column_name = 'tenant_id' ORDER BY table_name";
    let tables = sqlx::query_scalar::<_, String>(tables).fetch_all(&world.pool).await.unwrap();
    assert!(tables.len() > 20, "{tables:?}");
    let of_table =
        |table: &String| format!("SELECT '{table} ' || t::text AS r FROM {table} t WHERE tenant_id = $1");
    let rows = tables.iter().map(of_table).collect::<Vec<_>>().join(" UNION ALL ");
    let rows = format!("SELECT string_agg(r, E'\\n' ORDER BY r) FROM ({rows}) AS a");
    sqlx::query_scalar(AssertSqlSafe(rows)).bind(tenant_id).fetch_one(&world.pool).await.unwrap()
}

fn ids_in(rows: &str) -> Vec<String> {
    let words = rows.split(|c: char| !(c.is_ascii_hexdigit() || c == '-'));
    let mut ids = words.filter(|word| word.parse::<Uuid>().is_ok()).map(str::to_owned).collect::<Vec<_>>();
    ids.sort();
    ids.dedup();
    ids
}

/// Sends the same by both, and holds the answers against each other.
async fn both(world: &World, sides: &mut [Side; 2], route: &Route, picks: &Picks, victim: &Victim) -> Reply {
    let [knowing, other] = sides;
    let (sent, reply) = knowing.send(route, picks, victim).await;
    let (_, told_to_other) = other.send(route, picks, victim).await;
    // What it counts is of all tenants, without a word of them.
    if route.path != "/metrics" {
        assert_eq!(knowing.told(&reply), other.told(&told_to_other), "{sent}");
    }
    let rows = rows(world, victim.tenant_id).await;
    assert!(rows == victim.rows, "{sent} changed another tenant's rows");
    reply
}

/// Makes the third tenant and two that are alike, with a service that does their work and has ended then.
async fn tenants(world: &World) -> (Api, Victim, [Side; 2]) {
    let receiver = Receiver::start([]).await;
    let api = world.start().await;
    let (tenant_id, mut planted, names) = furnish(world, PLANTED, &api, &receiver).await;
    let mut sides = Vec::new();
    for (name, heard_of) in [("own-one", names.clone()), ("own-two", names.of_nothing())] {
        let (_, api, own) = furnish(world, name, &api, &receiver).await;
        sides.push(Side { caller: Caller { api, own, heard_of }, sent: String::new() });
    }
    world.stop().await;
    // From here on, only requests change anything.
    let roles = Roles { api: true, worker: false, dispatcher: false };
    let base = world.start_with(Plan { roles, ..world.plan() }).await.base;
    for side in &mut sides {
        side.caller.api.base.clone_from(&base);
    }
    let rows = rows(world, tenant_id).await;
    let victim = Victim { tenant_id, names, ids: ids_in(&rows), rows };
    assert!(victim.ids.len() > 15 && victim.rows.contains(SECRET), "{:?}", victim.ids);
    let sides = sides.try_into().unwrap_or_else(|_| unreachable!());
    planted.base = base;
    (planted, victim, sides)
}

#[tokio::test]
async fn on_every_route_the_names_of_another_tenant_are_names_of_nothing() {
    in_world(async |world: &World| {
        let (planted, victim, mut sides) = tenants(world).await;
        let routes = routes(&planted.get("/openapi.json").await.ok());
        let own = Caller { api: planted, own: victim.names.clone(), heard_of: victim.names.clone() };
        // What only asks comes first: a name that a caller gives to a thing of its own is its own from then on.
        let (finding, making) = routes.iter().partition::<Vec<_>, _>(|route| route.finds);
        for route in &finding {
            let mut found = route.method != reqwest::Method::GET || !route.needs_key;
            for at in 0..6 {
                for query in [0, u64::MAX] {
                    let picks = Picks::foreign(at, query);
                    // The names are good ones: who owns them gets an answer.
                    found = found || own.send(route, &picks).await.1.status == 200;
                    both(world, &mut sides, route, &picks, &victim).await.problem(404, "not_found");
                }
            }
            assert!(found, "no name is found on {}: its owner must have one", route.path);
        }
        for route in &making {
            // All names without a query, each parameter alone, and all at once.
            let queries =
                [0; 6].into_iter().chain((0..route.query.len()).map(|bit| 1 << bit)).chain([u64::MAX]);
            for (at, query) in queries.enumerate() {
                both(world, &mut sides, route, &Picks::foreign(at, query), &victim).await;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn whatever_a_tenant_does_another_ones_things_are_not_there() {
    in_world(async |world: &World| {
        let (planted, victim, mut sides) = tenants(world).await;
        let mut routes = routes(&planted.get("/openapi.json").await.ok());
        routes.retain(|route| route.needs_key);
        let mut chance = StdRng::seed_from_u64(42);
        let mut answered = BTreeMap::<String, Vec<u16>>::new();
        for _ in 0..STEPS {
            let route = &routes[chance.random_range(0..routes.len())];
            let reply = both(world, &mut sides, route, &Picks::by_chance(&mut chance), &victim).await;
            answered.entry(route.operation_id.clone()).or_default().push(reply.status);
        }
        // It was a walk, not a row of refusals.
        let never = |statuses: &Vec<u16>| !statuses.iter().any(|status| *status < 300);
        let refused = answered.iter().filter(|(_, statuses)| never(statuses)).collect::<Vec<_>>();
        assert_eq!(answered.len(), routes.len(), "{answered:?}");
        assert!(refused.len() < routes.len() / 4, "what never went well: {refused:?}");
    })
    .await;
}
