//! How long an answer asks to be left alone.

use std::time::Duration;

use chrono::{DateTime, Utc};

/// The longest wait that is granted: 24 hours. A receiver must not be able to stop its callbacks.
pub const RETRY_AFTER_MAX: Duration = Duration::from_hours(24);

/// The wait that a `Retry-After` field asks for (RFC 9110 §10.2.3), seen at `now`.
///
/// Both forms are read: whole seconds, and a date in any of the three forms of RFC 9110 §5.6.7. At most
/// [`RETRY_AFTER_MAX`]; a date that has passed is no wait. Nothing if the text is neither form.
#[must_use]
pub fn retry_after(text: &str, now: DateTime<Utc>) -> Option<Duration> {
    let text = text.trim_matches([' ', '\t']);
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number too large for the type is also larger than what is granted.
        let wait = text.parse().map_or(RETRY_AFTER_MAX, Duration::from_secs);
        return Some(wait.min(RETRY_AFTER_MAX));
    }
    let until = DateTime::<Utc>::from(httpdate::parse_http_date(text).ok()?);
    let wait = until.signed_duration_since(now).to_std().unwrap_or(Duration::ZERO);
    Some(wait.min(RETRY_AFTER_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    #[test]
    fn both_forms_are_read() {
        let now = at("1994-11-06T08:49:00Z");
        let table = [
            ("0", Some(0)),
            ("120", Some(120)),
            ("  7\t", Some(7)),
            ("86400", Some(86_400)),
            ("86401", Some(86_400)),
            ("99999999999999999999999999", Some(86_400)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(37)),
            ("Sunday, 06-Nov-94 08:49:37 GMT", Some(37)),
            ("Sun Nov  6 08:49:37 1994", Some(37)),
            ("Tue, 08 Nov 1994 08:49:37 GMT", Some(86_400)),
            ("Sun, 06 Nov 1994 08:48:59 GMT", Some(0)),
            ("Sun, 06 Nov 1994 08:49:37 CET", None),
            ("", None),
            ("  ", None),
            ("-1", None),
            ("+5", None),
            ("1.5", None),
            ("12 seconds", None),
            ("１２", None),
            ("tomorrow", None),
        ];
        for (text, seconds) in table {
            assert_eq!(retry_after(text, now), seconds.map(Duration::from_secs), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_survived_and_no_wait_is_longer_than_granted(text in "\\PC{0,40}|[0-9]{1,40}") {
            let wait = retry_after(&text, at("2026-01-01T00:00:00Z"));
            prop_assert!(wait.unwrap_or_default() <= RETRY_AFTER_MAX);
        }
    }
}
