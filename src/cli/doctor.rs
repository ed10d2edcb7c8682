//! `dedupd doctor`: what is wrong with the store, as the service would meet it.

use std::{
    env,
    io::{self, Write},
    process::ExitCode,
};

use serde_json::{Value, json};

use super::{DoctorOptions, EXIT_FAILED, EXIT_UNHEALTHY, FailOn, OutputFormat, fail, refuse};
use crate::{
    app,
    config::{self, Config, Flags},
    domain::policy::Policy,
    store::examination::{Examination, Finding, FoundContract, Sample, ServerFacts, Severity},
};

/// Ends with 0, 1 after warnings unless told otherwise, 2 after failures.
pub fn doctor(options: &DoctorOptions) -> ExitCode {
    let flags = Flags {
        config: options.config.config.clone(),
        store: options.store.clone(),
        ..Flags::default()
    };
    let config = match config::load(&flags, &|name| env::var_os(name)) {
        Ok((config, _)) => config,
        Err(errors) => return refuse(&errors),
    };
    let examination = match app::examine(&config, options.timeout) {
        Ok(examination) => examination,
        Err(error) => {
            eprintln!("dedupd: the operating system refuses what is needed: {error}");
            return ExitCode::from(EXIT_UNHEALTHY);
        }
    };
    let mut out = io::stdout().lock();
    let written = match options.output {
        OutputFormat::Text => write_text(&examination, &config, &mut out),
        OutputFormat::Json => writeln!(out, "{:#}", object(&examination, &config)),
    };
    match (written, examination.worst()) {
        (Err(error), _) => fail(&format!("cannot write: {error}")),
        (Ok(()), Severity::Ok | Severity::Note) => ExitCode::SUCCESS,
        (Ok(()), Severity::Warning) if options.fail_on == FailOn::Failure => ExitCode::SUCCESS,
        (Ok(()), Severity::Warning) => ExitCode::from(EXIT_FAILED),
        (Ok(()), Severity::Failure) => ExitCode::from(EXIT_UNHEALTHY),
    }
}

fn write_text(examination: &Examination, config: &Config, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}", config.store.url)?;
    for Finding {
        check,
        severity,
        about,
        message,
    } in &examination.findings
    {
        let mark = match severity {
            Severity::Ok => "ok",
            Severity::Note => "note",
            Severity::Warning => "WARNING",
            Severity::Failure => "FAILURE",
        };
        let about = about.as_ref().map(|about| format!("{about}: "));
        let (check, about) = (check.name(), about.unwrap_or_default());
        writeln!(out, "{mark:<8} {check:<14} {about}{message}")?;
    }
    let count = |severity: Severity| {
        let findings = examination.findings.iter();
        findings
            .filter(|finding| finding.severity == severity)
            .count()
    };
    let (failures, warnings) = (count(Severity::Failure), count(Severity::Warning));
    writeln!(
        out,
        "failures: {failures}, warnings: {warnings}, notes: {}",
        count(Severity::Note)
    )
}

fn object(examination: &Examination, config: &Config) -> Value {
    let namespaces = config.namespaces.iter().enumerate();
    json!({
        "store": config.store.url.to_string(),
        "worst": examination.worst().name(),
        "findings": examination.findings.iter().map(finding).collect::<Vec<_>>(),
        "servers": examination.servers.iter().map(server).collect::<Vec<_>>(),
        "namespaces": namespaces
            .map(|(index, policy)| namespace(policy, examination.contracts.get(index)))
            .collect::<Vec<_>>(),
        "samples": examination.samples.iter().map(sample).collect::<Vec<_>>(),
    })
}

fn finding(finding: &Finding) -> Value {
    json!({
        "check": finding.check.name(),
        "severity": finding.severity.name(),
        "about": finding.about,
        "message": finding.message,
    })
}

/// `null` is what is not known.
fn server(server: &ServerFacts) -> Value {
    json!({
        "address": server.address,
        "version": server.version,
        "eviction": server.eviction,
        "evicted_keys": server.evicted_keys,
        "used_memory_bytes": server.used_memory_bytes,
        "max_memory_bytes": server.max_memory_bytes,
        "replicas": server.replicas,
        "clock_offset_s": server.clock_offset_s,
        "round_trip_s": server.round_trip.map(|trip| trip.as_secs_f64()),
    })
}

fn namespace(policy: &Policy, found: Option<&FoundContract>) -> Value {
    let theirs = match found {
        Some(FoundContract::Line(line)) => Some(line),
        Some(FoundContract::NotRead | FoundContract::Absent | FoundContract::Unreadable(_))
        | None => None,
    };
    json!({
        "name": policy.name().as_str(),
        "prefix": policy.scheme().prefix(),
        "layout": policy.scheme().layout().name(),
        "contract": policy.contract(),
        "contract_in_store": theirs,
    })
}

fn sample(sample: &Sample) -> Value {
    json!({
        "prefix": sample.prefix,
        "complete": sample.complete,
        "keys": sample.keys,
        "claims": sample.claims,
        "newer": sample.newer,
        "foreign": sample.foreign,
        "other_types": sample.other_types,
        "without_ttl": sample.without_ttl,
    })
}
