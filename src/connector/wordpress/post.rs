//! The article itself: made as a draft, published by its id, removed while it is a draft.

use serde_json::{Map, Value, json};

use super::answers::Heard;
use super::call::{Body, Session};
use super::find::{FIELDS, Post, TRASH, in_trash, post};
use super::mark;
use super::prepare::Ready;
use crate::connector::{Failure, Job, Removal, Verdict};
use crate::outbound::Method;

/// Makes the draft, unless the article lies in the trash.
pub(super) async fn draft(session: &Session<'_>, job: &Job) -> Verdict {
    match in_trash(session, job).await {
        Ok(false) => {}
        Ok(true) => return Verdict::Rejected(thrown_away()),
        Err(heard) => return nothing_asked(heard),
    }
    let slug = mark::slug(&job.content.title, &job.marker);
    let body = body(job, &slug);
    let post = match session.send(Method::Post, "posts", &[("_fields", FIELDS)], Body::Json(&body)).await {
        Heard::Told(value) => match Post::of(&value) {
            Some(post) => post,
            None => return Verdict::Unknown("WordPress made something and does not say what".to_owned()),
        },
        heard => return heard.verdict(),
    };
    if let Some(remote) = post.public(&session.settings.base_url) {
        // A plugin that publishes what is only to be drafted.
        return Verdict::Done(remote);
    }
    if !post.carries(&slug, &job.marker) {
        return without_marks(session, post.id).await;
    }
    Verdict::Drafted(post.id.to_string())
}

/// What a look that failed means for a request that was not made yet: nothing was done.
fn nothing_asked(heard: Heard) -> Verdict {
    match heard.verdict() {
        Verdict::Unknown(why) => Verdict::Transient(Failure::new("platform_unavailable", why)),
        verdict => verdict,
    }
}

/// What is sent. Never a date: when it is published is decided here, and a date that lies ahead would schedule it.
fn body(job: &Job, slug: &str) -> Value {
    let content = &job.content;
    let ready = Ready::of(&job.prepared);
    let html = ready.content_html.as_ref().unwrap_or(&content.content_html);
    let mut body = Map::from_iter([
        ("status".to_owned(), json!("draft")),
        ("slug".to_owned(), json!(slug)),
        ("title".to_owned(), json!(mark::escaped(&content.title))),
        ("content".to_owned(), json!(mark::marked(html, &job.marker))),
        ("tags".to_owned(), json!(ready.tags)),
    ]);
    // Without one, `WordPress` puts it into the site's default category.
    if !ready.categories.is_empty() {
        body.insert("categories".to_owned(), json!(ready.categories));
    }
    if let Some(summary) = &content.summary {
        body.insert("excerpt".to_owned(), json!(mark::escaped(summary)));
    }
    if let Some(cover) = ready.cover {
        body.insert("featured_media".to_owned(), json!(cover));
    }
    Value::Object(body)
}

/// Takes back a draft that could not be found again.
async fn without_marks(session: &Session<'_>, id: u64) -> Verdict {
    let path = format!("posts/{id}");
    match session.send(Method::Delete, &path, &[("force", "true"), ("_fields", "deleted")], Body::None).await
    {
        Heard::Told(_) | Heard::Gone => {
            let message = "the site rewrites slugs and takes comments out of contents, so that an article could not be found again: \
                switch off the plugin that does either";
            Verdict::Rejected(Failure::new("marks_lost", message))
        }
        heard => Verdict::Unknown(heard.sentence()),
    }
}

