//! Sentinels, clusters, TLS and replicas to wait for, with something wrong about them.

use std::{fmt::Write, net::SocketAddr};

use super::{CONFIG, doctor, doctor_of};
use crate::{
    client::wait_until,
    support::{
        certificates,
        redis::{
            Options, RedisServer, Tls,
            cluster::{Cluster, ClusterOptions},
            replicated::{Replicated, ReplicatedOptions, SERVICE},
        },
    },
};

fn url(scheme: &str, addresses: &[SocketAddr]) -> String {
    let mut url = format!("{scheme}://");
    for (number, address) in addresses.iter().enumerate() {
        let comma = if number == 0 { "" } else { "," };
        write!(url, "{comma}{address}").expect("a String");
    }
    url
}

fn with_store(more: &str) -> String {
    CONFIG.replace("budget: 1s", &format!("budget: 1s, {more}"))
}

#[test]
fn sentinels_that_do_not_tell_are_named() {
    let mut fleet = Replicated::start(&ReplicatedOptions::default());
    let addresses = fleet.sentinel_addrs();
    let url = format!("{}/{SERVICE}", url("redis-sentinel", &addresses));
    let report = doctor(&url);
    report.check_warnings(&[]);
    let connected = format!(
        "connected to {}, the primary of {SERVICE}",
        fleet.proxies[0].addr()
    );
    assert_eq!(report.findings()[0].3, connected);

    fleet.sentinels[1].kill();
    let named = format!("topology sentinel {}", addresses[1]);
    doctor(&url).check_warnings(&[(
        &named,
        "it does not tell where the primary is: Connection refused",
    )]);

    let unknown = doctor(&url.replace(SERVICE, "nobody"));
    let part = "cannot connect: no sentinel tells where the primary is";
    unknown.check_failures(&[("connection", part)]);
    assert_eq!(unknown.faults("warning").len(), 3, "{unknown:?}");
    assert!(
        unknown
            .stdout
            .contains(r#"it does not know a service \"nobody\""#),
        "{unknown:?}"
    );
}

#[test]
fn a_cluster_is_looked_over_server_by_server() {
    let mut cluster = Cluster::start(&ClusterOptions {
        replicas_each: 0,
        args: ["--cluster-require-full-coverage", "no"]
            .map(str::to_owned)
            .to_vec(),
        ..ClusterOptions::default()
    });
    let addresses = cluster.addrs();
    let url = url("redis-cluster", &addresses);
    let key = "orders:4711";
    let owner = cluster
        .owner(cluster.slot_of(key))
        .expect("all slots are served");
    cluster.nodes[owner].cli(&["SET", key, "1"]);
    let contract = "dedupd:contract:orders";
    let holder = cluster
        .owner(cluster.slot_of(contract))
        .expect("all slots are served");
    let line = "v1 window=none place=- digest=- layout=tagged prefix=orders:; guard=0ns guard_m=0";
    cluster.nodes[holder].cli(&["SET", contract, line, "PX", "60000"]);

    let report = doctor(&url);
    report.check_failures(&[(
        "contract orders",
        "layout=plain, in the store layout=tagged",
    )]);
    let warnings = report.faults("warning");
    assert_eq!(warnings.len(), 1, "{report:?}");
    assert!(
        warnings[0].1.contains("keys without a TTL: 1"),
        "{warnings:?}"
    );
    let object = report.object();
    let servers = object["servers"].as_array().expect("a list");
    let mut named: Vec<&str> = servers
        .iter()
        .filter_map(|one| one["address"].as_str())
        .collect();
    let mut expected: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
    named.sort_unstable();
    expected.sort_unstable();
    assert_eq!(named, expected);
    let canaries = report
        .findings()
        .into_iter()
        .filter(|(check, severity, ..)| check == "canary" && severity == "ok");
    assert_eq!(canaries.count(), 3, "{report:?}");

    cluster.nodes[holder].cli(&["DEL", contract]);
    cluster.nodes[owner].cli(&["DEL", key]);
    cluster.kill(2);
    let gone = format!("connection {}", addresses[2]);
    doctor(&url).check_failures(&[(&gone, "cannot connect: ")]);
}

#[test]
fn what_a_cluster_needs_is_permitted_or_named() {
    let cluster = Cluster::start(&ClusterOptions {
        replicas_each: 0,
        ..ClusterOptions::default()
    });
    let addresses = cluster.addrs();
    let url = url("redis-cluster", &addresses).replace("://", "://app:app-password@");
    let rule = "~dedupd:* ~crossings:* ~orders:* +set +get +mget +pttl +pexpire +del +eval +evalsha \
                +script|load +ping +info +time +config|get +scan +getrange +cluster|slots +cluster|info";
    let permit = |more: &str| {
        for node in &cluster.nodes {
            let words = ["ACL", "SETUSER", "app", "reset", "on", ">app-password"];
            let rules = rule.split_whitespace().chain(more.split_whitespace());
            let words: Vec<&str> = words.into_iter().chain(rules).collect();
            assert_eq!(node.cli(&words), "OK");
        }
    };
    permit("+asking");
    doctor(&url).check_warnings(&[]);
    permit("");
    let report = doctor(&url);
    let failures = report.faults("failure");
    assert_eq!(failures.len(), 3, "{report:?}");
    for (name, message) in failures {
        assert!(name.starts_with("permission 127.0.0.1:"), "{name}");
        assert_eq!(message, "refused: ASKING; permit +asking");
    }
    permit("+asking -cluster|slots");
    doctor(&url).check_failures(&[("connection", "cluster|slots")]);
}

#[test]
fn slots_that_nobody_serves_are_a_failure() {
    let cluster = Cluster::start(&ClusterOptions {
        replicas_each: 0,
        args: ["--cluster-require-full-coverage", "no"]
            .map(str::to_owned)
            .to_vec(),
        ..ClusterOptions::default()
    });
    let url = url("redis-cluster", &cluster.addrs());
    // A heartbeat of the former owner that is on its way gives the slot back to it.
    wait_until("all know it", || {
        let knows = |node: &RedisServer| !node.cli(&["CLUSTER", "NODES"]).contains("-16383");
        let (knowing, others): (Vec<_>, Vec<_>) =
            cluster.nodes.iter().partition(|node| knows(node));
        for node in others {
            node.cli(&["CLUSTER", "DELSLOTS", "16383"]);
        }
        knowing.len() == cluster.nodes.len()
    });
    doctor(&url).check_failures(&[("topology", "1 of 16384 slots are served by nobody")]);
}

#[test]
fn a_certificate_that_nobody_vouches_for_is_named() {
    let redis = RedisServer::start(Options {
        tls: Some(Tls::Mutual),
        ..Options::default()
    });
    let path = |name: &str| certificates::path(name).display().to_string();
    let (ca, certificate, key) = (path("ca.pem"), path("client.pem"), path("client.key"));
    let with = |tls: &str| doctor_of(&with_store(&format!("tls: {{ {tls} }}")), &redis.url());
    let own = format!("ca: \"{ca}\", certificate: \"{certificate}\", key: \"{key}\"");
    with(&own).check_warnings(&[]);
    // The system's authorities do not know the server's.
    let report = doctor(&redis.url());
    report.check_failures(&[("connection", "cannot connect: invalid peer certificate")]);
    with(&format!("ca: \"{ca}\"")).check_failures(&[("connection", "cannot connect: ")]);
    // Plain words to a server that speaks TLS.
    let plain = format!("redis://{}", redis.addr());
    doctor(&plain).check_failures(&[("connection", "cannot connect: ")]);
}

#[test]
fn replicas_that_are_waited_for_must_follow() {
    let redis = RedisServer::start(Options::default());
    let report = doctor_of(&with_store("wait_replicas: 1"), &redis.url());
    report.check_failures(&[(
        "replication",
        "replicas that follow: 0, and store.wait_replicas is 1: no claim counts",
    )]);
}
