//! What must hold of each parser, whatever it is given: beyond that it does not panic, that what it takes keeps the rules.
//! Each says whether it took the case.

use std::net::IpAddr;
use std::sync::LazyLock;

use chrono::{DateTime, Utc};
use publish_ingest::account::{AccountInput, AccountKey, GroupCode, GroupInput};
use publish_ingest::article::{
    ArticlePatch, Content, Digests, Draft, EXTERNAL_ID_MAX, Submission, TITLE_MAX, callback_url,
};
use publish_ingest::callback::signature::{KeyPair, SigningSecret};
use publish_ingest::http::cursor::{before, cursor, digest, feed_cursor, feed_place, limit, time};
use publish_ingest::json;
use publish_ingest::outbound::address::{Policy, receiver, refusal};
use publish_ingest::outbound::{RETRY_AFTER_MAX, retry_after};
use publish_ingest::tenant::ApiKey;
use serde_json::value::RawValue;

static POLICY: LazyLock<Policy> = LazyLock::new(Policy::default);
static HTTP: LazyLock<Policy> = LazyLock::new(|| Policy { allow_http: true, ..Policy::default() });

fn text(case: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(case)
}

fn may_be_called(url: &str) -> Result<(), String> {
    POLICY.check_url(url).map(|_| ()).map_err(|refusal| refusal.to_string())
}

pub(crate) fn json(case: &[u8]) -> bool {
    if let Ok(Some(members)) = json::object(case) {
        for (at, (name, raw)) in members.iter().enumerate() {
            assert!(members[..at].iter().all(|(earlier, _)| earlier != name), "a key stands twice");
            let _ = json::list(raw, 3);
        }
    }
    let Ok(raw) = serde_json::from_slice::<&RawValue>(case) else { return false };
    if json::check(raw).is_ok() && !raw.get().starts_with('{') {
        assert!(json::object(case).unwrap().is_none());
    }
    if let Ok(canonical) = json::canonical(raw) {
        assert_eq!(json::canonical_text(raw.get()), canonical);
    }
    json::check(raw).is_ok()
}

pub(crate) fn article(case: &[u8]) -> bool {
    let Ok(submission) = Submission::parse(case, may_be_called) else { return false };
    keeps_the_rules(&submission);
    assert_eq!(Submission::parse(case, may_be_called).unwrap(), submission);
    true
}

pub(crate) fn article_of_a_batch(case: &[u8]) -> bool {
    let Ok((submission, key)) = Submission::parse_in_batch(case, may_be_called) else { return false };
    keeps_the_rules(&submission);
    assert!(key.is_none_or(|key| (1..=255).contains(&key.len()) && key.is_ascii()));
    true
}

fn keeps_the_rules(submission: &Submission) {
    let id = submission.external_id.as_str();
    assert!((1..=EXTERNAL_ID_MAX).contains(&id.chars().count()) && id.trim() == id && !id.contains('\0'));
    assert_eq!(id.parse(), Ok(submission.external_id.clone()), "an id that was taken is taken again");
    let content = &submission.content;
    assert!((1..=TITLE_MAX).contains(&content.title.chars().count()) && !content.content_html.contains('\0'));
    let metadata = submission.metadata.as_deref().map_or_else(|| "{}".to_owned(), json::canonical_text);
    let digests = Digests::of(content, &metadata);
    assert!(
        digests.changed_content(&digests.fields).is_empty() && !digests.metadata_changed(&digests.fields)
    );
    if let Some(url) = &submission.callback_url {
        assert!(callback_url(url).is_ok() && POLICY.check_url(url).is_ok());
    }
    let _ = submission.external_id.looks_like_timestamp();
}

pub(crate) fn patch(case: &[u8]) -> bool {
    let Ok(patch) = ArticlePatch::parse(case, may_be_called) else { return false };
    let mut draft = Draft {
        group_code: "g".to_owned(),
        content: Content {
            title: "T".to_owned(),
            content_html: "x".to_owned(),
            summary: None,
            cover_url: None,
            canonical_url: None,
            author: None,
            tags: Vec::new(),
        },
        callback_url: None,
        publish_at: None,
        metadata: "{}".to_owned(),
    };
    patch.apply(&mut draft);
    let once = draft.clone();
    patch.apply(&mut draft);
    assert_eq!(draft, once, "a patch that is applied again changes nothing");
    assert!(!draft.content.title.trim().is_empty() && !draft.content.content_html.trim().is_empty());
    assert!(patch.group_code().is_none_or(|code| code.as_str() == draft.group_code));
    true
}

pub(crate) fn account(case: &[u8]) -> bool {
    static KEY: LazyLock<AccountKey> = LazyLock::new(|| AccountKey::new("x", "a").unwrap());
    let Ok(input) = AccountInput::parse(case, &KEY, |_, _| Vec::new()) else { return false };
    assert!(
        input.settings.is_object() && (1..).contains(&input.max_in_flight) && input.min_interval_seconds >= 0
    );
    assert!(input.daily_limit.is_none_or(|limit| limit >= 1) && !input.display_name.contains('\0'));
    true
}