/// Publishes the draft of that id: once more, if it is published already, which changes nothing.
pub(super) async fn publish(session: &Session<'_>, id: u64) -> Verdict {
    match post(session, id).await {
        Ok(None) => return Heard::Gone.verdict(),
        Ok(Some(post)) => {
            if let Some(remote) = post.public(&session.settings.base_url) {
                return Verdict::Done(remote);
            }
            if let Some(failure) = held(&post.status) {
                return Verdict::Rejected(failure);
            }
        }
        Err(heard) => return nothing_asked(heard),
    }
    let body = json!({"status": "publish"});
    let path = format!("posts/{id}");
    match session.send(Method::Post, &path, &[("_fields", FIELDS)], Body::Json(&body)).await {
        Heard::Told(value) => match Post::of(&value) {
            Some(post) => published(session, &post),
            None => Verdict::Unknown("WordPress does not say what became of the draft".to_owned()),
        },
        // An answer came, so whatever ran has ended: what it did is there to be seen.
        heard @ (Heard::Blocked(_) | Heard::Broke(_)) => ended(session, id, heard).await,
        heard => heard.verdict(),
    }
}

/// A post after it was to be published.
fn published(session: &Session<'_>, post: &Post) -> Verdict {
    match post.public(&session.settings.base_url) {
        Some(remote) => Verdict::Done(remote),
        None => Verdict::Rejected(held(&post.status).unwrap_or_else(|| not_published(&post.status))),
    }
}

/// What became of a request that something stopped, which may have been after it took effect.
async fn ended(session: &Session<'_>, id: u64, heard: Heard) -> Verdict {
    let Ok(Some(post)) = post(session, id).await else { return Verdict::Unknown(heard.sentence()) };
    match (post.public(&session.settings.base_url), heard) {
        (Some(remote), _) => Verdict::Done(remote),
        (None, Heard::Blocked(failure)) => Verdict::Rejected(failure),
        (None, heard) => Verdict::Transient(Failure::new("platform_error", heard.sentence())),
    }
}

/// Why a post that is not public is to stay so: what a person has decided is not overruled.
fn held(status: &str) -> Option<Failure> {
    let message = match status {
        "draft" | "auto-draft" | "pending" => return None,
        TRASH => return Some(thrown_away()),
        "future" => {
            "WordPress has scheduled the article, since its date lies ahead: publish it there, then retry"
                .to_owned()
        }
        other => {
            let other = other.chars().filter(char::is_ascii_alphanumeric).take(20).collect::<String>();
            format!("the article is `{other}` in WordPress: publish it there, then retry")
        }
    };
    Some(Failure::new("held_back", message))
}

fn thrown_away() -> Failure {
    let message = "the article is in the trash of WordPress: restore it, or delete it for good to have it made again, then retry";
    Failure::new("in_trash", message)
}

fn not_published(status: &str) -> Failure {
    let message = format!(
        "WordPress keeps the article as `{status}` although it was to be published: look for a plugin that holds back what comes by its REST API, then retry"
    );
    Failure::new("held_back", message)
}

/// Removes a draft of ours. Not what only carries the comment: that may be a copy that a person has made to write on. Nor
/// what a person threw away, scheduled or made private.
pub(super) async fn remove(session: &Session<'_>, job: &Job, id: u64) -> Removal {
    let found = match post(session, id).await {
        Ok(None) => return Removal::Gone,
        Ok(Some(post)) => post,
        Err(heard) => return Removal::Unknown(heard.sentence()),
    };
    match found.status.as_str() {
        "publish" => return Removal::Public,
        TRASH => return Removal::Gone,
        "draft" | "auto-draft" | "pending" => {}
        _ => {
            return Removal::Unknown(
                "somebody has scheduled it or made it private: it is left alone".to_owned(),
            );
        }
    }
    if !mark::is_slug(&found.slug, &mark::slug(&job.content.title, &job.marker)) {
        let why = "its slug is not ours any more, so it may be a person's copy: it is left alone";
        return Removal::Unknown(why.to_owned());
    }
    let path = format!("posts/{id}");
    match session.send(Method::Delete, &path, &[("force", "true"), ("_fields", "deleted")], Body::None).await
    {
        Heard::Told(_) | Heard::Gone => Removal::Gone,
        heard => Removal::Unknown(heard.sentence()),
    }
}
