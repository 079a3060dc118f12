//! Requests to Ghost's Admin API, each signed for the moment in which it is sent.

use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};
use serde::de::DeserializeOwned;
use serde_json::Value;
use url::Url;
use url::form_urlencoded::Serializer;

use super::answers::{Fault, judged};
use super::post::{FIELDS, Post, Posts, WHOLE_FIELDS};
use super::token::AdminKey;
use crate::account::Credentials;
use crate::clock::SharedClock;
use crate::connector::secrets::Secrets;
use crate::connector::{Failure, Trace};
use crate::outbound::{Answer, Call, CallError, Client, Limits, Method};

/// The API that is asked for; newer ones answer it as it was.
const ACCEPT_VERSION: &str = "v5.0";

/// The bytes that are read of an answer: a page of posts without their texts has 400 KiB.
const ANSWER_BYTES: usize = 4 * 1024 * 1024;

/// How many posts are asked for at once: what Ghost 6 gives at most.
const PAGE_POSTS: u32 = 100;

/// How many pages are read in a look: what answers more does not filter.
const PAGES_MAX: u32 = 20;

/// The first status that is an error's.
const FIRST_ERROR: u16 = 400;

/// How far Ghost's clock may be off before a refused token is taken for its fault, not the key's. Its `Date` is told in
/// seconds and may be a few old.
const SKEW_MIN: TimeDelta = TimeDelta::minutes(1);

/// Whom to ask, and as whom.
pub(super) struct Admin<'a> {
    pub(super) client: &'a Client,
    pub(super) clock: &'a SharedClock,
    /// The address of the site, without a slash at its end.
    pub(super) base: String,
    pub(super) key: AdminKey,
    /// Sent along with every request, unless it is empty.
    pub(super) request_id: &'a str,
    /// Where answers are noted, without the credentials and what was made of them.
    pub(super) trace: Option<(&'a Trace, &'a Credentials)>,
    /// No request is begun after this, and each ends by then.
    pub(super) until: Instant,
    /// How far Ghost's clock is ahead of ours, as far as we know.
    pub(super) ahead: TimeDelta,
}

/// What is sent in a request.
pub(super) struct Payload<'a> {
    /// Its media type.
    pub(super) kind: &'a str,
    pub(super) body: &'a [u8],
}

