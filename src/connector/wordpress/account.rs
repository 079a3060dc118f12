//! What an account of a `WordPress` site needs, and what becomes of an article's fields there.

use serde_json::{Map, Value, json};
use url::Url;

use crate::article::URL_MAX;
use crate::connector::media::{self, Images};
use crate::connector::{ContentRule, Description, Failure};
use crate::fields::{FieldError, escaped, no_such_field};
use crate::outbound::{Policy, Refusal};

/// The most categories that all articles of an account get: each is looked up before an article is made.
const CATEGORIES_MAX: usize = 10;

/// The longest name of a category, in characters (`wp_terms.name` is `varchar(200)`).
const CATEGORY_MAX: usize = 200;

/// The longest user name, in characters (`wp_users.user_login` is `varchar(60)`; an address of mail has up to 100).
const USERNAME_MAX: usize = 100;

/// The longest application password, in characters: `WordPress` makes them of 24, shown in groups of four.
const PASSWORD_MAX: usize = 200;

const SETTINGS: [&str; 4] = ["base_url", "categories", "images", "broken_images"];
const CREDENTIALS: [&str; 2] = ["username", "application_password"];

/// What happens to images of the text where an account does not say: `WordPress` shows them from wherever they are.
pub(super) const IMAGES_UNSET: Images = Images::Keep;

/// An account's settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Settings {
    /// Without a slash at its end.
    pub(super) base_url: String,
    /// Names.
    pub(super) categories: Vec<String>,
}

impl Settings {
    /// Reads what was checked when it was put.
    pub(super) fn of(settings: &Value) -> Result<Self, Failure> {
        let base_url = site(settings).ok_or_else(|| {
            Failure::new("bad_settings", "the account has no site: set its setting `base_url`")
        })?;
        let names = settings.get("categories").and_then(Value::as_array).into_iter().flatten();
        let categories = names.filter_map(Value::as_str).map(str::to_owned).collect();
        Ok(Self { base_url, categories })
    }
}

/// The address of the site as one spelling: without what may stand behind its last folder.
pub(super) fn site(settings: &Value) -> Option<String> {
    let url = Url::parse(settings.get("base_url")?.as_str()?).ok()?;
    Some(url.as_str().trim_end_matches('/').to_owned())
}

/// The settings, the credentials and the rules of the platform.
pub(super) fn description() -> Description {
    let mut properties = Map::from_iter([
        (
            "base_url".to_owned(),
            json!({
                "type": "string", "format": "uri", "maxLength": URL_MAX,
                "description": "The site's address, below which /wp-json/ is. It cannot be changed while publications of the account \
                    are unfinished.",
            }),
        ),
        (
            "categories".to_owned(),
            json!({
                "type": "array", "maxItems": CATEGORIES_MAX,
                "items": {"type": "string", "minLength": 1, "maxLength": CATEGORY_MAX},
                "description": "Names of the categories that every article gets; those that are missing are made.",
            }),
        ),
    ]);
    properties.extend(media::settings_schema(IMAGES_UNSET));
    Description {
        settings_schema: json!({
            "type": "object", "properties": properties, "required": ["base_url"], "additionalProperties": false,
        }),
        credentials_schema: json!({
            "type": "object",
            "properties": {
                "username": {
                    "type": "string", "minLength": 1, "maxLength": USERNAME_MAX, "pattern": "^[^:]+$",
                    "description": "A user of the role Author or higher.",
                },
                "application_password": {
                    "type": "string", "minLength": 1, "maxLength": PASSWORD_MAX,
                    "description": "Made in the user's profile, not the password of the login page.",
                },
            },
            "required": CREDENTIALS,
            "additionalProperties": false,
        }),
        rules: rules(),
    }
}

