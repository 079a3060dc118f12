//! JSON as callers send it, read strictly.
//!
//! A key that stands twice means that two parties can read two different articles from one body (RFC 8259 §4 calls
//! the outcome unpredictable), so it is refused. Values are kept as the text that was sent: numbers keep all their
//! digits, objects their order.

use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// How deep values may lie in each other, each object and list a level: what receivers' parsers commonly take is 100 and
/// more, and nobody's data comes near.
pub const DEPTH_MAX: usize = 64;

/// Why a text is not JSON that we read; the sentence says where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidJson(pub String);

impl From<serde_json::Error> for InvalidJson {
    fn from(error: serde_json::Error) -> Self {
        Self(error.to_string())
    }
}

/// The members of a JSON object, in the order sent; `None` if the text is JSON, but no object.
pub fn object(text: &[u8]) -> Result<Option<Vec<(String, &RawValue)>>, InvalidJson> {
    if text.trim_ascii_start().first() != Some(&b'{') {
        serde_json::from_slice::<&RawValue>(text)?;
        return Ok(None);
    }
    let mut reader = serde_json::Deserializer::from_slice(text);
    let members = reader.deserialize_map(Members)?;
    reader.end()?;
    Ok(Some(members))
}

struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Vec<(String, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        let mut seen = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            if !seen.insert(key.clone()) {
                return Err(duplicate(&key));
            }
            members.push((key, map.next_value()?));
        }
        Ok(members)
    }
}

fn duplicate<E: Error>(key: &str) -> E {
    E::custom(format_args!("the key {key:?} stands twice in one object"))
}

/// The items of a JSON list, as the text that was sent.
#[derive(Debug)]
pub struct List<'a> {
    /// The first of them, at most as many as were asked for.
    pub items: Vec<&'a RawValue>,
    /// Whether there are more.
    pub more: bool,
}

/// The first `most` items of a JSON list; `None` if the value is no list. Items beyond are not kept: a list of small ones
/// would take many times the memory of its text.
pub fn list(raw: &RawValue, most: usize) -> Result<Option<List<'_>>, InvalidJson> {
    if !raw.get().starts_with('[') {
        return Ok(None);
    }
    let mut reader = serde_json::Deserializer::from_str(raw.get());
    Ok(Some(reader.deserialize_seq(Items { most })?))
}

struct Items {
    most: usize,
}

impl<'de> Visitor<'de> for Items {
    type Value = List<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut list = List { items: Vec::new(), more: false };
        while list.items.len() < self.most {
            let Some(item) = seq.next_element()? else { return Ok(list) };
            list.items.push(item);
        }
        while seq.next_element::<IgnoredAny>()?.is_some() {
            list.more = true;
        }
        Ok(list)
    }
}

/// Reads a whole value and refuses a duplicate key at any depth, and values deeper than [`DEPTH_MAX`].
pub fn check(raw: &RawValue) -> Result<(), InvalidJson> {
    let mut reader = serde_json::Deserializer::from_str(raw.get());
    Ok(Checked { levels_left: DEPTH_MAX }.deserialize(&mut reader)?)
}

#[derive(Clone, Copy)]
struct Checked {
    levels_left: usize,
}

impl Checked {
    /// What checks a value within this one.
    fn deeper<E: Error>(self) -> Result<Self, E> {
        let too_deep =
            || E::custom(format_args!("values lie more than {DEPTH_MAX} levels deep in each other"));
        Ok(Self { levels_left: self.levels_left.checked_sub(1).ok_or_else(too_deep)? })
    }
}

impl<'de> DeserializeSeed<'de> for Checked {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Checked {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let deeper = self.deeper()?;
        while seq.next_element_seed(deeper)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let deeper = self.deeper()?;
        let mut seen = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            if seen.contains(&key) {
                map.next_value::<IgnoredAny>()?;
                return Err(duplicate(&key));
            }
            seen.insert(key);
            map.next_value_seed(deeper)?;
        }
        Ok(())
    }
}

