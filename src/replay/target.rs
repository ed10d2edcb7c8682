//! A trace through a running service: one stream, on which events of one subject keep their order,
//! several batches of it in flight.

use std::{collections::VecDeque, time::Duration};

use hdrhistogram::Histogram;
use tokio::{sync::mpsc, time};
use tokio_stream::{StreamExt, wrappers::ReceiverStream};
use tonic::{Code, Status, Streaming};

use super::{
    decider::Said,
    run::{Outcome, Progress, Quantiles, Ran, Tally},
    trace::{Trace, TraceBatch, TraceEvent, TraceFault},
};
use crate::{
    clock::Clock,
    domain::{
        event::{RawEvent, RawPosition},
        identity::{RawIdentity, RawTransitionKind, TransitionKind},
        reason::Reason,
        time::RawTime,
    },
    grpc::{
        dial::{Unreachable, dial},
        proto,
    },
};

/// A stream that is silent for so long, with batches in flight, is given up.
const SILENCE: Duration = Duration::from_secs(60);
/// The trace's own pace plays no part.
const ANY_SPAN_NS: i64 = i64::MAX;

#[derive(Clone, Debug)]
pub struct Target {
    /// `HOST:PORT`, or `unix:PATH`.
    pub address: String,
    pub namespace: String,
    pub batch_events: usize,
    pub in_flight: usize,
    /// Events a second; unset: as fast as the service answers.
    pub rate: Option<f64>,
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum TargetFault {
    #[error(transparent)]
    Trace(#[from] TraceFault),
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    #[error("the service ended the replay: {0}")]
    Ended(String),
}

impl From<Status> for TargetFault {
    fn from(status: Status) -> Self {
        let code = status.code();
        TargetFault::Ended(format!("{code:?}: {}", status.message()))
    }
}

/// Sends the whole trace.
pub async fn run(
    trace: &mut dyn Trace,
    target: &Target,
    mut watch: impl FnMut(Progress),
) -> Result<Ran, TargetFault> {
    let channel = dial(&target.address).await?;
    let mut client = proto::dedup_service_client::DedupServiceClient::new(channel);
    let (requests, outgoing) = mpsc::channel(target.in_flight);
    let answers = client.stream(ReceiverStream::new(outgoing)).await?;
    let mut sending = Sending {
        target,
        clock: Clock::system(),
        requests,
        answers: answers.into_inner(),
        waiting: VecDeque::new(),
        spare: Vec::new(),
        sent_events: 0,
        tally: Tally::default(),
        times_ns: Histogram::new(3).expect("three digits are allowed"),
        said: Vec::new(),
    };
    let mut more = true;
    while more || !sending.waiting.is_empty() {
        let has_room = sending.waiting.len() < target.in_flight;
        if more && has_room && sending.is_due() {
            more = sending.send(trace).await?;
        } else if more && has_room {
            sending.receive_until_due().await?;
        } else {
            sending.receive().await?;
        }
        let (read, of) = trace.progress();
        let events = sending.tally.events;
        watch(Progress { events, read, of });
    }
    Ok(Ran {
        outcomes: vec![sending.finish()],
        bad_rows: trace.bad_rows().clone(),
    })
}

/// The stream, and what is on its way.
struct Sending<'t> {
    target: &'t Target,
    clock: Clock,
    requests: mpsc::Sender<proto::StreamRequest>,
    answers: Streaming<proto::StreamResponse>,
    /// Batches that wait for their answers, and when they were sent.
    waiting: VecDeque<(Duration, TraceBatch)>,
    spare: Vec<TraceBatch>,
    sent_events: u64,
    tally: Tally,
    times_ns: Histogram<u64>,
    said: Vec<Said>,
}

impl Sending<'_> {
    fn due(&self) -> Duration {
        let rate = self.target.rate;
        rate.map_or(Duration::ZERO, |rate| {
            Duration::try_from_secs_f64(self.sent_events as f64 / rate).unwrap_or(Duration::MAX)
        })
    }

    fn is_due(&self) -> bool {
        self.clock.monotonic() >= self.due()
    }

    /// False at the trace's end.
    async fn send(&mut self, trace: &mut dyn Trace) -> Result<bool, TargetFault> {
        let new = || TraceBatch::new(self.target.batch_events, ANY_SPAN_NS);
        let mut batch = self.spare.pop().unwrap_or_else(new);
        batch.clear();
        let more = trace.fill(&mut batch)?;
        if batch.is_empty() {
            return Ok(more);
        }
        let request = proto::AdmitRequest {
            namespace: self.target.namespace.clone(),
            events: batch.events().map(|event| wire_event(&event)).collect(),
            omit_claims: true,
            ..Default::default()
        };
        let request = proto::StreamRequest {
            batch_id: 0,
            operation: Some(proto::stream_request::Operation::Admit(request)),
        };
        self.sent_events += batch.len() as u64;
        self.waiting.push_back((self.clock.monotonic(), batch));
        // A closed stream says why when its answer is read.
        let _ = self.requests.send(request).await;
        Ok(more)
    }

