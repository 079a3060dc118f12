//! What a tenant may ask for: requests a second, and articles a day. Until an operator says so, it has no limits.

/// The largest rate and burst, in requests: far above what a node can answer, and far below what its arithmetic can bear.
pub const REQUESTS_MAX: u32 = 1_000_000;

/// The largest daily quota, in articles: above what a database can take in a day.
pub const ARTICLES_MAX: u32 = 1_000_000_000;

/// How fast requests may come: so many at once, and after that so many a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Requests a second, at least 1.
    pub per_second: u32,
    /// How many may come at once, at least 1.
    pub burst: u32,
}

/// The limits of a tenant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Of its requests, at each node; none: as many as come.
    pub rate: Option<Rate>,
    /// Of the articles that it hands in on a day of UTC, in all; none: as many as come.
    pub articles_per_day: Option<u32>,
}

/// What is to become of a tenant's limits; none: it stays. The inner none: no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LimitsChange {
    /// Requests a second.
    pub per_second: Option<Option<u32>>,
    /// How many at once; not said with a new rate: what may come in a second.
    pub burst: Option<u32>,
    /// Articles a day.
    pub articles_per_day: Option<Option<u32>>,
}

/// A burst without a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a burst belongs to a rate, and this tenant has none: set --rate, too")]
pub struct BurstAlone;

impl LimitsChange {
    /// Whether it changes nothing.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// The limits after it.
    pub fn of(&self, before: Limits) -> Result<Limits, BurstAlone> {
        let rate = match (self.per_second, before.rate) {
            (Some(Some(per_second)), _) => Some(Rate { per_second, burst: self.burst.unwrap_or(per_second) }),
            (None, Some(rate)) => Some(Rate { burst: self.burst.unwrap_or(rate.burst), ..rate }),
            (Some(None), _) | (None, None) if self.burst.is_some() => return Err(BurstAlone),
            (Some(None), _) | (None, None) => None,
        };
        let articles_per_day = self.articles_per_day.unwrap_or(before.articles_per_day);
        Ok(Limits { rate, articles_per_day })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_is_changed_alone_and_a_burst_needs_a_rate() {
        let none = LimitsChange::default();
        let rate = |per_second, burst| Some(Rate { per_second, burst });
        let set = LimitsChange { per_second: Some(Some(5)), ..none }.of(Limits::default()).unwrap();
        assert_eq!(set, Limits { rate: rate(5, 5), articles_per_day: None });
        let set = LimitsChange { burst: Some(20), articles_per_day: Some(Some(9)), ..none }.of(set).unwrap();
        assert_eq!(set, Limits { rate: rate(5, 20), articles_per_day: Some(9) });
        assert_eq!(none.of(set), Ok(set));
        let set = LimitsChange { per_second: Some(Some(7)), ..none }.of(set).unwrap();
        assert_eq!(set.rate, rate(7, 7));
        let alone = LimitsChange { burst: Some(3), ..none };
        assert_eq!(alone.of(Limits::default()), Err(BurstAlone));
        assert_eq!(LimitsChange { per_second: Some(None), ..alone }.of(set), Err(BurstAlone));
        let unlimited =
            LimitsChange { per_second: Some(None), burst: None, articles_per_day: Some(None) }.of(set);
        assert_eq!(unlimited, Ok(Limits::default()));
    }
}
