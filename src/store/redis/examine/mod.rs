//! Looks the server over, as the service meets it: by a connection that is made like the lanes' own.
//!
//! It never takes longer than it is given, whatever the server does: what was found by then is the
//! answer, and what it was waiting for is the last finding.

mod info;
mod judge;
mod refusal;
mod sample;
mod servers;
mod trial;
mod words;

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use parking_lot::Mutex;
use redis::{RedisError, Value};
use tokio::time::{Instant, timeout_at};

use self::{
    info::Info,
    judge::{ClockReading, Expected, Introspection, Observed},
    servers::Server,
    trial::{Trial, send},
    words::advice,
};
use super::{
    connection::Dialer,
    error::{reason, shown},
    target::Topology,
    wire::{Commands, Wire},
    work::error_of,
};
use crate::{
    clock::Clock,
    domain::key::{KeyScheme, RESERVED_PREFIX},
    store::{
        StoreError,
        examination::{
            Check, Examination, ExamineRequest, Finding, FoundContract, Sample, ServerFacts,
            Severity,
        },
    },
};

/// Their median is the round trip.
const PINGS: usize = 5;
/// The quickest of them tells the server's time best.
const CLOCK_READINGS: usize = 3;

#[derive(Clone)]
pub(super) struct Examiner {
    dialer: Dialer,
    schemes: Arc<[KeyScheme]>,
    budget: Duration,
    /// They are not asked again, since a server keeps a log of what it refuses.
    refused: Arc<Mutex<Vec<Introspection>>>,
}

/// What was found on one server by now, and what is being waited for.
struct Look {
    findings: Vec<Finding>,
    facts: Option<ServerFacts>,
    contracts: Vec<FoundContract>,
    samples: Vec<Sample>,
    step: &'static str,
}

impl Examiner {
    pub(super) fn new(dialer: Dialer, schemes: Arc<[KeyScheme]>, budget: Duration) -> Self {
        Self {
            dialer,
            schemes,
            budget,
            refused: Arc::default(),
        }
    }

    pub(super) async fn examine(self, request: ExamineRequest) -> Examination {
        let deadline = Instant::now() + request.limit;
        let mut findings = Vec::new();
        let connecting = timeout_at(deadline, servers::connect(&self.dialer, &mut findings)).await;
        let servers = connecting.unwrap_or_else(|_| {
            findings.push(no_answer(&request, "connecting"));
            Vec::new()
        });
        let mut examination = Examination {
            findings,
            contracts: vec![FoundContract::NotRead; request.namespaces.len()],
            ..Examination::default()
        };
        let looks = servers
            .into_iter()
            .map(|server| self.look(server, &request, deadline));
        for look in join_all(looks).await {
            take(&mut examination, look);
        }
        examination.findings.sort_by_key(|finding| finding.check);
        examination
    }

