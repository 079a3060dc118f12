//! What an endpoint says of an article: in its answer, which is read with forbearance, or in a call of its own, which is read
//! strictly, as every call of the API.

use serde::Deserialize;
use serde_json::json;
use utoipa::openapi::schema::{AdditionalProperties, SchemaType, Type};
use utoipa::openapi::{ObjectBuilder, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::super::{Failure, REMOTE_ID_MAX, Remote, remote_id};
use crate::article::{URL_MAX, is_http_url};
use crate::fields::{Fields, Invalid};
use crate::json::InvalidJson;
use crate::store::LOGIN_EXPIRED;

/// The longest code of an error, in characters.
const CODE_MAX: usize = 64;

/// The longest message of an error, in characters.
const MESSAGE_MAX: usize = 1_000;

/// The longest name of a lease, in characters: a publication's id and two numbers.
pub const LEASE_ID_MAX: usize = 64;

/// The error code of a failure that an endpoint gave no code for.
const BRIDGE_FAILED: &str = "bridge_failed";

/// What an endpoint says, in an answer or in a call of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// It is public.
    Success(Remote),
    /// It failed, and nothing was published.
    Failed(Failure),
    /// The platform does not let the account in.
    LoginExpired(Failure),
}

/// An answer as it is read: what else it holds is the endpoint's own.
#[derive(Deserialize)]
struct Told {
    status: String,
    url: Option<String>,
    remote_id: Option<String>,
    error: Option<ToldError>,
}

#[derive(Default, Deserialize)]
struct ToldError {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
}

impl Report {
    /// Reads the body of an answer; the sentence says what is wrong with it.
    pub fn parse(body: &[u8]) -> Result<Self, String> {
        let told: Told = serde_json::from_slice(body)
            .map_err(|error| format!("the bridge's answer is not the JSON that was agreed on: {error}"))?;
        let failure = |otherwise: &'static str| {
            let error = told.error.as_ref();
            let code = error.map(|error| error.code.as_str()).filter(|code| is_code(code));
            let message = error.map_or("", |error| error.message.as_str());
            let message = if message.is_empty() { "the bridge gave no reason" } else { message };
            Failure::new(
                code.unwrap_or(otherwise).to_owned(),
                // The database takes no NUL.
                message.chars().filter(|c| *c != '\0').take(MESSAGE_MAX).collect::<String>(),
            )
        };
        match told.status.as_str() {
            "success" => {
                let url = told.url.filter(|url| is_http_url(url));
                let url = url.ok_or("the bridge reported a success without the article's http(s) URL")?;
                let remote_id = told.remote_id.filter(|id| is_remote_id(id));
                Ok(Self::Success(Remote { url, remote_id }))
            }
            "failed" => Ok(Self::Failed(failure(BRIDGE_FAILED))),
            "login_expired" => Ok(Self::LoginExpired(failure(LOGIN_EXPIRED))),
            other => {
                let other = other.chars().take(CODE_MAX).collect::<String>();
                Err(format!("the bridge reported a status that was not agreed on: {other:?}"))
            }
        }
    }
}

/// A report of one round, as it comes by a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reported {
    /// Which round of the publication it tells of.
    pub round: i32,
    /// What came of it.
    pub report: Report,
    /// Under which lease a robot had it that fetched it, if it says so.
    pub lease_id: Option<String>,
}

impl Reported {
    /// The fields that a body may have.
    const FIELDS: [&str; 6] = ["round", "status", "url", "remote_id", "error", "lease_id"];