fn rules() -> Vec<ContentRule> {
    let posts = "https://developer.wordpress.org/rest-api/reference/posts/";
    let rule = |field, rule, limit, source| ContentRule { field, rule, limit, source, as_of: "2026-11-30" };
    let images = u64::try_from(media::IMAGES_MAX).ok();
    let image_bytes = u64::try_from(media::IMAGE_MAX_BYTES).ok();
    vec![
        // Core has no field for them; a theme or a plugin may.
        rule("author", "left_out", None, posts),
        rule("canonical_url", "left_out", None, posts),
        // Of users without the right `unfiltered_html`, which authors never have.
        rule(
            "content_html",
            "scripts_removed_for_authors",
            None,
            "https://developer.wordpress.org/reference/functions/wp_kses_post/",
        ),
        rule("content_html", "max_images_to_upload", images, "publish-ingest"),
        rule("cover_url", "max_bytes", image_bytes, "publish-ingest"),
    ]
}

/// What is wrong with settings and credentials, all of it.
pub(super) fn check(policy: &Policy, settings: &Value, credentials: Option<&Value>) -> Vec<FieldError> {
    let mut errors = unknown("/settings", settings, &SETTINGS);
    errors.extend(base_url_error(policy, settings.get("base_url")));
    errors.extend(categories_error(settings.get("categories")));
    errors.extend(media::check_settings(settings));
    let Some(credentials) = credentials else {
        let detail = "WordPress needs the credentials `username` and `application_password`";
        errors.push(error("/credentials", "required", detail));
        return errors;
    };
    errors.extend(unknown("/credentials", credentials, &CREDENTIALS));
    for (name, most) in CREDENTIALS.into_iter().zip([USERNAME_MAX, PASSWORD_MAX]) {
        errors.extend(credential_error(name, most, credentials.get(name)));
    }
    errors
}

fn base_url_error(policy: &Policy, value: Option<&Value>) -> Option<FieldError> {
    let place = "/settings/base_url";
    let url = match value {
        None | Some(Value::Null) => {
            return Some(error(place, "required", "send the site's address, such as https://blog.example"));
        }
        Some(Value::String(url)) => url,
        Some(_) => return Some(error(place, "wrong_type", "send a string")),
    };
    if url.chars().count() > URL_MAX {
        return Some(error(place, "too_long", format!("send at most {URL_MAX} characters")));
    }
    match policy.check_url(url) {
        Err(refusal @ Refusal::Malformed) => Some(error(place, "bad_format", refusal.to_string())),
        Err(refusal) => Some(error(place, "not_allowed", refusal.to_string())),
        Ok(parsed) if url.contains(['?', '#']) || parsed.path().contains("/wp-json") => {
            let detail = "send the address of the site itself, without /wp-json, a query or a fragment";
            Some(error(place, "bad_format", detail))
        }
        Ok(_) => None,
    }
}

fn categories_error(value: Option<&Value>) -> Option<FieldError> {
    let place = "/settings/categories";
    let names = match value {
        None | Some(Value::Null) => return None,
        Some(Value::Array(names)) => names,
        Some(_) => return Some(error(place, "wrong_type", "send an array of names")),
    };
    if names.len() > CATEGORIES_MAX {
        return Some(error(place, "too_long", format!("send at most {CATEGORIES_MAX} categories")));
    }
    let good = |name: &Value| {
        let name =
            name.as_str().filter(|name| !name.trim().is_empty() && !name.chars().any(char::is_control));
        name.is_some_and(|name| name.chars().count() <= CATEGORY_MAX)
    };
    let detail = format!("send names of 1 to {CATEGORY_MAX} characters");
    names.iter().any(|name| !good(name)).then(|| error(place, "bad_format", detail))
}

fn credential_error(name: &str, most: usize, value: Option<&Value>) -> Option<FieldError> {
    let place = format!("/credentials/{name}");
    let text = match value {
        None | Some(Value::Null) => return Some(error(&place, "required", "WordPress logs in with it")),
        Some(Value::String(text)) => text,
        Some(_) => return Some(error(&place, "wrong_type", "send a string")),
    };
    // In Basic authentication the first colon ends the name (RFC 7617 §2).
    let colon = name == "username" && text.contains(':');
    let good = (1..=most).contains(&text.chars().count()) && !text.chars().any(char::is_control) && !colon;
    let detail =
        format!("send 1 to {most} characters, without control characters, a user name without a colon");
    (!good).then(|| error(&place, "bad_format", detail))
}

