//! The only place that reads time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use crate::domain::time::EventTime;

/// Wall time for event times, monotonic time for what expires. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    System {
        started: Instant,
    },
    /// Simulated: the time since `start_unix_nanos` advances by hand.
    Manual {
        start_unix_nanos: i64,
        elapsed_ns: Arc<AtomicU64>,
    },
}

impl Clock {
    pub fn system() -> Self {
        Self(Source::System {
            started: Instant::now(),
        })
    }

    pub fn manual(start: EventTime) -> Self {
        Self(Source::Manual {
            start_unix_nanos: start.unix_nanos(),
            elapsed_ns: Arc::new(AtomicU64::new(0)),
        })
    }

    /// Moves simulated time on; does nothing to the system's.
    pub fn advance(&self, by: Duration) {
        if let Source::Manual { elapsed_ns, .. } = &self.0 {
            elapsed_ns.fetch_add(saturating_u64(by.as_nanos()), Ordering::Relaxed);
        }
    }

    /// Now, by the wall.
    pub fn now(&self) -> EventTime {
        let nanos = match &self.0 {
            Source::System { .. } => match SystemTime::now().duration_since(UNIX_EPOCH) {
                Ok(since) => i64::try_from(since.as_nanos()).unwrap_or(i64::MAX),
                Err(before) => {
                    i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |nanos| -nanos)
                }
            },
            Source::Manual {
                start_unix_nanos,
                elapsed_ns,
            } => start_unix_nanos.saturating_add_unsigned(elapsed_ns.load(Ordering::Relaxed)),
        };
        EventTime::from_unix_nanos(nanos)
    }

    /// Since the clock was made; never goes back.
    pub fn monotonic(&self) -> Duration {
        match &self.0 {
            Source::System { started } => started.elapsed(),
            Source::Manual { elapsed_ns, .. } => {
                Duration::from_nanos(elapsed_ns.load(Ordering::Relaxed))
            }
        }
    }

    /// The same in whole milliseconds.
    pub fn monotonic_ms(&self) -> u64 {
        saturating_u64(self.monotonic().as_millis())
    }
}

fn saturating_u64(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
