//! What a drain needs to know: that it has begun, and whether calls are still in flight.
//!
//! A unary call is in flight from the arrival of its headers until its response is returned. A
//! stream is in flight only while one of its requests is: an idle one waits for nothing. Health
//! checks and reflection are not counted, so that a probe does not keep a drain from ending.

use std::{
    future,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{Notify, watch},
    time,
};

use crate::clock::Clock;

/// A drain that can be begun, and what hears of it.
pub fn drain() -> (DrainSignal, DrainWatch) {
    let (sender, receiver) = watch::channel(false);
    (DrainSignal(sender), DrainWatch(receiver))
}

/// Begins the drain. Dropped before that, there will never be one.
#[derive(Debug)]
pub struct DrainSignal(watch::Sender<bool>);

impl DrainSignal {
    pub fn begin(&self) {
        self.0.send_replace(true);
    }
}

#[derive(Clone, Debug)]
pub struct DrainWatch(watch::Receiver<bool>);

impl DrainWatch {
    /// Returns once the drain has begun.
    pub async fn begun(mut self) {
        if self.0.wait_for(|begun| *begun).await.is_err() {
            future::pending::<()>().await;
        }
    }
}

/// Counts the calls in flight. Cheap to clone.
#[derive(Clone, Debug)]
pub struct InFlight(Arc<Count>);

#[derive(Debug)]
struct Count {
    in_flight: AtomicUsize,
    last_change_ms: AtomicU64,
    idle: Notify,
    clock: Clock,
}

impl InFlight {
    pub fn new(clock: Clock) -> Self {
        let last_change_ms = AtomicU64::new(clock.monotonic_ms());
        Self(Arc::new(Count {
            in_flight: AtomicUsize::new(0),
            last_change_ms,
            idle: Notify::new(),
            clock,
        }))
    }

    pub fn in_flight(&self) -> usize {
        self.0.in_flight.load(Ordering::Acquire)
    }

    /// A call arrived; it is in flight until the guard is dropped.
    pub fn enter(&self) -> InFlightGuard {
        self.0.in_flight.fetch_add(1, Ordering::AcqRel);
        self.0.touch();
        InFlightGuard(Arc::clone(&self.0))
    }

    /// Returns once, counted from now, no call has been in flight and none has arrived for `span`.
    /// For one waiter at a time.
    pub async fn quiet(&self, span: Duration) {
        let begun_ms = self.0.clock.monotonic_ms();
        loop {
            if self.in_flight() > 0 {
                self.0.idle.notified().await;
                continue;
            }
            let since_ms = self.0.last_change_ms.load(Ordering::Acquire).max(begun_ms);
            let quiet = Duration::from_millis(self.0.clock.monotonic_ms().saturating_sub(since_ms));
            if quiet >= span {
                return;
            }
            time::sleep(span - quiet).await;
        }
    }
}

impl Count {
    fn touch(&self) {
        self.last_change_ms
            .store(self.clock.monotonic_ms(), Ordering::Release);
    }
}

#[derive(Debug)]
#[must_use = "the call is in flight while this lives"]
pub struct InFlightGuard(Arc<Count>);

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.0.touch();
        if self.0.in_flight.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.idle.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::time::EventTime;

    /// Time is simulated: tokio's and the clock's move together, a millisecond at a time.
    #[tokio::test(start_paused = true)]
    async fn it_is_quiet_once_nothing_was_in_flight_for_the_span() {
        let clock = Clock::manual(EventTime::from_unix_nanos(0));
        let calls = InFlight::new(clock.clone());
        let millisecond = Duration::from_millis(1);
        let time_passes = async {
            loop {
                time::sleep(millisecond).await;
                clock.advance(millisecond);
            }
        };
        let span = 60 * millisecond;
        let check = async {
            let call = calls.enter();
            assert_eq!(calls.in_flight(), 1);
            let busy = time::timeout(span * 3, calls.quiet(span)).await;
            assert!(busy.is_err(), "a call is in flight");
            drop(call);
            let just_ended = time::timeout(span - 5 * millisecond, calls.quiet(span)).await;
            assert!(just_ended.is_err(), "it ended only now");
            let (one, two) = (calls.enter(), calls.enter());
            let ended = async {
                drop(one);
                time::sleep(span / 2).await;
                drop(two);
            };
            let begun_ms = clock.monotonic_ms();
            let ((), ()) = tokio::join!(ended, calls.quiet(span));
            let waited_ms = clock.monotonic_ms() - begun_ms;
            assert!((90..=95).contains(&waited_ms), "{waited_ms} ms");
            assert_eq!(calls.in_flight(), 0);
        };
        tokio::select! {
            biased;
            () = time_passes => {}
            () = check => {}
        }
    }

    #[tokio::test]
    async fn the_drain_is_heard_of_and_a_lost_sender_begins_none() {
        let (signal, watch) = drain();
        let waiting = watch.clone();
        signal.begin();
        waiting.begun().await;
        let (signal, watch) = drain();
        drop(signal);
        let begun = time::timeout(Duration::from_millis(20), watch.begun()).await;
        assert!(begun.is_err());
    }
}