    async fn look(&self, server: Server, request: &ExamineRequest, deadline: Instant) -> Look {
        let Server { address, client } = server;
        let mut look = Look {
            findings: Vec::new(),
            facts: None,
            contracts: vec![FoundContract::NotRead; request.namespaces.len()],
            samples: Vec::new(),
            step: "asking what it is",
        };
        let looking = self.look_over(&client, request, &mut look);
        let finding = match timeout_at(deadline, looking).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => {
                let (why, step) = (reason(&error), look.step);
                let message = format!("the connection broke while {step}: {why}");
                Some(Finding::new(Check::Connection, Severity::Failure, message))
            }
            Err(_) => Some(no_answer(request, look.step)),
        };
        look.findings.extend(finding);
        if let Some(address) = address {
            for finding in &mut look.findings {
                finding.about = Some(match finding.about.take() {
                    None => address.clone(),
                    Some(about) => format!("{about} at {address}"),
                });
            }
            if let Some(facts) = &mut look.facts {
                facts.address = Some(address);
            }
        }
        look
    }

    async fn look_over(
        &self,
        client: &Wire,
        request: &ExamineRequest,
        look: &mut Look,
    ) -> Result<(), RedisError> {
        let target = self.dialer.target();
        let is_cluster = matches!(target.topology, Topology::Cluster { .. });
        let unasked = self.refused.lock().clone();
        let observed = observe(client, &request.clock, unasked).await?;
        self.refused.lock().clone_from(&observed.refused);
        look.facts = Some(judge::facts(&observed));
        let expected = Expected {
            is_cluster,
            wait_replicas: target.wait_replicas,
            budget: self.budget,
        };
        look.findings.extend(judge::findings(&observed, expected));

        look.step = "reading contracts";
        read_contracts(client, request, &mut look.contracts).await?;

        look.step = "trying what the service does";
        let trial = Trial {
            schemes: &self.schemes,
            is_thorough: request.is_thorough,
            is_cluster,
            waits: target.wait_replicas > 0,
        };
        look.findings.extend(trial.attempt(client).await?);

        if request.is_thorough {
            look.step = "looking at keys";
            self.look_at_keys(client, look).await?;
        }
        Ok(())
    }

    async fn look_at_keys(&self, client: &Wire, look: &mut Look) -> Result<(), RedisError> {
        for scheme in self.schemes.iter() {
            let samples = &mut look.samples;
            if samples.iter().all(|one| one.prefix != scheme.prefix()) {
                samples.push(Sample {
                    prefix: scheme.prefix().to_owned(),
                    pattern: sample::glob(scheme.prefix()),
                    complete: true,
                    ..Sample::default()
                });
            }
        }
        let steps = sample::steps_each(look.samples.len());
        for sample in &mut look.samples {
            if !sample::look(client, sample, steps).await? {
                look.samples.clear();
                look.findings.push(Finding::new(
                    Check::Introspection,
                    Severity::Note,
                    "SCAN or GETRANGE is refused: what stands under the prefixes is not known; \
                     permit +scan +getrange",
                ));
                break;
            }
        }
        Ok(())
    }
}

fn no_answer(request: &ExamineRequest, step: &str) -> Finding {
    let (limit, advice) = (request.limit, advice(StoreError::Timeout));
    let message = format!("no answer within {limit:?}, while {step}; {advice}");
    Finding::new(Check::Connection, Severity::Failure, message)
}

/// Adds what was found on one server.
fn take(examination: &mut Examination, look: Look) {
    examination.findings.extend(look.findings);
    examination.servers.extend(look.facts);
    for (known, found) in examination.contracts.iter_mut().zip(look.contracts) {
        if *known == FoundContract::NotRead {
            *known = found;
        }
    }
    for sample in look.samples {
        let samples = &mut examination.samples;
        match samples.iter_mut().find(|one| one.prefix == sample.prefix) {
            Some(known) => known.add(&sample),
            None => samples.push(sample),
        }
    }
}

