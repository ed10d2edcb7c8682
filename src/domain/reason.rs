//! Why: every reason belongs to one of four decisions.

use std::borrow::Cow;

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
