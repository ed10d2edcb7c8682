//! A lane of unary calls: each call is answered when it is.

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::time;
use tonic::{Response, Status, transport::Channel};

use super::{
    lane::{Call, Due, Lane, Settle},
    run::{BenchFault, SILENCE},
    tally::Tally,
};
use crate::grpc::proto::{
    AdmitRequest, AdmitResponse, ConfirmRequest, ConfirmResponse,
    dedup_service_client::DedupServiceClient,
};

type Client = DedupServiceClient<Channel>;

enum Answer {
    Admit(Call, Result<Response<AdmitResponse>, Status>),
    Confirm(Settle, Result<Response<ConfirmResponse>, Status>),
}

/// Until the load's end and the last answer.
pub(super) async fn run(mut lane: Lane, client: Client) -> Result<Tally, BenchFault> {
    let mut waiting = FuturesUnordered::new();
    loop {
        let mut next = Due::Later;
        while waiting.len() < lane.load.in_flight {
            next = lane.schedule.take(lane.clock.monotonic());
            let Due::At(due) = next else { break };
            let (call, request) = lane.request(due);
            waiting.push(admit(client.clone(), call, request));
        }
        if waiting.is_empty() && next == Due::Never {
            return Ok(lane.finish());
        }
        let has_room = waiting.len() < lane.load.in_flight && next == Due::Later;
        let answer = tokio::select! {
            answer = time::timeout(SILENCE, waiting.next()), if !waiting.is_empty() => answer,
            () = lane.wake.notified(), if has_room => continue,
        };
        let settle = match answer.map_err(|_silent| BenchFault::silent())? {
            Some(Answer::Admit(call, Ok(answer))) => lane.admitted(call, answer.into_inner())?,
            Some(Answer::Confirm(settle, Ok(answer))) => {
                lane.confirmed(settle, answer.get_ref());
                None
            }
            Some(Answer::Admit(call, Err(status))) => {
                lane.refused(Some(call), status.code(), status.message())?;
                None
            }
            Some(Answer::Confirm(_, Err(status))) => {
                lane.refused(None, status.code(), status.message())?;
                None
            }
            None => None,
        };
        if let Some((settle, claims)) = settle {
            waiting.push(confirm(client.clone(), settle, claims));
        }
    }
}

fn admit(mut client: Client, call: Call, request: AdmitRequest) -> BoxFuture<'static, Answer> {
    async move { Answer::Admit(call, client.admit(request).await) }.boxed()
}

fn confirm(mut client: Client, settle: Settle, claims: Vec<Bytes>) -> BoxFuture<'static, Answer> {
    async move { Answer::Confirm(settle, client.confirm(ConfirmRequest { claims }).await) }.boxed()
}
