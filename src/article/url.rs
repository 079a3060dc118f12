//! Addresses in an article.

use super::URL_MAX;

/// Why a text is no http(s) URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BadUrl {
    TooLong,
    NotHttp,
}

/// Reads a URL for callbacks, as an article's is read; whether it may be called is asked when it is.
pub fn callback_url(text: &str) -> Result<String, String> {
    match check(text) {
        Ok(()) => Ok(text.to_owned()),
        Err(BadUrl::TooLong) => Err(format!("it is longer than {URL_MAX} characters")),
        Err(BadUrl::NotHttp) => Err("write an absolute http or https URL".to_owned()),
    }
}

/// Checks that a text is an absolute http(s) URL (WHATWG URL Standard). The text is kept as it was sent.
pub(super) fn check(text: &str) -> Result<(), BadUrl> {
    if text.chars().count() > URL_MAX {
        return Err(BadUrl::TooLong);
    }
    // The parser forgives blanks and control characters that a page or a header would not.
    if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(BadUrl::NotHttp);
    }
    let url = ::url::Url::parse(text).map_err(|_| BadUrl::NotHttp)?;
    let http = matches!(url.scheme(), "http" | "https");
    let spelt_out = text.get(url.scheme().len()..).is_some_and(|rest| rest.starts_with("://"));
    if http && spelt_out && url.has_host() { Ok(()) } else { Err(BadUrl::NotHttp) }
}

/// Whether a text is an absolute http(s) URL of at most [`URL_MAX`] characters.
#[must_use]
pub fn is_http_url(text: &str) -> bool {
    check(text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_absolute_http_urls_pass() {
        for good in ["https://example.org", "http://例え.jp/a?b#c", "HTTPS://EXAMPLE.org/", "https://u:p@h/"]
        {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        let bad = [
            "",
            "example.org",
            "//example.org",
            "ftp://h/",
            "javascript:alert(1)",
            "https:h",
            "https://",
            "http://a b/",
        ];
        for bad in bad {
            assert_eq!(check(bad), Err(BadUrl::NotHttp), "{bad}");
        }
        assert_eq!(check(&format!("https://h/{}", "a".repeat(2_039))), Err(BadUrl::TooLong));
        assert_eq!(check(&format!("https://h/{}", "a".repeat(2_038))), Ok(()));
    }
}
