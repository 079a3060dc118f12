//! Answers that are another post's, older than what they answer, or unreadable; and posts that bear marks of others.

use super::*;

const OTHER: &str = "k2vkir6c7hi3bq5a";

/// The post of another article, with the same title.
fn others(status: &str) -> Value {
    json!({
        "id": 5, "slug": format!("hello-{OTHER}"), "status": status, "link": "https://blog.example/other",
        "title": {"raw": "Hello"}, "content": {"raw": mark::marked("<p>another</p>", OTHER)},
    })
}

/// A post with these members changed.
fn with(mut post: Value, changed: &[(&str, Value)]) -> Value {
    for (name, value) in changed {
        post[*name] = value.clone();
    }
    post
}

fn without_marks(status: &str) -> Value {
    with(ours(status), &[("slug", json!("hello")), ("content", json!({"raw": "<p>x</p>"}))])
}

fn nothing_deleted(double: &Double) -> bool {
    double.asked().iter().all(|line| !line.starts_with("DELETE"))
}

fn code(verdict: &Verdict) -> &str {
    match verdict {
        Verdict::Rejected(failure) => &failure.code,
        other => panic!("{other:?}"),
    }
}

/// The verdict of a draft whose create and whose later looks are answered so.
async fn drafted(answers: Vec<Said>) -> (Verdict, Double) {
    let none = || list(&json!([]));
    let double = Double::says([none(), none()].into_iter().chain(answers).collect()).await;
    (double.connector.draft(&double.job()).await, double)
}

#[tokio::test]
async fn a_create_that_is_answered_with_anothers_post_is_looked_up_and_that_post_is_left_alone() {
    for status in ["publish", "draft", "private"] {
        let (verdict, double) = drafted(vec![shown(&others(status)), shown(&others(status))]).await;
        assert!(matches!(verdict, Verdict::Unknown(_)), "{status}: {verdict:?}");
        assert!(nothing_deleted(&double), "{status}");
    }
    // Of a person, who has taken the same title.
    let persons = |status: &str| {
        with(others(status), &[("slug", json!("hello")), ("content", json!({"raw": "<p>by hand</p>"}))])
    };
    for status in ["publish", "draft"] {
        let (verdict, double) = drafted(vec![shown(&persons(status)), shown(&persons(status))]).await;
        assert!(matches!(verdict, Verdict::Unknown(_)) && nothing_deleted(&double), "{status}: {verdict:?}");
    }
    // The answer was wrong, and the post is ours.
    let (verdict, _) =
        drafted(vec![shown(&with(others("publish"), &[("id", json!(7))])), post("draft")]).await;
    assert_eq!(verdict, Verdict::Drafted("7".to_owned()));
    let (verdict, double) = drafted(vec![shown(&others("draft")), page(500)]).await;
    assert!(matches!(verdict, Verdict::Unknown(_)) && nothing_deleted(&double));
}

