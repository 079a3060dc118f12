//! What follows in the run of one publication: pure decisions; [`super::work`] only carries them out, and a model checker
//! explores them (`tests/model`).
//!
//! A run looks for the article first, always. What it then does, it notes before and judges after: an answer counts only
//! where it proves something; all else is looked up, and absence counts as proof only when what was sent before can no
//! longer take effect.

use std::time::Duration;

use chrono::TimeDelta;

use crate::connector::{
    Failure, Guarantee, Marked, PAUSE_DEFAULT, PAUSE_MAX, Pause, Remote, Sighting, Verdict,
};
use crate::retry::interval;
use crate::store::{Journal, OpenTries};

mod step;
#[cfg(test)]
mod tests;

pub use crate::task::act::OUTCOME_UNKNOWN;
pub use step::{Action, Outcome, Step};

/// How long an outcome may stay unknown before it is reported as such: a day, in which any operator has looked.
pub const CONFIRM_LIMIT: TimeDelta = TimeDelta::hours(24);

/// How many tries of a round may follow each other at once whose outcomes are unknown: one crash is made good without
/// delay, but what does not end in time again and again waits by the schedule, or it would only be in its own way. Each wait
/// by the schedule allows one more.
pub const OPEN_TRIES_MAX: i64 = 2;

/// How long a platform that works on an article is left alone before it is asked what came of it: the last wait repeats.
pub const ACCEPTED_WAITS: [Duration; 3] =
    [Duration::from_mins(1), Duration::from_mins(5), Duration::from_mins(15)];

/// In how many steps of a run something may be made ready: the lease is renewed with each, so images that take longer than
/// one step get through. As many as the most images of an article take at their slowest, four beside each other; what takes
/// longer gives its lane back, and waits by the schedule.
pub const PREPARE_STEPS_MAX: u32 = 25;

/// Why nothing is sent yet although nothing is there.
const UNSETTLED: &str = "what was sent before may still take effect; it is looked for once more";

/// What a run goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Terms {
    /// What the platform lets be promised.
    pub guarantee: Guarantee,
    /// How long after a request the platform may still carry it out.
    pub settle: Duration,
    /// Whether something is to be made ready before the article.
    pub prepares: bool,
    /// How often this round has waited by the schedule.
    pub tries: i64,
    /// The wait before another try after a transient error, if the schedule has one left.
    pub next_wait: Option<Duration>,
    /// The wait before the platform is asked again that gave no answer.
    pub ask_wait: Duration,
}

/// What a run knows last.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Last {
    Nothing,
    /// And when it began to look, since the platform may have answered at once.
    Saw(Sighting, TimeDelta),
    Ready,
    ReadyInPart,
    Removed,
    Did(Action, Verdict),
}

/// The run of one publication by one holder, from what the journal said when it was claimed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Run {
    terms: Terms,
    journal: Journal,
    prepared: bool,
    /// How often a part of it was made ready.
    parts: u32,
    /// A draft was made in this run, so that a look must see it.
    drafted: bool,
    /// The drafts that were removed in this run.
    removed: Vec<String>,
    /// Sending is the look-up.
    asks: bool,
    last: Last,
}

impl Run {
    /// A run that begins, of a publication whose journal says that.
    #[must_use]
    pub fn begin(terms: Terms, journal: Journal) -> Self {
        Self {
            terms,
            journal,
            prepared: false,
            parts: 0,
            drafted: false,
            removed: Vec::new(),
            asks: false,
            last: Last::Nothing,
        }
    }

    /// What the journal says by now.
    #[must_use]
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Whether the last request may have done what it asked for, and nobody knows.
    #[must_use]
    pub fn request_is_open(&self) -> bool {
        matches!(self.last, Last::Did(_, Verdict::Unknown(_) | Verdict::Accepted))
    }

