//! The claims of an outage, written to the servers of a cluster.

use super::{
    super::world::{admit_events, crossing, reasons, request},
    *,
};
use crate::{
    client::wait_until,
    support::redis::cluster::{Cluster, ClusterOptions},
};

const EVENTS: usize = 600;

async fn pod_on(cluster: &Cluster) -> (Service, Client) {
    let addresses: Vec<String> = cluster.addrs().iter().map(ToString::to_string).collect();
    let service = pod_at(
        &format!("redis-cluster://{}", addresses.join(",")),
        BUDGET * 2,
        "16MiB",
    );
    let mut client = connect(&service).await;
    until_decided(&mut client).await;
    (service, client)
}

/// What is said about keyed events, and about crossings at the edge of a window.
async fn ask(client: &mut Client, ids: &[String]) -> Vec<Reason> {
    let mut verdicts = admit(client, "local", ids, "").await;
    let crossings = ids.iter().map(|id| crossing(id, Duration::ZERO)).collect();
    verdicts.extend(admit_events(client, request("fences", crossings, "")).await);
    reasons(&verdicts)
}

fn of(reasons: &[Reason], wanted: Reason) -> usize {
    reasons.iter().filter(|reason| **reason == wanted).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn r11_claims_are_written_to_all_servers_of_a_cluster_and_to_slots_on_their_way() {
    let cluster = Cluster::start(&ClusterOptions {
        replicas_each: 0,
        ..ClusterOptions::default()
    });
    let (service, mut client) = pod_on(&cluster).await;
    let (_other, mut others) = pod_on(&cluster).await;
    cluster.proxies.iter().for_each(|proxy| proxy.refuse());
    let ids = fresh_ids(EVENTS);
    until_tripped(&service, &mut client).await;
    let first = ask(&mut client, &ids).await;
    assert_eq!(of(&first, Reason::Fallback), 2 * EVENTS, "{first:?}");
    let copies = ask(&mut client, &ids).await;
    assert_eq!(of(&copies, Reason::Redelivery), 2 * EVENTS);
    let moving = cluster.slot_of(&format!("local:{}", ids[0]));
    let from = cluster.owner(moving).expect("the slot is served");
    cluster.begin_move(moving, from, (from + 1) % 3);
    cluster.proxies.iter().for_each(|proxy| proxy.pass());
    until_empty(&service).await;
    let written = service.metric("dedupd_local_claims_written_back_total");
    assert_eq!(written, Some(2.0 * EVENTS as f64));
    for client in [&mut client, &mut others] {
        until_decided(client).await;
        let copies = ask(client, &ids).await;
        assert_eq!(of(&copies, Reason::Redelivery), 2 * EVENTS, "{copies:?}");
    }
    assert_eq!(counted_by(&service, "local"), 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn r11_one_server_of_a_cluster_that_is_away_is_decided_for_here() {
    let cluster = Cluster::start(&ClusterOptions {
        replicas_each: 0,
        ..ClusterOptions::default()
    });
    let (service, mut client) = pod_on(&cluster).await;
    let (_other, mut others) = pod_on(&cluster).await;
    cluster.proxies[0].refuse();
    wait_until("the wire is cut", || cluster.proxies[0].connections() == 0);
    let begun = Instant::now();
    while admit(&mut client, "leased", &fresh_ids(16), "")
        .await
        .iter()
        .all(|verdict| verdict.reason() == Reason::FirstSeen)
    {
        assert!(begun.elapsed() < SLACK, "nothing is away");
    }
    let ids = fresh_ids(EVENTS);
    let first = ask(&mut client, &ids).await;
    let (here, shared) = (of(&first, Reason::Fallback), of(&first, Reason::FirstSeen));
    assert_eq!(here + shared, 2 * EVENTS, "{first:?}");
    assert!(here > EVENTS / 3 && shared > EVENTS / 3, "{here} {shared}");
    let copies = ask(&mut client, &ids).await;
    assert_eq!(of(&copies, Reason::Redelivery), 2 * EVENTS, "{copies:?}");
    time::sleep(Duration::from_millis(300)).await;
    assert_eq!(service.metric("dedupd_local_claims"), Some(here as f64));
    cluster.proxies[0].pass();
    until_empty(&service).await;
    for client in [&mut client, &mut others] {
        until_decided(client).await;
        let copies = ask(client, &ids).await;
        assert_eq!(of(&copies, Reason::Redelivery), 2 * EVENTS, "{copies:?}");
    }
    assert_eq!(counted_by(&service, "local"), 0.0);
}
