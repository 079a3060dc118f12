use proptest::prelude::*;

use super::*;

const OLD: &str = "https://old.example/a.png";
const NEW: &str = "https://new.example/1?x=1&y=\"2\"";

fn fates(fate: &Fate) -> BTreeMap<String, Fate> {
    BTreeMap::from([(OLD.to_owned(), fate.clone())])
}

fn moved(html: &str) -> String {
    rewritten(html, &fates(&Fate::Moved(NEW.to_owned()))).unwrap()
}

fn gone(html: &str) -> String {
    rewritten(html, &fates(&Fate::Gone)).unwrap()
}

fn same(html: &str) -> String {
    rewritten(html, &BTreeMap::new()).unwrap()
}

/// The tree as text that shows every node, texts that touch joined.
fn outline(html: &str) -> String {
    let html = parsed(html).unwrap();
    let mut lines = Vec::new();
    for node in html.tree.root().descendants() {
        let depth = node.ancestors().count();
        match node.value() {
            Node::Element(element) => lines.push(format!("{depth} <{:?} {:?}>", element.name, element.attrs)),
            other => lines.push(format!("{depth} {other:?}")),
        }
    }
    lines.join("\n")
}

#[test]
fn addresses_are_read_as_a_browser_reads_them() {
    for (src, read) in [
        (OLD, Some(OLD)),
        ("HTTPS://OLD.example:443/a.png#top", Some(OLD)),
        (" \n https://old.example/b/../a.png\t", Some(OLD)),
        ("https://old.example/a b.png", Some("https://old.example/a%20b.png")),
        ("https://old.exa\nmple/a.png", Some(OLD)),
        ("DATA:image/png;base64,AA==", Some("data:image/png;base64,AA==")),
        ("/a.png", None),
        ("//old.example/a.png", None),
        ("a.png", None),
        ("", None),
        ("cid:1", None),
        ("blob:https://old.example/1", None),
        ("javascript:alert(1)", None),
        ("file:///etc/passwd", None),
    ] {
        assert_eq!(address(src).as_deref(), read, "{src:?}");
    }
}

#[test]
fn images_are_found_once_each_wherever_they_stand() {
    let html = r#"<p><img src="https://h/2.png"><img src=https://h/1.png></p><picture><source srcset="https://h/s.webp">
        <IMG SRC='https://h/1.png#x' srcset="https://h/9.png 2x"></picture><image src="https://h/3.png"><noscript><img
        src="https://h/4.png"></noscript><template><img src=https://h/5.png></template><table><img src=https://h/6.png>
        <tr><td><img src="data:image/gif;base64,R0lGOA=="><img src="/rel.png"><img src="//h/pr.png"><img><img src="">
        <img srcset="https://h/8.png"><video poster="https://h/v.png"></video><svg><image href="https://h/s.png"
        src="https://h/s2.png"/></svg><!-- <img src="https://h/c.png"> --><script>"<img src='https://h/j.png'>"</script>
        <textarea><img src="https://h/t.png"></textarea><a href="https://h/big.png">&lt;img src=https://h/e.png&gt;"#;
    let expected = ["2", "1", "3", "4", "5", "6"].map(|name| format!("https://h/{name}.png"));
    let mut found = addresses(html).unwrap();
    let inline = found.iter().position(|address| address.starts_with("data:")).unwrap();
    assert_eq!(found.remove(inline), "data:image/gif;base64,R0lGOA==");
    found.sort_by_key(|address| expected.iter().position(|one| one == address));
    assert_eq!(found, expected);
    assert_eq!(addresses("<p>no pictures, <i>only</i> words</p>").unwrap(), Vec::<String>::new());
}

