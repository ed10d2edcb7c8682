//! Servers with something wrong about them.

use std::fs;

use super::{doctor, doctor_of};
use crate::{
    client::wait_until,
    support::redis::{Options, RedisServer, redis_62},
};

fn server(args: &[&str]) -> RedisServer {
    RedisServer::start(Options {
        args: args.iter().map(|&arg| arg.to_owned()).collect(),
        ..Options::default()
    })
}

#[test]
fn r07_every_eviction_but_none_is_a_warning() {
    for (eviction, is_safe) in [
        ("noeviction", true),
        ("allkeys-lru", false),
        ("volatile-ttl", false),
        ("allkeys-random", false),
    ] {
        let redis = server(&["--maxmemory", "50mb", "--maxmemory-policy", eviction]);
        let expected = format!("maxmemory-policy is {eviction} (0 keys evicted so far)");
        let warnings = [("eviction", expected.as_str())];
        doctor(&redis.url()).check_warnings(if is_safe { &[] } else { &warnings });
    }
}

#[test]
fn a_server_that_is_nearly_full_is_a_warning() {
    let redis = server(&["--maxmemory", "4mb"]);
    let filler = "x".repeat(100_000);
    while !redis.cli(&["RPUSH", "filler", &filler]).contains("OOM") {}
    // A few bytes below the limit, so that a canary still fits.
    redis.cli(&["CONFIG", "SET", "maxmemory", "4500000"]);
    let report = doctor(&redis.url());
    report.check_warnings(&[("memory", "% of maxmemory is used: at the limit")]);
}

#[test]
fn a_full_server_is_a_failure() {
    let redis = server(&["--maxmemory", "1"]);
    doctor(&redis.url()).check_failures(&[("canary", "at its memory limit; raise maxmemory")]);
}

#[test]
fn a_replica_is_a_failure_and_a_primary_with_one_is_well() {
    let primary = server(&[]);
    let port = primary.port().to_string();
    let replica = server(&["--replicaof", "127.0.0.1", &port]);
    wait_until("the replica follows", || {
        primary
            .cli(&["INFO", "replication"])
            .contains("state=online")
    });
    doctor(&replica.url()).check_failures(&[
        ("role", "this is a replica"),
        (
            "canary",
            "read-only, such as a demoted primary; use the primary's address",
        ),
    ]);
    let report = doctor(&primary.url());
    report.check_warnings(&[]);
    assert_eq!(report.object()["servers"][0]["replicas"], 1);
    let rows = report.findings();
    let row = rows.iter().find(|(check, ..)| check == "replication");
    assert_eq!(row.expect("a finding").3, "replicas that follow: 1");

    replica.pause();
    primary.cli(&["CONFIG", "SET", "repl-timeout", "3600"]);
    // The kernel takes some of it.
    let fill = "for _ = 1, 20 do redis.call('SET', 'filler', string.rep('x', 1000000)) end";
    primary.cli(&["EVAL", fill, "0"]);
    doctor(&primary.url()).check_warnings(&[("replication", "1 of 1 replicas do not follow")]);
}

#[test]
fn a_primary_without_the_replicas_that_it_asks_for_is_a_failure() {
    let redis = server(&["--min-replicas-to-write", "1"]);
    doctor(&redis.url()).check_failures(&[("canary", "too few replicas; bring the replicas back")]);
}

#[test]
fn a_member_of_a_cluster_is_not_a_server_of_its_own() {
    let redis = server(&["--cluster-enabled", "yes", "--cluster-port", "0"]);
    doctor(&redis.url()).check_failures(&[
        ("topology", "use redis-cluster://"),
        ("canary", "the cluster is down"),
    ]);
}

#[test]
fn a_snapshot_that_fails_is_named_before_and_when_it_stops_writes() {
    let redis = server(&["--save", "3600 1000000"]);
    let report = doctor(&redis.url());
    report.check_warnings(&[]);
    let rows = report.findings();
    let row = rows.iter().find(|(check, ..)| check == "persistence");
    let message = "snapshots: a restart forgets the claims since the last one";
    assert_eq!(row.expect("a finding").3, message);

    let directory = redis.socket_path();
    let directory = directory.parent().expect("the server's own");
    fs::remove_dir_all(directory).expect("the directory is ours");
    redis.cli(&["BGSAVE"]);
    wait_until("the snapshot has failed", || {
        redis
            .cli(&["INFO", "persistence"])
            .contains("rdb_last_bgsave_status:err")
    });
    let report = doctor(&redis.url());
    report.check_failures(&[("canary", "cannot persist them; look into the server's log")]);
    let warnings = report.faults("warning");
    assert_eq!(warnings.len(), 1, "{report:?}");
    assert!(warnings[0].1.contains("the last snapshot failed"));

    redis.cli(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]);
    doctor(&redis.url()).check_warnings(&[("persistence", "the last snapshot failed")]);
}

#[test]
fn a_server_in_a_script_that_does_not_end_is_a_failure() {
    let redis = server(&["--lua-time-limit", "10"]);
    let mut endless = std::process::Command::new("redis-cli")
        .args([
            "-p",
            &redis.port().to_string(),
            "EVAL",
            "while true do end",
            "0",
        ])
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("redis-cli runs");
    wait_until("busy", || redis.cli(&["PING"]).contains("BUSY"));
    doctor(&redis.url()).check_failures(&[("canary", "busy with a script; find whose script")]);
    assert_eq!(redis.cli(&["SCRIPT", "KILL"]), "OK");
    endless.wait().expect("the child is ours");
    doctor(&redis.url()).check_warnings(&[]);
}

#[test]
fn an_append_only_file_is_persistence() {
    let redis = server(&["--appendonly", "yes"]);
    let rows = doctor(&redis.url()).findings();
    let row = rows.iter().find(|(check, ..)| check == "persistence");
    assert_eq!(row.expect("a finding").3, "append-only file");
}

#[test]
fn a_redis_62_is_served_with_a_note() {
    let Some(binary) = redis_62() else {
        eprintln!("left out: no DEDUPD_TEST_REDIS_62, see tests/run.sh");
        return;
    };
    let redis = RedisServer::start(Options {
        binary: Some(binary),
        ..Options::default()
    });
    let report = doctor(&redis.url());
    report.check_warnings(&[]);
    report.check_notes("version", "Redis 6.2.14: every claim is a script");
    assert_eq!(redis.cli(&["DBSIZE"]), "0", "nothing stays");
}

#[test]
fn a_round_trip_is_held_against_the_budget() {
    let redis = server(&[]);
    let proxy = crate::support::proxy::Proxy::start(redis.addr());
    let url = redis.url_at(proxy.addr());
    let namespace = "accepts: [keyed], window: none, ttl: 600s, failure_mode: closed";
    let config = |budget: &str| {
        format!("store: {{ budget: {budget} }}\nnamespaces: {{ orders: {{ {namespace} }} }}")
    };
    proxy.delay_replies(std::time::Duration::from_millis(100));
    doctor_of(&config("5s"), &url).check_warnings(&[]);
    let none = doctor_of(&config("50ms"), &url);
    none.check_failures(&[(
        "round_trip",
        "store.budget is 50 ms: no claim is decided in time",
    )]);
}
