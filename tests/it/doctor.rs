//! `dedupd doctor` and the service's own examinations, against real servers that have something
//! wrong with them.

mod clock;
mod contracts;
mod keys;
mod permissions;
mod servers;
mod service;
mod topologies;
mod unreachable;
mod whole;

use std::{
    env,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

/// Keyed events, and crossings whose plans have neighbours.
const CONFIG: &str = "store: { budget: 1s }
namespaces:
  crossings: { accepts: [transition], window: { tumbling: 60s, guard: 5s }, ttl: 600s, failure_mode: closed }
  orders: { accepts: [keyed], window: none, ttl: 600s, failure_mode: closed }
";

/// What `dedupd doctor` said.
#[derive(Debug)]
struct Report {
    code: Option<i32>,
    stdout: String,
    stderr: String,
    took: Duration,
}

/// A finding of its JSON: check, severity, about, message.
type Row = (String, String, Option<String>, String);

/// Runs `dedupd doctor` with these `DEDUPD_…` variables only.
fn run(arguments: &[&str], environment: &[(&str, &str)]) -> Report {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dedupd"));
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("DEDUPD_") {
            command.env_remove(name);
        }
    }
    command.arg("doctor").args(arguments);
    command.envs(environment.iter().copied());
    let begun = Instant::now();
    let output = command.stdin(Stdio::null()).output().expect("dedupd runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Report {
        code: output.status.code(),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
        took: begun.elapsed(),
    }
}

/// On the usual namespaces, as JSON.
fn doctor(url: &str) -> Report {
    doctor_of(CONFIG, url)
}

fn doctor_of(config: &str, url: &str) -> Report {
    run(
        &["--output", "json"],
        &[("DEDUPD_CONFIG_INLINE", config), ("DEDUPD_STORE_URL", url)],
    )
}

impl Report {
    fn object(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    fn findings(&self) -> Vec<Row> {
        let object = self.object();
        let findings = object["findings"].as_array().expect("a list");
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let row = |finding: &Value| {
            let of = |name: &str| text(&finding[name]);
            Some((of("check")?, of("severity")?, of("about"), of("message")?))
        };
        let rows: Option<Vec<_>> = findings.iter().map(row).collect();
        rows.expect("whole findings")
    }

    /// What is wrong: checks with what they are about, and what is said.
    fn faults(&self, severity: &str) -> Vec<(String, String)> {
        let found = self.findings().into_iter();
        let found = found.filter(|(_, of, _, _)| of == severity);
        let named = found.map(|(check, _, about, message)| match about {
            Some(about) => (format!("{check} {about}"), message),
            None => (check, message),
        });
        named.collect()
    }

    /// Only these are failures, each saying so; the exit code agrees.
    #[track_caller]
    fn check_failures(&self, expected: &[(&str, &str)]) {
        self.check("failure", 2, expected);
    }

    /// Only these are warnings, and there is nothing worse.
    #[track_caller]
    fn check_warnings(&self, expected: &[(&str, &str)]) {
        assert_eq!(self.faults("failure"), [], "{self:?}");
        self.check("warning", if expected.is_empty() { 0 } else { 1 }, expected);
    }

    #[track_caller]
    fn check(&self, severity: &str, code: i32, expected: &[(&str, &str)]) {
        let found = self.faults(severity);
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        let expected_names: Vec<&str> = expected.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, expected_names, "{self:?}");
        for ((_, message), (name, part)) in found.iter().zip(expected) {
            assert!(message.contains(part), "{name}: {part:?} in {message:?}");
        }
        assert_eq!(self.code, Some(code), "{self:?}");
        assert_eq!(self.stderr, "", "{self:?}");
    }

    #[track_caller]
    fn check_notes(&self, name: &str, part: &str) {
        let found = self.faults("note");
        let says = |(of, message): &(String, String)| of == name && message.contains(part);
        assert!(found.iter().any(says), "{name}: {part:?} in {found:?}");
    }
}
