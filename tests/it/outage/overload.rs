//! More work than Redis takes.

use std::{
    fs,
    time::{Duration, Instant},
};

use dedupd::grpc::proto::Reason;
use tokio::task::JoinSet;
use tonic::Code;
use tonic_types::StatusExt;

use super::world::{Client, World, fresh_ids, keyed, request};

/// So much that the machine keeps the rest of it, whatever else it does.
const BUDGET: Duration = Duration::from_secs(3);
const SLOWNESS: Duration = Duration::from_secs(1);
/// What a memory that is bounded may come to in a build without optimisation.
const MAX_RSS_KIB: u64 = 400 * 1024;

/// A slow wire on which Redis answers well within the budget.
#[tokio::test(flavor = "multi_thread")]
async fn o02_an_overload_is_told_apart_from_an_outage() {
    let world = World::start(BUDGET).await;
    world.proxy.delay_replies(SLOWNESS);
    let begun = Instant::now();
    let mut calls = JoinSet::new();
    for _ in 0..16 {
        let mut client = world.client.clone();
        calls.spawn(async move {
            let (mut refused, mut overloaded, mut decided) = (0, 0, 0);
            while begun.elapsed() < BUDGET * 2 {
                let events = fresh_ids(5000).iter().map(|id| keyed(id)).collect();
                match client.admit(request("open", events, "")).await {
                    Ok(answer) => {
                        for verdict in answer.into_inner().verdicts {
                            match verdict.reason() {
                                Reason::FirstSeen => decided += 1,
                                Reason::Overloaded => {
                                    assert!(
                                        verdict.retry_after.is_some() && verdict.claim.is_empty()
                                    );
                                    overloaded += 1;
                                }
                                other => panic!("{other:?}, though Redis answers"),
                            }
                        }
                    }
                    Err(status) => {
                        assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
                        let retry = status.get_error_details();
                        assert!(
                            retry
                                .retry_info()
                                .is_some_and(|info| info.retry_delay.is_some())
                        );
                        refused += 1;
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                }
            }
            (refused, overloaded, decided)
        });
    }
    let sums = calls
        .join_all()
        .await
        .into_iter()
        .fold((0, 0, 0), |sum, one| {
            (sum.0 + one.0, sum.1 + one.1, sum.2 + one.2)
        });
    let rss = rss_kib(world.service.pid());
    eprintln!("(calls refused, events overloaded, events decided) = {sums:?}, VmRSS {rss} KiB");
    assert!(sums.0 + sums.1 > 0, "no overload");
    assert!(sums.2 > 0, "nothing got through");
    assert!(rss < MAX_RSS_KIB, "{rss} KiB");
}

/// What Redis takes behind a narrow wire: some 5,000 claims a second.
const NARROW_BYTES_PER_SECOND: u32 = 600_000;
const EVENTS: usize = 50;

/// What became of events, and for how long the slowest call waited.
#[derive(Debug, Default)]
struct Load {
    decided: usize,
    overloaded: usize,
    undecided: usize,
    slowest: Duration,
}

impl Load {
    fn add(&mut self, other: &Load) {
        self.decided += other.decided;
        self.overloaded += other.overloaded;
        self.undecided += other.undecided;
        self.slowest = self.slowest.max(other.slowest);
    }
}

async fn call(mut client: Client) -> Load {
    let events = fresh_ids(EVENTS).iter().map(|id| keyed(id)).collect();
    let begun = Instant::now();
    let answer = client.admit(request("open", events, "")).await;
    let mut load = Load {
        slowest: begun.elapsed(),
        ..Load::default()
    };
    match answer {
        Ok(answer) => {
            for verdict in answer.into_inner().verdicts {
                match verdict.reason() {
                    Reason::FirstSeen => load.decided += 1,
                    Reason::Overloaded => load.overloaded += 1,
                    Reason::FailOpen => load.undecided += 1,
                    other => panic!("{other:?}"),
                }
            }
        }
        Err(status) => {
            assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
            load.overloaded += EVENTS;
        }
    }
    load
}

/// Calls at a rate, whether or not the earlier ones are answered.
async fn offer(world: &World, calls_per_second: f64, duration: Duration) -> Load {
    let begun = Instant::now();
    let mut calls = JoinSet::new();
    while begun.elapsed() < duration {
        calls.spawn(call(world.client.clone()));
        let due = Duration::from_secs_f64(calls.len() as f64 / calls_per_second);
        tokio::time::sleep(due.saturating_sub(begun.elapsed())).await;
    }
    let mut load = Load::default();
    while let Some(one) = calls.join_next().await {
        load.add(&one.expect("an answer"));
    }
    load
}

/// The excess is refused as overload; what Redis takes is decided as before, and no failure mode
/// speaks for a Redis that answers.
#[tokio::test(flavor = "multi_thread")]
async fn twice_the_load_that_redis_takes_is_refused_by_half() {
    let world = World::start(Duration::from_millis(200)).await;
    world.proxy.limit_requests(NARROW_BYTES_PER_SECOND);
    // What else runs on the machine makes it seem less: the most counts.
    let mut capacity: f64 = 0.0;
    for _ in 0..4 {
        let (begun, mut alone) = (Instant::now(), Load::default());
        let mut callers = JoinSet::new();
        for _ in 0..8 {
            let client = world.client.clone();
            callers.spawn(async move {
                let mut load = Load::default();
                while begun.elapsed() < Duration::from_millis(500) {
                    load.add(&call(client.clone()).await);
                }
                load
            });
        }
        for one in callers.join_all().await {
            alone.add(&one);
        }
        assert_eq!(alone.undecided, 0, "{alone:?}");
        capacity = capacity.max(alone.decided as f64 / begun.elapsed().as_secs_f64());
    }
    let twice = 2.0 * capacity / EVENTS as f64;
    offer(&world, twice, Duration::from_secs(1)).await;
    let trips = world.metric("dedupd_breaker_trips_total");
    let seconds = 4.0;
    let load = offer(&world, twice, Duration::from_secs_f64(seconds)).await;
    let throughput = load.decided as f64 / seconds / capacity;
    eprintln!("capacity {capacity:.0} events/s; at twice that {throughput:.2} of it; {load:?}");
    assert!(throughput > 0.7, "{throughput:.2}: {load:?}");
    assert!(load.overloaded > load.decided / 3, "{load:?}");
    assert!(load.undecided * 50 < load.decided, "{load:?}");
    assert_eq!(world.metric("dedupd_breaker_trips_total"), trips);
}

fn rss_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .expect("VmRSS");
    line.trim()
        .trim_end_matches(" kB")
        .parse()
        .expect("a number")
}
