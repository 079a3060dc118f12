//! Images of an article: fetched from where the author keeps them, judged, handed to a platform, and shown from there.
//!
//! An image is fetched by the guarded client, as everything that a tenant names: a refused address is refused here, too,
//! and no redirect is followed. It is taken by what its content begins with ([`Kind`]), and never decoded, so no image can
//! unfold to more than its bytes. It is uploaded under a name of ours ([`Image::file_name`]) with the type of its content:
//! what else a file holds, it is shown as an image.
//!
//! [`Media::transfer`] does it for a whole article, before anything of it is sent, in as many parts as it takes: each address
//! is fetched once, each content uploaded once in a run. That it is uploaded once over several runs is the connector's affair: it looks for
//! [`Image::sha256`] on the platform before it uploads.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::Failure;
use super::fragment::TooComplex;
use crate::article::Content;
use crate::clock::SharedClock;
use crate::outbound::Client;

mod fetch;
mod html;
mod kind;
mod moving;
mod plan;
#[cfg(test)]
mod tests;

pub use fetch::MediaError;
pub use kind::{Kind, NotTaken};
pub use moving::Moved;
pub use plan::{Broken, IMAGES_MAX, Images, Role, Rules, SETTINGS, check_settings, settings_schema};

use fetch::Fetched;
use html::Fate;
use moving::Moving;
use plan::planned;

/// The largest image, in bytes: a photograph for the web has a tenth of it. WordPress takes what PHP takes
/// (`upload_max_filesize`: 2 MiB unless raised, as hosts do; <https://developer.wordpress.org/reference/functions/wp_max_upload_size/>),
/// Ghost leaves it to the web server before it (50 MB as Ghost-CLI sets up nginx). Few sites would take more than this.
pub const IMAGE_MAX_BYTES: usize = IMAGE_MAX_KIB * 1024;

const IMAGE_MAX_KIB: usize = 10 * 1024;

/// How long fetching one image may take, all of it: the largest one at 1 MiB/s.
pub const IMAGE_DEADLINE: Duration = Duration::from_secs(10);

/// The room for images in memory on one node, in images of the largest size, 80 MiB: one that is fetched takes as much, for
/// nobody knows how large it will be, and what it is in truth until it is uploaded. A growing buffer and the copies that are
/// sent make it three times as much at worst. Eight keep a line of 100 Mbit/s busy, and two articles at their full pace;
/// were there more, a small machine could not hold them.
const IMAGES_AT_ONCE: usize = 8;

/// Articles parsed at once on one node: one of 2 MiB can take 100 MB meanwhile.
const PARSED_AT_ONCE: usize = 4;

/// An image whose bytes are here.
#[derive(Clone, PartialEq, Eq)]
pub struct Image {
    /// All of it, 1 to [`IMAGE_MAX_BYTES`].
    pub bytes: Vec<u8>,
    /// What it is, by its content.
    pub kind: Kind,
    /// SHA-256 of the bytes, 64 lower-case hexadecimal digits.
    pub sha256: String,
}

impl Image {
    /// Judges what was fetched.
    pub fn of(bytes: Vec<u8>) -> Result<Self, NotTaken> {
        let kind = Kind::of(&bytes)?;
        let mut sha256 = String::with_capacity(64);
        for byte in Sha256::digest(&bytes) {
            sha256.extend(
                [byte >> 4, byte & 15].map(|half| char::from(b"0123456789abcdef"[usize::from(half)])),
            );
        }
        Ok(Self { bytes, kind, sha256 })
    }

    /// A name for it that says nothing but its content: the hash, and the extension of its kind. What a URL calls it
    /// (`image.php`, `index.html`) could be taken for something to run.
    #[must_use]
    pub fn file_name(&self) -> String {
        format!("{}.{}", self.sha256, self.kind.extension())
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Image({} bytes, {})", self.bytes.len(), self.file_name())
    }
}

/// Where an image stands on a platform after its upload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    /// The public URL.
    pub url: String,
    /// The platform's own id of it, where it gives one.
    pub remote_id: Option<String>,
}

/// What puts images on a platform.
pub trait Uploader: Send {
    /// Why a call for an upload came to nothing; it ends the transfer.
    type Error;

    /// Makes sure that the image is on the platform, and says where. The image is dropped with the call.
    fn upload(&mut self, image: Image)
    -> impl Future<Output = Result<Placed, NotPlaced<Self::Error>>> + Send;
}

/// Why an upload placed nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotPlaced<E> {
    /// The platform does not take this image, and never will: it counts as broken. The text follows the image's name and
    /// a colon, says why, and what to do.
    Refused(String),
    /// Anything else; it ends the transfer.
    Failed(E),
}

