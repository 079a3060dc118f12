//! What an image is, judged by its first bytes: not by its name, nor by what its server says.

/// The kinds of image that are taken. SVG is none of them: it is a program, which runs where the image is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// JPEG (ISO 10918-1).
    Jpeg,
    /// PNG (RFC 2083).
    Png,
    /// GIF, of 1987 and of 1989.
    Gif,
    /// WebP (RFC 9649).
    Webp,
    /// AVIF, still or a sequence.
    Avif,
}

/// Bytes that are no image which is taken. The texts follow the image's name and a colon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotTaken {
    /// Nothing at all.
    #[error("it is empty: replace the image")]
    Empty,
    /// SVG, or other XML.
    #[error("SVG is not taken, since it can hold programs: use PNG, JPEG, GIF, WebP or AVIF")]
    Svg,
    /// Anything else.
    #[error("its content is no image that is taken: use PNG, JPEG, GIF, WebP or AVIF")]
    Other,
}

/// How far the brands of an ISO media file are read, in bytes: AVIF files list fewer than ten, of four bytes each.
const BRANDS_MAX: usize = 256;

impl Kind {
    /// The kind of an image, by the mark that its format begins with. Nothing is decoded: an image that would unfold
    /// to gigabytes is as cheap as any, and one that is broken behind its mark is not noticed.
    pub fn of(bytes: &[u8]) -> Result<Self, NotTaken> {
        if bytes.is_empty() {
            Err(NotTaken::Empty)
        } else if bytes.starts_with(&[0xff, 0xd8, 0xff]) {
            Ok(Self::Jpeg)
        } else if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
            Ok(Self::Png)
        } else if bytes.starts_with(b"GIF87a") || bytes.starts_with(b"GIF89a") {
            Ok(Self::Gif)
        } else if bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") {
            Ok(Self::Webp)
        } else if is_avif(bytes) {
            Ok(Self::Avif)
        } else if is_markup(bytes) {
            Err(NotTaken::Svg)
        } else {
            Err(NotTaken::Other)
        }
    }

    /// The media type, as IANA lists it.
    #[must_use]
    pub fn mime(self) -> &'static str {
        match self {
            Self::Jpeg => "image/jpeg",
            Self::Png => "image/png",
            Self::Gif => "image/gif",
            Self::Webp => "image/webp",
            Self::Avif => "image/avif",
        }
    }

    /// The usual end of a file's name, without the dot.
    #[must_use]
    pub fn extension(self) -> &'static str {
        match self {
            Self::Jpeg => "jpg",
            Self::Png => "png",
            Self::Gif => "gif",
            Self::Webp => "webp",
            Self::Avif => "avif",
        }
    }
}

/// Whether the `ftyp` box names AVIF among its brands (AVIF specification §6): the size of the box, `ftyp`, the major
/// brand, a version, and the compatible brands.
fn is_avif(bytes: &[u8]) -> bool {
    let Some((size, rest)) = bytes.split_first_chunk::<4>() else { return false };
    let size = usize::try_from(u32::from_be_bytes(*size)).unwrap_or(usize::MAX).min(BRANDS_MAX);
    let Some(brands) = rest.strip_prefix(b"ftyp") else { return false };
    let brands = &brands[..brands.len().min(size.saturating_sub(8))];
    let named = brands.chunks_exact(4).enumerate().filter(|(at, _)| *at != 1);
    named.into_iter().any(|(_, brand)| brand == b"avif" || brand == b"avis")
}

/// Whether it begins as SVG does, after a byte order mark and blanks: with a tag or a declaration. HTML does too, and
/// is told so as well as can be told from a few bytes.
fn is_markup(bytes: &[u8]) -> bool {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes).trim_ascii_start();
    let begins = |mark: &[u8]| bytes.get(..mark.len()).is_some_and(|head| head.eq_ignore_ascii_case(mark));
    begins(b"<svg") || begins(b"<?xml") || begins(b"<!doctype svg")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_decide() {
        for (bytes, kind) in [
            (&b"\xff\xd8\xff\xe0\0\x10JFIF"[..], Kind::Jpeg),
            (b"\xff\xd8\xff\xe1..Exif", Kind::Jpeg),
            (b"\x89PNG\r\n\x1a\n", Kind::Png),
            (b"GIF87a", Kind::Gif),
            (b"GIF89a;<html>", Kind::Gif),
            (b"RIFF\x24\0\0\0WEBPVP8 ", Kind::Webp),
            (b"\0\0\0\x1cftypavif\0\0\0\0avifmif1miaf", Kind::Avif),
            (b"\0\0\0\x1cftypmif1\0\0\0\0miafMA1Bavif", Kind::Avif),
            (b"\0\0\0\x14ftypavis\0\0\0\0msf1", Kind::Avif),
        ] {
            assert_eq!(Kind::of(bytes), Ok(kind), "{}", bytes.escape_ascii());
        }
        let svg = [
            &b"<svg xmlns='http://www.w3.org/2000/svg'>"[..],
            b"\xef\xbb\xbf \n<SVG>",
            b"<?xml version='1.0'?><!-- GIF89a --><svg>",
            b"<!DOCTYPE svg PUBLIC>",
        ];
        for bytes in svg {
            assert_eq!(Kind::of(bytes), Err(NotTaken::Svg), "{}", bytes.escape_ascii());
        }
        assert_eq!(Kind::of(b""), Err(NotTaken::Empty));
        for bytes in [
            &b"\xff\xd8"[..],
            b"\x89PNG\n\x1a\n",
            b"GIF88a",
            b" GIF89a",
            b"RIFF\x24\0\0\0WAVEfmt ",
            b"RIFF",
            b"\0\0\0\x18ftypheic\0\0\0\0mif1heic",
            b"\0\0\0\x18ftypisom\0\0\0\0mp42avc1",
            // The version is no brand, and what stands behind the box is none either.
            b"\0\0\0\x14ftypmif1avifmiaf",
            b"\0\0\0\x14ftypmif1\0\0\0\0miafavif",
            b"\0\0\0\x04ftypavif",
            b"<!doctype html><svg>",
            b"<html>",
            b"%PDF-1.7",
            b"BM6\0\0\0",
            b"\0\0\x01\0",
            b"II*\0",
            b"<",
        ] {
            assert_eq!(Kind::of(bytes), Err(NotTaken::Other), "{}", bytes.escape_ascii());
        }
    }
}
