//! How large an answer can become, before anything is claimed for it.
//!
//! An answer that a client refuses for its size leaves claims that nobody can settle. So the bound
//! is never too small; for events that are already rejected it is exact but for the shadow flag.

use prost::length_delimiter_len;

use crate::{
    domain::{
        policy::{ContentMismatch, Policy},
        reason::Rejection,
    },
    engine::admit::{Prepared, Prospect},
};

/// A tag and a flag or a small number. Every field of a verdict has a tag of one byte.
const SMALL: usize = 2;
/// Seconds may take ten bytes (negative ones do), nanoseconds below 10⁹ five.
const SECONDS_AND_NANOS: usize = 1 + 10 + 1 + 5;
/// Of a Timestamp or a Duration as a field.
const TIME: usize = 1 + 1 + SECONDS_AND_NANOS;
/// Of the text that [`Verdict::repeated`] gives with a content mismatch.
const CONTENT_MISMATCH_DETAIL: usize = 54;
/// On a stream: the batch's number, tag and length of the answer.
const ENVELOPE: usize = 1 + 10 + 1 + 5;

/// The encoded response, as a message of its own or on a stream.
pub(super) fn response(prepared: &Prepared, policy: &Policy) -> usize {
    let copy_of_index = 1 + length_delimiter_len(prepared.events());
    let verdicts = prepared.prospects().map(|prospect| {
        field(match prospect {
            Prospect::Rejected(rejection) => rejected(rejection),
            Prospect::Undecided {
                time_clamped,
                token_bytes,
            } => undecided(time_clamped, token_bytes, copy_of_index, policy),
        })
    });
    verdicts.sum::<usize>() + TIME + ENVELOPE
}

/// Decision, reason, shadow and the detail.
fn rejected(rejection: &Rejection) -> usize {
    3 * SMALL + field(rejection.detail.len())
}

/// The largest of what can be said about an event that is still to be decided.
fn undecided(time_clamped: bool, token: usize, copy_of_index: usize, policy: &Policy) -> usize {
    let admit = field(token);
    let suppress_or_retry = TIME + copy_of_index;
    let mismatch = match (policy.accepts().keyed, policy.content_mismatch()) {
        (true, ContentMismatch::DeadLetter) => field(CONTENT_MISMATCH_DETAIL) + copy_of_index,
        (true, ContentMismatch::Suppress) | (false, _) => 0,
    };
    let clamped = if time_clamped { SMALL } else { 0 };
    // Decision, reason, shadow, degraded.
    4 * SMALL + clamped + admit.max(suppress_or_retry).max(mismatch)
}

