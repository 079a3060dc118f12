//! The fields of a JSON body: read strictly, and everything that is wrong with them told at once.

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use utoipa::ToSchema;

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

impl FieldError {
    /// What is wrong with the body as a whole: its pointer is empty.
    #[must_use]
    pub fn of_body(code: &'static str, detail: impl Into<String>) -> Self {
        Self { pointer: String::new(), code, detail: detail.into() }
    }
}

/// Why a body is not what is asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// It cannot be read.
    #[error(transparent)]
    Json(#[from] InvalidJson),
    /// It can be read, but fields break rules: all of them.
    #[error("{} fields break rules", .0.len())]
    Fields(Vec<FieldError>),
}

/// The members of one object, and what is wrong with them so far. A field that is null counts as not sent.
#[derive(Debug)]
pub struct Fields<'a> {
    /// Where the object stands in the body: empty, or a pointer.
    place: String,
    members: Vec<(String, &'a RawValue)>,
    errors: Vec<FieldError>,
}

impl<'a> Fields<'a> {
    /// Reads a body that must be an object with no other fields than `known`; others are refused by name.
    pub fn of_body(body: &'a [u8], known: &[&str]) -> Result<Self, Invalid> {
        let Some(members) = json::object(body)? else {
            return Err(Invalid::Fields(vec![FieldError::of_body("wrong_type", "send a JSON object")]));
        };
        let mut fields = Self { place: String::new(), members, errors: Vec::new() };
        fields.refuse_unknown(known);
        Ok(fields)
    }

    /// Reads an object within a body, as [`Fields::of_body`] does; `place` is its pointer.
    pub fn within(place: String, raw: &'a RawValue, known: &[&str]) -> Result<Self, InvalidJson> {
        let members = json::object(raw.get().as_bytes())?;
        let is_object = members.is_some();
        let mut fields = Self { place, members: members.unwrap_or_default(), errors: Vec::new() };
        if is_object {
            fields.refuse_unknown(known);
        } else {
            let pointer = fields.place.clone();
            fields.errors.push(FieldError {
                pointer,
                code: "wrong_type",
                detail: "send an object".to_owned(),
            });
        }
        Ok(fields)
    }

    /// What is wrong so far.
    #[must_use]
    pub fn errors(&self) -> &[FieldError] {
        &self.errors
    }

    /// All that is wrong.
    #[must_use]
    pub fn into_errors(self) -> Vec<FieldError> {
        self.errors
    }

    /// Adds what was found elsewhere.
    pub fn extend(&mut self, errors: impl IntoIterator<Item = FieldError>) {
        self.errors.extend(errors);
    }

    /// Notes what is wrong with a field; `name` is the rest of its pointer.
    pub fn refuse(&mut self, name: impl AsRef<str>, code: &'static str, detail: impl Into<String>) {
        let pointer = format!("{}/{}", self.place, name.as_ref());
        self.errors.push(FieldError { pointer, code, detail: detail.into() });
    }

    fn refuse_unknown(&mut self, known: &[&str]) {
        let unknown = self.members.iter().map(|(name, _)| name.clone());
        let unknown = unknown.filter(|name| !known.contains(&name.as_str())).collect::<Vec<_>>();
        let more = unknown.len().saturating_sub(UNKNOWN_FIELDS_TOLD);
        for name in unknown.into_iter().take(UNKNOWN_FIELDS_TOLD) {
            self.refuse(escaped(&name), "unknown_field", no_such_field(&name, known));
        }
        if more > 0 {
            let detail = format!("there are {more} more fields that do not exist");
            self.errors.push(FieldError { pointer: self.place.clone(), code: "unknown_field", detail });
        }
    }

    /// The field as it was sent; none if it was not, or is null.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&'a RawValue> {
        let found = self.members.iter().find(|(member, _)| member == name);
        found.map(|(_, raw)| *raw).filter(|raw| raw.get() != "null")
    }

    /// Refuses a field that is not there.
    pub fn required(&mut self, name: &str) {
        if self.get(name).is_none() {
            self.refuse(name, "required", "this field is required");
        }
    }

    /// The field as a string; reports another type. A string that cannot be read (a lone surrogate) is bad JSON.
    pub fn string(&mut self, name: &str) -> Result<Option<String>, InvalidJson> {
        let Some(raw) = self.get(name) else { return Ok(None) };
        if !raw.get().starts_with('"') {
            self.refuse(name, "wrong_type", "send a string");
            return Ok(None);
        }
        Ok(Some(serde_json::from_str(raw.get())?))
    }

    /// A text of at most `max` characters; when `filled`, it must be there and not be blank.
    pub fn text(
        &mut self,
        name: &str,
        max: Option<usize>,
        filled: bool,
    ) -> Result<Option<String>, InvalidJson> {
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

    /// Refuses the one character that the database does not keep.
    pub fn refuse_nul(&mut self, name: &str, text: &str) {
        if text.contains('\0') {
            self.refuse(name, "not_allowed", "must not contain NUL (U+0000)");
        }
    }

    /// The field as a boolean.
    pub fn boolean(&mut self, name: &str) -> Option<bool> {
        let raw = self.get(name)?;
        let value = serde_json::from_str(raw.get()).ok();
        if value.is_none() {
            self.refuse(name, "wrong_type", "send true or false");
        }
        value
    }

    /// The field as a whole number within limits, both included.
    pub fn integer(&mut self, name: &str, least: i32, most: i32) -> Option<i32> {
        let text = self.get(name)?.get();
        let digits = text.strip_prefix('-').unwrap_or(text);
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            self.refuse(name, "wrong_type", "send a whole number");
            return None;
        }
        let number = text.parse().ok().filter(|number| (least..=most).contains(number));
        if number.is_none() {
            self.refuse(name, "not_allowed", format!("send a whole number from {least} to {most}"));
        }
        number
    }

    /// The field as an object of at most `max_bytes` of JSON, for the database to keep.
    pub fn object(&mut self, name: &str, max_bytes: usize) -> Result<Option<Value>, InvalidJson> {
        let Some(raw) = self.object_text(name, max_bytes)? else { return Ok(None) };
        let value = serde_json::from_str::<Value>(raw.get())?;
        if has_nul(&value) {
            self.refuse(name, "not_allowed", "must not contain NUL (U+0000)");
        }
        Ok(Some(value))
    }

    /// The field as the text of an object of at most `max_bytes`, without a key that stands twice.
    pub fn object_text(&mut self, name: &str, max_bytes: usize) -> Result<Option<&'a RawValue>, InvalidJson> {
        let Some(raw) = self.get(name) else { return Ok(None) };
        if !raw.get().starts_with('{') {
            self.refuse(name, "wrong_type", "send an object");
            return Ok(None);
        }
        if raw.get().len() > max_bytes {
            self.refuse(name, "too_long", format!("is longer than {max_bytes} bytes of JSON"));
            return Ok(None);
        }
        json::check(raw)?;
        Ok(Some(raw))
    }
}

