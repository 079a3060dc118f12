//! What tells one content from another. Pure.

use sha2::{Digest, Sha256};

use super::{Content, Submission};

/// The content fields, in the order of their digests; the names are the API's.
const CONTENT_FIELDS: [&str; 7] =
    ["title", "content_html", "summary", "cover_url", "canonical_url", "author", "tags"];

/// The bytes kept of each field's digest: enough that an accidental change is noticed with certainty for practice.
const FIELD_BYTES: usize = 8;

/// The fingerprint of a content, a short digest of each of its fields, and one of the metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Digests {
    /// SHA-256 over the digests of all content fields.
    pub fingerprint: [u8; 32],
    /// Eight bytes a content field, then eight of the metadata.
    pub fields: [u8; (CONTENT_FIELDS.len() + 1) * FIELD_BYTES],
}

impl Digests {
    /// The digests of a submission; `canonical_metadata` as [`crate::json::canonical`] writes it.
    #[must_use]
    pub fn of(content: &Content, canonical_metadata: &str) -> Self {
        let parts: [Vec<&str>; CONTENT_FIELDS.len()] = [
            vec![&content.title],
            vec![&content.content_html],
            texts(content.summary.as_ref()),
            texts(content.cover_url.as_ref()),
            texts(content.canonical_url.as_ref()),
            texts(content.author.as_ref()),
            content.tags.iter().map(String::as_str).collect(),
        ];
        let mut whole = Sha256::new();
        let mut fields = [0; _];
        for (at, values) in parts.iter().enumerate() {
            let digest = list_digest(values);
            whole.update(digest);
            keep(&mut fields, at, &digest);
        }
        keep(&mut fields, CONTENT_FIELDS.len(), &list_digest(&[canonical_metadata]));
        Self { fingerprint: whole.finalize().into(), fields }
    }

    /// The names of the content fields that differ from what is stored.
    #[must_use]
    pub fn changed_content(&self, stored_fields: &[u8]) -> Vec<&'static str> {
        CONTENT_FIELDS
            .into_iter()
            .enumerate()
            .filter(|(at, _)| field(&self.fields, *at) != field(stored_fields, *at))
            .map(|(_, name)| name)
            .collect()
    }

    /// Whether the metadata differ from what is stored.
    #[must_use]
    pub fn metadata_changed(&self, stored_fields: &[u8]) -> bool {
        field(&self.fields, CONTENT_FIELDS.len()) != field(stored_fields, CONTENT_FIELDS.len())
    }
}

fn keep(fields: &mut [u8], at: usize, digest: &[u8; 32]) {
    fields[at * FIELD_BYTES..(at + 1) * FIELD_BYTES].copy_from_slice(&digest[..FIELD_BYTES]);
}

fn field(fields: &[u8], at: usize) -> &[u8] {
    fields.get(at * FIELD_BYTES..(at + 1) * FIELD_BYTES).unwrap_or_default()
}

fn texts(text: Option<&String>) -> Vec<&str> {
    text.into_iter().map(String::as_str).collect()
}

/// Each value is preceded by its length, so that no two lists give the same bytes; an absent field is an empty list.
fn list_digest(values: &[&str]) -> [u8; 32] {
    let mut digest = Sha256::new();
    for value in values {
        digest.update((value.len() as u64).to_be_bytes());
        digest.update(value);
    }
    digest.finalize().into()
}

/// The options of a stored task that a repeated request is compared with.
#[derive(Debug, Clone)]
pub struct OptionsSent<'a> {
    /// As stored.
    pub group_code: &'a str,
    /// As stored: the tenant's default where none was sent.
    pub callback_url: Option<&'a str>,
    /// As stored.
    pub publish_at: Option<chrono::DateTime<chrono::Utc>>,
    /// Whether the task was created as a draft.
    pub draft: bool,
}

impl OptionsSent<'_> {
    /// The names of the options that were sent and differ; an option not sent is not compared.
    #[must_use]
    pub fn changed(&self, sent: &Submission, metadata_changed: bool) -> Vec<&'static str> {
        let checks = [
            ("group_code", sent.group_code.as_str() != self.group_code),
            ("callback_url", sent.callback_url.as_deref().is_some_and(|url| Some(url) != self.callback_url)),
            ("publish_at", sent.publish_at.is_some_and(|at| Some(at) != self.publish_at)),
            ("draft", sent.draft.is_some_and(|draft| draft != self.draft)),
            ("metadata", sent.metadata.is_some() && metadata_changed),
        ];
        checks.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn content() -> Content {
        Content {
            title: "T".into(),
            content_html: "<p>x</p>".into(),
            summary: None,
            cover_url: None,
            canonical_url: None,
            author: None,
            tags: vec!["a".into(), "b".into()],
        }
    }

    type Change = fn(&mut Content);

    #[test]
    fn each_field_is_told_by_name() {
        let stored = Digests::of(&content(), "{}");
        let changes: [(&str, Change); 8] = [
            ("title", |c| c.title.push('x')),
            ("content_html", |c| c.content_html.push(' ')),
            ("summary", |c| c.summary = Some(String::new())),
            ("cover_url", |c| c.cover_url = Some("https://h/".into())),
            ("canonical_url", |c| c.canonical_url = Some("https://h/".into())),
            ("author", |c| c.author = Some("A".into())),
            ("tags", |c| c.tags.reverse()),
            ("tags", |c| c.tags = vec!["ab".into()]),
        ];
        for (name, change) in changes {
            let mut other = content();
            change(&mut other);
            let sent = Digests::of(&other, "{}");
            assert_eq!(sent.changed_content(&stored.fields), [name]);
            assert_ne!(sent.fingerprint, stored.fingerprint);
        }
        let same = Digests::of(&content(), "{\"a\":1,}");
        assert_eq!(same.fingerprint, stored.fingerprint);
        assert!(same.changed_content(&stored.fields).is_empty());
        assert!(same.metadata_changed(&stored.fields));
    }

    /// The stored form: a change here would call every stored article changed.
    #[test]
    fn the_fingerprint_stays_what_it_is() {
        insta::assert_snapshot!(format!("{:02x?}", Digests::of(&content(), "{}").fingerprint));
    }

    proptest! {
        #[test]
        fn equal_fingerprints_mean_equal_content(a in "[ab]{0,2}", b in "[ab]{0,2}", c in "[ab]{0,2}", d in "[ab]{0,2}") {
            let left = Content { summary: Some(a.clone()), author: Some(b.clone()), ..content() };
            let right = Content { summary: Some(c.clone()), author: Some(d.clone()), ..content() };
            let same = Digests::of(&left, "{}").fingerprint == Digests::of(&right, "{}").fingerprint;
            prop_assert_eq!(same, (a, b) == (c, d));
        }
    }
}
