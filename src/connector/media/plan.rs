//! Which of an article's images are moved to the platform, and what becomes of one that is broken. Pure.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::html::address;
use crate::connector::Failure;
use crate::fields::FieldError;

/// The most distinct images of one article, the cover among them: each is a request to its host and one to the
/// platform, which for more than a hundred would outlast what a publication can wait.
pub const IMAGES_MAX: usize = 100;

/// The settings of an account that are read here.
pub const SETTINGS: [&str; 2] = ["images", "broken_images"];

/// What becomes of an article's images: the setting `images`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Images {
    /// `upload`: they are moved to the platform, and the article shows them from there.
    Upload,
    /// `keep`: they are shown from where they are, and nobody looks at them.
    Keep,
}

/// What becomes of an article with an image that is broken for good: the setting `broken_images`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Broken {
    /// `fail`: the article is not published.
    #[default]
    Fail,
    /// `omit`: it is published without the image, with a warning.
    Omit,
}

/// What an account wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// For the cover.
    pub cover: Images,
    /// For the images in the text.
    pub body: Images,
    /// For those that are broken.
    pub broken: Broken,
}

impl Rules {
    /// What an account's settings say of both cover and text; `unset` where they do not. A platform that shows no covers
    /// from elsewhere sets `cover` to [`Images::Upload`] after that.
    #[must_use]
    pub fn of(settings: &Value, unset: Images) -> Self {
        let text = |name: &str| settings.get(name).and_then(Value::as_str);
        let images = match text("images") {
            Some("upload") => Images::Upload,
            Some("keep") => Images::Keep,
            _ => unset,
        };
        let broken = if text("broken_images") == Some("omit") { Broken::Omit } else { Broken::Fail };
        Self { cover: images, body: images, broken }
    }
}

/// The settings as members of `properties` in an account's JSON Schema; `unset` is what holds without `images`.
#[must_use]
pub fn settings_schema(unset: Images) -> Map<String, Value> {
    let unset = if unset == Images::Upload { "upload" } else { "keep" };
    let images = json!({
        "type": "string", "enum": ["upload", "keep"], "default": unset,
        "description": "Whether an article's images are moved to the platform, or shown from where they are.",
    });
    let broken = json!({
        "type": "string", "enum": ["fail", "omit"], "default": "fail",
        "description": "Whether an article with a broken image fails before anything is published, or goes without it.",
    });
    SETTINGS.map(str::to_owned).into_iter().zip([images, broken]).collect()
}

/// What is wrong with the settings that are read here, with pointers below `/settings`.
#[must_use]
pub fn check_settings(settings: &Value) -> Vec<FieldError> {
    let words = [["upload", "keep"], ["fail", "omit"]];
    let mut errors = Vec::new();
    for (name, words) in SETTINGS.into_iter().zip(words) {
        let code = match settings.get(name) {
            None | Some(Value::Null) => continue,
            Some(Value::String(word)) if words.contains(&&**word) => continue,
            Some(Value::String(_)) => "not_allowed",
            Some(_) => "wrong_type",
        };
        let detail = format!("send \"{}\" or \"{}\"", words[0], words[1]);
        errors.push(FieldError { pointer: format!("/settings/{name}"), code, detail });
    }
    errors
}

/// Where an image stands in an article.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It is the cover, and may stand in the text, too.
    Cover,
    /// It stands in the text only.
    Body,
}

impl Role {
    /// A failure with the code `cover_{what}` or `image_{what}`.
    pub(super) fn failure(self, what: &str, message: String) -> Failure {
        let role = match self {
            Self::Cover => "cover",
            Self::Body => "image",
        };
        Failure::new(format!("{role}_{what}"), message)
    }
}

/// An image that is to be moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Where it stands.
    pub(super) role: Role,
    /// Its address as [`address`] writes it: an http(s) URL without a fragment, or a `data:` URL.
    pub(super) address: String,
}

/// The images that are to be moved, each once: the cover first, then those of the text in their order.
///
/// `in_text` are the addresses in the text; they count only where the rules want them moved.
pub(super) fn planned(
    rules: Rules,
    cover: Option<&str>,
    in_text: Vec<String>,
) -> Result<Vec<Wanted>, Failure> {
    let cover = cover.filter(|_| rules.cover == Images::Upload);
    let cover = cover.map(|url| (Role::Cover, address(url).unwrap_or_else(|| url.to_owned())));
    let in_text = in_text.into_iter().filter(|_| rules.body == Images::Upload).map(|url| (Role::Body, url));
    let mut seen = HashSet::new();
    let mut wanted = Vec::new();
    for (role, address) in cover.into_iter().chain(in_text) {
        if seen.insert(address.clone()) {
            wanted.push(Wanted { role, address });
        }
    }
    if wanted.len() > IMAGES_MAX {
        let message = format!(
            "the article has {} images, and at most {IMAGES_MAX} are moved to the platform: split it, or set the \
             account's `images` to keep",
            wanted.len()
        );
        return Err(Failure::new("too_many_images", message));
    }
    Ok(wanted)
}

