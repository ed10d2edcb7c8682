//! How a trace is read or made up, on the command line.

use std::{path::Path, time::Duration};

use clap::{Args, ValueEnum};

use crate::{
    config::quantity::parse_duration,
    replay::{
        read::{Columns, Format, ReadOptions, TimeUnit, TraceKind},
        synth::{Recipe, Subjects},
    },
};

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Reading the trace")]
pub(super) struct ReadFlags {
    /// [default: by the name, else by the first byte]
    #[arg(long, value_enum)]
    format: Option<FormatName>,
    /// What the events are [default: by the columns]
    #[arg(long, value_enum)]
    kind: Option<KindName>,
    /// Of times that are numbers [default: by the size of the first number]
    #[arg(long, value_enum)]
    time_unit: Option<UnitName>,
    /// Between the fields of CSV [default: ,]
    #[arg(long, value_name = "CHARACTER", value_parser = parse_delimiter)]
    delimiter: Option<u8>,
    /// The column of the device [default: device_id, device]
    #[arg(long, value_name = "COLUMN")]
    device: Option<String>,
    /// The column of the fence [default: fence_id, fence]
    #[arg(long, value_name = "COLUMN")]
    fence: Option<String>,
    /// The column of ENTER, EXIT or DWELL [default: transition, kind]
    #[arg(long, value_name = "COLUMN")]
    transition: Option<String>,
    /// The column of the device's own number [default: sequence]
    #[arg(long, value_name = "COLUMN")]
    sequence: Option<String>,
    /// The column of the asset [default: asset_id, asset, vehicle_id]
    #[arg(long, value_name = "COLUMN")]
    asset: Option<String>,
    /// The column of the event id [default: event_id, id]
    #[arg(long, value_name = "COLUMN")]
    id: Option<String>,
    /// The column of the event time [default: occurred_at, event_time, timestamp, time]
    #[arg(long, value_name = "COLUMN")]
    time: Option<String>,
    /// The column of the arrival [default: arrived_at, ingested_at, received_at; without one,
    /// events arrive when they occur]
    #[arg(long, value_name = "COLUMN")]
    arrival: Option<String>,
    /// The column of the latitude [default: latitude, lat]
    #[arg(long, value_name = "COLUMN")]
    latitude: Option<String>,
    /// The column of the longitude [default: longitude, lon, lng]
    #[arg(long, value_name = "COLUMN")]
    longitude: Option<String>,
    /// The column that is the same in all copies of one occurrence, empty where there is no copy
    /// [default: occurrence_id, occurrence]
    #[arg(long, value_name = "COLUMN")]
    occurrence: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FormatName {
    Csv,
    Jsonl,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum KindName {
    Transitions,
    Pings,
    Keyed,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum UnitName {
    S,
    Ms,
    Us,
    Ns,
}

fn parse_delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        _ if text == "\\t" => Ok(b'\t'),
        [byte] if byte.is_ascii() && !b"\"\r\n".contains(byte) => Ok(*byte),
        _ => Err("give one ASCII character, or \\t".to_owned()),
    }
}

impl ReadFlags {
    pub(super) fn options(&self) -> ReadOptions {
        ReadOptions {
            format: self.format.map(|format| match format {
                FormatName::Csv => Format::Csv,
                FormatName::Jsonl => Format::JsonLines,
            }),
            kind: self.kind.map(|kind| match kind {
                KindName::Transitions => TraceKind::Transitions,
                KindName::Pings => TraceKind::Pings,
                KindName::Keyed => TraceKind::Keyed,
            }),
            time_unit: self.time_unit.map(|unit| match unit {
                UnitName::S => TimeUnit::Seconds,
                UnitName::Ms => TimeUnit::Milliseconds,
                UnitName::Us => TimeUnit::Microseconds,
                UnitName::Ns => TimeUnit::Nanoseconds,
            }),
            delimiter: self.delimiter,
            columns: Columns {
                device: self.device.clone(),
                fence: self.fence.clone(),
                transition: self.transition.clone(),
                sequence: self.sequence.clone(),
                asset: self.asset.clone(),
                id: self.id.clone(),
                time: self.time.clone(),
                arrival: self.arrival.clone(),
                latitude: self.latitude.clone(),
                longitude: self.longitude.clone(),
                occurrence: self.occurrence.clone(),
            },
        }
    }
}

/// Defaults are those of [`Recipe`].
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Making up a trace")]
pub(super) struct RecipeFlags {
    /// The same seed gives the same trace [default: 1]
    #[arg(long)]
    seed: Option<u64>,
    /// Crossings or reports that happen; copies come on top: 410M, 20k [default: 1M]
    #[arg(long, value_name = "COUNT", value_parser = parse_count)]
    occurrences: Option<u64>,
    /// Over which they happen [default: 12h]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    duration: Option<Duration>,
    /// Devices that cross fences [default: 1M]
    #[arg(long, value_name = "COUNT", value_parser = parse_count)]
    devices: Option<u64>,
    /// [default: 500]
    #[arg(long, value_name = "COUNT", value_parser = parse_count)]
    fences: Option<u64>,
    /// Between two crossings of a device, at least [default: 500ms]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    min_revisit: Option<Duration>,
    /// The share of crossings that are followed by a re-entry soon [default: 0.02]
    #[arg(long, value_name = "SHARE")]
    re_entries: Option<f64>,
    /// How much later than --min-revisit a re-entry follows, in the mean [default: 1s]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    mean_revisit: Option<Duration>,
    /// The share of occurrences that are retried, stamped anew [default: 0.06]
    #[arg(long, value_name = "SHARE")]
    retried: Option<f64>,
    /// Between the times of the copies of an occurrence, at most [default: 200ms]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    retry_spread: Option<Duration>,
    /// The share of occurrences that are replayed from a dead-letter queue [default: 0.001]
    #[arg(long, value_name = "SHARE")]
    replayed: Option<f64>,
    /// After the occurrence, at most [default: 59m]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    replay_delay: Option<Duration>,
    /// By which a device's clock is off, at most [default: 0s]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    clock_skew: Option<Duration>,
    /// The share of retries before which the clock jumps [default: 0]
    #[arg(long, value_name = "SHARE")]
    clock_jumps: Option<f64>,
    /// By which it jumps, either way [default: 5s]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    clock_jump: Option<Duration>,
    /// A fleet of so many assets that report their positions in turn, instead of devices and fences
    #[arg(long, value_name = "COUNT", value_parser = parse_count, conflicts_with_all = ["devices", "fences", "min_revisit", "re_entries", "mean_revisit"])]
    assets: Option<u64>,
    /// The share of assets that are parked [default: 0.7]
    #[arg(long, value_name = "SHARE", requires = "assets")]
    parked: Option<f64>,
    /// The standard deviation of each coordinate of a fix, metres [default: 4]
    #[arg(long, value_name = "METRES", requires = "assets")]
    noise_m: Option<f64>,
    /// Of assets that drive, metres a second [default: 12]
    #[arg(long, value_name = "SPEED", requires = "assets")]
    speed: Option<f64>,
}

const DEFAULT_PARKED: f64 = 0.7;
const DEFAULT_NOISE_M: f64 = 4.0;
const DEFAULT_SPEED_M_PER_S: f64 = 12.0;

impl RecipeFlags {
    pub(super) fn recipe(&self) -> Result<Recipe, String> {
        let default = Recipe::default();
        let count = |count: u64| u32::try_from(count).map_err(|_| format!("{count} is too many"));
        let subjects = match (self.assets, default.subjects) {
            (Some(assets), _) => Subjects::Fleet {
                assets: count(assets)?,
                parked: self.parked.unwrap_or(DEFAULT_PARKED),
                noise_m: self.noise_m.unwrap_or(DEFAULT_NOISE_M),
                speed_m_per_s: self.speed.unwrap_or(DEFAULT_SPEED_M_PER_S),
            },
            (
                None,
                Subjects::Fences {
                    devices,
                    fences,
                    min_revisit,
                    re_entries,
                    mean_revisit,
                },
            ) => Subjects::Fences {
                devices: self.devices.map_or(Ok(devices), count)?,
                fences: self.fences.map_or(Ok(fences), count)?,
                min_revisit: self.min_revisit.unwrap_or(min_revisit),
                re_entries: self.re_entries.unwrap_or(re_entries),
                mean_revisit: self.mean_revisit.unwrap_or(mean_revisit),
            },
            (None, fleet @ Subjects::Fleet { .. }) => fleet,
        };
        let recipe = Recipe {
            seed: self.seed.unwrap_or(default.seed),
            occurrences: self.occurrences.unwrap_or(default.occurrences),
            duration: self.duration.unwrap_or(default.duration),
            subjects,
            retried: self.retried.unwrap_or(default.retried),
            retry_spread: self.retry_spread.unwrap_or(default.retry_spread),
            replayed: self.replayed.unwrap_or(default.replayed),
            replay_delay: self.replay_delay.unwrap_or(default.replay_delay),
            clock_skew: self.clock_skew.unwrap_or(default.clock_skew),
            clock_jumps: self.clock_jumps.unwrap_or(default.clock_jumps),
            clock_jump: self.clock_jump.unwrap_or(default.clock_jump),
        };
        recipe.check()?;
        Ok(recipe)
    }
}

/// `20000`, `20k` or `410M`.
pub(super) fn parse_count(text: &str) -> Result<u64, String> {
    let (digits, times) = match text.as_bytes().last() {
        Some(b'k') => (&text[..text.len() - 1], 1_000),
        Some(b'M') => (&text[..text.len() - 1], 1_000_000),
        _ => (text, 1),
    };
    let number: Option<u64> = digits.parse().ok();
    number
        .and_then(|number| number.checked_mul(times))
        .ok_or_else(|| format!("{text:?} is not a count such as 20000, 20k or 410M"))
}

/// Whether a trace is the standard input, which can be read once.
pub(super) fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}
