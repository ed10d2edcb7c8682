//! What a recommendation costs, with the arithmetic.

use serde::Serialize;

use super::{
    measure::Measured,
    recommend::{PlaceAdvice, Recommendation, WindowAdvice},
    units::{bytes, count, percent, span},
};
use crate::{
    domain::place::Resolution,
    replay::{read::TraceKind, run::Outcome},
};

/// Of a claim in Redis 7.0 at a million of them: key, record and expiry. `INFO memory` before and
/// after; transitions, pings, and ids of 16 bytes.
const REDIS_BYTES: [f64; 3] = [177.0, 193.0, 145.0];
/// In the embedded store: what ten million that only come were measured to take, 49, 66 and (ids of
/// 17 bytes) 58, and a fifth more where they come and go: what has left stays in the log for a while.
const EMBEDDED_BYTES: [f64; 3] = [56.0, 80.0, 72.0];
/// Half of what one core was measured to decide: 9.7 µs for a plan of one key (a SET), 18.9 µs for
/// one of three (in a script).
const SETS_PER_SHARD: f64 = 50_000.0;
const SCRIPTED_PER_SHARD: f64 = 25_000.0;
const SHARD_BYTES: f64 = 8.0 * 1024.0 * 1024.0 * 1024.0;

/// Estimates for the trace's own load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// In the busiest minute.
    pub events_per_s: f64,
    pub admitted_per_s: f64,
    pub claims_alive: f64,
    pub redis_bytes: f64,
    pub embedded_bytes: f64,
    /// Share of events that look at more than one key.
    pub scripted_share: f64,
    pub keys_per_event: f64,
    pub redis_commands_per_s: f64,
    pub shards: u64,
    /// Each figure with what it was made of.
    pub arithmetic: Vec<String>,
}

/// `outcome`: what the recommendation did to the trace, if it was replayed.
pub fn cost(measured: &Measured, advice: &Recommendation, outcome: Option<&Outcome>) -> Cost {
    let mut arithmetic = Vec::new();
    let span_s = (measured.span_ns as f64 / 1e9).max(1.0);
    let mean_per_s = measured.events as f64 / span_s;
    let minute_s = span_s.min(60.0);
    let events_per_s = (measured.busiest_minute as f64 / minute_s).max(mean_per_s);
    arithmetic.push(format!(
        "{events_per_s:.1} events a second in the busiest minute; {mean_per_s:.1} in the mean of {}.",
        span(measured.span_ns)
    ));
    let (admitted, how) = match outcome {
        Some(outcome) => (outcome.admitted, "as replayed"),
        None => (measured.events, "at most: it was not replayed"),
    };
    let admitted_per_s = admitted as f64 / span_s;
    let ttl_s = advice.ttl_ns as f64 / 1e9;
    let in_the_mean = admitted_per_s * ttl_s;
    let peak = outcome.map_or(0, |outcome| outcome.peak_claims);
    let claims_alive = in_the_mean.max(peak as f64);
    arithmetic.push(format!(
        "{} admitted ({how}) in {span_s:.0} s = {admitted_per_s:.2} a second × {ttl_s:.0} s of TTL = {} \
         claims alive in the mean{}.",
        count(admitted),
        count(in_the_mean.ceil() as u64),
        match outcome {
            Some(_) => format!("; {} at the peak of the replay; the larger counts", count(peak)),
            None => String::new(),
        }
    ));
    let kind = match measured.kind {
        TraceKind::Transitions => 0,
        TraceKind::Pings => 1,
        TraceKind::Keyed => 2,
    };
    let (in_redis, embedded) = (REDIS_BYTES[kind], EMBEDDED_BYTES[kind]);
    let (redis_bytes, embedded_bytes) = (claims_alive * in_redis, claims_alive * embedded);
    arithmetic.push(format!(
        "{} claims × {in_redis} B = {} in Redis; × {embedded} B = {} in the embedded store.",
        count(claims_alive.ceil() as u64),
        bytes(redis_bytes),
        bytes(embedded_bytes)
    ));
    let (scripted_share, keys_per_event) = looks(advice.window, advice.place);
    let redis_commands_per_s = events_per_s * (1.0 + scripted_share);
    arithmetic.push(format!(
        "{} of events look at several keys ({keys_per_event:.2} keys for each event): a script with an \
         MGET and a SET where it claims; the others cost one SET: {redis_commands_per_s:.1} commands a \
         second.",
        percent(scripted_share)
    ));
    let busy = events_per_s * (1.0 - scripted_share) / SETS_PER_SHARD
        + events_per_s * scripted_share / SCRIPTED_PER_SHARD;
    let full = redis_bytes / SHARD_BYTES;
    let shards = busy.max(full).ceil().max(1.0) as u64;
    arithmetic.push(format!(
        "{events_per_s:.1} × ({:.2} ÷ {SETS_PER_SHARD} + {scripted_share:.2} ÷ {SCRIPTED_PER_SHARD}) = {busy:.3} of a \
         shard's time, {full:.3} of its 8 GiB: {shards} of them.",
        1.0 - scripted_share
    ));
    Cost {
        events_per_s,
        admitted_per_s,
        claims_alive,
        redis_bytes,
        embedded_bytes,
        scripted_share,
        keys_per_event,
        redis_commands_per_s,
        shards,
        arithmetic,
    }
}

