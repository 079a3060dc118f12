//! The service of one connection, which tells its [`Progress`](super::Progress) of requests and answers.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::ConnectInfo;
use axum::http::{Request, Response, Version};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use tower::Service;

use super::places::Watch;
use crate::clock::SharedClock;

/// The routes, for one connection.
#[derive(Clone)]
pub(super) struct Watched {
    pub(super) router: Router,
    pub(super) watch: Watch,
    pub(super) peer: SocketAddr,
    pub(super) clock: SharedClock,
}

impl Service<Request<Incoming>> for Watched {
    type Response = Response<WatchedBody>;
    type Error = std::convert::Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Service::<Request<Incoming>>::poll_ready(&mut self.router, cx)
    }

    fn call(&mut self, mut request: Request<Incoming>) -> Self::Future {
        self.watch.lock().request_begun(request.version() == Version::HTTP_2);
        let (watch, clock) = (self.watch.clone(), self.clock.clone());
        let mut under_way = UnderWay { watch, clock, reached: Reached::Handler };
        request.extensions_mut().insert(ConnectInfo(self.peer));
        let answer = self.router.call(request);
        Box::pin(async move {
            let answer = answer.await?;
            let now = under_way.clock.instant();
            under_way.watch.lock().answer_begun(now);
            under_way.reached = Reached::Answer(now);
            Ok(answer.map(|body| WatchedBody { body, under_way }))
        })
    }
}

/// How far a request has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reached {
    Handler,
    /// Being sent since then.
    Answer(Instant),
    /// Sent, since then.
    End(Instant),
}

/// A request; dropped before its end, it is abandoned.
struct UnderWay {
    watch: Watch,
    clock: SharedClock,
    reached: Reached,
}

impl UnderWay {
    fn end(&mut self) {
        if let Reached::Answer(since) = self.reached {
            self.reached = Reached::End(since);
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let now = self.clock.instant();
        match self.reached {
            Reached::End(since) => self.watch.lock().answered(since, now),
            Reached::Answer(since) => self.watch.abandoned(Some(since), now),
            Reached::Handler => self.watch.abandoned(None, now),
        }
    }
}

/// The body of an answer.
pub(super) struct WatchedBody {
    body: Body,
    under_way: UnderWay,
}

impl Drop for WatchedBody {
    fn drop(&mut self) {
        // Nobody asks for the end of a body that says where it is.
        if self.body.is_end_stream() {
            self.under_way.end();
        }
    }
}

impl HttpBody for WatchedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(None) = frame {
            self.under_way.end();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
