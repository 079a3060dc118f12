//! Which drafts are removed.

use crate::connector::Removal;

use super::*;

/// What comes of removing a post that is shown so, and how many requests that takes.
async fn removed(shown_as: &Value) -> (Removal, usize) {
    let me = Said::This(200, r#"{"id":3}"#.to_owned());
    let deleted = Said::This(200, r#"{"deleted":true}"#.to_owned());
    let double = Double::says(vec![shown(shown_as), me, deleted]).await;
    let removal = double.connector.remove(&double.job()).await;
    let asked = double.asked();
    assert_eq!(removal == Removal::Gone && asked.len() == 3, asked.contains(&"DELETE posts/7".to_owned()));
    (removal, asked.len())
}

#[tokio::test]
async fn only_a_draft_as_it_was_made_is_removed() {
    assert_eq!(removed(&ours("draft")).await, (Removal::Gone, 3));
    assert_eq!(removed(&ours("publish")).await, (Removal::Public, 1));
    assert_eq!(removed(&ours("trash")).await, (Removal::Gone, 1));
    let written = mark::marked("<p>two hours of work</p><p>x</p>", MARKER);
    let another = mark::marked("<p>x</p>", "k2vkir6c7hi3bq5a");
    for (name, value) in [
        ("status", json!("pending")),
        ("status", json!("future")),
        ("status", json!("private")),
        ("content", json!({"raw": written})),
        ("title", json!({"raw": "A better title"})),
        ("excerpt", json!({"raw": "In short"})),
        ("slug", json!("a-better-name")),
        ("author", json!(4)),
        ("author", json!(null)),
        ("_links", json!({"version-history": [{"count": 1}]})),
        ("id", json!(8)),
        ("slug", json!("hello-k2vkir6c7hi3bq5a")),
    ] {
        let mut changed = ours("draft");
        changed[name] = value;
        let (removal, _) = removed(&changed).await;
        let Removal::Unknown(why) = removal else { panic!("{changed}: {removal:?}") };
        assert!(name == "id" || why.contains("left alone"), "{why}");
    }
    let mut others = ours("draft");
    others["slug"] = json!("hello-k2vkir6c7hi3bq5a");
    others["content"] = json!({"raw": another});
    assert!(matches!(removed(&others).await, (Removal::Unknown(_), 1)));
}

#[tokio::test]
async fn what_the_site_makes_of_a_drafts_form_is_no_persons_work() {
    let mut stripped = ours("draft");
    stripped["content"] = json!({"raw": "<p>x</p>\n"});
    stripped["_links"] = json!(null);
    assert_eq!(
        removed(&stripped).await.0,
        Removal::Gone,
        "the site takes comments out, and keeps no revisions"
    );
    let me = Said::This(500, String::new());
    let double = Double::says(vec![post("draft"), me]).await;
    assert!(matches!(double.connector.remove(&double.job()).await, Removal::Unknown(_)));
    assert_eq!(double.asked().len(), 2);
}
