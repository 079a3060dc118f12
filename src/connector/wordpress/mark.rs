//! The two marks of an article on a `WordPress` site, and what of a post they prove. Pure.
//!
//! The first is the slug: a readable part of the title, and the marker. Sites rewrite slugs, and people do. The second is a
//! comment in the content: core's search looks there, the filters of HTML let comments pass for every role (blocks are
//! written in them), no reader sees it, and no tag, field or file is left behind by it. Of several, the last counts: ours is
//! appended to what is sent, from which all others are taken, or a text that was read from another post would be that one.

use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::is_combining_mark;

use crate::connector::marks::{self, Whose, is_marker};
use crate::task::marker::MARKER_CHARS;

/// The longest readable part of a slug, in characters: with the marker and what the site adds it stays far below the 200
/// bytes at which `WordPress` cuts (`post_name`, <https://developer.wordpress.org/reference/functions/sanitize_title/>).
const READABLE_MAX: usize = 60;

/// How the second mark begins, up to the marker.
const BEGIN: &str = "<!-- publish-ingest:";

/// How it ends.
const END: &str = " -->";

/// What `WordPress` appends to the slug of what is put in the trash
/// (<https://developer.wordpress.org/reference/functions/wp_add_trashed_suffix_to_post_name_for_post/>).
const TRASHED: &str = "__trashed";

/// The slug of an article: ASCII only, since others come back percent-encoded. It never changes for an article, or it would
/// not be found again.
pub(super) fn slug(title: &str, marker: &str) -> String {
    let letters = title.nfkd().filter(|c| !is_combining_mark(*c)).flat_map(char::to_lowercase);
    let mut words = String::new();
    for c in letters {
        match c {
            // Letters that no mark is taken from.
            'ß' => words.push_str("ss"),
            'æ' => words.push_str("ae"),
            'œ' => words.push_str("oe"),
            'ø' => words.push('o'),
            'đ' => words.push('d'),
            'ł' => words.push('l'),
            // An apostrophe stands within a word.
            '\'' | '’' => {}
            c => words.push(if c.is_ascii_alphanumeric() { c } else { ' ' }),
        }
    }
    let mut readable = words.split_whitespace().collect::<Vec<_>>().join("-");
    readable.truncate(READABLE_MAX);
    let readable = readable.trim_end_matches('-');
    if readable.is_empty() { marker.to_owned() } else { format!("{readable}-{marker}") }
}

/// The slugs to ask for: ours, the one that a second post of the same slug gets, and both in the trash.
pub(super) fn slugs(slug: &str) -> String {
    format!("{slug},{slug}-2,{slug}{TRASHED},{slug}-2{TRASHED}")
}

/// Whether a post's slug is the one that we wrote, as `WordPress` may have changed it: made unique, or put in the trash.
pub(super) fn is_slug(of_post: &str, ours: &str) -> bool {
    let Some(rest) = of_post.strip_prefix(ours) else { return false };
    let rest = rest.find(TRASHED).map_or(rest, |at| &rest[..at]);
    let number = rest.strip_prefix('-');
    rest.is_empty()
        || number.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
}

/// The article as it is sent: in a block of HTML, so that `WordPress` leaves its line breaks alone and its editor the text,
/// with the second mark at its end, and no other article's. Content that is written in blocks already stays so.
pub(super) fn marked(content_html: &str, marker: &str) -> String {
    let content_html = without_marks(content_html);
    let mark = format!("{BEGIN}{marker}{END}");
    if content_html.contains("<!-- wp:") {
        return format!("{content_html}\n{mark}");
    }
    format!("<!-- wp:html -->\n{content_html}\n{mark}\n<!-- /wp:html -->")
}

/// A text without second marks: none is left where the text around one makes another.
fn without_marks(html: &str) -> String {
    let mut kept = String::with_capacity(html.len());
    for piece in html.split_inclusive('>') {
        kept.push_str(piece);
        let start = kept.len().checked_sub(BEGIN.len() + MARKER_CHARS + END.len());
        let Some(start) = start.filter(|start| kept.get(*start..).is_some_and(|end| mark_at(end).is_some()))
        else {
            continue;
        };
        kept.truncate(start);
    }
    kept
}

/// The marker of the second mark that begins here, exactly as we write it.
fn mark_at(text: &str) -> Option<&str> {
    let rest = text.strip_prefix(BEGIN)?;
    let (marker, end) = rest.split_at_checked(MARKER_CHARS)?;
    (end.starts_with(END) && is_marker(marker)).then_some(marker)
}

/// The marker of the last second mark of a post's content: one that is only spoken of is none.
fn last_mark(content: &str) -> Option<&str> {
    content.rmatch_indices(BEGIN).find_map(|(at, _)| mark_at(&content[at..]))
}

/// Whose article a post is, for the article of that marker.
pub(super) fn whose(slug: &str, content: &str, marker: &str) -> Whose {
    marks::whose(in_use(slug), last_mark(content).as_slice(), marker)
}

/// The marker of a post of ours, whatever article it is; none: it is another's.
pub(super) fn marker_of(slug: &str, content: &str) -> Option<String> {
    marks::marker_of(in_use(slug), last_mark(content).as_slice())
}

/// A slug as it was before its post was put in the trash.
fn in_use(slug: &str) -> &str {
    slug.find(TRASHED).map_or(slug, |at| &slug[..at])
}