/// What becomes of an article with an image that is broken for good: the warning that it goes without it, or the end.
/// Its code is `cover_omitted` or `image_omitted`.
pub(super) fn without(broken: Broken, role: Role, why: Failure) -> Result<Failure, Failure> {
    match broken {
        Broken::Fail => Err(why),
        Broken::Omit => Ok(role.failure("omitted", format!("left out: {}", why.message))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(cover: Images, body: Images) -> Rules {
        Rules { cover, body, broken: Broken::Fail }
    }

    #[test]
    fn an_account_says_what_becomes_of_images() {
        let of = |settings: Value| Rules::of(&settings, Images::Keep);
        assert_eq!(of(json!({})), rules(Images::Keep, Images::Keep));
        assert_eq!(
            Rules::of(&json!({"images": null}), Images::Upload),
            rules(Images::Upload, Images::Upload)
        );
        assert_eq!(of(json!({"images": "upload"})), rules(Images::Upload, Images::Upload));
        assert_eq!(Rules::of(&json!({"images": "keep"}), Images::Upload), rules(Images::Keep, Images::Keep));
        assert_eq!(of(json!({"broken_images": "omit"})).broken, Broken::Omit);
        assert_eq!(of(json!({"broken_images": "fail"})).broken, Broken::Fail);
    }

    #[test]
    fn settings_are_checked_by_the_words_that_their_schema_lists() {
        let told = |settings: Value| {
            let errors = check_settings(&settings);
            errors.into_iter().map(|error| (error.pointer, error.code, error.detail)).collect::<Vec<_>>()
        };
        let schema = settings_schema(Images::Keep);
        assert_eq!(schema["images"]["default"], "keep");
        assert_eq!(settings_schema(Images::Upload)["images"]["default"], "upload");
        for name in SETTINGS {
            for word in schema[name]["enum"].as_array().unwrap() {
                assert_eq!(told(json!({name: word})), []);
            }
            assert_eq!(told(json!({name: null, "other": 1})), []);
            assert_eq!(told(json!({name: "Upload"}))[0].1, "not_allowed");
        }
        let expected =
            ("/settings/broken_images".to_owned(), "wrong_type", "send \"fail\" or \"omit\"".to_owned());
        assert_eq!(told(json!({"broken_images": true})), [expected]);
        assert_eq!(told(json!({"images": 1, "broken_images": "?"})).len(), 2);
    }

    #[test]
    fn each_image_is_planned_once_and_the_cover_first() {
        let text = || ["https://h/1", "https://h/2", "https://h/1"].map(str::to_owned).to_vec();
        let plan = |rules, cover| {
            let wanted = planned(rules, cover, text()).unwrap();
            wanted.into_iter().map(|one| (one.role, one.address)).collect::<Vec<_>>()
        };
        let (upload, keep) = (Images::Upload, Images::Keep);
        let one = |role, address: &str| (role, address.to_owned());
        let body = [one(Role::Body, "https://h/1"), one(Role::Body, "https://h/2")];
        assert_eq!(plan(rules(upload, upload), None), body);
        assert_eq!(plan(rules(keep, upload), Some("https://h/2")), body);
        let cover = one(Role::Cover, "https://h/2");
        let both = [cover, body[0].clone()];
        assert_eq!(plan(rules(upload, upload), Some("https://h/2#top")), both);
        assert_eq!(plan(rules(upload, keep), Some("HTTPS://h/2#top")), both[..1]);
        assert_eq!(plan(rules(keep, keep), Some("https://h/2")), []);
    }

    #[test]
    fn more_images_than_can_be_moved_are_refused() {
        let many = |count| (0..count).map(|n| format!("https://h/{n}")).collect::<Vec<_>>();
        let upload = rules(Images::Upload, Images::Upload);
        assert_eq!(planned(upload, Some("https://h/0"), many(100)).unwrap().len(), 100);
        let why = planned(upload, Some("https://h/x"), many(100)).unwrap_err();
        assert_eq!(why.code, "too_many_images");
        assert!(why.message.contains("has 101 images"), "{}", why.message);
        assert!(planned(rules(Images::Upload, Images::Keep), Some("https://h/x"), many(101)).is_ok());
    }
}
