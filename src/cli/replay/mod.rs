//! `dedupd replay`: strategies tried on a trace, or a trace sent through a running service.

mod progress;
mod strategies;

use std::{
    fs, io,
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, ValueEnum};

use self::{progress::Bar, strategies::StrategyFlags};
use super::{
    EXIT_DATA, EXIT_FAILED, EXIT_USAGE,
    trace_options::{ReadFlags, RecipeFlags, is_stdin},
};
use crate::{
    config::quantity::parse_size,
    replay::{
        read::{FileTrace, TraceKind},
        report::{Report, html::html, json::json, text::Text},
        run::{self, Ran, RunFault},
        synth::{Recipe, Subjects, Synth},
        target::{self, Target, TargetFault},
        trace::{Trace, TraceFault},
    },
};

const DEFAULT_BATCH: usize = 500;
const DEFAULT_IN_FLIGHT: usize = 8;

#[derive(Args, Debug)]
pub struct ReplayOptions {
    /// The trace: CSV or JSON lines, either of them gzipped; `-` is stdin
    #[arg(
        value_name = "TRACE",
        required_unless_present = "synthetic",
        conflicts_with = "synthetic"
    )]
    trace: Option<PathBuf>,
    /// Make the trace up while it is replayed
    #[arg(long)]
    synthetic: bool,
    /// Strategies that are tried at the same time, each in a reading of its own; stdin is read once
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    jobs: usize,
    /// What the claims of one strategy may take
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "8GiB")]
    max_memory: u64,
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Write the report as one HTML file, too
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    #[command(flatten)]
    strategies: StrategyFlags,
    #[command(flatten)]
    service: ServiceFlags,
    #[command(flatten)]
    reading: ReadFlags,
    #[command(flatten)]
    recipe: RecipeFlags,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Output {
    Text,
    Json,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Through a running service")]
struct ServiceFlags {
    /// Send the trace through this service instead, without TLS
    #[arg(long, value_name = "HOST:PORT|unix:PATH", requires = "namespace", conflicts_with_all = ["names", "config"])]
    target: Option<String>,
    /// The service's namespace
    #[arg(long, value_name = "NAME", requires = "target")]
    namespace: Option<String>,
    /// Events a second [default: as fast as the service answers]
    #[arg(long, value_name = "EVENTS", requires = "target", value_parser = parse_rate)]
    rate: Option<f64>,
    /// Events of one call
    #[arg(long, value_name = "EVENTS", default_value_t = DEFAULT_BATCH)]
    batch: usize,
    /// Calls that may wait for their answers
    #[arg(long, value_name = "CALLS", default_value_t = DEFAULT_IN_FLIGHT)]
    in_flight: usize,
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = text
        .parse()
        .ok()
        .filter(|rate: &f64| *rate > 0.0 && rate.is_finite());
    rate.ok_or_else(|| "give events a second, more than 0".to_owned())
}

/// Why there is no report.
enum Fault {
    Usage(String),
    Trace(TraceFault),
    Failed(String),
}

impl From<TraceFault> for Fault {
    fn from(fault: TraceFault) -> Self {
        Fault::Trace(fault)
    }
}

impl From<RunFault> for Fault {
    fn from(fault: RunFault) -> Self {
        match fault {
            RunFault::Trace(fault) => Fault::Trace(fault),
            RunFault::Decide(..) => Fault::Failed(fault.to_string()),
        }
    }
}

impl From<TargetFault> for Fault {
    fn from(fault: TargetFault) -> Self {
        match fault {
            TargetFault::Trace(fault) => Fault::Trace(fault),
            TargetFault::Unreachable(_) | TargetFault::Ended(_) => Fault::Failed(fault.to_string()),
        }
    }
}

/// The report on stdout, faults and progress on stderr.
pub fn replay(options: &ReplayOptions) -> ExitCode {
    let written = options.report().and_then(|report| {
        if let Some(path) = &options.report {
            let failed = |error: io::Error| format!("cannot write {}: {error}", path.display());
            fs::write(path, html(&report)).map_err(|error| Fault::Failed(failed(error)))?;
        }
        let mut out = io::stdout().lock();
        match options.output {
            Output::Text => write!(out, "{}", Text(&report)),
            Output::Json => writeln!(out, "{:#}", json(&report)),
        }
        .map_err(|error| Fault::Failed(format!("cannot write: {error}")))
    });
    let (code, why) = match written {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Fault::Usage(why)) => (EXIT_USAGE, why),
        Err(Fault::Trace(TraceFault(why))) => (EXIT_DATA, why),
        Err(Fault::Failed(why)) => (EXIT_FAILED, why),
    };
    eprintln!("dedupd: {why}");
    ExitCode::from(code)
}

/// Where events come from.
enum Source<'o> {
    File(&'o Path),
    Recipe(Recipe),
}

