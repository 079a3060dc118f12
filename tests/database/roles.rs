//! The roles of a node: what it does, and what it leaves to others.

use publish_ingest::config::Roles;
use publish_ingest::lifecycle::Plan;
use serde_json::json;

use crate::harness::{ONE, World, article_with, in_world};
use crate::receiver::Receiver;

const NONE: Roles = Roles { api: false, worker: false, dispatcher: false };

fn plan(world: &World, roles: Roles) -> Plan {
    Plan { roles, ..world.plan() }
}

#[tokio::test]
async fn a_node_does_what_its_roles_say_and_no_more() {
    in_world(async |world| {
        let receiver = Receiver::start([]).await;
        let api = world.start_with(plan(world, Roles { api: true, ..NONE })).await;
        let article = article_with("shared", json!({"callback_url": receiver.url}));
        api.publish(&article).await.ok();

        // A dispatcher has nothing to do yet, and does not do the worker's part.
        world.start_with(plan(world, Roles { dispatcher: true, ..NONE })).await;
        assert_eq!(world.number("SELECT sum(fence) FROM publications").await, 0);
        assert_eq!(api.task("shared").await.ok()["status"], "submitted");
        let worker = world.start_with(plan(world, Roles { worker: true, ..NONE })).await;
        assert_eq!(api.finished("shared").await["status"], "success");
        receiver.first(1).await;
        world.until("SELECT count(*) FROM callbacks WHERE status = 'delivered'", 1).await;

        // A node without the role api says how it is, and where to go.
        worker.get("/healthz").await.ok();
        worker.get("/readyz").await.ok();
        for path in ["/tasks/shared", "/openapi.json", "/"] {
            let problem = worker.get(path).await.problem(404, "not_found");
            assert!(problem["detail"].as_str().unwrap().contains("role api"), "{problem}");
        }
        assert_eq!(worker.publish(&article).await.status, 404);
    })
    .await;
}

#[tokio::test]
async fn without_a_dispatcher_callbacks_wait_and_without_a_worker_articles_do() {
    in_world(async |world| {
        let receiver = Receiver::start([]).await;
        let api = world.start_with(plan(world, Roles { dispatcher: false, ..Roles::ALL })).await;
        api.publish(&article_with("told-later", json!({"callback_url": receiver.url}))).await.ok();
        api.finished("told-later").await;
        assert_eq!(
            world.number("SELECT count(*) FROM callbacks WHERE status = 'pending' AND fence = 0").await,
            1
        );
        world.stop().await;

        // Both are due when the node starts; it does the one.
        world.accept(&[world.new_task("published-later", ONE)]).await;
        world.start_with(plan(world, Roles { worker: false, ..Roles::ALL })).await;
        world.until("SELECT count(*) FROM callbacks WHERE status = 'delivered'", 1).await;
        assert_eq!(world.number("SELECT sum(fence) FROM publications WHERE status = 'submitted'").await, 0);
    })
    .await;
}
