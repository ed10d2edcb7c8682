//! Windows, guards, validity of times.

use super::*;

#[test]
fn oracle_t01_guard_reaches_across_an_edge_and_is_strict() {
    let (before, edge) = (1_785_242_098 * SECOND, 1_785_242_100 * SECOND);
    let rules = Rules {
        window: Window::Tumbling {
            width_ns: 300 * SECOND,
            guard_ns: 5 * SECOND,
        },
        ..rules()
    };
    check(
        &rules,
        &[
            (enter("a", before), "FIRST_SEEN"),
            (enter("a", edge), "BOUNDARY"),
        ],
    );
    check(
        &rules,
        &[
            (enter("a", edge), "FIRST_SEEN"),
            (enter("a", before), "BOUNDARY"),
        ],
    );
    for (apart, second) in [
        (5 * SECOND - 1, "BOUNDARY"),
        (5 * SECOND, "FIRST_SEEN"),
        (5 * SECOND + MS, "FIRST_SEEN"),
    ] {
        check(
            &rules,
            &[
                (enter("a", edge - apart), "FIRST_SEEN"),
                (enter("a", edge), second),
            ],
        );
        check(
            &rules,
            &[
                (enter("a", edge), "FIRST_SEEN"),
                (enter("a", edge - apart), second),
            ],
        );
    }
}

#[test]
fn oracle_t03_floor_is_toward_minus_infinity() {
    let times = [-MS, 0, 59_999 * MS, -60_000 * MS, -60_001 * MS];
    let expected = [
        "FIRST_SEEN",
        "FIRST_SEEN",
        "REOBSERVATION",
        "REOBSERVATION",
        "FIRST_SEEN",
    ];
    let rules = Rules {
        ttl_ms: 1 << 50,
        ..tumbling(60 * SECOND, 0)
    };
    assert_eq!(
        reasons(&rules, &times.map(|time| ping("a", time))),
        expected
    );
    let buckets = times.map(|time| fact_of(&rules, &ping("a", time), 0).unwrap().key.bucket);
    assert_eq!(buckets, [Some(-1), Some(0), Some(0), Some(-1), Some(-2)]);
}

#[test]
fn oracle_t05_nanos_outside_their_range() {
    let stamp = |nanos| Event {
        time: Time::Stamp {
            seconds: 1_700_000_040,
            nanos,
        },
        ..enter("a", 0)
    };
    check(
        &rules(),
        &[
            (stamp(-1), "MALFORMED_TIME"),
            (stamp(1_000_000_000), "MALFORMED_TIME"),
            (stamp(i32::MAX), "MALFORMED_TIME"),
            (stamp(999_999_999), "FIRST_SEEN"),
        ],
    );
}

#[test]
fn oracle_t08_mistaken_units() {
    let rules = Rules {
        max_future_ns: Some(300 * SECOND),
        max_age_ns: Some(30 * 86_400 * SECOND),
        ..rules()
    };
    let stamp = |seconds| Event {
        time: Time::Stamp { seconds, nanos: 0 },
        ..ping("a", 0)
    };
    let events = [
        stamp(1_700_000),
        stamp(1_700_000_040_000),
        stamp(1_700_000_040_000_000),
    ];
    assert_eq!(
        reasons(&rules, &events),
        ["TIME_TOO_OLD", "TIME_TOO_NEW", "TIME_TOO_NEW"]
    );
}

#[test]
fn oracle_t08_what_does_not_fit_where_limits_are_off() {
    let stamp = |seconds, nanos| Event {
        time: Time::Stamp { seconds, nanos },
        ..enter("a", 0)
    };
    check(
        &rules(),
        &[
            (stamp(-9_223_372_037, 145_224_192), "LATE"),
            (stamp(-9_223_372_037, 145_224_191), "TIME_TOO_OLD"),
            (stamp(9_223_372_036, 854_775_807), "FIRST_SEEN"),
            (stamp(9_223_372_036, 854_775_808), "TIME_TOO_NEW"),
        ],
    );
}

