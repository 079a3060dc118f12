//! Reading a submission: everything that is wrong with it, at once.

use chrono::{DateTime, Datelike as _, Utc};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::url::{self, BadUrl};
use super::{
    AUTHOR_MAX, BadExternalId, Content, ExternalId, IDEMPOTENCY_KEY_MAX, METADATA_MAX_BYTES, OnDuplicate,
    SUMMARY_MAX, Submission, TAG_MAX, TAGS_MAX, TITLE_MAX, URL_MAX, is_idempotency_key,
};
use crate::account::GroupCode;
use crate::json::{self, InvalidJson};

/// How many unknown fields are told one by one: nobody misspells more, and the answer stays short.
const UNKNOWN_FIELDS_TOLD: usize = 50;

/// One field that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct FieldError {
    /// Where, as a JSON Pointer (RFC 6901).
    #[schema(example = "/title")]
    pub pointer: String,
    /// Which rule: `required`, `unknown_field`, `wrong_type`, `too_long`, `blank`, `bad_format` or `not_allowed`.
    #[schema(example = "too_long")]
    pub code: &'static str,
    /// What to do about it.
    pub detail: String,
}

/// Why a body is no submission.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// It cannot be read.
    #[error(transparent)]
    Json(#[from] InvalidJson),
    /// It can be read, but fields break rules: all of them.
    #[error("{} fields break rules", .0.len())]
    Fields(Vec<FieldError>),
}

impl Submission {
    /// The fields that an article in a batch may have: those of a body, and the key that is a header elsewhere.
    pub(super) const FIELDS_IN_BATCH: [&str; 15] = [
        "idempotency_key",
        "external_id",
        "group_code",
        "title",
        "content_html",
        "summary",
        "cover_url",
        "canonical_url",
        "author",
        "tags",
        "callback_url",
        "publish_at",
        "draft",
        "on_duplicate",
        "metadata",
    ];

    /// The fields that a body may have.
    pub(super) const FIELDS: &[&str] = Self::FIELDS_IN_BATCH.split_at(1).1;

    /// Reads the body of `POST /publish`. A field that is null counts as not sent.
    ///
    /// `check_callback` says what keeps a callback URL from being called, if anything does.
    pub fn parse(body: &[u8], check_callback: impl Fn(&str) -> Result<(), String>) -> Result<Self, Invalid> {
        Self::read(Fields::of(body, Self::FIELDS)?, check_callback)
    }

    /// Reads an article of a batch, whose `Idempotency-Key` is a field.
    pub fn parse_in_batch(
        article: &[u8],
        check_callback: impl Fn(&str) -> Result<(), String>,
    ) -> Result<(Self, Option<String>), Invalid> {
        let mut fields = Fields::of(article, &Self::FIELDS_IN_BATCH)?;
        let key = fields.idempotency_key()?;
        Ok((Self::read(fields, check_callback)?, key))
    }

    fn read(
        mut fields: Fields<'_>,
        check_callback: impl Fn(&str) -> Result<(), String>,
    ) -> Result<Self, Invalid> {
        fields.refuse_unknown();
        let external_id = fields.external_id()?;
        let group_code = fields.group_code()?;
        let title = fields.text("title", Some(TITLE_MAX), true)?;
        let content_html = fields.text("content_html", None, true)?;
        let summary = fields.text("summary", Some(SUMMARY_MAX), false)?;
        let cover_url = fields.url("cover_url")?;
        let canonical_url = fields.url("canonical_url")?;
        let author = fields.text("author", Some(AUTHOR_MAX), false)?;
        let tags = fields.tags()?;
        let callback_url = fields.callback_url(check_callback)?;
        let publish_at = fields.publish_at()?;
        let draft = fields.boolean("draft");
        let on_duplicate = fields.on_duplicate()?;
        let metadata = fields.metadata()?;
        match (external_id, group_code, title, content_html) {
            (Some(external_id), Some(group_code), Some(title), Some(content_html))
                if fields.errors.is_empty() =>
            {
                let content =
                    Content { title, content_html, summary, cover_url, canonical_url, author, tags };
                Ok(Self {
                    external_id,
                    group_code,
                    content,
                    callback_url,
                    publish_at,
                    draft,
                    on_duplicate,
                    metadata,
                })
            }
            _ => Err(Invalid::Fields(fields.errors)),
        }
    }
}

struct Fields<'a> {
    members: Vec<(String, &'a RawValue)>,
    known: &'static [&'static str],
    errors: Vec<FieldError>,
}

