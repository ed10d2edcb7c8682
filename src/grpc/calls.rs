//! What surrounds every call: it is counted while it is in flight, and dropped at its deadline. Calls
//! of `DedupService` go to it straight from here, past the router of all the others.
//!
//! Dropping is what gives claims back, so a call whose time is up is dropped before it is answered.
//! This is a layer around all routes and not around each service: routes begin a call only when
//! its future is first polled, and then tonic's own timer would have the start.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
};

use axum::http::{Request, Response};
use futures_util::future::{BoxFuture, Either};
use tokio::time::{self, Instant, Sleep};
use tonic::{Status, body::Body};
use tower::{Layer, Service};

use super::{
    deadline::{self, Deadline, HEAD_START},
    dedup_service::Dedup,
    drain::{InFlight, InFlightGuard},
    server::dedup_service_server::DedupServiceServer,
    status::Fault,
};
use crate::engine::RequestFault;

/// Paths of the services whose calls a drain waits for; health and reflection are not among them.
const COUNTED: &str = "/dedupd.";
const DEDUP: &str = "/dedupd.v1.DedupService/";

/// Goes around the routes, by `Server::layer`.
#[derive(Clone, Debug)]
pub struct CallsLayer {
    dedup: DedupServiceServer<Dedup>,
    in_flight: InFlight,
}

impl CallsLayer {
    pub(super) fn new(dedup: DedupServiceServer<Dedup>, in_flight: InFlight) -> Self {
        Self { dedup, in_flight }
    }
}

impl<S> Layer<S> for CallsLayer {
    type Service = Calls<S>;

    fn layer(&self, service: S) -> Calls<S> {
        Calls {
            service,
            dedup: self.dedup.clone(),
            in_flight: self.in_flight.clone(),
        }
    }
}

/// The calls of one connection whose answers have not begun.
#[derive(Clone, Debug, Default)]
pub struct OpenCalls(Arc<AtomicUsize>);

impl OpenCalls {
    pub fn are_any(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    pub fn enter(&self) -> OpenCall {
        self.0.fetch_add(1, Ordering::Relaxed);
        OpenCall(self.clone())
    }
}

/// A call whose answer has not begun.
#[derive(Debug)]
#[must_use = "the call is open while this lives"]
pub struct OpenCall(OpenCalls);

impl Drop for OpenCall {
    fn drop(&mut self) {
        let OpenCalls(calls) = &self.0;
        calls.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A service with its calls watched.
#[derive(Clone, Debug)]
pub struct Calls<S> {
    service: S,
    dedup: DedupServiceServer<Dedup>,
    in_flight: InFlight,
}

impl<S> Service<Request<Body>> for Calls<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Unpin,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Call<Answering<S::Future>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(context)
    }

    /// `DedupService` is always ready.
    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let open = request.extensions().get().map(OpenCalls::enter);
        let counted = request.uri().path().starts_with(COUNTED);
        let in_flight = counted.then(|| self.in_flight.enter());
        let (answer, deadline) = match deadline::timeout(request.headers()) {
            None => (Some(self.answer(request)), None),
            Some(timeout) if timeout <= HEAD_START => (None, None),
            Some(timeout) => {
                let deadline = Box::pin(time::sleep(timeout - HEAD_START));
                request
                    .extensions_mut()
                    .insert(Deadline(deadline.deadline()));
                (Some(self.answer(request)), Some(deadline))
            }
        };
        Call {
            answer,
            deadline,
            open,
            _in_flight: in_flight,
        }
    }
}

impl<S: Service<Request<Body>>> Calls<S> {
    fn answer(&mut self, request: Request<Body>) -> Answering<S::Future> {
        if request.uri().path().starts_with(DEDUP) {
            Either::Left(self.dedup.call(request))
        } else {
            Either::Right(self.service.call(request))
        }
    }
}

type Answering<F> = Either<BoxFuture<'static, Result<Response<Body>, Infallible>>, F>;

/// A call under way; without an answer to wait for its time is up.
#[derive(Debug)]
pub struct Call<F> {
    answer: Option<F>,
    deadline: Option<Pin<Box<Sleep>>>,
    open: Option<OpenCall>,
    _in_flight: Option<InFlightGuard>,
}

impl<F> Future for Call<F>
where
    F: Future<Output = Result<Response<Body>, Infallible>> + Unpin,
{
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let call = &mut *self;
        if let Some(answer) = &mut call.answer {
            if let Poll::Ready(answered) = Pin::new(answer).poll(context) {
                call.open = None;
                return Poll::Ready(answered);
            }
            // The timer only wakes: when it is late, tonic's may run out between two looks at them.
            match &mut call.deadline {
                Some(deadline) if Instant::now() >= deadline.deadline() => {}
                Some(deadline) => ready!(deadline.as_mut().poll(context)),
                None => return Poll::Pending,
            }
        }
        call.answer = None;
        Poll::Ready(Ok(Status::from(Fault::from(
            RequestFault::DeadlineExceeded,
        ))
        .into_http()))
    }
}
