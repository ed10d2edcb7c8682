//! Which claim an event lost to, leases, settling, requests, foreign values, shadow mode.

use super::*;

#[test]
fn oracle_lost_to_the_settled_then_the_primary_then_the_nearest_then_the_earlier() {
    let lost_to = |claimed: &[(i64, bool)], time_ns| {
        let mut oracle = Oracle::new(Rules {
            lease_ms: 1000,
            ..tumbling(10, 9)
        });
        for (time_ns, confirmed) in claimed {
            let claim = one(&mut oracle, 0, &enter("a", *time_ns)).claim.unwrap();
            if *confirmed {
                oracle.confirm(0, claim);
            }
        }
        let answer = one(&mut oracle, 0, &enter("a", time_ns));
        (answer.decision, answer.first_occurred_at)
    };
    let edge = T0;
    assert_eq!(
        lost_to(&[(edge - 4, true), (edge + 6, true)], edge),
        ("SUPPRESS", Some(edge + 6))
    );
    assert_eq!(
        lost_to(&[(edge - 4, true), (edge + 6, false)], edge),
        ("SUPPRESS", Some(edge - 4))
    );
    assert_eq!(
        lost_to(&[(edge - 4, false), (edge + 6, false)], edge),
        ("RETRY", None)
    );
    assert_eq!(
        lost_to(&[(edge - 4, true), (edge + 13, true)], edge + 4),
        ("SUPPRESS", Some(edge - 4))
    );
    assert_eq!(
        lost_to(&[(edge - 3, true), (edge + 12, true)], edge + 5),
        ("SUPPRESS", Some(edge + 12))
    );
    assert_eq!(
        lost_to(&[(edge + 12, true), (edge - 4, true)], edge + 4),
        ("SUPPRESS", Some(edge - 4))
    );
}

#[test]
fn oracle_lease_c01_c03_c07() {
    let mut oracle = Oracle::new(Rules {
        lease_ms: 1000,
        ..rules()
    });
    let event = ping("a", T0);
    let first = one(&mut oracle, 0, &event).claim.unwrap();
    let waiting = one(&mut oracle, 999, &event);
    assert_eq!(
        (waiting.decision, waiting.reason, waiting.claim),
        ("RETRY", "IN_FLIGHT", None)
    );
    let second = one(&mut oracle, 1500, &event).claim.unwrap();
    assert_eq!(oracle.release(1500, first), "NOT_HELD");
    assert_eq!(one(&mut oracle, 1500, &event).reason, "IN_FLIGHT");
    assert_eq!(oracle.confirm(1600, second), "APPLIED");
    assert_eq!(one(&mut oracle, 601_599, &event).reason, "REDELIVERY");
    assert_eq!(one(&mut oracle, 601_600, &event).reason, "LATE");
}

#[test]
fn oracle_lease_runs_out_exactly() {
    let mut oracle = Oracle::new(Rules {
        lease_ms: 1000,
        ..rules()
    });
    let claim = one(&mut oracle, 0, &ping("a", T0)).claim.unwrap();
    assert_eq!(oracle.renew(900, claim), "APPLIED");
    assert_eq!(one(&mut oracle, 1899, &ping("a", T0)).reason, "IN_FLIGHT");
    assert_eq!(one(&mut oracle, 1900, &ping("a", T0)).reason, "FIRST_SEEN");
    assert_eq!(oracle.confirm(1900, claim), "NOT_HELD");
}

#[test]
fn oracle_c06_c14_settling_table() {
    for (lease_ms, renewed, renewed_again) in [
        (1000, "APPLIED", "APPLIED"),
        (0, "ALREADY_APPLIED", "ALREADY_APPLIED"),
    ] {
        let mut oracle = Oracle::new(Rules {
            lease_ms,
            ..rules()
        });
        let claim = one(&mut oracle, 0, &ping("a", T0)).claim.unwrap();
        assert_eq!(oracle.renew(1, claim), renewed);
        assert_eq!(oracle.renew(1, claim), renewed_again);
        assert_eq!(oracle.release(1, claim), "APPLIED");
        assert_eq!(oracle.release(1, claim), "NOT_HELD");
        assert_eq!(oracle.renew(1, claim), "NOT_HELD");
        assert_eq!(oracle.confirm(1, claim), "NOT_HELD");
        let claim = one(&mut oracle, 1, &ping("a", T0)).claim.unwrap();
        assert_eq!(oracle.confirm(1, claim), "APPLIED");
        assert_eq!(oracle.confirm(1, claim), "ALREADY_APPLIED");
        assert_eq!(oracle.release(1, claim), "ALREADY_CONFIRMED");
        assert_eq!(oracle.renew(1, claim), "ALREADY_CONFIRMED");
        assert_eq!(oracle.confirm(1, 99), "NOT_HELD");
    }
}

#[test]
fn oracle_ttl_starts_anew_only_where_confirm_is_applied() {
    let mut oracle = Oracle::new(rules());
    let claim = one(&mut oracle, 0, &ping("a", T0)).claim.unwrap();
    assert_eq!(oracle.renew(100, claim), "ALREADY_APPLIED");
    assert_eq!(oracle.confirm(300_000, claim), "APPLIED");
    assert_eq!(oracle.confirm(500_000, claim), "ALREADY_APPLIED");
    assert_eq!(
        one(&mut oracle, 899_999, &ping("a", T0)).reason,
        "REDELIVERY"
    );
    assert_eq!(oracle.confirm(900_000, claim), "NOT_HELD");
}