/// Why a transfer ended. Nothing of the article itself was sent; images may have been uploaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransferError<E> {
    /// It would end the same another time.
    Broken(Failure),
    /// Another time it may succeed.
    Transient(Failure),
    /// An upload failed.
    Upload(E),
}

impl<E> From<MediaError> for TransferError<E> {
    fn from(error: MediaError) -> Self {
        match error {
            MediaError::Broken(failure) => Self::Broken(failure),
            MediaError::Transient(failure) => Self::Transient(failure),
        }
    }
}

/// An article whose images are on the platform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transferred {
    /// The text that shows them from there; as it was, to the byte, if none was moved or left out.
    pub content_html: String,
    /// The cover on the platform; none: there is none, it was to be kept where it is, or it was left out.
    pub cover: Option<Placed>,
    /// Why images were left out, one entry for each: warnings for the tenant.
    pub left_out: Vec<Failure>,
}

/// Moves images. Clones share their limits, so that one node has one of it.
#[derive(Clone)]
pub struct Media {
    client: Client,
    clock: SharedClock,
    /// In KiB.
    room: Arc<Semaphore>,
    parses: Arc<Semaphore>,
}

impl Media {
    /// Fetches by `client`.
    #[must_use]
    pub fn new(client: Client, clock: SharedClock) -> Self {
        let (room, parses) = (Semaphore::new(IMAGES_AT_ONCE * IMAGE_MAX_KIB), Semaphore::new(PARSED_AT_ONCE));
        Self { client, clock, room: Arc::new(room), parses: Arc::new(parses) }
    }

    /// Moves the images that `rules` want moved: a few are fetched beside each other, and `uploader` gets them one after
    /// the other in their order, each content once, and says where it stands. Nothing is begun shortly before `until`, and no
    /// fetch goes on beyond it; the uploads keep to it by themselves.
    ///
    /// What was moved stands in `moved`, and is not moved again. `None`: the time did not suffice for all, and some were
    /// moved; to be called again with what is in `moved` then. Where none was, it ends as transient.
    ///
    /// The first image that fails ends it, but one that is broken for good is left out where the rules say so.
    pub async fn transfer<U: Uploader>(
        &self,
        content: &Content,
        rules: Rules,
        until: Instant,
        moved: &mut Moved,
        uploader: &mut U,
    ) -> Result<Option<Transferred>, TransferError<U::Error>> {
        let in_text = match rules.body {
            Images::Upload => {
                let html = content.content_html.clone();
                self.parse(move || html::addresses(&html)).await?
            }
            Images::Keep => Vec::new(),
        };
        let wanted = planned(rules, content.cover_url.as_deref(), in_text).map_err(TransferError::Broken)?;
        if !Moving::new(self, until, moved, uploader).all(&wanted, rules.broken).await? {
            return Ok(None);
        }
        let (mut cover, mut left_out, mut fates) = (None, Vec::new(), BTreeMap::new());
        for one in wanted {
            let fate = match moved.fate(&one.address) {
                Some(Ok(placed)) => {
                    cover = (one.role == Role::Cover).then(|| placed.clone()).or(cover);
                    Fate::Moved(placed.url.clone())
                }
                Some(Err(why)) => {
                    left_out.push(why.clone());
                    Fate::Gone
                }
                None => continue,
            };
            fates.insert(one.address, fate);
        }
        let html = content.content_html.clone();
        let content_html = if rules.body == Images::Upload && !fates.is_empty() {
            self.parse(move || html::rewritten(&html, &fates)).await?
        } else {
            html
        };
        Ok(Some(Transferred { content_html, cover, left_out }))
    }

    /// Parses off the runtime's threads.
    async fn parse<T, F>(&self, work: F) -> Result<T, MediaError>
    where
        T: Send + 'static,
        F: FnOnce() -> Result<T, TooComplex> + Send + 'static,
    {
        // Never closed; if it were, parsing without it would still be right.
        let permit = self.parses.clone().acquire_owned().await;
        let parsed = spawn_blocking(move || {
            // Held until it is parsed: what a caller no longer waits for takes its time all the same.
            let _permit = permit;
            work()
        });
        match parsed.await {
            Ok(Ok(parsed)) => Ok(parsed),
            Ok(Err(why)) => Err(MediaError::Broken(Failure::new("content_too_complex", why.to_string()))),
            // The same text would end the same.
            Err(panic) => Err(MediaError::Broken(Failure::new("unrenderable", panic.to_string()))),
        }
    }
}
