//! A connection of a caller who sends what it likes: HTTP/1.1 by hand, since a client's library would refuse most of it.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The longest answer, in bytes: the largest is the description of the API.
const ANSWER_MAX_BYTES: usize = 4 * 1024 * 1024;

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Its lines in lower case.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

/// A connection that is kept, and made anew when the service has closed it.
pub(crate) struct Connection {
    address: SocketAddr,
    stream: Option<TcpStream>,
}

impl Connection {
    pub(crate) fn to(address: SocketAddr) -> Self {
        Self { address, stream: None }
    }

    /// Sends a request that is framed as it should be; none if the service closed the connection instead of answering.
    pub(crate) async fn ask(&mut self, request: &[u8]) -> Option<Answer> {
        let kept = self.stream.take();
        let fresh = kept.is_none();
        let mut stream = match kept {
            Some(stream) => stream,
            None => TcpStream::connect(self.address).await.unwrap(),
        };
        let answer = match stream.write_all(request).await {
            Ok(()) => read(&mut stream).await,
            Err(_) => None,
        };
        match answer {
            // A kept connection may have been closed meanwhile.
            None if !fresh => Box::pin(self.ask(request)).await,
            None => None,
            Some(answer) => {
                if !answer.head.contains("\r\nconnection: close") {
                    self.stream = Some(stream);
                }
                Some(answer)
            }
        }
    }
}

async fn read(stream: &mut TcpStream) -> Option<Answer> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
    assert!(!head.contains("transfer-encoding"), "an answer of unknown length: {head}");
    let whole = end + length.unwrap_or(0);
    assert!(whole < ANSWER_MAX_BYTES, "an answer without measure: {head}");
    while bytes.len() < whole {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    Some(Answer { status, head, body: bytes.split_off(end) })
}

/// Sends bytes on a connection of their own and nothing more, and returns all that comes.
pub(crate) async fn pour(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let (mut reads, mut writes) = stream.split();
    let write = async {
        // The service may hang up before it has heard all.
        let _ = writes.write_all(bytes).await;
        let _ = writes.shutdown().await;
    };
    let read = async {
        let mut answer = Vec::new();
        while answer.len() < ANSWER_MAX_BYTES && reads.read_buf(&mut answer).await.is_ok_and(|read| read > 0)
        {
        }
        answer
    };
    tokio::join!(write, read).1
}
