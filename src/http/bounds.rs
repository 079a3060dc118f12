//! The bounds of a request, before anybody reads it: its head, the requests beside it, and its body's time and room.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, MatchedPath, Request, State};
use axum::http::{StatusCode, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::Semaphore;
use tokio::time::Sleep;

use super::problem::{Kind, Problem};
use crate::clock::SharedClock;
use crate::inbound::{
    BODY_MAX_BYTES, BODY_RATE_MIN_BYTES, BodyRoom, HEAD_MAX_BYTES, HEADERS_MAX, HeldRoom, Limits, NoRoom,
    Refusal, network,
};

mod under_way;

use under_way::{Placed, UnderWay};

/// How much of a body that is too large is still read, in bytes, so that the caller gets the answer and no reset.
const DRAIN_MAX_BYTES: usize = 64 * 1024 * 1024;

/// How long it is read.
const DRAIN_MAX: Duration = Duration::from_secs(5);

/// After how many bytes of it others have a turn, and for how long: it is read at 25 MiB a second at most.
const DRAIN_TURN_BYTES: usize = 256 * 1024;

/// See [`DRAIN_TURN_BYTES`].
const DRAIN_PAUSE: Duration = Duration::from_millis(10);

/// How many such bodies are read at once; whoever comes beside these may get a reset: a flood of them costs no more.
const DRAINED_AT_ONCE_MAX: usize = 4;

/// How many batches are taken apart and written at once: 4,000 articles are what the writers store in a third of a second, and
/// one that waits for them takes some KiB, however short it is.
const BATCHES_AT_ONCE_MAX: usize = 8;

/// Routes that answer however much is under way: whoever watches over the node asks there.
const ALWAYS: [&str; 2] = ["/healthz", "/metrics"];

/// The bounds of all requests of a node; cheap to clone.
#[derive(Clone)]
pub struct Bounds {
    room: BodyRoom,
    body_within: Duration,
    under_way: UnderWay,
    drained: Arc<Semaphore>,
    /// A place for each batch that is taken apart.
    pub(super) batches: Arc<Semaphore>,
}

impl Bounds {
    /// The bounds that these limits draw.
    #[must_use]
    pub fn new(limits: &Limits) -> Self {
        Self {
            room: BodyRoom::new(limits.body_memory_bytes.saturating_sub(BODY_MAX_BYTES)),
            body_within: limits.body_within,
            under_way: UnderWay::default(),
            drained: Arc::new(Semaphore::new(DRAINED_AT_ONCE_MAX)),
            batches: Arc::new(Semaphore::new(BATCHES_AT_ONCE_MAX)),
        }
    }
}

/// Answers what never reaches a handler, with a problem document and an id like every other answer.
pub fn refusal(clock: SharedClock) -> Refusal {
    Arc::new(move |status| {
        let problem = match status {
            503 => Problem::new(
                Kind::Unavailable,
                "this node takes no more connections now, or none from your address, and all are at work; send the same request again, it is safe",
            ),
            414 | 431 => head_too_large(),
            _ => Problem::new(
                Kind::InvalidHeader,
                "this is no HTTP/1.1: see the request's first line and its headers",
            ),
        };
        let request_id = clock.new_id().to_string();
        tracing::info!(
            status = problem.status().as_u16(),
            code = problem.code(),
            request_id,
            "refused unread"
        );
        problem.written_out(&request_id)
    })
}

fn head_too_large() -> Problem {
    let detail = format!(
        "send a target and headers of at most {HEAD_MAX_BYTES} bytes in all, and at most {HEADERS_MAX} headers"
    );
    Problem::new(Kind::HeadTooLarge, detail)
}

/// Keeps a request within bounds. What its body takes is held until there is an answer.
pub(super) async fn keep(State(bounds): State<Bounds>, request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>();
    let always = route.is_some_and(|route| ALWAYS.contains(&route.as_str()));
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    let place = bounds.under_way.take(peer.map(|ConnectInfo(peer)| network(peer.ip())));
    if place.is_none() && !always {
        return Problem::unavailable().into_response();
    }
    let response = answer(&bounds, request, next).await;
    response.map(|body| Body::new(Placed { body, _place: place }))
}

async fn answer(bounds: &Bounds, request: Request, next: Next) -> Response {
    if is_head_too_large(&request) {
        return head_too_large().into_response();
    }
    // RFC 9112 §3.2: without it, or with two, others on the way may read another request.
    if request.version() == Version::HTTP_11 && request.headers().get_all(header::HOST).iter().count() != 1 {
        return Problem::new(Kind::InvalidHeader, "send the header Host, once").into_response();
    }
    let expects = request.headers().contains_key(header::EXPECT);
    let (parts, body) = request.into_parts();
    if body.is_end_stream() {
        return next.run(Request::from_parts(parts, body)).await;
    }
    let shared = Arc::new(Mutex::new(Received { body, held: Some(HeldRoom::default()) }));
    let received = ReceivedBody {
        shared: shared.clone(),
        room: bounds.room.clone(),
        until: Box::pin(tokio::time::sleep(bounds.body_within)),
        waiting: None,
    };
    let response = next.run(Request::from_parts(parts, Body::new(received))).await;
    // Too large, or no room for it: there is more to come. Who waits to be asked for its body has sent none of it.
    if matches!(response.status(), StatusCode::PAYLOAD_TOO_LARGE | StatusCode::SERVICE_UNAVAILABLE)
        && !expects
        && let Ok(_place) = bounds.drained.try_acquire()
    {
        lock(&shared).held = None;
        let _ = tokio::time::timeout(DRAIN_MAX, drain(&shared)).await;
    }
    response
}

fn is_head_too_large(request: &Request) -> bool {
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    let headers = request.headers();
    let bytes = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum::<usize>();
    headers.len() > HEADERS_MAX || target + bytes > HEAD_MAX_BYTES
}

async fn drain(shared: &Mutex<Received>) {
    let (mut read, mut turn) = (0, 0);
    let next = || std::future::poll_fn(|cx| Pin::new(&mut lock(shared).body).poll_frame(cx));
    while let Some(Ok(frame)) = next().await {
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        (read, turn) = (read + bytes, turn + bytes);
        if read > DRAIN_MAX_BYTES {
            return;
        }
        if turn > DRAIN_TURN_BYTES {
            turn = 0;
            tokio::time::sleep(DRAIN_PAUSE).await;
        }
    }
}

/// A body as it comes, and the room it holds.
struct Received {
    body: Body,
    /// None while more is being asked for.
    held: Option<HeldRoom>,
}

fn lock(shared: &Mutex<Received>) -> MutexGuard<'_, Received> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why a body ended before it was complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum Broken {
    #[error("the caller has gone away")]
    Gone,
    #[error("it came too slowly")]
    TooSlow,
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
}

