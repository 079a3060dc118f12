use super::*;
use crate::clock::{Clock, TestClock};

fn account(name: &str) -> AccountKey {
    AccountKey::new("p", name).unwrap()
}

fn one(name: &str, status: Status, error: Option<&str>) -> HeldPublication {
    HeldPublication {
        publication_id: Uuid::from_u128(name.bytes().map(u128::from).sum()),
        fence: 1,
        account: account(name),
        position: 1,
        status,
        url: (status == Status::Success).then(|| "https://h/a".into()),
        error_code: error.map(Into::into),
        in_doubt: false,
        added: false,
        account_deleted: false,
        updated_at: TestClock::seeded(1).now(),
    }
}

fn task(publications: Vec<HeldPublication>) -> HeldTask {
    let now = TestClock::seeded(1).now();
    let submitted_at = Some(now);
    HeldTask {
        task_id: Uuid::nil(),
        group_code: "g".into(),
        publish_at: None,
        submitted_at,
        content_removed: false,
        now,
        publications,
    }
}

#[test]
fn what_has_not_started_is_cancelled_and_nothing_else() {
    let fates = [
        (Status::Draft, None, Fate::Cancel),
        (Status::Submitted, None, Fate::Cancel),
        (Status::Submitted, Some("site_unwritable"), Fate::Cancel),
        (Status::LoginExpired, Some("login_expired"), Fate::Cancel),
        (Status::Running, None, Fate::InFlight),
        (Status::Success, None, Fate::Live),
        (Status::Failed, Some(CANCELLED), Fate::Cancelled),
        (Status::Failed, Some(OUTCOME_UNKNOWN), Fate::Over),
    ];
    let all = task(fates.iter().map(|(status, error, _)| one("a", *status, *error)).collect());
    assert_eq!(cancelling(&all).unwrap(), fates.map(|(_, _, fate)| fate));
    for (status, error, fate) in fates {
        // Beside one that failed, so that an end alone is refused.
        let refused =
            cancelling(&task(vec![one("a", status, error), one("b", Status::Failed, Some("x"))])).is_err();
        assert_eq!(refused, matches!(fate, Fate::Live | Fate::Over), "{status} {error:?}");
    }
    assert!(cancelled(Status::Submitted).2 && !cancelled(Status::Draft).2);
}

#[test]
fn what_may_be_public_is_not_called_cancelled_and_a_person_may_say_what_it_is() {
    let doubtful = |status| HeldPublication { in_doubt: true, ..one("a", status, Some("login_expired")) };
    for status in [Status::Submitted, Status::LoginExpired] {
        assert_eq!(fate(&doubtful(status)), Fate::InFlight, "{status}");
    }
    let with = |confirmed| retry(&task(vec![]), &doubtful(Status::LoginExpired), confirmed);
    // It looks before anything else, so nobody has to know.
    assert_eq!(with(None), Retrying::Again("retried_by_caller"));
    assert_eq!(with(Some(&Confirmed::NotPublished)), Retrying::Again(CONFIRMED_NOT_PUBLISHED));
    let published = Confirmed::Published { url: "https://h/a".into(), remote_id: None };
    assert_eq!(with(Some(&published)), Retrying::Published { url: "https://h/a".into(), remote_id: None });
}

#[test]
fn only_what_ended_without_success_is_retried() {
    let reason = |status, error| match retry(&task(vec![]), &one("a", status, error), None) {
        Retrying::Skip(reason) | Retrying::Again(reason) => reason,
        Retrying::Published { .. } => panic!(),
    };
    for status in [Status::Draft, Status::Submitted, Status::Running, Status::Success] {
        assert_eq!(reason(status, None), status.as_str());
    }
    assert_eq!(reason(Status::Failed, Some("rejected")), "retried_by_caller");
    assert_eq!(reason(Status::LoginExpired, Some("login_expired")), "retried_by_caller");
    assert_eq!(reason(Status::Failed, Some(CANCELLED)), "retried_by_caller");
    assert_eq!(reason(Status::Failed, Some(OUTCOME_UNKNOWN)), "outcome_unknown");
    let never = HeldTask { submitted_at: None, ..task(vec![]) };
    let cancelled = retry(&never, &one("a", Status::Failed, Some(CANCELLED)), None);
    assert_eq!(cancelled, Retrying::Skip("cancelled_while_draft"));
    let gone = |error| HeldPublication { account_deleted: true, ..one("a", Status::Failed, Some(error)) };
    assert_eq!(retry(&task(vec![]), &gone("rejected"), None), Retrying::Skip("account_deleted"));
    let not = Some(&Confirmed::NotPublished);
    assert_eq!(retry(&task(vec![]), &gone(OUTCOME_UNKNOWN), not), Retrying::Skip("account_deleted"));
}

#[test]
fn only_what_nobody_knows_can_be_confirmed() {
    let published = Confirmed::Published { url: "https://h/a".into(), remote_id: None };
    let with = |status, error, confirmed| retry(&task(vec![]), &one("a", status, error), Some(confirmed));
    let walk = Retrying::Published { url: "https://h/a".into(), remote_id: None };
    assert_eq!(with(Status::Failed, Some(OUTCOME_UNKNOWN), &published), walk);
    for (status, error) in [
        (Status::Submitted, None),
        (Status::Running, None),
        (Status::Success, None),
        (Status::Failed, Some("rejected")),
        (Status::LoginExpired, Some(OUTCOME_UNKNOWN)),
    ] {
        assert_eq!(with(status, error, &published), Retrying::Skip(status.as_str()));
    }
    let not = &Confirmed::NotPublished;
    let again = Retrying::Again("confirmed_not_published");
    assert_eq!(with(Status::Failed, Some(OUTCOME_UNKNOWN), not), again);
    assert_eq!(with(Status::Failed, Some("rejected"), not), Retrying::Again("retried_by_caller"));
    assert_eq!(with(Status::Success, None, not), Retrying::Skip("success"));
}

