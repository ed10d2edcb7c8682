//! More work than Redis takes.

use std::{
    fs,
    time::{Duration, Instant},
};

use dedupd::grpc::proto::Reason;
use tokio::task::JoinSet;
use tonic::Code;
use tonic_types::StatusExt;

use super::world::{World, fresh_ids, keyed, request};

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
