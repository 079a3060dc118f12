//! The connector against a double that answers as Ghost 5.130.6 was seen to answer, where a real one cannot be made to.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use chrono::{DateTime, TimeDelta, Utc};
use uuid::Uuid;

mod swapped;

use super::*;
use crate::clock::{Clock, TestClock};
use crate::connector::Marked;
use crate::outbound::Policy;

const MARKER: &str = "abcdefghijklmnop";
const ID: &str = "6b0cca33b8367819c653e301";

/// In the place of which an answer shows the token that it answers to.
const ECHO: &str = "$TOKEN";

/// An answer: status, its clock's distance from the machine's, body.
type Planned = (u16, TimeDelta, Value);

/// What was asked: method and path with its query, the body.
type Asked = (String, Value);

#[derive(Clone, Default)]
struct Double {
    planned: Arc<Mutex<VecDeque<Planned>>>,
    asked: Arc<Mutex<Vec<Asked>>>,
    tokens: Arc<Mutex<Vec<String>>>,
}

impl Double {
    async fn answer(State(double): State<Self>, request: Request) -> Response {
        let line = format!("{} {}", request.method(), request.uri());
        let token = request.headers()["authorization"].to_str().unwrap().to_owned();
        let body = to_bytes(request.into_body(), 1 << 20).await.unwrap();
        double.asked.lock().unwrap().push((line, serde_json::from_slice(&body).unwrap_or(Value::Null)));
        let echoes = |body: &Value| body.to_string().replace(ECHO, token.strip_prefix("Ghost ").unwrap());
        let (status, ahead, body) = double.planned.lock().unwrap().pop_front().unwrap();
        let body = echoes(&body);
        double.tokens.lock().unwrap().push(token);
        let now = TestClock::seeded(1).now() + ahead;
        let builder = Response::builder().status(status).header("date", httpdate::fmt_http_date(now.into()));
        builder.body(Body::from(body)).unwrap()
    }

    fn lines(&self) -> Vec<String> {
        self.asked.lock().unwrap().iter().map(|(line, _)| line.clone()).collect()
    }

    fn bodies(&self) -> Vec<Value> {
        self.asked.lock().unwrap().iter().map(|(_, body)| body.clone()).collect()
    }

    /// When each token says it was made.
    fn made(&self) -> Vec<DateTime<Utc>> {
        use base64::Engine as _;
        let claims = |token: &String| {
            let part = token.split('.').nth(1).unwrap();
            let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(part).unwrap();
            let claims = serde_json::from_slice::<Value>(&bytes).unwrap();
            DateTime::from_timestamp(claims["iat"].as_i64().unwrap(), 0).unwrap()
        };
        self.tokens.lock().unwrap().iter().map(claims).collect()
    }
}

