//! What the sandbox does to a request, by its account's rules: pure, so that the same requests meet the same fate again.
//!
//! Chance is a hash of the seed, the rule, the article's `external_id`, the kind of the request and how manieth of its kind
//! it is: nothing depends on when a request comes, or on others.

use std::time::Duration;

use sha2::{Digest as _, Sha256};

use crate::store::SandboxStanding;

#[cfg(test)]
mod tests;

/// What the platform does instead of what it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// Does it, and the answer never comes.
    LoseAnswer,
    /// Gives no answer, and does it a while later.
    Late,
    /// Does it, and answers 500.
    ErrorAfterAccepting,
    /// Does nothing, and answers 503: whoever asked cannot tell that from the one before.
    Error,
    /// Says that it will not, and does nothing.
    Reject,
    /// Lets the account in no more, until credentials are put.
    LoginExpired,
    /// Asks for a pause, and does nothing.
    RateLimit,
    /// Takes its time, then does it.
    Slow,
    /// Does it, the answer never comes, and from then on the article cannot be searched for.
    Unsearchable,
    /// Each event of the article is delivered twice.
    DuplicateCallback,
    /// One of those that pass, by chance.
    Random,
}

/// What a request to the platform asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Looks for an article.
    Find,
    /// Makes a draft.
    Draft,
    /// Publishes one.
    Publish,
    /// Removes one.
    Remove,
    /// Asks whether the login works.
    Login,
    /// Lists what there is.
    List,
}

impl Kind {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Find => "find",
            Self::Draft => "draft",
            Self::Publish => "publish",
            Self::Remove => "remove",
            Self::Login => "login",
            Self::List => "list",
        }
    }

    /// Those that a rule can be about.
    pub(super) const STEPS: [Self; 3] = [Self::Find, Self::Draft, Self::Publish];

    /// The how manieth of its kind about its article a request was; zero for a kind that is not counted.
    pub(super) fn nth(self, standing: &SandboxStanding) -> u32 {
        let counted = match self {
            Self::Find => standing.finds,
            Self::Draft => standing.drafts,
            Self::Publish => standing.publishes,
            Self::Remove | Self::Login | Self::List => 0,
        };
        u32::try_from(counted).unwrap_or_default()
    }
}

impl Fault {
    pub(super) const ALL: [Self; 11] = [
        Self::LoseAnswer,
        Self::Late,
        Self::ErrorAfterAccepting,
        Self::Error,
        Self::Reject,
        Self::LoginExpired,
        Self::RateLimit,
        Self::Slow,
        Self::Unsearchable,
        Self::DuplicateCallback,
        Self::Random,
    ];

    /// The name in an account's settings.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::LoseAnswer => "lose_answer",
            Self::Late => "late",
            Self::ErrorAfterAccepting => "error_after_accepting",
            Self::Error => "error",
            Self::Reject => "reject",
            Self::LoginExpired => "login_expired",
            Self::RateLimit => "rate_limit",
            Self::Slow => "slow",
            Self::Unsearchable => "unsearchable",
            Self::DuplicateCallback => "duplicate_callback",
            Self::Random => "random",
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|fault| fault.as_str() == name)
    }

    /// Which requests it can befall.
    pub(super) fn steps(self) -> &'static [Kind] {
        match self {
            Self::Late | Self::ErrorAfterAccepting | Self::Reject => &[Kind::Draft, Kind::Publish],
            Self::DuplicateCallback => &[],
            _ => &Kind::STEPS,
        }
    }

    /// Which it befalls where nothing is said; none: each.
    pub(super) fn usual_step(self) -> Option<Kind> {
        match self {
            Self::Random => None,
            Self::Reject | Self::LoginExpired | Self::RateLimit | Self::Slow => Some(Kind::Draft),
            _ => Some(Kind::Publish),
        }
    }

    /// How many requests about one article it befalls where nothing is said; none: each.
    pub(super) fn usual_times(self) -> Option<u32> {
        match self {
            // What is refused for ever would never end, and what was done once need not be done again.
            Self::Late | Self::Error | Self::LoginExpired | Self::RateLimit | Self::Slow => Some(1),
            _ => None,
        }
    }

    /// How long it lasts where nothing is said, and at most, in seconds; none where it has no length.
    pub(super) fn seconds(self) -> Option<(u32, u32)> {
        match self {
            // Within the settle time, so that a look afterwards sees it.
            Self::Late => Some((5, 25)),
            Self::RateLimit => Some((30, 24 * 60 * 60)),
            // Longer than a call may take with the usual lease of 30 s.
            Self::Slow => Some((20, 10 * 60)),
            _ => None,
        }
    }
}

/// The chance of `random` where nothing is said.
pub(super) const RANDOM_USUAL: f64 = 0.25;

/// What `random` chooses from: what passes by itself, so that every article gets there in the end.
const PASSING: [(Fault, u64); 6] = [
    (Fault::LoseAnswer, 0),
    (Fault::Late, 1),
    (Fault::ErrorAfterAccepting, 0),
    (Fault::Error, 0),
    (Fault::RateLimit, 1),
    (Fault::Slow, 1),
];

