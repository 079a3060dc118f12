//! What callers send with an action on a task.

use serde::Deserialize;
use utoipa::ToSchema;

use crate::account::AccountKey;
use crate::article::{URL_MAX, is_http_url};
use crate::connector::remote_id;
use crate::fields::{FieldError, Fields, Invalid};
use crate::json::InvalidJson;
use crate::task::act::{self, Confirmed};

/// The most accounts that one call adds: more belong into a group.
pub(super) const ADDED_MAX: usize = 100;

/// Nothing.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NoFields {}

/// Refuses a body that holds anything.
pub(super) fn no_fields(body: &[u8]) -> Result<(), Invalid> {
    finished(Fields::of_body(body, &[])?, ())
}

/// What is to be retried.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "describes in the OpenAPI document what `retry_request` reads")]
pub(super) struct RetryBody {
    /// The platform; together with `account_id`, or not at all: then all of the task.
    platform: Option<String>,
    /// The account.
    account_id: Option<String>,
    /// Of an `outcome_unknown`: somebody has looked, and it was not published. It runs again.
    confirmed_not_published: Option<bool>,
    /// Of an `outcome_unknown`: somebody has looked, and it was published. The platform is not called.
    confirmed_published: Option<ConfirmedBody>,
}

/// Where it was found.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "describes in the OpenAPI document what `confirmed_published` reads")]
pub(super) struct ConfirmedBody {
    /// Its public address: an http(s) URL.
    #[schema(max_length = 2048, format = "uri")]
    url: String,
    /// The platform's id of it.
    #[schema(min_length = 1, max_length = 200)]
    remote_id: Option<String>,
}

/// The accounts to be added.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "describes in the OpenAPI document what `accounts` reads")]
pub(super) struct AccountsBody {
    /// 1–100, none twice; those that the task has stay as they are.
    #[schema(min_items = 1, max_items = 100)]
    accounts: Vec<AccountName>,
}

/// An account.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "describes in the OpenAPI document what `AccountKey::list` reads")]
pub(super) struct AccountName {
    /// The platform.
    #[schema(example = "static_site")]
    platform: String,
    /// Its id on the platform.
    #[schema(example = "blog")]
    account_id: String,
}

/// Reads the body of a retry.
pub(super) fn retry_request(body: &[u8]) -> Result<act::RetryRequest, Invalid> {
    let known = ["platform", "account_id", "confirmed_not_published", "confirmed_published"];
    let mut fields = Fields::of_body(body, &known)?;
    let account = AccountKey::of_fields(&mut fields)?;
    let sent = |fields: &Fields<'_>, name: &str| fields.get(name).is_some();
    for (name, other) in [("platform", "account_id"), ("account_id", "platform")] {
        if sent(&fields, other) && !sent(&fields, name) {
            fields.refuse(
                name,
                "required",
                format!("an account has two names: send this with {other}, or neither"),
            );
        }
    }
    let not_published = fields.boolean("confirmed_not_published").unwrap_or(false);
    let published = confirmed_published(&mut fields)?;
    let names_one = sent(&fields, "platform") || sent(&fields, "account_id");
    for name in ["confirmed_not_published", "confirmed_published"] {
        let confirms = if name == "confirmed_published" { sent(&fields, name) } else { not_published };
        if confirms && !names_one {
            fields.refuse(name, "not_allowed", "this speaks of one account: name it");
        }
    }
    if not_published && sent(&fields, "confirmed_published") {
        let detail = "it was published or it was not: send one of the two";
        fields.refuse("confirmed_not_published", "not_allowed", detail);
    }
    let confirmed = published.or(not_published.then_some(Confirmed::NotPublished));
    finished(fields, act::RetryRequest { account, confirmed })
}

fn confirmed_published(fields: &mut Fields<'_>) -> Result<Option<Confirmed>, InvalidJson> {
    let Some(raw) = fields.get("confirmed_published") else { return Ok(None) };
    let mut inner = Fields::within("/confirmed_published".to_owned(), raw, &["url", "remote_id"])?;
    let mut url = None;
    if raw.get().starts_with('{') {
        url = inner.text("url", Some(URL_MAX), true)?;
        if inner.errors().is_empty() && url.as_deref().is_some_and(|url| !is_http_url(url)) {
            inner.refuse("url", "bad_format", "send an absolute http or https URL");
        }
    }
    let remote_id = remote_id(&mut inner)?;
    fields.extend(inner.into_errors());
    Ok(url.map(|url| Confirmed::Published { url, remote_id }))
}

/// Reads the body that adds accounts.
pub(super) fn accounts(body: &[u8]) -> Result<Vec<AccountKey>, Invalid> {
    let mut fields = Fields::of_body(body, &["accounts"])?;
    fields.required("accounts");
    let accounts = AccountKey::list(&mut fields, ADDED_MAX)?;
    if accounts.is_empty() && fields.errors().is_empty() {
        fields.refuse("accounts", "required", "name at least one account");
    }
    finished(fields, accounts)
}

