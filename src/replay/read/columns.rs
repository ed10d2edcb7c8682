//! Which columns hold what, and rows as events.

use std::ops::Range;

use serde_json::{Map, Value};
use xxhash_rust::xxh3::xxh3_64;

use super::{ReadOptions, times::Times};
use crate::{
    domain::identity::TransitionKind,
    replay::trace::{About, Occurrence, TraceFault},
};

/// What a trace is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceKind {
    Transitions,
    Pings,
    Keyed,
}

/// Names of columns, where they are not the usual ones.
#[derive(Clone, Debug, Default)]
pub struct Columns {
    pub device: Option<String>,
    pub fence: Option<String>,
    pub transition: Option<String>,
    pub sequence: Option<String>,
    pub asset: Option<String>,
    pub id: Option<String>,
    pub time: Option<String>,
    pub arrival: Option<String>,
    pub latitude: Option<String>,
    pub longitude: Option<String>,
    pub occurrence: Option<String>,
}

/// The fields that may be read of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Device = 0,
    Fence = 1,
    Transition = 2,
    Sequence = 3,
    Asset = 4,
    Id = 5,
    Time = 6,
    Arrival = 7,
    Latitude = 8,
    Longitude = 9,
    Occurrence = 10,
}

const FIELDS: usize = 11;

impl Field {
    const ALL: [Field; FIELDS] = [
        Field::Device,
        Field::Fence,
        Field::Transition,
        Field::Sequence,
        Field::Asset,
        Field::Id,
        Field::Time,
        Field::Arrival,
        Field::Latitude,
        Field::Longitude,
        Field::Occurrence,
    ];

    /// How the column is usually called, and the flag that names another.
    const fn usual(self) -> (&'static [&'static str], &'static str) {
        match self {
            Field::Device => (&["device_id", "device"], "--device"),
            Field::Fence => (&["fence_id", "fence"], "--fence"),
            Field::Transition => (&["transition", "kind"], "--transition"),
            Field::Sequence => (&["sequence"], "--sequence"),
            Field::Asset => (&["asset_id", "asset", "vehicle_id"], "--asset"),
            Field::Id => (&["event_id", "id"], "--id"),
            Field::Time => (
                &["occurred_at", "event_time", "timestamp", "time"],
                "--time",
            ),
            Field::Arrival => (&["arrived_at", "ingested_at", "received_at"], "--arrival"),
            Field::Latitude => (&["latitude", "lat"], "--latitude"),
            Field::Longitude => (&["longitude", "lon", "lng"], "--longitude"),
            Field::Occurrence => (&["occurrence_id", "occurrence"], "--occurrence"),
        }
    }
}

impl Columns {
    fn named(&self, field: Field) -> Option<&str> {
        match field {
            Field::Device => self.device.as_deref(),
            Field::Fence => self.fence.as_deref(),
            Field::Transition => self.transition.as_deref(),
            Field::Sequence => self.sequence.as_deref(),
            Field::Asset => self.asset.as_deref(),
            Field::Id => self.id.as_deref(),
            Field::Time => self.time.as_deref(),
            Field::Arrival => self.arrival.as_deref(),
            Field::Latitude => self.latitude.as_deref(),
            Field::Longitude => self.longitude.as_deref(),
            Field::Occurrence => self.occurrence.as_deref(),
        }
    }
}

/// Where each field is.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    kind: TraceKind,
    columns: usize,
    places: [Option<usize>; FIELDS],
    names: [Option<String>; FIELDS],
}

