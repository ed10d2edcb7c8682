//! What came back, counted and timed.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::{
    domain::reason::Reason,
    grpc::proto::{SettleOutcome, Verdict},
};

/// Of calls that were due after the warm-up, save where it says otherwise.
#[derive(Clone, Debug)]
pub struct Tally {
    pub warm_up_events: u64,
    pub calls: u64,
    /// That were answered with verdicts.
    pub events: u64,
    pub refused_calls: u64,
    pub refused_events: u64,
    /// That were due and had no room before the end.
    pub unsent_calls: u64,
    verdicts: [u64; Reason::TABLE_LEN],
    settled: [u64; SETTLE_OUTCOMES],
    pub admit_ns: Histogram<u64>,
    /// From the sending of a Confirm; of a call that had claims to confirm.
    pub confirm_ns: Histogram<u64>,
    /// From when a call was due until it was sent.
    pub sent_late_ns: Histogram<u64>,
    pub last_answer: Duration,
}

const SETTLE_OUTCOMES: usize = SettleOutcome::Malformed as usize + 1;

impl Default for Tally {
    fn default() -> Self {
        let histogram = || Histogram::new(3).expect("three digits are allowed");
        Self {
            warm_up_events: 0,
            calls: 0,
            events: 0,
            refused_calls: 0,
            refused_events: 0,
            unsent_calls: 0,
            verdicts: [0; Reason::TABLE_LEN],
            settled: [0; SETTLE_OUTCOMES],
            admit_ns: histogram(),
            confirm_ns: histogram(),
            sent_late_ns: histogram(),
            last_answer: Duration::ZERO,
        }
    }
}

impl Tally {
    /// False if the verdict's reason is not known here.
    pub(super) fn count(&mut self, verdict: &Verdict) -> bool {
        let place = usize::try_from(verdict.reason).ok();
        match place.and_then(|place| self.verdicts.get_mut(place)) {
            Some(count) => {
                *count += 1;
                true
            }
            None => false,
        }
    }

    pub(super) fn count_settled(&mut self, outcome: SettleOutcome) {
        self.settled[outcome as usize] += 1;
    }

    pub fn merge(&mut self, other: &Tally) {
        self.warm_up_events += other.warm_up_events;
        self.calls += other.calls;
        self.events += other.events;
        self.refused_calls += other.refused_calls;
        self.refused_events += other.refused_events;
        self.unsent_calls += other.unsent_calls;
        for (sum, count) in self.verdicts.iter_mut().zip(other.verdicts) {
            *sum += count;
        }
        for (sum, count) in self.settled.iter_mut().zip(other.settled) {
            *sum += count;
        }
        for (sum, times) in [
            (&mut self.admit_ns, &other.admit_ns),
            (&mut self.confirm_ns, &other.confirm_ns),
            (&mut self.sent_late_ns, &other.sent_late_ns),
        ] {
            sum.add(times).expect("it grows by itself");
        }
        self.last_answer = self.last_answer.max(other.last_answer);
    }

    /// Those that occurred, in the order of their numbers.
    pub fn by_reason(&self) -> impl Iterator<Item = (Reason, u64)> {
        let all = Reason::ALL.iter().copied();
        all.map(|reason| (reason, self.verdicts[reason as usize]))
            .filter(|(_, events)| *events > 0)
    }

    /// Those that occurred, without the prefix that they have on the wire.
    pub fn by_outcome(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.settled.iter().zip(0..);
        counts
            .filter(|(count, _)| **count > 0)
            .map(|(count, number)| {
                let outcome = SettleOutcome::try_from(number).unwrap_or_default();
                let name = outcome.as_str_name();
                (name.strip_prefix("SETTLE_OUTCOME_").unwrap_or(name), *count)
            })
    }
}

/// It grows by itself up to any u64.
pub(super) fn record(times_ns: &mut Histogram<u64>, took: Duration) {
    let _ = times_ns.record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
}
