//! Positions, cells, the space guard.

use super::*;

#[test]
fn oracle_s01_s03_coordinates_out_of_range() {
    let bad = [
        (91.0, 10.0),
        (-91.0, 10.0),
        (10.0, 181.0),
        (10.0, 540.0),
        (130.909_384_798, -12.365_644_588),
        (488_647_160.0, 23_490_140.0),
        (6_250_000.0, 261_000.0),
        (1e308, 1e308),
        (f64::NAN, 10.0),
        (10.0, f64::NEG_INFINITY),
    ];
    assert_eq!(
        reasons(
            &placed(9, 0.0),
            &bad.map(|(north, east)| ping_at(T0, north, east))
        ),
        ["INVALID_POSITION"; 10]
    );
    check(&rules(), &[(ping_at(T0, f64::NAN, 900.0), "FIRST_SEEN")]);
}

#[test]
fn oracle_s03_web_mercator_metres_as_what_they_are() {
    let projected = |x, y, epsg| Event {
        position: Position::Projected {
            x: Some(x),
            y: Some(y),
            epsg,
        },
        ..ping("a", T0)
    };
    check(
        &placed(9, 0.0),
        &[
            (projected(261_000.0, 6_250_000.0, 4326), "INVALID_POSITION"),
            (projected(261_000.0, 6_250_000.0, 3857), "FIRST_SEEN"),
            // What pyproj makes of them.
            (ping_at(T0, 48.853_264_341, 2.344_602_892), "REDELIVERY"),
            (projected(2.344_602_892, 48.853_264_341, 4326), "REDELIVERY"),
            (projected(-0.0, 0.0, 3857), "NULL_ISLAND"),
            (projected(2.1e7, 1e6, 3857), "INVALID_POSITION"),
            (projected(1e6, 2.1e7, 3857), "INVALID_POSITION"),
        ],
    );
}

#[test]
fn oracle_s02_only_a_region_sees_a_swap() {
    let events = [
        ping_at(T0, 48.864_716, 2.349_014),
        ping_at(T0, 2.349_014, 48.864_716),
    ];
    assert_eq!(reasons(&placed(9, 0.0), &events), ["FIRST_SEEN"; 2]);
    let mut rules = placed(9, 0.0);
    rules.place.as_mut().unwrap().region = Some([48.864_716, 2.349_014, 49.0, 3.0]);
    assert_eq!(reasons(&rules, &events), ["FIRST_SEEN", "OUT_OF_REGION"]);
}

#[test]
fn oracle_s05_zeros() {
    let zeros = [
        (0.0, 10.0),
        (-0.0, 10.0),
        (0.0, 0.0),
        (-0.0, 0.0),
        (0.0, -0.0),
        (-0.0, -0.0),
    ];
    assert_eq!(
        reasons(
            &placed(9, 0.0),
            &zeros.map(|(north, east)| ping_at(T0, north, east))
        ),
        [
            "FIRST_SEEN",
            "REDELIVERY",
            "NULL_ISLAND",
            "NULL_ISLAND",
            "NULL_ISLAND",
            "NULL_ISLAND",
        ]
    );
}

#[test]
fn oracle_s06_antimeridian() {
    let events = [180.0, -180.0, 179.999_99, -179.999_99].map(|east| ping_at(T0, 10.0, east));
    assert_eq!(
        reasons(&placed(9, 0.0), &events),
        ["FIRST_SEEN", "REDELIVERY", "JITTER", "JITTER"]
    );
    let later = [ping_at(T0, 10.0, 180.0), ping_at(T0 + 1, 10.0, -180.0)];
    assert_eq!(
        reasons(&placed(9, 0.0), &later),
        ["FIRST_SEEN", "REOBSERVATION"]
    );
}