    /// Reads the body of `POST /bridge/{publication_id}/results`.
    pub fn parse(body: &[u8]) -> Result<Self, Invalid> {
        let mut fields = Fields::of_body(body, &Self::FIELDS)?;
        fields.required("round");
        fields.required("status");
        let round = fields.integer("round", 1, i32::MAX);
        let status = fields.string("status")?;
        let url = fields.text("url", Some(URL_MAX), false)?;
        if url.as_deref().is_some_and(|url| url.chars().count() <= URL_MAX && !is_http_url(url)) {
            fields.refuse("url", "bad_format", "send an absolute http or https URL");
        }
        let remote_id = remote_id(&mut fields)?;
        let failure = failure(&mut fields)?;
        let lease_id = fields.text("lease_id", Some(LEASE_ID_MAX), false)?;
        let report = match status.as_deref() {
            Some("success") => {
                fields.required("url");
                url.map(|url| Report::Success(Remote { url, remote_id }))
            }
            Some("failed") => {
                fields.required("error");
                failure.map(Report::Failed)
            }
            Some("login_expired") => {
                fields.required("error");
                failure.map(Report::LoginExpired)
            }
            Some(_) => {
                let known = "send \"success\", \"failed\" or \"login_expired\"";
                fields.refuse("status", "not_allowed", known);
                None
            }
            None => None,
        };
        match (round, report) {
            (Some(round), Some(report)) if fields.errors().is_empty() => Ok(Self { round, report, lease_id }),
            _ => Err(Invalid::Fields(fields.into_errors())),
        }
    }
}

/// The member `error`, if it was sent and keeps its rules.
fn failure(fields: &mut Fields<'_>) -> Result<Option<Failure>, InvalidJson> {
    let Some(raw) = fields.get("error") else { return Ok(None) };
    let mut error = Fields::within("/error".to_owned(), raw, &["code", "message"])?;
    if raw.get().starts_with('{') {
        error.required("code");
        error.required("message");
    }
    let code = error.string("code")?;
    if code.as_deref().is_some_and(|code| !is_code(code)) {
        error.refuse("code", "bad_format", "is 1–64 of a-z 0-9 _");
    }
    let message = error.text("message", Some(MESSAGE_MAX), false)?;
    let failure = code.zip(message).map(|(code, message)| Failure::new(code, message));
    let good = error.errors().is_empty();
    fields.extend(error.into_errors());
    Ok(failure.filter(|_| good))
}

fn is_code(text: &str) -> bool {
    (1..=CODE_MAX).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

fn is_remote_id(text: &str) -> bool {
    !text.is_empty() && text.chars().count() <= REMOTE_ID_MAX && !text.chars().any(char::is_control)
}

/// The body of `POST /bridge/{publication_id}/results` in the `OpenAPI` document. It is read by [`Reported::parse`].
#[derive(Debug, Clone, Copy)]
pub struct ResultsRequest;

impl ToSchema for ResultsRequest {}

impl PartialSchema for ResultsRequest {
    fn schema() -> RefOr<Schema> {
        let text = |max| ObjectBuilder::new().schema_type(Type::String).max_length(Some(max));
        let nullable = |kind| ObjectBuilder::new().schema_type(SchemaType::from_iter([kind, Type::Null]));
        let closed = || Some(AdditionalProperties::FreeForm(false));
        let error = nullable(Type::Object)
            .description(Some("Why it failed, or why the account was not let in: needed then."))
            .additional_properties(closed())
            .property("code", text(CODE_MAX).pattern(Some("^[a-z0-9_]{1,64}$")))
            .property("message", text(MESSAGE_MAX))
            .required("code")
            .required("message");
        let round = ObjectBuilder::new()
            .schema_type(Type::Integer)
            .minimum(Some(1))
            .maximum(Some(i32::MAX))
            .description(Some("The round that it was asked in."));
        ObjectBuilder::new()
            .description(Some(
                "What came of an article, in the words of an answer. Unknown fields are refused.",
            ))
            .additional_properties(closed())
            .examples([
                json!({"round": 1, "status": "success", "url": "https://example.org/a", "remote_id": "7"}),
            ])
            .property("round", round)
            .property("status", text(16).enum_values(Some(["success", "failed", "login_expired"])))
            .property(
                "url",
                nullable(Type::String)
                    .max_length(Some(URL_MAX))
                    .description(Some("Where the article stands: needed with `success`.")),
            )
            .property(
                "remote_id",
                nullable(Type::String)
                    .min_length(Some(1))
                    .max_length(Some(REMOTE_ID_MAX))
                    .description(Some("The platform's own id of it.")),
            )
            .property("error", error)
            .property(
                "lease_id",
                nullable(Type::String).max_length(Some(LEASE_ID_MAX)).description(Some(
                    "Of an article that was fetched: as the job named it. Needed to report a failure of what was \
                     handed out more than once.",
                )),
            )
            .required("round")
            .required("status")
            .into()
    }
}
