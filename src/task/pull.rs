//! What a robot gets that fetches its articles: limits, and a pure choice under the locks of its accounts' lanes, which
//! [`crate::store`] carries out.

use std::collections::HashMap;
use std::time::Duration;

use chrono::{DateTime, Utc};
use uuid::Uuid;

/// How long a robot has an article to itself without a heartbeat: far longer than a browser takes to post one, so that the
/// simplest robot needs none; and short enough that what a crashed robot left is looked after while somebody is waiting.
pub const PULL_LEASE: Duration = Duration::from_mins(5);

/// The most articles that one call hands out: of the largest they are 32 MiB, as much as a batch may bring.
pub const PULL_MAX: i32 = 16;

/// The most accounts that one call fetches for: each is a few look-ups, and a robot logs in on few.
pub const PULL_ACCOUNTS_MAX: usize = 100;

/// The lane of an account whose articles are fetched, under its lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PulledLane {
    /// The account.
    pub account_id: String,
    /// Whether its login works.
    pub may_send: bool,
    /// Whether its starts keep a distance.
    pub paced: bool,
    /// How many articles it may have in hand at once.
    pub max_in_flight: i64,
    /// How many it has: those that were handed out, and of which nobody has said what became of them.
    pub in_hand: i64,
    /// How many new ones its day has room for; none where the day has no limit.
    pub left_today: Option<i64>,
}

/// An article that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueJob {
    /// The publication.
    pub publication_id: Uuid,
    /// Its account.
    pub account_id: String,
    /// Whether it is in hand: it was handed out before, and its lease ran out.
    pub in_hand: bool,
    /// Since when it is due.
    pub due_at: DateTime<Utc>,
}

/// Which of what is due is handed out now, at most `max`: first what a robot left behind, then what waits the longest; of a
/// paced account one, and new ones only where the login works, hands are not full and the day is not.
#[must_use]
pub fn choose(lanes: &[PulledLane], mut due: Vec<DueJob>, max: usize) -> Vec<DueJob> {
    // With each lane, how many of it are given now, and how many of those are new.
    let with_counts = |lane: &PulledLane| (lane.account_id.clone(), (lane.clone(), 0, 0));
    let mut lanes = lanes.iter().map(with_counts).collect::<HashMap<_, _>>();
    due.sort_by_key(|job| (!job.in_hand, job.due_at, job.publication_id));
    due.retain(|job| {
        let Some((lane, given, new)) = lanes.get_mut(&job.account_id) else { return false };
        let room = lane.left_today.unwrap_or(i64::MAX).min(lane.max_in_flight - lane.in_hand);
        let may = job.in_hand || (lane.may_send && *new < room);
        let takes = may && !(lane.paced && *given > 0);
        *given += i64::from(takes);
        *new += i64::from(takes && !job.in_hand);
        takes
    });
    due.truncate(max);
    due
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(account_id: &str) -> PulledLane {
        let account_id = account_id.to_owned();
        PulledLane {
            account_id,
            may_send: true,
            paced: false,
            max_in_flight: 4,
            in_hand: 0,
            left_today: None,
        }
    }

    fn job(account_id: &str, n: u8, in_hand: bool) -> DueJob {
        DueJob {
            publication_id: Uuid::from_u128(n.into()),
            account_id: account_id.to_owned(),
            in_hand,
            due_at: DateTime::from_timestamp(n.into(), 0).unwrap(),
        }
    }

    fn chosen(lanes: &[PulledLane], due: Vec<DueJob>, max: usize) -> Vec<u128> {
        choose(lanes, due, max).iter().map(|job| job.publication_id.as_u128()).collect()
    }

    #[test]
    fn what_was_left_behind_comes_first_and_then_what_waits_the_longest_on_whatever_account() {
        let due = || vec![job("a", 5, false), job("a", 2, false), job("b", 3, false), job("b", 9, true)];
        let lanes = [lane("a"), PulledLane { in_hand: 1, ..lane("b") }];
        assert_eq!(chosen(&lanes, due(), 9), [9, 2, 3, 5]);
        assert_eq!(chosen(&lanes, due(), 2), [9, 2]);
        assert_eq!(chosen(&lanes[..1], due(), 9), [2, 5]);
    }

    #[test]
    fn hands_are_full_for_new_ones_only() {
        let lane = PulledLane { in_hand: 3, ..lane("a") };
        let due = vec![job("a", 1, false), job("a", 2, false), job("a", 3, true), job("a", 4, true)];
        assert_eq!(chosen(std::slice::from_ref(&lane), due.clone(), 9), [3, 4, 1]);
        let full = PulledLane { in_hand: 4, ..lane };
        assert_eq!(chosen(&[full], due, 9), [3, 4]);
    }

    #[test]
    fn a_full_day_keeps_new_ones_back_and_nothing_that_was_left_behind() {
        let due = vec![job("a", 1, false), job("a", 2, false), job("a", 3, true)];
        let left = |left_today| PulledLane { left_today: Some(left_today), in_hand: 1, ..lane("a") };
        assert_eq!(chosen(&[left(1)], due.clone(), 9), [3, 1]);
        // A limit that was lowered is exceeded already.
        assert_eq!(chosen(&[left(-1)], due, 9), [3]);
    }

    #[test]
    fn a_paced_account_gets_one_and_an_expired_login_nothing_new() {
        let due = vec![job("a", 1, false), job("a", 2, false), job("a", 3, true)];
        let paced = PulledLane { paced: true, in_hand: 1, ..lane("a") };
        assert_eq!(chosen(std::slice::from_ref(&paced), due.clone(), 9), [3]);
        assert_eq!(chosen(&[paced], due[..2].to_vec(), 9), [1]);
        let expired = PulledLane { may_send: false, in_hand: 1, ..lane("a") };
        assert_eq!(chosen(&[expired], due, 9), [3]);
    }
}