    /// Takes in what a look saw that was begun `began` after the run; true if that proves that no earlier try can have got in
    /// or still will, so that the journal can close them. What it shows was true when it began, and need not be any more: an
    /// answer may be slow, and whoever waits for it may be stopped.
    pub fn saw(&mut self, sighting: Sighting, began: TimeDelta) -> bool {
        let open = self.journal.open;
        let proves = match (&sighting, self.terms.guarantee) {
            (Sighting::Seen(seen), Guarantee::NativeKey) => public(seen).is_none(),
            (Sighting::Seen(seen), _) => public(seen).is_none() && self.unsettled(began).is_none(),
            _ => false,
        };
        let disproved = proves && open.tries > 0;
        if disproved {
            self.journal.disproved += open.tries;
            self.journal.open = OpenTries::default();
        }
        self.asks = sighting == Sighting::SendToAsk;
        self.last = Last::Saw(sighting, began);
        disproved
    }

    /// Takes in that everything is ready for the article to be made.
    pub fn ready(&mut self) {
        self.prepared = true;
        self.last = Last::Ready;
    }

    /// Takes in that a part of it is ready, and that there was no time for the rest.
    pub fn ready_in_part(&mut self) {
        self.parts += 1;
        self.last = Last::ReadyInPart;
    }

    /// Takes in that a draft is gone, or is public: a look tells which.
    pub fn removed(&mut self, id: String) {
        self.removed.push(id);
        self.last = Last::Removed;
    }

    /// Takes in what a request came to, `now` after the run began.
    pub fn did(&mut self, action: Action, verdict: Verdict, now: TimeDelta) {
        let published = self.to_publish(action).map(str::to_owned);
        match &verdict {
            Verdict::Drafted(id) => {
                self.drafted = true;
                self.journal.draft_id = Some(id.clone());
            }
            // What is only made ready publishes nothing.
            Verdict::Unknown(_) | Verdict::Accepted if action != Action::Prepare => {
                let open = &mut self.journal.open;
                open.tries += 1;
                open.since = open.since.or(Some(-now));
                open.over = Some(-now);
                self.journal.asked.extend(published);
            }
            _ => {}
        }
        self.last = Last::Did(action, verdict);
    }

    /// What follows, `now` after the run began.
    #[must_use]
    pub fn next(&self, now: TimeDelta) -> Step {
        match &self.last {
            Last::Nothing if self.terms.guarantee == Guarantee::AtMostOnce => match self.journal.open.tries {
                0 => self.make(),
                _ => outcome_unknown("the platform cannot be searched"),
            },
            Last::Nothing | Last::Removed => Step::Look,
            Last::Saw(sighting, began) => self.after_look(sighting, *began, now),
            Last::Ready => self.make(),
            Last::ReadyInPart if self.parts < PREPARE_STEPS_MAX => self.make(),
            Last::ReadyInPart => {
                let message = "its images could not all be moved in the time of one try; it is tried again by the retry \
                               schedule, and finds those that were uploaded";
                Step::Settle(self.transient(Failure::new("images_slow", message)))
            }
            Last::Did(action, verdict) => self.after_request(*action, verdict, now),
        }
    }

    fn after_look(&self, sighting: &Sighting, began: TimeDelta, now: TimeDelta) -> Step {
        let open = self.journal.open;
        let age = open.since.map(|age| age + now);
        match sighting {
            Sighting::Seen(seen) => match public(seen) {
                Some(remote) => {
                    let strays = seen.len() > 1;
                    Step::Settle(Outcome::Success { remote: remote.clone(), found: true, strays })
                }
                None => self.not_public(seen, began),
            },
            Sighting::SendToAsk => match age {
                Some(age) if age >= CONFIRM_LIMIT => outcome_unknown("the platform has not said for a day"),
                _ => self.make(),
            },
            Sighting::CannotTell(why) => match age {
                // Nothing was sent since the last proof of absence, so nothing can have been published.
                None => Step::Settle(self.transient(Failure::new("platform_unavailable", why))),
                Some(age) if age >= CONFIRM_LIMIT => outcome_unknown(why),
                Some(_) => wait(why, self.terms.ask_wait),
            },
            Sighting::LoginExpired(failure) => {
                let in_doubt = open.tries > 0;
                Step::Settle(Outcome::LoginExpired { failure: failure.clone(), in_doubt })
            }
            Sighting::RateLimited(pause) => match age {
                Some(age) if age >= CONFIRM_LIMIT => outcome_unknown(&pause.failure.message),
                _ => self.pause(pause),
            },
        }
    }

