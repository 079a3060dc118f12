use serde_json::json;

use super::*;

fn account(body: &str) -> Result<AccountInput, Invalid> {
    let key = AccountKey::new("static_site", "blog1").unwrap();
    AccountInput::parse(body.as_bytes(), &key, |settings, credentials| {
        let bad = settings.get("bad").is_some() && credentials.is_some();
        bad.then(|| FieldError { pointer: "/settings/bad".into(), code: "not_allowed", detail: "d".into() })
            .into_iter()
            .collect()
    })
}

fn group(body: &str) -> Result<GroupInput, Invalid> {
    GroupInput::parse(body.as_bytes(), &"both".parse().unwrap())
}

fn errors<T: std::fmt::Debug>(read: Result<T, Invalid>) -> Vec<(String, &'static str)> {
    match read {
        Err(Invalid::Fields(errors)) => errors.into_iter().map(|e| (e.pointer, e.code)).collect(),
        other => panic!("{other:?}"),
    }
}

fn owned<const N: usize>(errors: [(&str, &'static str); N]) -> [(String, &'static str); N] {
    errors.map(|(pointer, code)| (pointer.to_owned(), code))
}

#[test]
fn what_is_not_sent_has_a_default() {
    let plain = account("{}").unwrap();
    let expected = AccountInput {
        display_name: "blog1".to_owned(),
        settings: json!({}),
        credentials: None,
        min_interval_seconds: 0,
        max_in_flight: 4,
        daily_limit: None,
        time_zone: "UTC",
        resume: true,
    };
    assert_eq!(plain, expected);
    let nulls = AccountInput::FIELDS.map(|field| format!("\"{field}\":null")).join(",");
    assert_eq!(account(&format!("{{{nulls}}}")).unwrap(), plain);
}

#[test]
fn a_full_account_is_read() {
    let full = account(
        r#"{"display_name":"Blog","settings":{"site":"a"},"credentials":{"token":"t"},"min_interval_seconds":604800,
        "max_in_flight":1000,"daily_limit":1,"time_zone":"Asia/Shanghai","resume":false}"#,
    );
    let full = full.unwrap();
    assert_eq!((full.min_interval_seconds, full.max_in_flight, full.daily_limit), (604_800, 1_000, Some(1)));
    assert_eq!((full.time_zone, full.resume), ("Asia/Shanghai", false));
    assert_eq!(full.credentials.unwrap().expose(), &json!({"token": "t"}));
}

#[test]
fn everything_wrong_with_an_account_is_told_at_once() {
    let all = account(
        r#"{"display_name":7,"settings":{"bad":1},"credentials":{},"min_interval_seconds":604801,"max_in_flight":0,
        "daily_limit":0,"time_zone":"Mars/Olympus","resume":"no","setings":{}}"#,
    );
    let expected = [
        ("/setings", "unknown_field"),
        ("/display_name", "wrong_type"),
        ("/min_interval_seconds", "not_allowed"),
        ("/max_in_flight", "not_allowed"),
        ("/daily_limit", "not_allowed"),
        ("/time_zone", "not_allowed"),
        ("/resume", "wrong_type"),
        ("/settings/bad", "not_allowed"),
    ];
    assert_eq!(errors(all), owned(expected));
    let name = |characters| account(&json!({"display_name": "é".repeat(characters)}).to_string());
    assert!(name(200).is_ok());
    assert_eq!(errors(name(201)), owned([("/display_name", "too_long")]));
    let filled =
        |field: &str, bytes: usize| account(&format!(r#"{{"{field}":{{"a":"{}"}}}}"#, "x".repeat(bytes - 8)));
    for field in ["settings", "credentials"] {
        assert!(filled(field, SETTINGS_MAX_BYTES).is_ok());
        let error = errors(filled(field, SETTINGS_MAX_BYTES + 1));
        assert_eq!(error, [(format!("/{field}"), "too_long")]);
        // The platform is not asked about what could not be read.
        let list = account(&format!(r#"{{"settings":{{"bad":1}},"{field}":[]}}"#));
        assert!(list.is_err());
    }
}

#[test]
fn a_group_is_a_title_and_a_list() {
    let read = group(r#"{"accounts":[{"platform":"x","account_id":"b"},{"account_id":"a","platform":"x"}]}"#);
    let read = read.unwrap();
    assert_eq!(read.title, "both");
    assert_eq!(read.accounts.iter().map(ToString::to_string).collect::<Vec<_>>(), ["x/b", "x/a"]);
    assert_eq!(group(r#"{"title":"T","accounts":[]}"#).unwrap().title, "T");
    assert_eq!(errors(group(r#"{"title":"T"}"#)), owned([("/accounts", "required")]));
    assert_eq!(errors(group(r#"{"accounts":{}}"#)), owned([("/accounts", "wrong_type")]));
}

#[test]
fn everything_wrong_with_a_group_is_told_at_once() {
    let all = group(
        r#"{"titel":"T","accounts":[{"platform":"x","account_id":"a"},7,{"platform":"X"},
        {"platform":"x","account_id":"a"},{"platform":1,"account_id":"a b","acount":1}]}"#,
    );
    let expected = [
        ("/titel", "unknown_field"),
        ("/accounts/1", "wrong_type"),
        ("/accounts/2/account_id", "required"),
        ("/accounts/2/platform", "bad_format"),
        ("/accounts/3", "not_allowed"),
        ("/accounts/4/acount", "unknown_field"),
        ("/accounts/4/platform", "wrong_type"),
        ("/accounts/4/account_id", "bad_format"),
    ];
    assert_eq!(errors(all), owned(expected));
    let many = |count: usize| {
        let accounts = (0..count).map(|n| json!({"platform": "x", "account_id": n.to_string()}));
        group(&json!({"accounts": accounts.collect::<Vec<_>>()}).to_string())
    };
    assert!(many(GROUP_ACCOUNTS_MAX).is_ok());
    assert_eq!(errors(many(GROUP_ACCOUNTS_MAX + 1)), owned([("/accounts", "too_long")]));
}
