//! Rows as events.

use xxhash_rust::xxh3::xxh3_64;

use super::{
    TimeUnit, TraceKind,
    columns::{Field, Layout, Row},
    times::Times,
};
use crate::{
    domain::identity::TransitionKind,
    replay::trace::{About, Occurrence, TraceBatch},
};

/// The numbers of a row.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Numbers {
    pub(super) arrived_at_ns: i64,
    occurred_at_ns: Option<i64>,
    position: Option<(f64, f64)>,
    kind: Option<TransitionKind>,
    sequence: Option<u64>,
}

/// Event and arrival times, which may be in different units.
#[derive(Debug)]
pub(super) struct RowTimes {
    occurred: Times,
    arrived: Times,
}

impl RowTimes {
    pub(super) const fn new(given: Option<TimeUnit>) -> Self {
        Self {
            occurred: Times::new(given),
            arrived: Times::new(given),
        }
    }
}

/// Reads the numbers of a row, or says what is wrong with it.
pub(super) fn judge(
    layout: &Layout,
    row: &Row,
    texts: &str,
    times: &mut RowTimes,
) -> Result<Numbers, String> {
    let filled = |field| {
        row.text(field, texts)
            .map(str::trim)
            .filter(|text| !text.is_empty())
    };
    let occurred = match (filled(Field::Time), layout.kind()) {
        (Some(text), _) => Some(times.occurred.read(text)?),
        (None, TraceKind::Keyed) => None,
        (None, TraceKind::Transitions | TraceKind::Pings) => return Err("has no time".to_owned()),
    };
    let arrived = match filled(Field::Arrival) {
        Some(text) => times.arrived.read(text)?,
        None => occurred.ok_or("has no time")?,
    };
    let position = match (filled(Field::Latitude), filled(Field::Longitude)) {
        (Some(latitude), Some(longitude)) => Some((
            number(latitude, "latitude")?,
            number(longitude, "longitude")?,
        )),
        (None, None) => None,
        (Some(_), None) | (None, Some(_)) => {
            return Err("has only one of latitude and longitude".to_owned());
        }
    };
    let (mut kind, mut sequence) = (None, None);
    if layout.kind() == TraceKind::Transitions {
        let text = filled(Field::Transition).unwrap_or_default();
        kind = Some(read_kind(text).ok_or_else(|| {
            format!(
                "transition {:?} is not ENTER, EXIT or DWELL (E, X, D)",
                shown(text)
            )
        })?);
        sequence = filled(Field::Sequence)
            .map(|text| number(text, "sequence"))
            .transpose()?;
    }
    Ok(Numbers {
        arrived_at_ns: arrived,
        occurred_at_ns: occurred,
        position,
        kind,
        sequence,
    })
}

/// Appends the event of a row with these numbers.
pub(super) fn push(
    layout: &Layout,
    row: &Row,
    texts: &str,
    numbers: &Numbers,
    batch: &mut TraceBatch,
) {
    let text = |field| row.text(field, texts).unwrap_or_default();
    let about = match layout.kind() {
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
    let occurrence = match row.text(Field::Occurrence, texts) {
        None if layout.has(Field::Occurrence) => Occurrence::Single,
        None => Occurrence::Unknown,
        Some("") => Occurrence::Single,
        Some(text) => Occurrence::Copy {
            id: xxh3_64(text.as_bytes()),
            is_last: false,
        },
    };
    batch.push(
        about,
        numbers.occurred_at_ns,
        numbers.arrived_at_ns,
        numbers.position,
        occurrence,
    );
}

fn number<T: std::str::FromStr>(text: &str, what: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| format!("{what} {:?} is no number", shown(text)))
}

/// What is shown of a text that may be long.
pub(super) fn shown(text: &str) -> String {
    const SHOWN_CHARS: usize = 40;
    text.chars().take(SHOWN_CHARS).collect()
}

fn read_kind(text: &str) -> Option<TransitionKind> {
    let names = [
        ("ENTER", "E", TransitionKind::Enter),
        ("EXIT", "X", TransitionKind::Exit),
        ("DWELL", "D", TransitionKind::Dwell),
    ];
    let found = names.into_iter().find(|(name, letter, _)| {
        text.eq_ignore_ascii_case(name) || text.eq_ignore_ascii_case(letter)
    });
    found.map(|(_, _, kind)| kind)
}
