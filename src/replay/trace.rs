//! A trace: events in the order in which they arrived, some of them copies of one another.
//!
//! Events come in batches that own their texts, so that neither a file nor a generator allocates
//! for each of them.

use std::ops::Range;

use crate::domain::{
    event::{RawEvent, RawPosition},
    identity::{RawIdentity, RawTransitionKind, TransitionKind},
    time::RawTime,
};

/// Where the events of a trace come from.
pub trait Trace {
    /// Appends events until the batch is full or the trace ends; false at its end.
    fn fill(&mut self, batch: &mut TraceBatch) -> Result<bool, TraceFault>;

    /// How much has been read of how much, in whatever unit; `None` where the end is not known.
    fn progress(&self) -> (u64, Option<u64>);

    /// Rows that could not be read, so far.
    fn bad_rows(&self) -> &BadRows;
}

/// The trace cannot be read any further.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TraceFault(pub String);

/// Rows that were left out, by their line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BadRows {
    pub count: u64,
    /// The first few: line, and what is wrong with it.
    pub first: Vec<(u64, String)>,
}

/// Rows that are shown; the others are counted.
const SHOWN_BAD_ROWS: usize = 20;

impl BadRows {
    pub fn add(&mut self, line: u64, why: impl Into<String>) {
        self.count += 1;
        if self.first.len() < SHOWN_BAD_ROWS {
            self.first.push((line, why.into()));
        }
    }
}

/// What is known of an event beside what a caller would send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occurrence {
    /// Nothing tells which events are copies.
    Unknown,
    /// It happened once and is reported once.
    Single,
    /// One of the copies of an occurrence; `is_last`: no other follows.
    Copy { id: u64, is_last: bool },
}

/// One event of a trace.
#[derive(Clone, Copy, Debug)]
pub struct TraceEvent<'a> {
    pub event: RawEvent<'a>,
    /// Nanoseconds since 1970.
    pub arrived_at_ns: i64,
    pub occurrence: Occurrence,
}

#[derive(Clone, Debug)]
enum Named {
    Transition {
        device: Range<usize>,
        fence: Range<usize>,
        kind: TransitionKind,
        sequence: Option<u64>,
    },
    Ping(Range<usize>),
    Keyed(Range<usize>),
}

#[derive(Clone, Debug)]
struct Row {
    named: Named,
    occurred_at_ns: Option<i64>,
    arrived_at_ns: i64,
    position: Option<(f64, f64)>,
    occurrence: Occurrence,
}

/// Events and the texts that they consist of.
#[derive(Clone, Debug, Default)]
pub struct TraceBatch {
    texts: String,
    rows: Vec<Row>,
    capacity: usize,
    /// Events of one batch arrive within so many nanoseconds: the clock stands still for it.
    span_ns: i64,
}

/// Who or what an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About<'a> {
    Transition {
        device: &'a str,
        fence: &'a str,
        kind: TransitionKind,
        sequence: Option<u64>,
    },
    Ping {
        asset: &'a str,
    },
    Keyed {
        id: &'a str,
    },
}

impl TraceBatch {
    pub fn new(capacity: usize, span_ns: i64) -> Self {
        Self {
            texts: String::with_capacity(capacity * 32),
            rows: Vec::with_capacity(capacity),
            capacity,
            span_ns,
        }
    }

    pub fn clear(&mut self) {
        self.texts.clear();
        self.rows.clear();
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Whether an event that arrives then belongs to another batch.
    pub fn is_full_for(&self, arrived_at_ns: i64) -> bool {
        self.rows.len() >= self.capacity
            || self.rows.first().is_some_and(|first| {
                arrived_at_ns.saturating_sub(first.arrived_at_ns) > self.span_ns
            })
    }

    pub fn push(
        &mut self,
        about: About<'_>,
        occurred_at_ns: Option<i64>,
        arrived_at_ns: i64,
        position: Option<(f64, f64)>,
        occurrence: Occurrence,
    ) {
        let texts = &mut self.texts;
        let mut keep = |text: &str| {
            let start = texts.len();
            texts.push_str(text);
            start..texts.len()
        };
        let named = match about {
            About::Transition {
                device,
                fence,
                kind,
                sequence,
            } => Named::Transition {
                device: keep(device),
                fence: keep(fence),
                kind,
                sequence,
            },
            About::Ping { asset } => Named::Ping(keep(asset)),
            About::Keyed { id } => Named::Keyed(keep(id)),
        };
        self.rows.push(Row {
            named,
            occurred_at_ns,
            arrived_at_ns,
            position,
            occurrence,
        });
    }

    pub fn events(&self) -> impl ExactSizeIterator<Item = TraceEvent<'_>> {
        self.rows.iter().map(|row| self.event(row))
    }

    /// Of each event, which occurrence it reports and when it arrived.
    pub fn sightings(&self) -> impl ExactSizeIterator<Item = (Occurrence, i64)> {
        self.rows
            .iter()
            .map(|row| (row.occurrence, row.arrived_at_ns))
    }

    /// When the first event arrived.
    pub fn arrived_at_ns(&self) -> Option<i64> {
        self.rows.first().map(|row| row.arrived_at_ns)
    }

    fn event(&self, row: &Row) -> TraceEvent<'_> {
        let text = |range: &Range<usize>| &self.texts[range.clone()];
        let identity = match &row.named {
            Named::Transition {
                device,
                fence,
                kind,
                sequence,
            } => RawIdentity::Transition {
                device_id: text(device),
                fence_id: text(fence),
                kind: Some(RawTransitionKind::Known(*kind)),
                sequence: *sequence,
                sequence_epoch: 0,
            },
            Named::Ping(asset) => RawIdentity::Ping {
                asset_id: text(asset),
            },
            Named::Keyed(id) => RawIdentity::Keyed { event_id: text(id) },
        };
        let event = RawEvent {
            identity,
            time: row
                .occurred_at_ns
                .map_or(RawTime::Unset, RawTime::UnixNanos),
            ingested_at: None,
            position: match row.position {
                Some((latitude, longitude)) => RawPosition::LatLng {
                    latitude: Some(latitude),
                    longitude: Some(longitude),
                },
                None => RawPosition::Unset,
            },
            content_hash: None,
        };
        TraceEvent {
            event,
            arrived_at_ns: row.arrived_at_ns,
            occurrence: row.occurrence,
        }
    }
}
