//! The pure steps that an event goes through, each alone: `cargo bench --bench steps`.
//!
//! A batch of 500 events of one kind is taken through one step; the figure is the batch's, and
//! `elem/s` the events'.

use std::{hint::black_box, sync::Arc, time::Duration};

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use dedupd::{
    bench::events::{EventKind, Events, Recipe},
    clock::Clock,
    config::{self, Flags},
    domain::{
        claim::{ClaimState, Nonce, Record, Sighting, Standing},
        event::{Event, RawEvent, RawPosition},
        identity::{RawIdentity, RawTransitionKind, TransitionKind},
        place::{Position, Resolution},
        plan::Planner,
        policy::Policy,
        time::{EventTime, RawTime},
    },
    engine::{Engine, admit::AdmitOptions},
    grpc::proto::{self, AdmitRequest, AdmitResponse, Decision, Reason, Verdict},
    store::{Store, memory::MemoryStore},
};
use h3o::LatLng;
use prost::Message;

const BATCH: usize = 500;
const NOW: EventTime = EventTime::from_unix_nanos(1_700_000_000_000_000_000);
const CONFIG: &str = "
namespaces:
  transitions: { accepts: [transition], window: { tumbling: 2s }, ttl: 1h, failure_mode: closed }
  guarded: { accepts: [transition], window: { tumbling: 2s, guard: 200ms }, ttl: 1h, failure_mode: closed }
  sliding: { accepts: [transition], window: { sliding: 200ms }, ttl: 1h, failure_mode: closed }
  pings: { accepts: [ping], window: { tumbling: 5m }, place: { resolution: 12 }, ttl: 1h, failure_mode: closed }
  events: { accepts: [keyed], window: none, ttl: 1h, failure_mode: closed }
";
/// The kinds of event under the namespaces that take them.
const CASES: [(&str, EventKind); 5] = [
    ("transitions", EventKind::Transitions),
    ("guarded", EventKind::Transitions),
    ("sliding", EventKind::Transitions),
    ("pings", EventKind::MovingPings),
    ("events", EventKind::Keyed),
];

criterion_group! {
    name = steps;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .sample_size(20)
        .without_plots();
    targets = wire, validate, plan, cells, records, claims
}
criterion_main!(steps);

fn policies() -> Vec<Arc<Policy>> {
    let inline = |name: &str| (name == "DEDUPD_CONFIG_INLINE").then(|| CONFIG.into());
    let (config, _) = config::load(&Flags::default(), &inline).expect("a good configuration");
    config.namespaces
}

fn policy(name: &str) -> Arc<Policy> {
    let policies = policies();
    let found = policies
        .iter()
        .find(|policy| policy.name().as_str() == name);
    Arc::clone(found.expect("it is configured"))
}

fn events(kind: EventKind, run: u32) -> Vec<proto::Event> {
    let recipe = Recipe {
        kind,
        subjects: 100_000,
        duplicates: 0.0,
        repeat_within: 1,
    };
    Events::new(recipe, run, 0).take(BATCH, NOW.unix_nanos())
}

fn raw(event: &proto::Event) -> RawEvent<'_> {
    use proto::{
        event::{Identity, Time},
        ping,
    };
    let mut position = RawPosition::Unset;
    let identity = match event.identity.as_ref() {
        Some(Identity::Transition(transition)) => RawIdentity::Transition {
            device_id: &transition.device_id,
            fence_id: &transition.fence_id,
            kind: Some(RawTransitionKind::Known(TransitionKind::Enter)),
            sequence: None,
            sequence_epoch: 0,
        },
        Some(Identity::Ping(ping)) => {
            if let Some(ping::Position::LatLng(at)) = ping.position {
                position = RawPosition::LatLng {
                    latitude: at.latitude,
                    longitude: at.longitude,
                };
            }
            RawIdentity::Ping {
                asset_id: &ping.asset_id,
            }
        }
        Some(Identity::Keyed(keyed)) => RawIdentity::Keyed {
            event_id: &keyed.event_id,
        },
        None => RawIdentity::Unset,
    };
    let time = match event.time {
        Some(Time::OccurredAtUnixNanos(nanos)) => RawTime::UnixNanos(nanos),
        Some(Time::OccurredAt(_) | Time::OccurredAtText(_)) | None => RawTime::Unset,
    };
    RawEvent {
        identity,
        time,
        position,
        ..RawEvent::default()
    }
}

/// Of one request's events, valid ones.
fn validated<'e>(events: &'e [proto::Event], policy: &Policy) -> Vec<Event<'e>> {
    let event = |event| Event::new(&raw(event), policy, NOW).expect("a valid event");
    events.iter().map(event).collect()
}

