//! The breaker: makes an outage of the store cost microseconds instead of the budget.
//!
//! *Admitting*: requests go to the store. *Tripped*: they do not, until the next probe. *Probing*:
//! a probe is on its way. Only the keeper probes, so that no request ever waits for one. It starts
//! tripped: before the first contact nothing is known of the store.

use std::{
    sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering},
    time::Duration,
};

use tokio::sync::Notify;

/// Failures in a row that trip it: a single slow answer does not, an outage does at once.
const FAILURES_TO_TRIP: u32 = 5;

/// Hint for callers while the time of the next probe is not known.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    Admitting = 0,
    Tripped = 1,
    Probing = 2,
}

impl BreakerState {
    pub const ALL: [BreakerState; 3] = [
        BreakerState::Admitting,
        BreakerState::Tripped,
        BreakerState::Probing,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            BreakerState::Admitting => "admitting",
            BreakerState::Tripped => "tripped",
            BreakerState::Probing => "probing",
        }
    }
}

#[derive(Debug)]
pub struct Breaker {
    state: AtomicU8,
    failures_in_a_row: AtomicU32,
    next_probe_at_ms: AtomicU64,
    trips: AtomicU64,
    tripped: Notify,
}

impl Default for Breaker {
    fn default() -> Self {
        Self {
            state: AtomicU8::new(BreakerState::Tripped as u8),
            failures_in_a_row: AtomicU32::new(0),
            next_probe_at_ms: AtomicU64::new(0),
            trips: AtomicU64::new(0),
            tripped: Notify::new(),
        }
    }
}

impl Breaker {
    pub fn state(&self) -> BreakerState {
        match self.state.load(Ordering::Acquire) {
            0 => BreakerState::Admitting,
            1 => BreakerState::Tripped,
            _ => BreakerState::Probing,
        }
    }

    pub fn admits(&self) -> bool {
        self.state() == BreakerState::Admitting
    }

    /// How long until the store is asked again.
    pub fn retry_after(&self, now_ms: u64) -> Duration {
        let until = self
            .next_probe_at_ms
            .load(Ordering::Relaxed)
            .saturating_sub(now_ms);
        if until == 0 {
            DEFAULT_RETRY_AFTER
        } else {
            Duration::from_millis(until)
        }
    }

    pub fn trips(&self) -> u64 {
        self.trips.load(Ordering::Relaxed)
    }

    pub fn succeeded(&self) {
        // A load is cheap on every request; a store would bounce the line between cores.
        if self.failures_in_a_row.load(Ordering::Relaxed) != 0 {
            self.failures_in_a_row.store(0, Ordering::Relaxed);
        }
    }

    /// Counts a failure; true if this one tripped it.
    pub fn failed(&self) -> bool {
        let failures = self.failures_in_a_row.fetch_add(1, Ordering::Relaxed) + 1;
        if failures < FAILURES_TO_TRIP {
            return false;
        }
        let tripped = self
            .state
            .compare_exchange(
                BreakerState::Admitting as u8,
                BreakerState::Tripped as u8,
                Ordering::AcqRel,
                Ordering::Relaxed,
            )
            .is_ok();
        if tripped {
            self.trips.fetch_add(1, Ordering::Relaxed);
            self.tripped.notify_one();
        }
        tripped
    }

    /// Returns once it has tripped.
    pub async fn wait_tripped(&self) {
        while self.admits() {
            self.tripped.notified().await;
        }
    }

    pub fn probe_planned(&self, at_ms: u64) {
        self.next_probe_at_ms.store(at_ms, Ordering::Relaxed);
        self.state
            .store(BreakerState::Tripped as u8, Ordering::Release);
    }

    pub fn probe_sent(&self) {
        self.state
            .store(BreakerState::Probing as u8, Ordering::Release);
    }

    pub fn probe_answered(&self) {
        self.failures_in_a_row.store(0, Ordering::Relaxed);
        self.state
            .store(BreakerState::Admitting as u8, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_failures_in_a_row_trip_it_and_a_success_starts_again() {
        let breaker = Breaker::default();
        assert!(!breaker.admits(), "before the first contact");
        breaker.probe_answered();
        for _ in 0..4 {
            assert!(!breaker.failed());
        }
        breaker.succeeded();
        for _ in 0..4 {
            assert!(!breaker.failed());
        }
        assert!(breaker.admits());
        assert!(breaker.failed());
        assert_eq!(
            (breaker.state(), breaker.trips()),
            (BreakerState::Tripped, 1)
        );
        assert!(!breaker.failed(), "it trips once");
        breaker.probe_planned(1500);
        assert_eq!(breaker.retry_after(1000), Duration::from_millis(500));
        breaker.probe_answered();
        assert!(breaker.admits());
    }
}