#[test]
fn oracle_s09_jitter_across_a_cell_border() {
    let events: Vec<Event> = (0..30)
        .map(|n| {
            let east = if n % 2 == 0 {
                2.351_485_795
            } else {
                2.351_525_796
            };
            ping_at(T0 + n * SECOND, 48.864_942_069_957_86, east)
        })
        .collect();
    let count = |rules: &Rules, reason| {
        reasons(rules, &events)
            .iter()
            .filter(|it| **it == reason)
            .count()
    };
    assert_eq!(count(&placed(9, 0.0), "FIRST_SEEN"), 2);
    assert_eq!(count(&placed(9, 15.0), "FIRST_SEEN"), 1);
    assert_eq!(count(&placed(9, 15.0), "BOUNDARY"), 15);
    assert_eq!(count(&placed(9, 15.0), "REOBSERVATION"), 14);
}

#[test]
fn oracle_haversine() {
    let at = |latitude, longitude| Point {
        latitude,
        longitude,
    };
    let quarter_m = 6_371_008.8 * std::f64::consts::FRAC_PI_2;
    assert!((distance_m(at(0.0, 0.0), at(90.0, 0.0)) - quarter_m).abs() < 1e-6);
    assert!((distance_m(at(0.0, 170.0), at(0.0, -100.0)) - quarter_m).abs() < 1e-6);
    let degree_m = quarter_m / 90.0;
    assert!((distance_m(at(10.0, 7.0), at(11.0, 7.0)) - degree_m).abs() < 1e-6);
    assert!((distance_m(at(-0.5, 180.0), at(0.5, 180.0)) - degree_m).abs() < 1e-6);
    assert_eq!(distance_m(at(46.9, 7.4), at(46.9, 7.4)), 0.0);
}

#[test]
fn oracle_space_guard_is_strict_and_jitter_is_not() {
    let p = Point {
        latitude: 46.948_09,
        longitude: 7.447_44,
    };
    let (north, east) = destination((p.latitude, p.longitude), 63.0, 500.0);
    let exact_m = distance_m(
        p,
        Point {
            latitude: north,
            longitude: east,
        },
    );
    let events = [
        ping_at(T0, p.latitude, p.longitude),
        ping_at(T0 + 1, north, east),
    ];
    assert_eq!(
        reasons(&placed(12, exact_m), &events),
        ["FIRST_SEEN", "FIRST_SEEN"]
    );
    assert_eq!(
        reasons(&placed(12, exact_m.next_up()), &events),
        ["FIRST_SEEN", "BOUNDARY"]
    );

    let mut coarse = placed(4, 0.0);
    coarse.place.as_mut().unwrap().jitter_radius_m = exact_m;
    assert_eq!(reasons(&coarse, &events), ["FIRST_SEEN", "JITTER"]);
    coarse.place.as_mut().unwrap().jitter_radius_m = exact_m.next_down();
    assert_eq!(reasons(&coarse, &events), ["FIRST_SEEN", "REOBSERVATION"]);
}

#[test]
fn oracle_s14_transition_has_no_place() {
    let far = Event {
        position: ping_at(0, 46.0, 7.0).position,
        ..enter("a", T0)
    };
    check(
        &placed(9, 0.0),
        &[(far, "FIRST_SEEN"), (enter("a", T0 + SECOND), "RESTAMPED")],
    );
}

#[test]
fn oracle_positions_that_are_not_there() {
    let at = |position| Event {
        position,
        ..ping("a", T0)
    };
    let (some, none) = (Some(1.0), None);
    let events = [
        at(Position::Missing),
        at(Position::LatLng {
            latitude: some,
            longitude: none,
        }),
        at(Position::LatLng {
            latitude: none,
            longitude: some,
        }),
        at(Position::Projected {
            x: none,
            y: some,
            epsg: 0,
        }),
        at(Position::Projected {
            x: some,
            y: Some(f64::NAN),
            epsg: 0,
        }),
        at(Position::Projected {
            x: some,
            y: some,
            epsg: 0,
        }),
    ];
    let expected = [
        "MISSING_POSITION",
        "MISSING_POSITION",
        "MISSING_POSITION",
        "MISSING_POSITION",
        "INVALID_POSITION",
        "UNKNOWN_CRS",
    ];
    assert_eq!(reasons(&placed(9, 0.0), &events), expected);
    let mut unjudged = vec!["REDELIVERY"; 6];
    unjudged[0] = "FIRST_SEEN";
    assert_eq!(reasons(&rules(), &events), unjudged);
}
