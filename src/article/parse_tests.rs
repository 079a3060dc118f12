use super::*;

fn parse(body: &str) -> Result<Submission, Invalid> {
    Submission::parse(body.as_bytes(), |url| {
        if url.contains("forbidden") { Err("is forbidden here".to_owned()) } else { Ok(()) }
    })
}

/// A valid body, with `extra` members added (each begins with a comma).
fn body(extra: &str) -> String {
    format!(r#"{{"external_id":"a","group_code":"g","title":"T","content_html":"<p>x</p>"{extra}}}"#)
}

fn errors(text: &str) -> Vec<(String, &'static str)> {
    match parse(text) {
        Err(Invalid::Fields(errors)) => errors.into_iter().map(|e| (e.pointer, e.code)).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_full_body_is_read() {
    let full = body(
        r#","summary":"S","cover_url":"https://h/c.png","canonical_url":"https://h/a","author":"A","tags":["x","y"],
        "callback_url":"https://h/cb","publish_at":"2030-01-31T09:00:00.1234567+08:00","draft":true,
        "on_duplicate":"reject","metadata":{"n": 1.10}"#,
    );
    insta::assert_debug_snapshot!(parse(&full).unwrap());
}

#[test]
fn null_counts_as_not_sent() {
    let nulls = Submission::FIELDS[4..].iter().map(|f| format!(",\"{f}\":null")).collect::<Vec<_>>().concat();
    assert_eq!(parse(&body(&nulls)), parse(&body("")));
    assert_eq!(
        errors(r#"{"external_id":null,"group_code":"g","title":"T","content_html":"x"}"#),
        [("/external_id".to_owned(), "required")]
    );
}

#[test]
fn everything_wrong_is_told_at_once() {
    let all = errors(
        r#"{"external_id":" a","title":"  ","content_html":"a\u0000b","summary":5,"cover_url":"ftp://h/","author":[],
        "tags":["ok","",7],"callback_url":"https://forbidden/","publish_at":"tomorrow","draft":"yes",
        "on_duplicate":"ignore","metadata":[],"callback_ulr":"x","a/b~c":1}"#,
    );
    let expected = [
        ("/callback_ulr", "unknown_field"),
        ("/a~1b~0c", "unknown_field"),
        ("/external_id", "bad_format"),
        ("/group_code", "required"),
        ("/title", "blank"),
        ("/content_html", "not_allowed"),
        ("/summary", "wrong_type"),
        ("/cover_url", "bad_format"),
        ("/author", "wrong_type"),
        ("/tags/1", "blank"),
        ("/tags/2", "wrong_type"),
        ("/callback_url", "not_allowed"),
        ("/publish_at", "bad_format"),
        ("/draft", "wrong_type"),
        ("/on_duplicate", "not_allowed"),
        ("/metadata", "wrong_type"),
    ];
    assert_eq!(all, expected.map(|(pointer, code)| (pointer.to_owned(), code)));
}

#[test]
fn limits_hold_to_the_character() {
    let cases = [("title", 300), ("summary", 1_000), ("author", 100)];
    for (field, max) in cases {
        let with = |n: usize| {
            let mut body: serde_json::Value = serde_json::from_str(&body("")).unwrap();
            body[field] = "é".repeat(n).into();
            body.to_string()
        };
        assert!(parse(&with(max)).is_ok(), "{field}");
        assert_eq!(errors(&with(max + 1)), [(format!("/{field}"), "too_long")]);
    }
    let tags = |n: usize, chars: usize| body(&format!(",\"tags\":{:?}", vec!["t".repeat(chars); n]));
    assert!(parse(&tags(20, 50)).is_ok());
    assert_eq!(errors(&tags(21, 1)), [("/tags".to_owned(), "too_long")]);
    assert_eq!(errors(&tags(1, 51)), [("/tags/0".to_owned(), "too_long")]);
    let metadata = |bytes: usize| body(&format!(r#","metadata":{{"a":"{}"}}"#, "x".repeat(bytes - 8)));
    assert!(parse(&metadata(4_096)).is_ok());
    assert_eq!(errors(&metadata(4_097)), [("/metadata".to_owned(), "too_long")]);
}

#[test]
fn a_time_is_read_as_the_database_keeps_it() {
    let with = |time: &str| body(&format!(r#","publish_at":"{time}""#));
    let read = |time: &str| parse(&with(time)).unwrap().publish_at.unwrap().to_rfc3339();
    assert_eq!(read("2016-12-31T23:59:60Z"), "2017-01-01T00:00:00+00:00");
    assert_eq!(read("2030-06-30T23:59:60.9Z"), "2030-07-01T00:00:00.900+00:00");
    assert_eq!(read("9999-12-31T23:59:59.9999999Z"), "9999-12-31T23:59:59.999999+00:00");
    assert_eq!(read("0000-01-01T00:00:00Z"), "0000-01-01T00:00:00+00:00");
    let bad = [
        "9999-12-31T23:59:59-00:01",
        "9999-12-31T23:59:60Z",
        "0000-01-01T00:00:00+23:59",
        "2030-01-31",
        "2030-02-30T00:00:00Z",
    ];
    for bad in bad {
        assert_eq!(errors(&with(bad)), [("/publish_at".to_owned(), "bad_format")], "{bad}");
    }
}

#[test]
fn what_cannot_be_read_is_bad_json() {
    for bad in [
        body(",\"title\":\"again\""),
        body(r#","metadata":{"a":{"b":1,"b":2}}"#),
        body(r#","summary":"\ud800""#),
        body(r#","tags":["\udc00"]"#),
        body(","),
        String::new(),
    ] {
        assert!(matches!(parse(&bad), Err(Invalid::Json(_))), "{bad}");
    }
    assert_eq!(errors("[]"), [(String::new(), "wrong_type")]);
}

#[test]
fn a_misspelt_field_names_the_right_one() {
    let Err(Invalid::Fields(errors)) = parse(&body(r#","callback_ulr":"https://h/""#)) else { panic!() };
    assert_eq!(errors[0].detail, "there is no such field; did you mean \"callback_url\"?");
}
