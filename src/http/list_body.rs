//! A body that is an object with one list and nothing else, as `{"articles": […]}`.

use serde_json::value::RawValue;
use utoipa::openapi::schema::{AdditionalProperties, ArrayBuilder, Type};
use utoipa::openapi::{ObjectBuilder, RefOr, Schema};

use super::problem::Problem;
use crate::article::FieldError;
use crate::json;

/// How many unknown fields are told one by one, so that the answer stays short.
const UNKNOWN_FIELDS_TOLD: usize = 50;

/// The items of the list `name`, at most `most`, as slices of the body.
pub(super) fn items<'a>(body: &'a [u8], name: &str, most: usize) -> Result<Vec<&'a RawValue>, Problem> {
    let refuse = |pointer: String, code, detail: String| FieldError { pointer, code, detail };
    let Some(members) = json::object(body)? else {
        let detail = format!("send a JSON object with the list {name}");
        return Err(Problem::invalid_fields(vec![refuse(String::new(), "wrong_type", detail)]));
    };
    let unknown = members.iter().filter(|(member, _)| member != name).take(UNKNOWN_FIELDS_TOLD);
    let mut errors = unknown
        .map(|(member, _)| {
            // RFC 6901 §3: in a name, ~ is written ~0 and / is written ~1.
            let pointer = format!("/{}", member.replace('~', "~0").replace('/', "~1"));
            refuse(pointer, "unknown_field", format!("there is no such field; this body takes {name} only"))
        })
        .collect::<Vec<_>>();
    let pointer = format!("/{name}");
    // Null counts as not sent.
    let sent = members.iter().find(|(member, raw)| member == name && raw.get() != "null");
    let mut items = Vec::new();
    match sent.map(|(_, raw)| json::list(raw, most)).transpose()? {
        None => errors.push(refuse(pointer, "required", "this field is required: a list".to_owned())),
        Some(None) => errors.push(refuse(pointer, "wrong_type", "send a list".to_owned())),
        Some(Some(list)) if list.more => {
            let detail = format!("has more than {most} items: send the rest in another request");
            errors.push(refuse(pointer, "too_long", detail));
        }
        Some(Some(list)) => items = list.items,
    }
    if errors.is_empty() { Ok(items) } else { Err(Problem::invalid_fields(errors)) }
}

/// Such a body in the OpenAPI document.
pub(super) fn schema(
    name: &str,
    most: usize,
    items: impl Into<RefOr<Schema>>,
    description: &str,
) -> RefOr<Schema> {
    let list = ArrayBuilder::new().items(items.into()).max_items(Some(most)).description(Some(description));
    ObjectBuilder::new()
        .schema_type(Type::Object)
        .property(name, list)
        .required(name)
        .additional_properties(Some(AdditionalProperties::FreeForm(false)))
        .into()
}
