//! What each window does to a real fleet: aircraft on the ground at Zurich.
//!
//! `cargo run --release --example windows` prints the table in docs/windows.md.

use std::{error::Error, fs, sync::Arc, time::Duration};

use dedupd::{
    clock::Clock,
    domain::{
        event::{RawEvent, RawPosition},
        identity::RawIdentity,
        kind::{Accepts, Kind},
        policy::{
            DEFAULT_JITTER_RADIUS_M, FailureMode, NamespaceName, Place, Policy, PolicyDraft, Window,
        },
        reason::Reason,
        time::{EventTime, RawTime},
        time::{Implausible, TimeLimits},
    },
    engine::{Engine, admit::AdmitOptions},
    store::memory::MemoryStore,
};

const TRACK: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/data/tracks/aircraft-zurich-ground.csv"
);
const SECOND_NS: u64 = 1_000_000_000;
const REASONS: [Reason; 6] = [
    Reason::FirstSeen,
    Reason::Redelivery,
    Reason::Reobservation,
    Reason::Jitter,
    Reason::Boundary,
    Reason::Restamped,
];

struct Fix {
    aircraft: String,
    time: String,
    latitude: f64,
    longitude: f64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let fixes = read(TRACK)?;
    let tumbling = |seconds: u64, guard: u64| Window::Buckets {
        width_ns: seconds * SECOND_NS,
        guard_ns: guard * SECOND_NS,
    };
    let rows = [
        ("tumbling 60 s", tumbling(60, 0), Some((12, 0.0))),
        ("tumbling 5 min", tumbling(300, 0), Some((12, 0.0))),
        (
            "tumbling 5 min, guard 10 s",
            tumbling(300, 10),
            Some((12, 0.0)),
        ),
        (
            "tumbling 5 min, space guard 5 m",
            tumbling(300, 0),
            Some((12, 5.0)),
        ),
        (
            "tumbling 5 min, both guards",
            tumbling(300, 10),
            Some((12, 5.0)),
        ),
        ("sliding 60 s", tumbling(60, 60), Some((12, 0.0))),
        ("sliding 5 min", tumbling(300, 300), Some((12, 0.0))),
        (
            "session 60 s",
            Window::Session {
                gap_ns: 60 * SECOND_NS,
            },
            Some((12, 0.0)),
        ),
        (
            "session 5 min",
            Window::Session {
                gap_ns: 300 * SECOND_NS,
            },
            Some((12, 0.0)),
        ),
        ("tumbling 5 min", tumbling(300, 0), Some((9, 0.0))),
        ("tumbling 5 min", tumbling(300, 0), Some((14, 0.0))),
        ("tumbling 5 min", tumbling(300, 0), None),
    ];
    println!("{} reports of {} aircraft\n", fixes.len(), aircraft(&fixes));
    println!("| window | resolution | admitted | REDELIVERY | REOBSERVATION | JITTER | BOUNDARY |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    for (name, window, place) in rows {
        let counts = runtime.block_on(run(&fixes, window, place))?;
        let resolution = place.map_or("none".to_owned(), |(resolution, _)| resolution.to_string());
        let [admitted, redelivery, reobservation, jitter, boundary, _] = counts;
        println!(
            "| {name} | {resolution} | {admitted} ({:.1} %) | {redelivery} | {reobservation} | {jitter} | {boundary} |",
            100.0 * admitted as f64 / fixes.len() as f64
        );
    }
    Ok(())
}

fn read(path: &str) -> Result<Vec<Fix>, Box<dyn Error>> {
    let text = fs::read_to_string(path)?;
    let mut fixes = Vec::new();
    for line in text.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let [aircraft, time, latitude, longitude, on_ground] = fields.as_slice() else {
            return Err(format!("not five fields: {line}").into());
        };
        if *on_ground == "True" {
            fixes.push(Fix {
                aircraft: (*aircraft).to_owned(),
                time: (*time).to_owned(),
                latitude: latitude.parse()?,
                longitude: longitude.parse()?,
            });
        }
    }
    Ok(fixes)
}

fn aircraft(fixes: &[Fix]) -> usize {
    fixes
        .iter()
        .map(|fix| &fix.aircraft)
        .collect::<std::collections::HashSet<_>>()
        .len()
}

/// Events by reason, in the order of [`REASONS`].
async fn run(
    fixes: &[Fix],
    window: Window,
    place: Option<(u8, f64)>,
) -> Result<[usize; REASONS.len()], Box<dyn Error>> {
    let place = place
        .map(|(resolution, guard_m)| Place::new(resolution, guard_m, DEFAULT_JITTER_RADIUS_M, None))
        .transpose()
        .map_err(|fault| fault.message)?;
    let draft = PolicyDraft {
        place,
        time_limits: TimeLimits::new(None, None, Implausible::DeadLetter),
        ..PolicyDraft::new(
            NamespaceName::new("aircraft").map_err(|fault| fault.message)?,
            Accepts::from_kinds([Kind::Ping]),
            window,
            Duration::from_secs(6 * 3600),
            FailureMode::Closed,
        )
    };
    let policy = Arc::new(Policy::new(draft).map_err(|faults| format!("{faults:?}"))?);
    let clock = Clock::manual(EventTime::from_unix_nanos(0));
    let store = Arc::new(MemoryStore::new(clock.clone(), 1 << 30));
    let engine = Arc::new(Engine::new(vec![policy], store, clock, fixes.len()));
    engine.breaker().probe_answered();
    let events = fixes.iter().map(|fix| RawEvent {
        identity: RawIdentity::Ping {
            asset_id: &fix.aircraft,
        },
        time: RawTime::Text(&fix.time),
        position: RawPosition::LatLng {
            latitude: Some(fix.latitude),
            longitude: Some(fix.longitude),
        },
        ..RawEvent::default()
    });
    let options = AdmitOptions {
        namespace: "aircraft",
        request_id: None,
        omit_claims: true,
    };
    let prepared = engine.prepare(options, events)?;
    let admission = engine.submit(prepared)?.finish().await;
    let counts = REASONS.map(|reason| {
        admission
            .verdicts()
            .iter()
            .filter(|verdict| verdict.reason == reason)
            .count()
    });
    assert_eq!(
        counts.iter().sum::<usize>(),
        fixes.len(),
        "every report has one of these reasons"
    );
    admission.delivered();
    Ok(counts)
}
