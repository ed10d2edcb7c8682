use std::collections::HashMap;

use serde::Deserialize;

use super::*;

/// Written by tests/python/make_projections.py.
const VECTORS: &str = include_str!("../../../tests/data/projections.jsonl");

#[derive(Debug, Deserialize)]
struct Vector {
    epsg: u32,
    x: f64,
    y: f64,
    latitude: f64,
    longitude: f64,
    tolerance_m: f64,
}

fn vectors() -> impl Iterator<Item = Vector> {
    VECTORS
        .lines()
        .map(|line| serde_json::from_str(line).expect("a vector"))
}

fn reason_of(x: f64, y: f64, epsg: u32) -> Option<Reason> {
    reproject(x, y, epsg)
        .err()
        .map(|rejection| rejection.reason)
}

#[track_caller]
fn check(x: f64, y: f64, epsg: u32, latitude_deg: f64, longitude_deg: f64) {
    let expected = Position::new(latitude_deg, longitude_deg);
    assert_eq!(reproject(x, y, epsg), expected, "({x}, {y}) of EPSG:{epsg}");
}

#[track_caller]
fn check_refused(epsg: u32, refusal: Refusal) {
    assert_eq!(find(epsg).err(), Some(refusal), "EPSG:{epsg}");
    let rejection = reproject(1.0, 2.0, epsg).expect_err("refused");
    assert_eq!(rejection.reason, Reason::UnknownCrs);
    assert!(
        rejection.detail.contains(refusal.in_words()),
        "{}",
        rejection.detail
    );
}

#[track_caller]
fn check_outside(epsg: u32, points: &[(f64, f64)]) {
    for &(x, y) in points {
        assert_eq!(
            reason_of(x, y, epsg),
            Some(Reason::InvalidPosition),
            "({x:e}, {y:e}) of EPSG:{epsg}: {:?}",
            reproject(x, y, epsg)
        );
    }
}

#[test]
fn agrees_with_proj() {
    let mut systems = HashMap::new();
    for vector in vectors() {
        let expected = Position::new(vector.latitude, vector.longitude).expect("a valid position");
        let found = reproject(vector.x, vector.y, vector.epsg)
            .unwrap_or_else(|rejection| panic!("{vector:?}: {rejection:?}"));
        let off_m = found.distance_m(expected);
        assert!(off_m <= vector.tolerance_m, "{vector:?}: {off_m} m off");
        *systems.entry(vector.epsg).or_insert(0) += 1;
    }
    let named = [
        3857, 32632, 32733, 2056, 21781, 27700, 2154, 28992, 3031, 2263,
    ];
    assert!(named.iter().all(|epsg| systems.contains_key(epsg)));
}

#[test]
fn a_result_projected_again_is_the_point() {
    for Vector { epsg, x, y, .. } in vectors() {
        if let Crs::Projected(proj, _) = find(epsg).expect("known") {
            let found = reproject(x, y, epsg).expect("a position");
            let (lon, lat) = (
                found.longitude_deg().to_radians(),
                found.latitude_deg().to_radians(),
            );
            let back = from_wgs84(proj, lon, lat).expect("forward");
            let off_m = distance_m(proj, (x, y), back);
            // Half of the last kept digit of a degree is 0.06 mm; the rest is the inverse of a Helmert rotation.
            assert!(off_m <= 0.005, "EPSG:{epsg} ({x}, {y}): {off_m} m off");
        }
    }
}

#[test]
fn degrees_of_wgs84_are_taken_as_they_stand() {
    for epsg in [4326, 4258, 4269, 7844, 4979] {
        for (x, y) in [
            (8.540_000_000_000_1, 47.370_000_000_000_3),
            (180.0, 90.0),
            (-180.0, -90.0),
            (5e-324, 1.0),
            (-0.0, 10.0),
        ] {
            check(x, y, epsg, y, x);
        }
        check_outside(
            epsg,
            &[(180.000_000_1, 0.5), (8.5, 90.000_000_1), (540.0, 10.0)],
        );
        assert_eq!(reason_of(-0.0, 0.0, epsg), Some(Reason::NullIsland));
    }
}

#[test]
fn results_are_judged_like_any_position() {
    for (x, y) in [(0.0, 0.0), (-0.0, -0.0), (1e-5, -1e-5), (5e-324, 0.0)] {
        assert_eq!(reason_of(x, y, 3857), Some(Reason::NullIsland));
    }
    // The gulf of Guinea in zone 31: central meridian 3° E.
    let there = reproject(166_021.443_1, 0.0, 32631);
    assert_eq!(there.unwrap_err().reason, Reason::NullIsland);
    // Both names of the antimeridian are one.
    let half_m = std::f64::consts::PI * 6_378_137.0;
    check(half_m, 1.0, 3857, 0.000_008_983, 180.0);
    check(-half_m, 1.0, 3857, 0.000_008_983, 180.0);
}

/// The case S03: metres taken for degrees are out of range, and as what they are they are in Paris.
#[test]
fn s03_web_mercator_metres() {
    let as_degrees = Position::new(6_250_000.0, 261_000.0).unwrap_err();
    assert_eq!(as_degrees.reason, Reason::InvalidPosition);
    let found = reproject(261_000.0, 6_250_000.0, 3857).unwrap();
    let paris = Position::new(48.853_264, 2.344_603).unwrap();
    assert!(found.distance_m(paris) < 0.1, "{found:?}");
}

