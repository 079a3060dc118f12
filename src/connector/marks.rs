//! Whose article a post is, by the marks that it carries, and whether it still reads as it was sent. Pure.
//!
//! A post carries its article's marker at the end of its slug, and once more in a second mark: a comment, a tag. What people
//! write, paste and rename must not make one article's post another's, nor hide a post from its own article:
//!
//! 1. A slug that ends in the marker is proof: nobody else writes it.
//! 2. Else the second mark counts, since slugs are rewritten; but not against a slug that ends in another's marker, or
//!    against another's mark beside it. Such a post is disputed: nothing is made, published or removed until a person has
//!    decided.
//! 3. The end of a slug is another's marker only if there is a digit in it: 16 letters are a word (`responsibilities`). Of a
//!    hundred markers, four have none; they are known by the second mark alone.

use crate::task::marker::MARKER_CHARS;

/// Whose article a post is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    /// The article's that was asked for.
    Ours,
    /// Another article's.
    Another,
    /// It carries the marks of two articles.
    Disputed,
    /// It carries no mark.
    Nobodys,
}

/// Whether a word has the form of a marker.
pub(super) fn is_marker(word: &str) -> bool {
    word.len() == MARKER_CHARS && word.bytes().all(|b| b.is_ascii_lowercase() || matches!(b, b'2'..=b'7'))
}

/// The marker at the end of a slug, before the number that makes a slug unique, if something of that form stands there.
fn of_slug(slug: &str) -> Option<&str> {
    let mut words = slug.rsplit('-');
    let last = words.next()?;
    if is_marker(last) {
        return Some(last);
    }
    let number = !last.is_empty() && last.bytes().all(|b| b.is_ascii_digit());
    words.next().filter(|word| number && is_marker(word))
}

/// Whether what has the form of a marker is one, and no word.
fn is_no_word(marker: &str) -> bool {
    marker.bytes().any(|b| b.is_ascii_digit())
}

/// Whose article a post of this slug and these second marks is, for the article of that marker.
pub(super) fn whose(slug: &str, second: &[&str], marker: &str) -> Whose {
    let by_slug = of_slug(slug);
    if by_slug == Some(marker) {
        return Whose::Ours;
    }
    let another = by_slug.is_some_and(is_no_word) || second.iter().any(|other| *other != marker);
    match (second.contains(&marker), another) {
        (true, true) => Whose::Disputed,
        (true, false) => Whose::Ours,
        (false, true) => Whose::Another,
        (false, false) => Whose::Nobodys,
    }
}

/// The marker of a post of ours, whatever article it is; none: it is not ours.
pub(super) fn marker_of(slug: &str, second: &[&str]) -> Option<String> {
    let by_slug = of_slug(slug);
    let surest = by_slug.filter(|marker| is_no_word(marker)).or(second.last().copied()).or(by_slug);
    surest.map(str::to_owned)
}

/// What stays of a text whatever a platform makes of its form: without blanks and comments, with one kind of quotation
/// marks, and of an image only that there is one, since its file may have been moved.
fn essence(html: &str) -> String {
    let mut essence = String::with_capacity(html.len());
    let mut rest = html;
    while let Some(at) = rest.find('<') {
        take(&mut essence, &rest[..at]);
        rest = &rest[at..];
        if let Some(comment) = rest.strip_prefix("<!--") {
            rest = comment.split_once("-->").map_or("", |(_, after)| after);
            continue;
        }
        let (tag, after) = rest.split_at(rest.find('>').map_or(rest.len(), |end| end + 1));
        let image = tag.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("<img"));
        take(&mut essence, if image { "<img>" } else { tag });
        rest = after;
    }
    take(&mut essence, rest);
    essence.replace("/>", ">").replace("&amp;", "&")
}

fn take(essence: &mut String, text: &str) {
    let characters = text.chars().filter(|c| !c.is_whitespace());
    essence.extend(characters.map(|c| if c == '\'' { '"' } else { c }));
}

/// Whether a text is the one that was sent, as far as a platform's filters let that be seen. An empty one is nobody's.
pub(super) fn reads_as(text: &str, sent: &str) -> bool {
    let essence_of_text = essence(text);
    !essence_of_text.is_empty() && essence_of_text == essence(sent)
}

#[cfg(test)]
mod tests {
    use super::*;

    const X1: &str = "ztvkir6c7hi3by44";
    const X2: &str = "k2vkir6c7hi3bq5a";

    #[test]
    fn a_post_is_of_the_article_whose_marks_it_carries() {
        let slug = |marker: &str| format!("a-title-{marker}");
        for (slug, second, for_x1, for_x2) in [
            (slug(X1), vec![X1], Whose::Ours, Whose::Another),
            (slug(X1), vec![], Whose::Ours, Whose::Another),
            (format!("{}-2", slug(X1)), vec![], Whose::Ours, Whose::Another),
            // Another's mark was pasted into it, or copied along.
            (slug(X1), vec![X2], Whose::Ours, Whose::Disputed),
            // Its slug was rewritten: to nothing, to a word that has the form of a marker.
            (String::new(), vec![X1], Whose::Ours, Whose::Another),
            ("our-responsibilities".to_owned(), vec![X1], Whose::Ours, Whose::Another),
            ("nice-name".to_owned(), vec![X1, X2], Whose::Disputed, Whose::Disputed),
            // The marker of another in the title.
            (format!("{X1}-{X2}"), vec![X2], Whose::Another, Whose::Ours),
            (format!("{X1}-and-more"), vec![], Whose::Nobodys, Whose::Nobodys),
            ("our-responsibilities".to_owned(), vec![], Whose::Nobodys, Whose::Nobodys),
        ] {
            assert_eq!(whose(&slug, &second, X1), for_x1, "{slug} {second:?}");
            assert_eq!(whose(&slug, &second, X2), for_x2, "{slug} {second:?}");
        }
    }

    #[test]
    fn a_marker_is_told_by_the_slug_then_by_the_last_second_mark() {
        for (slug, second, told) in [
            (format!("a-{X1}"), vec![X2], Some(X1)),
            ("a".to_owned(), vec![X2, X1], Some(X1)),
            ("our-responsibilities".to_owned(), vec![X1], Some(X1)),
            ("our-responsibilities".to_owned(), vec![], Some("responsibilities")),
            ("a-ztvkir6c7hi3by489".to_owned(), vec![], None),
            ("a-ZTVKIR6C7HI3BY44".to_owned(), vec![], None),
            (format!("{X1}-"), vec![], None),
            (String::new(), vec![], None),
        ] {
            assert_eq!(marker_of(&slug, &second).as_deref(), told, "{slug} {second:?}");
        }
    }

    #[test]
    fn a_text_reads_as_sent_whatever_filters_make_of_its_form_and_not_when_somebody_wrote_in_it() {
        let sent = "<p class='a'>One &amp; two<br/></p>\n<img src=\"https://h/a.png\">";
        for same in
            [sent, "<!-- wp:html -->\n<p class=\"a\">One & two<br /></p><IMG src='/moved.png' /><!-- x -->"]
        {
            assert!(reads_as(same, sent), "{same}");
        }
        for other in [
            "",
            "<!-- only",
            "<p class='a'>One &amp; two!<br/></p><img src=\"https://h/a.png\">",
            "<p class='a'>One &amp; two<br/></p><img src=\"https://h/a.png\"><img src=\"b.png\">",
            "<p class='b'>One &amp; two<br/></p><img src=\"https://h/a.png\">",
        ] {
            assert!(!reads_as(other, sent), "{other}");
        }
        assert!(!reads_as("<!-- x -->", "<!-- y -->"), "nothing is no text");
    }
}