impl Layout {
    pub(super) fn new(header: &[String], options: &ReadOptions) -> Result<Self, TraceFault> {
        let mut places = [None; FIELDS];
        let mut names: [Option<String>; FIELDS] = Default::default();
        let find = |name: &str| header.iter().position(|column| column == name);
        for field in Field::ALL {
            let (usual, flag) = field.usual();
            let place = match options.columns.named(field) {
                Some(name) => Some(find(name).ok_or_else(|| {
                    TraceFault(format!(
                        "there is no column {name:?} for {flag}; there are: {}",
                        header.join(", ")
                    ))
                })?),
                None => usual.iter().find_map(|name| find(name)),
            };
            places[field as usize] = place;
            names[field as usize] = place.map(|place| header[place].clone());
        }
        let has = |field: Field| places[field as usize].is_some();
        let kind = options.kind.or_else(|| {
            if has(Field::Device) && has(Field::Fence) && has(Field::Transition) {
                Some(TraceKind::Transitions)
            } else if has(Field::Asset) {
                Some(TraceKind::Pings)
            } else {
                has(Field::Id).then_some(TraceKind::Keyed)
            }
        });
        let Some(kind) = kind else {
            return Err(TraceFault(format!(
                "no column tells what the events are about: transitions have device_id, fence_id and \
                 transition, pings asset_id, keyed events event_id; name them by --device, --fence, \
                 --transition, --asset or --id; there are: {}",
                header.join(", ")
            )));
        };
        let needed: &[Field] = match kind {
            TraceKind::Transitions => {
                &[Field::Device, Field::Fence, Field::Transition, Field::Time]
            }
            TraceKind::Pings => &[Field::Asset, Field::Time],
            TraceKind::Keyed => &[Field::Id],
        };
        if let Some(missing) = needed.iter().find(|field| !has(**field)) {
            let (usual, flag) = missing.usual();
            return Err(TraceFault(format!(
                "there is no column {}; name it by {flag}; there are: {}",
                usual.join(" or "),
                header.join(", ")
            )));
        }
        if kind == TraceKind::Keyed && !has(Field::Time) && !has(Field::Arrival) {
            return Err(TraceFault(
                "keyed events need a column of the time at which they occurred or arrived, for their TTL"
                    .to_owned(),
            ));
        }
        Ok(Self {
            kind,
            columns: header.len(),
            places,
            names,
        })
    }

    pub(super) const fn kind(&self) -> TraceKind {
        self.kind
    }

    pub(super) const fn column_count(&self) -> usize {
        self.columns
    }

    /// Reads the numbers of a row, or says what is wrong with it.
    pub(super) fn judge(&self, row: &Row, times: &mut Times) -> Result<(), String> {
        let time = row.text(Field::Time);
        let occurred = match (time, self.kind) {
            (Some(text), _) if !text.trim().is_empty() => Some(times.read(text)?),
            (_, TraceKind::Keyed) => None,
            _ => return Err("has no time".to_owned()),
        };
        let arrived = match row
            .text(Field::Arrival)
            .filter(|text| !text.trim().is_empty())
        {
            Some(text) => times.read(text)?,
            None => occurred.ok_or("has no time")?,
        };
        let position = match (row.text(Field::Latitude), row.text(Field::Longitude)) {
            (Some(latitude), Some(longitude))
                if !(latitude.trim().is_empty() && longitude.trim().is_empty()) =>
            {
                let degrees = |text: &str, what: &str| {
                    text.trim().parse::<f64>().map_err(|_| {
                        let shown: String = text.chars().take(40).collect();
                        format!("{what} {shown:?} is no number")
                    })
                };
                Some((
                    degrees(latitude, "latitude")?,
                    degrees(longitude, "longitude")?,
                ))
            }
            _ => None,
        };
        let mut kind = None;
        let mut sequence = None;
        if self.kind == TraceKind::Transitions {
            let text = row.text(Field::Transition).unwrap_or_default();
            kind = Some(read_kind(text).ok_or_else(|| {
                let shown: String = text.chars().take(40).collect();
                format!("transition {shown:?} is not ENTER, EXIT or DWELL (E, X, D)")
            })?);
            if let Some(text) = row
                .text(Field::Sequence)
                .filter(|text| !text.trim().is_empty())
            {
                let number = text.trim().parse().map_err(|_| {
                    let shown: String = text.chars().take(40).collect();
                    format!("sequence {shown:?} is no number")
                })?;
                sequence = Some(number);
            }
        }
        row.numbers.set(Numbers {
            occurred_at_ns: occurred,
            arrived_at_ns: arrived,
            position,
            kind,
            sequence,
        });
        Ok(())
    }

