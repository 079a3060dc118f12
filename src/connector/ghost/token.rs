//! The key of the Admin API, and the tokens made from it. Pure.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, TimeDelta, Utc};
use hmac::{Hmac, KeyInit, Mac};
use secrecy::{ExposeSecret, SecretSlice};
use serde_json::json;
use sha2::Sha256;

/// How long before the present a token says it was made: a Ghost whose clock is that much behind takes it.
const MADE_BEFORE: TimeDelta = TimeDelta::seconds(30);

/// How long a token is valid from when it says it was made: Ghost takes no more
/// (<https://ghost.org/docs/admin-api/#token-authentication>).
const VALID_FOR: TimeDelta = TimeDelta::minutes(5);

/// The length of the key's id, in hexadecimal digits: 12 bytes, as all ids of Ghost.
const ID_DIGITS: usize = 24;

/// The length of the key's secret, in hexadecimal digits: 32 bytes.
const SECRET_DIGITS: usize = 64;

/// What an Admin API key looks like, as a regular expression.
pub(super) const KEY_PATTERN: &str = "^[0-9a-f]{24}:[0-9a-f]{64}$";

/// A key of the Admin API. It has no `Debug`.
pub(super) struct AdminKey {
    id: String,
    secret: SecretSlice<u8>,
}

/// A text that is no Admin API key; it does not say which.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "send the Admin API key of a custom integration as Ghost shows it: 24 hexadecimal digits, a colon, 64 more (the Content \
     API key does not let publish)"
)]
pub(super) struct BadKey;

impl AdminKey {
    /// Reads a key as Ghost's settings show it: `id:secret`, both in hexadecimal digits.
    pub(super) fn parse(text: &str) -> Result<Self, BadKey> {
        let (id, secret) = text.split_once(':').ok_or(BadKey)?;
        let is_hex = |text: &str| text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if id.len() != ID_DIGITS || secret.len() != SECRET_DIGITS || !is_hex(id) || !is_hex(secret) {
            return Err(BadKey);
        }
        let digit = |b: u8| if b.is_ascii_digit() { b - b'0' } else { b - b'a' + 10 };
        let bytes = secret.as_bytes().chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1]));
        Ok(Self { id: id.to_owned(), secret: bytes.collect::<Vec<_>>().into() })
    }

    /// The value of `Authorization` for a request at `now`, as the server's clock has it: a JSON Web Token (RFC 7519)
    /// signed by HMAC-SHA-256. Ghost refuses one whose `iat` is more than 5 minutes ago, or whose `exp` has passed.
    pub(super) fn authorization(&self, now: DateTime<Utc>) -> String {
        let made = now - MADE_BEFORE;
        let header = json!({"alg": "HS256", "typ": "JWT", "kid": self.id});
        let claims = json!({
            "iat": made.timestamp(), "exp": (made + VALID_FOR).timestamp(), "aud": "/admin/",
        });
        let [header, claims] = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
        let signed = format!("{header}.{claims}");
        let mut mac = Hmac::<Sha256>::new_from_slice(self.secret.expose_secret())
            .unwrap_or_else(|_| unreachable!("HMAC takes keys of any length"));
        mac.update(signed.as_bytes());
        let signature = URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes());
        format!("Ghost {signed}.{signature}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "5ddc9063c35e7700383b27e0";

    #[test]
    fn a_key_is_read_as_ghost_shows_it_and_nothing_else_is() {
        let secret = "0123456789abcdef".repeat(4);
        let key = AdminKey::parse(&format!("{ID}:{secret}")).unwrap();
        assert_eq!((&*key.id, &key.secret.expose_secret()[..3]), (ID, &[0x01, 0x23, 0x45][..]));
        for bad in [
            String::new(),
            secret.clone(),
            format!("{ID}{secret}"),
            format!("{ID}:"),
            format!("{ID}:{}", &secret[1..]),
            format!("{ID}:{secret}0"),
            format!("{}:{secret}", &ID[1..]),
            format!("{ID}:{}g", &secret[1..]),
            format!("{ID}:{secret}\n"),
            "22444f78447824223cefc48062".to_owned(),
        ] {
            assert!(AdminKey::parse(&bad).is_err(), "{bad:?}");
        }
    }

    /// The token was made by Python's `hmac` from the same key and claims, with the members in the order of their names.
    #[test]
    fn a_token_is_what_others_make_of_the_same_key() {
        let key = AdminKey::parse(&format!("{ID}:{}", "0123456789abcdef".repeat(4))).unwrap();
        let token = key.authorization("2026-01-31T00:00:30Z".parse().unwrap());
        assert_eq!(token, EXPECTED);
        let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap();
        let claims = serde_json::from_slice::<serde_json::Value>(&claims).unwrap();
        assert_eq!(claims, json!({"aud": "/admin/", "iat": 1_769_817_600, "exp": 1_769_817_900}));
    }

    const EXPECTED: &str = "Ghost eyJhbGciOiJIUzI1NiIsImtpZCI6IjVkZGM5MDYzYzM1ZTc3MDAzODNiMjdlMCIsInR5cCI6IkpXVCJ9.eyJhdWQiOiIvYWRtaW4vIiwiZXhwIjoxNzY5ODE3OTAwLCJpYXQiOjE3Njk4MTc2MDB9.0sFfWFLev5sp8Cv7vi364pe34-1keapk3zaqSZNiJWQ";
}
