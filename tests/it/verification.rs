//! What the source documents verify, through the service and with their parameters.

use dedupd::grpc::proto::{
    Decision, Event,
    Reason::{self, Jitter, Late, Redelivery},
    TransitionKind,
};

use crate::client::{
    EVERY_STORE, World,
    events::{MS, SECOND, ping_at, transition},
};

const CONFIG: &str = "namespaces:
  pings:
    accepts: [ping]
    window: { tumbling: 5m }
    place: { resolution: 12 }
    ttl: 6h30m
    failure_mode: open
    time: { max_age: off }
  transitions:
    accepts: [transition]
    window: { tumbling: 2s, guard: 200ms }
    ttl: 5m
    failure_mode: closed
    time: { max_age: off }
  sliding:
    accepts: [transition]
    window: { sliding: 200ms }
    ttl: 5m
    failure_mode: closed
    time: { max_age: off }
";
/// 2026-08-08T12:00:00Z
const BASE: i64 = 1_786_190_400 * SECOND;
const BERLIN: (f64, f64) = (52.5200087, 13.4049547);

/// A first ping of veh-88 at BASE, then another one.
async fn check_after_the_first(second: Event, expected: Reason) {
    for kept in EVERY_STORE {
        let world = World::start(kept, CONFIG).await;
        let rows = [
            (ping_at("veh-88", BASE, BERLIN), Late),
            (second.clone(), expected),
        ];
        world.check("pings", &rows).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redelivery_collapses() {
    check_after_the_first(ping_at("veh-88", BASE, BERLIN), Redelivery).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jitter_while_parked_collapses() {
    let noisy = ping_at("veh-88", BASE + 20 * SECOND, (52.5200410, 13.4049920));
    check_after_the_first(noisy, Jitter).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn real_movement_is_admitted() {
    let moved = ping_at("veh-88", BASE + 20 * SECOND, (52.5241000, 13.4102000));
    check_after_the_first(moved, Late).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_assets_are_never_one() {
    check_after_the_first(ping_at("veh-91", BASE, BERLIN), Late).await;
}

/// Each event twice, then a genuine re-entry 45 s later: one fires for each crossing.
#[tokio::test(flavor = "multi_thread")]
async fn verify_bucket() {
    const CROSSINGS: i64 = 400;
    const RE_ENTRY: i64 = 45 * SECOND;
    let crossings: Vec<(String, i64)> = (0..CROSSINGS)
        // Every offset from an edge, in steps that do not divide the width.
        .map(|number| {
            (
                format!("device-{}", number % 40),
                BASE + number * 97 * SECOND + number * 7 * MS,
            )
        })
        .collect();
    let entry = |device: &str, nanos| transition(device, "F", TransitionKind::Enter, nanos);
    let events: Vec<Event> = crossings
        .iter()
        .flat_map(|(device, nanos)| {
            // The retry is stamped anew, within the guard.
            [0, 150 * MS, RE_ENTRY].map(|after| entry(device, nanos + after))
        })
        .collect();
    for kept in EVERY_STORE {
        let world = World::start(kept, CONFIG).await;
        for namespace in ["transitions", "sliding"] {
            let verdicts = world.admit(namespace, events.clone()).await;
            let fired = |place: usize| {
                let of_place = verdicts.iter().skip(place).step_by(3);
                of_place
                    .filter(|verdict| verdict.decision() == Decision::Admit)
                    .count()
            };
            let all = crossings.len();
            assert_eq!([fired(0), fired(1), fired(2)], [all, 0, all], "{namespace}");
        }
    }
}
