//! From the script's JSON to messages.

use std::{collections::HashMap, str::FromStr};

use dedupd::grpc::proto::{
    AdmitRequest, ConfirmRequest, Event, Keyed, LatLng, Ping, ProjectedPoint, ReleaseRequest,
    RenewRequest, Transition,
    event::{Identity, Time},
    ping::Position,
    stream_request::Operation,
};
use prost::bytes::Bytes;
use prost_types::Timestamp;
use serde_json::Value;

/// The tokens of earlier steps by name.
pub(super) type Tokens = HashMap<String, Bytes>;

pub(super) fn text(written: &Value) -> String {
    written.as_str().unwrap_or_default().to_owned()
}

/// 64-bit numbers and doubles are text.
fn number<N: FromStr>(written: &Value) -> Option<N> {
    written.as_str()?.parse().ok()
}

fn small(written: &Value) -> i32 {
    let number = written.as_i64().expect("a number");
    number.try_into().expect("32 bits")
}

fn timestamp(written: &Value) -> Option<Timestamp> {
    Some(Timestamp {
        seconds: number(&written["seconds"])?,
        nanos: small(&written["nanos"]),
    })
}

fn identity(written: &Value) -> Option<Identity> {
    if let Some(transition) = written.get("transition") {
        return Some(Identity::Transition(Transition {
            device_id: text(&transition["device_id"]),
            fence_id: text(&transition["fence_id"]),
            kind: small(&transition["kind"]),
            sequence: number(&transition["sequence"]),
            sequence_epoch: number(&transition["sequence_epoch"]).unwrap_or(0),
        }));
    }
    if let Some(ping) = written.get("ping") {
        return Some(Identity::Ping(Ping {
            asset_id: text(&ping["asset_id"]),
            position: position(ping),
        }));
    }
    let event_id = text(&written.get("keyed")?["event_id"]);
    Some(Identity::Keyed(Keyed { event_id }))
}

fn position(ping: &Value) -> Option<Position> {
    if let Some(degrees) = ping.get("lat_lng") {
        return Some(Position::LatLng(LatLng {
            latitude: number(&degrees["latitude"]),
            longitude: number(&degrees["longitude"]),
        }));
    }
    let point = ping.get("projected")?;
    Some(Position::Projected(ProjectedPoint {
        x: number(&point["x"]),
        y: number(&point["y"]),
        epsg: number(&point["epsg"]).unwrap_or(0),
    }))
}

fn time(written: &Value) -> Option<Time> {
    if let Some(stamp) = written.get("occurred_at") {
        return timestamp(stamp).map(Time::OccurredAt);
    }
    if let Some(said) = written.get("text") {
        return Some(Time::OccurredAtText(text(said)));
    }
    number(&written["unix_nanos"]).map(Time::OccurredAtUnixNanos)
}

pub(super) fn event(written: &Value) -> Event {
    Event {
        identity: identity(written),
        time: time(written),
        ingested_at: timestamp(&written["ingested_at"]),
        content_hash: number(&written["content_hash"]),
    }
}

pub(super) fn admit(step: &Value) -> AdmitRequest {
    let written = step["events"].as_array().expect("events");
    let events: Vec<_> = written.iter().map(event).collect();
    let times = step["repeat"].as_u64().unwrap_or(1);
    AdmitRequest {
        namespace: text(&step["namespace"]),
        request_id: text(&step["request_id"]),
        events: (0..times).flat_map(|_| events.clone()).collect(),
        omit_claims: step["omit_claims"].as_bool().unwrap_or(false),
    }
}

/// One of the four operations; nothing for `nothing`.
pub(super) fn operation(step: &Value, tokens: &Tokens) -> Option<Operation> {
    let claims = || {
        let names = step["claims"].as_array().expect("claims");
        names
            .iter()
            .map(|name| token(&text(name), tokens))
            .collect()
    };
    match step["do"].as_str()? {
        "admit" => Some(Operation::Admit(admit(step))),
        "confirm" => Some(Operation::Confirm(ConfirmRequest { claims: claims() })),
        "release" => Some(Operation::Release(ReleaseRequest { claims: claims() })),
        "renew" => Some(Operation::Renew(RenewRequest { claims: claims() })),
        _ => None,
    }
}

fn token(name: &str, tokens: &Tokens) -> Bytes {
    let Some(digits) = name.strip_prefix("hex:") else {
        return tokens[name].clone();
    };
    let pairs = digits.as_bytes().chunks(2).map(|pair| {
        let pair = str::from_utf8(pair).expect("ASCII");
        u8::from_str_radix(pair, 16).expect("hexadecimal")
    });
    pairs.collect()
}
