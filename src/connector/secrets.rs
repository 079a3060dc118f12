//! What must not be kept of a platform's answer: the credentials, and what was made of them for a request, in every form in
//! which a site that echoes its request may show them. Pure.
//!
//! A text is searched without its blanks and in small letters, and a long secret by its beginning: so blanks, line breaks
//! and capitals hide nothing, nor does an echo that was cut off.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use crate::account::Credentials;

/// The member of the credentials that is a name.
const USERNAME: &str = "username";

/// The shortest text of the credentials that is taken out: what is shorter is no secret, and a word of any text.
const SECRET_MIN_CHARS: usize = 4;

/// From this length on a text is searched for by its beginning: shorter ones, such as names, are parts of other words.
const LONG_MIN_BYTES: usize = 12;

/// How much of a long secret has to stand there to be known, in bytes: what is shorter tells too little of it.
const BEGIN_BYTES: usize = 8;

/// How much of an answer is looked at, in bytes: far more than is kept of it, so that much can be taken out.
const LOOKED_AT_BYTES: usize = 64 * 1024;

/// What stands in the place of what was taken out.
const TAKEN_OUT: char = '…';

/// What is taken out of answers. It has no `Debug`.
#[derive(Default)]
pub(super) struct Secrets {
    /// As they are searched for: the short ones as they are, the long ones without blanks and in small letters.
    short: BTreeSet<String>,
    long: BTreeSet<String>,
}

impl Secrets {
    /// All texts of the credentials.
    pub(super) fn of(credentials: &Credentials) -> Self {
        let mut secrets = Self::default();
        for (name, text) in credentials.expose().as_object().into_iter().flatten() {
            let Some(text) = text.as_str().filter(|text| text.chars().count() >= SECRET_MIN_CHARS) else {
                continue;
            };
            // No secret, and often a word of which others begin alike.
            if name == USERNAME {
                secrets.short.insert(text.to_owned());
                continue;
            }
            secrets.add(text);
            // The parts of a key (`id:secret`), and a secret without what says its kind (`whsec_…`).
            for part in text.split([':', '_']).filter(|part| part.len() >= LONG_MIN_BYTES) {
                secrets.add(part);
            }
        }
        secrets
    }

    /// And a header that was made of them: its scheme is kept, what follows is not.
    pub(super) fn sent(mut self, header: &str) -> Self {
        for word in header.split([' ', ',']).filter(|word| word.len() >= LONG_MIN_BYTES) {
            self.add(word);
            // A token's signature.
            self.add(word.rsplit('.').next().unwrap_or_default());
        }
        self
    }

    fn add(&mut self, secret: &str) {
        if secret.chars().count() < SECRET_MIN_CHARS {
            return;
        }
        let without_blanks = secret.split_whitespace().collect::<String>();
        let mut forms = vec![secret.to_owned(), without_blanks.clone()];
        for bytes in [secret, &without_blanks] {
            forms.push(STANDARD.encode(bytes).trim_end_matches('=').to_owned());
            forms.push(URL_SAFE_NO_PAD.encode(bytes));
        }
        for form in forms {
            let json = Value::from(form.as_str()).to_string();
            let json = json.trim_matches('"').to_owned();
            let html = form.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            let html = html.replace('"', "&quot;");
            self.keep(&utf8_percent_encode(&form, NON_ALPHANUMERIC).to_string());
            // As forms are sent, blanks are pluses.
            self.keep(&utf8_percent_encode(&form, NON_ALPHANUMERIC).to_string().replace("%20", "+"));
            // As PHP writes it.
            self.keep(&json.replace('/', "\\/"));
            self.keep(&json);
            self.keep(&html.replace('\'', "&#039;"));
            self.keep(&html);
            self.keep(&form);
        }
    }

    fn keep(&mut self, form: &str) {
        let searched = squeezed(form).0;
        if searched.len() < LONG_MIN_BYTES {
            self.short.insert(form.to_owned());
        } else {
            self.long.insert(searched);
        }
    }

    /// The beginning of a text, without them.
    pub(super) fn taken_out(&self, text: &str) -> String {
        let cut = text.floor_char_boundary(LOOKED_AT_BYTES);
        let (looked_at, more) = text.split_at(cut);
        let mut places = Vec::new();
        for secret in &self.short {
            places.extend(looked_at.match_indices(secret).map(|(at, found)| (at, at + found.len())));
        }
        let (squeezed, at) = squeezed(looked_at);
        for secret in &self.long {
            let Some(begin) = secret.get(..secret.floor_char_boundary(BEGIN_BYTES)) else { continue };
            for (found, _) in squeezed.match_indices(begin) {
                let same = squeezed.as_bytes()[found..].iter().zip(secret.as_bytes());
                let same = same.take_while(|(one, other)| one == other).count();
                places.push((at[found], at[found + same - 1] + 1));
            }
        }
        // What may have been cut in two, its blanks included.
        let longest = self.short.iter().chain(&self.long).map(String::len).max().unwrap_or_default();
        if !more.is_empty() {
            places.push((cut.saturating_sub(2 * longest), cut));
        }
        without(looked_at, places)
    }

