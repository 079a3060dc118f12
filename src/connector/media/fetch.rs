//! Fetching one image, and what it means when that fails.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use percent_encoding::percent_decode_str;
use tokio::sync::OwnedSemaphorePermit;
use url::Url;

use super::plan::{Role, Wanted};
use super::{IMAGE_DEADLINE, IMAGE_MAX_BYTES, IMAGE_MAX_KIB, Image, Media};
use crate::article::URL_MAX;
use crate::connector::Failure;
use crate::outbound::{Answer, Call, CallError, Limits, Method};

/// The longest form of an image's address in a message, in characters: enough to find it by.
const SHOWN_MAX: usize = 120;

/// What is asked for: first what every platform takes.
const ACCEPT: &str = "image/jpeg, image/png, image/gif, image/webp;q=0.9, image/avif;q=0.5, */*;q=0.1";

/// Base64 as browsers read it in a `data:` URL: with or without padding (WHATWG Infra, forgiving-base64 decode).
const FORGIVING: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Why there is no image. Codes are `cover_…` or `image_…`, with `unavailable`, `too_large`, `wrong_type` or
/// `not_allowed`; messages name the address without its query and user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MediaError {
    /// It would end the same another time.
    Broken(Failure),
    /// Another time it may be there.
    Transient(Failure),
}

/// An image, and its room in memory.
pub(super) type Fetched = (Image, OwnedSemaphorePermit);

impl Media {
    /// Fetches an image by GET, once: an http(s) URL, within `deadline` and [`IMAGE_MAX_BYTES`], from an address that
    /// the client may call.
    pub async fn fetch(&self, role: Role, url: &str, deadline: Duration) -> Result<Image, MediaError> {
        if url.chars().count() > URL_MAX {
            let why = format!("its URL is longer than {URL_MAX} characters: shorten it");
            return Err(broken(role, "not_allowed", url, &why));
        }
        // One more than is taken, to tell a body of just the limit from a longer one.
        let limits = Limits { deadline, answer_bytes: IMAGE_MAX_BYTES + 1 };
        let headers = &[("accept", ACCEPT.to_owned())];
        let call = Call { method: Method::Get, url, headers, body: Vec::new(), limits };
        judged(role, url, self.client.send(call).await)
    }

    /// The image, with as much of the room for one as it takes.
    pub(super) async fn in_hand(
        &self,
        one: &Wanted,
        mut room: OwnedSemaphorePermit,
    ) -> Result<Fetched, MediaError> {
        let image = if one.address.starts_with("data:") {
            inline(one.role, &one.address)?
        } else {
            self.fetch(one.role, &one.address, IMAGE_DEADLINE).await?
        };
        let taken = room.split(image.bytes.capacity().div_ceil(1024).min(IMAGE_MAX_KIB));
        // Split off what it takes; the rest is given back here.
        Ok((image, taken.unwrap_or(room)))
    }
}

/// What an answer, or none, says about an image.
fn judged(role: Role, url: &str, answer: Result<Answer, CallError>) -> Result<Image, MediaError> {
    let passing = |why: &str| MediaError::Transient(role.failure("unavailable", told(url, why)));
    let answer = match answer {
        Ok(answer) => answer,
        Err(error @ (CallError::Refused(_) | CallError::Header(_))) => {
            return Err(broken(role, "not_allowed", url, &error.to_string()));
        }
        Err(error) => return Err(passing(&error.to_string())),
    };
    match answer.status {
        200 if answer.cut || answer.head.len() > IMAGE_MAX_BYTES => Err(too_large(role, url)),
        200 => Image::of(answer.head).map_err(|why| broken(role, "wrong_type", url, &why.to_string())),
        status @ (408 | 425 | 429 | 500..) => Err(passing(&format!("its server answered {status}"))),
        status @ (301 | 302 | 303 | 307 | 308) => {
            let to = answer.location.and_then(|to| Url::parse(url).ok()?.join(&to).ok());
            let to = to.map_or_else(String::new, |to| format!(" to {}", shown(to.as_str())));
            let why = format!(
                "its server answered {status}, a redirect{to}, and none is followed: use the final address"
            );
            Err(broken(role, "unavailable", url, &why))
        }
        status => {
            let why = format!("its server answered {status}: check that the image can be seen by everybody");
            Err(broken(role, "unavailable", url, &why))
        }
    }
}

/// The image of a `data:` URL (RFC 2397), judged as one that was fetched.
fn inline(role: Role, url: &str) -> Result<Image, MediaError> {
    let wrong = |why: &str| broken(role, "wrong_type", url, why);
    let unreadable = || wrong("it cannot be read: write data:image/png;base64,… with the image's bytes");
    let (head, body) =
        url.strip_prefix("data:").and_then(|url| url.split_once(',')).ok_or_else(unreadable)?;
    let mut bytes = percent_decode_str(body).collect::<Vec<_>>();
    let is_base64 = head.rsplit(';').next().is_some_and(|last| last.trim().eq_ignore_ascii_case("base64"));
    if head.contains(';') && is_base64 {
        bytes.retain(|byte| !byte.is_ascii_whitespace());
        bytes = FORGIVING.decode(bytes).map_err(|_| unreadable())?;
    }
    if bytes.len() > IMAGE_MAX_BYTES {
        return Err(too_large(role, url));
    }
    Image::of(bytes).map_err(|why| wrong(&why.to_string()))
}

