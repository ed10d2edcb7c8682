//! From the domain's values to generated types.

use std::time::Duration;

use bytes::Bytes;

use super::proto as pb;
use crate::{
    domain::{
        claim::{ClaimState, SettleAction, SettleOutcome},
        event::Fix,
        place::Position,
        policy::Policy,
        reason::{Decision, Reason},
        time::EventTime,
        verdict::Verdict,
    },
    engine::{
        Namespace,
        explain::{Explanation, FoundClaim},
        settle::Settlement,
    },
    telemetry::noisy::Subject,
};

/// Unset where claims need no settling.
pub(super) fn lease(policy: &Policy, omit_claims: bool) -> Option<Duration> {
    (!omit_claims && !policy.lease().is_zero()).then(|| policy.lease())
}

/// The decision and when to come again, of a namespace that may only watch.
pub(super) fn decided(verdict: &Verdict, shadow: bool) -> (pb::Decision, Option<Duration>) {
    if shadow {
        (pb::Decision::Admit, None)
    } else {
        (decision(verdict.reason.decision()), verdict.retry_after)
    }
}

/// Without a token.
pub(super) fn verdict(verdict: &Verdict, shadow: bool) -> pb::Verdict {
    let (decision, retry_after) = decided(verdict, shadow);
    pb::Verdict {
        decision: decision.into(),
        reason: reason(verdict.reason),
        claim: Bytes::new(),
        retry_after: retry_after.map(duration),
        first_occurred_at: verdict.first_occurred_at.map(timestamp),
        degraded: verdict.degraded,
        shadow,
        detail: verdict.detail.as_deref().unwrap_or_default().to_owned(),
        copy_of_index: verdict.copy_of_index,
        time_clamped: verdict.time_clamped,
    }
}

pub(super) const fn decision(decision: Decision) -> pb::Decision {
    match decision {
        Decision::Admit => pb::Decision::Admit,
        Decision::Suppress => pb::Decision::Suppress,
        Decision::Retry => pb::Decision::Retry,
        Decision::DeadLetter => pb::Decision::DeadLetter,
    }
}

/// The domain numbers its reasons as the wire does.
pub(super) const fn reason(reason: Reason) -> i32 {
    reason as i32
}

pub(super) fn settlement(settlement: Settlement) -> i32 {
    let outcome = match settlement {
        Settlement::Settled(SettleOutcome::Applied) => pb::SettleOutcome::Applied,
        Settlement::Settled(SettleOutcome::AlreadyApplied) => pb::SettleOutcome::AlreadyApplied,
        Settlement::Settled(SettleOutcome::AlreadyConfirmed) => pb::SettleOutcome::AlreadyConfirmed,
        Settlement::Settled(SettleOutcome::NotHeld | SettleOutcome::Absent) => {
            pb::SettleOutcome::NotHeld
        }
        Settlement::StoreUnavailable => pb::SettleOutcome::StoreUnavailable,
        Settlement::Malformed => pb::SettleOutcome::Malformed,
    };
    outcome.into()
}

/// The outcomes as an operation's answer on a stream.
pub(super) fn settled(action: SettleAction, outcomes: Vec<i32>) -> pb::stream_response::Result {
    use pb::stream_response::Result;
    match action {
        SettleAction::Confirm => Result::Confirm(pb::ConfirmResponse { outcomes }),
        SettleAction::Release => Result::Release(pb::ReleaseResponse { outcomes }),
        SettleAction::Renew => Result::Renew(pb::RenewResponse { outcomes }),
    }
}

pub(super) fn subject(subject: Subject) -> pb::NoisySubject {
    pb::NoisySubject {
        id: subject.id,
        suppressed: u64::from(subject.suppressed),
        events: u64::from(subject.events),
    }
}

/// Neither a nonce nor a token leaves.
pub(super) fn explanation(explanation: Explanation) -> pb::ExplainResponse {
    let Explanation {
        verdict: said,
        shadow,
        keys,
        material,
        contract,
        time,
        fix,
        claims,
    } = explanation;
    pb::ExplainResponse {
        verdict: Some(verdict(&said, shadow)),
        keys,
        material,
        contract,
        occurred_at: time.map(timestamp),
        position: fix.map(|fix: Fix| lat_lng(fix.position)),
        cell: fix.map(|fix| fix.cell.to_string()).unwrap_or_default(),
        claims: claims.into_iter().map(found_claim).collect(),
    }
}

