use super::*;

fn first(kind: Kind) -> SandboxStanding {
    nth(kind, 1)
}

fn nth(kind: Kind, nth: i32) -> SandboxStanding {
    let mut standing = SandboxStanding { ordinal: 1, finds: 1, ..SandboxStanding::default() };
    match kind {
        Kind::Find => standing.finds = nth,
        Kind::Draft => standing.drafts = nth,
        _ => standing.publishes = nth,
    }
    standing
}

fn of(rules: impl IntoIterator<Item = Rule>) -> Settings {
    Settings { rules: rules.into_iter().collect(), ..Settings::default() }
}

fn fault(settings: &Settings, kind: Kind, standing: &SandboxStanding) -> Option<Fault> {
    settings.befalls(kind, "a", standing).map(|one| one.fault)
}

#[test]
fn a_star_stands_for_any_text() {
    for (pattern, text) in
        [("a", "a"), ("a*", "a"), ("*", ""), ("*", "x/y"), ("a*c", "abc"), ("a*b*c", "axbyc"), ("*b", "ab")]
    {
        assert!(fits(pattern, text), "{pattern} {text}");
    }
    for (pattern, text) in [("a", "ab"), ("a", ""), ("a*a", "a"), ("*b", "ba"), ("a*b*c", "acb"), ("", "a")] {
        assert!(!fits(pattern, text), "{pattern} {text}");
    }
}

#[test]
fn a_rule_befalls_its_step_from_the_nth_request_on() {
    let rule = Rule { nth: 2, times: Some(2), ..Rule::usual(Fault::Error) };
    let settings = of([rule]);
    let told = [1, 2, 3, 4].map(|n| fault(&settings, Kind::Publish, &nth(Kind::Publish, n)));
    assert_eq!(told, [None, Some(Fault::Error), Some(Fault::Error), None]);
    assert_eq!(fault(&settings, Kind::Draft, &nth(Kind::Draft, 2)), None);
    for kind in [Kind::Remove, Kind::Login, Kind::List] {
        assert_eq!(fault(&of([Rule::usual(Fault::Random)]), kind, &first(Kind::Find)), None);
    }
}

#[test]
fn the_first_rule_that_applies_counts() {
    let settings = of([
        Rule { external_id: Some("b*".into()), ..Rule::usual(Fault::Reject) },
        Rule { every: 3, ..Rule::usual(Fault::RateLimit) },
        Rule::usual(Fault::Slow),
    ]);
    let told = |id: &str, ordinal| {
        let standing = SandboxStanding { ordinal, ..first(Kind::Draft) };
        settings.befalls(Kind::Draft, id, &standing).map(|one| one.fault)
    };
    assert_eq!(told("b1", 3), Some(Fault::Reject));
    assert_eq!(told("a", 3), Some(Fault::RateLimit));
    assert_eq!(told("a", 4), Some(Fault::Slow));
}

#[test]
fn a_login_expires_after_so_many_articles_and_then_for_everything() {
    let settings = of([Rule { after: 2, ..Rule::usual(Fault::LoginExpired) }]);
    let told =
        |published| fault(&settings, Kind::Draft, &SandboxStanding { published, ..first(Kind::Draft) });
    assert_eq!([0, 1, 2].map(told), [None, None, Some(Fault::LoginExpired)]);
    let out = SandboxStanding { logged_out: true, ..first(Kind::Find) };
    for kind in [Kind::Find, Kind::Draft, Kind::Publish, Kind::Remove, Kind::Login, Kind::List] {
        assert_eq!(fault(&Settings::default(), kind, &out), Some(Fault::LoginExpired));
    }
}

#[test]
fn what_cannot_be_searched_for_is_what_was_sent() {
    let settings = of([Rule::usual(Fault::Unsearchable)]);
    assert_eq!(fault(&settings, Kind::Find, &first(Kind::Find)), None);
    assert_eq!(fault(&settings, Kind::Draft, &first(Kind::Draft)), None);
    let sent = first(Kind::Publish);
    assert_eq!(fault(&settings, Kind::Publish, &sent), Some(Fault::Unsearchable));
    assert_eq!(fault(&settings, Kind::Find, &sent), Some(Fault::Unsearchable));
    let never = of([Rule { step: Some(Kind::Find), ..Rule::usual(Fault::Unsearchable) }]);
    assert_eq!(fault(&never, Kind::Find, &first(Kind::Find)), Some(Fault::Unsearchable));
    assert_eq!(fault(&never, Kind::Publish, &sent), None);
}

#[test]
fn chance_follows_the_seed_and_nothing_else() {
    let rule = Rule { probability: 0.3, ..Rule::usual(Fault::LoseAnswer) };
    let draw = |seed| {
        let settings = Settings { seed, ..of([rule.clone()]) };
        let ids = (0..1_000).map(|n| format!("post-{n}"));
        ids.map(|id| settings.befalls(Kind::Publish, &id, &first(Kind::Publish)).is_some())
            .collect::<Vec<_>>()
    };
    assert_eq!(draw(1), draw(1));
    assert_ne!(draw(1), draw(2));
    let hit = draw(1).into_iter().filter(|hit| *hit).count();
    assert!((250..350).contains(&hit), "{hit}");
}

#[test]
fn random_chooses_from_all_that_passes_and_fits_the_step() {
    let settings = of([Rule { probability: 1.0, ..Rule::usual(Fault::Random) }]);
    for kind in Kind::STEPS {
        let mut seen = Vec::new();
        for n in 0..300 {
            let one = settings.befalls(kind, &format!("post-{n}"), &first(kind)).unwrap();
            assert!(one.fault.steps().contains(&kind) && one.lasts <= Duration::from_secs(1));
            if !seen.contains(&one.fault) {
                seen.push(one.fault);
            }
        }
        let fitting = PASSING.iter().filter(|(fault, _)| fault.steps().contains(&kind)).count();
        assert_eq!(seen.len(), fitting, "{kind:?} {seen:?}");
    }
}

#[test]
fn events_are_told_twice_where_a_rule_says_so() {
    let rule = Rule { external_id: Some("a*".into()), ..Rule::usual(Fault::DuplicateCallback) };
    let settings = of([Rule::usual(Fault::Reject), rule]);
    assert!(settings.tells_twice("a1") && !settings.tells_twice("b"));
    assert_eq!(
        fault(&of([Rule::usual(Fault::DuplicateCallback)]), Kind::Publish, &first(Kind::Publish)),
        None
    );
}
