//! Session windows.

use super::*;

#[test]
fn oracle_session_is_inclusive_and_every_seen_event_extends_it() {
    let at = |time_ns| enter("a", T0 + time_ns);
    check(
        &session(60),
        &[
            (at(0), "FIRST_SEEN"),
            (at(60), "RESTAMPED"),
            (at(120), "RESTAMPED"),
            (at(181), "FIRST_SEEN"),
        ],
    );
    check(
        &session(60),
        &[
            (at(120), "FIRST_SEEN"),
            (at(60), "RESTAMPED"),
            (at(0), "RESTAMPED"),
            (at(-61), "FIRST_SEEN"),
        ],
    );
    check(
        &session(60),
        &[
            (at(0), "FIRST_SEEN"),
            (at(61), "FIRST_SEEN"),
            (at(30), "RESTAMPED"),
        ],
    );
    check(
        &session(60),
        &[
            (at(0), "FIRST_SEEN"),
            (at(5), "RESTAMPED"),
            (at(9), "RESTAMPED"),
            (at(5), "RESTAMPED"),
            (at(9), "REDELIVERY"),
            (at(0), "REDELIVERY"),
        ],
    );
}

#[test]
fn oracle_session_tells_first_sight_and_ignores_content_and_position() {
    let mut rules = placed(4, 0.0);
    rules.window = Window::Session {
        gap_ns: 60 * SECOND,
    };
    let hashed = |time_ns, content_hash, north| Event {
        content_hash,
        ..ping_at(time_ns, north, 7.4)
    };
    let mut oracle = Oracle::new(rules);
    assert_eq!(
        one(&mut oracle, 0, &hashed(T0 + 9, Some(1), 46.9)).claim,
        None
    );
    assert_eq!(
        one(&mut oracle, 0, &hashed(T0 + 5, Some(1), 46.900_01)).reason,
        "REOBSERVATION"
    );
    let answer = one(&mut oracle, 0, &hashed(T0 + 9, Some(2), 46.900_01));
    assert_eq!(
        (answer.reason, answer.first_occurred_at),
        ("REDELIVERY", Some(T0 + 5))
    );
    assert_eq!(
        one(&mut oracle, 0, &hashed(T0 + 5, None, 20.0)).reason,
        "FIRST_SEEN"
    );
}

#[test]
fn oracle_session_lease_retried_events_are_not_seen() {
    let mut oracle = Oracle::new(Rules {
        lease_ms: 1000,
        ..session(60)
    });
    let at = |time_ns| enter("a", T0 + time_ns);
    let claim = one(&mut oracle, 0, &at(0)).claim.unwrap();
    assert_eq!(one(&mut oracle, 0, &at(50)).reason, "IN_FLIGHT");
    assert_eq!(oracle.confirm(0, claim), "APPLIED");
    let other = one(&mut oracle, 0, &at(61)).claim.unwrap();
    assert_eq!(one(&mut oracle, 0, &at(60)).reason, "RESTAMPED");
    assert_eq!(oracle.release(0, other), "APPLIED");
    assert_eq!(one(&mut oracle, 0, &at(61)).reason, "FIRST_SEEN");
}

#[test]
fn oracle_session_seen_only_record_lives_a_ttl_of_its_own() {
    let mut oracle = Oracle::new(session(60));
    let at = |time_ns| enter("a", T0 + time_ns);
    one(&mut oracle, 0, &at(0));
    assert_eq!(one(&mut oracle, 300_000, &at(60)).reason, "RESTAMPED");
    assert_eq!(one(&mut oracle, 600_000, &at(60)).reason, "REDELIVERY");
    assert_eq!(one(&mut oracle, 600_000, &at(-1)).reason, "LATE");
    let answers = oracle.admit(600_000, T0, &[at(200), at(259), at(300)], false);
    assert_eq!(answers[1].copy_of_index, Some(0));
    assert_eq!(answers[2].copy_of_index, None);
}

#[test]
fn oracle_session_never_overwrites_a_foreign_value() {
    let mut oracle = Oracle::new(session(60));
    oracle.place_foreign(0, T0, &enter("a", T0), None);
    assert_eq!(
        one(&mut oracle, 0, &enter("a", T0 + 30)).reason,
        "UNCLASSIFIED"
    );
    assert_eq!(
        one(&mut oracle, 0, &enter("a", T0 + 61)).reason,
        "FIRST_SEEN"
    );
    assert_eq!(
        one(&mut oracle, 0, &enter("a", T0 + 30)).reason,
        "UNCLASSIFIED"
    );
}
