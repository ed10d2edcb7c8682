//! Wakes lanes when their calls are due.
//!
//! A thread of its own, since tokio's timers are whole milliseconds and the kernel's are not: a
//! millisecond late would be charged to a service that answers in a tenth of that.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use tokio::sync::Notify;

use crate::clock::Clock;

/// So soon it ends when it is dropped.
const LONGEST_SLEEP: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct Pacer {
    is_over: Arc<AtomicBool>,
}

impl Pacer {
    /// The call with number n is due `n · gap_s` after `start` and belongs to lane n modulo their
    /// number.
    pub(super) fn start(
        clock: Clock,
        start: Duration,
        gap_s: f64,
        lanes: Vec<Arc<Notify>>,
    ) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&is_over);
        thread::spawn(move || {
            let mut number = 0_u64;
            while !ended.load(Ordering::Relaxed) {
                let due = start + Duration::from_secs_f64(number as f64 * gap_s);
                let left = due.saturating_sub(clock.monotonic());
                if left.is_zero() {
                    lanes[number as usize % lanes.len()].notify_one();
                    number += 1;
                } else {
                    thread::sleep(left.min(LONGEST_SLEEP));
                }
            }
        });
        Self { is_over }
    }
}

impl Drop for Pacer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}
