//! One call of `Stream`: many requests under way, answers in the order of the requests.
//!
//! A request takes its place in the store's order as soon as it is read. At most a fixed number is
//! under way; then nothing more is read and HTTP/2 holds the caller back. An answer's claims stand
//! from the moment it is handed to the transport; a caller who goes away makes the transport drop
//! this stream, and everything not handed over gives its claims back.

use std::{
    future::{self, Future},
    panic,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures_util::{FutureExt, Stream, StreamExt, stream::FuturesOrdered};
use tokio::{
    task::JoinHandle,
    time::{self, Sleep},
};
use tonic::{Status, Streaming};

use super::{
    deadline::Deadline,
    drain::{DrainWatch, InFlight, InFlightGuard},
    encode,
    operations::{Answer, Operations, unreadable},
    proto::{self as pb, stream_response::Result as Outcome},
    status::Fault,
    wire::{Encoded, Operation, Received, StreamRequest},
};
use crate::engine::RequestFault;

/// Requests of one stream under way at the same time: enough to hide the way to the store, few
/// enough that a stream of largest requests stays small.
const MAX_UNDER_WAY: usize = 16;

/// Batches of this size are finished by a task of their own, so that one stream keeps several cores
/// busy: reading and planning on one, deciding and writing answers on others. A smaller one costs
/// less than the way to another core and back.
const SPAWNED_EVENTS: usize = 100;

type Answering = Pin<Box<dyn Future<Output = (InFlightGuard, Outgoing)> + Send>>;

pub(super) struct Conversation {
    operations: Operations,
    in_flight: InFlight,
    /// `None` once the caller has said everything, or something that could not be read.
    requests: Option<Streaming<Received>>,
    under_way: FuturesOrdered<Answering>,
    /// What could not be read: the end of the stream, after the answers.
    unreadable: Option<Status>,
    deadline: Option<Pin<Box<Sleep>>>,
    drain: Pin<Box<dyn Future<Output = ()> + Send>>,
    ended: bool,
}

impl Conversation {
    pub(super) fn new(
        operations: Operations,
        in_flight: InFlight,
        requests: Streaming<Received>,
        deadline: Option<Deadline>,
        drain: DrainWatch,
    ) -> Self {
        Self {
            operations,
            in_flight,
            requests: Some(requests),
            under_way: FuturesOrdered::new(),
            unreadable: None,
            deadline: deadline.map(|Deadline(at)| Box::pin(time::sleep_until(at))),
            drain: Box::pin(drain.begun()),
            ended: false,
        }
    }

    /// Reads requests and begins them, until there is nothing to read or no more room.
    fn read(&mut self, context: &mut Context<'_>) {
        while self.under_way.len() < MAX_UNDER_WAY
            && let Some(requests) = &mut self.requests
        {
            match requests.poll_next_unpin(context) {
                Poll::Ready(Some(Ok(Received(request)))) => {
                    let in_flight = self.in_flight.enter();
                    match begin(&self.operations, &request, in_flight) {
                        Ok(answering) => self.under_way.push_back(answering),
                        Err(fault) => {
                            self.unreadable = Some(fault.into());
                            self.requests = None;
                        }
                    }
                }
                Poll::Ready(Some(Err(status))) => {
                    self.unreadable = Some(status);
                    self.requests = None;
                }
                Poll::Ready(None) => self.requests = None,
                Poll::Pending => return,
            }
        }
    }

    fn end(&mut self, status: Option<Status>) -> Poll<Option<Result<Encoded, Status>>> {
        self.ended = true;
        self.requests = None;
        self.under_way = FuturesOrdered::new();
        Poll::Ready(status.map(Err))
    }
}

impl Stream for Conversation {
    type Item = Result<Encoded, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if this.ended {
            return Poll::Ready(None);
        }
        if let Some(deadline) = &mut this.deadline
            && deadline.as_mut().poll(context).is_ready()
        {
            return this.end(Some(Fault::from(RequestFault::DeadlineExceeded).into()));
        }
        this.read(context);
        match this.under_way.poll_next_unpin(context) {
            Poll::Ready(Some((_in_flight, answer))) => Poll::Ready(Some(Ok(answer.deliver()))),
            Poll::Pending => Poll::Pending,
            Poll::Ready(None) if this.requests.is_none() => {
                let status = this.unreadable.take();
                this.end(status)
            }
            Poll::Ready(None) => match this.drain.as_mut().poll(context) {
                Poll::Ready(()) => this.end(Some(Fault::Draining.into())),
                Poll::Pending => Poll::Pending,
            },
        }
    }
}

/// Takes the request's place in the store's order before it returns; an error if it cannot be read,
/// and then nothing of it was claimed.
fn begin(
    operations: &Operations,
    request: &[u8],
    in_flight: InFlightGuard,
) -> Result<Answering, Fault> {
    let StreamRequest {
        batch_id,
        operation,
    } = StreamRequest::read(request).map_err(unreadable)?;
    let fault = match operation {
        Some(Operation::Admit(admit)) => match operations.admit(&admit) {
            Ok(admitting) => {
                let answering = async move {
                    let answer = match admitting.await {
                        Ok(answer) => Outgoing::Admission { batch_id, answer },
                        Err(fault) => Outgoing::fault(batch_id, fault),
                    };
                    (in_flight, answer)
                };
                return Ok(if admit.events().len() < SPAWNED_EVENTS {
                    Box::pin(answering)
                } else {
                    Box::pin(Spawned(tokio::spawn(answering)))
                });
            }
            Err(fault @ Fault::Request(RequestFault::Unreadable(_))) => return Err(fault),
            Err(fault) => fault,
        },
        Some(Operation::Settle(action, claims)) => match operations.settle(action, &claims) {
            Ok(settling) => {
                return Ok(Box::pin(async move {
                    let outcomes = encode::settled(action, settling.await);
                    (in_flight, Outgoing::result(batch_id, outcomes))
                }));
            }
            Err(fault) => fault,
        },
        None => RequestFault::NoOperation.into(),
    };
    let answer = Outgoing::fault(batch_id, fault);
    Ok(Box::pin(future::ready((in_flight, answer))))
}

/// A task that ends with its value.
struct Spawned<T>(JoinHandle<T>);

impl<T> Future for Spawned<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        match ready!(self.0.poll_unpin(context)) {
            Ok(output) => Poll::Ready(output),
            Err(ended) => match ended.try_into_panic() {
                Ok(cause) => panic::resume_unwind(cause),
                // The runtime is going down, and this with it.
                Err(_) => Poll::Pending,
            },
        }
    }
}

impl<T> Drop for Spawned<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// An answer that waits for those before it.
enum Outgoing {
    /// Its claims do not stand yet.
    Admission {
        batch_id: u64,
        answer: Answer,
    },
    Other(Encoded),
}

impl Outgoing {
    fn result(batch_id: u64, result: Outcome) -> Self {
        let response = pb::StreamResponse {
            batch_id,
            result: Some(result),
        };
        Self::Other(response.into())
    }

    /// A fault is an answer like any other: the stream lives on.
    fn fault(batch_id: u64, fault: Fault) -> Self {
        Self::result(batch_id, Outcome::Error(fault.into()))
    }

    fn deliver(self) -> Encoded {
        match self {
            Self::Admission { batch_id, answer } => answer.deliver().on_stream(batch_id),
            Self::Other(encoded) => encoded,
        }
    }
}
