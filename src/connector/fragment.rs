//! A fragment of HTML parsed as a browser would, within limits, and written out again.
//!
//! The parser's cost is not bound by the size of the text: nesting, misnested formatting and attributes can make minutes
//! and gigabytes of a few hundred KiB. What would is refused, with a sentence that says what to do. Parsing what is
//! allowed can still take seconds and 70 MB: off the runtime's threads, and few at once.

use html5ever::driver::ParseOpts;
use html5ever::tendril::TendrilSink;
use html5ever::tree_builder::TreeBuilderOpts;
use html5ever::{QualName, local_name, ns};
use scraper::{Html, HtmlTreeSink, Node};

/// How deep elements may be nested: browsers flatten what lies deeper than 512 (Blink's
/// `kMaximumHTMLParserDOMTreeDepth`), and the parser's cost per element grows with the depth.
pub(super) const MAX_DEPTH: usize = 400;

/// How many nodes an article may come to: some 70 MB while it is parsed. Misnested formatting can make hundreds
/// of nodes of a few bytes, so the size of the text is no bound.
pub(super) const MAX_NODES: usize = 500_000;

/// How long the body may become, in bytes: eight times the largest article. Escaping makes at most six of one, but
/// a formatting element that is opened again in each paragraph brings its attributes along each time.
const MAX_WRITTEN_BYTES: usize = 16 * 1024 * 1024;

/// How many attributes one tag may have: the tokenizer compares each with all before it, so that a tag of 2 MiB of
/// attributes would take minutes.
pub(super) const MAX_ATTRIBUTES: usize = 2_000;

/// How many attributes of open formatting elements may be compared: the parser holds each new one against all that are
/// open, attribute by attribute. A release build does about two million a second, ordinary text needs a few thousand.
const MAX_COMPARISONS: usize = 5_000_000;

/// The formatting elements (WHATWG HTML §13.2.4.2), which the parser opens again where they were not closed.
const FORMATTING: [&str; 14] =
    ["a", "b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt", "u"];

/// How many times over the text may be read while its attributes are counted; ordinary text is read once.
const COUNTING_PASSES: usize = 64;

/// How much is parsed between two looks at the limits, in bytes.
const CHUNK_BYTES: usize = 1024;

/// The HTML is over a limit; the message says which and what to do.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum TooComplex {
    #[error("content_html nests elements more than {MAX_DEPTH} deep: close its elements, or nest them less")]
    Deep,
    #[error(
        "content_html comes to more than {MAX_NODES} elements and texts: split the article, or close its formatting elements"
    )]
    Large,
    #[error(
        "content_html grows beyond {MAX_WRITTEN_BYTES} bytes when its elements are closed: close its formatting elements"
    )]
    Long,
    #[error(
        "content_html leaves formatting elements with many attributes open: close them, or take the attributes out"
    )]
    Formatting,
    #[error("content_html has a tag of more than {MAX_ATTRIBUTES} attributes: take them out")]
    Attributes,
    #[error(
        "content_html nests elements in a way that reads differently each time it is parsed: close its elements in order"
    )]
    Unstable,
}

