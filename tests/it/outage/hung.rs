//! A Redis that answers late or not at all.

use std::time::{Duration, Instant};

use dedupd::grpc::proto::{Reason, Verdict};
use tokio::{task::JoinSet, time};
use tonic::Request;

use super::{
    SLACK,
    world::{
        Client, World, admit, connect, fresh_ids, keyed, reasons, request, serve, until_decided,
    },
};
use crate::support::{
    proxy::Proxy,
    redis::{Options, RedisServer},
};

const BUDGET: Duration = Duration::from_millis(50);

async fn timed(client: &mut Client, namespace: &str, id: &str) -> (Duration, Verdict) {
    let begun = Instant::now();
    let verdict = admit(client, namespace, &[id], "").await.remove(0);
    (begun.elapsed(), verdict)
}

fn percentile(mut times: Vec<Duration>, percent: usize) -> Duration {
    times.sort_unstable();
    times[(times.len() - 1) * percent / 100]
}

/// R11, in one failure mode: a thousand parallel calls meet a Redis that has just stopped, then a
/// thousand calls one after the other.
async fn check_stopped(namespace: &'static str, reason: Reason) {
    let mut world = World::start(BUDGET).await;
    let connections = world.proxy.accepted();
    world.redis.pause();
    let mut calls = JoinSet::new();
    for number in 0..1000 {
        let mut client = world.client.clone();
        calls.spawn(async move { timed(&mut client, namespace, &format!("p{number}")).await });
    }
    let parallel = calls.join_all().await;
    let mut sequential = Vec::new();
    for number in 0..1000 {
        sequential.push(timed(&mut world.client, namespace, &format!("s{number}")).await);
    }
    for (_, verdict) in parallel.iter().chain(&sequential) {
        assert_eq!(verdict.reason(), reason);
        assert!(verdict.degraded && verdict.claim.is_empty(), "{verdict:?}");
        let asks_again = verdict.retry_after.is_some();
        assert_eq!(asks_again, reason == Reason::StoreUnavailable);
    }
    let times = |calls: &[(Duration, Verdict)]| calls.iter().map(|(took, _)| *took).collect();
    let slowest = percentile(times(&parallel), 100);
    let tripped = percentile(times(&sequential), 50);
    let tripped_p99 = percentile(times(&sequential), 99);
    let attempts = world.proxy.accepted() - connections;
    world.redis.resume();
    let begun = Instant::now();
    world.until_decided().await;
    let recovered = begun.elapsed();
    eprintln!(
        "{namespace}: slowest of 1000 parallel calls {slowest:?}, once tripped P50 {tripped:?} and P99 {tripped_p99:?}, \
         {attempts} connections, decided again after {recovered:?}"
    );
    // A thousand calls at once keep two cores busy for a while; one budget and no second one is
    // measured below.
    assert!(slowest < BUDGET + SLACK * 2, "{slowest:?}");
    assert!(tripped < BUDGET / 2, "each call waits: {tripped:?}");
    // Two for each probe, and these are at most a second apart.
    assert!(attempts < 40, "{attempts} connections");
    assert!(recovered < Duration::from_secs(2) + SLACK, "{recovered:?}");
    // Asked of Redis itself: the budget is short for a thousand more calls on a busy machine.
    let keys = (0..1000).map(|number| format!("{namespace}:p{number}"));
    let asked: Vec<_> = std::iter::once("EXISTS".to_owned()).chain(keys).collect();
    let begun = Instant::now();
    while world.redis.cli(&asked) != "0" {
        assert!(
            begun.elapsed() < SLACK,
            "claims of calls that timed out stay"
        );
        time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r11_a_stopped_redis_costs_one_budget_and_fails_open() {
    check_stopped("open", Reason::FailOpen).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r11_a_stopped_redis_costs_one_budget_and_fails_closed() {
    check_stopped("closed", Reason::StoreUnavailable).await;
}

/// Calls that come while others already wait: none gets a budget of its own behind theirs.
#[tokio::test(flavor = "multi_thread")]
async fn r11_no_call_waits_for_a_second_budget() {
    const BUDGET: Duration = Duration::from_secs(1);
    let world = World::start(BUDGET).await;
    world.redis.pause();
    let mut calls = JoinSet::new();
    for id in fresh_ids(100) {
        let mut client = world.client.clone();
        calls.spawn(async move { timed(&mut client, "open", &id).await });
        time::sleep(BUDGET / 100).await;
    }
    let took: Vec<_> = calls
        .join_all()
        .await
        .into_iter()
        .map(|(took, _)| took)
        .collect();
    let slowest = percentile(took, 100);
    eprintln!("slowest of 100 calls under a budget of {BUDGET:?}: {slowest:?}");
    assert!(slowest < BUDGET * 9 / 5, "{slowest:?}");
    world.redis.resume();
}

/// A call whose own deadline is shorter than the budget told the breaker nothing: with such
/// callers alone an outage never tripped it, and each call ran into its deadline.
#[tokio::test(flavor = "multi_thread")]
async fn r11_impatient_callers_trip_the_breaker_too() {
    let world = World::start(BUDGET * 4).await;
    world.redis.pause();
    let begun = Instant::now();
    loop {
        let mut call = Request::new(request("open", vec![keyed(&fresh_ids(1)[0])], ""));
        call.set_timeout(BUDGET);
        if let Ok(answer) = world.client.clone().admit(call).await {
            assert_eq!(reasons(&answer.into_inner().verdicts), [Reason::FailOpen]);
            break;
        }
        assert!(begun.elapsed() < SLACK, "never tripped");
    }
    world.redis.resume();
}

/// The client library would give up after 500 ms.
#[tokio::test(flavor = "multi_thread")]
async fn r17_a_slow_answer_within_the_budget_counts() {
    let mut world = World::start(Duration::from_secs(2)).await;
    world.proxy.delay_replies(Duration::from_millis(600));
    let begun = Instant::now();
    assert_eq!(world.admit("closed", "e").await.reason(), Reason::FirstSeen);
    assert!(begun.elapsed() >= Duration::from_millis(600));
    assert_eq!(world.errors("timeout"), 0.0);
}

/// Connecting had a limit of its own, below what the budget allows for each answer.
#[tokio::test(flavor = "multi_thread")]
async fn r17_a_slow_redis_within_the_budget_can_be_connected_to() {
    let redis = RedisServer::start(Options::default());
    let proxy = Proxy::start(redis.addr());
    proxy.delay_replies(Duration::from_millis(600));
    let service = serve(&redis.url_at(proxy.addr()), Duration::from_secs(2));
    let mut client = connect(&service).await;
    time::sleep(Duration::from_secs(5)).await;
    let verdicts = admit(&mut client, "closed", &["e"], "").await;
    assert_eq!(reasons(&verdicts), [Reason::FirstSeen]);
    proxy.pass();
    until_decided(&mut client).await;
}
