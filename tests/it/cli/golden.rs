//! The keys of the golden vectors, made with the reference libraries of Python.

use std::{collections::BTreeMap, fs};

use serde_json::{Value, json};

use super::{dedupd, objects};

/// A namespace (its name and what a file says of it), an event, and a part of the answer.
struct Vector {
    namespace: Value,
    event: Value,
    answer: Value,
}

/// Vectors with the same namespace go through one process.
fn check_vectors(file: &str, to_vector: impl Fn(&Value) -> Vector) {
    let path = format!("{}/tests/data/golden/{file}", env!("CARGO_MANIFEST_DIR"));
    let mut by_namespace: BTreeMap<String, Vec<(Value, Value)>> = BTreeMap::new();
    for line in fs::read_to_string(path).expect("the vectors").lines() {
        let golden = serde_json::from_str(line).expect("JSON");
        let Vector {
            namespace,
            event,
            answer,
        } = to_vector(&golden);
        let config = json!({ "namespaces": namespace }).to_string();
        by_namespace
            .entry(config)
            .or_default()
            .push((event, answer));
    }
    assert!(!by_namespace.is_empty(), "{file}");
    for (config, vectors) in by_namespace {
        let input: String = vectors
            .iter()
            .map(|(event, _)| format!("{event}\n"))
            .collect();
        let output = dedupd(
            &["key", "--no-time-limits"],
            &[("DEDUPD_CONFIG_INLINE", &config)],
            &input,
        );
        assert_eq!(
            output.status.code(),
            Some(0),
            "{config}\n{input}\n{output:?}"
        );
        let answers = objects(&output);
        assert_eq!(answers.len(), vectors.len());
        for ((event, expected), answer) in vectors.iter().zip(answers) {
            for (field, value) in expected.as_object().expect("an object") {
                assert_eq!(&answer[field], value, "{field} of {event} under {config}");
            }
        }
    }
}

fn escaped(id: &Value) -> String {
    let id = id.as_str().expect("text");
    id.replace('\\', "\\\\").replace('|', "\\|")
}

fn nanoseconds(number: &Value) -> String {
    format!("{number}ns")
}

#[test]
fn golden_transition_keys() {
    check_vectors("transition_keys.jsonl", |golden| {
        let window = json!({ "tumbling": nanoseconds(&golden["width_ns"]), "guard": nanoseconds(&golden["guard_ns"]) });
        let kind = golden["kind"].as_str().expect("text");
        Vector {
            namespace: json!({ "transitions": {
                "accepts": ["transition"], "window": window, "ttl": "30d", "failure_mode": "closed",
            } }),
            event: json!({
                "transition": {
                    "deviceId": golden["device_id"],
                    "fenceId": golden["fence_id"],
                    "kind": format!("TRANSITION_KIND_{kind}"),
                },
                "occurredAtUnixNanos": golden["event_time_unix_nanos"],
            }),
            answer: json!({
                "keys": golden["keys"],
                "material": format!(
                    "{}|{}|{}|{}",
                    escaped(&golden["device_id"]),
                    escaped(&golden["fence_id"]),
                    if kind == "EXIT" { "X" } else { &kind[..1] },
                    golden["bucket"]
                ),
            }),
        }
    });
}

#[test]
fn golden_ping_keys() {
    check_vectors("ping_keys.jsonl", |golden| {
        let (id, cell) = (
            golden["asset_id"].as_str().expect("text"),
            golden["cell"].as_str().expect("text"),
        );
        let id = id.replace('\\', r"\\").replace('|', r"\|");
        Vector {
            namespace: json!({ "pings": {
                "accepts": ["ping"],
                "window": { "tumbling": format!("{}s", golden["width_s"]) },
                "place": { "resolution": golden["h3_resolution"] },
                "ttl": "30d",
                "failure_mode": "open",
            } }),
            event: json!({
                "ping": {
                    "asset_id": golden["asset_id"],
                    "lat_lng": { "latitude": golden["latitude"], "longitude": golden["longitude"] },
                },
                "occurred_at_unix_nanos": golden["event_time_unix_nanos"].to_string(),
            }),
            answer: json!({
                "keys": [golden["key"]],
                "cell": cell,
                "material": format!("{id}|{}|{cell}", golden["bucket_start_s"]),
            }),
        }
    });
}

#[test]
fn golden_variant_keys() {
    check_vectors("variant_keys.jsonl", |golden| {
        let Value::Object(golden) = golden else {
            panic!("not an object: {golden}")
        };
        let (namespace, event) = (&golden["namespace"], &golden["event"]);
        let written = &namespace["window"];
        let window = if let Some(width) = written.get("sliding_ns") {
            json!({ "sliding": nanoseconds(width) })
        } else if let Some(gap) = written.get("session_ns") {
            json!({ "session": nanoseconds(gap) })
        } else if written.is_string() {
            written.clone()
        } else {
            json!({
                "tumbling": nanoseconds(&written["tumbling_ns"]),
                "guard": nanoseconds(&written["guard_ns"]),
            })
        };
        let kind = ["transition", "ping", "keyed"]
            .into_iter()
            .find(|kind| event.get(kind).is_some());
        let kind = kind.expect("one of three kinds");
        let mut identity = event[kind].clone();
        if kind == "transition" {
            identity["kind"] = json!(format!(
                "TRANSITION_KIND_{}",
                identity["kind"].as_str().expect("text")
            ));
        }
        if let (Some(latitude), Some(longitude)) =
            (event[kind].get("latitude"), event[kind].get("longitude"))
        {
            identity = json!({
                "asset_id": identity["asset_id"],
                "lat_lng": { "latitude": latitude, "longitude": longitude },
            });
        }
        let place = if namespace["place"].is_null() {
            json!("none")
        } else {
            namespace["place"].clone()
        };
        let name = namespace["name"].as_str().expect("text");
        Vector {
            namespace: json!({ name: {
                "accepts": [kind],
                "window": window,
                "place": place,
                "ttl": "30d",
                "failure_mode": "closed",
                "key": {
                    "prefix": namespace["prefix"],
                    "layout": namespace["layout"],
                    "digest": namespace["digest"],
                },
            } }),
            event: json!({ kind: identity, "occurred_at_unix_nanos": event["event_time_unix_nanos"] }),
            answer: json!({ "keys": golden["keys"], "material": golden["material"] }),
        }
    });
}
