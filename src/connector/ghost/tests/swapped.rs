//! Answers that are another post's, or that show what was sent; and drafts that a person has worked on.

use super::*;

const OTHER: &str = "k2vkir6c7hi3bq5a";
const OTHER_ID: &str = "6b0cca33b8367819c653e3ff";

fn others(status: &str) -> Value {
    let mut other = post(OTHER_ID, status, FIRST);
    other["slug"] = json!(format!("a-title-{OTHER}"));
    other
}

fn one(post: &Value) -> Planned {
    ok(200, json!({"posts": [post]}))
}

#[tokio::test]
async fn a_create_that_is_answered_with_anothers_post_is_looked_up() {
    for status in ["draft", "published"] {
        let (ghost, job, _) = given(now(), [one(&others(status))]).await;
        let verdict = ghost.draft(&job).await;
        assert!(matches!(verdict, Verdict::Unknown(_)), "{status}: {verdict:?}");
    }
}

#[tokio::test]
async fn a_publication_that_is_answered_with_anothers_post_is_looked_up() {
    let read = || one(&post(ID, "draft", FIRST));
    let (ghost, job, _) = given(now(), [read(), one(&others("published"))]).await;
    assert!(matches!(ghost.publish(&job).await, Verdict::Unknown(_)));
    // So is the look before it: nothing was asked for.
    let (ghost, job, double) = given(now(), [one(&others("published"))]).await;
    assert!(matches!(ghost.publish(&job).await, Verdict::Transient(_)));
    assert_eq!(double.lines().len(), 1);
    let mut by_id = others("draft");
    by_id["id"] = json!(ID);
    let (ghost, job, double) = given(now(), [one(&by_id)]).await;
    assert!(matches!(ghost.publish(&job).await, Verdict::Transient(_)));
    assert_eq!(double.lines().len(), 1);
}

#[tokio::test]
async fn a_look_believes_no_post_that_bears_the_mark_of_another() {
    let mut copied = others("published");
    copied["tags"] = json!([{"name": format!("#pi-{MARKER}"), "slug": format!("hash-pi-{MARKER}")}]);
    let (ghost, job, _) = given(now(), [posts(&[copied])]).await;
    assert!(matches!(ghost.find(&job).await, Sighting::CannotTell(_)));
    // Nor one whose title quotes the mark.
    let mut quoting = others("published");
    quoting["slug"] = json!(format!("about-{MARKER}-{OTHER}"));
    let absent = error(404, "NotFoundError", None, "Resource not found error, cannot read post.");
    let (ghost, job, _) = given(now(), [posts(&[]), posts(&[quoting]), absent]).await;
    assert_eq!(ghost.find(&job).await, Sighting::absent());
    let (ghost, job, _) = given(now(), [posts(&[]), posts(&[]), one(&others("published"))]).await;
    assert!(matches!(ghost.find(&job).await, Sighting::CannotTell(_)), "not what was asked for");
}

#[tokio::test]
async fn a_draft_that_a_person_has_worked_on_is_left_alone() {
    let text =
        json!({"root": {"children": [{"type": "html", "html": "<p>Hello, at length.</p>"}]}}).to_string();
    for (name, value) in [
        ("updated_at", json!(LATER)),
        ("title", json!("A better title")),
        ("lexical", json!(text)),
        ("slug", json!("renamed")),
        ("id", json!(OTHER_ID)),
    ] {
        let mut draft = post(ID, "draft", FIRST);
        draft[name] = value;
        let (ghost, job, double) = given(now(), [one(&draft)]).await;
        let removal = ghost.remove(&job).await;
        assert!(matches!(removal, Removal::Unknown(_)), "{name}: {removal:?}");
        assert_eq!(double.lines().len(), 1, "{name}");
    }
}

#[tokio::test]
async fn an_answer_is_kept_and_told_without_the_key_and_what_was_made_of_it() {
    let (id, secret) = ("a1".repeat(12), "0f".repeat(32));
    for echo in [format!("{id}:{secret}"), secret, ECHO.to_owned()] {
        let echoed = error(422, "ValidationError", None, &format!("echo {echo} end"));
        let (ghost, job, double) = given(now(), [echoed]).await;
        let Verdict::Rejected(failure) = ghost.draft(&job).await else { panic!() };
        let evidence = job.trace.take();
        assert_eq!(evidence.http_status, Some(422));
        let token = double.tokens.lock().unwrap()[0].clone();
        let signature = token.rsplit('.').next().unwrap();
        for told in [evidence.head.unwrap(), failure.message] {
            assert!(told.contains("echo …"), "{told}");
            for secret in [&*id, &"0f".repeat(8), signature, "eyJ"] {
                assert!(!told.contains(secret), "{told}");
            }
        }
    }
}
