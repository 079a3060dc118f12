//! The door for callers: connections are let in, watched and ended within limits, whoever is behind them.
//!
//! A connection is closed when it is silent, when it sends the head of a request too slowly, when it does not take its
//! answer, and when it breaks off more requests than it lets finish ([`Progress`] decides, without a clock of its own).
//! When all places are taken, a newcomer gets the place of whoever waits longest without a request under way
//! ([`Places`]), so that no crowd of silent connections keeps others out. Bodies that are being read share one budget
//! of bytes ([`BodyRoom`]).
//!
//! [`Limits`] has what an operator can set; what nobody needs to set stands beside it as a constant.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::clock::SharedClock;

mod limits;
mod places;
mod progress;
mod room;
mod stream;
mod watched;

pub use limits::{
    ABANDONED_MAX, BODY_MAX_BYTES, BODY_RATE_MIN_BYTES, HEAD_MAX_BYTES, HEADERS_MAX, Limits, REQUESTS_MAX,
    STREAMS_MAX,
};
pub use places::{Places, network};
pub use progress::Progress;
pub use room::{BodyRoom, HeldRoom, NoRoom};

use limits::{
    CONNECTION_WINDOW_BYTES, HEAD_READ_MAX_BYTES, HEADER_LIST_MAX_BYTES, LOCAL_RESETS_MAX,
    PENDING_RESETS_MAX, STREAM_WINDOW_BYTES,
};
use places::Seat;
use stream::WatchedStream;
use watched::Watched;

/// How long a connection has for its farewell (HTTP/2: GOAWAY) when it is closed for being idle.
const FAREWELL: Duration = Duration::from_secs(1);

/// The pause after a connection could not be accepted, since files or memory are short: nothing is gained at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The whole answer, head and body, to a request that never reaches a handler, by its status.
pub type Refusal = Arc<dyn Fn(u16) -> Vec<u8> + Send + Sync>;

/// What a server is made from.
pub struct Door {
    /// How much callers may take.
    pub limits: Limits,
    /// Answers what cannot be read as HTTP, and who finds no place.
    pub refusal: Refusal,
    /// Measures.
    pub clock: SharedClock,
}

/// Serves until `stop`; then nobody is let in, and answers under way are given. Dropped, it ends all connections.
pub async fn serve(listener: TcpListener, router: Router, door: Door, stop: CancellationToken) {
    let door = Arc::new(door);
    let places = Places::new(door.limits.connections, door.limits.connections_per_address);
    let mut connections = JoinSet::new();
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        // Those that have ended are forgotten, or their number would only grow.
        while connections.try_join_next().is_some() {}
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                accept_failed(&error).await;
                continue;
            }
        };
        let Some(seat) = places.take(peer.ip(), door.clock.instant()) else {
            // What fits into the socket's buffer at once, which is all of it.
            let _ = stream.try_write(&(door.refusal)(503));
            continue;
        };
        let clock = door.clock.clone();
        let watched = Watched { router: router.clone(), watch: seat.watch(), peer, clock };
        connections.spawn(converse(stream, watched, door.clone(), seat, stop.clone()));
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn accept_failed(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    // Of these the caller has died of; of all others this machine is short.
    if !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
        tracing::error!(%error, "a connection cannot be accepted");
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}

/// One connection, from its first byte to its end.
async fn converse(stream: TcpStream, watched: Watched, door: Arc<Door>, seat: Seat, stop: CancellationToken) {
    let watch = seat.watch();
    let stream = TokioIo::new(WatchedStream::new(stream, watch.clone(), door.clone()));
    let builder = builder();
    let mut connection = pin!(builder.serve_connection(stream, TowerToHyperService::new(watched)));
    let mut stopping = false;
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(error, "a connection broke off");
                }
                return;
            }
            () = stop.cancelled(), if !stopping => {
                stopping = true;
                connection.as_mut().graceful_shutdown();
            }
            () = watch.shown_out() => break,
            () = tokio::time::sleep(door.limits.look()) => {
                if watch.lock().is_over(door.clock.instant(), &door.limits) {
                    break;
                }
            }
        }
    }
    if watch.lock().is_idle() {
        connection.as_mut().graceful_shutdown();
        let _ = tokio::time::timeout(FAREWELL, connection).await;
    }
}

/// HTTP/1.1 and, for who begins with its preface, HTTP/2. What hyper limits by default is limited here by name.
fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().max_buf_size(HEAD_READ_MAX_BYTES).half_close(false);
    builder
        .http2()
        .max_concurrent_streams(STREAMS_MAX)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_header_list_size(HEADER_LIST_MAX_BYTES)
        .max_pending_accept_reset_streams(PENDING_RESETS_MAX)
        .max_local_error_reset_streams(LOCAL_RESETS_MAX);
    builder
}
