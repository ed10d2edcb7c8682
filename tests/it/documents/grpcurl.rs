//! The calls of docs/grpcurl.md: each is run, and gives the answer that stands below it.

use std::{collections::BTreeMap, env, process::Command};

use serde_json::{Deserializer, Value};

use super::{block, document};
use crate::support::service::{Options, Service};

/// What differs from run to run.
const DIFFERS: [&str; 3] = ["claim", "expiresIn", "at"];

/// The calls in their order, each with the language and text of its answer.
fn calls(page: &str) -> Vec<(&str, &str, &str)> {
    let fences: Vec<&str> = page.split("```").collect();
    let blocks: Vec<(&str, &str)> = fences
        .iter()
        .skip(1)
        .step_by(2)
        .map(|block| block.split_once('\n').expect("a line of its own"))
        .collect();
    let mut calls = Vec::new();
    for (place, (language, call)) in blocks.iter().enumerate() {
        if *language == "sh" {
            let (language, answer) = blocks.get(place + 1).expect("an answer");
            assert_ne!(*language, "sh", "no answer below:\n{call}");
            calls.push((*call, *language, *answer));
        }
    }
    calls
}

/// Compares, and notes which token of the page is which of this run.
fn check(shown: &Value, actual: &Value, tokens: &mut BTreeMap<String, String>, call: &str) {
    match (shown, actual) {
        (Value::Object(shown), Value::Object(actual)) => {
            let names = |fields: &serde_json::Map<String, Value>| {
                fields.keys().cloned().collect::<Vec<_>>()
            };
            assert_eq!(names(shown), names(actual), "{call}");
            for (name, value) in shown {
                match (name.as_str(), value, &actual[name]) {
                    ("claim", Value::String(shown), Value::String(actual)) => {
                        tokens.insert(shown.clone(), actual.clone());
                    }
                    (name, Value::String(_), Value::String(_)) if DIFFERS.contains(&name) => {}
                    (_, shown, actual) => check(shown, actual, tokens, call),
                }
            }
        }
        (Value::Array(shown), Value::Array(actual)) => {
            assert_eq!(shown.len(), actual.len(), "{call}");
            for (shown, actual) in shown.iter().zip(actual) {
                check(shown, actual, tokens, call);
            }
        }
        (shown, actual) => assert_eq!(shown, actual, "{call}"),
    }
}

fn json(text: &str) -> Value {
    let values = Deserializer::from_str(text).into_iter::<Value>();
    Value::Array(values.map(|value| value.expect(text)).collect())
}

/// White space in what is not JSON differs between builds of grpcurl.
fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

#[test]
fn every_call_of_the_grpcurl_page_gives_its_answer() {
    let Ok(grpcurl) = env::var("DEDUPD_TEST_GRPCURL") else {
        return; // Named by tests/run.sh where it is left out.
    };
    let page = document("docs/grpcurl.md");
    let config = block(&page, "yaml", "Every call").to_owned();
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("dedupd.sock").display().to_string();
    let service = Service::start(&Options {
        config: Some(config),
        args: vec!["--grpc-listen".to_owned(), format!("unix:{socket}")],
        ..Options::default()
    });
    let mut tokens: BTreeMap<String, String> = BTreeMap::new();
    let calls = calls(&page);
    assert!(calls.len() > 15, "only {} calls", calls.len());
    for (shown_call, language, shown) in calls {
        let mut call = shown_call
            .replace("127.0.0.1:50061", &service.grpc_addr().to_string())
            .replace("/run/dedupd/dedupd.sock", &socket)
            .replace("grpcurl -", &format!("{grpcurl} -"));
        for (token, ours) in &tokens {
            call = call.replace(token, ours);
        }
        let output = Command::new("sh")
            .args(["-c", &call])
            .current_dir(directory.path())
            .output()
            .expect("sh runs");
        let text = [output.stdout, output.stderr].concat();
        let actual = String::from_utf8(text).expect("text");
        match language {
            "json" => check(&json(shown), &json(&actual), &mut tokens, shown_call),
            _ => assert_eq!(words(shown), words(&actual), "{shown_call}"),
        }
    }
}