    /// An answer's body without them.
    pub(super) fn taken_out_of(&self, body: &[u8]) -> Vec<u8> {
        self.taken_out(&String::from_utf8_lossy(body)).into_bytes()
    }
}

/// A text without blanks and in small letters, and where each of its bytes stands in the text.
fn squeezed(text: &str) -> (String, Vec<usize>) {
    let (mut squeezed, mut at) = (String::with_capacity(text.len()), Vec::with_capacity(text.len()));
    for (place, c) in text.char_indices().filter(|(_, c)| !c.is_whitespace()) {
        squeezed.push(c.to_ascii_lowercase());
        at.extend(place..place + c.len_utf8());
    }
    (squeezed, at)
}

/// A text without these places, which may overlap.
fn without(text: &str, mut places: Vec<(usize, usize)>) -> String {
    places.sort_unstable();
    let (mut kept, mut from) = (String::with_capacity(text.len()), 0);
    for (start, end) in places {
        let (start, end) = (text.floor_char_boundary(start), text.ceil_char_boundary(end));
        if start >= from {
            kept.push_str(&text[from..start]);
            kept.push(TAKEN_OUT);
        }
        from = from.max(end);
    }
    kept.push_str(&text[from..]);
    kept
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PASSWORD: &str = "abcd EFGH ijkl mnop qrst uvwx";

    fn taken_out(credentials: Value, header: &str, text: &str) -> String {
        Secrets::of(&Credentials::new(credentials)).sent(header).taken_out(text)
    }

    fn of_wordpress(text: &str) -> String {
        let pair = STANDARD.encode(format!("editor:{PASSWORD}"));
        let credentials = json!({"username": "editor", "application_password": PASSWORD});
        taken_out(credentials, &format!("Basic {pair}"), text)
    }

    #[test]
    fn a_password_is_taken_out_in_every_form() {
        let pair = STANDARD.encode(format!("editor:{PASSWORD}"));
        for form in [
            PASSWORD.to_owned(),
            PASSWORD.replace(' ', ""),
            PASSWORD.to_lowercase().replace(' ', "\n"),
            PASSWORD.replace(' ', "%20"),
            PASSWORD.replace(' ', "+"),
            STANDARD.encode(PASSWORD),
            STANDARD.encode(PASSWORD.replace(' ', "")),
            pair.clone(),
            pair[..20].to_owned(),
            pair.replace('=', "%3D"),
        ] {
            let shown = of_wordpress(&format!("debug: Basic {form} !no"));
            let told = shown.trim_end_matches(" !no").trim_end_matches('=');
            assert_eq!(told, "debug: Basic …", "{form}");
        }
        assert_eq!(
            of_wordpress("the user editor gave credit or published"),
            "the user … gave credit or published"
        );
    }

    #[test]
    fn what_a_language_escapes_is_taken_out_too() {
        let secret = "a/b+c\"d&e'f<g>h\\i";
        for form in [
            "a\\/b+c\\\"d&e'f<g>h\\\\i",
            "a/b+c\\\"d&e'f<g>h\\\\i",
            "a/b+c&quot;d&amp;e&#039;f&lt;g&gt;h\\i",
            "a%2Fb%2Bc%22d%26e%27f%3Cg%3Eh%5Ci",
        ] {
            assert_eq!(taken_out(json!({"token": secret}), "", form), "…", "{form}");
        }
    }

    #[test]
    fn of_a_key_its_parts_its_token_and_its_signature_are_taken_out() {
        let (id, secret) = ("5ddc9063c35e7700383b27e0", "0123456789abcdef".repeat(4));
        let key = json!({"admin_api_key": format!("{id}:{secret}")});
        let (token, signature) = ("eyJhbGciOiJIUzI1.eyJhdWQiOiIv.", "0sFfWFLev5sp8Cv7vi364pe34");
        let header = format!("Ghost {token}{signature}");
        for form in [id, &secret, &secret.to_uppercase(), signature, &format!("{token}{signature}")] {
            assert_eq!(taken_out(key.clone(), &header, &format!("<{form}>")), "<…>", "{form}");
        }
        let bridge = json!({"secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"});
        let header = "v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=";
        for form in
            ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", &header[3..]]
        {
            let shown = taken_out(bridge.clone(), header, &format!("({form})"));
            assert!(!shown.contains(&form[6..20]), "{shown}");
        }
        let php = header.replace('/', "\\/");
        assert!(!taken_out(bridge, header, &php).contains("pI4"), "as PHP writes it");
    }

    #[test]
    fn what_is_cut_off_shows_no_beginning() {
        for text in [
            format!("{} {PASSWORD}", "x ".repeat(LOOKED_AT_BYTES / 2 - 4)),
            format!("no {}", &PASSWORD[..12]),
        ] {
            let shown = of_wordpress(&text);
            assert!(!shown.contains("abcd"), "{}", &shown[shown.len() - 40..]);
        }
        assert_eq!(of_wordpress("é"), "é");
    }
}
