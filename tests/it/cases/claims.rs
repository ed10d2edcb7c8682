//! How claims are made: copies within a batch, and what Redis is told.

use std::collections::HashSet;

use dedupd::grpc::proto::{
    ClaimState,
    Reason::{Boundary, FirstSeen, InFlight, Late, Redelivery, Unclassified},
};

use super::{leased, usual};
use crate::client::{
    EVERY_STORE, Kept, World,
    events::{SECOND, T0, keyed, ping},
    monitor::Monitor,
    wait_until,
};

#[tokio::test(flavor = "multi_thread")]
async fn c10_copies_within_a_batch_name_the_first() {
    let (e1, e2) = (ping("e1", T0), ping("e2", T0));
    let edge = [T0 + 59 * SECOND, T0 + 61 * SECOND].map(|nanos| ping("edge", nanos));
    let rows = [
        (&e1, Late, None),
        (&e1, Redelivery, Some(0)),
        (&e2, Late, None),
        (&e1, Redelivery, Some(0)),
        (&edge[0], Late, None),
        (&edge[1], Boundary, Some(4)),
    ];
    for kept in EVERY_STORE {
        for (config, leased) in [(usual(), false), (leased("30s"), true)] {
            let world = World::start(kept, &config).await;
            let events = rows.iter().map(|(event, ..)| (*event).clone()).collect();
            let verdicts = world.admit("pings", events).await;
            for ((event, expected, copy_of), verdict) in rows.iter().zip(&verdicts) {
                let is_copy = copy_of.is_some();
                let expected = if leased && is_copy {
                    InFlight
                } else {
                    *expected
                };
                world.check_verdict(verdict, expected, format_args!("{event:?}"));
                assert_eq!(verdict.copy_of_index, *copy_of, "{event:?}: {verdict:?}");
                assert_eq!(verdict.claim.is_empty(), is_copy, "{event:?}: {verdict:?}");
            }
        }
    }
}

/// One command that both claims and limits: a crash in between leaves nothing for ever.
#[tokio::test(flavor = "multi_thread")]
async fn c11_a_claim_is_one_command_with_its_expiry() {
    let world = World::start(Kept::InRedis, &usual()).await;
    let redis = world.redis().expect("on Redis");
    let examined = r#"dedupd_store_findings{check="memory",severity="note"}"#;
    wait_until("the store is examined", || {
        world.service.metric(examined) == Some(1.0)
    });
    let mut monitor = Monitor::start(redis);
    world.check("orders", &[(keyed("alone"), FirstSeen)]).await;
    // Near an edge, so that its plan has two keys.
    world
        .check("pings", &[(ping("a", T0 + SECOND), Late)])
        .await;
    let commands = monitor.commands();
    let naming = |part: &str| -> Vec<&String> {
        commands
            .iter()
            .filter(|command| command.contains(part))
            .collect()
    };
    let alone: Vec<_> = naming(r#""orders:alone""#)
        .into_iter()
        .filter(|command| !command.contains("lua"))
        .collect();
    let claim = alone.first().expect("a claim").to_uppercase();
    assert!(
        claim.contains(r#""SET""#) && claim.contains(r#""NX" "PX" "600000""#),
        "{claim}"
    );
    let mut expiring = HashSet::new();
    for command in naming("orders:").into_iter().chain(naming("dedup:")) {
        let command = command.to_uppercase();
        let mut words = command.split('"').skip(1).step_by(2);
        let (name, key) = (words.next(), words.next().map(str::to_owned));
        for apart in [r#""SETNX""#, r#""EXPIRE""#, r#""PERSIST""#] {
            assert!(!command.contains(apart), "{command}");
        }
        if name == Some("SET") && command.contains(r#""PX""#) {
            expiring.insert(key);
        } else if command.contains(r#""SET""#) || command.contains(r#""PEXPIRE""#) {
            // Confirm, in a script, gives the key another expiry and keeps it.
            assert!(
                command.contains(" LUA]") && expiring.contains(&key),
                "{command}"
            );
            let keeps = command.contains(r#""PEXPIRE""#) || command.contains(r#""KEEPTTL""#);
            assert!(keeps, "{command}");
        }
    }
    assert!(!naming("dedup:").is_empty(), "{commands:#?}");
    assert_eq!(world.eternal_keys(), Vec::<String>::new());
}

/// A foreign value suppresses, is counted under its own reason, and stays; but not for ever.
#[tokio::test(flavor = "multi_thread")]
async fn c11_a_key_without_expiry_is_unclassified_and_healed() {
    let world = World::start(Kept::InRedis, &usual()).await;
    let redis = world.redis().expect("on Redis");
    for (namespace, event) in [("orders", keyed("old")), ("pings", ping("a", T0 + SECOND))] {
        let key = world.explain(namespace, &event).await.keys.remove(0);
        assert_eq!(redis.cli(&["SET", &key, "1"]), "OK");
        world
            .check(
                namespace,
                &[(event.clone(), Unclassified), (event.clone(), Unclassified)],
            )
            .await;
        assert_eq!(world.counted(namespace, Unclassified), 2.0);
        let found = world.explain(namespace, &event).await.claims.remove(0);
        assert_eq!(found.state(), ClaimState::Foreign);
        wait_until("healed", || world.eternal_keys().is_empty());
        assert_eq!(redis.cli(&["GET", &key]), "1");
        let left: i64 = redis.cli(&["PTTL", &key]).parse().expect("a number");
        assert!((1..=600_000).contains(&left), "{left} ms");
    }
}
