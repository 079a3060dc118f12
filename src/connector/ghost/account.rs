//! What an account of Ghost needs. Pure.

use serde_json::{Map, Value, json};

use super::admin::base;
use super::limits;
use super::token::{AdminKey, KEY_PATTERN};
use crate::article::{URL_MAX, is_http_url};
use crate::connector::Description;
use crate::connector::media::{self, Images, Rules};
use crate::fields::{FieldError, escaped, no_such_field};
use crate::outbound::Policy;

/// Where the site is.
pub(super) const BASE_URL: &str = "base_url";

/// The key to its Admin API.
pub(super) const ADMIN_API_KEY: &str = "admin_api_key";

/// The settings, the credentials and the rules of the platform.
pub(super) fn description() -> Description {
    let mut settings = Map::from_iter([(
        BASE_URL.to_owned(),
        json!({
            "type": "string", "format": "uri", "maxLength": URL_MAX,
            "description": "The site's address as its Admin API has it, without /ghost. It cannot be changed while \
                publications of the account are unfinished.",
        }),
    )]);
    settings.extend(media::settings_schema(Images::Keep));
    Description {
        settings_schema: json!({
            "type": "object", "properties": settings, "required": [BASE_URL], "additionalProperties": false,
        }),
        credentials_schema: json!({
            "type": "object",
            "properties": {ADMIN_API_KEY: {
                "type": "string", "pattern": KEY_PATTERN,
                "description": "The Admin API key of a custom integration (Ghost: Settings, Integrations).",
            }},
            "required": [ADMIN_API_KEY],
            "additionalProperties": false,
        }),
        rules: limits::rules(),
    }
}

/// What becomes of an article's images: the cover is moved always, since Ghost measures it and shows it to others under the
/// site's name; those in the text where the account wants it.
pub(super) fn images(settings: &Value) -> Rules {
    Rules { cover: Images::Upload, ..Rules::of(settings, Images::Keep) }
}

/// What is wrong with settings and credentials, all of it.
pub(super) fn check(policy: &Policy, settings: &Value, credentials: Option<&Value>) -> Vec<FieldError> {
    let known = [BASE_URL, media::SETTINGS[0], media::SETTINGS[1]];
    let mut errors = unknown("/settings", settings, &known);
    if let Some((code, detail)) = bad_base_url(policy, settings.get(BASE_URL)) {
        errors.push(FieldError { pointer: format!("/settings/{BASE_URL}"), code, detail });
    }
    errors.extend(media::check_settings(settings));
    let Some(credentials) = credentials else {
        let detail = format!("Ghost needs the credential `{ADMIN_API_KEY}`, the key of a custom integration");
        errors.push(FieldError { pointer: "/credentials".to_owned(), code: "required", detail });
        return errors;
    };
    errors.extend(unknown("/credentials", credentials, &[ADMIN_API_KEY]));
    let wrong = match credentials.get(ADMIN_API_KEY) {
        None | Some(Value::Null) => Some(("required", "articles are published with it".to_owned())),
        Some(Value::String(text)) => AdminKey::parse(text).err().map(|bad| ("bad_format", bad.to_string())),
        Some(_) => Some(("wrong_type", "send a string".to_owned())),
    };
    if let Some((code, detail)) = wrong {
        errors.push(FieldError { pointer: format!("/credentials/{ADMIN_API_KEY}"), code, detail });
    }
    errors
}

/// Why that is no address of a site, if it is none.
fn bad_base_url(policy: &Policy, value: Option<&Value>) -> Option<(&'static str, String)> {
    let text = match value {
        None | Some(Value::Null) => {
            return Some(("required", "Ghost needs the address of its site".to_owned()));
        }
        Some(Value::String(text)) => text,
        Some(_) => return Some(("wrong_type", "send a string".to_owned())),
    };
    match base(text).filter(|_| is_http_url(text)) {
        None => {
            let detail = format!(
                "send an absolute http or https URL of at most {URL_MAX} characters, without user, query or fragment"
            );
            Some(("bad_format", detail))
        }
        Some(base) if base.ends_with("/ghost") || base.contains("/ghost/") => {
            Some(("bad_format", "send the site's own address, without /ghost and what follows".to_owned()))
        }
        // As it was sent: what the parser forgives is refused as it is elsewhere.
        Some(_) => policy.check_url(text).err().map(|refusal| ("not_allowed", refusal.to_string())),
    }
}

