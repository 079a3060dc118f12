//! What an article needs before it is made: its tags, its categories, its images.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::account::IMAGES_UNSET;
use super::answers::{Heard, number};
use super::call::{Body, Session};
use super::mark;
use crate::article::is_http_url;
use crate::connector::media::{
    Image, Images, Media, Moved, NotPlaced, Placed, Rules, TransferError, Uploader,
};
use crate::connector::{Failure, Job, Prepared, Verdict};
use crate::outbound::Method;

/// How many digits of an image's hash stand in its slug: 128 bits.
const HASH_DIGITS: usize = 32;

/// What is ready.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Ready {
    /// Whether tags and categories are.
    terms: bool,
    /// Ids of tags.
    pub(super) tags: Vec<u64>,
    /// Ids of categories.
    pub(super) categories: Vec<u64>,
    /// The id of the cover.
    pub(super) cover: Option<u64>,
    /// The text, where its images were moved.
    pub(super) content_html: Option<String>,
    /// The images that were moved, while others are left.
    moved: Moved,
}

impl Ready {
    /// Reads what [`prepare`] has written.
    pub(super) fn of(prepared: &Value) -> Self {
        serde_json::from_value(prepared.clone()).unwrap_or_default()
    }
}

/// The images that are being uploaded by this node, so that articles of one batch do not each upload their common cover.
#[derive(Clone, Default)]
pub(super) struct Uploads(Arc<Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>>);

impl Uploads {
    /// The turn of one image on one site.
    fn turn(&self, key: String) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Only those are kept that somebody waits for, or holds.
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        turns.entry(key).or_default().clone()
    }
}

/// What an account wants of an article's images: a cover is a file of the site's own here.
fn rules(settings: &Value) -> Rules {
    Rules { cover: Images::Upload, ..Rules::of(settings, IMAGES_UNSET) }
}

/// Whether there is anything to be made ready.
pub(super) fn needed(job: &Job) -> bool {
    let categories =
        job.settings.get("categories").and_then(Value::as_array).is_some_and(|all| !all.is_empty());
    let content = &job.content;
    let images = rules(&job.settings).body == Images::Upload || content.cover_url.is_some();
    categories || images || !content.tags.is_empty()
}

/// Makes it ready: first what costs little, and fails where the user's rights do not suffice.
pub(super) async fn prepare(
    session: &Session<'_>,
    media: &Media,
    uploads: &Uploads,
    job: &Job,
) -> Result<Prepared, Verdict> {
    let mut ready = Ready::of(&job.prepared);
    if !ready.terms {
        for name in &session.settings.categories {
            ready.categories.push(category(session, name).await.map_err(|heard| term_verdict(heard, name))?);
        }
        for name in &job.content.tags {
            ready.tags.push(made(session, "tags", name).await.map_err(|heard| term_verdict(heard, name))?);
        }
        ready.terms = true;
    }
    let (mut in_part, mut warnings) = (false, Vec::new());
    let rules = rules(&job.settings);
    if job.content.cover_url.is_some() || rules.body == Images::Upload {
        let mut shelf = Shelf { session, uploads };
        let moved = media.transfer(&job.content, rules, job.until, &mut ready.moved, &mut shelf).await;
        let moved = moved.map_err(|error| match error {
            TransferError::Broken(failure) => Verdict::Rejected(failure),
            TransferError::Transient(failure) => Verdict::Transient(failure),
            TransferError::Upload(verdict) => verdict,
        })?;
        match moved {
            Some(moved) => {
                ready.moved = Moved::default();
                ready.cover = moved.cover.and_then(|cover| cover.remote_id?.parse().ok());
                ready.content_html =
                    (moved.content_html != job.content.content_html).then_some(moved.content_html);
                warnings = moved.left_out;
            }
            None => in_part = true,
        }
    }
    serde_json::to_value(ready)
        .map(|ready| Prepared { ready, in_part, warnings })
        .map_err(|error| Verdict::Rejected(Failure::new("unrenderable", error.to_string())))
}

