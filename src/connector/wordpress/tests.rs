//! What a run does with answers that a real site gives only under attack or in bad luck: from a double that says them in
//! turn. `tests/platforms` asks a real one.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use uuid::Uuid;

mod removal;
mod swapped;

use super::*;
use crate::account::Credentials;
use crate::article::Content;
use crate::clock::{Clock, SystemClock};
use crate::connector::{Remote, Trace};
use crate::outbound::Policy;

const MARKER: &str = "ztvkir6c7hi3by44";
const PASSWORD: &str = "abcd efgh ijkl mnop";
const PIXEL: &str = "data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw==";

/// A clock whose time a double moves on.
#[derive(Debug, Default)]
struct Moved(Mutex<Duration>);

impl Clock for Moved {
    fn now(&self) -> DateTime<Utc> {
        SystemClock.now()
    }

    fn instant(&self) -> Instant {
        SystemClock.instant() + *self.0.lock().unwrap()
    }

    fn skew(&self) -> TimeDelta {
        TimeDelta::zero()
    }

    fn fill(&self, bytes: &mut [u8]) {
        SystemClock.fill(bytes);
    }
}

/// A site that answers each request with the next of its answers, and keeps what it was asked; after the last it hangs up.
struct Double {
    url: String,
    asked: Arc<Mutex<Vec<String>>>,
    connector: WordPress,
    clock: Arc<Moved>,
}

/// What the site does with a request.
#[derive(Clone)]
enum Said {
    /// It answers with that status and body.
    This(u16, String),
    /// It closes the connection.
    Nothing,
}

impl Double {
    async fn says(answers: Vec<Said>) -> Self {
        Self::taking(answers, Duration::ZERO).await
    }

