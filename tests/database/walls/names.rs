//! What a tenant's things are called, and names like them that nothing has.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use publish_ingest::tenant::Scope;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use crate::harness::{Api, World, article_with, task_path};
use crate::receiver::Receiver;

/// Stands in all that the tenant has beside names whose things nobody else may see.
pub(super) const SECRET: &str = "plantedsecret";

/// What the names of the tenant begin with whose things nobody else may touch.
pub(super) const PLANTED: &str = "planted";

/// What names begin with that nothing has: of the same length, so that they sort alike among others.
const NOTHING: &str = "phantom";

/// The platforms of the accounts, in the order of their names.
pub(super) const PLATFORMS: [&str; 3] = ["static_site", "sandbox", "http_bridge"];

/// The lists that have cursors, each with the bytes of its cursor that name something.
const LISTS: [(&str, Option<usize>); 5] = [
    ("/tasks", Some(15)),
    ("/callbacks", Some(15)),
    // Numbers of an account's own.
    ("/sandbox/{account_id}/requests", None),
    ("/sandbox/{account_id}/articles", None),
    ("/events", Some(23)),
];

/// Names by their kind: as paths and queries call it, `cursor` with its path.
#[derive(Clone)]
pub(super) struct Names(BTreeMap<String, Vec<String>>);

impl Names {
    /// One of a kind.
    pub(super) fn get(&self, kind: &str, at: usize) -> &str {
        let of_kind =
            self.0.get(kind).unwrap_or_else(|| panic!("nothing is called by {kind}: give it names here"));
        &of_kind[at % of_kind.len()]
    }

