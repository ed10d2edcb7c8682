//! From the oracle's words to the product's: rules, events, answers.

use std::{sync::Arc, time::Duration};

use dedupd::{
    domain::{
        claim::{SettleAction, SettleOutcome},
        event::{RawEvent, RawPosition},
        identity::{RawIdentity, RawTransitionKind, TransitionKind},
        key::{Digest, Layout},
        kind::{Accepts, Kind},
        place::Region,
        policy::{
            ContentMismatch, FailureMode, Mode, NamespaceName, Place, Policy, PolicyDraft, Window,
        },
        reason::Decision,
        time::{EventTime, RawTime},
        time::{Implausible, TimeLimits},
        verdict::Verdict,
    },
    engine::settle::Settlement,
};

use crate::oracle::{self, streams::Settle};

pub(crate) const NAMESPACE: &str = "property";

/// Layout and digest vary with the seed: nothing may depend on them.
pub(crate) fn policy_of(rules: &oracle::Rules, seed: u64) -> Arc<Policy> {
    let kinds = [
        (rules.accepts_transitions, Kind::Transition),
        (rules.accepts_pings, Kind::Ping),
        (rules.accepts_keyed, Kind::Keyed),
    ];
    let window = match rules.window {
        oracle::Window::Tumbling { width_ns, guard_ns } => Window::Buckets {
            width_ns: width_ns.unsigned_abs(),
            guard_ns: guard_ns.unsigned_abs(),
        },
        oracle::Window::Session { gap_ns } => Window::Session {
            gap_ns: gap_ns.unsigned_abs(),
        },
        oracle::Window::None => Window::None,
    };
    let place = rules.place.map(|place| {
        let region = place.region.map(|corners| Region::new(corners).unwrap());
        Place::new(
            place.resolution,
            place.guard_m,
            place.jitter_radius_m,
            region,
        )
        .unwrap()
    });
    let limit = |ns: i64| Duration::from_nanos(ns.unsigned_abs());
    let implausible = if rules.clamp {
        Implausible::Clamp
    } else {
        Implausible::DeadLetter
    };
    let draft = PolicyDraft {
        place,
        lease: Duration::from_millis(rules.lease_ms),
        content_mismatch: if rules.mismatch_dead_letters {
            ContentMismatch::DeadLetter
        } else {
            ContentMismatch::Suppress
        },
        mode: if rules.shadow {
            Mode::Shadow
        } else {
            Mode::Enforce
        },
        time_limits: TimeLimits::new(
            rules.max_future_ns.map(limit),
            rules.max_age_ns.map(limit),
            implausible,
        ),
        layout: Some(if seed.is_multiple_of(2) {
            Layout::Plain
        } else {
            Layout::Tagged
        }),
        digest: (rules.accepts_transitions && seed.is_multiple_of(3)).then_some(Digest::Blake2b),
        ..PolicyDraft::new(
            NamespaceName::new(NAMESPACE).unwrap(),
            Accepts::from_kinds(kinds.iter().filter(|kind| kind.0).map(|kind| kind.1)),
            window,
            Duration::from_millis(rules.ttl_ms),
            FailureMode::Closed,
        )
    };
    Arc::new(Policy::new(draft).unwrap_or_else(|faults| panic!("{faults:?}: {rules:?}")))
}

pub(crate) fn raw_events(events: &[oracle::Event]) -> Vec<RawEvent<'_>> {
    events.iter().map(raw_event).collect()
}

pub(crate) fn raw_event(event: &oracle::Event) -> RawEvent<'_> {
    RawEvent {
        identity: raw_identity(&event.identity),
        time: match &event.time {
            oracle::Time::Missing => RawTime::Unset,
            oracle::Time::Stamp { seconds, nanos } => RawTime::Timestamp {
                seconds: *seconds,
                nanos: *nanos,
            },
            oracle::Time::Nanos(nanos) => RawTime::UnixNanos(*nanos),
            oracle::Time::Text(text) => RawTime::Text(text),
        },
        ingested_at: event
            .ingested_at
            .map(|nanos| EventTime::from_unix_nanos(nanos).seconds_and_nanos()),
        position: match event.position {
            oracle::Position::Missing => RawPosition::Unset,
            oracle::Position::LatLng {
                latitude,
                longitude,
            } => RawPosition::LatLng {
                latitude,
                longitude,
            },
            oracle::Position::Projected { x, y, epsg } => RawPosition::Projected { x, y, epsg },
        },
        content_hash: event.content_hash,
    }
}

fn raw_identity(identity: &oracle::Identity) -> RawIdentity<'_> {
    match identity {
        oracle::Identity::Missing => RawIdentity::Unset,
        oracle::Identity::Transition {
            device,
            fence,
            kind,
            sequence,
            sequence_epoch,
        } => RawIdentity::Transition {
            device_id: device,
            fence_id: fence,
            kind: match kind {
                0 => None,
                1 => Some(RawTransitionKind::Known(TransitionKind::Enter)),
                2 => Some(RawTransitionKind::Known(TransitionKind::Exit)),
                3 => Some(RawTransitionKind::Known(TransitionKind::Dwell)),
                unknown => Some(RawTransitionKind::Unknown(*unknown)),
            },
            sequence: *sequence,
            sequence_epoch: *sequence_epoch,
        },
        oracle::Identity::Ping { asset } => RawIdentity::Ping { asset_id: asset },
        oracle::Identity::Keyed { id } => RawIdentity::Keyed { event_id: id },
    }
}

/// The number of a claim means nothing beyond its side: 0 where one was given.
pub(crate) fn answer_of(verdict: &Verdict, gives_token: bool, is_shadow: bool) -> oracle::Answer {
    let decision = if is_shadow {
        Decision::Admit
    } else {
        verdict.reason.decision()
    };
    oracle::Answer {
        decision: decision.name(),
        reason: verdict.reason.name(),
        claim: gives_token.then_some(0),
        first_occurred_at: verdict.first_occurred_at.map(EventTime::unix_nanos),
        copy_of_index: verdict.copy_of_index.map(|index| index as usize),
        time_clamped: verdict.time_clamped,
        shadow: is_shadow,
    }
}

pub(crate) const fn action_of(settle: Settle) -> SettleAction {
    match settle {
        Settle::Confirm => SettleAction::Confirm,
        Settle::Release => SettleAction::Release,
        Settle::Renew => SettleAction::Renew,
    }
}

pub(crate) const fn outcome_name(settlement: Settlement) -> &'static str {
    match settlement {
        Settlement::Settled(SettleOutcome::Applied) => "APPLIED",
        Settlement::Settled(SettleOutcome::AlreadyApplied) => "ALREADY_APPLIED",
        Settlement::Settled(SettleOutcome::AlreadyConfirmed) => "ALREADY_CONFIRMED",
        Settlement::Settled(SettleOutcome::NotHeld | SettleOutcome::Absent) => "NOT_HELD",
        Settlement::StoreUnavailable => "STORE_UNAVAILABLE",
        Settlement::Malformed => "MALFORMED",
    }
}