/// A connector and a job for a double that gives these answers.
async fn given(clock: TestClock, answers: impl IntoIterator<Item = Planned>) -> (Ghost, Job, Double) {
    let double = Double::default();
    double.planned.lock().unwrap().extend(answers);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().fallback(Double::answer).with_state(double.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let clock: SharedClock = Arc::new(clock);
    let policy = Policy { allow: vec!["127.0.0.0/8".parse().unwrap()], allow_http: true, ports: None };
    let client = Client::new(policy, clock.clone()).unwrap();
    let media = Media::new(client.clone(), clock.clone());
    let key = format!("{}:{}", "a1".repeat(12), "0f".repeat(32));
    let job = Job {
        marker: MARKER.into(),
        tenant: "acme".into(),
        tenant_id: Uuid::nil(),
        publication_id: Uuid::nil(),
        round: 1,
        external_id: "post-1".into(),
        account_id: "blog".into(),
        settings: json!({"base_url": base_url}),
        credentials: Credentials::new(json!({"admin_api_key": key})),
        content: Content {
            title: "A title".into(),
            content_html: "<p>Hello.</p>".into(),
            summary: None,
            cover_url: None,
            canonical_url: None,
            author: None,
            tags: Vec::new(),
        },
        submitted_at: clock.now(),
        draft_id: Some(ID.into()),
        prepared: Value::Null,
        request_id: "request-7".into(),
        trace: Trace::default(),
        until: clock.instant() + Duration::from_secs(20),
    };
    (Ghost::new(client, media, Duration::from_secs(5), clock), job, double)
}

fn now() -> TestClock {
    TestClock::seeded(1)
}

fn ok(status: u16, body: Value) -> Planned {
    (status, TimeDelta::zero(), body)
}

fn posts(posts: &[Value]) -> Planned {
    let meta = json!({"pagination": {"page": 1, "limit": 100, "pages": 1, "next": null, "prev": null}});
    ok(200, json!({"posts": posts, "meta": meta}))
}

fn post(id: &str, status: &str, updated_at: &str) -> Value {
    json!({
        "id": id, "uuid": "4b553c2b-f7f8-4527-a72b-03be2e1edf51", "slug": format!("a-title-{MARKER}"), "status": status,
        "url": format!("https://blog.example/a-title-{MARKER}/"), "created_at": "2026-01-31T00:00:00.000Z",
        "updated_at": updated_at, "mobiledoc": null, "tags": [], "title": "A title",
        "lexical": json!({"root": {"children": [{"type": "html", "html": "<p>Hello.</p>"}]}}).to_string(),
    })
}

fn error(status: u16, kind: &str, code: Option<&str>, message: &str) -> Planned {
    ok(status, json!({"errors": [{"message": message, "context": null, "type": kind, "code": code}]}))
}

fn stale_token(ahead: TimeDelta) -> Planned {
    let (status, _, body) =
        error(401, "UnauthorizedError", Some("INVALID_JWT"), "Invalid token: jwt expired");
    (status, ahead, body)
}

fn collision() -> Planned {
    error(
        409,
        "UpdateCollisionError",
        Some("UPDATE_COLLISION"),
        "Saving failed! Someone else is editing this post.",
    )
}

const FIRST: &str = "2026-01-31T00:00:00.000Z";
const LATER: &str = "2026-01-31T00:00:07.000Z";

#[tokio::test]
async fn a_clock_that_is_two_hours_off_is_no_expired_login() {
    for hours in [2, -2] {
        let clock = now();
        clock.advance(TimeDelta::hours(-hours));
        let absent = || posts(&[]);
        let answers = [stale_token(TimeDelta::zero()), absent(), absent()];
        let (ghost, job, double) = given(clock, answers).await;
        let job = Job { draft_id: None, ..job };
        assert_eq!(ghost.find(&job).await, Sighting::absent());
        let made = double.made();
        assert_eq!(made.len(), 3, "once more with Ghost's time, which is kept for the next request");
        let off = |at: &DateTime<Utc>| ((*at - now().now()).num_seconds() + 1_800).div_euclid(3_600);
        assert_eq!(made.iter().map(off).collect::<Vec<_>>(), [-hours, 0, 0]);
    }
}

#[tokio::test]
async fn a_clock_that_stays_wrong_is_not_asked_about_for_ever() {
    let clock = now();
    clock.advance(TimeDelta::hours(-2));
    let (ghost, job, double) =
        given(clock, [stale_token(TimeDelta::zero()), stale_token(TimeDelta::zero())]).await;
    let Verdict::Transient(failure) = ghost.draft(&job).await else { panic!() };
    assert_eq!((&*failure.code, double.lines().len()), ("clock_skew", 2));
    // Nothing says how far it is off.
    let (ghost, job, double) = given(now(), [stale_token(TimeDelta::zero())]).await;
    assert!(matches!(ghost.draft(&job).await, Verdict::Transient(_)));
    assert_eq!(double.lines().len(), 1);
}

#[tokio::test]
async fn a_key_that_is_refused_is_asked_about_once() {
    let refused = error(401, "UnauthorizedError", Some("UNKNOWN_ADMIN_API_KEY"), "Unknown Admin API Key");
    let (ghost, job, double) = given(now(), [refused]).await;
    assert!(matches!(ghost.find(&job).await, Sighting::LoginExpired(_)));
    assert_eq!(double.lines().len(), 1);
}

#[tokio::test]
async fn posts_that_a_filter_should_not_have_let_through_are_not_ours() {
    let mut stranger = post("6b0cca33b8367819c653e3ff", "published", FIRST);
    stranger["slug"] = json!("a-title");
    let ours = post(ID, "draft", FIRST);
    let both = || posts(&[stranger.clone(), ours.clone()]);
    let (ghost, job, double) = given(now(), [both(), both()]).await;
    assert_eq!(ghost.find(&job).await, Sighting::Seen(vec![Marked { id: ID.into(), public: None }]));
    let lines = double.lines();
    assert!(lines[0].contains("filter=tag%3Ahash-pi-abcdefghijklmnop"), "{}", lines[0]);
    assert!(lines[1].contains("filter=slug%3A%7E%27abcdefghijklmnop%27"), "{}", lines[1]);
    assert_eq!(lines.len(), 2, "the draft was among them");
}

#[tokio::test]
async fn what_does_not_filter_at_all_says_nothing() {
    let page = |next: u32| {
        let meta = json!({"pagination": {"page": next - 1, "pages": 500, "next": next}});
        ok(200, json!({"posts": [], "meta": meta}))
    };
    let (ghost, job, double) = given(now(), (2..=30).map(page)).await;
    assert!(matches!(ghost.find(&job).await, Sighting::CannotTell(_)));
    assert_eq!(double.lines().len(), 20);
}

#[tokio::test]
async fn a_look_that_fails_in_part_proves_no_absence() {
    let (ghost, job, _) = given(now(), [posts(&[]), ok(503, json!("booting"))]).await;
    assert!(matches!(ghost.find(&job).await, Sighting::CannotTell(_)));
    let unreadable = ok(200, json!({"welcome": true}));
    let (ghost, job, _) = given(now(), [unreadable]).await;
    assert!(matches!(ghost.find(&job).await, Sighting::CannotTell(_)));
}

#[tokio::test]
async fn a_known_draft_is_ours_whatever_became_of_its_marks() {
    let mut renamed = post(ID, "published", LATER);
    renamed["slug"] = json!("renamed");
    let answers = [posts(&[]), posts(&[]), ok(200, json!({"posts": [renamed]}))];
    let (ghost, job, double) = given(now(), answers).await;
    let Sighting::Seen(seen) = ghost.find(&job).await else { panic!() };
    assert!(seen[0].public.is_some(), "{seen:?}");
    assert!(double.lines()[2].starts_with(&format!("GET /ghost/api/admin/posts/{ID}/?fields=")));
}

#[tokio::test]
async fn a_draft_that_others_change_is_read_again_and_given_up_after_a_while() {
    let read = |updated_at| ok(200, json!({"posts": [post(ID, "draft", updated_at)]}));
    let published = || ok(200, json!({"posts": [post(ID, "published", LATER)]}));
    let (ghost, job, double) = given(now(), [read(FIRST), collision(), read(LATER), published()]).await;
    assert!(matches!(ghost.publish(&job).await, Verdict::Done(_)));
    let sent = double.bodies();
    let change = |at| json!({"posts": [{"status": "published", "updated_at": at}]});
    assert_eq!((&sent[1], &sent[3]), (&change(FIRST), &change(LATER)));

    let (ghost, job, _) = given(now(), [read(FIRST), collision(), published()]).await;
    assert!(matches!(ghost.publish(&job).await, Verdict::Done(_)), "another holder has published it");

    let always = (0..3).flat_map(|_| [read(FIRST), collision()]);
    let (ghost, job, double) = given(now(), always).await;
    assert!(matches!(ghost.publish(&job).await, Verdict::Transient(_)));
    assert_eq!(double.lines().len(), 6);
}

#[tokio::test]
async fn publishing_what_is_public_changes_nothing() {
    let (ghost, job, double) =
        given(now(), [ok(200, json!({"posts": [post(ID, "published", LATER)]}))]).await;
    let url = format!("https://blog.example/a-title-{MARKER}/");
    assert_eq!(
        ghost.publish(&job).await,
        Verdict::Done(super::super::Remote { url, remote_id: Some(ID.into()) })
    );
    assert_eq!(double.lines().len(), 1);
}

#[tokio::test]
async fn what_somebody_has_scheduled_is_left_alone() {
    let scheduled = || ok(200, json!({"posts": [post(ID, "scheduled", LATER)]}));
    let (ghost, job, double) = given(now(), [scheduled(), scheduled()]).await;
    let Verdict::Rejected(failure) = ghost.publish(&job).await else { panic!() };
    assert_eq!(failure.code, "scheduled_by_hand");
    assert!(matches!(ghost.remove(&job).await, Removal::Unknown(_)));
    assert!(double.lines().iter().all(|line| line.starts_with("GET ")));
}

#[tokio::test]
async fn an_answer_lost_while_only_reading_leaves_nothing_in_doubt() {
    let lost = || ok(502, json!("lost"));
    let (ghost, job, _) = given(now(), [lost()]).await;
    assert!(matches!(ghost.publish(&job).await, Verdict::Transient(_)));
    let read = ok(200, json!({"posts": [post(ID, "draft", FIRST)]}));
    let (ghost, job, _) = given(now(), [read, lost()]).await;
    assert!(matches!(ghost.publish(&job).await, Verdict::Unknown(_)));
    let (ghost, job, _) = given(now(), [lost()]).await;
    assert!(matches!(ghost.draft(&job).await, Verdict::Unknown(_)));
}

#[tokio::test]
async fn a_draft_is_locked_before_it_is_deleted() {
    let read = |foot: Option<&str>| {
        let mut draft = post(ID, "draft", FIRST);
        draft["codeinjection_foot"] = json!(foot);
        ok(200, json!({"posts": [draft]}))
    };
    let locked = |at| ok(200, json!({"posts": [post(ID, "draft", at)]}));
    let methods = |double: &Double| {
        let lines = double.lines();
        lines.iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let (ghost, job, double) = given(now(), [read(None), locked(LATER), ok(204, Value::Null)]).await;
    assert_eq!(ghost.remove(&job).await, Removal::Gone);
    assert_eq!(methods(&double), ["GET", "PUT", "DELETE"]);

    // Its time of change would let another's request through.
    let (ghost, job, double) = given(now(), [read(None), locked(FIRST)]).await;
    assert!(matches!(ghost.remove(&job).await, Removal::Unknown(_)));
    assert_eq!(methods(&double), ["GET", "PUT"]);

    // Locked by an earlier try.
    let (ghost, job, double) = given(now(), [read(Some(REMOVING)), ok(204, Value::Null)]).await;
    assert_eq!(ghost.remove(&job).await, Removal::Gone);
    assert_eq!(methods(&double), ["GET", "DELETE"]);

    let (ghost, job, double) = given(now(), [read(Some(REMOVING))]).await;
    assert!(matches!(ghost.publish(&job).await, Verdict::Transient(_)));
    assert_eq!(methods(&double), ["GET"]);

    let (ghost, job, _) = given(now(), [read(None), collision()]).await;
    assert!(matches!(ghost.remove(&job).await, Removal::Unknown(_)), "somebody works on it");

    let absent = error(404, "NotFoundError", None, "Resource not found error, cannot read post.");
    let (ghost, job, _) = given(now(), [absent]).await;
    assert_eq!(ghost.remove(&job).await, Removal::Gone);

    let (ghost, job, double) =
        given(now(), [ok(200, json!({"posts": [post(ID, "published", LATER)]}))]).await;
    assert_eq!(ghost.remove(&job).await, Removal::Public);
    assert_eq!(methods(&double), ["GET"]);
}

#[tokio::test]
async fn a_ghost_that_dropped_the_text_is_not_published() {
    let mut old = post(ID, "draft", FIRST);
    old["mobiledoc"] = json!(r#"{"version":"0.3.1","sections":[[1,"p",[[0,[],0,""]]]]}"#);
    let (ghost, job, _) = given(now(), [ok(201, json!({"posts": [old]}))]).await;
    let Verdict::Rejected(failure) = ghost.draft(&job).await else { panic!() };
    assert_eq!(failure.code, "unsupported_version");
}

#[tokio::test]
async fn what_ghost_would_refuse_is_not_sent() {
    let (ghost, job, double) = given(now(), []).await;
    let content = Content {
        title: "t".repeat(256),
        cover_url: Some("http://127.0.0.1:2/c.png".into()),
        ..job.content.clone()
    };
    let job = Job { content, ..job };
    assert!(ghost.prepares(&job));
    let Err(Verdict::Rejected(failure)) = ghost.prepare(&job).await else { panic!() };
    assert_eq!(failure.code, "title_too_long");
    assert!(matches!(ghost.draft(&job).await, Verdict::Rejected(_)));
    assert!(double.lines().is_empty());
}

#[tokio::test]
async fn an_image_that_an_earlier_part_has_moved_is_not_moved_again() {
    let (ghost, job, double) = given(now(), []).await;
    let (here, there) = ("data:image/gif,GIF89a", "https://blog.example/content/images/a.gif");
    let content = Content { content_html: format!("<img src=\"{here}\">"), ..job.content.clone() };
    let settings = json!({"base_url": job.settings["base_url"], "images": "upload"});
    let moved = json!({"addresses": {here: {"Ok": {"url": there, "remote_id": null}}}, "contents": {}});
    let job = Job { content, settings, prepared: json!({"moved": moved}), ..job };
    let prepared = ghost.prepare(&job).await.unwrap();
    let ready = json!({"cover": null, "content_html": format!("<img src=\"{there}\">")});
    assert_eq!((prepared.ready, prepared.in_part, double.lines().len()), (ready, false, 0));
}

/// Of all that is sent in the life of a post, nothing sends mail or makes it be sent.
#[tokio::test]
async fn nothing_that_is_sent_names_mail() {
    let draft = || post(ID, "draft", FIRST);
    let answers = [
        posts(&[]),
        posts(&[]),
        ok(201, json!({"posts": [draft()]})),
        posts(&[draft()]),
        posts(&[]),
        ok(200, json!({"posts": [draft()]})),
        ok(200, json!({"posts": [post(ID, "published", LATER)]})),
    ];
    let (ghost, job, double) = given(now(), answers).await;
    let unknown = Job { draft_id: None, ..job.clone() };
    assert_eq!(ghost.find(&unknown).await, Sighting::absent());
    assert_eq!(ghost.draft(&unknown).await, Verdict::Drafted(ID.into()));
    assert!(matches!(ghost.find(&job).await, Sighting::Seen(seen) if seen.len() == 1));
    assert!(matches!(ghost.publish(&job).await, Verdict::Done(_)));
    let asked = double.asked.lock().unwrap();
    assert_eq!(asked.len(), 7);
    for (line, body) in asked.iter() {
        for word in ["newsletter", "email", "mail"] {
            assert!(!line.contains(word) && !body.to_string().contains(word), "{line} {body}");
        }
    }
}

#[tokio::test]
async fn nothing_is_begun_when_the_time_is_over() {
    let (ghost, job, double) = given(now(), []).await;
    let job = Job { until: job.until.checked_sub(Duration::from_secs(30)).unwrap(), ..job };
    assert!(matches!(ghost.find(&job).await, Sighting::CannotTell(_)));
    assert!(matches!(ghost.draft(&job).await, Verdict::Transient(_)));
    assert!(double.lines().is_empty());
}