/// The fragment's tree.
pub(super) fn parsed(html: &str) -> Result<Html, TooComplex> {
    if crowded(html) {
        return Err(TooComplex::Attributes);
    }
    let options = ParseOpts {
        // With scripting off, `noscript` holds elements instead of raw text: what it holds is what is to be seen.
        tree_builder: TreeBuilderOpts { scripting_enabled: false, ..TreeBuilderOpts::default() },
        ..ParseOpts::default()
    };
    let context = QualName::new(None, ns!(html), local_name!("body"));
    let sink = HtmlTreeSink::new(Html::new_fragment());
    let mut parser = html5ever::parse_fragment(sink, options, context, Vec::new(), false);
    let (mut rest, mut seen, mut comparisons) = (html, 0, 0);
    while !rest.is_empty() {
        let (chunk, tail) = rest.split_at(rest.ceil_char_boundary(CHUNK_BYTES.min(rest.len())));
        rest = tail;
        parser.process(chunk.into());
        let html = parser.tokenizer.sink.sink.0.borrow();
        let nodes = html.tree.nodes();
        let count = nodes.len();
        if count > MAX_NODES {
            return Err(TooComplex::Large);
        }
        for node in nodes.rev().take(count - seen) {
            if node.ancestors().take(MAX_DEPTH + 1).count() > MAX_DEPTH {
                return Err(TooComplex::Deep);
            }
            if let Some(attributes) = formatting_attributes(node.value()) {
                let open =
                    node.ancestors().filter(|node| formatting_attributes(node.value()).is_some()).count();
                comparisons += open * (attributes + 1);
            }
        }
        if comparisons > MAX_COMPARISONS {
            return Err(TooComplex::Formatting);
        }
        seen = count;
    }
    Ok(parser.finish())
}

/// How many attributes a formatting element has; none for any other node.
fn formatting_attributes(node: &Node) -> Option<usize> {
    let element = node.as_element().filter(|element| FORMATTING.contains(&element.name()))?;
    Some(element.attrs().count())
}

/// Whether some tag has more than [`MAX_ATTRIBUTES`]. Every `<` that could begin a tag is taken to begin one, also
/// in a comment or a quoted value: what the parser takes for a tag is then among them, whatever came before.
fn crowded(html: &str) -> bool {
    let bytes = html.as_bytes();
    let until = |from: usize, ends: fn(u8) -> bool| {
        bytes[from..].iter().position(|b| ends(*b)).map_or(bytes.len(), |n| from + n)
    };
    let not_space = |b: u8| !b.is_ascii_whitespace();
    let mut budget = bytes.len().saturating_mul(COUNTING_PASSES);
    let mut from = 0;
    while let Some(start) = html[from..].find('<').map(|n| from + n) {
        let name = start + 1 + usize::from(bytes.get(start + 1) == Some(&b'/'));
        if !bytes.get(name).is_some_and(u8::is_ascii_alphabetic) {
            from = start + 1;
            continue;
        }
        let mut at = until(name, |b| b.is_ascii_whitespace() || matches!(b, b'/' | b'>'));
        // A `<` within the name would read the same attributes.
        from = at;
        let mut count = 0;
        loop {
            at = until(at, |b| !b.is_ascii_whitespace() && b != b'/');
            if bytes.get(at).is_none_or(|b| *b == b'>') {
                break;
            }
            count += 1;
            if count > MAX_ATTRIBUTES {
                return true;
            }
            at = until(at + 1, |b| b.is_ascii_whitespace() || matches!(b, b'/' | b'>' | b'='));
            let sign = until(at, not_space);
            if bytes.get(sign) != Some(&b'=') {
                continue;
            }
            at = until(sign + 1, not_space);
            at = match bytes.get(at) {
                Some(b'"') => (until(at + 1, |b| b == b'"') + 1).min(bytes.len()),
                Some(b'\'') => (until(at + 1, |b| b == b'\'') + 1).min(bytes.len()),
                _ => until(at, |b| b.is_ascii_whitespace() || b == b'>'),
            };
        }
        let Some(left) = budget.checked_sub(at - start) else { return true };
        budget = left;
    }
    false
}

/// The name under which an element is written; none: only its text and its children are.
pub(super) type Tag = fn(&Element) -> Option<&str>;

