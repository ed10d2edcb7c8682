//! The Redis behind the services, in each of its topologies, and what can happen to it.
//!
//! Every server writes to disk what it acknowledges, so that a restart loses nothing; a promoted
//! replica may lack what it had not received.

use std::{sync::Arc, thread, time::Duration};

use super::{history::Loses, schedule::ServerFault, site::SERVICES};
use crate::{
    client::{Dice, wait_until},
    support::{
        proxy::Proxy,
        redis::{
            Options, RedisServer,
            cluster::{Cluster, ClusterOptions, SLOTS},
            replicated::{Replicated, ReplicatedOptions, SERVICE},
        },
    },
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Topology {
    Standalone,
    Sentinels,
    Cluster,
}

pub(super) enum Store {
    /// With a wire from each service.
    Standalone(RedisServer, Vec<Arc<Proxy>>),
    Sentinels(Replicated),
    Cluster(Cluster),
}

/// Slots that move in one go.
const SLOTS_AT_ONCE: usize = 12;
/// After so long a server is taken for dead: no busy machine keeps one from answering until then.
const DEAD_AFTER: Duration = Duration::from_secs(3);
/// What a server logs when it is promoted, by sentinels and in a cluster.
const PROMOTED: [&str; 2] = ["MASTER MODE enabled", "Failover election won"];

impl Store {
    pub(super) fn start(topology: Topology) -> Self {
        let durable = Options::default().durable();
        match topology {
            Topology::Standalone => {
                let redis = RedisServer::start(durable);
                let wires = (0..SERVICES).map(|_| Proxy::start(redis.addr())).collect();
                Store::Standalone(redis, wires)
            }
            Topology::Sentinels => Store::Sentinels(Replicated::start(&ReplicatedOptions {
                args: durable.args,
                down_after: DEAD_AFTER,
                ..ReplicatedOptions::default()
            })),
            Topology::Cluster => Store::Cluster(Cluster::start(&ClusterOptions {
                args: durable.args,
                node_timeout: DEAD_AFTER,
                ..ClusterOptions::default()
            })),
        }
    }

    /// Of the store, for one of the services.
    pub(super) fn url(&self, service: usize) -> String {
        let listed = |addrs: Vec<std::net::SocketAddr>| {
            let addrs: Vec<String> = addrs.iter().map(ToString::to_string).collect();
            addrs.join(",")
        };
        match self {
            Store::Standalone(redis, wires) => redis.url_at(wires[service].addr()),
            Store::Sentinels(fleet) => {
                format!(
                    "redis-sentinel://{}/{SERVICE}",
                    listed(fleet.sentinel_addrs())
                )
            }
            Store::Cluster(cluster) => format!("redis-cluster://{}", listed(cluster.addrs())),
        }
    }

    pub(super) fn wires(&self) -> &[Arc<Proxy>] {
        match self {
            Store::Standalone(_, wires) => wires,
            Store::Sentinels(fleet) => &fleet.proxies,
            Store::Cluster(cluster) => &cluster.proxies,
        }
    }

    fn servers(&self) -> &[RedisServer] {
        match self {
            Store::Standalone(redis, _) => std::slice::from_ref(redis),
            Store::Sentinels(fleet) => &fleet.servers,
            Store::Cluster(cluster) => &cluster.nodes,
        }
    }

    /// What answers for keys when nothing is wrong.
    pub(super) fn primaries(&self) -> Vec<&RedisServer> {
        let servers = self.servers().iter();
        servers
            .filter(|server| server.info("role") == "master")
            .collect()
    }

    /// How often a replica has been promoted so far.
    pub(super) fn promotions(&self) -> usize {
        let logs = self.servers().iter().map(RedisServer::log);
        logs.map(|log| {
            let lines = log.lines();
            lines
                .filter(|line| PROMOTED.iter().any(|told| line.contains(told)))
                .count()
        })
        .sum()
    }

    /// What the fault can lose.
    pub(super) fn loses(&self, fault: ServerFault) -> Loses {
        match (self, fault) {
            (Store::Standalone(..), _)
            | (_, ServerFault::ScriptsAreLost | ServerFault::SlotsMove) => Loses::Nothing,
            // A replica that takes over in good order has everything.
            (Store::Cluster(_), ServerFault::FailsOver) => Loses::Nothing,
            (
                Store::Sentinels(_) | Store::Cluster(_),
                ServerFault::Hangs
                | ServerFault::Dies
                | ServerFault::FailsOver
                | ServerFault::IsCutOff,
            ) => Loses::LatestWrites,
        }
    }

    /// Does it for a while, until all is well again.
    pub(super) fn suffer(&mut self, fault: ServerFault, lasts: Duration, dice: &mut Dice) {
        if fault == ServerFault::ScriptsAreLost {
            for primary in self.primaries() {
                assert_eq!(primary.cli(&["SCRIPT", "FLUSH"]), "OK");
            }
            return;
        }
        match self {
            Store::Standalone(redis, _) => alone(redis, fault, lasts),
            Store::Sentinels(fleet) => watched(fleet, fault, lasts),
            Store::Cluster(cluster) => clustered(cluster, fault, lasts, dice),
        }
    }
}

fn alone(redis: &mut RedisServer, fault: ServerFault, lasts: Duration) {
    match fault {
        ServerFault::Hangs => {
            redis.pause();
            thread::sleep(lasts);
            redis.resume();
        }
        ServerFault::Dies => {
            redis.kill();
            thread::sleep(lasts);
            redis.restart();
        }
        ServerFault::ScriptsAreLost
        | ServerFault::FailsOver
        | ServerFault::IsCutOff
        | ServerFault::SlotsMove => unreachable!("not drawn for one server"),
    }
}

fn watched(fleet: &mut Replicated, fault: ServerFault, lasts: Duration) {
    let primary = fleet.primary().expect("the sentinels agree");
    let now = match fault {
        ServerFault::Hangs => {
            fleet.servers[primary].pause();
            let promoted = fleet.wait_promoted(primary);
            fleet.servers[primary].resume();
            promoted
        }
        ServerFault::Dies => {
            fleet.servers[primary].kill();
            let promoted = fleet.wait_promoted(primary);
            fleet.servers[primary].restart();
            promoted
        }
        ServerFault::IsCutOff => {
            fleet.cut_off(primary);
            let promoted = fleet.wait_promoted(primary);
            thread::sleep(lasts);
            fleet.rejoin(primary);
            promoted
        }
        ServerFault::FailsOver => fleet.failover(),
        ServerFault::ScriptsAreLost | ServerFault::SlotsMove => {
            unreachable!("not drawn for sentinels")
        }
    };
    // The sentinels would do it, after ten seconds.
    let port = fleet.proxies[now].port().to_string();
    let follows = ["REPLICAOF", "127.0.0.1", &port];
    assert!(fleet.servers[primary].cli(&follows).starts_with("OK"));
    fleet.wait_in_sync();
}

fn clustered(cluster: &mut Cluster, fault: ServerFault, lasts: Duration, dice: &mut Dice) {
    let slot = dice.below(usize::from(SLOTS)) as u16;
    let primary = cluster.owner(slot).expect("an owner");
    match fault {
        ServerFault::Hangs => {
            cluster.nodes[primary].pause();
            // So that it is at times taken for dead.
            thread::sleep(lasts * 6);
            cluster.nodes[primary].resume();
        }
        ServerFault::Dies => {
            cluster.kill(primary);
            wait_until("a replica takes over", || {
                cluster.owner(slot).is_some_and(|owner| owner != primary)
            });
            cluster.restart(primary);
        }
        ServerFault::FailsOver => {
            let replica = cluster.replica_of(primary).expect("it has one");
            cluster.failover(replica);
        }
        ServerFault::SlotsMove => {
            let other = (0..SLOTS).step_by(97).find_map(|slot| {
                let owner = cluster.owner(slot)?;
                (owner != primary).then_some(owner)
            });
            let other = other.expect("several primaries");
            let node = &cluster.nodes[primary];
            for _ in 0..SLOTS_AT_ONCE {
                let key = node.cli(&["RANDOMKEY"]);
                let slot = cluster.slot_of(&key);
                // An empty node has no key to give; one that has moved is another's.
                if key.is_empty() || cluster.owner(slot) != Some(primary) {
                    continue;
                }
                cluster.begin_move(slot, primary, other);
                thread::sleep(lasts / 20);
                while cluster.move_keys(slot, primary, other, 1) > 0 {
                    thread::sleep(lasts / 20);
                }
                cluster.end_move(slot, primary, other);
            }
        }
        ServerFault::ScriptsAreLost | ServerFault::IsCutOff => {
            unreachable!("not drawn for a cluster")
        }
    }
    cluster.wait_well();
}
