//! Places for connections: so many for all, so many for one address.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio_util::sync::CancellationToken;

use super::progress::Progress;

/// What is known of a connection, by those who serve it and those who may end it.
#[derive(Debug, Clone)]
pub(super) struct Watch {
    progress: Arc<Mutex<Progress>>,
    leave: CancellationToken,
}

impl Watch {
    pub(super) fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request was broken off; whoever does so without end is shown out at once.
    pub(super) fn abandoned(&self, since: Option<Instant>, now: Instant) {
        if self.lock().abandoned(since, now) {
            self.leave.cancel();
        }
    }

    /// Waits until the connection is to be closed.
    pub(super) async fn shown_out(&self) {
        self.leave.cancelled().await;
    }
}

/// The places of a node; cheap to clone.
#[derive(Debug, Clone)]
pub struct Places {
    shared: Arc<Mutex<Taken>>,
    all: usize,
    per_address: usize,
}

#[derive(Debug, Default)]
struct Taken {
    /// In the order in which they were taken.
    seats: BTreeMap<u64, Occupied>,
    by_address: HashMap<IpAddr, usize>,
    next: u64,
}

#[derive(Debug)]
struct Occupied {
    address: IpAddr,
    watch: Watch,
}

/// A place that is taken, until it is dropped.
#[derive(Debug)]
pub(super) struct Seat {
    number: u64,
    watch: Watch,
    places: Places,
}

impl Places {
    /// So many places, and so many of them for one address.
    #[must_use]
    pub fn new(all: usize, per_address: usize) -> Self {
        Self { shared: Arc::default(), all, per_address }
    }

    /// A place; if none is free, that of the connection that was let in first and waits, one that was never served
    /// rather than another. None: all are at work.
    pub(super) fn take(&self, address: IpAddr, now: Instant) -> Option<Seat> {
        let address = network(address);
        let mut taken = self.lock();
        let of_address = taken.by_address.get(&address).copied().unwrap_or_default();
        if of_address >= self.per_address {
            taken.make_room(Some(address))?;
        } else if taken.seats.len() >= self.all {
            taken.make_room(None)?;
        }
        let progress = Arc::new(Mutex::new(Progress::new(now)));
        let watch = Watch { progress, leave: CancellationToken::new() };
        let number = taken.next;
        taken.next += 1;
        taken.seats.insert(number, Occupied { address, watch: watch.clone() });
        *taken.by_address.entry(address).or_default() += 1;
        Some(Seat { number, watch, places: self.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    /// Gives somebody's place away, of this address if one is named.
    fn make_room(&mut self, address: Option<IpAddr>) -> Option<()> {
        let mut second_best = None;
        let mut best = None;
        for (number, seat) in &self.seats {
            if address.is_some_and(|address| address != seat.address) {
                continue;
            }
            match seat.watch.lock().may_go() {
                Some(true) => {
                    best = Some(*number);
                    break;
                }
                Some(false) => second_best = second_best.or(Some(*number)),
                None => {}
            }
        }
        let gone = self.free(best.or(second_best)?)?;
        gone.watch.leave.cancel();
        Some(())
    }

    fn free(&mut self, number: u64) -> Option<Occupied> {
        let seat = self.seats.remove(&number)?;
        if let Some(count) = self.by_address.get_mut(&seat.address) {
            *count -= 1;
            if *count == 0 {
                self.by_address.remove(&seat.address);
            }
        }
        Some(seat)
    }
}

impl Seat {
    /// What is known of the connection.
    pub(super) fn watch(&self) -> Watch {
        self.watch.clone()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.places.lock().free(self.number);
    }
}

/// Who counts as one: an IPv4 address, or the /64 of an IPv6 one, of which everybody has 2^64 (RFC 6177 §2).
#[must_use]
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock as _, SystemClock};

    fn take(places: &Places, address: &str) -> Option<Seat> {
        places.take(address.parse().unwrap(), SystemClock.instant())
    }

    fn gone(seat: &Seat) -> bool {
        seat.watch.leave.is_cancelled()
    }

    /// The connection has been answered once, and waits.
    fn serve(seat: &Seat) {
        let now = SystemClock.instant();
        seat.watch.lock().request_begun(false);
        seat.watch.lock().answer_begun(now);
        seat.watch.lock().answered(now, now);
    }

    #[test]
    fn a_newcomer_gets_the_place_of_the_first_that_waits() {
        let places = Places::new(3, 3);
        let served = take(&places, "10.0.0.1").unwrap();
        serve(&served);
        let [silent, busy] = ["10.0.0.2", "10.0.0.3"].map(|address| take(&places, address).unwrap());
        busy.watch.lock().request_begun(false);
        let first = take(&places, "10.0.0.4").unwrap();
        assert_eq!([&served, &silent, &busy].map(gone), [false, true, false]);
        first.watch.lock().request_begun(false);
        // None is left that was never served.
        let second = take(&places, "10.0.0.4").unwrap();
        assert_eq!([&served, &busy, &first].map(gone), [true, false, false]);
        second.watch.lock().request_begun(false);
        assert!(take(&places, "10.0.0.5").is_none(), "all are at work");
        drop(busy);
        assert!(take(&places, "10.0.0.5").is_some());
        drop((served, silent, first, second));
        let taken = places.lock();
        assert!(taken.seats.is_empty() && taken.by_address.is_empty());
    }

    #[test]
    fn a_crowd_of_one_address_drives_out_its_own() {
        let places = Places::new(10, 2);
        let other = take(&places, "10.0.0.1").unwrap();
        let crowd =
            ["::ffff:10.0.0.2", "10.0.0.2", "10.0.0.2"].map(|address| take(&places, address).unwrap());
        assert!(!gone(&other));
        assert_eq!(crowd.each_ref().map(gone), [true, false, false]);
        for seat in &crowd[1..] {
            seat.watch.lock().request_begun(false);
        }
        assert!(take(&places, "10.0.0.2").is_none());
        assert!(take(&places, "10.0.0.3").is_some());
    }

    #[test]
    fn an_ipv6_network_is_one_address() {
        let places = Places::new(10, 1);
        let first = take(&places, "2001:db8:0:1::1").unwrap();
        let beside = take(&places, "2001:db8:0:2::1").unwrap();
        let second = take(&places, "2001:db8:0:1:ffff::2").unwrap();
        assert_eq!([&first, &beside, &second].map(gone), [true, false, false]);
    }
}