impl ReplayOptions {
    fn report(&self) -> Result<Report, Fault> {
        let source = match &self.trace {
            Some(path) => Source::File(path),
            None => Source::Recipe(self.recipe.recipe().map_err(Fault::Usage)?),
        };
        if self.service.batch == 0 || self.service.in_flight == 0 || self.jobs == 0 {
            let why = "--batch, --in-flight and --jobs are at least 1";
            return Err(Fault::Usage(why.to_owned()));
        }
        let (ran, settings, notes) = match &self.service.target {
            Some(address) => self.through_service(&source, address)?,
            None => self.simulated(&source)?,
        };
        if ran.outcomes.iter().all(|outcome| outcome.events == 0) {
            let bad = &ran.bad_rows;
            let first = bad.first.first();
            return Err(Fault::Trace(TraceFault(match first {
                Some((line, why)) => format!(
                    "none of the trace's {} rows can be used; line {line} {why}",
                    bad.count
                ),
                None => "the trace holds no events".to_owned(),
            })));
        }
        Ok(Report {
            trace: match &source {
                Source::File(path) => path.display().to_string(),
                Source::Recipe(recipe) => recipe.to_string(),
            },
            settings,
            notes,
            outcomes: ran.outcomes,
            bad_rows: ran.bad_rows,
        })
    }

    fn simulated(&self, source: &Source<'_>) -> Result<(Ran, Settings, Vec<String>), Fault> {
        let reading = self.reading.options();
        let open_file = |path: &Path| FileTrace::open(path, &reading);
        let (kind, stdin) = match source {
            Source::File(path) => {
                let trace = open_file(path)?;
                (trace.kind(), is_stdin(path).then_some(trace))
            }
            Source::Recipe(recipe) => (kind_of(recipe), None),
        };
        let (strategies, mut notes) = self.strategies.strategies(kind).map_err(Fault::Usage)?;
        notes.push(
            "Limits on event times are off. The trace's clock stands still for a thousandth of the \
             TTL, so that claims expire that much early or late."
                .to_owned(),
        );
        if kind == TraceKind::Pings {
            notes.push(
                "Of pings, what is called swallowed is mostly meant: reports of one place within \
                 one window count as one."
                    .to_owned(),
            );
        }
        let (bar, ran);
        if let Some(mut trace) = stdin {
            bar = Bar::new(1);
            ran = run::run(&mut trace, &strategies, self.max_memory, |progress| {
                bar.show(0, progress);
            });
        } else {
            bar = Bar::new(strategies.len());
            let open = || -> Result<Box<dyn Trace>, TraceFault> {
                Ok(match source {
                    Source::File(path) => Box::new(open_file(path)?),
                    Source::Recipe(recipe) => Box::new(Synth::new(recipe.clone())),
                })
            };
            let watch = |index, progress| bar.show(index, progress);
            ran = run::run_each(open, &strategies, self.max_memory, self.jobs, watch);
        }
        bar.clear();
        let settings = vec![
            ("version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
            (
                "store".to_owned(),
                "embedded, in the trace's own time".to_owned(),
            ),
        ];
        Ok((ran?, settings, notes))
    }

    fn through_service(
        &self,
        source: &Source<'_>,
        address: &str,
    ) -> Result<(Ran, Settings, Vec<String>), Fault> {
        let mut trace: Box<dyn Trace> = match source {
            Source::File(path) => Box::new(FileTrace::open(path, &self.reading.options())?),
            Source::Recipe(recipe) => Box::new(Synth::new(recipe.clone())),
        };
        let service = &self.service;
        let target = Target {
            address: address.to_owned(),
            namespace: service.namespace.clone().unwrap_or_default(),
            batch_events: service.batch,
            in_flight: service.in_flight,
            rate: service.rate,
        };
        let bar = Bar::new(1);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Fault::Failed(format!("cannot start: {error}")))?;
        let ran = runtime.block_on(target::run(trace.as_mut(), &target, |progress| {
            bar.show(0, progress);
        }));
        bar.clear();
        let rate = service.rate.map_or_else(
            || "as fast as it answers".to_owned(),
            |rate| format!("{rate} events a second"),
        );
        let settings = vec![
            ("version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
            ("service".to_owned(), address.to_owned()),
            ("rate".to_owned(), rate),
            ("events a call".to_owned(), service.batch.to_string()),
            ("calls in flight".to_owned(), service.in_flight.to_string()),
        ];
        let notes = vec![
            "The service's own clock is now: its limits on event times apply, claims expire in its \
             time and not in the trace's, and an event that is older than the TTL is LATE."
                .to_owned(),
        ];
        Ok((ran?, settings, notes))
    }
}

type Settings = Vec<(String, String)>;

const fn kind_of(recipe: &Recipe) -> TraceKind {
    match recipe.subjects {
        Subjects::Fences { .. } => TraceKind::Transitions,
        Subjects::Fleet { .. } => TraceKind::Pings,
    }
}
