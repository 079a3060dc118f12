//! Accounts and groups: their names, valid once parsed.

use std::fmt;
use std::str::FromStr;

use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The longest group code, in characters.
pub const GROUP_CODE_MAX: usize = 64;

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

/// What an account logs in with, as its platform defines it: a JSON object. It does not show.
#[derive(Clone)]
pub struct Credentials(SecretString);

impl Credentials {
    /// None set.
    #[must_use]
    pub fn none() -> Self {
        Self("{}".into())
    }

    /// Credentials of that JSON text; what cannot be read has no members.
    #[must_use]
    pub fn from_json(text: &[u8]) -> Self {
        Self(String::from_utf8_lossy(text).into_owned().into())
    }

    /// The member of that name, if it is a text.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<SecretString> {
        let members = serde_json::from_str::<Value>(self.0.expose_secret()).ok()?;
        members.get(name)?.as_str().map(Into::into)
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_do_not_show() {
        let credentials = Credentials::from_json(br#"{"secret": "hunter2", "n": 1}"#);
        assert_eq!(credentials.text("secret").unwrap().expose_secret(), "hunter2");
        assert!(credentials.text("n").is_none() && credentials.text("other").is_none());
        assert!(!format!("{credentials:?}").contains("hunter2"));
        assert!(Credentials::none().text("secret").is_none());
        assert!(Credentials::from_json(b"\xff").text("secret").is_none());
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
