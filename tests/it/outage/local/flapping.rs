//! A wire that comes and goes under load, and a second pod that has none of it.

use std::collections::HashMap;

use dedupd::grpc::proto::SettleOutcome::{AlreadyApplied, Applied, NotHeld, StoreUnavailable};
use tokio::task::JoinSet;

use super::{
    super::world::{confirm, reasons},
    *,
};
use crate::{
    oracle::streams::Dice,
    property::seeds::{Playing, seeds},
};

const CLIENTS: u64 = 8;
const EVENTS: usize = 400;
const FLAPPING: Duration = Duration::from_secs(3);
/// From the last cut on: the breaker, the write-back, retries.
const REST: Duration = Duration::from_secs(10);

/// What became of the tokens of one caller.
#[derive(Debug, Default)]
struct Account {
    /// By event: tokens that were settled.
    settled: HashMap<usize, usize>,
    /// Through the pod that admitted. Another one may meet a claim that is about to be given back.
    not_held: usize,
    admitted: usize,
}

/// Copies of a few hundred events through both pods, each admitted one confirmed.
async fn call(mut pods: [Client; 2], ids: Vec<String>, seed: u64) -> Account {
    let mut dice = Dice::new(seed);
    let mut account = Account::default();
    let begun = Instant::now();
    while begun.elapsed() < FLAPPING {
        // The window moves over all events in the given time.
        let at = (begun.elapsed().as_secs_f64() / FLAPPING.as_secs_f64() * EVENTS as f64) as usize;
        let event = (at + dice.below(20) as usize).min(EVENTS - 1);
        let pod = usize::from(dice.one_in(3));
        let verdict = one(&mut pods[pod], "held", &ids[event]).await;
        if !matches!(verdict.reason(), Reason::FirstSeen | Reason::Fallback) {
            continue;
        }
        account.admitted += 1;
        time::sleep(Duration::from_millis(dice.below(30))).await;
        let asked = Instant::now();
        let (outcome, at_home) = loop {
            let through = usize::from(dice.one_in(3));
            match confirm(&mut pods[through], &verdict.claim).await {
                StoreUnavailable => assert!(asked.elapsed() < FLAPPING + REST, "{verdict:?}"),
                outcome => break (outcome, through == pod),
            }
            time::sleep(Duration::from_millis(20)).await;
        };
        match outcome {
            Applied | AlreadyApplied => *account.settled.entry(event).or_default() += 1,
            NotHeld => account.not_held += usize::from(at_home),
            other => panic!("{other:?}"),
        }
    }
    account
}

/// Cuts the wire, lets it hang or delays it, each for a while.
async fn flap(proxy: &Proxy, redis: SocketAddr, mut dice: Dice) -> usize {
    let begun = Instant::now();
    let mut faults = 0;
    while begun.elapsed() < FLAPPING {
        match dice.below(3) {
            0 => {
                proxy.set_target(nowhere());
                proxy.cut_connections();
            }
            1 => proxy.black_hole(),
            _ => {
                proxy.hold_replies();
                time::sleep(Duration::from_millis(dice.below(50))).await;
                proxy.cut_connections();
            }
        }
        faults += 1;
        time::sleep(Duration::from_millis(30 + dice.below(300))).await;
        proxy.set_target(redis);
        proxy.pass();
        time::sleep(Duration::from_millis(30 + dice.below(300))).await;
    }
    faults
}

#[tokio::test(flavor = "multi_thread")]
async fn r11_every_admission_beyond_the_first_is_counted_however_the_wire_flaps() {
    for seed in seeds(1).take(1) {
        let _playing = Playing {
            test: "outage::local::flapping::r11_every_admission_beyond_the_first_is_counted_however_the_wire_flaps",
            seed,
        };
        let mut world = world_with(AMPLE, "16MiB").await;
        let (other, mut others) = other_pod(&world).await;
        let ids = fresh_ids(EVENTS);
        let mut callers = JoinSet::new();
        for caller in 0..CLIENTS {
            let pods = [world.client.clone(), others.clone()];
            callers.spawn(call(pods, ids.clone(), seed ^ (caller << 32)));
        }
        let faults = flap(&world.proxy, world.redis.addr(), Dice::new(seed)).await;
        let accounts = callers.join_all().await;
        world.until_decided().await;
        let mut double = 0.0;
        // On a busy machine the wire of the other pod may be slow, too.
        for pod in [&world.service, &other] {
            until_empty(pod).await;
            double += counted_by(pod, "held");
        }
        let mut settled = HashMap::<usize, usize>::new();
        for (&event, &tokens) in accounts.iter().flat_map(|account| &account.settled) {
            *settled.entry(event).or_default() += tokens;
        }
        let beyond: usize = settled.values().map(|tokens| tokens - 1).sum();
        let sum = |read: fn(&Account) -> usize| accounts.iter().map(read).sum::<usize>();
        let (admitted, not_held) = (
            sum(|account| account.admitted),
            sum(|account| account.not_held),
        );
        eprintln!(
            "{faults} faults, {admitted} admissions of {} events, {beyond} settled twice, {not_held} not held, {double} counted",
            settled.len()
        );
        assert!((beyond + not_held) as f64 <= double);
        let known: Vec<&String> = settled.keys().map(|&event| &ids[event]).collect();
        for client in [&mut world.client, &mut others] {
            let copies = admit(client, "held", &known, "").await;
            assert_eq!(reasons(&copies), vec![Reason::Redelivery; known.len()]);
        }
    }
}
