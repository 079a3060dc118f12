//! Drafts that nobody needs, since the platform refused to publish them: a service dies at each point on the way of a draft's
//! removal, and in the end the draft is gone.

use std::time::Duration;

use serde_json::json;
use sqlx::PgPool;

use crate::callers::article;
use crate::operator::put_group;
use crate::platforms::Held;
use crate::services::{Armed, Manner, until};
use crate::world::World;

/// How long each step may take: far above what it does.
const WITHIN: Duration = Duration::from_mins(1);

/// Where a service dies.
const POINTS: [&str; 4] =
    ["journal.writing.remove", "journal.written.remove", "call.begun.remove", "call.ended.remove"];

/// The account on which drafts can be made and none be published.
const REFUSED: &str = "refused";

/// What has failed, and is looked after no more.
const SWEPT: &str = "SELECT count(*) FROM publications p JOIN tasks t USING (tenant_id, task_id)
    WHERE external_id = $1 AND p.status = 'failed' AND p.drafts > 0 AND p.sweep_at IS NULL";

pub(crate) async fn run(world: &mut World) {
    let pool = world.pool().await;
    for part in 0..world.parts.len() {
        let platform = world.parts[part].platform.name();
        let Some(account) = world.parts[part].refused() else { continue };
        let group = format!("{platform}-{REFUSED}");
        let mut service = world.serve(0, Manner::default()).await.unwrap();
        let member = format!("{platform}/{REFUSED}");
        world.apis[0].put(&format!("/accounts/{member}"), &account).await.unwrap().ok();
        put_group(&world.apis[0], &group, &[&member]).await;
        service.end().await;
        for point in POINTS {
            the_draft_goes(world, part, &group, point, &pool).await;
        }
    }
    pool.close().await;
}

async fn the_draft_goes(world: &World, part: usize, group: &str, point: &'static str, pool: &PgPool) {
    let platform = &world.parts[part].platform;
    let external_id = format!("removal-{}-{point}", platform.name());
    let armed = Some(Armed { point, count: 1, stops: false });
    let mut first = world.serve(0, Manner { armed, clock: None }).await.unwrap();
    let mut refused = article(&external_id, group);
    // Who may not publish may not make tags.
    refused["tags"] = json!([]);
    world.apis[0].publish(&refused).await.unwrap().ok();
    until("the service dies at its point", WITHIN, async || first.ended().is_some()).await;
    let mut second = world.serve(1, Manner::default()).await.unwrap();
    let swept =
        async || -> i64 { sqlx::query_scalar(SWEPT).bind(&external_id).fetch_one(pool).await.unwrap() };
    until("it is looked after no more", WITHIN, async || swept().await == 1).await;
    second.end().await;
    let found = platform.holdings().get(&external_id).copied().unwrap_or_default();
    assert_eq!(found, Held::default(), "{external_id}");
    world.say(&format!("{}: died at {point}, and the draft is gone", platform.name()));
}