impl Admin<'_> {
    /// The present, as Ghost's clock has it.
    pub(super) fn now(&self) -> DateTime<Utc> {
        self.clock.now() + self.ahead
    }

    /// Sends one request to `path` below the Admin API and reads what it answers.
    ///
    /// A token is refused by a clock: where Ghost's is off ours, its time is taken and the request sent once more. A
    /// refused token proves that the first did nothing.
    pub(super) async fn ask(
        &mut self,
        method: Method,
        path: &str,
        payload: Option<Payload<'_>>,
    ) -> Result<Value, Fault> {
        let answer = self.send(method, path, payload.as_ref()).await?;
        let off = answer.as_ref().ok().and_then(|answer| self.off(answer));
        let judgement = judged(answer, self.now());
        let refused = match &judgement {
            Err(Fault::LoginExpired(_)) => true,
            Err(Fault::Passing(failure)) => failure.code == "clock_skew",
            _ => false,
        };
        match off {
            Some(off) if refused => {
                tracing::warn!(seconds = off.num_seconds(), "Ghost's clock is off ours; its time is taken");
                self.ahead += off;
                let again = self.send(method, path, payload.as_ref()).await?;
                judged(again, self.now())
            }
            _ => judgement,
        }
    }

    /// How far Ghost's clock is off what we take it for, where that is much.
    fn off(&self, answer: &Answer) -> Option<TimeDelta> {
        let date = httpdate::parse_http_date(answer.date.as_deref()?).ok()?;
        let off = DateTime::<Utc>::from(date) - self.now();
        (off.abs() > SKEW_MIN).then_some(off)
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        payload: Option<&Payload<'_>>,
    ) -> Result<Result<Answer, CallError>, Fault> {
        let limits = Limits { deadline: self.left()?, answer_bytes: ANSWER_BYTES };
        let url = format!("{}/ghost/api/admin/{path}", self.base);
        let authorization = self.key.authorization(self.now());
        let secrets =
            self.trace.map(|(trace, credentials)| (trace, Secrets::of(credentials).sent(&authorization)));
        let mut headers = vec![
            ("accept", "application/json".to_owned()),
            ("accept-version", ACCEPT_VERSION.to_owned()),
            ("authorization", authorization),
        ];
        if let Some(payload) = payload {
            headers.push(("content-type", payload.kind.to_owned()));
        }
        if !self.request_id.is_empty() {
            headers.push(("x-request-id", self.request_id.to_owned()));
        }
        let body = payload.map_or_else(Vec::new, |payload| payload.body.to_vec());
        let mut answer = self.client.send(Call { method, url: &url, headers: &headers, body, limits }).await;
        if let (Ok(answer), Some((trace, secrets))) = (&mut answer, secrets) {
            trace.note(answer.status, &answer.head, &secrets);
            // Its words are shown as the reason of a failure.
            if answer.status >= FIRST_ERROR {
                answer.head = secrets.taken_out_of(&answer.head);
            }
        }
        Ok(answer)
    }

    /// The time that is left; a fault if there is none.
    pub(super) fn left(&self) -> Result<Duration, Fault> {
        let left = self.until.checked_duration_since(self.clock.instant()).filter(|left| !left.is_zero());
        left.ok_or_else(|| {
            Fault::Passing(Failure::new(
                "platform_slow",
                "there was no time left to ask Ghost: it answers slowly",
            ))
        })
    }

    /// One post, without its text.
    pub(super) async fn post(&mut self, id: &str) -> Result<Post, Fault> {
        self.read_post(id, FIELDS, &[]).await
    }

    /// One post, with its text.
    pub(super) async fn whole_post(&mut self, id: &str) -> Result<Post, Fault> {
        self.read_post(id, WHOLE_FIELDS, &[("formats", "lexical")]).await
    }

    async fn read_post(&mut self, id: &str, fields: &str, more: &[(&str, &str)]) -> Result<Post, Fault> {
        let path = format!("posts/{id}/?{}", query(fields, more));
        one(self.ask(Method::Get, &path, None).await?).and_then(|post| post.asked_for(id))
    }

    /// All posts that a filter lets through: of every status, whoever made them.
    pub(super) async fn posts(&mut self, filter: &str) -> Result<Vec<Post>, Fault> {
        let mut all = Vec::new();
        let mut page = 1;
        loop {
            let posts = self.page(Some(filter), page).await?;
            let next = posts.next();
            all.extend(posts.posts);
            match next {
                None => return Ok(all),
                Some(next) if next <= PAGES_MAX => page = next,
                Some(_) => {
                    let why = "Ghost has thousands of posts for one mark, so its answer says nothing: check its version";
                    return Err(Fault::Unknown(why.to_owned()));
                }
            }
        }
    }

    /// One page of them, the oldest first, so that what is new meanwhile stands at the end.
    pub(super) async fn page(&mut self, filter: Option<&str>, page: u32) -> Result<Posts, Fault> {
        let (limit, page) = (PAGE_POSTS.to_string(), page.to_string());
        let mut more = vec![("order", "created_at asc, id asc"), ("limit", &limit), ("page", &page)];
        more.extend(filter.map(|filter| ("filter", filter)));
        let path = format!("posts/?{}", query(FIELDS, &more));
        read(self.ask(Method::Get, &path, None).await?)
    }

    /// Creates or changes a post. The path has no query: above all no `newsletter`, by which Ghost would send mail.
    pub(super) async fn write(&mut self, method: Method, path: &str, body: &Value) -> Result<Post, Fault> {
        let body = body.to_string();
        let payload = Payload { kind: "application/json", body: body.as_bytes() };
        // Asked for the format that the text is not in: the answer is small then.
        one(self.ask(method, &format!("{path}?formats=mobiledoc"), Some(payload)).await?)
    }
}

/// The query of a request that reads these fields of posts.
fn query(fields: &str, more: &[(&str, &str)]) -> String {
    let mut query = Serializer::new(String::new());
    query.append_pair("fields", fields).append_pair("include", "tags").extend_pairs(more).finish()
}

fn one(answer: Value) -> Result<Post, Fault> {
    let posts = read::<Posts>(answer)?.posts;
    let none = || Fault::Unknown("Ghost answered without the post: check its version".to_owned());
    posts.into_iter().next().ok_or_else(none)
}

/// What an answer holds, where it is what we take it for.
pub(super) fn read<T: DeserializeOwned>(answer: Value) -> Result<T, Fault> {
    serde_json::from_value(answer).map_err(|error| {
        Fault::Unknown(format!("Ghost's answer cannot be read ({error}): check its version"))
    })
}

/// The address of a site as requests need it: in one spelling, without a slash at its end.
pub(super) fn base(text: &str) -> Option<String> {
    let url = Url::parse(text).ok()?;
    let plain = url.query().is_none()
        && url.fragment().is_none()
        && url.username().is_empty()
        && url.password().is_none();
    let http = matches!(url.scheme(), "http" | "https") && url.has_host();
    (plain && http).then(|| url.as_str().trim_end_matches('/').to_owned())
}
