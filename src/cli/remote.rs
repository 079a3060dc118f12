//! Calling the service, for the commands that do what its API does.

use std::time::Duration;

use clap::Args;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Method, StatusCode, redirect};
use secrecy::ExposeSecret;
use serde_json::Value;

use super::Failure;
use crate::config::Secret;
use crate::outbound::USER_AGENT;

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long an answer may take: the service answers within seconds, also that it cannot.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The most of an answer that is no JSON that is shown, in characters: an error page can be long.
const FOREIGN_ANSWER_MAX: usize = 200;

/// The service that a command calls.
#[derive(Args)]
pub(super) struct Remote {
    /// The service
    #[arg(long, env = "PUBLISH_URL", value_name = "URL")]
    url: Option<String>,

    /// A key of the tenant
    #[arg(long, env = "PUBLISH_API_KEY", hide_env_values = true, value_name = "KEY")]
    api_key: Option<Secret>,
}

impl Remote {
    /// Gets a path.
    pub(super) async fn get(&self, path: &str) -> Result<Value, Failure> {
        self.call(Method::GET, path, None).await
    }

    /// Puts a body at a path.
    pub(super) async fn put(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        self.call(Method::PUT, path, Some(body)).await
    }

    /// Posts a body to a path.
    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        self.call(Method::POST, path, Some(body)).await
    }

    /// Deletes what a path names.
    pub(super) async fn delete(&self, path: &str) -> Result<Value, Failure> {
        self.call(Method::DELETE, path, None).await
    }

    /// One request; null where the answer has no body. No redirect is followed: the key goes to the service alone.
    async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, Failure> {
        let (url, api_key) = self.settings()?;
        let client = reqwest::Client::builder()
            .user_agent(USER_AGENT)
            .no_proxy()
            .redirect(redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(TIMEOUT)
            .build();
        let client = client.map_err(|error| Failure::Told(format!("cannot call out: {}", reason(&error))))?;
        let mut request = client.request(method, format!("{url}{path}")).bearer_auth(api_key);
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let unreachable = |error: reqwest::Error| {
            let why = reason(&error.without_url());
            Failure::Told(format!(
                "the service does not answer at {url}: {why}: check PUBLISH_URL, and that it runs"
            ))
        };
        let answer = request.send().await.map_err(unreachable)?;
        let status = answer.status();
        let text = answer.text().await.map_err(unreachable)?;
        if !status.is_success() {
            return Err(Failure::Told(told(status, &text)));
        }
        if text.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_str(&text).map_err(|_| Failure::Told(told(status, &text)))
    }

    fn settings(&self) -> Result<(&str, &str), Failure> {
        let url = self.url.as_deref().filter(|url| !url.is_empty()).ok_or(Failure::NoService)?;
        if !["http://", "https://"].iter().any(|scheme| url.starts_with(scheme)) {
            return Err(Failure::Told(format!(
                "{url:?} is no address of a service: begin PUBLISH_URL with http:// or https://"
            )));
        }
        let api_key = self.api_key.as_ref().map(|key| key.0.expose_secret()).filter(|key| !key.is_empty());
        Ok((url.trim_end_matches('/'), api_key.ok_or(Failure::NoKey)?))
    }
}

/// The innermost cause: the others say that there is one.
fn reason(error: &(dyn std::error::Error + 'static)) -> String {
    error.source().map_or_else(|| error.to_string(), reason)
}

/// What an error answer says, in one line: the problem's detail, and each field with what is wrong with it.
fn told(status: StatusCode, text: &str) -> String {
    let problem = serde_json::from_str::<Value>(text).unwrap_or_default();
    let (Some(code), Some(detail)) = (problem["code"].as_str(), problem["detail"].as_str()) else {
        let head = plain(&text.chars().take(FOREIGN_ANSWER_MAX).collect::<String>());
        return format!("this is not the service's answer ({status}): check PUBLISH_URL: {head}");
    };
    let errors = problem["errors"].as_array().map(Vec::as_slice).unwrap_or_default();
    let each = errors.iter().map(|error| {
        let text = |name: &str| error[name].as_str().unwrap_or_default();
        format!("{}: {}", text("pointer"), text("detail"))
    });
    let detail = if errors.len() > 1 { each.collect::<Vec<_>>().join("; ") } else { detail.to_owned() };
    format!("{}: {}", plain(code), plain(&detail))
}

/// A part of a path.
pub(super) fn part(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// A text as a terminal may show it: what a caller stored may hold anything, also what turns the direction of the rest of
/// the line (UAX #9, explicit formatting characters).
pub(super) fn plain(text: &str) -> String {
    let turns = |c| matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().map(|c| if c.is_control() || turns(c) { ' ' } else { c }).collect()
}

/// A member of an answer as text; a dash where there is none.
pub(super) fn shown(value: &Value, name: &str) -> String {
    match &value[name] {
        Value::Null => "-".to_owned(),
        Value::String(text) => plain(text),
        other => other.to_string(),
    }
}

/// A list in an answer.
pub(super) fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The lines of a list, one for each item.
pub(super) fn lines(items: &[Value], line: impl Fn(&Value) -> String) -> String {
    items.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_error_answer_becomes_one_line() {
        let one = json!({"code": "not_found", "detail": "there is no such account"}).to_string();
        assert_eq!(told(StatusCode::NOT_FOUND, &one), "not_found: there is no such account");
        let several = json!({"code": "validation_failed", "detail": "2 fields break rules; see errors", "errors": [
            {"pointer": "/a", "detail": "send a string"}, {"pointer": "/b", "detail": "\u{1b}[31mis too long"}]});
        let line = "validation_failed: /a: send a string; /b:  [31mis too long";
        assert_eq!(told(StatusCode::UNPROCESSABLE_ENTITY, &several.to_string()), line);
        let foreign = told(StatusCode::BAD_GATEWAY, &"<html>".repeat(100));
        assert!(
            foreign.contains("502") && foreign.contains("PUBLISH_URL") && foreign.len() < 300,
            "{foreign}"
        );
    }

    #[test]
    fn members_are_shown_as_text() {
        assert_eq!(plain("a\u{202e}b\u{2066}c\u{200f}é"), "a b c é");
        let value = json!({"text": "a\nb", "number": 7, "none": null});
        let names = ["text", "number", "none", "other"].map(|name| shown(&value, name));
        assert_eq!(names, ["a b", "7", "-", "-"]);
        assert_eq!(part("a/b ä"), "a%2Fb%20%C3%A4");
    }
}
