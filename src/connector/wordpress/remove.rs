//! Removing a draft that nobody needs, for good: past the trash, or what is made again later would be taken for thrown away.
//!
//! Only what is seen, by its id, to carry this article's marks and to be as it was made: whatever a person has written,
//! moved or renamed is theirs. In doubt it stays, and the reason says why.

use super::answers::{Heard, number};
use super::call::{Body, Session};
use super::find::{Post, REMOVAL_FIELDS, TRASH, post};
use super::mark;
use crate::connector::marks::Whose;
use crate::connector::{Job, Removal};
use crate::outbound::Method;

/// Removes the draft of that id.
pub(super) async fn remove(session: &Session<'_>, job: &Job, id: u64) -> Removal {
    let found = match post(session, id, REMOVAL_FIELDS).await {
        Ok(None) => return Removal::Gone,
        Ok(Some(post)) => post,
        Err(heard) => return Removal::Unknown(heard.sentence()),
    };
    match found.status.as_str() {
        "publish" if found.whose(job) == Whose::Ours => return Removal::Public,
        TRASH => return Removal::Gone,
        _ => {}
    }
    if let Some(why) = touched(&found, job) {
        return Removal::Unknown(left(why));
    }
    let user = match session.send(Method::Get, "users/me", &[("_fields", "id")], Body::None).await {
        Heard::Told(user) => user.get("id").and_then(number),
        heard => return Removal::Unknown(heard.sentence()),
    };
    if user.is_none() || found.author != user {
        return Removal::Unknown(left("its author is not the account's user"));
    }
    let path = format!("posts/{id}");
    match session.send(Method::Delete, &path, &[("force", "true"), ("_fields", "deleted")], Body::None).await
    {
        Heard::Told(_) | Heard::Gone => Removal::Gone,
        heard => Removal::Unknown(heard.sentence()),
    }
}

fn left(why: &str) -> String {
    format!(
        "{why}, so it may be a person's work: it is left alone, delete it in WordPress if nobody needs it"
    )
}

/// Why a post may be more than the draft that was made; none: it is that draft. Dates do not tell: `WordPress` gives a draft
/// a new date whenever it is saved.
fn touched(post: &Post, job: &Job) -> Option<&'static str> {
    let ours = mark::is_slug(&post.slug, &mark::slug(&job.content.title, &job.marker));
    let summary = job.content.summary.as_deref().unwrap_or_default();
    let summary_is_ours =
        post.excerpt.trim() == mark::escaped(summary).trim() || post.excerpt.trim() == summary.trim();
    match post.status.as_str() {
        "draft" if !ours || post.whose(job) != Whose::Ours => Some("its slug is not ours any more"),
        "draft" if post.revisions.is_some_and(|saved| saved > 0) => Some("it was saved again in WordPress"),
        "draft" if !post.reads_as_sent(job) || !summary_is_ours => Some("it does not read as it was sent"),
        "draft" => None,
        _ => Some("somebody has made something else of it than a draft"),
    }
}
