//! A real car and a real airport's ground traffic, each ping twice and out of order.

use std::{collections::HashMap, fs};

use dedupd::grpc::proto::{AdmitRequest, Decision, Event, Reason, Verdict, event::Time};

use crate::client::{Dice, EVERY_STORE, World, events::ping_at, request};

const SEED: u64 = 20_191_005;
/// Copies arrive among the next so many pings.
const SHUFFLED_TOGETHER: usize = 200;
const BATCH: usize = 500;
/// As the built-in pings, and with guards in time and space; the tracks are years old.
const CONFIG: &str = "namespaces:
  pings:
    accepts: [ping]
    window: { tumbling: 5m }
    place: { resolution: 12 }
    ttl: 6h30m
    failure_mode: open
    time: { max_age: off }
  guarded:
    accepts: [ping]
    window: { tumbling: 1m, guard: 5s }
    place: { resolution: 11, guard_m: 5 }
    ttl: 6h30m
    failure_mode: closed
    time: { max_age: off }
";

fn track(file: &str) -> Vec<Event> {
    let path = format!("{}/tests/data/tracks/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(path).expect("a track");
    text.lines().skip(1).map(fix).collect()
}

fn fix(line: &str) -> Event {
    let fields: Vec<&str> = line.split(',').collect();
    let [asset, at, latitude, longitude, ..] = fields[..] else {
        panic!("{line}")
    };
    let degrees = |text: &str| text.parse().expect("degrees");
    Event {
        time: Some(Time::OccurredAtText(at.to_owned())),
        ..ping_at(asset, 0, (degrees(latitude), degrees(longitude)))
    }
}

/// Each ping twice, by index, shuffled in windows.
fn arrivals(pings: usize) -> Vec<usize> {
    let mut arrivals: Vec<usize> = (0..pings).flat_map(|ping| [ping, ping]).collect();
    let mut dice = Dice::new(SEED);
    // The second pass moves what the first left at the windows' edges.
    for offset in [0, SHUFFLED_TOGETHER / 2] {
        for window in arrivals[offset.min(2 * pings)..].chunks_mut(SHUFFLED_TOGETHER) {
            dice.shuffle(window);
        }
    }
    arrivals
}

/// Admissions by ping, and every verdict without its token, which is random.
async fn send(world: &World, namespace: &str, pings: &[Event]) -> Vec<Verdict> {
    let arrivals = arrivals(pings.len());
    let batch = |batch: &[usize]| {
        request(
            namespace,
            batch.iter().map(|&ping| pings[ping].clone()).collect(),
        )
    };
    let batches: Vec<AdmitRequest> = arrivals.chunks(BATCH).map(batch).collect();
    let answers = world.stream(batches).await;
    let verdicts = answers.into_iter().flat_map(|answer| answer.verdicts);
    let verdicts: Vec<Verdict> = verdicts
        .map(|verdict| {
            let admitted = verdict.decision() == Decision::Admit;
            assert_eq!(!verdict.claim.is_empty(), admitted, "{verdict:?}");
            Verdict {
                claim: Default::default(),
                ..verdict
            }
        })
        .collect();
    assert_eq!(verdicts.len(), 2 * pings.len());
    let mut admissions = HashMap::new();
    for (ping, verdict) in arrivals.into_iter().zip(&verdicts) {
        assert_ne!(verdict.decision(), Decision::DeadLetter, "{verdict:?}");
        assert!(!verdict.degraded, "{verdict:?}");
        if verdict.decision() == Decision::Admit {
            let again = admissions.insert(ping, verdict);
            assert_eq!(
                again, None,
                "seed {SEED}: {:?} was admitted twice",
                pings[ping]
            );
        }
    }
    verdicts
}

#[tokio::test(flavor = "multi_thread")]
async fn tracks_are_admitted_once_and_alike_on_both_stores() {
    let pings = [track("car-track.csv"), track("aircraft-zurich-ground.csv")].concat();
    assert_eq!(pings.len(), 104 + 17_132);
    // Plans of up to 21 keys: a part is enough.
    for (namespace, pings) in [("pings", &pings[..]), ("guarded", &pings[..4000])] {
        let mut by_store = Vec::new();
        for kept in EVERY_STORE {
            let world = World::start(kept, CONFIG).await;
            by_store.push(send(&world, namespace, pings).await);
            let admitted = world.counted(namespace, Reason::Late) as usize;
            assert!(
                (200..pings.len()).contains(&admitted),
                "{admitted} admitted"
            );
        }
        let differs = by_store[0]
            .iter()
            .zip(&by_store[1])
            .position(|(memory, redis)| memory != redis);
        if let Some(at) = differs {
            let (memory, redis) = (&by_store[0][at], &by_store[1][at]);
            panic!("seed {SEED}, {namespace}, event {at}: memory {memory:?}, Redis {redis:?}");
        }
    }
}