fn wire(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("wire");
    group.throughput(Throughput::Elements(BATCH as u64));
    for (name, kind) in [CASES[0], CASES[3], CASES[4]] {
        let request = AdmitRequest {
            namespace: name.to_owned(),
            events: events(kind, 1),
            ..AdmitRequest::default()
        };
        let bytes = request.encode_to_vec();
        group.bench_function(format!("decode a request of {name}"), |bencher| {
            bencher.iter(|| AdmitRequest::decode(black_box(bytes.as_slice())));
        });
    }
    let verdict = Verdict {
        decision: Decision::Admit.into(),
        reason: Reason::FirstSeen.into(),
        claim: vec![7; 41].into(),
        ..Verdict::default()
    };
    let response = AdmitResponse {
        verdicts: vec![verdict; BATCH],
        lease: None,
    };
    group.bench_function("encode a response", |bencher| {
        bencher.iter(|| black_box(&response).encode_to_vec());
    });
}

fn validate(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("validate");
    group.throughput(Throughput::Elements(BATCH as u64));
    for (name, kind) in [CASES[0], CASES[3], CASES[4]] {
        let (policy, events) = (policy(name), events(kind, 1));
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                for event in &events {
                    let _ = black_box(Event::new(&raw(event), &policy, NOW));
                }
            });
        });
    }
}

/// Material, digest, partition, and what the window makes of them.
fn plan(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("plan");
    group.throughput(Throughput::Elements(BATCH as u64));
    for (name, kind) in CASES {
        let (policy, events) = (policy(name), events(kind, 1));
        let events = validated(&events, &policy);
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let mut planner = Planner::new(&policy, BATCH);
                for (index, event) in events.iter().enumerate() {
                    planner.plan(event, index);
                }
                planner.finish()
            });
        });
    }
}

/// Beside h3o's own, of the same positions.
fn cells(criterion: &mut Criterion) {
    let policy = policy("pings");
    let mut group = criterion.benchmark_group("cell");
    group.throughput(Throughput::Elements(BATCH as u64));
    for (name, kind) in [
        ("moving", EventKind::MovingPings),
        ("parked", EventKind::ParkedPings),
    ] {
        let events = events(kind, 1);
        let positions: Vec<Position> = validated(&events, &policy)
            .iter()
            .filter_map(|event| Some(event.fix()?.position))
            .collect();
        for resolution in [Resolution::Nine, Resolution::Twelve, Resolution::Fifteen] {
            group.bench_function(format!("{name}, resolution {resolution}"), |bencher| {
                bencher.iter(|| {
                    for position in &positions {
                        black_box(position.cell(resolution));
                    }
                });
            });
            group.bench_function(format!("{name}, resolution {resolution}, h3o"), |bencher| {
                bencher.iter(|| {
                    for position in &positions {
                        let (latitude, longitude) =
                            (position.latitude_deg(), position.longitude_deg());
                        let point = LatLng::new(latitude, longitude).expect("finite");
                        black_box(point.to_cell(resolution));
                    }
                });
            });
        }
    }
}

fn records(criterion: &mut Criterion) {
    let record = Record {
        state: ClaimState::Claimed,
        nonce: Nonce::from_bytes([1, 2, 3, 4, 5, 6, 7, 8]),
        sighting: Sighting {
            time: Some(NOW),
            ..Sighting::default()
        },
    };
    let mut bytes = Vec::new();
    record.encode(&mut bytes);
    let mut group = criterion.benchmark_group("record of a transition");
    group.bench_function("encode", |bencher| {
        let mut out = Vec::with_capacity(64);
        bencher.iter(|| {
            out.clear();
            black_box(&record).encode(&mut out);
            out.len()
        });
    });
    group.bench_function("decode", |bencher| {
        bencher.iter(|| Standing::decode(black_box(&bytes)));
    });
}

/// From the raw event to the embedded store's verdict, all of first sightings.
fn claims(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let mut group = criterion.benchmark_group("embedded, first sightings");
    group.throughput(Throughput::Elements(BATCH as u64));
    for (name, kind) in CASES {
        // The clock stands still: events are of now, and nothing expires.
        let clock = Clock::manual(NOW);
        let store = Arc::new(MemoryStore::new(clock.clone(), 8 << 30));
        let store = store as Arc<dyn Store>;
        let engine = Arc::new(Engine::new(policies(), store, clock, 5_000));
        engine.breaker().probe_answered();
        let options = AdmitOptions {
            namespace: name,
            request_id: None,
            omit_claims: false,
        };
        let mut run = 0;
        let mut fresh = || {
            run += 1;
            events(kind, run)
        };
        let admit = |events: Vec<proto::Event>| {
            let prepared = engine.prepare(options, events.iter().map(raw));
            let admitting = engine.submit(prepared.expect("a good request"));
            let admission = runtime.block_on(admitting.expect("room").finish());
            admission.delivered();
            events
        };
        group.bench_function(name, |bencher| {
            bencher.iter_batched(&mut fresh, &admit, BatchSize::SmallInput);
        });
    }
}