fn unknown(place: &str, object: &Value, known: &[&str]) -> Vec<FieldError> {
    let names = object.as_object().into_iter().flat_map(|members| members.keys());
    let unknown = names.filter(|name| !known.contains(&name.as_str()));
    unknown
        .map(|name| error(&format!("{place}/{}", escaped(name)), "unknown_field", no_such_field(name, known)))
        .collect()
}

fn error(pointer: &str, code: &'static str, detail: impl Into<String>) -> FieldError {
    FieldError { pointer: pointer.to_owned(), code, detail: detail.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(settings: &Value, credentials: Option<&Value>) -> Vec<(String, &'static str)> {
        let policy = Policy { allow: Vec::new(), allow_http: false, ports: None };
        check(&policy, settings, credentials).into_iter().map(|error| (error.pointer, error.code)).collect()
    }

    #[test]
    fn an_account_needs_a_site_and_an_application_password() {
        let settings = json!({
            "base_url": "https://blog.example/de/", "categories": ["News", "R & D"], "images": "upload",
            "broken_images": "omit",
        });
        let login = json!({"username": "editor", "application_password": "abcd efgh ijkl"});
        assert_eq!(told(&settings, Some(&login)), []);
        let good = json!({"base_url": "https://blog.example"});
        for (settings, login, pointer, code) in [
            (json!({}), login.clone(), "/settings/base_url", "required"),
            (json!({"base_url": 1}), login.clone(), "/settings/base_url", "wrong_type"),
            (json!({"base_url": "blog"}), login.clone(), "/settings/base_url", "bad_format"),
            (json!({"base_url": "https://h/wp-json/"}), login.clone(), "/settings/base_url", "bad_format"),
            (json!({"base_url": "https://h/?p=1"}), login.clone(), "/settings/base_url", "bad_format"),
            (json!({"base_url": "http://h/"}), login.clone(), "/settings/base_url", "not_allowed"),
            (json!({"base_url": "https://10.0.0.1/"}), login.clone(), "/settings/base_url", "not_allowed"),
            (json!({"base_url": "https://u:p@h/"}), login.clone(), "/settings/base_url", "not_allowed"),
            (
                json!({"base_url": "https://h", "categories": "News"}),
                login.clone(),
                "/settings/categories",
                "wrong_type",
            ),
            (
                json!({"base_url": "https://h", "categories": [" "]}),
                login.clone(),
                "/settings/categories",
                "bad_format",
            ),
            (
                json!({"base_url": "https://h", "categories": vec!["x"; 11]}),
                login.clone(),
                "/settings/categories",
                "too_long",
            ),
            (
                json!({"base_url": "https://h", "images": "move"}),
                login.clone(),
                "/settings/images",
                "not_allowed",
            ),
            (json!({"base_url": "https://h", "url": 1}), login.clone(), "/settings/url", "unknown_field"),
            (good.clone(), json!({"username": "a"}), "/credentials/application_password", "required"),
            (
                good.clone(),
                json!({"username": "a:b", "application_password": "x"}),
                "/credentials/username",
                "bad_format",
            ),
            (
                good.clone(),
                json!({"username": 1, "application_password": "x"}),
                "/credentials/username",
                "wrong_type",
            ),
        ] {
            assert_eq!(told(&settings, Some(&login)), [(pointer.to_owned(), code)], "{settings}");
        }
        assert_eq!(told(&good, None), [("/credentials".to_owned(), "required")]);
    }

    #[test]
    fn one_site_has_one_name() {
        let name = |url: &str| site(&json!({"base_url": url}));
        assert_eq!(name("https://Blog.Example/"), name("https://blog.example"));
        assert_eq!(name("https://blog.example/de/").as_deref(), Some("https://blog.example/de"));
        assert_ne!(name("https://blog.example/de"), name("https://blog.example"));
        assert_eq!(name("blog"), None);
    }
}
