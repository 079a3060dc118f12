//! How many requests are under way: each from its head until its answer was taken, since what waits to be taken is memory.

use std::collections::HashMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use crate::inbound::REQUESTS_MAX;

/// The most of them from one address: half, so that nobody has all; behind a proxy, all come from one.
const OF_ADDRESS_MAX: usize = REQUESTS_MAX / 2;

/// The requests under way of a node; cheap to clone.
#[derive(Clone, Default)]
pub(super) struct UnderWay(Arc<Mutex<Counts>>);

#[derive(Default)]
struct Counts {
    all: usize,
    by_address: HashMap<Option<IpAddr>, usize>,
}

/// The place of one of them, until it is dropped.
pub(super) struct Place {
    under_way: UnderWay,
    address: Option<IpAddr>,
}

impl UnderWay {
    /// A place; none if all are taken, or all that one address may have.
    pub(super) fn take(&self, address: Option<IpAddr>) -> Option<Place> {
        let mut counts = self.counts();
        let of_address = counts.by_address.get(&address).copied().unwrap_or_default();
        if counts.all >= REQUESTS_MAX || of_address >= OF_ADDRESS_MAX {
            return None;
        }
        counts.all += 1;
        counts.by_address.insert(address, of_address + 1);
        Some(Place { under_way: self.clone(), address })
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.under_way.counts();
        counts.all -= 1;
        if let Some(count) = counts.by_address.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.by_address.remove(&self.address);
            }
        }
    }
}

/// The body of an answer, which keeps its request's place until it was taken.
pub(super) struct Placed {
    pub(super) body: Body,
    pub(super) _place: Option<Place>,
}

impl HttpBody for Placed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_half_of_the_places_and_gives_them_back() {
        let under_way = UnderWay::default();
        let address = |last| Some(IpAddr::from([192, 0, 2, last]));
        let fill = |address| std::iter::from_fn(|| under_way.take(address)).collect::<Vec<_>>();
        let first = fill(address(1));
        assert_eq!(first.len(), OF_ADDRESS_MAX);
        let second = fill(address(2));
        assert_eq!(second.len(), OF_ADDRESS_MAX);
        assert!(under_way.take(address(3)).is_none(), "none is left");
        drop(first);
        assert!(under_way.take(address(3)).is_some() && under_way.take(address(2)).is_none());
        drop(second);
        assert!(under_way.counts().by_address.is_empty() && under_way.counts().all == 0);
    }
}