    /// Nothing was public when the look began: what was sent before can still become so, or the next step is due.
    fn not_public(&self, seen: &[Marked], began: TimeDelta) -> Step {
        let draft = self.chosen(seen);
        let in_the_way = self.in_the_way(seen, draft);
        match self.unsettled(began) {
            // Published by its id, it is the same article however often that is asked for.
            _ if draft.is_some() && in_the_way.is_none() && self.may_follow() => {
                Step::Do(Action::Publish, draft.map(str::to_owned))
            }
            Some(left) => wait(UNSETTLED, left),
            None if let Some(id) = in_the_way => {
                if self.removed.iter().any(|removed| removed == id) {
                    return Step::Settle(
                        self.transient(draft_in_the_way("it is shown after it was removed")),
                    );
                }
                Step::Do(Action::Remove, Some(id.to_owned()))
            }
            None if self.drafted && draft.is_none() => {
                let message = "the draft that was just made is not on the platform any more";
                Step::Settle(self.transient(Failure::new("draft_vanished", message)))
            }
            None if self.may_follow() => self.make(),
            None => {
                let message = "the platform gave no answer in time, and has not published it";
                Step::Settle(self.transient(Failure::new("platform_unavailable", message)))
            }
        }
    }

    /// Whether another try may follow at once on those whose outcomes were, or are, unknown.
    fn may_follow(&self) -> bool {
        let open = self.journal.open.tries;
        open < OPEN_TRIES_MAX && self.journal.disproved + open < OPEN_TRIES_MAX + self.terms.tries
    }

