//! What an account of the bridge needs.

use serde_json::{Value, json};

use crate::article::{URL_MAX, is_http_url};
use crate::callback::signature::SigningSecret;
use crate::connector::Description;
use crate::fields::{FieldError, escaped, no_such_field};
use crate::outbound::Policy;

/// The settings, the credentials and the rules of the platform.
pub(super) fn description() -> Description {
    Description {
        settings_schema: json!({
            "type": "object",
            "properties": {"endpoint": {
                "type": ["string", "null"], "maxLength": URL_MAX,
                "description": "Where articles are sent by signed POST requests. Left out or empty: a robot fetches them by \
                    POST /bridge/claim. That cannot be changed while publications of the account are unfinished.",
            }},
            "additionalProperties": false,
        }),
        credentials_schema: json!({
            "type": "object",
            "properties": {"secret": {
                "type": "string", "pattern": "^whsec_[A-Za-z0-9+/]{32,86}={0,2}$",
                "description": "Signs the requests (Standard Webhooks): whsec_ and 24 to 64 bytes in base64. Needed with an \
                    endpoint.",
            }},
            "additionalProperties": false,
        }),
        // What an article must keep to is known to whoever stands behind the bridge.
        rules: Vec::new(),
    }
}

/// Where articles are sent; none: they are fetched.
pub(super) fn endpoint(settings: &Value) -> Option<&str> {
    settings.get("endpoint").and_then(Value::as_str).filter(|url| !url.is_empty())
}

/// What is wrong with settings and credentials, all of it.
pub(super) fn check(policy: &Policy, settings: &Value, credentials: Option<&Value>) -> Vec<FieldError> {
    let mut errors = unknown("/settings", settings, "endpoint");
    let error =
        |pointer: &str, code, detail: String| FieldError { pointer: pointer.to_owned(), code, detail };
    let endpoint = "/settings/endpoint";
    let mut sends = true;
    match settings.get("endpoint") {
        None | Some(Value::Null) => sends = false,
        Some(Value::String(url)) if url.is_empty() => sends = false,
        Some(Value::String(url)) if is_http_url(url) => {
            if let Err(refusal) = policy.check_url(url) {
                errors.push(error(endpoint, "not_allowed", refusal.to_string()));
            }
        }
        Some(Value::String(_)) => {
            let detail = format!(
                "send an absolute http or https URL of at most {URL_MAX} characters, or none for a robot that fetches"
            );
            errors.push(error(endpoint, "bad_format", detail));
        }
        Some(_) => errors.push(error(endpoint, "wrong_type", "send a string".to_owned())),
    }
    let Some(credentials) = credentials else {
        if !sends {
            return errors;
        }
        let detail = "the bridge needs the credential `secret`, which requests are signed with".to_owned();
        errors.push(error("/credentials", "required", detail));
        return errors;
    };
    errors.extend(unknown("/credentials", credentials, "secret"));
    let secret = "/credentials/secret";
    match credentials.get("secret") {
        None | Some(Value::Null) if !sends => {}
        None | Some(Value::Null) => {
            errors.push(error(secret, "required", "requests are signed with it".to_owned()));
        }
        Some(Value::String(text)) => {
            if let Err(bad) = text.parse::<SigningSecret>() {
                errors.push(error(secret, "bad_format", bad.to_string()));
            }
        }
        Some(_) => errors.push(error(secret, "wrong_type", "send a string".to_owned())),
    }
    errors
}

fn unknown(place: &str, object: &Value, known: &str) -> Vec<FieldError> {
    let names = object.as_object().into_iter().flat_map(|members| members.keys());
    let unknown = names.filter(|name| *name != known).map(|name| FieldError {
        pointer: format!("{place}/{}", escaped(name)),
        code: "unknown_field",
        detail: no_such_field(name, &[known]),
    });
    unknown.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::TestClock;

    #[test]
    fn an_account_needs_an_endpoint_that_may_be_called_and_a_secret() {
        let policy = Policy { allow: Vec::new(), allow_http: false, ports: None };
        let secret = SigningSecret::generate(&TestClock::seeded(1)).expose().to_string();
        let told = |settings: Value, credentials: Option<Value>| {
            let errors = check(&policy, &settings, credentials.as_ref());
            errors.into_iter().map(|error| (error.pointer, error.code)).collect::<Vec<_>>()
        };
        let good = json!({"endpoint": "https://bridge.example/articles"});
        let secrets = Some(json!({"secret": secret}));
        assert_eq!(told(good.clone(), secrets.clone()), []);
        for (settings, credentials, pointer, code) in [
            (json!({"endpoint": "x"}), secrets.clone(), "/settings/endpoint", "bad_format"),
            (json!({"endpoint": 1}), secrets.clone(), "/settings/endpoint", "wrong_type"),
            (
                json!({"endpoint": "http://bridge.example/"}),
                secrets.clone(),
                "/settings/endpoint",
                "not_allowed",
            ),
            (json!({"endpoint": "https://127.0.0.1/"}), secrets, "/settings/endpoint", "not_allowed"),
            (good.clone(), None, "/credentials", "required"),
            (good.clone(), Some(json!({})), "/credentials/secret", "required"),
            (good.clone(), Some(json!({"secret": 1})), "/credentials/secret", "wrong_type"),
            (good.clone(), Some(json!({"secret": "whsec_AAAA"})), "/credentials/secret", "bad_format"),
            (good, Some(json!({"secret": "hunter2"})), "/credentials/secret", "bad_format"),
        ] {
            assert_eq!(told(settings.clone(), credentials), [(pointer.to_owned(), code)], "{settings}");
        }
        let unknown =
            told(json!({"endpoint": "https://h/", "a/b": 1}), Some(json!({"secret": secret, "x": 1})));
        let expected = [("/settings/a~1b", "unknown_field"), ("/credentials/x", "unknown_field")];
        assert_eq!(unknown, expected.map(|(pointer, code)| (pointer.to_owned(), code)));
    }

    #[test]
    fn an_account_whose_articles_are_fetched_needs_neither() {
        let policy = Policy { allow: Vec::new(), allow_http: false, ports: None };
        let secret = SigningSecret::generate(&TestClock::seeded(1)).expose().to_string();
        for settings in [json!({}), json!({"endpoint": ""}), json!({"endpoint": null})] {
            // One that was sent to before keeps its secret.
            for credentials in [None, Some(json!({})), Some(json!({"secret": secret}))] {
                assert_eq!(check(&policy, &settings, credentials.as_ref()), [], "{settings} {credentials:?}");
            }
            let told = check(&policy, &settings, Some(&json!({"secret": "hunter2", "x": 1})));
            let told = told.iter().map(|error| (&*error.pointer, error.code)).collect::<Vec<_>>();
            assert_eq!(told, [("/credentials/x", "unknown_field"), ("/credentials/secret", "bad_format")]);
            assert_eq!(endpoint(&settings), None);
        }
        assert_eq!(endpoint(&json!({"endpoint": "https://h/"})), Some("https://h/"));
    }
}
