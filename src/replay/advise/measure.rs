//! One reading of a trace, in memory that does not depend on its length.

use xxhash_rust::xxh3::Xxh3;

use super::{
    assets::{Assets, AssetsFound},
    copies::Copies,
    distribution::Distribution,
};
use crate::{
    domain::{
        event::{RawEvent, RawPosition},
        identity::{RawIdentity, RawTransitionKind},
        place::Position,
        time::RawTime,
    },
    replay::{
        read::TraceKind,
        trace::{BadRows, Occurrence, Trace, TraceBatch, TraceEvent, TraceFault},
    },
};

const BATCH_EVENTS: usize = 512;
const MINUTE_NS: i64 = 60_000_000_000;

/// What a trace shows.
#[derive(Debug)]
pub struct Measured {
    pub kind: TraceKind,
    pub events: u64,
    /// Events without an identity or a time.
    pub unusable: u64,
    /// Transitions that carry a sequence.
    pub sequenced: u64,
    pub copies: Copies,
    /// Of pings.
    pub assets: Option<AssetsFound>,
    /// By which events arrived after their time, and before it.
    pub delay: Distribution,
    pub ahead: Distribution,
    /// From the first arrival to the last.
    pub span_ns: u64,
    pub busiest_minute: u64,
    pub bad_rows: BadRows,
}

impl Measured {
    /// Where arrivals are the events' own times, none were given.
    pub fn tells_arrival(&self) -> bool {
        self.delay.largest().is_some_and(|largest| largest > 0) || !self.ahead.is_empty()
    }

    /// Whether most events say which occurrence they belong to.
    pub fn tells_copies(&self) -> bool {
        self.copies.told > self.copies.untold
    }
}

struct Reading {
    kind: TraceKind,
    measured: Measured,
    assets: Assets,
    first_arrival_ns: Option<i64>,
    last_arrival_ns: i64,
    minute: (i64, u64),
}

/// Reads all of a trace; `progress` is told now and then.
pub fn measure(
    trace: &mut dyn Trace,
    kind: TraceKind,
    mut progress: impl FnMut(u64, Option<u64>),
) -> Result<Measured, TraceFault> {
    let mut reading = Reading {
        kind,
        measured: Measured {
            kind,
            events: 0,
            unusable: 0,
            sequenced: 0,
            copies: Copies::new(),
            assets: None,
            delay: Distribution::default(),
            ahead: Distribution::default(),
            span_ns: 0,
            busiest_minute: 0,
            bad_rows: BadRows::default(),
        },
        assets: Assets::new(),
        first_arrival_ns: None,
        last_arrival_ns: i64::MIN,
        minute: (i64::MIN, 0),
    };
    let mut batch = TraceBatch::new(BATCH_EVENTS, i64::MAX);
    loop {
        batch.clear();
        let more = trace.fill(&mut batch)?;
        for event in batch.events() {
            reading.observe(&event);
        }
        let (done, of) = trace.progress();
        progress(done, of);
        if !more {
            break;
        }
    }
    Ok(reading.finish(trace.bad_rows().clone()))
}

impl Reading {
    fn observe(&mut self, traced: &TraceEvent<'_>) {
        self.measured.events += 1;
        self.note_arrival(traced.arrived_at_ns);
        let event = &traced.event;
        let occurred_at_ns = match event.time {
            RawTime::UnixNanos(nanos) => Some(nanos),
            _ => None,
        };
        let position = position_of(event);
        let is_keyed = matches!(event.identity, RawIdentity::Keyed { .. });
        let (Some(mut subject), Some(at_ns)) = (
            subject(event),
            occurred_at_ns.or(is_keyed.then_some(traced.arrived_at_ns)),
        ) else {
            self.measured.unusable += 1;
            return;
        };
        let late_ns = traced.arrived_at_ns.saturating_sub(at_ns);
        match u64::try_from(late_ns) {
            Ok(delay) => self.measured.delay.record(delay),
            Err(_) => self.measured.ahead.record(late_ns.unsigned_abs()),
        }
        let mut occurrence = traced.occurrence;
        let copy = |id| Occurrence::Copy { id, is_last: false };
        match event.identity {
            RawIdentity::Unset => {}
            RawIdentity::Transition { sequence, .. } => {
                if let Some(sequence) = sequence {
                    self.measured.sequenced += 1;
                    if occurrence == Occurrence::Unknown {
                        occurrence = copy(with_number(subject, sequence));
                    }
                }
            }
            RawIdentity::Ping { asset_id } => {
                self.assets.observe(asset_id, subject, at_ns, position);
                subject = match occurrence {
                    Occurrence::Copy { id, .. } => with_number(subject, id),
                    Occurrence::Unknown | Occurrence::Single => with_position(subject, position),
                };
            }
            RawIdentity::Keyed { .. } => {
                if occurrence == Occurrence::Unknown {
                    occurrence = copy(subject);
                }
            }
        }
        self.measured
            .copies
            .observe(subject, occurrence, at_ns, traced.arrived_at_ns);
    }

    fn note_arrival(&mut self, arrived_at_ns: i64) {
        self.first_arrival_ns = Some(
            self.first_arrival_ns
                .map_or(arrived_at_ns, |first| first.min(arrived_at_ns)),
        );
        self.last_arrival_ns = self.last_arrival_ns.max(arrived_at_ns);
        let minute = arrived_at_ns.div_euclid(MINUTE_NS);
        if minute != self.minute.0 {
            self.minute = (minute, 0);
        }
        self.minute.1 += 1;
        self.measured.busiest_minute = self.measured.busiest_minute.max(self.minute.1);
    }

    fn finish(self, bad_rows: BadRows) -> Measured {
        let mut measured = self.measured;
        measured.bad_rows = bad_rows;
        measured.assets = (self.kind == TraceKind::Pings).then(|| self.assets.finish());
        measured.span_ns = self
            .first_arrival_ns
            .map_or(0, |first| self.last_arrival_ns.abs_diff(first));
        measured
    }
}

fn position_of(event: &RawEvent<'_>) -> Option<Position> {
    match event.position {
        RawPosition::LatLng {
            latitude: Some(latitude),
            longitude: Some(longitude),
        } => Position::new(latitude, longitude).ok(),
        _ => None,
    }
}

/// Device, fence and kind; asset; or id. `None` where one is missing.
fn subject(event: &RawEvent<'_>) -> Option<u64> {
    let mut hash = Xxh3::new();
    let mut add = |text: &str| {
        hash.update(&(text.len() as u64).to_le_bytes());
        hash.update(text.as_bytes());
        !text.trim().is_empty()
    };
    let is_whole = match event.identity {
        RawIdentity::Unset => false,
        RawIdentity::Transition {
            device_id,
            fence_id,
            kind,
            ..
        } => {
            let named = add(device_id) & add(fence_id);
            if let Some(RawTransitionKind::Known(kind)) = kind {
                hash.update(&[kind.letter()]);
            }
            named
        }
        RawIdentity::Ping { asset_id } => add(asset_id),
        RawIdentity::Keyed { event_id } => add(event_id),
    };
    is_whole.then(|| hash.digest())
}

fn with_number(subject: u64, number: u64) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(&subject.to_le_bytes());
    hash.update(&number.to_le_bytes());
    hash.digest()
}

fn with_position(subject: u64, position: Option<Position>) -> u64 {
    position.map_or(subject, |position| {
        let latitude = with_number(subject, position.latitude_deg().to_bits());
        with_number(latitude, position.longitude_deg().to_bits())
    })
}