#[tokio::test]
async fn a_draft_that_lost_both_marks_is_told_of_and_not_removed() {
    let lost = || shown(&without_marks("draft"));
    let (verdict, double) = drafted(vec![lost(), lost()]).await;
    assert_eq!(code(&verdict), "marks_lost");
    let Verdict::Rejected(failure) = verdict else { panic!() };
    assert!(failure.message.contains("delete post 7"), "{}", failure.message);
    assert!(nothing_deleted(&double));
    // Public at once: it is there, and must not be made again.
    let public = || shown(&without_marks("publish"));
    assert_eq!(drafted(vec![public(), public()]).await.0, Verdict::Done(remote()));
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_is_followed_by_a_look_for_what_lost_both_marks() {
    let notice = || Said::This(201, "<b>Notice</b> {\"id\":7}".to_owned());
    let public = || without_marks("publish");
    let (verdict, double) = drafted(vec![notice(), list(&json!([others("publish"), public()]))]).await;
    assert_eq!(code(&verdict), "marks_lost");
    let search = double.asked.lock().unwrap()[3].clone();
    assert!(search.contains("search=Hello&") && search.contains("order=desc"), "{search}");
    for other in [
        ours("draft"),
        others("publish"),
        with(public(), &[("title", json!({"raw": "Hello again"}))]),
        with(public(), &[("content", json!({"raw": "<p>y</p>"}))]),
        // Written by hand long before.
        with(public(), &[("modified_gmt", json!("1969-12-31T23:54:59"))]),
        with(public(), &[("modified_gmt", json!(null))]),
    ] {
        let (verdict, _) = drafted(vec![notice(), list(&json!([other]))]).await;
        assert!(matches!(verdict, Verdict::Unknown(_)), "{other} {verdict:?}");
    }
    let (verdict, _) = drafted(vec![page(500), Said::Nothing]).await;
    assert!(matches!(verdict, Verdict::Unknown(_)));
}

#[tokio::test]
async fn a_publication_that_is_answered_with_anothers_post_is_looked_up() {
    let mine_by_id = with(others("publish"), &[("id", json!(7))]);
    for answer in [others("publish"), mine_by_id, with(ours("publish"), &[("id", json!(8))])] {
        let double = Double::says(vec![post("draft"), shown(&answer)]).await;
        let verdict = double.connector.publish(&double.job()).await;
        assert!(matches!(verdict, Verdict::Unknown(_)), "{answer} {verdict:?}");
    }
    // A plugin takes its marks as it is published.
    let double = Double::says(vec![post("draft"), shown(&without_marks("publish"))]).await;
    assert_eq!(double.connector.publish(&double.job()).await, Verdict::Done(remote()));
}

#[tokio::test]
async fn what_is_not_the_articles_post_any_more_is_not_published() {
    let gone = [
        with(others("draft"), &[("id", json!(7))]),
        with(without_marks("draft"), &[("content", json!({"raw": "<p>by hand</p>"}))]),
        // Another than was asked for.
        others("draft"),
    ];
    for gone in gone {
        let double = Double::says(vec![shown(&gone)]).await;
        assert!(matches!(double.connector.publish(&double.job()).await, Verdict::Transient(_)), "{gone}");
        assert_eq!(double.asked(), ["GET posts/7"]);
    }
}

#[tokio::test]
async fn an_answer_that_is_older_than_the_publication_fails_nothing() {
    let stale = |after: Said| Double::says(vec![post("draft"), post("draft"), after]);
    let double = stale(post("publish")).await;
    assert_eq!(double.connector.publish(&double.job()).await, Verdict::Done(remote()));
    assert_eq!(double.asked(), ["GET posts/7", "POST posts/7", "GET posts/7"]);
    for after in [post("draft"), page(500), Said::Nothing, shown(&with(others("draft"), &[("id", json!(7))]))]
    {
        let double = stale(after).await;
        let verdict = double.connector.publish(&double.job()).await;
        assert!(matches!(verdict, Verdict::Unknown(_)), "{verdict:?}");
    }
    for held in ["pending", "future", "private", "pitch"] {
        let double = stale(post(held)).await;
        assert_eq!(code(&double.connector.publish(&double.job()).await), "held_back", "{held}");
    }
}

/// What a look sees where the lists, of slugs and of contents, show these posts, and the known id this one.
async fn seen(listed: &[Value], known: Option<Value>) -> Sighting {
    let answers = [list(&json!([])), list(&json!(listed))].into_iter().chain(known.map(|post| shown(&post)));
    let double = Double::says(answers.collect()).await;
    let known = Some("7".to_owned()).filter(|_| double.asked().is_empty());
    double.connector.find(&Job { draft_id: known, ..double.job() }).await
}

#[tokio::test]
async fn a_post_of_another_article_that_bears_our_mark_in_its_text_is_not_ours() {
    // As it was sent before marks of others were taken out.
    let text = format!("<p>y</p><!-- publish-ingest:{MARKER} -->\n<!-- publish-ingest:{OTHER} -->");
    let synced = with(others("publish"), &[("content", json!({"raw": text}))]);
    let double = Double::says(vec![list(&json!([])), list(&json!([synced]))]).await;
    let unknown = Job { draft_id: None, ..double.job() };
    assert_eq!(double.connector.find(&unknown).await, Sighting::absent());
    // A person has taken the other's own mark away: nobody can tell.
    let text = format!("<p>y</p><!-- publish-ingest:{MARKER} -->");
    let disputed = with(others("publish"), &[("content", json!({"raw": text}))]);
    let double = Double::says(vec![list(&json!([])), list(&json!([disputed]))]).await;
    let unknown = Job { draft_id: None, ..double.job() };
    let Sighting::CannotTell(why) = double.connector.find(&unknown).await else { panic!() };
    assert!(why.contains("post 5 in WordPress carries the marks of two articles"), "{why}");
}

#[tokio::test]
async fn a_text_is_sent_without_the_marks_of_others() {
    let none = || list(&json!([]));
    let double = Double::says(vec![none(), none(), post("draft")]).await;
    let mut job = double.job();
    job.content.content_html = format!("<p>x</p><!-- publish-ingest:{OTHER} -->");
    assert_eq!(double.connector.draft(&job).await, Verdict::Drafted("7".to_owned()));
    let request = double.asked.lock().unwrap()[2].clone();
    assert!(!request.contains(OTHER) && request.contains(MARKER), "{request}");
}

#[tokio::test]
async fn an_id_that_a_restored_site_gave_to_another_is_not_ours_whatever_its_title() {
    let at_7 = |post: Value| with(post, &[("id", json!(7))]);
    assert_eq!(seen(&[], Some(at_7(others("publish")))).await, Sighting::absent());
    // With no mark at all only its title and text together say that it is ours.
    let by_hand = with(without_marks("publish"), &[("content", json!({"raw": "<p>by hand</p>"}))]);
    for other in [by_hand, with(without_marks("publish"), &[("title", json!({"raw": "Renamed"}))])] {
        assert!(matches!(seen(&[], Some(other.clone())).await, Sighting::CannotTell(_)), "{other}");
    }
    assert_eq!(seen(&[], Some(without_marks("publish"))).await, Sighting::published(remote()));
    assert!(
        matches!(seen(&[], Some(others("publish"))).await, Sighting::CannotTell(_)),
        "not what was asked"
    );
}
