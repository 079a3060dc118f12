//! The fields of a submission in the OpenAPI document, with the limits that [`super::parse`] enforces.

use serde_json::json;
use utoipa::openapi::schema::{
    AdditionalProperties, ArrayBuilder, KnownFormat, SchemaFormat, SchemaType, Type,
};
use utoipa::openapi::{ObjectBuilder, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::patch::FIXED;
use super::{
    AUTHOR_MAX, EXTERNAL_ID_MAX, IDEMPOTENCY_KEY_MAX, SUMMARY_MAX, Submission, TAG_MAX, TAGS_MAX, TITLE_MAX,
    URL_MAX,
};
use crate::account::GROUP_CODE_MAX;

/// The body of `POST /publish` in the OpenAPI document. It is read by [`Submission::parse`].
#[derive(Debug, Clone, Copy)]
pub struct PublishRequest;

impl ToSchema for PublishRequest {}

impl PartialSchema for PublishRequest {
    fn schema() -> RefOr<Schema> {
        object(
            "An article to be published on every account of a group. Unknown fields are refused.",
            Submission::FIELDS,
        )
    }
}

/// An article of `POST /publish/batch` in the OpenAPI document. It is read by [`Submission::parse_in_batch`].
#[derive(Debug, Clone, Copy)]
pub struct BatchArticle;

impl ToSchema for BatchArticle {}

impl PartialSchema for BatchArticle {
    fn schema() -> RefOr<Schema> {
        object(
            "An article as `POST /publish` takes it; its `Idempotency-Key` is a field. Unknown fields are refused.",
            &Submission::FIELDS_IN_BATCH,
        )
    }
}

fn object(description: &'static str, fields: &[&'static str]) -> RefOr<Schema> {
    let required = ["external_id", "group_code", "title", "content_html"];
    let mut object = ObjectBuilder::new()
        .description(Some(description))
        .additional_properties(Some(AdditionalProperties::FreeForm(false)))
        .examples([json!({
            "external_id": "post-1",
            "group_code": "demo",
            "title": "Hello",
            "content_html": "<p>First article.</p>",
        })]);
    for name in fields {
        object = object.property(*name, field(name, required.contains(name)));
    }
    required.into_iter().fold(object, ObjectBuilder::required).into()
}

/// The body of `PATCH /tasks/{external_id}` in the OpenAPI document. It is read by [`super::ArticlePatch::parse`].
#[derive(Debug, Clone, Copy)]
pub struct PatchRequest;

impl ToSchema for PatchRequest {}

impl PartialSchema for PatchRequest {
    fn schema() -> RefOr<Schema> {
        let needed = ["group_code", "title", "content_html"];
        let object = ObjectBuilder::new()
            .description(Some(
                "What is to change in a draft (RFC 7396): a field that is not sent stays, one that is null is removed. \
                 `metadata` is replaced as a whole. Unknown fields are refused.",
            ))
            .additional_properties(Some(AdditionalProperties::FreeForm(false)))
            .examples([json!({"title": "Hello again", "summary": null})]);
        let names = Submission::FIELDS.iter().copied().filter(|name| !FIXED.contains(name));
        names.fold(object, |object, name| object.property(name, field(name, needed.contains(&name)))).into()
    }
}

fn field(name: &str, required: bool) -> Schema {
    if name == "tags" {
        let tag =
            ObjectBuilder::new().schema_type(Type::String).min_length(Some(1)).max_length(Some(TAG_MAX));
        return ArrayBuilder::new()
            .schema_type(nullable(Type::Array, required))
            .items(tag)
            .max_items(Some(TAGS_MAX))
            .description(Some("In order; each 1–50 characters."))
            .into();
    }
    let kind = match name {
        "draft" => Type::Boolean,
        "metadata" => Type::Object,
        _ => Type::String,
    };
    let mut field =
        ObjectBuilder::new().schema_type(nullable(kind, required)).description(Some(description(name)));
    field = match name {
        "external_id" => field.min_length(Some(1)).max_length(Some(EXTERNAL_ID_MAX)),
        "group_code" => field.max_length(Some(GROUP_CODE_MAX)).pattern(Some("^[A-Za-z0-9_.-]{1,64}$")),
        "title" => field.min_length(Some(1)).max_length(Some(TITLE_MAX)),
        "content_html" => field.min_length(Some(1)),
        "summary" => field.max_length(Some(SUMMARY_MAX)),
        "author" => field.max_length(Some(AUTHOR_MAX)),
        "publish_at" => field.format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime))),
        "on_duplicate" => field.enum_values(Some([json!("return"), json!("reject"), json!(null)])),
        "metadata" => field.additional_properties(Some(AdditionalProperties::FreeForm(true))),
        "draft" => field.default(Some(json!(false))),
        // The visible characters of ASCII.
        "idempotency_key" => {
            field.min_length(Some(1)).max_length(Some(IDEMPOTENCY_KEY_MAX)).pattern(Some("^[!-~]{1,255}$"))
        }
        _ => field.format(Some(SchemaFormat::Custom("uri".to_owned()))).max_length(Some(URL_MAX)),
    };
    field.into()
}

/// A field that need not be sent may also be sent as null.
fn nullable(kind: Type, required: bool) -> SchemaType {
    if required { kind.into() } else { SchemaType::from_iter([kind, Type::Null]) }
}

fn description(name: &str) -> &'static str {
    match name {
        "external_id" => {
            "Your id of the article, for ever: normalised to NFC, then 1–200 characters, no control characters, no \
             white space at either end, not . or .."
        }
        "group_code" => "The group of accounts to publish on.",
        "title" => "1–300 characters, not blank.",
        "content_html" => "The article's HTML; not blank, no NUL.",
        "summary" => "At most 1,000 characters.",
        "cover_url" => "The cover image: an http(s) URL.",
        "canonical_url" => "Where the article stands first: an http(s) URL.",
        "author" => "At most 100 characters.",
        "callback_url" => "Where events are delivered: https, or http where the operator allows it.",
        "publish_at" => "Not executed before then (RFC 3339); a past time means now.",
        "idempotency_key" => {
            "1–255 visible ASCII characters: who sends the creator's key gets the creator's answer."
        }
        "draft" => "true: it stays a draft until submitted.",
        "on_duplicate" => "What to answer if the external_id exists: return it (200) or reject (409).",
        _ => "Your own data: a JSON object of at most 4 KiB, given back in the task and its events.",
    }
}