    /// The event of a row that was judged.
    pub(super) fn event<'r>(&self, row: &'r Row) -> RowEvent<'r> {
        let numbers = row.numbers.get();
        let text = |field| row.text(field).unwrap_or_default();
        let about = match self.kind {
            TraceKind::Transitions => About::Transition {
                device: text(Field::Device),
                fence: text(Field::Fence),
                kind: numbers.kind.unwrap_or(TransitionKind::Enter),
                sequence: numbers.sequence,
            },
            TraceKind::Pings => About::Ping {
                asset: text(Field::Asset),
            },
            TraceKind::Keyed => About::Keyed {
                id: text(Field::Id),
            },
        };
        let occurrence = match row.text(Field::Occurrence) {
            Some(text) if !text.is_empty() => Occurrence::Copy {
                id: xxh3_64(text.as_bytes()),
                is_last: false,
            },
            _ => Occurrence::Unknown,
        };
        RowEvent {
            about,
            occurred_at_ns: numbers.occurred_at_ns,
            arrived_at_ns: numbers.arrived_at_ns,
            position: numbers.position,
            occurrence,
        }
    }
}

fn read_kind(text: &str) -> Option<TransitionKind> {
    match text.trim().to_ascii_uppercase().as_str() {
        "ENTER" | "E" => Some(TransitionKind::Enter),
        "EXIT" | "X" => Some(TransitionKind::Exit),
        "DWELL" | "D" => Some(TransitionKind::Dwell),
        _ => None,
    }
}

pub(super) struct RowEvent<'r> {
    pub(super) about: About<'r>,
    pub(super) occurred_at_ns: Option<i64>,
    pub(super) arrived_at_ns: i64,
    pub(super) position: Option<(f64, f64)>,
    pub(super) occurrence: Occurrence,
}

#[derive(Clone, Copy, Debug, Default)]
struct Numbers {
    occurred_at_ns: Option<i64>,
    arrived_at_ns: i64,
    position: Option<(f64, f64)>,
    kind: Option<TransitionKind>,
    sequence: Option<u64>,
}

/// The texts of the fields of one row, and the numbers in them.
#[derive(Debug, Default)]
pub(super) struct Row {
    texts: String,
    ranges: [Option<Range<usize>>; FIELDS],
    numbers: std::cell::Cell<Numbers>,
}

impl Row {
    fn text(&self, field: Field) -> Option<&str> {
        let range = self.ranges[field as usize].clone()?;
        self.texts.get(range)
    }

    fn begin(&mut self) {
        self.texts.clear();
        self.ranges = Default::default();
    }

    fn keep(&mut self, field: Field, text: &str) {
        let start = self.texts.len();
        self.texts.push_str(text);
        self.ranges[field as usize] = Some(start..self.texts.len());
    }

    pub(super) fn fill<'t>(
        &mut self,
        layout: &Layout,
        get: impl Fn(usize) -> Option<&'t [u8]>,
    ) -> Result<(), String> {
        self.begin();
        for field in Field::ALL {
            let Some(bytes) = layout.places[field as usize].and_then(&get) else {
                continue;
            };
            let text = std::str::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned())?;
            self.keep(field, text);
        }
        Ok(())
    }

    pub(super) fn fill_from_json(
        &mut self,
        layout: &Layout,
        object: &Map<String, Value>,
    ) -> Result<(), String> {
        self.begin();
        for field in Field::ALL {
            let Some(name) = &layout.names[field as usize] else {
                continue;
            };
            match object.get(name) {
                None | Some(Value::Null) => {}
                Some(Value::String(text)) => self.keep(field, text),
                Some(Value::Number(number)) => self.keep(field, &number.to_string()),
                Some(Value::Bool(_) | Value::Array(_) | Value::Object(_)) => {
                    return Err(format!("{name:?} is neither text nor a number"));
                }
            }
        }
        Ok(())
    }
}