    /// Waits for an answer, or until the next batch is due.
    async fn receive_until_due(&mut self) -> Result<(), TargetFault> {
        let wait = self.due().saturating_sub(self.clock.monotonic());
        if self.waiting.is_empty() {
            time::sleep(wait).await;
            return Ok(());
        }
        // Reading the next message may be given up and begun again.
        match time::timeout(wait, self.answers.next()).await {
            Ok(answer) => self.take(answer),
            Err(_due) => Ok(()),
        }
    }

    async fn receive(&mut self) -> Result<(), TargetFault> {
        match time::timeout(SILENCE, self.answers.next()).await {
            Ok(answer) => self.take(answer),
            Err(_silent) => Err(TargetFault::Ended(format!("no answer for {SILENCE:?}"))),
        }
    }

    fn take(
        &mut self,
        answer: Option<Result<proto::StreamResponse, Status>>,
    ) -> Result<(), TargetFault> {
        let Some(answer) = answer else {
            return Err(TargetFault::Ended("it closed the stream".to_owned()));
        };
        let Some((sent_at, batch)) = self.waiting.pop_front() else {
            return Err(TargetFault::Ended(
                "an answer that nobody asked for".to_owned(),
            ));
        };
        let took = self.clock.monotonic() - sent_at;
        // It grows by itself up to any u64.
        let _ = self.times_ns.record(took.as_nanos() as u64);
        self.said.clear();
        use proto::stream_response::Result as Answer;
        match answer?.result {
            Some(Answer::Admit(admitted)) => {
                for verdict in &admitted.verdicts {
                    self.said.push(Said::of(reason(verdict.reason)?));
                }
            }
            Some(Answer::Error(error)) if error.code == Code::ResourceExhausted as i32 => {
                self.said.resize(batch.len(), Said::of(Reason::Overloaded));
            }
            Some(Answer::Error(error)) => return Err(TargetFault::Ended(error.message)),
            Some(Answer::Confirm(_) | Answer::Release(_) | Answer::Renew(_)) | None => {}
        }
        if self.said.len() != batch.len() {
            return Err(TargetFault::Ended("an answer of another size".to_owned()));
        }
        self.tally.add(&batch, &self.said);
        self.spare.push(batch);
        Ok(())
    }

    fn finish(self) -> Outcome {
        let took = self.clock.monotonic();
        let rule = format!("the service at {}", self.target.address);
        Outcome {
            request: Quantiles::of(&self.times_ns),
            took,
            ..self.tally.outcome(self.target.namespace.clone(), rule)
        }
    }
}

fn reason(number: i32) -> Result<Reason, TargetFault> {
    let found = Reason::ALL.iter().find(|reason| **reason as i32 == number);
    found
        .copied()
        .ok_or_else(|| TargetFault::Ended(format!("reason {number} is not known here")))
}

fn wire_event(event: &TraceEvent<'_>) -> proto::Event {
    let RawEvent {
        identity,
        time,
        position,
        ..
    } = event.event;
    use proto::event::{Identity, Time};
    let identity = match identity {
        RawIdentity::Unset => None,
        RawIdentity::Transition {
            device_id,
            fence_id,
            kind,
            sequence,
            sequence_epoch,
        } => Some(Identity::Transition(proto::Transition {
            device_id: device_id.to_owned(),
            fence_id: fence_id.to_owned(),
            kind: wire_kind(kind) as i32,
            sequence,
            sequence_epoch,
        })),
        RawIdentity::Ping { asset_id } => Some(Identity::Ping(proto::Ping {
            asset_id: asset_id.to_owned(),
            position: match position {
                RawPosition::LatLng {
                    latitude,
                    longitude,
                } => Some(proto::ping::Position::LatLng(proto::LatLng {
                    latitude,
                    longitude,
                })),
                RawPosition::Unset | RawPosition::Projected { .. } => None,
            },
        })),
        RawIdentity::Keyed { event_id } => Some(Identity::Keyed(proto::Keyed {
            event_id: event_id.to_owned(),
        })),
    };
    proto::Event {
        identity,
        time: match time {
            RawTime::UnixNanos(nanos) => Some(Time::OccurredAtUnixNanos(nanos)),
            RawTime::Unset | RawTime::Text(_) | RawTime::Timestamp { .. } => None,
        },
        ..Default::default()
    }
}

const fn wire_kind(kind: Option<RawTransitionKind>) -> proto::TransitionKind {
    match kind {
        Some(RawTransitionKind::Known(TransitionKind::Enter)) => proto::TransitionKind::Enter,
        Some(RawTransitionKind::Known(TransitionKind::Exit)) => proto::TransitionKind::Exit,
        Some(RawTransitionKind::Known(TransitionKind::Dwell)) => proto::TransitionKind::Dwell,
        Some(RawTransitionKind::Unknown(_)) | None => proto::TransitionKind::Unspecified,
    }
}
