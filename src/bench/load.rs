//! What is asked of the service.

use std::time::Duration;

use super::events::Recipe;

#[derive(Clone, Debug)]
pub struct Load {
    /// `HOST:PORT`, or `unix:PATH`.
    pub address: String,
    /// A lane's calls take turns.
    pub namespaces: Vec<String>,
    pub recipe: Recipe,
    pub form: CallForm,
    pub pace: Pace,
    pub batch_events: usize,
    /// Streams, or callers of unary calls.
    pub lanes: usize,
    pub connections: usize,
    /// Of a lane: calls that may wait for their answers. A call that is confirmed waits for both.
    pub in_flight: usize,
    pub settling: Settling,
    /// Each call has a fresh one, as callers that retry send it.
    pub has_request_ids: bool,
    /// Counted and timed is what is due after this.
    pub warm_up: Duration,
    pub duration: Duration,
    pub watched: Watched,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallForm {
    Stream,
    Unary,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Events a second, of all lanes together.
    Open(f64),
    /// The next call when an earlier one was answered.
    Closed,
}

/// What becomes of admitted claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settling {
    /// They are left alone.
    Left,
    /// Each call's claims are confirmed together as soon as it is answered.
    Confirmed,
    /// They are stored as confirmed, and no tokens are asked for.
    Omitted,
}

/// Processes whose CPU time is read from the kernel.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    pub server_pid: Option<u32>,
    /// Of a cluster several, added up.
    pub redis_pids: Vec<u32>,
}

impl Load {
    /// From one call of a lane to the next one due; `None` in a closed loop.
    pub(super) fn lane_gap_s(&self) -> Option<f64> {
        match self.pace {
            Pace::Open(rate) => Some((self.batch_events * self.lanes) as f64 / rate),
            Pace::Closed => None,
        }
    }
}