/// A name as it stands in a pointer (RFC 6901 §3).
#[must_use]
pub fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// Says that there is no such field, and which one may have been meant.
#[must_use]
pub fn no_such_field(name: &str, known: &[&str]) -> String {
    let nearest = known.iter().find(|known| alike(known, name));
    let hint = nearest.map_or(String::new(), |known| format!("; did you mean {known:?}?"));
    format!("there is no such field{hint}")
}

fn has_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(has_nul),
        Value::Object(members) => members.iter().any(|(name, value)| name.contains('\0') || has_nul(value)),
        _ => false,
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
mod tests {
    use super::*;

    fn told(fields: Fields<'_>) -> Vec<(String, &'static str)> {
        fields.into_errors().into_iter().map(|error| (error.pointer, error.code)).collect()
    }

    #[test]
    fn a_flood_of_unknown_fields_gets_a_short_answer() {
        let many = (0..10_000).map(|n| format!("\"x{n}\":0")).collect::<Vec<_>>().join(",");
        let body = format!("{{{many}}}");
        let errors = told(Fields::of_body(body.as_bytes(), &["a"]).unwrap());
        assert_eq!(errors.len(), UNKNOWN_FIELDS_TOLD + 1);
        assert!(errors.iter().all(|(_, code)| *code == "unknown_field"));
    }

    #[test]
    fn a_misspelt_field_names_the_right_one() {
        let known = ["title", "callback_url"];
        assert_eq!(
            no_such_field("callback_ulr", &known),
            "there is no such field; did you mean \"callback_url\"?"
        );
        assert_eq!(no_such_field("summary", &known), "there is no such field");
    }

    #[test]
    fn whole_numbers_are_whole_and_within_limits() {
        let mut told = Vec::new();
        for text in ["0", "-0", "7", "10", "11", "-1", "99999999999999999999", "1.0", "1e1", "\"7\"", "[]"] {
            let body = format!("{{\"n\":{text}}}");
            let mut fields = Fields::of_body(body.as_bytes(), &["n"]).unwrap();
            let number = fields.integer("n", 0, 10);
            told.push((number, fields.errors().first().map(|error| error.code)));
        }
        let (range, kind) = ((None, Some("not_allowed")), (None, Some("wrong_type")));
        let good = |number| (Some(number), None);
        let expected = [good(0), good(0), good(7), good(10), range, range, range, kind, kind, kind, kind];
        assert_eq!(told, expected);
    }

    #[test]
    fn objects_are_bounded_and_hold_what_the_database_keeps() {
        let read = |text: &str| {
            let body = format!("{{\"o\":{text}}}");
            let mut fields = Fields::of_body(body.as_bytes(), &["o"]).unwrap();
            fields.object("o", 20).map(|value| (value, fields.errors().first().map(|error| error.code)))
        };
        assert_eq!(read(r#"{"a":"\\u0000"}"#).unwrap().1, None);
        for nul in [r#"{"a":"\u0000"}"#, r#"{"\u0000":1}"#, r#"{"a":["\u0000"]}"#] {
            assert_eq!(read(nul).unwrap().1, Some("not_allowed"), "{nul}");
        }
        assert_eq!(read("[]").unwrap().1, Some("wrong_type"));
        assert_eq!(read(r#"{"a":"0123456789012"}"#).unwrap().1, Some("too_long"));
        for unreadable in [r#"{"a":1,"a":2}"#, r#"{"a":1e400}"#, r#"{"a":"\ud800"}"#] {
            assert!(read(unreadable).is_err(), "{unreadable}");
        }
    }

    #[test]
    fn an_object_within_a_body_tells_where_it_stands() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let object = raw(r#"{"a":1,"b/~":2}"#);
        let mut fields = Fields::within("/list/3".to_owned(), &object, &["a"]).unwrap();
        assert_eq!(fields.string("a").unwrap(), None);
        let expected =
            [("/list/3/b~1~0".to_owned(), "unknown_field"), ("/list/3/a".to_owned(), "wrong_type")];
        assert_eq!(told(fields), expected);
        let list = raw("[]");
        let fields = Fields::within("/list/4".to_owned(), &list, &["a"]).unwrap();
        assert_eq!(told(fields), [("/list/4".to_owned(), "wrong_type")]);
    }
}