    /// All, each with the word for it.
    pub(super) fn words(&self) -> Vec<(&str, String)> {
        let of_kind = |(kind, names): (&String, &'_ Vec<String>)| (kind.clone(), names.len());
        let counts = self.0.iter().map(of_kind);
        let words = counts.flat_map(|(kind, count)| (0..count).map(move |at| format!("<{kind} {at}>")));
        let mut words = self.0.values().flatten().map(String::as_str).zip(words).collect::<Vec<_>>();
        // What is a part of another comes later.
        words.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        words.retain(|(name, _)| name.len() > 2);
        words
    }

    /// Names as like these as can be, which nothing has.
    pub(super) fn of_nothing(&self) -> Self {
        let ghost = |kind: &str, name: &String| {
            if let Some(list) = kind.strip_prefix("cursor ") {
                let (_, byte) = LISTS.iter().find(|(path, _)| *path == list).unwrap();
                let mut bytes = URL_SAFE_NO_PAD.decode(name).unwrap();
                if let Some(byte) = byte {
                    bytes[*byte] ^= 1;
                }
                return URL_SAFE_NO_PAD.encode(bytes);
            }
            name.parse::<Uuid>().map_or_else(
                |_| name.replace(PLANTED, NOTHING),
                |id| Uuid::from_u128(id.as_u128() ^ 1).to_string(),
            )
        };
        let of_kind = |(kind, names): (&String, &Vec<String>)| {
            (kind.clone(), names.iter().map(|name| ghost(kind, name)).collect())
        };
        Self(self.0.iter().map(of_kind).collect())
    }
}

/// A tenant with one of everything, and what it is called. A full service runs meanwhile.
pub(super) async fn furnish(
    world: &World,
    name: &str,
    base: &Api,
    receiver: &Receiver,
) -> (Uuid, Api, Names) {
    let created = world.store.create_tenant(&name.parse().unwrap(), &world.vault).await.unwrap();
    let tenant_id = created.unwrap().0.tenant_id;
    let api = base.with_key(&world.key(tenant_id, &Scope::ALL).await);
    let prefix = if name == PLANTED { PLANTED } else { "own" };
    let called = |what: &str| format!("{prefix}-{what}");
    let secret = if name == PLANTED { SECRET } else { "own" };
    for (platform, settings) in
        PLATFORMS.into_iter().zip([json!({"site": secret}), json!({"seed": 7}), json!({})])
    {
        let (path, group) =
            (format!("/accounts/{platform}/{}", called(platform)), format!("/groups/{}", called(platform)));
        api.put(&path, &json!({"settings": settings, "display_name": secret})).await.ok();
        let accounts = json!([{"platform": platform, "account_id": called(platform)}]);
        api.put(&group, &json!({"title": secret, "accounts": accounts})).await.ok();
    }
    // One after the other, so that all tenants have the same feed.
    for platform in &PLATFORMS[..2] {
        let external_id = called(&format!("{platform}-done"));
        let article = article_with(
            &external_id,
            json!({
                "group_code": called(platform), "title": secret, "content_html": secret, "summary": secret, "author": secret,
                "tags": [secret], "metadata": {secret: secret}, "callback_url": format!("{}/{secret}", receiver.url),
            }),
        );
        api.publish_as(&called("key"), &article).await.ok();
        api.finished(&external_id).await;
        let events = api.get(&format!("/callbacks?external_id={external_id}")).await.ok();
        api.tried(events["callbacks"][0]["event_id"].as_str().unwrap(), 1).await;
    }
    let replay = json!({"since": "2020-01-01T00:00:00Z", "status": "delivered"});
    let replay = api.post("/callbacks/replay", &replay).await;
    let replay_id = replay.json()["replay_id"].as_str().unwrap().to_owned();
    let robot = called(PLATFORMS[2]);
    for external_id in [called("fetched"), called("waits")] {
        let words = format!("{prefix} words {external_id}");
        api.publish(&article_with(
            &external_id,
            json!({"group_code": robot, "title": words, "content_html": words}),
        ))
        .await
        .ok();
    }
    let claim = json!({"platform": PLATFORMS[2], "account_ids": [robot], "max": 1});
    let job = api.post("/bridge/claim", &claim).await.ok()["jobs"][0].clone();
    assert_eq!(job["external_id"], called("fetched"));
    let draft =
        json!({"group_code": called(PLATFORMS[0]), "draft": true, "title": secret, "content_html": secret});
    api.publish(&article_with(&called("draft"), draft)).await.ok();
    let tries = format!("SELECT sum(tries) FROM callbacks WHERE tenant_id = '{tenant_id}'");
    crate::harness::eventually("all is sent again", async || count(world, &tries).await == 4).await;

    let names = names(world, &api, tenant_id, &called, [replay_id, text(&job["lease_id"])]).await;
    (tenant_id, api, names)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

async fn count(world: &World, statement: &str) -> i64 {
    sqlx::query_scalar(AssertSqlSafe(statement.to_owned())).fetch_one(&world.pool).await.unwrap()
}

/// What all that was made is called.
async fn names(
    world: &World,
    api: &Api,
    tenant_id: Uuid,
    called: &impl Fn(&str) -> String,
    [replay_id, lease_id]: [String; 2],
) -> Names {
    let column = async |statement: &'static str| {
        sqlx::query_scalar::<_, String>(statement).bind(tenant_id).fetch_all(&world.pool).await.unwrap()
    };
    let external_ids = column("SELECT external_id FROM tasks WHERE tenant_id = $1 ORDER BY 1").await;
    let fetched = api.get(&task_path(&called("fetched"))).await.ok();
    let mut names = BTreeMap::from([
        ("external_id".to_owned(), external_ids),
        ("group_code".to_owned(), PLATFORMS.map(called).to_vec()),
        ("account_id".to_owned(), PLATFORMS.map(called).to_vec()),
        ("idempotency_key".to_owned(), vec![called("key")]),
        ("content".to_owned(), vec![text(&fetched["title"])]),
        ("tenant_id".to_owned(), vec![tenant_id.to_string()]),
        ("tenant".to_owned(), column("SELECT name FROM tenants WHERE tenant_id = $1").await),
        ("replay_id".to_owned(), vec![replay_id]),
        ("lease_id".to_owned(), vec![lease_id]),
        ("article_id".to_owned(), vec!["1".to_owned()]),
    ]);
    for (kind, statement) in [
        ("task_id", "SELECT task_id::text FROM tasks WHERE tenant_id = $1 ORDER BY external_id"),
        ("event_id", "SELECT event_id::text FROM events WHERE tenant_id = $1 ORDER BY position"),
        (
            "publication_id",
            "SELECT publication_id::text FROM publications JOIN tasks USING (tenant_id, task_id)
            WHERE tenant_id = $1 ORDER BY external_id, position",
        ),
    ] {
        names.insert(kind.to_owned(), column(statement).await);
    }
    let mut last = String::new();
    for (list, _) in LISTS {
        let path = list.replace("{account_id}", &called(PLATFORMS[1]));
        let page = api.get(&format!("{path}?limit=1")).await.ok();
        // The box holds one article, so that there is no second page: a cursor of its requests does there, too.
        page["next_cursor"].as_str().unwrap_or(&last).to_owned().clone_into(&mut last);
        names.insert(format!("cursor {list}"), vec![last.clone()]);
    }
    Names(names)
}
