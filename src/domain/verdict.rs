//! The answer: a reason, and through it one of four decisions.

use std::{borrow::Cow, time::Duration};

use super::{
    claim::Guards,
    claim::{ClaimState, Nonce, Rival, Sighting, Standing},
    kind::Kind,
    policy::{ContentMismatch, Policy, Window},
    reason::{Decision, Reason, Rejection},
    time::EventTime,
};

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

    /// The event won its claim in the embedded store, while the shared one is away.
    pub fn fallback(claim: Option<Nonce>) -> Self {
        Self {
            claim,
            degraded: true,
            ..Self::of(Reason::Fallback)
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
                if here.is_beside(there, place.jitter_radius_m()) {
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