fn found_claim(found: FoundClaim) -> pb::FoundClaim {
    let FoundClaim {
        key,
        standing,
        expires_in,
        near,
    } = found;
    let state = match standing.state() {
        Some(ClaimState::Pending) => pb::ClaimState::Pending,
        Some(ClaimState::Claimed) => pb::ClaimState::Claimed,
        Some(ClaimState::Confirmed) => pb::ClaimState::Confirmed,
        None => pb::ClaimState::Foreign,
    };
    let sighting = standing.sighting();
    pb::FoundClaim {
        key,
        state: state.into(),
        occurred_at: sighting.and_then(|sighting| sighting.time).map(timestamp),
        position: sighting.and_then(|sighting| sighting.position).map(lat_lng),
        expires_in: expires_in.map(duration),
        near,
    }
}

/// Every reason, also those that did not occur.
pub(super) fn counters(namespace: &Namespace) -> impl Iterator<Item = pb::Counter> {
    Reason::ALL.iter().map(|&counted| pb::Counter {
        namespace: namespace.policy().name().to_string(),
        decision: decision(counted.decision()).into(),
        reason: reason(counted),
        events: namespace.counters().events(counted),
    })
}

pub(super) fn namespace(namespace: &Namespace) -> pb::Namespace {
    let policy = namespace.policy();
    pb::Namespace {
        name: policy.name().to_string(),
        contract: policy.contract(),
        ttl: Some(duration(policy.ttl())),
        lease: Some(duration(policy.lease())),
        failure_mode: policy.failure_mode().to_string(),
        mode: policy.mode().to_string(),
        refused: namespace
            .refused()
            .map(|why| why.to_string())
            .unwrap_or_default(),
    }
}

pub(super) fn duration(span: Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(span.as_secs()).unwrap_or(i64::MAX),
        nanos: span.subsec_nanos() as i32,
    }
}

pub(super) fn timestamp(time: EventTime) -> prost_types::Timestamp {
    let (seconds, nanos) = time.seconds_and_nanos();
    prost_types::Timestamp { seconds, nanos }
}

fn lat_lng(position: Position) -> pb::LatLng {
    pb::LatLng {
        latitude: Some(position.latitude_deg()),
        longitude: Some(position.longitude_deg()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_and_decisions_have_the_same_names_and_numbers_on_the_wire() {
        for &inside in Reason::ALL {
            let outside = pb::Reason::try_from(reason(inside)).expect("a reason of the API");
            assert_eq!(outside.as_str_name(), format!("REASON_{}", inside.name()));
            let decided = decision(inside.decision());
            assert_eq!(
                decided.as_str_name(),
                format!("DECISION_{}", inside.decision().name())
            );
        }
        let on_the_wire =
            (1..Reason::TABLE_LEN as i32).filter(|number| pb::Reason::try_from(*number).is_ok());
        assert_eq!(
            on_the_wire.count(),
            Reason::ALL.len(),
            "the API has no other reasons"
        );
    }

    #[test]
    fn a_namespace_in_shadow_admits_everything_and_says_why_it_would_not() {
        let retry = Verdict {
            retry_after: Some(Duration::from_millis(1500)),
            ..Verdict::of(Reason::InFlight)
        };
        let enforced = verdict(&retry, false);
        assert_eq!(enforced.decision(), pb::Decision::Retry);
        assert_eq!(
            enforced.retry_after,
            Some(prost_types::Duration {
                seconds: 1,
                nanos: 500_000_000
            })
        );
        let watched = verdict(&retry, true);
        assert_eq!(watched.decision(), pb::Decision::Admit);
        assert_eq!(
            (watched.reason(), watched.shadow),
            (pb::Reason::InFlight, true)
        );
        assert_eq!(watched.retry_after, None);
    }
}
