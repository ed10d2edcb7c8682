//! A cluster of primaries with a replica each, made by CLUSTER commands, so that a test can stop in
//! the middle of anything.
//!
//! Every node stands behind a proxy and announces its address: clients and replicas come through
//! it, the bus does not. A node whose proxy is faulty is therefore healthy to the others; one that
//! is killed or paused is not.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use super::{Options, RedisServer, Tls, ports, replicated::words};
use crate::{client::wait_until, support::proxy::Proxy};

pub(crate) const SLOTS: u16 = 16_384;
/// Of one MIGRATE.
const KEYS_AT_ONCE: usize = 100;
const MIGRATE_TIMEOUT_MS: &str = "5000";

#[derive(Debug, Clone)]
pub(crate) struct ClusterOptions {
    pub(crate) primaries: usize,
    /// 0 or 1.
    pub(crate) replicas_each: usize,
    /// After so long a node that does not answer has failed.
    pub(crate) node_timeout: Duration,
    pub(crate) password: Option<String>,
    /// Of clients, replicas and the bus.
    pub(crate) tls: Option<Tls>,
    pub(crate) args: Vec<String>,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self {
            primaries: 3,
            replicas_each: 1,
            node_timeout: Duration::from_secs(1),
            password: None,
            tls: None,
            args: Vec::new(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Cluster {
    /// The primaries first, then their replicas in the same order.
    pub(crate) nodes: Vec<RedisServer>,
    /// In front of each node.
    pub(crate) proxies: Vec<Arc<Proxy>>,
    /// How the nodes call each other.
    ids: Vec<String>,
    password: Option<String>,
}

impl Cluster {
    /// Returns once every node says that the cluster is well, with all slots and replicas.
    pub(crate) fn start(options: &ClusterOptions) -> Self {
        let count = options.primaries * (1 + options.replicas_each);
        let (nodes, proxies): (Vec<_>, Vec<_>) = (0..count).map(|_| start_node(options)).unzip();
        let ids = nodes.iter().map(|node| node.cli(&["CLUSTER", "MYID"]));
        let this = Self {
            ids: ids.collect(),
            nodes,
            proxies,
            password: options.password.clone(),
        };
        for (number, node) in this.nodes.iter().enumerate() {
            // Nodes that meet with the same epoch would first have to quarrel about it.
            let epoch = (number + 1).to_string();
            assert_eq!(node.cli(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]), "OK");
            let to_first = [
                "CLUSTER",
                "MEET",
                "127.0.0.1",
                &this.nodes[0].port().to_string(),
            ];
            assert_eq!(node.cli(&to_first), "OK");
        }
        for primary in 0..options.primaries {
            let edge = |of: usize| usize::from(SLOTS) * of / options.primaries;
            let (first, last) = (edge(primary), edge(primary + 1) - 1);
            let add = [
                "CLUSTER",
                "ADDSLOTSRANGE",
                &first.to_string(),
                &last.to_string(),
            ];
            assert_eq!(this.nodes[primary].cli(&add), "OK");
        }
        wait_until("the nodes know each other", || {
            this.nodes.iter().all(|node| {
                let known = node.cli(&["CLUSTER", "NODES"]);
                known.lines().count() == count && !known.contains("handshake")
            })
        });
        for replica in options.primaries..count {
            let id = &this.ids[replica - options.primaries];
            wait_until("a replica has its primary", || {
                this.nodes[replica].cli(&["CLUSTER", "REPLICATE", id]) == "OK"
            });
        }
        this.wait_well();
        this
    }

    pub(crate) fn addrs(&self) -> Vec<SocketAddr> {
        self.proxies.iter().map(|proxy| proxy.addr()).collect()
    }

    /// Waits until all nodes see all slots served and agree on who serves them, and every replica
    /// is linked.
    pub(crate) fn wait_well(&self) {
        wait_until("the cluster is well", || {
            let views: Vec<_> = self.nodes.iter().map(owners).collect();
            views.iter().all(|view| *view == views[0])
                && self.nodes.iter().all(|node| {
                    let state = node.cli(&["CLUSTER", "INFO"]);
                    state.contains("cluster_state:ok")
                        && (node.info("role") == "master"
                            || node.info("master_link_status") == "up")
                })
        });
    }

    /// The node that serves a slot, as most of the running ones see it.
    pub(crate) fn owner(&self, slot: u16) -> Option<usize> {
        let mut votes = vec![0; self.nodes.len()];
        for node in &self.nodes {
            let view = node.try_cli(&["CLUSTER", "NODES"]).unwrap_or_default();
            let named = view.lines().find(|line| serves(line, slot));
            let named = named.and_then(|line| self.ids.iter().position(|id| line.starts_with(id)));
            if let Some(named) = named {
                votes[named] += 1;
            }
        }
        (0..votes.len()).find(|&node| 2 * votes[node] > self.nodes.len())
    }

    /// The node that follows a primary.
    pub(crate) fn replica_of(&self, primary: usize) -> Option<usize> {
        let view = self.nodes[primary].cli(&["CLUSTER", "REPLICAS", &self.ids[primary]]);
        let follows = view.lines().next()?;
        self.ids.iter().position(|id| follows.starts_with(id))
    }

    /// The slots that a node serves, as it sees it itself.
    pub(crate) fn slots(&self, node: usize) -> Vec<u16> {
        let view = self.nodes[node].cli(&["CLUSTER", "NODES"]);
        let mine = view.lines().find(|line| line.starts_with(&self.ids[node]));
        let mine = mine.expect("a node knows itself");
        (0..SLOTS).filter(|&slot| serves(mine, slot)).collect()
    }

    pub(crate) fn slot_of(&self, key: &str) -> u16 {
        let slot = self.nodes[0].cli(&["CLUSTER", "KEYSLOT", key]);
        slot.parse().expect("a slot")
    }

    /// From now on the source answers for a key that has moved with ASK, and the target for one
    /// that has not with an error, unless it is asked with ASKING.
    pub(crate) fn begin_move(&self, slot: u16, from: usize, to: usize) {
        let slot = slot.to_string();
        let importing = ["CLUSTER", "SETSLOT", &slot, "IMPORTING", &self.ids[from]];
        assert_eq!(self.nodes[to].cli(&importing), "OK");
        let migrating = ["CLUSTER", "SETSLOT", &slot, "MIGRATING", &self.ids[to]];
        assert_eq!(self.nodes[from].cli(&migrating), "OK");
    }

    /// Moves at most so many keys of a slot that is being moved; how many there were.
    pub(crate) fn move_keys(&self, slot: u16, from: usize, to: usize, count: usize) -> usize {
        let (slot, count) = (slot.to_string(), count.to_string());
        let keys = self.nodes[from].cli(&["CLUSTER", "GETKEYSINSLOT", &slot, &count]);
        let keys: Vec<&str> = keys.lines().filter(|key| !key.is_empty()).collect();
        if keys.is_empty() {
            return 0;
        }
        let port = self.nodes[to].port().to_string();
        let mut migrate = vec!["MIGRATE", "127.0.0.1", &port, "", "0", MIGRATE_TIMEOUT_MS];
        if let Some(password) = &self.password {
            migrate.extend(["AUTH", password]);
        }
        migrate.push("KEYS");
        migrate.extend(&keys);
        let moved = self.nodes[from].cli(&migrate);
        // A key may have expired since, and the target may have taken the others for dead.
        let again = moved == "NOKEY" || moved.contains("CLUSTERDOWN");
        assert!(moved == "OK" || again, "{moved}");
        keys.len()
    }

    /// The target serves the slot, in which no key may be left behind.
    pub(crate) fn end_move(&self, slot: u16, from: usize, to: usize) {
        let (slot, id) = (slot.to_string(), self.ids[to].as_str());
        for node in [to, from] {
            let set = ["CLUSTER", "SETSLOT", &slot, "NODE", id];
            assert_eq!(self.nodes[node].cli(&set), "OK", "node {node}, slot {slot}");
        }
    }

    /// Moves slots with their keys while clients go on, one after the other.
    pub(crate) fn reshard(&self, slots: impl IntoIterator<Item = u16>, from: usize, to: usize) {
        for slot in slots {
            self.begin_move(slot, from, to);
            while self.move_keys(slot, from, to, KEYS_AT_ONCE) > 0 {}
            self.end_move(slot, from, to);
        }
    }

    /// Makes a replica the primary of its slots, in good order; nothing is lost.
    pub(crate) fn failover(&self, replica: usize) {
        wait_until("a replica takes over", || {
            let node = &self.nodes[replica];
            node.info("role") == "master" || {
                node.cli(&["CLUSTER", "FAILOVER"]);
                false
            }
        });
        self.wait_well();
    }

    /// Ends a node at once; its replica takes over by itself after the node timeout.
    pub(crate) fn kill(&mut self, node: usize) {
        self.nodes[node].kill();
    }

    /// Brings it back empty: as a replica, if another has taken over meanwhile.
    pub(crate) fn restart(&mut self, node: usize) {
        self.nodes[node].restart();
    }
}

fn start_node(options: &ClusterOptions) -> (RedisServer, Arc<Proxy>) {
    // Its target is known once the node has its port.
    let proxy = Proxy::start(([127, 0, 0, 1], 1).into());
    let port = proxy.port().to_string();
    let announced = match options.tls {
        None => "--cluster-announce-port",
        Some(_) => "--cluster-announce-tls-port",
    };
    let mut args = words(&["--cluster-enabled", "yes", announced, &port]);
    let timeout = options.node_timeout.as_millis().to_string();
    args.extend(words(&["--cluster-node-timeout", &timeout]));
    args.extend(words(&["--repl-diskless-sync-delay", "0"]));
    if options.tls.is_some() {
        args.extend(words(&["--tls-cluster", "yes"]));
    }
    args.extend(options.args.iter().cloned());
    let options = Options {
        password: options.password.clone(),
        tls: options.tls,
        args,
        ..Options::default()
    };
    let node = RedisServer::start_on(options, ports::free_node_port);
    proxy.set_target(node.addr());
    (node, proxy)
}

/// Who serves what, as one node sees it: ids with their slots, in order.
fn owners(node: &RedisServer) -> Vec<String> {
    let view = node.cli(&["CLUSTER", "NODES"]);
    let mut owners: Vec<String> = view
        .lines()
        .filter(|line| !line.contains("fail"))
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let role = if words[2].contains("master") {
                "serves"
            } else {
                words[3]
            };
            format!("{} {role} {}", words[0], words[8..].join(" "))
        })
        .collect();
    owners.sort_unstable();
    owners
}

/// Whether a line of CLUSTER NODES gives the slot to its node. Slots under way are in brackets.
fn serves(line: &str, slot: u16) -> bool {
    line.split(' ').skip(8).any(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let edges = first.parse::<u16>().ok().zip(last.parse().ok());
        edges.is_some_and(|(first, last)| (first..=last).contains(&slot))
    })
}