/// The tree as text, every element closed; some `size` bytes are expected. Attributes whose names are misspelt tags are
/// left out.
pub(super) fn written(html: &Html, size: usize, tag: Tag) -> Result<String, TooComplex> {
    let mut out = String::with_capacity(size + size / 8);
    let root = html.tree.root();
    let (mut node, mut depth) = (root, 0_usize);
    loop {
        match node.value() {
            Node::Element(element) => open(element, tag, &mut out),
            Node::Comment(comment) => {
                out.push_str("<!--");
                out.push_str(comment);
                out.push_str("-->");
            }
            Node::Text(text) => {
                let parent = node.parent().and_then(|p| p.value().as_element());
                let first = node.prev_sibling().is_none();
                let parent = parent.filter(|parent| !html_name(parent).is_empty());
                write_text(text, parent.and_then(tag).unwrap_or_default(), first, &mut out);
            }
            _ => {}
        }
        if out.len() > MAX_WRITTEN_BYTES {
            return Err(TooComplex::Long);
        }
        if let Some(child) = node.first_child() {
            node = child;
            depth += 1;
            if depth > MAX_DEPTH {
                return Err(TooComplex::Deep);
            }
            continue;
        }
        loop {
            if let Node::Element(element) = node.value() {
                close(element, tag, &mut out);
            }
            if let Some(next) = node.next_sibling() {
                node = next;
                break;
            }
            let Some(parent) = node.parent() else { return Ok(out) };
            node = parent;
            depth -= 1;
        }
    }
}

/// An element with its attributes.
pub(super) type Element = scraper::node::Element;

/// The element's name if it is one of HTML's own, else nothing: `title` in an SVG is another thing.
pub(super) fn html_name(element: &Element) -> &str {
    if element.name.ns == ns!(html) { &element.name.local } else { "" }
}

fn open(element: &Element, tag: Tag, out: &mut String) {
    let Some(tag) = tag(element) else { return };
    out.push('<');
    out.push_str(tag);
    for (name, value) in &element.attrs {
        // A name of such characters is a misspelt tag, and invalid wherever it stands.
        if name.local.contains(['"', '\'', '<', '=']) {
            continue;
        }
        out.push(' ');
        if name.ns == ns!(xlink) {
            out.push_str("xlink:");
        } else if name.ns == ns!(xml) {
            out.push_str("xml:");
        } else if name.ns == ns!(xmlns) && &*name.local != "xmlns" {
            out.push_str("xmlns:");
        }
        out.push_str(&name.local);
        out.push_str("=\"");
        escape(value, &IN_VALUE, out);
        out.push('"');
    }
    out.push('>');
}

fn close(element: &Element, tag: Tag, out: &mut String) {
    let void = matches!(
        html_name(element),
        "area"
            | "base"
            | "basefont"
            | "bgsound"
            | "br"
            | "col"
            | "embed"
            | "frame"
            | "hr"
            | "img"
            | "input"
            | "keygen"
            | "link"
            | "meta"
            | "param"
            | "source"
            | "track"
            | "wbr"
    );
    if void {
        return;
    }
    if let Some(tag) = tag(element) {
        out.push_str("</");
        out.push_str(tag);
        out.push('>');
    }
}

fn write_text(text: &str, parent: &str, first: bool, out: &mut String) {
    match parent {
        // Raw text cannot be escaped. If something in it hides the end tag (`<!--<script>`), the next pass shows it.
        "script" | "style" | "iframe" | "xmp" | "noembed" | "noframes" => out.push_str(text),
        // A parser drops the first line feed after these.
        "pre" | "listing" | "textarea" if first && text.starts_with('\n') => {
            out.push('\n');
            escape(text, &IN_TEXT, out);
        }
        _ => escape(text, &IN_TEXT, out),
    }
}

/// What ends a text, and what could begin a reference.
const IN_TEXT: [char; 3] = ['&', '<', '>'];

/// What ends a value between double quotes, too. In a text a quote stays: platforms read shortcodes there.
const IN_VALUE: [char; 4] = ['&', '<', '>', '"'];

fn escape(text: &str, special: &[char], out: &mut String) {
    let mut rest = text;
    while let Some(at) = rest.find(special) {
        out.push_str(&rest[..at]);
        out.push_str(match rest.as_bytes()[at] {
            b'&' => "&amp;",
            b'<' => "&lt;",
            b'>' => "&gt;",
            _ => "&quot;",
        });
        rest = &rest[at + 1..];
    }
    out.push_str(rest);
}
