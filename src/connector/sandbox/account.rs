//! What an account of the sandbox may say, and how it is read.

use std::time::Duration;

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::behaviour::{Fault, Kind, Rule, Settings};
use crate::article::EXTERNAL_ID_MAX;
use crate::connector::Description;
use crate::fields::{FieldError, Fields, escaped, no_such_field};
use crate::json::{self, InvalidJson};

/// The most rules of an account: more are nobody's rehearsal, and each is asked at each request.
const RULES_MAX: usize = 20;

/// The highest number in a rule: an account has no more articles.
const COUNT_MAX: i32 = 1_000_000;

/// The longest time that every request may take, in milliseconds: with the usual lease, a call may take 15 s.
const LATENCY_MAX_MS: i32 = 10_000;

/// The longest token, in characters: nobody reads it.
const TOKEN_MAX: usize = 200;

const SETTINGS: [&str; 3] = ["behaviour", "seed", "latency_ms"];
const RULE: [&str; 9] =
    ["do", "step", "external_id", "every", "nth", "times", "probability", "seconds", "after"];

/// The settings, the credentials and the rules of the platform.
pub(super) fn description() -> Description {
    let faults = Fault::ALL.map(Fault::as_str);
    let count = |least: i32, what: &str| json!({"type": "integer", "minimum": least, "maximum": COUNT_MAX, "description": what});
    let longest = Fault::ALL.iter().filter_map(|fault| fault.seconds()).map(|(_, most)| most).max();
    let rule = json!({
        "type": "object",
        "properties": {
            "do": {"enum": faults, "description": "What the platform does instead of what it should."},
            "step": {"enum": Kind::STEPS.map(Kind::as_str), "description": "To which requests."},
            "external_id": {
                "type": "string", "minLength": 1, "maxLength": EXTERNAL_ID_MAX,
                "description": "To which articles; * stands for any text. Default: all.",
            },
            "every": count(1, "Only to every so manieth article, as the platform first hears of them. Default: 1."),
            "nth": count(1, "From which request of the step about an article on. Default: the first."),
            "times": count(1, "To how many of them. Default: by what it does, one or all."),
            "probability": {"type": "number", "minimum": 0, "maximum": 1,
                "description": "With which chance, by the seed. Default: 1; of random: 0.25."},
            "seconds": {"type": "integer", "minimum": 0, "maximum": longest,
                "description": "How long it lasts: late (default 5, at most 25), rate_limit (30), slow (20)."},
            "after": count(0, "login_expired: when so many articles became public under the present login."),
        },
        "required": ["do"],
        "additionalProperties": false,
    });
    Description {
        settings_schema: json!({
            "type": "object",
            "properties": {
                "behaviour": {
                    "description": "What goes wrong: a word for every article, a rule, or rules of which the first \
                        that applies counts. Default: nothing.",
                    "anyOf": [{"enum": faults}, rule, {"type": "array", "items": rule, "maxItems": RULES_MAX}],
                },
                "seed": {"type": "integer", "minimum": 0, "maximum": i32::MAX, "default": 0,
                    "description": "What chance follows: the same articles meet the same fate again."},
                "latency_ms": {"type": "integer", "minimum": 0, "maximum": LATENCY_MAX_MS, "default": 0,
                    "description": "How long every request takes."},
            },
            "additionalProperties": false,
        }),
        credentials_schema: json!({
            "type": "object",
            "properties": {"token": {"type": "string", "maxLength": TOKEN_MAX,
                "description": "Any text; to put it, or none in {}, is to log in."}},
            "additionalProperties": false,
        }),
        rules: Vec::new(),
    }
}

/// What is wrong with settings and credentials, all of it.
pub(super) fn check(settings: &Value, credentials: Option<&Value>) -> Vec<FieldError> {
    let mut errors = read(settings).err().unwrap_or_default();
    let members = credentials.and_then(Value::as_object).into_iter().flatten();
    for (name, value) in members {
        let (code, detail) = match (name.as_str(), value) {
            ("token", Value::Null) => continue,
            ("token", Value::String(text)) if text.chars().count() <= TOKEN_MAX => continue,
            ("token", Value::String(_)) => ("too_long", format!("is longer than {TOKEN_MAX} characters")),
            ("token", _) => ("wrong_type", "send a string".to_owned()),
            _ => ("unknown_field", no_such_field(name, &["token"])),
        };
        errors.push(FieldError { pointer: format!("/credentials/{}", escaped(name)), code, detail });
    }
    errors
}

/// Reads the settings; the errors are all that is wrong with them.
pub(super) fn read(settings: &Value) -> Result<Settings, Vec<FieldError>> {
    let unreadable = |error: InvalidJson| {
        vec![FieldError { pointer: "/settings".to_owned(), code: "bad_format", detail: error.to_string() }]
    };
    let raw = to_raw_value(settings).map_err(|error| unreadable(error.into()))?;
    let (settings, errors) = fields(&raw).map_err(unreadable)?;
    if errors.is_empty() { Ok(settings) } else { Err(errors) }
}