#[test]
fn oracle_t09_a_time_from_2099_blinds_nothing() {
    let rules = Rules {
        max_future_ns: Some(300 * SECOND),
        ..rules()
    };
    let far = ping("a", 4_070_908_800 * SECOND);
    check(
        &rules,
        &[
            (far.clone(), "TIME_TOO_NEW"),
            (ping("a", T0), "FIRST_SEEN"),
            (ping("a", T0 + 60 * SECOND), "FIRST_SEEN"),
            (ping("a", T0 + 120 * SECOND), "FIRST_SEEN"),
            (far, "TIME_TOO_NEW"),
        ],
    );
}

#[test]
fn oracle_t12_unset_is_not_zero() {
    let unset = Event {
        time: Time::Missing,
        ..ping("a", 0)
    };
    check(
        &rules(),
        &[
            (unset.clone(), "MISSING_TIME"),
            (unset, "MISSING_TIME"),
            (ping("a", 0), "LATE"),
        ],
    );
}

#[test]
fn oracle_t15_ttl_runs_from_the_claim() {
    let late = ping("a", T0 - 3 * 86_400 * SECOND);
    let mut oracle = Oracle::new(rules());
    assert_eq!(one(&mut oracle, 0, &late).reason, "LATE");
    assert_eq!(one(&mut oracle, 1000, &late).reason, "REDELIVERY");
    assert_eq!(one(&mut oracle, 599_999, &late).reason, "REDELIVERY");
    assert_eq!(one(&mut oracle, 600_000, &late).reason, "LATE");
}

#[test]
fn oracle_t17_reentry_with_and_without_a_sequence() {
    let (t1, t30) = (T0 + SECOND, T0 + 30 * SECOND);
    let mut exit = enter("d", T0 + 10 * SECOND);
    if let Identity::Transition { kind, .. } = &mut exit.identity {
        *kind = 2;
    }
    check(
        &rules(),
        &[
            (enter("d", t1), "FIRST_SEEN"),
            (exit, "FIRST_SEEN"),
            (enter("d", t30), "RESTAMPED"),
        ],
    );
    let with_sequence = [
        numbered(Some(1), 0, t1),
        numbered(Some(2), 0, t30),
        numbered(Some(1), 0, t30),
    ];
    assert_eq!(
        reasons(&rules(), &with_sequence),
        ["FIRST_SEEN", "FIRST_SEEN", "RESTAMPED"]
    );
    let epochs = [
        numbered(Some(1), 0, t1),
        numbered(Some(1), 1, t1),
        numbered(None, 0, t1),
        numbered(None, 1, t1),
    ];
    assert_eq!(
        reasons(&rules(), &epochs),
        ["FIRST_SEEN", "FIRST_SEEN", "FIRST_SEEN", "REDELIVERY"]
    );
}

#[test]
fn oracle_sequence_has_no_window_but_a_time() {
    let week = 7 * 86_400 * SECOND;
    let missing = Event {
        time: Time::Missing,
        ..numbered(Some(1), 0, 0)
    };
    let events = [
        numbered(Some(1), 0, T0),
        numbered(Some(1), 0, T0 - week),
        missing,
    ];
    assert_eq!(
        reasons(&rules(), &events),
        ["FIRST_SEEN", "RESTAMPED", "MISSING_TIME"]
    );
}

#[test]
fn oracle_t19_fixed_buckets() {
    let minute = 60 * SECOND;
    for (start, last) in [(1_699_999_200 * SECOND, "RESTAMPED"), (T0, "FIRST_SEEN")] {
        let events = [0, 4, 11, 19].map(|minutes| enter("a", start + minutes * minute));
        let rules = Rules {
            ttl_ms: 1 << 40,
            ..tumbling(30 * minute, 0)
        };
        assert_eq!(
            reasons(&rules, &events),
            ["FIRST_SEEN", "RESTAMPED", "RESTAMPED", last]
        );
    }
}

#[test]
fn oracle_t20_text() {
    let text = |text: &str| Event {
        time: Time::Text(text.into()),
        ..enter("a", 0)
    };
    check(
        &rules(),
        &[
            (text("2023-10-29T02:30:00+02:00"), "LATE"),
            (text("2023-10-29T00:30:00Z"), "REDELIVERY"),
            (enter("a", 1_698_539_400 * SECOND), "REDELIVERY"),
            (text("2023-10-29T02:30:00"), "NAIVE_TIME"),
            (text("2023-10-29T02:30:00.5"), "NAIVE_TIME"),
            (text("2023-02-29T02:30:00Z"), "MALFORMED_TIME"),
            (text("yesterday"), "MALFORMED_TIME"),
            (text("2500-01-01T00:00:00Z"), "TIME_TOO_NEW"),
        ],
    );
}