    /// Each answer takes that long, by the clock.
    async fn taking(answers: Vec<Said>, each: Duration) -> Self {
        let clock = Arc::new(Moved::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (heard, passing) = (asked.clone(), clock.clone());
        tokio::spawn(async move {
            let mut answers = answers.into_iter();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = Vec::new();
                while !is_whole(&request) {
                    if stream.read_buf(&mut request).await.unwrap() == 0 {
                        break;
                    }
                }
                heard.lock().unwrap().push(String::from_utf8_lossy(&request).into_owned());
                *passing.0.lock().unwrap() += each;
                let Some(Said::This(status, body)) = answers.next() else { continue };
                let answer = format!(
                    "HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
                    body.len()
                );
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        let policy = Policy { allow: vec!["127.0.0.0/8".parse().unwrap()], allow_http: true, ports: None };
        let client = Client::new(policy, clock.clone()).unwrap();
        let media = Media::new(client.clone(), clock.clone());
        let connector = WordPress::new(client, media, Duration::from_secs(20), clock.clone());
        Self { url, asked, connector, clock }
    }

    /// The requests so far: method and path, without the query.
    fn asked(&self) -> Vec<String> {
        let asked = self.asked.lock().unwrap();
        let lines = asked.iter().map(|one| one.split(['?', '\r']).next().unwrap().replace(" HTTP/1.1", ""));
        lines.map(|line| line.replace("/wp-json/wp/v2/", "")).collect()
    }

    fn job(&self) -> Job {
        Job {
            marker: MARKER.to_owned(),
            tenant: "acme".to_owned(),
            tenant_id: Uuid::nil(),
            publication_id: Uuid::nil(),
            round: 1,
            external_id: "post-1".to_owned(),
            account_id: "blog".to_owned(),
            settings: json!({"base_url": self.url}),
            credentials: Credentials::new(json!({"username": "editor", "application_password": PASSWORD})),
            content: Content {
                title: "Hello".to_owned(),
                content_html: "<p>x</p>".to_owned(),
                summary: None,
                cover_url: None,
                canonical_url: None,
                author: None,
                tags: Vec::new(),
            },
            submitted_at: DateTime::UNIX_EPOCH,
            draft_id: Some("7".to_owned()),
            prepared: Value::Null,
            request_id: "a-1-2".to_owned(),
            trace: Trace::default(),
            until: self.clock.instant() + Duration::from_secs(15),
        }
    }
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    // Bodies of these tests are ASCII, or are not read.
    body.len() >= length.map_or(0, |length| length.parse().unwrap())
}

/// The article's post as it was made, but for its status.
fn ours(status: &str) -> Value {
    json!({
        "id": 7, "slug": format!("hello-{MARKER}"), "status": status, "link": "https://blog.example/hello",
        "title": {"raw": "Hello"}, "content": {"raw": mark::marked("<p>x</p>", MARKER)}, "excerpt": {"raw": ""},
        "author": 3, "modified_gmt": "2026-01-31T00:00:00", "_links": {"version-history": [{"count": 0}]},
    })
}

fn shown(post: &Value) -> Said {
    Said::This(200, post.to_string())
}

fn post(status: &str) -> Said {
    shown(&ours(status))
}

fn list(items: &Value) -> Said {
    let total = items.as_array().unwrap().len();
    let envelope = json!({"body": items, "status": 200, "headers": {"X-WP-Total": total}});
    Said::This(200, envelope.to_string())
}

fn page(status: u16) -> Said {
    Said::This(status, "<html><title>Blocked by Example Firewall</title></html>".to_owned())
}

fn remote() -> Remote {
    Remote { url: "https://blog.example/hello".to_owned(), remote_id: Some("7".to_owned()) }
}

#[tokio::test]
async fn what_a_firewall_answers_to_a_publication_is_looked_up() {
    let blocked = Double::says(vec![post("draft"), page(403), post("draft")]).await;
    let Verdict::Rejected(failure) = blocked.connector.publish(&blocked.job()).await else { panic!() };
    assert_eq!(failure.code, "platform_blocked");
    assert_eq!(blocked.asked(), ["GET posts/7", "POST posts/7", "GET posts/7"]);
    // It may look at what comes back, too.
    let done = Double::says(vec![post("draft"), page(403), post("publish")]).await;
    assert_eq!(done.connector.publish(&done.job()).await, Verdict::Done(remote()));
    let dark = Double::says(vec![post("draft"), page(403), page(403)]).await;
    assert!(matches!(dark.connector.publish(&dark.job()).await, Verdict::Unknown(_)));
}

#[tokio::test]
async fn a_lost_answer_to_a_publication_is_unknown_and_one_to_the_look_before_is_not() {
    let lost = Double::says(vec![post("draft"), Said::Nothing]).await;
    assert!(matches!(lost.connector.publish(&lost.job()).await, Verdict::Unknown(_)));
    let before = Double::says(vec![Said::Nothing]).await;
    assert!(matches!(before.connector.publish(&before.job()).await, Verdict::Transient(_)));
    assert_eq!(before.asked(), ["GET posts/7"]);
}

#[tokio::test]
async fn what_is_public_is_not_asked_for_again() {
    let public = Double::says(vec![post("publish")]).await;
    assert_eq!(public.connector.publish(&public.job()).await, Verdict::Done(remote()));
    assert_eq!(public.asked(), ["GET posts/7"]);
}

#[tokio::test]
async fn no_request_of_a_step_is_begun_when_its_time_is_over() {
    let slow = Double::taking(vec![post("draft"), post("publish")], Duration::from_secs(15)).await;
    let verdict = slow.connector.publish(&slow.job()).await;
    assert!(matches!(verdict, Verdict::Transient(_)), "{verdict:?}");
    assert_eq!(slow.asked(), ["GET posts/7"]);
    let slow = Double::taking(vec![list(&json!([])); 4], Duration::from_secs(8)).await;
    assert!(matches!(slow.connector.find(&slow.job()).await, Sighting::CannotTell(_)));
    assert_eq!(slow.asked().len(), 2);
}

#[tokio::test]
async fn requests_bear_their_step_and_the_login_and_answers_are_kept_without_it() {
    let echo = format!("<p>{PASSWORD} is wrong</p>");
    let double = Double::says(vec![Said::This(403, echo)]).await;
    let job = double.job();
    assert!(matches!(double.connector.find(&job).await, Sighting::CannotTell(_)));
    let request = double.asked.lock().unwrap()[0].clone();
    assert!(request.contains("x-request-id: a-1-2\r\n"), "{request}");
    // base64("editor:abcd efgh ijkl mnop")
    assert!(request.contains("authorization: Basic ZWRpdG9yOmFiY2QgZWZnaCBpamtsIG1ub3A=\r\n"), "{request}");
    let evidence = job.trace.take();
    assert_eq!((evidence.http_status, evidence.head.as_deref()), (Some(403), Some("<p>… is wrong</p>")));
    // As a page shows it that prints what it was sent.
    let echo = "Authorization: Basic ZWRpdG9yOmFiY2QgZWZnaCBpamtsIG1ub3A=, pw abcdefghijklmnop".to_owned();
    let double = Double::says(vec![Said::This(500, echo)]).await;
    let job = double.job();
    assert!(matches!(double.connector.find(&job).await, Sighting::CannotTell(_)));
    assert_eq!(job.trace.take().head.as_deref(), Some("Authorization: Basic …, pw …"));
}

#[tokio::test]
async fn a_draft_that_a_plugin_publishes_at_once_is_done() {
    let none = || list(&json!([]));
    let eager = Double::says(vec![none(), none(), post("publish")]).await;
    assert_eq!(eager.connector.draft(&eager.job()).await, Verdict::Done(remote()));
    let broken =
        Double::says(vec![none(), none(), Said::This(201, "<b>Notice</b> {\"id\":7}".to_owned())]).await;
    assert!(matches!(broken.connector.draft(&broken.job()).await, Verdict::Unknown(_)));
    let request = broken.asked.lock().unwrap()[2].clone();
    assert!(request.contains("\"status\":\"draft\"") && !request.contains("date"), "{request}");
}

#[tokio::test]
async fn a_draft_is_not_asked_for_when_the_trash_cannot_be_looked_into() {
    let dark = Double::says(vec![page(500)]).await;
    assert!(matches!(dark.connector.draft(&dark.job()).await, Verdict::Transient(_)));
    assert_eq!(dark.asked(), ["GET posts"]);
}

#[tokio::test]
async fn an_image_whose_upload_got_no_answer_is_found_and_not_uploaded_twice() {
    let media = json!({"id": 9, "slug": "pi-1", "source_url": "https://blog.example/1.gif"});
    let double = Double::says(vec![list(&json!([])), Said::Nothing, list(&json!([media]))]).await;
    let mut job = double.job();
    job.content.cover_url = Some(PIXEL.to_owned());
    assert!(matches!(double.connector.prepare(&job).await, Err(Verdict::Unknown(_))));
    let ready = double.connector.prepare(&job).await.unwrap();
    assert_eq!(ready.ready["cover"], 9);
    assert_eq!(double.asked(), ["GET media", "POST media", "GET media"]);
}

#[tokio::test]
async fn an_image_is_not_uploaded_when_it_is_not_known_whether_it_is_there() {
    let double = Double::says(vec![page(500)]).await;
    let mut job = double.job();
    job.content.cover_url = Some(PIXEL.to_owned());
    assert!(matches!(double.connector.prepare(&job).await, Err(Verdict::Transient(_))));
    assert_eq!(double.asked(), ["GET media"]);
}

#[tokio::test]
async fn an_image_that_is_left_out_is_a_warning() {
    let term = Said::This(201, r#"{"id":5}"#.to_owned());
    let double = Double::says(vec![term]).await;
    let mut job = double.job();
    job.content.tags = vec!["news".to_owned()];
    job.content.cover_url = Some("data:image/svg+xml,%3Csvg/%3E".to_owned());
    job.content.content_html = "<p>x<img src=ftp://h/a.png><img src=\"data:image/png,no\"></p>".to_owned();
    job.settings["images"] = json!("upload");
    let Err(Verdict::Rejected(failure)) = double.connector.prepare(&job).await else { panic!() };
    assert_eq!(failure.code, "cover_wrong_type");
    let double = Double::says(vec![Said::This(201, r#"{"id":5}"#.to_owned())]).await;
    job.settings = json!({"base_url": double.url, "images": "upload", "broken_images": "omit"});
    let prepared = double.connector.prepare(&job).await.unwrap();
    let told = prepared.warnings.iter().map(|why| &*why.code).collect::<Vec<_>>();
    assert_eq!((told, prepared.in_part), (vec!["cover_omitted", "image_omitted"], false));
    assert!(prepared.warnings[0].message.starts_with("left out: a data: image: SVG"), "{prepared:?}");
    assert_eq!(prepared.ready["content_html"], "<p>x<img src=\"ftp://h/a.png\"></p>");
    assert_eq!(prepared.ready["tags"], json!([5]));
}

#[tokio::test]
async fn what_there_is_no_time_for_is_made_ready_in_another_part() {
    let media = |id: u32| {
        let url = format!("https://blog.example/{id}.gif");
        list(&json!([{"id": id, "slug": "pi", "source_url": url}]))
    };
    let term = Said::This(201, r#"{"id":5}"#.to_owned());
    // Of fifteen seconds the tag takes four, and so does the first image.
    let double = Double::taking(vec![term, media(8), media(9), media(10)], Duration::from_secs(4)).await;
    let mut job = double.job();
    job.content.tags = vec!["news".to_owned()];
    job.content.content_html =
        ["a", "b", "c"].map(|n| format!("<img src=\"data:image/gif,GIF89a{n}\">")).concat();
    job.settings["images"] = json!("upload");
    let part = double.connector.prepare(&job).await.unwrap();
    assert!(part.in_part, "{part:?}");
    assert_eq!(double.asked(), ["POST tags", "GET media", "GET media"]);
    job.prepared = part.ready;
    job.until = double.clock.instant() + Duration::from_secs(15);
    let rest = double.connector.prepare(&job).await.unwrap();
    assert!(!rest.in_part);
    assert_eq!(double.asked()[3..], ["GET media"], "neither the tag nor what was moved is asked for again");
    assert_eq!((&rest.ready["tags"], &rest.ready["moved"]["addresses"]), (&json!([5]), &json!({})));
    let shown = [8, 9, 10].map(|id| format!("<img src=\"https://blog.example/{id}.gif\">")).concat();
    assert_eq!(rest.ready["content_html"], shown);
}

#[test]
fn a_user_needs_the_rights_of_an_author() {
    assert_eq!(
        rights(&json!({"capabilities": {"edit_posts": true, "publish_posts": true, "upload_files": true}})),
        Login::Works
    );
    let Login::Unfit(failure) =
        rights(&json!({"capabilities": {"edit_posts": true, "publish_posts": false}}))
    else {
        panic!()
    };
    assert!(failure.message.contains("(publish_posts, upload_files)"), "{failure:?}");
    assert!(matches!(rights(&json!([])), Login::Unfit(_)));
}
