//! The service's own examinations: once at the start, after each new connection, now and then.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use dedupd::grpc::proto::{Reason, SettleOutcome};

use super::CONFIG;
use crate::{
    client::{PATIENCE, World, events::keyed, wait_until},
    support::{
        proxy::Proxy,
        redis::{
            Options, RedisServer,
            cluster::{Cluster, ClusterOptions},
        },
        service,
    },
};

fn config() -> String {
    CONFIG.replace("store: { budget: 1s }\n", "")
}

async fn on(redis: RedisServer) -> World {
    let world = World::on(&Arc::new(redis), &config()).await;
    world.service.wait_log("the store takes claims", PATIENCE);
    world
}

fn findings(world: &World, check: &str, severity: &str) -> f64 {
    let series = format!(r#"dedupd_store_findings{{check="{check}",severity="{severity}"}}"#);
    world.service.metric(&series).expect("a series")
}

/// Makes the service connect anew, which is when it looks again.
async fn reconnect(world: &World) {
    let redis = world.redis().expect("on Redis");
    redis.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
    world.admit_at_last("orders", &keyed("again")).await;
}

fn lines(world: &World, text: &str) -> usize {
    let logs = world.service.logs();
    logs.iter().filter(|line| line.contains(text)).count()
}

/// Old claims are forgotten to make room for new ones; that must be seen.
#[tokio::test(flavor = "multi_thread")]
async fn r07_claims_that_are_evicted_are_seen() {
    let world = on(RedisServer::start(Options {
        args: ["--maxmemory", "2mb", "--maxmemory-policy", "allkeys-lru"]
            .map(str::to_owned)
            .to_vec(),
        ..Options::default()
    }))
    .await;
    let line = world
        .service
        .wait_log("maxmemory-policy is allkeys-lru", PATIENCE);
    assert!(line.contains(r#""level":"WARN""#), "{line}");
    wait_until("exported", || {
        findings(&world, "eviction", "warning") == 1.0
    });

    let event = |number: usize| keyed(&format!("event-{number}"));
    for batch in 0..20 {
        let events = (batch * 1000..(batch + 1) * 1000).map(event).collect();
        let verdicts = world.admit("orders", events).await;
        assert!(
            verdicts
                .iter()
                .all(|verdict| verdict.reason() == Reason::FirstSeen)
        );
    }
    let again = world.admit("orders", (0..100).map(event).collect()).await;
    let readmitted = again
        .iter()
        .filter(|verdict| verdict.reason() == Reason::FirstSeen)
        .count();
    assert!(readmitted > 0, "the leak that must be seen");
    reconnect(&world).await;
    let evicted = || {
        world
            .service
            .metric("dedupd_store_evicted_keys_total")
            .expect("a series")
    };
    wait_until("counted", || evicted() > 1000.0);
    eprintln!(
        "{readmitted} of 100 admitted again, {} keys evicted",
        evicted()
    );
    assert_eq!(lines(&world, "maxmemory-policy is"), 1, "logged once");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_new_and_what_has_gone_is_logged_once() {
    let world = on(RedisServer::start(Options::default())).await;
    wait_until("a first look", || {
        findings(&world, "replication", "note") == 1.0
    });
    let warnings = || lines(&world, r#""check":"eviction""#);
    assert_eq!(warnings(), 0, "nothing is wrong yet");
    let redis = world.redis().expect("on Redis");
    let set = |eviction: &str| redis.cli(&["CONFIG", "SET", "maxmemory-policy", eviction]);
    for eviction in ["allkeys-lru", "volatile-lru"] {
        set(eviction);
        reconnect(&world).await;
        wait_until("found", || findings(&world, "eviction", "warning") == 1.0);
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(warnings(), 1, "the same trouble");
    set("noeviction");
    reconnect(&world).await;
    world
        .service
        .wait_log("no longer found in the store", PATIENCE);
    wait_until("gone", || findings(&world, "eviction", "warning") == 0.0);
    assert_eq!(warnings(), 2);
    // Its own, and redis-cli's.
    let clients = || redis.cli(&["CLIENT", "LIST"]).lines().count();
    wait_until("no connection is left behind", || clients() <= 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn r08_a_restarted_or_promoted_server_is_a_new_epoch() {
    let first = Arc::new(RedisServer::start(Options::default()));
    let port = first.port().to_string();
    let second = RedisServer::start(Options {
        args: ["--replicaof", "127.0.0.1", &port]
            .map(str::to_owned)
            .to_vec(),
        ..Options::default()
    });
    let proxy = Proxy::start(first.addr());
    let options = service::Options {
        store_url: Some(first.url_at(proxy.addr())),
        ..service::Options::default()
    };
    let world = World::with(Some(Arc::clone(&first)), &config(), options).await;
    world.service.wait_log("the store takes claims", PATIENCE);
    wait_until("a first look", || {
        findings(&world, "contract", "failure") == 0.0 && findings(&world, "memory", "note") == 1.0
    });
    let epochs = || {
        world
            .service
            .metric("dedupd_store_epoch_changes_total")
            .expect("a series")
    };
    reconnect(&world).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(epochs(), 0.0, "the same server");

    let claimed = world.admit_one("orders", &keyed("kept nowhere")).await;
    second.cli(&["REPLICAOF", "NO", "ONE"]);
    second.cli(&["DEL", "orders:kept nowhere"]);
    proxy.set_target(second.addr());
    proxy.cut_connections();
    world.admit_at_last("orders", &keyed("moved on")).await;
    wait_until("a new epoch", || epochs() == 1.0);
    world
        .service
        .wait_log("the store was restarted or replaced", PATIENCE);
    assert_eq!(world.confirm(&claimed).await, SettleOutcome::NotHeld);
}

/// Each server of a cluster is known by its address.
#[tokio::test(flavor = "multi_thread")]
async fn r08_a_failover_in_a_cluster_is_a_new_epoch() {
    let mut cluster = Cluster::start(&ClusterOptions::default());
    let addresses: Vec<String> = cluster.addrs().iter().map(ToString::to_string).collect();
    let options = service::Options {
        store_url: Some(format!("redis-cluster://{}", addresses.join(","))),
        ..service::Options::default()
    };
    let world = World::with(None, &config(), options).await;
    world.service.wait_log("the store takes claims", PATIENCE);
    // Nothing is persisted, on none of the three.
    wait_until("a first look", || {
        findings(&world, "persistence", "note") == 3.0
    });
    let epochs = || world.service.metric("dedupd_store_epoch_changes_total");
    assert_eq!(epochs(), Some(0.0));
    cluster.kill(0);
    // The replica of the first.
    wait_until("it is promoted", || {
        cluster.nodes[3].cli(&["ROLE"]).starts_with("master")
    });
    // Work in every slot makes it connect to the new one.
    let begun = Instant::now();
    while epochs() == Some(0.0) {
        assert!(begun.elapsed() < PATIENCE, "no new epoch");
        let ids = (0..64).map(|number| keyed(&format!("{number}")));
        world.admit("orders", ids.collect()).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    wait_until("all are looked at again", || {
        findings(&world, "connection", "failure") == 0.0
            && findings(&world, "persistence", "note") == 3.0
    });
    assert_eq!(epochs(), Some(1.0));
}

/// What is refused is logged by the server, so it is asked for once.
#[tokio::test(flavor = "multi_thread")]
async fn what_it_may_not_look_at_it_asks_for_once() {
    let rule = "~dedupd:* ~crossings:* ~orders:* -@all +hello +ping +script|load +evalsha +eval \
                +set +get +mget +del +pttl +pexpire";
    let redis = RedisServer::start(Options::default().user("app", "app-password", rule));
    let options = service::Options {
        env: vec![(
            "DEDUPD_STORE_URL".to_owned(),
            format!("redis://app:app-password@{}", redis.addr()),
        )],
        ..service::Options::default()
    };
    let redis = Arc::new(redis);
    let world = World::with(Some(Arc::clone(&redis)), &config(), options).await;
    world.service.wait_log("the store takes claims", PATIENCE);
    wait_until("a first look", || {
        findings(&world, "introspection", "note") == 3.0
    });
    redis.cli(&["ACL", "LOG", "RESET"]);
    let connects = || world.service.metric("dedupd_store_connects_total");
    let before = connects();
    redis.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
    wait_until("it connects again", || connects() > before);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(redis.cli(&["ACL", "LOG"]), "");
    assert_eq!(findings(&world, "introspection", "note"), 3.0);
}

/// A store that never answers is looked at for the reason, and readiness does not wait for that.
#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_store_is_a_finding() {
    let redis = RedisServer::start(Options {
        password: Some("right".to_owned()),
        ..Options::default()
    });
    let service = service::Service::start(&service::Options {
        config: Some(CONFIG.to_owned()),
        env: vec![(
            "DEDUPD_STORE_URL".to_owned(),
            format!("redis://:hunter2@{}", redis.addr()),
        )],
        ..service::Options::default()
    });
    let line = service.wait_log(r#""check":"connection""#, PATIENCE);
    assert!(line.contains("correct user and password"), "{line}");
    assert!(!service.logs().iter().any(|line| line.contains("hunter2")));
    let found = r#"dedupd_store_findings{check="connection",severity="failure"}"#;
    wait_until("exported", || service.metric(found) == Some(1.0));
    wait_until("ready all the same", || {
        service.http_get("/readyz").0 == 200
    });
}
