//! What several servers do together.

use std::time::Duration;

use super::{
    Tls,
    cluster::{Cluster, ClusterOptions},
    replicated::{Replicated, ReplicatedOptions},
};
use crate::client::wait_until;

#[test]
fn sentinels_promote_a_replica_when_the_primary_dies() {
    let mut fleet = Replicated::start(&ReplicatedOptions {
        replicas: 2,
        ..ReplicatedOptions::default()
    });
    assert_eq!(fleet.primary(), Some(0));
    assert_eq!(fleet.servers[0].cli(&["SET", "key", "value"]), "OK");
    fleet.wait_in_sync();
    fleet.servers[0].kill();
    let promoted = fleet.wait_promoted(0);
    assert_eq!(fleet.servers[promoted].cli(&["GET", "key"]), "value");
}

#[test]
fn a_primary_that_is_cut_off_serves_on_until_it_rejoins() {
    let fleet = Replicated::start(&ReplicatedOptions {
        sentinel_password: Some("watched".into()),
        password: Some("secret".into()),
        ..ReplicatedOptions::default()
    });
    fleet.cut_off(0);
    let promoted = fleet.wait_promoted(0);
    assert_eq!(promoted, 1);
    assert!(fleet.is_primary(0), "two primaries");
    assert_eq!(fleet.servers[0].cli(&["SET", "lost", "1"]), "OK");
    fleet.rejoin(0);
    wait_until("the first one follows", || !fleet.is_primary(0));
    fleet.wait_in_sync();
    assert_eq!(fleet.servers[0].cli(&["GET", "lost"]), "");
}

#[test]
fn sentinels_and_servers_speak_tls() {
    let fleet = Replicated::start(&ReplicatedOptions {
        tls: Some(Tls::Mutual),
        ..ReplicatedOptions::default()
    });
    assert_eq!(fleet.failover(), 1);
}

#[test]
fn a_replica_that_has_not_received_a_write_does_not_have_it() {
    let fleet = Replicated::start(&ReplicatedOptions {
        sentinels: 0,
        ..ReplicatedOptions::default()
    });
    fleet.cut_off(0);
    assert_eq!(fleet.servers[0].cli(&["SET", "key", "value"]), "OK");
    fleet.promote(1);
    assert_eq!(fleet.servers[1].cli(&["GET", "key"]), "");
    fleet.rejoin(0);
    wait_until("the first one follows", || {
        fleet.servers[0].info("master_link_status") == "up"
    });
    assert_eq!(fleet.primary(), Some(1));
}

#[test]
fn a_slot_moves_key_by_key() {
    let cluster = Cluster::start(&ClusterOptions::default());
    let slot = cluster.slot_of("{t}1");
    let from = cluster.owner(slot).expect("an owner");
    let to = (from + 1) % 3;
    for number in 0..5 {
        let set = ["SET", &format!("{{t}}{number}"), "value"];
        assert_eq!(cluster.nodes[from].cli(&set), "OK");
    }
    cluster.begin_move(slot, from, to);
    assert_eq!(cluster.move_keys(slot, from, to, 2), 2);
    let asked = |number: u32| cluster.nodes[from].cli(&["GET", &format!("{{t}}{number}")]);
    let answers: Vec<String> = (0..5).map(asked).collect();
    let redirected = format!("ASK {slot} {}", cluster.proxies[to].addr());
    assert_eq!(answers.iter().filter(|it| **it == redirected).count(), 2);
    assert_eq!(answers.iter().filter(|it| *it == "value").count(), 3);
    assert_eq!(cluster.owner(slot), Some(from));
    assert_eq!(cluster.move_keys(slot, from, to, 10), 3);
    cluster.end_move(slot, from, to);
    let moved = format!("MOVED {slot} {}", cluster.proxies[to].addr());
    assert_eq!(asked(1), moved);
    assert_eq!(cluster.nodes[to].cli(&["GET", "{t}1"]), "value");
    let slots = &cluster.slots(to)[..3];
    cluster.reshard(slots.iter().copied(), to, from);
    wait_until("all nodes know", || {
        slots.iter().all(|&slot| cluster.owner(slot) == Some(from))
    });
}

#[test]
fn a_replica_takes_over_when_asked_and_when_its_primary_dies() {
    let mut cluster = Cluster::start(&ClusterOptions {
        tls: Some(Tls::Mutual),
        password: Some("secret".into()),
        node_timeout: Duration::from_millis(500),
        ..ClusterOptions::default()
    });
    assert_eq!(cluster.owner(0), Some(0));
    cluster.failover(3);
    assert_eq!(cluster.owner(0), Some(3));
    cluster.kill(3);
    wait_until("the other takes over", || cluster.owner(0) == Some(0));
    cluster.restart(3);
    cluster.wait_well();
    assert_eq!(cluster.nodes[3].info("role"), "slave");
}
