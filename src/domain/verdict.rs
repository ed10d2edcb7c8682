//! The answer: a reason, and through it one of four decisions.

use std::{borrow::Cow, time::Duration};

use super::{
    claim::{ClaimState, Nonce, Rival, Sighting, Standing},
    policy::{ContentMismatch, Guards, Kind, Policy, Window},
    time::EventTime,
};

/// What the caller does with the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    Admit,
    Suppress,
    Retry,
    DeadLetter,
}

impl Decision {
    pub const fn name(self) -> &'static str {
        match self {
            Decision::Admit => "ADMIT",
            Decision::Suppress => "SUPPRESS",
            Decision::Retry => "RETRY",
            Decision::DeadLetter => "DEAD_LETTER",
        }
    }
}

/// Declares the reasons once: variant, name, decision, number on the wire.
macro_rules! reasons {
    ($($variant:ident $name:literal $decision:ident $number:literal,)*) => {
        /// Why. Every reason belongs to one decision; the numbers are the wire's, never used again.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Reason {
            $($variant = $number,)*
        }

        impl Reason {
            /// One more than the largest number, for tables indexed by reason.
            pub const TABLE_LEN: usize = 100;

            pub const ALL: &[Reason] = &[$(Reason::$variant,)*];

            pub const fn name(self) -> &'static str {
                match self {
                    $(Reason::$variant => $name,)*
                }
            }

            pub const fn decision(self) -> Decision {
                match self {
                    $(Reason::$variant => Decision::$decision,)*
                }
            }
        }
    };
}

reasons! {
    FirstSeen "FIRST_SEEN" Admit 1,
    Late "LATE" Admit 2,
    FailOpen "FAIL_OPEN" Admit 3,
    Fallback "FALLBACK" Admit 4,
    Redelivery "REDELIVERY" Suppress 20,
    Restamped "RESTAMPED" Suppress 21,
    Reobservation "REOBSERVATION" Suppress 22,
    Jitter "JITTER" Suppress 23,
    Boundary "BOUNDARY" Suppress 24,
    Unclassified "UNCLASSIFIED" Suppress 25,
    ContentConflict "CONTENT_CONFLICT" Suppress 26,
    InFlight "IN_FLIGHT" Retry 40,
    StoreUnavailable "STORE_UNAVAILABLE" Retry 41,
    Overloaded "OVERLOADED" Retry 42,
    MissingIdentity "MISSING_IDENTITY" DeadLetter 60,
    OversizedIdentity "OVERSIZED_IDENTITY" DeadLetter 61,
    WrongKind "WRONG_KIND" DeadLetter 62,
    MissingTime "MISSING_TIME" DeadLetter 63,
    MalformedTime "MALFORMED_TIME" DeadLetter 64,
    NaiveTime "NAIVE_TIME" DeadLetter 65,
    TimeTooOld "TIME_TOO_OLD" DeadLetter 66,
    TimeTooNew "TIME_TOO_NEW" DeadLetter 67,
    MissingPosition "MISSING_POSITION" DeadLetter 68,
    InvalidPosition "INVALID_POSITION" DeadLetter 69,
    NullIsland "NULL_ISLAND" DeadLetter 70,
    OutOfRegion "OUT_OF_REGION" DeadLetter 71,
    UnknownCrs "UNKNOWN_CRS" DeadLetter 72,
    ContentMismatch "CONTENT_MISMATCH" DeadLetter 73,
}

/// Why an event cannot be decided about: it goes to the dead-letter path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    pub reason: Reason,
    /// For people: what is wrong and what to do.
    pub detail: Cow<'static, str>,
}

impl Rejection {
    pub fn new(reason: Reason, detail: impl Into<Cow<'static, str>>) -> Self {
        debug_assert_eq!(reason.decision(), Decision::DeadLetter);
        Self {
            reason,
            detail: detail.into(),
        }
    }
}

