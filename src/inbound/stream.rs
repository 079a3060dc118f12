//! The bytes of one connection: told to its [`Progress`](super::Progress), and a refusal in our words where the
//! library would send an empty one.
//!
//! What cannot be read as HTTP/1 never reaches a handler: the library answers it itself, with a status and no body, and
//! closes. Such an answer is known by its place, between requests, and by lacking the id that all of ours carry.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::Door;
use super::places::Watch;

/// The longest answer of the library's own, in bytes; it has a status, a date and a length.
const OWN_ANSWER_MAX_BYTES: usize = 256;

/// A connection's bytes.
pub(super) struct WatchedStream {
    stream: TcpStream,
    watch: Watch,
    door: Arc<Door>,
    /// A refusal that is being sent, and how much of it has been.
    refusal: Option<(Vec<u8>, usize)>,
}

impl WatchedStream {
    pub(super) fn new(stream: TcpStream, watch: Watch, door: Arc<Door>) -> Self {
        Self { stream, watch, door, refusal: None }
    }

    /// Sends ours instead of these bytes, if they are the library's own answer; none: they are not.
    fn poll_refuse(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Option<Poll<io::Result<usize>>> {
        if self.refusal.is_none() {
            let status = own_answer(bytes)?;
            if !self.watch.lock().is_unread() {
                return None;
            }
            self.refusal = Some(((self.door.refusal)(status), 0));
        }
        Some(self.poll_refusal(cx, bytes.len()))
    }

    fn poll_refusal(&mut self, cx: &mut Context<'_>, instead_of: usize) -> Poll<io::Result<usize>> {
        while let Some((text, sent)) = &mut self.refusal {
            if *sent == text.len() {
                self.refusal = None;
                break;
            }
            match ready!(Pin::new(&mut self.stream).poll_write(cx, &text[*sent..]))? {
                0 => return Poll::Ready(Ok(0)),
                more => *sent += more,
            }
        }
        Poll::Ready(Ok(instead_of))
    }
}

/// The status of an answer that the library gave by itself.
fn own_answer(bytes: &[u8]) -> Option<u16> {
    let text = str::from_utf8(bytes.get(..OWN_ANSWER_MAX_BYTES.min(bytes.len()))?).ok()?;
    let status = text.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let whole = bytes.len() == text.len() && text.ends_with("\r\n\r\n");
    let ours = text.contains("x-request-id:");
    (whole && !ours && (400..500).contains(&status)).then_some(status)
}

impl AsyncRead for WatchedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, buffer));
        if buffer.filled().len() > before {
            self.watch.lock().received(self.door.clock.instant());
        }
        Poll::Ready(read)
    }
}

impl AsyncWrite for WatchedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.poll_refuse(cx, bytes) {
            Some(refused) => refused,
            None => Pin::new(&mut self.stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match slices {
            [only] => self.poll_write(cx, only),
            _ => Pin::new(&mut self.stream).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_librarys_own_answers_are_known_as_such() {
        let own =
            "HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(own_answer(own.as_bytes()), Some(431));
        let (fine, ours) =
            (own.replace("431", "200"), own.replace("connection:", "x-request-id: a\r\nconnection:"));
        for other in [&fine, &ours, &format!("{own}{{}}"), "HTTP/1.1 4", "", "{\"HTTP/1.1 400 \": 1}\r\n\r\n"]
        {
            assert_eq!(own_answer(other.as_bytes()), None, "{other}");
        }
        let long = own.replace("connection:", &format!("x-a: {}\r\nconnection:", "x".repeat(300)));
        assert_eq!(own_answer(long.as_bytes()), None);
    }
}
