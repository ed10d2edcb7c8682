//! The four operations, the same for a unary call and for a request on a stream.
//!
//! Each is begun synchronously, which takes its place in the store's order, and finished by a
//! future that can be dropped at any time.

use std::{
    any::Any,
    future::Future,
    panic::{self, AssertUnwindSafe},
    sync::Arc,
};

use bytes::Bytes;
use futures_util::FutureExt;

use super::{bound, decode, encode, proto as pb, status::Fault};
use crate::{
    domain::claim::SettleAction,
    engine::{
        Engine, RequestFault,
        admit::{Admission, Admitting},
        settle::Settlement,
    },
};

#[derive(Clone, Debug)]
pub(super) struct Operations {
    pub(super) engine: Arc<Engine>,
    pub(super) max_response_bytes: usize,
}

/// An answer that is still here. Dropped, it gives back the claims that it tells of.
#[derive(Debug)]
pub(super) struct Answer<T> {
    message: T,
    admission: Option<Admission>,
}

impl Answer<pb::AdmitResponse> {
    fn to(admission: Admission, omit_claims: bool) -> Self {
        let message = encode::admission(&admission, omit_claims);
        Self {
            message,
            admission: Some(admission),
        }
    }
}

impl<T> Answer<T> {
    pub(super) const fn without_claims(message: T) -> Self {
        Self {
            message,
            admission: None,
        }
    }

    pub(super) fn map<U>(self, change: impl FnOnce(T) -> U) -> Answer<U> {
        Answer {
            message: change(self.message),
            admission: self.admission,
        }
    }

    /// Hands it to the transport: from now on the claims stand.
    pub(super) fn deliver(self) -> T {
        if let Some(admission) = self.admission {
            admission.delivered();
        }
        self.message
    }
}

impl Operations {
    /// A panic is an outage for the one request: its namespace's failure mode answers.
    pub(super) fn admit(
        &self,
        request: &pb::AdmitRequest,
    ) -> Result<impl Future<Output = Result<Answer<pb::AdmitResponse>, Fault>> + Send + use<>, Fault>
    {
        let engine = Arc::clone(&self.engine);
        let namespace = Arc::clone(engine.namespace(&request.namespace)?);
        let (events, omit_claims) = (request.events.len(), request.omit_claims);
        let begun = match panic::catch_unwind(AssertUnwindSafe(|| self.begin(request))) {
            Ok(admitting) => Some(admitting?),
            Err(cause) => {
                log_panic(cause);
                None
            }
        };
        Ok(async move {
            if let Some(admitting) = begun {
                match AssertUnwindSafe(finish(admitting, omit_claims))
                    .catch_unwind()
                    .await
                {
                    Ok(answer) => return Ok(answer),
                    Err(cause) => log_panic(cause),
                }
            }
            let admission = engine.answer_undecided(namespace.policy().name().as_str(), events)?;
            Ok(Answer::to(admission, omit_claims))
        })
    }

    fn begin(&self, request: &pb::AdmitRequest) -> Result<Admitting, RequestFault> {
        let options = decode::options(request)?;
        let prepared = self
            .engine
            .prepare(options, request.events.iter().map(decode::event))?;
        let policy = self.engine.namespace(options.namespace)?.policy();
        let (bytes, limit) = (bound::response(&prepared, policy), self.max_response_bytes);
        if bytes > limit {
            return Err(RequestFault::ResponseTooLarge { bytes, limit });
        }
        self.engine.submit(prepared)
    }

    /// After a panic the store's part in it is not known, as in an outage.
    pub(super) fn settle(
        &self,
        action: SettleAction,
        claims: &[Bytes],
    ) -> Result<impl Future<Output = Vec<i32>> + Send + use<>, Fault> {
        let tokens = claims.len();
        let begin = || self.engine.settle(action, claims.iter().map(Bytes::as_ref));
        let begun = match panic::catch_unwind(AssertUnwindSafe(begin)) {
            Ok(settling) => Some(settling?),
            Err(cause) => {
                log_panic(cause);
                None
            }
        };
        Ok(async move {
            if let Some(settling) = begun {
                match AssertUnwindSafe(settling.finish()).catch_unwind().await {
                    Ok(settlements) => {
                        return settlements.into_iter().map(encode::settlement).collect();
                    }
                    Err(cause) => log_panic(cause),
                }
            }
            vec![encode::settlement(Settlement::StoreUnavailable); tokens]
        })
    }
}

async fn finish(admitting: Admitting, omit_claims: bool) -> Answer<pb::AdmitResponse> {
    Answer::to(admitting.finish().await, omit_claims)
}

fn log_panic(cause: Box<dyn Any + Send>) {
    let text = cause.downcast_ref::<String>().map(String::as_str);
    let cause = text
        .or(cause.downcast_ref::<&str>().copied())
        .unwrap_or("no text");
    tracing::error!(
        cause,
        "a request panicked, which is a bug; it is answered as in an outage"
    );
}
