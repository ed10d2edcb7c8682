//! Edges of windows, and what lies on either side.

use dedupd::grpc::proto::Reason::{self, Boundary, Late, Redelivery, Reobservation, Restamped};

use super::{REST, usual};
use crate::client::{
    EVERY_STORE, Kept, World,
    events::{MINUTE, MS, SECOND, T0, enter, ping},
};

#[tokio::test(flavor = "multi_thread")]
async fn t01_a_repeat_across_an_epoch_aligned_edge() {
    const EDGE: i64 = 1_785_242_100 * SECOND;
    let config = format!(
        "namespaces: {{ pings: {{ accepts: [ping], window: {{ tumbling: 300s, guard: 5s }}, place: none, {REST} }} }}"
    );
    // The guard is strict: exactly G apart are two events.
    let rows: [(&str, i64, i64, Reason); 8] = [
        ("a", EDGE - 2 * SECOND, EDGE, Boundary),
        ("reversed", EDGE, EDGE - 2 * SECOND, Boundary),
        ("inside", EDGE - 5 * SECOND + 1, EDGE, Boundary),
        ("inside reversed", EDGE, EDGE - 5 * SECOND + 1, Boundary),
        ("exactly", EDGE - 5 * SECOND, EDGE, Late),
        ("exactly reversed", EDGE + 4 * SECOND, EDGE - SECOND, Late),
        ("past", EDGE - 5 * SECOND - MS, EDGE, Late),
        ("past reversed", EDGE + 4 * SECOND + MS, EDGE - SECOND, Late),
    ];
    for kept in EVERY_STORE {
        let world = World::start(kept, &config).await;
        for (asset, first, second, expected) in rows {
            let pair = [(ping(asset, first), Late), (ping(asset, second), expected)];
            world.check("pings", &pair).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t03_buckets_before_1970_are_floored() {
    let config = format!(
        "namespaces:
  pings: {{ accepts: [ping], window: {{ tumbling: 60s }}, place: none, {REST} }}
  crossings: {{ accepts: [transition], window: {{ tumbling: 60s }}, {REST} }}
"
    );
    let rows = [
        (-MS, -1, true),
        (0, 0, true),
        (59_999 * MS, 0, false),
        (-60_000 * MS, -1, false),
        (-60_001 * MS, -2, true),
    ];
    for kept in EVERY_STORE {
        let world = World::start(kept, &config).await;
        for (nanos, bucket, admitted) in rows {
            let (a_ping, crossing) = (ping("a", nanos), enter("a", nanos));
            let material = world.explain("pings", &a_ping).await.material;
            assert_eq!(material, format!("a|{}|-", bucket * 60));
            let material = world.explain("crossings", &crossing).await.material;
            assert_eq!(material, format!("a|F|E|{bucket}"));
            let expected = |repeated| if admitted { Late } else { repeated };
            world
                .check("pings", &[(a_ping, expected(Reobservation))])
                .await;
            world
                .check("crossings", &[(crossing, expected(Restamped))])
                .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t15_the_ttl_runs_from_the_claim() {
    let config = usual().replace("max_age: off", "max_age: 7d");
    let event = ping("a", crate::client::events::now() - 3 * 24 * 60 * MINUTE);
    for kept in EVERY_STORE {
        let world = World::start(kept, &config).await;
        let rows = [(event.clone(), Late), (event.clone(), Redelivery)];
        world.check("pings", &rows).await;
        let found = world.explain("pings", &event).await.claims.remove(0);
        let left = found.expires_in.expect("ours expire").seconds;
        assert!((500..=600).contains(&left), "{left} s");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t23_a_guard_does_not_eat_heartbeats() {
    let heartbeats = |asset: &'static str, first: i64, count: i64| {
        (0..count).map(move |beat| (ping(asset, T0 + first + beat * MINUTE), Late))
    };
    let rows: Vec<_> = heartbeats("early", SECOND, 10)
        .chain(heartbeats("late", 58 * SECOND, 10))
        .collect();
    for kept in EVERY_STORE {
        World::start(kept, &usual())
            .await
            .check("pings", &rows)
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn o05_the_last_rung_of_the_ladder_is_still_suppressed() {
    const LAST_RUNG_MS: i64 = 5_437_000;
    let ladder =
        "{ retry_delays: [1s, 5s, 30s, 120s, 600s, 3600s], retry_jitter: 0.2, attempt_time: 30s }";
    let config = usual().replace("ttl: 600s", &format!("ttl: {ladder}"));
    let event = ping("a", T0 + 30 * SECOND);
    let world = World::start(Kept::InRedis, &config).await;
    let redis = world.redis().expect("on Redis");
    world.check("pings", &[(event.clone(), Late)]).await;
    let key = world.explain("pings", &event).await.keys.remove(0);
    let left: i64 = redis.cli(&["PTTL", &key]).parse().expect("a number");
    assert!((LAST_RUNG_MS..=5_437_200).contains(&left), "{left} ms");
    // The ladder's time passes, but for what the test itself took.
    let at_last = (5_437_200 - LAST_RUNG_MS).to_string();
    assert_eq!(redis.cli(&["PEXPIRE", &key, &at_last]), "1");
    world.check("pings", &[(event.clone(), Redelivery)]).await;
}
