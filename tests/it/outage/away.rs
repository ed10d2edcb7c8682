//! A Redis that is not there: before the start, for a while, or with other data afterwards.

use std::time::{Duration, Instant};

use dedupd::grpc::proto::{Reason, SettleOutcome};
use tokio::time;

use super::{
    SLACK,
    world::{AMPLE, World, admit, connect, fresh_ids, reasons, serve, until_decided},
};
use crate::support::redis::{Options, RedisServer};

const RECOVERY: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread")]
async fn o02_a_redis_that_comes_after_the_start_is_used_without_a_restart() {
    let mut redis = RedisServer::start(Options::default());
    redis.kill();
    let begun = Instant::now();
    let service = serve(&redis.url(), AMPLE);
    let mut client = connect(&service).await;
    let open = admit(&mut client, "open", &["e"], "").await;
    assert_eq!(reasons(&open), [Reason::FailOpen]);
    let closed = admit(&mut client, "closed", &["e"], "").await;
    assert_eq!(reasons(&closed), [Reason::StoreUnavailable]);
    while service.http_get("/readyz").0 != 200 {
        let waited = begun.elapsed();
        assert!(
            waited < Duration::from_secs(5) + SLACK,
            "not ready after {waited:?}"
        );
        time::sleep(Duration::from_millis(20)).await;
    }
    redis.restart();
    let recovered = until_decided(&mut client).await;
    eprintln!("decided {recovered:?} after Redis came up");
    assert!(recovered < RECOVERY + SLACK, "{recovered:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn r11_a_killed_redis_is_used_again_once_it_is_back() {
    let mut world = World::start(AMPLE).await;
    world.redis.kill();
    for id in fresh_ids(50) {
        let begun = Instant::now();
        assert_eq!(
            world.admit("closed", &id).await.reason(),
            Reason::StoreUnavailable
        );
        assert!(begun.elapsed() < AMPLE + SLACK);
    }
    let attempts = world.proxy.accepted();
    time::sleep(Duration::from_secs(1)).await;
    assert!(
        world.proxy.accepted() - attempts < 20,
        "attempts to connect are backed off"
    );
    world.redis.restart();
    let recovered = world.until_decided().await;
    eprintln!("decided {recovered:?} after the restart");
    assert!(recovered < RECOVERY + SLACK, "{recovered:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn r11_a_black_hole_is_left_once_packets_pass() {
    let mut world = World::start(AMPLE / 4).await;
    world.proxy.black_hole();
    let ids = fresh_ids(50);
    for id in &ids {
        assert_eq!(world.admit("open", id).await.reason(), Reason::FailOpen);
    }
    world.proxy.pass();
    let recovered = world.until_decided().await;
    eprintln!("decided {recovered:?} after packets passed");
    assert!(recovered < RECOVERY + SLACK, "{recovered:?}");
    time::sleep(Duration::from_millis(300)).await;
    for id in &ids {
        assert_eq!(world.admit("open", id).await.reason(), Reason::FirstSeen);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b04_what_passed_undeduplicated_is_counted_and_admitted_again() {
    let mut world = World::start(AMPLE).await;
    world.redis.kill();
    let ids = fresh_ids(1000);
    for chunk in ids.chunks(50) {
        for verdict in admit(&mut world.client, "open", chunk, "").await {
            assert_eq!(verdict.reason(), Reason::FailOpen);
            assert!(verdict.degraded && verdict.claim.is_empty(), "{verdict:?}");
        }
    }
    let series = r#"dedupd_decisions_total{namespace="open",decision="ADMIT",reason="FAIL_OPEN"}"#;
    assert_eq!(world.metric(series), 1000.0);
    world.redis.restart();
    world.until_decided().await;
    for chunk in ids.chunks(50) {
        let verdicts = admit(&mut world.client, "open", chunk, "").await;
        assert_eq!(reasons(&verdicts), [Reason::FirstSeen; 50]);
    }
    assert_eq!(world.metric(series), 1000.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn r11_settling_waits_for_redis_and_works_afterwards() {
    let mut world = World::start(AMPLE).await;
    let [confirmed, released] = ["confirmed", "released"].map(str::to_owned);
    let confirmed = world.admit("leased", &confirmed).await.claim;
    let released = world.admit("leased", &released).await.claim;
    world.redis.pause();
    for _ in 0..6 {
        assert_eq!(
            world.confirm(&confirmed).await,
            SettleOutcome::StoreUnavailable
        );
    }
    assert_eq!(
        world.release(&released).await,
        SettleOutcome::StoreUnavailable
    );
    world.redis.resume();
    world.until_decided().await;
    // The first ones may have been executed late.
    let done = world.confirm(&confirmed).await;
    assert!(
        matches!(done, SettleOutcome::Applied | SettleOutcome::AlreadyApplied),
        "{done:?}"
    );
    assert_eq!(
        world.admit("leased", "confirmed").await.reason(),
        Reason::Redelivery
    );
    let done = world.release(&released).await;
    assert!(
        matches!(done, SettleOutcome::Applied | SettleOutcome::NotHeld),
        "{done:?}"
    );
    assert_eq!(
        world.admit("leased", "released").await.reason(),
        Reason::FirstSeen
    );
}

/// A call may meet the very end of its connection; one after it may not.
#[tokio::test(flavor = "multi_thread")]
async fn r11_an_idle_connection_that_the_server_closes_costs_no_call() {
    let mut world = World::start(AMPLE).await;
    for id in fresh_ids(2) {
        let before = world.connects();
        world.redis.cli(&["CONFIG", "SET", "timeout", "1"]);
        until_anew(&world, before).await;
        world.redis.cli(&["CONFIG", "SET", "timeout", "0"]);
        until_anew(&world, before).await;
        assert_eq!(world.admit("closed", &id).await.reason(), Reason::FirstSeen);
    }
    for id in fresh_ids(30) {
        let before = world.connects();
        world.redis.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
        until_anew(&world, before).await;
        assert_eq!(world.admit("closed", &id).await.reason(), Reason::FirstSeen);
    }
}

/// Waits until every connection of before has ended and the service has as many as Redis knows of.
async fn until_anew(world: &World, connects_before: f64) {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let (connects, connections) = (world.connects(), world.metric("dedupd_store_connections"));
        // One of them asks.
        let clients: f64 = world
            .redis
            .info("connected_clients")
            .parse()
            .expect("a number");
        if connections > 0.0
            && connects >= connects_before + connections
            && clients == connections + 1.0
        {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "{connects} of {connects_before}, {connections}, {clients}"
        );
        time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r08_r19_a_claim_that_redis_has_lost_is_not_held() {
    let mut world = World::start(AMPLE).await;
    let expired = world.admit("leased", "expired").await.claim;
    world.redis.cli(&["DEL", "leased:expired"]);
    assert_eq!(world.confirm(&expired).await, SettleOutcome::NotHeld);
    assert!(
        !world.stands("leased", "expired"),
        "confirming brings nothing back"
    );
    assert_eq!(
        world.admit("leased", "expired").await.reason(),
        Reason::FirstSeen
    );
    let ids = fresh_ids(100);
    let claims = admit(&mut world.client, "closed", &ids, "").await;
    world.redis.cli(&["FLUSHALL"]);
    for verdict in &claims {
        assert_eq!(world.confirm(&verdict.claim).await, SettleOutcome::NotHeld);
    }
    let again = admit(&mut world.client, "closed", &ids, "").await;
    assert_eq!(reasons(&again), [Reason::FirstSeen; 100]);
    for verdict in &claims {
        assert_eq!(world.release(&verdict.claim).await, SettleOutcome::NotHeld);
    }
}