impl<'a> Fields<'a> {
    fn of(text: &'a [u8], known: &'static [&'static str]) -> Result<Self, Invalid> {
        let Some(members) = json::object(text)? else {
            let detail = "send a JSON object".to_owned();
            let error = FieldError { pointer: String::new(), code: "wrong_type", detail };
            return Err(Invalid::Fields(vec![error]));
        };
        Ok(Self { members, known, errors: Vec::new() })
    }

    fn refuse(&mut self, pointer: impl AsRef<str>, code: &'static str, detail: impl Into<String>) {
        // RFC 6901 §3: in a name, ~ is written ~0 and / is written ~1.
        let pointer = format!("/{}", pointer.as_ref());
        self.errors.push(FieldError { pointer, code, detail: detail.into() });
    }

    fn refuse_unknown(&mut self) {
        let unknown = self.members.iter().map(|(name, _)| name.clone());
        let unknown = unknown.filter(|name| !self.known.contains(&name.as_str())).collect::<Vec<_>>();
        let more = unknown.len().saturating_sub(UNKNOWN_FIELDS_TOLD);
        for name in unknown.into_iter().take(UNKNOWN_FIELDS_TOLD) {
            let nearest = self.known.iter().find(|known| alike(known, &name));
            let hint = nearest.map_or(String::new(), |known| format!("; did you mean {known:?}?"));
            let pointer = name.replace('~', "~0").replace('/', "~1");
            self.refuse(pointer, "unknown_field", format!("there is no such field{hint}"));
        }
        if more > 0 {
            let detail = format!("there are {more} more fields that do not exist");
            self.errors.push(FieldError { pointer: String::new(), code: "unknown_field", detail });
        }
    }

    fn get(&self, name: &str) -> Option<&'a RawValue> {
        let found = self.members.iter().find(|(member, _)| member == name);
        found.map(|(_, raw)| *raw).filter(|raw| raw.get() != "null")
    }

    /// The field as a string; reports another type. A string that cannot be read (a lone surrogate) is bad JSON.
    fn string(&mut self, name: &str) -> Result<Option<String>, InvalidJson> {
        let Some(raw) = self.get(name) else { return Ok(None) };
        if !raw.get().starts_with('"') {
            self.refuse(name, "wrong_type", "send a string");
            return Ok(None);
        }
        Ok(Some(serde_json::from_str(raw.get())?))
    }

    fn required(&mut self, name: &str) {
        if self.get(name).is_none() {
            self.refuse(name, "required", "this field is required");
        }
    }

    fn idempotency_key(&mut self) -> Result<Option<String>, InvalidJson> {
        let Some(key) = self.string("idempotency_key")? else { return Ok(None) };
        if is_idempotency_key(&key) {
            return Ok(Some(key));
        }
        let code = match key.len() {
            0 => "blank",
            len if len > IDEMPOTENCY_KEY_MAX => "too_long",
            _ => "bad_format",
        };
        self.refuse("idempotency_key", code, "send 1–255 visible ASCII characters without blanks");
        Ok(None)
    }

    fn external_id(&mut self) -> Result<Option<ExternalId>, InvalidJson> {
        self.required("external_id");
        let Some(text) = self.string("external_id")? else { return Ok(None) };
        match text.parse::<ExternalId>() {
            Ok(id) => return Ok(Some(id)),
            Err(bad) => {
                let code = match bad {
                    BadExternalId::Empty | BadExternalId::Blank => "blank",
                    BadExternalId::TooLong => "too_long",
                    BadExternalId::Control | BadExternalId::Dots => "not_allowed",
                    BadExternalId::OuterSpace => "bad_format",
                };
                self.refuse("external_id", code, bad.to_string());
            }
        }
        Ok(None)
    }

    fn group_code(&mut self) -> Result<Option<GroupCode>, InvalidJson> {
        self.required("group_code");
        let Some(text) = self.string("group_code")? else { return Ok(None) };
        match text.parse() {
            Ok(code) => return Ok(Some(code)),
            Err(_) if text.is_empty() => self.refuse("group_code", "blank", "must not be empty"),
            Err(_) if text.len() > crate::account::GROUP_CODE_MAX && text.is_ascii() => {
                self.refuse("group_code", "too_long", "is longer than 64 characters");
            }
            Err(bad) => self.refuse("group_code", "bad_format", bad.to_string()),
        }
        Ok(None)
    }

    /// A text of at most `max` characters; when `filled`, it must be there and not be blank.
    fn text(&mut self, name: &str, max: Option<usize>, filled: bool) -> Result<Option<String>, InvalidJson> {
        if filled {
            self.required(name);
        }
        let Some(text) = self.string(name)? else { return Ok(None) };
        if filled && text.trim().is_empty() {
            self.refuse(name, "blank", "must not be blank");
        }
        if let Some(max) = max.filter(|max| text.chars().count() > *max) {
            self.refuse(name, "too_long", format!("is longer than {max} characters"));
        }
        self.refuse_nul(name, &text);
        Ok(Some(text))
    }

    fn refuse_nul(&mut self, pointer: &str, text: &str) {
        if text.contains('\0') {
            self.refuse(pointer, "not_allowed", "must not contain NUL (U+0000)");
        }
    }

