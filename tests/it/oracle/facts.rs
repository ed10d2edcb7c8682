//! Section 2 as values: the rules of one namespace, an event as it was sent, and what is wrong with it.
//!
//! Plain fields and no constructors, so that a test can draw anything and translate it to the wire.

use h3o::{CellIndex, LatLng, Resolution};

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rules {
    pub(crate) accepts_transitions: bool,
    pub(crate) accepts_pings: bool,
    pub(crate) accepts_keyed: bool,
    pub(crate) window: Window,
    /// `None` is `place: none`.
    pub(crate) place: Option<Place>,
    pub(crate) ttl_ms: u64,
    pub(crate) lease_ms: u64,
    /// `None` is `off`.
    pub(crate) max_future_ns: Option<i64>,
    pub(crate) max_age_ns: Option<i64>,
    pub(crate) clamp: bool,
    pub(crate) mismatch_dead_letters: bool,
    pub(crate) shadow: bool,
}

/// Tumbling is guard 0, sliding is guard = width.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Window {
    Tumbling { width_ns: i64, guard_ns: i64 },
    Session { gap_ns: i64 },
    None,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Place {
    pub(crate) resolution: u8,
    pub(crate) guard_m: f64,
    pub(crate) jitter_radius_m: f64,
    /// South, west, north, east.
    pub(crate) region: Option<[f64; 4]>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Event {
    pub(crate) identity: Identity,
    pub(crate) time: Time,
    pub(crate) ingested_at: Option<i64>,
    /// Only pings have one on the wire.
    pub(crate) position: Position,
    pub(crate) content_hash: Option<u64>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Identity {
    Missing,
    Transition {
        device: String,
        fence: String,
        kind: i32,
        sequence: Option<u64>,
        sequence_epoch: u32,
    },
    Ping {
        asset: String,
    },
    Keyed {
        id: String,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Time {
    Missing,
    Stamp { seconds: i64, nanos: i32 },
    Nanos(i64),
    Text(String),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Position {
    Missing,
    LatLng {
        latitude: Option<f64>,
        longitude: Option<f64>,
    },
    /// The oracle knows Web Mercator and degrees; every other system is `UNKNOWN_CRS` to it.
    Projected {
        x: Option<f64>,
        y: Option<f64>,
        epsg: u32,
    },
}

/// An event without faults: its key, and what a record may hold of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fact {
    pub(crate) key: Key,
    pub(crate) time: Option<i128>,
    pub(crate) point: Option<Point>,
    pub(crate) content_hash: Option<u64>,
    pub(crate) clamped: bool,
}

/// What two events must share to compete for one place in the store. Subjects without a window have no bucket.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Key {
    pub(crate) subject: Subject,
    pub(crate) bucket: Option<i128>,
    pub(crate) cell: Option<CellIndex>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Subject {
    Transition {
        device: String,
        fence: String,
        kind: i32,
        sequence: Option<(u32, u64)>,
    },
    Ping {
        asset: String,
    },
    Keyed {
        id: String,
    },
}

/// One place, one value: no −0, and the antimeridian is +180.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    pub(crate) latitude: f64,
    pub(crate) longitude: f64,
}

/// The table of section 2, last row, in its order.
const FAULTS: [&str; 13] = [
    "MISSING_IDENTITY",
    "OVERSIZED_IDENTITY",
    "WRONG_KIND",
    "MISSING_TIME",
    "MALFORMED_TIME",
    "NAIVE_TIME",
    "TIME_TOO_OLD",
    "TIME_TOO_NEW",
    "MISSING_POSITION",
    "INVALID_POSITION",
    "NULL_ISLAND",
    "OUT_OF_REGION",
    "UNKNOWN_CRS",
];

/// Section 2: "of several faults in one event the first in the table's order is named".
pub(crate) fn fact_of(
    rules: &Rules,
    event: &Event,
    now_unix_ns: i64,
) -> Result<Fact, &'static str> {
    let subject = subject_of(rules, &event.identity);
    let time = time_of(rules, event, now_unix_ns);
    let point = point_of(rules, event);
    let faults: Vec<&str> = [subject.clone().err(), time.err(), point.err()]
        .into_iter()
        .flatten()
        .collect();
    if let Some(first) = FAULTS.into_iter().find(|fault| faults.contains(fault)) {
        return Err(first);
    }
    let (Ok(subject), Ok((time, clamped)), Ok(point)) = (subject, time, point) else {
        unreachable!("a fault that is not in the table: {faults:?}");
    };
    let bucket = match (&subject, time) {
        (
            Subject::Keyed { .. }
            | Subject::Transition {
                sequence: Some(_), ..
            },
            _,
        )
        | (_, None) => None,
        (_, Some(time)) => Some(bucket_of(rules.window, time)),
    };
    let cell = point
        .zip(rules.place)
        .map(|(point, place)| cell_of(point, place.resolution));
    Ok(Fact {
        key: Key {
            subject,
            bucket,
            cell,
        },
        time,
        point,
        content_hash: event.content_hash,
        clamped,
    })
}

/// Section 2, "Identity".
fn subject_of(rules: &Rules, identity: &Identity) -> Result<Subject, &'static str> {
    let ids: Vec<&String> = match identity {
        Identity::Missing => return Err("MISSING_IDENTITY"),
        Identity::Transition { device, fence, .. } => vec![device, fence],
        Identity::Ping { asset } => vec![asset],
        Identity::Keyed { id } => vec![id],
    };
    let kind_is_unspecified = matches!(identity, Identity::Transition { kind: 0, .. });
    if kind_is_unspecified || ids.iter().any(|id| id.chars().all(char::is_whitespace)) {
        return Err("MISSING_IDENTITY");
    }
    if ids.iter().any(|id| id.len() > 512) {
        return Err("OVERSIZED_IDENTITY");
    }
    match identity.clone() {
        Identity::Transition {
            device,
            fence,
            kind: kind @ 1..=3,
            sequence,
            sequence_epoch,
        } if rules.accepts_transitions => {
            let sequence = sequence.map(|sequence| (sequence_epoch, sequence));
            Ok(Subject::Transition {
                device,
                fence,
                kind,
                sequence,
            })
        }
        Identity::Ping { asset } if rules.accepts_pings => Ok(Subject::Ping { asset }),
        Identity::Keyed { id } if rules.accepts_keyed => Ok(Subject::Keyed { id }),
        _ => Err("WRONG_KIND"),
    }
}

/// Section 2, "Time": the time that counts, and whether it was clamped.
fn time_of(
    rules: &Rules,
    event: &Event,
    now_unix_ns: i64,
) -> Result<(Option<i128>, bool), &'static str> {
    if matches!(event.identity, Identity::Keyed { .. }) {
        return Ok((None, false));
    }
    let time = match &event.time {
        Time::Missing => return Err("MISSING_TIME"),
        Time::Stamp { nanos, .. } if !(0..=999_999_999).contains(nanos) => {
            return Err("MALFORMED_TIME");
        }
        Time::Stamp { seconds, nanos } => i128::from(*seconds) * 1_000_000_000 + i128::from(*nanos),
        Time::Nanos(nanos) => i128::from(*nanos),
        Time::Text(text) => instant_of(text)?,
    };
    match (
        implausible(rules, time, event.ingested_at.unwrap_or(now_unix_ns)),
        event.ingested_at,
    ) {
        (None, _) => Ok((Some(time), false)),
        (Some(_), Some(ingested_at)) if rules.clamp => Ok((Some(ingested_at.into()), true)),
        (Some(fault), _) => Err(fault),
    }
}