#[test]
fn oracle_c13_settling_is_by_claim_only() {
    let mut oracle = Oracle::new(Rules {
        lease_ms: 1000,
        ..rules()
    });
    let claim = one(&mut oracle, 0, &ping("a", T0)).claim.unwrap();
    one(&mut oracle, 0, &ping("a", T0 + 90 * SECOND));
    assert_eq!(oracle.confirm(1, claim), "APPLIED");
    assert_eq!(one(&mut oracle, 2, &ping("a", T0)).decision, "SUPPRESS");
    assert_eq!(
        one(&mut oracle, 2, &ping("a", T0 + 90 * SECOND)).decision,
        "RETRY"
    );
}

#[test]
fn oracle_c10_copies_in_one_request() {
    let (e1, e2) = (ping("a", T0 + 59 * SECOND), ping("b", T0));
    let batch = [e1.clone(), e1.clone(), e2, e1];
    for (lease_ms, copy) in [
        (0, ("SUPPRESS", "REDELIVERY")),
        (1000, ("RETRY", "IN_FLIGHT")),
    ] {
        let mut oracle = Oracle::new(Rules {
            lease_ms,
            ..rules()
        });
        let answers = oracle.admit(0, T0, &batch, false);
        let seen: Vec<_> = answers
            .iter()
            .map(|it| ((it.decision, it.reason), it.copy_of_index))
            .collect();
        let admitted = (("ADMIT", "FIRST_SEEN"), None);
        assert_eq!(seen, [admitted, (copy, Some(0)), admitted, (copy, Some(0))]);
        let again = oracle.admit(0, T0, &batch, false);
        assert!(again.iter().all(|it| it.copy_of_index.is_none()));
    }
    let answers = Oracle::new(rules()).admit(
        0,
        T0,
        &[batch[0].clone(), ping("a", T0 + 61 * SECOND)],
        false,
    );
    assert_eq!(
        (answers[1].reason, answers[1].copy_of_index),
        ("BOUNDARY", Some(0))
    );
    assert_eq!(answers[1].first_occurred_at, Some(T0 + 59 * SECOND));
}

#[test]
fn oracle_g08_one_bad_event_fails_alone() {
    let batch = [
        ping_at(T0, 46.9, 7.4),
        ping_at(T0, f64::NAN, 7.4),
        ping_at(T0, 46.8, 7.4),
        Event {
            identity: Identity::Ping {
                asset: String::new(),
            },
            ..ping_at(T0, 46.9, 7.4)
        },
        ping_at(T0, 46.9, 7.4),
    ];
    let answers = Oracle::new(placed(9, 0.0)).admit(0, T0, &batch, false);
    let decisions: Vec<_> = answers.iter().map(|answer| answer.decision).collect();
    assert_eq!(
        decisions,
        ["ADMIT", "DEAD_LETTER", "ADMIT", "DEAD_LETTER", "SUPPRESS"]
    );
}

#[test]
fn oracle_omit_claims_stores_confirmed_and_gives_no_claim() {
    let mut oracle = Oracle::new(Rules {
        lease_ms: 1000,
        ..rules()
    });
    let answers = oracle.admit(0, T0, &[ping("a", T0)], true);
    assert_eq!((answers[0].decision, answers[0].claim), ("ADMIT", None));
    assert_eq!(
        one(&mut oracle, 599_999, &ping("a", T0)).reason,
        "REDELIVERY"
    );
    assert_eq!(
        one(&mut oracle, 600_000, &ping("a", T0)).reason,
        "FIRST_SEEN"
    );
}

#[test]
fn oracle_foreign_value_counts_on_the_primary_key_only() {
    let mut oracle = Oracle::new(rules());
    assert!(oracle.place_foreign(0, T0, &enter("a", T0), Some(1000)));
    let answer = one(&mut oracle, 0, &enter("a", T0 + 30 * SECOND));
    let expected = ("SUPPRESS", "UNCLASSIFIED", None);
    assert_eq!(
        (answer.decision, answer.reason, answer.first_occurred_at),
        expected
    );
    assert_eq!(
        one(&mut oracle, 0, &enter("a", T0 - 1)).reason,
        "FIRST_SEEN"
    );
    assert_eq!(one(&mut oracle, 0, &enter("a", T0)).reason, "UNCLASSIFIED");
    assert_eq!(one(&mut oracle, 1000, &enter("a", T0)).reason, "BOUNDARY");
    assert!(!oracle.place_foreign(0, T0, &enter("", T0), None));
}

#[test]
fn oracle_foreign_value_overwrites_a_claim() {
    let mut oracle = Oracle::new(keyed_rules());
    let claim = one(&mut oracle, 0, &keyed("E1", Some(1))).claim.unwrap();
    oracle.place_foreign(0, T0, &keyed("E1", None), None);
    assert_eq!(oracle.confirm(0, claim), "NOT_HELD");
    assert_eq!(
        one(&mut oracle, 1 << 40, &keyed("E1", Some(2))).reason,
        "UNCLASSIFIED"
    );
}

#[test]
fn oracle_shadow_admits_everything_and_says_why_not() {
    let mut oracle = Oracle::new(Rules {
        shadow: true,
        lease_ms: 0,
        ..rules()
    });
    let answers = oracle.admit(0, T0, &[ping("a", T0), ping("a", T0), ping("", T0)], false);
    assert!(
        answers
            .iter()
            .all(|answer| answer.decision == "ADMIT" && answer.shadow)
    );
    assert_eq!(
        answers
            .iter()
            .map(|answer| answer.reason)
            .collect::<Vec<_>>(),
        ["FIRST_SEEN", "REDELIVERY", "MISSING_IDENTITY"]
    );
    assert_eq!(
        answers
            .iter()
            .map(|answer| answer.claim)
            .collect::<Vec<_>>(),
        [Some(0), None, None]
    );
}
