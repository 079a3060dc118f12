//! Two workers that both believe that they hold one publication: the first is stopped past its lease, at a point of its run,
//! and goes on when the second has published. The first writes nothing that decides, and the platform holds one article.

use std::time::Duration;

use sqlx::PgPool;

use crate::callers::article;
use crate::platforms::Held;
use crate::services::{Armed, Manner, until};
use crate::world::World;

/// How long each step may take: far above what it does.
const WITHIN: Duration = Duration::from_mins(1);

/// Where the first is stopped: what it was about to do it must not do any more, and what it has done it must not record.
const POINTS: [&str; 2] = ["journal.written.publish", "call.ended.publish"];
const POINTS_OF_DRAFTS: [&str; 4] =
    ["journal.written.draft", "call.ended.draft", "journal.written.publish", "call.ended.publish"];

/// What is written of a publication, but for what a late answer may add to its own try: what came back.
const WRITTEN: &str = "SELECT jsonb_build_object('publication', to_jsonb(p),
    'attempts', (SELECT jsonb_agg(to_jsonb(a) - 'detail' - 'outcome' ORDER BY fence, step) FROM attempts a
        WHERE a.tenant_id = p.tenant_id AND a.publication_id = p.publication_id),
    'transitions', (SELECT jsonb_agg(to_jsonb(x) ORDER BY at) FROM transitions x
        WHERE x.tenant_id = p.tenant_id AND x.publication_id = p.publication_id),
    'events', (SELECT jsonb_agg(to_jsonb(e) ORDER BY position) FROM events e
        WHERE e.tenant_id = p.tenant_id AND e.publication_id = p.publication_id))::text
    FROM publications p JOIN tasks t USING (tenant_id, task_id) WHERE external_id = $1";

const FENCE: &str = "SELECT p.fence FROM publications p JOIN tasks t USING (tenant_id, task_id)
    WHERE external_id = $1 AND p.status = 'running'";

const SUCCESS: &str = "SELECT p.fence FROM publications p JOIN tasks t USING (tenant_id, task_id)
    WHERE external_id = $1 AND p.status = 'success'";

pub(crate) async fn run(world: &mut World) {
    let pool = world.pool().await;
    for part in 0..world.parts.len() {
        let points = if world.parts[part].platform.drafts() { &POINTS_OF_DRAFTS[..] } else { &POINTS };
        for point in points {
            loser_writes_nothing(world, part, point, &pool).await;
        }
    }
    pool.close().await;
}

async fn loser_writes_nothing(world: &World, part: usize, point: &'static str, pool: &PgPool) {
    let platform = &world.parts[part].platform;
    let external_id = format!("pause-{}-{point}", platform.name());
    let armed = Some(Armed { point, count: 1, stops: true });
    let mut first = world.serve(0, Manner { armed, clock: None }).await.unwrap();
    // It may stop before it answers.
    let _ = tokio::time::timeout(
        Duration::from_secs(2),
        world.apis[0].publish(&article(&external_id, platform.name())),
    )
    .await;
    until("the first stops at its point", WITHIN, async || first.stands_still()).await;
    let fence = async |question| -> Option<i32> {
        sqlx::query_scalar(question).bind(&external_id).fetch_optional(pool).await.unwrap()
    };
    let held = fence(FENCE).await.expect("the first holds it");
    let mut second = world.serve(1, Manner::default()).await.unwrap();
    until("the second publishes it", WITHIN, async || fence(SUCCESS).await.is_some()).await;
    assert!(fence(SUCCESS).await > Some(held), "nobody took over from the first");
    let written =
        async || -> String { sqlx::query_scalar(WRITTEN).bind(&external_id).fetch_one(pool).await.unwrap() };
    let before = written().await;
    first.go_on();
    // It ends when all that it had in hand has ended.
    first.end().await;
    assert_eq!(written().await, before, "{external_id}: the first wrote after it had lost its lease");
    second.end().await;
    let found = platform.holdings().get(&external_id).copied().unwrap_or_default();
    assert_eq!(found, Held { public: 1, drafts: 0 }, "{external_id}");
    world.say(&format!(
        "{}: stopped at {point} past its lease, the loser wrote nothing; one article",
        platform.name()
    ));
}
