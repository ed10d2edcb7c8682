//! An event that passed validation.
//!
//! Of several faults the first in the order of the reasons' table is named: identity, then time,
//! then position. Nothing behind this module validates again.

use super::{
    identity::{Identity, RawIdentity},
    kind::Kind,
    place::{Cell, Position},
    policy::{Place, Policy},
    projection,
    reason::{Reason, Rejection},
    time::{self, EventTime, RawTime},
};

/// A position as it came, not judged yet.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum RawPosition {
    #[default]
    Unset,
    LatLng {
        latitude: Option<f64>,
        longitude: Option<f64>,
    },
    Projected {
        x: Option<f64>,
        y: Option<f64>,
        epsg: u32,
    },
}

/// An event as it came: any surface fills this in and none of them judges it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RawEvent<'a> {
    pub identity: RawIdentity<'a>,
    pub time: RawTime<'a>,
    /// Seconds and nanos of a protobuf Timestamp.
    pub ingested_at: Option<(i64, i32)>,
    pub position: RawPosition,
    pub content_hash: Option<u64>,
}

/// Where an event happened, where that is part of its key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fix {
    pub position: Position,
    pub cell: Cell,
}

/// A validated event. Keyed events have neither time nor fix: both play no part for them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Event<'a> {
    identity: Identity<'a>,
    time: Option<EventTime>,
    fix: Option<Fix>,
    content_hash: Option<u64>,
    clamped: bool,
}

impl<'a> Event<'a> {
    pub fn new(raw: &RawEvent<'a>, policy: &Policy, now: EventTime) -> Result<Self, Rejection> {
        let identity = Identity::new(raw.identity, policy.accepts())?;
        let (time, clamped) = match identity.kind() {
            Kind::Keyed => (None, false),
            Kind::Transition | Kind::Ping => {
                let judged = time::judge(raw.time, raw.ingested_at, now, policy.time_limits())?;
                (Some(judged.time), judged.clamped)
            }
        };
        let fix = match (identity.kind(), policy.place()) {
            (Kind::Ping, Some(place)) => Some(locate(raw.position, place)?),
            (Kind::Ping, None) | (Kind::Transition | Kind::Keyed, _) => None,
        };
        Ok(Self {
            identity,
            time,
            fix,
            content_hash: raw.content_hash,
            clamped,
        })
    }

    pub const fn identity(&self) -> &Identity<'a> {
        &self.identity
    }

    pub const fn time(&self) -> Option<EventTime> {
        self.time
    }

    pub const fn fix(&self) -> Option<Fix> {
        self.fix
    }

    pub const fn content_hash(&self) -> Option<u64> {
        self.content_hash
    }

    /// The event's own time was implausible and `ingested_at` stands in for it.
    pub const fn clamped(&self) -> bool {
        self.clamped
    }
}

fn locate(raw: RawPosition, place: &Place) -> Result<Fix, Rejection> {
    let position = match raw {
        RawPosition::LatLng {
            latitude: Some(latitude),
            longitude: Some(longitude),
        } => Position::new(latitude, longitude)?,
        RawPosition::Projected {
            x: Some(x),
            y: Some(y),
            epsg,
        } => projection::reproject(x, y, epsg)?,
        RawPosition::Unset | RawPosition::LatLng { .. } => {
            return Err(Rejection::new(
                Reason::MissingPosition,
                "the ping needs latitude and longitude; a missing one is not zero",
            ));
        }
        RawPosition::Projected { .. } => {
            return Err(Rejection::new(
                Reason::MissingPosition,
                "the projected point needs x and y; a missing one is not zero",
            ));
        }
    };
    if let Some(region) = place.region()
        && !region.contains(position)
    {
        return Err(Rejection::new(
            Reason::OutOfRegion,
            format!(
                "({}, {}) lies outside the namespace's region; are latitude and longitude swapped?",
                position.latitude_deg(),
                position.longitude_deg()
            ),
        ));
    }
    Ok(Fix {
        position,
        cell: position.cell(place.resolution()),
    })
}