/// Plain text as HTML: titles, excerpts and names of terms are HTML here.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKER: &str = "ztvkir6c7hi3by44";
    const OTHER: &str = "k2vkir6c7hi3bq5a";

    #[test]
    fn a_slug_is_short_ascii_and_ends_with_the_marker() {
        for (title, readable) in [
            ("Hello, World!", "hello-world-"),
            ("  Don't – panic…", "dont-panic-"),
            ("Crème brûlée № 5", "creme-brulee-no-5-"),
            ("ﬁne & <b>", "fine-b-"),
            ("Große Ærø", "grosse-aero-"),
            ("你好", ""),
            ("你好 2", "2-"),
            ("---", ""),
        ] {
            assert_eq!(slug(title, MARKER), format!("{readable}{MARKER}"), "{title}");
        }
        let long = slug(&"word ".repeat(60), MARKER);
        assert!(
            long.len() <= READABLE_MAX + 1 + MARKER.len() && long.ends_with(&format!("-{MARKER}")),
            "{long}"
        );
        assert!(!long.contains("--"), "{long}");
    }

    #[test]
    fn a_slug_is_known_again_after_what_wordpress_does_to_it() {
        let ours = slug("Hello", MARKER);
        for known in ["", "-2", "-13", "__trashed", "-2__trashed", "__trashed-2"] {
            assert!(is_slug(&format!("{ours}{known}"), &ours), "{known}");
        }
        for other in ["-", "-x", "-2x", "x"] {
            assert!(!is_slug(&format!("{ours}{other}"), &ours), "{other}");
        }
        assert!(!is_slug(MARKER, &ours) && !is_slug("", &ours));
    }

    #[test]
    fn the_second_mark_counts_exactly_as_written_only() {
        let content = marked("<p>x</p>", MARKER);
        assert!(content.starts_with("<!-- wp:html -->\n<p>x</p>\n<!-- publish-ingest:"), "{content}");
        assert_eq!(whose("a", &content, MARKER), Whose::Ours);
        assert_eq!(whose("a", &content, OTHER), Whose::Another);
        let blocks = "<!-- wp:paragraph --><p>x</p><!-- /wp:paragraph -->";
        assert_eq!(last_mark(&marked(blocks, MARKER)), Some(MARKER));
        assert!(marked(blocks, MARKER).starts_with(blocks));
        for quoted in [
            MARKER.to_owned(),
            format!("&lt;!-- publish-ingest:{MARKER} --&gt;"),
            format!("<!-- publish-ingest:{MARKER}x -->"),
            format!("<!-- publish-ingest:{}é -->", &MARKER[..15]),
            "<!-- publish-ingest:short --> <!-- publish-ingest:".to_owned(),
        ] {
            assert_eq!(last_mark(&quoted), None, "{quoted}");
            assert_eq!(marker_of("a-post", &quoted), None, "{quoted}");
        }
    }

    #[test]
    fn a_text_that_holds_marks_of_others_is_sent_without_them() {
        let mark = |marker: &str| format!("{BEGIN}{marker}{END}");
        let halves = mark(OTHER).split_at(30).0.to_owned();
        let rest = mark(OTHER).split_at(30).1.to_owned();
        for (html, sent) in [
            (format!("<p>é</p>{}<p>y</p>", mark(OTHER)), "<p>é</p><p>y</p>"),
            (mark(OTHER).repeat(3), ""),
            // One within another, which taking it out would make.
            (format!("a{halves}{}{rest}b", mark(MARKER)), "ab"),
            (format!("{BEGIN}{OTHER} --{}>", mark(MARKER)), ""),
            (
                "<!-- publish-ingest:short --><!-- wp -->".to_owned(),
                "<!-- publish-ingest:short --><!-- wp -->",
            ),
        ] {
            assert_eq!(without_marks(&html), sent, "{html}");
            assert!(!marked(&html, MARKER).contains(OTHER), "{html}");
            assert_eq!(marker_of("", &marked(&html, MARKER)).as_deref(), Some(MARKER));
        }
    }

    #[test]
    fn a_post_of_ours_tells_its_marker_by_either_mark() {
        let told = |slug: &str, content: &str| marker_of(slug, content);
        assert_eq!(told("other", &marked("x", MARKER)).as_deref(), Some(MARKER));
        assert_eq!(told(&slug("Hello", MARKER), "x").as_deref(), Some(MARKER));
        for changed in ["-2", "__trashed", "-2__trashed", "__trashed-2"] {
            assert_eq!(told(&format!("hello-{MARKER}{changed}"), "x").as_deref(), Some(MARKER), "{changed}");
        }
        assert_eq!(told(MARKER, "").as_deref(), Some(MARKER));
        // As it was sent before marks of others were taken out: the last is its own.
        let both = format!("{BEGIN}{OTHER}{END}\n{BEGIN}{MARKER}{END}");
        assert_eq!(told("other", &both).as_deref(), Some(MARKER));
        assert_eq!(
            (whose("other", &both, MARKER), whose("other", &both, OTHER)),
            (Whose::Ours, Whose::Another)
        );
    }

    #[test]
    fn texts_become_html() {
        assert_eq!(escaped("a < b & \"c\" > d"), "a &lt; b &amp; \"c\" &gt; d");
    }
}
