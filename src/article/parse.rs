//! Reading a submission: everything that is wrong with it, at once.

use chrono::{DateTime, Datelike as _, Utc};
use serde_json::value::RawValue;

use super::url::{self, BadUrl};
use super::{
    AUTHOR_MAX, BadExternalId, Content, ExternalId, METADATA_MAX_BYTES, OnDuplicate, SUMMARY_MAX, Submission,
    TAG_MAX, TAGS_MAX, TITLE_MAX, URL_MAX,
};
use crate::account::GroupCode;
use crate::fields::{Fields, Invalid};
use crate::json::InvalidJson;

impl Submission {
    /// The fields that a body may have.
    pub(super) const FIELDS: [&str; 14] = [
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

    /// Reads the body of `POST /publish`. A field that is null counts as not sent.
    ///
    /// `check_callback` says what keeps a callback URL from being called, if anything does.
    pub fn parse(body: &[u8], check_callback: impl Fn(&str) -> Result<(), String>) -> Result<Self, Invalid> {
        let mut fields = Fields::of_body(body, &Self::FIELDS)?;
        let external_id = external_id(&mut fields)?;
        let group_code = group_code(&mut fields)?;
        let title = fields.text("title", Some(TITLE_MAX), true)?;
        let content_html = fields.text("content_html", None, true)?;
        let summary = fields.text("summary", Some(SUMMARY_MAX), false)?;
        let cover_url = url(&mut fields, "cover_url")?;
        let canonical_url = url(&mut fields, "canonical_url")?;
        let author = fields.text("author", Some(AUTHOR_MAX), false)?;
        let tags = tags(&mut fields)?;
        let callback_url = callback_url(&mut fields, check_callback)?;
        let publish_at = publish_at(&mut fields)?;
        let draft = fields.boolean("draft");
        let on_duplicate = on_duplicate(&mut fields)?;
        let metadata = metadata(&mut fields)?;
        match (external_id, group_code, title, content_html) {
            (Some(external_id), Some(group_code), Some(title), Some(content_html))
                if fields.errors().is_empty() =>
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
            _ => Err(Invalid::Fields(fields.into_errors())),
        }
    }
}

fn external_id(fields: &mut Fields<'_>) -> Result<Option<ExternalId>, InvalidJson> {
    fields.required("external_id");
    let Some(text) = fields.string("external_id")? else { return Ok(None) };
    match text.parse::<ExternalId>() {
        Ok(id) => return Ok(Some(id)),
        Err(bad) => {
            let code = match bad {
                BadExternalId::Empty | BadExternalId::Blank => "blank",
                BadExternalId::TooLong => "too_long",
                BadExternalId::Control | BadExternalId::Dots => "not_allowed",
                BadExternalId::OuterSpace => "bad_format",
            };
            fields.refuse("external_id", code, bad.to_string());
        }
    }
    Ok(None)
}

fn group_code(fields: &mut Fields<'_>) -> Result<Option<GroupCode>, InvalidJson> {
    fields.required("group_code");
    let Some(text) = fields.string("group_code")? else { return Ok(None) };
    match text.parse() {
        Ok(code) => return Ok(Some(code)),
        Err(_) if text.is_empty() => fields.refuse("group_code", "blank", "must not be empty"),
        Err(_) if text.len() > crate::account::GROUP_CODE_MAX && text.is_ascii() => {
            fields.refuse("group_code", "too_long", "is longer than 64 characters");
        }
        Err(bad) => fields.refuse("group_code", "bad_format", bad.to_string()),
    }
    Ok(None)
}

fn url(fields: &mut Fields<'_>, name: &str) -> Result<Option<String>, InvalidJson> {
    let Some(text) = fields.string(name)? else { return Ok(None) };
    match url::check(&text) {
        Ok(()) => return Ok(Some(text)),
        Err(BadUrl::TooLong) => {
            fields.refuse(name, "too_long", format!("is longer than {URL_MAX} characters"));
        }
        Err(BadUrl::NotHttp) => fields.refuse(name, "bad_format", "send an absolute http or https URL"),
    }
    Ok(None)
}

fn callback_url(
    fields: &mut Fields<'_>,
    check: impl Fn(&str) -> Result<(), String>,
) -> Result<Option<String>, InvalidJson> {
    let Some(url) = url(fields, "callback_url")? else { return Ok(None) };
    if let Err(why) = check(&url) {
        fields.refuse("callback_url", "not_allowed", why);
    }
    Ok(Some(url))
}

fn tags(fields: &mut Fields<'_>) -> Result<Vec<String>, InvalidJson> {
    let Some(raw) = fields.get("tags") else { return Ok(Vec::new()) };
    let Ok(items) = serde_json::from_str::<Vec<&RawValue>>(raw.get()) else {
        fields.refuse("tags", "wrong_type", "send a list of strings");
        return Ok(Vec::new());
    };
    if items.len() > TAGS_MAX {
        fields.refuse("tags", "too_long", format!("has more than {TAGS_MAX} tags"));
        return Ok(Vec::new());
    }
    let mut tags = Vec::with_capacity(items.len());
    for (at, item) in items.into_iter().enumerate() {
        let pointer = format!("tags/{at}");
        if !item.get().starts_with('"') {
            fields.refuse(pointer, "wrong_type", "send a string");
            continue;
        }
        let tag: String = serde_json::from_str(item.get())?;
        if tag.trim().is_empty() {
            fields.refuse(&pointer, "blank", "must not be blank");
        }
        if tag.chars().count() > TAG_MAX {
            fields.refuse(&pointer, "too_long", format!("is longer than {TAG_MAX} characters"));
        }
        fields.refuse_nul(&pointer, &tag);
        tags.push(tag);
    }
    Ok(tags)
}

fn publish_at(fields: &mut Fields<'_>) -> Result<Option<DateTime<Utc>>, InvalidJson> {
    let Some(text) = fields.string("publish_at")? else { return Ok(None) };
    // As the database keeps it, for a repeated request must compare equal: whole microseconds, and a leap second is the
    // one after it. RFC 3339 has years of four digits, also in UTC.
    let at = DateTime::parse_from_rfc3339(&text).ok().map(|at| at.timestamp_micros());
    let at = at.and_then(DateTime::from_timestamp_micros).filter(|at| (0..=9999).contains(&at.year()));
    if at.is_none() {
        fields.refuse("publish_at", "bad_format", "send an RFC 3339 time, such as 2030-01-31T09:00:00+08:00");
    }
    Ok(at)
}

fn on_duplicate(fields: &mut Fields<'_>) -> Result<Option<OnDuplicate>, InvalidJson> {
    let Some(text) = fields.string("on_duplicate")? else { return Ok(None) };
    let mode = text.parse().ok();
    if mode.is_none() {
        fields.refuse("on_duplicate", "not_allowed", "send \"return\" or \"reject\"");
    }
    Ok(mode)
}

fn metadata(fields: &mut Fields<'_>) -> Result<Option<String>, InvalidJson> {
    let text = fields.object_text("metadata", METADATA_MAX_BYTES)?;
    Ok(text.map(|raw| raw.get().to_owned()))
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
