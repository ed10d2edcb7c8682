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

use futures_util::FutureExt;
use uuid::Uuid;

use super::{
    bound, encode,
    status::Fault,
    wire::{AdmitRequest, AdmitResponse, Malformed},
};
use crate::{
    domain::claim::SettleAction,
    engine::{
        Engine, RequestFault,
        admit::{Admission, AdmitOptions, Admitting},
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
pub(super) struct Answer {
    response: AdmitResponse,
    admission: Admission,
}

impl Answer {
    fn to(admission: Admission, omit_claims: bool) -> Self {
        Self {
            response: AdmitResponse::new(&admission, omit_claims),
            admission,
        }
    }

    /// Hands it to the transport: from now on the claims stand.
    pub(super) fn deliver(self) -> AdmitResponse {
        self.admission.delivered();
        self.response
    }
}

impl Operations {
    /// A panic is an outage for the one request: its namespace's failure mode answers.
    pub(super) fn admit(
        &self,
        request: &AdmitRequest<'_>,
    ) -> Result<impl Future<Output = Result<Answer, Fault>> + Send + use<>, Fault> {
        let engine = Arc::clone(&self.engine);
        let namespace = Arc::clone(engine.namespace(request.namespace)?);
        let (events, omit_claims) = (request.events().len(), request.omit_claims);
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

    fn begin(&self, request: &AdmitRequest<'_>) -> Result<Admitting, RequestFault> {
        let options = AdmitOptions {
            namespace: request.namespace,
            request_id: request_id(request.request_id)?,
            omit_claims: request.omit_claims,
        };
        let events = request.events().map(|event| event.map_err(unreadable));
        let prepared = self.engine.try_prepare(options, events)?;
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
        claims: &[&[u8]],
    ) -> Result<impl Future<Output = Vec<i32>> + Send + use<>, Fault> {
        let tokens = claims.len();
        let begin = || self.engine.settle(action, claims.iter().copied());
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

fn request_id(text: &str) -> Result<Option<[u8; 16]>, RequestFault> {
    if text.is_empty() {
        return Ok(None);
    }
    Uuid::try_parse(text)
        .ok()
        // What a client that forgot to fill it in sends, in every call.
        .filter(|id| !id.is_nil())
        .map(|id| Some(id.into_bytes()))
        .ok_or(RequestFault::BadRequestId)
}

pub(super) fn unreadable(why: Malformed) -> RequestFault {
    RequestFault::Unreadable(why.to_string())
}

async fn finish(admitting: Admitting, omit_claims: bool) -> Answer {
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
