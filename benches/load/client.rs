//! A connection of HTTP/1.1 that is kept, as cheap as it can be: the driver shares the machine with what it measures.

use std::net::SocketAddr;
use std::ops::Range;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::Failed;

/// The most headers of an answer.
const HEADERS_MAX: usize = 32;

/// A connection to one server.
pub(crate) struct Connection {
    address: SocketAddr,
    stream: TcpStream,
    read: Vec<u8>,
}

/// An answer.
pub(crate) struct Answer<'a> {
    pub(crate) status: u16,
    pub(crate) body: &'a [u8],
}

impl Answer<'_> {
    /// Whether the body holds this text.
    pub(crate) fn holds(&self, text: &str) -> bool {
        self.body.windows(text.len()).any(|window| window == text.as_bytes())
    }

    /// How often the body holds this text.
    pub(crate) fn count(&self, text: &str) -> usize {
        self.body.windows(text.len()).filter(|window| *window == text.as_bytes()).count()
    }
}

/// Why there is no answer.
enum Trouble {
    /// The server ended the connection, and has said nothing of this request: it closes what lies idle.
    Closed,
    Other(Failed),
}

impl<E: Into<Failed>> From<E> for Trouble {
    fn from(other: E) -> Self {
        Self::Other(other.into())
    }
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> Result<Self, Failed> {
        let stream = connect(address).await?;
        Ok(Self { address, stream, read: Vec::with_capacity(16 * 1024) })
    }

    /// Sends a request, and reads its answer, which must say how long it is. A connection that the server has closed
    /// meanwhile is opened anew, once: servers keep none that nothing is sent on. An article that was accepted all the same would be
    /// seen, since it is not new then.
    pub(crate) async fn call(&mut self, request: &[u8]) -> Result<Answer<'_>, Failed> {
        let answer = match self.exchange(request).await {
            Err(Trouble::Closed) => {
                self.stream = connect(self.address).await?;
                self.exchange(request).await
            }
            answer => answer,
        };
        let (status, body) = answer.map_err(|trouble| match trouble {
            Trouble::Closed => "the connection was closed before an answer had come".into(),
            Trouble::Other(other) => other,
        })?;
        Ok(Answer { status, body: &self.read[body] })
    }

    /// The status of the answer, and where in what was read its body is.
    async fn exchange(&mut self, request: &[u8]) -> Result<(u16, Range<usize>), Trouble> {
        self.read.clear();
        let sent = self.stream.write_all(request).await;
        sent.map_err(|_| Trouble::Closed)?;
        loop {
            match self.stream.read_buf(&mut self.read).await {
                Ok(0) | Err(_) if self.read.is_empty() => return Err(Trouble::Closed),
                Ok(0) => return Err("the connection was closed within an answer".into()),
                read => read?,
            };
            let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
            let mut head = httparse::Response::new(&mut headers);
            let httparse::Status::Complete(begin) = head.parse(&self.read)? else { continue };
            let status = head.code.unwrap_or_default();
            let end = begin + content_length(head.headers)?;
            while self.read.len() < end {
                if self.stream.read_buf(&mut self.read).await? == 0 {
                    return Err("the connection was closed within an answer".into());
                }
            }
            return Ok((status, begin..end));
        }
    }
}

async fn connect(address: SocketAddr) -> Result<TcpStream, Failed> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// How long a body is, by its head.
pub(crate) fn content_length(headers: &[httparse::Header<'_>]) -> Result<usize, Failed> {
    let header = headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"));
    let value = header.ok_or("a message without content-length")?.value;
    Ok(std::str::from_utf8(value)?.parse()?)
}