fn fields(raw: &RawValue) -> Result<(Settings, Vec<FieldError>), InvalidJson> {
    let mut fields = Fields::within("/settings".to_owned(), raw, &SETTINGS)?;
    let seed = fields.integer("seed", 0, i32::MAX).unwrap_or_default();
    let latency = fields.integer("latency_ms", 0, LATENCY_MAX_MS).unwrap_or_default();
    let rules = behaviour(&mut fields)?;
    let settings = Settings {
        rules,
        seed: seed.unsigned_abs(),
        latency: Duration::from_millis(latency.unsigned_abs().into()),
    };
    Ok((settings, fields.into_errors()))
}

fn behaviour(fields: &mut Fields<'_>) -> Result<Vec<Rule>, InvalidJson> {
    const NAME: &str = "behaviour";
    let Some(raw) = fields.get(NAME) else { return Ok(Vec::new()) };
    let one = |fields: &mut Fields<'_>, place: String, raw: &RawValue| {
        let (rule, errors) = rule(place, raw)?;
        fields.extend(errors);
        Ok::<_, InvalidJson>(rule)
    };
    match raw.get().as_bytes().first() {
        Some(b'"') => {
            let word = fields.string(NAME)?.unwrap_or_default();
            let fault = Fault::named(&word);
            if fault.is_none() {
                fields.refuse(NAME, "not_allowed", one_of(&Fault::ALL.map(Fault::as_str)));
            }
            Ok(fault.map(Rule::usual).into_iter().collect())
        }
        Some(b'{') => Ok(one(fields, format!("/settings/{NAME}"), raw)?.into_iter().collect()),
        Some(b'[') => {
            let Some(list) = json::list(raw, RULES_MAX)? else { return Ok(Vec::new()) };
            if list.more {
                fields.refuse(NAME, "too_long", format!("has more than {RULES_MAX} rules"));
            }
            let mut rules = Vec::with_capacity(list.items.len());
            for (at, raw) in list.items.into_iter().enumerate() {
                rules.extend(one(fields, format!("/settings/{NAME}/{at}"), raw)?);
            }
            Ok(rules)
        }
        _ => {
            fields.refuse(NAME, "wrong_type", "send a word, a rule, or a list of rules");
            Ok(Vec::new())
        }
    }
}

fn rule(place: String, raw: &RawValue) -> Result<(Option<Rule>, Vec<FieldError>), InvalidJson> {
    let mut fields = Fields::within(place, raw, &RULE)?;
    if raw.get().starts_with('{') {
        fields.required("do");
    }
    let word = fields.string("do")?;
    let fault = word.as_deref().and_then(Fault::named);
    if word.is_some() && fault.is_none() {
        fields.refuse("do", "not_allowed", one_of(&Fault::ALL.map(Fault::as_str)));
    }
    // Without knowing what it does, nothing else can be held against it.
    let Some(fault) = fault else { return Ok((None, fields.into_errors())) };
    let mut rule = Rule::usual(fault);
    refuse_what_does_not_fit(fault, &mut fields);
    if let Some(step) = fields.string("step")? {
        let fitting = fault.steps();
        rule.step = fitting.iter().copied().find(|kind| kind.as_str() == step);
        if rule.step.is_none() && !fitting.is_empty() {
            let names = fitting.iter().map(|kind| kind.as_str()).collect::<Vec<_>>();
            fields.refuse("step", "not_allowed", one_of(&names));
        }
    }
    rule.external_id = fields.text("external_id", Some(EXTERNAL_ID_MAX), false)?;
    if rule.external_id.as_deref().is_some_and(str::is_empty) {
        fields.refuse("external_id", "blank", "must not be empty; leave it out to mean all");
    }
    let count = |fields: &mut Fields<'_>, name: &str, least| {
        fields.integer(name, least, COUNT_MAX).map(i32::unsigned_abs)
    };
    rule.every = count(&mut fields, "every", 1).unwrap_or(rule.every);
    rule.nth = count(&mut fields, "nth", 1).unwrap_or(rule.nth);
    rule.times = count(&mut fields, "times", 1).or(rule.times);
    rule.after = count(&mut fields, "after", 0).unwrap_or(rule.after);
    if let Some((_, most)) = fault.seconds() {
        let seconds = fields.integer("seconds", 0, most.try_into().unwrap_or(i32::MAX));
        rule.lasts = seconds.map_or(rule.lasts, |n| Duration::from_secs(n.unsigned_abs().into()));
    }
    if let Some(raw) = fields.get("probability") {
        match serde_json::from_str::<f64>(raw.get()) {
            Ok(chance) if (0.0..=1.0).contains(&chance) => rule.probability = chance,
            Ok(_) => fields.refuse("probability", "not_allowed", "send a number from 0 to 1"),
            Err(_) => fields.refuse("probability", "wrong_type", "send a number"),
        }
    }
    Ok((Some(rule), fields.into_errors()))
}

