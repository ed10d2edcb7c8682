//! `dedupd replay` and `dedupd synth` as a shell sees them.

mod exact;
mod files;
mod service;
mod tables;

use std::process::{Command, Output};

use serde_json::Value;

use crate::support::program::output_of;

/// Runs the binary; what it does not read of `input` is lost.
fn dedupd(arguments: &[&str], input: &[u8]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dedupd"));
    output_of(command.args(arguments).env_clear(), input)
}

/// Of words with single spaces between them.
fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// The report of a replay that succeeds.
#[track_caller]
fn report(arguments: &str, input: &[u8]) -> Value {
    let arguments = format!("replay {arguments} --output json");
    let output = dedupd(&words(&arguments), input);
    assert!(output.status.success(), "{arguments}\n{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[track_caller]
fn synth(arguments: &str) -> Vec<u8> {
    let output = dedupd(&words(&format!("synth {arguments}")), b"");
    assert!(output.status.success(), "{arguments}\n{output:?}");
    output.stdout
}

#[track_caller]
fn strategy<'r>(report: &'r Value, name: &str) -> &'r Value {
    let strategies = report["strategies"].as_array().expect("a list");
    strategies
        .iter()
        .find(|strategy| strategy["name"] == name)
        .unwrap_or_else(|| panic!("no {name} in {report:#}"))
}

fn count(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("{value} is no count"))
}
