//! Dead letters in the log: one line now and then, since whoever sends one sends thousands.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::domain::reason::Reason;

/// At most one line in this time for each namespace.
const INTERVAL_MS: u64 = 10_000;

/// One namespace's. What came after the last line is in the next one; the metrics have all of it.
#[derive(Debug, Default)]
pub struct DeadLetterLog {
    lines: RateLimited,
}

impl DeadLetterLog {
    /// `count` events were not decided about; `reason` is that of any of them.
    pub fn note(&self, namespace: &str, reason: Reason, count: u64, now_ms: u64) {
        if let Some(events) = self.lines.pass(count, now_ms) {
            tracing::warn!(
                namespace,
                reason = reason.name(),
                events,
                "events were dead-lettered since the last such line"
            );
        }
    }
}

/// Lets one in [`INTERVAL_MS`] through.
#[derive(Debug, Default)]
struct RateLimited {
    next_at_ms: AtomicU64,
    held_back: AtomicU64,
}

impl RateLimited {
    /// How many there were since the last one let through, these included; `None`: not yet.
    fn pass(&self, count: u64, now_ms: u64) -> Option<u64> {
        self.held_back.fetch_add(count, Ordering::Relaxed);
        let next_at_ms = self.next_at_ms.load(Ordering::Relaxed);
        let is_ours = now_ms >= next_at_ms
            && self
                .next_at_ms
                .compare_exchange(
                    next_at_ms,
                    now_ms + INTERVAL_MS,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                )
                .is_ok();
        is_ours.then(|| self.held_back.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b06_one_line_in_ten_seconds_says_how_many_there_were() {
        let lines = RateLimited::default();
        let rows = [
            (3, 0, Some(3)),
            (5, 1, None),
            (7, INTERVAL_MS - 1, None),
            (1, INTERVAL_MS, Some(13)),
            (2, INTERVAL_MS + 1, None),
            (0, 5 * INTERVAL_MS, Some(2)),
        ];
        for (count, now_ms, expected) in rows {
            assert_eq!(
                lines.pass(count, now_ms),
                expected,
                "{count} at {now_ms} ms"
            );
        }
    }
}
