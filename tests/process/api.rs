//! A caller of the API.

use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap};
use serde_json::{Value, json};

use crate::program::{LIMIT, eventually};

/// How long a caller waits for an answer: beyond what the service promises, so that a late answer shows as late.
const PATIENCE: Duration = Duration::from_secs(20);

/// The pause before a request that was answered "unavailable" is sent again: on a busy machine the database, too, may
/// take longer than an answer waits for it.
const REST: Duration = Duration::from_millis(100);

/// A caller who repeats what was answered "unavailable", as callers should, unless it wants to see just that.
#[derive(Clone)]
pub(crate) struct Api {
    client: reqwest::Client,
    patient: bool,
    pub(crate) url: String,
    key: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    /// Whether the request was sent more than once.
    pub(crate) repeated: bool,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {}", self.text()))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// The body of an answer that must be 200.
    #[track_caller]
    pub(crate) fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text());
        self.json()
    }
}

impl Api {
    pub(crate) fn new(url: &str, key: Option<&str>) -> Self {
        let client = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().unwrap();
        Self { client, patient: true, url: url.to_owned(), key: key.map(str::to_owned) }
    }

    /// The same caller, who takes every answer as it comes.
    pub(crate) fn impatient(&self) -> Self {
        Self { patient: false, ..self.clone() }
    }

    /// The same caller with another key.
    pub(crate) fn with_key(&self, key: &str) -> Self {
        Self { key: Some(key.to_owned()), ..self.clone() }
    }

    /// The same caller of the service at another address.
    pub(crate) fn at(&self, url: &str) -> Self {
        Self { url: url.to_owned(), ..self.clone() }
    }

    async fn send(&self, mut request: reqwest::RequestBuilder) -> Result<Answer, reqwest::Error> {
        if let Some(key) = &self.key {
            request = request.bearer_auth(key);
        }
        let (mut repeated, mut left) = (false, LIMIT.as_millis() / REST.as_millis());
        loop {
            let answer = request.try_clone().unwrap().send().await?;
            let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
            if status != 503 || !self.patient || left == 0 {
                return Ok(Answer { status, headers, body: answer.bytes().await?.to_vec(), repeated });
            }
            tokio::time::sleep(REST).await;
            (repeated, left) = (true, left - 1);
        }
    }

    /// Gets a path of the service, or a whole URL.
    pub(crate) async fn get(&self, path: &str) -> Result<Answer, reqwest::Error> {
        let url = if path.starts_with("http") { path.to_owned() } else { format!("{}{path}", self.url) };
        self.send(self.client.get(url)).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Result<Answer, reqwest::Error> {
        let request = self.client.post(format!("{}{path}", self.url));
        self.send(request.header(CONTENT_TYPE, "application/json").body(body.to_string())).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Result<Answer, reqwest::Error> {
        let request = self.client.put(format!("{}{path}", self.url));
        self.send(request.header(CONTENT_TYPE, "application/json").body(body.to_string())).await
    }

    pub(crate) async fn publish(&self, article: &Value) -> Result<Answer, reqwest::Error> {
        self.publish_with(article, &[]).await
    }

    pub(crate) async fn publish_with(
        &self,
        article: &Value,
        headers: &[(&str, &str)],
    ) -> Result<Answer, reqwest::Error> {
        let mut request = self.client.post(format!("{}/publish", self.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send(request.header(CONTENT_TYPE, "application/json").body(article.to_string())).await
    }

    pub(crate) async fn task(&self, external_id: &str) -> Result<Answer, reqwest::Error> {
        let id = percent_encoding::utf8_percent_encode(external_id, percent_encoding::NON_ALPHANUMERIC);
        self.get(&format!("/tasks/{id}")).await
    }

    /// Waits until the task is published, and returns it.
    pub(crate) async fn published(&self, external_id: &str) -> Value {
        let mut task = Value::Null;
        eventually(&format!("{external_id} is published"), async || {
            let Ok(answer) = self.task(external_id).await else { return false };
            if answer.status == 503 {
                return false;
            }
            task = answer.ok();
            assert_ne!(task["status"], "failed", "{task}");
            task["status"] == "success"
        })
        .await;
        task
    }
}

/// An article of the demo group; its text stands in its page alone.
pub(crate) fn article(external_id: &str) -> Value {
    json!({
        "external_id": external_id,
        "group_code": "demo",
        "title": format!("Title of {external_id}"),
        "content_html": format!("<p>{}</p>", words(external_id)),
    })
}

/// The words by which an article's page is known, and no other's.
pub(crate) fn words(external_id: &str) -> String {
    format!("These are the words of {external_id}.")
}