    fn url(&mut self, name: &str) -> Result<Option<String>, InvalidJson> {
        let Some(text) = self.string(name)? else { return Ok(None) };
        match url::check(&text) {
            Ok(()) => return Ok(Some(text)),
            Err(BadUrl::TooLong) => {
                self.refuse(name, "too_long", format!("is longer than {URL_MAX} characters"));
            }
            Err(BadUrl::NotHttp) => self.refuse(name, "bad_format", "send an absolute http or https URL"),
        }
        Ok(None)
    }

    fn callback_url(
        &mut self,
        check: impl Fn(&str) -> Result<(), String>,
    ) -> Result<Option<String>, InvalidJson> {
        let Some(url) = self.url("callback_url")? else { return Ok(None) };
        if let Err(why) = check(&url) {
            self.refuse("callback_url", "not_allowed", why);
        }
        Ok(Some(url))
    }

    fn tags(&mut self) -> Result<Vec<String>, InvalidJson> {
        let Some(raw) = self.get("tags") else { return Ok(Vec::new()) };
        let Ok(items) = serde_json::from_str::<Vec<&RawValue>>(raw.get()) else {
            self.refuse("tags", "wrong_type", "send a list of strings");
            return Ok(Vec::new());
        };
        if items.len() > TAGS_MAX {
            self.refuse("tags", "too_long", format!("has more than {TAGS_MAX} tags"));
            return Ok(Vec::new());
        }
        let mut tags = Vec::with_capacity(items.len());
        for (at, item) in items.into_iter().enumerate() {
            let pointer = format!("tags/{at}");
            if !item.get().starts_with('"') {
                self.refuse(pointer, "wrong_type", "send a string");
                continue;
            }
            let tag: String = serde_json::from_str(item.get())?;
            if tag.trim().is_empty() {
                self.refuse(&pointer, "blank", "must not be blank");
            }
            if tag.chars().count() > TAG_MAX {
                self.refuse(&pointer, "too_long", format!("is longer than {TAG_MAX} characters"));
            }
            self.refuse_nul(&pointer, &tag);
            tags.push(tag);
        }
        Ok(tags)
    }

    fn publish_at(&mut self) -> Result<Option<DateTime<Utc>>, InvalidJson> {
        let Some(text) = self.string("publish_at")? else { return Ok(None) };
        // As the database keeps it, for a repeated request must compare equal: whole microseconds, and a leap second is the
        // one after it. RFC 3339 has years of four digits, also in UTC.
        let at = DateTime::parse_from_rfc3339(&text).ok().map(|at| at.timestamp_micros());
        let at = at.and_then(DateTime::from_timestamp_micros).filter(|at| (0..=9999).contains(&at.year()));
        if at.is_none() {
            self.refuse(
                "publish_at",
                "bad_format",
                "send an RFC 3339 time, such as 2030-01-31T09:00:00+08:00",
            );
        }
        Ok(at)
    }

    fn boolean(&mut self, name: &str) -> Option<bool> {
        let raw = self.get(name)?;
        let value = serde_json::from_str(raw.get()).ok();
        if value.is_none() {
            self.refuse(name, "wrong_type", "send true or false");
        }
        value
    }

    fn on_duplicate(&mut self) -> Result<Option<OnDuplicate>, InvalidJson> {
        let Some(text) = self.string("on_duplicate")? else { return Ok(None) };
        match text.as_str() {
            "return" => Ok(Some(OnDuplicate::Return)),
            "reject" => Ok(Some(OnDuplicate::Reject)),
            _ => {
                self.refuse("on_duplicate", "not_allowed", "send \"return\" or \"reject\"");
                Ok(None)
            }
        }
    }

    fn metadata(&mut self) -> Result<Option<String>, InvalidJson> {
        let Some(raw) = self.get("metadata") else { return Ok(None) };
        let text = raw.get();
        if !text.starts_with('{') {
            self.refuse("metadata", "wrong_type", "send an object");
            return Ok(None);
        }
        if text.len() > METADATA_MAX_BYTES {
            self.refuse("metadata", "too_long", format!("is longer than {METADATA_MAX_BYTES} bytes of JSON"));
            return Ok(None);
        }
        json::check(raw)?;
        Ok(Some(text.to_owned()))
    }
}

/// Whether two names differ by at most two edits (optimal string alignment: a swap of neighbours is one).
fn alike(known: &str, sent: &str) -> bool {
    let (a, b) = (known.as_bytes(), sent.as_bytes());
    if a.len().abs_diff(b.len()) > 2 {
        return false;
    }
    let mut rows = vec![(0..=b.len()).collect::<Vec<_>>()];
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let change = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = change.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(rows[i - 2][j - 2] + 1);
            }
        }
        rows.push(row);
    }
    rows[a.len()][b.len()] <= 2
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
