//! An article's HTML made safe to stand inside a page.
//!
//! The text is parsed as a fragment, as a browser would, and written out anew: every element is closed, nothing in it
//! can end the element around it or swallow what follows. Scripts are not taken out, they are kept from running by
//! the page's content security policy. No text is lost: an element that may not stand here leaves its text behind.

use crate::connector::fragment::{Element, TooComplex, html_name, parsed, written};

/// How many times the text is read and written until it reads the same; almost all of it does at the second.
const MAX_PASSES: usize = 6;

/// Rewrites `html` so that it can stand in an element of a page and reads there as it reads alone.
pub(super) fn settled(html: &str) -> Result<String, TooComplex> {
    let mut text = pass(html)?;
    for _ in 1..MAX_PASSES {
        // What was written can still read otherwise (a form in a form, a link in a table in a link): not until it
        // reads as written is it certain where it ends.
        let again = pass(&text)?;
        if again == text {
            return Ok(text);
        }
        text = again;
    }
    Err(TooComplex::Unstable)
}

fn pass(html: &str) -> Result<String, TooComplex> {
    written(&parsed(html)?, html.len(), tag)
}

/// The name under which an element is written; none: only its text and its children are.
fn tag(element: &Element) -> Option<&str> {
    match html_name(element) {
        // They act on the whole document, or their text is shown only where scripts or frames cannot be.
        "html" | "head" | "body" | "title" | "base" | "meta" | "link" | "noscript" | "noembed"
        | "noframes" => None,
        // Nothing can follow the one; the other reads its text raw, which cannot be escaped.
        "plaintext" | "xmp" => Some("pre"),
        _ => Some(&element.name.local),
    }
}

#[cfg(test)]
mod tests;
