//! The command line: what can be asked for, and how it ends.
//!
//! Exit codes: 0; 1, an event of `key` cannot be decided about, `doctor` warns, a replay or a
//! load did not get to its end, or `probe` got no good answer; 2, `doctor` found a failure; 64, a bad command line
//! or configuration (`EX_USAGE` of sysexits.h); 65, a trace that cannot be read to its end, or of
//! which no row can be used, or a manifest that cannot be read or asks for what cannot be
//! (`EX_DATAERR`).

use std::{env, ffi::OsString, io, io::Write, path::PathBuf, process::ExitCode, time::Duration};

use clap::{Args, Parser, Subcommand};

use crate::{
    app,
    config::{self, Config, ConfigErrors, Flags, LogFormat, parse_duration, redact_user_info},
};

mod doctor;

mod event_json;

mod key;

mod inject;

mod probe;

mod webhook;

mod replay;

mod advise;

mod bench;

mod synth;

mod trace_options;

const EXIT_FAILED: u8 = 1;
const EXIT_UNHEALTHY: u8 = 2;
const EXIT_USAGE: u8 = 64;
const EXIT_DATA: u8 = 65;

#[derive(Debug, Parser)]
#[command(name = "dedupd", version, about, long_about = None)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Answer over gRPC whether events are first sightings.
    Serve(ServeOptions),
    /// Validate the configuration and print it as it takes effect, as JSON.
    Check(ServeOptions),
    /// Connect to the store as the service would, and say what is wrong with it.
    Doctor(DoctorOptions),
    /// Print the material and the store keys of events, without a store.
    Key(KeyOptions),
    /// Try strategies on a trace and compare what they let through and what they swallow.
    Replay(Box<ReplayOptions>),
    /// Recommend a namespace from a trace, with the evidence and what it costs.
    Advise(Box<AdviseOptions>),
    /// Write a made-up trace that knows which events are copies, as CSV.
    Synth(Box<SynthOptions>),
    /// Put a dedupd beside the apps of Kubernetes manifests, and write them to stdout.
    Inject(InjectOptions),
    /// Take out of Kubernetes manifests what inject or the webhook put in.
    Uninject(ManifestOptions),
    /// Put a dedupd beside the apps of pods as they are created: an admission server for Kubernetes.
    Webhook(WebhookOptions),
    /// Ask the service of this machine or pod whether it is there: exit 0, or 1.
    Probe(ProbeOptions),
    /// Load a running service and measure it.
    Bench(Box<BenchOptions>),
}

#[derive(Args, Debug)]
pub struct ServeOptions {
    #[command(flatten)]
    config: ConfigOption,
    /// Where claims are kept, without a password: memory://, redis://host:port/database,
    /// redis-sentinel://host,host/service/database, redis-cluster://host,host; with TLS rediss…
    /// [env: DEDUPD_STORE_URL, which may hold one, or DEDUPD_STORE_PASSWORD]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Where gRPC listens: IP:PORT or unix:PATH, once for each [env: DEDUPD_GRPC_LISTEN,
    /// separated by commas]
    #[arg(long, value_name = "ADDR|unix:PATH")]
    grpc_listen: Vec<String>,
    /// Where probes, metrics and the configuration are served [env: DEDUPD_ADMIN_LISTEN]
    #[arg(long, value_name = "ADDR")]
    admin_listen: Option<String>,
    /// How logs are written [env: DEDUPD_LOG_FORMAT] [default: text]
    #[arg(long, value_enum)]
    log_format: Option<LogFormat>,
    /// Serve namespaces whose keys another contract wrote: their claims are not found any more
    #[arg(long)]
    replace_contract: bool,
}

#[derive(Args, Debug)]
pub struct DoctorOptions {
    #[command(flatten)]
    config: ConfigOption,
    /// Where claims are kept, without a password [env: DEDUPD_STORE_URL, which may hold one]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Lines for people, or one JSON object
    #[arg(long, value_enum, default_value = "text")]
    output: OutputFormat,
    /// The least finding that it ends with 1 or 2 for
    #[arg(long, value_enum, default_value = "warning")]
    fail_on: FailOn,
    /// It ends by then, whatever the store does
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    timeout: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum FailOn {
    Warning,
    Failure,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum OutputFormat {
    Text,
    Json,
}

#[derive(Args, Clone, Debug)]
struct ConfigOption {
    /// The YAML file [env: DEDUPD_CONFIG, or DEDUPD_CONFIG_INLINE for the YAML itself]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub struct KeyOptions {
    /// Events, one a line, in the protobuf JSON form of dedupd.v1.Event; `-` is stdin
    #[arg(value_name = "FILE", default_value = "-")]
    events: PathBuf,
    #[command(flatten)]
    config: ConfigOption,
    /// Whose rules apply [default: the only namespace, or the built-in one for the event's kind]
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
    /// Take events however old or far ahead they are
    #[arg(long)]
    no_time_limits: bool,
}

/// What to do, or how to end at once: after help, or a command line that is not understood.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Command, ExitCode> {
    CommandLine::try_parse_from(arguments)
        .map(|line| line.command)
        .map_err(|error| {
            if error.use_stderr() {
                // It shows the arguments, and a URL may be among them.
                eprintln!("{}", redact_user_info(error.to_string().trim_end()));
                ExitCode::from(EXIT_USAGE)
            } else {
                // Who closes the pipe, such as `head`, has read enough.
                let _ = writeln!(io::stdout(), "{}", error.to_string().trim_end());
                ExitCode::SUCCESS
            }
        })
}

/// Runs the service until it is told to stop.
pub fn serve(options: &ServeOptions) -> ExitCode {
    match options.load() {
        Ok((config, log_format)) => app::serve(config, log_format, options.replace_contract),
        Err(errors) => refuse(&errors),
    }
}

/// The effective configuration on stdout, warnings on stderr.
pub fn check(options: &ServeOptions) -> ExitCode {
    let config = match options.load() {
        Ok((config, _)) => config,
        Err(errors) => return refuse(&errors),
    };
    for warning in &config.warnings {
        eprintln!("warning: {warning}");
    }
    match writeln!(io::stdout(), "{:#}", config.redacted()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&format!("cannot write: {error}")),
    }
}

pub use self::{
    advise::{AdviseOptions, advise},
    bench::{BenchOptions, bench},
    doctor::doctor,
    inject::{InjectOptions, ManifestOptions, inject, uninject},
    key::key,
    probe::{ProbeOptions, probe},
    replay::{ReplayOptions, replay},
    synth::{SynthOptions, synth},
    webhook::{WebhookOptions, webhook},
};

impl ServeOptions {
    fn load(&self) -> Result<(Config, LogFormat), ConfigErrors> {
        let flags = Flags {
            config: self.config.config.clone(),
            store: self.store.clone(),
            grpc_listen: self.grpc_listen.clone(),
            admin_listen: self.admin_listen.clone(),
            log_format: self.log_format,
            without_store_files: false,
            memory_limit_bytes: app::memory_limit_bytes(),
        };
        config::load(&flags, &|name| env::var_os(name))
    }
}

fn refuse(errors: &ConfigErrors) -> ExitCode {
    eprintln!("dedupd: {errors}");
    ExitCode::from(EXIT_USAGE)
}

fn fail(message: &str) -> ExitCode {
    eprintln!("dedupd: {message}");
    ExitCode::from(EXIT_FAILED)
}