fn finished<T>(fields: Fields<'_>, value: T) -> Result<T, Invalid> {
    let errors: Vec<FieldError> = fields.into_errors();
    if errors.is_empty() { Ok(value) } else { Err(Invalid::Fields(errors)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told<T: std::fmt::Debug>(result: Result<T, Invalid>) -> Vec<String> {
        match result {
            Err(Invalid::Fields(errors)) => {
                errors.into_iter().map(|error| format!("{} {}", error.pointer, error.code)).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    fn retried(text: &str) -> act::RetryRequest {
        retry_request(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_retry_names_an_account_or_none() {
        let account = AccountKey::new("p", "a").unwrap();
        assert_eq!(retried("{}"), act::RetryRequest::default());
        assert_eq!(
            retried(r#"{"platform":null,"confirmed_not_published":false}"#),
            act::RetryRequest::default()
        );
        let one = act::RetryRequest { account: Some(account), confirmed: None };
        assert_eq!(retried(r#"{"platform":"p","account_id":"a"}"#), one);
        let not = retried(r#"{"platform":"p","account_id":"a","confirmed_not_published":true}"#);
        assert_eq!(not.confirmed, Some(Confirmed::NotPublished));
        let published = retried(
            r#"{"platform":"p","account_id":"a","confirmed_published":{"url":"https://h/a","remote_id":"7"}}"#,
        );
        let found = Confirmed::Published { url: "https://h/a".into(), remote_id: Some("7".into()) };
        assert_eq!(published.confirmed, Some(found));
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let long = format!(
            r#"{{"platform":"p","account_id":"a","confirmed_published":{{"url":"https://h/","remote_id":"{}"}}}}"#,
            "x".repeat(201)
        );
        let cases = [
            (r#"{"platform":"p"}"#, &["/account_id required"][..]),
            (r#"{"account_id":"a"}"#, &["/platform required"]),
            (r#"{"confirmed_not_published":true}"#, &["/confirmed_not_published not_allowed"]),
            (r#"{"confirmed_published":{"url":"https://h/"}}"#, &["/confirmed_published not_allowed"]),
            (
                r#"{"platform":"p","account_id":"a","confirmed_not_published":true,"confirmed_published":{"url":"https://h/"}}"#,
                &["/confirmed_not_published not_allowed"],
            ),
            (
                r#"{"platform":"p","account_id":"a","confirmed_published":{"url":"ftp://h/","id":1}}"#,
                &["/confirmed_published/id unknown_field"],
            ),
            (
                r#"{"platform":"p","account_id":"a","confirmed_published":{"url":"ftp://h/"}}"#,
                &["/confirmed_published/url bad_format"],
            ),
            (
                r#"{"platform":"p","account_id":"a","confirmed_published":{}}"#,
                &["/confirmed_published/url required"],
            ),
            (
                r#"{"platform":"p","account_id":"a","confirmed_published":"https://h/"}"#,
                &["/confirmed_published wrong_type"],
            ),
            (&long, &["/confirmed_published/remote_id too_long"]),
            (r#"{"platform":1,"account_id":"a","x":1}"#, &["/x unknown_field", "/platform wrong_type"]),
            (r#"{"platform":"P","account_id":"a b"}"#, &["/platform bad_format", "/account_id bad_format"]),
            ("[]", &[" wrong_type"]),
        ];
        for (text, expected) in cases {
            assert_eq!(told(retry_request(text.as_bytes())), expected, "{text}");
        }
        assert_eq!(told(no_fields(br#"{"force":true}"#)), ["/force unknown_field"]);
        no_fields(b"{}").unwrap();
    }

    #[test]
    fn accounts_are_named_in_a_list() {
        let body = r#"{"accounts":[{"platform":"p","account_id":"a"},{"platform":"p","account_id":"b"}]}"#;
        assert_eq!(accounts(body.as_bytes()).unwrap().len(), 2);
        let many =
            format!("{{\"accounts\":[{}]}}", vec![r#"{"platform":"p","account_id":"a"}"#; 101].join(","));
        let cases = [
            ("{}", &["/accounts required"][..]),
            (r#"{"accounts":[]}"#, &["/accounts required"]),
            (r#"{"accounts":{}}"#, &["/accounts wrong_type"]),
            (
                r#"{"accounts":[{"platform":"p"},7,{"platform":"p","account_id":"a\u0000","x":1}]}"#,
                &[
                    "/accounts/0/account_id required",
                    "/accounts/1 wrong_type",
                    "/accounts/2/x unknown_field",
                    "/accounts/2/account_id bad_format",
                ],
            ),
            (
                r#"{"accounts":[{"platform":"p","account_id":"a"},{"platform":"p","account_id":"a"}]}"#,
                &["/accounts/1 not_allowed"],
            ),
            (&many, &["/accounts too_long"]),
        ];
        for (text, expected) in cases {
            assert_eq!(told(accounts(text.as_bytes())), expected, "{text}");
        }
    }
}
