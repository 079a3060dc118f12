//! One call to a platform, and the words of the history for what came of it.

use std::sync::Arc;

use super::Hand;
use crate::connector::{Connector, Prepared, Removal, Verdict};
use crate::task::run::{Action, draft_in_the_way};

/// What is noted of a draft that was removed.
pub(in crate::task) const REMOVED: &str = "the draft is gone";

/// What is noted of one that became public before.
pub(in crate::task) const IS_PUBLIC: &str = "it is public, so it was left alone";

const NO_ANSWER: &str = "no answer in time";

const NOT_READY: &str = "its images and tags were not ready in time; it is tried again by the retry schedule, and finds what was \
                         uploaded";

/// What a call came to.
pub(super) enum Called {
    Ready(Prepared),
    /// Gone, or public; and which.
    Removed(&'static str),
    Came(Verdict),
}

impl Hand<'_> {
    pub(super) async fn call(&self, connector: &Arc<dyn Connector>, action: Action) -> Called {
        let (until, job) = (self.job.until, &self.job);
        let came = |verdict: Option<Verdict>| Called::Came(verdict.unwrap_or_else(no_answer));
        match action {
            Action::Prepare => match self.worker.within_call(until, connector.prepare(job)).await {
                Some(Ok(prepared)) => Called::Ready(prepared),
                Some(Err(verdict)) => Called::Came(verdict),
                None => Called::Came(Verdict::Unknown(NOT_READY.to_owned())),
            },
            Action::Draft => came(self.worker.within_call(until, connector.draft(job)).await),
            Action::Publish => came(self.worker.within_call(until, connector.publish(job)).await),
            Action::Remove => match self.worker.within_call(until, connector.remove(job)).await {
                Some(Removal::Gone) => Called::Removed(REMOVED),
                Some(Removal::Public) => Called::Removed(IS_PUBLIC),
                Some(Removal::Unknown(why)) => Called::Came(Verdict::Transient(draft_in_the_way(&why))),
                None => Called::Came(Verdict::Transient(draft_in_the_way(NO_ANSWER))),
            },
        }
    }
}

fn no_answer() -> Verdict {
    Verdict::Unknown(NO_ANSWER.to_owned())
}

/// What the history says of it.
pub(super) fn describe(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Done(remote) => remote.url.clone(),
        Verdict::Drafted(id) => format!("there is a draft: {id}"),
        Verdict::Accepted => "accepted: the platform works on it".to_owned(),
        Verdict::Transient(failure)
        | Verdict::Rejected(failure)
        | Verdict::Reported(failure)
        | Verdict::LoginExpired(failure) => failure.message.clone(),
        Verdict::RateLimited(pause) => pause.failure.message.clone(),
        Verdict::Unknown(why) => why.clone(),
    }
}
