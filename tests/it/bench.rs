//! `dedupd bench` as a shell sees it, against the real service.

mod compare;
mod counts;
mod pace;
mod refusals;

use std::{
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use serde_json::Value;

use crate::{
    client::wait_until,
    support::service::{Options, Service},
};

/// A namespace for each kind, and one with a lease. A busy machine is no outage.
const CONFIG: &str = "store: { budget: 10s }
namespaces:
  transitions: { accepts: [transition], window: { sliding: 1m }, ttl: 1h, failure_mode: closed }
  pings: { accepts: [ping], window: { session: 1h }, place: { resolution: 12 }, ttl: 2h, failure_mode: closed }
  events: { accepts: [keyed], window: none, ttl: 1h, failure_mode: closed }
  leased: { accepts: [keyed], window: none, ttl: 1h, lease: 30m, failure_mode: closed }
";

fn service(store_url: Option<String>) -> Service {
    Service::start(&Options {
        config: Some(CONFIG.to_owned()),
        store_url,
        ..Options::default()
    })
}

/// A load that runs.
fn start(arguments: &str) -> Child {
    Command::new(env!("CARGO_BIN_EXE_dedupd"))
        .arg("bench")
        .args(arguments.split_whitespace())
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("dedupd runs")
}

fn end(child: Child) -> Output {
    child.wait_with_output().expect("dedupd ends")
}

#[track_caller]
fn report(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// The report of a load that gets to its end.
#[track_caller]
fn measure(service: &Service, arguments: &str) -> Value {
    let target = service.grpc_addr();
    report(&end(start(&format!(
        "--target {target} --output json {arguments}"
    ))))
}

#[track_caller]
fn check_fails(output: &Output, code: i32, why: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.contains(why), "{why:?} in {said}");
    assert!(output.stdout.is_empty(), "{output:?}");
}

fn count(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("{value} is no count"))
}

/// What the service has counted.
fn counted(service: &Service, namespace: &str, decision: &str, reason: &str) -> u64 {
    let series = format!(
        r#"dedupd_decisions_total{{namespace="{namespace}",decision="{decision}",reason="{reason}"}}"#
    );
    service.metric(&series).expect("every reason is there") as u64
}

fn wait_for_events(service: &Service, namespace: &str) {
    wait_until("the load has begun", || {
        counted(service, namespace, "ADMIT", "FIRST_SEEN") > 0
    });
}

const STALL: Duration = Duration::from_secs(1);
