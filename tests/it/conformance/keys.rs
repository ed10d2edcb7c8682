//! The golden keys, computed natively in every language.

use std::{
    io::Write,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use super::{python, read};
use crate::clients::built;

/// The golden vectors in one form, with 64-bit numbers and doubles as text, and their keys.
fn vectors() -> (String, Vec<String>) {
    let files = [
        ("transition_keys", transition as fn(&Value) -> Value),
        ("ping_keys", ping),
        ("variant_keys", variant),
    ];
    let (mut asked, mut expected) = (String::new(), Vec::new());
    for (file, in_one_form) in files {
        for line in read(&format!("tests/data/golden/{file}.jsonl")).lines() {
            let vector: Value = serde_json::from_str(line).expect("JSON");
            asked += &format!("{}\n", in_one_form(&vector));
            let one = vector.get("key").map(|key| vec![key.clone()]);
            let keys = one.unwrap_or_else(|| vector["keys"].as_array().expect("keys").clone());
            let keys: Vec<_> = keys.iter().map(|key| key.as_str().expect("text")).collect();
            expected.push(keys.join("\t"));
        }
    }
    assert_eq!(expected.len(), 240);
    (asked, expected)
}

fn transition(vector: &Value) -> Value {
    let namespace = json!({
        "prefix": "idem:", "layout": "plain", "digest": "xxh3", "resolution": null, "session": false,
        "width_ns": vector["width_ns"].to_string(), "guard_ns": vector["guard_ns"].to_string(),
    });
    let crossing = json!({
        "device_id": vector["device_id"], "fence_id": vector["fence_id"], "kind": vector["kind"],
    });
    let unix_nanos = vector["event_time_unix_nanos"].to_string();
    json!({ "namespace": namespace, "event": { "unix_nanos": unix_nanos, "transition": crossing } })
}

fn ping(vector: &Value) -> Value {
    let namespace = json!({
        "prefix": "dedup:", "layout": "plain", "digest": "blake2b", "session": false,
        "resolution": vector["h3_resolution"],
        "width_ns": format!("{}000000000", vector["width_s"]), "guard_ns": "0",
    });
    let report = json!({
        "asset_id": vector["asset_id"],
        "latitude": vector["latitude"].to_string(), "longitude": vector["longitude"].to_string(),
    });
    let unix_nanos = vector["event_time_unix_nanos"].to_string();
    json!({ "namespace": namespace, "event": { "unix_nanos": unix_nanos, "ping": report } })
}

fn variant(vector: &Value) -> Value {
    let written = &vector["namespace"];
    let window = &written["window"];
    let (width, guard) = if let Some(width) = window.get("sliding_ns") {
        (width.to_string(), width.to_string())
    } else if let Some(gap) = window.get("session_ns") {
        (gap.to_string(), "0".to_owned())
    } else if let Some(width) = window.get("tumbling_ns") {
        (width.to_string(), window["guard_ns"].to_string())
    } else {
        ("0".to_owned(), "0".to_owned())
    };
    let default_prefix = format!("{}:", written["name"].as_str().expect("a name"));
    let namespace = json!({
        "prefix": written["prefix"].as_str().unwrap_or(&default_prefix),
        "layout": written["layout"], "digest": written["digest"],
        "resolution": written["place"].get("resolution"),
        "session": window.get("session_ns").is_some(),
        "width_ns": width, "guard_ns": guard,
    });
    let mut event = vector["event"].clone();
    event["unix_nanos"] = event["event_time_unix_nanos"].to_string().into();
    for (kind, fields) in [
        ("ping", ["latitude", "longitude"]),
        ("transition", ["sequence", "sequence_epoch"]),
    ] {
        for field in fields {
            if let Some(number) = event.get(kind).and_then(|of| of.get(field)) {
                event[kind][field] = number.to_string().into();
            }
        }
    }
    json!({ "namespace": namespace, "event": event })
}

/// The program gets the vectors on its standard input and prints the keys of each.
fn check(mut program: Command) {
    let (asked, expected) = vectors();
    let spawned = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = spawned.expect("the program runs");
    let mut stdin = child.stdin.take().expect("it is piped");
    // The vectors and the keys are each smaller than what a pipe and the program hold.
    stdin
        .write_all(asked.as_bytes())
        .expect("the program reads");
    drop(stdin);
    let output = child.wait_with_output().expect("the program ends");
    assert!(output.status.success(), "{program:?}");
    let printed = String::from_utf8(output.stdout).expect("text");
    let printed: Vec<_> = printed.lines().collect();
    for ((vector, printed), expected) in asked.lines().zip(&printed).zip(&expected) {
        assert_eq!(printed, expected, "{vector}");
    }
    assert_eq!(printed.len(), expected.len());
}

#[test]
fn golden_keys_by_python() {
    check(python("python/keys.py"));
}

#[test]
fn the_page_on_keys_shows_the_function_in_python() {
    let page = read("docs/keys.md");
    let (_, block) = page.split_once("```python\n").expect("a block");
    let (shown, _) = block.split_once("\n```").expect("its end");
    assert!(read("tests/python/keys.py").contains(shown), "docs/keys.md");
}

#[test]
fn golden_keys_by_go() {
    check(built("go", "keys"));
}

#[test]
fn golden_keys_by_java() {
    check(built("java", "keys"));
}

#[test]
fn golden_keys_by_rust() {
    check(built("rust", "keys"));
}

#[test]
fn golden_keys_by_typescript() {
    check(built("typescript", "keys"));
}
