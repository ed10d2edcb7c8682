//! How much is sent before an answer is awaited: as much as the server does in half a budget.
//!
//! The limit starts low, grows while answers come quickly and shrinks when they do not, so that a
//! server at its ceiling answers what it was sent within the budget, and the rest is refused as
//! overload before it is sent.

use std::time::Duration;

/// Enough to keep a connection busy; one piece of work may be larger and is then sent alone.
const MIN_COMMANDS: usize = 32;
const FIRST_COMMANDS: usize = 256;
/// More would not be quicker.
const MAX_COMMANDS: usize = 2048;

#[derive(Debug)]
pub(super) struct Pace {
    budget: Duration,
    limit: usize,
}

impl Pace {
    pub(super) const fn new(budget: Duration) -> Self {
        Self {
            budget,
            limit: FIRST_COMMANDS,
        }
    }

    /// Commands that may be on their way.
    pub(super) const fn limit(&self) -> usize {
        self.limit
    }

    /// A pipeline of `commands` was answered; `in_flight` were on their way when it was sent.
    pub(super) fn answered(&mut self, took: Duration, commands: usize, in_flight: usize) {
        if took > self.budget / 2 {
            self.limit = (self.limit * 3 / 4).max(MIN_COMMANDS);
        } else if took < self.budget / 4 && in_flight * 2 > self.limit {
            self.limit = (self.limit + commands).min(MAX_COMMANDS);
        }
    }

    pub(super) fn late(&mut self) {
        self.limit = (self.limit / 2).max(MIN_COMMANDS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_follows_the_server() {
        let mut pace = Pace::new(Duration::from_millis(50));
        for _ in 0..100 {
            pace.answered(Duration::from_millis(1), 10, 10);
        }
        assert_eq!(pace.limit(), FIRST_COMMANDS, "it was not reached");
        for _ in 0..100 {
            pace.answered(Duration::from_millis(5), 512, pace.limit());
        }
        assert_eq!(pace.limit(), MAX_COMMANDS);
        pace.late();
        assert_eq!(pace.limit(), MAX_COMMANDS / 2);
        for _ in 0..100 {
            pace.answered(Duration::from_millis(40), 256, 256);
        }
        assert_eq!(pace.limit(), MIN_COMMANDS);
        for _ in 0..100 {
            pace.answered(Duration::from_millis(20), 32, 32);
        }
        assert_eq!(pace.limit(), MIN_COMMANDS, "neither quick nor slow");
    }
}
