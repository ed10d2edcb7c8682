//! `failure_mode: local`: decided in the embedded store, written back afterwards.

mod cluster;
mod engine;
mod flapping;
mod recovery;
mod settling;
mod windows;

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    time::{Duration, Instant},
};

use dedupd::grpc::proto::{Reason, Verdict};
use tokio::time;

use super::{
    SLACK,
    world::{AMPLE, Client, World, admit, connect, fresh_ids, until_decided},
};
use crate::support::{
    proxy::Proxy,
    redis::{self, RedisServer},
    service::{Options, Service},
};

/// The first byte of a record, by its state.
const PENDING: u8 = 0x81;
const CLAIMED: u8 = 0x82;
const CONFIRMED: u8 = 0x83;

/// Of a pod whose Redis refuses or is cut off: there is nothing to wait for.
const BUDGET: Duration = Duration::from_secs(1);
/// Redis back, the breaker admitting, and some batches.
const WRITTEN_BACK: Duration = Duration::from_secs(2);
/// The write-back pauses for several times as long as a batch takes, which on a busy machine is long.
const PATIENCE: Duration = Duration::from_secs(30);

fn pod_at(url: &str, budget: Duration, max_local_memory: &str) -> Service {
    let keyed = "accepts: [keyed], window: none, ttl: 1h";
    let crossings = "accepts: [transition], ttl: 1h, failure_mode: local, time: { max_age: off, max_future: off }";
    let budget = budget.as_millis();
    let config = format!(
        "store: {{ url: \"{url}\", budget: {budget}ms, max_local_memory: {max_local_memory} }}
namespaces:
  local: {{ {keyed}, failure_mode: local }}
  held: {{ {keyed}, failure_mode: local, lease: 30s }}
  brief: {{ accepts: [keyed], window: none, ttl: 500ms, failure_mode: local, lease: 200ms }}
  leased: {{ {keyed}, failure_mode: closed, lease: 30s }}
  fences: {{ {crossings}, window: {{ tumbling: 2s, guard: 200ms }} }}
  sliding: {{ {crossings}, window: {{ sliding: 1s }}, key: {{ layout: tagged }} }}
  sessions: {{ {crossings}, window: {{ session: 10s }}, key: {{ digest: blake2b }} }}
"
    );
    Service::start(&Options {
        config: Some(config),
        ..Options::default()
    })
}

/// A pod behind a wire that can be cut, and its Redis.
async fn world() -> World {
    world_with(BUDGET, "16MiB").await
}

async fn world_with(budget: Duration, max_local_memory: &str) -> World {
    let redis = RedisServer::start(redis::Options::default());
    let proxy = Proxy::start(redis.addr());
    let service = pod_at(&redis.url_at(proxy.addr()), budget, max_local_memory);
    let client = connect(&service).await;
    let mut world = World {
        redis,
        proxy,
        service,
        client,
    };
    world.until_decided().await;
    world
}

/// Another pod, with a wire of its own that is never cut.
async fn other_pod(world: &World) -> (Service, Client) {
    let service = pod_at(&world.redis.url(), BUDGET, "16MiB");
    let mut client = connect(&service).await;
    until_decided(&mut client).await;
    (service, client)
}

fn nowhere() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("it is bound")
}

/// Parts the world's own pod from Redis, which lives on.
async fn part(world: &mut World) {
    world.proxy.set_target(nowhere());
    world.proxy.cut_connections();
    until_tripped(&world.service, &mut world.client).await;
}

async fn until_tripped(pod: &Service, client: &mut Client) {
    let begun = Instant::now();
    while pod.metric(r#"dedupd_breaker_state{state="admitting"}"#) != Some(0.0) {
        let verdicts = admit(client, "leased", &fresh_ids(16), "").await;
        assert!(begun.elapsed() < BUDGET * 8 + SLACK, "{verdicts:?}");
    }
}

fn join(world: &World) {
    world.proxy.set_target(world.redis.addr());
}

async fn until_written_back(world: &World) {
    until_empty(&world.service).await;
}

/// Waits until the embedded store is empty, and what left it is counted.
async fn until_empty(pod: &Service) {
    let begun = Instant::now();
    while pod.metric("dedupd_local_claims") != Some(0.0) {
        let waited = begun.elapsed();
        assert!(waited < PATIENCE, "not after {waited:?}");
        time::sleep(Duration::from_millis(5)).await;
    }
    time::sleep(Duration::from_millis(20)).await;
}

fn double_admissions(world: &World, namespace: &str) -> f64 {
    counted_by(&world.service, namespace)
}

fn counted_by(pod: &Service, namespace: &str) -> f64 {
    let series = format!(r#"dedupd_double_admissions_total{{namespace="{namespace}"}}"#);
    pod.metric(&series).expect("it is always there")
}

/// The first byte of what stands in Redis under a key, and how many milliseconds are left to it.
fn in_redis(world: &World, key: &str) -> Option<(u8, u64)> {
    const LOOK: &str = "local value = redis.call('GET', KEYS[1]) \
                        if not value then return '' end \
                        return string.byte(value, 1) .. ' ' .. redis.call('PTTL', KEYS[1])";
    let found = world.redis.cli(&["EVAL", LOOK, "1", key]);
    let (head, ttl) = found.split_once(' ')?;
    Some((head.parse().expect("a byte"), ttl.parse().expect("a TTL")))
}

#[track_caller]
fn check_in_redis(world: &World, key: &str, head: u8, ttl: Duration) {
    let (found, ttl_ms) = in_redis(world, key).unwrap_or_else(|| panic!("{key} is not there"));
    assert_eq!(found, head, "{key}");
    let least = ttl.saturating_sub(WRITTEN_BACK + SLACK * 2).as_millis();
    assert!(
        (least..=ttl.as_millis()).contains(&u128::from(ttl_ms)),
        "{key} has {ttl_ms} ms left of {ttl:?}"
    );
}

async fn one(client: &mut Client, namespace: &str, id: &str) -> Verdict {
    admit(client, namespace, &[id], "").await.remove(0)
}

#[track_caller]
fn is_fallback(verdict: &Verdict) {
    assert_eq!(verdict.reason(), Reason::Fallback, "{verdict:?}");
    assert!(verdict.degraded && !verdict.claim.is_empty(), "{verdict:?}");
}
