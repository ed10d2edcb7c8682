//! Who an event is about.

use std::collections::BTreeSet;

use dedupd::grpc::proto::{
    Event, ListNoisySubjectsRequest,
    Reason::{
        ContentConflict, ContentMismatch, FirstSeen, Late, MissingIdentity, Redelivery,
        Reobservation,
    },
    TransitionKind,
};

use super::{REST, usual};
use crate::client::{
    Dice, EVERY_STORE, Kept, World,
    events::{MS, SECOND, T0, enter, keyed, ping, transition},
};

fn crossing(device: &str, fence: &str) -> Event {
    transition(device, fence, TransitionKind::Enter, T0)
}

#[tokio::test(flavor = "multi_thread")]
async fn i01_separators_in_ids_never_make_two_entities_one() {
    let pairs = [
        ("a:b", "c"),
        ("a", "b:c"),
        ("AA", "B"),
        ("A", "AB"),
        ("a|b", "c"),
        ("a", "b|c"),
        (r"a\", "|b"),
        ("a", r"\||b"),
        (r"a\|", "b"),
        (r"a\", r"\|b"),
    ];
    let mut dice = Dice::new(1);
    let mut part = || -> String {
        let length = 1 + dice.below(4);
        (0..length)
            .map(|_| [r"\", "|", ":", "a"][dice.below(4)])
            .collect()
    };
    let random: BTreeSet<(String, String)> = (0..2000).map(|_| (part(), part())).collect();
    let random = random
        .iter()
        .map(|(device, fence)| (device.as_str(), fence.as_str()));
    let random = random.filter(|pair| !pairs.contains(pair));
    let rows: Vec<_> = pairs
        .into_iter()
        .chain(random)
        .map(|(device, fence)| (crossing(device, fence), Late))
        .collect();
    for kept in EVERY_STORE {
        let world = World::start(kept, &usual()).await;
        let events = rows.iter().map(|(event, _)| event.clone()).collect();
        let verdicts = world.admit("crossings", events).await;
        for ((event, expected), verdict) in rows.iter().zip(&verdicts) {
            world.check_verdict(verdict, *expected, format_args!("{event:?}"));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i03_no_id_is_nobodys() {
    let unset = Event {
        identity: None,
        ..ping("", T0)
    };
    let no_kind = transition("a", "F", TransitionKind::Unspecified, T0);
    let rows = [
        (
            "pings",
            ["", "", "", " ", "\u{3000}\t"]
                .map(|id| ping(id, T0))
                .to_vec(),
        ),
        ("pings", vec![unset.clone(), unset]),
        (
            "crossings",
            vec![
                crossing("", "F"),
                crossing("a", ""),
                crossing(" ", "F"),
                no_kind,
            ],
        ),
        ("orders", ["", " ", "\n"].map(keyed).to_vec()),
    ];
    let world = World::start(Kept::InMemory, &usual()).await;
    for (namespace, events) in rows {
        let rows: Vec<_> = events
            .into_iter()
            .map(|event| (event, MissingIdentity))
            .collect();
        world.check_batch(namespace, &rows).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i05_ids_are_bytes() {
    let ids = [
        "Caf\u{e9}-7",
        "Cafe\u{301}-7",
        "\u{212b}",
        "\u{c5}",
        " a",
        "a ",
    ];
    for kept in EVERY_STORE {
        let world = World::start(kept, &usual()).await;
        world
            .check("pings", &ids.map(|id| (ping(id, T0), Late)))
            .await;
        world
            .check("orders", &ids.map(|id| (keyed(id), FirstSeen)))
            .await;
        for id in ids {
            let keys = world.explain("orders", &keyed(id)).await.keys;
            assert_eq!(keys, [format!("orders:{id}")]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i10_one_id_with_two_contents() {
    let orders = format!("accepts: [keyed], window: none, {REST}");
    let config = format!(
        "namespaces:
  strict: {{ {orders}, content_mismatch: dead_letter }}
  lenient: {{ {orders}, content_mismatch: suppress }}
"
    );
    let with = |content_hash| Event {
        content_hash,
        ..keyed("E1")
    };
    for kept in EVERY_STORE {
        let world = World::start(kept, &config).await;
        for (namespace, other) in [("strict", ContentMismatch), ("lenient", ContentConflict)] {
            let rows = [
                (with(Some(1)), FirstSeen),
                (with(Some(2)), other),
                (with(Some(1)), Redelivery),
                (with(None), Redelivery),
            ];
            world.check(namespace, &rows).await;
            assert_eq!(world.counted(namespace, other), 1.0);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i14_a_constant_id_is_the_noisiest_subject() {
    const THROUGH_A_SPREADSHEET: &str = "3.58899E+14";
    for kept in EVERY_STORE {
        let world = World::start(kept, &usual()).await;
        let healthy: Vec<_> = (0..3000)
            .map(|number| (ping(&format!("bus-{number}"), T0), Late))
            .collect();
        let events = healthy.iter().map(|(event, _)| event.clone()).collect();
        world.admit("pings", events).await;
        let constant = |id: &str, count: usize| {
            let pings = (0..count).map(|number| ping(id, T0 + number as i64 * MS));
            pings.collect::<Vec<_>>()
        };
        world.admit("pings", constant("0", 1829)).await;
        world
            .admit("pings", constant(THROUGH_A_SPREADSHEET, 1000))
            .await;
        assert_eq!(world.counted("pings", Late), 3002.0);
        assert_eq!(world.counted("pings", Reobservation), 1828.0 + 999.0);

        let request = ListNoisySubjectsRequest {
            namespace: "pings".to_owned(),
            limit: 5,
        };
        let listed = world.inspect().list_noisy_subjects(request).await;
        let listed = listed.expect("an answer").into_inner().subjects;
        let listed: Vec<_> = listed
            .iter()
            .map(|noisy| (noisy.id.as_str(), noisy.suppressed))
            .collect();
        assert_eq!(listed, [("0", 1828), (THROUGH_A_SPREADSHEET, 999)]);
        let gauge = |rank: u32| {
            let labels = format!(r#"{{namespace="pings",rank="{rank}"}}"#);
            world
                .service
                .metric(&format!("dedupd_noisy_subject_suppressed{labels}"))
        };
        assert_eq!(
            [gauge(1), gauge(2), gauge(3)],
            [Some(1828.0), Some(999.0), Some(0.0)]
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i15_one_id_in_two_namespaces_is_two_subjects() {
    let pings = format!("accepts: [ping], window: {{ tumbling: 60s }}, place: none, {REST}");
    let config = format!(
        "{}  north: {{ {pings} }}\n  south: {{ {pings} }}\n",
        usual()
    );
    for kept in EVERY_STORE {
        let world = World::start(kept, &config).await;
        for namespace in ["north", "south"] {
            world.check(namespace, &[(ping("bus-1", T0), Late)]).await;
        }
        let both = [(enter("a", T0), Late), (enter("b", T0 + 13 * SECOND), Late)];
        world.check("crossings", &both).await;
    }
}