fn implausible(rules: &Rules, time: i128, reference: i64) -> Option<&'static str> {
    let age = i128::from(reference) - time;
    let too_old =
        time < i64::MIN.into() || rules.max_age_ns.is_some_and(|limit| age > limit.into());
    let too_new =
        time > i64::MAX.into() || rules.max_future_ns.is_some_and(|limit| -age > limit.into());
    if too_old {
        Some("TIME_TOO_OLD")
    } else if too_new {
        Some("TIME_TOO_NEW")
    } else {
        None
    }
}

/// RFC 3339, the plain form: `2023-10-29T02:30:00.25+02:00`. No leap second.
fn instant_of(text: &str) -> Result<i128, &'static str> {
    let malformed = "MALFORMED_TIME";
    let number = |part: Option<&str>, from: i128, to: i128| {
        part.filter(|part| part.bytes().all(|byte| byte.is_ascii_digit()))
            .and_then(|part| part.parse::<i128>().ok())
            .filter(|number| (from..=to).contains(number))
            .ok_or(malformed)
    };
    let separators = [(4, "-"), (7, "-"), (10, "T"), (13, ":"), (16, ":")];
    if separators
        .iter()
        .any(|&(at, separator)| text.get(at..at + 1) != Some(separator))
    {
        return Err(malformed);
    }
    let year = number(text.get(0..4), 0, 9999)?;
    let month = number(text.get(5..7), 1, 12)?;
    let day = number(text.get(8..10), 1, days_in(year, month))?;
    let hour = number(text.get(11..13), 0, 23)?;
    let minute = number(text.get(14..16), 0, 59)?;
    let second = number(text.get(17..19), 0, 59)?;

    let mut rest = &text[19..];
    let mut nanos = 0;
    if let Some(fraction) = rest.strip_prefix('.') {
        let digits = fraction.len()
            - fraction
                .trim_start_matches(|c: char| c.is_ascii_digit())
                .len();
        if digits == 0 {
            return Err(malformed);
        }
        nanos = number(
            Some(&format!("{:0<9}", &fraction[..digits])[..9]),
            0,
            999_999_999,
        )?;
        rest = &fraction[digits..];
    }
    let offset_minutes = match rest.get(0..1) {
        None => return Err("NAIVE_TIME"),
        Some("Z") if rest.len() == 1 => 0,
        Some(sign @ ("+" | "-")) if rest.len() == 6 && rest.get(3..4) == Some(":") => {
            let minutes = number(rest.get(1..3), 0, 23)? * 60 + number(rest.get(4..6), 0, 59)?;
            if sign == "+" { minutes } else { -minutes }
        }
        Some(_) => return Err(malformed),
    };
    let days =
        days_before_year(year) + (1..month).map(|month| days_in(year, month)).sum::<i128>() + day
            - 1;
    let minutes = (days * 24 + hour) * 60 + minute - offset_minutes;
    Ok((minutes * 60 + second) * 1_000_000_000 + nanos)
}