#[test]
fn points_outside_of_a_domain_are_told() {
    let far = [
        (1e308, 1e308),
        (f64::MAX, f64::MIN),
        (1e15, 1e15),
        (1e30, 0.0),
        // E7 integers, both ways round.
        (85_400_000.0, 473_700_000.0),
        (473_700_000.0, 85_400_000.0),
    ];
    for epsg in [
        3857, 3395, 32632, 32733, 2056, 21781, 27700, 2154, 28992, 3031, 2263, 5514, 3035, 6933,
        4087, 8857, 4326, 4277,
    ] {
        check_outside(epsg, &far);
    }
    let edge_m = 20_037_508.342_789_244;
    check_outside(
        3857,
        &[
            (edge_m + 2.0, 1e6),
            (-edge_m - 2.0, 1e6),
            (1e6, edge_m * 1.001),
            (1e6, -edge_m * 1.001),
            (2.0 * edge_m, 1e6),
            (1e6, 2.0 * edge_m),
        ],
    );
    assert_eq!(reason_of(edge_m, edge_m, 3857), None);
    // Beyond 4000 km from the central meridian, over the pole, round the Earth, and swapped.
    check_outside(
        32632,
        &[
            (1e7, 5e6),
            (-1e7, 5e6),
            (5e5, 1.1e7),
            (5e5, 3e7),
            (5e5, -3e7),
            (5_246_000.0, 465_000.0),
        ],
    );
    check_outside(2056, &[(1e7, 1e6), (2.6e6, 1.2e7)]);
    check_outside(2154, &[(1e7, 1e7), (700_000.0, 2e7)]);
    check_outside(3031, &[(1e7, 1e7), (3e7, 0.0)]);
    check_outside(2263, &[(3e7, 2e5)]);
    check_outside(4277, &[(181.0, 51.0), (-0.1, 90.01)]);
}

#[test]
fn nothing_but_numbers_is_a_point_of_any_system() {
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        for epsg in [3857, 4326, 0, u32::MAX] {
            check_outside(epsg, &[(value, 1.0), (1.0, value), (value, value)]);
        }
    }
}

#[test]
fn refusals() {
    for epsg in [0, 1, 3, 900_913, 102_100, 65_536 + 4326, u32::MAX] {
        check_refused(epsg, Refusal::Unknown);
    }
    // Vertical systems have no string at all.
    for epsg in [5703, 5773] {
        check_refused(epsg, Refusal::Unknown);
    }
    // Geocentric, compound.
    for epsg in [4978, 7405, 5498] {
        check_refused(epsg, Refusal::NotHorizontal);
    }
    // New Zealand Map Grid, and Laborde's projection of Madagascar.
    for epsg in [27200, 8441] {
        check_refused(epsg, Refusal::Method);
    }
    // NAD27.
    for epsg in [4267, 26710, 32040] {
        check_refused(epsg, Refusal::Grid);
    }
    // An unknown datum on Bessel's ellipsoid, and spheres.
    for epsg in [4004, 3410, 4047] {
        check_refused(epsg, Refusal::Datum);
    }
    for code in MISDESCRIBED {
        check_refused(code.into(), Refusal::Misdescribed);
    }
}

/// Whoever takes a new version of the definitions compares them with PROJ again (see [`MISDESCRIBED`]).
#[test]
fn the_definitions_are_those_that_were_compared() {
    let mut counts: HashMap<Result<&str, Refusal>, u32> = HashMap::new();
    for epsg in 0..=u32::from(u16::MAX) {
        let kind = find(epsg).map(|crs| match crs {
            Crs::Wgs84 => "degrees as they stand",
            Crs::Geographic(_) => "degrees",
            Crs::Projected(..) => "projected",
        });
        *counts.entry(kind).or_default() += 1;
    }
    let expected = HashMap::from([
        (Ok("degrees as they stand"), 323),
        (Ok("degrees"), 283),
        (Ok("projected"), 4440),
        (Err(Refusal::Unknown), 59_354),
        (Err(Refusal::NotHorizontal), 473),
        (Err(Refusal::Method), 2),
        (Err(Refusal::Grid), 236),
        (Err(Refusal::Datum), 409),
        (Err(Refusal::Misdescribed), MISDESCRIBED.len() as u32),
    ]);
    assert_eq!(counts, expected);
}

/// Any answer will do; what must not be is a panic, or a position that is none.
#[test]
fn hostile_numbers_harm_no_system() {
    let numbers = [
        0.0,
        -0.0,
        5e-324,
        -f64::MIN_POSITIVE,
        1.0,
        std::f64::consts::FRAC_PI_2,
        90.0,
        -180.0,
        5e5,
        -6_378_137.0,
        1e7,
        20_037_508.342_789_244,
        4.7e8,
        1e16,
        1e154,
        -1e308,
        f64::MAX,
    ];
    for epsg in (0..=u32::from(u16::MAX)).filter(|epsg| find(*epsg).is_ok()) {
        for x in numbers {
            for y in numbers {
                check_sane(x, y, epsg);
            }
        }
    }
}

#[test]
fn random_numbers_harm_no_system() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut draw = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..40_000 {
        let epsg = 2000 + (draw() % 31_000) as u32;
        // Any bits at all, and numbers of a plausible size.
        check_sane(f64::from_bits(draw()), f64::from_bits(draw()), epsg);
        let mut plausible = || (draw() % 60_000_000) as f64 - 3e7;
        check_sane(plausible(), plausible(), epsg);
    }
}

#[track_caller]
fn check_sane(x: f64, y: f64, epsg: u32) {
    if let Ok(found) = reproject(x, y, epsg) {
        let (lat, lon) = (found.latitude_deg(), found.longitude_deg());
        assert!(
            lat.abs() <= 90.0 && lon.abs() <= 180.0,
            "({x:e}, {y:e}) of EPSG:{epsg}: {found:?}"
        );
    }
}
