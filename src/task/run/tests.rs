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
        let ask = |age| after_look(terms(guarantee, Some(5)), open(age), Sighting::CannotTell("w".into()));
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
    let mut run =
        Run::begin(Terms { prepares: true, ..terms(Guarantee::DraftThenPublish, None) }, Journal::default());
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
fn of_several_drafts_the_stored_one_wins_then_the_oldest_once_those_are_gone_that_were_to_be_removed() {
    let seen = || Sighting::Seen(vec![draft("3"), draft("4"), draft("5")]);
    let chosen = |draft_id: Option<&str>, removing: &[&str]| {
        let journal = Journal {
            draft_id: draft_id.map(Into::into),
            removing: removing.iter().map(|id| (*id).to_owned()).collect(),
            ..Journal::default()
        };
        match after_look(terms(Guarantee::DraftThenPublish, None), journal, seen()) {
            Step::Do(action, Some(id)) => (action, id),
            step => panic!("{step:?}"),
        }
    };
    let (publish, remove) = (|id: &str| (Action::Publish, id.into()), |id: &str| (Action::Remove, id.into()));
    assert_eq!(chosen(None, &[]), publish("3"));
    assert_eq!(chosen(Some("5"), &[]), publish("5"));
    assert_eq!(chosen(Some("9"), &["3"]), remove("3"));
    assert_eq!(chosen(Some("5"), &["5"]), remove("5"));
    assert_eq!(chosen(None, &["3", "4", "5"]), remove("3"));
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

/// Found by a hostile proxy: a request to publish that was carried out after the settle time, a retry, and two were public.
#[test]
fn a_draft_that_may_yet_be_published_goes_before_another_follows() {
    let terms = terms(Guarantee::DraftThenPublish, Some(30));
    let seen = |ids: &[&str]| Sighting::Seen(ids.iter().map(|id| draft(id)).collect());
    let removing = Journal { removing: vec!["5".into()], ..Journal::default() };
    let asked = Journal { asked: vec!["5".into()], draft_id: Some("6".into()), ..Journal::default() };
    let remove = Step::Do(Action::Remove, Some("5".into()));
    assert_eq!(after_look(terms, removing.clone(), seen(&["5"])), remove);
    assert_eq!(after_look(terms, removing.clone(), seen(&["5", "6"])), remove);
    assert_eq!(after_look(terms, asked.clone(), seen(&["5", "6"])), remove);
    // Alone it is published, however often that was asked for.
    let publish = |id: &str| Step::Do(Action::Publish, Some(id.into()));
    assert_eq!(after_look(terms, Journal { draft_id: None, ..asked }, seen(&["5"])), publish("5"));
    // What one run has asked for counts for its next look.
    let mut run = Run::begin(terms, Journal::default());
    run.saw(seen(&["5"]), NOW);
    run.did(Action::Publish, Verdict::Unknown("w".into()), NOW);
    assert_eq!(run.journal().asked, ["5"]);

    let mut run = Run::begin(terms, removing.clone());
    run.saw(seen(&["5", "6"]), NOW);
    run.removed("5".into());
    assert_eq!(run.next(NOW), Step::Look);
    run.saw(seen(&["6"]), NOW);
    assert_eq!(run.next(NOW), publish("6"));
    run.removed("5".into());
    run.saw(seen(&["5", "6"]), NOW);
    let code = |step| match step {
        Step::Settle(Outcome::Again { failure, .. }) => failure.code,
        other => panic!("{other:?}"),
    };
    assert_eq!(code(run.next(NOW)), "draft_in_the_way", "not again and again");
    let refused = Verdict::Transient(draft_in_the_way("w"));
    let step = after(terms, removing, seen(&["5"]), Action::Remove, refused);
    assert_eq!(code(step), "draft_in_the_way");
}

/// A platform that answers 429 with a pause of nothing was asked again as fast as it answered.
#[test]
fn a_pause_of_nothing_is_none_that_was_named() {
    for (named, waits) in [(None, 60), (Some(0), 60), (Some(1), 1), (Some(1_000_000), 86_400)] {
        let pause = Pause { failure: failure(), wait: named.map(Duration::from_secs) };
        let step =
            after_look(terms(Guarantee::Search, None), Journal::default(), Sighting::RateLimited(pause));
        let parked = Outcome::Parked { failure: failure(), wait: Duration::from_secs(waits) };
        assert_eq!(step, Step::Settle(parked));
    }
}
