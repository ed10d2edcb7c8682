//! What the documents show is what happens.

mod grpcurl;

use std::{fs, path::Path, process::Command};

use dedupd::store::examination::Check;
use serde_json::Value;

use crate::support::service::{Options, Service};

pub(crate) fn document(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The first block of a language behind a line that contains `after`.
pub(crate) fn block<'t>(text: &'t str, language: &str, after: &str) -> &'t str {
    let fence = format!("```{language}\n");
    let text = &text[text.find(after).expect("the heading")..];
    let start = text.find(&fence).expect("a block") + fence.len();
    let end = text[start..].find("\n```").expect("its end");
    &text[start..start + end]
}

#[test]
fn the_grpcurl_call_of_the_readme_gives_its_answer() {
    let Ok(grpcurl) = std::env::var("DEDUPD_TEST_GRPCURL") else {
        return; // Named by tests/run.sh where it is left out.
    };
    let readme = document("README.md");
    let call = block(&readme, "sh", "Ask (with");
    let expected = block(&readme, "json", "Ask (with");
    let service = Service::start(&Options::default());
    let call = call
        .replace("127.0.0.1:50061", &service.grpc_addr().to_string())
        .replacen("grpcurl", &grpcurl, 1);
    let answer = || -> Value {
        let output = Command::new("sh")
            .args(["-c", &call])
            .output()
            .expect("sh runs");
        assert!(output.status.success(), "{call}\n{output:?}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let mut first = answer();
    let mut expected: Value = serde_json::from_str(expected).expect("JSON");
    for verdict in [&mut first, &mut expected] {
        let claim = verdict["verdicts"][0]["claim"].take();
        assert!(
            claim.as_str().is_some_and(|claim| claim.len() > 20),
            "a token: {claim}"
        );
    }
    assert_eq!(first, expected);
    let second = answer();
    assert_eq!(second["verdicts"][0]["decision"], "DECISION_SUPPRESS");
    assert_eq!(second["verdicts"][0]["reason"], "REASON_REDELIVERY");
}

fn printed_by_example(name: &str) -> String {
    let output = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--locked", "--example", name])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).expect("text");
    assert!(printed.lines().count() > 10, "{printed}");
    printed
}

#[test]
fn the_page_of_the_api_is_what_the_comments_say() {
    assert!(
        document("docs/api.md") == printed_by_example("api_page"),
        "docs/api.md is not that of proto/: cargo run --example api_page > docs/api.md"
    );
}

#[test]
fn the_table_of_windows_is_what_the_example_prints() {
    let printed = printed_by_example("windows");
    let shown = document("docs/windows.md");
    assert!(
        shown.contains(printed.trim()),
        "docs/windows.md must hold:\n{printed}"
    );
}

#[test]
fn every_key_of_the_configuration_page_is_understood() {
    let page = document("docs/configuration.md");
    let output = Command::new(env!("CARGO_BIN_EXE_dedupd"))
        .arg("check")
        .env_clear()
        .env("DEDUPD_CONFIG_INLINE", block(&page, "yaml", "## Every key"))
        .output()
        .expect("dedupd runs");
    assert!(output.status.success(), "{output:?}");
    let effective: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let transitions = &effective["namespaces"]["transitions"];
    assert_eq!(transitions["bounds"]["min_revisit"], "5s");
    assert_eq!(effective["namespaces"]["orders"]["lease"], "30s");
}

/// With files that are in order in place of those below `/run`.
#[test]
fn every_topology_of_the_configuration_page_is_understood() {
    let files = tempfile::tempdir().expect("a directory");
    for (name, text) in [
        ("password", "pw"),
        ("ca.crt", "-----BEGIN CERTIFICATE-----"),
        ("tls.crt", "-----BEGIN CERTIFICATE-----"),
        ("tls.key", "-----BEGIN PRIVATE KEY-----"),
    ] {
        fs::write(files.path().join(name), text).expect("the directory is ours");
    }
    let page = document("docs/configuration.md");
    let examples: Vec<_> = block(&page, "yaml", "## Redis").split("\n\n").collect();
    assert!(examples.len() > 5, "{examples:?}");
    for example in examples {
        let namespace =
            "namespaces: { n: { accepts: [keyed], window: none, ttl: 1h, failure_mode: closed } }";
        let secrets = format!("{}/", files.path().display());
        let config = example.replace("/run/dedupd/", &secrets) + "\n" + namespace;
        let output = Command::new(env!("CARGO_BIN_EXE_dedupd"))
            .arg("check")
            .env_clear()
            .env("DEDUPD_CONFIG_INLINE", config)
            .output()
            .expect("dedupd runs");
        assert!(output.status.success(), "{example}\n{output:?}");
    }
}

#[test]
fn every_check_of_the_doctor_is_explained() {
    let page = document("docs/operation.md");
    for check in Check::ALL {
        let row = format!("| `{}` |", check.name());
        assert!(page.contains(&row), "no row {row}");
    }
}

#[test]
fn every_metric_that_the_documents_name_is_exposed() {
    let service = Service::start(&Options::default());
    let (status, exposed) = service.http_get("/metrics");
    assert_eq!(status, 200);
    let mut named = 0;
    for path in [
        "docs/operation.md",
        "docs/guarantees.md",
        "docs/configuration.md",
    ] {
        for word in document(path).split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')) {
            if word.starts_with("dedupd_") {
                named += 1;
                assert!(exposed.contains(word), "{path} names {word}");
            }
        }
    }
    assert!(named > 20, "only {named} names found");
}
