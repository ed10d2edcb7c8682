//! What the product does not do yet.

use std::time::{Duration, Instant};

use dedupd::grpc::proto::Reason::FirstSeen;

use super::{brief, check_refused, check_served, config, redis_with_an_instance, usual};
use crate::{
    client::{PATIENCE, World, events::keyed, wait_until},
    support::{redis::RedisServer, service::Options},
};

/// Between two refreshes the line must not lapse, however short the TTL is.
#[tokio::test(flavor = "multi_thread")]
async fn o03_the_line_of_the_shortest_ttl_never_lapses() {
    let config = brief("tumbling: 50ms").replace("ttl: 1s", "ttl: 100ms");
    let (redis, _world) = redis_with_an_instance(&config).await;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(2500) {
        assert_eq!(
            redis.cli(&["EXISTS", "dedupd:contract:crossings"]),
            "1",
            "{:?}",
            begun.elapsed()
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A restarted Redis is empty, and whoever comes next must find the line of those who serve.
#[tokio::test(flavor = "multi_thread")]
async fn o03_a_reconnect_puts_the_lines_up_again() {
    let mut redis = RedisServer::start(Default::default());
    let options = Options {
        store_url: Some(redis.url()),
        ..Options::default()
    };
    let world = World::with(None, &usual(), options).await;
    world.service.wait_log("the store takes claims", PATIENCE);
    check_served(&world, "orders").await;
    redis.restart();
    let verdict = world
        .admit_at_last("orders", &keyed("after the restart"))
        .await;
    world.check_verdict(&verdict, FirstSeen, "after the restart");
    wait_until("the line again", || {
        redis.cli(&["EXISTS", "dedupd:contract:orders"]) == "1"
    });
}

/// What follows from it: two contracts are served at once.
#[tokio::test(flavor = "multi_thread")]
async fn o03_nobody_takes_a_namespace_over_after_a_restart() {
    let mut redis = RedisServer::start(Default::default());
    let options = Options {
        store_url: Some(redis.url()),
        ..Options::default()
    };
    let world = World::with(None, &usual(), options.clone()).await;
    world.service.wait_log("the store takes claims", PATIENCE);
    redis.restart();
    world
        .admit_at_last("orders", &keyed("after the restart"))
        .await;
    let changed = config("tumbling: 300s, guard: 5s", "", 9);
    let other = World::with(None, &changed, options).await;
    other.service.wait_log("the store takes claims", PATIENCE);
    check_served(&world, "crossings").await;
    check_refused(&other, "crossings", &["window="]).await;
}

/// One bad key trips nothing.
#[tokio::test(flavor = "multi_thread")]
async fn o03_a_contract_key_of_another_type_spoils_no_other_namespace() {
    let redis = RedisServer::start(Default::default());
    assert_eq!(redis.cli(&["RPUSH", "dedupd:contract:crossings", "x"]), "1");
    let options = Options {
        store_url: Some(redis.url()),
        ..Options::default()
    };
    let world = World::with(None, &usual(), options).await;
    world.admit_at_last("orders", &keyed("served")).await;
    check_served(&world, "orders").await;
}
