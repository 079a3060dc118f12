use scraper::{Html, Node};

use super::*;

/// What a reader of the whole page finds after the content.
fn in_page(html: &str) -> (String, Html) {
    let body = settled(html).unwrap();
    let page = format!(
        "<!DOCTYPE html><html><head><title>t</title></head><body><article><div id=in>{body}</div><p id=after>after</p></article></body></html>"
    );
    (body, Html::parse_document(&page))
}

#[test]
fn nothing_breaks_out_and_no_text_is_lost() {
    let hostile = [
        "<div><p>kept",
        "</div></article></body></html>kept",
        "<!-- kept",
        "kept<!--",
        "<!--><b>kept",
        "<plaintext>kept</plaintext>",
        "<textarea>kept",
        "<title>kept",
        "<title>stolen</title>kept",
        "<script>kept",
        "<script><!--<script>kept",
        "<style>kept",
        "<xmp>kept",
        "<iframe>kept",
        "<noframes>kept",
        "<noembed>kept",
        "<noscript><p>kept",
        "<select><option>kept",
        "<table><tr><td>kept",
        "<table>kept",
        "<a href=x>kept",
        "<svg><title>kept",
        "<math><mtext><table><mglyph><style><!--</style>kept",
        "<form><form>kept",
        "<a><table><a>kept",
        "<template><p>kept",
        "<frameset><frame>kept",
        "<p title=\"kept",
        "kept<p title='",
        "<body onload=x>kept",
        "<base href=//evil><meta http-equiv=refresh content=0><link rel=stylesheet href=x>kept",
        "<script><!--</script><script>--></script>kept",
        "kept\u{202e}\u{feff}\u{1F9D1}\u{200D}\u{1F680}",
        "<svg><script>kept",
        "<svg><style><!--</style>kept",
        "<pre>\n\nkept",
        "kept<![CDATA[",
        "<?php kept",
        "</ kept",
    ];
    for html in hostile {
        let (body, page) = in_page(html);
        let by_id = |id: &str| {
            page.tree.nodes().find(|n| n.value().as_element().is_some_and(|e| e.attr("id") == Some(id)))
        };
        let (content, after) = (by_id("in").unwrap(), by_id("after").expect(html));
        assert_eq!(after.parent(), content.parent(), "{html} → {body}");
        assert_eq!(content.next_sibling().unwrap().id(), after.id(), "{html} → {body}");
        let titles =
            page.tree.values().filter_map(Node::as_element).filter(|e| html_name(e) == "title").count();
        assert_eq!(titles, 1, "{html}");
        // What is unfinished at the end of the text, within a tag, a browser drops, too.
        if !matches!(html, "<p title=\"kept") {
            assert_eq!(body.matches("kept").count(), 1, "{html} → {body}");
        }
        for gone in ["<base", "<meta", "<link", "<body", "<plaintext", "<noscript"] {
            assert!(!body.contains(gone), "{html} → {body}");
        }
    }
}

#[test]
fn what_is_well_formed_stays() {
    for html in [
        "<h2 id=\"a\">A &amp; b</h2>\n<p>c <b>d</b><br>e</p><pre>\nf</pre>",
        "<svg viewBox=\"0 0 1 1\"><a xlink:href=\"#x\"><path d=\"M0 0\"></path></a></svg>",
        "<pre>\n\nf</pre><textarea>\n\ng</textarea>",
        "<table><tbody><tr><td>x</td></tr></tbody></table><!-- note -->",
    ] {
        let expected = html.replace("<pre>\nf", "<pre>f");
        assert_eq!(settled(html).unwrap(), expected);
    }
}

#[test]
fn what_would_be_slow_is_refused() {
    let many = |n: usize, f: &dyn Fn(usize) -> String| (0..n).map(f).collect::<String>();
    assert_eq!(settled(&"<div>".repeat(400_000)), Err(TooComplex::Deep));
    assert_eq!(settled(&many(100_000, &|i| format!("<b id={i}><p>"))), Err(TooComplex::Formatting));
    assert_eq!(
        settled(&format!("<a {}>", many(300_000, &|i| format!("a{i} ")))),
        Err(TooComplex::Attributes)
    );
    assert_eq!(
        settled(&format!("<!-- <a y=\" --><a {}>", many(3_000, &|i| format!("a{i}='>'/")))),
        Err(TooComplex::Attributes)
    );
    assert_eq!(settled(&"<b".repeat(1_000_000)), Ok(String::new()));
    let reopened = "<p>".to_owned() + &many(380, &|i| format!("<b id={i}>")) + &"<p>x".repeat(2_000);
    assert!(matches!(settled(&reopened), Err(TooComplex::Formatting)));
    let listed = "<p><i><i><i>".to_owned() + &"<p>x".repeat(150_000);
    assert!(matches!(settled(&listed), Err(TooComplex::Large)));
    let swollen = format!("<p><b title={}>", "y".repeat(10_000)) + &"<p>x".repeat(20_000);
    assert!(matches!(settled(&swollen), Err(TooComplex::Long)));
    let attributes = many(600, &|i| format!("a{i} "));
    let compared = many(390, &|i| format!("<b {attributes} z{i}>"));
    assert_eq!(settled(&compared), Err(TooComplex::Formatting));
    // An ordinary text, though long and in a hurry.
    let links = "<p><b>x <i>y <a href=/z class=q rel=nofollow>z</a></i></b></p>".repeat(30_000);
    assert!(settled(&links).is_ok());
    assert!(settled(&"<div>".repeat(380)).is_ok());
    assert!(settled(&format!("<img src=\"data:{}\">", "ab/+==".repeat(20_000))).is_ok());
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(300))]
    #[test]
    fn any_soup_of_tags_ends_where_it_ends(parts in proptest::collection::vec(proptest::sample::select(vec![
        "<a>", "</a>", "<b>", "</b>", "<p>", "</p>", "<table>", "</table>", "<tr>", "<td>", "</td>", "<form>", "</form>", "<svg>", "</svg>",
        "<math>", "<mtext>", "<style>", "</style>", "<script>", "</script>", "<!--", "-->", "<title>", "<textarea>", "<select>", "<option>",
        "<foreignObject>", "<div>", "</div>", "x", "<li>", "<button>", "<nobr>", "<template>", "</template>", "<h1>", "\"", "<i x='",
    ]), 0..24)) {
        let html = parts.concat();
        if let Ok(body) = settled(&html) {
            let page = Html::parse_document(&format!("<!DOCTYPE html><body><article><div>{body}</div><hr id=after></article>"));
            let after = page.tree.nodes().find(|n| n.value().as_element().is_some_and(|e| e.attr("id") == Some("after")));
            let path: Vec<_> = after.unwrap().ancestors().filter_map(|n| n.value().as_element().map(|e| e.name().to_owned())).collect();
            proptest::prop_assert_eq!(path, ["article", "body", "html"]);
        }
    }
}