/// What is said about one event. Whether the namespace only watches is said beside it.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    pub reason: Reason,
    /// A claim was made that may be settled, under this nonce.
    pub claim: Option<Nonce>,
    pub retry_after: Option<Duration>,
    /// The time of the event that this one repeats.
    pub first_occurred_at: Option<EventTime>,
    /// The store did not take part.
    pub degraded: bool,
    pub detail: Option<Cow<'static, str>>,
    /// The event at this index of the same request is the one that this repeats.
    pub copy_of_index: Option<u32>,
    /// `ingested_at` stands in for the event's own time.
    pub time_clamped: bool,
}

impl Verdict {
    pub const fn of(reason: Reason) -> Self {
        Self {
            reason,
            claim: None,
            retry_after: None,
            first_occurred_at: None,
            degraded: false,
            detail: None,
            copy_of_index: None,
            time_clamped: false,
        }
    }

    pub fn rejected(rejection: Rejection) -> Self {
        Self {
            detail: Some(rejection.detail),
            ..Self::of(rejection.reason)
        }
    }

    /// The event won its claim.
    pub fn admitted(
        sighting: &Sighting,
        policy: &Policy,
        now: EventTime,
        claim: Option<Nonce>,
    ) -> Self {
        let late = sighting.time.is_some_and(|time| {
            time < now && u128::from(time.distance_ns(now)) > policy.ttl().as_nanos()
        });
        Self {
            claim,
            ..Self::of(if late {
                Reason::Late
            } else {
                Reason::FirstSeen
            })
        }
    }

    /// The event lost to `rival`.
    pub fn repeated(kind: Kind, sighting: &Sighting, rival: &Rival, policy: &Policy) -> Self {
        let reason = classify(kind, sighting, rival, policy);
        Self {
            retry_after: (reason == Reason::InFlight).then(|| policy.in_flight_retry()),
            first_occurred_at: match reason.decision() {
                Decision::Suppress => rival.standing.sighting().and_then(|sighting| sighting.time),
                Decision::Admit | Decision::Retry | Decision::DeadLetter => None,
            },
            detail: (reason == Reason::ContentMismatch).then_some(Cow::Borrowed(
                "the event id was seen before with another content hash",
            )),
            ..Self::of(reason)
        }
    }
}

/// Why an event that lost to `rival` is not admitted: the first rule that holds.
fn classify(kind: Kind, event: &Sighting, rival: &Rival, policy: &Policy) -> Reason {
    if rival.standing.state() == Some(ClaimState::Pending) {
        return Reason::InFlight;
    }
    let claimed = match &rival.standing {
        Standing::Record(record) => &record.sighting,
        Standing::Newer { .. } | Standing::Foreign => return Reason::Unclassified,
    };
    let hashes = event.content_hash.zip(claimed.content_hash);
    let same_content = match hashes {
        Some((ours, theirs)) => ours == theirs,
        None => event.has_time_of(claimed) && event.position == claimed.position,
    };
    match (kind, same_content) {
        (Kind::Keyed, false) if hashes.is_some() => match policy.content_mismatch() {
            ContentMismatch::DeadLetter => Reason::ContentMismatch,
            ContentMismatch::Suppress => Reason::ContentConflict,
        },
        (Kind::Keyed, _) | (_, true) => Reason::Redelivery,
        _ if is_across_boundary(rival, policy) => Reason::Boundary,
        (Kind::Transition, false) => Reason::Restamped,
        (Kind::Ping, false) => match event.position.zip(claimed.position).zip(policy.place()) {
            Some(((here, there), place)) => {
                let distance_m = here.distance_m(there);
                if distance_m > 0.0 && distance_m <= place.jitter_radius_m() {
                    Reason::Jitter
                } else {
                    Reason::Reobservation
                }
            }
            None => Reason::Reobservation,
        },
    }
}

/// Found through a guard: in another bucket of a window that is not sliding, or in another cell.
fn is_across_boundary(rival: &Rival, policy: &Policy) -> bool {
    let Guards { time_ns, .. } = policy.guards();
    let tumbling = match policy.window() {
        Window::Buckets { width_ns, .. } => time_ns < width_ns,
        Window::None | Window::Session { .. } => false,
    };
    !rival.vicinity.same_cell || (!rival.vicinity.same_bucket && tumbling)
}