/// Share of events that look at more than one key, and keys for each event, for times and places
/// that are spread evenly.
fn looks(window: WindowAdvice, place: Option<PlaceAdvice>) -> (f64, f64) {
    let other_times = match window {
        WindowAdvice::None => 0.0,
        WindowAdvice::Buckets { width_ns, guard_ns } => 2.0 * guard_ns as f64 / width_ns as f64,
    };
    let (near_border, other_cells) = match place {
        Some(PlaceAdvice {
            resolution,
            guard_m,
            ..
        }) if guard_m > 0.0 => beyond_the_border(resolution, guard_m),
        _ => (0.0, 0.0),
    };
    let alone = (1.0 - other_times.min(1.0)) * (1.0 - near_border);
    (1.0 - alone, (1.0 + other_times) * (1.0 + other_cells))
}

/// Of points of a regular hexagon: the share within the guard of its border, and how many other cells
/// lie within the guard in the mean: the area that the guard adds to a cell, over the cell's.
fn beyond_the_border(resolution: u8, guard_m: f64) -> (f64, f64) {
    let Ok(resolution) = Resolution::try_from(resolution) else {
        return (0.0, 0.0);
    };
    let edge_m = resolution.edge_length_m();
    let apothem_m = edge_m * 3_f64.sqrt() / 2.0;
    let inner = (1.0 - guard_m / apothem_m).max(0.0);
    let area = 3.0 * edge_m * apothem_m;
    let added = 6.0 * edge_m * guard_m + std::f64::consts::PI * guard_m * guard_m;
    (1.0 - inner * inner, added / area)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{cells::cells_within, place::Position};

    #[test]
    fn looks_at_neighbours_are_those_of_the_planner() {
        let (resolution, guard_m) = (Resolution::Twelve, 4.0);
        let (mut near, mut cells) = (0, 0);
        let side = 100;
        for north in 0..side {
            for east in 0..side {
                let at = Position::new(47.0 + north as f64 * 1.1e-5, 8.0 + east as f64 * 1.7e-5);
                let at = at.expect("on Earth");
                let found = cells_within(at, at.cell(resolution), guard_m).len();
                near += u32::from(found > 0);
                cells += found;
            }
        }
        let points = f64::from(side * side);
        // Cells are not all alike: to a tenth.
        let (share, others) = beyond_the_border(12, guard_m);
        assert!(
            (f64::from(near) / points / share - 1.0).abs() < 0.1,
            "{near} {share}"
        );
        assert!(
            (cells as f64 / points / others - 1.0).abs() < 0.1,
            "{cells} {others}"
        );
        let half = WindowAdvice::Buckets {
            width_ns: 400,
            guard_ns: 100,
        };
        assert_eq!(looks(half, None), (0.5, 1.5));
    }
}
