//! One stream, or one caller of unary calls: what it sends when, and what it makes of the answers.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::sync::Notify;
use tonic::Code;
use uuid::Builder;

use super::{
    events::Events,
    load::{Load, Settling},
    run::BenchFault,
    tally::{Tally, record},
};
use crate::{
    clock::Clock,
    grpc::proto::{AdmitRequest, AdmitResponse, ConfirmResponse},
};

pub(super) struct Lane {
    pub(super) load: Arc<Load>,
    pub(super) clock: Clock,
    /// That a call may be due.
    pub(super) wake: Arc<Notify>,
    pub(super) schedule: Schedule,
    tally: Tally,
    events: Events,
    sent: usize,
}

#[derive(Debug)]
pub(super) struct Schedule {
    /// Of the lane's first call.
    pub(super) first: Duration,
    /// `None`: a call is due as soon as there is room for it.
    pub(super) gap_s: Option<f64>,
    pub(super) measured_from: Duration,
    pub(super) end: Duration,
    pub(super) next: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    At(Duration),
    Later,
    Never,
}

/// An Admit that waits for its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    due: Duration,
    events: usize,
    is_measured: bool,
}

/// A Confirm that waits for its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settle {
    sent: Duration,
    is_measured: bool,
}

impl Schedule {
    /// The next call, if it is due; it is taken then.
    pub(super) fn take(&mut self, now: Duration) -> Due {
        if now >= self.end {
            return Due::Never;
        }
        let Some(gap_s) = self.gap_s else {
            return Due::At(now);
        };
        let due = self.due(self.next, gap_s);
        if due >= self.end {
            return Due::Never;
        }
        if due > now {
            return Due::Later;
        }
        self.next += 1;
        Due::At(due)
    }

    fn due(&self, call: u64, gap_s: f64) -> Duration {
        self.first + Duration::from_secs_f64(call as f64 * gap_s)
    }

    /// Calls that were due and not taken.
    fn left(&self) -> u64 {
        let Some(gap_s) = self.gap_s else { return 0 };
        let span_s = self.end.saturating_sub(self.first).as_secs_f64();
        let mut calls = (span_s / gap_s) as u64;
        while self.due(calls, gap_s) < self.end {
            calls += 1;
        }
        while calls > 0 && self.due(calls - 1, gap_s) >= self.end {
            calls -= 1;
        }
        calls - self.next.min(calls)
    }
}

impl Lane {
    pub(super) fn new(
        load: Arc<Load>,
        clock: Clock,
        wake: Arc<Notify>,
        schedule: Schedule,
        events: Events,
    ) -> Self {
        Self {
            load,
            clock,
            wake,
            schedule,
            tally: Tally::default(),
            events,
            sent: 0,
        }
    }

    pub(super) fn request(&mut self, due: Duration) -> (Call, AdmitRequest) {
        let events = self.load.batch_events;
        let is_measured = due >= self.schedule.measured_from;
        let namespace = &self.load.namespaces[self.sent % self.load.namespaces.len()];
        self.sent += 1;
        let request_id = if self.load.has_request_ids {
            Builder::from_random_bytes(rand::random())
                .into_uuid()
                .to_string()
        } else {
            String::new()
        };
        let request = AdmitRequest {
            namespace: namespace.clone(),
            request_id,
            events: self.events.take(events, self.clock.now().unix_nanos()),
            omit_claims: self.load.settling == Settling::Omitted,
        };
        if is_measured {
            let late = self.clock.monotonic().saturating_sub(due);
            record(&mut self.tally.sent_late_ns, late);
        }
        let call = Call {
            due,
            events,
            is_measured,
        };
        (call, request)
    }

    /// What is to be confirmed now, if anything is.
    pub(super) fn admitted(
        &mut self,
        call: Call,
        answer: AdmitResponse,
    ) -> Result<Option<(Settle, Vec<Bytes>)>, BenchFault> {
        let now = self.answered();
        if answer.verdicts.len() != call.events {
            return Err(BenchFault::Ended("an answer of another size".to_owned()));
        }
        if call.is_measured {
            self.tally.calls += 1;
            self.tally.events += call.events as u64;
            record(&mut self.tally.admit_ns, now.saturating_sub(call.due));
            for verdict in &answer.verdicts {
                if !self.tally.count(verdict) {
                    let unknown = format!("reason {} is not known here", verdict.reason);
                    return Err(BenchFault::Ended(unknown));
                }
            }
        } else {
            self.tally.warm_up_events += call.events as u64;
        }
        if self.load.settling != Settling::Confirmed {
            return Ok(None);
        }
        let claims = answer.verdicts.into_iter().map(|verdict| verdict.claim);
        let claims: Vec<Bytes> = claims.filter(|claim| !claim.is_empty()).collect();
        let settle = Settle {
            sent: self.clock.monotonic(),
            is_measured: call.is_measured,
        };
        Ok((!claims.is_empty()).then_some((settle, claims)))
    }

    pub(super) fn confirmed(&mut self, settle: Settle, answer: &ConfirmResponse) {
        let now = self.answered();
        if settle.is_measured {
            record(&mut self.tally.confirm_ns, now.saturating_sub(settle.sent));
            for outcome in answer.outcomes() {
                self.tally.count_settled(outcome);
            }
        }
    }

    /// An overloaded service refuses calls; whatever else it refuses, there is no point in going on.
    pub(super) fn refused(
        &mut self,
        call: Option<Call>,
        code: Code,
        why: &str,
    ) -> Result<(), BenchFault> {
        self.answered();
        if code != Code::ResourceExhausted {
            return Err(BenchFault::Ended(format!("{code:?}: {why}")));
        }
        if call.is_none_or(|call| call.is_measured) {
            self.tally.refused_calls += 1;
            self.tally.refused_events += call.map_or(0, |call| call.events as u64);
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> Tally {
        self.tally.unsent_calls = self.schedule.left();
        self.tally
    }

    fn answered(&mut self) -> Duration {
        let now = self.clock.monotonic();
        self.tally.last_answer = now;
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_due_by_the_schedule_whenever_they_are_taken() {
        let ms = Duration::from_millis;
        let mut schedule = Schedule {
            first: ms(5),
            gap_s: Some(0.010),
            measured_from: ms(0),
            end: ms(100),
            next: 0,
        };
        assert_eq!(schedule.left(), 10);
        for (now, expected) in [
            (ms(4), Due::Later),
            (ms(5), Due::At(ms(5))),
            (ms(6), Due::Later),
            (ms(90), Due::At(ms(15))),
            (ms(90), Due::At(ms(25))),
            (ms(100), Due::Never),
        ] {
            assert_eq!(schedule.take(now), expected, "{now:?}");
        }
        assert_eq!(schedule.left(), 7);
    }
}
