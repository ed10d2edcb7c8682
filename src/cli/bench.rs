//! `dedupd bench`: a load on a running service, measured.

use std::{
    io::{self, Write},
    ops::RangeInclusive,
    process::ExitCode,
    time::Duration,
};

use clap::{Args, ValueEnum};

use super::{EXIT_USAGE, OutputFormat, fail};
use crate::{
    bench::{
        events::{EventKind, Recipe},
        load::{CallForm, Load, Pace, Settling, Watched},
        report::Report,
        run::run,
    },
    config::parse_duration,
};

/// Of a stream in a closed loop.
const DEFAULT_IN_FLIGHT: usize = 4;
/// In an open loop calls may queue up while the service stalls.
const DEFAULT_IN_FLIGHT_AT_A_RATE: usize = 64;
/// Events a second that a clock of nanoseconds can tell apart, and that a person waits for.
const RATES: RangeInclusive<f64> = 0.001..=1e9;
/// As of an asset that reports so often within a window.
const REPORTS_OF_A_PARKED_ASSET: f64 = 30.0;
/// What may wait for its answer on all streams together.
const MAX_EVENTS_IN_FLIGHT: usize = 10_000_000;

#[derive(Args, Debug)]
pub struct BenchOptions {
    /// The running service, without TLS
    #[arg(
        long,
        value_name = "HOST:PORT|unix:PATH",
        default_value = "127.0.0.1:50061"
    )]
    target: String,
    /// Namespaces that take the kind, for calls in turn [default: the kind's built-in one]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    namespace: Vec<String>,
    /// For how long events are counted and timed
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    duration: Duration,
    /// Sent before, at the same pace, and not counted
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = parse_duration)]
    warm_up: Duration,
    #[arg(long, value_enum, default_value = "text")]
    output: OutputFormat,
    /// Read this process's CPU time, and say what an event costs it
    #[arg(long, value_name = "PID")]
    server_pid: Option<u32>,
    /// The same of its Redis, or of all servers of a cluster
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    redis_pid: Vec<u32>,
    /// Threads of this client
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    threads: usize,
    #[command(flatten)]
    calls: CallFlags,
    #[command(flatten)]
    events: EventFlags,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Calls")]
struct CallFlags {
    /// Events a second of all streams together, sent by a schedule that waits for no answer; a
    /// call's time begins when it was due [default: the next call when one was answered]
    #[arg(long, value_name = "EVENTS")]
    rate: Option<f64>,
    /// Single calls instead of streams
    #[arg(long)]
    unary: bool,
    /// Events of one call
    #[arg(long, value_name = "EVENTS", default_value_t = 500)]
    batch: usize,
    /// Streams, or callers of single calls
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    streams: usize,
    /// Connections that the streams share [default: one for each]
    #[arg(long, value_name = "COUNT")]
    connections: Option<usize>,
    /// Calls of each stream that may wait for their answers [default: 4, with --rate 64]
    #[arg(long, value_name = "CALLS")]
    in_flight: Option<usize>,
    /// Confirm what is admitted as soon as it is
    #[arg(long)]
    confirm: bool,
    /// Let claims be stored as confirmed, and ask for no tokens
    #[arg(long, conflicts_with = "confirm")]
    omit_claims: bool,
    /// Send no request ids, as callers that never retry
    #[arg(long)]
    without_request_ids: bool,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Events")]
struct EventFlags {
    #[arg(long, value_enum, default_value = "transitions")]
    kind: Kind,
    /// The share of events that repeat an earlier one, less than 1 [default: 0; of parked pings
    /// 29/30]
    #[arg(long, value_name = "SHARE", conflicts_with = "fresh")]
    duplicates: Option<f64>,
    /// No repeats
    #[arg(long)]
    fresh: bool,
    /// Repeats are of one of so many latest first sightings of the stream
    #[arg(long, value_name = "EVENTS", default_value_t = 10_000)]
    repeat_within: usize,
    /// Devices, or moving assets
    #[arg(long, value_name = "COUNT", default_value_t = 100_000)]
    subjects: u64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    /// Each of another device and fence
    Transitions,
    /// Each from another cell
    MovingPings,
    /// Of assets that stand still but for a metre of noise
    ParkedPings,
    /// Each with an id of its own
    Keyed,
}

/// The report on stdout, faults on stderr.
pub fn bench(options: &BenchOptions) -> ExitCode {
    let load = match options.load() {
        Ok(load) => load,
        Err(why) => {
            eprintln!("dedupd: {why}");
            return ExitCode::from(EXIT_USAGE);
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(options.threads)
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return fail(&format!("cannot start: {error}")),
    };
    let ran = runtime.block_on(run(load.clone(), rand::random()));
    // Of a service that went away, answers may be waited for.
    runtime.shutdown_background();
    let report = match ran {
        Ok(ran) => Report { load, ran },
        Err(fault) => return fail(&fault.to_string()),
    };
    let mut out = io::stdout().lock();
    let written = match options.output {
        OutputFormat::Text => write!(out, "{report}"),
        OutputFormat::Json => writeln!(out, "{:#}", report.json()),
    };
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&format!("cannot write: {error}")),
    }
}