fn unknown(place: &str, object: &Value, known: &[&str]) -> Vec<FieldError> {
    let names = object.as_object().into_iter().flat_map(Map::keys);
    let unknown = names.filter(|name| !known.contains(&name.as_str())).map(|name| FieldError {
        pointer: format!("{place}/{}", escaped(name)),
        code: "unknown_field",
        detail: no_such_field(name, known),
    });
    unknown.collect()
}

/// What of the settings says where articles go.
pub(super) fn site(settings: &Value) -> Option<String> {
    base(settings.get(BASE_URL)?.as_str()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connector::media::Broken;

    #[test]
    fn an_account_needs_an_address_and_a_key() {
        let policy = Policy { allow: Vec::new(), allow_http: false, ports: None };
        let told = |settings: &Value, credentials: Option<&Value>| {
            let errors = check(&policy, settings, credentials);
            errors.into_iter().map(|error| (error.pointer, error.code)).collect::<Vec<_>>()
        };
        let key = json!({"admin_api_key": format!("{}:{}", "a1".repeat(12), "0f".repeat(32))});
        for good in ["https://blog.example", "https://blog.example/", "https://blog.example/sub"] {
            assert_eq!(told(&json!({"base_url": good}), Some(&key)), []);
        }
        let more = json!({"base_url": "https://h", "images": "upload", "broken_images": "omit"});
        assert_eq!(told(&more, Some(&key)), []);
        for (base_url, code) in [
            (json!(null), "required"),
            (json!(1), "wrong_type"),
            (json!(""), "bad_format"),
            (json!("blog.example"), "bad_format"),
            (json!("https://blog.example/?a=1"), "bad_format"),
            (json!("https://u:p@blog.example/"), "bad_format"),
            (json!("https://blog.example/ghost/"), "bad_format"),
            (json!("https://blog.example/ghost/api/admin"), "bad_format"),
            (json!("http://blog.example/"), "not_allowed"),
            (json!("https://127.0.0.1/"), "not_allowed"),
        ] {
            let errors = told(&json!({"base_url": base_url}), Some(&key));
            assert_eq!(errors, [("/settings/base_url".to_owned(), code)], "{base_url}");
        }
        let good = json!({"base_url": "https://h"});
        for (credentials, pointer, code) in [
            (None, "/credentials", "required"),
            (Some(json!({})), "/credentials/admin_api_key", "required"),
            (Some(json!({"admin_api_key": 1})), "/credentials/admin_api_key", "wrong_type"),
            (Some(json!({"admin_api_key": "hunter2"})), "/credentials/admin_api_key", "bad_format"),
        ] {
            let errors = check(&policy, &good, credentials.as_ref());
            assert_eq!((&*errors[0].pointer, errors[0].code, errors.len()), (pointer, code, 1));
            assert!(!errors[0].detail.contains("hunter2"), "{}", errors[0].detail);
        }
        let unknown = told(&json!({"base_url": "https://h", "x": 1, "images": 1}), Some(&json!({"key": 1})));
        let expected = [
            ("/settings/x", "unknown_field"),
            ("/settings/images", "wrong_type"),
            ("/credentials/key", "unknown_field"),
            ("/credentials/admin_api_key", "required"),
        ];
        assert_eq!(unknown, expected.map(|(pointer, code)| (pointer.to_owned(), code)));
    }

    #[test]
    fn a_site_has_one_spelling() {
        for spelling in ["https://Blog.example", "https://blog.example:443/", "https://blog.example//"] {
            assert_eq!(site(&json!({"base_url": spelling})).as_deref(), Some("https://blog.example"));
        }
        assert_eq!(site(&json!({"base_url": "https://h/sub/"})).as_deref(), Some("https://h/sub"));
        assert_eq!(site(&json!({})), None);
    }

    #[test]
    fn the_cover_is_moved_and_the_rest_where_it_is_wanted() {
        let kept = Rules { cover: Images::Upload, body: Images::Keep, broken: Broken::Fail };
        assert_eq!(images(&json!({})), kept);
        assert_eq!(images(&json!({"images": "keep"})), kept);
        let moved = Rules { cover: Images::Upload, body: Images::Upload, broken: Broken::Omit };
        assert_eq!(images(&json!({"images": "upload", "broken_images": "omit"})), moved);
    }
}
