//! An event in the protobuf JSON form of `dedupd.v1.Event`: names in camelCase or as in the proto
//! file, 64-bit numbers as text or number, enums by name or number, unknown names refused.

use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, de::Error};
use serde_json::Value;

use crate::domain::{
    event::{RawEvent, RawPosition},
    identity::{RawIdentity, RawTransitionKind, TransitionKind},
    time::RawTime,
};

/// What one line says; ids and texts are borrowed from it by [`JsonEvent::to_raw`].
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct JsonEvent {
    transition: Option<JsonTransition>,
    ping: Option<JsonPing>,
    keyed: Option<JsonKeyed>,
    #[serde(alias = "occurred_at")]
    occurred_at: Option<JsonTimestamp>,
    #[serde(alias = "occurred_at_text")]
    occurred_at_text: Option<String>,
    #[serde(alias = "occurred_at_unix_nanos")]
    occurred_at_unix_nanos: Option<Number<i64>>,
    #[serde(alias = "ingested_at")]
    ingested_at: Option<JsonTimestamp>,
    #[serde(alias = "content_hash")]
    content_hash: Option<Number<u64>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct JsonTransition {
    #[serde(alias = "device_id")]
    device_id: Option<String>,
    #[serde(alias = "fence_id")]
    fence_id: Option<String>,
    kind: Option<JsonKind>,
    sequence: Option<Number<u64>>,
    #[serde(alias = "sequence_epoch")]
    sequence_epoch: Option<Number<u32>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct JsonPing {
    #[serde(alias = "asset_id")]
    asset_id: Option<String>,
    #[serde(alias = "lat_lng")]
    lat_lng: Option<JsonLatLng>,
    projected: Option<JsonProjected>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct JsonLatLng {
    latitude: Option<Number<f64>>,
    longitude: Option<Number<f64>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct JsonProjected {
    x: Option<Number<f64>>,
    y: Option<Number<f64>>,
    epsg: Option<Number<u32>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct JsonKeyed {
    #[serde(alias = "event_id")]
    event_id: Option<String>,
}

/// Seconds and nanos of a protobuf Timestamp, which JSON writes as RFC 3339.
#[derive(Clone, Copy, Debug)]
struct JsonTimestamp(i64, i32);

#[derive(Clone, Copy, Debug)]
struct Number<T>(T);

/// The enum's number.
#[derive(Clone, Copy, Debug)]
struct JsonKind(i32);

impl JsonEvent {
    /// What the line says, not judged; an error where protobuf would not decode it.
    pub(super) fn to_raw(&self) -> Result<RawEvent<'_>, String> {
        let (identity, position) = match (&self.transition, &self.ping, &self.keyed) {
            (None, None, None) => (RawIdentity::Unset, RawPosition::Unset),
            (Some(transition), None, None) => (transition.to_raw(), RawPosition::Unset),
            (None, Some(ping), None) => (
                RawIdentity::Ping {
                    asset_id: text(&ping.asset_id),
                },
                ping.position()?,
            ),
            (None, None, Some(keyed)) => (
                RawIdentity::Keyed {
                    event_id: text(&keyed.event_id),
                },
                RawPosition::Unset,
            ),
            _ => return Err("only one of transition, ping, keyed may be set".to_owned()),
        };
        let time = match (
            self.occurred_at,
            &self.occurred_at_text,
            self.occurred_at_unix_nanos,
        ) {
            (None, None, None) => RawTime::Unset,
            (Some(JsonTimestamp(seconds, nanos)), None, None) => {
                RawTime::Timestamp { seconds, nanos }
            }
            (None, Some(text), None) => RawTime::Text(text),
            (None, None, Some(Number(nanos))) => RawTime::UnixNanos(nanos),
            _ => {
                return Err(
                    "only one of occurredAt, occurredAtText, occurredAtUnixNanos may be set"
                        .to_owned(),
                );
            }
        };
        Ok(RawEvent {
            identity,
            time,
            ingested_at: self
                .ingested_at
                .map(|JsonTimestamp(seconds, nanos)| (seconds, nanos)),
            position,
            content_hash: self.content_hash.map(|Number(hash)| hash),
        })
    }
}

impl JsonTransition {
    fn to_raw(&self) -> RawIdentity<'_> {
        let kind = match self.kind {
            None | Some(JsonKind(0)) => None,
            Some(JsonKind(1)) => Some(RawTransitionKind::Known(TransitionKind::Enter)),
            Some(JsonKind(2)) => Some(RawTransitionKind::Known(TransitionKind::Exit)),
            Some(JsonKind(3)) => Some(RawTransitionKind::Known(TransitionKind::Dwell)),
            Some(JsonKind(number)) => Some(RawTransitionKind::Unknown(number)),
        };
        RawIdentity::Transition {
            device_id: text(&self.device_id),
            fence_id: text(&self.fence_id),
            kind,
            sequence: self.sequence.map(|Number(number)| number),
            sequence_epoch: self.sequence_epoch.map_or(0, |Number(epoch)| epoch),
        }
    }
}

impl JsonPing {
    fn position(&self) -> Result<RawPosition, String> {
        let number = |field: Option<Number<f64>>| field.map(|Number(number)| number);
        match (&self.lat_lng, &self.projected) {
            (None, None) => Ok(RawPosition::Unset),
            (Some(point), None) => Ok(RawPosition::LatLng {
                latitude: number(point.latitude),
                longitude: number(point.longitude),
            }),
            (None, Some(point)) => Ok(RawPosition::Projected {
                x: number(point.x),
                y: number(point.y),
                epsg: point.epsg.map_or(0, |Number(epsg)| epsg),
            }),
            (Some(_), Some(_)) => Err("only one of latLng, projected may be set".to_owned()),
        }
    }
}

fn text(field: &Option<String>) -> &str {
    field.as_deref().unwrap_or_default()
}

impl<'de> Deserialize<'de> for JsonTimestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let timestamp: Timestamp = text
            .parse()
            .map_err(|_| D::Error::custom(format!("{text:?} is not RFC 3339 with an offset")))?;
        // Nanos of a protobuf Timestamp count forward, before the epoch too.
        let nanos = timestamp.as_nanosecond();
        Ok(Self(
            nanos.div_euclid(1_000_000_000) as i64,
            nanos.rem_euclid(1_000_000_000) as i32,
        ))
    }
}

impl<'de, T: FromStr> Deserialize<'de> for Number<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = match Value::deserialize(deserializer)? {
            Value::String(text) => text,
            other => other.to_string(),
        };
        let number = text.parse().map(Number);
        number
            .map_err(|_| D::Error::custom(format!("{text} is not a number that this field holds")))
    }
}

impl<'de> Deserialize<'de> for JsonKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(name) => match name.as_str() {
                "TRANSITION_KIND_UNSPECIFIED" => Ok(Self(0)),
                "TRANSITION_KIND_ENTER" => Ok(Self(1)),
                "TRANSITION_KIND_EXIT" => Ok(Self(2)),
                "TRANSITION_KIND_DWELL" => Ok(Self(3)),
                _ => Err(D::Error::custom(format!(
                    "{name:?} is not a TransitionKind"
                ))),
            },
            number => {
                let number = number
                    .as_i64()
                    .and_then(|number| i32::try_from(number).ok());
                number
                    .map(Self)
                    .ok_or_else(|| D::Error::custom("kind must be a name or a number"))
            }
        }
    }
}