#[test]
fn oracle_texts_name_the_same_instant() {
    assert_eq!(text_of(T0, 0), "2023-11-14T22:14:00Z");
    assert_eq!(text_of(-1, -570), "1969-12-31T14:29:59.999999999-09:30");
    let mut dice = Dice::new(20);
    for _ in 0..2000 {
        let time_ns = dice.roll().cast_signed();
        let offset = dice.pick(&[0, 120, -570, 1439]);
        let text = Event {
            time: Time::Text(text_of(time_ns, offset)),
            ..enter("a", 0)
        };
        let fact = fact_of(&rules(), &text, 0).unwrap();
        assert_eq!(
            fact.time,
            Some(time_ns.into()),
            "{}",
            text_of(time_ns, offset)
        );
    }
}

#[test]
fn oracle_t23_guard_compares_times_not_buckets() {
    let heartbeats: Vec<Event> = (0..10)
        .map(|beat| ping("a", T0 + (1 + 60 * beat) * SECOND))
        .collect();
    assert_eq!(reasons(&rules(), &heartbeats), ["FIRST_SEEN"; 10]);
    assert_eq!(
        reasons(
            &rules(),
            &[ping("a", T0 + 58 * SECOND), ping("a", T0 + 118 * SECOND)]
        ),
        ["FIRST_SEEN"; 2]
    );
}

#[test]
fn oracle_sliding_window_has_no_boundary_reason() {
    let rules = tumbling(SECOND, SECOND);
    let at = |tenths: i64| enter("a", T0 + tenths * SECOND / 10);
    check(
        &rules,
        &[
            (at(0), "FIRST_SEEN"),
            (at(9), "RESTAMPED"),
            (at(18), "FIRST_SEEN"),
        ],
    );
    check(
        &rules,
        &[
            (at(9), "FIRST_SEEN"),
            (at(0), "RESTAMPED"),
            (at(18), "RESTAMPED"),
        ],
    );
    check(&rules, &[(at(5), "FIRST_SEEN"), (at(15), "FIRST_SEEN")]);
    check(
        &rules,
        &[
            (at(15), "FIRST_SEEN"),
            (enter("a", T0 + SECOND / 2 + 1), "RESTAMPED"),
        ],
    );
}

#[test]
fn oracle_duplicate_extends_nothing() {
    let rules = tumbling(60 * SECOND, 0);
    let events: Vec<Event> = (0..9).map(|n| ping("a", T0 + n * 20 * SECOND)).collect();
    let admitted = reasons(&rules, &events)
        .iter()
        .filter(|reason| **reason == "FIRST_SEEN")
        .count();
    assert_eq!(admitted, 3);
}

/// Section 3's simulation, smaller: genuine crossings at least 0.5 s apart, 6 % emitted again within 200 ms.
fn crossings(rules: &Rules) -> (usize, usize, usize) {
    let mut dice = Dice::new(3);
    let mut oracle = Oracle::new(Rules {
        ttl_ms: 5_000,
        ..rules.clone()
    });
    let mut time_ns = T0;
    let (mut emitted_again, mut swallowed, mut passed_twice) = (0, 0, 0);
    for _ in 0..20_000 {
        time_ns += 500 * MS + i64::try_from(dice.below(40_000)).unwrap() * MS;
        let mut times = vec![time_ns];
        if dice.below(100) < 6 {
            times.push(time_ns + i64::try_from(dice.below(200)).unwrap() * MS);
            emitted_again += 1;
        }
        let admitted = times.iter().filter(|time_ns| {
            let now_ms = u64::try_from((*time_ns - T0) / MS).unwrap();
            one(&mut oracle, now_ms, &enter("a", **time_ns)).decision == "ADMIT"
        });
        match admitted.count() {
            0 => swallowed += 1,
            1 => {}
            _ => passed_twice += 1,
        }
    }
    (emitted_again, swallowed, passed_twice)
}