/// Refuses members that mean nothing for what the rule does, so that nobody believes in them.
fn refuse_what_does_not_fit(fault: Fault, fields: &mut Fields<'_>) {
    let told_twice = fault == Fault::DuplicateCallback;
    let odd = [
        ("seconds", fault.seconds().is_none()),
        ("after", fault != Fault::LoginExpired),
        ("step", told_twice),
        ("every", told_twice),
        ("nth", told_twice),
        ("times", told_twice || fault == Fault::Unsearchable),
    ];
    for (name, odd) in odd {
        if odd && fields.get(name).is_some() {
            fields.refuse(
                name,
                "not_allowed",
                format!("has no meaning for {}: leave it out", fault.as_str()),
            );
        }
    }
}

fn one_of(names: &[&str]) -> String {
    format!("send one of: {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(behaviour: &Value) -> Vec<(String, &'static str)> {
        let errors = check(&json!({"behaviour": behaviour}), None);
        errors.into_iter().map(|error| (error.pointer, error.code)).collect()
    }

    #[test]
    fn nothing_is_needed() {
        for settings in
            [json!({}), json!({"behaviour": null, "seed": 7, "latency_ms": 0}), json!({"behaviour": []})]
        {
            assert_eq!(read(&settings).unwrap().rules, [], "{settings}");
        }
        assert_eq!(check(&json!({}), Some(&json!({"token": "t"}))), []);
    }

    #[test]
    fn a_word_stands_for_the_usual_rule() {
        for fault in Fault::ALL {
            let rules = |behaviour: Value| read(&json!({"behaviour": behaviour})).unwrap().rules;
            let usual = [Rule::usual(fault)];
            assert_eq!(rules(json!(fault.as_str())), usual);
            assert_eq!(rules(json!({"do": fault.as_str()})), usual);
            assert_eq!(rules(json!([{"do": fault.as_str()}])), usual);
        }
    }

    #[test]
    fn a_rule_says_when() {
        let behaviour = json!([{"do": "late", "step": "draft", "external_id": "post-*", "every": 5, "nth": 2, "times": 3,
            "probability": 0.5, "seconds": 7}, {"do": "login_expired", "after": 4}]);
        let settings = read(&json!({"behaviour": behaviour, "seed": 9, "latency_ms": 20})).unwrap();
        let late = Rule {
            step: Some(Kind::Draft),
            external_id: Some("post-*".to_owned()),
            every: 5,
            nth: 2,
            times: Some(3),
            probability: 0.5,
            lasts: Duration::from_secs(7),
            ..Rule::usual(Fault::Late)
        };
        assert_eq!(settings.rules, [late, Rule { after: 4, ..Rule::usual(Fault::LoginExpired) }]);
        assert_eq!((settings.seed, settings.latency), (9, Duration::from_millis(20)));
    }

    #[test]
    fn everything_wrong_with_an_account_is_told_by_its_place() {
        let place = |rest: &str| format!("/settings/behaviour{rest}");
        for (behaviour, rest, code) in [
            (json!("loose_answer"), "", "not_allowed"),
            (json!(7), "", "wrong_type"),
            (json!(vec!["late"; 21]), "", "too_long"),
            (json!(["late"]), "/0", "wrong_type"),
            (json!({}), "/do", "required"),
            (json!({"do": "dance"}), "/do", "not_allowed"),
            (json!({"do": 7}), "/do", "wrong_type"),
            (json!({"do": "late", "wen": 1}), "/wen", "unknown_field"),
            (json!({"do": "late", "step": "find"}), "/step", "not_allowed"),
            (json!({"do": "late", "seconds": 26}), "/seconds", "not_allowed"),
            (json!({"do": "reject", "seconds": 1}), "/seconds", "not_allowed"),
            (json!({"do": "reject", "after": 1}), "/after", "not_allowed"),
            (json!({"do": "unsearchable", "times": 1}), "/times", "not_allowed"),
            (json!({"do": "duplicate_callback", "step": "draft"}), "/step", "not_allowed"),
            (json!({"do": "error", "nth": 0}), "/nth", "not_allowed"),
            (json!({"do": "error", "every": "5"}), "/every", "wrong_type"),
            (json!({"do": "error", "external_id": ""}), "/external_id", "blank"),
            (json!({"do": "error", "probability": 1.1}), "/probability", "not_allowed"),
            (json!({"do": "error", "probability": "x"}), "/probability", "wrong_type"),
        ] {
            assert!(told(&behaviour).contains(&(place(rest), code)), "{behaviour}: {:?}", told(&behaviour));
        }
        let bad = json!({"behavior": "late", "seed": -1, "latency_ms": 10_001});
        let errors = check(&bad, Some(&json!({"token": 1, "secret": "hunter2"})));
        let places = errors.iter().map(|error| (error.pointer.as_str(), error.code)).collect::<Vec<_>>();
        let expected = [
            ("/settings/behavior", "unknown_field"),
            ("/settings/seed", "not_allowed"),
            ("/settings/latency_ms", "not_allowed"),
            ("/credentials/secret", "unknown_field"),
            ("/credentials/token", "wrong_type"),
        ];
        assert_eq!(places, expected);
        assert!(!format!("{errors:?}").contains("hunter2"));
    }
}
