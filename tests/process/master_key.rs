//! Another master key, by the steps of the README: no process ever meets a key that it does not have.

use publish_ingest::clock::SystemClock;
use publish_ingest::vault::MasterKey;
use rustix::process::Signal;
use serde_json::{Value, json};
use sqlx::{Connection as _, Executor as _, PgConnection};

use crate::api::{Api, article};
use crate::operator::{Furnished, put_group};
use crate::program::{Folder, failure, run};
use crate::receiver::{Receiver, WILLING};

#[tokio::test]
async fn the_master_key_is_replaced_while_services_run() {
    let (mut furnished, folder, receiver) =
        (Furnished::new().await, Folder::new(), Receiver::start(WILLING).await);
    let (old, new) =
        (furnished.shell.master_key.clone(), MasterKey::generate(&SystemClock).expose().to_string());
    let (before, after) = (format!("{old},{new}"), format!("{new},{old}"));
    let site = folder.path().to_str().unwrap().to_owned();
    let site = [("PUBLISH_SITE_ROOT", &*site), ("PUBLISH_SITE_URL", "https://site.example")];

    // One with the old key first, and one with the new: each opens what the other seals.
    furnished.shell.master_key = before;
    let first = furnished.serve(&site).await;
    furnished.shell.master_key = after;
    let second = furnished.serve(&site).await;
    for (serve, id) in [(&first, "one"), (&second, "two")] {
        let account = json!({"settings": {"site": id}});
        furnished.api(serve).put(&format!("/accounts/static_site/{id}"), &account).await.unwrap().ok();
    }
    let (api, other) = (furnished.api(&first), furnished.api(&second));
    put_group(&api, "demo", &["static_site/one", "static_site/two"]).await;
    let publish = async |api: &Api, id: &str| {
        let mut sent = article(id);
        sent["callback_url"] = receiver.url.clone().into();
        api.publish(&sent).await.unwrap().ok();
        api.published(id).await;
    };
    publish(&api, "a").await;
    // The step that was left out is told.
    furnished.shell.master_key = new.clone();
    let line = furnished.shell.failure(&["rotate-master-key"]).await;
    assert!(line.contains("another master key") && line.contains("second"), "{line}");
    first.stop(Signal::TERM).await;

    furnished.shell.master_key = format!("{new},{old}");
    let done = furnished.shell.json(&["rotate-master-key"]).await;
    assert_eq!((&done["secrets"], &done["resealed"], &done["left"]), (&2.into(), &2.into(), &0.into()));
    assert_eq!(done["second_key_needed"], false);
    let again = furnished.shell.text(&["rotate-master-key"]).await;
    assert!(again.starts_with("re-sealed 0 of 0\nall 2 secrets"), "{again}");
    publish(&other, "b").await;
    second.stop(Signal::TERM).await;

    furnished.shell.master_key = new;
    let third = furnished.serve(&site).await;
    publish(&furnished.api(&third), "c").await;
    receiver.wait_for("an event of each", |received| received.len() >= 6).await;
    for one in receiver.received() {
        one.verify(&furnished.signing_secret);
    }
    third.stop(Signal::TERM).await;
    furnished.shell.master_key = old;
    let line = failure(furnished.shell.command(&["serve"])).await;
    assert!(line.contains("2 of the 2 secrets"), "{line}");
}

#[tokio::test]
async fn a_secret_that_cannot_be_opened_is_named_and_the_old_key_stays() {
    let mut furnished = Furnished::new().await;
    let old = furnished.shell.master_key.clone();
    furnished.shell.master_key = format!("{},{old}", *MasterKey::generate(&SystemClock).expose());
    let damage = "UPDATE signing_secrets SET sealed = set_byte(sealed, 40, get_byte(sealed, 40) # 1)";
    let mut database = PgConnection::connect(&furnished.shell.url).await.unwrap();
    database.execute(damage).await.unwrap();
    database.close().await.unwrap();
    let ended = run(furnished.shell.command(&["rotate-master-key", "--json"])).await;
    assert_eq!(ended.status.code(), Some(1));
    let facts: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!((&facts["resealed"], &facts["left"]), (&1.into(), &1.into()));
    assert_eq!(
        (&facts["second_key_needed"], &facts["not_opened"][0]["tenant"]),
        (&true.into(), &"demo".into())
    );
    let line = String::from_utf8(ended.stderr).unwrap();
    assert!(line.contains("signing secret") && line.contains("tenant demo"), "{line}");
    assert!(line.contains("keep both master keys") && line.lines().count() == 1, "{line}");
}
