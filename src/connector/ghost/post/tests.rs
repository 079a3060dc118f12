use super::*;

const MARKER: &str = "abcdefghijklmnop";

fn content() -> Content {
    Content {
        title: "A Title: It's 7!".into(),
        content_html: "bare <b>text</b>".into(),
        summary: None,
        cover_url: None,
        canonical_url: None,
        author: Some("Nobody".into()),
        tags: vec!["#News".into(), "a, b".into(), "#".into()],
    }
}

fn post(value: Value) -> Post {
    serde_json::from_value(value).unwrap()
}

#[test]
fn a_draft_holds_the_text_to_the_byte_and_nothing_that_sends_mail() {
    let html = "bare <b>text</b><!--kg-card-end: html--><script>1</script>";
    let body = draft(&content(), MARKER, html, Some("https://h/c.png"));
    let lexical = body["posts"][0]["lexical"].as_str().unwrap();
    let lexical = serde_json::from_str::<Value>(lexical).unwrap();
    assert_eq!(lexical["root"]["children"][0]["html"], html);
    assert_eq!(body["posts"][0]["status"], "draft");
    assert_eq!(body["posts"][0]["feature_image"], "https://h/c.png");
    let members = body["posts"][0].as_object().unwrap().keys().map(String::as_str).collect::<Vec<_>>();
    let expected =
        ["canonical_url", "custom_excerpt", "feature_image", "lexical", "slug", "status", "tags", "title"];
    assert_eq!(members, expected);
}

#[test]
fn the_mark_is_the_last_tag_and_no_tag_of_the_article_is_hidden() {
    let body = draft(&content(), MARKER, "x", None);
    let tags = body["posts"][0]["tags"].as_array().unwrap();
    let names = tags.iter().map(|tag| tag["name"].as_str().unwrap()).collect::<Vec<_>>();
    assert_eq!(names, ["News", "a, b", "#pi-abcdefghijklmnop"]);
    // Marks of others.
    let marks =
        ["#pi-k2vkir6c7hi3bq5a", "\u{a0}#pi-x", "\u{feff}\t#pi-x", "Hash PI k2vkir6c7hi3bq5a", "hásh-pi-x"];
    let tagged = Content { tags: marks.map(Into::into).into(), ..content() };
    let body = draft(&tagged, MARKER, "x", None);
    let names = body["posts"][0]["tags"].as_array().unwrap();
    let names = names.iter().map(|tag| tag["name"].as_str().unwrap()).collect::<Vec<_>>();
    assert_eq!(names, ["pi-k2vkir6c7hi3bq5a", "pi-x", "pi-x", "#pi-abcdefghijklmnop"]);
}

#[test]
fn a_slug_is_readable_and_ends_with_the_marker() {
    let cases = [
        ("A Title: It's 7!", "a-title-its-7-abcdefghijklmnop"),
        ("  ", "abcdefghijklmnop"),
        ("🎉 !", "abcdefghijklmnop"),
        ("你好 World", "你好-world-abcdefghijklmnop"),
    ];
    for (title, expected) in cases {
        assert_eq!(slug(title, MARKER), expected);
    }
    assert_eq!(slug(&"x".repeat(300), MARKER).len(), SLUG_TITLE_MAX + 1 + MARKER.len());
    let wide = slug(&"壮".repeat(300), MARKER);
    assert_eq!(wide.chars().count(), 14 + 1 + MARKER.len(), "Ghost makes 98 characters of 14");
}

#[test]
fn a_post_stands_where_its_status_says() {
    let at = |status: &str, foot: Option<&str>| {
        let url = "https://h/a/";
        let post = post(json!({"id": "1", "status": status, "url": url, "codeinjection_foot": foot}));
        post.standing("https://h")
    };
    let public = Standing::Public(Remote { url: "https://h/a/".into(), remote_id: Some("1".into()) });
    assert_eq!(at("published", None), public);
    assert_eq!(at("sent", None), public);
    assert_eq!(at("published", Some(REMOVING)), public);
    assert_eq!(at("scheduled", None), Standing::Scheduled);
    assert_eq!(at("draft", Some("<script>")), Standing::Draft);
    assert_eq!(at("draft", Some(REMOVING)), Standing::Removing);
}