async fn observe(
    client: &Wire,
    clock: &Clock,
    unasked: Vec<Introspection>,
) -> Result<Observed, RedisError> {
    let asks = |command| !unasked.contains(&command);
    let (asks_info, asks_config) = (asks(Introspection::Info), asks(Introspection::Config));
    let asks_time = asks(Introspection::Time);
    let mut observed = Observed {
        refused: unasked,
        ..Observed::default()
    };
    if asks_info {
        let mut pipeline = Commands::default();
        pipeline.cmd("INFO");
        match send(client, pipeline).await?.first() {
            Some(Value::BulkString(text)) => {
                observed.info = Some(Info::parse(&String::from_utf8_lossy(text)));
            }
            other => observed.note(other, Introspection::Info),
        }
    }
    if asks_config {
        let mut pipeline = Commands::default();
        pipeline.cmd("CONFIG").arg("GET").arg("save");
        match send(client, pipeline).await?.first() {
            Some(Value::Map(pairs)) => {
                observed.snapshots = pairs.first().map(|(_, points)| is_text(points));
            }
            Some(Value::Array(pairs)) => observed.snapshots = pairs.get(1).map(is_text),
            other => observed.note(other, Introspection::Config),
        }
    }
    let mut trips = Vec::with_capacity(PINGS);
    for _ in 0..PINGS {
        let (trip, _) = timed(client, "PING").await?;
        trips.push(trip);
    }
    trips.sort_unstable();
    observed.round_trip = trips.get(PINGS / 2).copied();
    for _ in 0..if asks_time { CLOCK_READINGS } else { 0 } {
        let sent_at_ns = clock.now().unix_nanos();
        let (trip, reply) = timed(client, "TIME").await?;
        let Some(server_s) = read_time(&reply) else {
            observed.note(Some(&reply), Introspection::Time);
            break;
        };
        let error_s = trip.as_secs_f64() / 2.0;
        let reading = ClockReading {
            offset_s: server_s - sent_at_ns as f64 / 1e9 - error_s,
            error_s,
        };
        let best = observed.clock.filter(|best| best.error_s <= error_s);
        observed.clock = Some(best.unwrap_or(reading));
    }
    Ok(observed)
}

impl Observed {
    /// Whether a command is refused, or renamed; any other error is told by the trial.
    fn note(&mut self, reply: Option<&Value>, command: Introspection) {
        let error = reply.map(error_of);
        if matches!(error, Some(StoreError::Denied | StoreError::Other)) {
            self.refused.push(command);
        }
    }
}

fn is_text(value: &Value) -> bool {
    matches!(value, Value::BulkString(text) if !text.is_empty())
}

async fn timed(client: &Wire, command: &str) -> Result<(Duration, Value), RedisError> {
    let mut pipeline = Commands::default();
    pipeline.cmd(command);
    let sent_at = Instant::now();
    let reply = send(client, pipeline).await?.pop();
    Ok((sent_at.elapsed(), reply.unwrap_or(Value::Nil)))
}

/// `[seconds, microseconds]`
fn read_time(reply: &Value) -> Option<f64> {
    let Value::Array(parts) = reply else {
        return None;
    };
    let [Value::BulkString(seconds), Value::BulkString(micros)] = parts.as_slice() else {
        return None;
    };
    let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<u32>().ok();
    Some(f64::from(number(seconds)?) + f64::from(number(micros)?) / 1e6)
}

/// Of those that are not known yet: on a cluster each server knows some.
async fn read_contracts(
    client: &Wire,
    request: &ExamineRequest,
    contracts: &mut [FoundContract],
) -> Result<(), RedisError> {
    let mut pipeline = Commands::default();
    for namespace in &request.namespaces {
        pipeline
            .cmd("GET")
            .arg(format!("{RESERVED_PREFIX}contract:{namespace}"));
    }
    let replies = send(client, pipeline).await?;
    for (contract, reply) in contracts.iter_mut().zip(&replies) {
        let found = match reply {
            Value::Nil => FoundContract::Absent,
            Value::BulkString(line) => FoundContract::Line(shown(&String::from_utf8_lossy(line))),
            other => match error_of(other) {
                error @ StoreError::WrongType => FoundContract::Unreadable(error),
                // Another server has it, or the trial tells what is wrong.
                _ => continue,
            },
        };
        *contract = found;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_time_is_a_time() {
        let bulk = |text: &str| Value::BulkString(text.into());
        let rows = [
            (
                vec![bulk("1700000000"), bulk("500000")],
                Some(1_700_000_000.5),
            ),
            (vec![bulk("-1"), bulk("0")], None),
            (vec![bulk("1"), Value::Int(5)], None),
            (vec![], None),
        ];
        for (parts, expected) in rows {
            assert_eq!(
                read_time(&Value::Array(parts.clone())),
                expected,
                "{parts:?}"
            );
        }
        assert_eq!(read_time(&Value::Nil), None);
    }
}
