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

pub use crate::task::act::OUTCOME_UNKNOWN;

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

/// What is done on the platform, each noted before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Images and tags are made ready: nothing of the article.
    Prepare,
    /// A draft is made.
    Draft,
    /// The article, or its draft, is published.
    Publish,
}

impl Action {
    /// Its name in the journal.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Prepare => "prepare",
            Self::Draft => "draft",
            Self::Publish => "publish",
        }
    }
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Step {
    /// Look for what carries the mark.
    Look,
    /// Note the intent, then do it; where a draft is to be published, this one.
    Do(Action, Option<String>),
    /// It is over.
    Settle(Outcome),
    /// Nothing can be said now: give lane and lease back, and look again after a while.
    Wait {
        /// Why.
        why: String,
        /// After how long.
        wait: Duration,
        /// Whether the platform said that it works on it.
        accepted: bool,
        /// Whether the account is to be left alone for that long.
        parks: bool,
    },
}

/// How a run ends.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It is public.
    Success {
        /// Where.
        remote: Remote,
        /// Whether a look found it, rather than an answer to our request.
        found: bool,
        /// Whether the platform showed drafts of it besides.
        strays: bool,
    },
    /// It is not, and nothing more is done by itself.
    Failed {
        /// Why.
        failure: Failure,
        /// Whether a retry by the caller may help.
        retryable: bool,
        /// Why, in a word.
        reason: &'static str,
    },
    /// The platform does not let the account in.
    LoginExpired {
        /// What it said.
        failure: Failure,
        /// Whether an earlier try may have got in: it is looked up when the login was renewed.
        in_doubt: bool,
    },
    /// It is certain that nothing was published: another try is due later.
    Again {
        /// Why.
        failure: Failure,
        /// After how long.
        wait: Duration,
    },
    /// The platform asks for a pause: the account is left alone, and it costs no try.
    Parked {
        /// What it said.
        failure: Failure,
        /// For how long.
        wait: Duration,
    },
}

/// What a run knows last.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Last {
    Nothing,
    /// And when it began to look, since the platform may have answered at once.
    Saw(Sighting, TimeDelta),
    Ready,
    ReadyInPart,
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
    /// Sending is the look-up.
    asks: bool,
    last: Last,
}