pub(crate) fn group(case: &[u8]) -> bool {
    static CODE: LazyLock<GroupCode> = LazyLock::new(|| "g".parse().unwrap());
    let Ok(input) = GroupInput::parse(case, &CODE) else { return false };
    for (at, account) in input.accounts.iter().enumerate() {
        assert!(!input.accounts[..at].contains(account));
        assert_eq!(AccountKey::new(account.platform(), account.account_id()).as_ref(), Ok(account));
    }
    true
}

pub(crate) fn wait(case: &[u8]) -> bool {
    static NOWS: LazyLock<[DateTime<Utc>; 3]> = LazyLock::new(|| {
        [DateTime::UNIX_EPOCH, DateTime::from_timestamp(1_800_000_000, 1).unwrap(), DateTime::<Utc>::MAX_UTC]
    });
    let waits = NOWS.map(|now| retry_after(&text(case), now));
    assert!(waits.iter().flatten().all(|wait| *wait <= RETRY_AFTER_MAX));
    assert!(
        waits.iter().all(|wait| wait.is_some() == waits[0].is_some()),
        "what can be read does not depend on the time"
    );
    waits[0].is_some()
}

static SECRET: LazyLock<SigningSecret> = LazyLock::new(|| SigningSecret::from_bytes(&[7; 32]));
static PAIR: LazyLock<KeyPair> = LazyLock::new(|| KeyPair::from_seed(&[7; 32]).unwrap());

/// A cursor of the filters that cases are read with.
pub(crate) static CURSOR: LazyLock<String> = LazyLock::new(|| {
    cursor(uuid::Uuid::from_u128(7), digest(&[("status".to_owned(), "draft".to_owned())], &["status"]))
});

/// What is signed.
const MESSAGE: (&str, i64, &[u8]) = ("msg", 1_800_000_000, b"{}");

/// The right signatures of [`MESSAGE`], alone and together.
pub(crate) static SIGNATURES: LazyLock<[String; 3]> = LazyLock::new(|| {
    let (id, at, body) = MESSAGE;
    let (shared, pair) = (SECRET.sign(id, at, body), PAIR.sign(id, at, body));
    let both = format!("{shared} {pair} v1,AAAA");
    [shared, pair, both]
});

pub(crate) fn signature(case: &[u8]) -> bool {
    let (id, at, body) = MESSAGE;
    let case = text(case);
    let right = |signature: &String| case.split(' ').any(|one| one == signature);
    let (shared, pair) = (SECRET.verifies(&case, id, at, body), PAIR.verifies(&case, id, at, body));
    assert_eq!((shared, pair), (right(&SIGNATURES[0]), right(&SIGNATURES[1])));
    assert!(!SECRET.verifies(&case, id, at + 1, body) && !PAIR.verifies(&case, "other", at, body));
    shared || pair
}

pub(crate) fn secret(case: &[u8]) -> bool {
    let (secret, key) = (text(case).parse::<SigningSecret>(), ApiKey::parse(&text(case)));
    if let Ok(secret) = &secret {
        assert!((24..=64).contains(&secret.bytes().len()));
        assert_eq!(*secret.expose(), *text(case), "a secret has one spelling");
    }
    if let Some(key) = &key {
        assert_eq!(key.expose(), text(case), "a key has one spelling");
    }
    secret.is_ok() || key.is_some()
}

pub(crate) fn cursors(case: &[u8]) -> bool {
    let case = text(case);
    let filters = digest(&[("status".to_owned(), "draft".to_owned())], &["status"]);
    let (entry, place, limit, at) = (before(&case, filters), feed_place(&case), limit(&case), time(&case));
    if let Ok(last) = entry {
        assert_eq!(cursor(last, filters), case, "a cursor has one spelling");
    }
    if let Some(place) = place {
        assert_eq!(feed_cursor(place), case, "a cursor has one spelling");
    }
    assert!(limit.as_ref().is_ok_and(|limit| (1..=200).contains(limit)) || limit.is_err());
    if let Some(at) = at {
        assert_eq!(at.to_rfc3339().split_once('-').unwrap().0.len(), 4, "a year has four digits");
    }
    entry.is_ok() || place.is_some() || limit.is_ok() || at.is_some()
}

pub(crate) fn address(case: &[u8]) -> bool {
    let case = text(case);
    let _ = callback_url(&case);
    if let Ok(ip) = case.parse::<IpAddr>() {
        assert_eq!(POLICY.check_address(ip).is_ok(), refusal(ip).is_none());
    }
    assert!(POLICY.check_url(&case).is_err() || HTTP.check_url(&case).is_ok());
    let Ok(url) = HTTP.check_url(&case) else { return false };
    assert!(url.username().is_empty() && url.password().is_none() && url.fragment().is_none());
    assert!(!matches!(url.port_or_known_default(), None | Some(0 | 22 | 25 | 465 | 587)));
    let host = url.host_str().unwrap();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(ip) = bare.parse::<IpAddr>() {
        assert!(refusal(ip).is_none() && !ip.is_loopback() && !ip.is_unspecified(), "{ip}");
    }
    assert_ne!(host.trim_end_matches('.').rsplit('.').next(), Some("localhost"));
    // What is dialled is what was judged: the text of the URL that goes on is judged alike.
    assert_eq!(HTTP.check_url(url.as_str()).as_ref(), Ok(&url));
    assert!(receiver(&url).starts_with(url.scheme()));
    true
}
