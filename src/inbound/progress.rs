//! Whether a connection gets on: pure, told of what happens and when.

use std::collections::VecDeque;
use std::time::Instant;

use super::limits::{ABANDONED_MAX, Limits};

/// How far a connection is with what it sends and with what it takes.
#[derive(Debug)]
pub struct Progress {
    /// HTTP/2: requests beside each other, and bytes that belong to none.
    multiplexed: bool,
    /// Whether a request has been answered on it.
    served: bool,
    /// Since when no request is under way.
    waiting_since: Instant,
    /// When the first byte of the next head came.
    head_since: Option<Instant>,
    /// Requests that a handler has, or whose answer is being sent.
    under_way: usize,
    /// Of these, since when the answers are being sent that are, the oldest first: an answer that gets through says nothing
    /// of those that do not.
    answering_since: VecDeque<Instant>,
    /// How many more requests may be broken off.
    patience: u32,
}

impl Progress {
    /// A connection that was opened now.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self {
            multiplexed: false,
            served: false,
            waiting_since: now,
            head_since: None,
            under_way: 0,
            answering_since: VecDeque::new(),
            patience: ABANDONED_MAX,
        }
    }

    /// Bytes have come.
    pub fn received(&mut self, now: Instant) {
        // Over HTTP/2, bytes between requests may be a PING.
        if self.under_way == 0 && !self.multiplexed {
            self.head_since.get_or_insert(now);
        }
    }

    /// The head of a request is complete.
    pub fn request_begun(&mut self, multiplexed: bool) {
        self.multiplexed = multiplexed;
        self.head_since = None;
        self.under_way += 1;
    }

    /// Its answer is being sent.
    pub fn answer_begun(&mut self, now: Instant) {
        self.answering_since.push_back(now);
    }

    /// Its answer, begun `since` then, has been sent.
    pub fn answered(&mut self, since: Instant, now: Instant) {
        self.served = true;
        self.patience = (self.patience + 1).min(ABANDONED_MAX);
        self.forget(since);
        self.ended(now);
    }

    /// It was broken off before there was an answer, or in the middle of one that was begun `since` then; whether that was
    /// once too often.
    pub fn abandoned(&mut self, since: Option<Instant>, now: Instant) -> bool {
        self.patience = self.patience.saturating_sub(1);
        if let Some(since) = since {
            self.forget(since);
        }
        self.ended(now);
        self.patience == 0
    }

    fn forget(&mut self, since: Instant) {
        if let Some(at) = self.answering_since.iter().position(|one| *one == since) {
            self.answering_since.remove(at);
        }
    }

    fn ended(&mut self, now: Instant) {
        self.under_way = self.under_way.saturating_sub(1);
        if self.under_way == 0 {
            self.waiting_since = now;
        }
    }

    /// Whether no request is under way, and none is being sent.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.under_way == 0 && self.head_since.is_none()
    }

    /// Whether what is written now can be no handler's answer: HTTP/1, no request under way, and bytes have come.
    pub(super) fn is_unread(&self) -> bool {
        self.under_way == 0 && self.head_since.is_some()
    }

    /// Whether its place may be given to a newcomer, and how gladly: who was never answered goes first.
    pub(super) fn may_go(&self) -> Option<bool> {
        (self.under_way == 0).then_some(!self.served)
    }

    /// Whether it is to be closed.
    #[must_use]
    pub fn is_over(&self, now: Instant, limits: &Limits) -> bool {
        let longer = |since: Instant, limit| now.saturating_duration_since(since) >= limit;
        if self.under_way > 0 {
            let oldest = self.answering_since.front();
            return oldest.is_some_and(|since| longer(*since, limits.answer_within));
        }
        match self.head_since {
            // The first head may not be waited for longer, nor sent later.
            _ if !self.served => longer(self.waiting_since, limits.head_within),
            Some(since) => longer(since, limits.head_within),
            None => longer(self.waiting_since, limits.idle_within),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::{Clock as _, SystemClock};

    const LIMITS: Limits = Limits::DEFAULT;

    fn connection() -> (Progress, impl Fn(u64) -> Instant) {
        let begun = SystemClock.instant();
        (Progress::new(begun), move |seconds| begun + Duration::from_secs(seconds))
    }

    #[test]
    fn a_first_head_has_its_time_from_the_opening() {
        let (mut silent, at) = connection();
        assert!(!silent.is_over(at(9), &LIMITS) && silent.is_over(at(10), &LIMITS));
        silent.received(at(9));
        assert!(silent.is_over(at(10), &LIMITS), "a byte just before the end gives no more time");
    }

    #[test]
    fn between_requests_a_connection_may_rest_but_not_dawdle() {
        let (mut kept, at) = connection();
        kept.received(at(0));
        kept.request_begun(false);
        assert!(!kept.is_over(at(1_000), &LIMITS), "a handler has its own limits");
        kept.answer_begun(at(1_000));
        kept.answered(at(1_000), at(1_001));
        assert!(kept.is_idle() && !kept.is_over(at(1_075), &LIMITS) && kept.is_over(at(1_076), &LIMITS));
        kept.received(at(1_020));
        kept.received(at(1_029));
        assert!(!kept.is_idle() && !kept.is_over(at(1_029), &LIMITS) && kept.is_over(at(1_030), &LIMITS));
    }

    #[test]
    fn an_answer_that_is_not_taken_ends_the_connection() {
        let (mut deaf, at) = connection();
        for begun in [0, 20] {
            deaf.request_begun(true);
            deaf.answer_begun(at(begun));
        }
        // Others that get through give it no more time.
        for begun in [30, 50] {
            deaf.request_begun(true);
            deaf.answer_begun(at(begun));
            deaf.answered(at(begun), at(begun + 1));
        }
        assert!(!deaf.is_over(at(59), &LIMITS) && deaf.is_over(at(60), &LIMITS));
        deaf.answered(at(0), at(59));
        assert!(!deaf.is_over(at(79), &LIMITS) && deaf.is_over(at(80), &LIMITS));
    }

    #[test]
    fn pings_are_no_head() {
        let (mut pinging, at) = connection();
        pinging.request_begun(true);
        pinging.answer_begun(at(0));
        pinging.answered(at(0), at(0));
        pinging.received(at(1));
        assert!(pinging.is_idle() && !pinging.is_over(at(74), &LIMITS) && pinging.is_over(at(75), &LIMITS));
    }

    #[test]
    fn who_breaks_off_more_than_it_lets_finish_is_closed() {
        let (mut rapid, at) = connection();
        for n in 0..ABANDONED_MAX * 3 {
            rapid.request_begun(true);
            let answering = n % 3 == 0;
            if answering {
                rapid.answer_begun(at(0));
            }
            assert_eq!(rapid.abandoned(answering.then_some(at(0)), at(0)), n + 1 >= ABANDONED_MAX, "{n}");
        }
        let (mut hasty, at) = connection();
        for _ in 0..ABANDONED_MAX * 3 {
            hasty.request_begun(true);
            assert!(!hasty.abandoned(None, at(0)));
            hasty.request_begun(true);
            hasty.answer_begun(at(0));
            hasty.answered(at(0), at(0));
        }
        assert_eq!((hasty.under_way, hasty.answering_since.len()), (0, 0));
    }

    #[test]
    fn who_was_never_served_goes_first_and_who_is_served_stays() {
        let (mut one, at) = connection();
        assert_eq!(one.may_go(), Some(true));
        one.request_begun(false);
        assert_eq!(one.may_go(), None);
        one.answer_begun(at(0));
        one.answered(at(0), at(0));
        assert_eq!(one.may_go(), Some(false));
    }
}
