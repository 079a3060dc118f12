//! `serve` as a role of its own, as an operator sets it up, and as the owner of the tables.

use rustix::process::Signal;
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};

use crate::api::article;
use crate::operator::{Furnished, Shell, put_group};
use crate::program::{Folder, random};
use crate::receiver::{Receiver, WILLING};

const WARNING: &str = "may change and drop the tables";

#[tokio::test]
async fn serve_does_its_whole_work_as_a_role_that_owns_nothing() {
    let (owner, folder) = (Furnished::new().await, Folder::new());
    // Roles belong to the server, which other tests share.
    let role = format!("serve_{:016x}", u64::from_be_bytes(random()));
    let line = owner.shell.failure(&["migrate", "--grant", &role]).await;
    assert!(line.contains(&format!("there is no role {role}")) && line.contains("CREATE ROLE"), "{line}");
    let mut connection = PgConnection::connect(&owner.shell.url).await.unwrap();
    connection.execute(AssertSqlSafe(format!("CREATE ROLE {role} LOGIN"))).await.unwrap();
    connection.close().await.unwrap();
    let url = owner.shell.url.replacen("://postgres@", &format!("://{role}@"), 1);
    let shell = Shell { url, master_key: owner.shell.master_key.clone() };
    let line = shell.failure(&["serve"]).await;
    assert!(line.contains("lacks rights") && line.contains(&format!("migrate --grant {role}")), "{line}");

    let granted = owner.shell.json(&["migrate", "--grant", &role]).await;
    assert_eq!(granted["granted"], role.as_str());
    assert!(owner.shell.text(&["migrate", "--grant", &role]).await.contains(&format!("{role} may serve")));
    let granted =
        Furnished { shell, api_key: owner.api_key.clone(), signing_secret: owner.signing_secret.clone() };
    let site = folder.path().to_str().unwrap();
    let settings = [("PUBLISH_SITE_ROOT", site), ("PUBLISH_SITE_URL", "https://example.org")];
    let serve = granted.serve(&settings).await;
    let api = granted.api(&serve);
    api.put("/accounts/static_site/blog", &json!({"settings": {"site": "blog"}})).await.unwrap().ok();
    api.put("/accounts/sandbox/box", &json!({"settings": {"behaviour": "lose_answer"}})).await.unwrap().ok();
    put_group(&api, "all", &["static_site/blog", "sandbox/box"]).await;
    let receiver = Receiver::start(WILLING).await;
    let mut sent = article("by-a-role");
    sent["group_code"] = "all".into();
    sent["callback_url"] = receiver.url.as_str().into();
    api.publish(&sent).await.unwrap().ok();
    assert_eq!(api.published("by-a-role").await["counts"]["success"], 2);
    receiver.wait_for("both callbacks", |received| received.len() >= 2).await;
    for received in receiver.received() {
        received.verify(&granted.signing_secret);
    }
    sent["external_id"] = "dropped".into();
    sent["draft"] = true.into();
    api.publish(&sent).await.unwrap().ok();
    api.post("/tasks/dropped/cancel", &json!({})).await.unwrap().ok();
    api.post("/signing-secrets/rotate", &json!({})).await.unwrap().ok();
    assert_eq!(api.get("/readyz").await.unwrap().status, 200);
    let (status, _, stderr) = serve.stop(Signal::TERM).await;
    assert!(status.success() && !stderr.contains(WARNING) && !stderr.contains("denied"), "{stderr}");

    // What an operator does is for the owner.
    for arguments in
        [&["migrate"][..], &["tenant", "create", "acme"], &["key", "create", "demo", "--scopes", "read"]]
    {
        let line = granted.shell.failure(arguments).await;
        assert!(line.contains("permission denied"), "{line}");
    }
    let serve = owner.serve(&settings).await;
    let (status, _, stderr) = serve.stop(Signal::TERM).await;
    assert!(status.success(), "{stderr}");
    assert_eq!(stderr.matches(WARNING).count(), 1, "{stderr}");
    assert!(stderr.contains("publish-ingest migrate --grant ROLE"), "{stderr}");
}
