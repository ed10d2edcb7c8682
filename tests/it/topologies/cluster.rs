//! A cluster of three primaries.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use dedupd::grpc::proto::{Event, Reason, SettleOutcome};
use tokio::task::JoinSet;

use super::{admit_keyed, decided_by, until};
use crate::{
    outage::world::{
        Client, admit_events, confirm, crossing, fresh_ids, keyed, reasons, request, until_decided,
    },
    support::{
        certificates,
        redis::{
            Tls,
            cluster::{Cluster, ClusterOptions},
        },
        service::Service,
    },
};

fn url(scheme: &str, cluster: &Cluster, user_info: &str) -> String {
    let addresses: Vec<String> = cluster.addrs().iter().map(ToString::to_string).collect();
    format!("{scheme}://{user_info}{}", addresses.join(","))
}

async fn decided(cluster: &Cluster) -> (Service, Client) {
    decided_by(&format!("url: \"{}\"", url("redis-cluster", cluster, ""))).await
}

/// Keyed or guarded events, which are decided by a command or by a script.
fn events(ids: &[String], guarded: bool) -> Vec<Event> {
    let make = |id: &String| match guarded {
        true => crossing(id, Duration::ZERO),
        false => keyed(id),
    };
    ids.iter().map(make).collect()
}

fn namespace(guarded: bool) -> &'static str {
    if guarded { "fences" } else { "closed" }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_decided_over_all_slots() {
    let cluster = Cluster::start(&ClusterOptions::default());
    let (_service, mut client) = decided(&cluster).await;
    for guarded in [false, true] {
        let ids = fresh_ids(1000);
        let ask = || request(namespace(guarded), events(&ids, guarded), "");
        let first = admit_events(&mut client, ask()).await;
        assert_eq!(reasons(&first), [Reason::FirstSeen; 1000]);
        let again = admit_events(&mut client, ask()).await;
        assert_eq!(reasons(&again), [Reason::Redelivery; 1000]);
        for verdict in &first[..50] {
            assert_eq!(
                confirm(&mut client, &verdict.claim).await,
                SettleOutcome::Applied
            );
        }
    }
    for primary in 0..3 {
        let keys: usize = cluster.nodes[primary]
            .cli(&["DBSIZE"])
            .parse()
            .expect("a number");
        assert!(keys > 500, "node {primary} holds {keys} keys");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn over_tls_with_a_password() {
    let cluster = Cluster::start(&ClusterOptions {
        replicas_each: 0,
        tls: Some(Tls::ServerOnly),
        password: Some("secret".to_owned()),
        ..ClusterOptions::default()
    });
    let url = url("rediss-cluster", &cluster, ":secret@");
    let ca = certificates::path("ca.pem");
    let store = format!("url: \"{url}\", tls: {{ ca: \"{}\" }}", ca.display());
    let (_service, mut client) = decided_by(&store).await;
    let ids = fresh_ids(100);
    assert_eq!(
        admit_keyed(&mut client, &ids).await,
        [Reason::FirstSeen; 100]
    );
    assert_eq!(
        admit_keyed(&mut client, &ids).await,
        [Reason::Redelivery; 100]
    );
}

/// Braces in an id would choose its slot, and a hostile device could put all its keys into one.
#[tokio::test(flavor = "multi_thread")]
async fn the_tagged_layout_keeps_a_plan_together_and_spreads_ids_with_braces() {
    let cluster = Cluster::start(&ClusterOptions {
        replicas_each: 0,
        ..ClusterOptions::default()
    });
    let (_service, mut client) = decided(&cluster).await;
    let hostile = |number| format!("{{same}}-{number}");
    let devices: Vec<Event> = (0..300)
        .map(|number| crossing(&hostile(number), Duration::ZERO))
        .collect();
    let verdicts = admit_events(&mut client, request("fences", devices, "")).await;
    assert_eq!(reasons(&verdicts), [Reason::FirstSeen; 300]);
    let mut slots = HashSet::new();
    for primary in 0..3 {
        for key in cluster.nodes[primary].cli(&["KEYS", "fences:*"]).lines() {
            slots.insert(cluster.slot_of(key));
        }
    }
    assert!(slots.len() > 280, "{} slots", slots.len());
}

/// A slot in the middle of its way: keys here, keys there, keys nowhere yet.
#[tokio::test(flavor = "multi_thread")]
async fn a_slot_on_its_way_is_decided_in() {
    let cluster = Cluster::start(&ClusterOptions {
        replicas_each: 0,
        ..ClusterOptions::default()
    });
    let (service, mut client) = decided(&cluster).await;
    for guarded in [false, true] {
        let ids = fresh_ids(4000);
        let verdicts = admit_all(&mut client, &ids, guarded).await;
        assert_eq!(
            only(&verdicts),
            Some(Reason::FirstSeen),
            "guarded {guarded}"
        );
        let (slot, from) = fullest_slot(&cluster, namespace(guarded));
        let to = (from + 1) % 3;
        cluster.begin_move(slot, from, to);
        cluster.move_keys(slot, from, to, 1);
        let again = admit_all(&mut client, &ids, guarded).await;
        // Redis lets nobody read several keys there of which it finds some and not others.
        let undecided = |reason: &Reason| guarded && *reason == Reason::StoreUnavailable;
        let wrong = |reason: &&Reason| **reason != Reason::Redelivery && !undecided(reason);
        assert_eq!(again.iter().find(wrong), None, "guarded {guarded}");
        assert!(again.iter().filter(|reason| undecided(reason)).count() < 20);
        let fresh = fresh_ids(4000);
        let first = admit_all(&mut client, &fresh, guarded).await;
        assert_eq!(only(&first), Some(Reason::FirstSeen), "guarded {guarded}");
        let second = admit_all(&mut client, &fresh, guarded).await;
        assert_eq!(only(&second), Some(Reason::Redelivery), "guarded {guarded}");
        while cluster.move_keys(slot, from, to, 100) > 0 {}
        cluster.end_move(slot, from, to);
        let second = admit_all(&mut client, &fresh, guarded).await;
        assert_eq!(only(&second), Some(Reason::Redelivery), "guarded {guarded}");
    }
    let redirected = service.metric("dedupd_store_redirections_total");
    assert!(redirected > Some(0.0), "{redirected:?}");
}

/// In requests that a busy machine decides within the budget.
async fn admit_all(client: &mut Client, ids: &[String], guarded: bool) -> Vec<Reason> {
    let mut all = Vec::new();
    for ids in ids.chunks(250) {
        let asked = request(namespace(guarded), events(ids, guarded), "");
        all.extend(reasons(&admit_events(client, asked).await));
    }
    all
}

/// The one reason of all of them.
fn only(reasons: &[Reason]) -> Option<Reason> {
    let first = *reasons.first()?;
    reasons
        .iter()
        .all(|reason| *reason == first)
        .then_some(first)
}

/// The slot with the most keys of a namespace, and who has it.
fn fullest_slot(cluster: &Cluster, namespace: &str) -> (u16, usize) {
    let mut counts: HashMap<u16, (usize, usize)> = HashMap::new();
    for node in 0..3 {
        let keys = cluster.nodes[node].cli(&["KEYS", &format!("{namespace}:*")]);
        for key in keys.lines().take(300) {
            counts.entry(cluster.slot_of(key)).or_insert((0, node)).0 += 1;
        }
    }
    let fullest = counts.iter().max_by_key(|(_, (keys, _))| *keys);
    let (slot, (_, node)) = fullest.expect("keys");
    (*slot, *node)
}

/// Two services and many callers, while slots with their keys move under them.
#[tokio::test(flavor = "multi_thread")]
async fn resharding_in_mid_batch_gives_exactly_one_admit() {
    let cluster = Arc::new(Cluster::start(&ClusterOptions {
        replicas_each: 0,
        ..ClusterOptions::default()
    }));
    let (_first, one) = decided(&cluster).await;
    let (_second, other) = decided(&cluster).await;
    let moving = Arc::new(AtomicBool::new(true));
    let mover = tokio::task::spawn_blocking({
        let (cluster, moving) = (Arc::clone(&cluster), Arc::clone(&moving));
        move || {
            let slots: Vec<u16> = cluster.slots(0).into_iter().take(60).collect();
            cluster.reshard(slots.iter().copied(), 0, 1);
            cluster.reshard(slots.iter().copied(), 1, 0);
            moving.store(false, Ordering::SeqCst);
        }
    });
    let (mut rounds, mut undecided) = (0, 0);
    while moving.load(Ordering::SeqCst) {
        rounds += 1;
        for guarded in [false, true] {
            let ids = fresh_ids(400);
            let mut callers = JoinSet::new();
            for mut client in [one.clone(), other.clone(), one.clone()] {
                let events = events(&ids, guarded);
                callers.spawn(async move {
                    admit_until_decided(&mut client, namespace(guarded), events).await
                });
            }
            let mut admitted = vec![0; ids.len()];
            while let Some(answers) = callers.join_next().await {
                let (answers, again) = answers.expect("an answer");
                undecided += again;
                for (index, reason) in answers.into_iter().enumerate() {
                    admitted[index] += usize::from(reason == Reason::FirstSeen);
                }
            }
            assert!(
                admitted.iter().all(|count| *count == 1),
                "guarded {guarded}: {admitted:?}"
            );
        }
    }
    mover.await.expect("slots moved");
    println!("{rounds} rounds while slots moved, {undecided} events asked again");
    assert!(rounds > 3);
}

/// Asks again for what was not decided, as callers do; how many that were.
async fn admit_until_decided(
    client: &mut Client,
    namespace: &str,
    events: Vec<Event>,
) -> (Vec<Reason>, usize) {
    let mut decided = vec![Reason::StoreUnavailable; events.len()];
    let mut asked_again = 0;
    loop {
        let open: Vec<usize> = (0..events.len())
            .filter(|&index| decided[index] == Reason::StoreUnavailable)
            .collect();
        if open.is_empty() {
            return (decided, asked_again - events.len());
        }
        asked_again += open.len();
        let batch = open.iter().map(|&index| events[index].clone()).collect();
        let verdicts = admit_events(client, request(namespace, batch, "")).await;
        for (index, reason) in open.into_iter().zip(reasons(&verdicts)) {
            decided[index] = reason;
        }
    }
}

/// One shard down: the others decide as before, and its own events cost no budget.
#[tokio::test(flavor = "multi_thread")]
async fn the_other_shards_of_a_killed_primary_go_on() {
    let mut cluster = Cluster::start(&ClusterOptions {
        args: vec!["--cluster-require-full-coverage".into(), "no".into()],
        ..ClusterOptions::default()
    });
    let (service, mut client) = decided(&cluster).await;
    let ids = fresh_ids(300);
    let owners: Vec<usize> = ids
        .iter()
        .map(|id| {
            cluster
                .owner(cluster.slot_of(&format!("closed:{id}")))
                .expect("served")
        })
        .collect();
    cluster.kill(0);
    let mut decided = 0;
    for id in ids
        .iter()
        .zip(&owners)
        .filter(|(_, owner)| **owner != 0)
        .map(|(id, _)| id)
    {
        let verdicts = admit_keyed(&mut client, std::slice::from_ref(id)).await;
        assert_eq!(verdicts, [Reason::FirstSeen], "another shard's");
        decided += 1;
    }
    assert!(decided > 100);
    let (_, took) = until(
        "the replica has taken over",
        Duration::from_secs(10),
        async || {
            let verdicts = admit_keyed(&mut client, &fresh_ids(60)).await;
            (verdicts == [Reason::FirstSeen; 60]).then_some(())
        },
    )
    .await;
    println!("all shards decide {took:?} after {decided} calls to the others");
    let trips = service.metric("dedupd_breaker_trips_total");
    assert_eq!(trips, Some(0.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_orderly_failover_of_a_shard_is_followed() {
    let cluster = Cluster::start(&ClusterOptions::default());
    let (_service, mut client) = decided(&cluster).await;
    let ids = fresh_ids(300);
    assert_eq!(
        admit_keyed(&mut client, &ids).await,
        [Reason::FirstSeen; 300]
    );
    cluster.failover(3);
    until_decided(&mut client).await;
    assert_eq!(
        admit_keyed(&mut client, &ids).await,
        [Reason::Redelivery; 300]
    );
}