/// The problem that reading a body ended in.
pub(super) fn broken(error: axum::Error) -> Problem {
    match error.into_inner().downcast_ref::<Broken>() {
        Some(Broken::TooSlow) => Problem::new(
            Kind::RequestTimeout,
            format!(
                "the body came too slowly; send it at {} KiB a second or more",
                BODY_RATE_MIN_BYTES / 1024
            ),
        ),
        Some(Broken::NoRoom(_)) => Problem::new(
            Kind::Unavailable,
            "too many large bodies are being received; send the same request again, it is safe",
        ),
        Some(Broken::Gone) | None => Problem::new(Kind::InvalidJson, "the body ended before it was complete"),
    }
}

type Waiting = Pin<Box<dyn Future<Output = Result<HeldRoom, NoRoom>> + Send>>;

/// A body that comes within its time and its room.
struct ReceivedBody {
    shared: Arc<Mutex<Received>>,
    room: BodyRoom,
    /// Moves ahead by what has come.
    until: Pin<Box<Sleep>>,
    /// Room for a frame that has come, and that frame.
    waiting: Option<(Waiting, Bytes)>,
}

impl HttpBody for ReceivedBody {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = &mut *self;
        if this.waiting.is_none() {
            // First what has come: a body that is complete is not too late.
            let polled = Pin::new(&mut lock(&this.shared).body).poll_frame(cx);
            let Poll::Ready(frame) = polled else {
                ready!(this.until.as_mut().poll(cx));
                return Poll::Ready(Some(Err(Broken::TooSlow)));
            };
            let data = match frame.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => data,
                // Nobody reads trailers.
                Some(Ok(Err(_))) | None => return Poll::Ready(None),
                Some(Err(_)) => return Poll::Ready(Some(Err(Broken::Gone))),
            };
            let earned =
                Duration::from_secs(1) * u32::try_from(data.len()).unwrap_or(u32::MAX) / BODY_RATE_MIN_BYTES;
            let until = this.until.deadline() + earned;
            this.until.as_mut().reset(until);
            let (room, held) = (this.room.clone(), lock(&this.shared).held.take().unwrap_or_default());
            let more = data.len();
            this.waiting = Some((Box::pin(async move { room.add(held, more).await }), data));
        }
        let Some((waiting, _)) = &mut this.waiting else { return Poll::Ready(None) };
        let held = ready!(waiting.as_mut().poll(cx));
        let data = this.waiting.take().map(|(_, data)| data).unwrap_or_default();
        lock(&this.shared).held = Some(held?);
        Poll::Ready(Some(Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        self.waiting.is_none() && lock(&self.shared).body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        lock(&self.shared).body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// A body of these pieces, a second apart.
    struct Dripping {
        pieces: VecDeque<usize>,
        next: Pin<Box<Sleep>>,
    }

    impl HttpBody for Dripping {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            ready!(self.next.as_mut().poll(cx));
            let Some(bytes) = self.pieces.pop_front() else { return Poll::Ready(None) };
            let next = self.next.deadline() + Duration::from_secs(1);
            self.next.as_mut().reset(next);
            Poll::Ready(Some(Ok(Frame::data(vec![0; bytes].into()))))
        }
    }

    /// How much of such a body comes, and what ends it.
    async fn received(pieces: impl IntoIterator<Item = usize>, bounds: &Bounds) -> (usize, Option<String>) {
        let next = Box::pin(tokio::time::sleep(Duration::ZERO));
        let body = Body::new(Dripping { pieces: pieces.into_iter().collect(), next });
        let mut body = ReceivedBody {
            shared: Arc::new(Mutex::new(Received { body, held: None })),
            room: bounds.room.clone(),
            until: Box::pin(tokio::time::sleep(bounds.body_within)),
            waiting: None,
        };
        let mut bytes = 0;
        loop {
            match std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
                Some(Ok(frame)) => bytes += frame.data_ref().map_or(0, Bytes::len),
                Some(Err(broken)) => return (bytes, Some(broken.to_string())),
                None => return (bytes, None),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_earns_time_by_what_has_come() {
        let bounds = Bounds::new(&Limits::DEFAULT);
        let slow = Some("it came too slowly".to_owned());
        // One byte a second, for ever: the first at once, and 20 seconds.
        assert_eq!(received(std::iter::repeat_n(1, 1_000), &bounds).await, (21, slow.clone()));
        let rate = BODY_RATE_MIN_BYTES as usize;
        assert_eq!(received(std::iter::repeat_n(rate, 300), &bounds).await, (300 * rate, None));
        let (bytes, why) = received(std::iter::repeat_n(rate / 2, 300), &bounds).await;
        assert!((39..=41).contains(&(bytes / (rate / 2))) && why == slow, "{bytes} {why:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_without_room_is_refused() {
        let bounds = Bounds::new(&Limits::DEFAULT);
        let largest = async || bounds.room.add(HeldRoom::default(), BODY_MAX_BYTES).await.unwrap();
        let all = (largest().await, largest().await);
        let (bytes, why) = received([100_000], &bounds).await;
        assert_eq!((bytes, why.as_deref()), (0, Some("too many bodies are being received")));
        drop(all);
        assert_eq!(received([100_000], &bounds).await, (100_000, None));
    }
}