#[test]
fn a_retry_speaks_of_one_account_or_of_all() {
    let both = task(vec![one("a", Status::Failed, Some("x")), one("b", Status::Success, None)]);
    let named = |name: &str| RetryRequest { account: Some(account(name)), confirmed: None };
    assert_eq!(retrying(&both, &RetryRequest::default()).unwrap().len(), 2);
    assert_eq!(retrying(&both, &named("b")).unwrap(), [(1, Retrying::Skip("success"))]);
    assert!(matches!(retrying(&both, &named("c")), Err(Refusal::NoAccount(_))));
}

#[test]
fn a_drafts_accounts_are_those_of_its_group_and_those_added_by_hand() {
    let draft = |name| one(name, Status::Draft, None);
    let by_hand = |name| HeldPublication { added: true, ..draft(name) };
    let drafts = [draft("a"), draft("b"), by_hand("x"), by_hand("c")];
    let id = |name| draft(name).publication_id;
    let taken = taking(&[account("c"), account("d"), account("b")], &drafts);
    assert_eq!(taken.gone, [id("a")]);
    assert_eq!(taken.kept, [(id("c"), 1), (id("b"), 3), (id("x"), 4)]);
    assert_eq!(taken.new, [(account("d"), 2)]);
    assert_eq!(taking(&[account("a")], &[draft("a")]).kept, [(id("a"), 1)]);
}

#[test]
fn each_account_is_added_once_after_the_last() {
    let mut held = task(vec![one("a", Status::Success, None)]);
    held.publications[0].position = 7;
    let known = [account("b"), account("c")];
    let wanted = ["c", "a", "b", "c"].map(account);
    assert_eq!(adding(&held, &wanted, &known).unwrap(), [(account("c"), 8), (account("b"), 9)]);
    let unknown = ["b", "x", "a", "x"].map(account);
    assert_eq!(adding(&held, &unknown, &known), Err(Refusal::UnknownAccounts(vec![1, 3])));
    held.submitted_at = None;
    held.publications[0] = one("a", Status::Failed, Some(CANCELLED));
    assert!(matches!(adding(&held, &wanted, &known), Err(Refusal::Conflict(_))));
}

#[test]
fn only_a_draft_is_changed_and_submitted() {
    let mut draft = task(vec![one("a", Status::Draft, None)]);
    draft.submitted_at = None;
    assert_eq!((draft.must_be_draft(), draft.submits()), (Ok(()), Ok(true)));
    for status in [Status::Submitted, Status::Running, Status::Success, Status::LoginExpired] {
        let other = task(vec![one("a", status, None)]);
        assert_eq!(other.submits(), Ok(false));
        let Err(Refusal::Conflict(why)) = other.must_be_draft() else { panic!() };
        assert!(why.contains(other.status().as_str()), "{why}");
    }
    let mut cancelled = task(vec![one("a", Status::Failed, Some(CANCELLED))]);
    assert_eq!(cancelled.submits(), Ok(false));
    cancelled.submitted_at = None;
    assert!(cancelled.submits().is_err() && cancelled.must_be_draft().is_err());
}

#[test]
fn a_retry_keeps_to_publish_at() {
    let mut held = task(vec![]);
    assert_eq!(held.wait(), TimeDelta::zero());
    held.publish_at = Some(held.now - TimeDelta::hours(1));
    assert_eq!(held.wait(), TimeDelta::zero());
    held.publish_at = Some(held.now + TimeDelta::hours(1));
    assert_eq!(held.wait(), TimeDelta::hours(1));
}

#[test]
fn what_has_no_content_any_more_is_not_published() {
    let bare = |publications| HeldTask { content_removed: true, ..task(publications) };
    let failed = || bare(vec![one("a", Status::Success, None), one("b", Status::Failed, Some("rejected"))]);
    let refused = retrying(&failed(), &RetryRequest::default()).unwrap_err();
    assert!(
        matches!(&refused, Refusal::Conflict(why) if why.contains("ended as failed") && why.contains("removed by age"))
    );
    let named =
        |id: &str| RetryRequest { account: Some(one(id, Status::Failed, None).account), confirmed: None };
    assert_eq!(retrying(&failed(), &named("b")).unwrap_err(), refused);
    assert_eq!(retrying(&failed(), &named("a")), Ok(vec![(0, Retrying::Skip("success"))]));
    let new = one("c", Status::Failed, None).account;
    assert_eq!(
        adding(&failed(), std::slice::from_ref(&new), std::slice::from_ref(&new)).unwrap_err(),
        refused
    );
    assert_eq!(adding(&failed(), &[one("a", Status::Success, None).account], &[]), Ok(Vec::new()));
    // What waits for a login can still be cancelled.
    assert_eq!(cancelling(&bare(vec![one("a", Status::LoginExpired, None)])), Ok(vec![Fate::Cancel]));
}