impl BenchOptions {
    fn load(&self) -> Result<Load, String> {
        let (calls, events) = (&self.calls, &self.events);
        let connections = calls.connections.unwrap_or(calls.streams);
        let in_flight = calls.in_flight.unwrap_or(match calls.rate {
            Some(_) => DEFAULT_IN_FLIGHT_AT_A_RATE,
            None => DEFAULT_IN_FLIGHT,
        });
        for (flag, number) in [
            ("--threads", self.threads),
            ("--batch", calls.batch),
            ("--streams", calls.streams),
            ("--connections", connections),
            ("--in-flight", in_flight),
            ("--repeat-within", events.repeat_within),
            ("--subjects", usize::from(events.subjects > 0)),
        ] {
            if number == 0 {
                return Err(format!("{flag} is at least 1"));
            }
        }
        if connections > calls.streams {
            return Err("--connections is at most --streams".to_owned());
        }
        let of_all = [calls.batch, calls.streams, in_flight];
        let of_all = of_all.into_iter().try_fold(1, usize::checked_mul);
        if of_all.is_none_or(|events| events > MAX_EVENTS_IN_FLIGHT) {
            return Err(format!(
                "--batch times --streams times --in-flight is at most {MAX_EVENTS_IN_FLIGHT}"
            ));
        }
        if self.duration.is_zero() {
            return Err("--duration is more than 0".to_owned());
        }
        let pace = match calls.rate {
            Some(rate) if RATES.contains(&rate) => Pace::Open(rate),
            Some(_) => {
                return Err(format!(
                    "--rate is in events a second, from {} to {}",
                    RATES.start(),
                    RATES.end()
                ));
            }
            None => Pace::Closed,
        };
        let kind = EventKind::from(events.kind);
        let usual = match kind {
            EventKind::ParkedPings if !events.fresh => 1.0 - 1.0 / REPORTS_OF_A_PARKED_ASSET,
            EventKind::ParkedPings
            | EventKind::Transitions
            | EventKind::MovingPings
            | EventKind::Keyed => 0.0,
        };
        let duplicates = events.duplicates.unwrap_or(usual);
        if !(0.0..1.0).contains(&duplicates) {
            return Err("--duplicates is a share from 0 to less than 1, such as 0.3".to_owned());
        }
        let mut namespaces = self.namespace.clone();
        if namespaces.is_empty() {
            namespaces.push(kind.namespace().to_owned());
        }
        Ok(Load {
            address: self.target.clone(),
            namespaces,
            recipe: Recipe {
                kind,
                subjects: events.subjects,
                duplicates,
                repeat_within: events.repeat_within,
            },
            form: if calls.unary {
                CallForm::Unary
            } else {
                CallForm::Stream
            },
            pace,
            batch_events: calls.batch,
            lanes: calls.streams,
            connections,
            in_flight,
            settling: match (calls.confirm, calls.omit_claims) {
                (true, _) => Settling::Confirmed,
                (false, true) => Settling::Omitted,
                (false, false) => Settling::Left,
            },
            has_request_ids: !calls.without_request_ids,
            warm_up: self.warm_up,
            duration: self.duration,
            watched: Watched {
                server_pid: self.server_pid,
                redis_pids: self.redis_pid.clone(),
            },
        })
    }
}

impl From<Kind> for EventKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Transitions => EventKind::Transitions,
            Kind::MovingPings => EventKind::MovingPings,
            Kind::ParkedPings => EventKind::ParkedPings,
            Kind::Keyed => EventKind::Keyed,
        }
    }
}
