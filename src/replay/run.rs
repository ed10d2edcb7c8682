//! Strategies over a trace, and what came of them.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use hdrhistogram::Histogram;
use parking_lot::Mutex;

use super::{
    decider::{DecideFault, Decider, Said},
    strategy::Strategy,
    trace::{BadRows, Trace, TraceBatch, TraceFault},
    truth::{Fate, Judgement, Truth},
};
use crate::{clock::Clock, domain::reason::Reason};

/// Events that are decided together.
pub const BATCH_EVENTS: usize = 512;
/// One event in so many is decided alone, and timed.
const TIMED_ALONE: u64 = 1000;
/// The trace's clock stands still for this part of the shortest TTL.
const SPANS_PER_TTL: u32 = 1000;
/// Where nothing expires.
const LONGEST_SPAN: Duration = Duration::from_secs(60);

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
    /// Most claims that lived at a time, and the bytes of what held them; nothing where a running
    /// service decided.
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
        self.rate(|judged| judged.triggered_again)
    }

    /// Of occurrences, those that were never admitted.
    pub fn swallow_rate(&self) -> Option<f64> {
        self.rate(|judged| judged.swallowed)
    }

    fn rate(&self, part: impl Fn(Judgement) -> u64) -> Option<f64> {
        let judged = self.judged.filter(|judged| judged.occurrences > 0)?;
        Some(part(judged) as f64 / judged.occurrences as f64)
    }
}

/// Of durations, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantiles {
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub samples: u64,
}