/// Days from 1970-01-01 to the first of January.
pub(crate) fn days_before_year(year: i128) -> i128 {
    let leap_days = |year: i128| year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    (year - 1970) * 365 + leap_days(year - 1) - leap_days(1969)
}

pub(crate) fn days_in(year: i128, month: i128) -> i128 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Section 2, "Position": of no interest where it is not part of the key.
fn point_of(rules: &Rules, event: &Event) -> Result<Option<Point>, &'static str> {
    let (Identity::Ping { .. }, Some(place)) = (&event.identity, rules.place) else {
        return Ok(None);
    };
    let (latitude, longitude) = match event.position {
        Position::Missing
        | Position::LatLng { latitude: None, .. }
        | Position::LatLng {
            longitude: None, ..
        }
        | Position::Projected { x: None, .. }
        | Position::Projected { y: None, .. } => return Err("MISSING_POSITION"),
        Position::Projected {
            x: Some(x),
            y: Some(y),
            epsg,
        } => {
            if !x.is_finite() || !y.is_finite() {
                return Err("INVALID_POSITION");
            }
            match epsg {
                3857 => web_mercator(x, y)?,
                4326 => (y, x),
                _ => return Err("UNKNOWN_CRS"),
            }
        }
        Position::LatLng {
            latitude: Some(latitude),
            longitude: Some(longitude),
        } => (latitude, longitude),
    };
    if !(-90.0..=90.0).contains(&latitude) || !(-180.0..=180.0).contains(&longitude) {
        return Err("INVALID_POSITION");
    }
    if latitude == 0.0 && longitude == 0.0 {
        return Err("NULL_ISLAND");
    }
    if place
        .region
        .is_some_and(|region| !lies_in(region, latitude, longitude))
    {
        return Err("OUT_OF_REGION");
    }
    let longitude = if longitude == -180.0 {
        180.0
    } else {
        longitude
    };
    Ok(Some(Point {
        latitude: latitude + 0.0,
        longitude: longitude + 0.0,
    }))
}

/// A sphere of WGS 84's equatorial radius, cut off where EPSG:3857 ends, in whole billionths of a degree.
fn web_mercator(x: f64, y: f64) -> Result<(f64, f64), &'static str> {
    let radius = 6_378_137.0;
    let (latitude, longitude) = ((y / radius).sinh().atan(), x / radius);
    let [latitude, longitude] =
        [latitude, longitude].map(|angle| (angle.to_degrees() * 1e9).round() / 1e9);
    if latitude.abs() > 85.06 || longitude.abs() > 180.0 {
        return Err("INVALID_POSITION");
    }
    Ok((latitude, longitude))
}

/// Borders belong to the region; west > east crosses the antimeridian.
fn lies_in([south, west, north, east]: [f64; 4], latitude: f64, longitude: f64) -> bool {
    let names_of_the_meridian = if longitude.abs() == 180.0 {
        vec![-180.0, 180.0]
    } else {
        vec![longitude]
    };
    let between = |longitude: f64| {
        if west <= east {
            west <= longitude && longitude <= east
        } else {
            west <= longitude || longitude <= east
        }
    };
    south <= latitude && latitude <= north && names_of_the_meridian.into_iter().any(between)
}

/// Section 3: ⌊t/W⌋, toward minus infinity. A session's buckets are as wide as its gap.
fn bucket_of(window: Window, time: i128) -> i128 {
    let width = match window {
        Window::Tumbling { width_ns, .. } => width_ns,
        Window::Session { gap_ns } => gap_ns,
        Window::None => panic!("`window: none` is for keyed events only"),
    };
    time.div_euclid(width.into())
}

fn cell_of(point: Point, resolution: u8) -> CellIndex {
    LatLng::new(point.latitude, point.longitude)
        .expect("finite")
        .to_cell(Resolution::try_from(resolution).expect("0 to 15"))
}
