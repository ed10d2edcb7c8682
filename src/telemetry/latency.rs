//! How long the store takes.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// Upper bounds of the buckets, seconds: from a memory store to several times the usual budget.
pub const LATENCY_BOUNDS_S: [f64; 12] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0,
];

/// A histogram without a lock.
#[derive(Debug, Default)]
pub struct Latency {
    buckets: [AtomicU64; LATENCY_BOUNDS_S.len() + 1],
    sum_ns: AtomicU64,
}

impl Latency {
    pub fn observe(&self, elapsed: Duration) {
        let seconds = elapsed.as_secs_f64();
        let bucket = LATENCY_BOUNDS_S.partition_point(|bound| *bound < seconds);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(
            u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX),
            Ordering::Relaxed,
        );
    }

    /// Operations by bucket, the last one without an upper bound, and the sum in seconds.
    pub fn read(&self) -> ([u64; LATENCY_BOUNDS_S.len() + 1], f64) {
        let sum_ns = self.sum_ns.load(Ordering::Relaxed);
        (
            self.buckets
                .each_ref()
                .map(|bucket| bucket.load(Ordering::Relaxed)),
            sum_ns as f64 / 1e9,
        )
    }
}

/// The operations that callers wait for, from the request's place in the store to its outcome.
#[derive(Debug, Default)]
pub struct StoreLatencies {
    pub claim: Latency,
    pub settle: Latency,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_falls_into_the_first_bucket_that_holds_it() {
        let check = |elapsed: Duration, bucket: usize| {
            let latency = Latency::default();
            latency.observe(elapsed);
            let (buckets, sum_s) = latency.read();
            assert_eq!(
                buckets.iter().position(|count| *count == 1),
                Some(bucket),
                "{elapsed:?}"
            );
            assert!((sum_s - elapsed.as_secs_f64()).abs() < 1e-9, "{elapsed:?}");
        };
        check(Duration::ZERO, 0);
        check(Duration::from_micros(100), 0);
        check(Duration::from_micros(101), 1);
        check(Duration::from_secs(1), LATENCY_BOUNDS_S.len() - 1);
        check(Duration::from_secs(2), LATENCY_BOUNDS_S.len());
    }
}
