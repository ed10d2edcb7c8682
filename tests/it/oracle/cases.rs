//! The oracle pinned to values worked out by hand; names carry the id of the case in cases.md where there is one.

mod claims;
mod generated;
mod identity;
mod session;
mod space;
mod time;

use super::facts::{Point, fact_of};
use super::streams::{Act, Dice, Settle, Stream, destination, random_rules, text_of};
use super::{Answer, Event, Identity, Oracle, Place, Position, Rules, Time, Window, distance_m};

const SECOND: i64 = 1_000_000_000;
const MS: i64 = 1_000_000;
/// The cases' T0, a multiple of 60 s.
const T0: i64 = 1_700_000_040 * SECOND;

/// The cases' parameters: W 60 s, G 5 s, TTL 600 s; limits off, no lease.
fn rules() -> Rules {
    Rules {
        accepts_transitions: true,
        accepts_pings: true,
        accepts_keyed: false,
        window: Window::Tumbling {
            width_ns: 60 * SECOND,
            guard_ns: 5 * SECOND,
        },
        place: None,
        ttl_ms: 600_000,
        lease_ms: 0,
        max_future_ns: None,
        max_age_ns: None,
        clamp: false,
        mismatch_dead_letters: true,
        shadow: false,
    }
}

fn tumbling(width_ns: i64, guard_ns: i64) -> Rules {
    Rules {
        window: Window::Tumbling { width_ns, guard_ns },
        ..rules()
    }
}

fn session(gap_ns: i64) -> Rules {
    Rules {
        window: Window::Session { gap_ns },
        ..rules()
    }
}

fn keyed_rules() -> Rules {
    Rules {
        accepts_transitions: false,
        accepts_pings: false,
        accepts_keyed: true,
        window: Window::None,
        ..rules()
    }
}

fn placed(resolution: u8, guard_m: f64) -> Rules {
    Rules {
        place: Some(Place {
            resolution,
            guard_m,
            jitter_radius_m: 20.0,
            region: None,
        }),
        ..rules()
    }
}

fn enter(device: &str, time_ns: i64) -> Event {
    let identity = Identity::Transition {
        device: device.into(),
        fence: "F".into(),
        kind: 1,
        sequence: None,
        sequence_epoch: 0,
    };
    Event {
        identity,
        time: Time::Nanos(time_ns),
        ingested_at: None,
        position: Position::Missing,
        content_hash: None,
    }
}

fn ping(asset: &str, time_ns: i64) -> Event {
    Event {
        identity: Identity::Ping {
            asset: asset.into(),
        },
        ..enter("", time_ns)
    }
}

fn ping_at(time_ns: i64, latitude: f64, longitude: f64) -> Event {
    let position = Position::LatLng {
        latitude: Some(latitude),
        longitude: Some(longitude),
    };
    Event {
        position,
        ..ping("a", time_ns)
    }
}

fn keyed(id: &str, content_hash: Option<u64>) -> Event {
    let identity = Identity::Keyed { id: id.into() };
    Event {
        identity,
        time: Time::Missing,
        content_hash,
        ..enter("", 0)
    }
}

fn numbered(sequence: Option<u64>, sequence_epoch: u32, time_ns: i64) -> Event {
    let (device, fence) = ("d".into(), "F".into());
    let identity = Identity::Transition {
        device,
        fence,
        kind: 1,
        sequence,
        sequence_epoch,
    };
    Event {
        identity,
        ..enter("d", time_ns)
    }
}

/// Each event a request of its own, all at one moment, the clock at T0.
fn reasons(rules: &Rules, events: &[Event]) -> Vec<&'static str> {
    let mut oracle = Oracle::new(rules.clone());
    events
        .iter()
        .map(|event| one(&mut oracle, 0, event).reason)
        .collect()
}

fn one(oracle: &mut Oracle, now_ms: u64, event: &Event) -> Answer {
    let now_unix_ns = T0 + i64::try_from(now_ms).unwrap() * MS;
    let answer = oracle
        .admit(now_ms, now_unix_ns, std::slice::from_ref(event), false)
        .remove(0);
    oracle.promises().unwrap();
    answer
}

#[track_caller]
fn check(rules: &Rules, rows: &[(Event, &str)]) {
    let mut oracle = Oracle::new(rules.clone());
    for (number, (event, expected)) in rows.iter().enumerate() {
        let answer = one(&mut oracle, 0, event);
        assert_eq!(answer.reason, *expected, "row {number}: {event:?}");
    }
}