/// The id of a category, which is looked for first: who may not make categories can still use those that are there.
async fn category(session: &Session<'_>, name: &str) -> Result<u64, Heard> {
    // Names are stored as HTML, and searched so.
    let stored = mark::escaped(name);
    let query = [("search", stored.as_str()), ("per_page", "100"), ("_fields", "id,name")];
    let found = match session.list("categories", &query).await.0 {
        Heard::Told(Value::Array(found)) => found,
        Heard::Told(_) => Vec::new(),
        heard => return Err(heard),
    };
    let same =
        |one: &&Value| one.get("name").and_then(Value::as_str).is_some_and(|name| same_name(name, &stored));
    match found.iter().find(same).and_then(|one| number(one.get("id")?)) {
        Some(id) => Ok(id),
        None => made(session, "categories", name).await,
    }
}

/// As the database compares them, for letters that have a case.
fn same_name(one: &str, other: &str) -> bool {
    one.to_lowercase() == other.to_lowercase()
}

/// The id of a term, made if it is not there: that one of the name exists is as good an answer.
async fn made(session: &Session<'_>, taxonomy: &str, name: &str) -> Result<u64, Heard> {
    let body = json!({"name": mark::escaped(name)});
    match session.send(Method::Post, taxonomy, &[("_fields", "id")], Body::Json(&body)).await {
        Heard::Told(term) => {
            let id = term.get("id").and_then(number);
            id.ok_or_else(|| Heard::Unclear("WordPress made a term and does not say which".to_owned()))
        }
        Heard::TermExists(id) => Ok(id),
        heard => Err(heard),
    }
}

fn term_verdict(heard: Heard, name: &str) -> Verdict {
    match heard {
        Heard::Denied(_) => {
            let message = format!(
                "the account's user may not make the tag or category {name:?} in WordPress: make it there, or give the user the role Editor"
            );
            Verdict::Rejected(Failure::new("not_permitted", message))
        }
        heard => heard.verdict(),
    }
}

/// Puts images into the site's media.
struct Shelf<'a, 'b> {
    session: &'a Session<'b>,
    uploads: &'a Uploads,
}

impl Uploader for Shelf<'_, '_> {
    type Error = Verdict;

    async fn upload(&mut self, image: Image) -> Result<Placed, NotPlaced<Verdict>> {
        let slug = format!("pi-{}", &image.sha256[..HASH_DIGITS]);
        let turn = self.uploads.turn(format!("{} {slug}", self.session.settings.base_url));
        let _turn = turn.lock().await;
        match self.found(&slug).await? {
            Some(placed) => Ok(placed),
            None => self.sent(&slug, image).await,
        }
    }
}

impl Shelf<'_, '_> {
    /// The same image, uploaded before: also by a request whose answer was lost.
    async fn found(&self, slug: &str) -> Result<Option<Placed>, NotPlaced<Verdict>> {
        let query = [("slug", slug), ("_fields", "id,slug,source_url"), ("orderby", "id"), ("order", "asc")];
        match self.session.list("media", &query).await.0 {
            Heard::Told(Value::Array(found)) => Ok(found.iter().find_map(placed)),
            // Whether it is there is not known, and nothing was done.
            Heard::Told(_) | Heard::Broke(_) | Heard::Unclear(_) | Heard::NoApi(_) => {
                let message = "WordPress does not list its media; it is tried again";
                Err(NotPlaced::Failed(Verdict::Transient(Failure::new("platform_unavailable", message))))
            }
            heard => Err(NotPlaced::Failed(heard.verdict())),
        }
    }

    async fn sent(&self, slug: &str, image: Image) -> Result<Placed, NotPlaced<Verdict>> {
        let query = [("slug", slug), ("title", slug), ("_fields", "id,slug,source_url")];
        let name = image.file_name();
        let body = Body::File(image.bytes, image.kind.mime(), name);
        match self.session.send(Method::Post, "media", &query, body).await {
            Heard::Told(media) => placed(&media).ok_or_else(|| {
                NotPlaced::Failed(Verdict::Unknown(
                    "WordPress took an image and does not say where".to_owned(),
                ))
            }),
            Heard::FileRefused(why) => Err(NotPlaced::Refused(why)),
            Heard::Denied(_) => {
                let message =
                    "the account's user may not upload files to WordPress: give it the role Author or Editor";
                Err(NotPlaced::Failed(Verdict::Rejected(Failure::new("not_permitted", message))))
            }
            heard => Err(NotPlaced::Failed(heard.verdict())),
        }
    }
}

fn placed(media: &Value) -> Option<Placed> {
    let url = media.get("source_url")?.as_str().filter(|url| is_http_url(url))?;
    Some(Placed { url: url.to_owned(), remote_id: Some(number(media.get("id")?)?.to_string()) })
}
