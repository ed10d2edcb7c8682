//! What happened twice, and what is said twice.

use dedupd::grpc::proto::{
    Event,
    Reason::{self, Late, Restamped},
    TransitionKind,
    event::Identity,
};

use super::{REST, usual};
use crate::client::{
    EVERY_STORE, World,
    events::{MINUTE, SECOND, T0, enter, ping, transition},
};

fn numbered(mut event: Event, number: u64) -> Event {
    let Some(Identity::Transition(transition)) = &mut event.identity else {
        panic!("{event:?}")
    };
    transition.sequence = Some(number);
    event
}

#[tokio::test(flavor = "multi_thread")]
async fn t17_a_fast_re_entry_is_told_apart_by_its_sequence_only() {
    let crossings = [
        enter("a", T0 + SECOND),
        transition("a", "F", TransitionKind::Exit, T0 + 10 * SECOND),
        enter("a", T0 + 30 * SECOND),
    ];
    for kept in EVERY_STORE {
        let world = World::start(kept, &usual()).await;
        let expected = [Late, Late, Restamped];
        let rows: Vec<_> = crossings.iter().cloned().zip(expected).collect();
        world.check("crossings", &rows).await;
        assert_eq!(world.counted("crossings", Restamped), 1.0);
        let first = world
            .admit_one("crossings", &crossings[2])
            .await
            .first_occurred_at;
        assert_eq!(first.map(|time| time.seconds), Some(1_700_000_041));

        let sequenced = crossings.iter().cloned().zip(1..);
        let rows: Vec<_> = sequenced
            .map(|(event, number)| (numbered(event, number), Late))
            .collect();
        world.check("crossings", &rows).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t19_buckets_are_fixed_and_each_namespace_has_its_own() {
    const BUCKET_START: i64 = 1_699_999_200 * SECOND;
    let config = format!(
        "namespaces:
  crossings: {{ accepts: [transition], window: {{ tumbling: 30m }}, {} }}
  pings: {{ accepts: [ping], window: {{ tumbling: 1s }}, place: none, {REST} }}
",
        REST.replace("600s", "1h")
    );
    let stays: [(&str, i64, [Reason; 4]); 2] = [
        (
            "from its start",
            BUCKET_START,
            [Late, Restamped, Restamped, Restamped],
        ),
        // 840 s into its bucket, so that 19 minutes later is past the edge.
        ("from within", T0, [Late, Restamped, Restamped, Late]),
    ];
    for kept in EVERY_STORE {
        let world = World::start(kept, &config).await;
        for (device, begin, expected) in stays {
            let times = [0, 4, 11, 19].map(|minutes| begin + minutes * MINUTE);
            let entries = times.map(|nanos| enter(device, nanos));
            let rows: Vec<_> = entries.into_iter().zip(expected).collect();
            world.check("crossings", &rows).await;
            world
                .check("pings", &times.map(|nanos| (ping(device, nanos), Late)))
                .await;
        }
    }
}

/// A transition has no position to be wrong: the fence is its place.
#[tokio::test(flavor = "multi_thread")]
async fn s14_the_place_of_a_transition_is_its_fence() {
    let rows = [
        (enter("a", T0), Late),
        (enter("a", T0 + SECOND), Restamped),
        (
            transition("a", "G", TransitionKind::Enter, T0 + SECOND),
            Late,
        ),
    ];
    for kept in EVERY_STORE {
        World::start(kept, &usual())
            .await
            .check("crossings", &rows)
            .await;
    }
}