/// A length-delimited field.
fn field(bytes: usize) -> usize {
    1 + length_delimiter_len(bytes) + bytes
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use bytes::Bytes;
    use prost::Message;

    use super::*;
    use crate::{
        clock::Clock,
        domain::{
            claim::{ClaimState, Nonce, Record, Rival, Sighting, Standing, Vicinity},
            event::RawEvent,
            identity::RawIdentity,
            kind::{Accepts, Kind},
            policy::{FailureMode, MAX_SPAN, NamespaceName, PolicyDraft, Window},
            reason::{Decision, Reason},
            time::EventTime,
            verdict::Verdict,
        },
        engine::{Engine, admit::AdmitOptions},
        grpc::{
            encode, proto as pb,
            wire::{AdmitResponse, Encoded},
        },
        store::memory::MemoryStore,
    };

    /// The default of `limits.max_events_per_request`.
    const EVENTS: usize = 5000;

    fn policy(kind: Kind) -> Policy {
        let window = match kind {
            Kind::Keyed => Window::None,
            Kind::Transition | Kind::Ping => Window::Buckets {
                width_ns: 1_000_000_000,
                guard_ns: 0,
            },
        };
        let draft = PolicyDraft {
            lease: MAX_SPAN,
            ..PolicyDraft::new(
                NamespaceName::new("bound").expect("a name"),
                Accepts::from_kinds([kind]),
                window,
                MAX_SPAN,
                FailureMode::Closed,
            )
        };
        Policy::new(draft).expect("a policy")
    }

    /// What the domain says where an id comes back with other content.
    fn content_mismatch(policy: &Policy) -> Verdict {
        let seen = |hash| Sighting {
            content_hash: Some(hash),
            ..Sighting::default()
        };
        let record = Record {
            state: ClaimState::Confirmed,
            nonce: Nonce::from_bytes([0; 8]),
            sighting: seen(1),
        };
        let rival = Rival {
            standing: Standing::Record(record),
            vicinity: Vicinity::PRIMARY,
        };
        Verdict::repeated(Kind::Keyed, &seen(2), &rival, policy)
    }

    /// The largest verdict of each reason that can be given to an event with a plan.
    fn largest(reason: Reason, policy: &Policy) -> Option<Verdict> {
        let copy_of_index = Some(EVENTS as u32 - 1);
        let said = Verdict {
            time_clamped: true,
            degraded: true,
            ..Verdict::of(reason)
        };
        match reason.decision() {
            Decision::Admit => Some(said),
            Decision::Suppress => {
                let first_occurred_at = Some(EventTime::from_unix_nanos(i64::MIN + 1));
                Some(Verdict {
                    first_occurred_at,
                    copy_of_index,
                    ..said
                })
            }
            Decision::Retry => {
                let retry_after = Some(MAX_SPAN.max(Duration::new(u64::MAX >> 1, 999_999_999)));
                Some(Verdict {
                    retry_after,
                    copy_of_index,
                    ..said
                })
            }
            Decision::DeadLetter => (reason == Reason::ContentMismatch && policy.accepts().keyed)
                .then(|| Verdict {
                    copy_of_index,
                    time_clamped: true,
                    degraded: true,
                    ..content_mismatch(policy)
                }),
        }
    }

    #[test]
    fn no_verdict_is_larger_than_its_bound() {
        let copy_of_index = 1 + length_delimiter_len(EVENTS);
        for policy in [policy(Kind::Keyed), policy(Kind::Transition)] {
            let mut tight = false;
            for token in [0, 18, 33, 41, 127, 128, 529] {
                let bound = undecided(true, token, copy_of_index, &policy);
                for said in Reason::ALL
                    .iter()
                    .filter_map(|reason| largest(*reason, &policy))
                {
                    let claim = match said.reason.decision() {
                        Decision::Admit => Bytes::from(vec![1; token]),
                        _ => Bytes::new(),
                    };
                    for shadow in [false, true] {
                        let verdict = pb::Verdict {
                            claim: claim.clone(),
                            ..encode::verdict(&said, shadow)
                        };
                        let bytes = verdict.encoded_len();
                        assert!(bytes <= bound, "{bytes} > {bound}: {token} {verdict:?}");
                        tight |= bytes == bound;
                    }
                }
            }
            assert!(tight, "the bound is reached by something");
        }
    }

    #[test]
    fn the_verdict_of_a_16_byte_id_stays_under_75_bytes() {
        let copy_of_index = 1 + length_delimiter_len(EVENTS);
        let rows = [
            (Kind::Keyed, 17 + 16, false),
            (Kind::Transition, 41, true),
            (Kind::Ping, 41, true),
        ];
        for (kind, token, time_clamped) in rows {
            let bytes = field(undecided(time_clamped, token, copy_of_index, &policy(kind)));
            assert!(bytes < 75, "{kind}: {bytes}");
        }
    }

    #[tokio::test]
    async fn a_response_is_never_larger_than_its_bound() {
        let clock = Clock::system();
        let store = Arc::new(MemoryStore::new(clock.clone(), 1 << 24));
        let policy = Arc::new(policy(Kind::Keyed));
        let engine = Arc::new(Engine::new(vec![Arc::clone(&policy)], store, clock, EVENTS));
        engine.breaker().probe_answered();
        let ids = [
            "",
            " ",
            "0123456789abcdef",
            &"x".repeat(512),
            &"x".repeat(513),
            "a",
            "a",
        ];
        for omit_claims in [false, true] {
            let events = ids.map(|event_id| RawEvent {
                identity: RawIdentity::Keyed { event_id },
                ..RawEvent::default()
            });
            let options = AdmitOptions {
                namespace: "bound",
                request_id: None,
                omit_claims,
            };
            let prepared = engine
                .prepare(options, events.into_iter())
                .expect("a request");
            let bound = response(&prepared, &policy);
            let admission = engine.submit(prepared).expect("room").finish().await;
            let answer = || AdmitResponse::new(&admission, omit_claims);
            let Encoded(alone) = answer().alone();
            let response = pb::AdmitResponse::decode(&*alone).expect("a response");
            assert_eq!(response.lease.is_some(), !omit_claims);
            assert!(alone.len() + ENVELOPE <= bound);
            let Encoded(on_stream) = answer().on_stream(u64::MAX);
            assert!(on_stream.len() <= bound, "{} > {bound}", on_stream.len());
        }
    }

    #[test]
    fn the_bound_of_a_rejection_is_exact_in_shadow() {
        let rejection = Rejection::new(Reason::NaiveTime, "why");
        assert_eq!(
            rejected(&rejection),
            encode::verdict(&Verdict::rejected(rejection), true).encoded_len()
        );
    }
}