#[test]
fn a_moved_image_is_shown_from_its_new_place_and_from_nowhere_else() {
    let new = "https://new.example/1?x=1&amp;y=&quot;2&quot;";
    for (html, expected) in [
        (
            format!(
                r#"<p>a <img alt="A" src="{OLD}" srcset="{OLD} 2x, https://old.example/b.png" sizes="5px" id=i> b"#
            ),
            format!(r#"<p>a <img alt="A" src="{new}" id="i"> b</p>"#),
        ),
        (
            format!(r#"<picture><source srcset="https://old.example/a.webp"><img src="{OLD}#f"></picture>"#),
            format!(r#"<picture><img src="{new}"></picture>"#),
        ),
        (
            format!(r#"<img src="{OLD}"><img src=" {OLD} ">"#),
            format!(r#"<img src="{new}"><img src="{new}">"#),
        ),
        // Others keep what they have, and so does a link to the image.
        (
            format!(
                r#"<a href="{OLD}"><img src="{OLD}?2" srcset="x 2x"></a><video><source src="{OLD}"></video><img srcset="{OLD}">"#
            ),
            format!(
                r#"<a href="{OLD}"><img src="{OLD}?2" srcset="x 2x"></a><video><source src="{OLD}"></video><img srcset="{OLD}">"#
            ),
        ),
    ] {
        assert_eq!(moved(&html), expected);
    }
}

#[test]
fn an_image_that_is_left_out_takes_along_only_what_held_nothing_else() {
    let img = format!("<img src=\"{OLD}\">");
    for (html, expected) in [
        (format!("<p>a {img} b</p>"), "<p>a  b</p>"),
        (format!("x<figure> <a href=\"#\">{img}</a>\n</figure>y"), "xy"),
        (
            format!("<figure>{img}<figcaption>words</figcaption></figure>"),
            "<figure><figcaption>words</figcaption></figure>",
        ),
        (format!("<a href=\"#\">{img} words</a>"), "<a href=\"#\"> words</a>"),
        (format!("<figure>{img}{img}</figure>"), ""),
        (
            format!("<figure>{img}<img src=\"https://h/b\"></figure>"),
            "<figure><img src=\"https://h/b\"></figure>",
        ),
        (format!("<picture><source srcset=x><!-- c -->{img}</picture>"), ""),
        (format!("<p>{img}</p>"), "<p></p>"),
        (format!("<div><figure>{img}</figure></div>"), "<div></div>"),
        (
            format!("<figure><video><source src=v></video>{img}</figure>"),
            "<figure><video><source src=\"v\"></video></figure>",
        ),
    ] {
        assert_eq!(gone(&html), expected, "{html}");
    }
}

#[test]
fn nothing_else_changes_but_the_spelling() {
    // What platforms read in a text, as it is written.
    for html in [
        r#"<!-- wp:image {"id":1,"sizes":["a"]} --><figure><img src="/a.png"></figure><!-- /wp:image -->"#,
        r#"[gallery ids="1,2" link='x'] "quoted" it's"#,
        "<pre>\n\n  two\n\tlines &lt;b&gt;\n</pre>",
        "<textarea>\n\nx</textarea><pre></pre>",
        "a &amp;amp; b &lt;i&gt; c\u{a0}d é 中文 🙂",
        "<table><tbody><tr><td><table><tbody><tr><td>in</td></tr></tbody></table></td></tr></tbody></table>",
        "<script>if (a < b && c > d) { x = \"</p>\"; }</script><style>a > b { content: \"&\" }</style>",
        "<iframe src=\"https://h/?a=1&amp;b=2\"><p>raw & </iframe><noscript><p>plain</p></noscript>",
        "<svg viewBox=\"0 0 1 1\"><foreignObject><p>x</p></foreignObject><use xlink:href=\"#a\"></use></svg>",
        "<math><mi>x</mi></math><br><hr><wbr><video controls=\"\"><source src=\"v\"></video>",
        "<p title=\"&quot;a&quot; &amp; 'b'\" data-x=\"{&quot;k&quot;:1}\">x</p><!-- a -- b -->",
        "<template><tr><td>x</td></tr></template><details open=\"\"><summary>s</summary>t</details>",
    ] {
        assert_eq!(same(html), html);
    }
    for html in [
        "<p>one<p>two<ul><li>a<li>b</ul>",
        "<table><tr><td>a<td>b</table>",
        "<P CLASS=a ID='b' hidden>x<BR/>y",
        "<b><i>x</b>y</i>",
        "&copy;&nbsp;&hellip;&#x1F642; &notanentity; AT&T",
        "<pre>\nx</pre>",
        "<pre>\n\n\nx</pre>",
        "<p><![CDATA[x]]><?php echo 1 ?><!doctype html>",
        "<xmp><b>raw & </xmp><noembed><b></noembed>",
        "<select><option>a<option selected>b</select>",
        "<title>t & u</title><base href=x><meta charset=utf-8><link rel=x>",
    ] {
        assert_eq!(outline(&same(html)), outline(html), "{html} → {}", same(html));
    }
}

#[test]
fn what_would_take_too_long_to_parse_is_refused() {
    let deep = "<div>".repeat(1_000) + "<img src=\"https://h/a\">";
    assert_eq!(addresses(&deep), Err(TooComplex::Deep));
    assert_eq!(rewritten(&deep, &BTreeMap::new()), Err(TooComplex::Deep));
}

/// Text, attributes and comments of all that needs care.
fn words() -> impl Strategy<Value = String> {
    proptest::sample::select(vec![
        "x",
        " ",
        "\n",
        "&",
        "&amp;",
        "&lt;",
        "&#60;",
        "\"",
        "'",
        ">",
        "&nbsp;",
        "é",
        "🙂",
        "a=b",
        "[c d=\"e\"]",
        "&quot;",
        "&notin",
        "--",
        "]]>",
        "\u{a0}",
        "\t",
        "&copy",
        "?",
        "/",
    ])
    .prop_map(str::to_owned)
}

/// Well-nested HTML, spelt in several ways.
fn markup() -> impl Strategy<Value = String> {
    let text = proptest::collection::vec(words(), 0..4).prop_map(|words| words.concat()).boxed();
    let leaf = prop_oneof![
        4 => text.clone(),
        1 => Just("<img src=/r.png>".to_owned()),
        1 => Just(format!("<IMG alt='\"' srcset=\"{OLD} 2x\" src={OLD}>")),
        1 => Just("<br/>".to_owned()),
        1 => words().prop_map(|word| format!("<!--c{}-->", word.replace(['-', '>'], ""))),
        1 => text.clone().prop_map(|text| format!("<pre>\n{text}</pre>")),
        1 => text.clone().prop_map(|text| format!("<pre>{text}</pre>")),
        1 => text.clone().prop_map(|text| format!("<textarea>{text}</textarea>")),
        1 => text.clone().prop_map(|text| format!("<script>{text}</script>")),
        1 => text.prop_map(|text| format!("<style>{text}</style>")),
    ];
    leaf.prop_recursive(4, 48, 4, |inner| {
        let inside = proptest::collection::vec(inner, 0..4).prop_map(|parts| parts.concat());
        let element = proptest::sample::select(vec!["div", "section", "blockquote", "figure", "SPAN", "svg"]);
        prop_oneof![
            4 => (element, words(), inside.clone()).prop_map(|(name, value, inside)| {
                format!("<{name} title=\"{}\" data-a>{inside}</{name}>", value.replace('"', "&quot;"))
            }),
            1 => inside.clone().prop_map(|inside| format!("<ul><li>{inside}<li>{inside}</ul>")),
            1 => inside.clone().prop_map(|inside| format!("<table><tr><td>{inside}<td></table>")),
            1 => inside.prop_map(|inside| format!("<template>{inside}</template>")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn without_fates_the_tree_stays_the_same(parts in proptest::collection::vec(markup(), 0..4)) {
        let html = parts.concat();
        let written = same(&html);
        prop_assert_eq!(outline(&written), outline(&html), "{} → {}", html, written);
        prop_assert_eq!(same(&written), written);
    }

    #[test]
    fn with_a_fate_nothing_shows_the_old_place_and_all_else_is_there(
        parts in proptest::collection::vec(markup(), 0..4)
    ) {
        let html = parts.concat();
        let images = |html: &str| {
            let html = parsed(html).unwrap();
            html.tree.root().descendants().filter(|node| is(node.value(), "img")).count()
        };
        let old = |html: &str| addresses(html).unwrap().contains(&OLD.to_owned());
        let (moved, gone) = (moved(&html), gone(&html));
        prop_assert!(!old(&moved) && !old(&gone), "{} → {} or {}", html, moved, gone);
        prop_assert_eq!(images(&moved), images(&html));
        prop_assert_eq!(images(&gone) == images(&html), !old(&html));
        // Back again: only what else the image was shown from is lost.
        let back = rewritten(&moved, &BTreeMap::from([(address(NEW).unwrap(), Fate::Moved(OLD.to_owned()))])).unwrap();
        let srcset = format!(" srcset=\"{OLD} 2x\"");
        prop_assert_eq!(back, same(&html).replace(&srcset, ""));
    }
}