    /// Of several drafts, the one whose id we stored, then the oldest; never one that somebody was about to remove.
    fn chosen<'a>(&self, seen: &'a [Marked]) -> Option<&'a str> {
        if self.terms.guarantee != Guarantee::DraftThenPublish {
            return None;
        }
        let mut free = seen.iter().filter(|one| !self.journal.removing.contains(&one.id));
        let stored = free.clone().find(|one| Some(&one.id) == self.journal.draft_id.as_ref());
        stored.or_else(|| free.next()).map(|one| one.id.as_str())
    }

    /// The draft that a request to publish was about, which follows a look.
    fn to_publish(&self, action: Action) -> Option<&str> {
        match (&self.last, action) {
            (Last::Saw(Sighting::Seen(seen), _), Action::Publish) => self.chosen(seen),
            _ => None,
        }
    }

    /// A draft beside the chosen one that somebody has asked to publish, or was about to remove. A request may be carried out
    /// later than any settle time, and of one that is gone it publishes nothing: so it has to go before another follows.
    fn in_the_way<'a>(&self, seen: &'a [Marked], chosen: Option<&str>) -> Option<&'a str> {
        if self.terms.guarantee != Guarantee::DraftThenPublish {
            return None;
        }
        let Journal { asked, removing, .. } = &self.journal;
        let mut others = seen.iter().map(|one| &one.id).filter(|id| Some(id.as_str()) != chosen);
        others.find(|id| asked.contains(id) || removing.contains(id)).map(String::as_str)
    }

    /// The step that makes the article.
    fn make(&self) -> Step {
        let action = match self.terms.guarantee {
            _ if self.terms.prepares && !self.prepared => Action::Prepare,
            Guarantee::DraftThenPublish => Action::Draft,
            Guarantee::NativeKey | Guarantee::Search | Guarantee::AtMostOnce => Action::Publish,
        };
        Step::Do(action, None)
    }

    fn after_request(&self, action: Action, verdict: &Verdict, now: TimeDelta) -> Step {
        let open = self.journal.open;
        match verdict {
            Verdict::Done(remote) => {
                Step::Settle(Outcome::Success { remote: remote.clone(), found: false, strays: false })
            }
            Verdict::Accepted => {
                let earlier = usize::try_from(open.accepted).unwrap_or(usize::MAX);
                let wait = ACCEPTED_WAITS[earlier.min(ACCEPTED_WAITS.len() - 1)];
                let why = "the platform works on it".to_owned();
                Step::Wait { why, wait, accepted: true, parks: false }
            }
            Verdict::Unknown(why) if action == Action::Prepare => {
                Step::Settle(self.transient(Failure::new("platform_unavailable", why)))
            }
            Verdict::Unknown(why) if self.asks => wait(why, self.terms.ask_wait),
            Verdict::Unknown(why) if self.terms.guarantee == Guarantee::AtMostOnce => outcome_unknown(why),
            // Another may have made a draft at the same time; and what nobody knows is looked up.
            Verdict::Drafted(_) | Verdict::Unknown(_) => Step::Look,
            // An earlier try may have got in, and this answer says nothing of that one.
            Verdict::Transient(failure) | Verdict::Rejected(failure) if open.tries > 0 => {
                wait(&failure.message, self.unsettled(now).unwrap_or(self.terms.ask_wait))
            }
            Verdict::Transient(failure) => Step::Settle(self.transient(failure.clone())),
            Verdict::RateLimited(pause) => self.pause(pause),
            Verdict::Rejected(failure) => Step::Settle(Outcome::Failed {
                failure: failure.clone(),
                retryable: false,
                reason: "rejected",
            }),
            Verdict::Reported(failure) => Step::Settle(Outcome::Failed {
                failure: failure.clone(),
                retryable: true,
                reason: "reported_failed",
            }),
            Verdict::LoginExpired(failure) => {
                let in_doubt = !self.asks && open.tries > 0;
                Step::Settle(Outcome::LoginExpired { failure: failure.clone(), in_doubt })
            }
        }
    }

    /// How long what was sent before may still take effect.
    fn unsettled(&self, now: TimeDelta) -> Option<Duration> {
        if self.terms.guarantee == Guarantee::NativeKey {
            return None;
        }
        let over = self.journal.open.over? + now;
        (interval(self.terms.settle) - over).to_std().ok().filter(|left| !left.is_zero())
    }

    /// The account is left alone; what may have got in before is looked up afterwards. No time at all counts as none that was
    /// named: it would be asked again at once, and again, since a pause counts no try.
    fn pause(&self, pause: &Pause) -> Step {
        let wait = pause.wait.filter(|wait| !wait.is_zero()).unwrap_or(PAUSE_DEFAULT).min(PAUSE_MAX);
        if self.journal.open.tries == 0 {
            return Step::Settle(Outcome::Parked { failure: pause.failure.clone(), wait });
        }
        Step::Wait { why: pause.failure.message.clone(), wait, accepted: false, parks: true }
    }

    fn transient(&self, failure: Failure) -> Outcome {
        match self.terms.next_wait {
            Some(wait) => Outcome::Again { failure, wait },
            None => Outcome::Failed { failure, retryable: true, reason: "retries_exhausted" },
        }
    }
}

/// The oldest that is public.
fn public(seen: &[Marked]) -> Option<&Remote> {
    seen.iter().find_map(|one| one.public.as_ref())
}

/// A draft of an earlier try is still there, and nothing can be done beside it.
#[must_use]
pub fn draft_in_the_way(why: &str) -> Failure {
    let message = format!(
        "a draft of an earlier try is on the platform and could yet be published, so no other is made beside it: {why}; if \
         this stays so, remove it there"
    );
    Failure::new("draft_in_the_way", message)
}

fn wait(why: &str, wait: Duration) -> Step {
    Step::Wait { why: why.to_owned(), wait, accepted: false, parks: false }
}

fn outcome_unknown(why: &str) -> Step {
    let message = format!("it could not be found out whether the article was published: {why}");
    let failure = Failure::new(OUTCOME_UNKNOWN, message);
    Step::Settle(Outcome::Failed { failure, retryable: false, reason: OUTCOME_UNKNOWN })
}
