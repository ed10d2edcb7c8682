//! Session windows: every seen event extends.

use dedupd::grpc::proto::Reason::{self, Late, Redelivery, Reobservation};

use super::REST;
use crate::client::{
    EVERY_STORE, World,
    events::{MINUTE, SECOND, T0, ping, ping_at},
};

const GAP: i64 = 10 * MINUTE;

fn session(place: &str) -> String {
    format!("accepts: [ping], window: {{ session: 10m }}, place: {place}, {REST}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_lasts_until_the_gap_is_longer() {
    let config = format!("namespaces: {{ pings: {{ {} }} }}", session("none"));
    let rows = [
        (0, Late),
        (5 * MINUTE, Reobservation),
        // Exactly the gap after what was only seen.
        (5 * MINUTE + GAP, Reobservation),
        (5 * MINUTE + 2 * GAP + 1, Late),
        // Out of order: before the first, between the two.
        (-GAP, Reobservation),
        (-2 * GAP - 1, Late),
        (5 * MINUTE + 2 * GAP, Reobservation),
        (0, Redelivery),
        (5 * MINUTE + 2 * GAP + 1, Redelivery),
        (5 * MINUTE + 3 * GAP + 2, Late),
    ];
    for kept in EVERY_STORE {
        let world = World::start(kept, &config).await;
        world
            .check(
                "pings",
                &rows.map(|(after, expected)| (ping("a", T0 + after), expected)),
            )
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_of_one_cell() {
    let config = format!(
        "namespaces: {{ pings: {{ {} }} }}",
        session("{ resolution: 9 }")
    );
    let (here, there) = ((47.4, 8.5), (47.5, 8.5));
    let rows = [
        (ping_at("a", T0, here), Late),
        (ping_at("a", T0, there), Late),
        (ping_at("a", T0 + MINUTE, here), Reobservation),
        (ping_at("a", T0 + MINUTE, there), Reobservation),
        (ping_at("a", T0 + MINUTE, here), Redelivery),
        (ping_at("b", T0, here), Late),
    ];
    for kept in EVERY_STORE {
        World::start(kept, &config)
            .await
            .check("pings", &rows)
            .await;
    }
}

/// Figure 2 of the document on moving assets: six pings, two of them 4 s apart across an edge.
#[tokio::test(flavor = "multi_thread")]
async fn one_vehicle_under_three_windows() {
    // A multiple of five minutes.
    const START: i64 = 1_700_000_100 * SECOND;
    let kind =
        |window: &str| format!("accepts: [ping], window: {{ {window} }}, place: none, {REST}");
    let config = format!(
        "namespaces:
  tumbling: {{ {} }}
  sliding: {{ {} }}
  session: {{ {} }}
",
        kind("tumbling: 5m"),
        kind("sliding: 5m"),
        session("none")
    );
    let seconds = [30, 130, 298, 302, 420, 1100];
    let same = Reobservation;
    let windows: [(&str, [Reason; 6]); 3] = [
        // Two pings 4 s apart, both admitted.
        ("tumbling", [Late, same, same, Late, same, Late]),
        ("sliding", [Late, same, same, same, Late, Late]),
        ("session", [Late, same, same, same, same, Late]),
    ];
    for kept in EVERY_STORE {
        let world = World::start(kept, &config).await;
        for (namespace, expected) in windows {
            let pings = seconds.map(|second| ping("veh-88", START + second * SECOND));
            let rows: Vec<_> = pings.into_iter().zip(expected).collect();
            world.check(namespace, &rows).await;
        }
    }
}