#[test]
fn oracle_sliding_window_swallows_no_genuine_crossing() {
    let (emitted_again, swallowed, passed_twice) = crossings(&tumbling(200 * MS, 200 * MS));
    assert!(emitted_again > 1000);
    assert_eq!((swallowed, passed_twice), (0, 0));
    let (_, swallowed, passed_twice) = crossings(&tumbling(2 * SECOND, 200 * MS));
    assert!(swallowed > 0);
    assert_eq!(passed_twice, 0);
    let (_, _, passed_twice) = crossings(&tumbling(2 * SECOND, 0));
    assert!(passed_twice > 0);
}

#[test]
fn oracle_number_of_admissions_without_guards_is_independent_of_order() {
    let mut dice = Dice::new(7);
    for _ in 0..50 {
        let mut events: Vec<Event> = (0..40)
            .map(|_| {
                let north = dice.fraction() / 1000.0 + 46.9;
                ping_at(T0 + (dice.below(300) as i64 - 150) * SECOND, north, 7.4)
            })
            .collect();
        let rules = Rules {
            ttl_ms: 1 << 40,
            window: tumbling(60 * SECOND, 0).window,
            ..placed(12, 0.0)
        };
        let count = |events: &[Event]| {
            reasons(&rules, events)
                .iter()
                .filter(|it| **it == "FIRST_SEEN")
                .count()
        };
        let in_order = count(&events);
        for _ in 0..40 {
            let (one, other) = (dice.below(40) as usize, dice.below(40) as usize);
            events.swap(one, other);
        }
        assert_eq!(count(&events), in_order);
    }
}

#[test]
fn oracle_late_is_strict() {
    let ttl_ns = 600 * SECOND;
    let events = [
        enter("a", T0 - ttl_ns),
        enter("b", T0 - ttl_ns - 1),
        enter("b", T0 - ttl_ns),
    ];
    assert_eq!(
        reasons(&rules(), &events),
        ["FIRST_SEEN", "LATE", "BOUNDARY"]
    );
}

#[test]
fn oracle_limits_are_inclusive_and_measured_from_ingestion() {
    let rules = Rules {
        max_future_ns: Some(10),
        max_age_ns: Some(20),
        ..rules()
    };
    let ingested = |id, time_ns, at| Event {
        ingested_at: Some(at),
        ..enter(id, time_ns)
    };
    check(
        &rules,
        &[
            (enter("a", T0 + 10), "FIRST_SEEN"),
            (enter("b", T0 + 11), "TIME_TOO_NEW"),
            (enter("c", T0 - 20), "FIRST_SEEN"),
            (enter("d", T0 - 21), "TIME_TOO_OLD"),
            (ingested("e", T0 - 1020, T0 - 1000), "FIRST_SEEN"),
            (ingested("f", T0, T0 - 1000), "TIME_TOO_NEW"),
        ],
    );
}

#[test]
fn oracle_clamp_needs_ingested_at_and_decides_before_late() {
    let rules = Rules {
        max_future_ns: Some(10),
        max_age_ns: Some(20),
        clamp: true,
        ..rules()
    };
    let ingested = |time, ingested_at| Event {
        time,
        ingested_at,
        ..enter("a", 0)
    };
    let mut oracle = Oracle::new(rules.clone());
    let clamped = one(&mut oracle, 0, &ingested(Time::Nanos(0), Some(T0)));
    assert_eq!((clamped.reason, clamped.time_clamped), ("FIRST_SEEN", true));
    let unfit = Time::Stamp {
        seconds: i64::MAX,
        nanos: 0,
    };
    let copy = one(&mut oracle, 0, &ingested(unfit.clone(), Some(T0)));
    assert_eq!(
        (copy.reason, copy.time_clamped, copy.first_occurred_at),
        ("REDELIVERY", true, Some(T0))
    );
    let malformed = Time::Stamp {
        seconds: 0,
        nanos: -1,
    };
    let faults = [
        ingested(unfit, None),
        ingested(Time::Nanos(0), None),
        ingested(malformed, Some(T0)),
    ];
    assert_eq!(
        reasons(&rules, &faults),
        ["TIME_TOO_NEW", "TIME_TOO_OLD", "MALFORMED_TIME"]
    );
    let long_ago = ingested(Time::Nanos(0), Some(T0 - 600 * SECOND - 1));
    check(&rules, &[(long_ago, "LATE")]);
}
