//! Which columns hold what.

use std::ops::Range;

use super::ReadOptions;
use crate::replay::trace::TraceFault;

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
pub(super) enum Field {
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
    pub(super) const ALL: [Field; FIELDS] = [
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

    pub(super) const fn has(&self, field: Field) -> bool {
        self.places[field as usize].is_some()
    }

    /// What the field may be called in a row of JSON.
    pub(super) fn names(&self, field: Field) -> impl Iterator<Item = &str> {
        let known = self.names[field as usize].as_deref();
        let usual = match known {
            Some(_) => &[],
            None => field.usual().0,
        };
        known.into_iter().chain(usual.iter().copied())
    }
}

/// Where the fields of a row lie in its texts.
#[derive(Debug, Default)]
pub(super) struct Row {
    ranges: [Option<Range<usize>>; FIELDS],
}

impl Row {
    pub(super) fn text<'t>(&self, field: Field, texts: &'t str) -> Option<&'t str> {
        texts.get(self.ranges[field as usize].clone()?)
    }

    pub(super) fn clear(&mut self) {
        self.ranges = Default::default();
    }

    pub(super) fn set(&mut self, field: Field, range: Range<usize>) {
        self.ranges[field as usize] = Some(range);
    }

    /// Takes over where the columns lie.
    pub(super) fn place(
        &mut self,
        layout: &Layout,
        column: impl Fn(usize) -> Option<Range<usize>>,
    ) {
        for (range, place) in self.ranges.iter_mut().zip(layout.places) {
            *range = place.and_then(&column);
        }
    }
}