impl Run {
    /// A run that begins, of a publication whose journal says that.
    #[must_use]
    pub fn begin(terms: Terms, journal: Journal) -> Self {
        Self { terms, journal, prepared: false, parts: 0, drafted: false, asks: false, last: Last::Nothing }
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

    /// Takes in what a request came to, `now` after the run began.
    pub fn did(&mut self, action: Action, verdict: Verdict, now: TimeDelta) {
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
            Last::Nothing => Step::Look,
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
        match self.unsettled(began) {
            // Published by its id, it is the same article however often that is asked for.
            _ if draft.is_some() && self.may_follow() => Step::Do(Action::Publish, draft),
            Some(left) => wait(UNSETTLED, left),
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
    fn chosen(&self, seen: &[Marked]) -> Option<String> {
        if self.terms.guarantee != Guarantee::DraftThenPublish {
            return None;
        }
        let mut free = seen.iter().filter(|one| !self.journal.removing.contains(&one.id));
        let stored = free.clone().find(|one| Some(&one.id) == self.journal.draft_id.as_ref());
        stored.or_else(|| free.next()).map(|one| one.id.clone())
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

    /// The account is left alone; what may have got in before is looked up afterwards.
    fn pause(&self, pause: &Pause) -> Step {
        let wait = pause.wait.unwrap_or(PAUSE_DEFAULT).min(PAUSE_MAX);
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

fn wait(why: &str, wait: Duration) -> Step {
    Step::Wait { why: why.to_owned(), wait, accepted: false, parks: false }
}

fn outcome_unknown(why: &str) -> Step {
    let message = format!("it could not be found out whether the article was published: {why}");
    let failure = Failure::new(OUTCOME_UNKNOWN, message);
    Step::Settle(Outcome::Failed { failure, retryable: false, reason: OUTCOME_UNKNOWN })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: TimeDelta = TimeDelta::zero();

    fn terms(guarantee: Guarantee, next_wait: Option<u64>) -> Terms {
        Terms {
            guarantee,
            settle: Duration::from_secs(30),
            prepares: false,
            tries: 0,
            next_wait: next_wait.map(Duration::from_secs),
            ask_wait: Duration::from_secs(7),
        }
    }

    /// A journal with a try that nobody knows the outcome of, begun and over that long ago.
    fn open(age: TimeDelta) -> Journal {
        let open = OpenTries { tries: 1, accepted: 0, since: Some(age), over: Some(age) };
        Journal { open, ..Journal::default() }
    }

    fn remote() -> Remote {
        Remote { url: "https://h/a".into(), remote_id: Some("a".into()) }
    }

    fn failure() -> Failure {
        Failure::new("c", "m")
    }

    fn draft(id: &str) -> Marked {
        Marked { id: id.into(), public: None }
    }

    fn after_look(terms: Terms, journal: Journal, sighting: Sighting) -> Step {
        let mut run = Run::begin(terms, journal);
        assert_eq!(run.next(NOW), Step::Look);
        run.saw(sighting, NOW);
        run.next(NOW)
    }

    fn after(terms: Terms, journal: Journal, sighting: Sighting, action: Action, verdict: Verdict) -> Step {
        let mut run = Run::begin(terms, journal);
        run.saw(sighting, NOW);
        run.did(action, verdict, NOW);
        run.next(NOW)
    }

    const SEARCHED: [Guarantee; 3] = [Guarantee::NativeKey, Guarantee::DraftThenPublish, Guarantee::Search];

    #[test]
    fn what_is_ready_in_part_is_gone_on_with_and_gives_up_after_a_while() {
        let terms = Terms { prepares: true, ..terms(Guarantee::DraftThenPublish, Some(30)) };
        let mut run = Run::begin(terms, Journal::default());
        run.saw(Sighting::absent(), NOW);
        for _ in 0..PREPARE_STEPS_MAX {
            assert_eq!(run.next(NOW), Step::Do(Action::Prepare, None));
            run.ready_in_part();
        }
        let Step::Settle(Outcome::Again { failure, wait }) = run.next(NOW) else { panic!() };
        assert_eq!((&*failure.code, wait), ("images_slow", Duration::from_secs(30)));
        run.ready();
        assert_eq!(run.next(NOW), Step::Do(Action::Draft, None));
    }

    #[test]
    fn what_is_found_is_never_sent() {
        for guarantee in SEARCHED {
            for journal in [Journal::default(), open(TimeDelta::minutes(1)), open(TimeDelta::days(9))] {
                let step = after_look(terms(guarantee, None), journal, Sighting::published(remote()));
                let found = Outcome::Success { remote: remote(), found: true, strays: false };
                assert_eq!(step, Step::Settle(found));
            }
        }
    }

    #[test]
    fn only_proven_absence_leads_to_a_try() {
        for guarantee in SEARCHED {
            for journal in [Journal::default(), open(TimeDelta::minutes(1))] {
                let step = after_look(terms(guarantee, Some(5)), journal, Sighting::absent());
                assert!(matches!(step, Step::Do(..)), "{guarantee:?} {step:?}");
            }
            for journal in [Journal::default(), open(TimeDelta::minutes(1)), open(TimeDelta::days(9))] {
                let step = after_look(terms(guarantee, Some(5)), journal, Sighting::CannotTell("w".into()));
                assert!(!matches!(step, Step::Do(..)), "{guarantee:?} {step:?}");
            }
        }
    }

    #[test]
    fn absence_proves_nothing_while_a_try_may_still_take_effect() {
        for guarantee in [Guarantee::DraftThenPublish, Guarantee::Search] {
            // A holder that was stopped may still begin it: its time is not over yet.
            for (over, left) in [(-15, 45), (0, 30), (29, 1)] {
                let mut run = Run::begin(terms(guarantee, Some(5)), open(TimeDelta::seconds(over)));
                assert!(!run.saw(Sighting::absent(), NOW));
                let Step::Wait { wait, accepted: false, parks: false, .. } = run.next(NOW) else { panic!() };
                assert_eq!(wait, Duration::from_secs(left));
            }
            let mut run = Run::begin(terms(guarantee, Some(5)), open(TimeDelta::seconds(20)));
            assert!(run.saw(Sighting::absent(), TimeDelta::seconds(10)), "time passes in a run as well");
            assert_eq!(run.journal().open, OpenTries::default());
        }
        // Where the platform drops a second request, it is right whenever it is sent.
        let step = after_look(terms(Guarantee::NativeKey, None), open(NOW), Sighting::absent());
        assert_eq!(step, Step::Do(Action::Publish, None));
    }

    /// Found by `tests/model`: a double where the platform carries out late what an earlier holder sent.
    #[test]
    fn absence_is_as_old_as_the_beginning_of_the_look() {
        for guarantee in [Guarantee::DraftThenPublish, Guarantee::Search] {
            let mut run = Run::begin(terms(guarantee, Some(5)), open(TimeDelta::seconds(20)));
            assert!(!run.saw(Sighting::absent(), TimeDelta::seconds(9)), "a second too early");
            // Its answer was slow, or we were stopped: what came in meanwhile it did not show.
            let step = run.next(TimeDelta::minutes(5));
            assert_eq!(step, wait(UNSETTLED, Duration::from_secs(1)), "{guarantee:?}");
        }
    }

    /// Found by `tests/model`: it was asked for again and again, as fast as the platform said nothing.
    #[test]
    fn a_draft_is_not_published_again_and_again_without_a_rest() {
        let schedule = |tries| Terms { tries, ..terms(Guarantee::DraftThenPublish, Some(30)) };
        for tries in [0, 9] {
            let mut run = Run::begin(schedule(tries), Journal::default());
            for _ in 0..OPEN_TRIES_MAX {
                run.saw(Sighting::Seen(vec![draft("5")]), NOW);
                assert_eq!(run.next(NOW), Step::Do(Action::Publish, Some("5".into())));
                run.did(Action::Publish, Verdict::Unknown("w".into()), NOW);
            }
            run.saw(Sighting::Seen(vec![draft("5")]), NOW);
            assert_eq!(run.next(NOW), wait(UNSETTLED, Duration::from_secs(30)));
        }
        let later = |tries, disproved| {
            let journal = Journal { disproved, ..Journal::default() };
            after_look(schedule(tries), journal, Sighting::Seen(vec![draft("5")]))
        };
        assert!(matches!(later(0, 2), Step::Settle(Outcome::Again { .. })));
        assert_eq!(later(1, 2), Step::Do(Action::Publish, Some("5".into())));
    }

    /// Found by `tests/model`: after two of them nothing was sent any more until the schedule had run out.
    #[test]
    fn each_wait_by_the_schedule_allows_another_try() {
        for guarantee in SEARCHED {
            let again = |tries, disproved| {
                let journal = Journal { disproved, ..Journal::default() };
                let terms = Terms { tries, ..terms(guarantee, Some(30)) };
                matches!(after_look(terms, journal, Sighting::absent()), Step::Do(..))
            };
            assert_eq!([again(0, 2), again(1, 2), again(1, 3), again(2, 3)], [false, true, false, true]);
        }
    }

    #[test]
    fn what_never_ends_in_time_waits_by_the_schedule() {
        for guarantee in SEARCHED {
            let again = |disproved| {
                let journal = Journal { disproved, ..open(TimeDelta::minutes(1)) };
                after_look(terms(guarantee, Some(30)), journal, Sighting::absent())
            };
            assert!(matches!(again(0), Step::Do(..)));
            let Step::Settle(Outcome::Again { failure, wait }) = again(1) else { panic!() };
            assert_eq!((&*failure.code, wait), ("platform_unavailable", Duration::from_secs(30)));
        }
    }

    #[test]
    fn a_draft_whose_publication_never_ends_in_time_waits_by_the_schedule() {
        let terms = terms(Guarantee::DraftThenPublish, Some(30));
        let mut run = Run::begin(terms, Journal::default());
        for _ in 0..OPEN_TRIES_MAX {
            run.saw(Sighting::Seen(vec![draft("5")]), NOW);
            assert_eq!(run.next(NOW), Step::Do(Action::Publish, Some("5".into())));
            run.did(Action::Publish, Verdict::Unknown("w".into()), NOW);
        }
        run.saw(Sighting::Seen(vec![draft("5")]), NOW);
        assert_eq!(run.next(NOW), wait(UNSETTLED, Duration::from_secs(30)));
        let later = TimeDelta::seconds(30);
        assert!(run.saw(Sighting::Seen(vec![draft("5")]), later));
        let Step::Settle(Outcome::Again { failure, wait }) = run.next(later) else { panic!() };
        assert_eq!((&*failure.code, wait), ("platform_unavailable", Duration::from_secs(30)));
    }

    #[test]
    fn an_unknown_outcome_is_looked_up_for_a_day_and_then_told() {
        for guarantee in SEARCHED {
            let ask =
                |age| after_look(terms(guarantee, Some(5)), open(age), Sighting::CannotTell("w".into()));
            assert_eq!(ask(TimeDelta::hours(23)), wait("w", Duration::from_secs(7)));
            let Step::Settle(Outcome::Failed { failure, retryable: false, .. }) = ask(TimeDelta::hours(24))
            else {
                panic!()
            };
            assert_eq!(failure.code, "outcome_unknown");
            let unknown = Verdict::Unknown("w".into());
            let terms = terms(guarantee, Some(5));
            let step = after(terms, Journal::default(), Sighting::absent(), Action::Publish, unknown);
            assert_eq!(step, Step::Look);
        }
    }

    #[test]
    fn where_nothing_can_be_found_an_unknown_outcome_is_told_at_once() {
        let terms = terms(Guarantee::AtMostOnce, Some(5));
        let mut run = Run::begin(terms, Journal::default());
        assert_eq!(run.next(NOW), Step::Do(Action::Publish, None));
        run.did(Action::Publish, Verdict::Unknown("w".into()), NOW);
        let told = |step| matches!(step, Step::Settle(Outcome::Failed { reason: OUTCOME_UNKNOWN, .. }));
        assert!(told(run.next(NOW)));
        assert!(told(Run::begin(terms, open(TimeDelta::days(1))).next(NOW)));
    }

    #[test]
    fn what_is_certain_not_to_be_published_is_tried_by_schedule() {
        for guarantee in SEARCHED {
            let come = |verdict, next_wait| {
                let terms = terms(guarantee, next_wait);
                after(terms, Journal::default(), Sighting::absent(), Action::Publish, verdict)
            };
            let again = Outcome::Again { failure: failure(), wait: Duration::from_secs(30) };
            assert_eq!(come(Verdict::Transient(failure()), Some(30)), Step::Settle(again));
            let over = Outcome::Failed { failure: failure(), retryable: true, reason: "retries_exhausted" };
            assert_eq!(come(Verdict::Transient(failure()), None), Step::Settle(over));
            let rejected = Outcome::Failed { failure: failure(), retryable: false, reason: "rejected" };
            assert_eq!(come(Verdict::Rejected(failure()), Some(30)), Step::Settle(rejected));
        }
    }

    #[test]
    fn where_sending_is_the_look_up_it_is_sent_again_for_a_day() {
        let native = terms(Guarantee::NativeKey, Some(5));
        let minute = || open(TimeDelta::minutes(1));
        let publish = Step::Do(Action::Publish, None);
        assert_eq!(after_look(native, Journal::default(), Sighting::SendToAsk), publish);
        let mut many = open(TimeDelta::hours(23));
        many.open.tries = 50;
        assert_eq!(after_look(native, many, Sighting::SendToAsk), publish);
        let over = after_look(native, open(TimeDelta::hours(24)), Sighting::SendToAsk);
        let Step::Settle(Outcome::Failed { failure: unknown, .. }) = over else { panic!("{over:?}") };
        assert_eq!(unknown.code, OUTCOME_UNKNOWN);
        let ask = |verdict, journal| after(native, journal, Sighting::SendToAsk, Action::Publish, verdict);
        let again = |why: &str| wait(why, Duration::from_secs(7));
        assert_eq!(ask(Verdict::Unknown("w".into()), Journal::default()), again("w"));
        // What is certain of this try says nothing of an earlier one.
        assert_eq!(ask(Verdict::Transient(failure()), minute()), again("m"));
        assert_eq!(ask(Verdict::Rejected(failure()), minute()), again("m"));
        let first = ask(Verdict::Transient(failure()), Journal::default());
        assert!(matches!(first, Step::Settle(Outcome::Again { .. })), "{first:?}");
        // What the platform says itself does.
        for journal in [Journal::default(), minute()] {
            let step = ask(Verdict::Reported(failure()), journal.clone());
            assert!(matches!(step, Step::Settle(Outcome::Failed { retryable: true, .. })), "{step:?}");
            let step = ask(Verdict::LoginExpired(failure()), journal);
            let expired = Outcome::LoginExpired { failure: failure(), in_doubt: false };
            assert_eq!(step, Step::Settle(expired));
        }
    }

    #[test]
    fn a_platform_that_works_on_it_is_asked_less_and_less_often() {
        let waits = [0, 1, 2, 9].map(|accepted| {
            let mut journal = open(TimeDelta::minutes(1));
            journal.open.accepted = accepted;
            let terms = terms(Guarantee::NativeKey, None);
            let step = after(terms, journal, Sighting::SendToAsk, Action::Publish, Verdict::Accepted);
            let Step::Wait { wait, accepted: true, .. } = step else { panic!("{step:?}") };
            wait.as_secs()
        });
        assert_eq!(waits, [60, 300, 900, 900]);
    }

    #[test]
    fn a_draft_is_made_looked_for_again_and_published_by_its_id() {
        let mut run = Run::begin(
            Terms { prepares: true, ..terms(Guarantee::DraftThenPublish, None) },
            Journal::default(),
        );
        run.saw(Sighting::absent(), NOW);
        assert_eq!(run.next(NOW), Step::Do(Action::Prepare, None));
        run.ready();
        assert_eq!(run.next(NOW), Step::Do(Action::Draft, None));
        run.did(Action::Draft, Verdict::Drafted("5".into()), NOW);
        assert_eq!(run.next(NOW), Step::Look);
        run.saw(Sighting::Seen(vec![draft("5")]), NOW);
        assert_eq!(run.next(NOW), Step::Do(Action::Publish, Some("5".into())));
        run.did(Action::Publish, Verdict::Done(remote()), NOW);
        let done = Outcome::Success { remote: remote(), found: false, strays: false };
        assert_eq!(run.next(NOW), Step::Settle(done));
    }

    #[test]
    fn of_several_drafts_the_stored_one_wins_then_the_oldest_and_none_that_is_being_removed() {
        let seen = || Sighting::Seen(vec![draft("3"), draft("4"), draft("5")]);
        let chosen = |draft_id: Option<&str>, removing: &[&str]| {
            let journal = Journal {
                draft_id: draft_id.map(Into::into),
                removing: removing.iter().map(|id| (*id).to_owned()).collect(),
                ..Journal::default()
            };
            match after_look(terms(Guarantee::DraftThenPublish, None), journal, seen()) {
                Step::Do(Action::Publish, Some(id)) => id,
                step => format!("{step:?}"),
            }
        };
        assert_eq!(chosen(None, &[]), "3");
        assert_eq!(chosen(Some("5"), &[]), "5");
        assert_eq!(chosen(Some("9"), &["3"]), "4");
        assert_eq!(chosen(Some("5"), &["5"]), "3");
        assert_eq!(chosen(None, &["3", "4", "5"]), "Do(Draft, None)");
    }

    #[test]
    fn an_answer_to_one_try_says_nothing_of_an_earlier_one() {
        // A holder before may still be publishing the draft.
        let journal = || Journal { draft_id: Some("5".into()), ..open(TimeDelta::seconds(10)) };
        let terms = terms(Guarantee::DraftThenPublish, Some(5));
        let seen = || Sighting::Seen(vec![draft("5")]);
        assert_eq!(after_look(terms, journal(), seen()), Step::Do(Action::Publish, Some("5".into())));
        for verdict in [Verdict::Rejected(failure()), Verdict::Transient(failure())] {
            let step = after(terms, journal(), seen(), Action::Publish, verdict);
            assert_eq!(step, wait("m", Duration::from_secs(20)));
        }
        let step = after(terms, journal(), seen(), Action::Publish, Verdict::LoginExpired(failure()));
        assert_eq!(step, Step::Settle(Outcome::LoginExpired { failure: failure(), in_doubt: true }));
    }

    #[test]
    fn a_pause_parks_the_account_and_costs_no_try() {
        let pause = |wait| Pause { failure: failure(), wait };
        let look = |journal, wait| {
            let terms = terms(Guarantee::DraftThenPublish, None);
            after_look(terms, journal, Sighting::RateLimited(pause(wait)))
        };
        let parked = |wait| Step::Settle(Outcome::Parked { failure: failure(), wait });
        assert_eq!(look(Journal::default(), Some(Duration::from_secs(90))), parked(Duration::from_secs(90)));
        assert_eq!(look(Journal::default(), None), parked(PAUSE_DEFAULT));
        assert_eq!(look(Journal::default(), Some(Duration::from_hours(99))), parked(PAUSE_MAX));
        let step = look(open(TimeDelta::seconds(1)), Some(Duration::from_secs(90)));
        assert!(matches!(step, Step::Wait { parks: true, accepted: false, .. }), "{step:?}");
    }
}