fn too_large(role: Role, url: &str) -> MediaError {
    let why = format!("it is larger than {} MiB: make it smaller", IMAGE_MAX_BYTES / (1024 * 1024));
    broken(role, "too_large", url, &why)
}

fn broken(role: Role, what: &str, url: &str, why: &str) -> MediaError {
    MediaError::Broken(role.failure(what, told(url, why)))
}

fn told(url: &str, why: &str) -> String {
    format!("{}: {why}", shown(url))
}

/// An address as it stands in a message: neither its query nor its user, which may be secrets; shortened.
pub(super) fn shown(url: &str) -> String {
    let Ok(url) = Url::parse(url) else { return "an image without a readable URL".to_owned() };
    let (true, Some(host)) = (matches!(url.scheme(), "http" | "https"), url.host_str()) else {
        return format!("a {}: image", url.scheme().chars().take(SHOWN_MAX).collect::<String>());
    };
    let port = url.port().map_or_else(String::new, |port| format!(":{port}"));
    let whole = format!("{}://{host}{port}{}", url.scheme(), url.path());
    if whole.chars().count() <= SHOWN_MAX {
        return whole;
    }
    whole.chars().take(SHOWN_MAX - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connector::media::Kind;

    #[test]
    fn an_image_in_the_text_itself_is_judged_like_any_other() {
        let png = b"\x89PNG\r\n\x1a\n one";
        for url in [
            "data:image/png;base64,iVBORw0KGgogb25l",
            "data:image/png;base64,iVBORw0K%0AGgogb25l",
            "data:;base64,iVBO%20Rw0KGgogb25l",
            "data:text/html;charset=utf-8;BASE64,iVBORw0KGgogb25l",
            "data:image/png,%89PNG%0d%0a%1a%0a%20one",
        ] {
            let image = inline(Role::Body, url).unwrap();
            assert_eq!((image.kind, &image.bytes[..]), (Kind::Png, &png[..]), "{url}");
        }
        // Without its padding, as browsers read it.
        assert_eq!(inline(Role::Body, "data:;base64,R0lGODlhIQ").unwrap().bytes, b"GIF89a!");
        for (url, word) in [
            ("data:image/png;base64,iVBO*w0KGgo", "cannot be read"),
            ("data:image/png;base64", "cannot be read"),
            ("data:image/png;base64,", "is empty"),
            ("data:base64,iVBORw0KGgogb25l", "no image"),
            ("data:image/svg+xml;utf8,<svg xmlns='x'/>", "SVG"),
            ("data:image/svg+xml;base64,PHN2Zz48L3N2Zz4=", "SVG"),
        ] {
            let Err(MediaError::Broken(why)) = inline(Role::Body, url) else { panic!("{url}") };
            assert_eq!(why.code, "image_wrong_type");
            assert!(
                why.message.starts_with("a data: image: ") && why.message.contains(word),
                "{}",
                why.message
            );
        }
        let large = format!("data:image/gif,GIF89a{}", "x".repeat(IMAGE_MAX_BYTES));
        let Err(MediaError::Broken(why)) = inline(Role::Cover, &large) else { panic!() };
        assert_eq!(why.code, "cover_too_large");
    }

    #[test]
    fn an_address_is_shown_short_and_without_secrets() {
        for (url, expected) in [
            ("https://h/a.png", "https://h/a.png"),
            ("https://u:p@h:8443/a%20b.png?k=v#f", "https://h:8443/a%20b.png"),
            ("data:image/png;base64,AAAA", "a data: image"),
            ("nonsense", "an image without a readable URL"),
        ] {
            assert_eq!(shown(url), expected);
        }
        let long = shown(&format!("https://h/{}", "é".repeat(1_000)));
        assert!(long.chars().count() == SHOWN_MAX && long.ends_with('…'), "{long}");
    }

    #[test]
    fn only_what_may_pass_is_tried_again() {
        let answered = |status| {
            let (retry_after, content_type, location) = (None, None, None);
            let (head, cut, elapsed) = (b"GIF89a".to_vec(), false, Duration::ZERO);
            let date = None;
            let answer = Answer { status, retry_after, content_type, location, date, head, cut, elapsed };
            judged(Role::Body, "https://h/a", Ok(answer))
        };
        assert!(answered(200).is_ok());
        for status in [408, 425, 429, 500, 502, 503, 504, 520, 599] {
            assert!(matches!(answered(status), Err(MediaError::Transient(_))), "{status}");
        }
        for status in [201, 204, 206, 300, 301, 302, 303, 304, 307, 308, 400, 401, 403, 404, 410, 415, 451] {
            assert!(matches!(answered(status), Err(MediaError::Broken(_))), "{status}");
        }
    }
}
