//! Sweeping: once a publication has ended, its platform is looked at once more, and drafts that nobody needs are removed.
//!
//! A holder that was given up may have left one, and what was cancelled or failed needs none. Only drafts go, each noted
//! before; a retry that comes meanwhile never takes one that somebody was about to remove ([`super::run`]).

use std::time::Duration;

use chrono::TimeDelta;

use super::steps::{IS_PUBLIC, Looked, REMOVED, request_id};
use super::work::Worker;
use crate::connector::{Job, Marked, Removal, Sighting};
use crate::fault;
use crate::store::{Came, Claimed, Evidence, Intent, JournalEntry, StoreError, Sweep};

/// The shortest wait before a platform is looked at again; each next one is as long as the publication has ended, so that a
/// dead account is asked a dozen times a week and not every minute.
const SWEEP_AGAIN: TimeDelta = TimeDelta::seconds(5);

/// After how long a sweep is given up of a platform that cannot be asked: the time in which a login is renewed, if it is.
const SWEEP_LIMIT: TimeDelta = TimeDelta::days(7);

/// For how long drafts are waited for that were asked for and never seen: what a stopped platform or a proxy still held of
/// them is carried out or dropped by then.
const LATE_LIMIT: TimeDelta = TimeDelta::hours(1);

/// What a sweep leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// Nothing.
    Nothing,
    /// Perhaps a draft that was asked for and has not appeared.
    Late,
    /// Perhaps drafts: the platform could not be asked, or not be moved.
    Drafts,
}

/// What of that is to be removed: the drafts, but for the one that was published and is not shown as public yet.
#[must_use]
pub fn strays(seen: &[Marked], remote_id: Option<&str>) -> Vec<String> {
    let drafts = seen.iter().filter(|one| one.public.is_none() && Some(one.id.as_str()) != remote_id);
    drafts.map(|one| one.id.clone()).collect()
}

/// How long a sweep is put off of what ended that long ago; none: it is over.
#[must_use]
pub fn put_off(left: Left, age: TimeDelta) -> Option<Duration> {
    let limit = match left {
        Left::Nothing => TimeDelta::zero(),
        Left::Late => LATE_LIMIT,
        Left::Drafts => SWEEP_LIMIT,
    };
    (age < limit).then(|| age.max(SWEEP_AGAIN).to_std().unwrap_or_default())
}

impl Worker {
    /// Looks at the platform, and removes the drafts that nobody needs.
    pub(super) async fn sweep(&self, sweep: &Sweep) -> Result<(), StoreError> {
        let left = self.remove_strays(sweep).await?;
        let again = put_off(left, sweep.age);
        if left == Left::Drafts && again.is_none() {
            tracing::warn!("given up: there may be a draft of it left on its platform");
        }
        self.store.swept(&sweep.one, again).await
    }

    async fn remove_strays(&self, sweep: &Sweep) -> Result<Left, StoreError> {
        let Sweep { one, remote_id, unseen, .. } = sweep;
        // Marked before its first draft was asked for.
        let Some(marker) = &one.marker else { return Ok(Left::Nothing) };
        let connector = self.connectors.get(one.platform.as_str());
        let until = self.clock.instant() + self.limits.lease / 2;
        let mut job = Job::of(one, marker, one.credentials(&self.vault)?, until);
        job.request_id = request_id(one.publication_id, one.fence, 0);
        let looked = self.look(connector, &job, 0).await;
        let lease = self.limits.lease;
        let (Sighting::Seen(seen), Some(connector)) = (&looked.sighting, connector) else {
            self.scribe.write(sweeping(one, marker, lease, Some(&looked))).await?;
            return Ok(Left::Drafts);
        };
        let strays = strays(seen, remote_id.as_deref());
        let mut left = if *unseen > 0 { Left::Late } else { Left::Nothing };
        let mut looked = Some(&looked);
        let mut came = None;
        for (step, id) in (1..).zip(strays) {
            let until = self.clock.instant() + self.limits.lease / 2;
            let intent = Some(Intent { step, kind: "remove", draft_id: Some(id.clone()) });
            let came_before = came.as_ref().map(told);
            let entry =
                JournalEntry { came: came_before, intent, ..sweeping(one, marker, lease, looked.take()) };
            if !self.scribe.write(entry).await? {
                return Ok(Left::Drafts);
            }
            job.until = until;
            job.request_id = request_id(one.publication_id, one.fence, step);
            job.draft_id = Some(id.clone());
            fault::point("call.begun", "remove");
            let removal = self.within_call(until, connector.remove(&job)).await;
            fault::point("call.ended", "remove");
            let removal = removal.unwrap_or_else(|| Removal::Unknown("no answer in time".to_owned()));
            tracing::info!(draft_id = id, ?removal, "a draft that nobody needs");
            if matches!(removal, Removal::Unknown(_)) {
                left = Left::Drafts;
            }
            came = Some((step, removal, job.trace.take()));
        }
        let last = JournalEntry { came: came.as_ref().map(told), ..sweeping(one, marker, lease, looked) };
        self.scribe.write(last).await?;
        Ok(left)
    }
}

fn sweeping(one: &Claimed, marker: &str, lease: Duration, looked: Option<&Looked>) -> JournalEntry {
    JournalEntry {
        tenant_id: one.tenant_id,
        publication_id: one.publication_id,
        fence: one.fence,
        marker: marker.to_owned(),
        lease,
        came: None,
        probe: looked.and_then(Looked::probe),
        disproved: false,
        intent: None,
        confirming: false,
    }
}

fn told((step, removal, evidence): &(i32, Removal, Evidence)) -> Came {
    let (outcome, detail) = match removal {
        Removal::Gone => (Some("done"), REMOVED),
        Removal::Public => (Some("rejected"), IS_PUBLIC),
        Removal::Unknown(why) => (None, why.as_str()),
    };
    let detail = detail.to_owned();
    Came { step: *step, outcome, detail, draft_id: None, evidence: evidence.clone(), warnings: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connector::Remote;

    fn marked(id: &str, public: bool) -> Marked {
        let remote = Remote { url: "https://h/a".into(), remote_id: Some(id.into()) };
        Marked { id: id.into(), public: public.then_some(remote) }
    }

    #[test]
    fn only_drafts_go_and_not_the_one_that_was_published() {
        let seen = [marked("1", false), marked("2", true), marked("3", false)];
        assert_eq!(strays(&seen, Some("3")), ["1"]);
        assert_eq!(strays(&seen, Some("2")), ["1", "3"]);
        assert_eq!(strays(&seen, None), ["1", "3"]);
        assert!(strays(&[], None).is_empty());
    }

    #[test]
    fn a_platform_that_cannot_be_asked_is_asked_less_and_less_often_for_a_week() {
        for (left, limit, most) in [(Left::Drafts, SWEEP_LIMIT, 20), (Left::Late, LATE_LIMIT, 12)] {
            let mut age = TimeDelta::seconds(2);
            let mut times = 0;
            while let Some(wait) = put_off(left, age) {
                assert!(wait >= Duration::from_secs(5));
                age += TimeDelta::from_std(wait).unwrap();
                times += 1;
            }
            assert!(times <= most, "{left:?}: {times}");
            assert!(age >= limit);
        }
        assert_eq!(put_off(Left::Nothing, TimeDelta::zero()), None);
    }
}
