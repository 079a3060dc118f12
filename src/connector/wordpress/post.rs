//! The article itself: made as a draft, and published by its id.
//!
//! An answer counts only where it shows the post that was asked for with this article's mark: answers are swapped, cached
//! and reordered on their way. All else is looked for.

use serde_json::{Map, Value, json};

use super::answers::Heard;
use super::call::{Body, Session};
use super::find::{FIELDS, Post, TRASH, in_trash, post, unmarked};
use super::mark;
use super::prepare::Ready;
use crate::connector::marks::Whose;
use crate::connector::{Failure, Job, Verdict};
use crate::outbound::Method;

/// Makes the draft, unless the article lies in the trash.
pub(super) async fn draft(session: &Session<'_>, job: &Job) -> Verdict {
    match in_trash(session, job).await {
        Ok(false) => {}
        Ok(true) => return Verdict::Rejected(thrown_away()),
        Err(heard) => return nothing_asked(heard),
    }
    let body = body(job, &mark::slug(&job.content.title, &job.marker));
    match session.send(Method::Post, "posts", &[("_fields", FIELDS)], Body::Json(&body)).await {
        Heard::Told(value) => match Post::of(&value) {
            Some(post) if post.whose(job) == Whose::Ours => standing(session, &post),
            Some(post) => read_back(session, job, post.id).await,
            None => {
                let why = "WordPress made something and does not say what";
                unreadable(session, job, Heard::Unclear(why.to_owned())).await
            }
        },
        heard @ (Heard::Broke(_) | Heard::Unclear(_)) => unreadable(session, job, heard).await,
        heard => heard.verdict(),
    }
}

/// A post that was just made: a plugin may publish what is only to be drafted.
fn standing(session: &Session<'_>, post: &Post) -> Verdict {
    match post.public(&session.settings.base_url) {
        Some(remote) => Verdict::Done(remote),
        None => Verdict::Drafted(post.id.to_string()),
    }
}

/// What stands at an id that the answer to a create named without this article's mark. Nothing is removed there: what
/// carries no mark may be anybody's.
async fn read_back(session: &Session<'_>, job: &Job, id: u64) -> Verdict {
    match post(session, id, FIELDS).await {
        Ok(Some(post)) if post.whose(job) == Whose::Ours => standing(session, &post),
        Ok(Some(post)) if post.is_of(job) => match post.public(&session.settings.base_url) {
            // Made once more, it would be there twice.
            Some(remote) => Verdict::Done(remote),
            None => Verdict::Rejected(marks_lost(id)),
        },
        _ => Verdict::Unknown(format!(
            "WordPress answered with post {id}, which does not carry this article's mark: it is looked for"
        )),
    }
}

/// What an answer that cannot be read leaves to be known: where the site takes both marks away, no look finds what was made,
/// and each try would make another.
async fn unreadable(session: &Session<'_>, job: &Job, heard: Heard) -> Verdict {
    match unmarked(session, job).await {
        Some(post) => Verdict::Rejected(marks_lost(post.id)),
        None => heard.verdict(),
    }
}

fn marks_lost(id: u64) -> Failure {
    let message = format!(
        "the site rewrites slugs and takes comments out of contents, so that an article cannot be found again: switch off the \
         plugin that does either, delete post {id}, which was made of this one, then retry"
    );
    Failure::new("marks_lost", message)
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

/// Publishes the draft of that id: once more, if it is published already, which changes nothing.
pub(super) async fn publish(session: &Session<'_>, job: &Job, id: u64) -> Verdict {
    match post(session, id, FIELDS).await {
        Ok(None) => return Heard::Gone.verdict(),
        Ok(Some(post)) => {
            if !post.is_of(job) {
                let message =
                    format!("post {id} in WordPress is not this article's any more: it is looked for");
                return Verdict::Transient(Failure::new("draft_vanished", message));
            }
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
        Heard::Told(value) => match Post::of(&value).filter(|post| post.id == id && may_be_of(post, job)) {
            Some(answered) => match answered.public(&session.settings.base_url) {
                Some(remote) => Verdict::Done(remote),
                None => not_public(session, job, id).await,
            },
            None => Verdict::Unknown("WordPress does not say what became of the draft".to_owned()),
        },
        // An answer came, so whatever ran has ended: what it did is there to be seen.
        heard @ (Heard::Blocked(_) | Heard::Broke(_)) => ended(session, job, id, heard).await,
        heard => heard.verdict(),
    }
}

/// Whether a post of an id that was the article's a moment ago still can be: a plugin may take its marks as it publishes it.
fn may_be_of(post: &Post, job: &Job) -> bool {
    matches!(post.whose(job), Whose::Ours | Whose::Nobodys)
}

/// What became of a draft whose publication was answered with a post that is not public: the answer may be older than what
/// it answers, so only what is read afterwards, and was changed by somebody, is held back.
async fn not_public(session: &Session<'_>, job: &Job, id: u64) -> Verdict {
    let post = match post(session, id, FIELDS).await {
        Ok(Some(post)) if may_be_of(&post, job) => post,
        _ => {
            return Verdict::Unknown(
                "WordPress answered, and does not show the article as published".to_owned(),
            );
        }
    };
    match (post.public(&session.settings.base_url), post.status.as_str()) {
        (Some(remote), _) => Verdict::Done(remote),
        (None, status @ ("draft" | "auto-draft")) => Verdict::Unknown(not_published(status).message),
        (None, status) => Verdict::Rejected(held(status).unwrap_or_else(|| not_published(status))),
    }
}

/// What became of a request that something stopped, which may have been after it took effect.
async fn ended(session: &Session<'_>, job: &Job, id: u64, heard: Heard) -> Verdict {
    let post = match post(session, id, FIELDS).await {
        Ok(Some(post)) if may_be_of(&post, job) => post,
        _ => return Verdict::Unknown(heard.sentence()),
    };
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
