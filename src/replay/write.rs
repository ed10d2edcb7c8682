//! A trace as CSV, in the columns that [`super::read`] looks for.

use std::io::{self, Write};

use super::{
    run::BATCH_EVENTS,
    trace::{Occurrence, Trace, TraceBatch, TraceEvent},
};
use crate::domain::{
    event::RawPosition,
    identity::{RawIdentity, RawTransitionKind, TransitionKind},
    time::RawTime,
};

/// Writes transitions or pings whose ids need no quotes: what a recipe makes.
pub fn write_csv(trace: &mut dyn Trace, out: &mut impl Write) -> io::Result<()> {
    let mut batch = TraceBatch::new(BATCH_EVENTS, i64::MAX);
    let mut has_header = false;
    let mut line = Vec::new();
    loop {
        batch.clear();
        let more = trace.fill(&mut batch).map_err(io::Error::other)?;
        for event in batch.events() {
            if !has_header {
                out.write_all(header(&event).as_bytes())?;
                has_header = true;
            }
            line.clear();
            write_event(&event, &mut line)?;
            out.write_all(&line)?;
        }
        if !more {
            return out.flush();
        }
    }
}

fn header(event: &TraceEvent<'_>) -> &'static str {
    match event.event.identity {
        RawIdentity::Transition { .. } => {
            "device_id,fence_id,transition,occurred_at,arrived_at,occurrence_id\n"
        }
        RawIdentity::Ping { .. } => {
            "asset_id,latitude,longitude,occurred_at,arrived_at,occurrence_id\n"
        }
        RawIdentity::Keyed { .. } | RawIdentity::Unset => {
            "event_id,occurred_at,arrived_at,occurrence_id\n"
        }
    }
}

fn write_event(event: &TraceEvent<'_>, line: &mut Vec<u8>) -> io::Result<()> {
    let mut texts = |texts: &[&str]| {
        for text in texts {
            line.extend_from_slice(text.as_bytes());
            line.push(b',');
        }
    };
    match event.event.identity {
        RawIdentity::Transition {
            device_id,
            fence_id,
            kind,
            ..
        } => texts(&[device_id, fence_id, kind_name(kind)]),
        RawIdentity::Ping { asset_id } => {
            texts(&[asset_id]);
            if let RawPosition::LatLng {
                latitude: Some(latitude),
                longitude: Some(longitude),
            } = event.event.position
            {
                write!(line, "{latitude:.8},{longitude:.8},")?;
            } else {
                line.extend_from_slice(b",,");
            }
        }
        RawIdentity::Keyed { event_id } => texts(&[event_id]),
        RawIdentity::Unset => texts(&[""]),
    }
    let mut number = itoa::Buffer::new();
    if let RawTime::UnixNanos(nanos) = event.event.time {
        line.extend_from_slice(number.format(nanos).as_bytes());
    }
    line.push(b',');
    line.extend_from_slice(number.format(event.arrived_at_ns).as_bytes());
    line.push(b',');
    match event.occurrence {
        Occurrence::Unknown | Occurrence::Single => {}
        Occurrence::Copy { id, .. } => line.extend_from_slice(number.format(id).as_bytes()),
    }
    line.push(b'\n');
    Ok(())
}

const fn kind_name(kind: Option<RawTransitionKind>) -> &'static str {
    match kind {
        Some(RawTransitionKind::Known(TransitionKind::Enter)) => "ENTER",
        Some(RawTransitionKind::Known(TransitionKind::Exit)) => "EXIT",
        Some(RawTransitionKind::Known(TransitionKind::Dwell)) => "DWELL",
        Some(RawTransitionKind::Unknown(_)) | None => "",
    }
}
