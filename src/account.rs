//! Accounts and groups: their names, and what callers send of them; valid once parsed.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

mod parse;
mod schema;

pub use schema::{AccountRequest, GroupRequest};

/// The longest group code, in characters.
pub const GROUP_CODE_MAX: usize = 64;
/// The longest name of a platform, in characters.
pub const PLATFORM_MAX: usize = 32;
/// The longest id of an account, in characters.
pub const ACCOUNT_ID_MAX: usize = 128;
/// The longest name for people, of an account or a group, in characters.
pub const DISPLAY_NAME_MAX: usize = 200;
/// The largest settings, and the largest credentials, in bytes of their JSON text: keys and tokens are far smaller.
pub const SETTINGS_MAX_BYTES: usize = 16 * 1024;
/// The longest pause between two starts of an account, in seconds: a week; what is rarer is not paced but planned.
pub const MIN_INTERVAL_MAX_SECONDS: i32 = 7 * 24 * 60 * 60;
/// How many publications an account may have in hand at once, at most: a claim takes far fewer.
pub const MAX_IN_FLIGHT_MAX: i32 = 1_000;
/// How many it may have in hand where nothing is said.
pub const MAX_IN_FLIGHT_DEFAULT: i32 = 4;
/// The highest daily limit: what the database's column holds.
pub const DAILY_LIMIT_MAX: i32 = i32::MAX;
/// The most accounts of a tenant: all are listed in one answer.
pub const ACCOUNTS_MAX: usize = 10_000;
/// The most groups of a tenant: all are listed in one answer.
pub const GROUPS_MAX: usize = 10_000;
/// The most accounts of a group: an article becomes as many publications in one statement.
pub const GROUP_ACCOUNTS_MAX: usize = 1_000;

/// A name that does not follow its rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {rule}")]
pub struct BadName {
    what: &'static str,
    rule: &'static str,
}

/// A named set of accounts, in the caller's words.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct GroupCode(String);

impl GroupCode {
    /// The code as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for GroupCode {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
        if (1..=GROUP_CODE_MAX).contains(&text.len()) && text.chars().all(allowed) {
            Ok(Self(text.to_owned()))
        } else {
            Err(BadName { what: "a group code", rule: "is 1–64 of A-Z a-z 0-9 _ . -" })
        }
    }
}

impl TryFrom<String> for GroupCode {
    type Error = BadName;

    fn try_from(text: String) -> Result<Self, BadName> {
        text.parse()
    }
}

impl From<GroupCode> for String {
    fn from(code: GroupCode) -> Self {
        code.0
    }
}

impl fmt::Display for GroupCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What names an account: its platform, `[a-z0-9_]{1,32}`, and its id there, `[A-Za-z0-9._@-]{1,128}`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AccountKey {
    platform: String,
    account_id: String,
}

impl AccountKey {
    /// Reads the two names.
    pub fn new(platform: &str, account_id: &str) -> Result<Self, BadName> {
        if let Some(bad) = bad_platform(platform).or_else(|| bad_account_id(account_id)) {
            return Err(bad);
        }
        Ok(Self { platform: platform.to_owned(), account_id: account_id.to_owned() })
    }

    /// Takes the two names as a row holds them: they were valid when they were stored, and are not asked again.
    #[must_use]
    pub fn stored(platform: String, account_id: String) -> Self {
        Self { platform, account_id }
    }

    /// The two names, for an answer.
    #[must_use]
    pub fn into_names(self) -> (String, String) {
        (self.platform, self.account_id)
    }

    /// The platform.
    #[must_use]
    pub fn platform(&self) -> &str {
        &self.platform
    }

    /// The account's id on its platform.
    #[must_use]
    pub fn account_id(&self) -> &str {
        &self.account_id
    }
}

impl FromStr for AccountKey {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        let slash = BadName { what: "an account", rule: "is written platform/account_id" };
        let (platform, account_id) = text.split_once('/').ok_or(slash)?;
        Self::new(platform, account_id)
    }
}

impl fmt::Display for AccountKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.platform, self.account_id)
    }
}

