//! Keyed events, cells and the space guard.

use super::*;

pub(super) async fn keyed_content(engine: Arc<Engine>) {
    let ns = "suite-keyed";
    check(&engine, ns, &[keyed("E1", Some(1))], &[Reason::FirstSeen]).await;
    check(
        &engine,
        ns,
        &[keyed("E1", Some(2))],
        &[Reason::ContentMismatch],
    )
    .await;
    check(&engine, ns, &[keyed("E1", Some(1))], &[Reason::Redelivery]).await;
    check(&engine, ns, &[keyed("E1", None)], &[Reason::Redelivery]).await;
    check(
        &engine,
        ns,
        &[
            keyed("{E1}", None),
            keyed("\u{e9}", None),
            keyed("e\u{301}", None),
        ],
        &[Reason::FirstSeen; 3],
    )
    .await;
}

pub(super) async fn pings_by_cell(engine: Arc<Engine>) {
    let ns = "suite-pings";
    let (lat, lon) = (52.520_008_7, 13.404_954_7);
    check(
        &engine,
        ns,
        &[ping("veh-88", T0, lat, lon)],
        &[Reason::FirstSeen],
    )
    .await;
    check(
        &engine,
        ns,
        &[ping("veh-88", T0, lat, lon)],
        &[Reason::Redelivery],
    )
    .await;
    check(
        &engine,
        ns,
        &[ping("veh-88", T0 + 20_000 * MS, lat, lon)],
        &[Reason::Reobservation],
    )
    .await;
    check(
        &engine,
        ns,
        &[ping("veh-88", T0 + 20_000 * MS, 52.520_041_0, 13.404_992_0)],
        &[Reason::Jitter],
    )
    .await;
    check(
        &engine,
        ns,
        &[ping("veh-88", T0 + 20_000 * MS, 52.524_1, 13.410_2)],
        &[Reason::FirstSeen],
    )
    .await;
    check(
        &engine,
        ns,
        &[ping("veh-88", T0 - MS, lat, lon)],
        &[Reason::Boundary],
    )
    .await;
    check(
        &engine,
        ns,
        &[ping("veh-91", T0, lat, lon)],
        &[Reason::FirstSeen],
    )
    .await;
    let same_place = [
        ping("s05", T0, 0.0, 10.0),
        ping("s05", T0, -0.0, 10.0),
        ping("s06", T0, 10.0, 180.0),
        ping("s06", T0, 10.0, -180.0),
    ];
    use Reason::{FirstSeen, Redelivery};
    check(
        &engine,
        ns,
        &same_place,
        &[FirstSeen, Redelivery, FirstSeen, Redelivery],
    )
    .await;
    assert_eq!(u8::from(place::Resolution::Twelve), 12);
}

pub(super) async fn a_space_guard_is_a_circle_across_cells(engine: Arc<Engine>) {
    let ns = "suite-spaced";
    // S09: a parked asset that alternates between two cells, 3 m apart.
    let fixes: Vec<RawEvent<'_>> = (0..30)
        .map(|second| {
            let longitude = if second % 2 == 0 {
                2.351_485_795
            } else {
                2.351_525_796
            };
            ping(
                "s09",
                T0 + second * 1000 * MS,
                48.864_942_069_957_86,
                longitude,
            )
        })
        .collect();
    let admission = admit(&engine, ns, None, &fixes).await;
    let count = |reason| {
        admission
            .verdicts()
            .iter()
            .filter(|verdict| verdict.reason == reason)
            .count()
    };
    assert_eq!((count(Reason::FirstSeen), count(Reason::Boundary)), (1, 15));
    admission.delivered();
    // Steps of a third of the guard in every direction from a point near a border: near is less
    // than 60 m, also where a box round the circle would say otherwise.
    let (latitude, longitude) = (48.864_942, 2.351_505);
    let metre_deg = 1.0 / 111_195.08;
    let centre = place::Position::new(latitude, longitude).expect("valid");
    for (x, y) in (-4..=4).flat_map(|x| (-4..=4).map(move |y| (x, y))) {
        let asset = format!("circle {x} {y}");
        let there_latitude = latitude + f64::from(y) * 20.0 * metre_deg;
        let there_longitude =
            longitude + f64::from(x) * 20.0 * metre_deg / latitude.to_radians().cos();
        let there = place::Position::new(there_latitude, there_longitude).expect("valid");
        let resolution = place::Resolution::Nine;
        let near =
            there.distance_m(centre) < 60.0 || there.cell(resolution) == centre.cell(resolution);
        check(
            &engine,
            ns,
            &[ping(&asset, T0, latitude, longitude)],
            &[Reason::FirstSeen],
        )
        .await;
        let second = ping(&asset, T0 + 1000 * MS, there_latitude, there_longitude);
        let (seen, _) = reasons(&engine, ns, &[second]).await;
        assert_eq!(
            seen[0] != Reason::FirstSeen,
            near,
            "{x} {y}: {seen:?}, {} m",
            there.distance_m(centre)
        );
    }
}