/// A text in which equal values are equal: keys sorted, no white space, numbers and strings in one spelling.
///
/// Used for digests only; numbers beyond 64 bits are compared as floating point.
pub fn canonical(raw: &RawValue) -> Result<String, InvalidJson> {
    fn write(value: &serde_json::Value, out: &mut String) {
        match value {
            serde_json::Value::Object(members) => {
                let mut keys = members.keys().collect::<Vec<_>>();
                keys.sort_unstable();
                out.push('{');
                for key in keys {
                    out.push_str(&serde_json::Value::from(key.as_str()).to_string());
                    out.push(':');
                    write(&members[key], out);
                    out.push(',');
                }
                out.push('}');
            }
            serde_json::Value::Array(items) => {
                out.push('[');
                for item in items {
                    write(item, out);
                    out.push(',');
                }
                out.push(']');
            }
            scalar => out.push_str(&scalar.to_string()),
        }
    }
    let mut out = String::new();
    write(&serde_json::from_str(raw.get())?, &mut out);
    Ok(out)
}

/// The [`canonical`] form of a text that was read before, so that it can be read.
#[must_use]
pub fn canonical_text(text: &str) -> String {
    let raw = serde_json::from_str::<&RawValue>(text).map_err(Into::into);
    raw.and_then(canonical).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn members_keep_their_text_and_order() {
        let members = object(br#" {"b": 1.10, "a": {"x": [1]}} "#).unwrap().unwrap();
        let members = members.iter().map(|(k, v)| (k.as_str(), v.get())).collect::<Vec<_>>();
        assert_eq!(members, [("b", "1.10"), ("a", r#"{"x": [1]}"#)]);
        assert!(object(b"[1]").unwrap().is_none());
    }

    #[test]
    fn lists_are_read_up_to_their_limit() {
        let read = |text: &str, most| {
            let raw = raw(text);
            let list = list(&raw, most).unwrap();
            list.map(|list| {
                (list.items.iter().map(|item| item.get().to_owned()).collect::<Vec<_>>(), list.more)
            })
        };
        let of = |items: &[&str], more| Some((items.iter().map(|&item| item.to_owned()).collect(), more));
        assert_eq!(read("[]", 2), of(&[], false));
        assert_eq!(read(r#"[ {"a": 1.10} , "x" ]"#, 2), of(&[r#"{"a": 1.10}"#, r#""x""#], false));
        assert_eq!(read("[1,2,3,4]", 2), of(&["1", "2"], true));
        assert_eq!(read("{}", 2), None);
    }

    #[test]
    fn what_is_not_json_is_refused_with_its_place() {
        for bad in ["", "{", "{\"a\":}", "{\"a\":1}x", "\u{feff}{}", "{'a':1}"] {
            assert!(object(bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert!(object(b"{\"a\":\"\xff\"}").is_err());
        assert!(object(b"{\"a\":1,\"a\":2}").unwrap_err().0.contains("\"a\" stands twice"));
        // The same key in another spelling is the same key.
        assert!(object(br#"{"a":1,"\u0061":2}"#).is_err());
    }

    #[test]
    fn duplicate_keys_are_refused_at_any_depth() {
        assert_eq!(check(&raw(r#"{"a":{"b":1},"c":{"b":[true,null,-1,2.5,"x"]}}"#)), Ok(()));
        assert!(check(&raw(r#"[{"a":{"b":1,"b":2}}]"#)).is_err());
    }

    #[test]
    fn depth_has_a_limit() {
        let lists = |depth| check(&raw(&("[".repeat(depth) + &"]".repeat(depth))));
        assert_eq!(lists(DEPTH_MAX), Ok(()));
        assert!(lists(DEPTH_MAX + 1).unwrap_err().0.contains("more than 64 levels deep"));
        let objects = |depth| check(&raw(&("{\"a\":".repeat(depth) + "1" + &"}".repeat(depth))));
        assert_eq!(objects(DEPTH_MAX), Ok(()));
        assert!(objects(DEPTH_MAX + 1).is_err());
        // As deep as a body can be: refused without a stack as deep.
        assert!(object("[".repeat(2 * 1024 * 1024).as_bytes()).is_err());
    }

    #[test]
    fn canonical_form_ignores_order_and_spelling() {
        let a = canonical(&raw(r#"{ "x": "\u0061", "y": [1, {"q": 2, "p": 1}] }"#)).unwrap();
        let b = canonical(&raw(r#"{"y":[1,{"p":1,"q":2}],"x":"a"}"#)).unwrap();
        assert_eq!(a, b);
        assert_ne!(a, canonical(&raw(r#"{"y":[1,{"p":2,"q":1}],"x":"a"}"#)).unwrap());
    }
}
