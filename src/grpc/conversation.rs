//! One call of `Stream`: many requests under way, answers in the order of the requests.
//!
//! A request takes its place in the store's order as soon as it is read. At most a fixed number is
//! under way; then nothing more is read and HTTP/2 holds the caller back. An answer's claims stand
//! from the moment it is handed to the transport; a caller who goes away makes the transport drop
//! this stream, and everything not handed over gives its claims back.

use std::{
    future::{self, Future},
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures_util::{FutureExt, Stream, StreamExt, TryFutureExt, stream::FuturesOrdered};
use tokio::time::{self, Sleep};
use tonic::{Status, Streaming};

use super::{
    deadline::Deadline,
    drain::{DrainWatch, InFlight, InFlightGuard},
    operations::{Answer, Operations},
    proto::{self as pb, stream_request::Operation, stream_response::Result as Outcome},
    status::Fault,
};
use crate::{domain::claim::SettleAction, engine::RequestFault};

/// Requests of one stream under way at the same time: enough to hide the way to the store, few
/// enough that a stream of largest requests stays small.
const MAX_UNDER_WAY: usize = 16;

type Answering = Pin<Box<dyn Future<Output = (InFlightGuard, Answer<pb::StreamResponse>)> + Send>>;

pub(super) struct Conversation {
    operations: Operations,
    in_flight: InFlight,
    /// `None` once the caller has said everything, or something that could not be read.
    requests: Option<Streaming<pb::StreamRequest>>,
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
        requests: Streaming<pb::StreamRequest>,
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
                Poll::Ready(Some(Ok(request))) => {
                    let in_flight = self.in_flight.enter();
                    self.under_way
                        .push_back(begin(&self.operations, request, in_flight));
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

    fn end(&mut self, status: Option<Status>) -> Poll<Option<Result<pb::StreamResponse, Status>>> {
        self.ended = true;
        self.requests = None;
        self.under_way = FuturesOrdered::new();
        Poll::Ready(status.map(Err))
    }
}

impl Stream for Conversation {
    type Item = Result<pb::StreamResponse, Status>;

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

/// Takes the request's place in the store's order before it returns.
fn begin(
    operations: &Operations,
    request: pb::StreamRequest,
    in_flight: InFlightGuard,
) -> Answering {
    let pb::StreamRequest {
        batch_id,
        operation,
    } = request;
    let settle = |action, claims: &[Bytes], outcome: fn(Vec<i32>) -> Outcome| {
        let settling = operations.settle(action, claims);
        settling.map(|settling| {
            settling.map(move |outcomes| Ok(Answer::without_claims(outcome(outcomes))))
        })
    };
    match operation {
        Some(Operation::Admit(admit)) => {
            let admitting = operations.admit(&admit);
            let answer =
                admitting.map(|admitting| admitting.map_ok(|answer| answer.map(Outcome::Admit)));
            answering(batch_id, in_flight, answer)
        }
        Some(Operation::Confirm(confirm)) => {
            let outcome = |outcomes| Outcome::Confirm(pb::ConfirmResponse { outcomes });
            answering(
                batch_id,
                in_flight,
                settle(SettleAction::Confirm, &confirm.claims, outcome),
            )
        }
        Some(Operation::Release(release)) => {
            let outcome = |outcomes| Outcome::Release(pb::ReleaseResponse { outcomes });
            answering(
                batch_id,
                in_flight,
                settle(SettleAction::Release, &release.claims, outcome),
            )
        }
        Some(Operation::Renew(renew)) => {
            let outcome = |outcomes| Outcome::Renew(pb::RenewResponse { outcomes });
            answering(
                batch_id,
                in_flight,
                settle(SettleAction::Renew, &renew.claims, outcome),
            )
        }
        None => {
            let refused: Result<future::Pending<_>, _> = Err(RequestFault::NoOperation.into());
            answering(batch_id, in_flight, refused)
        }
    }
}

/// A fault becomes an answer like any other: the stream lives on.
fn answering(
    batch_id: u64,
    in_flight: InFlightGuard,
    begun: Result<impl Future<Output = Result<Answer<Outcome>, Fault>> + Send + 'static, Fault>,
) -> Answering {
    Box::pin(async move {
        let outcome = match begun {
            Ok(finish) => finish.await,
            Err(fault) => Err(fault),
        };
        let answer =
            outcome.unwrap_or_else(|fault| Answer::without_claims(Outcome::Error(fault.into())));
        let answer = answer.map(|result| pb::StreamResponse {
            batch_id,
            result: Some(result),
        });
        (in_flight, answer)
    })
}
