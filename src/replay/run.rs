//! One strategy over one trace, and what came of it.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::{
    strategy::{Decider, Said, Strategy, StrategyFault},
    trace::{Trace, TraceBatch, TraceFault},
    truth::{Judgement, Truth},
};
use crate::{clock::Clock, domain::reason::Reason};

/// Events that are decided together.
pub const BATCH_EVENTS: usize = 512;
/// One event in so many is decided alone, and timed.
const TIMED_ALONE: u64 = 1000;
/// The clock of the trace stands still for a thousandth of the shortest time that matters.
pub const BATCH_SPAN: Duration = Duration::from_millis(50);

/// The row of the table.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub name: String,
    /// How copies were told, in words: window, guard, TTL.
    pub rule: String,
    pub events: u64,
    pub admitted: u64,
    pub suppressed: u64,
    pub refused: u64,
    /// Events by reason; those that did not occur are left out.
    pub by_reason: Vec<(Reason, u64)>,
    /// `None` where the trace does not tell which events are copies.
    pub judged: Option<Judgement>,
    pub peak_claims: u64,
    pub peak_bytes: u64,
    /// Of one event decided alone; `None` where a running service decided.
    pub decision: Option<Quantiles>,
    /// Of one call to a running service.
    pub request: Option<Quantiles>,
    /// From the first event's arrival to the last one's.
    pub trace_span: Duration,
    /// Spent on deciding, or, by a running service, from the first call to the last answer.
    pub took: Duration,
}

impl Outcome {
    /// Of occurrences, those whose effect happened more than once.
    pub fn duplicate_trigger_rate(&self) -> Option<f64> {
        let judged = self.judged.filter(|judged| judged.occurrences > 0)?;
        Some(judged.triggered_again as f64 / judged.occurrences as f64)
    }

    /// Of occurrences, those that were never admitted.
    pub fn swallow_rate(&self) -> Option<f64> {
        let judged = self.judged.filter(|judged| judged.occurrences > 0)?;
        Some(judged.swallowed as f64 / judged.occurrences as f64)
    }
}

/// Of durations, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantiles {
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub samples: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunFault {
    #[error(transparent)]
    Trace(#[from] TraceFault),
    #[error(transparent)]
    Strategy(#[from] StrategyFault),
}

/// A strategy that is being tried.
#[derive(Debug)]
pub struct Trial {
    name: String,
    rule: String,
    decider: Decider,
    truth: Truth,
    counts: [u64; Reason::TABLE_LEN],
    events: u64,
    admitted: u64,
    suppressed: u64,
    refused: u64,
    times: Histogram<u64>,
    first_ns: Option<i64>,
    last_ns: i64,
    said: Vec<Said>,
    busy: Duration,
}

impl Trial {
    pub fn new(strategy: &Strategy, max_bytes: u64) -> Self {
        Self {
            name: strategy.name.clone(),
            rule: strategy.rule.to_string(),
            decider: Decider::new(&strategy.rule, max_bytes, BATCH_EVENTS),
            truth: Truth::default(),
            counts: [0; Reason::TABLE_LEN],
            events: 0,
            admitted: 0,
            suppressed: 0,
            refused: 0,
            times: Histogram::new(3).expect("three digits are allowed"),
            first_ns: None,
            last_ns: i64::MIN,
            said: Vec::with_capacity(BATCH_EVENTS),
            busy: Duration::ZERO,
        }
    }

    /// Decides a batch; `clock` is the machine's.
    pub fn feed(&mut self, batch: &TraceBatch, clock: &Clock) -> Result<(), StrategyFault> {
        let begun = clock.monotonic();
        self.decider.decide(batch, &mut self.said)?;
        let took = clock.monotonic() - begun;
        self.busy += took;
        if batch.len() == 1 {
            // It grows by itself up to any u64.
            let _ = self.times.record(took.as_nanos() as u64);
        }
        for (event, said) in batch.events().zip(&self.said) {
            let (reason, admitted) = match said {
                Said::Admitted(reason) => {
                    self.admitted += 1;
                    (reason, true)
                }
                Said::Suppressed(reason) => {
                    self.suppressed += 1;
                    (reason, false)
                }
                Said::Refused(reason) => {
                    self.refused += 1;
                    (reason, false)
                }
            };
            self.counts[*reason as usize] += 1;
            self.truth
                .observe(event.occurrence, event.arrived_at_ns, admitted);
            self.last_ns = self.last_ns.max(event.arrived_at_ns);
        }
        self.events += batch.len() as u64;
        self.first_ns = self.first_ns.or(batch.arrived_at_ns());
        Ok(())
    }

    /// Whether the next batch is to be one event, which is timed.
    pub fn times_next(&self) -> bool {
        self.events / TIMED_ALONE > self.times.len()
    }

    pub fn finish(self) -> Outcome {
        let (peak_claims, peak_bytes) = self.decider.peak();
        let by_reason = Reason::ALL
            .iter()
            .map(|&reason| (reason, self.counts[reason as usize]))
            .filter(|(_, count)| *count > 0)
            .collect();
        let span = self
            .first_ns
            .map_or(0, |first| self.last_ns.saturating_sub(first));
        Outcome {
            name: self.name,
            rule: self.rule,
            events: self.events,
            admitted: self.admitted,
            suppressed: self.suppressed,
            refused: self.refused,
            by_reason,
            judged: self.truth.finish(),
            peak_claims,
            peak_bytes,
            decision: quantiles(&self.times),
            request: None,
            trace_span: Duration::from_nanos(u64::try_from(span).unwrap_or(0)),
            took: self.busy,
        }
    }
}

fn quantiles(times: &Histogram<u64>) -> Option<Quantiles> {
    (!times.is_empty()).then(|| Quantiles {
        p50_ns: times.value_at_quantile(0.5),
        p99_ns: times.value_at_quantile(0.99),
        samples: times.len(),
    })
}

/// Runs several strategies over one reading of a trace; `progress` is told now and then.
pub fn run(
    trace: &mut dyn Trace,
    strategies: &[Strategy],
    max_bytes: u64,
    mut progress: impl FnMut(u64, Option<u64>),
) -> Result<Vec<Outcome>, RunFault> {
    let clock = Clock::system();
    let mut trials: Vec<Trial> = strategies
        .iter()
        .map(|strategy| Trial::new(strategy, max_bytes))
        .collect();
    let span_ns = BATCH_SPAN.as_nanos() as i64;
    let mut many = TraceBatch::new(BATCH_EVENTS, span_ns);
    let mut one = TraceBatch::new(1, span_ns);
    loop {
        let batch = if trials.first().is_some_and(Trial::times_next) {
            &mut one
        } else {
            &mut many
        };
        batch.clear();
        let more = trace.fill(batch)?;
        for trial in &mut trials {
            trial.feed(batch, &clock)?;
        }
        let (done, of) = trace.progress();
        progress(done, of);
        if !more {
            break;
        }
    }
    Ok(trials.into_iter().map(Trial::finish).collect())
}
