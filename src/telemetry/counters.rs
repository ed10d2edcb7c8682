//! What was decided, by namespace and reason.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::domain::reason::{Decision, Reason};

/// Upper bounds of the event-time lag's buckets, seconds.
pub const LAG_BOUNDS_S: [f64; 10] = [
    0.1, 1.0, 10.0, 60.0, 300.0, 1800.0, 7200.0, 21600.0, 86400.0, 604800.0,
];

/// The same in nanoseconds, for comparing at every event.
const LAG_BOUNDS_NS: [u64; LAG_BOUNDS_S.len()] = {
    let mut bounds = [0; LAG_BOUNDS_S.len()];
    let mut index = 0;
    while index < bounds.len() {
        bounds[index] = (LAG_BOUNDS_S[index] * 1e9) as u64;
        index += 1;
    }
    bounds
};

/// One namespace's events since the process started.
#[derive(Debug)]
pub struct Counters {
    by_reason: [AtomicU64; Reason::TABLE_LEN],
    clamped: AtomicU64,
    adopted: AtomicU64,
    known: AtomicU64,
    double_admissions: AtomicU64,
    lag: [AtomicU64; LAG_BOUNDS_S.len() + 1],
    lag_sum_ms: AtomicU64,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            by_reason: [const { AtomicU64::new(0) }; Reason::TABLE_LEN],
            clamped: AtomicU64::new(0),
            adopted: AtomicU64::new(0),
            known: AtomicU64::new(0),
            double_admissions: AtomicU64::new(0),
            lag: [const { AtomicU64::new(0) }; LAG_BOUNDS_S.len() + 1],
            lag_sum_ms: AtomicU64::new(0),
        }
    }
}

impl Counters {
    pub fn events(&self, reason: Reason) -> u64 {
        self.by_reason[reason as usize].load(Ordering::Relaxed)
    }

    /// Events whose time was replaced by `ingested_at`.
    pub fn clamped(&self) -> u64 {
        self.clamped.load(Ordering::Relaxed)
    }

    /// Claims taken over from an earlier attempt of the same call.
    pub fn adopted(&self) -> u64 {
        self.adopted.load(Ordering::Relaxed)
    }

    /// Events that were decided by a claim which was known to stand, without the store.
    pub fn known(&self) -> u64 {
        self.known.load(Ordering::Relaxed)
    }

    /// Events that were admitted in an outage though another claim stood in the shared store.
    pub fn double_admissions(&self) -> u64 {
        self.double_admissions.load(Ordering::Relaxed)
    }

    pub fn double_admission(&self) {
        self.double_admissions.fetch_add(1, Ordering::Relaxed);
    }

    /// Events by lag bucket, the last one without an upper bound, and the sum of lags in seconds.
    pub fn lag(&self) -> ([u64; LAG_BOUNDS_S.len() + 1], f64) {
        let sum_ms = self.lag_sum_ms.load(Ordering::Relaxed);
        (
            self.lag
                .each_ref()
                .map(|bucket| bucket.load(Ordering::Relaxed)),
            sum_ms as f64 / 1000.0,
        )
    }

    /// Adds one request's events, touching each shared counter once.
    pub fn add(&self, tally: &Tally) {
        for &reason in Reason::ALL {
            add_if_any(
                &self.by_reason[reason as usize],
                u64::from(tally.by_reason[reason as usize]),
            );
        }
        add_if_any(&self.clamped, u64::from(tally.clamped));
        add_if_any(&self.adopted, u64::from(tally.adopted));
        add_if_any(&self.known, u64::from(tally.known));
        for (bucket, events) in self.lag.iter().zip(tally.lag) {
            add_if_any(bucket, u64::from(events));
        }
        add_if_any(&self.lag_sum_ms, tally.lag_sum_ms);
    }
}

fn add_if_any(counter: &AtomicU64, events: u64) {
    if events > 0 {
        counter.fetch_add(events, Ordering::Relaxed);
    }
}

/// One request's events.
#[derive(Debug)]
pub struct Tally {
    by_reason: [u32; Reason::TABLE_LEN],
    clamped: u32,
    adopted: u32,
    known: u32,
    lag: [u32; LAG_BOUNDS_S.len() + 1],
    lag_sum_ms: u64,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            by_reason: [0; Reason::TABLE_LEN],
            clamped: 0,
            adopted: 0,
            known: 0,
            lag: [0; LAG_BOUNDS_S.len() + 1],
            lag_sum_ms: 0,
        }
    }
}

impl Tally {
    pub fn reason(&mut self, reason: Reason) {
        self.by_reason[reason as usize] += 1;
    }

    pub fn has_suppressed(&self) -> bool {
        let suppressed = |reason: &Reason| {
            reason.decision() == Decision::Suppress && self.by_reason[*reason as usize] > 0
        };
        Reason::ALL.iter().any(suppressed)
    }

    /// How many events go to the dead-letter path, and a reason of one of them.
    pub fn dead_letters(&self) -> Option<(Reason, u64)> {
        let dead_lettered = Reason::ALL.iter().copied().filter(|reason| {
            reason.decision() == Decision::DeadLetter && self.by_reason[*reason as usize] > 0
        });
        dead_lettered
            .map(|reason| (reason, u64::from(self.by_reason[reason as usize])))
            .reduce(|(reason, events), (_, more)| (reason, events + more))
    }

    pub fn clamped(&mut self) {
        self.clamped += 1;
    }

    pub fn adopted(&mut self) {
        self.adopted += 1;
    }

    pub fn known(&mut self, events: usize) {
        self.known += events as u32;
    }

    /// How far an event's time lies behind now; ahead counts as zero.
    pub fn lag_ns(&mut self, lag_ns: u64) {
        self.lag[LAG_BOUNDS_NS.partition_point(|bound| *bound < lag_ns)] += 1;
        self.lag_sum_ms += lag_ns / 1_000_000;
    }
}