impl Quantiles {
    pub fn of(times_ns: &Histogram<u64>) -> Option<Self> {
        (!times_ns.is_empty()).then(|| Self {
            p50_ns: times_ns.value_at_quantile(0.5),
            p99_ns: times_ns.value_at_quantile(0.99),
            samples: times_ns.len(),
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunFault {
    #[error(transparent)]
    Trace(#[from] TraceFault),
    #[error("strategy {0}: {1}")]
    Decide(String, DecideFault),
}

/// What was said about events, added up.
#[derive(Debug)]
pub struct Tally {
    truth: Truth,
    counts: [u64; Reason::TABLE_LEN],
    pub events: u64,
    admitted: u64,
    suppressed: u64,
    refused: u64,
    first_ns: Option<i64>,
    last_ns: i64,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            truth: Truth::default(),
            counts: [0; Reason::TABLE_LEN],
            events: 0,
            admitted: 0,
            suppressed: 0,
            refused: 0,
            first_ns: None,
            last_ns: i64::MIN,
        }
    }
}

impl Tally {
    pub fn add(&mut self, batch: &TraceBatch, said: &[Said]) {
        for (row, said) in batch.sightings().zip(said) {
            let count = match said.fate {
                Fate::Admitted => &mut self.admitted,
                Fate::Suppressed => &mut self.suppressed,
                Fate::Refused => &mut self.refused,
            };
            *count += 1;
            self.counts[said.reason as usize] += 1;
            let (occurrence, arrived_at_ns) = row;
            self.truth.observe(occurrence, arrived_at_ns, said.fate);
            self.last_ns = self.last_ns.max(arrived_at_ns);
        }
        self.events += said.len() as u64;
        self.first_ns = self.first_ns.or(batch.arrived_at_ns());
    }

    /// The row, still without what was held and how long it took.
    pub fn outcome(self, name: String, rule: String) -> Outcome {
        let by_reason = Reason::ALL
            .iter()
            .map(|&reason| (reason, self.counts[reason as usize]))
            .filter(|(_, count)| *count > 0)
            .collect();
        let span = self
            .first_ns
            .map_or(0, |first| self.last_ns.saturating_sub(first));
        Outcome {
            name,
            rule,
            events: self.events,
            admitted: self.admitted,
            suppressed: self.suppressed,
            refused: self.refused,
            by_reason,
            judged: self.truth.finish(),
            peak_claims: 0,
            peak_bytes: 0,
            decision: None,
            request: None,
            trace_span: Duration::from_nanos(u64::try_from(span).unwrap_or(0)),
            took: Duration::ZERO,
        }
    }
}

/// A strategy that is being tried.
#[derive(Debug)]
struct Trial<'s> {
    strategy: &'s Strategy,
    max_bytes: u64,
    /// Made when the first event tells when the trace begins.
    decider: Option<Decider>,
    tally: Tally,
    times_ns: Histogram<u64>,
    said: Vec<Said>,
    busy: Duration,
}

impl<'s> Trial<'s> {
    fn new(strategy: &'s Strategy, max_bytes: u64) -> Self {
        Self {
            strategy,
            max_bytes,
            decider: None,
            tally: Tally::default(),
            times_ns: Histogram::new(3).expect("three digits are allowed"),
            said: Vec::with_capacity(BATCH_EVENTS),
            busy: Duration::ZERO,
        }
    }

    /// Decides a batch; `clock` is the machine's.
    fn feed(&mut self, batch: &TraceBatch, clock: &Clock) -> Result<(), DecideFault> {
        let Some(now_ns) = batch.arrived_at_ns() else {
            return Ok(());
        };
        let decider = self.decider.get_or_insert_with(|| {
            Decider::new(&self.strategy.rule, now_ns, self.max_bytes, BATCH_EVENTS)
        });
        let begun = clock.monotonic();
        // What a service does in the background is not part of a decision's time.
        decider.advance(now_ns);
        let deciding = clock.monotonic();
        decider.decide(batch, &mut self.said)?;
        let decided = clock.monotonic();
        self.busy += decided - begun;
        if batch.len() == 1 {
            // It grows by itself up to any u64.
            let _ = self.times_ns.record((decided - deciding).as_nanos() as u64);
        }
        decider.measure(&self.said);
        self.tally.add(batch, &self.said);
        Ok(())
    }

    /// Whether the next batch is to be one event, which is timed.
    fn times_next(&self) -> bool {
        self.tally.events / TIMED_ALONE > self.times_ns.len()
    }

    fn finish(self) -> Outcome {
        let (peak_claims, peak_bytes) = self.decider.as_ref().map_or((0, 0), Decider::peak);
        let name = self.strategy.name.clone();
        Outcome {
            peak_claims,
            peak_bytes,
            decision: Quantiles::of(&self.times_ns),
            took: self.busy,
            ..self.tally.outcome(name, self.strategy.rule.to_string())
        }
    }
}

/// How far a reading has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Events decided by every strategy of the reading.
    pub events: u64,
    /// Read of how much, in the trace's own unit.
    pub read: u64,
    pub of: Option<u64>,
}

/// What came of one reading.
#[derive(Clone, Debug)]
pub struct Ran {
    pub outcomes: Vec<Outcome>,
    pub bad_rows: BadRows,
}

/// Tries several strategies in one reading of a trace.
pub fn run(
    trace: &mut dyn Trace,
    strategies: &[Strategy],
    max_bytes: u64,
    mut watch: impl FnMut(Progress),
) -> Result<Ran, RunFault> {
    let clock = Clock::system();
    let mut trials: Vec<Trial<'_>> = strategies
        .iter()
        .map(|strategy| Trial::new(strategy, max_bytes))
        .collect();
    let span_ns = span(strategies).as_nanos() as i64;
    let mut many = TraceBatch::new(BATCH_EVENTS, span_ns);
    let mut one = TraceBatch::new(1, span_ns);
    let mut events = 0;
    loop {
        let batch = if trials.first().is_some_and(Trial::times_next) {
            &mut one
        } else {
            &mut many
        };
        batch.clear();
        let more = trace.fill(batch)?;
        for trial in &mut trials {
            trial
                .feed(batch, &clock)
                .map_err(|fault| RunFault::Decide(trial.strategy.name.clone(), fault))?;
        }
        events += batch.len() as u64;
        let (read, of) = trace.progress();
        watch(Progress { events, read, of });
        if !more {
            break;
        }
    }
    Ok(Ran {
        outcomes: trials.into_iter().map(Trial::finish).collect(),
        bad_rows: trace.bad_rows().clone(),
    })
}

fn span(strategies: &[Strategy]) -> Duration {
    let shortest = strategies
        .iter()
        .filter_map(|strategy| strategy.rule.ttl())
        .min();
    shortest.map_or(LONGEST_SPAN, |ttl| (ttl / SPANS_PER_TTL).min(LONGEST_SPAN))
}

/// Tries each strategy in a reading of its own, up to `jobs` at a time; `watch` is told whose
/// progress it is.
pub fn run_each(
    open: impl Fn() -> Result<Box<dyn Trace>, TraceFault> + Sync,
    strategies: &[Strategy],
    max_bytes: u64,
    jobs: usize,
    watch: impl Fn(usize, Progress) + Sync,
) -> Result<Ran, RunFault> {
    let next = AtomicUsize::new(0);
    let ended: Mutex<Vec<(usize, Result<Ran, RunFault>)>> = Mutex::default();
    thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, strategies.len().max(1)) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(strategy) = strategies.get(index) else {
                        break;
                    };
                    let strategy = std::slice::from_ref(strategy);
                    let ran = open().map_err(RunFault::Trace).and_then(|mut trace| {
                        run(trace.as_mut(), strategy, max_bytes, |progress| {
                            watch(index, progress);
                        })
                    });
                    if ran.is_err() {
                        next.store(strategies.len(), Ordering::Relaxed);
                    }
                    ended.lock().push((index, ran));
                }
            });
        }
    });
    let mut ended = ended.into_inner();
    ended.sort_by_key(|(index, _)| *index);
    let mut all = Ran {
        outcomes: Vec::new(),
        bad_rows: BadRows::default(),
    };
    for (_, ran) in ended {
        let ran = ran?;
        all.outcomes.extend(ran.outcomes);
        all.bad_rows = ran.bad_rows;
    }
    Ok(all)
}
