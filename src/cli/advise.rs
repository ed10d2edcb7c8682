//! `dedupd advise`: the namespace that a trace asks for.

use std::{
    fs,
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
};

use clap::{Args, ValueEnum};

use super::{
    EXIT_DATA, EXIT_USAGE, fail,
    trace_options::{ReadFlags, is_stdin},
};
use crate::{
    config::{self, Flags},
    domain::{
        policy::Policy,
        time::{Implausible, TimeLimits},
    },
    replay::{
        advise::{advice::Advice, measure::measure},
        read::{FileTrace, TraceKind},
        run,
        strategy::{Rule, Strategy},
    },
};

/// Of the claims of the replay.
const MAX_CLAIM_BYTES: u64 = 4 << 30;

#[derive(Args, Debug)]
pub struct AdviseOptions {
    /// Events in the order in which they arrived: CSV with a header or JSON lines, either of them
    /// gzipped; `-` is stdin
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    #[command(flatten)]
    reading: ReadFlags,
    /// Of the namespace [default: transitions, pings or events]
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
    #[arg(long, value_enum, default_value_t = OutputForm::Text)]
    output: OutputForm,
    /// Write a page with charts as well
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// Do not replay the recommendation over the trace; stdin never is
    #[arg(long)]
    no_replay: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OutputForm {
    /// For people, with the evidence as histograms.
    Text,
    /// The configuration file alone.
    Yaml,
    Json,
}

/// Measures, recommends, and proves it where the trace can be read twice.
pub fn advise(options: &AdviseOptions) -> ExitCode {
    match advice(options) {
        Ok(advice) => match write(options, &advice) {
            Ok(()) => ExitCode::SUCCESS,
            Err(message) => fail(&message),
        },
        Err(Fault::Usage(message)) => {
            eprintln!("dedupd: {message}");
            ExitCode::from(EXIT_USAGE)
        }
        Err(Fault::Trace(message)) => {
            eprintln!("dedupd: {message}");
            ExitCode::from(EXIT_DATA)
        }
    }
}

enum Fault {
    /// What was asked for cannot be.
    Usage(String),
    /// The trace cannot be read, or holds nothing.
    Trace(String),
}

fn advice(options: &AdviseOptions) -> Result<Advice, Fault> {
    let path = &options.trace;
    let reading = options.reading.options();
    let fault = |error: &dyn std::fmt::Display| Fault::Trace(error.to_string());
    let mut trace = FileTrace::open(path, &reading).map_err(|error| fault(&error))?;
    let kind = trace.kind();
    let name = options.namespace.as_deref().unwrap_or(match kind {
        TraceKind::Transitions => "transitions",
        TraceKind::Pings => "pings",
        TraceKind::Keyed => "events",
    });
    let measured = measure(&mut trace, kind, |_, _| ()).map_err(|error| fault(&error))?;
    let rows = &measured.bad_rows;
    if measured.events == measured.unusable {
        let why = match rows.first.first() {
            Some((line, why)) => format!(
                "; of {} rows that were left out, line {line} {why}",
                rows.count
            ),
            None => String::new(),
        };
        return Err(Fault::Trace(format!(
            "{} holds no events to learn from{why}",
            path.display()
        )));
    }
    let advice = Advice::new(path.display().to_string(), name.to_owned(), measured);
    let policy = policy(&advice.yaml())?;
    if options.no_replay || is_stdin(path) {
        return Ok(advice);
    }
    let strategies = [Strategy {
        name: name.to_owned(),
        rule: Rule::Namespace(policy),
    }];
    let mut trace = FileTrace::open(path, &reading).map_err(|error| fault(&error))?;
    let outcomes = run::run(&mut trace, &strategies, MAX_CLAIM_BYTES, |_| ());
    let outcome = outcomes.map_err(|error| fault(&error))?.outcomes.pop();
    Ok(match outcome {
        Some(outcome) => advice.with_replay(outcome),
        None => advice,
    })
}

/// As `check` reads it. Times are not limited: the trace's clock is made of its arrivals.
fn policy(yaml: &str) -> Result<Arc<Policy>, Fault> {
    let environment = |name: &str| (name == "DEDUPD_CONFIG_INLINE").then(|| yaml.into());
    let (config, _) = config::load(&Flags::default(), &environment)
        .map_err(|errors| Fault::Usage(errors.to_string()))?;
    let unlimited = TimeLimits::new(None, None, Implausible::DeadLetter);
    config
        .namespaces
        .into_iter()
        .next()
        .map(|policy| Arc::new(Policy::clone(&policy).with_time_limits(unlimited)))
        .ok_or_else(|| Fault::Usage("there is no namespace".to_owned()))
}

fn write(options: &AdviseOptions, advice: &Advice) -> Result<(), String> {
    if let Some(path) = &options.report {
        fs::write(path, advice.html())
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    let text = match options.output {
        OutputForm::Text => advice.text(),
        OutputForm::Yaml => advice.yaml(),
        OutputForm::Json => advice.json(),
    };
    let written = io::stdout().lock().write_all(text.as_bytes());
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(format!("cannot write: {error}"))
        }
        _ => Ok(()),
    }
}
