//! The generator: valid, repeatable, and rich enough to reach every reason.

use std::collections::BTreeSet;

use super::*;

fn play(stream: &Stream) -> Vec<Answer> {
    let mut oracle = Oracle::new(stream.rules.clone());
    let mut claims = Vec::new();
    let mut all = Vec::new();
    for step in &stream.steps {
        match &step.act {
            Act::Admit {
                events,
                omit_claims,
            } => {
                let answers = oracle.admit(step.now_ms, step.now_unix_ns, events, *omit_claims);
                claims.extend(answers.iter().filter_map(|answer| answer.claim));
                oracle
                    .promises()
                    .unwrap_or_else(|broken| panic!("seed {}: {broken}", stream.seed));
                all.extend(answers);
            }
            Act::Settle { settle, claims_ago } => {
                if let Some(claim) = claims.iter().rev().nth(*claims_ago) {
                    match settle {
                        Settle::Confirm => oracle.confirm(step.now_ms, *claim),
                        Settle::Release => oracle.release(step.now_ms, *claim),
                        Settle::Renew => oracle.renew(step.now_ms, *claim),
                    };
                }
            }
            Act::Foreign { event, ttl_ms } => {
                oracle.place_foreign(step.now_ms, step.now_unix_ns, event, *ttl_ms);
            }
        }
    }
    all
}

#[test]
fn oracle_streams_keep_the_promises_and_reach_every_reason() {
    let mut reasons = BTreeSet::new();
    for seed in 0..400 {
        let answers = play(&Stream::random(seed, 60));
        reasons.extend(answers.iter().map(|answer| answer.reason));
    }
    let expected = [
        "FIRST_SEEN",
        "LATE",
        "REDELIVERY",
        "RESTAMPED",
        "REOBSERVATION",
        "JITTER",
        "BOUNDARY",
        "UNCLASSIFIED",
        "CONTENT_CONFLICT",
        "IN_FLIGHT",
        "MISSING_IDENTITY",
        "OVERSIZED_IDENTITY",
        "WRONG_KIND",
        "MISSING_TIME",
        "MALFORMED_TIME",
        "NAIVE_TIME",
        "TIME_TOO_OLD",
        "TIME_TOO_NEW",
        "MISSING_POSITION",
        "INVALID_POSITION",
        "NULL_ISLAND",
        "OUT_OF_REGION",
        "UNKNOWN_CRS",
        "CONTENT_MISMATCH",
    ];
    assert_eq!(reasons, BTreeSet::from(expected));
}

#[test]
fn oracle_streams_are_the_same_for_the_same_seed() {
    let (one, other) = (Stream::random(11, 30), Stream::random(11, 30));
    assert_eq!(format!("{one:?}"), format!("{other:?}"));
}

#[test]
fn oracle_random_rules_are_valid() {
    for seed in 0..2000 {
        let rules = random_rules(&mut Dice::new(seed), (46.9, 7.4));
        assert!(rules.lease_ms <= rules.ttl_ms);
        let width_ns = match rules.window {
            Window::Tumbling { width_ns, guard_ns } => {
                assert!((0..=width_ns).contains(&guard_ns), "{rules:?}");
                assert!(rules.ttl_ms as i64 * MS >= width_ns + guard_ns);
                width_ns
            }
            Window::Session { gap_ns } => {
                assert!(rules.place.is_none_or(|place| place.guard_m == 0.0));
                gap_ns
            }
            Window::None => {
                assert!(rules.accepts_keyed && !rules.accepts_pings && !rules.accepts_transitions);
                continue;
            }
        };
        assert!(!rules.accepts_pings || width_ns % SECOND == 0);
    }
}
