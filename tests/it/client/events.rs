//! Events as the tests send them. Times are nanoseconds since 1970.

use dedupd::grpc::proto::{
    Event, Keyed, LatLng, Ping, Transition, TransitionKind,
    event::{Identity, Time},
    ping::Position,
};
use prost_types::Timestamp;

pub(crate) const SECOND: i64 = 1_000_000_000;
pub(crate) const MS: i64 = 1_000_000;
pub(crate) const MINUTE: i64 = 60 * SECOND;
/// A multiple of 60 s, in 2023.
pub(crate) const T0: i64 = 1_700_000_040 * SECOND;

pub(crate) fn event(identity: Identity, nanos: i64) -> Event {
    Event {
        identity: Some(identity),
        time: Some(Time::OccurredAtUnixNanos(nanos)),
        ..Event::default()
    }
}

/// Without a position.
pub(crate) fn ping(asset_id: &str, nanos: i64) -> Event {
    let ping = Ping {
        asset_id: asset_id.to_owned(),
        position: None,
    };
    event(Identity::Ping(ping), nanos)
}

pub(crate) fn ping_at(asset_id: &str, nanos: i64, (latitude, longitude): (f64, f64)) -> Event {
    let ping = Ping {
        asset_id: asset_id.to_owned(),
        position: Some(Position::LatLng(LatLng {
            latitude: Some(latitude),
            longitude: Some(longitude),
        })),
    };
    event(Identity::Ping(ping), nanos)
}

pub(crate) fn transition(device: &str, fence: &str, kind: TransitionKind, nanos: i64) -> Event {
    let transition = Transition {
        device_id: device.to_owned(),
        fence_id: fence.to_owned(),
        kind: kind.into(),
        ..Transition::default()
    };
    event(Identity::Transition(transition), nanos)
}

pub(crate) fn enter(device: &str, nanos: i64) -> Event {
    transition(device, "F", TransitionKind::Enter, nanos)
}

/// Without a time.
pub(crate) fn keyed(event_id: &str) -> Event {
    let event_id = event_id.to_owned();
    Event {
        identity: Some(Identity::Keyed(Keyed { event_id })),
        ..Event::default()
    }
}

pub(crate) fn stamp(seconds: i64, nanos: i32) -> Option<Time> {
    Some(Time::OccurredAt(Timestamp { seconds, nanos }))
}

pub(crate) fn timestamp(nanos: i64) -> Timestamp {
    let below_a_second = nanos.rem_euclid(SECOND);
    Timestamp {
        seconds: nanos.div_euclid(SECOND),
        nanos: i32::try_from(below_a_second).expect("less than a second"),
    }
}

pub(crate) fn now() -> i64 {
    let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nanos = since_1970.expect("a clock after 1970").as_nanos();
    i64::try_from(nanos).expect("a clock before 2262")
}
