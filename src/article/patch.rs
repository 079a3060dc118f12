//! What is to change in a draft, by the rules of a submission.

use chrono::{DateTime, Utc};
use serde_json::value::RawValue;

use super::{Content, Submission};
use crate::account::GroupCode;
use crate::fields::{FieldError, Invalid};
use crate::json;

/// What a draft is known by, and how its repeats are answered: given once.
pub(super) const FIXED: [&str; 3] = ["external_id", "draft", "on_duplicate"];

/// The fields that an article cannot be without, each with a value that breaks no rule. Every rule speaks of one field, so
/// what is wrong with a patch is what is wrong with this article once it is patched.
const STAND_IN: [(&str, &str); 4] =
    [("external_id", r#""x""#), ("group_code", r#""x""#), ("title", r#""x""#), ("content_html", r#""x""#)];

/// The body of `PATCH /tasks/{external_id}`, valid: a merge patch (RFC 7396) of an article's fields. `metadata` is one
/// field, and is replaced as a whole.
#[derive(Debug, Clone, PartialEq)]
pub struct ArticlePatch {
    /// The fields that were sent, null or not.
    sent: Vec<&'static str>,
    /// Their values; what was not sent stands as in [`STAND_IN`].
    values: Submission,
}

/// What of a draft can be changed.
#[derive(Debug, Clone, PartialEq)]
pub struct Draft {
    /// Where it is to be published.
    pub group_code: String,
    /// What is to be published.
    pub content: Content,
    /// Where events are to be delivered.
    pub callback_url: Option<String>,
    /// Not before then.
    pub publish_at: Option<DateTime<Utc>>,
    /// The caller's own data, a JSON object.
    pub metadata: String,
}

impl ArticlePatch {
    /// Reads a patch. A field that is null is removed; one that an article needs cannot be.
    ///
    /// `check_callback` says what keeps a callback URL from being called, if anything does.
    pub fn parse(body: &[u8], check_callback: impl Fn(&str) -> Result<(), String>) -> Result<Self, Invalid> {
        let Some(members) = json::object(body)? else {
            return Err(Invalid::Fields(vec![FieldError::of_body("wrong_type", "send a JSON object")]));
        };
        let (fixed, patched): (Vec<_>, Vec<_>) =
            members.into_iter().partition(|(name, _)| FIXED.contains(&name.as_str()));
        let stays = |name: &String| FieldError {
            pointer: format!("/{name}"),
            code: "not_allowed",
            detail: "this was given when the article was handed in, and stays".to_owned(),
        };
        let mut errors = fixed.iter().map(|(name, _)| stays(name)).collect::<Vec<_>>();
        let sent =
            Submission::FIELDS.iter().copied().filter(|known| patched.iter().any(|(name, _)| name == known));
        let sent = sent.collect::<Vec<_>>();
        match Submission::parse(merged(&patched).as_bytes(), check_callback) {
            Ok(values) if errors.is_empty() => Ok(Self { sent, values }),
            Ok(_) => Err(Invalid::Fields(errors)),
            Err(Invalid::Fields(more)) => {
                errors.extend(more);
                Err(Invalid::Fields(errors))
            }
            Err(unreadable) => Err(unreadable),
        }
    }

    /// The group that it moves the draft to.
    #[must_use]
    pub fn group_code(&self) -> Option<&GroupCode> {
        self.sent.contains(&"group_code").then_some(&self.values.group_code)
    }

    /// Whether it changes when the draft is due.
    #[must_use]
    pub fn moves_time(&self) -> bool {
        self.sent.contains(&"publish_at")
    }

    /// Changes a draft.
    pub fn apply(&self, draft: &mut Draft) {
        let new = &self.values;
        for field in &self.sent {
            match *field {
                "group_code" => new.group_code.as_str().clone_into(&mut draft.group_code),
                "title" => draft.content.title.clone_from(&new.content.title),
                "content_html" => draft.content.content_html.clone_from(&new.content.content_html),
                "summary" => draft.content.summary.clone_from(&new.content.summary),
                "cover_url" => draft.content.cover_url.clone_from(&new.content.cover_url),
                "canonical_url" => draft.content.canonical_url.clone_from(&new.content.canonical_url),
                "author" => draft.content.author.clone_from(&new.content.author),
                "tags" => draft.content.tags.clone_from(&new.content.tags),
                "callback_url" => draft.callback_url.clone_from(&new.callback_url),
                "publish_at" => draft.publish_at = new.publish_at,
                "metadata" => draft.metadata = new.metadata.clone().unwrap_or_else(|| "{}".to_owned()),
                _ => unreachable!("a field that stays is refused when the patch is read"),
            }
        }
    }
}

/// The stand-in with these members in place of its own.
fn merged(patched: &[(String, &RawValue)]) -> String {
    let stays = |name: &&str| !patched.iter().any(|(patched, _)| patched == name);
    let stand_in = STAND_IN.into_iter().filter(|(name, _)| stays(name));
    let members = stand_in
        .chain(patched.iter().map(|(name, raw)| (name.as_str(), raw.get())))
        .map(|(name, value)| format!("{}:{value}", serde_json::Value::from(name)));
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ArticlePatch, Invalid> {
        ArticlePatch::parse(text.as_bytes(), |url| {
            if url.contains("forbidden") { Err("is forbidden here".to_owned()) } else { Ok(()) }
        })
    }

    fn errors(text: &str) -> Vec<(String, &'static str)> {
        match parse(text) {
            Err(Invalid::Fields(errors)) => errors.into_iter().map(|e| (e.pointer, e.code)).collect(),
            other => panic!("{other:?}"),
        }
    }

    fn draft() -> Draft {
        Draft {
            group_code: "g".into(),
            content: Content {
                title: "T".into(),
                content_html: "<p>x</p>".into(),
                summary: Some("S".into()),
                cover_url: Some("https://h/c".into()),
                canonical_url: Some("https://h/a".into()),
                author: Some("A".into()),
                tags: vec!["a".into()],
            },
            callback_url: Some("https://h/cb".into()),
            publish_at: DateTime::from_timestamp(1, 0),
            metadata: r#"{"a":1}"#.into(),
        }
    }

    fn patched(text: &str) -> Draft {
        let mut draft = draft();
        parse(text).unwrap().apply(&mut draft);
        draft
    }

    #[test]
    fn what_is_not_sent_stays() {
        assert_eq!(patched("{}"), draft());
        assert!(!parse("{}").unwrap().moves_time() && parse("{}").unwrap().group_code().is_none());
    }

    #[test]
    fn every_field_but_three_can_be_changed_and_null_removes() {
        let all = r#"{"group_code":"h","title":"U","content_html":"<p>y</p>","summary":"s","cover_url":"https://h/d",
            "canonical_url":"https://h/b","author":"B","tags":["b","c"],"callback_url":"https://h/cc",
            "publish_at":"2030-01-31T09:00:00Z","metadata":{"b": 2}}"#;
        let changed = patched(all);
        insta::assert_debug_snapshot!(changed);
        let nulls = [
            "summary",
            "cover_url",
            "canonical_url",
            "author",
            "tags",
            "callback_url",
            "publish_at",
            "metadata",
        ];
        for name in nulls {
            let removed = patched(&format!("{{\"{name}\":null}}"));
            let differs = [
                ("summary", removed.content.summary.is_none()),
                ("cover_url", removed.content.cover_url.is_none()),
                ("canonical_url", removed.content.canonical_url.is_none()),
                ("author", removed.content.author.is_none()),
                ("tags", removed.content.tags.is_empty()),
                ("callback_url", removed.callback_url.is_none()),
                ("publish_at", removed.publish_at.is_none()),
                ("metadata", removed.metadata == "{}"),
            ];
            let gone = differs.iter().filter(|(_, gone)| *gone).map(|(name, _)| *name).collect::<Vec<_>>();
            assert_eq!(gone, [name]);
        }
        assert_eq!(patched(r#"{"metadata":{"b":2}}"#).metadata, r#"{"b":2}"#);
    }

    #[test]
    fn a_patch_breaks_the_rules_of_a_submission() {
        let all = errors(
            r#"{"external_id":"b","draft":null,"on_duplicate":"reject","title":null,"content_html":" ","group_code":"a b",
            "summary":5,"tags":["ok",7],"callback_url":"https://forbidden/","publish_at":"soon","metadata":[],
            "callback_ulr":null}"#,
        );
        let expected = [
            ("/external_id", "not_allowed"),
            ("/draft", "not_allowed"),
            ("/on_duplicate", "not_allowed"),
            ("/callback_ulr", "unknown_field"),
            ("/group_code", "bad_format"),
            ("/title", "required"),
            ("/content_html", "blank"),
            ("/summary", "wrong_type"),
            ("/tags/1", "wrong_type"),
            ("/callback_url", "not_allowed"),
            ("/publish_at", "bad_format"),
            ("/metadata", "wrong_type"),
        ];
        assert_eq!(all, expected.map(|(pointer, code)| (pointer.to_owned(), code)));
        assert_eq!(errors("[1]"), [(String::new(), "wrong_type")]);
        for bad in [
            "",
            "{\"title\":\"a\",\"title\":\"b\"}",
            r#"{"metadata":{"a":1,"a":2}}"#,
            r#"{"title":"\ud800"}"#,
        ] {
            assert!(matches!(parse(bad), Err(Invalid::Json(_))), "{bad}");
        }
    }
}