/// Why a text is no platform's name, if it is none.
#[must_use]
pub fn bad_platform(text: &str) -> Option<BadName> {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    let good = (1..=PLATFORM_MAX).contains(&text.len()) && text.bytes().all(allowed);
    (!good).then_some(BadName { what: "a platform", rule: "is 1–32 of a-z 0-9 _" })
}

/// Why a text is no account's id, if it is none.
#[must_use]
pub fn bad_account_id(text: &str) -> Option<BadName> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"._@-".contains(&b);
    let good = (1..=ACCOUNT_ID_MAX).contains(&text.len()) && text.bytes().all(allowed);
    (!good).then_some(BadName { what: "an account_id", rule: "is 1–128 of A-Z a-z 0-9 . _ @ -" })
}

/// What logs in on a platform, a JSON object; never shown.
#[derive(Clone, PartialEq)]
pub struct Credentials(Value);

impl Credentials {
    /// Takes what was sent, or what was stored.
    #[must_use]
    pub fn new(value: Value) -> Self {
        Self(value)
    }

    /// None set.
    #[must_use]
    pub fn none() -> Self {
        Self(Value::Null)
    }

    /// The member of that name, if it is a text.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_str()
    }

    /// The object itself, for the platform.
    #[must_use]
    pub fn expose(&self) -> &Value {
        &self.0
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(…)")
    }
}

/// The body of `PUT /accounts/{platform}/{account_id}`, valid but for what its platform says.
#[derive(Debug, Clone, PartialEq)]
pub struct AccountInput {
    /// For people.
    pub display_name: String,
    /// As the platform defines them, a JSON object.
    pub settings: Value,
    /// None: not sent.
    pub credentials: Option<Credentials>,
    /// The least time between two starts, in seconds.
    pub min_interval_seconds: i32,
    /// How many publications it may have in hand at once.
    pub max_in_flight: i32,
    /// The most publications a day, in its time zone.
    pub daily_limit: Option<i32>,
    /// The IANA name of the zone in which its days begin.
    pub time_zone: &'static str,
    /// Whether what waits for its login goes on when it is renewed.
    pub resume: bool,
}

/// The body of `PUT /groups/{group_code}`, valid but for whether its accounts exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupInput {
    /// For people.
    pub title: String,
    /// In order, none twice.
    pub accounts: Vec<AccountKey>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_named_by_two_names() {
        for (platform, account_id) in
            [("static_site", "blog1"), ("x", "a@b.c-D_9"), (&"p".repeat(32), &"a".repeat(128))]
        {
            let key = AccountKey::new(platform, account_id).unwrap();
            assert_eq!((key.platform(), key.account_id()), (platform, account_id));
            assert_eq!(key.to_string().parse::<AccountKey>().unwrap(), key);
        }
        for platform in ["", "X", "a-b", "ä", &"p".repeat(33)] {
            assert!(AccountKey::new(platform, "a").is_err(), "{platform:?}");
        }
        for account_id in ["", "a b", "a/b", "ä", "a\n", &"a".repeat(129)] {
            assert!(AccountKey::new("x", account_id).is_err(), "{account_id:?}");
        }
        for text in ["", "x", "x/", "/a", "x/a/b"] {
            assert!(text.parse::<AccountKey>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn credentials_do_not_show() {
        let credentials = Credentials::new(serde_json::json!({"token": "hunter2"}));
        assert_eq!(format!("{credentials:?}"), "Credentials(…)");
        assert_eq!((credentials.text("token"), credentials.text("other")), (Some("hunter2"), None));
        assert_eq!(Credentials::none().text("token"), None);
    }

    #[test]
    fn group_codes_follow_their_rule() {
        for good in ["a", "A-z_0.9", &"x".repeat(64)] {
            assert_eq!(good.parse::<GroupCode>().unwrap().as_str(), good);
        }
        for bad in ["", "a b", "ä", "a/b", &"x".repeat(65)] {
            assert!(bad.parse::<GroupCode>().is_err(), "{bad:?}");
        }
    }
}