/// A rule of an account.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Rule {
    pub(super) fault: Fault,
    /// Which requests; none: each that it can befall.
    pub(super) step: Option<Kind>,
    /// Which articles: their `external_id`, where `*` stands for any text; none: each.
    pub(super) external_id: Option<String>,
    /// Only every so manieth article, in the order in which the platform first hears of them.
    pub(super) every: u32,
    /// The first request of its kind about an article that it befalls.
    pub(super) nth: u32,
    /// How many from there; none: each.
    pub(super) times: Option<u32>,
    /// With which chance.
    pub(super) probability: f64,
    /// Only when so many articles became public under the present login.
    pub(super) after: u32,
    /// How long it lasts.
    pub(super) lasts: Duration,
}

impl Rule {
    /// The rule of a fault where nothing else is said.
    pub(super) fn usual(fault: Fault) -> Self {
        Self {
            fault,
            step: fault.usual_step(),
            external_id: None,
            every: 1,
            nth: 1,
            times: fault.usual_times(),
            probability: if fault == Fault::Random { RANDOM_USUAL } else { 1.0 },
            after: 0,
            lasts: Duration::from_secs(fault.seconds().map_or(0, |(usual, _)| usual.into())),
        }
    }

    fn is_about(&self, external_id: &str) -> bool {
        self.external_id.as_deref().is_none_or(|pattern| fits(pattern, external_id))
    }
}

/// What an account's settings say.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Settings {
    /// The first that applies counts.
    pub(super) rules: Vec<Rule>,
    pub(super) seed: u32,
    /// What every request takes.
    pub(super) latency: Duration,
}

/// What befalls a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Befalls {
    pub(super) fault: Fault,
    pub(super) lasts: Duration,
}

impl Settings {
    /// What befalls a request about an article, of an account that stands like that; none: it is done and answered.
    pub(super) fn befalls(
        &self,
        kind: Kind,
        external_id: &str,
        standing: &SandboxStanding,
    ) -> Option<Befalls> {
        if standing.logged_out {
            return Some(Befalls { fault: Fault::LoginExpired, lasts: Duration::ZERO });
        }
        let mut rules = (0u32..).zip(&self.rules);
        rules.find_map(|(at, rule)| self.by(at, rule, kind, external_id, standing))
    }

    fn by(
        &self,
        at: u32,
        rule: &Rule,
        kind: Kind,
        external_id: &str,
        standing: &SandboxStanding,
    ) -> Option<Befalls> {
        let ordinal = u32::try_from(standing.ordinal).unwrap_or_default();
        let published = u32::try_from(standing.published).unwrap_or_default();
        if !rule.fault.steps().contains(&kind)
            || !rule.is_about(external_id)
            || ordinal % rule.every != 0
            || published < rule.after
        {
            return None;
        }
        // The search for what was sent fails from then on, so it is the sending that counts and that is drawn for.
        let searches = rule.fault == Fault::Unsearchable && kind == Kind::Find;
        let counted = if searches { rule.step.unwrap_or(kind) } else { kind };
        let nth = counted.nth(standing);
        let over = |times: u32| nth >= rule.nth.saturating_add(times);
        if rule.step.is_some_and(|step| step != counted)
            || nth < rule.nth
            || (!searches && rule.times.is_some_and(over))
        {
            return None;
        }
        let drawn = if searches { rule.nth } else { nth };
        let chance = |what: &str| self.chance(at, external_id, what, drawn);
        if chance(counted.as_str()) >= rule.probability {
            return None;
        }
        if rule.fault == Fault::Random {
            return Some(passing(kind, chance(&format!("which {}", kind.as_str()))));
        }
        Some(Befalls { fault: rule.fault, lasts: rule.lasts })
    }

    /// Whether the events of an article are delivered twice.
    pub(super) fn tells_twice(&self, external_id: &str) -> bool {
        let mut rules = (0u32..).zip(&self.rules);
        rules.any(|(at, rule)| {
            rule.fault == Fault::DuplicateCallback
                && rule.is_about(external_id)
                && self.chance(at, external_id, "callback", 1) < rule.probability
        })
    }

    /// At least 0 and below 1, always the same for the same.
    fn chance(&self, rule: u32, external_id: &str, what: &str, nth: u32) -> f64 {
        let mut hash = Sha256::new();
        for number in [self.seed, rule, nth] {
            hash.update(number.to_be_bytes());
        }
        // The kind has no NUL, so the two texts do not run together.
        hash.update(what);
        hash.update([0]);
        hash.update(external_id);
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&hash.finalize()[..4]);
        f64::from(u32::from_be_bytes(bytes)) / (f64::from(u32::MAX) + 1.0)
    }
}

fn passing(kind: Kind, chance: f64) -> Befalls {
    let mut fitting = PASSING.iter().filter(|(fault, _)| fault.steps().contains(&kind)).collect::<Vec<_>>();
    let mut left = chance;
    while fitting.len() > 1 {
        // One after the other, each with the same chance, without a number that is rounded.
        let share = 1.0 / f64::from(u32::try_from(fitting.len()).unwrap_or(1));
        if left < share {
            break;
        }
        left = (left - share) / (1.0 - share);
        fitting.remove(0);
    }
    let (fault, seconds) = fitting.first().copied().unwrap_or(&PASSING[0]);
    Befalls { fault: *fault, lasts: Duration::from_secs(*seconds) }
}

/// Whether a text is like the pattern, in which `*` stands for any text.
fn fits(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}
