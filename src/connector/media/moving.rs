//! The images of one article on their way.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::plan::{Broken, Wanted, without};
use super::{
    Fetched, IMAGE_MAX_KIB, Image, Media, MediaError, NotPlaced, Placed, TransferError, Uploader, fetch,
};
use crate::connector::Failure;

/// Images of one article that are fetched, or wait for their upload, beside each other: what browsers do at a host, and no
/// host takes for an attack. More would only wait, for uploads follow one another.
const BESIDE_MAX: usize = 4;

/// What is kept of the time for the upload that is begun last, as a part of it, until it is known how long one takes.
const KEPT: u32 = 5;

/// What has become of an article's images so far. A connector keeps it between the parts of a transfer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// By address; the error: why it is left out.
    addresses: BTreeMap<String, Result<Placed, Failure>>,
    /// By hash; the error: why the platform refuses it.
    contents: BTreeMap<String, Result<Placed, String>>,
}

impl Moved {
    /// What became of the image at an address.
    pub(super) fn fate(&self, address: &str) -> Option<&Result<Placed, Failure>> {
        self.addresses.get(address)
    }
}

/// A part of a transfer.
pub(super) struct Moving<'a, U> {
    media: &'a Media,
    until: Instant,
    moved: &'a mut Moved,
    uploader: &'a mut U,
    /// Nothing is begun when less than this is left: as long as the slowest upload took, so that one that is begun ends.
    kept: Duration,
}

impl<'a, U: Uploader> Moving<'a, U> {
    pub(super) fn new(media: &'a Media, until: Instant, moved: &'a mut Moved, uploader: &'a mut U) -> Self {
        let kept = until.saturating_duration_since(media.clock.instant()) / KEPT;
        Self { media, until, moved, uploader, kept }
    }

    /// Moves them; false if some are left for another part.
    pub(super) async fn all(
        &mut self,
        wanted: &[Wanted],
        broken: Broken,
    ) -> Result<bool, TransferError<U::Error>> {
        let before = self.moved.addresses.len();
        let to_move = wanted.iter().filter(|one| self.moved.fate(&one.address).is_none());
        let mut ahead = to_move.cloned().collect::<VecDeque<_>>();
        let mut in_hand = VecDeque::new();
        loop {
            while in_hand.len() < BESIDE_MAX && !self.left().is_zero() && !ahead.is_empty() {
                let Some(room) = self.room(in_hand.is_empty()).await else { break };
                in_hand.extend(ahead.pop_front().map(|one| (self.begun(one.clone(), room), one)));
            }
            let Some((fetching, one)) = in_hand.pop_front() else { break };
            let left = self.left();
            let Ok(fetched) = timeout(left, fetching).await else { break };
            if left.is_zero() {
                break;
            }
            let gone_wrong = |_| {
                let message = format!(
                    "{}: it could not be read: report this to the operator",
                    fetch::shown(&one.address)
                );
                Err(MediaError::Transient(one.role.failure("unavailable", message)))
            };
            let placed = match fetched.unwrap_or_else(gone_wrong).map_err(TransferError::from) {
                // Its room is kept until it is uploaded and gone.
                Ok((image, _room)) => self.placed(&one, image).await,
                Err(error) => Err(error),
            };
            let fate = match placed {
                Ok(placed) => Ok(placed),
                Err(TransferError::Broken(why)) => {
                    Err(without(broken, one.role, why).map_err(TransferError::Broken)?)
                }
                Err(other) => return Err(other),
            };
            self.moved.addresses.insert(one.address, fate);
        }
        match wanted.iter().find(|one| self.moved.fate(&one.address).is_none()) {
            None => Ok(true),
            Some(_) if self.moved.addresses.len() > before => Ok(false),
            Some(one) => {
                let why = "there was no time left to fetch it; it is tried again by the retry schedule";
                let message = format!("{}: {why}", fetch::shown(&one.address));
                Err(TransferError::Transient(one.role.failure("unavailable", message)))
            }
        }
    }

    /// How long something may still be begun.
    fn left(&self) -> Duration {
        self.until.saturating_duration_since(self.media.clock.instant()).saturating_sub(self.kept)
    }

    /// Room for one image. Only an article that has none in hand waits for it: where the node is busy, each article moves one
    /// image at a time, and none holds the others up.
    async fn room(&self, waits: bool) -> Option<OwnedSemaphorePermit> {
        let (room, kib) = (self.media.room.clone(), u32::try_from(IMAGE_MAX_KIB).unwrap_or(u32::MAX));
        if waits {
            return timeout(self.left(), room.acquire_many_owned(kib)).await.ok()?.ok();
        }
        room.try_acquire_many_owned(kib).ok()
    }

    /// A fetch that goes on while another image is uploaded, and ends with the transfer.
    fn begun(
        &self,
        one: Wanted,
        room: OwnedSemaphorePermit,
    ) -> AbortOnDropHandle<Result<Fetched, MediaError>> {
        let media = self.media.clone();
        AbortOnDropHandle::new(tokio::spawn(async move { media.in_hand(&one, room).await }))
    }

    async fn placed(&mut self, one: &Wanted, image: Image) -> Result<Placed, TransferError<U::Error>> {
        let hash = image.sha256.clone();
        let outcome = if let Some(known) = self.moved.contents.get(&hash) {
            known.clone()
        } else {
            let begun = self.media.clock.instant();
            let uploaded = match self.uploader.upload(image).await {
                Ok(placed) => Ok(placed),
                Err(NotPlaced::Refused(why)) => Err(why),
                Err(NotPlaced::Failed(error)) => return Err(TransferError::Upload(error)),
            };
            self.kept = self.kept.max(self.media.clock.instant().duration_since(begun));
            uploaded
        };
        self.moved.contents.insert(hash, outcome.clone());
        outcome.map_err(|why| {
            let message = format!("{}: {why}", fetch::shown(&one.address));
            TransferError::Broken(one.role.failure("refused", message))
        })
    }
}
