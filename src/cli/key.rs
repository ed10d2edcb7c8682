//! `dedupd key`: what an event's keys are and what they are made of, without a store.

use std::{
    env,
    fs::File,
    io::{self, BufRead, BufReader, Read, Write},
    path::Path,
    process::ExitCode,
    sync::Arc,
};

use serde_json::{Value, json};

use super::{EXIT_FAILED, EXIT_USAGE, KeyOptions, event_json::JsonEvent, fail, refuse};
use crate::{
    clock::Clock,
    config::{self, Flags},
    domain::{
        event::{Event, RawEvent},
        identity::RawIdentity,
        kind::{Accepts, Kind},
        plan::Planner,
        policy::Policy,
        reason::Rejection,
        time::EventTime,
        time::{Implausible, TimeLimits},
    },
};

/// Far longer than an event with its longest ids.
const MAX_LINE_BYTES: u64 = 64 << 10;

/// For each line of events a line of JSON: keys, or what is wrong with the event.
pub fn key(options: &KeyOptions) -> ExitCode {
    let flags = Flags {
        config: options.config.config.clone(),
        without_store_files: true,
        ..Flags::default()
    };
    // On a cluster keys have another layout; where to listen plays no part here.
    let environment = |name: &str| {
        env::var_os(name).filter(|_| {
            ["DEDUPD_CONFIG", "DEDUPD_STORE"]
                .iter()
                .any(|ours| name.starts_with(ours))
        })
    };
    let config = match config::load(&flags, &environment) {
        Ok((config, _)) => config,
        Err(errors) => return refuse(&errors),
    };
    let mut namespaces = config.namespaces;
    if options.no_time_limits {
        let unlimited = TimeLimits::new(None, None, Implausible::DeadLetter);
        for policy in &mut namespaces {
            *policy = Arc::new(Policy::clone(policy).with_time_limits(unlimited));
        }
    }
    let prepared = candidates(namespaces, options.namespace.as_deref())
        .and_then(|namespaces| Ok((namespaces, open(&options.events)?)));
    let (namespaces, events) = match prepared {
        Ok(prepared) => prepared,
        Err(message) => {
            eprintln!("dedupd: {message}");
            return ExitCode::from(EXIT_USAGE);
        }
    };
    match answer_lines(events, &namespaces, &mut io::stdout().lock()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(EXIT_FAILED),
        Err(error) => fail(&error.to_string()),
    }
}

fn open(path: &Path) -> Result<Box<dyn BufRead>, String> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin().lock()));
    }
    match File::open(path) {
        Ok(file) => Ok(Box::new(BufReader::new(file))),
        Err(error) => Err(format!("cannot read {}: {error}", path.display())),
    }
}

/// The namespaces to choose from: the one that is named, else all, if no kind has a choice of two.
fn candidates(
    namespaces: Vec<Arc<Policy>>,
    name: Option<&str>,
) -> Result<Vec<Arc<Policy>>, String> {
    let names: Vec<_> = namespaces
        .iter()
        .map(|policy| policy.name().as_str())
        .collect();
    let names = names.join(", ");
    if let Some(name) = name {
        let named = namespaces
            .into_iter()
            .find(|policy| policy.name().as_str() == name);
        return named
            .map(|policy| vec![policy])
            .ok_or_else(|| format!("--namespace: there is no {name:?}; there are {names}"));
    }
    for kind in [Kind::Transition, Kind::Ping, Kind::Keyed] {
        if namespaces
            .iter()
            .filter(|policy| policy.accepts().contains(kind))
            .count()
            > 1
        {
            let kinds = Accepts::from_kinds([kind]);
            return Err(format!(
                "several namespaces accept {kinds}: choose one with --namespace, of {names}"
            ));
        }
    }
    Ok(namespaces)
}

/// Whether every event had keys.
fn answer_lines(
    mut events: impl BufRead,
    namespaces: &[Arc<Policy>],
    out: &mut impl Write,
) -> io::Result<bool> {
    let clock = Clock::system();
    let mut all_answered = true;
    let mut line = Vec::new();
    for number in 1_u64.. {
        line.clear();
        if events
            .by_ref()
            .take(MAX_LINE_BYTES)
            .read_until(b'\n', &mut line)?
            == 0
        {
            break;
        }
        if line.len() as u64 == MAX_LINE_BYTES && line.last() != Some(&b'\n') {
            let message = format!("line {number} has {MAX_LINE_BYTES} bytes or more");
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        let answer = answer(&line, namespaces, clock.now()).unwrap_or_else(|fault| {
            all_answered = false;
            json!({ "error": { "reason": fault.0, "detail": format!("line {number}: {}", fault.1) } })
        });
        writeln!(out, "{answer}")?;
    }
    Ok(all_answered)
}

/// A reason and its detail.
struct Fault(&'static str, String);

impl From<Rejection> for Fault {
    fn from(rejection: Rejection) -> Self {
        Self(rejection.reason.name(), rejection.detail.into_owned())
    }
}

fn answer(line: &[u8], namespaces: &[Arc<Policy>], now: EventTime) -> Result<Value, Fault> {
    let unreadable = |detail: String| Fault("UNREADABLE", detail);
    let written: JsonEvent =
        serde_json::from_slice(line).map_err(|error| unreadable(error.to_string()))?;
    let raw = written.to_raw().map_err(unreadable)?;
    let accepting = namespaces
        .iter()
        .find(|policy| kind(&raw).is_some_and(|kind| policy.accepts().contains(kind)));
    // What no namespace accepts is refused by any of them; a configuration has at least one.
    let Some(policy) = accepting.or(namespaces.first()) else {
        return Err(Fault("UNREADABLE", "there is no namespace".to_owned()));
    };
    Ok(keys(&Event::new(&raw, policy, now)?, policy))
}

const fn kind(raw: &RawEvent<'_>) -> Option<Kind> {
    match raw.identity {
        RawIdentity::Unset => None,
        RawIdentity::Transition { .. } => Some(Kind::Transition),
        RawIdentity::Ping { .. } => Some(Kind::Ping),
        RawIdentity::Keyed { .. } => Some(Kind::Keyed),
    }
}

fn keys(event: &Event<'_>, policy: &Policy) -> Value {
    let mut planner = Planner::new(policy, 1);
    planner.plan(event, 0);
    let material = planner.material(event);
    let batch = planner.finish();
    let keys: Vec<_> = batch
        .plans()
        .iter()
        .flat_map(|plan| batch.keys(plan).map(|(name, _)| (name, plan.partition())))
        .map(|(name, partition)| {
            let mut key = Vec::new();
            policy.scheme().write_key(name, partition, &mut key);
            String::from_utf8_lossy(&key).into_owned()
        })
        .collect();
    json!({
        "namespace": policy.name().as_str(),
        "material": material,
        "keys": keys,
        "cell": event.fix().map(|fix| fix.cell.to_string()),
        "contract": policy.contract(),
    })
}
