//! Positions: wrong ones, and borders that are not there.

use dedupd::grpc::proto::{
    Event,
    Reason::{
        self, Boundary, InvalidPosition, Jitter, Late, NullIsland, OutOfRegion, Redelivery,
        Reobservation,
    },
};

use super::REST;
use crate::client::{
    EVERY_STORE, Kept, World,
    events::{SECOND, T0, ping_at},
};

const PARIS: (f64, f64) = (48.864716, 2.349014);

fn pings(place: &str) -> String {
    let window = "window: { tumbling: 60s, guard: 5s }";
    format!(
        "namespaces: {{ pings: {{ accepts: [ping], {window}, place: {{ {place} }}, {REST} }} }}"
    )
}

/// Of one asset at one time.
fn placed(latitude: f64, longitude: f64) -> Event {
    ping_at("a", T0, (latitude, longitude))
}

async fn check(config: &str, rows: &[((f64, f64), Reason)]) {
    let rows: Vec<_> = rows
        .iter()
        .map(|&((latitude, longitude), expected)| (placed(latitude, longitude), expected))
        .collect();
    for kept in EVERY_STORE {
        World::start(kept, config).await.check("pings", &rows).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s01_a_position_that_is_nowhere_has_no_key() {
    let nowhere = [(91.0, 10.0), (-91.0, 10.0), (10.0, 181.0), (10.0, 540.0)];
    check(
        &pings("resolution: 9"),
        &nowhere.map(|position| (position, InvalidPosition)),
    )
    .await;
    let world = World::start(Kept::InMemory, &pings("resolution: 9")).await;
    for (latitude, longitude) in nowhere {
        let explained = world.explain("pings", &placed(latitude, longitude)).await;
        assert_eq!((explained.keys, explained.cell), (vec![], String::new()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s02_swapped_coordinates_are_found_by_range_or_region() {
    let darwin = (130.909384798, -12.365644588);
    let swapped = (PARIS.1, PARIS.0);
    let everywhere = [(darwin, InvalidPosition), (PARIS, Late), (swapped, Late)];
    check(&pings("resolution: 9"), &everywhere).await;
    let in_europe = [
        (darwin, InvalidPosition),
        (PARIS, Late),
        (swapped, OutOfRegion),
    ];
    check(
        &pings("resolution: 9, region: [35, -10, 60, 30]"),
        &in_europe,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s03_other_units_are_found_by_range_and_radians_by_a_region() {
    let radians = (0.852850182, 0.0409980285);
    let rows = |last| {
        [
            ((488_647_160.0, 23_490_140.0), InvalidPosition),
            ((6_250_000.0, 261_000.0), InvalidPosition),
            ((1e308, 1e308), InvalidPosition),
            (radians, last),
        ]
    };
    check(&pings("resolution: 9"), &rows(Late)).await;
    check(
        &pings("resolution: 9, region: [35, -10, 60, 30]"),
        &rows(OutOfRegion),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s05_zero_has_no_sign() {
    let rows = [
        ((0.0, 10.0), Late),
        ((-0.0, 10.0), Redelivery),
        ((0.0, 0.0), NullIsland),
        ((-0.0, 0.0), NullIsland),
        ((0.0, -0.0), NullIsland),
        ((-0.0, -0.0), NullIsland),
    ];
    check(&pings("resolution: 9"), &rows).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s06_the_antimeridian_is_one_line() {
    let rows = [
        ((10.0, 180.0), Late),
        ((10.0, -180.0), Redelivery),
        ((10.0, 179.99999), Jitter),
        ((10.0, -179.99999), Jitter),
    ];
    check(&pings("resolution: 9"), &rows).await;
    // Where the two sides are two cells, 7 m apart.
    let apart = [((10.0, 179.99997), Late), ((10.0, -179.99997), Boundary)];
    check(&pings("resolution: 12, guard_m: 8"), &apart).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s09_jitter_across_a_cells_border() {
    let either_side = [
        (48.86494206995786, 2.351485795),
        (48.86494206995786, 2.351525796),
    ];
    let parked = |across: Reason, first_across: Reason| {
        let pings = (0..30_u8).map(|second| {
            let side = usize::from(second % 2);
            let event = ping_at("a", T0 + i64::from(second) * SECOND, either_side[side]);
            let expected = match second {
                0 => Late,
                1 => first_across,
                _ if side == 1 => across,
                _ => Reobservation,
            };
            (event, expected)
        });
        pings.collect::<Vec<_>>()
    };
    for kept in EVERY_STORE {
        let world = World::start(kept, &pings("resolution: 9, guard_m: 10")).await;
        world.check("pings", &parked(Boundary, Boundary)).await;
        assert_eq!(world.counted("pings", Boundary), 15.0);
        let world = World::start(kept, &pings("resolution: 9")).await;
        world.check("pings", &parked(Reobservation, Late)).await;
    }
}

/// Borders belong to it, and it may cross the antimeridian.
#[tokio::test(flavor = "multi_thread")]
async fn a_region_is_a_box() {
    let rows = [
        ((-20.0, 175.0), Late),
        ((-10.0, -175.0), Late),
        ((-15.0, 180.0), Late),
        ((-15.0, -180.0), Redelivery),
        ((-15.0, 174.999), OutOfRegion),
        ((-15.0, -174.999), OutOfRegion),
        ((-20.001, 180.0), OutOfRegion),
        ((0.0, 0.0), NullIsland),
    ];
    check(
        &pings("resolution: 9, region: [-20, 175, -10, -175]"),
        &rows,
    )
    .await;
}
