//! Images on Ghost. It has no list of them and makes a second one of the same name, so one is looked for where it would stand.

use chrono::{DateTime, Datelike, Utc};
use serde::Deserialize;

use super::admin::{Admin, Payload, read};
use super::answers::Fault;
use crate::connector::media::{Image, NotPlaced, Placed, Uploader};
use crate::outbound::{Call, Limits, Method};

/// Puts images on a Ghost.
pub(super) struct Images<'a, 'b> {
    pub(super) admin: &'a mut Admin<'b>,
    /// When the article was submitted: an earlier try cannot have uploaded before.
    pub(super) submitted_at: DateTime<Utc>,
}

#[derive(Deserialize)]
struct Uploaded {
    images: Vec<One>,
}

#[derive(Deserialize)]
struct One {
    url: String,
}

impl Uploader for Images<'_, '_> {
    type Error = Fault;

    async fn upload(&mut self, image: Image) -> Result<Placed, NotPlaced<Fault>> {
        if let Some(url) = self.there(&image).await.map_err(NotPlaced::Failed)? {
            return Ok(Placed { url, remote_id: None });
        }
        let (kind, body) = form(&image);
        let payload = Payload { kind: &kind, body: &body };
        let answer = self.admin.ask(Method::Post, "images/upload/", Some(payload)).await;
        let uploaded = answer.and_then(read::<Uploaded>);
        let url = match uploaded {
            Ok(uploaded) => uploaded.images.into_iter().next().map(|one| one.url),
            // Of a type that it does not take (AVIF: 415), or unreadable to it.
            Err(Fault::Refused(failure)) if failure.code == "rejected_by_platform" => {
                return Err(NotPlaced::Refused(format!("{}: use PNG, JPEG, GIF or WebP", failure.message)));
            }
            Err(Fault::Refused(failure)) if failure.code == "content_too_large" => {
                let why = "it is larger than the web server before Ghost takes: send a smaller one";
                return Err(NotPlaced::Refused(why.to_owned()));
            }
            Err(fault) => return Err(NotPlaced::Failed(fault)),
        };
        let none =
            || NotPlaced::Failed(Fault::Unknown("Ghost answered without the image's address".to_owned()));
        url.map(|url| Placed { url, remote_id: None }).ok_or_else(none)
    }
}

impl Images<'_, '_> {
    /// Where it stands already, if an earlier try put it where Ghost keeps images by itself: in a folder of the month. Where
    /// they are kept elsewhere, nothing is found, and it is uploaded once more.
    async fn there(&self, image: &Image) -> Result<Option<String>, Fault> {
        for (year, month) in months(self.submitted_at, self.admin.now()) {
            let name = image.file_name();
            let url = format!("{}/content/images/{year:04}/{month:02}/{name}", self.admin.base);
            let limits = Limits { deadline: self.admin.left()?, answer_bytes: 1 };
            let call = Call { method: Method::Get, url: &url, headers: &[], body: Vec::new(), limits };
            let answer = self.admin.client.send(call).await;
            // A theme's page for what is not there is no image.
            let is_image = |kind: &str| kind.starts_with("image/");
            if answer.is_ok_and(|answer| {
                answer.status == 200 && answer.content_type.is_some_and(|kind| is_image(&kind))
            }) {
                return Ok(Some(url));
            }
        }
        Ok(None)
    }
}

/// The months in which an earlier try can have uploaded, the present one first: at most two, since a task that old has had
/// its tries.
fn months(submitted_at: DateTime<Utc>, now: DateTime<Utc>) -> Vec<(i32, u32)> {
    let present = (now.year(), now.month());
    let first = (submitted_at.year(), submitted_at.month());
    if first < present { vec![present, first] } else { vec![present] }
}

/// A form with the image (RFC 7578): its type, and its bytes. The boundary cannot stand in them, since it holds their hash.
fn form(image: &Image) -> (String, Vec<u8>) {
    let boundary = format!("pi-{}", &image.sha256[..32]);
    let (name, kind) = (image.file_name(), image.kind.mime());
    let mut body = format!(
        "--{boundary}\r\ncontent-disposition: form-data; name=\"purpose\"\r\n\r\nimage\r\n--{boundary}\r\n\
         content-disposition: form-data; name=\"file\"; filename=\"{name}\"\r\ncontent-type: {kind}\r\n\r\n"
    )
    .into_bytes();
    body.extend_from_slice(&image.bytes);
    body.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
    (format!("multipart/form-data; boundary={boundary}"), body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_looked_for_in_the_months_of_its_tries() {
        let at = |text: &str| format!("{text}T00:00:00Z").parse::<DateTime<Utc>>().unwrap();
        assert_eq!(months(at("2026-01-05"), at("2026-01-31")), [(2026, 1)]);
        assert_eq!(months(at("2025-12-31"), at("2026-01-01")), [(2026, 1), (2025, 12)]);
        assert_eq!(months(at("2026-02-01"), at("2026-01-31")), [(2026, 1)]);
    }

    #[test]
    fn a_form_holds_the_image_under_its_own_name() {
        let image = Image::of(b"GIF89a--\r\n".to_vec()).unwrap();
        let (kind, body) = form(&image);
        let boundary = kind.strip_prefix("multipart/form-data; boundary=").unwrap();
        let text = String::from_utf8(body).unwrap();
        let parts = text.split(&format!("--{boundary}")).collect::<Vec<_>>();
        assert_eq!(parts.len(), 4);
        assert_eq!(parts[3], "--\r\n");
        assert!(parts[2].contains(&format!("filename=\"{}\"", image.file_name())), "{}", parts[2]);
        assert!(parts[2].ends_with("\r\n\r\nGIF89a--\r\n\r\n"), "{}", parts[2]);
    }
}
