//! The images of an article's HTML: found, given new addresses, taken out. Pure.
//!
//! Read are the `src` of `img` elements, wherever they stand. Left as they are: relative and protocol-relative URLs,
//! images that only a `srcset`, a style, `poster` or an SVG names, and what links to an image.

use std::collections::{BTreeMap, HashSet};

use html5ever::interface::TreeSink;
use scraper::{Html, HtmlTreeSink, Node};
use url::Url;

use crate::connector::fragment::{Element, TooComplex, html_name, parsed, written};

/// What becomes of an image in the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is shown from this URL.
    Moved(String),
    /// It is taken out, with the `picture`, `a` and `figure` that held nothing else.
    Gone,
}

/// An image's address as it is compared and fetched: http(s) without its fragment, or `data:`; none: another scheme, or
/// no absolute URL. Read as a browser reads it (WHATWG URL Standard): two spellings of one URL are one address.
#[must_use]
pub(super) fn address(src: &str) -> Option<String> {
    let mut url = Url::parse(src).ok()?;
    match url.scheme() {
        "http" | "https" => url.set_fragment(None),
        "data" => {}
        _ => return None,
    }
    Some(url.into())
}

/// The distinct addresses of the text's images, in their order.
pub(super) fn addresses(html: &str) -> Result<Vec<String>, TooComplex> {
    // `<image` is read as `<img` (WHATWG HTML §13.2.6.4.7).
    if !html.as_bytes().windows(3).any(|bytes| bytes.eq_ignore_ascii_case(b"<im")) {
        return Ok(Vec::new());
    }
    let html = parsed(html)?;
    let mut seen = HashSet::new();
    let found = html.tree.root().descendants().filter_map(|node| image(node.value()));
    Ok(found.filter(|address| seen.insert(address.clone())).collect())
}

/// The address of an image, if the node is one.
fn image(node: &Node) -> Option<String> {
    let element = node.as_element().filter(|element| html_name(element) == "img")?;
    address(element.attr("src")?)
}

/// The text with its images as `fates` say; an address that is not in it stays.
///
/// Nothing else changes but the spelling: elements are closed, quotes and entities written one way. An image that is
/// moved loses `srcset` and `sizes`, and its `picture` the other sources, or browsers would load it from its old host.
pub(super) fn rewritten(html: &str, fates: &BTreeMap<String, Fate>) -> Result<String, TooComplex> {
    let mut tree = parsed(html)?;
    let images = tree.tree.root().descendants();
    let images = images.filter_map(|node| Some((node.id(), fates.get(&image(node.value())?)?)));
    for (id, fate) in images.collect::<Vec<_>>() {
        match fate {
            Fate::Moved(url) => redirect(&mut tree, id, url),
            Fate::Gone => take_out(&mut tree, id),
        }
    }
    written(&tree, html.len(), tag)
}

fn tag(element: &Element) -> Option<&str> {
    match html_name(element) {
        // The parser's own root of a fragment, which holds no second one.
        "html" => None,
        // Nothing can follow it, so it is written as what it looks like.
        "plaintext" => Some("pre"),
        _ => Some(&element.name.local),
    }
}

type NodeId = <HtmlTreeSink as TreeSink>::Handle;

fn redirect(html: &mut Html, id: NodeId, url: &str) {
    let Some(mut image) = html.tree.get_mut(id) else { return };
    if let Node::Element(element) = image.value() {
        element.attrs.retain(|name, _| !matches!(&*name.local, "srcset" | "sizes"));
        for (_, value) in element.attrs.iter_mut().filter(|(name, _)| &*name.local == "src") {
            *value = url.into();
        }
    }
    let picture =
        html.tree.get(id).and_then(|image| image.parent()).filter(|node| is(node.value(), "picture"));
    let sources =
        picture.into_iter().flat_map(|node| node.children()).filter(|node| is(node.value(), "source"));
    for id in sources.map(|node| node.id()).collect::<Vec<_>>() {
        detach(html, id);
    }
}

fn take_out(html: &mut Html, id: NodeId) {
    let mut id = id;
    loop {
        let parent = html.tree.get(id).and_then(|node| node.parent()).map(|node| node.id());
        detach(html, id);
        let Some(node) = parent.and_then(|id| html.tree.get(id)) else { return };
        let wraps = ["picture", "a", "figure"].into_iter().any(|name| is(node.value(), name));
        if !wraps || node.children().any(|child| shows(child.value())) {
            return;
        }
        id = node.id();
    }
}

fn detach(html: &mut Html, id: NodeId) {
    if let Some(mut node) = html.tree.get_mut(id) {
        node.detach();
    }
}

fn is(node: &Node, name: &str) -> bool {
    node.as_element().is_some_and(|element| html_name(element) == name)
}

/// Whether something would be lost with it: not blanks, comments, or the sources of a picture.
fn shows(node: &Node) -> bool {
    match node {
        Node::Text(text) => !text.trim().is_empty(),
        Node::Element(_) => !is(node, "source"),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
