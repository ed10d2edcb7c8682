//! What the clients asked and were told, with the instants before and after, and what was done to
//! the services and the store meanwhile.

use std::time::Duration;

use dedupd::grpc::proto::SettleOutcome;

/// Since the run began.
pub(super) type At = Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from: At,
    pub(super) to: At,
}

impl Span {
    pub(super) fn length(self) -> Duration {
        self.to.saturating_sub(self.from)
    }

    pub(super) fn overlaps(self, other: Span) -> bool {
        self.from <= other.to && other.from <= self.to
    }
}

#[derive(Clone, Debug)]
pub(super) struct History {
    pub(super) rules: Rules,
    pub(super) events: Vec<Event>,
    /// Copies of events, as a broker hands them to a consumer until it acknowledges them.
    pub(super) deliveries: Vec<Delivery>,
    pub(super) attempts: Vec<Attempt>,
    pub(super) acts: Vec<Act>,
    pub(super) troubles: Vec<Trouble>,
    /// What the machine adds to every call.
    pub(super) noise: Noise,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Noise {
    /// Calls that need no store.
    pub(super) pulses: Vec<Span>,
    /// How long threads of the services waited for a core meanwhile, together.
    pub(super) waits: Vec<(Span, Duration)>,
}

impl Noise {
    /// At most so much of a call's time.
    pub(super) fn during(&self, call: Span) -> Duration {
        let pulses = self.pulses.iter().filter(|pulse| pulse.overlaps(call));
        let longest = pulses.map(|pulse| pulse.length()).max();
        let waits = self.waits.iter().filter(|(span, _)| span.overlaps(call));
        // A call is delayed on its way and on its way back.
        2 * longest.unwrap_or_default() + waits.map(|(_, wait)| *wait).sum::<Duration>()
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// `None`: a claim suppresses at once.
    pub(super) lease: Option<Duration>,
    pub(super) ttl: Duration,
    pub(super) budget: Duration,
}

impl Rules {
    /// How long a claim lasts that nobody settles.
    pub(super) fn hold(&self) -> Duration {
        self.lease.unwrap_or(self.ttl)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event {
    /// What its namespace does in an outage.
    pub(super) mode: Mode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Closed,
    Open,
    Local,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Delivery {
    pub(super) event: usize,
    /// `None`: it is still with the broker or with a consumer.
    pub(super) ending: Option<Ending>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Worked,
    /// A duplicate, acknowledged without work.
    Dropped,
    /// The consumer does not try again.
    GivenUp,
}

/// One event of one attempt of an Admit call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attempt {
    pub(super) event: usize,
    pub(super) delivery: usize,
    /// Attempts of one call share its request id.
    pub(super) call: usize,
    /// Which service was asked; one that takes another's place is a new one.
    pub(super) instance: usize,
    pub(super) span: Span,
    pub(super) answer: Result<Answer, NoAnswer>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Admitted,
    /// Admitted by the embedded store of one instance.
    FellBack,
    FailedOpen,
    Suppressed,
    InFlight,
    /// By the failure mode or for lack of room, to be asked again.
    Undecided,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoAnswer {
    /// As a whole, before anything was done.
    Refused,
    /// The client was impatient.
    Cancelled,
    /// The service ended.
    Gone,
    /// The client was patient.
    Hung,
}

/// What a consumer did with an attempt that was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Act {
    /// Which of the attempts.
    pub(super) holder: usize,
    pub(super) span: Span,
    pub(super) deed: Deed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    Work,
    /// The consumer ends before it has worked; the broker delivers again.
    Die,
    Settle(Action, Result<SettleOutcome, NoAnswer>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Confirm,
    Release,
    Renew,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    pub(super) what: &'static str,
    pub(super) span: Span,
    pub(super) loses: Loses,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loses {
    Nothing,
    /// What an asynchronous replica had not received when it was promoted.
    LatestWrites,
    /// A service ends at once, with its calls.
    Calls,
}
