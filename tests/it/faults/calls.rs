//! The calls of a consumer, each recorded with its instants and its answer.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use dedupd::grpc::proto::{
    AdmitRequest, ConfirmRequest, Decision, Reason, ReleaseRequest, RenewRequest, SettleOutcome,
    Verdict,
};
use tokio::time;
use tonic::{Code, Request, Response, Status};

use super::{
    broker::Copy,
    history::{Action, Answer, At, Attempt, Deed, NoAnswer, Span},
    recorder::Recorder,
    site::Site,
};
use crate::client::{events::keyed, request};

/// A service that does not answer within this hangs.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a client waits.
#[derive(Clone, Copy, Debug)]
pub(super) enum Waits {
    Patiently,
    /// Then it hangs up; told by the header as well, or not.
    For {
        time: Duration,
        told: bool,
    },
}

pub(super) struct Caller {
    pub(super) site: Arc<Site>,
    pub(super) recorder: Arc<Recorder>,
    calls: AtomicUsize,
}

/// What a consumer was told about one copy.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) verdict: Verdict,
    pub(super) answer: Answer,
    /// The attempt's number in the history.
    pub(super) attempt: usize,
}

impl Caller {
    pub(super) fn new(site: Arc<Site>, recorder: Arc<Recorder>) -> Arc<Self> {
        Arc::new(Self {
            site,
            recorder,
            calls: AtomicUsize::new(1),
        })
    }

    /// The number of a new call, of which its request id is made.
    pub(super) fn new_call(&self) -> usize {
        self.calls.fetch_add(1, Ordering::Relaxed)
    }

    /// One attempt of a call.
    pub(super) async fn admit(
        &self,
        service: usize,
        call: usize,
        copies: &[Copy],
        waits: Waits,
    ) -> Result<Vec<Told>, NoAnswer> {
        let events = copies.iter().map(Copy::event).collect();
        let request = AdmitRequest {
            request_id: format!("00000000-0000-4000-8000-{call:012x}"),
            ..request(copies[0].namespace(), events)
        };
        let (mut client, instance) = self.site.client(service);
        let from = self.site.now();
        let request = with_deadline(request, waits);
        let answer = answered(waits, client.admit(request)).await;
        let span = Span {
            from,
            to: self.site.now(),
        };
        let record = |copy: &Copy, answer| {
            self.recorder.attempt(Attempt {
                event: copy.event,
                delivery: copy.delivery,
                call,
                instance,
                span,
                answer,
            })
        };
        match answer {
            Ok(answer) => {
                assert_eq!(answer.verdicts.len(), copies.len());
                let told = copies.iter().zip(answer.verdicts).map(|(copy, verdict)| {
                    let answer = read(&verdict);
                    Told {
                        attempt: record(copy, Ok(answer)),
                        answer,
                        verdict,
                    }
                });
                Ok(told.collect())
            }
            Err(no_answer) => {
                for copy in copies {
                    record(copy, Err(no_answer));
                }
                Err(no_answer)
            }
        }
    }

    pub(super) async fn settle(
        &self,
        service: usize,
        action: Action,
        told: &Told,
        waits: Waits,
    ) -> Result<SettleOutcome, NoAnswer> {
        let claims = vec![told.verdict.claim.clone()];
        let (mut client, _) = self.site.client(service);
        let from = self.site.now();
        let outcome = match action {
            Action::Confirm => {
                let request = with_deadline(ConfirmRequest { claims }, waits);
                let answer = answered(waits, client.confirm(request)).await;
                answer.map(|answer| answer.outcomes().next())
            }
            Action::Release => {
                let request = with_deadline(ReleaseRequest { claims }, waits);
                let answer = answered(waits, client.release(request)).await;
                answer.map(|answer| answer.outcomes().next())
            }
            Action::Renew => {
                let request = with_deadline(RenewRequest { claims }, waits);
                let answer = answered(waits, client.renew(request)).await;
                answer.map(|answer| answer.outcomes().next())
            }
        };
        let outcome = outcome.map(|first| first.expect("one for each claim"));
        let to = self.site.now();
        let deed = Deed::Settle(action, outcome);
        self.recorder.act(told.attempt, Span { from, to }, deed);
        outcome
    }

    /// A call at that time, which the service answers without its store; false if it does not.
    pub(super) async fn pulse(&self, service: usize, at: At) -> bool {
        let (mut client, _) = self.site.client(service);
        time::sleep(at.saturating_sub(self.site.now())).await;
        // A late timer is noise as well.
        let from = at;
        let nobody = client.admit(request("orders", vec![keyed("")]));
        let answered = answered(Waits::Patiently, nobody).await.is_ok();
        let to = self.site.now();
        if answered {
            self.recorder.pulse(Span { from, to });
        }
        answered
    }
}

fn with_deadline<T>(message: T, waits: Waits) -> Request<T> {
    let mut request = Request::new(message);
    match waits {
        Waits::For { time, told: true } => request.set_timeout(time),
        Waits::For { told: false, .. } | Waits::Patiently => {}
    }
    request
}

async fn answered<T>(
    waits: Waits,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, NoAnswer> {
    let (limit, no_answer) = match waits {
        Waits::Patiently => (PATIENCE, NoAnswer::Hung),
        // The header's own limit comes first, where it is told.
        Waits::For { time, told } => (time + time * u32::from(told), NoAnswer::Cancelled),
    };
    let Ok(answer) = time::timeout(limit, call).await else {
        return Err(no_answer);
    };
    answer
        .map(Response::into_inner)
        .map_err(|status| match (status.code(), waits) {
            (Code::ResourceExhausted, _) => NoAnswer::Refused,
            (Code::Cancelled | Code::DeadlineExceeded, Waits::For { .. }) => NoAnswer::Cancelled,
            (Code::Unavailable | Code::Unknown | Code::Cancelled | Code::Internal, _) => {
                NoAnswer::Gone
            }
            _ => panic!("{status:?}"),
        })
}

fn read(verdict: &Verdict) -> Answer {
    let token = !verdict.claim.is_empty();
    match (verdict.decision(), verdict.reason(), verdict.degraded) {
        (Decision::Admit, Reason::FirstSeen | Reason::Late, false) => Answer::Admitted,
        (Decision::Admit, Reason::Fallback, true) => Answer::FellBack,
        (Decision::Admit, Reason::FailOpen, true) if !token => Answer::FailedOpen,
        // By an embedded store, where it is degraded.
        (Decision::Suppress, _, _) if !token => Answer::Suppressed,
        (Decision::Retry, Reason::InFlight, _) if !token => Answer::InFlight,
        (Decision::Retry, Reason::StoreUnavailable | Reason::Overloaded, true) if !token => {
            Answer::Undecided
        }
        _ => panic!("{verdict:?}"),
    }
}
