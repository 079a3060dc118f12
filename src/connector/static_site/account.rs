//! What an account of `static_site` needs, and what may stand in an article.

use serde_json::{Value, json};

use super::{NAME_BYTES, SettingsError, check_settings};
use crate::connector::{ContentRule, Description, fragment};
use crate::fields::{FieldError, escaped, no_such_field};

/// The one setting.
const SITE: &str = "site";

pub(super) fn description() -> Description {
    let rule = |rule, limit: usize| ContentRule {
        field: "content_html",
        rule,
        limit: u64::try_from(limit).ok(),
        source: "publish-ingest",
        as_of: "2026-11-29",
    };
    Description {
        settings_schema: json!({
            "type": "object",
            "properties": {SITE: {
                "type": "string",
                "pattern": format!("^[A-Za-z0-9_-][A-Za-z0-9._-]{{0,{}}}$", NAME_BYTES - 1),
                "description": "The site's name: articles go to the operator's folder of this tenant and this site. It \
                    cannot be changed while publications of the account are unfinished.",
            }},
            "required": [SITE],
            "additionalProperties": false,
        }),
        credentials_schema: json!({"type": "object", "properties": {}, "additionalProperties": false}),
        rules: vec![
            rule("max_depth", fragment::MAX_DEPTH),
            rule("max_nodes", fragment::MAX_NODES),
            rule("max_attributes_of_a_tag", fragment::MAX_ATTRIBUTES),
        ],
    }
}

pub(super) fn check(settings: &Value, credentials: Option<&Value>) -> Vec<FieldError> {
    let names = |value: Option<&Value>| {
        let members = value.and_then(Value::as_object).into_iter().flatten();
        members.map(|(name, _)| name.clone()).collect::<Vec<_>>()
    };
    let unknown = names(Some(settings)).into_iter().filter(|name| name != SITE).map(|name| FieldError {
        pointer: format!("/settings/{}", escaped(&name)),
        code: "unknown_field",
        detail: no_such_field(&name, &[SITE]),
    });
    let mut errors = unknown.collect::<Vec<_>>();
    // The unknown ones are told already, by name.
    let site = settings.get(SITE).map_or_else(|| json!({}), |site| json!({SITE: site}));
    if let Err(error) = check_settings(&site) {
        let code = match error {
            SettingsError::NoSite if settings.get(SITE).is_none() => "required",
            SettingsError::NoSite => "wrong_type",
            _ => "bad_format",
        };
        errors.push(FieldError { pointer: format!("/settings/{SITE}"), code, detail: error.to_string() });
    }
    errors.extend(names(credentials).into_iter().map(|name| FieldError {
        pointer: format!("/credentials/{}", escaped(&name)),
        code: "unknown_field",
        detail: "static_site needs no credentials: send none".to_owned(),
    }));
    errors
}

pub(super) fn site(settings: &Value) -> Option<String> {
    settings.get(SITE).and_then(Value::as_str).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(settings: &Value, credentials: Option<&Value>) -> Vec<(String, &'static str)> {
        check(settings, credentials).into_iter().map(|error| (error.pointer, error.code)).collect()
    }

    #[test]
    fn an_account_needs_a_site_and_nothing_else() {
        assert_eq!(errors(&json!({"site": "a.b_C-1"}), None), []);
        assert_eq!(errors(&json!({"site": "a"}), Some(&json!({}))), []);
        let expected = |pairs: &[(&str, &'static str)]| {
            pairs.iter().map(|(pointer, code)| ((*pointer).to_owned(), *code)).collect::<Vec<_>>()
        };
        assert_eq!(errors(&json!({}), None), expected(&[("/settings/site", "required")]));
        assert_eq!(errors(&json!({"site": 1}), None), expected(&[("/settings/site", "wrong_type")]));
        assert_eq!(errors(&json!({"site": "../up"}), None), expected(&[("/settings/site", "bad_format")]));
        let many = errors(&json!({"a/b": 1, "sites": "x"}), Some(&json!({"token": "t"})));
        let names = [
            ("/settings/a~1b", "unknown_field"),
            ("/settings/sites", "unknown_field"),
            ("/settings/site", "required"),
            ("/credentials/token", "unknown_field"),
        ];
        assert_eq!(many, expected(&names));
        let told = &check(&json!({"sites": "x"}), Some(&json!({"hunter2": "hunter2"})));
        assert!(told[0].detail.contains("did you mean \"site\""), "{told:?}");
        assert!(!told[2].detail.contains("hunter2"), "{told:?}");
    }

    #[test]
    fn the_site_is_what_must_not_change() {
        assert_eq!(site(&json!({"site": "a"})).as_deref(), Some("a"));
        assert_eq!(site(&json!({"site": 1})), None);
    }
}
