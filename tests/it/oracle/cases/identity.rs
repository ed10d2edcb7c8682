//! Who is who, content, and the order of faults.

use super::*;

#[test]
fn oracle_i01_i05_ids_are_kept_as_they_are() {
    let ids = [
        "a",
        "a|b",
        "a\\|b",
        "a\\",
        "b|c",
        "Caf\u{e9}-7",
        "Cafe\u{301}-7",
        "\u{212b}",
        "\u{c5}",
        " a",
    ];
    assert_eq!(
        reasons(&rules(), &ids.map(|id| ping(id, T0))),
        ["FIRST_SEEN"; 10]
    );
    let of = |device: &str, fence: &str| {
        let (device, fence) = (device.into(), fence.into());
        let identity = Identity::Transition {
            device,
            fence,
            kind: 1,
            sequence: None,
            sequence_epoch: 0,
        };
        Event {
            identity,
            ..enter("", T0)
        }
    };
    let pairs = [
        of("a|b", "c"),
        of("a", "b|c"),
        of("a\\", "|b"),
        of("a", "\\||b"),
        of("AA", "B"),
        of("A", "AB"),
    ];
    assert_eq!(reasons(&rules(), &pairs), ["FIRST_SEEN"; 6]);
}

#[test]
fn oracle_i03_identities_that_are_not_there() {
    let transition = |device: &str, kind| {
        let (device, fence) = (device.into(), "F".into());
        let identity = Identity::Transition {
            device,
            fence,
            kind,
            sequence: None,
            sequence_epoch: 0,
        };
        Event {
            identity,
            ..enter("", T0)
        }
    };
    let long = "a".repeat(513);
    check(
        &rules(),
        &[
            (ping("", T0), "MISSING_IDENTITY"),
            (ping(" \t\u{3000}", T0), "MISSING_IDENTITY"),
            (
                Event {
                    identity: Identity::Missing,
                    ..ping("", T0)
                },
                "MISSING_IDENTITY",
            ),
            (transition("d", 0), "MISSING_IDENTITY"),
            (transition(&long, 0), "MISSING_IDENTITY"),
            (transition(&long, 9), "OVERSIZED_IDENTITY"),
            (transition("d", 9), "WRONG_KIND"),
            (keyed("", None), "MISSING_IDENTITY"),
            (keyed("E1", None), "WRONG_KIND"),
            (ping(&" ".repeat(600), T0), "MISSING_IDENTITY"),
            (ping(&"é".repeat(256), T0), "FIRST_SEEN"),
            (ping(&"é".repeat(257), T0), "OVERSIZED_IDENTITY"),
            (ping("\u{200b}", T0), "FIRST_SEEN"),
        ],
    );
}

#[test]
fn oracle_first_fault_in_the_order_of_the_table() {
    let faulty = |asset: &str, time, position| Event {
        identity: Identity::Ping {
            asset: asset.into(),
        },
        time,
        position,
        ..ping("", 0)
    };
    let malformed = Time::Stamp {
        seconds: i64::MAX,
        nanos: -1,
    };
    let too_new = Time::Stamp {
        seconds: i64::MAX,
        nanos: 0,
    };
    let nowhere = Position::LatLng {
        latitude: Some(f64::NAN),
        longitude: None,
    };
    let swapped = Position::LatLng {
        latitude: Some(100.0),
        longitude: Some(0.0),
    };
    check(
        &placed(9, 0.0),
        &[
            (faulty("", Time::Missing, nowhere), "MISSING_IDENTITY"),
            (faulty("a", Time::Missing, nowhere), "MISSING_TIME"),
            (faulty("a", malformed, nowhere), "MALFORMED_TIME"),
            (faulty("a", too_new, nowhere), "TIME_TOO_NEW"),
            (faulty("a", Time::Nanos(T0), nowhere), "MISSING_POSITION"),
            (faulty("a", Time::Nanos(T0), swapped), "INVALID_POSITION"),
        ],
    );
}

#[test]
fn oracle_i10_content_of_keyed_events() {
    let events = [
        keyed("E1", Some(1)),
        keyed("E1", Some(2)),
        keyed("E1", Some(1)),
        keyed("E1", None),
    ];
    let expected = ["FIRST_SEEN", "CONTENT_MISMATCH", "REDELIVERY", "REDELIVERY"];
    assert_eq!(reasons(&keyed_rules(), &events), expected);
    let mut oracle = Oracle::new(keyed_rules());
    let answers = oracle.admit(0, T0, &events, false);
    assert_eq!(answers[1].decision, "DEAD_LETTER");
    assert!(
        answers
            .iter()
            .all(|answer| answer.first_occurred_at.is_none())
    );

    let suppressing = Rules {
        mismatch_dead_letters: false,
        ..keyed_rules()
    };
    assert_eq!(
        reasons(&suppressing, &events[..2]),
        ["FIRST_SEEN", "CONTENT_CONFLICT"]
    );
}

#[test]
fn oracle_time_plays_no_part_in_keyed_events() {
    let ancient = Event {
        time: Time::Nanos(i64::MIN),
        ..keyed("E1", None)
    };
    let malformed = Event {
        time: Time::Stamp {
            seconds: 0,
            nanos: -1,
        },
        ..keyed("E1", None)
    };
    let rules = Rules {
        max_age_ns: Some(1),
        max_future_ns: Some(1),
        clamp: true,
        ..keyed_rules()
    };
    check(
        &rules,
        &[
            (ancient, "FIRST_SEEN"),
            (malformed, "REDELIVERY"),
            (keyed("E1", None), "REDELIVERY"),
        ],
    );
}

#[test]
fn oracle_i15_subjects_do_not_meet() {
    assert_eq!(
        reasons(
            &rules(),
            &[enter("a", T0), enter("b", T0 + 13 * SECOND), ping("a", T0)]
        ),
        ["FIRST_SEEN"; 3]
    );
}

#[test]
fn oracle_content_decides_before_time() {
    let rules = tumbling(60 * SECOND, 5 * SECOND);
    let hashed = |time_ns, content_hash| Event {
        content_hash,
        ..enter("a", time_ns)
    };
    let before = hashed(T0 - 1, Some(1));
    check(
        &rules,
        &[
            (before.clone(), "FIRST_SEEN"),
            (hashed(T0 + 1, Some(1)), "REDELIVERY"),
        ],
    );
    check(
        &rules,
        &[
            (before.clone(), "FIRST_SEEN"),
            (hashed(T0 + 1, Some(2)), "BOUNDARY"),
        ],
    );
    check(
        &rules,
        &[
            (before.clone(), "FIRST_SEEN"),
            (hashed(T0 - 1, Some(2)), "RESTAMPED"),
        ],
    );
    check(
        &rules,
        &[
            (before.clone(), "FIRST_SEEN"),
            (hashed(T0 - 1, None), "REDELIVERY"),
        ],
    );
    check(
        &rules,
        &[(before, "FIRST_SEEN"), (hashed(T0 - 2, None), "RESTAMPED")],
    );
}
