//! A lane that is a stream: answers come in the order of its requests.

use std::collections::VecDeque;

use bytes::Bytes;
use tokio::{sync::mpsc, time};
use tokio_stream::{StreamExt, wrappers::ReceiverStream};
use tonic::{Code, Streaming, transport::Channel};

use super::{
    lane::{Call, Due, Lane, Settle},
    run::{BenchFault, SILENCE},
    tally::Tally,
};
use crate::grpc::proto::{
    ConfirmRequest, StreamRequest, StreamResponse, dedup_service_client::DedupServiceClient,
    stream_request::Operation, stream_response::Result as Answer,
};

pub(super) struct Opened {
    requests: mpsc::Sender<StreamRequest>,
    answers: Streaming<StreamResponse>,
}

enum Waiting {
    Admit(Call),
    Confirm(Settle),
}

pub(super) async fn open(
    client: &mut DedupServiceClient<Channel>,
    in_flight: usize,
) -> Result<Opened, BenchFault> {
    let (requests, outgoing) = mpsc::channel(in_flight);
    let answers = client.stream(ReceiverStream::new(outgoing)).await?;
    Ok(Opened {
        requests,
        answers: answers.into_inner(),
    })
}

/// Until the load's end and the last answer.
pub(super) async fn run(mut lane: Lane, mut opened: Opened) -> Result<Tally, BenchFault> {
    // A call is one thing that waits at a time: its Admit, then its Confirm.
    let mut waiting = VecDeque::with_capacity(lane.load.in_flight);
    loop {
        let mut next = Due::Later;
        while waiting.len() < lane.load.in_flight {
            next = lane.schedule.take(lane.clock.monotonic());
            let Due::At(due) = next else { break };
            let (call, request) = lane.request(due);
            waiting.push_back(Waiting::Admit(call));
            opened.send(Operation::Admit(request)).await;
        }
        if waiting.is_empty() && next == Due::Never {
            return Ok(lane.finish());
        }
        let has_room = waiting.len() < lane.load.in_flight && next == Due::Later;
        let answer = tokio::select! {
            answer = opened.next(), if !waiting.is_empty() => answer?,
            () = lane.wake.notified(), if has_room => continue,
        };
        let Some(waited) = waiting.pop_front() else {
            return Err(BenchFault::Ended(
                "it answered what nobody asked".to_owned(),
            ));
        };
        if let Some((settle, claims)) = take(&mut lane, waited, answer)? {
            waiting.push_back(Waiting::Confirm(settle));
            opened
                .send(Operation::Confirm(ConfirmRequest { claims }))
                .await;
        }
    }
}

fn take(
    lane: &mut Lane,
    waited: Waiting,
    answer: StreamResponse,
) -> Result<Option<(Settle, Vec<Bytes>)>, BenchFault> {
    match (waited, answer.result) {
        (Waiting::Admit(call), Some(Answer::Admit(admitted))) => lane.admitted(call, admitted),
        (Waiting::Confirm(settle), Some(Answer::Confirm(confirmed))) => {
            lane.confirmed(settle, &confirmed);
            Ok(None)
        }
        (waited, Some(Answer::Error(error))) => {
            let call = match waited {
                Waiting::Admit(call) => Some(call),
                Waiting::Confirm(_) => None,
            };
            lane.refused(call, Code::from_i32(error.code), &error.message)?;
            Ok(None)
        }
        (Waiting::Admit(_) | Waiting::Confirm(_), _) => Err(BenchFault::Ended(
            "it gave another operation's answer".to_owned(),
        )),
    }
}

impl Opened {
    /// A closed stream says why when its answer is read.
    async fn send(&self, operation: Operation) {
        let request = StreamRequest {
            batch_id: 0,
            operation: Some(operation),
        };
        let _ = self.requests.send(request).await;
    }

    async fn next(&mut self) -> Result<StreamResponse, BenchFault> {
        match time::timeout(SILENCE, self.answers.next()).await {
            Ok(Some(answer)) => Ok(answer?),
            Ok(None) => Err(BenchFault::Ended("it closed the stream".to_owned())),
            Err(_silent) => Err(BenchFault::silent()),
        }
    }
}