#[test]
fn a_post_without_an_address_is_shown_by_its_preview() {
    for url in [json!(null), json!("https://h/404/"), json!("/a/")] {
        let post = post(json!({"id": "1", "uuid": "u-1", "status": "published", "url": url}));
        assert_eq!(post.remote("https://h").url, "https://h/p/u-1/");
    }
}

#[test]
fn only_what_carries_the_mark_is_believed() {
    let tagged = |name: &str, slug: &str| {
        post(json!({"id": "1", "status": "draft", "slug": "a", "tags": [{"name": name, "slug": slug}]}))
    };
    let carries = |post: &Post| post.whose(MARKER) == Whose::Ours;
    assert!(carries(&tagged("#pi-abcdefghijklmnop", "hash-pi-abcdefghijklmnop")));
    assert!(carries(&tagged("renamed", "hash-pi-abcdefghijklmnop")));
    assert!(!carries(&tagged("#pi-abcdefghijklmnoq", "hash-pi-abcdefghijklmnoq")));
    assert!(!carries(&tagged("abcdefghijklmnop", "abcdefghijklmnop")));
    let named = |slug: &str| post(json!({"id": "1", "status": "draft", "slug": slug}));
    assert!(carries(&named("a-abcdefghijklmnop-2")));
    assert!(!carries(&named("abcdefghijklmnop-in-a-title-k2vkir6c7hi3bq5a")), "another's title");
    assert_eq!(named("a-abcdefghijklmnop-2").listed("https://h").marker.as_deref(), Some(MARKER));
    assert_eq!(tagged("#pi-abcdefghijklmnop", "x").listed("https://h").marker.as_deref(), Some(MARKER));
    let mut copied = tagged("#pi-abcdefghijklmnop", "hash-pi-abcdefghijklmnop");
    copied.slug = "a-title-k2vkir6c7hi3bq5a".into();
    assert_eq!(copied.whose(MARKER), Whose::Disputed, "another's post with this mark beside its own");
}

#[test]
fn only_a_draft_as_it_was_made_is_untouched() {
    let made = || {
        let body = draft(&content(), MARKER, "bare <b>text</b>", None);
        let mut made = body["posts"][0].clone();
        made["id"] = json!("1");
        made["created_at"] = json!("2026-01-31T00:00:00.000Z");
        made["updated_at"] = json!("2026-01-31T00:00:01.000Z");
        made
    };
    let touched = |changed: &[(&str, Value)]| {
        let mut made = made();
        for (name, value) in changed {
            made[*name] = value.clone();
        }
        let post = post(made);
        let standing = post.standing("https://h");
        post.touched(&standing, &content(), MARKER)
    };
    assert_eq!(touched(&[]), None);
    let later = || ("updated_at", json!("2026-01-31T00:00:02.000Z"));
    let removing = || ("codeinjection_foot", json!(REMOVING));
    assert_eq!(touched(&[later(), removing()]), None, "locked by an earlier try");
    let text = json!(made()["lexical"].as_str().unwrap().replace("bare", "two hours of work"));
    for changed in [
        vec![later()],
        vec![("title", json!("Another"))],
        vec![("lexical", text.clone())],
        vec![("lexical", json!(null))],
        vec![later(), removing(), ("lexical", text)],
        vec![("status", json!("pending"))],
        vec![("slug", json!("a")), ("tags", json!([]))],
        vec![("updated_at", json!(null))],
    ] {
        assert!(touched(&changed).is_some(), "{changed:?}");
    }
}

#[test]
fn pages_end_where_ghost_has_no_more() {
    let next = |next: Value, pages: u32| {
        let meta = json!({"pagination": {"page": 1, "next": next, "pages": pages}});
        serde_json::from_value::<Posts>(json!({"posts": [], "meta": meta})).unwrap().next()
    };
    assert_eq!((next(json!(2), 2), next(json!(null), 1), next(json!(10), 3)), (Some(2), None, None));
    assert_eq!(serde_json::from_value::<Posts>(json!({"posts": []})).unwrap().next(), None);
}

#[test]
fn ids_are_judged_before_they_stand_in_a_path() {
    assert!(is_id("5ddc9063c35e7700383b27e0"));
    for bad in ["", "1", "5ddc9063c35e7700383b27e", "5ddc9063c35e7700383b27e0/", "../../users/me/../../x/../"]
    {
        assert!(!is_id(bad), "{bad}");
    }
}
